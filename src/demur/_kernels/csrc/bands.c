/* Which bands of a column points cross, and the masses of all bands; see mesh.c. */
#include "bands.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "vectors.h"

#define NARROW 1e-3   /* of the higher end of a column */
#define STEEPEST 1e300 /* rows per height */
#define MOST_SAMPLED 256 /* points that are all looked at to choose chords */

_Static_assert(sizeof(Quad) == sizeof(Tally), "a tally is four numbers");

/* The value at which a row begins at a cut. */
double row_at(const Cuts *cuts, int j, int row)
{
    const double low = cuts->low[j], high = cuts->high[j];
    return row == cuts->rows ? high : low + (high - low) * ((double)row / cuts->rows);
}

/* The row in which chord c of a column ends. */
int row_of_chord(const Cuts *cuts, int c, int end)
{
    const int row = c + (end ? cuts->climb : 0);
    return row < 0 ? 0 : row > cuts->rows ? cuts->rows : row;
}

/* Rows are counted from 0 at `floor`; `slack` and `doubt`, per size of a value, are what errors of
 * positions may come to, negative among whole points. */
typedef struct {
    double weight, floor, scale, slack, doubt;
    int rows;
} Ruler;

ALWAYS_INLINE void place_points_loops(const double *base, const double *moving, int n, Ruler ruler,
                                      int32_t *above, int32_t *below)
{
    const double weight = ruler.weight, floor = ruler.floor, scale = ruler.scale;
    const double slack = ruler.slack, doubt = ruler.doubt, most = ruler.rows + 1;
    for (int k = 0; k < n; k++) {
        double moved = weight * moving[k];
        double at = (base[k] + moved - floor) * scale;
        double error = doubt * (fabs(base[k]) + fabs(moved)) + slack;
        double low = at - error + 1, high = most - (at + error);
        low = low > 0 ? low : 0;
        low = low < most ? low : most;
        high = high > 0 ? high : 0;
        high = high < most ? high : most;
        above[k] = (int32_t)low - 1;
        below[k] = ruler.rows + 1 - (int32_t)high;
    }
}

WITH_WIDEST_VECTORS(static, place_points,
                    (const double *base, const double *moving, int n, Ruler ruler, int32_t *above,
                     int32_t *below),
                    (base, moving, n, ruler, above, below))

/* Find the places of all points at a cut. */
void place_at(const Cuts *cuts, int j, int whole, double weight, const double *base,
              const double *moving, int n, Places *at)
{
    double low = cuts->low[j], high = cuts->high[j];
    double scale = cuts->rows / (high - low), sign = whole ? -1 : 1;
    /* Floor and ceiling may meet at an end: all points but those that go through there are on one
     * side of both. */
    if (!(scale > 0 && scale < STEEPEST)) scale = STEEPEST;
    double doubt = TOLERANCE * scale, size = fmax(fabs(low), fabs(high));
    double slack = 2 * doubt * size + cuts->rows * DBL_EPSILON;
    Ruler ruler = {weight, low, scale, sign * slack,
                   sign * doubt, cuts->rows};
    place_points(base, moving, filled_up(n), ruler, at->above, at->below);
}

/* Whether rows at one end of column j are much higher than at the other, where they nearly meet. */
static int is_fan_shaped(const Cuts *cuts, int j)
{
    double left = cuts->high[j] - cuts->low[j], right = cuts->high[j + 1] - cuts->low[j + 1];
    return fmin(left, right) < NARROW * fmax(left, right);
}

/* By how many rows some points rise, those that are inside at both ends, and all. */
typedef struct {
    int32_t inside, rise_inside, rise;
} Rises;

ALWAYS_INLINE void add_rises_loops(const int32_t *left, const int32_t *right, int n, int stride,
                                   int32_t rows, Rises *sum)
{
    int32_t counted = 0, risen = 0, all = 0;
    for (int k = 0; k < n; k += stride) {
        const int32_t from = left[k], to = right[k];
        const int32_t inside = (from >= 0) & (from < rows) & (to >= 0) & (to < rows);
        counted += inside;
        risen += (to - from) & -inside;
        all += to - from;
    }
    *sum = (Rises){counted, risen, all};
}

/* Neighbours go into one vector: all of a few hundred points take less time than a sample. */
ALWAYS_INLINE void add_all_rises_loops(const int32_t *left, const int32_t *right, int n,
                                       int32_t rows, Rises *sum)
{
    add_rises_loops(left, right, n, 1, rows, sum);
}

WITH_WIDEST_VECTORS(static, add_all_rises,
                    (const int32_t *left, const int32_t *right, int n, int32_t rows, Rises *sum),
                    (left, right, n, rows, sum))

/* By how many rows most points rise in a column. */
int choose_climb(const Cuts *cuts, int j, int n, const Places *left, const Places *right)
{
    if (is_fan_shaped(cuts, j)) return 0;
    const int rows = cuts->rows, stride = n > MOST_SAMPLED ? n / SAMPLED + 1 : 1;
    Rises sum;
    if (stride == 1)
        add_all_rises(left->above, right->above, n, rows, &sum);
    else
        add_rises_loops(left->above, right->above, n, stride, rows, &sum);
    double mean = (double)sum.rise / ((n - 1) / stride + 1);
    if (sum.inside) mean = (double)sum.rise_inside / sum.inside;
    int climb = (int)floor(mean + 0.5);
    return climb < -rows ? -rows : climb > rows ? rows : climb;
}

/* Bands that points cross, from `from` to before `to`. What is below, or above, the zone at an end
 * is so for all chords there. */
ALWAYS_INLINE void join_places_loops(const Places *left, const Places *right, int n,
                                     const Cuts *cuts, int32_t *from, int32_t *to)
{
    const int32_t far = 4 * MOST_BANDS, rows = cuts->rows, climb = cuts->climb;
    const int32_t first = cuts->first, bands = cuts->bands;
    for (int k = 0; k < n; k++) {
        int32_t above = left->above[k], above_right = right->above[k];
        int32_t below = left->below[k], below_right = right->below[k];
        above = above < 0 ? -far : above >= rows ? far : above;
        above_right = above_right < 0 ? -far : above_right >= rows ? far : above_right - climb;
        below = below <= 0 ? -far : below > rows ? far : below;
        below_right = below_right <= 0 ? -far : below_right > rows ? far : below_right - climb;
        above = (above < above_right ? above : above_right) - first;
        below = (below > below_right ? below : below_right) - first;
        below = below < 0 ? 0 : below > bands ? bands : below;
        above = above < 0 ? 0 : above > below ? below : above;
        from[k] = above;
        to[k] = below;
    }
}

WITH_WIDEST_VECTORS(, join_places,
                    (const Places *left, const Places *right, int n, const Cuts *cuts,
                     int32_t *from, int32_t *to),
                    (left, right, n, cuts, from, to))

ALWAYS_INLINE void add_tally(Tally *sum, const Tally *tally)
{
    Quad a, b;
    memcpy(&a, sum, sizeof a);
    memcpy(&b, tally, sizeof b);
    QUAD_ADD_MASKED(a, b, UINT64_MAX);
    memcpy(sum, &a, sizeof a);
}

/* Let every tally be the sum of those up to it, with those of another list. */
ALWAYS_INLINE void accumulate(Tally *tally, const Tally *more, int n)
{
    Quad sum, one, other;
    memset(&sum, 0, sizeof sum);
    for (int k = 0; k < n; k++) {
        memcpy(&one, tally + k, sizeof one);
        memcpy(&other, more + k, sizeof other);
        QUAD_ADD_MASKED(sum, one, UINT64_MAX);
        QUAD_ADD_MASKED(sum, other, UINT64_MAX);
        memcpy(tally + k, &sum, sizeof sum);
    }
}

/* What is certain and possible in each band. Neighbours in the list often cross the same bands,
 * and sums of one band wait for each other: both halves of the list are worked on in turns, and have
 * sums of their own. */
ALWAYS_INLINE void count_bands_loops(const Tally *tally, const int32_t *from, const int32_t *to,
                                      int n, int bands, Tally *possible, Tally *certain)
{
    const int half = n / 2;
    const size_t size = (size_t)(bands + 1) * sizeof *possible;
    Tally more_possible[MOST_BANDS + 1], more_certain[MOST_BANDS + 1];
    memset(possible, 0, size);
    memset(certain, 0, size);
    memset(more_possible, 0, size);
    memset(more_certain, 0, size);
    for (int k = 0; k < half; k++) {
        add_tally(possible + from[k], tally + k);
        add_tally(certain + to[k], tally + k);
        add_tally(more_possible + from[half + k], tally + half + k);
        add_tally(more_certain + to[half + k], tally + half + k);
    }
    if (n % 2) {
        add_tally(possible + from[n - 1], tally + n - 1);
        add_tally(certain + to[n - 1], tally + n - 1);
    }
    accumulate(possible, more_possible, bands);
    accumulate(certain, more_certain, bands);
}

WITH_WIDEST_VECTORS(, count_bands,
                    (const Tally *tally, const int32_t *from, const int32_t *to, int n, int bands,
                     Tally *possible, Tally *certain),
                    (tally, from, to, n, bands, possible, certain))

/* What is below each row of a cut. */
ALWAYS_INLINE void count_rows_loops(const Tally *tally, const int32_t *below, int n, int rows,
                                    Tally *certain)
{
    const int half = n / 2;
    const size_t size = (size_t)(rows + 2) * sizeof *certain;
    Tally more[MOST_ROWS_OF_A_COLUMN + 2];
    memset(certain, 0, size);
    memset(more, 0, size);
    for (int k = 0; k < half; k++) {
        add_tally(certain + below[k], tally + k);
        add_tally(more + below[half + k], tally + half + k);
    }
    if (n % 2) add_tally(certain + below[n - 1], tally + n - 1);
    accumulate(certain, more, rows + 1);
}

WITH_WIDEST_VECTORS(, count_rows,
                    (const Tally *tally, const int32_t *below, int n, int rows, Tally *certain),
                    (tally, below, n, rows, certain))

ALWAYS_INLINE void mark_crossing_loops(const int32_t *from, const int32_t *to, int n, int first,
                                       int last, uint8_t *crosses)
{
    for (int k = 0; k < n; k++) crosses[k] = (uint8_t)((from[k] <= last) & (to[k] > first));
}

WITH_WIDEST_VECTORS(, mark_crossing,
                    (const int32_t *from, const int32_t *to, int n, int first, int last,
                     uint8_t *crosses),
                    (from, to, n, first, last, crosses))

/* Which rows of a cut begin within rounding errors of a point. */
void find_doubts(const Places *at, int n, char *doubtful)
{
    int any = 0;
    for (int k = 0; k < n; k++) any |= at->below[k] - at->above[k] > 1;
    for (int k = 0; k < n && any; k++)
        for (int c = at->above[k] + 1; c < at->below[k]; c++) doubtful[c] = 1;
}
