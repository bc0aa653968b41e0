#include "program.h"

Accepted accepted_by(const int64_t *row, int sets)
{
    Accepted a = {row[ID], 0, row[LOSS]};
    for (int s = 0; s < sets; s++) a.ood += row[FIRST_OOD + s];
    return a;
}

static wide numerator(const Program *program, Accepted a)
{
    return (wide)program->loss * a.loss + (wide)program->id * a.id + (wide)program->ood * a.ood;
}

double objective(const Program *program, Accepted a)
{
    double value = (double)numerator(program, a);
    return program->per_id ? value / (double)a.id : value;
}

int within(const Program *program, const int64_t *row, int64_t id)
{
    if (id < program->min_id) return 0;
    for (int s = 0; s < program->sets; s++) {
        int64_t ood = row[FIRST_OOD + s], a = program->ratio[2 * s], b = program->ratio[2 * s + 1];
        if (ood > program->max_ood[s]) return 0;
        if (b > 0 && (wide)a * id < (wide)b * ood) return 0;
    }
    return 1;
}

static wide floored(wide p, wide q) { return p / q - (p % q < 0); }

/* Sign of p/b - q/d for positive b, d below 2^52, without forming products of three factors. */
static int compare_quotients(wide p, int64_t b, wide q, int64_t d)
{
    wide whole_p = floored(p, b), whole_q = floored(q, d);
    if (whole_p != whole_q) return whole_p < whole_q ? -1 : 1;
    wide left = (p - whole_p * b) * d, right = (q - whole_q * d) * b;
    return left < right ? -1 : left > right;
}

int compare_accepted(const Program *program, Accepted a, Accepted b)
{
    int64_t over_a = program->per_id ? a.id : 1, over_b = program->per_id ? b.id : 1;
    int sign = compare_quotients(numerator(program, a), over_a, numerator(program, b), over_b);
    if (sign) return sign;
    if (a.id != b.id) return a.id > b.id ? -1 : 1;
    return a.ood < b.ood ? -1 : a.ood > b.ood;
}
