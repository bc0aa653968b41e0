/* Cutting planes on the tree: solve for the few points seen so far, look for the points that come
 * closest in the direction found, and repeat until these are known already. The same steps in the
 * same arithmetic as _kernels/reference.py, which looks at all points instead of a tree. */
#include "margin.h"

#include <math.h>

#define ROUNDS 64 /* cutting planes end by themselves, unless rounding makes points take turns */

/* A tree whose points a half-plane accepts or rejects. */
typedef struct {
    const Tree *tree;
    const double *weight;
    double v;
} Divided;

static double value_of(const double *along, const double *point)
{
    return along[0] * point[0] + along[1] * point[1];
}

static double value_at(const Tree *tree, const double *along, double x, double y)
{
    return along[0] * score_of(tree, x, 0) + along[1] * score_of(tree, y, 1);
}

/* The smallest (largest) value in a box: rounding is monotone, so corners bound all points. */
static double least_in(const Tree *tree, const double *along, const double *box)
{
    return value_at(tree, along, box[along[0] < 0 ? 2 : 0], box[along[1] < 0 ? 3 : 1]);
}

static double most_in(const Tree *tree, const double *along, const double *box)
{
    return value_at(tree, along, box[along[0] < 0 ? 0 : 2], box[along[1] < 0 ? 1 : 3]);
}

/* How far along a node reaches on the side asked for; -inf if it has no point there. */
static double reach(const Divided *h, const double *along, int rejected, int32_t node)
{
    const double *box = h->tree->box + 4 * (int64_t)node;
    if (!h->tree->sums[(int64_t)node * h->tree->width + MARK]) return -HUGE_VAL;
    if (rejected)
        return most_in(h->tree, h->weight, box) <= h->v ? -HUGE_VAL
                                                        : -least_in(h->tree, along, box);
    return least_in(h->tree, h->weight, box) > h->v ? -HUGE_VAL : most_in(h->tree, along, box);
}

/* The farthest accepted point along a direction, or the rejected one that is least far; -1 for
 * none. `best` becomes its value, negative for a rejected point. */
static int64_t farthest(const Divided *h, const double *along, int rejected, double *best)
{
    const Tree *tree = h->tree;
    double pending_reach[LEVELS];
    int32_t pending[LEVELS];
    int waiting = 0;
    int64_t found = -1;
    *best = -HUGE_VAL;
    if (tree->points == 0) return -1;
    pending_reach[waiting] = reach(h, along, rejected, 0);
    pending[waiting++] = 0;
    while (waiting) {
        int32_t index = pending[--waiting];
        if (!(pending_reach[waiting] > *best)) continue;
        const Node *node = opened(tree, index);
        if (node->child) {
            double reached[2];
            for (int k = 0; k < 2; k++) reached[k] = reach(h, along, rejected, node->child + k);
            int nearer = reached[1] < reached[0];
            for (int k = 0; k < 2; k++) {
                int which = k == 0 ? nearer : 1 - nearer;
                pending_reach[waiting] = reached[which];
                pending[waiting++] = node->child + which;
            }
            continue;
        }
        for (int64_t i = node->first; i < node->end; i++) {
            const double *point = tree->point + 2 * i;
            double value = value_at(tree, along, point[0], point[1]);
            int side = !(value_at(tree, h->weight, point[0], point[1]) <= h->v);
            if (rejected) value = -value;
            if (side == rejected && value > *best && tree->mass[i * tree->width + MARK]) {
                *best = value;
                found = i;
            }
        }
    }
    return found;
}

void margin_sides(const Tree *tree, const double *weight, double v, const double *along,
                  double *last, double *following)
{
    Divided h = {tree, weight, v};
    farthest(&h, along, 0, last);
    farthest(&h, along, 1, following);
    *following = -*following;
}

void margin_settle(const Tree *tree, const double *weight, double v, double *unit,
                   double *threshold)
{
    double length = hypot(weight[0], weight[1]), last, following;
    unit[0] = weight[0] / length;
    unit[1] = weight[1] / length;
    margin_sides(tree, weight, v, unit, &last, &following);
    double middle = last + (following - last) / 2;
    *threshold = last <= middle && middle < following ? middle : last;
}

/* Points of one side seen so far, in spreads. */
typedef struct {
    double at[ROUNDS + 1][2];
    int count;
} Few;

/* Add a point and tell whether it is new. */
static int learn(Few *few, const double *point)
{
    for (int k = 0; k < few->count; k++)
        if (few->at[k][0] == point[0] && few->at[k][1] == point[1]) return 0;
    few->at[few->count][0] = point[0];
    few->at[few->count++][1] = point[1];
    return 1;
}

typedef struct {
    const Few *accepted, *rejected;
    const int *nonneg;
    double direction[2], width;
} Widest;

static void try_gap_along(Widest *w, double x, double y)
{
    if ((w->nonneg[0] && !(x >= 0)) || (w->nonneg[1] && !(y >= 0))) return;
    double length = hypot(x, y), low = HUGE_VAL, high = -HUGE_VAL;
    if (!(length > 0)) return;
    double along[2] = {x / length, y / length};
    for (int k = 0; k < w->rejected->count; k++)
        low = fmin(low, value_of(along, w->rejected->at[k]));
    for (int k = 0; k < w->accepted->count; k++)
        high = fmax(high, value_of(along, w->accepted->at[k]));
    if (!(low - high > w->width)) return;
    w->width = low - high;
    w->direction[0] = along[0];
    w->direction[1] = along[1];
}

static void try_edges(Widest *w, const Few *few, double sign)
{
    for (int i = 0; i < few->count; i++)
        for (int j = i + 1; j < few->count; j++)
            try_gap_along(w, -sign * (few->at[j][1] - few->at[i][1]),
                          sign * (few->at[j][0] - few->at[i][0]));
}

/* The widest gap is spanned by two points, or by an edge of one side and a point of the other,
 * or is cut off where the directions end. */
static void widest_of_few(Widest *w)
{
    w->width = -HUGE_VAL;
    for (int i = 0; i < w->rejected->count; i++)
        for (int j = 0; j < w->accepted->count; j++)
            try_gap_along(w, w->rejected->at[i][0] - w->accepted->at[j][0],
                          w->rejected->at[i][1] - w->accepted->at[j][1]);
    for (int sign = 1; sign >= -1; sign -= 2) {
        try_edges(w, w->accepted, sign);
        try_edges(w, w->rejected, sign);
    }
    try_gap_along(w, 1, 0);
    try_gap_along(w, 0, 1);
    try_gap_along(w, -1, 0);
    try_gap_along(w, 0, -1);
}

/* The closest points along a direction and the width between them, all in spreads; 0 if there is
 * no point on one side. */
static int look(const Divided *h, const double *scale, const double *direction, double *inside,
                double *outside, double *width)
{
    double along[2] = {direction[0] / scale[0], direction[1] / scale[1]}, value;
    int64_t in = farthest(h, along, 0, &value), out = farthest(h, along, 1, &value);
    if (in < 0 || out < 0) return 0;
    for (int k = 0; k < 2; k++) {
        inside[k] = score_of(h->tree, h->tree->point[2 * in + k], k) / scale[k];
        outside[k] = score_of(h->tree, h->tree->point[2 * out + k], k) / scale[k];
    }
    double gap[2] = {outside[0] - inside[0], outside[1] - inside[1]};
    *width = value_of(direction, gap) / hypot(direction[0], direction[1]);
    return 1;
}

void margin_widest(const Tree *tree, const double *weight, double v, const double *scale,
                   const int *nonneg, double *direction, double *width)
{
    Divided h = {tree, weight, v};
    Few accepted = {.count = 0}, rejected = {.count = 0};
    Widest w = {.accepted = &accepted, .rejected = &rejected, .nonneg = nonneg};
    double first[2] = {weight[0] * scale[0], weight[1] * scale[1]}, first_width, inside[2],
           outside[2], found;
    *width = HUGE_VAL;
    direction[0] = 1 / scale[0];
    direction[1] = 1 / scale[1];
    if (!look(&h, scale, first, inside, outside, &first_width)) return;
    *width = -HUGE_VAL;
    for (int round = 0; round < ROUNDS; round++) {
        int new_inside = learn(&accepted, inside), new_outside = learn(&rejected, outside);
        if (!new_inside && !new_outside) break;
        widest_of_few(&w);
        /* Floats without an order, or beyond their range, leave nothing to go on with. */
        if (!(w.width > -HUGE_VAL)) break;
        if (!look(&h, scale, w.direction, inside, outside, &found)) break;
        if (found > *width) {
            *width = found;
            direction[0] = w.direction[0] / scale[0];
            direction[1] = w.direction[1] / scale[1];
        }
    }
    if (*width <= 0) {
        /* Rounding has eaten the gap of every direction but the one that came. */
        *width = first_width;
        direction[0] = first[0] / scale[0];
        direction[1] = first[1] / scale[1];
    }
}
