/* Choosing where to cut a box, by the lines of a few of its points.
 *
 * A zone is halved across t if lines drift apart in it by more than its height, and else cut along the
 * middle of them. Of scores over many decades most lines are steep in a zone or flat, by orders of
 * magnitude: neither the middle of the zone nor its height say anything about them, and such cuts leave
 * nearly all of them in both parts.
 *
 * Where a cut did so, more lines are drawn for the next ones, and a cut is the better the fewer of them
 * it leaves in either part. Candidates are positions t in the middle of where a line is in the zone, and
 * chords along a line that stays in it: they follow the scales on which lines meet, whatever these
 * are. If none of them parts lines either, the zone is cut across t where most lines pass through it,
 * or where they meet.
 *
 * What is lost in a cut does not hang on where it is: zones overlap by what rounding may put their edges
 * off, and lines that may cross do (see split.c, sides.c). But where many lines meet in a point, up to
 * rounding, they cross all zones that end there: a line counts as parted from an edge or a chord only
 * if rounding cannot undo it. Of whole points lines within rounding of an edge are outside, which takes
 * edges that do not hang on where lines meet (see sides.c); all their zones are cut in the first way, and
 * so are those of searches in which it matters which of lines that meet comes first.
 */
#include "survey.h"

#include <float.h>
#include <math.h>

#include "vectors.h"

#define SURVEYED 9   /* items looked at where no candidates are tried */
#define DRIFT 3.0    /* heights of a zone that slopes carry lines apart before it is halved across t */
#define DRAWN 32     /* lines drawn to try candidates, */
#define DRAWN_FEW 16 /* and where fewer items cross than this: */
#define MANY_ITEMS 128
#define LOOKED_AT 96 /* items whose masses are looked at for that */
#define LANES 8      /* lines are filled up to a multiple of this */
#define REMAINS 0.05 /* a part that seems empty still costs that much of the whole */
#define POOR 1.15    /* cuts that cost more hardly part any line */
#define PASSES 0.5   /* part of the width in which a line is if it only passes through */
#define BESIDE 0.031415926
#define DOUBT (4 * DBL_EPSILON) /* relative distance at which rounding may move a line to the other side */

/* Lines by their values at both ends, and how far they may be off; as parts of the width, where they
 * are in the zone. */
typedef struct {
    int count;
    double v[2][DRAWN], doubt[2][DRAWN], enter[DRAWN], leave[DRAWN];
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

ALWAYS_INLINE double larger(double a, double b) { return a > b ? a : b; }
ALWAYS_INLINE double smaller(double a, double b) { return a < b ? a : b; }
ALWAYS_INLINE double between(double v, double low, double high) { return larger(smaller(v, high), low); }

static inline int parts_zone(const Zone *zone, const double *chord)
{
    return (zone->low[0] < chord[0] || zone->low[1] < chord[1]) &&
           (chord[0] < zone->high[0] || chord[1] < zone->high[1]);
}

static void sort_few(double *a, int n)
{
    for (int i = 1; i < n; i++) {
        double moving = a[i];
        int j = i;
        for (; j > 0 && a[j - 1] > moving; j--) a[j] = a[j - 1];
        a[j] = moving;
    }
}

/* How far the next of a few values that differs is from the one in their middle, towards the
 * middle between the edges, or how far the edge there. */
static double beside_middle(const double *at, int n, double low, double high)
{
    int k = n / 2, up = at[k] < low + (high - low) / 2;
    double c = at[k];
    while (k >= 0 && k < n && at[k] == c) k += up ? 1 : -1;
    double next = k >= 0 && k < n ? at[k] : up ? high : low;
    return between(next, low, high) - between(c, low, high);
}

/* See whether slopes carry items apart by more than the height of the zone, or most of them run from
 * one of its edges to the other: then chords would not part them. */
static Survey survey_middle(const Search *s, const Box *box)
{
    const Zone *zone = &box->zone;
    const Chart *chart = &s->chart[box->chart];
    double at[2][SURVEYED], slope[2] = {HUGE_VAL, -HUGE_VAL};
    int along = 0;
    Survey survey = {.at = 0.5};
    for (int j = 0; j < SURVEYED; j++) {
        double at_item = (j + 0.5) * (double)box->count / SURVEYED, v[2];
        int64_t k = (int64_t)at_item;
        const double *score = point_within(s->tree, s->popped.item[k], at_item - (double)k);
        double base = chart->fixed * score[chart->still], rate = chart->step * score[chart->moving];
        slope[0] = fmin(slope[0], rate);
        slope[1] = fmax(slope[1], rate);
        for (int end = 0; end < 2; end++) v[end] = base + zone->t[end] * rate;
        if ((v[0] >= zone->high[0] && v[1] <= zone->low[1]) ||
            (v[0] <= zone->low[0] && v[1] >= zone->high[1]))
            continue;
        at[0][along] = v[0];
        at[1][along++] = v[1];
    }
    for (int end = 0; end < 2 && along; end++) {
        const double low = zone->low[end], high = zone->high[end];
        sort_few(at[end], along);
        survey.chord[end] = between(at[end][along / 2], low, high);
        survey.beside[end] = beside_middle(at[end], along, low, high);
    }
    survey.has_chord = along > 0 && parts_zone(zone, survey.chord);
    double height = (zone->high[0] - zone->low[0] + zone->high[1] - zone->low[1]) / 2;
    survey.in_t = 2 * along < SURVEYED ||
                  (slope[1] - slope[0]) * (zone->t[1] - zone->t[0]) > DRIFT * height;
    return survey;
}

static void draw_line(const Search *s, const Box *box, int32_t item, double part, Drawn *drawn)
{
    const Chart *chart = &s->chart[box->chart];
    const double *score = point_within(s->tree, item, part);
    const double base = chart->fixed * score[chart->still], rate = chart->step * score[chart->moving];
    for (int end = 0; end < 2; end++) {
        const double t = box->zone.t[end], drift = t * rate;
        drawn->v[end][drawn->count] = base + drift;
        drawn->doubt[end][drawn->count] =
            DOUBT * (fabs(base) + fabs(drift)) + (t == 0 ? 0 : 2 * s->lost);
    }
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
    const int count = box->count < MANY_ITEMS ? DRAWN_FEW : DRAWN;
    drawn->count = 0;
    if (box->nodes > 0)
        draw_masses(s, box, count, drawn);
    else
        draw_items(s, box, box->count > count ? count : box->count, drawn);
    for (int j = drawn->count; j % LANES; j++) {
        for (int end = 0; end < 2; end++) drawn->v[end][j] = drawn->doubt[end][j] = 0;
        drawn->inside[j] = 0;
    }
}

ALWAYS_INLINE int filled_up(const Drawn *drawn) { return (drawn->count + LANES - 1) / LANES * LANES; }

/* Find where lines are above the floor, and below the ceiling, or may be. */
ALWAYS_INLINE void find_passages_loops(const Zone *zone, Drawn *drawn)
{
    const double low[2] = {zone->low[0], zone->low[1]}, high[2] = {zone->high[0], zone->high[1]};
    for (int k = 0; k < filled_up(drawn); k++) {
        const double left = drawn->v[0][k], right = drawn->v[1][k];
        const double up[2] = {left - low[0] + drawn->doubt[0][k], right - low[1] + drawn->doubt[1][k]};
        const double down[2] = {high[0] - left + drawn->doubt[0][k],
                                high[1] - right + drawn->doubt[1][k]};
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
    uint64_t lower = 0, upper = 0;
    for (int k = 0; k < filled_up(drawn); k++) {
        const double left = drawn->v[0][k] - chord[0], right = drawn->v[1][k] - chord[1];
        const double doubt[2] = {drawn->doubt[0][k], drawn->doubt[1][k]};
        lower += drawn->inside[k] & (uint64_t)((left < doubt[0]) | (right < doubt[1]));
        upper += drawn->inside[k] & (uint64_t)((left > -doubt[0]) | (right > -doubt[1]));
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
static double beside_chord(const Zone *zone, const Drawn *drawn, int end, double chord)
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
    if (n == 0 || time >= PASSES * n) return -1;
    sort_few(at, n);
    return at[n / 2];
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
    sort_few(at, n);
    const double middle = at[n / 2];
    double next = 1;
    for (int k = n - 1; k >= 0 && at[k] > middle; k--) next = at[k];
    return middle + BESIDE * (next - middle);
}

/* The better of both candidates, and the other one. */
static Survey candidates_of(const Zone *zone, const Drawn *drawn, const Candidate *chord,
                            const Candidate *in_t)
{
    Survey survey = {.in_t = in_t->cost < chord->cost, .at = in_t->at};
    survey.has_chord = chord->cost < HUGE_VAL;
    for (int end = 0; end < 2 && survey.has_chord; end++) {
        survey.chord[end] = drawn->v[end][chord->line];
        survey.beside[end] = beside_chord(zone, drawn, end, survey.chord[end]);
    }
    return survey;
}

static Survey survey_lines(const Search *s, const Box *box)
{
    Candidate chord = {.cost = HUGE_VAL}, in_t = {.cost = HUGE_VAL};
    Drawn drawn;
    draw_lines(s, box, &drawn);
    find_passages(&box->zone, &drawn);
    try_candidates(&box->zone, &drawn, &chord, &in_t);
    if (smaller(chord.cost, in_t.cost) <= POOR) return candidates_of(&box->zone, &drawn, &chord, &in_t);
    Survey survey = survey_middle(s, box);
    double at = passages(&drawn);
    if (at < 0) at = meetings(&drawn);
    survey.in_t |= at >= 0;
    if (at >= 0) survey.at = at;
    return survey;
}

Survey survey_items(const Search *s, const Box *box)
{
    const int plain = s->tree->whole || s->beside || box->zone.t[0] == box->zone.t[1];
    return box->idle && !plain ? survey_lines(s, box) : survey_middle(s, box);
}
