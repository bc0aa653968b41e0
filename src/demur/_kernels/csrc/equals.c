/* All half-planes that accept the masses of one of many targets, by one branch and bound.
 *
 * Half-planes with the same masses are equally good, whatever is asked for; to choose the one
 * with the widest gap all of them have to be known. A box can hold one with masses (id, ood,
 * loss) only if what is certain leaves room for them, and what crosses suffices: ID mass that is
 * still missing beyond the crossing ID without loss comes with losses.
 */
#include "equals.h"

#include <stdlib.h>

/* The first target with at least so much ID mass. */
static int64_t first_with(const Equals *e, int64_t id)
{
    int64_t low = 0, high = e->targets;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (e->target[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The loss that so much ID mass out of the crossing one has at least. */
static int64_t least_loss(const Search *s, const Crossing *crossing, int64_t id)
{
    if (!s->simple) return 0;
    int64_t unit = s->tree->unit[UNIT_LOSS], per = s->tree->unit[UNIT_ID];
    if (unit <= 0 || per != 1) return 0;
    int64_t clean = crossing->id - crossing->loss / unit;
    return id > clean ? (id - clean) * unit : 0;
}

static int judge_equals(Search *s, Box *box, const int64_t *sums)
{
    const Equals *e = s->frontier;
    Accepted certain = accepted_by(sums, s->tree->sets);
    box->merit = 0;
    if (e->found == e->room) return HOPELESS;
    for (int64_t k = first_with(e, certain.id); k < e->targets; k++) {
        const Accepted *t = e->target + k;
        int64_t id = t->id - certain.id, loss = t->loss - certain.loss;
        if (id > box->crossing.id) break;
        if (t->ood >= certain.ood && loss >= 0 && loss <= box->crossing.loss &&
            loss >= least_loss(s, &box->crossing, id))
            return PROMISING;
    }
    return HOPELESS;
}

/* The target with just these masses, -1 for none. */
static int64_t target_of(const Search *s, const Equals *e, const int64_t *sums)
{
    Accepted a = accepted_by(sums, s->tree->sets);
    for (int64_t k = first_with(e, a.id); k < e->targets && e->target[k].id == a.id; k++)
        if (e->target[k].ood == a.ood && e->target[k].loss == a.loss) return k;
    return -1;
}

static int equals_wanted(Search *s, const int64_t *sums)
{
    const Equals *e = s->frontier;
    int64_t target = target_of(s, e, sums);
    if (target < 0 || e->found == e->room) return 0;
    for (int64_t k = e->last[target]; k >= 0; k = e->before[k])
        if (e->mark[k] == sums[MARK]) return 0;
    return 1;
}

static void equals_take(Search *s, const int64_t *sums, const double *weight, double v)
{
    Equals *e = s->frontier;
    int64_t target = target_of(s, e, sums), k = e->found++;
    e->which[k] = target;
    e->line[3 * k] = weight[0];
    e->line[3 * k + 1] = weight[1];
    e->line[3 * k + 2] = v;
    e->mark[k] = sums[MARK];
    e->before[k] = e->last[target];
    e->last[target] = k;
}

int search_equals(Search *s, Equals *e, const int64_t *quarter, int quarters)
{
    s->frontier = e;
    s->judge = judge_equals;
    s->wanted = equals_wanted;
    s->take = equals_take;
    e->last = malloc((size_t)(e->targets + 1) * sizeof *e->last);
    e->before = malloc((size_t)(e->room + 1) * sizeof *e->before);
    e->mark = malloc((size_t)(e->room + 1) * sizeof *e->mark);
    int failed = !e->last || !e->before || !e->mark || search_open(s);
    for (int64_t k = 0; k < e->targets && !failed; k++) e->last[k] = -1;
    if (!failed && s->tree->points > 0) failed = explore(s, quarter, quarters);
    free(e->last);
    free(e->before);
    free(e->mark);
    return failed ? -1 : 0;
}
