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
#include <string.h>

#include "ranks.h"
#include "signals.h"

#define BLOCK 8 /* most points of a leaf */
#define FIRST_OOD 3

enum { ID, LOSS, MARK };

/* Loss and ID mass of a lossy row, up to a factor, if they are the same for all. */
enum { UNIT_LOSS, UNIT_ID, UNITS };
#define NO_UNIT (-1)

typedef struct {
    int32_t first, end; /* points */
    int32_t child;      /* the first of two children, 0 for a leaf, or UNGROWN */
} Node;

/* A node whose rows are not points yet; until it grows, `first` and `end` are about rows. */
#define UNGROWN (-1)

/* A range is split at the highest of the KEY_BITS bits in which its keys differ, a lower one at
 * every level, and halved once there is none: of fewer than 2^ROW_BITS points there are no more
 * than LEVELS levels. A walk that puts the two children of a node in its place, and goes on with
 * one of them, never has more nodes waiting than there are levels. */
#define KEY_BITS 32
#define ROW_BITS 30
#define MOST_ROWS (((int64_t)1 << ROW_BITS) - 1)
#define LEVELS (KEY_BITS + ROW_BITS + 1)
#define KEYS_TOGETHER 512 /* rows whose keys are made together */

#define MOST_TILT 900

/* What is counted while a tree grows, and words of room that each row of a cell needs then. */
enum { GROWN_NODES, GROWN_POINTS, LARGEST_CELL, STATES };
#define SEED_WORDS 4
#define MOST_CELL_BITS 16

/* Rows, and where a tree over them grows; see growing.c. */
typedef struct {
    int64_t rows;  /* 0 for a tree that is grown */
    int bits;      /* of the numbers of cells, an even number */
    int columns;   /* of `more`: OOD masses per set, then extra ones */
    const double *scores; /* rows x 2 */
    const int64_t *id, *loss, *more;
    const Ranks *ranks;   /* of both columns */
    const uint16_t *cell; /* of each row */
    const int32_t *row;   /* the rows of cell after cell */
    int32_t *node_of;     /* the node of each cell that has rows */
    Node *node;
    double *point, *box;
    int64_t *mass, *sums, *state;
    void *room;
} Soil;

/* Nodes above cells are fewer than twice as many, and so are those above points. */
static inline int64_t most_nodes(int64_t rows, int bits) { return 2 * rows + ((int64_t)2 << bits); }

typedef struct {
    int64_t points, nodes; /* or the room for them, if the tree grows */
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
    Soil soil;
} Tree;

/* Let the rows of a node become points. There is room for all of them: this cannot fail. */
void tree_grow(const Tree *tree, int32_t index);

/* A node to look into: a leaf, or one with children. */
static inline const Node *opened(const Tree *tree, int32_t index)
{
    if (tree->node[index].child == UNGROWN) tree_grow(tree, index);
    return tree->node + index;
}

/* How many nodes there are by now. */
static inline int64_t nodes_of(const Tree *tree)
{
    return tree->soil.rows ? tree->soil.state[GROWN_NODES] : tree->nodes;
}

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
/* Bounding boxes of nodes from `first` to before `end`, whose children are among them. */
void tree_enclose(const Node *node, int64_t first, int64_t end, const double *point, double *box);
/* Masses of n rows, a column each; OOD and extra ones are several columns, one after another. */
typedef struct {
    const int64_t *id, *loss, *ood, *extra;
    int sets, extras;
} RowMasses;

/* Add up the masses of rows that are the same point: `mass` must be zero. Returns -1 when a signal
 * was raised. */
int tree_collect(Signals *signals, const int32_t *row, int64_t n, const RowMasses *from,
                 int64_t *mass, int64_t *unit);
void tree_total(const Node *node, int64_t first, int64_t end, const int64_t *mass, int width,
                int64_t *sums);

/* A tree that grows is built in steps, so that shares of the rows may be put into cells, and listed,
 * at the same time: learn, put and list each share, sow. */

/* What is known of some rows that are in cells. */
typedef struct {
    int64_t *sums;   /* masses of each cell */
    uint32_t *count; /* rows of each cell */
    int64_t *unit;
    double *range;   /* smallest, then largest scores */
} Share;

/* Returns -1 without memory. */
int tree_learn(const double *scores, int64_t rows, Ranks *ranks, int32_t *tilt);
/* Put rows from `begin` to `end` into cells; `cell` is what the soil will have, sums and counts must
 * be zero. Returns -1 when a signal was raised. */
int tree_put(Signals *signals, const Soil *soil, int64_t begin, int64_t end, uint16_t *cell,
             const Share *share);
/* List rows of each cell in what will be the soil's `row`; `start` has where these begin, and then
 * where they end. Returns -1 when a signal was raised, 1 where lists have no room. */
int tree_list(Signals *signals, const Soil *soil, int64_t begin, int64_t end, uint32_t *start,
              int32_t *row);
/* Build the nodes above cells, given all that is known of these and where their lists end. `tenths`
 * are two values along each axis, at which a tenth and nine tenths of the ID mass are reached.
 * Returns -1 without memory. */
int tree_sow(const Soil *soil, const Share *all, const uint32_t *end, double *tenths);

/* Parts of building a tree. */

/* Bits that hold any row number, an even number. */
int bits_for(int64_t n);
int32_t tilt_between(double a, double b);
/* The tilt next to this one at which no score of the root's box overflows where it is brought to the
 * scale of the other. */
int tilt_within(int tilt, const double *box);
/* Whether every lossy row has the same loss per unit of ID mass, and which. */
void note_unit(int64_t id, int64_t loss, int64_t *unit);
/* Sort codes by key, then by the values of the rows they end in. */
void sort_values(const double *scores, uint64_t *a, uint64_t *spare, int64_t n, int row_bits);
void enclose_children(const double *part, double *box);
void total_children(const int64_t *part, int width, int64_t *sums);
/* Split a node, whose points begin at `begin`, into nodes from `first` on. Returns their end. */
int64_t grow_nodes(const void *keys, int64_t begin, Node *node, int32_t index, int64_t first);

static inline int64_t row_of(uint64_t code, int row_bits)
{
    return (int64_t)(code & (((uint64_t)1 << row_bits) - 1));
}

/* Keys are kept where codes have been, as bytes: of another size, they must not be written or
 * read as if they were codes. */
static inline uint32_t key_at(const void *keys, int64_t i)
{
    uint32_t key;
    memcpy(&key, (const char *)keys + i * (int64_t)sizeof key, sizeof key);
    return key;
}

static inline void set_key(void *keys, int64_t i, uint32_t key)
{
    memcpy((char *)keys + i * (int64_t)sizeof key, &key, sizeof key);
}

#endif
