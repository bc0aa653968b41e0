/* Where the middle 80 % of the ID mass lie along each score, from rows that are in cells already.
 *
 * The masses of cells tell in which strip of them a tenth of all is reached; only the rows of that
 * strip, one of some hundred, are looked at.
 */
#include "tenths.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    double value;
    int64_t mass;
} Weighed;

static void swap(Weighed *a, Weighed *b)
{
    const Weighed kept = *a;
    *a = *b;
    *b = kept;
}

/* The smallest value up to which there is mass of at least `least`, of n values that have it. */
static double value_at(Weighed *value, int64_t n, int64_t least)
{
    for (uint64_t draw = 0;; draw++) {
        const double pivot = value[scramble(draw) % (uint64_t)n].value;
        int64_t below = 0, equal = 0, lower = 0, upper = n;
        for (int64_t i = 0; i < upper;) {
            if (value[i].value < pivot) {
                below += value[i].mass;
                swap(value + lower++, value + i++);
            } else if (value[i].value > pivot) {
                swap(value + i, value + --upper);
            } else {
                equal += value[i++].mass;
            }
        }
        if (below + equal < least) {
            least -= below + equal;
            value += upper;
            n -= upper;
        } else if (below < least) {
            return pivot;
        } else {
            n = lower;
        }
    }
}

/* List the values with mass of a strip of cells. Returns their number. */
static int64_t list_strip(const Sown *sown, int axis, int strip, Weighed *value)
{
    const Soil *soil = sown->soil;
    int64_t count = 0;
    for (int32_t k = 0; k < sown->cells; k++) {
        const uint32_t cell = sown->used[k];
        if (rank_of(cell, axis) != strip) continue;
        for (uint32_t i = sown->end[cell] - sown->count[cell]; i < sown->end[cell]; i++) {
            const int64_t row = soil->row[i];
            value[count].value = soil->scores[2 * row + axis];
            value[count].mass = soil->id[row];
            count += soil->id[row] > 0;
        }
    }
    return count;
}

static int value_in_strip(const Sown *sown, int axis, int strip, int64_t rows, int64_t least,
                          double *found)
{
    Weighed *value = malloc((size_t)(rows + 1) * sizeof *value);
    if (!value) return -1;
    const int64_t count = list_strip(sown, axis, strip, value);
    *found = value_at(value, count, least);
    free(value);
    return 0;
}

int tenths_along(const Sown *sown, int axis, double *tenth)
{
    const int strips = 1 << (sown->soil->bits / 2);
    int64_t mass[KNOTS] = {0}, rows[KNOTS] = {0}, total = 0;
    for (int32_t k = 0; k < sown->cells; k++) {
        const uint32_t cell = sown->used[k];
        const int strip = rank_of(cell, axis);
        mass[strip] += sown->sums[(int64_t)cell * sown->width + ID];
        rows[strip] += sown->count[cell];
    }
    for (int strip = 0; strip < strips; strip++) total += mass[strip];
    tenth[0] = tenth[1] = NAN;
    for (int side = 0; side < 2 && total > 0; side++) {
        /* Masses are below 2^52. */
        const int64_t least = ((side ? 9 : 1) * total + 9) / 10;
        int64_t before = 0;
        int strip = 0;
        while (before + mass[strip] < least) before += mass[strip++];
        if (value_in_strip(sown, axis, strip, rows[strip], least - before, tenth + side)) return -1;
    }
    return 0;
}
