/* On which side of the parts of a cut box items lie.
 *
 * An item is a node of the tree or a point. Its values are linear in t, so it lies below
 * (above) a zone if it does at both ends. Ends are compared with a tolerance. A line that passes
 * within its own rounding error of an edge counts as crossing, so that none that does is lost,
 * unless points are whole numbers: then cells are so large that it can count as being on the
 * outer side of the edge, and many lines through one point, even if rounding spoils it, are cut
 * apart there.
 *
 * A side is as good as random, so there are no branches on it: a batch goes through plain
 * loops, which compilers turn into vector instructions.
 */
#include "sides.h"

#include <math.h>

#include "vectors.h"

ALWAYS_INLINE int filled_up(const Batch *batch) { return (batch->count + LANES - 1) / LANES * LANES; }

ALWAYS_INLINE double larger(double a, double b) { return a > b ? a : b; }

/* The smallest size of a number between two. */
ALWAYS_INLINE double least_size(double low, double high) { return larger(larger(low, -high), 0); }

ALWAYS_INLINE void note(Sides *sides, int k, int below, int above)
{
    sides->below[k] = 0 - (uint64_t)below;
    sides->crosses[k] = 0 - (uint64_t)!(below | above);
}

/* Without a weight nothing is rounded. */
ALWAYS_INLINE double error_at(double weight, double rounding) { return weight != 0 ? rounding : 0; }

/* Values are base + weight*moving, with the weights of the two ends of a part. */
ALWAYS_INLINE void compare_points(const double *base, const double *moving, int n,
                                  const double *weight, double rounding, Edges at, Sides *sides)
{
    const double weights[2] = {weight[0], weight[1]};
    const double errors[2] = {error_at(weight[0], rounding), error_at(weight[1], rounding)};
    for (int k = 0; k < n; k++) {
        double left = weights[0] * moving[k], right = weights[1] * moving[k];
        double doubt[2] = {errors[0] * (fabs(base[k]) + fabs(left)),
                           errors[1] * (fabs(base[k]) + fabs(right))};
        left += base[k];
        right += base[k];
        int below = (left - at.low[0] <= doubt[0]) & (right - at.low[1] <= doubt[1]);
        int above = (at.high[0] - left <= doubt[0]) & (at.high[1] - right <= doubt[1]);
        note(sides, k, below, above);
    }
}

ALWAYS_INLINE void sides_of_points_loops(const Search *s, const Cut *cut, const Edges *edges,
                                         const Batch *batch, Sides *sides)
{
    const double *point = s->tree->point, fixed = cut->chart->fixed;
    const int still = cut->chart->still, moves = cut->chart->moving, n = filled_up(batch);
    double base[BATCH_SIZE], moving[BATCH_SIZE];
    for (int k = 0; k < n; k++) {
        const double *scores = point + 2 * (int64_t)batch->index[k];
        base[k] = fixed * scores[still];
        moving[k] = scores[moves];
    }
    for (int part = 0; part < cut->parts; part++)
        compare_points(base, moving, n, cut->weight + cut->from[part], s->rounding, edges[part],
                       sides + part);
}

WITH_WIDEST_VECTORS(, sides_of_points,
                    (const Search *s, const Cut *cut, const Edges *edges, const Batch *batch,
                     Sides *sides),
                    (s, cut, edges, batch, sides))

/* The corners of nodes with the smallest and with the largest values. */
typedef struct {
    double base[BATCH_SIZE], moving[BATCH_SIZE];
} Corners;

/* The size of numbers between two that rounding is relative to: a tolerance must not be too large,
 * and a lack of it not too small. */
ALWAYS_INLINE double size_between(double low, double high, int tolerant)
{
    return tolerant ? least_size(low, high) : larger(fabs(low), fabs(high));
}

/* Both ends are written out, and what does not change is a constant: no vectors come of it else. */
ALWAYS_INLINE void compare_corners(const Corners *low, const Corners *high, int n,
                                   const double *weight, double rounding, Edges at, Sides *sides,
                                   int tolerant)
{
    const double left = weight[0], right = weight[1];
    const double left_error = error_at(left, rounding), right_error = error_at(right, rounding);
    for (int k = 0; k < n; k++) {
        const double size = size_between(low->base[k], high->base[k], tolerant);
        const double low_left = left * low->moving[k], high_left = left * high->moving[k];
        const double low_right = right * low->moving[k], high_right = right * high->moving[k];
        const double left_doubt = left_error * (size + size_between(low_left, high_left, tolerant));
        const double right_doubt =
            right_error * (size + size_between(low_right, high_right, tolerant));
        const int below = (high->base[k] + high_left - at.low[0] <= left_doubt) &
                          (high->base[k] + high_right - at.low[1] <= right_doubt);
        const int above = (at.high[0] - (low->base[k] + low_left) <= left_doubt) &
                          (at.high[1] - (low->base[k] + low_right) <= right_doubt);
        note(sides, k, below, above);
    }
}

ALWAYS_INLINE void compare_nodes(const Corners *low, const Corners *high, int n,
                                 const double *weight, double rounding, Edges at, Sides *sides)
{
    if (rounding > 0)
        compare_corners(low, high, n, weight, rounding, at, sides, 1);
    else
        compare_corners(low, high, n, weight, rounding, at, sides, 0);
}

/* How much larger nodes have to be to be opened that have to grow then: it costs as much as looking
 * at many boxes, most of which are ruled out before. From 16 to 32 times of
 * 2,000,000 rows change by up to 15 %, those of 20,000 by 4 %. */
#define LATE 24

/* Take nodes out whose extents, summed over both ends of the whole box, are too large. */
ALWAYS_INLINE void take_out(const Corners *low, const Corners *high, int n, const Cut *cut,
                            const double *most, Sides *sides, uint64_t *out)
{
    const double first = cut->weight[0], last = cut->weight[2];
    for (int k = 0; k < n; k++) {
        double left = high->base[k] + first * high->moving[k] -
                      (low->base[k] + first * low->moving[k]);
        double right = high->base[k] + last * high->moving[k] -
                       (low->base[k] + last * low->moving[k]);
        uint64_t large = 0 - (uint64_t)(left + right > most[k]);
        out[k] = (sides[0].crosses[k] | sides[1].crosses[k]) & large;
        for (int part = 0; part < 2; part++) {
            sides[part].below[k] &= ~out[k];
            sides[part].crosses[k] &= ~out[k];
        }
    }
}

ALWAYS_INLINE void sides_of_nodes_loops(const Search *s, const Cut *cut, const Edges *edges,
                                        const Batch *batch, int all, Sides *sides, Batch *opened)
{
    const Chart chart = *cut->chart;
    const double *boxes = s->tree->box;
    const int n = filled_up(batch);
    Corners low, high;
    uint64_t out[BATCH_SIZE];
    double most[BATCH_SIZE];
    for (int k = 0; k < n; k++) {
        const double *box = boxes + 4 * (int64_t)batch->index[k];
        low.base[k] = chart.fixed * box[chart.low[0]];
        low.moving[k] = box[chart.low[1]];
        high.base[k] = chart.fixed * box[chart.high[0]];
        high.moving[k] = box[chart.high[1]];
    }
    for (int part = 0; part < cut->parts; part++)
        compare_nodes(&low, &high, n, cut->weight + cut->from[part], s->rounding, edges[part],
                      sides + part);
    if (cut->parts == 1) sides[1] = sides[0];
    for (int k = 0; k < n; k++) most[k] = all ? -1 : cut->open_above;
    if (s->tree->soil.rows && !all)
        for (int k = 0; k < n; k++)
            most[k] *= s->tree->node[batch->index[k]].child == UNGROWN ? LATE : 1;
    take_out(&low, &high, n, cut, most, sides, out);
    for (int k = 0; k < batch->count; k++) {
        opened->index[opened->count] = batch->index[k];
        opened->count += (int)(out[k] & 1);
    }
}

WITH_WIDEST_VECTORS(, sides_of_nodes,
                    (const Search *s, const Cut *cut, const Edges *edges, const Batch *batch,
                     int all, Sides *sides, Batch *opened),
                    (s, cut, edges, batch, all, sides, opened))
