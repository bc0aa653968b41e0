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

/* learn(scores, ranks, tilt) */
PyObject *build_learn(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    const double *scores;
    Ranks *ranks;
    int32_t *tilt;
    int64_t n;
    (void)self;
    if (!takes(args, 3) || !(scores = counted_memory(&b, args, 0, MOST_ROWS, 16, &n)) ||
        !(ranks = writable_memory(&b, args, 1, 2, sizeof *ranks)) ||
        !(tilt = writable_memory(&b, args, 2, 1, 4)))
        return finish(&b, NULL);
    if (n == 0) {
        PyErr_SetString(PyExc_ValueError, "no rows to grow from");
        return finish(&b, NULL);
    }
    if (tree_learn(scores, n, ranks, tilt)) return finish(&b, PyErr_NoMemory());
    return finish_none(&b);
}

/* Arguments k and k + 1: rows from the one up to the other. */
static int read_range(PyObject *args, Py_ssize_t k, const Soil *soil, int64_t *begin, int64_t *end)
{
    *begin = *end = number(args, k, 0, soil->rows);
    if (PyErr_Occurred()) return -1;
    *end = number(args, k + 1, *begin, soil->rows);
    return PyErr_Occurred() ? -1 : 0;
}

/* Argument k, the number of masses, and what comes before it: a soil. */
static int read_sowing(Buffers *b, PyObject *args, Py_ssize_t k, Soil *soil, int64_t *width)
{
    *width = number(args, k, FIRST_OOD, FIRST_OOD + 2 * MOST_SETS);
    return PyErr_Occurred() || read_soil(b, args, (int)*width - FIRST_OOD, soil) ? -1 : 0;
}

/* Arguments from k on: sums, count, unit, range. */
static int read_share(Buffers *b, PyObject *args, Py_ssize_t k, const Soil *soil, int64_t width,
                      Share *share)
{
    const int64_t cells = (int64_t)1 << soil->bits;
    return !(share->sums = writable_memory(b, args, k, cells * width, 8)) ||
                   !(share->count = writable_memory(b, args, k + 1, cells, 4)) ||
                   !(share->unit = writable_memory(b, args, k + 2, UNITS, 8)) ||
                   !(share->range = writable_memory(b, args, k + 3, 4, 8))
               ? -1
               : 0;
}

/* put(*soil, width, begin, end, sums, count, unit, range) */
PyObject *build_put(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = SOIL_ARGUMENTS;
    Buffers b = {.count = 0};
    Signals signals;
    Soil soil = {.rows = 0};
    Share share;
    uint16_t *cell;
    int64_t begin, end, width;
    int failed;
    (void)self;
    if (!takes(args, k + 7)) return NULL;
    if (read_sowing(&b, args, k, &soil, &width) || read_range(args, k + 1, &soil, &begin, &end) ||
        read_share(&b, args, k + 3, &soil, width, &share) ||
        !(cell = writable_memory(&b, args, 6, soil.rows, sizeof *cell)))
        return finish(&b, NULL);
    signals_begin(&signals);
    failed = tree_put(&signals, &soil, begin, end, cell, &share);
    signals_end(&signals);
    return failed ? finish(&b, failure(&signals)) : finish_none(&b);
}

/* list_rows(*soil, width, begin, end, start) */
PyObject *build_list(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = SOIL_ARGUMENTS;
    Buffers b = {.count = 0};
    Signals signals;
    Soil soil = {.rows = 0};
    uint32_t *start;
    int32_t *row;
    int64_t begin, end, width;
    int failed;
    (void)self;
    if (!takes(args, k + 4)) return NULL;
    if (read_sowing(&b, args, k, &soil, &width) || read_range(args, k + 1, &soil, &begin, &end) ||
        !(start = writable_memory(&b, args, k + 3, (int64_t)1 << soil.bits, 4)) ||
        !(row = writable_memory(&b, args, 7, soil.rows, sizeof *row)))
        return finish(&b, NULL);
    signals_begin(&signals);
    failed = tree_list(&signals, &soil, begin, end, start, row);
    signals_end(&signals);
    if (failed > 0) {
        PyErr_SetString(PyExc_ValueError, "lists of rows have no room for these");
        return finish(&b, NULL);
    }
    return failed ? finish(&b, failure(&signals)) : finish_none(&b);
}

/* Whether the lists of cells are all rows, one after another; otherwise there is an exception. */
static int lists_join(const Soil *soil, const uint32_t *count, const uint32_t *end)
{
    const int64_t cells = (int64_t)1 << soil->bits;
    int64_t total = 0, k = 0;
    for (; k < cells && total + count[k] == end[k]; k++) total = end[k];
    if (k == cells && total == soil->rows) return 1;
    PyErr_SetString(PyExc_ValueError, "lists of rows that do not join");
    return 0;
}

/* sow(*soil, width, sums of cells, count, unit, range, end, node, box, sums, tenths) */
PyObject *build_sow(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = SOIL_ARGUMENTS;
    Buffers b = {.count = 0};
    Soil soil = {.rows = 0};
    Share all;
    const uint32_t *end;
    int64_t nodes, width;
    double *tenths;
    int failed;
    (void)self;
    if (!takes(args, k + 10)) return NULL;
    if (read_sowing(&b, args, k, &soil, &width) ||
        read_share(&b, args, k + 1, &soil, width, &all) ||
        !(end = memory(&b, args, k + 5, (int64_t)1 << soil.bits, 4)))
        return finish(&b, NULL);
    nodes = most_nodes(soil.rows, soil.bits);
    if (!(soil.node = writable_memory(&b, args, k + 6, nodes, sizeof(Node))) ||
        !(soil.box = writable_memory(&b, args, k + 7, nodes, 32)) ||
        !(soil.sums = writable_memory(&b, args, k + 8, nodes * width, 8)) ||
        !(tenths = writable_memory(&b, args, k + 9, 4, 8)) ||
        !lists_join(&soil, all.count, end))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    failed = tree_sow(&soil, &all, end, tenths);
    Py_END_ALLOW_THREADS
    return failed ? finish(&b, PyErr_NoMemory()) : finish_none(&b);
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
