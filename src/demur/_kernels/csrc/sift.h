#ifndef DEMUR_SIFT_H
#define DEMUR_SIFT_H

#include "search.h"

/* Three positions t, as weights, and which two neighbours among them bound each part. */
typedef struct {
    const Chart *chart;
    double weight[3];
    int from[2], parts;
    double open_above; /* nodes of larger extent are opened */
    int open_items;    /* items that are nodes are opened whatever their extent */
} Cut;

/* Fill s->part, whose zones and certain sums are set, from the items of the whole. */
int sift(Search *s, const Cut *cut, const int32_t *item, int64_t count);

#endif
