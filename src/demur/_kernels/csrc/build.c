/* What Python calls to build a tree, step by step. */
#include "buffers.h"

#include "rows.h"

/* arrange(scores, room, point, row, node, tilt) -> number of distinct points, number of nodes */
PyObject *build_arrange(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Signals signals;
    const double *scores;
    double *point;
    int32_t *row, *tilt;
    uint64_t *code;
    Node *node;
    int64_t points, nodes, n;
    int failed;
    (void)self;
    if (!takes(args, 6) || !(scores = counted_memory(&b, args, 0, MOST_ROWS, 16, &n)) ||
        !(code = writable_memory(&b, args, 1, n, 8)) ||
        !(point = writable_memory(&b, args, 2, n, 16)) ||
        !(row = writable_memory(&b, args, 3, n, 4)) ||
        !(node = writable_memory(&b, args, 4, 2 * n, sizeof *node)) ||
        !(tilt = writable_memory(&b, args, 5, 1, 4)))
        return finish(&b, NULL);
    signals_begin(&signals);
    failed = tree_arrange(&signals, scores, n, code, point, row, node, tilt, &points, &nodes);
    signals_end(&signals);
    if (failed) return finish(&b, failure(&signals));
    return finish(&b, Py_BuildValue("LL", (long long)points, (long long)nodes));
}

/* enclose(node, point, box) */
PyObject *build_enclose(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    const Node *node;
    const double *point;
    double *box;
    int64_t nodes, points;
    (void)self;
    if (!takes(args, 3) ||
        !(node = counted_memory(&b, args, 0, 2 * MOST_ROWS, sizeof *node, &nodes)) ||
        !(point = counted_memory(&b, args, 1, MOST_ROWS, 16, &points)) ||
        !(box = writable_memory(&b, args, 2, nodes, 32)) || !root_holds(node, nodes, points))
        return finish(&b, NULL);
    if (!tree_sound(node, nodes, points)) {
        PyErr_SetString(PyExc_ValueError, "a node has points or children that do not exist");
        return finish(&b, NULL);
    }
    Py_BEGIN_ALLOW_THREADS
    tree_enclose(node, 0, nodes, point, box);
    Py_END_ALLOW_THREADS
    return finish_none(&b);
}

/* collect(row, id, ood, loss, extra, points, sets, extras, mass, unit); mass must be zero */
PyObject *build_collect(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Signals signals;
    const int32_t *row;
    RowMasses from;
    int64_t *mass, *unit, n, points = 0;
    int failed;
    (void)self;
    if (takes(args, 10)) points = number(args, 5, 0, MOST_ROWS);
    if (!PyErr_Occurred()) from.sets = (int)number(args, 6, 0, MOST_SETS);
    if (!PyErr_Occurred()) from.extras = (int)number(args, 7, 0, MOST_SETS);
    if (PyErr_Occurred() || !(row = counted_memory(&b, args, 0, MOST_ROWS, 4, &n)) ||
        !(from.id = memory(&b, args, 1, n, 8)) ||
        !(from.ood = memory(&b, args, 2, n * from.sets, 8)) ||
        !(from.loss = memory(&b, args, 3, n, 8)) ||
        !(from.extra = memory(&b, args, 4, n * from.extras, 8)) ||
        !(mass = writable_memory(&b, args, 8, points * (FIRST_OOD + from.sets + from.extras), 8)) ||
        !(unit = writable_memory(&b, args, 9, UNITS, 8)))
        return finish(&b, NULL);
    if (!tree_has(row, n, points)) {
        PyErr_SetString(PyExc_ValueError, "a row is a point that does not exist");
        return finish(&b, NULL);
    }
    signals_begin(&signals);
    failed = tree_collect(&signals, row, n, &from, mass, unit);
    signals_end(&signals);
    return failed ? finish(&b, failure(&signals)) : finish_none(&b);
}

/* total(node, mass, sets, sums) */
PyObject *build_total(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    const Node *node;
    const int64_t *mass;
    int64_t *sums, nodes, points, width = FIRST_OOD;
    (void)self;
    if (takes(args, 4)) width += number(args, 2, 0, MOST_SETS);
    if (PyErr_Occurred() ||
        !(node = counted_memory(&b, args, 0, 2 * MOST_ROWS, sizeof *node, &nodes)) ||
        !(mass = counted_memory(&b, args, 1, MOST_ROWS, 8 * (size_t)width, &points)) ||
        !(sums = writable_memory(&b, args, 3, nodes * width, 8)) ||
        !root_holds(node, nodes, points))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    tree_total(node, 0, nodes, mass, (int)width, sums);
    Py_END_ALLOW_THREADS
    return finish_none(&b);
}

/* sow(scores, id, more, loss, bits, ranks, cell, row, node_of, state, node, box, sums, unit, tilt, width,
 *     tenths) */
PyObject *build_sow(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = SOIL_ARGUMENTS;
    Buffers b = {.count = 0};
    Signals signals;
    Soil soil = {.rows = 0};
    Ranks *ranks;
    uint16_t *cell;
    int32_t *row, *tilt;
    int64_t *unit, nodes, width;
    double *tenths;
    int failed;
    (void)self;
    if (!takes(args, k + 7)) return NULL;
    width = number(args, k + 5, FIRST_OOD, FIRST_OOD + 2 * MOST_SETS);
    if (PyErr_Occurred() || read_soil(&b, args, (int)width - FIRST_OOD, &soil))
        return finish(&b, NULL);
    nodes = most_nodes(soil.rows, soil.bits);
    if (!(ranks = writable_memory(&b, args, 5, 2, sizeof *ranks)) ||
        !(cell = writable_memory(&b, args, 6, soil.rows, sizeof *cell)) ||
        !(row = writable_memory(&b, args, 7, soil.rows, sizeof *row)) ||
        !(soil.node = writable_memory(&b, args, k, nodes, sizeof(Node))) ||
        !(soil.box = writable_memory(&b, args, k + 1, nodes, 32)) ||
        !(soil.sums = writable_memory(&b, args, k + 2, nodes * width, 8)) ||
        !(unit = writable_memory(&b, args, k + 3, UNITS, 8)) ||
        !(tilt = writable_memory(&b, args, k + 4, 1, 4)) ||
        !(tenths = writable_memory(&b, args, k + 6, 4, 8)))
        return finish(&b, NULL);
    if (soil.rows == 0) {
        PyErr_SetString(PyExc_ValueError, "no rows to grow from");
        return finish(&b, NULL);
    }
    signals_begin(&signals);
    failed = tree_sow(&signals, &soil, ranks, cell, row, unit, tilt, tenths);
    signals_end(&signals);
    return failed ? finish(&b, failure(&signals)) : finish_none(&b);
}

/* copy(from, sign, to, low, high) -> whether all scores are finite */
PyObject *build_copy(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    const double *from, *sign;
    double *to, *low, *high;
    int64_t n;
    int finite;
    (void)self;
    if (!takes(args, 5) || !(from = counted_memory(&b, args, 0, INT64_MAX / 16, 16, &n)) ||
        !(sign = memory(&b, args, 1, 2, 8)) || !(to = writable_memory(&b, args, 2, n, 16)) ||
        !(low = writable_memory(&b, args, 3, 2, 8)) || !(high = writable_memory(&b, args, 4, 2, 8)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    finite = rows_copy(from, n, sign, to, low, high);
    Py_END_ALLOW_THREADS
    return finish(&b, PyBool_FromLong(finite));
}
