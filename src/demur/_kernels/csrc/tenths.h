#ifndef DEMUR_TENTHS_H
#define DEMUR_TENTHS_H

#include "tree.h"

/* Rows that were put into cells. */
typedef struct {
    const Soil *soil;
    const uint16_t *used; /* the cells that have rows, in order */
    int32_t cells;        /* and their number */
    const uint32_t *count, *end; /* rows of each cell, and where their list ends */
    const int64_t *sums;  /* masses of each cell, `width` of them */
    const double *range;  /* smallest, then largest scores */
    int width;
} Sown;

/* The rank that the bits of a cell stand for, along one axis. */
static inline int rank_of(uint32_t cell, int axis)
{
    uint32_t rank = (axis == 0 ? cell >> 1 : cell) & 0x5555u;
    rank = (rank | rank >> 1) & 0x3333u;
    rank = (rank | rank >> 2) & 0x0f0fu;
    return (int)((rank | rank >> 4) & 0x00ffu);
}

/* The smallest values at which a tenth, and nine tenths, of the ID mass are reached; NaN without
 * any. Returns -1 without memory. */
int tenths_along(const Sown *sown, int axis, double *tenth);

#endif
