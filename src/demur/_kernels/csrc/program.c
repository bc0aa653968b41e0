#include "program.h"

Accepted accepted_by(const int64_t *row, int sets)
{
    Accepted a = {row[ID], 0, row[LOSS]};
    for (int s = 0; s < sets; s++) a.ood += row[FIRST_OOD + s];
    return a;
}

Wide numerator(const Program *program, Accepted a)
{
    Wide sum = wide_sum(wide_product(program->loss, a.loss), wide_product(program->id, a.id));
    return wide_sum(sum, wide_product(program->ood, a.ood));
}

double objective(const Program *program, Accepted a)
{
    double value = wide_double(numerator(program, a));
    return program->per_id ? value / (double)a.id : value;
}

int within(const Program *program, const int64_t *row, int64_t id)
{
    if (id < program->min_id) return 0;
    for (int s = 0; s < program->sets; s++) {
        int64_t ood = row[FIRST_OOD + s], a = program->ratio[2 * s], b = program->ratio[2 * s + 1];
        if (ood > program->max_ood[s]) return 0;
        if (b > 0 && wide_compare(wide_product(a, id), wide_product(b, ood)) < 0) return 0;
    }
    return 1;
}

static void add_product(Wide *sum, int64_t a, int64_t b)
{
    if (a) *sum = wide_sum(*sum, wide_product(a, b));
}

/* By how much a row of masses exceeds what linear bound k asks for. */
static Wide excess(const Program *program, int k, const int64_t *row)
{
    const int64_t *c = program->coefficient + (int64_t)k * (3 + program->extra);
    Wide sum = wide_difference(wide(0), wide(program->least[k]));
    add_product(&sum, c[0], row[ID]);
    add_product(&sum, c[1], row[LOSS]);
    if (c[2]) add_product(&sum, c[2], accepted_by(row, program->sets).ood);
    for (int e = 0; e < program->extra; e++)
        add_product(&sum, c[3 + e], row[FIRST_OOD + program->sets + e]);
    return sum;
}

int linear_met(const Program *program, const int64_t *row)
{
    for (int k = 0; k < program->bounds; k++)
        if (wide_sign(excess(program, k, row)) < 0) return 0;
    return 1;
}

int linear_possible(const Program *program, const int64_t *row, int64_t id, int64_t loss,
                    const int64_t *extra)
{
    for (int k = 0; k < program->bounds; k++) {
        const int64_t *hope = program->hope + (int64_t)k * (2 + program->extra);
        Wide sum = excess(program, k, row);
        add_product(&sum, hope[0], id);
        add_product(&sum, hope[1], loss);
        for (int e = 0; e < program->extra; e++) add_product(&sum, hope[2 + e], extra[e]);
        if (wide_sign(sum) < 0) return 0;
    }
    return 1;
}

int compare_accepted(const Program *program, Accepted a, Accepted b)
{
    int64_t over_a = program->per_id ? a.id : 1, over_b = program->per_id ? b.id : 1;
    int sign = compare_quotients(numerator(program, a), over_a, numerator(program, b), over_b);
    if (sign) return sign;
    if (a.id != b.id) return a.id > b.id ? -1 : 1;
    if (a.ood != b.ood) return a.ood < b.ood ? -1 : 1;
    return a.loss < b.loss ? -1 : a.loss > b.loss;
}
