/* Arguments from Python: contiguous buffers, released together, and numbers. */
#ifndef DEMUR_BUFFERS_H
#define DEMUR_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "program.h"
#include "tree.h"

#define BUFFERS 24

typedef struct {
    Py_buffer view[BUFFERS];
    int count;
} Buffers;

/* The memory of argument k, of `bytes` bytes unless negative; NULL with an exception. */
void *memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t bytes);
void *writable_memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t bytes);
/* The size of the memory handed out last. */
int64_t last_bytes(const Buffers *b);
int64_t number(PyObject *args, Py_ssize_t k);
/* Whether the number of arguments is right; otherwise there is an exception. */
int takes(PyObject *args, Py_ssize_t count);
/* Release the buffers and return `result`. */
PyObject *finish(Buffers *b, PyObject *result);
PyObject *finish_none(Buffers *b);

/* Arguments 0 .. 7: point, node, box, mass, sums, unit, tilt, sets. */
#define TREE_ARGUMENTS 8
int read_tree(Buffers *b, PyObject *args, Tree *tree);
/* Arguments k .. k+4: objective, per_id, min_id, max_ood, ratio. */
#define PROGRAM_ARGUMENTS 5
int read_program(Buffers *b, PyObject *args, Py_ssize_t k, const Tree *tree, Program *program);

/* Functions of the module that build trees. */
PyObject *build_arrange(PyObject *self, PyObject *args);
PyObject *build_enclose(PyObject *self, PyObject *args);
PyObject *build_collect(PyObject *self, PyObject *args);
PyObject *build_total(PyObject *self, PyObject *args);

#endif
