/* Scores as approximate ranks, through a few hundred quantiles of a sample, so that units, offsets,
 * heavy tails and scores that span many decades leave the cells of the Morton curve about equally
 * full. Bits of both ranks are interleaved into a key. */
#ifndef DEMUR_RANKS_H
#define DEMUR_RANKS_H

#include <stdint.h>

#define KNOT_BITS 8
#define KNOTS (1 << KNOT_BITS)

typedef struct {
    double edge[KNOTS + 1]; /* quantiles 0, 1/KNOTS, ..., 1 of the sample */
    double steps[KNOTS];    /* subdivisions per unit of score between neighbours */
    double spread;          /* 10-90 % range, or the whole range if that is zero */
    int64_t fine;           /* bits of a subdivision */
} Ranks;

/* A pseudo-random number. */
static inline uint64_t scramble(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Learn the ranks of one column of n pairs. Returns -1 without memory. */
int learn_ranks(const double *scores, int64_t n, int column, int fine, Ranks *ranks);
/* Ranks of every second number, in 0 .. 2^(KNOT_BITS + fine) - 1. */
void rank_all(const double *score, int n, const Ranks *ranks, uint64_t *rank);
/* Interleave the bits of two ranks, those of `a` first. */
void interleave(uint64_t *a, const uint64_t *b, int n);

#endif
