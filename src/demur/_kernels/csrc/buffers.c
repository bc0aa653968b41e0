#include "buffers.h"

static double nothing; /* where nobody reads: an empty buffer may be nowhere */

/* The memory of argument k, as entries of `size` bytes; NULL with an exception. */
static void *hand_out(Buffers *b, PyObject *args, Py_ssize_t k, int flags, size_t size,
                      int64_t *count)
{
    PyObject *object = PyTuple_GetItem(args, k);
    Py_buffer *view = &b->view[b->count];
    if (!object || PyObject_GetBuffer(object, view, flags)) return NULL;
    b->count++;
    *count = (int64_t)view->len / (int64_t)size;
    if (*count * (int64_t)size != (int64_t)view->len) {
        PyErr_Format(PyExc_ValueError, "argument %zd has %zd bytes, no multiple of %zu", k,
                     view->len, size);
        return NULL;
    }
    if ((uintptr_t)view->buf % (size_t)(view->itemsize > 0 ? view->itemsize : 1)) {
        PyErr_Format(PyExc_ValueError, "argument %zd is not aligned", k);
        return NULL;
    }
    return view->buf ? view->buf : &nothing;
}

static void *exactly(Buffers *b, PyObject *args, Py_ssize_t k, int flags, int64_t count,
                     size_t size)
{
    int64_t given;
    void *memory = hand_out(b, args, k, flags, size, &given);
    if (!memory || given == count) return memory;
    PyErr_Format(PyExc_ValueError, "argument %zd has %lld entries instead of %lld", k,
                 (long long)given, (long long)count);
    return NULL;
}

void *memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t count, size_t size)
{
    return exactly(b, args, k, PyBUF_CONTIG_RO, count, size);
}

void *writable_memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t count, size_t size)
{
    return exactly(b, args, k, PyBUF_CONTIG, count, size);
}

static void *up_to(Buffers *b, PyObject *args, Py_ssize_t k, int flags, int64_t most, size_t size,
                   int64_t *count)
{
    void *memory = hand_out(b, args, k, flags, size, count);
    if (!memory || *count <= most) return memory;
    PyErr_Format(PyExc_ValueError, "argument %zd has %lld entries, more than %lld", k,
                 (long long)*count, (long long)most);
    return NULL;
}

void *counted_memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t most, size_t size,
                     int64_t *count)
{
    return up_to(b, args, k, PyBUF_CONTIG_RO, most, size, count);
}

void *counted_writable_memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t most, size_t size,
                              int64_t *count)
{
    return up_to(b, args, k, PyBUF_CONTIG, most, size, count);
}

int64_t number(PyObject *args, Py_ssize_t k, int64_t least, int64_t most)
{
    PyObject *object = PyTuple_GetItem(args, k);
    int64_t value = object ? PyLong_AsLongLong(object) : -1;
    if (PyErr_Occurred()) return least;
    if (value >= least && value <= most) return value;
    PyErr_Format(PyExc_ValueError, "argument %zd is %lld, not from %lld to %lld", k,
                 (long long)value, (long long)least, (long long)most);
    return least;
}

double real_number(PyObject *args, Py_ssize_t k)
{
    PyObject *object = PyTuple_GetItem(args, k);
    return object ? PyFloat_AsDouble(object) : -1;
}

int takes(PyObject *args, Py_ssize_t count)
{
    if (PyTuple_Size(args) == count) return 1;
    PyErr_Format(PyExc_TypeError, "takes %zd arguments, got %zd", count, PyTuple_Size(args));
    return 0;
}

PyObject *finish(Buffers *b, PyObject *result)
{
    while (b->count > 0) PyBuffer_Release(&b->view[--b->count]);
    return result;
}

PyObject *finish_none(Buffers *b)
{
    Py_INCREF(Py_None);
    return finish(b, Py_None);
}

PyObject *failure(const Signals *signals) { return signals->raised ? NULL : PyErr_NoMemory(); }

int root_holds(const Node *node, int64_t nodes, int64_t points)
{
    if (nodes == 0 ? points == 0 : node->first == 0 && node->end == points) return 1;
    PyErr_Format(PyExc_ValueError, "the tree is not one over %lld points", (long long)points);
    return 0;
}

int read_soil(Buffers *b, PyObject *args, int columns, Soil *soil)
{
    int64_t n;
    soil->bits = (int)number(args, 4, 2, MOST_CELL_BITS);
    if (PyErr_Occurred()) return -1;
    if (soil->bits % 2) {
        PyErr_SetString(PyExc_ValueError, "cells have an even number of bits");
        return -1;
    }
    if (!(soil->scores = counted_memory(b, args, 0, MOST_ROWS, 16, &n)) ||
        !(soil->id = memory(b, args, 1, n, 8)) || !(soil->more = memory(b, args, 2, n * columns, 8)) ||
        !(soil->loss = memory(b, args, 3, n, 8)) ||
        !(soil->ranks = memory(b, args, 5, 2, sizeof(Ranks))) ||
        !(soil->cell = memory(b, args, 6, n, 2)) || !(soil->row = memory(b, args, 7, n, 4)) ||
        !(soil->node_of = writable_memory(b, args, 8, (int64_t)1 << soil->bits, 4)) ||
        !(soil->state = writable_memory(b, args, 9, STATES, 8)))
        return -1;
    soil->rows = n;
    soil->columns = columns;
    return 0;
}

/* The same memory again, to be written: a tree that grows is its caller's alone. */
static int read_growing(Buffers *b, PyObject *args, PyObject *soil, Tree *tree)
{
    const int64_t width = tree->width;
    Soil *s = &tree->soil;
    if (!PyTuple_Check(soil) || PyTuple_Size(soil) != SOIL_ARGUMENTS + 1) {
        PyErr_SetString(PyExc_TypeError, "what a tree grows from is a tuple");
        return -1;
    }
    if (read_soil(b, soil, tree->sets + tree->extra, s) ||
        !(s->point = writable_memory(b, args, 0, tree->points, 16)) ||
        !(s->node = writable_memory(b, args, 1, tree->nodes, sizeof(Node))) ||
        !(s->box = writable_memory(b, args, 2, tree->nodes, 32)) ||
        !(s->mass = writable_memory(b, args, 3, tree->points * width, 8)) ||
        !(s->sums = writable_memory(b, args, 4, tree->nodes * width, 8)) ||
        !(s->room = writable_memory(b, soil, SOIL_ARGUMENTS, s->state[LARGEST_CELL],
                                    SEED_WORDS * sizeof(uint64_t))))
        return -1;
    if (tree->points == s->rows && tree->nodes == most_nodes(s->rows, s->bits)) return 0;
    PyErr_SetString(PyExc_ValueError, "the tree has no room for all rows");
    return -1;
}

int read_tree(Buffers *b, PyObject *args, Tree *tree)
{
    const int32_t *tilt;
    const double *frame;
    tree->sets = (int)number(args, 7, 0, MOST_SETS);
    if (PyErr_Occurred()) return -1;
    tree->extra = (int)number(args, 8, 0, MOST_SETS);
    if (PyErr_Occurred()) return -1;
    const int64_t width = FIRST_OOD + tree->sets + tree->extra;
    tree->width = (int)width;
    if (!(tree->point = counted_memory(b, args, 0, MOST_ROWS, 16, &tree->points)) ||
        !(tree->node = counted_memory(b, args, 1, 2 * MOST_ROWS, sizeof(Node), &tree->nodes)) ||
        !(tree->box = memory(b, args, 2, tree->nodes, 32)) ||
        !(tree->mass = memory(b, args, 3, tree->points * width, 8)) ||
        !(tree->sums = memory(b, args, 4, tree->nodes * width, 8)) ||
        !(tree->unit = memory(b, args, 5, UNITS, 8)) || !(tilt = memory(b, args, 6, 1, 4)) ||
        !(frame = memory(b, args, 9, 5, 8)))
        return -1;
    for (int c = 0; c < 2; c++) {
        tree->shift[c] = frame[c];
        tree->divisor[c] = frame[2 + c];
    }
    tree->framed = frame[0] != 0 || frame[1] != 0 || frame[2] != 1 || frame[3] != 1;
    tree->whole = frame[4] != 0;
    if (*tilt < -MOST_TILT || *tilt > MOST_TILT) {
        PyErr_SetString(PyExc_ValueError, "the tree has a tilt out of range");
        return -1;
    }
    PyObject *soil = PyTuple_GetItem(args, 10);
    tree->soil = (Soil){.rows = 0};
    if (soil != Py_None ? read_growing(b, args, soil, tree)
                        : !root_holds(tree->node, tree->nodes, tree->points))
        return -1;
    tree->tilt = tree->nodes > 0 ? tilt_within(*tilt, tree->box) : *tilt;
    return 0;
}

int read_program(Buffers *b, PyObject *args, Py_ssize_t k, const Tree *tree, Program *program)
{
    const int64_t *objective = memory(b, args, k, 3, 8);
    if (!objective) return -1;
    program->loss = objective[0];
    program->id = objective[1];
    program->ood = objective[2];
    program->per_id = number(args, k + 1, INT64_MIN, INT64_MAX) != 0;
    program->min_id = number(args, k + 2, INT64_MIN, INT64_MAX);
    if (PyErr_Occurred()) return -1;
    if (program->min_id < 1) program->min_id = 1;
    program->sets = tree->sets;
    program->max_ood = memory(b, args, k + 3, tree->sets, 8);
    program->extra = tree->extra;
    if (!program->max_ood || !(program->ratio = memory(b, args, k + 4, 2 * (int64_t)tree->sets, 8)))
        return -1;
    const size_t extra = (size_t)tree->extra;
    int64_t bounds;
    if (!(program->coefficient = counted_memory(b, args, k + 5, MOST_SETS, 8 * (3 + extra), &bounds)))
        return -1;
    program->bounds = (int)bounds;
    if (!(program->least = memory(b, args, k + 6, bounds, 8)) ||
        !(program->hope = memory(b, args, k + 7, bounds, 8 * (2 + extra))))
        return -1;
    return 0;
}
