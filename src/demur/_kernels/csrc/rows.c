#include "rows.h"

#include <math.h>

#include "vectors.h"

#define LANES 16       /* numbers that are looked at together, those of both columns in turn */
#define TOGETHER 1024  /* rows that are decided before their masses are added */

/* What is known of the columns so far, per lane. */
typedef struct {
    double least[LANES], most[LANES];
    uint64_t endless[LANES]; /* 1 after a number that is infinite or none */
} Seen;

ALWAYS_INLINE void copy_lanes(const double *from, const double *sign, double *to, Seen *seen)
{
    for (int k = 0; k < LANES; k++) {
        const double value = from[k] * sign[k % 2] + 0.0;
        to[k] = value;
        seen->least[k] = value < seen->least[k] ? value : seen->least[k];
        seen->most[k] = value > seen->most[k] ? value : seen->most[k];
        seen->endless[k] |= (uint64_t) !(fabs(value) < HUGE_VAL);
    }
}

ALWAYS_INLINE void copy_rows_loops(const double *from, int64_t n, const double *sign, double *to,
                                   Seen *seen)
{
    Seen here = *seen;
    for (int64_t i = 0; i + LANES <= 2 * n; i += LANES) copy_lanes(from + i, sign, to + i, &here);
    *seen = here;
}

WITH_WIDEST_VECTORS(static, copy_rows,
                    (const double *from, int64_t n, const double *sign, double *to, Seen *seen),
                    (from, n, sign, to, seen))

int rows_copy(const double *from, int64_t n, const double *sign, double *to, double *low,
              double *high)
{
    Seen seen;
    uint64_t endless = 0;
    for (int k = 0; k < LANES; k++) {
        seen.least[k] = low[k % 2];
        seen.most[k] = high[k % 2];
        seen.endless[k] = 0;
    }
    copy_rows(from, n, sign, to, &seen);
    const int64_t done = n - n % (LANES / 2);
    if (n > done) {
        /* The last rows, filled up with one of them. */
        double rest[LANES], copied[LANES];
        for (int k = 0; k < LANES; k++) {
            const int64_t row = done + k / 2 < n ? done + k / 2 : n - 1;
            rest[k] = from[2 * row + k % 2];
        }
        copy_lanes(rest, sign, copied, &seen);
        for (int64_t k = 0; k < 2 * (n - done); k++) to[2 * done + k] = copied[k];
    }
    for (int k = 0; k < LANES; k++) {
        low[k % 2] = fmin(low[k % 2], seen.least[k]);
        high[k % 2] = fmax(high[k % 2], seen.most[k]);
        endless |= seen.endless[k];
    }
    return !endless;
}

/* All bits set for each row that is accepted. */
ALWAYS_INLINE void decide_loops(const double *scores, int n, const Decision *decision,
                                uint64_t *accepted)
{
    const Decision d = *decision;
    for (int i = 0; i < n; i++) {
        const double value = d.weight[0] * scores[2 * i] + d.weight[1] * scores[2 * i + 1];
        const int within = d.closed ? value <= d.threshold : value < d.threshold;
        accepted[i] = 0 - (uint64_t)within;
    }
}

WITH_WIDEST_VECTORS(static, decide,
                    (const double *scores, int n, const Decision *decision, uint64_t *accepted),
                    (scores, n, decision, accepted))

ALWAYS_INLINE void add_accepted_loops(const int64_t *mass, int n, const uint64_t *accepted,
                                      int64_t *sum)
{
    uint64_t total = 0;
    for (int i = 0; i < n; i++) total += (uint64_t)mass[i] & accepted[i];
    *sum += (int64_t)total;
}

WITH_WIDEST_VECTORS(static, add_accepted,
                    (const int64_t *mass, int n, const uint64_t *accepted, int64_t *sum),
                    (mass, n, accepted, sum))

void rows_tally(const double *scores, int64_t n, const Decision *decision, int kinds,
                const int64_t *const *mass, int64_t *sums)
{
    uint64_t accepted[TOGETHER];
    for (int k = 0; k < kinds; k++) sums[k] = 0;
    /* A sum beyond float64 may be -inf, too. */
    if (decision->threshold == -HUGE_VAL) return;
    for (int64_t first = 0; first < n; first += TOGETHER) {
        const int count = n - first < TOGETHER ? (int)(n - first) : TOGETHER;
        decide(scores + 2 * first, count, decision, accepted);
        for (int k = 0; k < kinds; k++) add_accepted(mass[k] + first, count, accepted, sums + k);
    }
}
