/* The best rate of correct answers at every OOD mass, over all directions. */
#ifndef DEMUR_EQUAL_FPR_H
#define DEMUR_EQUAL_FPR_H

#include "search.h"

/* What was chosen at a level: OOD, correct and wrong ID mass of a half-plane. */
typedef struct {
    int64_t ood, correct, wrong;
} Chosen;

typedef struct {
    int64_t levels;     /* OOD masses from 0 on */
    double *rate;       /* correct / ID of what is chosen, negative for nothing */
    Chosen *chosen;
    double *weight, *v; /* of its half-plane */
    double *lowest;     /* rate within each block of levels */
    double gap;         /* boxes that promise no more than this are left alone */
} EqualFpr;

/* The tree has OOD mass for ID, correct ID mass for losses, and wrong ID mass for its one set. */
int search_equal_fpr(Search *s, EqualFpr *e, const int64_t *quarter, int quarters);

#endif
