/* Cutting a box in two, across t or by a chord along the lines that cross it. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sift.h"
#include "survey.h"

#define OPEN_EXTENT 0.7 /* nodes larger than this part of the height of a zone are opened, */
#define OPEN_COUNT 16   /* and all nodes where no more items than this cross it */

#define LOWEST 64       /* units in the last place that zones are high, unless points are whole */

static void orient(Chart *chart)
{
    chart->low[0] = chart->still + (chart->fixed < 0 ? 2 : 0);
    chart->low[1] = chart->moving + (chart->step < 0 ? 2 : 0);
    chart->high[0] = chart->still + (chart->fixed < 0 ? 0 : 2);
    chart->high[1] = chart->moving + (chart->step < 0 ? 0 : 2);
}

Chart single_direction(const double *weight)
{
    Chart chart = {weight[0], weight[1], 0, 1, {0, 0}, {0, 0}};
    orient(&chart);
    return chart;
}

Chart octant(const Tree *tree, int quarter, int half)
{
    double sign[2] = {quarter == 0 || quarter == 3 ? 1 : -1, quarter <= 1 ? 1 : -1};
    Chart chart = {sign[half], 0, half, 1 - half, {0, 0}, {0, 0}};
    chart.step = ldexp(sign[1 - half], half == 0 ? tree->tilt : -tree->tilt);
    orient(&chart);
    return chart;
}

void direction_at(const Tree *tree, int quarter, double angle, double *weight)
{
    Chart chart = octant(tree, quarter, 0);
    weight[0] = chart.fixed * cos(angle);
    weight[1] = chart.step * sin(angle);
    double largest = fmax(fabs(weight[0]), fabs(weight[1]));
    weight[0] /= largest;
    weight[1] /= largest;
}

static double corner(const Chart *chart, const double *box, const int *at, double t)
{
    return chart->fixed * box[at[0]] + chart->step * t * box[at[1]];
}

void root_zone(const Search *s, const Chart *chart, const double *t, Zone *zone)
{
    const double *box = s->tree->box;
    for (int end = 0; end < 2; end++) {
        zone->t[end] = t[end];
        zone->low[end] = corner(chart, box, chart->low, t[end]);
        zone->high[end] = corner(chart, box, chart->high, t[end]);
        double room = (zone->high[end] - zone->low[end]) / 64 +
                      (fabs(zone->high[end]) + fabs(zone->low[end])) * 1e-9 + DBL_MIN;
        zone->floor.t[end] = zone->ceiling.t[end] = t[end];
        zone->floor.v[end] = zone->low[end] -= room;
        zone->ceiling.v[end] = zone->high[end] += room;
    }
}

static void centre(const Tree *tree, int32_t item, double *score)
{
    const double *point = tree->point + 2 * (int64_t)~item, *box = tree->box + 4 * (int64_t)item;
    for (int c = 0; c < 2; c++)
        score[c] = item < 0 ? point[c] : box[c] + (box[c + 2] - box[c]) / 2;
}

/* The least t from which on weights have all their digits, if these matter. */
static double least_position(const Search *s, const Chart *chart)
{
    return s->lost > 0 ? DBL_MIN / fmin(1, fabs(chart->step)) : 0;
}

/* Whether the zone is nowhere higher than the rounding errors of the values in it. Where zones are
 * made larger by these (see error_on), cutting lower ones again and again makes none smaller; they are
 * given up early if somebody will look at them exactly. */
int too_low(const Search *s, const Box *box)
{
    const Chart *chart = &s->chart[box->chart];
    const double least = (s->tree->whole || !s->keep_doubts ? 4 : LOWEST) * DBL_EPSILON;
    const double lost = LOWEST * s->lost;
    if (s->lost > 0 && box->zone.t[1] <= least_position(s, chart)) return 1;
    for (int64_t k = 0; k < box->count; k++) {
        double score[2];
        centre(s->tree, s->popped.item[k], score);
        for (int end = 0; end < 2; end++) {
            double size = fabs(chart->fixed * score[chart->still]) +
                          fabs(chart->step * box->zone.t[end] * score[chart->moving]);
            if (box->zone.high[end] - box->zone.low[end] > least * size + lost) return 0;
        }
    }
    return 1;
}

/* Put a chord through the zone, halfway between its edges if the survey has none. */
static int choose_chord(const Zone *zone, const Survey *survey, double *chord)
{
    int proper = 1;
    memcpy(chord, survey->chord, sizeof survey->chord);
    for (int end = 0; end < 2 && !survey->has_chord; end++) {
        chord[end] = zone->low[end] + (zone->high[end] - zone->low[end]) / 2;
        proper &= zone->low[end] < chord[end] && chord[end] < zone->high[end];
    }
    return proper;
}

/* By how much the value on an edge at t may be wrong; zones that are larger by it leave no gaps
 * between them, which among whole points could hide no cell. */
static double error_on(const Search *s, const Edge *edge, double t)
{
    int end = nearer_end(edge, t);
    double v = edge_at(edge, t);
    return s->tree->whole ? 0 : DBL_EPSILON * (fabs(v) + 4 * fabs(v - edge->v[end])) + s->lost;
}

/* Cut across t after `part` of the width, or in the middle. */
static int cut_in_t(const Search *s, const Chart *chart, const Zone *zone, double part, Zone *left,
                    Zone *right)
{
    const double width = zone->t[1] - zone->t[0];
    double t = zone->t[0] + part * width;
    if (!(zone->t[0] < t && t < zone->t[1])) t = zone->t[0] + width / 2;
    t = fmax(t, least_position(s, chart));
    if (!(zone->t[0] < t && t < zone->t[1])) return 0;
    *left = *right = *zone;
    left->t[1] = right->t[0] = t;
    left->low[1] = right->low[0] = edge_at(&zone->floor, t) - error_on(s, &zone->floor, t);
    left->high[1] = right->high[0] = edge_at(&zone->ceiling, t) + error_on(s, &zone->ceiling, t);
    return 1;
}

/* Move a chord by a small and odd part of the height, so that no line runs along it, or through
 * its ends. Unless `all`, it stays at t = 0, where lines of equal scores are parted, exactly. */
static void move_beside_lines(const Zone *zone, const Survey *survey, int all, double *chord)
{
    static const double part[2] = {0.031415926, 0.027182818};
    for (int end = 0; end < 2; end++) {
        if (!all && zone->t[end] == 0) continue;
        chord[end] += part[end] * survey->beside[end];
    }
}

static int cut_by_chord(const Search *s, const Zone *zone, const Survey *survey, Zone *lower,
                        Zone *upper)
{
    Edge chord = {{zone->t[0], zone->t[1]}, {0, 0}};
    if (!choose_chord(zone, survey, chord.v)) return 0;
    if (s->beside || (!s->tree->whole && zone->t[0] < zone->t[1]))
        move_beside_lines(zone, survey, s->beside, chord.v);
    *lower = *upper = *zone;
    lower->ceiling = upper->floor = chord;
    memcpy(lower->high, chord.v, sizeof chord.v);
    memcpy(upper->low, chord.v, sizeof chord.v);
    return 1;
}

void begin_part(Search *s, Part *part, const Box *box, const int64_t *sums)
{
    Zone zone = part->box.zone;
    part->box = *box;
    part->box.zone = zone;
    part->box.depth++;
    part->box.nodes = 0;
    part->box.level = s->level;
    part->box.bad = s->bad;
    memset(&part->box.crossing, 0, sizeof part->box.crossing);
    part->items.count = part->below.count = 0;
    memcpy(part->sums, sums, (size_t)s->tree->width * sizeof *sums);
    memset(part->sums + s->tree->width, 0, (size_t)(s->row_size - s->tree->width) * sizeof *sums);
}

/* Cut the popped box into s->part[0] and [1]. Returns the number of parts: 1 when floats are too
 * coarse to cut it but nodes could be opened, 0 when they could not, -1 without memory. */
int split_zone(Search *s, const Box *box, const int64_t *sums, int open_items)
{
    const Zone *zone = &box->zone;
    const Chart *chart = &s->chart[box->chart];
    Zone *first = &s->part[0].box.zone, *second = &s->part[1].box.zone;
    Survey survey = survey_items(s, box);
    double width = zone->t[1] - zone->t[0];
    double height = (zone->high[0] - zone->low[0] + zone->high[1] - zone->low[1]) / 2;
    int in_t = width > 0 && survey.in_t && cut_in_t(s, chart, zone, survey.at, first, second);
    int cut_up = in_t || cut_by_chord(s, zone, &survey, first, second);
    if (!cut_up) cut_up = in_t = width > 0 && cut_in_t(s, chart, zone, survey.at, first, second);
    if (!cut_up && box->nodes == 0) return 0;
    if (!cut_up) *first = *zone;
    Cut cut = {.chart = chart, .parts = cut_up ? 2 : 1};
    cut.weight[0] = chart->step * zone->t[0];
    cut.weight[1] = chart->step * (in_t ? first->t[1] : zone->t[1]);
    cut.weight[2] = chart->step * zone->t[1];
    cut.from[1] = in_t;
    cut.open_above = OPEN_EXTENT * height * (in_t ? 2 : 1);
    cut.open_items = open_items || box->count <= OPEN_COUNT || !cut_up;
    begin_part(s, &s->part[0], box, sums);
    begin_part(s, &s->part[1], box, sums);
    return sift(s, &cut, s->popped.item, box->count) ? -1 : cut.parts;
}
