#include "trail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vectors.h"

#define FEW_POINTS 64    /* boxes crossed by fewer are not cut, */
#define MOST_STEPS 20000 /* and none once there are so many */

void trail_free(Trail *trail)
{
    free(trail->step);
    free(trail->item);
}

/* Append the nodes, then the points of a list. */
static int append(Trail *trail, const Items *items, int32_t *count)
{
    int64_t end = trail->items + items->count;
    if (end > trail->item_room) {
        if (MAKE_ROOM(&trail->item, 2 * (size_t)end)) return -1;
        trail->item_room = 2 * end;
    }
    for (int points = 0; points < 2; points++) {
        int64_t before = trail->items;
        for (int64_t k = 0; k < items->count; k++)
            if ((items->item[k] < 0) == points) trail->item[trail->items++] = items->item[k];
        count[points] = (int32_t)(trail->items - before);
    }
    return 0;
}

/* Add a box under construction; it is not cut if `last`. */
static int add_step(Trail *trail, Part *part, int32_t parent, int last)
{
    if (trail->steps == trail->step_room) {
        size_t room = 2 * (size_t)trail->steps + 256;
        if (MAKE_ROOM(&trail->step, room)) return -1;
        trail->step_room = (int64_t)room;
    }
    Step *step = trail->step + trail->steps;
    memset(step, 0, sizeof *step);
    step->zone = part->box.zone;
    step->first = trail->items;
    step->parent = parent;
    step->chart = part->box.chart;
    step->depth = part->box.depth;
    step->last = last;
    if (append(trail, &part->below, step->below)) return -1;
    if (last && append(trail, &part->items, step->crossing)) return -1;
    part->box.step = (int32_t)trail->steps++;
    return 0;
}

/* A popped box is not cut after all. */
static int end_at(Search *s, Trail *trail, const Box *box)
{
    Part *part = &s->part[0];
    part->box = *box;
    part->below.count = part->items.count = 0;
    if (reserve_items(&part->items, s->popped.count)) return -1;
    memcpy(part->items.item, s->popped.item, (size_t)s->popped.count * sizeof(int32_t));
    part->items.count = s->popped.count;
    return add_step(trail, part, box->step, 1);
}

static int record_part(Search *s, Trail *trail, Part *part, int32_t parent)
{
    int few = part->box.nodes == 0 && part->items.count < FEW_POINTS;
    int last = s->judge(s, &part->box, part->sums) == HOPELESS || few;
    if (add_step(trail, part, parent, last)) return -1;
    return last ? 0 : stack_push(&s->now, &part->box, &part->items, part->sums, s->row_size);
}

static int record_box(Search *s, Trail *trail, int64_t *sums)
{
    Box box;
    if (stack_pop(&s->now, &box, &s->popped, sums, s->row_size)) return -1;
    int parts = trail->steps < MOST_STEPS ? split_zone(s, &box, sums, 0) : 0;
    if (parts == 0) return end_at(s, trail, &box);
    for (int k = 0; k < parts; k++)
        if (record_part(s, trail, s->part + k, box.step)) return -1;
    return parts < 0 ? -1 : 0;
}

int record_trail(Search *s, Trail *trail, const int64_t *quarter, int quarters, double slack)
{
    static const double all[2] = {0, 1};
    int64_t *sums = malloc((size_t)s->row_size * sizeof *sums);
    int failed = !sums;
    s->value += slack * fabs(s->value);
    if (!failed && !s->simple && s->program.per_id) failed = grade_tree(s, s->value);
    trail->points = s->tree->points;
    trail->nodes = s->tree->nodes;
    begin_charts(s, quarter, quarters);
    s->recording = 1;
    for (int c = 0; c < 2 * quarters && !failed; c++) {
        s->part[0].below.count = 0;
        failed = begin_root(s, c, all) || record_part(s, trail, s->part, -1);
    }
    while (!failed && s->now.count > 0)
        failed = interrupted(s->signals, 1) || record_box(s, trail, sums);
    s->recording = 0;
    free(sums);
    return failed ? -1 : 0;
}

int trail_sound(const Trail *trail, const Tree *tree, int charts)
{
    int sound = trail->steps == 0 || (trail->points == tree->points && trail->nodes == tree->nodes);
    for (int64_t k = 0; k < trail->steps; k++) {
        const Step *step = trail->step + k;
        int64_t end = step->first;
        for (int points = 0; points < 2; points++) {
            sound &= step->below[points] >= 0 && step->crossing[points] >= 0;
            end += (int64_t)step->below[points] + step->crossing[points];
        }
        sound &= step->first >= 0 && end <= trail->items;
        sound &= step->parent >= -1 && step->parent < k && step->chart >= 0 && step->chart < charts;
    }
    return sound;
}

/* With one set of OOD, by far the most frequent case, all sums stay in registers. */
ALWAYS_INLINE void add_chosen_loops(const int64_t *rows, const int32_t *item, int32_t count,
                                    int32_t flip, int64_t *sums)
{
    enum { WIDTH = FIRST_OOD + 1 };
    uint64_t total[WIDTH] = {0};
    for (int32_t k = 0; k < count; k++) {
        const int64_t *row = rows + (int64_t)(item[k] ^ flip) * WIDTH;
        for (int c = 0; c < WIDTH; c++) total[c] += (uint64_t)row[c];
    }
    for (int c = 0; c < WIDTH; c++) sums[c] = add(sums[c], (int64_t)total[c]);
}

WITH_WIDEST_VECTORS(static, add_chosen,
                    (const int64_t *rows, const int32_t *item, int32_t count, int32_t flip,
                     int64_t *sums),
                    (rows, item, count, flip, sums))

/* Add up the masses of so many nodes, then points. */
static void add_items(const Tree *tree, const int32_t *item, const int32_t *count, int64_t *sums)
{
    const int64_t *rows[2] = {tree->sums, tree->mass};
    const int width = tree->width;
    for (int points = 0; points < 2; item += count[points++]) {
        const int32_t flip = -points;
        if (width == FIRST_OOD + 1) {
            add_chosen(rows[points], item, count[points], flip, sums);
            continue;
        }
        for (int32_t k = 0; k < count[points]; k++)
            add_row(sums, rows[points] + (int64_t)(item[k] ^ flip) * width, width);
    }
}

/* What crosses a box could add. */
static void add_crossing(Search *s, const int32_t *item, Box *box, int64_t *sums)
{
    const Tree *tree = s->tree;
    const int32_t count[2] = {box->nodes, box->count - box->nodes};
    memset(s->row, 0, (size_t)tree->width * sizeof *s->row);
    add_items(tree, item, count, s->row);
    box->crossing.id = s->row[ID];
    box->crossing.loss = s->row[LOSS];
    for (int e = 0; e < tree->extra; e++)
        sums[s->extra_at + e] = s->row[FIRST_OOD + tree->sets + e];
    for (int32_t k = 0; k < box->count && s->grade; k++) {
        double good, gain;
        if (k < box->nodes) {
            good = s->grade[2 * (int64_t)item[k]];
            gain = s->grade[2 * (int64_t)item[k] + 1];
        } else {
            gain = graded_gain(s, tree->mass + (int64_t)~item[k] * tree->width, &good);
        }
        box->crossing.good += good;
        box->crossing.gain += gain;
    }
}

/* Let a box wait, without the items that have no mass any more. */
static int push_again(Search *s, Box *box, const int32_t *item, const int64_t *sums)
{
    const Tree *tree = s->tree;
    Items *kept = &s->waiting;
    kept->count = 0;
    if (reserve_items(kept, box->count)) return -1;
    for (int32_t k = 0, nodes = box->nodes; k < box->count; k++) {
        int64_t mark = k < nodes ? tree->sums[(int64_t)item[k] * tree->width + MARK]
                                 : tree->mass[(int64_t)~item[k] * tree->width + MARK];
        if (mark)
            kept->item[kept->count++] = item[k];
        else
            box->nodes -= k < nodes;
    }
    return stack_push(&s->now, box, kept, sums, s->row_size);
}

/* Judge a box that was not cut; its merit is kept. */
static int judge_again(Search *s, const Step *step, const int32_t *item, int64_t *sums, Box *box)
{
    *box = (Box){.zone = step->zone, .level = s->level, .bad = s->bad};
    box->nodes = step->crossing[0];
    box->count = step->crossing[0] + step->crossing[1];
    box->chart = (int16_t)step->chart;
    box->depth = (int16_t)step->depth;
    add_crossing(s, item, box, sums);
    s->boxes++;
    return s->judge(s, box, sums);
}

static const int32_t *crossing_items(const Trail *trail, const Step *step)
{
    return trail->item + step->first + step->below[0] + step->below[1];
}

/* Add up masses along the trail, and list the boxes that may hold something better by merit. */
static int64_t add_up(Search *s, const Trail *trail, int64_t *all, Keyed *open)
{
    const size_t width = (size_t)s->row_size;
    int64_t count = 0;
    for (int64_t k = 0; k < trail->steps; k++) {
        const Step *step = trail->step + k;
        int64_t *sums = all + (size_t)k * width;
        Box box;
        if (interrupted_in_loop(s->signals, k)) return -1;
        if (step->parent >= 0) memcpy(sums, all + (size_t)step->parent * width, width * sizeof *sums);
        add_items(s->tree, trail->item + step->first, step->below, sums);
        if (!step->last || judge_again(s, step, crossing_items(trail, step), sums, &box) == HOPELESS)
            continue;
        open[count].key = -box.merit;
        open[count++].item = (int32_t)k;
    }
    sort_keyed(open, open + trail->steps, count);
    return count;
}

/* Let the boxes wait, the most promising on top. */
static int let_wait(Search *s, const Trail *trail, int64_t *all, const Keyed *open, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        const Step *step = trail->step + open[k].item;
        const int32_t *item = crossing_items(trail, step);
        int64_t *sums = all + (size_t)open[k].item * (size_t)s->row_size;
        Box box;
        if (judge_again(s, step, item, sums, &box) != HOPELESS && push_again(s, &box, item, sums))
            return -1;
    }
    return 0;
}

int follow_trail(Search *s, const Trail *trail, const int64_t *quarter, int quarters)
{
    int64_t *all = calloc((size_t)trail->steps * (size_t)s->row_size, sizeof *all);
    Keyed *open = malloc(2 * (size_t)trail->steps * sizeof *open);
    begin_charts(s, quarter, quarters);
    int64_t count = all && open ? add_up(s, trail, all, open) : -1;
    int failed = count < 0 || let_wait(s, trail, all, open, count);
    free(all);
    free(open);
    return failed || explore_waiting(s) ? -1 : 0;
}
