/* Arguments from Python: contiguous buffers, released together, and numbers. Sizes are checked
 * here, so that nothing is read or written out of bounds; what buffers hold is the caller's. */
#ifndef DEMUR_BUFFERS_H
#define DEMUR_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "program.h"
#include "tree.h"

#define BUFFERS 40

typedef struct {
    Py_buffer view[BUFFERS];
    int count;
} Buffers;

/* The memory of argument k, `count` entries of `size` bytes; NULL with an exception. */
void *memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t count, size_t size);
void *writable_memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t count, size_t size);
/* The same, where the caller asks how many entries there are, which must not be more than `most`. */
void *counted_memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t most, size_t size,
                     int64_t *count);
void *counted_writable_memory(Buffers *b, PyObject *args, Py_ssize_t k, int64_t most, size_t size,
                              int64_t *count);
/* A number from `least` to `most`; if it is not, an exception, and `least`. */
int64_t number(PyObject *args, Py_ssize_t k, int64_t least, int64_t most);
double real_number(PyObject *args, Py_ssize_t k);
/* Whether the number of arguments is right; otherwise there is an exception. */
int takes(PyObject *args, Py_ssize_t count);
/* Release the buffers and return `result`. */
PyObject *finish(Buffers *b, PyObject *result);
PyObject *finish_none(Buffers *b);
/* After a function that failed: the exception of a signal, or the lack of memory. */
PyObject *failure(const Signals *signals);

/* More sets of OOD than anybody has; sizes of rows, and of all of them, then are in range. */
#define MOST_SETS ((int64_t)1 << 20)

/* Whether the root holds so many points; otherwise there is an exception. All nodes are checked
 * only once, when they get their boxes. */
int root_holds(const Node *node, int64_t nodes, int64_t points);

/* Arguments 0 .. 10: point, node, box, mass, sums, unit, tilt, sets, extra, frame: shifts, divisors
 * and whether points are whole; None, or of a tree that grows a tuple of what read_soil takes. */
#define TREE_ARGUMENTS 11
int read_tree(Buffers *b, PyObject *args, Tree *tree);
/* Entries of a tuple: scores, id, more, loss, bits, ranks, cell, row, node_of, state. */
#define SOIL_ARGUMENTS 10
int read_soil(Buffers *b, PyObject *args, int columns, Soil *soil);
/* Arguments k .. k+7: objective, per_id, min_id, max_ood, ratio, coefficients, least, hope. */
#define PROGRAM_ARGUMENTS 8
int read_program(Buffers *b, PyObject *args, Py_ssize_t k, const Tree *tree, Program *program);

/* Functions of the module that build trees. */
PyObject *build_learn(PyObject *self, PyObject *args);
PyObject *build_put(PyObject *self, PyObject *args);
PyObject *build_list(PyObject *self, PyObject *args);
PyObject *build_sow(PyObject *self, PyObject *args);
PyObject *build_arrange(PyObject *self, PyObject *args);
PyObject *build_enclose(PyObject *self, PyObject *args);
PyObject *build_collect(PyObject *self, PyObject *args);
PyObject *build_total(PyObject *self, PyObject *args);
PyObject *build_copy(PyObject *self, PyObject *args);

/* Functions of the module about given half-planes. */
PyObject *lines_sides(PyObject *self, PyObject *args);
PyObject *lines_count(PyObject *self, PyObject *args);
PyObject *lines_settle(PyObject *self, PyObject *args);
PyObject *lines_widest(PyObject *self, PyObject *args);
PyObject *lines_tally(PyObject *self, PyObject *args);

#endif
