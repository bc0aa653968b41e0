/* What is minimised, under which bounds (see demur.core.program), decided on integers. */
#ifndef DEMUR_PROGRAM_H
#define DEMUR_PROGRAM_H

#include <stdint.h>

#include "tree.h"
#include "wide.h"

typedef struct {
    int64_t loss, id, ood; /* coefficients of the objective; loss, ood >= 0 >= id */
    int per_id;            /* divide the objective by the accepted ID mass */
    int64_t min_id;        /* at least 1 */
    const int64_t *max_ood; /* per set */
    const int64_t *ratio;   /* per set (a, b): a*ID >= b*OOD; (0, 0) is no bound */
    int sets, extra;
    /* Linear bounds: coefficients of (ID, loss, all OOD, extra) reach `least`. Of what may or may
     * not be accepted, a unit of (ID, loss, extra) adds `hope` at best. */
    int bounds;
    const int64_t *coefficient, *least, *hope;
} Program;

typedef struct {
    int64_t id, ood, loss;
} Accepted;

Accepted accepted_by(const int64_t *row, int sets);

/* The objective before it is divided. */
Wide numerator(const Program *program, Accepted a);
double objective(const Program *program, Accepted a);

/* Whether the bounds hold that can only get worse: OOD of `row`, with at most `id` accepted. */
int within(const Program *program, const int64_t *row, int64_t id);

/* Whether the linear bounds hold for a row of masses. */
int linear_met(const Program *program, const int64_t *row);

/* Whether they may hold where these masses cross, those of extra parts apart. */
int linear_possible(const Program *program, const int64_t *row, int64_t id, int64_t loss,
                    const int64_t *extra);

/* Negative when a is better than b, zero when they tie in objective, ID, OOD and loss. */
int compare_accepted(const Program *program, Accepted a, Accepted b);

#endif
