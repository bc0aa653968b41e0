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

/* Numbers as whole ones in the same order: bits of those below zero run backwards. */
static uint64_t ordered_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits ^ (bits >> 63 ? UINT64_MAX : (uint64_t)1 << 63);
}

static double number_of(uint64_t ordered)
{
    const uint64_t bits = ordered ^ (ordered >> 63 ? (uint64_t)1 << 63 : UINT64_MAX);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define BYTES 8

void sort_numbers(double *a, uint64_t *room, int n)
{
    uint32_t count[BYTES][256] = {{0}};
    uint64_t *from = room, *to = room + n;
    for (int i = 0; i < n; i++) {
        from[i] = ordered_bits(a[i]);
        for (int b = 0; b < BYTES; b++) count[b][from[i] >> (8 * b) & 255]++;
    }
    for (int b = 0; b < BYTES; b++) {
        uint32_t total = 0;
        if (n && count[b][from[0] >> (8 * b) & 255] == (uint32_t)n) continue;
        for (int k = 0; k < 256; k++) {
            const uint32_t here = count[b][k];
            count[b][k] = total;
            total += here;
        }
        for (int i = 0; i < n; i++) to[count[b][from[i] >> (8 * b) & 255]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    for (int i = 0; i < n; i++) a[i] = number_of(from[i]);
}

#define DIGITS (1 << DIGIT_BITS)
#define FEW 48 /* codes that are sorted by insertion */

static inline int digit_of(uint64_t code, int digit)
{
    return (int)(sorted_part(code) >> (digit * DIGIT_BITS)) & (DIGITS - 1);
}

static void insert_codes(const uint64_t *from, int64_t n, uint64_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t moving = from[i];
        int64_t j = i;
        for (; j > 0 && sorted_part(to[j - 1]) > sorted_part(moving); j--) to[j] = to[j - 1];
        to[j] = moving;
    }
}

/* Sort a bucket from `from` into `to`, the least digit first. */
static void sort_bucket(uint64_t *from, int64_t n, uint64_t *to)
{
    uint32_t count[LATER][DIGITS] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int d = 0; d < LATER; d++) count[d][digit_of(from[i], d)]++;
    for (int d = 0; d < LATER; d++) {
        uint32_t total = 0;
        for (int k = 0; k < DIGITS; k++) {
            uint32_t here = count[d][k];
            count[d][k] = total;
            total += here;
        }
        for (int64_t i = 0; i < n; i++) to[count[d][digit_of(from[i], d)]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
}

int sort_codes(Signals *signals, uint64_t *a, uint64_t *spare, int64_t n, const uint32_t *in_bucket)
{
    uint32_t end[BUCKETS], total = 0;
    for (int b = 0; b < BUCKETS; b++) {
        end[b] = total;
        total += in_bucket[b];
    }
    for (int64_t first = 0; first < n; first += ROWS_OF_A_BLOCK) {
        int64_t last = n - first < ROWS_OF_A_BLOCK ? n : first + ROWS_OF_A_BLOCK;
        if (interrupted(signals, 1)) return -1;
        for (int64_t i = first; i < last; i++) spare[end[bucket_of(a[i])]++] = a[i];
    }
    for (int b = 0; b < BUCKETS; b++) {
        int64_t size = in_bucket[b], first = end[b] - size;
        if (interrupted(signals, 1 + size / ROWS_OF_A_BLOCK)) return -1;
        if (size <= FEW)
            insert_codes(spare + first, size, a + first);
        else
            sort_bucket(spare + first, size, a + first);
    }
    return 0;
}
