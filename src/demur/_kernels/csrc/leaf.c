/* Settling a box that only few points cross.
 *
 * Sorted by value at t, the lines that cross a box have as many prefixes as accepted sets at t.
 * Sweeping t, two neighbours change places wherever they cross, which changes one prefix and
 * the line at the rim of the two next to it. So every cell of the box is seen while its set and
 * its rim last; those worth having are given a place (t, v) in the box, and counted there.
 *
 * Crossings are found from differences of coordinates, good to a few units in the last place:
 * lines that meet in one point change places at one t, up to that. Where points are whole numbers
 * nothing else is so close. Elsewhere a leaf in which lines come that close to each other, or in
 * which a set worth having finds no place, is *doubtful*: it is put aside, to be looked at in
 * exact arithmetic (see exact.py).
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"

#define PAIRS 16 /* pairs of lines looked at to see whether any cross */
#define SAME (4 * DBL_EPSILON)
#define MOST_OF_A_FAN 1024
#define BESIDE 1e-9 /* relative distance that counts as none for where lines meet */
#define CLOSE (16 * DBL_EPSILON) /* what is farther apart is in the order it seems to be */

static inline double line_at(const Line *line, double t) { return line->x + t * line->y; }

static inline double size_at(const Line *line, double t) { return fabs(line->x) + t * fabs(line->y); }

/* Whether line a lies below line b just after t. */
static inline int goes_before(const Line *a, const Line *b, double t)
{
    double dx = a->x - b->x, dy = a->y - b->y, d = dx + t * dy;
    double doubt = SAME * (fabs(dx) + t * fabs(dy));
    if (fabs(d) > doubt) return d < 0;
    return dy < 0;
}

/* Whether lines meet so close to t that float64 may have it on the wrong side. */
static int meet_about(const Line *a, const Line *b, double t)
{
    double dx = a->x - b->x, dy = a->y - b->y;
    return fabs(dx + t * dy) <= CLOSE * (fabs(dx) + t * fabs(dy)) + LOST;
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

/* The value of one of the corners of a box. */
static inline double corner_at(const Tree *tree, const Chart *chart, const int *corner,
                               const double *box)
{
    return chart->fixed * score_of(tree, box[corner[0]], 0) +
           chart->step * score_of(tree, box[corner[1]], 1);
}

void count_half_plane(const Tree *tree, const double *weight, double v, int64_t *row)
{
    Chart chart = single_direction(weight);
    int32_t pending[LEVELS], node;
    int waiting = 0;
    memset(row, 0, (size_t)tree->width * sizeof *row);
    if (tree->points == 0) return;
    pending[waiting++] = 0;
    while (waiting) {
        node = pending[--waiting];
        const double *box = tree->box + 4 * (int64_t)node;
        /* Rounding is monotone: corners bound the computed values of all points inside. */
        if (corner_at(tree, &chart, chart.low, box) > v) continue;
        if (corner_at(tree, &chart, chart.high, box) <= v) {
            add_row(row, tree->sums + (int64_t)node * tree->width, tree->width);
            continue;
        }
        const Node *here = opened(tree, node);
        if (here->child) {
            pending[waiting++] = here->child;
            pending[waiting++] = here->child + 1;
        } else {
            for (int64_t i = here->first; i < here->end; i++)
                if (weight[0] * score_of(tree, tree->point[2 * i], 0) +
                        weight[1] * score_of(tree, tree->point[2 * i + 1], 1) <= v)
                    add_row(row, tree->mass + i * tree->width, tree->width);
        }
    }
}

/* Between what values the scores in a box have in a direction, with all their rounding errors. */
typedef struct {
    double low, high;
} Reach;

/* The size of the largest value in a box, at most. */
static double size_of(const Tree *tree, const double *weight, const double *box)
{
    double size = 0;
    for (int c = 0; c < 2; c++)
        size += fmax(fabs(weight[c] * score_of(tree, box[c], c)),
                     fabs(weight[c] * score_of(tree, box[c + 2], c)));
    return size;
}

static Reach reach_of(const Tree *tree, const double *weight, const double *box)
{
    const double size = size_of(tree, weight, box);
    double low = 0, high = 0;
    for (int c = 0; c < 2; c++) {
        double a = weight[c] * score_of(tree, box[c], c), b = weight[c] * score_of(tree, box[c + 2], c);
        low += fmin(a, b);
        high += fmax(a, b);
    }
    Reach reach = {low - CLOSE * size - DBL_MIN, high + CLOSE * size + DBL_MIN};
    return reach;
}

double largest_error(const Tree *tree, const double *weight)
{
    return 2 * (CLOSE * size_of(tree, weight, tree->box) + DBL_MIN);
}

int comes_close(const Tree *tree, const double *weight, double v, const double *point)
{
    const double box[4] = {point[0], point[1], point[0], point[1]};
    const Reach reach = reach_of(tree, weight, box);
    return reach.low <= v && reach.high >= v;
}

int is_certain(const Tree *tree, const double *weight, double v)
{
    const Chart chart = single_direction(weight);
    /* Most boxes are plainly farther away. */
    const double most = largest_error(tree, weight);
    int32_t pending[LEVELS];
    int waiting = 0;
    pending[waiting++] = 0;
    while (waiting) {
        const int32_t node = pending[--waiting];
        const double *box = tree->box + 4 * (int64_t)node;
        if (corner_at(tree, &chart, chart.low, box) - most > v) continue;
        if (corner_at(tree, &chart, chart.high, box) + most < v) continue;
        if (tree->sums[(int64_t)node * tree->width + MARK] == 0) continue;
        Reach reach = reach_of(tree, weight, box);
        if (reach.low > v || reach.high < v) continue;
        const Node *here = opened(tree, node);
        if (here->child) {
            pending[waiting++] = here->child;
            pending[waiting++] = here->child + 1;
            continue;
        }
        for (int64_t i = here->first; i < here->end; i++) {
            const double *p = tree->point + 2 * i, box[4] = {p[0], p[1], p[0], p[1]};
            if (fabs(corner_at(tree, &chart, chart.low, box) - v) > most) continue;
            if (tree->mass[i * tree->width + MARK] && comes_close(tree, weight, v, p)) return 0;
        }
    }
    return 1;
}

/* The part of a*b that rounding loses; fma rounds once. */
static double lost_product(double a, double b, double product) { return fma(a, b, -product); }

/* Add a*b to a sum held in two floats. */
static void add_exactly(double *sum, double *rest, double a, double b)
{
    double product = a * b, total = *sum + product, part = total - *sum;
    *rest += (*sum - (total - part)) + (product - part) + lost_product(a, b, product);
    *sum = total;
}

/* Weights of the scores and the threshold of the half-plane at (t, v), the larger weight 1. */
static void weigh_scores(const Tree *tree, const Chart *chart, double t, double *weight, double *v)
{
    double point[2], rest = 0;
    point[chart->still] = chart->fixed;
    point[chart->moving] = chart->step * t;
    for (int c = 0; c < 2; c++) {
        weight[c] = point[c];
        if (!tree->framed) continue;
        weight[c] *= tree->divisor[c];
        add_exactly(v, &rest, point[c], tree->shift[c]);
    }
    double largest = fmax(fabs(weight[0]), fabs(weight[1]));
    weight[0] /= largest;
    weight[1] /= largest;
    *v = (*v + rest) / largest;
}

/* The value of the score behind a line. */
static double score_at(const Tree *tree, const Chart *chart, const Line *line, const double *weight)
{
    double point[2];
    point[chart->still] = line->x / chart->fixed;
    point[chart->moving] = line->y / chart->step;
    return weight[0] * score_of(tree, point[0], 0) + weight[1] * score_of(tree, point[1], 1);
}

/* Take the half-plane at (t, v), between two lines if they are known, if float64 accepts exactly
 * the masses expected. */
static int take_verified(Search *s, const Chart *chart, double t, double v, const int64_t *sums,
                         const Line *below, const Line *above)
{
    double weight[2];
    weigh_scores(s->tree, chart, t, weight, &v);
    if (s->tree->framed && below && above) {
        double last = score_at(s->tree, chart, below, weight);
        double next = score_at(s->tree, chart, above, weight), middle = last + (next - last) / 2;
        v = last <= middle && middle < next ? middle : last;
    }
    count_half_plane(s->tree, weight, v, s->counted);
    if (memcmp(s->counted, sums, (size_t)s->tree->width * sizeof *sums) != 0) return 0;
    if (s->certain && !is_certain(s->tree, weight, v)) return 0;
    s->take(s, sums, weight, v);
    return 1;
}

void take_half_plane(Search *s, const Chart *chart, double t, double v, const int64_t *sums)
{
    double weight[2];
    if (s->wary) {
        take_verified(s, chart, t, v, sums, NULL, NULL);
        return;
    }
    weigh_scores(s->tree, chart, t, weight, &v);
    s->take(s, sums, weight, v);
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

/* Cut off where a line is not above (below) an edge; 0 if nothing is left. */
static int keep_beside(Search *s, const Edge *edge, const Line *line, int line_above, double *t)
{
    double sign = line_above ? 1 : -1, at[2], doubt = LOST;
    for (int end = 0; end < 2; end++) {
        double v = edge_at(edge, t[end]);
        at[end] = sign * (line_at(line, t[end]) - v);
        doubt = fmax(doubt, CLOSE * (fabs(v) + size_at(line, t[end])));
    }
    if (keep_positive(t, at[0], at[1])) return 1;
    if (!s->tree->whole && fmax(at[0], at[1]) > -doubt) s->doubtful = 1;
    return 0;
}

/* Find a place in the zone, for t in (from, to), between the lines `below` and `above`, and take
 * the half-plane there. Returns whether one was taken; where float64 has none the leaf is
 * doubtful. */
static int place(Search *s, const Box *box, const int64_t *sums, const Line *below,
                 const Line *above, double from, double to)
{
    /* One score alone may do where the other has an offset that swallows it. */
    static const double share[] = {0.5, 0.25, 0.75, 0};
    const Zone *z = &box->zone;
    double t[2] = {from, to};
    int tried = 0;
    if (above && !keep_beside(s, &z->floor, above, 1, t)) return 0;
    if (below && !keep_beside(s, &z->ceiling, below, 0, t)) return 0;
    /* Where the line above leaves the zone, others may come before it. */
    if (s->beside && !keep_beside(s, &z->ceiling, above, 0, t)) return 0;
    for (int k = 0; k < (t[0] == 0 ? 4 : 3); k++) {
        double at = t[0] + share[k] * (t[1] - t[0]);
        double low = edge_at(&z->floor, at), high = edge_at(&z->ceiling, at);
        const Line *last = below && line_at(below, at) >= low ? below : NULL;
        const Line *next = above && line_at(above, at) <= high ? above : NULL;
        if (last) low = line_at(last, at);
        if (next) high = line_at(next, at);
        double v = low + (high - low) / 2;
        if (!(low <= v && v < high)) continue;
        tried = 1;
        if (take_verified(s, &s->chart[box->chart], at, v, sums, last, next)) return 1;
    }
    s->doubtful |= tried || !s->tree->whole;
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

/* Returns whether some are below the smallest floats that have all their digits. */
static int load_lines(Search *s, const Box *box)
{
    const Chart *chart = &s->chart[box->chart];
    int lost = 0;
    for (int64_t k = 0; k < box->count; k++) {
        s->line[k] = line_of(s, box, k);
        s->order[k] = (int32_t)k;
        const double moves = s->tree->point[2 * (int64_t)~s->popped.item[k] + chart->moving];
        lost |= (fabs(s->line[k].y) < DBL_MIN) & (moves != 0);
    }
    return lost && s->lost > 0 && fabs(chart->step) < 1;
}

/* The mass in column ID of all points with the value of the k-th. */
static int64_t mass_at(const Search *s, const Box *box, int64_t k)
{
    int64_t mass = 0;
    for (int64_t j = k; j < box->count && s->keyed[j].key == s->keyed[k].key; j++)
        mass += s->line[s->keyed[j].item].mass[ID];
    return mass;
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
        if (s->beside) s->rim = mass_at(s, box, k);
        if (next > last && (!s->beside || s->rim) && s->wanted(s, row)) {
            double v = last + (next - last) / 2;
            v = v < next ? v : last;
            /* What is computed here is about points, and has to hold for the scores. */
            if (s->tree->framed)
                take_verified(s, chart, 1, v, row, NULL, NULL);
            else if (!s->certain || is_certain(s->tree, weight, v))
                s->take(s, row, weight, v);
        }
        if (k == box->count) return;
        for (last = next; k < box->count && s->keyed[k].key == last; k++)
            add_row(row, s->line[s->keyed[k].item].mass, s->tree->width);
    }
}

/* Whether lines of whole points have the same value at t. */
static int meet(const Line *a, const Line *b, double t)
{
    double dx = a->x - b->x, dy = a->y - b->y;
    return fabs(dx + t * dy) <= SAME * (fabs(dx) + t * fabs(dy));
}

/* See to the set below the lines from position k to before `end`, which meet at t. It ends below
 * all of them at once; beside t, others of them may come before those that count. */
static void try_meeting(Search *s, const Box *box, int64_t k, int64_t end, double t)
{
    const Line *below = k > 0 ? s->line + s->order[k - 1] : NULL, *above = s->line + s->order[k];
    const int64_t *row = s->prefix + k * s->tree->width;
    double low = edge_at(&box->zone.floor, t), high = line_at(above, t);
    s->rim = 0;
    for (int64_t j = k; j < end; j++) s->rim += s->line[s->order[j]].mass[ID];
    /* Outside the zone other lines may come before them. */
    if (!s->rim || high > edge_at(&box->zone.ceiling, t) || !s->wanted(s, row)) return;
    if (below && line_at(below, t) < low) below = NULL;
    if (below) low = line_at(below, t);
    double v = low + (high - low) / 2;
    if (low <= v && v < high) take_verified(s, &s->chart[box->chart], t, v, row, below, above);
}

/* See to all lines that meet at t. */
static void try_meetings(Search *s, const Box *box, double t)
{
    if (!s->beside || !s->tree->whole) return;
    for (int64_t k = 0, end; k < box->count; k = end) {
        end = k + 1;
        while (end < box->count && meet(s->line + s->order[end - 1], s->line + s->order[end], t)) end++;
        if (end - k > 1) try_meeting(s, box, k, end, t);
    }
}

/* See to the set of the k lowest lines, whose rim has not changed since s->since[k]. */
static void try_prefix(Search *s, const Box *box, int64_t k, double t)
{
    const Line *below = k > 0 ? s->line + s->order[k - 1] : NULL;
    const Line *above = k < box->count ? s->line + s->order[k] : NULL;
    const int64_t *row = s->prefix + k * s->tree->width;
    if (s->beside) {
        /* What the set is good for changes with the line above. */
        s->rim = above ? above->mass[ID] : 0;
        s->settled[k] = !s->rim;
    }
    /* What was wanted may have been beaten before it found a place. */
    if (!s->settled[k] && !s->wanted(s, row)) s->settled[k] = 1;
    if (!s->settled[k] && t - s->since[k] > SAME * t)
        s->settled[k] = (char)place(s, box, row, below, above, s->since[k], t);
    else if (!s->settled[k] && !s->tree->whole && t > box->zone.t[0])
        s->doubtful = 1;
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

/* See whether a cell may be too narrow to be seen at an end of the box, t. There are three lines then
 * that meet about there, next to each other or with others of the kind between; where only two meet,
 * all their cells go on into this box or the one beside it. */
static void look_about(Search *s, const Box *box, double t)
{
    if (s->tree->whole || t == 0) return;
    for (int64_t k = 0; k + 2 < box->count && !s->doubtful; k++) {
        const Line *a = s->line + s->order[k], *b = s->line + s->order[k + 1];
        const Line *c = s->line + s->order[k + 2];
        s->doubtful = meet_about(a, c, t) || (meet_about(a, b, t) && meet_about(b, c, t));
    }
}

static void begin_walk(Search *s, const Box *box, const int64_t *sums, double t)
{
    sort_lines(s->line, t, s->order, s->spare, box->count);
    memcpy(s->prefix, sums, (size_t)s->tree->width * sizeof *sums);
    s->settled[0] = 0;
    s->since[0] = t;
    for (int64_t k = 1; k <= box->count; k++) begin_prefix(s, k, t);
    for (int64_t k = 0; k + 1 < box->count; k++)
        s->crossing[k] = crossing_after(s->line + s->order[k], s->line + s->order[k + 1], t);
    look_about(s, box, t);
}

/* Let the lines at positions k and k + 1 change places at t. */
static void swap_lines(Search *s, const Box *box, int64_t k, double t)
{
    for (int64_t set = k; set <= k + 2; set++) try_prefix(s, box, set, t);
    try_meetings(s, box, t);
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

/* Whether no lines meet inside the box, or at the end to which its cells may be followed. */
int is_fan(Search *s, const Box *box)
{
    double first = box->zone.t[0] * (1 - BESIDE), last = box->zone.t[1] * (1 + BESIDE);
    int to_the_left = s->chart[box->chart].still == 0;
    if ((to_the_left && box->zone.t[0] == 0) || box->count > MOST_OF_A_FAN) return 0;
    if (load_lines(s, box)) return 0;
    for (int64_t i = 0; i < box->count; i++) {
        for (int64_t j = 0; j < i; j++) {
            double dx = s->line[j].x - s->line[i].x, dy = s->line[i].y - s->line[j].y;
            double t = dx / dy;
            /* Lines of equal scores meet at t = 0, which is no place inside. */
            if (dx != 0 && dy != 0 && t >= first && t <= last) return 0;
        }
    }
    return 1;
}

/* Try all half-planes of a box crossed by points only; 0 if there are more crossings. */
int walk_leaf(Search *s, const Box *box, const int64_t *sums, int64_t crossings)
{
    double t = box->zone.t[0], end = box->zone.t[1];
    s->doubtful |= load_lines(s, box);
    if (t == end) {
        try_thresholds(s, box, sums);
        return 1;
    }
    begin_walk(s, box, sums, t);
    try_meetings(s, box, t);
    for (int64_t step = 0; step <= crossings; step++) {
        int64_t next = first_crossing(s->crossing, box->count - 1, end);
        if (next < 0) {
            for (int64_t k = 0; k <= box->count; k++) try_prefix(s, box, k, end);
            try_meetings(s, box, end);
            look_about(s, box, end);
            return 1;
        }
        t = s->crossing[next];
        /* Neighbours that change places at about the same t may do so in another order, whatever
         * else changes places in between. Below the smallest floats all of them do. */
        if (!s->tree->whole && (t < DBL_MIN || t - s->since[next + 1] <= CLOSE * t)) s->doubtful = 1;
        swap_lines(s, box, next, t);
    }
    return 0;
}

void try_vertex(Search *s, const Box *box, const int64_t *sums)
{
    load_lines(s, box);
    for (int64_t k = 1; k < box->count; k++) {
        double t = (s->line[k].x - s->line[0].x) / (s->line[0].y - s->line[k].y);
        if (!(t >= box->zone.t[0] && t <= box->zone.t[1])) continue;
        begin_walk(s, box, sums, t);
        try_meetings(s, box, t);
        return;
    }
}
