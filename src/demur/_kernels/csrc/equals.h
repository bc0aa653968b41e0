/* All half-planes that accept given masses. */
#ifndef DEMUR_EQUALS_H
#define DEMUR_EQUALS_H

#include "search.h"

typedef struct {
    const Accepted *target; /* by rising ID mass, then OOD mass */
    int64_t targets;
    int64_t *which;         /* target of each half-plane found, */
    double *line;           /* its weights and v, */
    int64_t *mark;          /* and the mark of its accepted set */
    int64_t room, found;
    int64_t *last;          /* per target, the half-plane found last, -1 for none, */
    int64_t *before;        /* and per half-plane the one before it */
} Equals;

/* Stops, with `found` equal to `room`, when there are more. */
int search_equals(Search *s, Equals *e, const int64_t *quarter, int quarters);

#endif
