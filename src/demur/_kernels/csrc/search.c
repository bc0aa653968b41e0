/* The best half-plane over all directions, by branch and bound in the dual plane.
 *
 * A direction with two weights of known sign is (1, t) or (t, 1), t in [0, 1], up to scale.
 * In such an octant point i becomes the line v_i(t) = x_i + t*y_i, and a half-plane becomes the
 * point (t, v): it accepts the points whose lines pass below it. Accepted sets are the cells
 * of the arrangement of all lines.
 *
 * A *box* is a trapezoid of the (t, v) plane with the sums of all masses whose lines pass below
 * it and the list of *items*, nodes of the tree or single points, that cross it. Boxes are
 * taken from a stack, the more promising on top:
 *
 *   - bound.c: discard the box if nothing in it can beat the best half-plane found;
 *   - leaf.c:  if only few points cross it, try every cell inside;
 *   - split.c: otherwise cut it in two, across t where lines drift apart by more than the height
 *              of the box, along the lines where they do not, and sort the items into the parts,
 *              opening nodes that are large compared to the height.
 *
 * The first half-planes to beat come from a few single directions, searched by the same loop
 * with boxes that have no width. Ties in the objective are broken by larger ID, then smaller
 * OOD mass, and every accepted set that ties in all three is reported.
 *
 * Masses are integers, and half-planes are compared exactly; bounds are floats with a slack for
 * their rounding. Geometry is exact up to what float64 can separate: points closer to the edge
 * of a box than the rounding error of their own values count as crossing, and a half-plane is
 * taken only after float64 was seen to accept exactly the masses expected.
 */
#include "search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifndef LEAF
#define LEAF 24
#endif
#define LEAF_LINE 64       /* the same for a single direction */
#ifndef LEAF_STEPS
#define LEAF_STEPS 200
#endif
#ifndef STARTS
#define STARTS 8          /* single directions tried per quarter */
#endif
#ifndef REFINEMENTS
#define REFINEMENTS 6      /* times the distance to the best of them is halved */
#endif
#ifndef START_GAP
#define START_GAP 1e-3     /* smaller improvements are left to the main search */
#endif
#define RIGHT_ANGLE 1.5707963267948966
#define REGRADE 0.98       /* grade anew when the value to beat fell below this part of the level */
#define STUBBORN 0.6       /* part of the ID mass that still crosses after four cuts */
#define DEEPEST 30000
#define ROUNDING 3.4e-16   /* 3 * 2^-53 */

static int make_room(void **array, size_t count, size_t size)
{
    void *grown = realloc(*array, (count ? count : 1) * size);
    if (!grown) return -1;
    *array = grown;
    return 0;
}

int search_open(Search *s)
{
    size_t width = (size_t)s->tree->width;
    s->level = s->bad = s->lower = HUGE_VAL;
    s->rounding = ROUNDING;
    s->simple = units_known(s);
    for (int k = 0; k < 2; k++)
        if (make_room((void **)&s->part[k].sums, width, sizeof(int64_t))) return -1;
    if (make_room((void **)&s->row, width, sizeof(int64_t))) return -1;
    return make_room((void **)&s->counted, width, sizeof(int64_t));
}

void search_close(Search *s)
{
    for (int k = 0; k < 2; k++) {
        free(s->part[k].sums);
        free(s->part[k].items.item);
    }
    free(s->row);
    free(s->counted);
    free(s->grade);
    free(s->stack);
    free(s->stack_sums);
    free(s->pool.item);
    free(s->popped.item);
    free(s->line);
    free(s->order);
    free(s->spare);
    free(s->keyed);
}

/* The set is feasible and not worse than the best known, nor known already. */
static int optimum_wanted(Search *s, const int64_t *sums)
{
    if (!within(&s->program, sums, sums[ID])) return 0;
    if (!s->found) return 1;
    Accepted a = accepted_by(sums, s->tree->sets);
    int sign = compare_accepted(&s->program, a, s->best);
    if (sign != 0) return sign < 0;
    for (int k = 0; k < s->half_planes; k++)
        if (s->half_plane[k].mark == sums[MARK]) return 0;
    return s->half_planes < HALF_PLANES;
}

static void optimum_take(Search *s, const int64_t *sums, const double *weight, double v)
{
    Accepted a = accepted_by(sums, s->tree->sets);
    if (!s->found || compare_accepted(&s->program, a, s->best) < 0) {
        s->found = 1;
        s->best = a;
        s->value = objective(&s->program, a);
        s->half_planes = 0;
    }
    HalfPlane *h = &s->half_plane[s->half_planes++];
    h->weight[0] = weight[0];
    h->weight[1] = weight[1];
    h->v = v;
    h->mark = sums[MARK];
}

static int reserve_lines(Search *s, int64_t count)
{
    if (count <= s->lines_room) return 0;
    size_t room = 2 * (size_t)count;
    if (make_room((void **)&s->line, room, sizeof *s->line)) return -1;
    if (make_room((void **)&s->order, room, sizeof *s->order)) return -1;
    if (make_room((void **)&s->spare, room, sizeof *s->spare)) return -1;
    if (make_room((void **)&s->keyed, 2 * room, sizeof *s->keyed)) return -1;
    s->lines_room = (int64_t)room;
    return 0;
}

static int reserve_items(Items *items, int64_t count)
{
    if (count <= items->room) return 0;
    if (make_room((void **)&items->item, 2 * (size_t)count, sizeof *items->item)) return -1;
    items->room = 2 * count;
    return 0;
}

static int push(Search *s, Part *part)
{
    size_t width = (size_t)s->tree->width;
    if (s->boxes_open == s->boxes_room) {
        size_t room = 2 * (size_t)s->boxes_room + 64;
        if (make_room((void **)&s->stack, room, sizeof *s->stack)) return -1;
        if (make_room((void **)&s->stack_sums, room * width, sizeof *s->stack_sums)) return -1;
        s->boxes_room = (int64_t)room;
    }
    if (reserve_items(&s->pool, s->pool.count + part->items.count)) return -1;
    part->box.first = s->pool.count;
    part->box.count = (int32_t)part->items.count;
    memcpy(s->pool.item + s->pool.count, part->items.item,
           (size_t)part->items.count * sizeof *s->pool.item);
    s->pool.count += part->items.count;
    s->stack[s->boxes_open] = part->box;
    memcpy(s->stack_sums + s->boxes_open * (int64_t)width, part->sums, width * sizeof(int64_t));
    s->boxes_open++;
    return 0;
}

/* The box on top of the stack, with its items in s->popped. */
static int pop(Search *s, Box *box, int64_t *sums)
{
    s->boxes_open--;
    *box = s->stack[s->boxes_open];
    memcpy(sums, s->stack_sums + s->boxes_open * s->tree->width,
           (size_t)s->tree->width * sizeof *sums);
    if (reserve_items(&s->popped, box->count)) return -1;
    memcpy(s->popped.item, s->pool.item + box->first, (size_t)box->count * sizeof(int32_t));
    s->pool.count = box->first;
    return 0;
}

static int push_root(Search *s, int chart, const double *t)
{
    Part *part = &s->part[0];
    memset(&part->box, 0, sizeof part->box);
    memset(part->sums, 0, (size_t)s->tree->width * sizeof(int64_t));
    root_zone(s, &s->chart[chart], t, &part->box.zone);
    part->items.count = 0;
    if (reserve_items(&part->items, 1)) return -1;
    part->items.item[part->items.count++] = 0;
    part->box.crossing.id = s->tree->sums[ID];
    part->box.crossing.loss = s->tree->sums[LOSS];
    if (s->grade) {
        part->box.crossing.good = s->grade[0];
        part->box.crossing.gain = s->grade[1];
    }
    part->box.level = s->level;
    part->box.bad = s->bad;
    part->box.nodes = 1;
    part->box.chart = (int16_t)chart;
    return s->hopeless(s, &part->box, part->sums) ? 0 : push(s, part);
}

static int push_parts(Search *s, int parts)
{
    Part *part = s->part;
    int dead[2] = {0, parts < 2};
    for (int k = 0; k < parts; k++) dead[k] = s->hopeless(s, &part[k].box, part[k].sums);
    int worse = part[1].box.merit > part[0].box.merit || dead[0];
    if (!dead[worse] && push(s, &part[worse])) return -1;
    return dead[1 - worse] ? 0 : push(s, &part[1 - worse]);
}

/* Whether several cuts left nearly all items crossing, as they do where many lines meet. */
static int stubborn(Box *box)
{
    if (box->depth % 4) return 0;
    int64_t before = box->before;
    box->before = box->crossing.id;
    return (double)box->crossing.id > STUBBORN * (double)before && before > 0;
}

/* Whether the box was settled by trying all its cells. */
static int settle(Search *s, const Box *box, const int64_t *sums, int insist)
{
    int single = box->zone.t[0] == box->zone.t[1];
    int64_t steps = box->count ? LEAF_STEPS / box->count : 1;
    if (box->nodes > 0) return 0;
    if (box->count > (single ? LEAF_LINE : LEAF)) {
        if (!insist) return 0;
        steps = 4;
    }
    if (reserve_lines(s, box->count)) return -1;
    return walk_leaf(s, box, sums, steps);
}

static int visit_box(Search *s, int64_t *sums)
{
    Box box;
    if (pop(s, &box, sums)) return -1;
    s->boxes++;
    if (s->hopeless(s, &box, sums)) return 0;
    int insist = stubborn(&box), done = settle(s, &box, sums, insist);
    if (done) return done < 0 ? -1 : 0;
    int parts = box.depth < DEEPEST ? split_zone(s, &box, sums, insist) : 0;
    if (parts < 0) return -1;
    if (parts == 0) {
        s->unresolved++;
        return 0;
    }
    return push_parts(s, parts);
}

static int keep_grade(Search *s)
{
    if (s->simple || !s->program.per_id || !s->found) return 0;
    return s->value < REGRADE * s->level ? grade_tree(s, s->value) : 0;
}

/* Search all of the charts. */
int explore(Search *s, Chart *chart, int charts, const double *t)
{
    int64_t *sums = malloc((size_t)s->tree->width * sizeof *sums);
    int failed = !sums;
    s->chart = chart;
    for (int c = charts - 1; c >= 0 && !failed; c--) failed = push_root(s, c, t);
    while (!failed && s->boxes_open > 0 && s->boxes < s->budget)
        failed = visit_box(s, sums) || keep_grade(s);
    free(sums);
    return failed ? -1 : 0;
}

/* Search one direction for something better by more than `gap`. */
static int try_direction(Search *s, const double *weight, double gap)
{
    static const double single[2] = {1, 1};
    Chart chart = single_direction(weight);
    Search asked = *s;
    s->rounding = 0;
    s->gap = gap;
    s->budget = INT64_MAX;
    int failed = explore(s, &chart, 1, single);
    s->rounding = asked.rounding;
    s->gap = asked.gap;
    s->budget = asked.budget;
    s->boxes = asked.boxes;
    s->gap_used = asked.gap_used;
    s->lower = asked.lower;
    return failed;
}

/* Try the direction at an angle within a quarter, measured with both scores on one scale. */
static int try_angle(Search *s, int quarter, double angle)
{
    Chart chart = octant(s->tree, quarter, 0);
    double weight[2] = {chart.fixed * cos(angle), chart.step * sin(angle)};
    double largest = fmax(fabs(weight[0]), fabs(weight[1]));
    weight[0] /= largest;
    weight[1] /= largest;
    return try_direction(s, weight, s->found ? START_GAP * fabs(s->value) : 0);
}

/* A few directions in every quarter, then closer and closer to the best. */
static int try_some_directions(Search *s, const int64_t *quarter, int quarters)
{
    double step = RIGHT_ANGLE / STARTS, best = 0;
    int where = 0;
    for (int k = 0; k < STARTS * quarters; k++) {
        double angle = (k % STARTS + 0.4653) * step, value = s->value;
        int found = s->found;
        if (try_angle(s, (int)quarter[k / STARTS], angle)) return -1;
        if (!s->found || (found && s->value == value)) continue;
        best = angle;
        where = (int)quarter[k / STARTS];
    }
    for (int k = 0; k < REFINEMENTS && s->found; k++) {
        double centre = best;
        step /= 2;
        for (int side = -1; side <= 1; side += 2) {
            double angle = centre + side * step, value = s->value;
            if (angle < 0 || angle > RIGHT_ANGLE) continue;
            if (try_angle(s, where, angle)) return -1;
            if (s->value != value) best = angle;
        }
    }
    return 0;
}

int search_optimum(Search *s, const int64_t *quarter, int quarters, const double *start,
                   int64_t starts)
{
    static const double all[2] = {0, 1};
    Chart chart[8];
    s->hopeless = optimum_hopeless;
    s->wanted = optimum_wanted;
    s->take = optimum_take;
    for (int k = 0; k < 2 * quarters; k++)
        chart[k] = octant(s->tree, (int)quarter[k / 2], k % 2);
    if (s->tree->points == 0) return 0;
    if (!s->simple && !s->program.per_id && grade_tree(s, 0)) return -1;
    for (int64_t k = 0; k < starts; k++)
        if (try_direction(s, start + 2 * k, 0)) return -1;
    if (starts == 0 && try_some_directions(s, quarter, quarters)) return -1;
    if (keep_grade(s)) return -1;
    if (explore(s, chart, 2 * quarters, all)) return -1;
    for (int64_t k = 0; k < s->boxes_open; k++)
        if (s->stack[k].merit < s->lower) s->lower = s->stack[k].merit;
    return 0;
}
