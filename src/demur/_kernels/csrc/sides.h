#ifndef DEMUR_SIDES_H
#define DEMUR_SIDES_H

#include "sift.h"

#define BATCH_SIZE 96 /* most points or nodes looked at together */
#define LANES 8       /* batches are filled up to a multiple of this */

typedef struct {
    int32_t index[BATCH_SIZE];
    int count;
} Batch;

/* The values at the ends of part k between which it lies. */
typedef struct {
    double low[2], high[2];
} Edges;

/* Masks, all bits or none: what lies below a part and what crosses it. */
typedef struct {
    uint64_t below[BATCH_SIZE], crosses[BATCH_SIZE];
} Sides;

void sides_of_points(const Search *s, const Cut *cut, const Edges *edges, const Batch *batch,
                     Sides *sides);
/* Nodes that cross any part and are large, or `all` of them, have to be opened; they are listed,
 * and are on no side. */
void sides_of_nodes(const Search *s, const Cut *cut, const Edges *edges, const Batch *batch,
                    int all, Sides *sides, Batch *opened);

#endif
