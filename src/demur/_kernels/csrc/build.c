/* What Python calls to build a tree, step by step. */
#include "buffers.h"

/* arrange(scores, room, point, row, node, tilt) -> number of distinct points, number of nodes */
PyObject *build_arrange(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    double *scores, *point;
    int32_t *row, *tilt;
    uint64_t *code;
    Node *node;
    int64_t points, nodes, n;
    int failed;
    (void)self;
    if (!takes(args, 6) || !(scores = memory(&b, args, 0, -1))) return finish(&b, NULL);
    n = last_bytes(&b) / 16;
    if (n > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "more than 2^30 - 1 rows");
        return finish(&b, NULL);
    }
    if (!(code = writable_memory(&b, args, 1, 8 * n)) ||
        !(point = writable_memory(&b, args, 2, 16 * n)) ||
        !(row = writable_memory(&b, args, 3, 4 * n)) ||
        !(node = writable_memory(&b, args, 4, 2 * n * (int64_t)sizeof *node)) ||
        !(tilt = writable_memory(&b, args, 5, 4)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    failed = tree_arrange(scores, n, code, point, row, node, tilt, &points, &nodes);
    Py_END_ALLOW_THREADS
    if (failed) return finish(&b, PyErr_NoMemory());
    return finish(&b, Py_BuildValue("LL", (long long)points, (long long)nodes));
}

/* enclose(node, point, box) */
PyObject *build_enclose(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Node *node;
    double *point, *box;
    int64_t nodes;
    (void)self;
    if (!takes(args, 3) || !(node = memory(&b, args, 0, -1))) return finish(&b, NULL);
    nodes = last_bytes(&b) / (int64_t)sizeof *node;
    if (!(point = memory(&b, args, 1, -1)) || !(box = writable_memory(&b, args, 2, 32 * nodes)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    tree_enclose(node, nodes, point, box);
    Py_END_ALLOW_THREADS
    return finish_none(&b);
}

/* collect(row, id, ood, loss, points, sets, mass, unit); mass must be zero */
PyObject *build_collect(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    int32_t *row;
    int64_t *id, *ood, *loss, *mass, *unit, n;
    int64_t points = takes(args, 8) ? number(args, 4) : -1, sets = number(args, 5);
    (void)self;
    if (PyErr_Occurred() || !(row = memory(&b, args, 0, -1))) return finish(&b, NULL);
    n = last_bytes(&b) / 4;
    if (!(id = memory(&b, args, 1, 8 * n)) || !(ood = memory(&b, args, 2, 8 * n * sets)) ||
        !(loss = memory(&b, args, 3, 8 * n)) ||
        !(mass = writable_memory(&b, args, 6, 8 * points * (FIRST_OOD + sets))) ||
        !(unit = writable_memory(&b, args, 7, 8 * UNITS)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    tree_collect(row, n, id, ood, loss, (int)sets, mass, unit);
    Py_END_ALLOW_THREADS
    return finish_none(&b);
}

/* total(node, mass, sets, sums) */
PyObject *build_total(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Node *node;
    int64_t *mass, *sums, nodes, width = FIRST_OOD + (takes(args, 4) ? number(args, 2) : 0);
    (void)self;
    if (PyErr_Occurred() || !(node = memory(&b, args, 0, -1))) return finish(&b, NULL);
    nodes = last_bytes(&b) / (int64_t)sizeof *node;
    if (!(mass = memory(&b, args, 1, -1)) ||
        !(sums = writable_memory(&b, args, 3, 8 * nodes * width)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    tree_total(node, nodes, mass, (int)width, sums);
    Py_END_ALLOW_THREADS
    return finish_none(&b);
}
