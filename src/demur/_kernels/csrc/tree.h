/* Distinct points in Morton order under a binary tree of bounding boxes.
 *
 * A node is a range of points whose keys share their leading bits; it is split where the next
 * bit changes, down to at most BLOCK points. Node 0 is the root, children come in pairs and
 * after their parents. Every point and every node carries a row of masses: ID, loss, mark, then
 * one OOD mass per set, then extra masses, parts of the others that bounds are about. A mark is a
 * pseudo-random number per point; the sum of the marks of an accepted set, modulo 2^64, tells
 * sets apart.
 *
 * Points may be the scores in a *frame*: without an offset, or as whole numbers where the scores
 * are decimals. Searches see the points; half-planes that come in or go out are about scores.
 */
#ifndef DEMUR_TREE_H
#define DEMUR_TREE_H

#include <stdint.h>

#include "signals.h"

#define BLOCK 8 /* most points of a leaf */
#define FIRST_OOD 3

enum { ID, LOSS, MARK };

/* Loss and ID mass of a lossy row, up to a factor, if they are the same for all. */
enum { UNIT_LOSS, UNIT_ID, UNITS };
#define NO_UNIT (-1)

typedef struct {
    int32_t first, end; /* points */
    int32_t child;      /* the first of two children, 0 for a leaf */
} Node;

/* A range is split at the highest of the KEY_BITS bits in which its keys differ, a lower one at
 * every level, and halved once there is none: of fewer than 2^ROW_BITS points there are no more
 * than LEVELS levels. A walk that puts the two children of a node in its place, and goes on with
 * one of them, never has more nodes waiting than there are levels. */
#define KEY_BITS 32
#define ROW_BITS 30
#define MOST_ROWS (((int64_t)1 << ROW_BITS) - 1)
#define LEVELS (KEY_BITS + ROW_BITS + 1)

#define MOST_TILT 900

typedef struct {
    int64_t points, nodes;
    int sets, extra;
    int width;           /* width = FIRST_OOD + sets + extra */
    const double *point; /* points x 2 */
    const Node *node;
    const double *box;   /* nodes x 4: smallest, then largest value of both scores */
    const int64_t *mass; /* points x width */
    const int64_t *sums; /* nodes x width */
    const int64_t *unit; /* UNIT_LOSS is 0 without any loss, NO_UNIT if rows differ */
    int tilt;            /* the spread of score 0 is about 2^tilt times that of score 1 */
    double shift[2], divisor[2]; /* scores are (point + shift) / divisor, correctly rounded */
    int framed;          /* whether they differ from the points */
    int whole;           /* all points are whole numbers, and so small that all cells are wide */
} Tree;

/* Rounding is monotone, so that this keeps the order of points, and corners of boxes bound. */
static inline double score_of(const Tree *tree, double point, int column)
{
    return tree->framed ? (point + tree->shift[column]) / tree->divisor[column] : point;
}

/* Marks wrap around, which only unsigned numbers may do. */
static inline int64_t add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static inline void add_row(int64_t *into, const int64_t *row, int width)
{
    for (int c = 0; c < width; c++) into[c] = add(into[c], row[c]);
}

int64_t common_divisor(int64_t a, int64_t b);

/* Sort n scores along the curve into distinct points, note which point each row is, and split
 * the curve into nodes, of which there are at most 2*points; n is at most MOST_ROWS, `code` is
 * room for n numbers. Returns -1 without memory, or when a signal was raised. */
int tree_arrange(Signals *signals, const double *scores, int64_t n, uint64_t *code, double *point,
                 int32_t *row, Node *node, int32_t *tilt, int64_t *points, int64_t *nodes);
/* Whether the points and children of all nodes exist, and children come after their parents. */
int tree_sound(const Node *node, int64_t nodes, int64_t points);
/* Whether all rows are points that exist. */
int tree_has(const int32_t *row, int64_t n, int64_t points);
void tree_enclose(const Node *node, int64_t nodes, const double *point, double *box);
/* Masses of n rows, a column each; OOD and extra ones are several columns, one after another. */
typedef struct {
    const int64_t *id, *loss, *ood, *extra;
    int sets, extras;
} RowMasses;

/* Add up the masses of rows that are the same point: `mass` must be zero. Returns -1 when a signal
 * was raised. */
int tree_collect(Signals *signals, const int32_t *row, int64_t n, const RowMasses *from,
                 int64_t *mass, int64_t *unit);
void tree_total(const Node *node, int64_t nodes, const int64_t *mass, int width, int64_t *sums);

#endif
