/* What Python sees: functions over contiguous buffers, called by compiled.py only. */
#include "buffers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "equal_fpr.h"
#include "equals.h"
#include "frontier.h"
#include "limits.h"
#include "metrics.h"
#include "trail.h"
#include "vectors.h"

static double trivial_bound(const Search *s)
{
    double least = (double)s->program.id;
    return s->program.per_id ? least : least * (double)s->tree->sums[ID];
}

/* A box put aside: (unit score, weights at t = 1, edges: t, low, high at both ends; points; masses
 * below it; merit). */
static PyObject *describe_doubt(const Search *s, const Box *box, const int32_t *item,
                                const int64_t *sums)
{
    const Chart *chart = &s->octant[box->chart];
    const Zone *z = &box->zone;
    PyObject *points = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)box->count * 4);
    PyObject *masses = PyBytes_FromStringAndSize((const char *)sums, 8 * (Py_ssize_t)s->tree->width);
    if (!points || !masses) {
        Py_XDECREF(points);
        Py_XDECREF(masses);
        return NULL;
    }
    char *place = PyBytes_AsString(points);
    for (int64_t k = 0; k < box->count; k++) {
        int32_t point = ~item[k];
        memcpy(place + 4 * k, &point, sizeof point);
    }
    return Py_BuildValue("iddddddddNNd", chart->still, chart->fixed, chart->step, z->t[0], z->t[1],
                         z->low[0], z->low[1], z->high[0], z->high[1], points, masses, box->merit);
}

/* The boxes put aside that may still hold something better. */
static PyObject *doubts(Search *s)
{
    PyObject *list = PyList_New(0);
    const int32_t *item = s->doubts.items.item;
    for (int64_t k = 0; k < s->doubts.count && list; k++) {
        Box *box = s->doubts.box + k;
        const int64_t *sums = s->doubts.sums + k * s->row_size;
        if (s->judge(s, box, sums) != HOPELESS) {
            PyObject *doubt = describe_doubt(s, box, item, sums);
            if (!doubt || PyList_Append(list, doubt)) Py_CLEAR(list);
            Py_XDECREF(doubt);
        }
        item += box->count;
    }
    return list;
}

static PyObject *report(Search *s)
{
    PyObject *open = doubts(s);
    if (!open) return NULL;
    const char *status = s->now.count > 0 ? "budget" : s->gap_used ? "gap" : "optimal";
    double lower = HUGE_VAL;
    if (s->found)
        lower = s->lower < s->value ? s->lower : s->value;
    else if (s->now.count > 0)
        lower = trivial_bound(s);
    else
        status = "infeasible";
    return Py_BuildValue("iLLLsdLLN", s->half_planes, (long long)s->best.id, (long long)s->best.ood,
                         (long long)s->best.loss, status, lower, (long long)s->boxes,
                         (long long)s->unresolved, open);
}

/* Whether a tree is not grown where it has to be; then there is an exception. */
static int is_growing(const Tree *tree)
{
    if (tree->soil.rows) PyErr_SetString(PyExc_ValueError, "this needs a tree that is grown");
    return tree->soil.rows > 0;
}

/* Quarters of all directions; NULL with an exception. */
static const int64_t *read_quarters(Buffers *b, PyObject *args, Py_ssize_t k, int64_t *count)
{
    const int64_t *quarter = counted_memory(b, args, k, MOST_QUARTERS, 8, count);
    int wrong = quarter && *count == 0;
    for (int64_t q = 0; quarter && q < *count; q++)
        wrong |= quarter[q] < 0 || quarter[q] >= MOST_QUARTERS;
    if (wrong) PyErr_SetString(PyExc_ValueError, "quarters are one to four numbers from 0 to 3");
    return wrong ? NULL : quarter;
}

/* A trail that `trail` made; without steps there is none. */
static int read_trail(Buffers *b, PyObject *args, Py_ssize_t k, const Tree *tree, int64_t quarters,
                      Trail *trail)
{
    const int64_t most = INT32_MAX;
    trail->points = number(args, k + 2, 0, INT64_MAX);
    if (PyErr_Occurred()) return -1;
    trail->nodes = number(args, k + 3, 0, INT64_MAX);
    if (PyErr_Occurred() || !(trail->step = counted_memory(b, args, k, most, sizeof *trail->step, &trail->steps)) ||
        !(trail->item = counted_memory(b, args, k + 1, most, 4, &trail->items)))
        return -1;
    if (trail_sound(trail, tree, 2 * (int)quarters)) return 0;
    PyErr_SetString(PyExc_ValueError, "the trail is of another tree");
    return -1;
}

/* search(tree, program, quarters, start, gap, budget, weights, v, steps, items, points, nodes, certain)
 *   -> half-planes, id, ood, loss, status, lower bound, boxes, unresolved, doubts */
static PyObject *search(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS + PROGRAM_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    Trail trail = {.steps = 0};
    Search *s = calloc(1, sizeof *s);
    Signals signals;
    const double *start;
    double *weights, *v;
    const int64_t *quarter;
    int64_t quarters, starts;
    int failed;
    PyObject *result = NULL;
    (void)self;
    if (!s) return PyErr_NoMemory();
    if (!takes(args, k + 11) || read_tree(&b, args, &tree) ||
        read_program(&b, args, TREE_ARGUMENTS, &tree, &s->program))
        goto done;
    s->tree = &tree;
    s->signals = &signals;
    s->gap = real_number(args, k + 2);
    s->keep_doubts = 1;
    if (!PyErr_Occurred()) s->budget = number(args, k + 3, 0, INT64_MAX);
    if (!PyErr_Occurred()) s->certain = (int)number(args, k + 10, 0, 1);
    if (PyErr_Occurred() || !(quarter = read_quarters(&b, args, k, &quarters)) ||
        !(start = counted_memory(&b, args, k + 1, INT32_MAX, 16, &starts)) ||
        !(weights = writable_memory(&b, args, k + 4, HALF_PLANES, 16)) ||
        !(v = writable_memory(&b, args, k + 5, HALF_PLANES, 8)) ||
        read_trail(&b, args, k + 6, &tree, quarters, &trail))
        goto done;
    signals_begin(&signals);
    failed = search_open(s) || search_optimum(s, quarter, (int)quarters, start, starts,
                                              trail.steps > 0 ? &trail : NULL);
    for (int h = 0; h < s->half_planes; h++) {
        weights[2 * h] = s->half_plane[h].weight[0];
        weights[2 * h + 1] = s->half_plane[h].weight[1];
        v[h] = s->half_plane[h].v;
    }
    signals_end(&signals);
    result = failed ? failure(&signals) : report(s);
    search_close(s);
done:
    free(s);
    return finish(&b, result);
}

/* trail(tree, program, quarters, start, slack) -> steps, items, points, nodes; empty where nothing is feasible */
static PyObject *trail(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS + PROGRAM_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    Search *s = calloc(1, sizeof *s);
    Trail found = {.steps = 0};
    Signals signals;
    const double *start;
    const int64_t *quarter;
    int64_t quarters, starts;
    double slack;
    int failed;
    PyObject *result = NULL;
    (void)self;
    if (!s) return PyErr_NoMemory();
    if (!takes(args, k + 3) || read_tree(&b, args, &tree) ||
        read_program(&b, args, TREE_ARGUMENTS, &tree, &s->program))
        goto done;
    if (is_growing(&tree)) goto done;
    s->tree = &tree;
    s->signals = &signals;
    s->budget = INT64_MAX;
    slack = real_number(args, k + 2);
    if (PyErr_Occurred() || !(quarter = read_quarters(&b, args, k, &quarters)) ||
        !(start = counted_memory(&b, args, k + 1, INT32_MAX, 16, &starts)))
        goto done;
    signals_begin(&signals);
    failed = search_open(s) || search_optimum(s, quarter, (int)quarters, start, starts, NULL);
    if (!failed && s->found) failed = record_trail(s, &found, quarter, (int)quarters, slack);
    search_close(s);
    signals_end(&signals);
    if (failed)
        result = failure(&signals);
    else
        result = Py_BuildValue("y#y#LL", (const char *)found.step,
                               (Py_ssize_t)(found.steps * (int64_t)sizeof *found.step),
                               (const char *)found.item, (Py_ssize_t)(found.items * 4),
                               (long long)found.points, (long long)found.nodes);
    trail_free(&found);
done:
    free(s);
    return finish(&b, result);
}

/* directions(tree, program, weights, each, masses, v); masses: (id, ood, loss) each */
static PyObject *directions(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS + PROGRAM_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    Search *s = calloc(1, sizeof *s);
    Signals signals;
    Accepted *best;
    const double *weights;
    double *v;
    int64_t count, each;
    int failed;
    PyObject *result = NULL;
    (void)self;
    if (!s) return PyErr_NoMemory();
    if (!takes(args, k + 4) || read_tree(&b, args, &tree) ||
        read_program(&b, args, TREE_ARGUMENTS, &tree, &s->program))
        goto done;
    s->tree = &tree;
    s->signals = &signals;
    s->budget = INT64_MAX;
    each = number(args, k + 1, 0, 1);
    if (PyErr_Occurred() || !(weights = counted_memory(&b, args, k, INT32_MAX, 16, &count)) ||
        !(best = writable_memory(&b, args, k + 2, count, sizeof *best)) ||
        !(v = writable_memory(&b, args, k + 3, count, 8)))
        goto done;
    signals_begin(&signals);
    failed = search_open(s) || search_directions(s, weights, count, each != 0, best, v);
    search_close(s);
    signals_end(&signals);
    result = failed ? failure(&signals) : PyLong_FromLong(0);
done:
    free(s);
    return finish(&b, result);
}

/* frontier(tree, quarters, id_levels, ood_levels, masses, risk, weights, v, risk_gap, id_gap, ood_gap,
 *   hope) -> boxes, doubts; there are none where `hope` has no entries */
static PyObject *frontier(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    Frontier *f = calloc(1, sizeof *f);
    Search *s = calloc(1, sizeof *s);
    Signals signals;
    const int64_t *quarter;
    int64_t quarters, rows, columns, hopes;
    int failed;
    PyObject *result = NULL;
    (void)self;
    if (!s || !f) {
        PyErr_NoMemory();
        goto done;
    }
    if (!takes(args, k + 11) || read_tree(&b, args, &tree) ||
        !(quarter = read_quarters(&b, args, k, &quarters)) ||
        !(f->id.level = counted_memory(&b, args, k + 1, MOST_LEVELS, 8, &rows)) ||
        !(f->ood.level = counted_memory(&b, args, k + 2, MOST_LEVELS, 8, &columns)) ||
        !(f->best = writable_memory(&b, args, k + 3, rows * columns, sizeof *f->best)) ||
        !(f->risk = writable_memory(&b, args, k + 4, rows * columns, 8)) ||
        !(f->weight = writable_memory(&b, args, k + 5, rows * columns, 16)) ||
        !(f->v = writable_memory(&b, args, k + 6, rows * columns, 8)) ||
        !(f->hope = counted_writable_memory(&b, args, k + 10, INT64_MAX / 16, 8, &hopes)))
        goto done;
    if (hopes == 0) f->hope = NULL;
    if (hopes != 0 && hopes != rows * columns) {
        PyErr_SetString(PyExc_ValueError, "hope has none or all pairs of levels");
        goto done;
    }
    f->risk_gap = real_number(args, k + 7);
    f->id_gap = real_number(args, k + 8);
    f->ood_gap = number(args, k + 9, 0, INT64_MAX / 4);
    if (PyErr_Occurred()) goto done;
    if (is_growing(&tree)) goto done;
    f->id.count = (int)rows;
    f->ood.count = (int)columns;
    s->tree = &tree;
    s->signals = &signals;
    s->program = (Program){.loss = 1, .per_id = 1, .min_id = 1, .sets = tree.sets};
    s->budget = INT64_MAX;
    signals_begin(&signals);
    failed = search_frontier(s, f, quarter, (int)quarters);
    signals_end(&signals);
    PyObject *open = failed ? NULL : doubts(s);
    search_close(s);
    free(f->class_of);
    free(f->class_sums);
    if (failed)
        result = failure(&signals);
    else
        result = open ? Py_BuildValue("LN", (long long)s->boxes, open) : NULL;
done:
    free(f);
    free(s);
    return finish(&b, result);
}

/* equal_fpr(tree, quarters, gap, masses, rate, weights, v) -> boxes, unresolved; for each level
 * (OOD, correct, wrong), with a rate below 0 where nothing is known yet */
static PyObject *equal_fpr(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    EqualFpr e = {.levels = 0};
    Search *s = calloc(1, sizeof *s);
    Signals signals;
    const int64_t *quarter;
    int64_t quarters;
    int failed;
    PyObject *result = NULL;
    (void)self;
    if (!s) return PyErr_NoMemory();
    if (!takes(args, k + 6) || read_tree(&b, args, &tree) ||
        !(quarter = read_quarters(&b, args, k, &quarters)))
        goto done;
    if (tree.sets != 1 || tree.extra != 1) {
        PyErr_SetString(PyExc_ValueError, "equal_fpr needs one set and one extra mass");
        goto done;
    }
    e.gap = real_number(args, k + 1);
    if (PyErr_Occurred() ||
        !(e.rate = counted_writable_memory(&b, args, k + 3, MOST_LEVELS, 8, &e.levels)) ||
        !(e.chosen = writable_memory(&b, args, k + 2, e.levels, sizeof *e.chosen)) ||
        !(e.weight = writable_memory(&b, args, k + 4, e.levels, 16)) ||
        !(e.v = writable_memory(&b, args, k + 5, e.levels, 8)))
        goto done;
    s->tree = &tree;
    s->signals = &signals;
    s->budget = INT64_MAX;
    s->program = (Program){.sets = 1};
    signals_begin(&signals);
    failed = search_equal_fpr(s, &e, quarter, (int)quarters);
    search_close(s);
    signals_end(&signals);
    result = failed ? failure(&signals)
                    : Py_BuildValue("LL", (long long)s->boxes, (long long)s->unresolved);
done:
    free(s);
    return finish(&b, result);
}

/* equals(tree, quarters, targets, which, lines) -> half-planes found; targets: (id, ood, loss) by
 * rising ID and OOD mass */
static PyObject *equals(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = TREE_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree tree;
    Equals e = {.found = 0};
    Search *s = calloc(1, sizeof *s);
    Signals signals;
    const int64_t *quarter;
    int64_t quarters;
    int failed;
    PyObject *result = NULL;
    (void)self;
    if (!s) return PyErr_NoMemory();
    if (!takes(args, k + 4) || read_tree(&b, args, &tree) ||
        !(quarter = read_quarters(&b, args, k, &quarters)) ||
        !(e.target = counted_memory(&b, args, k + 1, MOST_LEVELS, 24, &e.targets)) ||
        !(e.which = counted_writable_memory(&b, args, k + 2, INT32_MAX, 8, &e.room)) ||
        !(e.line = writable_memory(&b, args, k + 3, e.room, 24)))
        goto done;
    s->tree = &tree;
    s->signals = &signals;
    s->budget = INT64_MAX;
    s->program = (Program){.sets = tree.sets};
    signals_begin(&signals);
    failed = search_equals(s, &e, quarter, (int)quarters);
    search_close(s);
    signals_end(&signals);
    result = failed ? failure(&signals) : PyLong_FromLongLong((long long)e.found);
done:
    free(s);
    return finish(&b, result);
}

/* Pairs of them, counted twice, are below 2^63. */
#define MOST_SCORES ((int64_t)1 << 30)

static int read_scores(Buffers *b, PyObject *args, Py_ssize_t k, Ranked *scores)
{
    scores->score = counted_memory(b, args, k, MOST_SCORES, 8, &scores->count);
    return scores->score ? 0 : -1;
}

/* metrics(correct, wrong, ood, prior, min_id, values) */
static PyObject *metrics(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    Ranked correct, wrong, ood;
    int64_t min_id;
    double prior, *value;
    (void)self;
    if (!takes(args, 6) || read_scores(&b, args, 0, &correct) || read_scores(&b, args, 1, &wrong) ||
        read_scores(&b, args, 2, &ood) || !(value = writable_memory(&b, args, 5, METRICS, 8)))
        return finish(&b, NULL);
    prior = real_number(args, 3);
    if (PyErr_Occurred()) return finish(&b, NULL);
    min_id = number(args, 4, INT64_MIN, INT64_MAX);
    if (PyErr_Occurred()) return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    all_metrics(correct, wrong, ood, prior, min_id, value);
    Py_END_ALLOW_THREADS
    return finish_none(&b);
}

/* limits(scores, edges, id, loss, columns, sets, extra, program, gap, budget, step, zero_one,
 *        limits) -> boxes, id, ood, loss, open cells, lower bound, cells */
static PyObject *limits(PyObject *self, PyObject *args)
{
    const Py_ssize_t k = 7 + PROGRAM_ARGUMENTS;
    Buffers b = {.count = 0};
    Tree widths = {.sets = 0};
    Limits *l = NULL;
    PyObject *result = NULL;
    Signals signals;
    int failed;
    (void)self;
    if (!takes(args, k + 5)) return finish(&b, NULL);
    if (!(l = calloc(1, sizeof *l))) return finish(&b, PyErr_NoMemory());
    Strips *s = &l->strips;
    widths.sets = (int)number(args, 5, 0, MOST_SETS);
    if (!PyErr_Occurred()) widths.extra = (int)number(args, 6, 0, MOST_SETS);
    if (PyErr_Occurred()) goto done;
    s->width = FIRST_OOD + widths.sets + widths.extra;
    if (!(s->score = counted_memory(&b, args, 0, MOST_ROWS, 16, &s->rows)) ||
        !(s->edge = memory(&b, args, 1, 2 * STRIPS, 8)) ||
        !(s->id = memory(&b, args, 2, s->rows, 8)) ||
        !(s->loss = memory(&b, args, 3, s->rows, 8)) ||
        !(s->more = memory(&b, args, 4, (widths.sets + widths.extra) * s->rows, 8)) ||
        read_program(&b, args, 7, &widths, &l->program) ||
        !(l->limit = counted_writable_memory(&b, args, k + 4, MOST_ROWS, 16, &l->room)))
        goto done;
    l->gap = real_number(args, k);
    if (!PyErr_Occurred()) l->budget = number(args, k + 1, 0, INT64_MAX);
    if (!PyErr_Occurred()) l->step = (int)number(args, k + 2, 1, STRIP_BITS);
    if (!PyErr_Occurred()) l->zero_one = (int)number(args, k + 3, 0, 1);
    if (PyErr_Occurred()) goto done;
    signals_begin(&signals);
    failed = limits_search(l, &signals);
    signals_end(&signals);
    result = failed ? failure(&signals)
                    : Py_BuildValue("LLLLLdL", (long long)l->found, (long long)l->best.id,
                                    (long long)l->best.ood, (long long)l->best.loss,
                                    (long long)l->open, l->lower, (long long)l->cells);
done:
    free(l);
    return finish(&b, result);
}

/* box_margin(scores, limits, unit, tight, wide) -> width: how far a box may grow */
static PyObject *box_margin(PyObject *self, PyObject *args)
{
    Buffers b = {.count = 0};
    const double *score, *limit, *unit;
    double *tight, *wide;
    int64_t rows;
    BoxMargin margin;
    (void)self;
    if (!takes(args, 5) || !(score = counted_memory(&b, args, 0, MOST_ROWS, 16, &rows)) ||
        !(limit = memory(&b, args, 1, 2, 8)) || !(unit = memory(&b, args, 2, 2, 8)) ||
        !(tight = writable_memory(&b, args, 3, 2, 8)) ||
        !(wide = writable_memory(&b, args, 4, 2, 8)))
        return finish(&b, NULL);
    Py_BEGIN_ALLOW_THREADS
    limits_margin(score, rows, limit, unit, &margin);
    Py_END_ALLOW_THREADS
    memcpy(tight, margin.tight, sizeof margin.tight);
    memcpy(wide, margin.wide, sizeof margin.wide);
    return finish(&b, PyFloat_FromDouble(margin.width));
}

/* vectors(version): use a version of the loops, -1 for the widest, and return its number */
static PyObject *vectors(PyObject *self, PyObject *args)
{
    int widest = widest_vectors();
    (void)self;
    if (!takes(args, 1)) return NULL;
    int64_t version = number(args, 0, -1, widest);
    if (PyErr_Occurred()) return NULL;
    vector_version = version < 0 ? widest : (int)version;
    return PyLong_FromLong(vector_version);
}

static PyMethodDef functions[] = {
    {"learn", build_learn, METH_VARARGS, "Ranks of scores, from some of them."},
    {"put", build_put, METH_VARARGS, "Put rows into cells."},
    {"list_rows", build_list, METH_VARARGS, "List the rows of each cell."},
    {"sow", build_sow, METH_VARARGS, "Build the nodes above cells of rows, of a tree that grows."},
    {"arrange", build_arrange, METH_VARARGS, "Sort scores along a curve and split it into nodes."},
    {"enclose", build_enclose, METH_VARARGS, "Bounding boxes of the nodes."},
    {"collect", build_collect, METH_VARARGS, "Add up the masses of rows that are the same point."},
    {"total", build_total, METH_VARARGS, "Masses of the nodes."},
    {"copy", build_copy, METH_VARARGS, "Copy scores, and look whether they are finite."},
    {"search", search, METH_VARARGS, "The optimum over all directions."},
    {"trail", trail, METH_VARARGS, "The boxes of a search, to be looked at with other masses."},
    {"directions", directions, METH_VARARGS, "The optimum of each of some directions."},
    {"frontier", frontier, METH_VARARGS, "The optima for all pairs of bounds."},
    {"equal_fpr", equal_fpr, METH_VARARGS, "The best rates at every OOD mass."},
    {"equals", equals, METH_VARARGS, "All half-planes with given masses."},
    {"sides", lines_sides, METH_VARARGS, "The values next to a half-plane along a direction."},
    {"count", lines_count, METH_VARARGS, "The masses that half-planes accept."},
    {"settle", lines_settle, METH_VARARGS, "Lines midway between the points next to half-planes."},
    {"widest", lines_widest, METH_VARARGS, "The widest gap with the same accepted set."},
    {"tally", lines_tally, METH_VARARGS, "The masses of rows that a half-plane accepts."},
    {"limits", limits, METH_VARARGS, "The best pairs of limits."},
    {"box_margin", box_margin, METH_VARARGS, "How far a box may grow before it accepts more."},
    {"metrics", metrics, METH_VARARGS, "All scalar metrics of sorted scores."},
    {"vectors", vectors, METH_VARARGS, "Choose how wide vectors are, for tests."},
    {NULL, NULL, 0, NULL},
};

/* Grows with every change of a function's name, arguments or answer; compiled.py has the same. */
enum { INTERFACE = 4 };

static int load(PyObject *module)
{
    vector_version = widest_vectors();
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

/* Functions share nothing but their arguments, which are the caller's: they need no lock. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, load},
#ifdef Py_MOD_GIL_NOT_USED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_engine", "Compiled searches.", 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__engine(void) { return PyModuleDef_Init(&definition); }
