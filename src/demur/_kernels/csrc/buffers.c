#include "buffers.h"

static void *hand_out(Buffers *b, PyObject *args, Py_ssize_t k, int flags, int64_t bytes)
{
    PyObject *object = PyTuple_GetItem(args, k);
    Py_buffer *view = &b->view[b->count];
    if (!object || PyObject_GetBuffer(object, view, flags)) return NULL;
    b->count++;
    if (bytes >= 0 && view->len != bytes) {
        PyErr_Format(PyExc_ValueError, "argument %zd has %zd bytes instead of %lld", k, view->len,
                     (long long)bytes);
        return NULL;
    }
    return view->buf;
}

void *memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t bytes)
{
    return hand_out(b, args, k, PyBUF_CONTIG_RO, bytes);
}

void *writable_memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t bytes)
{
    return hand_out(b, args, k, PyBUF_CONTIG, bytes);
}

int64_t last_bytes(const Buffers *b) { return (int64_t)b->view[b->count - 1].len; }

int64_t number(PyObject *args, Py_ssize_t k)
{
    PyObject *object = PyTuple_GetItem(args, k);
    return object ? PyLong_AsLongLong(object) : -1;
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

int read_tree(Buffers *b, PyObject *args, Tree *tree)
{
    const int32_t *tilt;
    tree->sets = (int)number(args, 7);
    if (PyErr_Occurred()) return -1;
    tree->width = FIRST_OOD + tree->sets;
    if (!(tree->point = memory(b, args, 0, -1))) return -1;
    tree->points = last_bytes(b) / 16;
    if (!(tree->node = memory(b, args, 1, -1))) return -1;
    tree->nodes = last_bytes(b) / (int64_t)sizeof *tree->node;
    if (!(tree->box = memory(b, args, 2, 32 * tree->nodes)) ||
        !(tree->mass = memory(b, args, 3, 8 * tree->points * tree->width)) ||
        !(tree->sums = memory(b, args, 4, 8 * tree->nodes * tree->width)) ||
        !(tree->unit = memory(b, args, 5, 8 * UNITS)) || !(tilt = memory(b, args, 6, 4)))
        return -1;
    tree->tilt = *tilt;
    return 0;
}

int read_program(Buffers *b, PyObject *args, Py_ssize_t k, const Tree *tree, Program *program)
{
    const int64_t *objective = memory(b, args, k, 24);
    if (!objective) return -1;
    program->loss = objective[0];
    program->id = objective[1];
    program->ood = objective[2];
    program->per_id = number(args, k + 1) != 0;
    program->min_id = number(args, k + 2);
    if (PyErr_Occurred()) return -1;
    if (program->min_id < 1) program->min_id = 1;
    program->sets = tree->sets;
    program->max_ood = memory(b, args, k + 3, 8 * tree->sets);
    program->ratio = program->max_ood ? memory(b, args, k + 4, 16 * tree->sets) : NULL;
    return program->ratio ? 0 : -1;
}
