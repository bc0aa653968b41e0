/* What Python sees: functions over contiguous buffers, called by compiled.py only. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <math.h>

#include "search.h"
#include "tree.h"

#define BUFFERS 16

/* Buffers of one call, released together. */
typedef struct {
    Py_buffer view[BUFFERS];
    int count;
} Buffers;

static void release(Buffers *b)
{
    while (b->count > 0) PyBuffer_Release(&b->view[--b->count]);
}

/* The memory of argument `k`, or NULL with an exception. */
static void *memory(Buffers *b, PyObject *args, Py_ssize_t k, int writable, int64_t bytes)
{
    PyObject *object = PyTuple_GetItem(args, k);
    Py_buffer *view = &b->view[b->count];
    if (!object) return NULL;
    if (PyObject_GetBuffer(object, view, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO)) return NULL;
    b->count++;
    if (bytes >= 0 && view->len != bytes) {
        PyErr_Format(PyExc_ValueError, "argument %zd has %zd bytes instead of %lld", k, view->len,
                     (long long)bytes);
        return NULL;
    }
    return view->buf;
}

static int64_t bytes_of(const Buffers *b, int k) { return (int64_t)b->view[k].len; }

static PyObject *finish(Buffers *b, PyObject *result)
{
    release(b);
    return result;
}

static PyObject *none(Buffers *b)
{
    Py_INCREF(Py_None);
    return finish(b, Py_None);
}

/* arrange(scores, point, key, row, tilt) -> number of distinct points */
static PyObject *arrange(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    double *scores, *point;
    uint32_t *key;
    int32_t *row, *tilt;
    int64_t points, n;
    (void)self;
    if (!(scores = memory(&b, args, 0, 0, -1))) return finish(&b, NULL);
    n = bytes_of(&b, 0) / 16;
    if (n > INT32_MAX / 2) {
        PyErr_SetString(PyExc_ValueError, "more than 2^30 - 1 rows");
        return finish(&b, NULL);
    }
    if (!(point = memory(&b, args, 1, 1, 16 * n)) || !(key = memory(&b, args, 2, 1, 4 * n)) ||
        !(row = memory(&b, args, 3, 1, 4 * n)) || !(tilt = memory(&b, args, 4, 1, 4)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    points = tree_arrange(scores, n, point, key, row, tilt);
    Py_END_ALLOW_THREADS
    return finish(&b, points < 0 ? PyErr_NoMemory() : PyLong_FromLongLong(points));
}

/* grow(key, node) -> number of nodes; node has room for twice as many */
static PyObject *grow(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    uint32_t *key;
    Node *node;
    int64_t nodes;
    (void)self;
    if (!(key = memory(&b, args, 0, 0, -1)) ||
        !(node = memory(&b, args, 1, 1, bytes_of(&b, 0) / 4 * 2 * (int64_t)sizeof *node)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    nodes = tree_grow(key, bytes_of(&b, 0) / 4, node);
    Py_END_ALLOW_THREADS
    return finish(&b, PyLong_FromLongLong(nodes));
}

/* enclose(node, point, box) */
static PyObject *enclose(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Node *node;
    double *point, *box;
    int64_t nodes;
    (void)self;
    if (!(node = memory(&b, args, 0, 0, -1))) return finish(&b, NULL);
    nodes = bytes_of(&b, 0) / (int64_t)sizeof *node;
    if (!(point = memory(&b, args, 1, 0, -1)) || !(box = memory(&b, args, 2, 1, 32 * nodes)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    tree_enclose(node, nodes, point, box);
    Py_END_ALLOW_THREADS
    return none(&b);
}

/* collect(row, id, ood, loss, points, sets, mass, unit); mass must be zero */
static PyObject *collect(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    int32_t *row;
    int64_t *id, *ood, *loss, *mass, *unit, n, points, sets;
    (void)self;
    if (PyTuple_Size(args) != 8) return NULL;
    points = PyLong_AsLongLong(PyTuple_GetItem(args, 4));
    sets = PyLong_AsLongLong(PyTuple_GetItem(args, 5));
    if (PyErr_Occurred() || !(row = memory(&b, args, 0, 0, -1))) return finish(&b, NULL);
    n = bytes_of(&b, 0) / 4;
    if (!(id = memory(&b, args, 1, 0, 8 * n)) || !(ood = memory(&b, args, 2, 0, 8 * n * sets)) ||
        !(loss = memory(&b, args, 3, 0, 8 * n)) ||
        !(mass = memory(&b, args, 6, 1, 8 * points * (FIRST_OOD + sets))) ||
        !(unit = memory(&b, args, 7, 1, 8 * UNITS)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    tree_collect(row, n, id, ood, loss, points, (int)sets, mass, unit);
    Py_END_ALLOW_THREADS
    return none(&b);
}

/* total(node, mass, sets, sums) */
static PyObject *total(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Node *node;
    int64_t *mass, *sums, nodes, width;
    (void)self;
    if (PyTuple_Size(args) != 4) return NULL;
    width = FIRST_OOD + PyLong_AsLongLong(PyTuple_GetItem(args, 2));
    if (PyErr_Occurred() || !(node = memory(&b, args, 0, 0, -1))) return finish(&b, NULL);
    nodes = bytes_of(&b, 0) / (int64_t)sizeof *node;
    if (!(mass = memory(&b, args, 1, 0, -1)) || !(sums = memory(&b, args, 3, 1, 8 * nodes * width)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    tree_total(node, nodes, mass, (int)width, sums);
    Py_END_ALLOW_THREADS
    return none(&b);
}

/* Read the tree from arguments 0 .. 7: point, node, box, mass, sums, unit, tilt, sets. */
static int read_tree(Buffers *b, PyObject *args, Tree *tree)
{
    const int32_t *tilt;
    tree->sets = (int)PyLong_AsLong(PyTuple_GetItem(args, 7));
    if (PyErr_Occurred()) return -1;
    tree->width = FIRST_OOD + tree->sets;
    if (!(tree->point = memory(b, args, 0, 0, -1))) return -1;
    tree->points = bytes_of(b, 0) / 16;
    if (!(tree->node = memory(b, args, 1, 0, -1))) return -1;
    tree->nodes = bytes_of(b, 1) / (int64_t)sizeof *tree->node;
    if (!(tree->box = memory(b, args, 2, 0, 32 * tree->nodes)) ||
        !(tree->mass = memory(b, args, 3, 0, 8 * tree->points * tree->width)) ||
        !(tree->sums = memory(b, args, 4, 0, 8 * tree->nodes * tree->width)) ||
        !(tree->unit = memory(b, args, 5, 0, 8 * UNITS)) || !(tilt = memory(b, args, 6, 0, 4)))
        return -1;
    tree->tilt = *tilt;
    return 0;
}

/* Read the program from arguments k .. k+4: objective, per_id, min_id, max_ood, ratio. */
static int read_program(Buffers *b, PyObject *args, Py_ssize_t k, const Tree *tree, Program *p)
{
    const int64_t *objective = memory(b, args, k, 0, 24);
    if (!objective) return -1;
    p->loss = objective[0];
    p->id = objective[1];
    p->ood = objective[2];
    p->per_id = PyObject_IsTrue(PyTuple_GetItem(args, k + 1));
    p->min_id = PyLong_AsLongLong(PyTuple_GetItem(args, k + 2));
    if (PyErr_Occurred()) return -1;
    if (p->min_id < 1) p->min_id = 1;
    p->sets = tree->sets;
    p->max_ood = memory(b, args, k + 3, 0, 8 * tree->sets);
    if (!p->max_ood) return -1;
    p->ratio = memory(b, args, k + 4, 0, 16 * tree->sets);
    return p->ratio ? 0 : -1;
}

static double trivial_bound(const Search *s)
{
    double least = (double)s->program.id;
    return s->program.per_id ? least : least * (double)s->tree->sums[ID];
}

static PyObject *report(const Search *s)
{
    const char *status = s->boxes_open > 0 ? "budget" : s->gap_used ? "gap" : "optimal";
    double lower = s->found ? s->value : trivial_bound(s);
    if (!s->found && s->boxes_open == 0) {
        status = "infeasible";
        lower = HUGE_VAL;
    }
    if (s->found && s->lower < lower) lower = s->lower;
    return Py_BuildValue("iLLLsdLL", s->half_planes, (long long)s->best.id, (long long)s->best.ood,
                         (long long)s->best.loss, status, lower, (long long)s->boxes,
                         (long long)s->unresolved);
}

/* search(tree 0-7, program 8-12, quarters, start, gap, budget, weights, v)
 *   -> (half-planes, id, ood, loss, status, lower bound, boxes, unresolved) */
static PyObject *search(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Tree tree;
    Search *s;
    double *start, *weights, *v;
    int64_t *quarter;
    int failed, quarters, starts;
    PyObject *result = NULL;
    (void)self;
    if (PyTuple_Size(args) != 19) {
        PyErr_SetString(PyExc_TypeError, "search takes 19 arguments");
        return NULL;
    }
    if (!(s = PyMem_Calloc(1, sizeof *s))) return PyErr_NoMemory();
    s->tree = &tree;
    s->gap = PyFloat_AsDouble(PyTuple_GetItem(args, 15));
    s->budget = PyLong_AsLongLong(PyTuple_GetItem(args, 16));
    if (PyErr_Occurred() || read_tree(&b, args, &tree) ||
        read_program(&b, args, 8, &tree, &s->program) || !(quarter = memory(&b, args, 13, 0, -1)))
        goto done;
    quarters = (int)(bytes_of(&b, b.count - 1) / 8);
    if (!(start = memory(&b, args, 14, 0, -1))) goto done;
    starts = (int)(bytes_of(&b, b.count - 1) / 16);
    if (!(weights = memory(&b, args, 17, 1, 16 * HALF_PLANES)) ||
        !(v = memory(&b, args, 18, 1, 8 * HALF_PLANES)))
        goto done;
    Py_BEGIN_ALLOW_THREADS
    failed = search_open(s) || search_optimum(s, quarter, quarters, start, starts);
    for (int k = 0; k < s->half_planes; k++) {
        weights[2 * k] = s->half_plane[k].weight[0];
        weights[2 * k + 1] = s->half_plane[k].weight[1];
        v[k] = s->half_plane[k].v;
    }
    search_close(s);
    Py_END_ALLOW_THREADS
    result = failed ? PyErr_NoMemory() : report(s);
done:
    PyMem_Free(s);
    return finish(&b, result);
}

static PyMethodDef functions[] = {
    {"arrange", arrange, METH_VARARGS, "Sort scores along a curve and merge equal points."},
    {"grow", grow, METH_VARARGS, "Split the curve into nodes."},
    {"collect", collect, METH_VARARGS, "Add up the masses of rows that are the same point."},
    {"enclose", enclose, METH_VARARGS, "Bounding boxes of the nodes."},
    {"total", total, METH_VARARGS, "Masses of the nodes."},
    {"search", search, METH_VARARGS, "Branch and bound."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_engine", "Compiled searches.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__engine(void) { return PyModuleDef_Init(&definition); }
