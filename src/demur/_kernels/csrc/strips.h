/* Rows in strips of two scores: each axis is cut at some scores, and the rows of a strip are sorted
 * only when somebody asks for them. */
#ifndef DEMUR_STRIPS_H
#define DEMUR_STRIPS_H

#include <stddef.h>
#include <stdint.h>

#include "signals.h"
#include "sorting.h"

#define STRIP_BITS 7
#define STRIPS (1 << STRIP_BITS)

/* Rows that have masses 0 and 1 in so many columns are told apart by a byte. */
#define KIND_BITS 8

/* Wider rows of masses are not added up for all pairs of strips: that would take too much memory. */
#define WIDEST_BELOW 24

/* What crossing rows can take off the objective of the best box, and with how much ID mass. */
typedef struct {
    double taken, id;
} Welcome;

/* The rows of one strip, by ascending score; ranks are those of distinct scores within it. */
typedef struct {
    int64_t count;
    int32_t *row;
    int32_t ranks;   /* 0 until they are sorted */
    int32_t *start;  /* where the rows of each rank begin, and the end of all */
    uint8_t *other;  /* strip of the other axis that each row is in */
    uint8_t *kind;   /* which row of `kinds` has its masses; otherwise these are copied: */
    int64_t *mass;   /* count x width */
    int left, parts; /* it is taken apart into parts of 2^left ranks */
    int64_t *below;  /* masses of each part in all strips of the other axis below one, and in all; */
    Welcome *welcome; /* what they are worth, */
    int64_t worth;    /* and at what time */
} Strip;

typedef struct {
    int64_t rows;
    const double *score;  /* rows x 2 */
    const double *edge;   /* 2 x STRIPS, the last scores of strips, ascending up to infinity */
    const int64_t *id, *loss, *more; /* a column each; the last are one after another */
    int width;            /* of a row of masses as trees have them */
    int count[2];         /* strips that have rows */
    double last[2];       /* largest scores */
    uint16_t *key;        /* strips of each row, that of the first axis in the higher bits */
    int64_t *kinds;       /* masses of rows by the bits of their kind; NULL if there are others */
    int32_t *rank[2];     /* of each row within its strip, where that is sorted */
    int32_t *order[2];    /* rows by strip, those of wanted ones */
    Strip strip[2][STRIPS];
    Keyed *keyed, *spare;
    int32_t *bucket;
    int64_t longest;
} Strips;

static inline int strip_of(const Strips *s, int axis, int64_t row)
{
    return axis ? s->key[row] & (STRIPS - 1) : s->key[row] >> STRIP_BITS;
}

static inline double last_score(const Strips *s, int axis, int strip)
{
    return strip + 1 == s->count[axis] ? s->last[axis] : s->edge[axis * STRIPS + strip];
}

/* The score of a rank of a strip that is sorted. */
static inline double rank_score(const Strips *s, int axis, const Strip *strip, int64_t rank)
{
    return s->score[2 * (int64_t)strip->row[strip->start[rank]] + axis];
}

static inline const int64_t *mass_of(const Strips *s, const Strip *strip, int64_t k)
{
    return strip->kind ? s->kinds + (ptrdiff_t)strip->kind[k] * s->width
                       : strip->mass + k * s->width;
}

/* What can fail returns -1 without memory, or when a signal was raised.
 *
 * Find the strips of all rows and add their masses to a table of (STRIPS + 1) x (STRIPS + 1) rows
 * of masses, where place 0 of an axis is below all. */
int strips_place(Strips *s, Signals *signals, int64_t *table);
/* Bring together the rows of each strip that is wanted. */
int strips_gather(Strips *s, const char *wanted);
/* Sort a strip that was wanted, to be taken apart in 2^step parts. */
int strip_sort(Strips *s, int axis, int strip, int step);
void strips_close(Strips *s);

#endif
