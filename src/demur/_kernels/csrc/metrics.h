/* All scalar metrics of one score in one walk through sorted scores. */
#ifndef DEMUR_METRICS_H
#define DEMUR_METRICS_H

#include <stdint.h>

/* Ascending scores, the infinite ones last. */
typedef struct {
    const double *score;
    int64_t count;
} Ranked;

/* In the order in which compiled.py names them. */
enum {
    AUROC, /* twice the number of pairs in order, ties counting one half */
    AUPR,
    AVERAGE_PRECISION,
    AUPR_OOD,
    AVERAGE_PRECISION_OOD,
    FPR_AT_TPR,
    F1,
    OSCR_ACCEPTED,
    OSCR_ALL,
    AURC,
    AUGRC,
    METRICS
};

/* `prior` is the share of OOD behind precision; `min_id` the ID rows that FPR_AT_TPR asks for.
 * There must be ID rows; what needs OOD rows is meaningless without. */
void all_metrics(Ranked correct, Ranked wrong, Ranked ood, double prior, int64_t min_id,
                 double *value);

#endif
