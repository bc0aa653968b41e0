/* Sorting the items of a box into the parts it is cut into.
 *
 * Items are looked at in batches. What lies below a part is added to its sums, what crosses it
 * is listed; sums are masked, and a list grows by 0 or 1, since a branch would as often as not
 * be taken. This and sides.c are where the time of hard inputs goes.
 */
#include "sift.h"

#include <string.h>

#include "sides.h"
#include "vectors.h"

#define CHUNK 32 /* items sent to wait together */

/* Sums and lists of both parts while they grow, and what waits to be sorted in. */
typedef struct {
    Search *s;
    const Cut *cut;
    Part *part;
    Edges edges[2];
    int graded;
    Batch points, nodes;
} Sieve;

static void add_class(const Search *s, int64_t *into, int32_t item, const int64_t *mass)
{
    if (item < 0) {
        into[2 * s->class_of[~item]] += mass[ID];
        into[2 * s->class_of[~item] + 1] += mass[LOSS];
        return;
    }
    const int64_t *from = s->class_sums + 2 * s->classes * (int64_t)item;
    for (int c = 0; c < 2 * s->classes; c++) into[c] += from[c];
}

static void add_grade(const Search *s, Crossing *crossing, int32_t item, const int64_t *mass)
{
    double good, gain;
    if (item < 0) {
        gain = graded_gain(s, mass, &good);
    } else {
        good = s->grade[2 * (int64_t)item];
        gain = s->grade[2 * (int64_t)item + 1];
    }
    crossing->good += good;
    crossing->gain += gain;
}

enum { PAIR = FIRST_OOD + 1 }; /* masses of a row with one set of OOD, by far the most frequent case */

_Static_assert(sizeof(Quad) == PAIR * sizeof(int64_t), "a row is four numbers");

/* Sums of what lies below a part, and of what crosses it. */
typedef struct {
    Quad below, crosses;
} PartSums;

static void add_sums(const PartSums *sums, Part *part)
{
    int64_t below[PAIR], crosses[PAIR];
    memcpy(below, &sums->below, sizeof below);
    memcpy(crosses, &sums->crosses, sizeof crosses);
    for (int c = 0; c < PAIR; c++) part->sums[c] = add(part->sums[c], below[c]);
    part->box.crossing.id += crosses[ID];
    part->box.crossing.loss += crosses[LOSS];
}

/* All sums stay in registers. Items cross the box that is cut by a chord, so that none of them but
 * those of nodes just opened lies below its lower part: without any, nothing needs to be added. */
ALWAYS_INLINE void add_rows_loops(const int64_t *mass, const Batch *batch, const Sides *sides,
                                  Part *part)
{
    PartSums first, second;
    Quad row;
    uint64_t any = 0;
    memset(&first, 0, sizeof first);
    memset(&second, 0, sizeof second);
    for (int k = 0; k < batch->count; k++) any |= sides[0].below[k];
    for (int k = 0; k < batch->count && any; k++) {
        memcpy(&row, mass + (int64_t)batch->index[k] * PAIR, sizeof row);
        QUAD_ADD_MASKED(first.below, row, sides[0].below[k]);
    }
    for (int k = 0; k < batch->count; k++) {
        memcpy(&row, mass + (int64_t)batch->index[k] * PAIR, sizeof row);
        QUAD_ADD_MASKED(first.crosses, row, sides[0].crosses[k]);
        QUAD_ADD_MASKED(second.below, row, sides[1].below[k]);
        QUAD_ADD_MASKED(second.crosses, row, sides[1].crosses[k]);
    }
    add_sums(&first, part);
    add_sums(&second, part + 1);
}

WITH_WIDEST_VECTORS(static, add_rows,
                    (const int64_t *mass, const Batch *batch, const Sides *sides, Part *part),
                    (mass, batch, sides, part))

static void add_wide_rows(const Tree *tree, const int64_t *mass, const Batch *batch,
                          const Sides *sides, int64_t *sums, int64_t *extra, Crossing *crossing)
{
    const int width = tree->width, first = width - tree->extra;
    for (int k = 0; k < batch->count; k++) {
        const int64_t *row = mass + (int64_t)batch->index[k] * width;
        const int64_t below = (int64_t)sides->below[k], crosses = (int64_t)sides->crosses[k];
        if (below)
            for (int c = 0; c < width; c++) sums[c] = add(sums[c], row[c]);
        if (!crosses) continue;
        crossing->id += row[ID];
        crossing->loss += row[LOSS];
        for (int e = 0; e < tree->extra; e++) extra[e] += row[first + e];
    }
}

/* List what a mask has; points are told from nodes by `flip`, all bits or none. */
static int64_t list_masked(const Batch *batch, const uint64_t *mask, int32_t flip, int32_t *item)
{
    int64_t count = 0;
    for (int k = 0; k < batch->count; k++) {
        item[count] = batch->index[k] ^ flip;
        count += (int64_t)(mask[k] & 1);
    }
    return count;
}

/* Let a part know a batch of points or nodes with these rows of masses. */
static int64_t put(Sieve *v, Part *part, const Batch *batch, const Sides *sides,
                   const int64_t *mass, int32_t flip)
{
    const int width = v->s->tree->width;
    Crossing *crossing = &part->box.crossing;
    if (width != PAIR)
        add_wide_rows(v->s->tree, mass, batch, sides, part->sums, part->sums + v->s->extra_at,
                      crossing);
    int32_t *item = part->items.item + part->items.count;
    int64_t count = list_masked(batch, sides->crosses, flip, item);
    if (v->s->recording)
        part->below.count += list_masked(batch, sides->below, flip, part->below.item + part->below.count);
    for (int64_t k = 0; k < count && v->graded; k++) {
        const int64_t *row = mass + (item[k] ^ flip) * (int64_t)width;
        if (v->s->classes) add_class(v->s, part->sums + width, item[k], row);
        if (v->s->grade) add_grade(v->s, crossing, item[k], row);
    }
    part->items.count += count;
    return count;
}

/* Let all parts know what a batch adds, where rows are short. */
static void add_pairs(Sieve *v, const Batch *batch, Sides *sides, const int64_t *mass)
{
    if (v->s->tree->width != PAIR) return;
    if (v->cut->parts == 1) memset(sides + 1, 0, sizeof *sides);
    add_rows(mass, batch, sides, v->part);
}

static void fill_up(Batch *batch)
{
    for (int k = batch->count; k % LANES; k++) batch->index[k] = batch->index[0];
}

/* Make room for the items of a batch in both lists. */
static int reserve_batch(Sieve *v)
{
    for (int k = 0; k < 2; k++) {
        Part *part = v->part + k;
        if (reserve_items(&part->items, part->items.count + BATCH_SIZE)) return -1;
        if (v->s->recording && reserve_items(&part->below, part->below.count + BATCH_SIZE)) return -1;
    }
    return 0;
}

static int sift_points(Sieve *v)
{
    Sides sides[2];
    if (reserve_batch(v)) return -1;
    fill_up(&v->points);
    sides_of_points(v->s, v->cut, v->edges, &v->points, sides);
    add_pairs(v, &v->points, sides, v->s->tree->mass);
    for (int k = 0; k < v->cut->parts; k++)
        put(v, v->part + k, &v->points, sides + k, v->s->tree->mass, ~0);
    v->points.count = 0;
    return 0;
}

static int put_point(Sieve *v, int64_t i)
{
    v->points.index[v->points.count++] = (int32_t)i;
    return v->points.count > BATCH_SIZE - CHUNK ? sift_points(v) : 0;
}

/* Replace a node by its children, which wait, or by its points. A sum of marks that is zero
 * belongs to points without mass. */
static int open_node(Sieve *v, int32_t index)
{
    const Tree *tree = v->s->tree;
    const Node *node = opened(tree, index);
    Items *waiting = &v->s->waiting;
    if (v->s->grade) grade_new_nodes(v->s);
    if (node->child) {
        if (reserve_items(waiting, waiting->count + 2)) return -1;
        for (int32_t k = node->child; k < node->child + 2; k++)
            if (tree->sums[(int64_t)k * tree->width + MARK]) waiting->item[waiting->count++] = k;
        return 0;
    }
    for (int64_t i = node->first; i < node->end; i++)
        if (tree->mass[i * tree->width + MARK] && put_point(v, i)) return -1;
    return 0;
}

#define AHEAD 4 /* nodes that will be opened soon, */
#define LINE 8   /* and numbers in a line of the cache */

/* Have the rows of a node at hand, which are anywhere in memory. */
static void will_open(const Tree *tree, int32_t index)
{
    const Node *node = tree->node + index;
    if (node->child) return;
    const int64_t *row = tree->mass + node->first * (int64_t)tree->width;
    const int64_t *last = tree->mass + node->end * (int64_t)tree->width;
    for (; row < last; row += LINE) WILL_READ(row);
    for (int64_t i = node->first; i < node->end; i += LINE / 2) WILL_READ(tree->point + 2 * i);
}

static int sift_nodes(Sieve *v, int open_all)
{
    Sides sides[2];
    Batch opened = {.count = 0};
    if (reserve_batch(v)) return -1;
    fill_up(&v->nodes);
    sides_of_nodes(v->s, v->cut, v->edges, &v->nodes, open_all, sides, &opened);
    add_pairs(v, &v->nodes, sides, v->s->tree->sums);
    for (int k = 0; k < v->cut->parts; k++)
        v->part[k].box.nodes +=
            (int32_t)put(v, v->part + k, &v->nodes, sides + k, v->s->tree->sums, 0);
    v->nodes.count = 0;
    for (int k = 0; k < opened.count; k++) {
        if (k + AHEAD < opened.count) will_open(v->s->tree, opened.index[k + AHEAD]);
        if (open_node(v, opened.index[k])) return -1;
    }
    return 0;
}

static int sift_waiting(Sieve *v)
{
    Items *waiting = &v->s->waiting;
    while (waiting->count) {
        int64_t n = waiting->count < BATCH_SIZE ? waiting->count : BATCH_SIZE;
        waiting->count -= n;
        memcpy(v->nodes.index, waiting->item + waiting->count, (size_t)n * sizeof(int32_t));
        v->nodes.count = (int)n;
        if (sift_nodes(v, 0)) return -1;
    }
    return 0;
}

/* Let items wait in the batch of their kind. */
static void hold(Sieve *v, const int32_t *item, int count)
{
    int points = v->points.count, nodes = v->nodes.count;
    for (int k = 0; k < count; k++) {
        v->points.index[points] = ~item[k];
        v->nodes.index[nodes] = item[k];
        points += item[k] < 0;
        nodes += item[k] >= 0;
    }
    v->points.count = points;
    v->nodes.count = nodes;
}

int sift(Search *s, const Cut *cut, const int32_t *item, int64_t count)
{
    Sieve v = {.s = s, .cut = cut, .part = s->part, .graded = s->classes || s->grade};
    for (int k = 0; k < 2; k++) {
        const Zone *zone = &s->part[k].box.zone;
        for (int end = 0; end < 2; end++) {
            /* Without a weight there is no product. */
            const double lost = cut->weight[cut->from[k] + end] == 0 ? 0 : s->lost;
            v.edges[k].low[end] = zone->low[end] - lost;
            v.edges[k].high[end] = zone->high[end] + lost;
        }
    }
    s->waiting.count = 0;
    for (int64_t done = 0; done < count; done += CHUNK) {
        hold(&v, item + done, count - done < CHUNK ? (int)(count - done) : CHUNK);
        if (v.points.count > BATCH_SIZE - CHUNK && sift_points(&v)) return -1;
        if (v.nodes.count > BATCH_SIZE - CHUNK && sift_nodes(&v, cut->open_items)) return -1;
    }
    if (v.nodes.count && sift_nodes(&v, cut->open_items)) return -1;
    if (sift_waiting(&v)) return -1;
    return v.points.count ? sift_points(&v) : 0;
}
