/* The lock of Python is taken only every so often: with other threads at work that can take
 * milliseconds. In threads other than the main one Python sees no signals, and nothing happens.
 */
#include "signals.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>

#define BETWEEN_SIGNALS 100 /* milliseconds */

static int64_t milliseconds(void)
{
    struct timespec now = {0, 0};
    timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void signals_begin(Signals *signals)
{
    signals->work = WORK_BETWEEN_LOOKS;
    signals->clock = milliseconds();
    signals->raised = 0;
    signals->thread = PyEval_SaveThread();
}

void signals_end(Signals *signals) { PyEval_RestoreThread(signals->thread); }

int signals_raised(Signals *signals)
{
    int64_t passed = milliseconds() - signals->clock;
    signals->work = WORK_BETWEEN_LOOKS;
    /* A clock that is set back has passed too. */
    if (signals->raised || (passed >= 0 && passed < BETWEEN_SIGNALS)) return signals->raised;
    PyEval_RestoreThread(signals->thread);
    signals->raised = PyErr_CheckSignals() != 0;
    signals->thread = PyEval_SaveThread();
    signals->clock = milliseconds();
    return signals->raised;
}
