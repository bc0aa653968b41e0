/* Functions of the module about given half-planes: what they accept, what is next to them. */
#include "buffers.h"

#include "margin.h"
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
