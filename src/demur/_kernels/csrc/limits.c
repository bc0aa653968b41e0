/* Boxes: accept when each of two scores is at most its own limit.
 *
 * Each axis is cut into strips, and the strips into ranks of distinct scores. A cell is a range of
 * ranks in a strip of each axis; masses only grow with either limit, so every box in it accepts the
 * rows below its low corner, and at most those below its high one. First the cells of whole strips
 * are judged, by their masses alone: those that can hold nothing better than the best box known are
 * dropped, and the rows of their strips never sorted. The others are taken apart, the most
 * promising first. A search of the same kind in NumPy: demur/_kernels/box_search.py.
 *
 * What a cell can hold is judged in float64 with room for rounding; which box is better, and what
 * bounds allow, on integers. */
#include "limits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"

#define EPS 2.220446049250313e-16
#define EXACT_BELOW 9007199254740992.0 /* 2^53 */

typedef struct {
    int strip[2];
    int32_t low[2], end[2]; /* ranks within the strips; an end of 0 is that of a whole strip */
    double hope;            /* no box of it has a smaller objective */
} Cell;

/* What a unit of loss, of ID and of OOD mass is worth, the best box being worth 0; `per` is the
 * scale of it, `total` the objective of the best before it is divided. */
typedef struct {
    double loss, id, ood, per, total;
} Price;

typedef struct {
    Limits *limits;
    Signals *signals;
    double total[3], size;
    double doubt; /* how large rounding is at most, relative to the size of all terms */
    Cell *cell; /* those that wait, the next one last, each with the masses below it */
    int64_t *base;
    int64_t waiting, room;
    int64_t *table; /* masses of the parts of a cell, then below their corners */
    Welcome *welcome;
    Cell *part;
    int64_t *crossing;
    Price worth;
    double worth_doubt; /* of what a part is worth */
    int64_t time;       /* counts the best boxes, and so what rows are worth */
} Hunt;

/* How a cell is taken apart. */
typedef struct {
    int left[2];      /* ranks of a part, as powers of two */
    int64_t parts[2];
    int64_t stride;   /* of the first axis in tables, where place 0 is below the cell */
} Division;

/* The cell of all boxes is taken apart into those of strips. */
static Division into_strips(const Strips *s)
{
    return (Division){{0, 0}, {s->count[0], s->count[1]}, STRIPS + 1};
}

static Division into_ranks(const Limits *l, const Cell *cell)
{
    Division d;
    for (int a = 0; a < 2; a++) {
        const int64_t ranks = cell->end[a] - cell->low[a];
        int bits = 0;
        while (((int64_t)1 << bits) < ranks) bits++;
        d.left[a] = bits > l->step ? bits - l->step : 0;
        d.parts[a] = ((ranks - 1) >> d.left[a]) + 1;
    }
    d.stride = d.parts[1] + 1;
    return d;
}

static int64_t places_of(const Division *d) { return (d->parts[0] + 1) * d->stride; }

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

/* Rows are added to the masses of parts, or to what they are worth. */
typedef void (*Add)(Hunt *h, const int64_t *mass, int64_t place);

ALWAYS_INLINE void add_mass(Hunt *h, const int64_t *mass, int64_t place)
{
    const int width = h->limits->strips.width;
    int64_t *into = h->table + place * width;
    for (int c = 0; c < width; c++) into[c] += mass[c];
}

ALWAYS_INLINE void add_mass_of_one_set(Hunt *h, const int64_t *mass, int64_t place)
{
    int64_t *into = h->table + place * (FIRST_OOD + 1);
    for (int c = 0; c < FIRST_OOD + 1; c++) into[c] += mass[c];
}

static int is_welcome(const Hunt *h, const int64_t *mass, double *value)
{
    *value = h->worth.loss * (double)mass[LOSS] + h->worth.id * (double)mass[ID];
    return *value <= 0;
}

ALWAYS_INLINE void add_welcome(Hunt *h, const int64_t *mass, int64_t place)
{
    double value;
    if (!is_welcome(h, mass, &value)) return;
    h->welcome[place].taken += value;
    h->welcome[place].id += (double)mass[ID];
}

/* Rows of a part of a cell's range on one axis. */
ALWAYS_INLINE int64_t first_of_part(const Strip *strip, const Cell *cell, const Division *d, int a,
                                    int64_t part)
{
    const int64_t rank = cell->low[a] + (part << d->left[a]);
    return strip->start[rank < cell->end[a] ? rank : cell->end[a]];
}

/* Add the rows that cross a cell, each where it lies among the parts. */
ALWAYS_INLINE void rows_of_cell(Hunt *h, const Cell *cell, const Division *d, Add add)
{
    const Strips *s = &h->limits->strips;
    const Strip *x = &s->strip[0][cell->strip[0]], *y = &s->strip[1][cell->strip[1]];
    const int64_t high = cell->end[1] - cell->low[1];
    for (int64_t i = 0; i < d->parts[0]; i++) {
        const int64_t end = first_of_part(x, cell, d, 0, i + 1);
        for (int64_t k = first_of_part(x, cell, d, 0, i); k < end; k++) {
            int64_t place = (i + 1) * d->stride;
            if (x->other[k] > cell->strip[1]) continue;
            if (x->other[k] == cell->strip[1]) {
                const int64_t rank = s->rank[1][x->row[k]] - cell->low[1];
                if (rank >= high) continue;
                if (rank >= 0) place += (rank >> d->left[1]) + 1;
            }
            add(h, mass_of(s, x, k), place);
        }
    }
    for (int64_t j = 0; j < d->parts[1]; j++) {
        const int64_t end = first_of_part(y, cell, d, 1, j + 1);
        for (int64_t k = first_of_part(y, cell, d, 1, j); k < end; k++) {
            if (y->other[k] > cell->strip[0]) continue;
            if (y->other[k] == cell->strip[0] && s->rank[0][y->row[k]] >= cell->low[0]) continue;
            add(h, mass_of(s, y, k), j + 1);
        }
    }
}

/* Add the rows of a cell of whole strips that lie in both of them. */
ALWAYS_INLINE void rows_in_both(Hunt *h, const Cell *cell, const Division *d, Add add)
{
    const Strips *s = &h->limits->strips;
    const Strip *x = &s->strip[0][cell->strip[0]];
    for (int64_t i = 0; i < d->parts[0]; i++) {
        const int64_t end = first_of_part(x, cell, d, 0, i + 1);
        for (int64_t k = first_of_part(x, cell, d, 0, i); k < end; k++) {
            if (x->other[k] != cell->strip[1]) continue;
            const int64_t rank = s->rank[1][x->row[k]];
            add(h, mass_of(s, x, k), (i + 1) * d->stride + (rank >> d->left[1]) + 1);
        }
    }
}

/* The same for the cell of all boxes, in the order of the rows. */
static void welcome_all_rows(Hunt *h, const Division *d)
{
    const Strips *s = &h->limits->strips;
    for (int64_t row = 0; row < s->rows; row++) {
        const int64_t mass[] = {s->id[row], s->loss[row]};
        add_welcome(h, mass, (strip_of(s, 0, row) + 1) * d->stride + strip_of(s, 1, row) + 1);
    }
}

/* The place in a table of the part of a cell that is only on one axis not below it. */
static int64_t beside(const Division *d, int axis, int64_t part)
{
    return axis ? part + 1 : (part + 1) * d->stride;
}

/* Masses of a cell of whole strips: what its strips have in all strips below it is known. */
static void fill_from_strips(Hunt *h, const Cell *cell, const Division *d)
{
    const Strips *s = &h->limits->strips;
    for (int a = 0; a < 2; a++) {
        const Strip *strip = &s->strip[a][cell->strip[a]];
        for (int64_t part = 0; part < d->parts[a]; part++) {
            const int64_t at = part * (STRIPS + 1) + cell->strip[1 - a];
            add_row(h->table + beside(d, a, part) * s->width, strip->below + at * s->width,
                    s->width);
        }
    }
    rows_in_both(h, cell, d, add_mass);
}

/* What the rows of a strip are worth, by part, in all strips of the other axis below one. */
static int price_strip(Hunt *h, Strip *strip)
{
    const Strips *s = &h->limits->strips;
    const size_t places = (size_t)strip->parts * (STRIPS + 1);
    if (strip->welcome && strip->worth == h->time) return 0;
    if (!strip->welcome && MAKE_ROOM(&strip->welcome, places)) return -1;
    strip->worth = h->time;
    memset(strip->welcome, 0, places * sizeof *strip->welcome);
    for (int32_t rank = 0; rank < strip->ranks; rank++) {
        Welcome *table = strip->welcome + (rank >> strip->left) * (STRIPS + 1);
        for (int64_t k = strip->start[rank]; k < strip->start[rank + 1]; k++) {
            const int64_t *mass = mass_of(s, strip, k);
            double value;
            if (!is_welcome(h, mass, &value)) continue;
            table[strip->other[k] + 1].taken += value;
            table[strip->other[k] + 1].id += (double)mass[ID];
        }
    }
    for (int part = 0; part < strip->parts; part++)
        for (int k = 1; k <= STRIPS; k++) {
            Welcome *here = strip->welcome + part * (STRIPS + 1) + k;
            here->taken += here[-1].taken;
            here->id += here[-1].id;
        }
    return 0;
}

static int welcome_from_strips(Hunt *h, const Cell *cell, const Division *d)
{
    Strips *s = &h->limits->strips;
    for (int a = 0; a < 2; a++) {
        Strip *strip = &s->strip[a][cell->strip[a]];
        if (price_strip(h, strip)) return -1;
        for (int64_t part = 0; part < d->parts[a]; part++)
            h->welcome[beside(d, a, part)] =
                strip->welcome[part * (STRIPS + 1) + cell->strip[1 - a]];
    }
    rows_in_both(h, cell, d, add_welcome);
    return 0;
}

static void fill_table(Hunt *h, const Cell *cell, const Division *d, int whole)
{
    if (whole && h->limits->strips.width <= WIDEST_BELOW)
        fill_from_strips(h, cell, d);
    else if (h->limits->strips.width == FIRST_OOD + 1)
        rows_of_cell(h, cell, d, add_mass_of_one_set);
    else
        rows_of_cell(h, cell, d, add_mass);
}

/* Make of masses at places those at or below them. */
static void accumulate(Hunt *h, const Division *d, int welcomed)
{
    const int width = h->limits->strips.width;
    for (int64_t i = 0; i <= d->parts[0]; i++)
        for (int64_t j = 0; j <= d->parts[1]; j++) {
            const int64_t here = i * d->stride + j, left = here - 1, below = here - d->stride;
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

static int is_known(const Limits *l, const double *limit)
{
    for (int64_t k = 0; k < l->found; k++)
        if (l->limit[2 * k] == limit[0] && l->limit[2 * k + 1] == limit[1]) return 1;
    return 0;
}

/* Take a box that meets the bounds; whether it is better than all before. */
static int offer(Limits *l, const double *limit, const int64_t *row)
{
    const Accepted a = accepted_by(row, l->program.sets);
    if (l->found && is_worse(l, a, l->value)) return 0;
    const int sign = l->found ? compare_accepted(&l->program, a, l->best) : -1;
    if (sign > 0) return 0;
    if (sign < 0) {
        l->best = a;
        l->value = objective(&l->program, a);
        l->found = 0;
    }
    if (l->found == l->room || is_known(l, limit)) return sign < 0;
    for (int axis = 0; axis < 2; axis++) l->limit[2 * l->found + axis] = limit[axis];
    l->found++;
    return sign < 0;
}

/* The limits of the largest box of a part, of the cell of all boxes if there is no other. */
static void limits_of_part(const Limits *l, const Cell *cell, const Division *d, const int64_t *at,
                           double *limit)
{
    const Strips *s = &l->strips;
    for (int a = 0; a < 2; a++) {
        if (!cell) {
            limit[a] = last_score(s, a, (int)at[a]);
            continue;
        }
        const int64_t end = cell->low[a] + ((at[a] + 1) << d->left[a]);
        limit[a] = rank_score(s, a, &s->strip[a][cell->strip[a]],
                              (end < cell->end[a] ? end : cell->end[a]) - 1);
    }
}

/* Offer the largest box of each part. */
static void try_parts(Hunt *h, const Cell *cell, const Division *d)
{
    Limits *l = h->limits;
    for (int64_t i = 0; i < d->parts[0]; i++)
        for (int64_t j = 0; j < d->parts[1]; j++) {
            const int64_t at[2] = {i, j};
            const int64_t *high = h->table + ((i + 1) * d->stride + j + 1) * l->strips.width;
            double limit[2];
            if (!within(&l->program, high, high[ID]) || !linear_met(&l->program, high)) continue;
            limits_of_part(l, cell, d, at, limit);
            h->time += offer(l, limit, high);
        }
    l->cells += d->parts[0] * d->parts[1];
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
    for (int c = 0; c < h->limits->strips.width; c++) h->crossing[c] = high[c] - low[c];
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
    const Welcome *low = h->welcome + place, *high = low + d->stride + 1;
    return (Welcome){high->taken - low->taken, high->id - low->id};
}

/* Whether a part may hold a better box, or as good a one; `hope` is the least it may have. */
static int promising(const Hunt *h, int64_t place, const Division *d, double *hope)
{
    const Limits *l = h->limits;
    const Price *worth = &h->worth;
    const Program *p = &l->program;
    const int64_t *low = h->table + place * l->strips.width, *high = low + (d->stride + 1) * l->strips.width;
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
    const size_t width = (size_t)h->limits->strips.width;
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
    for (int a = 0; a < 2; a++) {
        if (p->strip[a] != q->strip[a]) return p->strip[a] < q->strip[a] ? 1 : -1;
        if (p->low[a] != q->low[a]) return p->low[a] < q->low[a] ? 1 : -1;
    }
    return 0;
}

/* Keep the parts that may hold a better box, the most promising last. */
static int keep_parts(Hunt *h, const Cell *cell, const Division *d)
{
    const Limits *l = h->limits;
    int64_t kept = 0;
    for (int64_t i = 0; i < d->parts[0]; i++)
        for (int64_t j = 0; j < d->parts[1]; j++) {
            const int64_t at[2] = {i, j};
            Cell part = {{0, 0}, {0, 0}, {0, 0}, 0};
            if (!promising(h, i * d->stride + j, d, &part.hope)) continue;
            for (int a = 0; a < 2; a++) {
                part.strip[a] = cell ? cell->strip[a] : (int)at[a];
                if (!cell) continue;
                const int64_t end = cell->low[a] + ((at[a] + 1) << d->left[a]);
                part.low[a] = cell->low[a] + (int32_t)(at[a] << d->left[a]);
                part.end[a] = end < cell->end[a] ? (int32_t)end : cell->end[a];
            }
            h->part[kept++] = part;
        }
    qsort(h->part, (size_t)kept, sizeof *h->part, by_falling_hope);
    for (int64_t k = 0; k < kept; k++) {
        const Cell *part = h->part + k;
        int64_t at[2];
        for (int a = 0; a < 2; a++)
            at[a] = cell ? (part->low[a] - cell->low[a]) >> d->left[a] : part->strip[a];
        if (push(h, part, h->table + (at[0] * d->stride + at[1]) * l->strips.width)) return -1;
    }
    return 0;
}

/* Judge the cells of whole strips, and bring the rows together that may matter. */
static int judge_strips(Hunt *h)
{
    Limits *l = h->limits;
    const Division d = into_strips(&l->strips);
    char wanted[2 * STRIPS] = {0};
    accumulate(h, &d, 0);
    try_parts(h, NULL, &d);
    set_worth(h);
    if (!l->zero_one && l->found) {
        memset(h->welcome, 0, (size_t)places_of(&d) * sizeof *h->welcome);
        welcome_all_rows(h, &d);
        accumulate(h, &d, 1);
    }
    if (keep_parts(h, NULL, &d)) return -1;
    for (int64_t k = 0; k < h->waiting; k++)
        for (int a = 0; a < 2; a++) wanted[a * STRIPS + h->cell[k].strip[a]] = 1;
    return h->waiting ? strips_gather(&l->strips, wanted) : 0;
}

static int take_apart(Hunt *h, Cell cell)
{
    Limits *l = h->limits;
    Strips *s = &l->strips;
    const int whole = cell.end[0] == 0;
    for (int a = 0; whole && a < 2; a++) {
        if (strip_sort(s, a, cell.strip[a], l->step)) return -1;
        cell.end[a] = s->strip[a][cell.strip[a]].ranks;
    }
    const Division d = into_ranks(l, &cell);
    const size_t places = (size_t)places_of(&d), width = (size_t)s->width;
    memset(h->table, 0, places * width * sizeof *h->table);
    memcpy(h->table, h->base + (size_t)h->waiting * width, width * sizeof *h->table);
    fill_table(h, &cell, &d, whole);
    accumulate(h, &d, 0);
    try_parts(h, &cell, &d);
    if (d.left[0] == 0 && d.left[1] == 0) return 0;
    set_worth(h);
    if (!l->zero_one && l->found) {
        memset(h->welcome, 0, places * sizeof *h->welcome);
        if (!whole)
            rows_of_cell(h, &cell, &d, add_welcome);
        else if (welcome_from_strips(h, &cell, &d))
            return -1;
        accumulate(h, &d, 1);
    }
    return keep_parts(h, &cell, &d);
}

static int open_hunt(Hunt *h)
{
    Limits *l = h->limits;
    Strips *s = &l->strips;
    const size_t places = (size_t)(STRIPS + 1) * (STRIPS + 1), width = (size_t)s->width;
    if (MAKE_ROOM(&h->table, places * width) || MAKE_ROOM(&h->welcome, places) ||
        MAKE_ROOM(&h->part, places) || MAKE_ROOM(&h->crossing, width))
        return -1;
    memset(h->table, 0, places * width * sizeof *h->table);
    if (strips_place(s, h->signals, h->table)) return -1;
    for (size_t k = 0; k < places; k++) {
        const int64_t *mass = h->table + k * width;
        h->total[0] += (double)mass[LOSS];
        h->total[1] += (double)mass[ID];
        h->total[2] += (double)accepted_by(mass, l->program.sets).ood;
    }
    h->doubt = EPS * (4096 + 2 * (double)s->rows);
    const Price worth = price(l);
    h->size = fabs(worth.loss) * h->total[0] + fabs(worth.id) * h->total[1] +
              fabs(worth.ood) * h->total[2];
    return 0;
}

static void close_hunt(Hunt *h)
{
    strips_close(&h->limits->strips);
    free(h->cell);
    free(h->base);
    free(h->table);
    free(h->welcome);
    free(h->part);
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

int limits_search(Limits *l, Signals *signals)
{
    Hunt h = {.limits = l, .signals = signals};
    int failed = open_hunt(&h) || judge_strips(&h);
    while (!failed && h.waiting && l->cells < l->budget) {
        const Cell cell = h.cell[--h.waiting];
        if (still_open(&h, &cell)) failed = interrupted(signals, 1) || take_apart(&h, cell);
    }
    l->open = h.waiting;
    l->lower = lower_bound(&h);
    close_hunt(&h);
    return failed ? -1 : 0;
}
