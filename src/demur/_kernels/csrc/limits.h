/* The best pair of limits, one for each of two scores: cells of ranks, taken apart. */
#ifndef DEMUR_LIMITS_H
#define DEMUR_LIMITS_H

#include <stdint.h>

#include "program.h"
#include "signals.h"

/* The ranks of one score: rows by ascending rank, and where the rows of each rank begin and end. */
typedef struct {
    const int64_t *rank, *order, *start;
    int64_t ranks;
} LimitAxis;

typedef struct {
    int64_t rows;
    LimitAxis axis[2];
    const int64_t *mass; /* rows x width, as those of a tree */
    int width;
    int zero_one; /* the loss of every row that masses stand for is none, or its ID mass */
    Program program;
    double gap;
    int64_t budget;
    int steps[2];    /* bits of the ranks of each axis that the first cell is taken apart by, */
    int64_t *ranks;  /* and the others. The last accepted ranks of the best boxes, `room` pairs, */
    int64_t room, found; /* of which some may be known already, */
    int64_t known;       /* if only some cells are to be looked at, so many, otherwise -1: */
    const int64_t *cell, *below;  /* first rank and end of both axes, and masses, of each, */
    const double *hope;           /* and what no box of it is better than */
    Accepted best;
    double value; /* its objective */
    int64_t cells; /* looked at */
    int64_t open;  /* left when the budget ended */
    double lower;  /* no box is better */
} Limits;

/* Whether ranks, orders and starts are within bounds. */
int limits_sound(const Limits *limits);
/* Returns -1 without memory, or when a signal was raised. */
int limits_search(Limits *limits, Signals *signals);

/* Both axes are cut into so many strips; edges are the last scores of each, ascending up to
 * infinity. Rows get the cell they are in, the strip of the first score being the higher bits, and
 * their masses (ID, loss, `columns` more) are added to tables, one for each column. */
#define STRIP_BITS 7
#define STRIPS (1 << STRIP_BITS)
void limits_strips(const double *scores, int64_t n, const double *edges, const int64_t *id,
                   const int64_t *loss, const int64_t *more, int columns, uint16_t *key,
                   int64_t *tables);

#endif
