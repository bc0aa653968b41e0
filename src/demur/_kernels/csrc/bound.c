/* When a box cannot hold anything better than the best half-plane found so far.
 *
 * Let r be the value to beat and, for a program divided by ID mass, F = N - r*nI with N the
 * numerator; otherwise F = N - r. A half-plane is better only if F < 0. Everything certainly
 * accepted counts in full, no crossing OOD is accepted, and crossing ID rows add
 * g = loss*l + (id - r)*w each if accepted. Rows with g <= 0 are *good*; all of them are taken.
 * If the bound on ID mass then still is not met, the rest is taken from rows that are not good,
 * at the cheapest price per mass there is.
 *
 * If every lossy row has the same loss per ID mass (0/1 losses do), the crossing ID and loss
 * mass tell how much is good. Otherwise the tree is graded at a value `level` >= r: then
 * gain = sum of min(0, g(level)) <= sum of min(0, g(r)), and with id = 0 concavity in r gives
 * the better gain*r/level.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"

#define ROUNDING_OF_SUMS 1e-12

int units_known(const Search *s)
{
    return s->program.loss == 0 || s->tree->unit[UNIT_LOSS] != NO_UNIT;
}

/* The price per ID mass of a lossy row, when all have the same. */
static double lossy_price(const Search *s)
{
    const int64_t *unit = s->tree->unit;
    if (s->program.loss == 0 || unit[UNIT_LOSS] == 0) return (double)s->program.id;
    return (double)s->program.loss * (double)unit[UNIT_LOSS] / (double)unit[UNIT_ID] +
           (double)s->program.id;
}

static double spotless_mass(const Search *s, const Crossing *c)
{
    const int64_t *unit = s->tree->unit;
    if (s->program.loss == 0 || unit[UNIT_LOSS] == 0) return (double)c->id;
    return (double)c->id - (double)c->loss * (double)unit[UNIT_ID] / (double)unit[UNIT_LOSS];
}

static void grade_row(Search *s, const int64_t *mass, double *into)
{
    double good;
    into[1] += graded_gain(s, mass, &good);
    into[0] += good;
    if (good > 0) return;
    double price = (double)s->program.loss * (double)mass[LOSS] / (double)mass[ID];
    if (price < s->bad) s->bad = price;
}

static void grade_leaf(Search *s, const Node *leaf, double *into)
{
    for (int64_t i = leaf->first; i < leaf->end; i++) {
        const int64_t *mass = s->tree->mass + i * s->tree->width;
        if (mass[ID] > 0) grade_row(s, mass, into);
    }
}

/* Grade nodes from `first` to before `end`; those that have not grown have a grade. */
static int grade_nodes(Search *s, int64_t first, int64_t end)
{
    const Tree *tree = s->tree;
    for (int64_t k = end - 1; k >= first; k--) {
        if (interrupted_in_loop(s->signals, k)) return -1;
        double *into = s->grade + 2 * k;
        const double *part = s->grade + 2 * (int64_t)tree->node[k].child;
        if (tree->node[k].child == UNGROWN) continue;
        into[0] = into[1] = 0;
        if (tree->node[k].child) {
            for (int c = 0; c < 2; c++) into[c] = part[c] + part[2 + c];
        } else {
            grade_leaf(s, tree->node + k, into);
        }
    }
    s->graded = end;
    return 0;
}

/* Grade the cells of a tree that is not grown, from their rows. */
static int grade_cells(Search *s)
{
    const Soil *soil = &s->tree->soil;
    const int64_t cells = (int64_t)1 << soil->bits;
    double *of = calloc(2 * (size_t)cells, sizeof *of);
    int failed = !of;
    for (int64_t i = 0; i < soil->rows && !failed; i++) {
        failed = interrupted_in_loop(s->signals, i);
        const int64_t mass[2] = {soil->id[i], soil->loss[i]};
        if (mass[ID] == 0) continue;
        grade_row(s, mass, of + 2 * soil->cell[i]);
    }
    for (int64_t k = 0; k < cells && !failed; k++)
        if (soil->node_of[k] >= 0)
            memcpy(s->grade + 2 * (int64_t)soil->node_of[k], of + 2 * k, 2 * sizeof *of);
    free(of);
    return failed ? -1 : 0;
}

/* Grade all nodes at `level`, the value to beat or one above it. */
int grade_tree(Search *s, double level)
{
    const Tree *tree = s->tree;
    if (!s->grade) s->grade = malloc(2 * (size_t)tree->nodes * sizeof *s->grade);
    if (!s->grade) return -1;
    s->level = level + 8 * DBL_EPSILON * fabs(level);
    s->bad = HUGE_VAL;
    if (tree->soil.rows && grade_cells(s)) return -1;
    if (grade_nodes(s, 0, nodes_of(tree))) return -1;
    s->bad += (double)s->program.id;
    return 0;
}

void grade_new_nodes(Search *s)
{
    const int64_t nodes = nodes_of(s->tree);
    const double bad = s->bad;
    if (s->graded == nodes) return;
    grade_nodes(s, s->graded, nodes);
    s->bad = bad; /* of all rows, whether they have become points or not */
}

typedef struct {
    double lower, slack; /* F is at least lower - slack */
    double most_id;      /* ID mass of the half-planes with F <= 0 when lower is 0 */
    double good, need;
} ObjectiveBound;

/* Mass and gain of the good rows, and the price of the others. */
static double good_rows(const Search *s, const Box *box, double r, double *gain, double *price)
{
    const Crossing *c = &box->crossing;
    if (s->simple) {
        double clean = spotless_mass(s, c), lossy = (double)c->id - clean;
        double cheap = (double)s->program.id - r;
        *price = lossy_price(s) - r;
        *gain = cheap * clean + (*price <= 0 ? *price * lossy : 0);
        return *price <= 0 ? (double)c->id : clean;
    }
    *price = box->bad - r;
    *gain = c->gain;
    if (s->program.per_id && s->program.id == 0 && box->level > 0) *gain *= r / box->level;
    return c->good;
}

static ObjectiveBound bound_objective(const Search *s, const Box *box, const int64_t *sums,
                                      double value)
{
    const Program *p = &s->program;
    double id = (double)sums[ID], loss = (double)p->loss * (double)sums[LOSS], ood = 0, gain, price;
    double r = p->per_id ? value : 0, shift = p->per_id ? 0 : value;
    for (int i = 0; i < p->sets; i++) ood += (double)sums[FIRST_OOD + i];
    double good = good_rows(s, box, r, &gain, &price);
    double need = (double)p->min_id - id - good, extra = need > 0 ? price * need : 0;
    double own = ((double)p->id - r) * id;
    ObjectiveBound e;
    e.lower = loss + own + (double)p->ood * ood - shift + gain + extra;
    double terms = loss + fabs((double)p->id * id) + fabs(r * id) + (double)p->ood * ood +
                   fabs(shift) + fabs(gain) + (need > 0 ? fabs(price) * (double)p->min_id : 0);
    e.slack = BOUND_ROUNDING * terms - (s->simple ? 0 : ROUNDING_OF_SUMS) * gain;
    e.need = need > 0 ? need : 0;
    e.good = good;
    e.most_id = id + good + e.need;
    return e;
}

/* The sign of the lower bound in integers; 2 when it is out of reach. */
static int exact_sign(const Search *s, const Box *box, const int64_t *sums, const ObjectiveBound *e)
{
    const Program *p = &s->program;
    const int64_t *unit = s->tree->unit;
    if (e->slack == 0) return e->lower < 0 ? -1 : e->lower > 0;
    if (!s->simple || (unit[UNIT_ID] > 1 && p->loss != 0)) return 2;
    int64_t over = p->per_id ? s->best.id : 1;
    if (e->slack / BOUND_ROUNDING * (double)over > 1e36) return 2;
    Accepted certain = accepted_by(sums, p->sets);
    Wide best = numerator(p, s->best);
    /* What a unit of ID mass adds without loss, and with it. */
    Wide cheap = wide_product(p->id, over);
    if (p->per_id) cheap = wide_difference(cheap, best);
    Wide lossy = cheap;
    if (p->loss) lossy = wide_sum(cheap, wide_times(wide_product(p->loss, unit[UNIT_LOSS]), over));
    int64_t errors = p->loss && unit[UNIT_LOSS] ? box->crossing.loss / unit[UNIT_LOSS] : 0;
    int64_t clean = box->crossing.id - errors, pays = wide_sign(lossy) <= 0;
    int64_t missing = p->min_id - certain.id - clean - (pays ? errors : 0);
    int64_t taken = (pays ? errors : 0) + (missing > 0 ? missing : 0);
    Wide fixed = wide_sum(wide_product(p->loss, certain.loss), wide_product(p->ood, certain.ood));
    Wide sum = wide_sum(wide_times(fixed, over), wide_times(cheap, certain.id + clean));
    if (!p->per_id) sum = wide_difference(sum, best);
    return wide_sign(wide_sum(sum, wide_times(lossy, taken)));
}

/* Whether ties in the objective are lost on ID or OOD mass. */
static int loses_ties(const Search *s, const int64_t *sums, const ObjectiveBound *e)
{
    if (e->most_id != (double)s->best.id) return e->most_id < (double)s->best.id;
    return accepted_by(sums, s->program.sets).ood > s->best.ood;
}

static double objective_above(const Search *s, const int64_t *sums, double value,
                              const ObjectiveBound *e)
{
    double least = e->lower - e->slack;
    double id = (double)(sums[ID] > s->program.min_id ? sums[ID] : s->program.min_id);
    return value + (s->program.per_id ? least / id : least);
}

/* Without anything to beat, boxes are ordered by what they would be worth at best. */
static double promise(const Search *s, const Box *box, const int64_t *sums)
{
    const Program *p = &s->program;
    Accepted a = accepted_by(sums, p->sets);
    double id = (double)a.id + (double)box->crossing.id;
    double value = (double)p->loss * (double)a.loss + (double)p->ood * (double)a.ood;
    return p->per_id ? value / id + (double)p->id : value + (double)p->id * id;
}

int judge_optimum(Search *s, Box *box, const int64_t *sums)
{
    if (!within(&s->program, sums, sums[ID] + box->crossing.id)) return HOPELESS;
    if (s->program.bounds && !linear_possible(&s->program, sums, box->crossing.id,
                                              box->crossing.loss, sums + s->extra_at))
        return HOPELESS;
    int graded = s->simple || !s->program.per_id || s->value <= box->level;
    if (!s->found || !graded || (!s->simple && box->level == HUGE_VAL)) {
        box->merit = promise(s, box, sums);
        return PROMISING;
    }
    ObjectiveBound e = bound_objective(s, box, sums, s->value);
    box->merit = objective_above(s, sums, s->value, &e);
    if (e.lower > e.slack) return HOPELESS;
    if (e.lower >= -e.slack) {
        int sign = exact_sign(s, box, sums, &e);
        if (sign == 1 || (sign == 0 && loses_ties(s, sums, &e))) return HOPELESS;
    }
    if (s->gap > 0 && box->merit >= s->value - s->gap) {
        if (box->merit < s->lower) s->lower = box->merit;
        s->gap_used = 1;
        return HOPELESS;
    }
    return PROMISING;
}
