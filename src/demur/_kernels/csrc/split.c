/* Cutting a box in two and sorting its items into the parts.
 *
 * An item is a node of the tree or a point. Its values are linear in t, so it lies below
 * (above) a zone if it does at both ends. A part of a zone is thought of as the intersection
 * of all zones it was cut from; the stored corners only enclose it, because a corner found by
 * interpolation is moved outwards by more than its rounding error. What was certain for the
 * whole therefore stays certain for the parts.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"

#ifndef OPEN_EXTENT
#define OPEN_EXTENT 0.7 /* nodes larger than this part of the height of a zone are opened */
#endif
#ifndef OPEN_COUNT
#define OPEN_COUNT 16
#endif
#define SAMPLE 31       /* items looked at to choose a cut */
#ifndef DRIFT
#define DRIFT 1.0
#endif

/* Three positions t, as weights, and which two neighbours among them bound each part. */
typedef struct {
    const Chart *chart;
    double weight[3];
    int from[2], parts;
    double open_above; /* nodes of larger extent are opened */
    int open_items;    /* items that are nodes are opened whatever their extent */
} Cut;

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
        zone->low[end] -= room;
        zone->high[end] += room;
    }
}

/* How far v = base + shift, as computed, can be from its exact value. A shift of zero, as at
 * t = 0, leaves no error, and the sum cannot be off by more than the shift itself. */
static inline double error_of(double v, double shift, double rounding)
{
    double size = fabs(v) * rounding, moved = fabs(shift);
    return (size < moved ? size : moved) + moved * rounding;
}

static int reserve(Items *items, int64_t more)
{
    if (items->count + more <= items->room) return 0;
    int64_t room = 2 * items->room + 256 + more;
    int32_t *grown = realloc(items->item, (size_t)room * sizeof *grown);
    if (!grown) return -1;
    items->item = grown;
    items->room = room;
    return 0;
}

static inline int weightless(const int64_t *mass, int width)
{
    int64_t any = 0;
    for (int c = 0; c < width; c++) any |= mass[c];
    return any == 0;
}

/* Let a part know an item: what lies below is added up, what crosses is listed. Without
 * branches, because nobody can predict on which side of a cut an item lies. */
static inline void sort_in(Search *s, Part *part, int below, int crosses, int32_t item,
                           const int64_t *mass, int width)
{
    Crossing *crossing = &part->box.crossing;
    int64_t if_below = -(int64_t)below, if_crosses = -(int64_t)crosses;
    for (int c = 0; c < width; c++) part->sums[c] = add(part->sums[c], mass[c] & if_below);
    crossing->id += mass[ID] & if_crosses;
    crossing->loss += mass[LOSS] & if_crosses;
    part->items.item[part->items.count] = item;
    part->items.count += crosses;
    if (s->grade && crosses) {
        double good, gain;
        if (item >= 0) {
            good = s->grade[2 * (int64_t)item];
            gain = s->grade[2 * (int64_t)item + 1];
        } else {
            gain = graded_gain(s, mass, &good);
        }
        crossing->good += good;
        crossing->gain += gain;
    }
}

static inline void visit_point(Search *s, const Cut *cut, int64_t i)
{
    const Tree *tree = s->tree;
    const double *point = tree->point + 2 * i;
    const int64_t *mass = tree->mass + i * tree->width;
    double base = cut->chart->fixed * point[cut->chart->still];
    double moving = point[cut->chart->moving], v[3], error[3];
    for (int k = 0; k < 3; k++) {
        double shift = cut->weight[k] * moving;
        v[k] = base + shift;
        error[k] = error_of(v[k], shift, s->rounding);
    }
    for (int k = 0; k < cut->parts; k++) {
        const Zone *zone = &s->part[k].box.zone;
        int a = cut->from[k], b = a + 1;
        int below = (zone->low[0] - v[a] >= error[a]) & (zone->low[1] - v[b] >= error[b]);
        int above = (v[a] - zone->high[0] >= error[a]) & (v[b] - zone->high[1] >= error[b]);
        sort_in(s, &s->part[k], below, !(below | above), (int32_t)~i, mass, tree->width);
    }
}

/* Returns 1 if the node has to be opened, then nothing was sorted in. */
static inline int visit_node(Search *s, const Cut *cut, int64_t node, int open)
{
    const Tree *tree = s->tree;
    const Chart *chart = cut->chart;
    const double *box = tree->box + 4 * node;
    const int64_t *mass = tree->sums + node * tree->width;
    double low_base = chart->fixed * box[chart->low[0]], low_moving = box[chart->low[1]];
    double high_base = chart->fixed * box[chart->high[0]], high_moving = box[chart->high[1]];
    double low[3], low_error[3], high[3], high_error[3];
    int below[2] = {0, 0}, crosses[2] = {0, 0};
    for (int k = 0; k < 3; k++) {
        double low_shift = cut->weight[k] * low_moving, high_shift = cut->weight[k] * high_moving;
        low[k] = low_base + low_shift;
        high[k] = high_base + high_shift;
        low_error[k] = error_of(low[k], low_shift, s->rounding);
        high_error[k] = error_of(high[k], high_shift, s->rounding);
    }
    for (int k = 0; k < cut->parts; k++) {
        const Zone *zone = &s->part[k].box.zone;
        int a = cut->from[k], b = a + 1;
        below[k] = (zone->low[0] - high[a] >= high_error[a]) &
                   (zone->low[1] - high[b] >= high_error[b]);
        int above = (low[a] - zone->high[0] >= low_error[a]) &
                    (low[b] - zone->high[1] >= low_error[b]);
        crosses[k] = !(below[k] | above);
    }
    if ((crosses[0] | crosses[1]) &&
        (open || high[0] - low[0] + high[2] - low[2] > cut->open_above))
        return 1;
    for (int k = 0; k < cut->parts; k++) {
        sort_in(s, &s->part[k], below[k], crosses[k], (int32_t)node, mass, tree->width);
        s->part[k].box.nodes += crosses[k];
    }
    return 0;
}

/* Open a node and what must be opened below it. */
static int open_node(Search *s, const Cut *cut, int64_t item)
{
    int64_t pending[128];
    int waiting = 0;
    pending[waiting++] = item;
    while (waiting) {
        const Node *here = s->tree->node + pending[--waiting];
        if (reserve(&s->part[0].items, BLOCK + 2) || reserve(&s->part[1].items, BLOCK + 2))
            return -1;
        for (int64_t i = here->first; !here->child && i < here->end; i++)
            if (!weightless(s->tree->mass + i * s->tree->width, s->tree->width))
                visit_point(s, cut, i);
        for (int64_t k = here->child; here->child && k < here->child + 2; k++)
            if (!weightless(s->tree->sums + k * s->tree->width, s->tree->width))
                if (visit_node(s, cut, k, 0)) pending[waiting++] = k;
    }
    return 0;
}

static int visit_items(Search *s, const Cut *cut, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        int32_t item = s->popped.item[k];
        if (reserve(&s->part[0].items, 1) || reserve(&s->part[1].items, 1)) return -1;
        if (item < 0)
            visit_point(s, cut, ~item);
        else if (visit_node(s, cut, item, cut->open_items) && open_node(s, cut, item))
            return -1;
    }
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double p = *(const double *)a, q = *(const double *)b;
    return p < q ? -1 : p > q;
}

static void sort_few(double *a, int n)
{
    if (n > SAMPLE) qsort(a, (size_t)n, sizeof *a, by_value);
    for (int i = 1; i < n; i++) {
        double moving = a[i];
        int j = i;
        for (; j > 0 && a[j - 1] > moving; j--) a[j] = a[j - 1];
        a[j] = moving;
    }
}

/* Middle of the items at both ends of the zone, and how far their slopes lie apart. */
typedef struct {
    double middle[2], slopes;
} Survey;

static Survey survey_items(const Search *s, const Chart *chart, const Box *box)
{
    const Tree *tree = s->tree;
    double at[2][SAMPLE], slope[SAMPLE];
    int taken = 0;
    int64_t stride = box->count / SAMPLE + 1;
    for (int64_t k = stride / 2; k < box->count; k += stride, taken++) {
        int32_t item = s->popped.item[k];
        double still, moving;
        if (item < 0) {
            still = tree->point[2 * ~item + chart->still];
            moving = tree->point[2 * ~item + chart->moving];
        } else {
            const double *b = tree->box + 4 * (int64_t)item;
            still = b[chart->still] + (b[chart->still + 2] - b[chart->still]) / 2;
            moving = b[chart->moving] + (b[chart->moving + 2] - b[chart->moving]) / 2;
        }
        slope[taken] = chart->step * moving;
        for (int end = 0; end < 2; end++)
            at[end][taken] = chart->fixed * still + chart->step * box->zone.t[end] * moving;
    }
    sort_few(at[0], taken);
    sort_few(at[1], taken);
    sort_few(slope, taken);
    Survey survey = {{at[0][taken / 2], at[1][taken / 2]}, slope[taken - 1] - slope[0]};
    return survey;
}

/* Put a chord through the zone, preferably along the middle of its items. */
static int choose_chord(const Zone *zone, const Survey *survey, double *chord)
{
    int inside = 0, proper = 1;
    for (int end = 0; end < 2; end++) {
        double c = survey->middle[end];
        chord[end] = c < zone->low[end] ? zone->low[end] : c > zone->high[end] ? zone->high[end] : c;
        inside |= zone->low[end] < chord[end] && chord[end] < zone->high[end];
    }
    if (inside) return 1;
    for (int end = 0; end < 2; end++) {
        chord[end] = zone->low[end] + (zone->high[end] - zone->low[end]) / 2;
        proper &= zone->low[end] < chord[end] && chord[end] < zone->high[end];
    }
    return proper;
}

static double between(const double *ends, double share, double outwards)
{
    return ends[0] + share * (ends[1] - ends[0]) +
           outwards * 4 * DBL_EPSILON * (fabs(ends[0]) + fabs(ends[1]));
}

static int cut_in_t(const Zone *zone, Zone *left, Zone *right)
{
    double t = zone->t[0] + (zone->t[1] - zone->t[0]) / 2;
    if (!(zone->t[0] < t && t < zone->t[1])) return 0;
    double share = (t - zone->t[0]) / (zone->t[1] - zone->t[0]);
    *left = *right = *zone;
    left->t[1] = right->t[0] = t;
    left->low[1] = right->low[0] = between(zone->low, share, -1);
    left->high[1] = right->high[0] = between(zone->high, share, 1);
    return 1;
}

static int cut_by_chord(const Zone *zone, const Survey *survey, Zone *lower, Zone *upper)
{
    double chord[2];
    if (!choose_chord(zone, survey, chord)) return 0;
    *lower = *upper = *zone;
    memcpy(lower->high, chord, sizeof chord);
    memcpy(upper->low, chord, sizeof chord);
    return 1;
}

static void begin_part(Search *s, Part *part, const Box *box, const int64_t *sums)
{
    Zone zone = part->box.zone;
    part->box = *box;
    part->box.zone = zone;
    part->box.depth++;
    part->box.nodes = 0;
    part->box.level = s->level;
    part->box.bad = s->bad;
    memset(&part->box.crossing, 0, sizeof part->box.crossing);
    part->items.count = 0;
    memcpy(part->sums, sums, (size_t)s->tree->width * sizeof *sums);
}

/* Cut the popped box into s->part[0] and [1]. Returns the number of parts: 1 when floats are too
 * coarse to cut it but nodes could be opened, 0 when they could not, -1 without memory. */
int split_zone(Search *s, const Box *box, const int64_t *sums, int open_items)
{
    const Zone *zone = &box->zone;
    const Chart *chart = &s->chart[box->chart];
    Zone *first = &s->part[0].box.zone, *second = &s->part[1].box.zone;
    Survey survey = survey_items(s, chart, box);
    double width = zone->t[1] - zone->t[0];
    double height = (zone->high[0] - zone->low[0] + zone->high[1] - zone->low[1]) / 2;
    int in_t = width > 0 && survey.slopes * width > DRIFT * height && cut_in_t(zone, first, second);
    int cut_up = in_t || cut_by_chord(zone, &survey, first, second);
    if (!cut_up) cut_up = in_t = width > 0 && cut_in_t(zone, first, second);
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
    return visit_items(s, &cut, box->count) ? -1 : cut.parts;
}
