/* Looking for signals while other threads of Python may run, so that Ctrl-C ends a search. */
#ifndef DEMUR_SIGNALS_H
#define DEMUR_SIGNALS_H

#include <stdint.h>

typedef struct {
    void *thread;  /* the state that Python gave to keep while its lock is released */
    int64_t clock; /* milliseconds, when signals were looked for */
    int64_t work;  /* left to do before the next look at the clock */
    int raised;    /* whether a signal became an exception, which ends everything */
} Signals;

/* Release the lock of Python, and take it back. */
void signals_begin(Signals *signals);
void signals_end(Signals *signals);

/* Look at the clock, and for signals if it is time to. */
int signals_raised(Signals *signals);

/* Work is counted in boxes, or blocks of rows: from some microseconds to milliseconds. */
#define WORK_BETWEEN_LOOKS 32
#define ROWS_OF_A_BLOCK 4096

/* After so much more work: whether to stop. */
static inline int interrupted(Signals *signals, int64_t work)
{
    signals->work -= work;
    return signals->work < 0 && signals_raised(signals);
}

/* The same at a row, or node, of a loop over all. */
static inline int interrupted_in_loop(Signals *signals, int64_t row)
{
    return row % ROWS_OF_A_BLOCK == 0 && interrupted(signals, 1);
}

#endif
