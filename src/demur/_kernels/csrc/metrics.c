/* Correct ID, wrong ID and OOD scores, each sorted, are merged into groups of equal scores. After
 * every group the rates are known, and all areas grow by one step. Rows with a score of +inf,
 * which no threshold accepts, are the last group. The same quantities, one by one and with the
 * reasons for their conventions, are in metrics/areas.py and metrics/scalar.py. */
#include "metrics.h"

#include <math.h>
#include <string.h>

/* Accepted rows and the rates that follow. */
typedef struct {
    int64_t correct, wrong, ood;
    double tpr, fpr, precision, ood_share, ccr, loss;
} Rates;

typedef struct {
    int64_t id, ood; /* rows in all */
    double per_id, per_ood, prior;
    int64_t min_id;
    int reached;   /* whether min_id was */
    int64_t pairs; /* twice */
    double value[METRICS];
} Sums;

static int64_t accepted_id(const Rates *s) { return s->correct + s->wrong; }

static double share(double part, double rest) { return part + rest > 0 ? part / (part + rest) : 1; }

static void set_rates(const Sums *sums, Rates *s)
{
    double pi = sums->prior;
    int64_t id = accepted_id(s);
    s->tpr = (double)id * sums->per_id;
    s->fpr = (double)s->ood * sums->per_ood;
    s->precision = share((1 - pi) * s->tpr, pi * s->fpr);
    s->ood_share = share(pi * ((double)(sums->ood - s->ood) * sums->per_ood),
                         (1 - pi) * ((double)(sums->id - id) * sums->per_id));
    s->ccr = id > 0 ? (double)s->correct / (double)id : 0;
    s->loss = (double)s->wrong * sums->per_id;
}

static void add_areas(Sums *sums, const Rates *last, const Rates *now)
{
    double *value = sums->value, up = now->tpr - last->tpr, right = now->fpr - last->fpr;
    sums->pairs += (now->ood - last->ood) * (accepted_id(now) + accepted_id(last));
    value[AUPR] += up * (now->precision + last->precision) / 2;
    value[AVERAGE_PRECISION] += up * now->precision;
    value[AUPR_OOD] += right * (now->ood_share + last->ood_share) / 2;
    value[AVERAGE_PRECISION_OOD] += right * last->ood_share;
    value[OSCR_ALL] += right * (now->tpr - now->loss + last->tpr - last->loss) / 2;
    value[AUGRC] += up * (now->loss + last->loss) / 2;
    value[AURC] += up * (1 - now->ccr);
    /* Before any ID is accepted, the first known rate stands in. */
    if (accepted_id(now) > 0) {
        double before = accepted_id(last) > 0 ? last->ccr : now->ccr;
        double from = accepted_id(last) > 0 ? last->fpr : 0;
        value[OSCR_ACCEPTED] += (now->fpr - from) * (now->ccr + before) / 2;
    }
}

/* What only thresholds that some input can be below count for. */
static void note_threshold(Sums *sums, const Rates *now)
{
    double pi = sums->prior, found = (1 - pi) * now->tpr;
    double f1 = 2 * found / (1 - pi + found + pi * now->fpr);
    if (f1 > sums->value[F1]) sums->value[F1] = f1;
    if (!sums->reached && accepted_id(now) >= sums->min_id) {
        sums->value[FPR_AT_TPR] = now->fpr;
        sums->reached = 1;
    }
}

static double at_or_inf(const Ranked *r, int64_t at)
{
    return at < r->count ? r->score[at] : HUGE_VAL;
}

/* Which kind of row comes next is as good as random, so there are no branches on it. */
void all_metrics(Ranked correct, Ranked wrong, Ranked ood, double prior, int64_t min_id,
                 double *value)
{
    Sums sums = {.id = correct.count + wrong.count, .ood = ood.count, .prior = prior};
    Rates last = {0}, now = {0};
    double a = at_or_inf(&correct, 0), b = at_or_inf(&wrong, 0), c = at_or_inf(&ood, 0);
    double score = fmin(a, fmin(b, c));
    sums.per_id = 1 / (double)sums.id;
    if (ood.count > 0) sums.per_ood = 1 / (double)ood.count;
    sums.min_id = min_id;
    sums.value[FPR_AT_TPR] = NAN;
    set_rates(&sums, &last);
    while (score < HUGE_VAL) {
        now.correct += a == score;
        now.wrong += b == score;
        now.ood += c == score;
        a = at_or_inf(&correct, now.correct);
        b = at_or_inf(&wrong, now.wrong);
        c = at_or_inf(&ood, now.ood);
        double next = a < b ? a : b;
        next = c < next ? c : next;
        if (next == score) continue;
        score = next;
        set_rates(&sums, &now);
        add_areas(&sums, &last, &now);
        note_threshold(&sums, &now);
        last = now;
    }
    now.correct = correct.count;
    now.wrong = wrong.count;
    now.ood = ood.count;
    set_rates(&sums, &now);
    add_areas(&sums, &last, &now);
    sums.value[AUROC] = (double)sums.pairs;
    memcpy(value, sums.value, sizeof sums.value);
}
