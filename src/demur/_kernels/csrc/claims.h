/* What many half-planes are said to accept, and whether they do. */
#ifndef DEMUR_CLAIMS_H
#define DEMUR_CLAIMS_H

#include "search.h"

/* A half-plane, the masses it is said to accept, and more than its rounding errors, or 0. */
typedef struct {
    double weight[2], v, error;
    Accepted accepts;
} Claim;

/* Whether half-planes accept what they are said to, counted as count_half_plane does, and rounding
 * errors of no point with mass reach one that has `error`. Claims are changed. Returns -1 without
 * memory. */
int claims_hold(const Tree *tree, Claim *claim, int64_t claims);

#endif
