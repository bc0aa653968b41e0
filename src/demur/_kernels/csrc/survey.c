/* Choosing where to cut a box, by the lines of a few of its points.
 *
 * Lines that a cut does not part are in both halves, and a cut is the better the fewer of the lines
 * drawn it leaves in either of them. Candidates are positions t in the middle of where a line is in
 * the zone, and chords along a line that stays in it. They follow the scales on which lines meet,
 * whatever these are: of scores over many decades most lines are steep in a zone or flat, by orders
 * of magnitude, and neither the middle of the zone nor its height say anything about them.
 *
 * Where hardly any cut parts the lines drawn, a zone is cut across t if most of them only pass
 * through it, or if they meet inside, and else along the middle of them.
 *
 * Of whole points many lines meet in one point. A chord along a line, or a cut that hangs on where
 * lines are, would pass such points at the distance of a rounding error, where float64 tells sets
 * apart that are none. Their zones are halved across t, or cut along the middle of the lines.
 */
#include "survey.h"

#include <math.h>

#include "vectors.h"

#define DRAWN 32       /* lines that are drawn, */
#define DRAWN_FEW 16   /* but fewer where that would take more time than it saves, */
#define MANY_ITEMS 128
#define DRAWN_SINGLE 9 /* and in a single direction, or among whole points */
#define DRIFT 3.0      /* heights of a zone that slopes carry lines of whole points apart */
#define LOOKED_AT 96   /* items whose masses are looked at for that */
#define LANES 8        /* lines are filled up to a multiple of this */
#define REMAINS 0.05   /* a part that seems empty still costs that much of the whole */
#define POOR 1.15      /* cuts that cost more hardly part any line */
#define BESIDE 0.031415926
#define PASSES 0.5     /* part of the width in which a line is if it only passes through */

/* Lines by their values at both ends; as parts of the width, where they are in the zone. */
typedef struct {
    int count;
    double v[2][DRAWN], enter[DRAWN], leave[DRAWN];
    uint64_t inside[DRAWN]; /* 1, or 0 for those outside and those that fill up */
} Drawn;

_Static_assert(DRAWN % LANES == 0, "there is room to fill up");

/* A cut that was tried. */
typedef struct {
    double cost, at;
    int line;
} Candidate;

/* A point of an item, `part` of the way through its points. Boxes of nodes may be larger than what
 * most of their points need by many decades, so that their middles say little. */
static const double *point_within(const Tree *tree, int32_t item, double part)
{
    if (item < 0) return tree->point + 2 * (int64_t)~item;
    const Node *node = tree->node + item;
    /* While a tree grows, nodes above cells do not know their points. */
    while (tree->soil.rows && node->child > 0) {
        int second = part >= 0.5;
        node = tree->node + node->child + second;
        part = 2 * part - second;
    }
    int64_t k = node->first + (int64_t)(part * (double)(node->end - node->first));
    return node->child == UNGROWN ? tree->soil.scores + 2 * (int64_t)tree->soil.row[k]
                                  : tree->point + 2 * k;
}

static void draw_line(const Search *s, const Box *box, int32_t item, double part, Drawn *drawn)
{
    const Chart *chart = &s->chart[box->chart];
    const double *score = point_within(s->tree, item, part);
    for (int end = 0; end < 2; end++)
        drawn->v[end][drawn->count] = chart->fixed * score[chart->still] +
                                      box->zone.t[end] * (chart->step * score[chart->moving]);
    drawn->inside[drawn->count++] = 1;
}

/* Draw one item as often as any other. */
static void draw_items(const Search *s, const Box *box, int count, Drawn *drawn)
{
    for (int j = 0; j < count; j++) {
        double at = (j + 0.5) * (double)box->count / count;
        int64_t k = (int64_t)at;
        draw_line(s, box, s->popped.item[k], at - (double)k, drawn);
    }
}

/* Draw items as often as they have ID mass. A node may have as much as all points together. */
static void draw_masses(const Search *s, const Box *box, int count, Drawn *drawn)
{
    const Tree *tree = s->tree;
    const int looked_at = box->count < LOOKED_AT ? box->count : LOOKED_AT;
    int32_t item[LOOKED_AT];
    double mass[LOOKED_AT], all = 0, before = 0;
    const double stride = (double)box->count / looked_at;
    for (int i = 0; i < looked_at; i++) {
        item[i] = s->popped.item[(int64_t)(i * stride)];
        const int64_t *row = item[i] < 0 ? tree->mass + (int64_t)~item[i] * tree->width
                                         : tree->sums + (int64_t)item[i] * tree->width;
        all += mass[i] = (double)row[ID];
    }
    if (all == 0) {
        draw_items(s, box, count, drawn);
        return;
    }
    for (int i = 0; i < looked_at; before += mass[i++]) {
        double at = (drawn->count + 0.5) * all / count;
        for (; drawn->count < count && at < before + mass[i]; at = (drawn->count + 0.5) * all / count) {
            double part = (at - before) / mass[i];
            draw_line(s, box, item[i], part < 1 ? part : 0, drawn);
        }
    }
}

static void draw_lines(const Search *s, const Box *box, Drawn *drawn)
{
    const int few = s->boxes < EASY_BOXES || box->count < MANY_ITEMS, count = few ? DRAWN_FEW : DRAWN;
    drawn->count = 0;
    if (box->nodes > 0)
        draw_masses(s, box, count, drawn);
    else
        draw_items(s, box, box->count > count ? count : box->count, drawn);
    for (int j = drawn->count; j % LANES; j++) {
        for (int end = 0; end < 2; end++) drawn->v[end][j] = 0;
        drawn->inside[j] = 0;
    }
}

ALWAYS_INLINE int filled_up(const Drawn *drawn) { return (drawn->count + LANES - 1) / LANES * LANES; }

ALWAYS_INLINE double larger(double a, double b) { return a > b ? a : b; }
ALWAYS_INLINE double smaller(double a, double b) { return a < b ? a : b; }

/* Find where lines are above the floor, and below the ceiling. */
ALWAYS_INLINE void find_passages_loops(const Zone *zone, Drawn *drawn)
{
    const double low[2] = {zone->low[0], zone->low[1]}, high[2] = {zone->high[0], zone->high[1]};
    for (int k = 0; k < filled_up(drawn); k++) {
        const double up[2] = {drawn->v[0][k] - low[0], drawn->v[1][k] - low[1]};
        const double down[2] = {high[0] - drawn->v[0][k], high[1] - drawn->v[1][k]};
        const double floor = up[0] / (up[0] - up[1]), ceiling = down[0] / (down[0] - down[1]);
        const int below = (up[0] <= 0) & (up[1] <= 0), above = (down[0] <= 0) & (down[1] <= 0);
        drawn->enter[k] = larger(up[0] < 0 ? floor : 0, down[0] < 0 ? ceiling : 0);
        drawn->leave[k] = smaller(up[1] < 0 ? floor : 1, down[1] < 0 ? ceiling : 1);
        drawn->inside[k] &= (uint64_t)!(below | above);
    }
}

WITH_WIDEST_VECTORS(static, find_passages, (const Zone *zone, Drawn *drawn), (zone, drawn))

static inline double middle_of_passage(const Drawn *drawn, int k)
{
    return drawn->enter[k] + (drawn->leave[k] - drawn->enter[k]) / 2;
}

/* Lines that are in one part count much less than half of those that are in both. */
ALWAYS_INLINE double cost(uint64_t first, uint64_t second, double all)
{
    const double a = (double)first / all + REMAINS, b = (double)second / all + REMAINS;
    return a * a * a * a + b * b * b * b;
}

/* A line along which a chord would be cut is in both parts. */
ALWAYS_INLINE double cost_of_chord(const Drawn *drawn, int along, double all)
{
    const double chord[2] = {drawn->v[0][along], drawn->v[1][along]};
    uint64_t lower = 1, upper = 1;
    for (int k = 0; k < filled_up(drawn); k++) {
        const double left = drawn->v[0][k], right = drawn->v[1][k];
        lower += drawn->inside[k] & (uint64_t)((left < chord[0]) | (right < chord[1]));
        upper += drawn->inside[k] & (uint64_t)((left > chord[0]) | (right > chord[1]));
    }
    return cost(lower, upper, all);
}

ALWAYS_INLINE double cost_in_t(const Drawn *drawn, double at, double all)
{
    uint64_t left = 0, right = 0;
    for (int k = 0; k < filled_up(drawn); k++) {
        left += drawn->inside[k] & (uint64_t)(drawn->enter[k] < at);
        right += drawn->inside[k] & (uint64_t)(drawn->leave[k] > at);
    }
    return cost(left, right, all);
}

static inline int parts_zone(const Zone *zone, const double *chord)
{
    return (zone->low[0] < chord[0] || zone->low[1] < chord[1]) &&
           (chord[0] < zone->high[0] || chord[1] < zone->high[1]);
}

/* Whether a line is in the zone from end to end, so that a chord can follow it. */
ALWAYS_INLINE int stays(const Zone *zone, const Drawn *drawn, int k)
{
    const double v[2] = {drawn->v[0][k], drawn->v[1][k]};
    for (int end = 0; end < 2; end++)
        if (v[end] < zone->low[end] || v[end] > zone->high[end]) return 0;
    return parts_zone(zone, v);
}

ALWAYS_INLINE void try_candidates_loops(const Zone *zone, const Drawn *drawn, Candidate *chord,
                                        Candidate *in_t)
{
    double all = 0;
    for (int k = 0; k < drawn->count; k++) all += (double)drawn->inside[k];
    if (all == 0) return;
    *in_t = (Candidate){cost_in_t(drawn, 0.5, all), 0.5, 0};
    for (int k = 0; k < drawn->count; k++) {
        if (!drawn->inside[k]) continue;
        const double at = drawn->enter[k] + (drawn->leave[k] - drawn->enter[k]) / 2;
        double price = stays(zone, drawn, k) ? cost_of_chord(drawn, k, all) : HUGE_VAL;
        if (price < chord->cost) *chord = (Candidate){price, 0, k};
        price = at > 0 && at < 1 ? cost_in_t(drawn, at, all) : HUGE_VAL;
        if (price < in_t->cost) *in_t = (Candidate){price, at, 0};
    }
}

WITH_WIDEST_VECTORS(static, try_candidates,
                    (const Zone *zone, const Drawn *drawn, Candidate *chord, Candidate *in_t),
                    (zone, drawn, chord, in_t))

/* How far the next value that differs is from the chord at an end, towards the middle, or how far
 * the edge there. */
static double distance_beside(const Zone *zone, const Drawn *drawn, int end, double chord)
{
    const double low = zone->low[end], high = zone->high[end];
    const int up = chord < low + (high - low) / 2;
    const double *v = drawn->v[end];
    double above = high, below = low;
    for (int k = 0; k < drawn->count; k++) {
        above = smaller(above, v[k] > chord ? v[k] : high);
        below = larger(below, v[k] < chord ? v[k] : low);
    }
    return (up ? above : below) - chord;
}

static double median(double *a, int n)
{
    for (int i = 1; i < n; i++) {
        double moving = a[i];
        int j = i;
        for (; j > 0 && a[j - 1] > moving; j--) a[j] = a[j - 1];
        a[j] = moving;
    }
    return a[n / 2];
}

/* Put a chord along the middle of the lines that do not run from one edge to the other. Returns
 * how many these are. */
static int middle_chord(const Zone *zone, const Drawn *drawn, double *chord)
{
    double at[2][DRAWN];
    int along = 0;
    for (int k = 0; k < drawn->count; k++) {
        const double left = drawn->v[0][k], right = drawn->v[1][k];
        if ((left >= zone->high[0] && right <= zone->low[1]) ||
            (left <= zone->low[0] && right >= zone->high[1]))
            continue;
        at[0][along] = left;
        at[1][along++] = right;
    }
    for (int end = 0; end < 2 && along; end++)
        chord[end] = larger(smaller(median(at[end], along), zone->high[end]), zone->low[end]);
    return along;
}

static int has_middle_chord(const Zone *zone, const Drawn *drawn, double *chord)
{
    return middle_chord(zone, drawn, chord) > 0 && parts_zone(zone, chord);
}

/* Where lines only pass through the zone, the middle of their passages; -1 where most stay. */
static double passages(const Drawn *drawn)
{
    double at[DRAWN], time = 0;
    int n = 0;
    for (int k = 0; k < drawn->count; k++) {
        if (!drawn->inside[k]) continue;
        time += drawn->leave[k] - drawn->enter[k];
        at[n++] = middle_of_passage(drawn, k);
    }
    return n && time < PASSES * n ? median(at, n) : -1;
}

/* The middle of where pairs of lines meet in the zone, and a little beside it, lest a zone end where
 * lines do meet; -1 if none do. */
static double meetings(const Drawn *drawn)
{
    double at[DRAWN];
    int n = 0;
    for (int k = 0; k < drawn->count; k++) {
        const int other = (k + drawn->count / 2) % drawn->count;
        const double left = drawn->v[0][k] - drawn->v[0][other];
        const double right = drawn->v[1][k] - drawn->v[1][other], t = left / (left - right);
        if (!(drawn->inside[k] & drawn->inside[other])) continue;
        if (t > larger(drawn->enter[k], drawn->enter[other]) &&
            t < smaller(drawn->leave[k], drawn->leave[other]))
            at[n++] = t;
    }
    if (n == 0) return -1;
    const double middle = median(at, n);
    double next = 1;
    for (int k = n - 1; k >= 0 && at[k] > middle; k--) next = at[k];
    return middle + BESIDE * (next - middle);
}

static void cut_without_candidates(const Zone *zone, const Drawn *drawn, Survey *survey)
{
    double at = passages(drawn);
    survey->has_chord = has_middle_chord(zone, drawn, survey->chord);
    if (at < 0) at = meetings(drawn);
    survey->in_t = at >= 0;
    if (at >= 0) survey->at = at;
}

/* Of a single direction both ends are one. */
static Survey survey_direction(const Search *s, const Box *box)
{
    const Zone *zone = &box->zone;
    Survey survey = {.at = 0.5};
    Drawn drawn = {.count = 0};
    draw_items(s, box, DRAWN_SINGLE, &drawn);
    double middle = median(drawn.v[0], drawn.count);
    middle = larger(smaller(middle, zone->high[0]), zone->low[0]);
    survey.has_chord = zone->low[0] < middle && middle < zone->high[0];
    survey.chord[0] = survey.chord[1] = middle;
    survey.beside[0] = survey.beside[1] = distance_beside(zone, &drawn, 0, middle);
    return survey;
}

static Survey survey_whole(const Search *s, const Box *box)
{
    const Zone *zone = &box->zone;
    Survey survey = {.at = 0.5};
    Drawn drawn = {.count = 0};
    double least = HUGE_VAL, most = -HUGE_VAL;
    draw_items(s, box, DRAWN_SINGLE, &drawn);
    for (int k = 0; k < drawn.count; k++) {
        const double drift = drawn.v[1][k] - drawn.v[0][k];
        least = smaller(least, drift);
        most = larger(most, drift);
    }
    const double heights = zone->high[0] - zone->low[0] + zone->high[1] - zone->low[1];
    const int along = middle_chord(zone, &drawn, survey.chord);
    survey.has_chord = along > 0 && parts_zone(zone, survey.chord);
    survey.in_t = 2 * along < drawn.count || 2 * (most - least) > DRIFT * heights;
    for (int end = 0; end < 2 && survey.has_chord; end++)
        survey.beside[end] = distance_beside(zone, &drawn, end, survey.chord[end]);
    return survey;
}

Survey survey_items(const Search *s, const Box *box)
{
    const Zone *zone = &box->zone;
    Survey survey = {.at = 0.5};
    Candidate chord = {.cost = HUGE_VAL}, in_t = {.cost = HUGE_VAL};
    Drawn drawn;
    if (zone->t[0] == zone->t[1]) return survey_direction(s, box);
    if (s->tree->whole) return survey_whole(s, box);
    draw_lines(s, box, &drawn);
    find_passages(zone, &drawn);
    try_candidates(zone, &drawn, &chord, &in_t);
    if (smaller(chord.cost, in_t.cost) > POOR) {
        cut_without_candidates(zone, &drawn, &survey);
    } else {
        survey.in_t = in_t.cost < chord.cost;
        survey.at = in_t.at;
        survey.has_chord = chord.cost < HUGE_VAL;
        for (int end = 0; end < 2; end++) survey.chord[end] = drawn.v[end][chord.line];
    }
    for (int end = 0; end < 2 && survey.has_chord && !survey.in_t; end++)
        survey.beside[end] = distance_beside(zone, &drawn, end, survey.chord[end]);
    return survey;
}
