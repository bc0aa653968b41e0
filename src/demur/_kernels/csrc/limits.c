/* Boxes: accept when each of two scores is at most its own limit.
 *
 * A pair of limits is a pair of ranks, and masses only grow with either. A cell is a range of
 * ranks on each axis, as many as a power of two; every box in it accepts the rows below its low
 * corner, and at most those below its high one. Cells are taken apart, the most promising first;
 * those that can hold nothing better than the best box known are dropped. The same search, in
 * words and in NumPy: demur/_kernels/limits.py.
 *
 * What a cell can hold is judged in float64 with room for rounding; which box is better, and what
 * bounds allow, on integers. */
#include "limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"
#include "vectors.h"

#define EPS 2.220446049250313e-16
#define EXACT_BELOW 9007199254740992.0 /* 2^53 */

typedef struct {
    int64_t low[2], end[2];
    double hope; /* no box of it has a smaller objective */
} Cell;

/* What crossing rows can take off the objective of the best box, and with how much ID mass. */
typedef struct {
    double taken, id;
} Welcome;

/* What a unit of loss, of ID and of OOD mass is worth, the best box being worth 0; `per` is the
 * scale of it, `total` the objective of the best before it is divided. */
typedef struct {
    double loss, id, ood, per, total;
} Price;

/* Rows in the order of one axis, by strips of 2^bits ranks, those that were needed: their ranks on
 * it and on the other, and their masses. */
typedef struct {
    int bits;
    char *gathered;
    int64_t *rank, *mass;
} Strips;

typedef struct {
    Limits *limits;
    Signals *signals;
    Strips strips[2];
    double total[3], size;
    double doubt; /* how large rounding is at most, relative to the size of all terms */
    Cell *cell; /* those that wait, the next one last, each with the masses below it */
    int64_t *base;
    int64_t waiting, room;
    int64_t *table; /* masses of the parts of a cell, then below their corners */
    Welcome *welcome;
    Cell *part;
    int64_t *part_low; /* where in the table */
    int64_t *crossing;
    Price worth;
    double worth_doubt; /* of what a part is worth */
} Hunt;

/* How a cell is taken apart. */
typedef struct {
    int left[2]; /* ranks of a part, as powers of two */
    int64_t shape[2]; /* one more than parts: place 0 is below the cell */
} Division;

static int smaller(int a, int b) { return a < b ? a : b; }

static int bits_of(int64_t ranks)
{
    int bits = 0;
    while (((int64_t)1 << bits) < ranks) bits++;
    return bits;
}

static Division divide(const Hunt *h, const Cell *cell, int first)
{
    Division d;
    for (int a = 0; a < 2; a++) {
        const int64_t ranks = cell->end[a] - cell->low[a];
        const int bits = bits_of(ranks), taken = smaller(bits, h->limits->steps[first ? 0 : 1]);
        d.left[a] = bits - taken;
        d.shape[a] = ((ranks - 1) >> d.left[a]) + 2;
    }
    return d;
}

static Price price(const Limits *l)
{
    const Program *p = &l->program;
    Price worth = {(double)p->loss, (double)p->id, (double)p->ood, 1, 0};
    if (!l->found) return worth;
    worth.total = wide_double(numerator(p, l->best));
    if (p->per_id) {
        worth.per = (double)l->best.id;
        worth.loss *= worth.per;
        worth.id = worth.id * worth.per - worth.total;
        worth.ood *= worth.per;
    }
    return worth;
}

static void set_worth(Hunt *h)
{
    const Price worth = h->worth = price(h->limits);
    double size = fabs(worth.loss) * h->total[0] + fabs(worth.id) * h->total[1] +
                  worth.ood * h->total[2];
    if (!h->limits->program.per_id) size += fabs(worth.total);
    h->worth_doubt = size < EXACT_BELOW ? 0 : h->doubt * size;
}

/* Copy the rows of the strips that a cell lies in, in the order of each axis, so that they are
 * read one after another by all cells in them. */
static void gather(Hunt *h, const Cell *cell)
{
    const Limits *l = h->limits;
    const size_t width = (size_t)l->width;
    for (int a = 0; a < 2; a++) {
        const LimitAxis *axis = l->axis + a;
        Strips *strips = h->strips + a;
        for (int64_t strip = cell->low[a] >> strips->bits;
             strip <= (cell->end[a] - 1) >> strips->bits; strip++) {
            if (strips->gathered[strip]) continue;
            strips->gathered[strip] = 1;
            const int64_t first = strip << strips->bits, ranks = (int64_t)1 << strips->bits;
            const int64_t end = axis->ranks - first < ranks ? axis->ranks : first + ranks;
            for (int64_t k = axis->start[first]; k < axis->start[end]; k++) {
                const int64_t row = axis->order[k];
                strips->rank[2 * k] = axis->rank[row];
                strips->rank[2 * k + 1] = l->axis[1 - a].rank[row];
                memcpy(strips->mass + (size_t)k * width, l->mass + (size_t)row * width,
                       width * sizeof *l->mass);
            }
        }
    }
}

/* Rows are added to the masses of parts, or to what they are worth. */
typedef void (*Add)(Hunt *h, const int64_t *mass, int64_t place);

/* Add the rows that cross a cell, each where it lies among the parts. */
ALWAYS_INLINE void rows_of_cell(Hunt *h, const Cell *cell, const Division *d, Add add)
{
    const LimitAxis *x = h->limits->axis, *y = x + 1;
    const Strips *by_x = h->strips, *by_y = by_x + 1;
    const int64_t high = cell->end[1] - cell->low[1];
    const int width = h->limits->width;
    for (int64_t k = x->start[cell->low[0]]; k < x->start[cell->end[0]]; k++) {
        const int64_t other = by_x->rank[2 * k + 1] - cell->low[1];
        if (other >= high) continue;
        const int64_t place = ((by_x->rank[2 * k] - cell->low[0]) >> d->left[0]) + 1;
        add(h, by_x->mass + k * width,
            place * d->shape[1] + (other < 0 ? 0 : (other >> d->left[1]) + 1));
    }
    for (int64_t k = y->start[cell->low[1]]; k < y->start[cell->end[1]]; k++) {
        if (by_y->rank[2 * k + 1] >= cell->low[0]) continue;
        add(h, by_y->mass + k * width, ((by_y->rank[2 * k] - cell->low[1]) >> d->left[1]) + 1);
    }
}

/* The same for the cell of all boxes, in the order of the rows. */
ALWAYS_INLINE void all_rows(Hunt *h, const Division *d, Add add)
{
    const Limits *l = h->limits;
    const LimitAxis *x = l->axis, *y = x + 1;
    for (int64_t row = 0; row < l->rows; row++)
        add(h, l->mass + row * l->width,
            ((x->rank[row] >> d->left[0]) + 1) * d->shape[1] + (y->rank[row] >> d->left[1]) + 1);
}

ALWAYS_INLINE void add_mass(Hunt *h, const int64_t *mass, int64_t place)
{
    const int width = h->limits->width;
    int64_t *into = h->table + place * width;
    for (int c = 0; c < width; c++) into[c] += mass[c];
}

ALWAYS_INLINE void add_welcome(Hunt *h, const int64_t *mass, int64_t place)
{
    const double value = h->worth.loss * (double)mass[LOSS] + h->worth.id * (double)mass[ID];
    if (value > 0) return;
    h->welcome[place].taken += value;
    h->welcome[place].id += (double)mass[ID];
}

static void fill_table(Hunt *h, const Cell *cell, const Division *d, int first)
{
    if (first)
        all_rows(h, d, add_mass);
    else
        rows_of_cell(h, cell, d, add_mass);
}

static void fill_welcome(Hunt *h, const Cell *cell, const Division *d, int first)
{
    if (first)
        all_rows(h, d, add_welcome);
    else
        rows_of_cell(h, cell, d, add_welcome);
}

/* Make of masses at places those at or below them. */
static void accumulate(Hunt *h, const Division *d, int welcomed)
{
    const int width = h->limits->width;
    for (int64_t i = 0; i < d->shape[0]; i++)
        for (int64_t j = 0; j < d->shape[1]; j++) {
            const int64_t here = i * d->shape[1] + j, left = here - 1, below = here - d->shape[1];
            if (welcomed) {
                Welcome *w = h->welcome + here;
                for (int side = 0; side < 2; side++) {
                    if (side ? i == 0 : j == 0) continue;
                    const Welcome *o = h->welcome + (side ? below : left);
                    w->taken += o->taken;
                    w->id += o->id;
                }
                if (i && j) {
                    w->taken -= h->welcome[below - 1].taken;
                    w->id -= h->welcome[below - 1].id;
                }
                continue;
            }
            int64_t *row = h->table + here * width;
            if (j) add_row(row, h->table + left * width, width);
            if (!i) continue;
            add_row(row, h->table + below * width, width);
            if (!j) continue;
            const int64_t *corner = h->table + (below - 1) * width;
            for (int c = 0; c < width; c++) row[c] -= corner[c];
        }
}

/* Whether a box is worse than the best for sure, by float64. */
static int is_worse(const Limits *l, Accepted a, double best)
{
    const Program *p = &l->program;
    const double loss = (double)p->loss * (double)a.loss, id = (double)p->id * (double)a.id;
    const double ood = (double)p->ood * (double)a.ood, per = p->per_id ? (double)a.id : 1;
    const double size = loss - id + ood + fabs(best) * per;
    return loss + id + ood - best * per > 64 * EPS * size;
}

static void offer(Limits *l, const int64_t *end, const int64_t *row)
{
    const Accepted a = accepted_by(row, l->program.sets);
    if (l->found && is_worse(l, a, l->value)) return;
    const int sign = l->found ? compare_accepted(&l->program, a, l->best) : -1;
    if (sign > 0) return;
    if (sign < 0) {
        l->best = a;
        l->value = objective(&l->program, a);
        l->found = 0;
    }
    if (l->found == l->room) return;
    for (int a = 0; a < 2; a++) l->ranks[2 * l->found + a] = end[a] - 1;
    l->found++;
}

/* Offer the largest box of each part, and note the parts that there are. */
static int64_t try_parts(Hunt *h, const Cell *cell, const Division *d)
{
    Limits *l = h->limits;
    int64_t parts = 0;
    for (int64_t i = 0; i + 1 < d->shape[0]; i++)
        for (int64_t j = 0; j + 1 < d->shape[1]; j++) {
            const int64_t at[2] = {i, j}, place = i * d->shape[1] + j;
            Cell *part = h->part + parts;
            for (int a = 0; a < 2; a++) {
                part->low[a] = cell->low[a] + (at[a] << d->left[a]);
                part->end[a] = part->low[a] + ((int64_t)1 << d->left[a]);
                if (part->end[a] > cell->end[a]) part->end[a] = cell->end[a];
            }
            const int64_t *high = h->table + (place + d->shape[1] + 1) * l->width;
            if (within(&l->program, high, high[ID]) && linear_met(&l->program, high))
                offer(l, part->end, high);
            h->part_low[parts++] = place;
        }
    l->cells += parts;
    return parts;
}

/* Whether a part has rows that cross it; otherwise it is known by its largest box. */
static int is_crossed(const Limits *l, const int64_t *low, const int64_t *high)
{
    if (high[ID] > low[ID] || high[LOSS] > low[LOSS]) return 1;
    for (int s = 0; s < l->program.sets; s++)
        if (high[FIRST_OOD + s] > low[FIRST_OOD + s]) return 1;
    return 0;
}

/* Whether a part may hold a box that meets linear bounds. */
static int meets_linear(const Hunt *h, const int64_t *low, const int64_t *high)
{
    const Program *p = &h->limits->program;
    if (p->bounds == 0) return 1;
    for (int c = 0; c < h->limits->width; c++) h->crossing[c] = high[c] - low[c];
    return linear_possible(p, low, h->crossing[ID], h->crossing[LOSS],
                           h->crossing + FIRST_OOD + p->sets);
}

/* Of rows whose losses are none or all of their ID mass; and what a unit of ID mass beyond those
 * adds at least. */
static Welcome plain_welcome(const Price *worth, const int64_t *low, const int64_t *high,
                             double *penalty)
{
    const double right = worth->id, wrong = worth->loss + worth->id;
    const double loss = (double)(high[LOSS] - low[LOSS]);
    const double correct = (double)(high[ID] - low[ID]) - loss;
    Welcome w = {0, 0};
    if (right <= 0) {
        w.taken += right * correct;
        w.id += correct;
    }
    if (wrong <= 0) {
        w.taken += wrong * loss;
        w.id += loss;
    }
    *penalty = right > 0 && right < wrong ? right : wrong;
    if (*penalty < 0) *penalty = 0;
    return w;
}

static Welcome welcomed(const Hunt *h, int64_t place, const Division *d)
{
    const Welcome *low = h->welcome + place, *high = low + d->shape[1] + 1;
    return (Welcome){high->taken - low->taken, high->id - low->id};
}

/* Whether a part may hold a better box, or as good a one; `hope` is the least it may have. */
static int promising(const Hunt *h, int64_t place, const Division *d, double *hope)
{
    const Limits *l = h->limits;
    const Price *worth = &h->worth;
    const Program *p = &l->program;
    const int64_t *low = h->table + place * l->width, *high = low + (d->shape[1] + 1) * l->width;
    if (!is_crossed(l, low, high) || !within(p, low, high[ID])) return 0;
    *hope = -HUGE_VAL;
    if (!l->found) return meets_linear(h, low, high);
    double penalty = 0;
    const Welcome w =
        l->zero_one ? plain_welcome(worth, low, high, &penalty) : welcomed(h, place, d);
    const double ood = (double)accepted_by(low, p->sets).ood;
    double least = worth->loss * (double)low[LOSS] + worth->id * (double)low[ID] +
                   worth->ood * ood + w.taken;
    double reachable = (double)low[ID] + w.id;
    if (penalty > 0 && reachable < (double)p->min_id) {
        least += penalty * ((double)p->min_id - reachable);
        reachable = (double)p->min_id;
    }
    if (!p->per_id) least -= worth->total;
    const double doubt = h->worth_doubt;
    double smallest = (double)(low[ID] > p->min_id ? low[ID] : p->min_id);
    const double scale = p->per_id ? worth->per * smallest : 1, best = l->value;
    *hope = best + (least < doubt ? least - doubt : 0) / scale;
    int kept = least < 0;
    if (l->gap > 0)
        kept = *hope < best - l->gap;
    else if (doubt > 0)
        kept = least <= doubt;
    else if (least == 0)
        kept = reachable > (double)l->best.id ||
               (reachable >= (double)l->best.id && ood <= (double)l->best.ood);
    return kept && meets_linear(h, low, high);
}

/* Whether a cell that waited may still hold something better. */
static int still_open(const Hunt *h, const Cell *cell)
{
    const Limits *l = h->limits;
    if (!l->found) return 1;
    const double best = l->value;
    /* Quotients are of sums without a sign; other objectives may cancel to next to nothing. */
    const double size = l->program.per_id ? fabs(best) : h->size;
    return cell->hope <= best - l->gap + h->doubt * size;
}

static int push(Hunt *h, const Cell *cell, const int64_t *base)
{
    const size_t width = (size_t)h->limits->width;
    if (h->waiting == h->room) {
        const size_t room = 2 * (size_t)h->room + 64;
        if (MAKE_ROOM(&h->cell, room) || MAKE_ROOM(&h->base, room * width)) return -1;
        h->room = (int64_t)room;
    }
    h->cell[h->waiting] = *cell;
    memcpy(h->base + (size_t)h->waiting++ * width, base, width * sizeof *base);
    return 0;
}

static int by_falling_hope(const void *a, const void *b)
{
    const Cell *p = a, *q = b;
    if (p->hope != q->hope) return p->hope < q->hope ? 1 : -1;
    return p->low[0] != q->low[0] ? (p->low[0] < q->low[0] ? 1 : -1)
                                  : (p->low[1] < q->low[1]) - (p->low[1] > q->low[1]);
}

static int take_apart(Hunt *h, Cell cell, int first)
{
    Limits *l = h->limits;
    const Division d = divide(h, &cell, first);
    const size_t places = (size_t)(d.shape[0] * d.shape[1]);
    memset(h->table, 0, places * (size_t)l->width * sizeof *h->table);
    memcpy(h->table, h->base + h->waiting * l->width, (size_t)l->width * sizeof *h->table);
    if (!first) gather(h, &cell);
    fill_table(h, &cell, &d, first);
    accumulate(h, &d, 0);
    const int64_t parts = try_parts(h, &cell, &d);
    set_worth(h);
    if (!l->zero_one && l->found) {
        memset(h->welcome, 0, places * sizeof *h->welcome);
        fill_welcome(h, &cell, &d, first);
        accumulate(h, &d, 1);
    }
    if (d.left[0] == 0 && d.left[1] == 0) return 0;
    int64_t kept = 0;
    for (int64_t k = 0; k < parts; k++) {
        Cell part = h->part[k];
        if (promising(h, h->part_low[k], &d, &part.hope)) h->part[kept++] = part;
    }
    qsort(h->part, (size_t)kept, sizeof *h->part, by_falling_hope);
    for (int64_t k = 0; k < kept; k++) {
        const int64_t i = (h->part[k].low[0] - cell.low[0]) >> d.left[0];
        const int64_t j = (h->part[k].low[1] - cell.low[1]) >> d.left[1];
        if (push(h, h->part + k, h->table + (i * d.shape[1] + j) * l->width)) return -1;
    }
    return 0;
}

static int open_hunt(Hunt *h)
{
    const Limits *l = h->limits;
    const int most = l->steps[0] > l->steps[1] ? l->steps[0] : l->steps[1];
    const size_t side = ((size_t)1 << most) + 1, places = side * side;
    for (int64_t r = 0; r < l->rows; r++) {
        const int64_t *mass = l->mass + r * l->width;
        h->total[0] += (double)mass[LOSS];
        h->total[1] += (double)mass[ID];
        h->total[2] += (double)accepted_by(mass, l->program.sets).ood;
    }
    h->doubt = EPS * (4096 + 2 * (double)l->rows);
    const Price worth = price(l);
    h->size = fabs(worth.loss) * h->total[0] + fabs(worth.id) * h->total[1] +
              fabs(worth.ood) * h->total[2];
    for (int a = 0; a < 2; a++) {
        Strips *strips = h->strips + a;
        const int all = bits_of(l->axis[a].ranks), bits = all - smaller(all, STRIP_BITS);
        const size_t count = (size_t)1 << (all - bits), rows = (size_t)l->rows;
        strips->bits = bits;
        if (MAKE_ROOM(&strips->gathered, count) || MAKE_ROOM(&strips->rank, 2 * rows) ||
            MAKE_ROOM(&strips->mass, rows * (size_t)l->width))
            return -1;
        memset(strips->gathered, 0, count);
    }
    return MAKE_ROOM(&h->table, places * (size_t)l->width) || MAKE_ROOM(&h->welcome, places) ||
           MAKE_ROOM(&h->part, places) || MAKE_ROOM(&h->part_low, places) ||
           MAKE_ROOM(&h->crossing, (size_t)l->width);
}

static void close_hunt(Hunt *h)
{
    for (int a = 0; a < 2; a++) {
        free(h->strips[a].gathered);
        free(h->strips[a].rank);
        free(h->strips[a].mass);
    }
    free(h->cell);
    free(h->base);
    free(h->table);
    free(h->welcome);
    free(h->part);
    free(h->part_low);
    free(h->crossing);
}

/* What no box can be better than, with the cells that are left. */
static double lower_bound(const Hunt *h)
{
    const Limits *l = h->limits;
    double lower = l->found ? l->value - l->gap : HUGE_VAL;
    for (int64_t k = 0; k < h->waiting; k++)
        if (h->cell[k].hope < lower) lower = h->cell[k].hope;
    return lower;
}

/* The cells to look at: all boxes, or what is known to be open, the most promising last. */
static int start(Hunt *h)
{
    const Limits *l = h->limits;
    Cell cell = {{0, 0}, {l->axis[0].ranks, l->axis[1].ranks}, -HUGE_VAL};
    memset(h->crossing, 0, (size_t)l->width * sizeof *h->crossing);
    if (l->known < 0) return l->rows ? push(h, &cell, h->crossing) : 0;
    for (int64_t k = 0; k < l->known; k++) {
        for (int a = 0; a < 2; a++) {
            cell.low[a] = l->cell[4 * k + 2 * a];
            cell.end[a] = l->cell[4 * k + 2 * a + 1];
        }
        cell.hope = l->hope[k];
        if (push(h, &cell, l->below + k * l->width)) return -1;
    }
    return 0;
}

int limits_search(Limits *l, Signals *signals)
{
    Hunt h = {.limits = l, .signals = signals};
    if (l->found) l->value = objective(&l->program, l->best);
    int failed = open_hunt(&h) || start(&h);
    for (int first = l->known < 0; !failed && h.waiting && l->cells < l->budget; first = 0) {
        const Cell cell = h.cell[--h.waiting];
        if (still_open(&h, &cell))
            failed = interrupted(signals, 1) || take_apart(&h, cell, first);
    }
    l->open = h.waiting;
    l->lower = lower_bound(&h);
    close_hunt(&h);
    return failed ? -1 : 0;
}

static int axis_sound(const LimitAxis *axis, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        if (axis->rank[r] < 0 || axis->rank[r] >= axis->ranks || axis->order[r] < 0 ||
            axis->order[r] >= rows)
            return 0;
    for (int64_t k = 0; k <= axis->ranks; k++)
        if (axis->start[k] < (k ? axis->start[k - 1] : 0) || axis->start[k] > rows) return 0;
    return 1;
}

int limits_sound(const Limits *l)
{
    for (int a = 0; a < 2; a++) {
        const int64_t ranks = l->axis[a].ranks;
        if (!axis_sound(l->axis + a, l->rows)) return 0;
        for (int64_t k = 0; k < l->known; k++) {
            const int64_t low = l->cell[4 * k + 2 * a], end = l->cell[4 * k + 2 * a + 1];
            if (low < 0 || low >= end || end > ranks) return 0;
        }
    }
    return l->room > 0 && l->found >= 0 && l->found <= l->room;
}

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

static void add_column(const uint16_t *key, const int64_t *mass, int count, int64_t *table)
{
    for (int i = 0; i < count; i++) table[key[i]] += mass[i];
}

void limits_strips(const double *scores, int64_t n, const double *edges, const int64_t *id,
                   const int64_t *loss, const int64_t *more, int columns, uint16_t *key,
                   int64_t *tables)
{
    double score[2][ROWS_AT_ONCE];
    int64_t place[2][ROWS_AT_ONCE];
    for (int64_t first = 0; first < n; first += ROWS_AT_ONCE) {
        const int count = n - first < ROWS_AT_ONCE ? (int)(n - first) : ROWS_AT_ONCE;
        for (int i = 0; i < count; i++)
            for (int a = 0; a < 2; a++) score[a][i] = scores[2 * (first + i) + a];
        for (int a = 0; a < 2; a++) places(score[a], edges + a * STRIPS, count, place[a]);
        for (int i = 0; i < count; i++)
            key[first + i] = (uint16_t)(place[0][i] << STRIP_BITS | place[1][i]);
        add_column(key + first, id + first, count, tables);
        add_column(key + first, loss + first, count, tables + STRIPS * STRIPS);
        for (int c = 0; c < columns; c++)
            add_column(key + first, more + c * n + first, count, tables + (2 + c) * STRIPS * STRIPS);
    }
}
