#include "ranks.h"

#include <math.h>
#include <stdlib.h>

#include "sorting.h"
#include "vectors.h"

#define SAMPLED_ROWS 2048

int learn_ranks(const double *scores, int64_t n, int column, int fine, Ranks *ranks)
{
    int64_t size = n < SAMPLED_ROWS ? n : SAMPLED_ROWS, stride = n / size;
    double sample[SAMPLED_ROWS];
    uint64_t *room = malloc(2 * (size_t)size * sizeof *room);
    if (!room) return -1;
    for (int64_t i = 0; i < size; i++) {
        int64_t row = i * stride + (int64_t)(scramble((uint64_t)i) % (uint64_t)stride);
        sample[i] = scores[2 * row + column];
    }
    sort_numbers(sample, room, (int)size);
    free(room);
    for (int k = 0; k <= KNOTS; k++) ranks->edge[k] = sample[(size - 1) * k / KNOTS];
    for (int k = 0; k < KNOTS; k++) {
        double width = ranks->edge[k + 1] - ranks->edge[k];
        double steps = ldexp(1, fine) / width;
        ranks->steps[k] = width > 0 && steps < HUGE_VAL ? steps : 0;
    }
    ranks->fine = fine;
    ranks->spread = sample[size - 1 - size / 10] - sample[size / 10];
    if (!(ranks->spread > 0)) ranks->spread = ranks->edge[KNOTS] - ranks->edge[0];
    return 0;
}

/* Ranks in 0 .. 2^(KNOT_BITS + fine) - 1, without a branch on data. */
ALWAYS_INLINE void rank_all_loops(const double *score, int n, const Ranks *ranks, uint64_t *rank)
{
    const double *inner = ranks->edge + 1;
    double last = ldexp(1, (int)ranks->fine) - 1;
    for (int i = 0; i < n; i++) {
        double value = score[2 * i];
        int64_t at = 0;
        for (int step = KNOTS / 2; step > 0; step /= 2)
            at += inner[at + step - 1] <= value ? step : 0;
        double within = (value - ranks->edge[at]) * ranks->steps[at];
        within = within > 0 ? within : 0;
        within = within < last ? within : last;
        rank[i] = (uint64_t)(at << ranks->fine) | (uint64_t)(int32_t)within;
    }
}

WITH_WIDEST_VECTORS(, rank_all,
                    (const double *score, int n, const Ranks *ranks, uint64_t *rank),
                    (score, n, ranks, rank))

/* Put zeros between the lowest 32 bits. */
ALWAYS_INLINE uint64_t spaced(uint64_t x)
{
    x = (x | x << 16) & 0x0000ffff0000ffffu;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
    x = (x | x << 2) & 0x3333333333333333u;
    return (x | x << 1) & 0x5555555555555555u;
}

ALWAYS_INLINE void interleave_loops(uint64_t *a, const uint64_t *b, int n)
{
    for (int i = 0; i < n; i++) a[i] = spaced(a[i]) << 1 | spaced(b[i]);
}

WITH_WIDEST_VECTORS(, interleave, (uint64_t *a, const uint64_t *b, int n), (a, b, n))
