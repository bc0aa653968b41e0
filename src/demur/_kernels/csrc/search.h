/* Shared by the files of the branch and bound; search.c explains it. */
#ifndef DEMUR_SEARCH_H
#define DEMUR_SEARCH_H

#include <float.h>
#include <stddef.h>
#include <stdint.h>

#include "program.h"
#include "signals.h"
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

/* A segment of the (t, v) plane. */
typedef struct {
    double t[2], v[2];
} Edge;

static inline int nearer_end(const Edge *edge, double t)
{
    return t - edge->t[0] > edge->t[1] - t;
}

/* Measured from the nearer end, where values may be smaller by many decades. */
static inline double edge_at(const Edge *edge, double t)
{
    int end = nearer_end(edge, t);
    if (t == edge->t[end]) return edge->v[end];
    double part = (t - edge->t[end]) / (edge->t[1 - end] - edge->t[end]);
    return edge->v[end] + (edge->v[1 - end] - edge->v[end]) * part;
}

/* Part of the dual plane: t[0] <= t <= t[1], between two edges, with their values at both ends.
 * Edges are kept as they were drawn, so that cutting across them again and again does not add
 * up rounding errors. */
typedef struct {
    double t[2], low[2], high[2];
    Edge floor, ceiling;
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
    int64_t last, before; /* crossing ID mass of the parent, and of an ancestor: do cuts help? */
    double merit;      /* lower bound of the objective, for the order of the visits */
    int32_t count, nodes;
    int16_t chart, depth;
    int16_t idle; /* how many cuts are to be chosen with care, since one did little */
    int32_t step; /* of the trail being recorded */
    int stiff;    /* cutting it into many parts left most points crossing one of them */
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
    Items below; /* what turned out to lie below it, while a trail is recorded */
    int64_t *sums;
} Part;

/* Boxes with their sums, and their items one after the other. */
typedef struct {
    Box *box;
    int64_t *sums;
    int64_t count, room;
    Items items;
} Stack;

typedef struct {
    double x, y; /* value x + t*y */
    const int64_t *mass;
} Line;

#define HALF_PLANES 256
#define MOST_QUARTERS 4 /* of all directions, counted from 0 */

/* More than a value may be off because of products below the smallest floats, in units of these. */
#define LOST (16 * DBL_MIN * DBL_EPSILON)

/* Relative error granted to a bound for the rounding of its terms. */
#define BOUND_ROUNDING 4e-15

#define LEAF 10 /* points crossing a box that is tried as a leaf */

typedef struct Mesh Mesh;
typedef struct Tally Tally; /* see mesh.h */
typedef struct Bands Bands;
typedef struct Search Search;
struct Search {
    const Tree *tree;
    Signals *signals;
    Program program;
    double gap;
    int64_t budget;
    double rounding; /* relative error granted to values; 0 when floats are taken as they are */
    double lost;     /* what is lost of products below the smallest floats, likewise */

    Chart *chart;
    Chart octant[2 * MOST_QUARTERS];

    int found;
    Accepted best;
    double value;
    HalfPlane half_plane[HALF_PLANES];
    int half_planes;
    Accepted here; /* the best of the direction at hand, id 0 for none */
    double here_v;

    int classes;               /* told apart among crossing ID, if any: */
    const uint8_t *class_of;   /* per point */
    const int64_t *class_sums; /* per node and class (ID, loss) */

    double *grade; /* per node (good, gain), or NULL */
    int64_t graded; /* nodes that have one; others have grown since */
    double level, bad;
    int simple; /* losses so regular that crossing ID and loss mass tell all */

    Stack now, later; /* boxes to visit, and those put off to the next stage */
    Stack doubts;     /* boxes put aside, to be looked at in exact arithmetic, */
    int keep_doubts;  /* if anybody will; */
    void (*give_up)(Search *s, const Box *box, const int64_t *sums); /* of those not kept, or NULL */
    int doubtful;     /* whether the leaf at hand is such a box */
    int certain;      /* whether half-planes are taken only if rounding errors do not reach them */
    int stage, last_stage; /* what is put off to after the last stage is dropped */
    int row_size; /* of the sums of a box: below it, then crossing (ID, loss) of the classes, */
    int extra_at; /* then, from here on, crossing extra masses */
    Items popped, waiting; /* items of the box at hand, and nodes to look at */
    Part part[2];
    int recording; /* a trail: what lies below parts is listed, too */
    int64_t *row, *counted;

    /* A walk through a leaf: its lines, their order, the sets of the lowest lines. */
    Line *line;
    int32_t *order, *spare;
    Keyed *keyed;
    int64_t *prefix;
    double *crossing; /* where neighbours in the order change places */
    double *since;    /* since when the rim of a set is the same */
    char *settled;    /* whether a set needs no place any more */
    int64_t lines_room;

    int beside;  /* only half-planes that end below a line with mass in the column ID count, */
    int64_t rim; /* which is this for the one at hand */

    int64_t boxes, unresolved;
    int gap_used;
    double lower;

    /* How single optima and whole frontiers differ. */
    int (*judge)(Search *s, Box *box, const int64_t *sums);
    int (*wanted)(Search *s, const int64_t *sums);
    void (*take)(Search *s, const int64_t *sums, const double *weight, double v);
    /* The same for bands of a mesh. */
    Mesh *mesh; /* or NULL, if boxes are only cut in two */
    void (*glance)(Search *s, const Bands *bands);
    double (*highest)(Search *s, const Box *box, const int64_t *sums);
    int wary; /* half-planes on chords are counted before they are taken */
    void *frontier; /* or what else they look up */
};

/* What becomes of a box: `judge` returns one of these and sets its merit. */
enum { PROMISING, HOPELESS, PUT_OFF };

/* bound.c */
int judge_optimum(Search *s, Box *box, const int64_t *sums);
static inline double graded_gain(const Search *s, const int64_t *mass, double *good)
{
    double id = (double)mass[ID], level = s->program.per_id ? s->level : 0;
    double g = (double)s->program.loss * (double)mass[LOSS] + ((double)s->program.id - level) * id;
    *good = g <= 0 ? id : 0;
    return g <= 0 ? g : 0;
}
int grade_tree(Search *s, double level);
void grade_new_nodes(Search *s);
int units_known(const Search *s);

/* split.c */
int split_zone(Search *s, const Box *box, const int64_t *sums, int open_items);
int too_low(const Search *s, const Box *box);
void begin_part(Search *s, Part *part, const Box *box, const int64_t *sums);
Chart single_direction(const double *weight);
Chart octant(const Tree *tree, int quarter, int half);
/* The direction at an angle within a quarter, measured with both scores on one scale. */
#define RIGHT_ANGLE 1.5707963267948966
void direction_at(const Tree *tree, int quarter, double angle, double *weight);
void root_zone(const Search *s, const Chart *chart, const double *t, Zone *zone);

/* leaf.c */
int lines_cross(const Search *s, const Box *box);
/* Whether a box crossed by points only can be left to its neighbours. A cell ends where two lines
 * meet, and where none do in a box all its cells go on beside it. The two octants of a quarter meet
 * at t = 1: followed to the left in the first, where score 0 has its full weight, and to the right
 * in the second, a cell is found, or ruled out, in the box that holds its end, or at t = 0 of the
 * first, where values are scores as they are. */
int is_fan(Search *s, const Box *box);
int walk_leaf(Search *s, const Box *box, const int64_t *sums, int64_t crossings);
/* Take the half-plane at (t, v), from which no point is within rounding errors. */
void take_half_plane(Search *s, const Chart *chart, double t, double v, const int64_t *sums);
/* See to the set below lines that meet in a box which is hardly more than that point. */
void try_vertex(Search *s, const Box *box, const int64_t *sums);
void count_half_plane(const Tree *tree, const double *weight, double v, int64_t *row);
/* Whether rounding errors of no point with mass reach as far as a half-plane. */
int is_certain(const Tree *tree, const double *weight, double v);
/* More than rounding errors of any value are in a direction, and whether those of a point reach v. */
double largest_error(const Tree *tree, const double *weight);
int comes_close(const Tree *tree, const double *weight, double v, const double *point);

/* stack.c */
/* Let a pointer, given by its address, have room for `count` entries; -1 without memory. */
#define MAKE_ROOM(pointer, count) make_room((pointer), (count), sizeof **(pointer))
int make_room(void *pointer, size_t count, size_t size);
int reserve_items(Items *items, int64_t count);
int stack_push(Stack *stack, const Box *box, const Items *items, const int64_t *sums, int row_size);
int stack_pop(Stack *stack, Box *box, Items *items, int64_t *sums, int row_size);
void stack_clear(Stack *stack);
void stack_free(Stack *stack);

/* search.c; what can fail returns -1 without memory, or when a signal was raised. */
int search_open(Search *s);
void search_close(Search *s);
int keep_grade(Search *s);
int explore(Search *s, const int64_t *quarter, int quarters);
void begin_charts(Search *s, const int64_t *quarter, int quarters);
/* Make s->part[0] the box of all half-planes of a chart, from t[0] to t[1]. */
int begin_root(Search *s, int chart, const double *t);
/* Search the boxes that wait. */
int explore_waiting(Search *s);
int explore_direction(Search *s, const double *weight);
/* Whether a box was settled by trying all its cells, with at most so many crossings of lines. */
int settle(Search *s, const Box *box, const int64_t *sums, int64_t crossings);

/* optimum.c; a trail, if any, is of a search of the same points with similar masses. */
struct Trail;
int search_optimum(Search *s, const int64_t *quarter, int quarters, const double *start,
                   int64_t starts, const struct Trail *trail);
/* Optimum of each direction; unless `each`, only of those that equal the best of all. */
int search_directions(Search *s, const double *weight, int64_t count, int each, Accepted *best,
                      double *v);

#endif
