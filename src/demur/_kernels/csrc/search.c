/* Half-planes over all directions, by branch and bound in the dual plane.
 *
 * A direction with two weights of known sign is (1, t) or (t, 1), t in [0, 1], up to scale.
 * In such an octant point i becomes the line v_i(t) = x_i + t*y_i, and a half-plane becomes the
 * point (t, v): it accepts the points whose lines pass below it. Accepted sets are the cells
 * of the arrangement of all lines.
 *
 * A *box* is a trapezoid of the (t, v) plane with the sums of all masses whose lines pass below
 * it and the list of *items*, nodes of the tree or single points, that cross it. Boxes are
 * taken from a stack, the more promising on top (some may be put off to a later stage):
 *
 *   - bound.c: discard the box if nothing in it can beat the best half-plane found
 *              (frontier.c: the best ones, for all operating points at once);
 *   - leaf.c:  if only few points cross it, try every cell inside;
 *   - split.c: otherwise cut it in two, across t where lines drift apart by more than the height
 *              of the box, along the lines where they do not, and sort the items into the parts,
 *              opening nodes that are large compared to the height; where that hardly parts the
 *              lines survey.c looks for a better cut;
 *   - mesh.c:  for frontiers, cut a box that a few thousand points cross into many parts.
 *
 * A single direction is searched by the same loop, with boxes that have no width; optimum.c gets
 * its first half-planes to beat that way.
 *
 * Masses are integers, and half-planes are compared exactly; bounds are floats with a slack for
 * their rounding. A half-plane is taken only after float64 was seen to accept exactly the masses
 * expected. Boxes overlap by rounding errors, and lines that may cross do (see sides.c), so that
 * no cell is lost; what float64 cannot take apart is put aside (see leaf.c), or unresolved.
 */
#include "mesh.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAF_LINE 64    /* points crossing a box of a single direction that is tried as a leaf, */
#define FEW_CROSSINGS 8 /* and crossings of their lines worth walking through with more points */
#define MANY 100000     /* crossings times points walked through where a box cannot be cut */
#define STUBBORN 0.6    /* part of the ID mass that still crosses after four cuts that did little, */
#define IDLE 0.9        /* and after one, */
#define WITH_CARE 8     /* after which so many are chosen with care */
#define DEEPEST 30000
#define MOST_DOUBTS 4096  /* boxes put aside, for one optimum */
#define MOST_DOUBTS_OF_ALL 65536 /* and for all pairs of bounds, */
#define DOUBTFUL_POINTS 1024 /* and points that cross one */
#define REGRADE 0.98    /* grade anew when the value to beat fell below this part of the level */
#define VALUE_ROUNDING DBL_EPSILON

/* Among whole points a line within rounding of an edge touches it, and may count as outside; else
 * it may cross, and does so. */
static double value_rounding(const Search *s)
{
    return s->tree->whole ? VALUE_ROUNDING : -2 * VALUE_ROUNDING;
}

/* Relative errors cover what is lost of a product unless all of a value is as small. Whole points
 * are far from there; elsewhere it puts boxes in doubt, if anybody will look at them. */
static double value_lost(const Search *s)
{
    return s->tree->whole || !s->keep_doubts ? 0 : LOST;
}

int search_open(Search *s)
{
    s->extra_at = s->tree->width + 2 * s->classes;
    s->row_size = s->extra_at + s->tree->extra;
    size_t width = (size_t)s->row_size;
    s->level = s->bad = s->lower = HUGE_VAL;
    s->rounding = value_rounding(s);
    s->lost = value_lost(s);
    s->simple = units_known(s);
    for (int k = 0; k < 2; k++)
        if (MAKE_ROOM(&s->part[k].sums, width)) return -1;
    if (MAKE_ROOM(&s->row, width)) return -1;
    return MAKE_ROOM(&s->counted, width);
}

void search_close(Search *s)
{
    for (int k = 0; k < 2; k++) {
        free(s->part[k].sums);
        free(s->part[k].items.item);
        free(s->part[k].below.item);
    }
    free(s->row);
    free(s->counted);
    free(s->grade);
    stack_free(&s->now);
    stack_free(&s->later);
    stack_free(&s->doubts);
    free(s->popped.item);
    free(s->waiting.item);
    free(s->line);
    free(s->order);
    free(s->spare);
    free(s->keyed);
    free(s->prefix);
    free(s->crossing);
    free(s->since);
    free(s->settled);
    free_mesh(s->mesh);
}

static int reserve_lines(Search *s, int64_t count)
{
    if (count <= s->lines_room && s->line) return 0;
    size_t room = 2 * (size_t)count;
    if (MAKE_ROOM(&s->line, room)) return -1;
    if (MAKE_ROOM(&s->order, room)) return -1;
    if (MAKE_ROOM(&s->spare, room)) return -1;
    if (MAKE_ROOM(&s->keyed, 2 * room)) return -1;
    if (MAKE_ROOM(&s->prefix, (room + 1) * (size_t)s->tree->width)) return -1;
    if (MAKE_ROOM(&s->crossing, room + 1)) return -1;
    if (MAKE_ROOM(&s->since, room + 1)) return -1;
    if (MAKE_ROOM(&s->settled, room + 1)) return -1;
    s->lines_room = (int64_t)room;
    return 0;
}

/* Put a part where it belongs. */
static int push(Search *s, const Part *part, int verdict)
{
    if (verdict == HOPELESS) return 0;
    Stack *stack = verdict == PUT_OFF ? &s->later : &s->now;
    return stack_push(stack, &part->box, &part->items, part->sums, s->row_size);
}

int begin_root(Search *s, int chart, const double *t)
{
    Part *part = &s->part[0];
    memset(&part->box, 0, sizeof part->box);
    memset(part->sums, 0, (size_t)s->row_size * sizeof(int64_t));
    for (int c = 0; c < 2 * s->classes; c++) part->sums[s->tree->width + c] = s->class_sums[c];
    for (int e = 0; e < s->tree->extra; e++)
        part->sums[s->extra_at + e] = s->tree->sums[FIRST_OOD + s->tree->sets + e];
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
    return 0;
}

static int push_root(Search *s, int chart, const double *t)
{
    Part *part = &s->part[0];
    return begin_root(s, chart, t) || push(s, part, s->judge(s, &part->box, part->sums)) ? -1 : 0;
}

/* Push both parts of a box, the better one on top. */
static int push_parts(Search *s, int parts)
{
    int verdict[2] = {HOPELESS, HOPELESS};
    for (int k = 0; k < parts; k++)
        verdict[k] = s->judge(s, &s->part[k].box, s->part[k].sums);
    int worse = s->part[1].box.merit > s->part[0].box.merit;
    if (push(s, &s->part[worse], verdict[worse])) return -1;
    return push(s, &s->part[1 - worse], verdict[1 - worse]);
}

/* See whether the last cut left nearly everything crossing. Returns whether several did, as they do
 * where many lines meet. */
static int stubborn(Box *box)
{
    const int64_t now = box->crossing.id > 0 ? box->crossing.id : box->count;
    const int64_t last = box->last, before = box->before;
    box->last = now;
    if (last > 0 && (double)now > IDLE * (double)last)
        box->idle = WITH_CARE;
    else if (box->idle > 0)
        box->idle--;
    if (box->depth % 4) return 0;
    box->before = now;
    return before > 0 && (double)now > STUBBORN * (double)before;
}

/* Put a box aside that float64 cannot settle. What is not kept bounds the objective. */
static int set_aside(Search *s, const Box *box, const int64_t *sums)
{
    if (box->nodes == 0) {
        if (reserve_lines(s, box->count)) return -1;
        if (is_fan(s, box)) return 0;
    }
    if (s->keep_doubts && box->nodes == 0 && box->count <= DOUBTFUL_POINTS &&
        s->doubts.count < (s->give_up ? MOST_DOUBTS_OF_ALL : MOST_DOUBTS))
        return stack_push(&s->doubts, box, &s->popped, sums, s->row_size);
    if (s->give_up) s->give_up(s, box, sums);
    s->unresolved++;
    if (box->merit < s->lower) s->lower = box->merit;
    return 0;
}

int settle(Search *s, const Box *box, const int64_t *sums, int64_t crossings)
{
    if (box->nodes > 0 || crossings < 0) return 0;
    if (reserve_lines(s, box->count)) return -1;
    s->doubtful = 0;
    if (!walk_leaf(s, box, sums, crossings)) return 0;
    return s->doubtful && set_aside(s, box, sums) ? -1 : 1;
}

/* How many crossings are worth walking through, -1 for none at all. */
static int64_t crossings_worth(const Search *s, const Box *box)
{
    int single = box->zone.t[0] == box->zone.t[1];
    if (box->nodes > 0) return -1;
    if (box->count <= (single ? LEAF_LINE : LEAF)) return INT64_MAX;
    return single || lines_cross(s, box) ? -1 : FEW_CROSSINGS;
}

static int visit_box(Search *s, int64_t *sums)
{
    Box box;
    if (stack_pop(&s->now, &box, &s->popped, sums, s->row_size)) return -1;
    s->boxes++;
    int verdict = s->judge(s, &box, sums);
    if (verdict == HOPELESS) return 0;
    if (verdict == PUT_OFF) return stack_push(&s->later, &box, &s->popped, sums, s->row_size);
    int done = s->mesh ? search_points(s, &box, sums) : 0, insist = stubborn(&box);
    if (!done) done = settle(s, &box, sums, crossings_worth(s, &box));
    if (done) return done < 0 ? -1 : 0;
    if (too_low(s, &box)) {
        int single = box.zone.t[0] == box.zone.t[1];
        if (single || (s->tree->whole && !s->beside)) return 0;
        if (s->tree->whole && box.nodes == 0) {
            if (reserve_lines(s, box.count)) return -1;
            try_vertex(s, &box, sums);
            return 0;
        }
        if (box.nodes == 0) return set_aside(s, &box, sums);
        /* To cut it again and again would make none smaller, but its nodes can be opened. */
        insist = 1;
    }
    int parts = box.depth < DEEPEST ? split_zone(s, &box, sums, insist) : 0;
    if (parts < 0) return -1;
    if (parts > 0) return push_parts(s, parts);
    done = settle(s, &box, sums, MANY / (box.count + 1));
    if (done == 0) done = set_aside(s, &box, sums);
    return done < 0 ? -1 : 0;
}

/* Grade anew once the value to beat has become much better. */
int keep_grade(Search *s)
{
    if (s->simple || !s->program.per_id || !s->found) return 0;
    int stale = s->value < REGRADE * s->level || s->value > s->level;
    return stale ? grade_tree(s, s->value) : 0;
}

static void next_stage(Search *s)
{
    Stack now = s->now;
    s->now = s->later;
    s->later = now;
    if (++s->stage > s->last_stage) stack_clear(&s->now);
}

int explore_waiting(Search *s)
{
    int64_t *sums = malloc((size_t)s->row_size * sizeof *sums);
    int failed = !sums;
    while (!failed && s->now.count + s->later.count > 0 && s->boxes < s->budget) {
        if (s->now.count == 0)
            next_stage(s);
        else
            failed = interrupted(s->signals, 1) || visit_box(s, sums) || keep_grade(s);
    }
    free(sums);
    return failed ? -1 : 0;
}

/* Search all of the charts, from t[0] to t[1]. */
static int explore_between(Search *s, Chart *chart, int charts, const double *t)
{
    s->chart = chart;
    for (int c = charts - 1; c >= 0; c--)
        if (push_root(s, c, t)) return -1;
    return explore_waiting(s);
}

void begin_charts(Search *s, const int64_t *quarter, int quarters)
{
    for (int k = 0; k < 2 * quarters; k++)
        s->octant[k] = octant(s->tree, (int)quarter[k / 2], k % 2);
    s->chart = s->octant;
}

int explore(Search *s, const int64_t *quarter, int quarters)
{
    static const double all[2] = {0, 1};
    begin_charts(s, quarter, quarters);
    return explore_between(s, s->octant, 2 * quarters, all);
}

int explore_direction(Search *s, const double *weight)
{
    static const double single[2] = {1, 1};
    Chart chart = single_direction(weight);
    int64_t boxes = s->boxes, budget = s->budget;
    s->rounding = s->lost = 0;
    s->budget = INT64_MAX;
    int failed = explore_between(s, &chart, 1, single);
    s->rounding = value_rounding(s);
    s->lost = value_lost(s);
    s->budget = budget;
    s->boxes = boxes;
    return failed;
}

