/* Passes over all rows of a sample, each of which is memory-bound: what can be done together is. */
#ifndef DEMUR_ROWS_H
#define DEMUR_ROWS_H

#include <stdint.h>

/* Copy n pairs of scores, each column multiplied by a sign, with 0 for -0; widen the ranges of the
 * columns. Returns whether all of them are finite. */
int rows_copy(const double *from, int64_t n, const double *sign, double *to, double *low,
              double *high);

/* A half-plane: weights, threshold, and whether what equals the threshold is accepted. */
typedef struct {
    double weight[2], threshold;
    int closed;
} Decision;

/* Add up `kinds` masses of the rows that are accepted: column k of n masses goes into sums[k]. */
void rows_tally(const double *scores, int64_t n, const Decision *decision, int kinds,
                const int64_t *const *mass, int64_t *sums);

#endif
