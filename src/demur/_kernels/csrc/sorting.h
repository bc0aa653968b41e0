/* Stable sorts that stay within bounds even if a comparison contradicts itself. */
#ifndef DEMUR_SORTING_H
#define DEMUR_SORTING_H

#include <stdint.h>

#include "signals.h"

typedef struct {
    double key;
    int32_t item;
} Keyed;

/* Sort by key; `spare` has room for n. */
/* Sort n numbers, none of them NaN, with room for 2*n. */
void sort_numbers(double *a, uint64_t *room, int n);
void sort_keyed(Keyed *a, Keyed *spare, int64_t n);

/* Codes are sorted by their leading bits: first by BUCKET_BITS of them, then within each bucket,
 * which fits into the cache, by LATER digits of DIGIT_BITS. */
#define BUCKET_BITS 11
#define BUCKETS (1 << BUCKET_BITS)
#define DIGIT_BITS 10
#define LATER 3

static inline int bucket_of(uint64_t code) { return (int)(code >> (64 - BUCKET_BITS)); }

/* The part of a code that counts. */
static inline uint64_t sorted_part(uint64_t code)
{
    return code >> (64 - BUCKET_BITS - LATER * DIGIT_BITS);
}

/* Sort codes by their sorted part, stably, given the number of codes in each bucket; `spare` has
 * room for n. Returns -1 when a signal was raised. */
int sort_codes(Signals *signals, uint64_t *a, uint64_t *spare, int64_t n, const uint32_t *in_bucket);

#endif
