/* The best pair of limits, one for each of two scores: cells of strips and ranks, taken apart. */
#ifndef DEMUR_LIMITS_H
#define DEMUR_LIMITS_H

#include <stdint.h>

#include "program.h"
#include "signals.h"
#include "strips.h"

typedef struct {
    Strips strips;
    int zero_one; /* the loss of every row that masses stand for is none, or its ID mass */
    Program program;
    double gap;
    int64_t budget;
    int step;      /* bits of the ranks of each axis by which a cell is taken apart */
    double *limit; /* of the best boxes, `room` pairs */
    int64_t room, found;
    Accepted best;
    double value;  /* its objective */
    int64_t cells; /* looked at */
    int64_t open;  /* left when the budget ended */
    double lower;  /* no box is better */
} Limits;

/* Returns -1 without memory, or when a signal was raised. */
int limits_search(Limits *limits, Signals *signals);

/* How far a box may grow. */
typedef struct {
    double tight[2]; /* the largest scores of its rows */
    double wide[2];  /* limits midway to those at which it accepts more, where any row is beyond */
    double width;    /* by how much all limits can grow, in units, before it does */
} BoxMargin;

void limits_margin(const double *score, int64_t rows, const double *limit, const double *unit,
                   BoxMargin *margin);

#endif
