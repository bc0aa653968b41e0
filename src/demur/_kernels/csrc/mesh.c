/* Cutting a box that a few hundred points cross into many parts at once.
 *
 * A frontier has something to find all over the dual plane, so that most of its boxes are small,
 * and cut again. Here a box is cut at several t and by several chords. The masses below all parts
 * and those that cross them are counted in one go, and points are listed only for parts that may
 * hold something better; these are searched at once, the best one first, as the next layer of
 * boxes. Parts take in what is within rounding of their edges, as those of a box cut in two do.
 */
#include "mesh.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sides.h"
#include "vectors.h"

#define MESH_PARTS 16   /* most parts, */
#define MOST_ROWS_OF_PARTS 8
#define MESH_POINTS 512 /* and points that cross a box which is cut into them */
#define SAMPLED 9       /* points looked at to choose chords */
#define LOT 64          /* points counted together */
#define STIFF 0.7       /* part of the points that still crosses one of the parts */
#define LAYERS 8        /* boxes within boxes; what is further inside waits on the stack */

enum { FLOORS, CEILINGS };

/* Where parts begin and end: chord c, of which 0 is the floor and the last one the ceiling, at
 * cut j; as the floor of the parts above it, and as the ceiling of those below. */
typedef struct {
    int columns, rows;
    double t[MESH_PARTS + 1], weight[MESH_PARTS + 1];
    double share[MESH_PARTS + 1]; /* of the way from the nearer end, which is */
    int end[MESH_PARTS + 1];
    Edge chord[MOST_ROWS_OF_PARTS + 1];
    double at[2][MOST_ROWS_OF_PARTS + 1][MESH_PARTS + 1];
} Mesh;

/* ID and OOD mass are counted in one number. */
#define OOD_SHIFT 32

typedef struct {
    uint64_t below, below_loss, crosses, crosses_worth;
} Count;

typedef struct {
    int count; /* filled up to a multiple of LANES */
    double base[LOT], moving[LOT];
    uint64_t mass[LOT], loss[LOT], mark[LOT], worth[LOT];
} Lot;

/* A box, its points, and the parts it is cut into. */
struct Layer {
    Box box;
    double level; /* all that has to be beaten in it is at most this */
    int64_t sums[MOST_OF_A_ROW], count;
    int32_t item[MESH_POINTS + 1];
    Mesh mesh;
    Lot lot[MESH_POINTS / LOT];
    Count part[MESH_PARTS];
};

static void sort_sample(double *a, int n)
{
    for (int i = 1; i < n; i++) {
        double moving = a[i];
        int j = i;
        for (; j > 0 && a[j - 1] > moving; j--) a[j] = a[j - 1];
        a[j] = moving;
    }
}

/* Values at both ends of points that do not run through the zone from edge to edge, sorted, and
 * how far slopes carry all of them apart, in heights of the zone. */
typedef struct {
    double at[2][SAMPLED + 1], drift;
    int along, across;
} Sample;

static double clamped(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

static Sample sample_points(const Search *s, const Box *box, const int32_t *item)
{
    const Zone *zone = &box->zone;
    const Chart *chart = &s->chart[box->chart];
    Sample sample = {.along = 0};
    double slope[2] = {HUGE_VAL, -HUGE_VAL};
    for (int j = 0; j < SAMPLED; j++) {
        const int64_t i = ~item[j * (int64_t)box->count / SAMPLED];
        double base = chart->fixed * s->tree->point[2 * i + chart->still];
        double rate = chart->step * s->tree->point[2 * i + chart->moving], v[2];
        slope[0] = rate < slope[0] ? rate : slope[0];
        slope[1] = rate > slope[1] ? rate : slope[1];
        for (int end = 0; end < 2; end++) v[end] = base + zone->t[end] * rate;
        if ((v[0] >= zone->high[0] && v[1] <= zone->low[1]) ||
            (v[0] <= zone->low[0] && v[1] >= zone->high[1])) {
            sample.across++;
            continue;
        }
        for (int end = 0; end < 2; end++)
            sample.at[end][sample.along] = clamped(v[end], zone->low[end], zone->high[end]);
        sample.along++;
    }
    double height = (zone->high[0] - zone->low[0] + zone->high[1] - zone->low[1]) / 2;
    sample.drift = (slope[1] - slope[0]) * (zone->t[1] - zone->t[0]) / height;
    for (int end = 0; end < 2; end++) {
        sort_sample(sample.at[end], sample.along);
        sample.at[end][sample.along] = zone->high[end];
    }
    return sample;
}

/* Put chords through the zone beside sampled points; returns the number of rows they part. */
static int choose_chords(const Search *s, const Zone *zone, const Sample *sample, int rows,
                         Mesh *mesh)
{
    int found = 0;
    mesh->chord[0] = zone->floor;
    for (int c = 1; c < rows; c++) {
        int k = c * sample->along / rows;
        Edge chord = {{zone->t[0], zone->t[1]}, {sample->at[0][k], sample->at[1][k]}};
        for (int end = 0; end < 2; end++)
            if (!s->tree->whole && zone->t[end] > 0)
                chord.v[end] += 0.031415926 * (sample->at[end][k + 1] - sample->at[end][k]);
        const double *last = found ? mesh->chord[found].v : zone->low;
        int above = chord.v[0] > last[0] || chord.v[1] > last[1];
        if (above && (chord.v[0] < zone->high[0] || chord.v[1] < zone->high[1]))
            mesh->chord[++found] = chord;
    }
    mesh->chord[++found] = zone->ceiling;
    return found;
}

/* Values of a chord between the ends of the zone; see cut_in_t. */
static void place_chord(Mesh *mesh, int c, int whole)
{
    const Edge *chord = mesh->chord + c;
    const int inner = c > 0 && c < mesh->rows;
    for (int j = 1; j < mesh->columns; j++) {
        int end = inner ? mesh->end[j] : nearer_end(chord, mesh->t[j]);
        double v = inner ? chord->v[end] + (chord->v[1 - end] - chord->v[end]) * mesh->share[j]
                         : edge_at(chord, mesh->t[j]);
        double error = whole ? 0 : DBL_EPSILON * (fabs(v) + 4 * fabs(v - chord->v[end]));
        mesh->at[FLOORS][c][j] = v - error;
        mesh->at[CEILINGS][c][j] = v + error;
    }
}

/* All chords but floor and ceiling are drawn from end to end of the zone, so that they are cut at
 * the same shares of their lengths. */
static void place_chords(const Zone *zone, int whole, Mesh *mesh)
{
    const int last = mesh->columns;
    for (int j = 1; j < last; j++) {
        int end = mesh->end[j] = mesh->t[j] - zone->t[0] > zone->t[1] - mesh->t[j];
        mesh->share[j] = (mesh->t[j] - zone->t[end]) / (zone->t[1 - end] - zone->t[end]);
    }
    for (int c = 0; c <= mesh->rows; c++) {
        const double *v = c == 0 ? zone->low : c == mesh->rows ? zone->high : mesh->chord[c].v;
        place_chord(mesh, c, whole);
        for (int end = 0; end < 2; end++)
            mesh->at[FLOORS][c][end * last] = mesh->at[CEILINGS][c][end * last] = v[end];
    }
}

/* Whether floats let the zone be cut. */
static int choose_mesh(const Search *s, const Box *box, const int32_t *item, Mesh *mesh)
{
    const Zone *zone = &box->zone;
    Sample sample = sample_points(s, box, item);
    int rows = MOST_ROWS_OF_PARTS;
    /* Parts are about as wide as slopes carry lines apart by their height. */
    for (double drift = sample.drift; rows > 1 && drift > 1; drift /= 4) rows /= 2;
    if (sample.across > sample.along) rows = 1;
    mesh->columns = MESH_PARTS / rows;
    mesh->rows = choose_chords(s, zone, &sample, rows, mesh);
    for (int j = 0; j <= mesh->columns; j++) {
        mesh->t[j] = zone->t[0] + (zone->t[1] - zone->t[0]) / mesh->columns * j;
        if (j == mesh->columns) mesh->t[j] = zone->t[1];
        mesh->weight[j] = s->chart[box->chart].step * mesh->t[j];
        if (j > 0 && !(mesh->t[j - 1] < mesh->t[j])) return 0;
    }
    place_chords(zone, s->tree->whole, mesh);
    return 1;
}

/* Masks: which points of a lot lie below floors, and above ceilings, at a cut. */
typedef struct {
    uint64_t below[MOST_ROWS_OF_PARTS][LOT], above[MOST_ROWS_OF_PARTS][LOT];
} Column;

ALWAYS_INLINE void compare_at(const Mesh *mesh, const Lot *lot, int j, double rounding,
                              Column *column)
{
    const double weight = mesh->weight[j], error = weight != 0 ? rounding : 0;
    const int n = lot->count;
    double v[LOT], doubt[LOT];
    for (int k = 0; k < n; k++) {
        double moved = weight * lot->moving[k];
        v[k] = lot->base[k] + moved;
        doubt[k] = error * (fabs(lot->base[k]) + fabs(moved));
    }
    for (int b = 0; b < mesh->rows; b++) {
        const double floor = mesh->at[FLOORS][b][j], ceiling = mesh->at[CEILINGS][b + 1][j];
        for (int k = 0; k < n; k++) {
            column->below[b][k] = 0 - (uint64_t)(v[k] - floor <= doubt[k]);
            column->above[b][k] = 0 - (uint64_t)(ceiling - v[k] <= doubt[k]);
        }
    }
}

ALWAYS_INLINE void count_part(const Lot *lot, const uint64_t *below0, const uint64_t *below1,
                              const uint64_t *above0, const uint64_t *above1, Count *count)
{
    uint64_t below = 0, below_loss = 0, crosses = 0, crosses_worth = 0;
    const int n = lot->count;
    for (int k = 0; k < n; k++) {
        uint64_t is_below = below0[k] & below1[k], is_above = above0[k] & above1[k];
        uint64_t is_crossing = ~(is_below | is_above);
        below += lot->mass[k] & is_below;
        below_loss += lot->loss[k] & is_below;
        crosses += lot->mass[k] & is_crossing;
        crosses_worth += lot->worth[k] & is_crossing;
    }
    count->below += below;
    count->below_loss += below_loss;
    count->crosses += crosses;
    count->crosses_worth += crosses_worth;
}

ALWAYS_INLINE void count_lot_loops(const Mesh *mesh, const Lot *lot, double rounding, Count *count)
{
    Column column[2];
    compare_at(mesh, lot, 0, rounding, column);
    for (int j = 0; j < mesh->columns; j++) {
        const Column *left = column + j % 2, *right = column + 1 - j % 2;
        compare_at(mesh, lot, j + 1, rounding, column + 1 - j % 2);
        for (int b = 0; b < mesh->rows; b++)
            count_part(lot, left->below[b], right->below[b], left->above[b], right->above[b],
                       count + j * mesh->rows + b);
    }
}

WITH_WIDEST_VECTORS(static, count_lot,
                    (const Mesh *mesh, const Lot *lot, double rounding, Count *count),
                    (mesh, lot, rounding, count))

/* By how much less than `level` a point has of loss per ID mass, times its ID mass, rounded up. */
static uint64_t worth_at(const int64_t *mass, double level)
{
    double worth = level * (double)mass[ID] - (double)mass[LOSS];
    return worth > 0 ? (uint64_t)(worth * (1 + BOUND_ROUNDING)) + 1 : 0;
}

static void fill_lot(const Search *s, const Layer *layer, int64_t first, Lot *lot)
{
    const Tree *tree = s->tree;
    const Chart *chart = &s->chart[layer->box.chart];
    const int n = layer->count - first < LOT ? (int)(layer->count - first) : LOT;
    lot->count = (n + LANES - 1) / LANES * LANES;
    for (int k = n; k < lot->count; k++) {
        lot->base[k] = lot->moving[k] = 0;
        lot->mass[k] = lot->loss[k] = lot->mark[k] = lot->worth[k] = 0;
    }
    for (int k = 0; k < n; k++) {
        const int64_t i = ~layer->item[first + k], *mass = tree->mass + i * tree->width;
        lot->base[k] = chart->fixed * tree->point[2 * i + chart->still];
        lot->moving[k] = tree->point[2 * i + chart->moving];
        lot->mass[k] = (uint64_t)mass[ID] | (uint64_t)mass[FIRST_OOD] << OOD_SHIFT;
        lot->loss[k] = (uint64_t)mass[LOSS];
        lot->mark[k] = (uint64_t)mass[MARK];
        lot->worth[k] = s->classes ? worth_at(mass, layer->level) : lot->loss[k];
    }
}

/* Which points of a lot cross a part, as masks, and the sum of the marks of those below it. */
ALWAYS_INLINE void part_lot_loops(const Lot *lot, const double *weight, const Limits *at,
                                  double rounding, uint64_t *crosses, uint64_t *mark)
{
    const double left_error = weight[0] != 0 ? rounding : 0;
    const double right_error = weight[1] != 0 ? rounding : 0;
    uint64_t marks = 0;
    const int n = lot->count;
    for (int k = 0; k < n; k++) {
        double left = weight[0] * lot->moving[k], right = weight[1] * lot->moving[k];
        double size = fabs(lot->base[k]);
        double left_doubt = left_error * (size + fabs(left));
        double right_doubt = right_error * (size + fabs(right));
        left += lot->base[k];
        right += lot->base[k];
        int below = (left - at->low[0] <= left_doubt) & (right - at->low[1] <= right_doubt);
        int above = (at->high[0] - left <= left_doubt) & (at->high[1] - right <= right_doubt);
        marks += lot->mark[k] & (0 - (uint64_t)below);
        crosses[k] = (uint64_t)!(below | above);
    }
    *mark += marks;
}

WITH_WIDEST_VECTORS(static, part_lot,
                    (const Lot *lot, const double *weight, const Limits *at, double rounding,
                     uint64_t *crosses, uint64_t *mark),
                    (lot, weight, at, rounding, crosses, mark))

static Zone part_of(const Mesh *mesh, int j, int b)
{
    Zone part = {.floor = mesh->chord[b], .ceiling = mesh->chord[b + 1]};
    for (int end = 0; end < 2; end++) {
        part.t[end] = mesh->t[j + end];
        part.low[end] = mesh->at[FLOORS][b][j + end];
        part.high[end] = mesh->at[CEILINGS][b + 1][j + end];
    }
    return part;
}

/* A part that may hold something better. */
typedef struct {
    double merit;
    int part;
} Rank;

/* The masses of a part, without its marks, and what crosses it. */
static void count_into(const int64_t *sums, const Count *count, Part *part)
{
    const uint64_t half = ((uint64_t)1 << OOD_SHIFT) - 1;
    part->box.crossing.id = (int64_t)(count->crosses & half);
    part->box.crossing.loss = (int64_t)count->crosses_worth;
    part->sums[ID] = sums[ID] + (int64_t)(count->below & half);
    part->sums[LOSS] = sums[LOSS] + (int64_t)count->below_loss;
    part->sums[FIRST_OOD] = sums[FIRST_OOD] + (int64_t)(count->below >> OOD_SHIFT);
}

/* List parts that are not hopeless, the best one first. */
static int rank_parts(Search *s, const Layer *layer, Rank *rank)
{
    int found = 0;
    Part *part = &s->part[0];
    part->box = layer->box;
    for (int k = 0; k < layer->mesh.columns * layer->mesh.rows; k++) {
        count_into(layer->sums, layer->part + k, part);
        if (s->glance(s, &part->box, part->sums) == HOPELESS) continue;
        Rank one = {part->box.merit, k};
        int i = found++;
        for (; i > 0 && rank[i - 1].merit > one.merit; i--) rank[i] = rank[i - 1];
        rank[i] = one;
    }
    return found;
}

/* List the points that cross a part; returns how many. */
static int64_t list_points(const Search *s, const Layer *layer, const Zone *zone,
                           const double *weight, int32_t *item, uint64_t *mark)
{
    uint64_t crosses[LOT];
    int64_t found = 0;
    Limits at;
    memcpy(at.low, zone->low, sizeof at.low);
    memcpy(at.high, zone->high, sizeof at.high);
    for (int64_t done = 0; done < layer->count; done += LOT) {
        const int64_t n = layer->count - done < LOT ? layer->count - done : LOT;
        part_lot(layer->lot + done / LOT, weight, &at, s->rounding, crosses, mark);
        for (int64_t k = 0; k < n; k++) {
            item[found] = layer->item[done + k];
            found += (int64_t)crosses[k];
        }
    }
    return found;
}

/* Let a box be crossed by points only. */
static int open_nodes(Search *s, Box *box, int64_t *sums)
{
    const Chart *chart = &s->chart[box->chart];
    Cut cut = {.chart = chart, .parts = 1, .open_above = -1, .open_items = 1};
    Part *part = &s->part[0];
    for (int k = 0; k < 3; k++) cut.weight[k] = chart->step * box->zone.t[k > 0];
    part->box.zone = box->zone;
    begin_part(s, part, box, sums);
    if (sift(s, &cut, s->popped.item, box->count)) return -1;
    if (reserve_items(&s->popped, part->items.count)) return -1;
    if (part->items.count)
        memcpy(s->popped.item, part->items.item, (size_t)part->items.count * sizeof(int32_t));
    memcpy(sums, part->sums, (size_t)s->row_size * sizeof *sums);
    *box = part->box;
    s->popped.count = part->items.count;
    box->count = (int32_t)part->items.count;
    return 0;
}

static int few_points(const Search *s, const Box *box)
{
    int64_t points = box->count - box->nodes;
    if (box->nodes > MESH_POINTS) return 0;
    for (int64_t k = 0; k < box->count && points <= MESH_POINTS && box->nodes; k++) {
        int32_t item = s->popped.item[k];
        if (item >= 0) points += s->tree->node[item].end - s->tree->node[item].first;
    }
    return points <= MESH_POINTS;
}

/* Let the points of a layer be those of the box at hand. */
static void hand_over(Search *s, const Layer *layer)
{
    memcpy(s->popped.item, layer->item, (size_t)layer->count * sizeof *layer->item);
    s->popped.count = layer->count;
}

/* Make a part of a layer the layer below. */
static void begin_layer(Search *s, Layer *layer, int number)
{
    Layer *next = layer + 1;
    Part *part = &s->part[0];
    const int j = number / layer->mesh.rows, b = number % layer->mesh.rows;
    uint64_t mark = 0;
    part->box.zone = part_of(&layer->mesh, j, b);
    begin_part(s, part, &layer->box, layer->sums);
    count_into(layer->sums, layer->part + number, part);
    next->count = list_points(s, layer, &part->box.zone, layer->mesh.weight + j, next->item, &mark);
    part->sums[MARK] = add(part->sums[MARK], (int64_t)mark);
    part->box.count = (int32_t)next->count;
    next->box = part->box;
    memcpy(next->sums, part->sums, (size_t)s->row_size * sizeof *next->sums);
    if (!s->classes) return;
    next->box.crossing.loss = 0;
    for (int64_t k = 0; k < next->count; k++) {
        const int64_t i = ~next->item[k], *mass = s->tree->mass + i * s->tree->width;
        int64_t *into = next->sums + s->tree->width + 2 * s->class_of[i];
        into[0] += mass[ID];
        into[1] += mass[LOSS];
        next->box.crossing.loss += mass[LOSS];
    }
}

static int search_layer(Search *s, Layer *layer, int depth);

static int search_part(Search *s, Layer *layer, int number, int depth)
{
    Layer *next = layer + 1;
    begin_layer(s, layer, number);
    s->boxes++;
    if (s->classes && s->judge(s, &next->box, next->sums) == HOPELESS) return 0;
    hand_over(s, next);
    next->box.stiff = (double)next->count > STIFF * (double)layer->count;
    if (next->count > LEAF && depth + 1 < LAYERS && !next->box.stiff && !too_low(s, &next->box)) {
        int done = search_layer(s, next, depth + 1);
        if (done) return done;
    }
    int done = settle_leaf(s, &next->box, next->sums);
    if (done) return done;
    return stack_push(&s->now, &next->box, &s->popped, next->sums, s->row_size);
}

/* Cut the box of a layer and search its parts. Returns 0 if it cannot be cut. */
static int search_layer(Search *s, Layer *layer, int depth)
{
    Rank rank[MESH_PARTS];
    layer->level = s->classes ? s->highest(s, &layer->box, layer->sums) : 0;
    if (layer->level == HUGE_VAL) return 0;
    if (!choose_mesh(s, &layer->box, layer->item, &layer->mesh)) return 0;
    memset(layer->part, 0, sizeof layer->part);
    for (int64_t first = 0; first < layer->count; first += LOT) {
        Lot *lot = layer->lot + first / LOT;
        fill_lot(s, layer, first, lot);
        count_lot(&layer->mesh, lot, s->rounding, layer->part);
    }
    int found = rank_parts(s, layer, rank);
    for (int k = 0; k < found; k++) {
        count_into(layer->sums, layer->part + rank[k].part, &s->part[0]);
        if (s->glance(s, &s->part[0].box, s->part[0].sums) == HOPELESS) continue;
        if (search_part(s, layer, rank[k].part, depth) < 0) return -1;
    }
    return 1;
}

Layer *make_layers(void) { return malloc((LAYERS + 1) * sizeof(Layer)); }

int search_points(Search *s, Box *box, int64_t *sums)
{
    Layer *layer = s->layer;
    /* Where float64 cannot take lines apart, all parts would be like the whole. */
    if (box->stiff || box->zone.t[0] == box->zone.t[1] || !few_points(s, box)) return 0;
    if (box->nodes) {
        if (open_nodes(s, box, sums)) return -1;
        int verdict = s->judge(s, box, sums);
        if (verdict == HOPELESS) return 1;
        if (verdict == PUT_OFF)
            return stack_push(&s->later, box, &s->popped, sums, s->row_size) ? -1 : 1;
    }
    if (box->count <= LEAF || too_low(s, box)) return 0;
    if (reserve_items(&s->popped, MESH_POINTS)) return -1;
    layer->box = *box;
    layer->count = box->count;
    memcpy(layer->sums, sums, (size_t)s->row_size * sizeof *sums);
    memcpy(layer->item, s->popped.item, (size_t)box->count * sizeof *layer->item);
    int stage = s->stage;
    s->stage = s->last_stage; /* to put parts off costs more than to search them */
    int done = search_layer(s, layer, 0);
    s->stage = stage;
    if (done == 0) hand_over(s, layer);
    return done;
}
