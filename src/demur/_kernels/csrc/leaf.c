/* Settling a box that only few points cross.
 *
 * Between two neighbouring crossings of lines the order of the lines is constant, and every
 * prefix of that order is the accepted set of a half-plane. The walk goes from crossing to
 * crossing; lines that meet in one point (collinear points) are passed in one step, because
 * crossings are found from differences of coordinates, good to a few units in the last place.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "search.h"

#define FEW 8           /* so few lines are walked to the end */

#define SAME (4 * DBL_EPSILON)

static inline double line_at(const Line *line, double t) { return line->x + t * line->y; }

static double edge_at(const Zone *zone, const double *ends, double t)
{
    double width = zone->t[1] - zone->t[0];
    return width > 0 ? ends[0] + (ends[1] - ends[0]) * ((t - zone->t[0]) / width) : ends[0];
}

/* Whether line a lies below line b just after t. */
static inline int goes_before(const Line *a, const Line *b, double t)
{
    double dx = a->x - b->x, dy = a->y - b->y, d = dx + t * dy;
    double doubt = SAME * (fabs(dx) + t * fabs(dy));
    if (fabs(d) > doubt) return d < 0;
    return dy < 0;
}

static void sort_lines(const Line *line, double t, int32_t *order, int32_t *spare, int64_t n)
{
    if (n <= 12) {
        for (int64_t i = 1; i < n; i++) {
            int32_t moving = order[i];
            int64_t j = i;
            for (; j > 0 && goes_before(line + moving, line + order[j - 1], t); j--)
                order[j] = order[j - 1];
            order[j] = moving;
        }
        return;
    }
    int64_t half = n / 2, i = 0, j = half;
    sort_lines(line, t, order, spare, half);
    sort_lines(line, t, order + half, spare, n - half);
    if (!goes_before(line + order[half], line + order[half - 1], t)) return;
    memcpy(spare, order, (size_t)n * sizeof *order);
    for (int64_t k = 0; k < n; k++) {
        int right = i >= half || (j < n && goes_before(line + spare[j], line + spare[i], t));
        order[k] = right ? spare[j++] : spare[i++];
    }
}

/* Where the first two neighbours change places after t. */
static double next_crossing(const Line *line, const int32_t *order, int64_t n, double t)
{
    double next = HUGE_VAL;
    for (int64_t k = 0; k + 1 < n; k++) {
        const Line *a = line + order[k], *b = line + order[k + 1];
        if (a->y <= b->y) continue;
        double crossing = (b->x - a->x) / (a->y - b->y);
        if (crossing > t && crossing < next) next = crossing;
    }
    return next;
}

void count_half_plane(const Search *s, const double *weight, double v, int64_t *row)
{
    const Tree *tree = s->tree;
    Chart chart = single_direction(weight);
    int64_t pending[64], node;
    int waiting = 0;
    memset(row, 0, (size_t)tree->width * sizeof *row);
    pending[waiting++] = 0;
    while (waiting) {
        node = pending[--waiting];
        const Node *here = tree->node + node;
        const double *box = tree->box + 4 * node;
        /* Rounding is monotone: corners bound the computed values of all points inside. */
        if (chart.fixed * box[chart.low[0]] + chart.step * box[chart.low[1]] > v) continue;
        if (chart.fixed * box[chart.high[0]] + chart.step * box[chart.high[1]] <= v) {
            add_row(row, tree->sums + node * tree->width, tree->width);
        } else if (here->child) {
            pending[waiting++] = here->child;
            pending[waiting++] = here->child + 1;
        } else {
            for (int64_t i = here->first; i < here->end; i++)
                if (weight[0] * tree->point[2 * i] + weight[1] * tree->point[2 * i + 1] <= v)
                    add_row(row, tree->mass + i * tree->width, tree->width);
        }
    }
}

/* Weights of both scores at t, and v, scaled until the larger weight is 1. */
static void normalise(const Chart *chart, double t, double *weight, double *v)
{
    weight[chart->still] = chart->fixed;
    weight[chart->moving] = chart->step * t;
    double largest = fmax(fabs(weight[0]), fabs(weight[1]));
    weight[0] /= largest;
    weight[1] /= largest;
    *v /= largest;
}

/* Whether float64 accepts exactly the masses expected at (t, v); then the half-plane is taken. */
static int take_verified(Search *s, const Chart *chart, double t, double v, const int64_t *sums)
{
    double weight[2];
    size_t size = (size_t)s->tree->width * sizeof *sums;
    normalise(chart, t, weight, &v);
    count_half_plane(s, weight, v, s->counted);
    if (memcmp(s->counted, sums, size) != 0) return 0;
    s->take(s, sums, weight, v);
    return 1;
}

/* Cut off the part of [t[0], t[1]] where the linear function with these end values is negative. */
static int keep_positive(double *t, double at_left, double at_right)
{
    if (!(at_left > 0) && !(at_right > 0)) return 0;
    if (at_left < 0) t[0] += (t[1] - t[0]) * (at_left / (at_left - at_right));
    if (at_right < 0) t[1] -= (t[1] - t[0]) * (at_right / (at_right - at_left));
    return 1;
}

/* The rounding error of values near a line. */
static double blur(const Line *line, double t)
{
    return line ? SAME * (fabs(line->x) + fabs(t * line->y)) : 0;
}

/* Find a place in the zone, for t in (from, to), between the lines `below` and `above`. Cells
 * no higher than the rounding errors of the values are not half-planes of float64. */
static void place(Search *s, const Box *box, const int64_t *sums, const Line *below,
                  const Line *above, double from, double to)
{
    static const double share[] = {0.5, 0.25, 0.75};
    const Zone *z = &box->zone;
    double t[2] = {from, to};
    int separable = 0;
    if (above && !keep_positive(t, line_at(above, t[0]) - edge_at(z, z->low, t[0]),
                                line_at(above, t[1]) - edge_at(z, z->low, t[1])))
        return;
    if (below && !keep_positive(t, edge_at(z, z->high, t[0]) - line_at(below, t[0]),
                                edge_at(z, z->high, t[1]) - line_at(below, t[1])))
        return;
    for (int k = 0; k < 3; k++) {
        double at = t[0] + share[k] * (t[1] - t[0]);
        double low = edge_at(z, z->low, at), high = edge_at(z, z->high, at);
        if (below) low = fmax(low, line_at(below, at));
        if (above) high = fmin(high, line_at(above, at));
        double v = low + (high - low) / 2;
        if (!(low <= v && v < high)) continue;
        if (take_verified(s, &s->chart[box->chart], at, v, sums)) return;
        separable |= high - low > blur(below, at) + blur(above, at);
    }
    s->unresolved += separable;
}

/* Try all prefixes of the order that holds for t in (from, to). */
static void try_prefixes(Search *s, const Box *box, const int64_t *sums, double from, double to)
{
    int64_t *row = s->row;
    memcpy(row, sums, (size_t)s->tree->width * sizeof *row);
    for (int64_t k = 0; k <= box->count; k++) {
        const Line *below = k > 0 ? s->line + s->order[k - 1] : NULL;
        const Line *above = k < box->count ? s->line + s->order[k] : NULL;
        if (below) add_row(row, below->mass, s->tree->width);
        /* An OOD point at the rim is better given up. */
        if (below && below->mass[ID] == 0) continue;
        if (s->wanted(s, row)) place(s, box, row, below, above, from, to);
    }
}

static void load_lines(Search *s, const Box *box)
{
    const Tree *tree = s->tree;
    const Chart *chart = &s->chart[box->chart];
    for (int64_t k = 0; k < box->count; k++) {
        int64_t i = ~s->popped.item[k];
        s->line[k].x = chart->fixed * tree->point[2 * i + chart->still];
        s->line[k].y = chart->step * tree->point[2 * i + chart->moving];
        s->line[k].mass = tree->mass + i * tree->width;
        s->order[k] = (int32_t)k;
    }
}

/* All thresholds of a single direction, on computed values taken as they are. */
static void try_thresholds(Search *s, const Box *box, const int64_t *sums)
{
    const Chart *chart = &s->chart[box->chart];
    double weight[2] = {chart->fixed, chart->step};
    int64_t *row = s->row, k = 0;
    memcpy(row, sums, (size_t)s->tree->width * sizeof *row);
    for (int64_t i = 0; i < box->count; i++) {
        s->keyed[i].key = s->line[i].x + s->line[i].y;
        s->keyed[i].item = (int32_t)i;
    }
    sort_keyed(s->keyed, s->keyed + box->count, box->count);
    double last = box->zone.low[0], next;
    for (;;) {
        next = k < box->count ? s->keyed[k].key : box->zone.high[0];
        if (next > last && s->wanted(s, row)) {
            double v = last + (next - last) / 2;
            s->take(s, row, weight, v < next ? v : last);
        }
        if (k == box->count) return;
        for (last = next; k < box->count && s->keyed[k].key == last; k++)
            add_row(row, s->line[s->keyed[k].item].mass, s->tree->width);
    }
}

/* Try all half-planes of a box crossed by points only; 0 if splitting it further is cheaper. */
int walk_leaf(Search *s, const Box *box, const int64_t *sums, int64_t steps)
{
    double t = box->zone.t[0], end = box->zone.t[1];
    load_lines(s, box);
    if (t == end) {
        try_thresholds(s, box, sums);
        return 1;
    }
    for (int64_t step = 0; box->count <= FEW || step < steps; step++) {
        sort_lines(s->line, t, s->order, s->spare, box->count);
        double next = next_crossing(s->line, s->order, box->count, t);
        double to = next < end ? next : end;
        if (to - t > SAME * to) try_prefixes(s, box, sums, t, to);
        if (next >= end) return 1;
        t = next;
    }
    return 0;
}
