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

int compare_accepted(const Program *program, Accepted a, Accepted b)
{
    int64_t over_a = program->per_id ? a.id : 1, over_b = program->per_id ? b.id : 1;
    int sign = compare_quotients(numerator(program, a), over_a, numerator(program, b), over_b);
    if (sign) return sign;
    if (a.id != b.id) return a.id > b.id ? -1 : 1;
    return a.ood < b.ood ? -1 : a.ood > b.ood;
}
