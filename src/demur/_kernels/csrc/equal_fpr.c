/* The best rate at equal FPR, for all levels by one branch and bound.
 *
 * In one direction the half-plane of a level, an OOD mass, is the largest that accepts no more
 * OOD than that: it ends just below an OOD point. So only cells under the line of an OOD point
 * count, and one whose OOD mass is m, under a point with mass w, serves the levels m .. m+w-1.
 * A box without such a line has none. In any other the rate is at most
 *
 *     (correct + crossing correct) / (correct + crossing correct + wrong),
 *
 * or 0 if nothing but wrong ID crosses it (the extra mass is that of wrong ID once more, since of
 * OOD sets the crossing part is not known). It matters only if that beats, by more than the gap,
 * what is known for one of the levels from its certain OOD mass on to the last that its crossing
 * OOD mass allows. Of whole points many lines may meet: the set below all of them serves the
 * levels of all of them, though only in that direction (see leaf.c).
 *
 * As in frontier.c the search is repeated with ever smaller gaps. Cuts are put a little beside
 * the lines (see split.c): a line along a cut would belong to neither part.
 */
#include "equal_fpr.h"

#include <math.h>
#include <stdlib.h>

#define STARTS 12       /* single directions tried per quarter */
#define FIRST_GAP 4e-3  /* the first gap */
#define GAP_RATIO 4.0   /* how much smaller the next one is */
#define LAST_GAP 1e-6   /* the last gap before none */
#define BLOCK_LEVELS 64 /* levels whose lowest rate is kept */

enum { OOD_MASS = ID, CORRECT = LOSS, WRONG = FIRST_OOD };

static double rate_of(int64_t correct, int64_t wrong)
{
    return correct + wrong > 0 ? (double)correct / (double)(correct + wrong) : -1;
}

/* Whether one of the levels has a rate below `rate`. */
static int beats_any(const EqualFpr *e, int64_t first, int64_t end, double rate)
{
    if (end > e->levels) end = e->levels;
    for (int64_t k = first; k < end;) {
        if (k % BLOCK_LEVELS == 0 && k + BLOCK_LEVELS <= end) {
            if (e->lowest[k / BLOCK_LEVELS] < rate) return 1;
            k += BLOCK_LEVELS;
        } else if (e->rate[k++] < rate) {
            return 1;
        }
    }
    return 0;
}

static int judge_equal_fpr(Search *s, Box *box, const int64_t *sums)
{
    const EqualFpr *e = s->frontier;
    int64_t first = sums[OOD_MASS], crossing = box->crossing.id;
    double most = rate_of(sums[CORRECT] + box->crossing.loss, sums[WRONG]);
    /* Where no ID row is certain a wrong one makes the rate 0, which is more than none. */
    if (most < 0 && sums[s->extra_at] > 0) most = 0;
    box->merit = -most;
    if (crossing == 0 || most < 0) return HOPELESS;
    return beats_any(e, first, first + crossing, most - e->gap) ? PROMISING : HOPELESS;
}

static int equal_fpr_wanted(Search *s, const int64_t *sums)
{
    double rate = rate_of(sums[CORRECT], sums[WRONG]);
    return rate >= 0 && beats_any(s->frontier, sums[OOD_MASS], sums[OOD_MASS] + s->rim, rate);
}

static void keep_lowest(EqualFpr *e, int64_t block)
{
    int64_t first = block * BLOCK_LEVELS, end = first + BLOCK_LEVELS;
    double lowest = HUGE_VAL;
    for (int64_t k = first; k < end && k < e->levels; k++)
        lowest = e->rate[k] < lowest ? e->rate[k] : lowest;
    e->lowest[block] = lowest;
}

static void equal_fpr_take(Search *s, const int64_t *sums, const double *weight, double v)
{
    EqualFpr *e = s->frontier;
    const Chosen chosen = {sums[OOD_MASS], sums[CORRECT], sums[WRONG]};
    double rate = rate_of(chosen.correct, chosen.wrong);
    int64_t end = chosen.ood + s->rim < e->levels ? chosen.ood + s->rim : e->levels;
    for (int64_t k = chosen.ood; k < end; k++) {
        if (e->rate[k] >= rate) continue;
        double before = e->rate[k];
        e->rate[k] = rate;
        e->chosen[k] = chosen;
        e->weight[2 * k] = weight[0];
        e->weight[2 * k + 1] = weight[1];
        e->v[k] = v;
        if (before <= e->lowest[k / BLOCK_LEVELS]) keep_lowest(e, k / BLOCK_LEVELS);
    }
}

static int try_directions(Search *s, const int64_t *quarter, int quarters)
{
    for (int k = 0; k < STARTS * quarters; k++) {
        double angle = (k % STARTS + 0.4653) * RIGHT_ANGLE / STARTS, weight[2];
        direction_at(s->tree, (int)quarter[k / STARTS], angle, weight);
        if (explore_direction(s, weight)) return -1;
    }
    return 0;
}

int search_equal_fpr(Search *s, EqualFpr *e, const int64_t *quarter, int quarters)
{
    const double gap = e->gap;
    int64_t blocks = (e->levels + BLOCK_LEVELS - 1) / BLOCK_LEVELS;
    s->frontier = e;
    s->judge = judge_equal_fpr;
    s->wanted = equal_fpr_wanted;
    s->take = equal_fpr_take;
    s->beside = 1;
    e->lowest = malloc((size_t)(blocks + 1) * sizeof *e->lowest);
    int failed = !e->lowest || search_open(s);
    for (int64_t k = 0; k < blocks && !failed; k++) keep_lowest(e, k);
    if (!failed && s->tree->points > 0) {
        e->gap = FIRST_GAP;
        failed = try_directions(s, quarter, quarters);
        for (; !failed && e->gap > GAP_RATIO * gap && e->gap >= LAST_GAP; e->gap /= GAP_RATIO)
            failed = explore(s, quarter, quarters);
        e->gap = gap;
        failed = failed || explore(s, quarter, quarters);
    }
    free(e->lowest);
    return failed ? -1 : 0;
}
