/* Settling a box that only few points cross.
 *
 * Sorted by value at t, the lines that cross a box have as many prefixes as accepted sets at t.
 * Sweeping t, two neighbours change places wherever they cross, which changes one prefix and
 * the line at the rim of the two next to it. So every cell of the box is seen while its set and
 * its rim last; those worth having are given a place (t, v) in the box, and counted there.
 *
 * Crossings are found from differences of coordinates, good to a few units in the last place:
 * lines that meet in one point change places at one t, up to that.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "search.h"

#define PAIRS 16 /* pairs of lines looked at to see whether any cross */
#define SAME (4 * DBL_EPSILON)

static inline double line_at(const Line *line, double t) { return line->x + t * line->y; }

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

void count_half_plane(const Search *s, const double *weight, double v, int64_t *row)
{
    const Tree *tree = s->tree;
    Chart chart = single_direction(weight);
    int32_t pending[LEVELS], node;
    int waiting = 0;
    memset(row, 0, (size_t)tree->width * sizeof *row);
    pending[waiting++] = 0;
    while (waiting) {
        node = pending[--waiting];
        const Node *here = tree->node + node;
        const double *box = tree->box + 4 * (int64_t)node;
        /* Rounding is monotone: corners bound the computed values of all points inside. */
        if (chart.fixed * box[chart.low[0]] + chart.step * box[chart.low[1]] > v) continue;
        if (chart.fixed * box[chart.high[0]] + chart.step * box[chart.high[1]] <= v) {
            add_row(row, tree->sums + (int64_t)node * tree->width, tree->width);
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

static double largest_size(double a, double b) { return fmax(fabs(a), fabs(b)); }

/* Whether v is within rounding of the value of any point with mass. */
static int touches(const Search *s, const double *weight, double v)
{
    const Tree *tree = s->tree;
    int32_t pending[LEVELS];
    int waiting = 0;
    pending[waiting++] = 0;
    while (waiting) {
        int32_t node = pending[--waiting];
        const Node *here = tree->node + node;
        const double *box = tree->box + 4 * (int64_t)node;
        double a[2] = {weight[0] * box[0], weight[0] * box[2]};
        double b[2] = {weight[1] * box[1], weight[1] * box[3]};
        double doubt = SAME * (largest_size(a[0], a[1]) + largest_size(b[0], b[1]));
        if (fmin(a[0], a[1]) + fmin(b[0], b[1]) > v + doubt) continue;
        if (fmax(a[0], a[1]) + fmax(b[0], b[1]) < v - doubt) continue;
        if (here->child) {
            pending[waiting++] = here->child;
            pending[waiting++] = here->child + 1;
            continue;
        }
        for (int64_t i = here->first; i < here->end; i++) {
            double x = weight[0] * tree->point[2 * i], y = weight[1] * tree->point[2 * i + 1];
            if (fabs(x + y - v) <= SAME * (fabs(x) + fabs(y)) &&
                tree->mass[i * tree->width + MARK])
                return 1;
        }
    }
    return 0;
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

enum { TAKEN, REFUSED, INSEPARABLE };

/* Take the half-plane at (t, v) if float64 accepts exactly the masses expected. */
static int take_verified(Search *s, const Chart *chart, double t, double v, const int64_t *sums)
{
    double weight[2];
    normalise(chart, t, weight, &v);
    count_half_plane(s, weight, v, s->counted);
    if (memcmp(s->counted, sums, (size_t)s->tree->width * sizeof *sums) != 0)
        return touches(s, weight, v) ? INSEPARABLE : REFUSED;
    s->take(s, sums, weight, v);
    return TAKEN;
}

/* Cut off the part of [t[0], t[1]] where the linear function with these end values is negative.
 * Zeros are measured from t[0], the end at which floats are denser: taken off t[1], one close to
 * t[0] could land before it, where the lines are in another order. */
static int keep_positive(double *t, double at_left, double at_right)
{
    if (!(at_left > 0) && !(at_right > 0)) return 0;
    if (at_left < 0 || at_right < 0) {
        double zero = t[0] + (t[1] - t[0]) * (at_left / (at_left - at_right));
        t[at_left < 0 ? 0 : 1] = fmin(fmax(zero, t[0]), t[1]);
    }
    return 1;
}

/* Find a place in the zone, for t in (from, to), between the lines `below` and `above`, and take
 * the half-plane there. A cell that everywhere is within rounding of some line is not a
 * half-plane of float64. Returns whether one was taken. */
static int place(Search *s, const Box *box, const int64_t *sums, const Line *below,
                  const Line *above, double from, double to)
{
    static const double share[] = {0.5, 0.25, 0.75};
    const Zone *z = &box->zone;
    double t[2] = {from, to};
    int refused = 0;
    if (above && !keep_positive(t, line_at(above, t[0]) - edge_at(&z->floor, t[0]),
                                line_at(above, t[1]) - edge_at(&z->floor, t[1])))
        return 0;
    if (below && !keep_positive(t, edge_at(&z->ceiling, t[0]) - line_at(below, t[0]),
                                edge_at(&z->ceiling, t[1]) - line_at(below, t[1])))
        return 0;
    for (int k = 0; k < 3; k++) {
        double at = t[0] + share[k] * (t[1] - t[0]);
        double low = edge_at(&z->floor, at), high = edge_at(&z->ceiling, at);
        if (below) low = fmax(low, line_at(below, at));
        if (above) high = fmin(high, line_at(above, at));
        double v = low + (high - low) / 2;
        if (!(low <= v && v < high)) continue;
        int verdict = take_verified(s, &s->chart[box->chart], at, v, sums);
        if (verdict == TAKEN) return 1;
        refused |= verdict == REFUSED;
    }
    s->unresolved += refused;
    return 0;
}

static Line line_of(const Search *s, const Box *box, int64_t k)
{
    const Tree *tree = s->tree;
    const Chart *chart = &s->chart[box->chart];
    int64_t i = ~s->popped.item[k];
    const int64_t *mass = tree->mass + i * tree->width;
    Line line = {chart->fixed * tree->point[2 * i + chart->still],
                 chart->step * tree->point[2 * i + chart->moving], mass};
    return line;
}

/* Where lines a, below, and b, above it after t, change places. */
static inline double crossing_after(const Line *a, const Line *b, double t)
{
    if (a->y <= b->y) return HUGE_VAL;
    double crossing = (b->x - a->x) / (a->y - b->y);
    return crossing > t ? crossing : t;
}

/* Whether any of a few pairs of lines cross in the box. */
int lines_cross(const Search *s, const Box *box)
{
    int64_t stride = box->count / PAIRS + 1, half = box->count / 2;
    for (int64_t k = 0; k < half; k += stride) {
        /* Neighbours in the list are close together, the others are not. */
        Line a = line_of(s, box, k), b = line_of(s, box, k / stride % 2 ? k + half : k + 1);
        double t = (b.x - a.x) / (a.y - b.y);
        if (t > box->zone.t[0] && t < box->zone.t[1]) return 1;
    }
    return 0;
}

static void load_lines(Search *s, const Box *box)
{
    for (int64_t k = 0; k < box->count; k++) {
        s->line[k] = line_of(s, box, k);
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

/* See to the set of the k lowest lines, whose rim has not changed since s->since[k]. */
static void try_prefix(Search *s, const Box *box, int64_t k, double t)
{
    const Line *below = k > 0 ? s->line + s->order[k - 1] : NULL;
    const Line *above = k < box->count ? s->line + s->order[k] : NULL;
    const int64_t *row = s->prefix + k * s->tree->width;
    /* What was wanted may have been beaten before it found a place. */
    if (!s->settled[k] && !s->wanted(s, row)) s->settled[k] = 1;
    if (!s->settled[k] && t - s->since[k] > SAME * t)
        s->settled[k] = (char)place(s, box, row, below, above, s->since[k], t);
    s->since[k] = t;
}

static void begin_prefix(Search *s, int64_t k, double t)
{
    int width = s->tree->width;
    int64_t *row = s->prefix + k * width;
    memcpy(row, row - width, (size_t)width * sizeof *row);
    add_row(row, s->line[s->order[k - 1]].mass, width);
    s->settled[k] = 0;
    s->since[k] = t;
}

static void begin_walk(Search *s, const Box *box, const int64_t *sums)
{
    double t = box->zone.t[0];
    sort_lines(s->line, t, s->order, s->spare, box->count);
    memcpy(s->prefix, sums, (size_t)s->tree->width * sizeof *sums);
    s->settled[0] = 0;
    s->since[0] = t;
    for (int64_t k = 1; k <= box->count; k++) begin_prefix(s, k, t);
    for (int64_t k = 0; k + 1 < box->count; k++)
        s->crossing[k] = crossing_after(s->line + s->order[k], s->line + s->order[k + 1], t);
}

/* Let the lines at positions k and k + 1 change places at t. */
static void swap_lines(Search *s, const Box *box, int64_t k, double t)
{
    for (int64_t set = k; set <= k + 2; set++) try_prefix(s, box, set, t);
    int32_t lower = s->order[k];
    s->order[k] = s->order[k + 1];
    s->order[k + 1] = lower;
    begin_prefix(s, k + 1, t);
    for (int64_t pair = k > 0 ? k - 1 : 0; pair <= k + 1 && pair + 1 < box->count; pair++)
        s->crossing[pair] =
            crossing_after(s->line + s->order[pair], s->line + s->order[pair + 1], t);
}

/* The position of the smallest crossing before `end`, -1 if there is none. */
static int64_t first_crossing(const double *crossing, int64_t n, double end)
{
    double least = end;
    for (int64_t k = 0; k < n; k++) least = crossing[k] < least ? crossing[k] : least;
    if (least >= end) return -1;
    int64_t k = 0;
    while (crossing[k] != least) k++;
    return k;
}

/* Try all half-planes of a box crossed by points only; 0 if there are more crossings. */
int walk_leaf(Search *s, const Box *box, const int64_t *sums, int64_t crossings)
{
    double t = box->zone.t[0], end = box->zone.t[1];
    load_lines(s, box);
    if (t == end) {
        try_thresholds(s, box, sums);
        return 1;
    }
    begin_walk(s, box, sums);
    for (int64_t step = 0; step <= crossings; step++) {
        int64_t next = first_crossing(s->crossing, box->count - 1, end);
        if (next < 0) {
            for (int64_t k = 0; k <= box->count; k++) try_prefix(s, box, k, end);
            return 1;
        }
        swap_lines(s, box, next, s->crossing[next]);
    }
    return 0;
}
