/* Trees that grow where they are looked at.
 *
 * Most rows of a large sample lie far from all half-planes that matter, and never need a place of
 * their own. So rows are only put into *cells* at first, those of the leading bits of their keys,
 * and the tree ends in these. What opens a node that is a cell lets it grow: its rows are sorted
 * and get the nodes that a tree over all rows has there. Every node has the masses of all its rows
 * from the beginning, so that nothing that is searched can tell such a tree from a grown one.
 *
 * Who lets a tree grow must be the only one to look at it.
 */
#include "tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ranks.h"
#include "tenths.h"
#include "vectors.h"

#define ROWS_AHEAD 16

/* A table of equal steps tells how many knots lie in earlier steps, and so below a value; those in
 * the same step are compared with it. Steps grow with values, whatever rounding does to them. */
#define STEPS 2048
#define MOST_IN_A_STEP 3

enum { EQUAL_STEPS, EQUAL_RATIOS, NO_STEPS };

typedef struct {
    int kind;
    double first, scale;
    int64_t first_bits, shift; /* of floats above zero, whose bits are in their order */
    double knot[KNOTS + MOST_IN_A_STEP]; /* those that differ, beyond them infinity */
    int rounds;            /* the most knots in a step */
    uint16_t before[STEPS];
    uint16_t bits[KNOTS];  /* bits of the rank after so many knots, with zeros between them */
} Steps;

static inline int32_t equal_step(const Steps *steps, double value)
{
    double step = (value - steps->first) * steps->scale;
    step = step > 0 ? step : 0;
    return (int32_t)(step < STEPS - 1 ? step : STEPS - 1);
}

static inline int64_t bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline int32_t ratio_step(const Steps *steps, double value)
{
    int64_t step = bits_of(value);
    step = step > steps->first_bits ? (step - steps->first_bits) >> steps->shift : 0;
    return (int32_t)(step < STEPS - 1 ? step : STEPS - 1);
}

static int32_t step_of(const Steps *steps, double value)
{
    return steps->kind == EQUAL_STEPS ? equal_step(steps, value) : ratio_step(steps, value);
}

static uint16_t spaced_bits(unsigned rank)
{
    unsigned spaced = 0;
    for (int bit = 0; bit < KNOT_BITS; bit++) spaced |= (rank >> bit & 1u) << (2 * bit);
    return (uint16_t)spaced;
}

/* Count the knots in each step. Returns the most. */
static int count_in_steps(Steps *steps, int knots)
{
    uint16_t in_step[STEPS] = {0};
    int most = 0;
    for (int k = 0; k < knots; k++) {
        const int count = ++in_step[step_of(steps, steps->knot[k])];
        most = count > most ? count : most;
    }
    for (int s = 0, before = 0; s < STEPS; before += in_step[s++])
        steps->before[s] = (uint16_t)before;
    return most;
}

/* Lay steps over the knots that part ranks of so many bits. */
static void lay_steps(const Ranks *ranks, int bits, Steps *steps)
{
    const int spare = KNOT_BITS - bits;
    int knots = 0;
    steps->bits[0] = 0;
    for (int k = 1; k < 1 << bits; k++) {
        const double knot = ranks->edge[k << spare];
        knots += knots == 0 || knot > steps->knot[knots - 1];
        steps->knot[knots - 1] = knot;
        steps->bits[knots] = spaced_bits((unsigned)k);
    }
    for (int k = knots; k < KNOTS + MOST_IN_A_STEP; k++) steps->knot[k] = HUGE_VAL;
    for (int k = knots + 1; k < KNOTS; k++) steps->bits[k] = steps->bits[knots];
    const double last = steps->knot[knots - 1], width = last - steps->knot[0];
    steps->kind = EQUAL_STEPS;
    steps->first = steps->knot[0];
    steps->scale = width > 0 && STEPS / width < HUGE_VAL ? STEPS / width : 0;
    if ((steps->rounds = count_in_steps(steps, knots)) <= MOST_IN_A_STEP) return;
    steps->kind = NO_STEPS;
    if (!(steps->first > 0)) return;
    steps->kind = EQUAL_RATIOS;
    steps->first_bits = bits_of(steps->first);
    for (steps->shift = 0; (bits_of(last) - steps->first_bits) >> steps->shift >= STEPS;)
        steps->shift++;
    if ((steps->rounds = count_in_steps(steps, knots)) > MOST_IN_A_STEP) steps->kind = NO_STEPS;
}

#define BY_STEPS(step)                                                                        \
    for (int i = 0; i < n; i++) {                                                             \
        const double value = score[2 * i];                                                    \
        int at = steps->before[step(steps, value)];                                           \
        for (int round = 0; round < rounds; round++) at += steps->knot[at] <= value;          \
        bits[i] = steps->bits[at];                                                            \
    }

static void bits_by_equal_steps(const double *score, int n, const Steps *steps, uint16_t *bits)
{
    const int rounds = steps->rounds;
    BY_STEPS(equal_step)
}

static void bits_by_ratios(const double *score, int n, const Steps *steps, uint16_t *bits)
{
    const int rounds = steps->rounds;
    BY_STEPS(ratio_step)
}

/* The number of knots at or below values, without a branch on data. */
ALWAYS_INLINE void knots_below_loops(const double *score, int n, const double *knot, int32_t *at)
{
    for (int i = 0; i < n; i++) at[i] = 0;
    for (int step = KNOTS / 2; step > 0; step /= 2)
        for (int i = 0; i < n; i++) at[i] += knot[at[i] + step - 1] <= score[2 * i] ? step : 0;
}

WITH_WIDEST_VECTORS(static, knots_below,
                    (const double *score, int n, const double *knot, int32_t *at),
                    (score, n, knot, at))

/* The bits of the cells of at most KEYS_TOGETHER values along one axis. */
static void bits_along(const double *score, int n, const Steps *steps, uint16_t *bits)
{
    int32_t at[KEYS_TOGETHER];
    if (steps->kind == EQUAL_STEPS) {
        bits_by_equal_steps(score, n, steps, bits);
    } else if (steps->kind == EQUAL_RATIOS) {
        bits_by_ratios(score, n, steps, bits);
    } else {
        knots_below(score, n, steps->knot, at);
        for (int i = 0; i < n; i++) bits[i] = steps->bits[at[i]];
    }
}

#define LANES 16 /* numbers of which the least and the largest are kept, those of both columns */

ALWAYS_INLINE void widen_loops(const double *score, int n, double *low, double *high)
{
    double least[LANES], most[LANES];
    for (int k = 0; k < LANES; k++) {
        least[k] = low[k % 2];
        most[k] = high[k % 2];
    }
    int i = 0;
    for (; i + LANES <= 2 * n; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            least[k] = score[i + k] < least[k] ? score[i + k] : least[k];
            most[k] = score[i + k] > most[k] ? score[i + k] : most[k];
        }
    }
    for (int k = 0; i < 2 * n; i++, k++) {
        least[k] = score[i] < least[k] ? score[i] : least[k];
        most[k] = score[i] > most[k] ? score[i] : most[k];
    }
    for (int k = 0; k < LANES; k++) {
        low[k % 2] = least[k] < low[k % 2] ? least[k] : low[k % 2];
        high[k % 2] = most[k] > high[k % 2] ? most[k] : high[k % 2];
    }
}

WITH_WIDEST_VECTORS(static, widen, (const double *score, int n, double *low, double *high),
                    (score, n, low, high))

static int has_mass(const int64_t *mass, int width)
{
    int64_t any = 0;
    for (int c = 0; c < width; c++) any |= c == MARK ? 0 : mass[c];
    return any != 0;
}

/* Rows while they are put into cells. */
typedef struct {
    const Soil *soil;
    const int64_t *id, *loss, *more;
    int width;
    Steps steps[2];
    const Share *share;
} Sowing;

/* Whether some losses are none, or as large as the ID mass. */
static int are_plain(const int64_t *id, const int64_t *loss, int count)
{
    int64_t other = 0;
    for (int i = 0; i < count; i++) other |= loss[i] & -(int64_t)(loss[i] != id[i]);
    return other == 0;
}

static void note_units(const Sowing *w, int64_t first, int count, int64_t *unit)
{
    const int plain = unit[UNIT_LOSS] == 1 && unit[UNIT_ID] == 1;
    if (plain && are_plain(w->id + first, w->loss + first, count)) return;
    for (int64_t i = first; i < first + count && unit[UNIT_LOSS] >= 0; i++)
        if (w->loss[i] > 0) note_unit(w->id[i], w->loss[i], unit);
}

/* With one set of OOD, by far the most frequent case. */
static void add_pairs(const Sowing *w, const uint16_t *cell, int64_t first, int count)
{
    for (int i = 0; i < count; i++) {
        int64_t *into = w->share->sums + 4 * (int64_t)cell[i];
        const int64_t id = w->id[first + i], loss = w->loss[first + i], ood = w->more[first + i];
        into[ID] += id;
        into[LOSS] += loss;
        into[FIRST_OOD] += ood;
        w->share->count[cell[i]]++;
    }
}

static void add_rows_of(const Sowing *w, const uint16_t *cell, int64_t first, int count)
{
    const int columns = w->width - FIRST_OOD;
    for (int i = 0; i < count; i++) {
        int64_t *into = w->share->sums + w->width * (int64_t)cell[i], row = first + i;
        into[ID] += w->id[row];
        into[LOSS] += w->loss[row];
        for (int c = 0; c < columns; c++)
            into[FIRST_OOD + c] += w->more[c * w->soil->rows + row];
        w->share->count[cell[i]]++;
    }
}

int tree_put(Signals *signals, const Soil *soil, int64_t begin, int64_t end, uint16_t *cell,
             const Share *share)
{
    Sowing w = {.soil = soil, .id = soil->id, .loss = soil->loss, .more = soil->more};
    uint16_t other[KEYS_TOGETHER];
    w.width = FIRST_OOD + soil->columns;
    w.share = share;
    for (int c = 0; c < 2; c++) {
        share->range[c] = HUGE_VAL;
        share->range[2 + c] = -HUGE_VAL;
        lay_steps(soil->ranks + c, soil->bits / 2, w.steps + c);
    }
    share->unit[UNIT_LOSS] = share->unit[UNIT_ID] = 0;
    for (int64_t first = begin; first < end; first += KEYS_TOGETHER) {
        if (interrupted_in_loop(signals, first - begin)) return -1;
        const int count = end - first < KEYS_TOGETHER ? (int)(end - first) : KEYS_TOGETHER;
        const double *score = soil->scores + 2 * first;
        widen(score, count, share->range, share->range + 2);
        bits_along(score, count, w.steps, cell + first);
        bits_along(score + 1, count, w.steps + 1, other);
        for (int i = 0; i < count; i++)
            cell[first + i] = (uint16_t)(cell[first + i] << 1 | other[i]);
        note_units(&w, first, count, share->unit);
        if (w.width == FIRST_OOD + 1)
            add_pairs(&w, cell + first, first, count);
        else
            add_rows_of(&w, cell + first, first, count);
    }
    return 0;
}

int tree_list(Signals *signals, const Soil *soil, int64_t begin, int64_t end, uint32_t *start,
              int32_t *row)
{
    const uint16_t *cell = soil->cell;
    for (int64_t first = begin; first < end; first += ROWS_OF_A_BLOCK) {
        const int64_t last = end - first < ROWS_OF_A_BLOCK ? end : first + ROWS_OF_A_BLOCK;
        if (interrupted(signals, 1)) return -1;
        for (int64_t i = first; i < last; i++) {
            if (cell[i] >> soil->bits || start[cell[i]] >= soil->rows) return 1;
            row[start[cell[i]]++] = (int32_t)i;
        }
    }
    return 0;
}

/* Where the rows of a cell are: between knots, or beyond the last of them. */
static void enclose_cell(const Sown *sown, uint32_t cell, double *box)
{
    const int half = sown->soil->bits / 2, spare = KNOT_BITS - half;
    for (int axis = 0; axis < 2; axis++) {
        const double *edge = sown->soil->ranks[axis].edge;
        const int rank = rank_of(cell, axis), last = rank + 1 == 1 << half;
        box[axis] = rank == 0 ? sown->range[axis] : edge[rank << spare];
        box[2 + axis] = last ? sown->range[2 + axis] : edge[(rank + 1) << spare];
    }
}

/* Where the highest bit changes that differs within a range of cells in order. */
static int32_t split_cells(const uint16_t *used, int32_t first, int32_t end)
{
    const uint32_t bit = highest_bit((uint32_t)(used[first] ^ used[end - 1]));
    int32_t low = first, high = end - 1;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        if (used[middle] & bit)
            high = middle;
        else
            low = middle;
    }
    return high;
}

static void finish_cell(const Sown *sown, uint32_t cell, Node *node, double *box, int64_t *sums)
{
    const int64_t *from = sown->sums + (int64_t)cell * sown->width;
    const uint32_t end = sown->end[cell];
    *node = (Node){(int32_t)(end - sown->count[cell]), (int32_t)end, UNGROWN};
    enclose_cell(sown, cell, box);
    memcpy(sums, from, (size_t)sown->width * sizeof *sums);
    sums[MARK] = has_mass(from, sown->width) ? (int64_t)scramble(cell) : 0;
}

/* Build the nodes above all cells that have rows. Returns their number. */
static int64_t build_above(const Sown *sown)
{
    const Soil *soil = sown->soil;
    const uint16_t *used = sown->used;
    int32_t pending[2 * KNOT_BITS + 2];
    int waiting = 0;
    int64_t nodes = 0;
    /* Until they are done, nodes hold cells instead of points. */
    soil->node[nodes++] = (Node){0, sown->cells, 0};
    pending[waiting++] = 0;
    while (waiting) {
        Node *here = soil->node + pending[--waiting];
        if (here->end - here->first == 1) continue;
        const int32_t middle = split_cells(used, here->first, here->end);
        here->child = (int32_t)nodes;
        soil->node[nodes++] = (Node){here->first, middle, 0};
        soil->node[nodes++] = (Node){middle, here->end, 0};
        pending[waiting++] = here->child + 1;
        pending[waiting++] = here->child;
    }
    for (int64_t k = nodes - 1; k >= 0; k--) {
        Node *here = soil->node + k;
        double *box = soil->box + 4 * k;
        int64_t *sums = soil->sums + k * sown->width;
        if (here->child == 0) {
            const uint32_t cell = used[here->first];
            soil->node_of[cell] = (int32_t)k;
            finish_cell(sown, cell, here, box, sums);
        } else {
            here->first = 0;
            here->end = (int32_t)soil->rows;
            enclose_children(soil->box + 4 * (int64_t)here->child, box);
            total_children(soil->sums + here->child * (int64_t)sown->width, sown->width, sums);
        }
    }
    return nodes;
}

int tree_learn(const double *scores, int64_t rows, Ranks *ranks, int32_t *tilt)
{
    const int fine = (64 - bits_for(rows)) / 2 - KNOT_BITS;
    for (int c = 0; c < 2; c++)
        if (learn_ranks(scores, rows, c, fine, ranks + c)) return -1;
    *tilt = tilt_between(ranks[0].spread, ranks[1].spread);
    return 0;
}

int tree_sow(const Soil *soil, const Share *all, const uint32_t *end, double *tenths)
{
    const int cells = 1 << soil->bits;
    uint16_t *used = malloc((size_t)cells * sizeof *used);
    if (!used) return -1;
    Sown sown = {soil, used, 0, all->count, end, all->sums, all->range, FIRST_OOD + soil->columns};
    uint32_t largest = 0;
    for (int k = 0; k < cells; k++) {
        soil->node_of[k] = -1;
        largest = all->count[k] > largest ? all->count[k] : largest;
        if (all->count[k]) used[sown.cells++] = (uint16_t)k;
    }
    const int failed = tenths_along(&sown, 0, tenths) || tenths_along(&sown, 1, tenths + 2);
    if (!failed) {
        soil->state[GROWN_NODES] = build_above(&sown);
        soil->state[GROWN_POINTS] = 0;
        soil->state[LARGEST_CELL] = largest;
    }
    free(used);
    return failed ? -1 : 0;
}

/* What a cell needs while it grows, for each of its rows. */
typedef struct {
    double *score;
    uint64_t *code, *spare;
} Seeds;

_Static_assert(SEED_WORDS * sizeof(uint64_t) == 2 * sizeof(double) + 2 * sizeof(uint64_t),
               "scores, codes and room to sort them");

static Seeds seeds_in(void *room, int64_t rows)
{
    Seeds seeds = {room, NULL, NULL};
    seeds.code = (uint64_t *)room + 2 * rows;
    seeds.spare = seeds.code + rows;
    return seeds;
}

static void fetch_rows(const Soil *soil, const int32_t *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        WILL_READ(soil->id + row[i]);
        WILL_READ(soil->loss + row[i]);
        for (int c = 0; c < soil->columns; c++) WILL_READ(soil->more + c * soil->rows + row[i]);
    }
}

/* Sort the rows of a cell by key, then value; codes end in their places among them. */
static void sort_rows(const Soil *soil, const int32_t *row, int64_t n, const Seeds *seeds,
                      int row_bits)
{
    uint64_t other[KEYS_TOGETHER];
    const int free_bits = 64 - 2 * (KNOT_BITS + (int)soil->ranks->fine);
    for (int64_t i = 0; i < n; i++) {
        if (i + ROWS_AHEAD < n) WILL_READ(soil->scores + 2 * (int64_t)row[i + ROWS_AHEAD]);
        memcpy(seeds->score + 2 * i, soil->scores + 2 * (int64_t)row[i], 2 * sizeof(double));
    }
    for (int64_t first = 0; first < n; first += KEYS_TOGETHER) {
        const int count = n - first < KEYS_TOGETHER ? (int)(n - first) : KEYS_TOGETHER;
        uint64_t *key = seeds->code + first;
        rank_all(seeds->score + 2 * first, count, soil->ranks, key);
        rank_all(seeds->score + 2 * first + 1, count, soil->ranks + 1, other);
        interleave(key, other, count);
        for (int i = 0; i < count; i++) key[i] = key[i] << free_bits | (uint64_t)(first + i);
    }
    sort_values(seeds->score, seeds->code, seeds->spare, n, row_bits);
}

static void add_masses(const Soil *soil, int64_t row, int64_t *into)
{
    into[ID] += soil->id[row];
    into[LOSS] += soil->loss[row];
    for (int c = 0; c < soil->columns; c++)
        into[FIRST_OOD + c] += soil->more[c * soil->rows + row];
}

/* Write the distinct points of a cell, with masses and marks; keys replace codes, which they never
 * overtake. Marks add up to what the cell had. Returns the end of the points. */
static int64_t write_points(const Soil *soil, const int32_t *row, int64_t n, const Seeds *seeds,
                            int row_bits, int64_t mark)
{
    const int width = FIRST_OOD + soil->columns;
    const int64_t begin = soil->state[GROWN_POINTS];
    int64_t points = begin, last = -1;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t here = seeds->code[i];
        const int64_t at = row_of(here, row_bits);
        const double *from = seeds->score + 2 * at;
        double *to = soil->point + 2 * points;
        if (points == begin || from[0] != to[-2] || from[1] != to[-1]) {
            memcpy(to, from, 2 * sizeof *to);
            memset(soil->mass + points * width, 0, (size_t)width * sizeof *soil->mass);
            set_key(seeds->code, points++ - begin, (uint32_t)(here >> (64 - KEY_BITS)));
        }
        add_masses(soil, row[at], soil->mass + (points - 1) * width);
    }
    for (int64_t i = begin; i < points; i++) {
        int64_t *mass = soil->mass + i * width;
        if (!has_mass(mass, width)) continue;
        mass[MARK] = (int64_t)scramble((uint64_t)i + ((uint64_t)1 << 32));
        mark = add(mark, -mass[MARK]);
        last = i;
    }
    if (last >= 0) soil->mass[last * width + MARK] = add(soil->mass[last * width + MARK], mark);
    return points;
}

void tree_grow(const Tree *tree, int32_t index)
{
    const Soil *soil = &tree->soil;
    Node *cell = soil->node + index;
    const int32_t *row = soil->row + cell->first;
    const int64_t n = cell->end - cell->first, begin = soil->state[GROWN_POINTS];
    const int64_t first = soil->state[GROWN_NODES], width = tree->width;
    const int row_bits = bits_for(soil->rows);
    const Seeds seeds = seeds_in(soil->room, n);
    fetch_rows(soil, row, n);
    sort_rows(soil, row, n, &seeds, row_bits);
    const int64_t mark = soil->sums[index * width + MARK];
    const int64_t end = write_points(soil, row, n, &seeds, row_bits, mark);
    *cell = (Node){(int32_t)begin, (int32_t)end, 0};
    const int64_t last = grow_nodes(seeds.code, begin, soil->node, index, first);
    tree_enclose(soil->node, first, last, soil->point, soil->box);
    tree_total(soil->node, first, last, soil->mass, (int)width, soil->sums);
    tree_enclose(soil->node, index, index + 1, soil->point, soil->box);
    soil->state[GROWN_NODES] = last;
    soil->state[GROWN_POINTS] = end;
}
