#include "strips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"
#include "vectors.h"

#define ROWS_AT_ONCE 64

/* The strips of some rows: for all of them a step of a binary search, then the next. */
ALWAYS_INLINE void places_loops(const double *score, const double *edge, int count, int64_t *place)
{
    for (int i = 0; i < count; i++) place[i] = 0;
    for (int64_t step = STRIPS / 2; step > 0; step /= 2)
        for (int i = 0; i < count; i++)
            place[i] += edge[place[i] + step - 1] < score[i] ? step : 0;
}

WITH_WIDEST_VECTORS(static, places,
                    (const double *score, const double *edge, int count, int64_t *place),
                    (score, edge, count, place))

static int columns_of(const Strips *s) { return s->width - 1; }

/* The column of all masses that has those at a place of a row: there are no marks here. */
static const int64_t *column(const Strips *s, int c)
{
    return c == 0 ? s->id : c == 1 ? s->loss : s->more + (c - 2) * s->rows;
}

static int place_in_row(int c) { return c < 2 ? c : c + 1; }

/* Whether all masses are 0 or 1, in so few columns that a byte tells rows apart. */
static int has_kinds(const Strips *s)
{
    if (columns_of(s) > KIND_BITS) return 0;
    for (int c = 0; c < columns_of(s); c++) {
        const int64_t *mass = column(s, c);
        for (int64_t first = 0; first < s->rows; first += ROWS_OF_A_BLOCK) {
            const int64_t end = s->rows - first < ROWS_OF_A_BLOCK ? s->rows : first + ROWS_OF_A_BLOCK;
            uint64_t bits = 0;
            for (int64_t row = first; row < end; row++) bits |= (uint64_t)mass[row];
            if (bits > 1) return 0;
        }
    }
    return 1;
}

static int make_kinds(Strips *s)
{
    if (!has_kinds(s)) return 0;
    const int kinds = 1 << columns_of(s);
    if (MAKE_ROOM(&s->kinds, (size_t)(kinds * s->width))) return -1;
    memset(s->kinds, 0, (size_t)(kinds * s->width) * sizeof *s->kinds);
    for (int kind = 0; kind < kinds; kind++)
        for (int c = 0; c < columns_of(s); c++)
            s->kinds[kind * s->width + place_in_row(c)] = kind >> c & 1;
    return 0;
}

static uint8_t kind_of(const Strips *s, int64_t row)
{
    int kind = (int)s->id[row] | (int)s->loss[row] << 1;
    for (int c = 2; c < columns_of(s); c++) kind |= (int)s->more[(c - 2) * s->rows + row] << c;
    return (uint8_t)kind;
}

static void mass_at(const Strips *s, int64_t row, int64_t *into)
{
    for (int c = 0; c < columns_of(s); c++) into[place_in_row(c)] = column(s, c)[row];
}

static void add_block(const Strips *s, int64_t first, int count, const int64_t *at, int64_t *table)
{
    for (int c = 0; c < columns_of(s); c++) {
        const int64_t *mass = column(s, c) + first;
        int64_t *into = table + place_in_row(c);
        for (int i = 0; i < count; i++) into[at[i]] += mass[i];
    }
}

int strips_place(Strips *s, Signals *signals, int64_t *table)
{
    double score[2][ROWS_AT_ONCE];
    int64_t place[2][ROWS_AT_ONCE], at[ROWS_AT_ONCE];
    if (make_kinds(s) || MAKE_ROOM(&s->key, (size_t)s->rows + 1)) return -1;
    s->last[0] = s->last[1] = -HUGE_VAL;
    for (int64_t first = 0; first < s->rows; first += ROWS_AT_ONCE) {
        const int count = s->rows - first < ROWS_AT_ONCE ? (int)(s->rows - first) : ROWS_AT_ONCE;
        if (interrupted_in_loop(signals, first)) return -1;
        for (int i = 0; i < count; i++)
            for (int a = 0; a < 2; a++) score[a][i] = s->score[2 * (first + i) + a];
        for (int a = 0; a < 2; a++) places(score[a], s->edge + a * STRIPS, count, place[a]);
        for (int a = 0; a < 2; a++)
            for (int i = 0; i < count; i++)
                if (score[a][i] > s->last[a]) s->last[a] = score[a][i];
        for (int i = 0; i < count; i++) {
            s->key[first + i] = (uint16_t)(place[0][i] << STRIP_BITS | place[1][i]);
            at[i] = ((place[0][i] + 1) * (STRIPS + 1) + place[1][i] + 1) * s->width;
        }
        add_block(s, first, count, at, table);
    }
    for (int a = 0; a < 2; a++) {
        int64_t strip = 0;
        places(s->last + a, s->edge + a * STRIPS, 1, &strip);
        s->count[a] = s->rows ? (int)strip + 1 : 0;
    }
    return 0;
}

int strips_gather(Strips *s, const char *wanted)
{
    for (int a = 0; a < 2; a++) {
        int64_t count[STRIPS] = {0}, next[STRIPS], total = 0;
        for (int64_t row = 0; row < s->rows; row++) count[strip_of(s, a, row)]++;
        for (int k = 0; k < STRIPS; k++) {
            next[k] = total;
            if (!wanted[a * STRIPS + k]) continue;
            s->strip[a][k].count = count[k];
            total += count[k];
            if (count[k] > s->longest) s->longest = count[k];
        }
        if (MAKE_ROOM(&s->order[a], (size_t)total + 1) ||
            MAKE_ROOM(&s->rank[a], (size_t)s->rows + 1))
            return -1;
        for (int k = 0; k < STRIPS; k++) s->strip[a][k].row = s->order[a] + next[k];
        for (int64_t row = 0; row < s->rows; row++) {
            const int k = strip_of(s, a, row);
            if (wanted[a * STRIPS + k]) s->order[a][next[k]++] = (int32_t)row;
        }
    }
    return MAKE_ROOM(&s->keyed, (size_t)s->longest + 1) ||
           MAKE_ROOM(&s->spare, (size_t)s->longest + 1) ||
           MAKE_ROOM(&s->bucket, (size_t)s->longest + 2);
}

/* Sort by key: first into as many buckets as there are rows, by where a key lies between the least
 * and the largest, then each bucket. */
static void sort_by_buckets(Keyed *a, Keyed *spare, int32_t *bucket, int64_t n)
{
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (int64_t k = 0; k < n; k++) {
        if (a[k].key < least) least = a[k].key;
        if (a[k].key > most) most = a[k].key;
    }
    if (n == 0 || least == most) return;
    const double scale = (double)(n - 1) / (most - least);
    if (!(scale > 0 && scale < HUGE_VAL)) {
        sort_keyed(a, spare, n);
        return;
    }
    memset(bucket, 0, ((size_t)n + 1) * sizeof *bucket);
    for (int64_t k = 0; k < n; k++) bucket[(int64_t)((a[k].key - least) * scale) + 1]++;
    for (int64_t b = 0; b < n; b++) bucket[b + 1] += bucket[b];
    /* Buckets give their places away from the first on: then each begins where the last ended. */
    for (int64_t k = 0; k < n; k++) spare[bucket[(int64_t)((a[k].key - least) * scale)]++] = a[k];
    for (int64_t b = 0, first = 0; b < n; first = bucket[b++])
        if (bucket[b] - first > 1) sort_keyed(spare + first, a + first, bucket[b] - first);
    memcpy(a, spare, (size_t)n * sizeof *a);
}

/* Add up the masses of each part in all strips of the other axis below one. */
static int add_below(Strips *s, Strip *strip)
{
    const size_t row = (size_t)s->width, places = (size_t)strip->parts * (STRIPS + 1);
    if (s->width > WIDEST_BELOW) return 0;
    if (MAKE_ROOM(&strip->below, places * row)) return -1;
    memset(strip->below, 0, places * row * sizeof *strip->below);
    for (int part = 0; part < strip->parts; part++) {
        int64_t *table = strip->below + (size_t)part * (STRIPS + 1) * row;
        const int64_t first = (int64_t)part << strip->left, after = first + (1LL << strip->left);
        const int64_t end = strip->start[after < strip->ranks ? after : strip->ranks];
        for (int64_t k = strip->start[first]; k < end; k++) {
            const int64_t *mass = mass_of(s, strip, k);
            int64_t *into = table + (strip->other[k] + 1) * (int64_t)row;
            for (int c = 0; c < s->width; c++) into[c] += mass[c];
        }
        for (size_t at = row; at < (STRIPS + 1) * row; at++) table[at] += table[at - row];
    }
    return 0;
}

static int make_strip_room(Strips *s, Strip *strip)
{
    const size_t count = (size_t)strip->count;
    if (MAKE_ROOM(&strip->start, count + 1) || MAKE_ROOM(&strip->other, count)) return -1;
    if (s->kinds) return MAKE_ROOM(&strip->kind, count);
    if (MAKE_ROOM(&strip->mass, count * (size_t)s->width)) return -1;
    memset(strip->mass, 0, count * (size_t)s->width * sizeof *strip->mass);
    return 0;
}

int strip_sort(Strips *s, int axis, int place, int step)
{
    Strip *strip = &s->strip[axis][place];
    if (strip->ranks) return 0;
    if (make_strip_room(s, strip)) return -1;
    for (int64_t k = 0; k < strip->count; k++)
        s->keyed[k] = (Keyed){s->score[2 * (int64_t)strip->row[k] + axis], strip->row[k]};
    sort_by_buckets(s->keyed, s->spare, s->bucket, strip->count);
    int32_t ranks = 0;
    for (int64_t k = 0; k < strip->count; k++) {
        const int32_t row = s->keyed[k].item;
        if (k == 0 || s->keyed[k].key != s->keyed[k - 1].key) strip->start[ranks++] = (int32_t)k;
        strip->row[k] = row;
        s->rank[axis][row] = ranks - 1;
        strip->other[k] = (uint8_t)strip_of(s, 1 - axis, row);
        if (s->kinds)
            strip->kind[k] = kind_of(s, row);
        else
            mass_at(s, row, strip->mass + k * s->width);
    }
    strip->start[ranks] = (int32_t)strip->count;
    strip->ranks = ranks;
    int bits = 0;
    while ((1LL << bits) < ranks) bits++;
    strip->left = bits > step ? bits - step : 0;
    strip->parts = (int)((ranks - 1) >> strip->left) + 1;
    return add_below(s, strip);
}

void strips_close(Strips *s)
{
    for (int a = 0; a < 2; a++) {
        for (int k = 0; k < STRIPS; k++) {
            Strip *strip = &s->strip[a][k];
            free(strip->start);
            free(strip->other);
            free(strip->kind);
            free(strip->mass);
            free(strip->below);
            free(strip->welcome);
        }
        free(s->rank[a]);
        free(s->order[a]);
    }
    free(s->key);
    free(s->kinds);
    free(s->keyed);
    free(s->spare);
    free(s->bucket);
}
