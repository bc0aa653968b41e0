/* Sorting the items of a box into the parts it is cut into.
 *
 * An item is a node of the tree or a point. Its values are linear in t, so it lies below
 * (above) a zone if it does at both ends. Ends are compared with a tolerance: a line that passes
 * within its own rounding error of an edge counts as being on the outer side of it. Half-planes
 * that float64 can separate keep clear of all lines by more than that, so wherever such a
 * half-plane (t, v) lies in a box, all points certain for the box are on their side of it. Many
 * lines through one point, even if rounding spoils it, can so be cut apart there.
 *
 * This is where the time goes. Which side of a cut an item lies on is as good as random, so there
 * are no branches on it: sums are masked, and a list grows by 0 or 1.
 */
#include "sift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Sums and lists of both parts while they grow, and the constants of the cut. */
typedef struct {
    const Search *s;
    const Cut *cut;
    int width, graded;
    int64_t *sums[2];
    int32_t *item[2];
    int64_t count[2], nodes[2];
    Crossing crossing[2];
    double low[2][2], high[2][2];
} Sieve;

/* The smallest size of a number between two. */
INLINE double least_size(double low, double high)
{
    double size = low > -high ? low : -high;
    return size > 0 ? size : 0;
}

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

/* Let part k know an item: what lies below is added up, what crosses is listed. */
INLINE void put(Sieve *v, int k, int below, int crosses, int32_t item, const int64_t *mass,
                const int width)
{
    int64_t if_below = -(int64_t)below, if_crosses = -(int64_t)crosses;
    for (int c = 0; c < width; c++) v->sums[k][c] = add(v->sums[k][c], mass[c] & if_below);
    v->crossing[k].id += mass[ID] & if_crosses;
    v->crossing[k].loss += mass[LOSS] & if_crosses;
    v->item[k][v->count[k]] = item;
    v->count[k] += crosses;
    if (v->graded && crosses) {
        if (v->s->classes) add_class(v->s, v->sums[k] + width, item, mass);
        if (v->s->grade) add_grade(v->s, &v->crossing[k], item, mass);
    }
}

INLINE void visit_point(Sieve *v, int64_t i, const int width)
{
    const Tree *tree = v->s->tree;
    const Chart *chart = v->cut->chart;
    const double *point = tree->point + 2 * i;
    const int64_t *mass = tree->mass + i * width;
    double base = chart->fixed * point[chart->still], moving = point[chart->moving];
    double at[3], doubt[3];
    for (int k = 0; k < 3; k++) {
        double shift = v->cut->weight[k] * moving;
        at[k] = base + shift;
        doubt[k] = v->s->rounding * (fabs(base) + fabs(shift));
    }
    for (int k = 0; k < v->cut->parts; k++) {
        int a = v->cut->from[k], b = a + 1;
        int below = (at[a] - v->low[k][0] <= doubt[a]) & (at[b] - v->low[k][1] <= doubt[b]);
        int above = (v->high[k][0] - at[a] <= doubt[a]) & (v->high[k][1] - at[b] <= doubt[b]);
        put(v, k, below, !(below | above), (int32_t)~i, mass, width);
    }
}

/* A point that crosses the box can only be below or above the chord that cuts it. */
INLINE void visit_point_at_chord(Sieve *v, int64_t i, const int width)
{
    const Tree *tree = v->s->tree;
    const Chart *chart = v->cut->chart;
    const double *point = tree->point + 2 * i;
    double base = chart->fixed * point[chart->still], moving = point[chart->moving];
    int below = 1, above = 1;
    for (int end = 0; end < 2; end++) {
        double shift = v->cut->weight[end] * moving, over = base + shift - v->high[0][end];
        double doubt = v->s->rounding * (fabs(base) + fabs(shift));
        below &= over <= doubt;
        above &= -over <= doubt;
    }
    const int64_t *mass = tree->mass + i * width;
    put(v, 0, 0, !above, (int32_t)~i, mass, width);
    put(v, 1, below, !below, (int32_t)~i, mass, width);
}

/* Returns 1 if the node has to be opened, then nothing was sorted in. */
INLINE int visit_node(Sieve *v, int64_t node, int open, const int width)
{
    const Tree *tree = v->s->tree;
    const Chart *chart = v->cut->chart;
    const double *box = tree->box + 4 * node;
    const int64_t *mass = tree->sums + node * width;
    double low_base = chart->fixed * box[chart->low[0]], low_moving = box[chart->low[1]];
    double high_base = chart->fixed * box[chart->high[0]], high_moving = box[chart->high[1]];
    double low[3], high[3], doubt[3], base = least_size(low_base, high_base);
    int below[2] = {0, 0}, crosses[2] = {0, 0};
    for (int k = 0; k < 3; k++) {
        double low_shift = v->cut->weight[k] * low_moving;
        double high_shift = v->cut->weight[k] * high_moving;
        low[k] = low_base + low_shift;
        high[k] = high_base + high_shift;
        doubt[k] = v->s->rounding * (base + least_size(low_shift, high_shift));
    }
    for (int k = 0; k < v->cut->parts; k++) {
        int a = v->cut->from[k], b = a + 1;
        below[k] = (high[a] - v->low[k][0] <= doubt[a]) & (high[b] - v->low[k][1] <= doubt[b]);
        int above = (v->high[k][0] - low[a] <= doubt[a]) & (v->high[k][1] - low[b] <= doubt[b]);
        crosses[k] = !(below[k] | above);
    }
    if ((crosses[0] | crosses[1]) &&
        (open || high[0] - low[0] + high[2] - low[2] > v->cut->open_above))
        return 1;
    for (int k = 0; k < v->cut->parts; k++) {
        put(v, k, below[k], crosses[k], (int32_t)node, mass, width);
        v->nodes[k] += crosses[k];
    }
    return 0;
}

/* Make room for `more` items in both lists. */
static int reserve(Sieve *v, Part *part, int64_t more)
{
    for (int k = 0; k < 2; k++) {
        Items *items = &part[k].items;
        if (v->count[k] + more <= items->room) continue;
        int64_t room = 2 * items->room + 256 + more;
        int32_t *grown = realloc(items->item, (size_t)room * sizeof *grown);
        if (!grown) return -1;
        items->item = v->item[k] = grown;
        items->room = room;
    }
    return 0;
}

/* Open a node and what must be opened below it; leave room for `more` items afterwards. A sum of
 * marks that is zero belongs to points without mass. */
INLINE int open_node(Sieve *v, Part *part, int64_t item, int64_t more, const int width)
{
    const Tree *tree = v->s->tree;
    int32_t pending[128];
    int waiting = 0;
    pending[waiting++] = (int32_t)item;
    while (waiting) {
        const Node *here = tree->node + pending[--waiting];
        if (reserve(v, part, more + BLOCK + 2)) return -1;
        if (here->child) {
            for (int32_t k = here->child; k < here->child + 2; k++)
                if (tree->sums[(int64_t)k * width + MARK] && visit_node(v, k, 0, width))
                    pending[waiting++] = k;
        } else {
            for (int64_t i = here->first; i < here->end; i++)
                if (tree->mass[i * width + MARK]) visit_point(v, i, width);
        }
    }
    return 0;
}

INLINE int sift_all(Sieve *v, Part *part, const int32_t *item, int64_t count, const int width)
{
    int chord = v->cut->parts == 2 && v->cut->from[1] == 0;
    if (reserve(v, part, count + 1)) return -1;
    for (int64_t k = 0; k < count; k++) {
        if (item[k] >= 0) {
            if (visit_node(v, item[k], v->cut->open_items, width) &&
                open_node(v, part, item[k], count - k, width))
                return -1;
        } else if (chord) {
            visit_point_at_chord(v, ~item[k], width);
        } else {
            visit_point(v, ~item[k], width);
        }
    }
    return 0;
}

/* With one set of OOD, by far the most frequent case, the sums stay in registers. */
static int sift_one_set(Sieve *v, Part *part, const int32_t *item, int64_t count)
{
    enum { WIDTH = FIRST_OOD + 1 };
    int64_t sums[2][WIDTH];
    for (int k = 0; k < 2; k++) {
        memcpy(sums[k], part[k].sums, sizeof sums[k]);
        v->sums[k] = sums[k];
    }
    int failed = sift_all(v, part, item, count, WIDTH);
    for (int k = 0; k < 2; k++) memcpy(part[k].sums, sums[k], sizeof sums[k]);
    return failed;
}

int sift(Search *s, const Cut *cut, const int32_t *item, int64_t count)
{
    Part *part = s->part;
    Sieve v = {.s = s, .cut = cut, .width = s->tree->width, .graded = s->classes || s->grade};
    for (int k = 0; k < 2; k++) {
        const Zone *zone = &part[k].box.zone;
        v.sums[k] = part[k].sums;
        v.item[k] = part[k].items.item;
        memcpy(v.low[k], zone->low, sizeof zone->low);
        memcpy(v.high[k], zone->high, sizeof zone->high);
    }
    int failed = s->tree->sets == 1 && !s->classes
                     ? sift_one_set(&v, part, item, count)
                     : sift_all(&v, part, item, count, s->tree->width);
    for (int k = 0; k < 2; k++) {
        part[k].items.count = v.count[k];
        part[k].box.nodes = (int32_t)v.nodes[k];
        part[k].box.crossing = v.crossing[k];
    }
    return failed;
}
