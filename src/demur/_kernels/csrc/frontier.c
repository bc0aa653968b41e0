/* All operating points by one branch and bound.
 *
 * The surface holds, for every required ID mass (row) and allowed OOD mass (column), the best
 * accepted set found: selective risk, then larger ID, then smaller OOD mass. It is kept monotone,
 * so a set enters at the largest row and smallest column it is allowed in and spreads from there
 * while it is better, and a box has to beat only the column its certain OOD mass allows first.
 *
 * For a row with risk r and required mass m a box can only be better if
 *
 *     L - r*nI + sum over crossing ID of what it pays to accept  <  0,
 *
 * the crossing ID being taken in the order of its loss per ID mass: all that costs less than r,
 * and as much more as m needs. With one loss per ID mass (0/1 losses) there are two classes of
 * crossing ID, clean and lossy. Otherwise points are put into a few classes by quantiles of
 * their loss per ID mass; part of a class is taken at its lowest price, or all but the rest at its
 * highest, whichever is more.
 */
#include "frontier.h"
#include "claims.h"
#include "mesh.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FRONTIER_STARTS 2 /* single directions tried per quarter, */
#define START_STAGES 1    /* without what promises little */

#define COARSEST 4e-3      /* the first gap and the last, as shares of all mass, */
#define FINEST 1e-5
#define FINER 4.0          /* and how much smaller the next one is */

/* Boxes that promise improvements by less than a gap, relative to the risk, are put off. */
static const double gap_of_stage[] = {0.03, 0.003};
#define STAGES ((int)(sizeof gap_of_stage / sizeof *gap_of_stage))

/* Sign of the difference of selective risks, then larger ID, then smaller OOD mass. */
static int compare_risks(Accepted a, Accepted b)
{
    int sign = wide_compare(wide_product(a.loss, b.id), wide_product(b.loss, a.id));
    if (sign) return sign;
    if (a.id != b.id) return a.id > b.id ? -1 : 1;
    return a.ood < b.ood ? -1 : a.ood > b.ood;
}

static int upto(const Levels *levels, int64_t x, int low, int high)
{
    while (low < high) {
        int middle = (low + high) / 2;
        if (levels->level[middle] <= x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void look_up(Levels *levels, int64_t x)
{
    const int bracket = (int)((double)(x + 1) * levels->scale);
    const int place = upto(levels, x, levels->least[bracket], levels->most[bracket + 1]);
    levels->last = place;
    levels->from = place > 0 ? levels->level[place - 1] : -1;
    levels->to = place < levels->count ? levels->level[place] : INT64_MAX;
}

/* The number of levels that are at most x, for x from -1 to the largest mass there is. Sets that are
 * looked at one after the other mostly have the same place. */
static inline int levels_up_to(Levels *levels, int64_t x)
{
    if (x < levels->from || x >= levels->to) look_up(levels, x);
    return levels->last;
}

static void index_levels(Levels *levels, int64_t largest)
{
    const int64_t play = 9; /* more than the rounding of numbers below 2^52 */
    levels->scale = (BRACKETS - 1) / ((double)largest + 1);
    for (int k = 0; k <= BRACKETS; k++) {
        int64_t edge = (int64_t)(k / levels->scale);
        levels->least[k] = upto(levels, edge - play, 0, levels->count);
        levels->most[k] = upto(levels, edge + play, 0, levels->count);
    }
}

static inline int surface_row(Frontier *f, int64_t id) { return levels_up_to(&f->id, id) - 1; }

static inline int surface_column(Frontier *f, int64_t ood) { return levels_up_to(&f->ood, ood - 1); }

static int frontier_wanted(Search *s, const int64_t *sums)
{
    Frontier *f = s->frontier;
    Accepted a = accepted_by(sums, s->tree->sets);
    int row = surface_row(f, a.id), column = surface_column(f, a.ood);
    if (a.id < 1 || row < 0 || column == f->columns) return 0;
    int64_t at = (int64_t)row * f->columns + column;
    if ((double)a.loss > f->risk[at] * (double)a.id * (1 + BOUND_ROUNDING)) return 0;
    return f->best[at].id == 0 || compare_risks(a, f->best[at]) < 0;
}

static void frontier_take(Search *s, const int64_t *sums, const double *weight, double v)
{
    Frontier *f = s->frontier;
    Accepted a = accepted_by(sums, s->tree->sets);
    int first = surface_column(f, a.ood);
    for (int row = surface_row(f, a.id); row >= 0; row--) {
        int64_t at = (int64_t)row * f->columns + first, end = (int64_t)(row + 1) * f->columns;
        if (f->best[at].id && compare_risks(a, f->best[at]) >= 0) return;
        for (; at < end && (!f->best[at].id || compare_risks(a, f->best[at]) < 0); at++) {
            f->best[at] = a;
            f->risk[at] = (double)a.loss / (double)a.id;
            f->weight[2 * at] = weight[0];
            f->weight[2 * at + 1] = weight[1];
            f->v[at] = v;
        }
    }
}

/* A box that will not be looked at anew: nothing in it has less loss, more ID or less OOD mass. */
static void give_up(Search *s, const Box *box, const int64_t *sums)
{
    Frontier *f = s->frontier;
    const Accepted a = accepted_by(sums, s->tree->sets);
    const int64_t most = a.id + box->crossing.id;
    const int row = surface_row(f, most), column = surface_column(f, a.ood);
    if (most < 1 || row < 0 || column == f->columns) return;
    double *hope = f->hope + (int64_t)row * f->columns + column;
    *hope = fmin(*hope, (double)a.loss / (double)most);
}

/* Crossing ID and loss mass of a box, by class. */
typedef struct {
    double id[CLASSES], loss[CLASSES];
} Shares;

static Shares shares_of(const Search *s, const int64_t *sums)
{
    const Frontier *f = s->frontier;
    Shares shares;
    for (int c = 0; c < f->classes; c++) {
        shares.id[c] = (double)sums[s->tree->width + 2 * c];
        shares.loss[c] = (double)sums[s->tree->width + 2 * c + 1];
    }
    return shares;
}

typedef struct {
    double lower, slack; /* L - r*nI is at least lower - slack */
    double most_id;
    int needed; /* more than what pays had to be taken */
} RiskBound;

/* How much of a class it pays to take at r. Of its loss, x of the ID mass have at least low*x, and
 * the others at most high*(id - x). */
static double worth_taking(const Frontier *f, const Shares *shares, int c, double r)
{
    double low = f->low[c], high = f->high[c], id = shares->id[c];
    if (high <= r) return id;
    if (low >= r) return 0;
    return fmin(fmax((high * id - shares->loss[c]) / (high - low), 0), id);
}

static RiskBound bound_risk(const Frontier *f, const Shares *shares, double id, double loss,
                            double r, double required)
{
    RiskBound e = {loss - r * id, loss + r * id, id, 0};
    for (int c = 0; c < f->classes; c++) {
        double all = shares->id[c], taken = worth_taking(f, shares, c, r);
        double need = required - e.most_id;
        if (f->low[c] >= r && f->high[c] > r && need <= 0) break;
        if (need > taken) {
            e.needed |= taken < all;
            taken = fmin(need, all);
        }
        double left = f->high[c] * (all - taken), least = shares->loss[c] - left;
        if (f->low[c] * taken > least) least = f->low[c] * taken;
        e.lower += least - r * taken;
        e.slack += shares->loss[c] + left + r * taken;
        e.most_id += taken;
    }
    e.slack *= BOUND_ROUNDING;
    return e;
}

/* What is certain and what crosses in a box; without classes that tells all. */
typedef struct {
    Accepted certain;
    int64_t id, loss;
    const Shares *shares; /* or NULL */
} Contents;

/* Whether a box whose F is about zero cannot win: F is positive, or zero for certain with less
 * ID or no less OOD mass. Where all crossing ID is needed, and with whole numbers of losses per ID
 * mass, F is found in integers. */
static int loses_tie(const Search *s, const Contents *box, const RiskBound *e, int64_t required,
                     Accepted best)
{
    int64_t unit = s->tree->unit[UNIT_LOSS];
    Accepted a = box->certain;
    if (required == a.id + box->id) {
        Accepted all = {required, a.ood, a.loss + box->loss};
        return compare_risks(all, best) >= 0;
    }
    if (e->slack > 0) {
        if (!s->simple || s->tree->unit[UNIT_ID] > 1) return 0;
        int lossy_pays = wide_compare(wide_product(unit, best.id), wide(best.loss)) <= 0;
        int64_t lossy = lossy_pays || unit == 0 ? 0 : box->loss / unit;
        int64_t id = a.id + box->id - lossy, need = required > id ? required - id : 0;
        Wide crossing = lossy_pays ? wide(box->loss) : wide_product(need, unit);
        Wide left = wide_times(wide_sum(wide(a.loss), crossing), best.id);
        int sign = wide_compare(left, wide_product(best.loss, id + need));
        if (sign) return sign > 0;
    }
    if (e->most_id != (double)best.id)
        return e->most_id <= (double)best.id + ((const Frontier *)s->frontier)->id_gap;
    return a.ood >= best.ood;
}

/* The column of what a box with so much OOD mass has to beat. */
static int rival_column(Frontier *f, int64_t ood)
{
    if (f->ood_gap == 0) return surface_column(f, ood);
    int64_t shifted = ood + f->ood_gap, last = f->ood.level[f->columns - 1];
    return shifted < last ? surface_column(f, shifted) : f->columns - 1;
}

/* The bound where losses are regular, of clean and lossy crossing ID. */
static RiskBound bound_regular(const Frontier *f, const Contents *box, double r, double required)
{
    double id = (double)box->certain.id, loss = (double)box->certain.loss, price = f->high[1];
    double lossy = price > 0 ? (double)box->loss / price : 0;
    double most = id + ((double)box->id - lossy), added = 0;
    RiskBound e = {0, 0, most, 0};
    if (price <= r) {
        e.most_id = id + (double)box->id;
        added = (double)box->loss;
    } else if (required > most) {
        double need = required - most < lossy ? required - most : lossy;
        e.most_id += need;
        added = price * need;
        e.needed = 1;
    }
    e.lower = loss + added - r * e.most_id;
    e.slack = BOUND_ROUNDING * (loss + added + r * e.most_id);
    return e;
}

/* Judge a box by what it has to beat from a row down, in the column of its OOD mass. */
static int judge_rows(const Search *s, const Contents *box, int row, int column, double gap,
                      double *merit)
{
    const Frontier *f = s->frontier;
    int verdict = HOPELESS;
    for (; row >= 0; row--) {
        int64_t at = (int64_t)row * f->columns + column;
        *merit = -HUGE_VAL;
        if (f->best[at].id == 0) return PROMISING;
        double r = f->risk[at] - f->risk_gap, required = (double)f->id.level[row];
        if (r < 0) break;
        RiskBound e = box->shares ? bound_risk(f, box->shares, (double)box->certain.id,
                                               (double)box->certain.loss, r, required)
                                  : bound_regular(f, box, r, required);
        *merit = e.lower;
        /* The gap is measured on the losses that the best set would have. */
        if (e.lower < -e.slack - gap * r * e.most_id) return PROMISING;
        if (e.lower < -e.slack ||
            (e.lower <= e.slack && f->risk_gap == 0 &&
             !loses_tie(s, box, &e, f->id.level[row], f->best[at]))) {
            if (gap == 0) return PROMISING;
            verdict = PUT_OFF;
        }
        /* The rows further down ask for even less risk, and not for more ID. */
        if (!e.needed) break;
    }
    return verdict;
}

static int judge_frontier(Search *s, Box *box, const int64_t *sums)
{
    Frontier *f = s->frontier;
    Contents contents = {accepted_by(sums, s->tree->sets), box->crossing.id, box->crossing.loss, NULL};
    int64_t ood = contents.certain.ood, most = contents.certain.id + contents.id;
    double gap = s->stage < STAGES ? gap_of_stage[s->stage] : 0;
    if (most < 1 || surface_column(f, ood) == f->columns) return HOPELESS;
    Shares shares;
    if (f->class_of) {
        shares = shares_of(s, sums);
        contents.shares = &shares;
    }
    return judge_rows(s, &contents, surface_row(f, most), rival_column(f, ood), gap, &box->merit);
}

/* The highest risk that sets of a box may have to beat, infinite for any. */
static double highest_risk(Search *s, const Box *box, const int64_t *sums)
{
    Frontier *f = s->frontier;
    Accepted certain = accepted_by(sums, s->tree->sets);
    int row = surface_row(f, certain.id + box->crossing.id), column = rival_column(f, certain.ood);
    if (row < 0 || column == f->columns) return HUGE_VAL;
    return f->risk[(int64_t)row * f->columns + column];
}

/* Where bands stand on the surface. From one to the next there is no less certain OOD, and no less
 * ID that is certain or crosses. */
typedef struct {
    int row, rival, hopeless;
    double r, required; /* the risk to beat and the ID mass for it */
    double steep;       /* more loss per ID mass than this is plainly too much, where losses are
                           regular and the lossy crossing ID is neither worth taking nor needed */
    int64_t id, ood;    /* from this ID mass on, and beyond this OOD mass, it is another cell */
} Standing;

static void stand_at(Frontier *f, int64_t id, int64_t ood, Standing *at)
{
    const int column = surface_column(f, ood);
    at->row = surface_row(f, id);
    at->id = at->row + 1 < f->rows ? f->id.level[at->row + 1] : INT64_MAX;
    at->ood = column < f->columns ? f->ood.level[column] : INT64_MAX;
    at->hopeless = at->row < 0 || column == f->columns;
    if (at->hopeless) return;
    at->rival = f->ood_gap ? rival_column(f, ood) : column;
    at->r = f->risk[(int64_t)at->row * f->columns + at->rival] - f->risk_gap;
    at->required = (double)f->id.level[at->row];
    at->steep = f->high[1] > at->r ? at->r * (1 + 4 * BOUND_ROUNDING) : HUGE_VAL;
    at->hopeless = at->r < 0;
    /* What is known for more OOD mass differs within a cell. */
    if (f->ood_gap) at->ood = ood;
}

/* Judge a band where losses are regular. */
static double glance_at_masses(const Search *s, const Bands *bands, int k, const Standing *at)
{
    const Tally *certain = bands->certain + k, *possible = bands->possible + k;
    const Accepted *ground = &bands->ground;
    Contents band = {.certain = {ground->id + (int64_t)(certain->mass & ID_BITS),
                                  ground->ood + (int64_t)(certain->mass >> OOD_SHIFT),
                                  ground->loss + (int64_t)certain->loss},
                      .id = (int64_t)((possible->mass - certain->mass) & ID_BITS),
                      .loss = (int64_t)(possible->worth - certain->worth)};
    double merit = HUGE_VAL;
    if (band.certain.id + band.id < 1) return HUGE_VAL;
    int verdict = judge_rows(s, &band, at->row, at->rival, 0, &merit);
    return verdict == HOPELESS ? HUGE_VAL : merit;
}

/* Judge a band by how much accepting what crosses it can gain at a level. What that gains at less
 * risk is at most in proportion. The rows further down ask for less risk. */
static double glance_at_worth(double id, double loss, double worth, double r, double level)
{
    if (r == HUGE_VAL || level == HUGE_VAL) return -HUGE_VAL;
    if (r < level) worth *= r / level;
    double lower = loss - r * id - worth;
    return lower > 2 * BOUND_ROUNDING * (loss + r * id + worth) ? HUGE_VAL : lower;
}

/* The same where losses are regular. Most bands are plainly too costly, and told so by few steps. */
static void glance_at_regular(Search *s, const Bands *bands)
{
    Frontier *f = s->frontier;
    const Tally *certain = bands->certain, *possible = bands->possible;
    const Accepted ground = bands->ground;
    const double price = f->high[1];
    const int plain = price == 1 || price == 0;
    Standing at = {.id = 0, .ood = -1};
    for (int k = 0; k < bands->count; k++, certain++, possible++) {
        const int64_t most_id = ground.id + (int64_t)(possible->mass & ID_BITS);
        const int64_t ood = ground.ood + (int64_t)(certain->mass >> OOD_SHIFT);
        if (most_id >= at.id || ood > at.ood) stand_at(f, most_id, ood, &at);
        const double loss = (double)(ground.loss + (int64_t)certain->loss);
        const int64_t worth = (int64_t)(possible->worth - certain->worth);
        const double most = plain ? (double)(most_id - worth) : (double)most_id - (double)worth / price;
        const int lost = at.hopeless || (loss > at.steep * most && at.required <= most);
        bands->merit[k] = lost ? HUGE_VAL : glance_at_masses(s, bands, k, &at);
    }
}

static void glance_at_bands(Search *s, const Bands *bands)
{
    Frontier *f = s->frontier;
    const Accepted ground = bands->ground;
    Standing at = {.id = 0, .ood = -1};
    if (!f->class_of) {
        glance_at_regular(s, bands);
        return;
    }
    for (int k = 0; k < bands->count; k++) {
        const Tally *certain = bands->certain + k, *possible = bands->possible + k;
        const int64_t most_id = ground.id + (int64_t)(possible->mass & ID_BITS);
        const int64_t ood = ground.ood + (int64_t)(certain->mass >> OOD_SHIFT);
        if (most_id >= at.id || ood > at.ood) stand_at(f, most_id, ood, &at);
        double id = (double)(ground.id + (int64_t)(certain->mass & ID_BITS));
        double loss = (double)(ground.loss + (int64_t)certain->loss);
        double worth = (double)(int64_t)(possible->worth - certain->worth);
        bands->merit[k] =
            at.hopeless ? HUGE_VAL : glance_at_worth(id, loss, worth, at.r, bands->level);
    }
}

static double price_of(const int64_t *mass) { return (double)mass[LOSS] / (double)mass[ID]; }

/* Put points with ID mass into classes of loss per ID mass; class 0 has none. */
static int make_classes(const Tree *tree, Frontier *f)
{
    int64_t points = tree->points, priced = 0;
    Keyed *price = malloc(2 * (size_t)points * sizeof *price);
    f->class_of = calloc((size_t)points, 1);
    f->class_sums = calloc(2 * CLASSES * (size_t)tree->nodes, sizeof *f->class_sums);
    if (!price || !f->class_of || !f->class_sums) {
        free(price);
        return -1;
    }
    for (int64_t i = 0; i < points; i++) {
        const int64_t *mass = tree->mass + i * tree->width;
        if (mass[ID] > 0 && mass[LOSS] > 0) {
            price[priced].key = price_of(mass);
            price[priced++].item = (int32_t)i;
        }
    }
    sort_keyed(price, price + points, priced);
    f->classes = CLASSES;
    for (int c = 0; c < CLASSES; c++) f->low[c] = f->high[c] = 0;
    for (int64_t k = 0; k < priced; k++) {
        int c = 1 + (int)(k * (CLASSES - 1) / priced);
        f->class_of[price[k].item] = (uint8_t)c;
        if (f->high[c] == 0) f->low[c] = price[k].key;
        f->high[c] = price[k].key;
    }
    free(price);
    return 0;
}

static void add_up_classes(const Tree *tree, Frontier *f)
{
    for (int64_t k = tree->nodes - 1; k >= 0; k--) {
        int64_t *into = f->class_sums + 2 * CLASSES * k;
        const Node *node = tree->node + k;
        if (node->child) {
            const int64_t *part = f->class_sums + 2 * CLASSES * (int64_t)node->child;
            for (int c = 0; c < 2 * CLASSES; c++) into[c] = part[c] + part[2 * CLASSES + c];
            continue;
        }
        for (int64_t i = node->first; i < node->end; i++) {
            into[2 * f->class_of[i]] += tree->mass[i * tree->width + ID];
            into[2 * f->class_of[i] + 1] += tree->mass[i * tree->width + LOSS];
        }
    }
}

static int try_directions(Search *s, const int64_t *quarter, int quarters)
{
    for (int k = 0; k < FRONTIER_STARTS * quarters; k++) {
        double angle = (k % FRONTIER_STARTS + 0.4653) * RIGHT_ANGLE / FRONTIER_STARTS, weight[2];
        direction_at(s->tree, (int)quarter[k / FRONTIER_STARTS], angle, weight);
        s->stage = 0;
        s->last_stage = START_STAGES;
        if (explore_direction(s, weight)) return -1;
    }
    return 0;
}

static int explore_in_stages(Search *s, const int64_t *quarter, int quarters)
{
    const Frontier *f = s->frontier;
    s->stage = 0;
    s->last_stage = STAGES;
    /* All boxes are looked at again. */
    stack_clear(&s->doubts);
    for (int64_t k = 0; f->hope && k < (int64_t)f->rows * f->columns; k++) f->hope[k] = HUGE_VAL;
    return explore(s, quarter, quarters);
}

/* Without losses, gaps are shares of all mass. Searching anew with ever smaller ones costs little:
 * boxes fall early once good sets are known, and those come quickly where gaps are large. */
static int explore_coarse_to_fine(Search *s, Frontier *f, const int64_t *quarter, int quarters)
{
    const double id_gap = f->id_gap;
    const int64_t ood_gap = f->ood_gap;
    int64_t id = s->tree->sums[ID], ood = accepted_by(s->tree->sums, s->tree->sets).ood;
    for (double share = COARSEST; share >= FINEST; share /= FINER) {
        f->id_gap = share * (double)id;
        f->ood_gap = (int64_t)(share * (double)ood);
        if (f->id_gap <= FINER * id_gap || f->id_gap < 1) break;
        if (explore_in_stages(s, quarter, quarters)) return -1;
    }
    f->id_gap = id_gap;
    f->ood_gap = ood_gap;
    return explore_in_stages(s, quarter, quarters);
}

/* Let small boxes be cut into many parts. */
static int use_mesh(Search *s)
{
    const int64_t *sums = s->tree->sums;
    if (s->row_size > MOST_OF_A_ROW || s->tree->width != FIRST_OOD + 1) return 0;
    if (sums[ID] >= MOST_MASS || sums[FIRST_OOD] >= MOST_MASS) return 0;
    s->mesh = make_mesh();
    s->highest = highest_risk;
    s->glance = glance_at_bands;
    s->wary = s->tree->framed;
    return s->mesh ? 0 : -1;
}

static int explore_all(Search *s, Frontier *f, const int64_t *quarter, int quarters)
{
    if (try_directions(s, quarter, quarters)) return -1;
    if (s->tree->unit[UNIT_LOSS] == 0) return explore_coarse_to_fine(s, f, quarter, quarters);
    return explore_in_stages(s, quarter, quarters);
}

/* Whether a cell has a set at the tightest bounds that it meets, as any set has that is best. */
static int is_tightest(Frontier *f, int64_t cell)
{
    const Accepted a = f->best[cell];
    return a.id > 0 && surface_row(f, a.id) == cell / f->columns &&
           surface_column(f, a.ood) == cell % f->columns;
}

/* Whether the half-planes accept what they were taken for, and rounding errors of no point reach a
 * `certain` one. */
static int all_true(const Search *s, Frontier *f, int certain)
{
    const int64_t cells = (int64_t)f->rows * f->columns;
    int64_t claims = 0;
    for (int64_t k = 0; k < cells; k++) claims += is_tightest(f, k);
    Claim *claim = malloc(((size_t)claims + 1) * sizeof *claim), *next = claim;
    if (!claim) return -1;
    for (int64_t k = 0; k < cells; k++) {
        const double *weight = f->weight + 2 * k;
        if (!is_tightest(f, k)) continue;
        const double error = certain ? largest_error(s->tree, weight) : 0;
        *next++ = (Claim){{weight[0], weight[1]}, f->v[k], error, f->best[k]};
    }
    const int hold = claims_hold(s->tree, claim, claims);
    free(claim);
    return hold;
}

/* `s` must have been opened after the classes were set. */
int search_frontier(Search *s, Frontier *f, const int64_t *quarter, int quarters)
{
    s->frontier = f;
    s->judge = judge_frontier;
    s->wanted = frontier_wanted;
    s->take = frontier_take;
    s->keep_doubts = f->hope != NULL;
    s->give_up = s->keep_doubts ? give_up : NULL;
    if (s->tree->points == 0) return 0;
    if (units_known(s)) {
        const int64_t *unit = s->tree->unit;
        f->classes = 2;
        f->low[0] = f->high[0] = f->low[1] = f->high[1] = 0;
        if (unit[UNIT_LOSS] > 0)
            f->low[1] = f->high[1] = (double)unit[UNIT_LOSS] / (double)unit[UNIT_ID];
    } else {
        if (make_classes(s->tree, f)) return -1;
        add_up_classes(s->tree, f);
        s->classes = f->classes;
        s->class_of = f->class_of;
        s->class_sums = f->class_sums;
    }
    f->rows = f->id.count;
    f->columns = f->ood.count;
    index_levels(&f->id, s->tree->sums[ID]);
    index_levels(&f->ood, accepted_by(s->tree->sums, s->tree->sets).ood);
    if (search_open(s) || use_mesh(s) || explore_all(s, f, quarter, quarters)) return -1;
    const int certain = s->keep_doubts && !s->tree->whole;
    const int hold = (!s->mesh || s->wary) && !certain ? 1 : all_true(s, f, certain);
    if (hold) return hold < 0 ? -1 : 0;
    /* Rounding has put a half-plane on the other side of a point: nothing can be relied on. */
    s->wary = 1;
    s->certain = certain;
    for (int64_t k = 0; k < (int64_t)f->rows * f->columns; k++) {
        f->best[k].id = 0;
        f->risk[k] = HUGE_VAL;
    }
    return explore_all(s, f, quarter, quarters);
}
