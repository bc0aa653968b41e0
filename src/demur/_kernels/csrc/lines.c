/* Functions of the module about given half-planes: what they accept, what is next to them. */
#include "buffers.h"

#include <stdlib.h>

#include "margin.h"
#include "rows.h"
#include "search.h"

/* sides(tree, weight, v, along) -> last accepted, first rejected value */
PyObject *lines_sides(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    const double *weight, *along;
    double v, last, following;
    (void)self;
    if (!takes(args, k + 3) || read_tree(&b, args, &tree) ||
        !(weight = memory(&b, args, k, 2, 8)) ||
        !(along = memory(&b, args, k + 2, 2, 8)))
        return finish(&b, NULL);
    v = real_number(args, k + 1);
    if (PyErr_Occurred()) return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    margin_sides(&tree, weight, v, along, &last, &following);
    Py_END_ALLOW_THREADS
    return finish(&b, Py_BuildValue("dd", last, following));
}

/* Half-planes: two weights and v each; NULL with an exception. */
static const double *read_lines(Buffers *b, PyObject *args, Py_ssize_t k, int64_t *count)
{
    return counted_memory(b, args, k, INT32_MAX, 24, count);
}

/* count(tree, lines, masses); masses: as in a row of the tree, each */
PyObject *lines_count(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    Signals signals;
    const double *line;
    int64_t lines, *row;
    int failed = 0;
    (void)self;
    if (!takes(args, k + 2) || read_tree(&b, args, &tree) ||
        !(line = read_lines(&b, args, k, &lines)) ||
        !(row = writable_memory(&b, args, k + 1, lines * tree.width, 8)))
        return finish(&b, NULL);
    signals_begin(&signals);
    for (int64_t i = 0; i < lines && !(failed = interrupted(&signals, 1)); i++)
        count_half_plane(&tree, line + 3 * i, line[3 * i + 2], row + i * tree.width);
    signals_end(&signals);
    return failed ? finish(&b, failure(&signals)) : finish_none(&b);
}

/* settle(tree, lines, settled, sides): lines of unit weights with thresholds midway, and the
 * last accepted and first rejected value along the weights that came */
PyObject *lines_settle(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    Signals signals;
    const double *line;
    double *settled, *side;
    int64_t lines;
    int failed = 0;
    (void)self;
    if (!takes(args, k + 3) || read_tree(&b, args, &tree) ||
        !(line = read_lines(&b, args, k, &lines)) ||
        !(settled = writable_memory(&b, args, k + 1, lines, 24)) ||
        !(side = writable_memory(&b, args, k + 2, lines, 16)))
        return finish(&b, NULL);
    signals_begin(&signals);
    for (int64_t i = 0; i < lines && !(failed = interrupted(&signals, 1)); i++) {
        const double *weight = line + 3 * i, v = line[3 * i + 2];
        margin_settle(&tree, weight, v, settled + 3 * i, settled + 3 * i + 2);
        margin_sides(&tree, weight, v, weight, side + 2 * i, side + 2 * i + 1);
    }
    signals_end(&signals);
    return failed ? finish(&b, failure(&signals)) : finish_none(&b);
}

/* widest(tree, weight, v, scale, nonneg) -> direction, width */
PyObject *lines_widest(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    const double *weight, *scale;
    const int64_t *asked;
    double v, direction[2], width;
    (void)self;
    if (!takes(args, k + 4) || read_tree(&b, args, &tree) ||
        !(weight = memory(&b, args, k, 2, 8)) ||
        !(scale = memory(&b, args, k + 2, 2, 8)) || !(asked = memory(&b, args, k + 3, 2, 8)))
        return finish(&b, NULL);
    v = real_number(args, k + 1);
    if (PyErr_Occurred()) return finish(&b, NULL);
    int nonneg[2] = {asked[0] != 0, asked[1] != 0};
    Py_BEGIN_ALLOW_THREADS
    margin_widest(&tree, weight, v, scale, nonneg, direction, &width);
    Py_END_ALLOW_THREADS
    return finish(&b, Py_BuildValue("ddd", direction[0], direction[1], width));
}

/* tally(scores, weight, threshold, closed, id, loss, ood, sums): what rows, not a tree, a half-plane
 * accepts; sums: ID, loss, and OOD of each set */
PyObject *lines_tally(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Decision decision;
    const double *scores, *weight;
    const int64_t *ood, **mass = NULL;
    int64_t n, *sums, kinds;
    PyObject *result = NULL;
    (void)self;
    if (!takes(args, 8) || !(scores = counted_memory(&b, args, 0, INT64_MAX / 16, 16, &n)) ||
        !(weight = memory(&b, args, 1, 2, 8)) ||
        !(sums = counted_writable_memory(&b, args, 7, MOST_SETS, 8, &kinds)))
        return finish(&b, NULL);
    decision.threshold = real_number(args, 2);
    if (!PyErr_Occurred()) decision.closed = (int)number(args, 3, 0, 1);
    if (PyErr_Occurred()) return finish(&b, NULL);
    decision.weight[0] = weight[0];
    decision.weight[1] = weight[1];
    if (kinds < 2) {
        PyErr_SetString(PyExc_ValueError, "there are sums of ID and of loss, at least");
        return finish(&b, NULL);
    }
    if (!(mass = malloc((size_t)kinds * sizeof *mass))) return finish(&b, PyErr_NoMemory());
    if (!(mass[0] = memory(&b, args, 4, n, 8)) || !(mass[1] = memory(&b, args, 5, n, 8)) ||
        !(ood = memory(&b, args, 6, n * (kinds - 2), 8)))
        goto done;
    for (int64_t k = 2; k < kinds; k++) mass[k] = ood + (k - 2) * n;
    Py_BEGIN_ALLOW_THREADS
    rows_tally(scores, n, &decision, (int)kinds, mass, sums);
    Py_END_ALLOW_THREADS
    Py_INCREF(Py_None);
    result = Py_None;
done:
    free(mass);
    return finish(&b, result);
}
