/* Stable sorts that stay within bounds even if a comparison contradicts itself. */
#ifndef DEMUR_SORTING_H
#define DEMUR_SORTING_H

#include <stdint.h>

typedef struct {
    double key;
    int32_t item;
} Keyed;

/* Sort by key; `spare` has room for n. */
void sort_keyed(Keyed *a, Keyed *spare, int64_t n);

/* Digits of RADIX_BITS bits, the most significant last, and how often each value occurs. */
#define RADIX_BITS 11
#define RADIX_PASSES 3

typedef struct {
    uint32_t count[RADIX_PASSES][1 << RADIX_BITS];
} Digits;

static inline int digit_of(uint64_t code, int pass)
{
    return (int)(code >> (64 - RADIX_BITS * (RADIX_PASSES - pass))) & ((1 << RADIX_BITS) - 1);
}

static inline void count_digits(Digits *digits, uint64_t code)
{
    for (int pass = 0; pass < RADIX_PASSES; pass++) digits->count[pass][digit_of(code, pass)]++;
}

/* The part of a code that its digits cover. */
static inline uint64_t counted_part(uint64_t code)
{
    return code >> (64 - RADIX_BITS * RADIX_PASSES);
}

/* Sort codes by their counted part, stably; `spare` has room for n. */
void sort_codes(uint64_t *a, uint64_t *spare, int64_t n, Digits *digits);

#endif
