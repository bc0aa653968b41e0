/* Shared by the files of the branch and bound; search.c explains it. */
#ifndef DEMUR_SEARCH_H
#define DEMUR_SEARCH_H

#include <stdint.h>

#include "program.h"
#include "sorting.h"
#include "tree.h"

/* One eighth of all directions: weight `fixed` on score `still`, `step`*t on score `moving`,
 * t in [0, 1]. Both are signed powers of two, so that products with them are exact. A single
 * direction is a chart whose only t is 1, with any weights. */
typedef struct {
    double fixed, step;
    int still, moving;
    int low[2], high[2]; /* where in a node's box the corner with the smallest value is */
} Chart;

/* Part of the dual plane: t[0] <= t <= t[1], between two segments given at both ends. */
typedef struct {
    double t[2], low[2], high[2];
} Zone;

/* What the items that cross a zone could add. */
typedef struct {
    int64_t id, loss;
    double good, gain; /* ID mass worth accepting and its contribution, as graded */
} Crossing;

/* A zone with the masses accepted all over it and the items that cross it. */
typedef struct {
    Zone zone;
    Crossing crossing;
    double level, bad; /* how `good` and `gain` were graded */
    int64_t before;    /* crossing ID mass of an ancestor, to see whether cutting helps */
    double merit;      /* lower bound of the objective, for the order of the visits */
    int64_t first;     /* first item in the pool */
    int32_t count, nodes;
    int16_t chart, depth;
} Box;

/* A half-plane that does as well as any other found. */
typedef struct {
    double weight[2], v;
    int64_t mark;
} HalfPlane;

typedef struct {
    int32_t *item;
    int64_t count, room;
} Items;

/* A box under construction. */
typedef struct {
    Box box;
    Items items;
    int64_t *sums;
} Part;

typedef struct {
    double x, y; /* value x + t*y */
    const int64_t *mass;
} Line;

#define HALF_PLANES 256

typedef struct Search Search;
struct Search {
    const Tree *tree;
    Program program;
    double gap;
    int64_t budget;
    double rounding; /* relative error granted to values; 0 when floats are taken as they are */

    Chart *chart;
    int charts;

    int found;
    Accepted best;
    double value;
    HalfPlane half_plane[HALF_PLANES];
    int half_planes;

    double *grade; /* per node (good, gain), or NULL */
    double level, bad;
    int simple; /* losses so regular that crossing ID and loss mass tell all */

    Box *stack;
    int64_t *stack_sums;
    int64_t boxes_open, boxes_room;
    Items pool;
    Items popped;
    Part part[2];
    int64_t *row, *counted;

    Line *line;
    int32_t *order, *spare;
    Keyed *keyed;
    int64_t lines_room;

    int64_t boxes, unresolved;
    int gap_used;
    double lower;

    /* How single optima and whole frontiers differ. */
    int (*hopeless)(Search *s, Box *box, const int64_t *sums);
    int (*wanted)(Search *s, const int64_t *sums);
    void (*take)(Search *s, const int64_t *sums, const double *weight, double v);
    void *frontier;
};

/* bound.c */
int optimum_hopeless(Search *s, Box *box, const int64_t *sums);
double graded_gain(const Search *s, const int64_t *mass, double *good);
int grade_tree(Search *s, double level);
int units_known(const Search *s);

/* split.c */
int split_zone(Search *s, const Box *box, const int64_t *sums, int open_items);
Chart single_direction(const double *weight);
Chart octant(const Tree *tree, int quarter, int half);
void root_zone(const Search *s, const Chart *chart, const double *t, Zone *zone);

/* leaf.c */
int walk_leaf(Search *s, const Box *box, const int64_t *sums, int64_t steps);
void count_half_plane(const Search *s, const double *weight, double v, int64_t *row);

/* search.c */
int search_open(Search *s);
void search_close(Search *s);
int explore(Search *s, Chart *chart, int charts, const double *t);
int search_optimum(Search *s, const int64_t *quarter, int quarters, const double *start,
                   int64_t starts);

#endif
