/* One optimum, over all directions or over given ones.
 *
 * Ties in the objective are broken by larger ID, then smaller OOD, then smaller loss mass; every
 * accepted set that ties in all of them is kept.
 */
#include <math.h>
#include <string.h>

#include "trail.h"

#define OPTIMUM_STARTS 8  /* single directions tried per quarter */
#define REFINEMENTS 3     /* times the distance to the best of them is halved */
#define START_GAP 1e-3    /* relative; smaller improvements are left to the main search */

/* The set is feasible and not worse than the best known, nor known already. */
static int optimum_wanted(Search *s, const int64_t *sums)
{
    if (!within(&s->program, sums, sums[ID]) || !linear_met(&s->program, sums)) return 0;
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

/* Search one direction for something better by more than START_GAP. */
static int try_direction(Search *s, const double *weight)
{
    double gap = s->gap, lower = s->lower;
    int gap_used = s->gap_used;
    s->gap = s->found ? START_GAP * fabs(s->value) : 0;
    int failed = explore_direction(s, weight);
    s->gap = gap;
    s->lower = lower;
    s->gap_used = gap_used;
    return failed;
}

static int try_angle(Search *s, int quarter, double angle)
{
    double weight[2];
    direction_at(s->tree, quarter, angle, weight);
    return try_direction(s, weight);
}

/* A few directions in every quarter, then closer and closer to the best. */
static int try_some_directions(Search *s, const int64_t *quarter, int quarters)
{
    double step = RIGHT_ANGLE / OPTIMUM_STARTS, best = 0;
    int where = 0;
    for (int k = 0; k < OPTIMUM_STARTS * quarters; k++) {
        double angle = (k % OPTIMUM_STARTS + 0.4653) * step, value = s->value;
        int found = s->found;
        if (try_angle(s, (int)quarter[k / OPTIMUM_STARTS], angle)) return -1;
        if (!s->found || (found && s->value == value)) continue;
        best = angle;
        where = (int)quarter[k / OPTIMUM_STARTS];
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
                   int64_t starts, const Trail *trail)
{
    s->judge = judge_optimum;
    s->wanted = optimum_wanted;
    s->take = optimum_take;
    if (s->tree->points == 0) return 0;
    if (!s->simple && !s->program.per_id && grade_tree(s, 0)) return -1;
    for (int64_t k = 0; k < starts; k++) {
        const double *divisor = s->tree->divisor;
        const double weight[2] = {start[2 * k] / divisor[0], start[2 * k + 1] / divisor[1]};
        if (try_direction(s, weight)) return -1;
    }
    if (starts == 0 && try_some_directions(s, quarter, quarters)) return -1;
    if (keep_grade(s)) return -1;
    if (trail ? follow_trail(s, trail, quarter, quarters) : explore(s, quarter, quarters)) return -1;
    for (int64_t k = 0; k < s->now.count; k++)
        if (s->now.box[k].merit < s->lower) s->lower = s->now.box[k].merit;
    return 0;
}

/* The best found in one direction, by a search over several. */
static int direction_wanted(Search *s, const int64_t *sums)
{
    if (!within(&s->program, sums, sums[ID]) || !linear_met(&s->program, sums)) return 0;
    Accepted a = accepted_by(sums, s->tree->sets);
    if (s->found && compare_accepted(&s->program, a, s->best) > 0) return 0;
    return s->here.id == 0 || compare_accepted(&s->program, a, s->here) < 0;
}

static void direction_take(Search *s, const int64_t *sums, const double *weight, double v)
{
    (void)weight;
    s->here = accepted_by(sums, s->tree->sets);
    s->here_v = v;
    if (s->found && compare_accepted(&s->program, s->here, s->best) >= 0) return;
    s->found = 1;
    s->best = s->here;
    s->value = objective(&s->program, s->here);
}

/* A number without common divisor with n, about 0.618 n: its multiples spread evenly. */
static int64_t spreading_step(int64_t n)
{
    int64_t step = (int64_t)(0.6180339887498949 * (double)n);
    for (step = step < 1 ? 1 : step;; step++) {
        if (common_divisor(n, step) == 1) return step;
    }
}

int search_directions(Search *s, const double *weight, int64_t count, int each, Accepted *best,
                      double *v)
{
    s->judge = judge_optimum;
    s->wanted = direction_wanted;
    s->take = direction_take;
    if (s->tree->points > 0 && !s->simple && !s->program.per_id && grade_tree(s, 0)) return -1;
    int64_t step = spreading_step(count), k = 0;
    for (int64_t done = 0; done < count; done++, k = (k + step) % count) {
        memset(&s->here, 0, sizeof s->here);
        s->here_v = NAN;
        if (each) s->found = 0;
        if (s->tree->points > 0 && explore_direction(s, weight + 2 * k)) return -1;
        best[k] = s->here;
        v[k] = s->here_v;
    }
    return 0;
}
