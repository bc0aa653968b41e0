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

/* Sort by the upper 32 bits; `spare` has room for n. */
void sort_upper(uint64_t *a, uint64_t *spare, int64_t n);

#endif
