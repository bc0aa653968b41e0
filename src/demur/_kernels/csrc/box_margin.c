/* How far a box may grow before it accepts more, in three passes over all rows. */
#include <math.h>

#include "limits.h"
#include "vectors.h"

#define LANES 16

/* Of every 16th row the largest scores within a box, and of all. */
ALWAYS_INLINE void tightest_loops(const double *score, int count, const double *limit,
                                  double (*tight)[LANES], double (*most)[LANES])
{
    for (int i = 0; i < count; i++) {
        const double x = score[2 * i], y = score[2 * i + 1];
        const int inside = (x <= limit[0]) & (y <= limit[1]);
        const double own_x = inside ? x : -HUGE_VAL, own_y = inside ? y : -HUGE_VAL;
        tight[0][i] = own_x > tight[0][i] ? own_x : tight[0][i];
        tight[1][i] = own_y > tight[1][i] ? own_y : tight[1][i];
        most[0][i] = x > most[0][i] ? x : most[0][i];
        most[1][i] = y > most[1][i] ? y : most[1][i];
    }
}

ALWAYS_INLINE void all_tightest_loops(const double *score, int64_t rows, const double *limit,
                                      double (*tight)[LANES], double (*most)[LANES])
{
    const int64_t even = rows - rows % LANES;
    for (int64_t first = 0; first < even; first += LANES)
        tightest_loops(score + 2 * first, LANES, limit, tight, most);
    tightest_loops(score + 2 * even, (int)(rows - even), limit, tight, most);
}

WITH_WIDEST_VECTORS(static, all_tightest,
                    (const double *score, int64_t rows, const double *limit,
                     double (*tight)[LANES], double (*most)[LANES]),
                    (score, rows, limit, tight, most))

/* By how much both limits have to grow, in units, until the first row more is inside. */
ALWAYS_INLINE void nearest_loops(const double *score, int count, const double *tight,
                                 const double *unit, double *least)
{
    for (int i = 0; i < count; i++) {
        const double x = score[2 * i], y = score[2 * i + 1];
        const double by_x = (x - tight[0]) / unit[0], by_y = (y - tight[1]) / unit[1];
        const int inside = (x <= tight[0]) & (y <= tight[1]);
        const double beyond = inside ? HUGE_VAL : by_x > by_y ? by_x : by_y;
        least[i] = beyond < least[i] ? beyond : least[i];
    }
}

ALWAYS_INLINE void all_nearest_loops(const double *score, int64_t rows, const double *tight,
                                     const double *unit, double *least)
{
    const int64_t even = rows - rows % LANES;
    for (int64_t first = 0; first < even; first += LANES)
        nearest_loops(score + 2 * first, LANES, tight, unit, least);
    nearest_loops(score + 2 * even, (int)(rows - even), tight, unit, least);
}

WITH_WIDEST_VECTORS(static, all_nearest,
                    (const double *score, int64_t rows, const double *tight, const double *unit,
                     double *least),
                    (score, rows, tight, unit, least))

/* How many rows a box accepts. */
ALWAYS_INLINE void accepted_loops(const double *score, int64_t rows, const double *limit,
                                  int64_t *count)
{
    int64_t inside = 0;
    for (int64_t row = 0; row < rows; row++)
        inside += (score[2 * row] <= limit[0]) & (score[2 * row + 1] <= limit[1]);
    *count = inside;
}

WITH_WIDEST_VECTORS(static, accepted,
                    (const double *score, int64_t rows, const double *limit, int64_t *count),
                    (score, rows, limit, count))

static double largest(const double *lane)
{
    double most = lane[0];
    for (int i = 1; i < LANES; i++) most = lane[i] > most ? lane[i] : most;
    return most;
}

void limits_margin(const double *score, int64_t rows, const double *limit, const double *unit,
                   BoxMargin *margin)
{
    double tight[2][LANES], most[2][LANES], least[LANES], *width = &margin->width;
    int64_t before, after;
    for (int i = 0; i < LANES; i++) {
        least[i] = HUGE_VAL;
        for (int a = 0; a < 2; a++) tight[a][i] = most[a][i] = -HUGE_VAL;
    }
    all_tightest(score, rows, limit, tight, most);
    for (int a = 0; a < 2; a++) margin->tight[a] = margin->wide[a] = largest(tight[a]);
    all_nearest(score, rows, margin->tight, unit, least);
    *width = HUGE_VAL;
    for (int i = 0; i < LANES; i++) *width = least[i] < *width ? least[i] : *width;
    if (*width == HUGE_VAL) return;
    /* Nothing says how far a limit may go that no row is beyond. */
    for (int a = 0; a < 2; a++)
        if (largest(most[a]) > margin->tight[a]) margin->wide[a] += *width / 2 * unit[a];
    accepted(score, rows, margin->tight, &before);
    accepted(score, rows, margin->wide, &after);
    if (before == after) return;
    /* float64 has nothing between the two. */
    for (int a = 0; a < 2; a++) margin->wide[a] = margin->tight[a];
}
