#include "sorting.h"

#include <string.h>

#define RUN 16

static void insert_keyed(Keyed *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        Keyed moving = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1].key > moving.key; j--) a[j] = a[j - 1];
        a[j] = moving;
    }
}

static void merge_keyed(const Keyed *a, int64_t split, int64_t n, Keyed *out)
{
    int64_t i = 0, j = split;
    for (int64_t k = 0; k < n; k++) {
        int left = j >= n || (i < split && a[i].key <= a[j].key);
        out[k] = left ? a[i++] : a[j++];
    }
}

void sort_keyed(Keyed *a, Keyed *spare, int64_t n)
{
    Keyed *from = a, *to = spare;
    for (int64_t i = 0; i < n; i += RUN) insert_keyed(a + i, n - i < RUN ? n - i : RUN);
    for (int64_t run = RUN; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            int64_t length = n - i < 2 * run ? n - i : 2 * run;
            merge_keyed(from + i, length < run ? length : run, length, to + i);
        }
        Keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != a) memcpy(a, from, (size_t)n * sizeof *a);
}

static void distribute(const uint64_t *a, uint64_t *out, int64_t n, uint32_t *count, int pass)
{
    uint32_t total = 0;
    for (int d = 0; d < 1 << RADIX_BITS; d++) {
        uint32_t here = count[d];
        count[d] = total;
        total += here;
    }
    for (int64_t i = 0; i < n; i++) out[count[digit_of(a[i], pass)]++] = a[i];
}

void sort_codes(uint64_t *a, uint64_t *spare, int64_t n, Digits *digits)
{
    uint64_t *from = a, *to = spare;
    for (int pass = 0; pass < RADIX_PASSES; pass++) {
        distribute(from, to, n, digits->count[pass], pass);
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    memcpy(a, from, (size_t)n * sizeof *a);
}
