/* Building the tree.
 *
 * Each score is mapped to its approximate rank through a few hundred quantiles of a sample, so
 * that units, offsets, heavy tails and scores that span many decades leave the cells of the
 * Morton curve about equally full. Bits of both ranks are interleaved into a key; a code is a
 * key above as many bits as the row number needs. Codes are sorted by counting their leading
 * digits, then among equal digits; only rows with equal keys are compared by value, to merge
 * duplicates.
 */
#include "tree.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sorting.h"
#include "vectors.h"
#include "wide.h"

#define AHEAD 24
#define NODES_AHEAD 4
#define ENTRIES_OF_A_LINE 8 /* masses in a line of the cache */

static int compare(const double *scores, uint64_t a, uint64_t b, int row_bits)
{
    if (a >> row_bits != b >> row_bits) return a < b ? -1 : 1;
    const double *p = scores + 2 * row_of(a, row_bits), *q = scores + 2 * row_of(b, row_bits);
    if (p[0] != q[0]) return p[0] < q[0] ? -1 : 1;
    return p[1] < q[1] ? -1 : p[1] > q[1];
}

/* Merge sort. */
void sort_values(const double *scores, uint64_t *a, uint64_t *spare, int64_t n, int row_bits)
{
    if (n <= 12) {
        for (int64_t i = 1; i < n; i++) {
            uint64_t moving = a[i];
            int64_t j = i;
            for (; j > 0 && compare(scores, a[j - 1], moving, row_bits) > 0; j--) a[j] = a[j - 1];
            a[j] = moving;
        }
        return;
    }
    int64_t half = n / 2, i = 0, j = half;
    sort_values(scores, a, spare, half, row_bits);
    sort_values(scores, a + half, spare, n - half, row_bits);
    if (compare(scores, a[half - 1], a[half], row_bits) <= 0) return;
    memcpy(spare, a, (size_t)n * sizeof *a);
    for (int64_t k = 0; k < n; k++) {
        int left = j >= n || (i < half && compare(scores, spare[i], spare[j], row_bits) <= 0);
        a[k] = left ? spare[i++] : spare[j++];
    }
}

static void sort_equal_digits(const double *scores, uint64_t *code, uint64_t *spare, int64_t n,
                              int row_bits)
{
    for (int64_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && sorted_part(code[j]) == sorted_part(code[i]);) j++;
        if (j > i + 1) sort_values(scores, code + i, spare, j - i, row_bits);
    }
}

static int make_codes(Signals *signals, const double *scores, int64_t n, const Ranks *ranks,
                      uint64_t *code, uint32_t *in_bucket)
{
    uint64_t other[KEYS_TOGETHER];
    int free_bits = 64 - 2 * (KNOT_BITS + (int)ranks->fine);
    for (int64_t first = 0; first < n; first += KEYS_TOGETHER) {
        if (interrupted_in_loop(signals, first)) return -1;
        int count = n - first < KEYS_TOGETHER ? (int)(n - first) : KEYS_TOGETHER;
        uint64_t *key = code + first;
        rank_all(scores + 2 * first, count, ranks, key);
        rank_all(scores + 2 * first + 1, count, ranks + 1, other);
        interleave(key, other, count);
        for (int i = 0; i < count; i++) {
            key[i] = key[i] << free_bits | (uint64_t)(first + i);
            in_bucket[bucket_of(key[i])]++;
        }
    }
    return 0;
}

/* Write distinct points in order, and for every row which point it is. The leading bits of the
 * keys of the points replace the codes, which they never overtake. Returns the number of points,
 * -1 when a signal was raised. */
static int64_t merge_equal(Signals *signals, const double *scores, int64_t n, uint64_t *code,
                           int row_bits, double *point, int32_t *row)
{
    int64_t points = 0;
    for (int64_t i = 0; i < n; i++) {
        if (interrupted_in_loop(signals, i)) return -1;
        uint64_t here = code[i];
        if (i + AHEAD < n) WILL_READ(scores + 2 * row_of(code[i + AHEAD], row_bits));
        const double *from = scores + 2 * row_of(here, row_bits);
        double *to = point + 2 * points;
        if (points == 0 || from[0] != to[-2] || from[1] != to[-1]) {
            to[0] = from[0];
            to[1] = from[1];
            set_key(code, points++, (uint32_t)(here >> (64 - KEY_BITS)));
        }
        row[row_of(here, row_bits)] = (int32_t)(points - 1);
    }
    return points;
}

int32_t tilt_between(double a, double b)
{
    if (!(a > 0 && b > 0 && a < HUGE_VAL && b < HUGE_VAL)) return 0;
    int tilt = ilogb(a) - ilogb(b);
    return tilt > MOST_TILT ? MOST_TILT : tilt < -MOST_TILT ? -MOST_TILT : tilt;
}

#define LARGEST_POWER 1018 /* leaves room for sums of a few numbers */

int tilt_within(int tilt, const double *box)
{
    int most[2]; /* powers of two by which scores can be multiplied */
    for (int c = 0; c < 2; c++) {
        double size = fmax(fabs(box[c]), fabs(box[c + 2]));
        most[c] = size > 0 ? LARGEST_POWER - ilogb(size) : MOST_TILT;
    }
    if (tilt > most[1]) tilt = most[1];
    return tilt < -most[0] ? -most[0] : tilt;
}

/* Where the highest bit changes that differs within the range; the middle if none does. */
static int32_t split_at(const void *keys, int32_t first, int32_t end)
{
    uint32_t differ = key_at(keys, first) ^ key_at(keys, end - 1);
    if (differ == 0) return first + (end - first) / 2;
    uint32_t bit = highest_bit(differ);
    int32_t low = first, high = end - 1; /* the bit is clear at low, set at high */
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (key_at(keys, middle) & bit)
            high = middle;
        else
            low = middle;
    }
    return high;
}

int64_t grow_nodes(const void *keys, int64_t begin, Node *node, int32_t index, int64_t first)
{
    int32_t pending[LEVELS];
    int waiting = 0;
    int64_t nodes = first;
    pending[waiting++] = index;
    while (waiting) {
        Node *here = node + pending[--waiting];
        if (here->end - here->first <= BLOCK) continue;
        int32_t base = (int32_t)begin;
        int32_t middle = base + split_at(keys, here->first - base, here->end - base);
        here->child = (int32_t)nodes;
        node[nodes++] = (Node){here->first, middle, 0};
        node[nodes++] = (Node){middle, here->end, 0};
        pending[waiting++] = here->child + 1;
        pending[waiting++] = here->child;
    }
    return nodes;
}

int bits_for(int64_t n)
{
    int bits = 12;
    while ((int64_t)1 << bits < n) bits += 2;
    return bits;
}

static int arrange(Signals *signals, const double *scores, int64_t n, uint64_t *code, Ranks *ranks,
                   uint32_t *in_bucket, double *point, int32_t *row, int64_t *points)
{
    int row_bits = bits_for(n), fine = (64 - row_bits) / 2 - KNOT_BITS;
    /* The points are written last: until then their room serves the sort. It is memory that was
     * allocated, and so has the type of what was written last. */
    void *spare = point;
    if (learn_ranks(scores, n, 0, fine, ranks) || learn_ranks(scores, n, 1, fine, ranks + 1))
        return -1;
    if (make_codes(signals, scores, n, ranks, code, in_bucket)) return -1;
    if (sort_codes(signals, code, spare, n, in_bucket)) return -1;
    sort_equal_digits(scores, code, spare, n, row_bits);
    *points = merge_equal(signals, scores, n, code, row_bits, point, row);
    return *points < 0 ? -1 : 0;
}

int tree_arrange(Signals *signals, const double *scores, int64_t n, uint64_t *code, double *point,
                 int32_t *row, Node *node, int32_t *tilt, int64_t *points, int64_t *nodes)
{
    *tilt = 0;
    *points = *nodes = 0;
    if (n == 0) return 0;
    Ranks *ranks = malloc(2 * sizeof *ranks);
    uint32_t *in_bucket = calloc(BUCKETS, sizeof *in_bucket);
    int failed = !ranks || !in_bucket ||
                 arrange(signals, scores, n, code, ranks, in_bucket, point, row, points);
    if (!failed) {
        *tilt = tilt_between(ranks[0].spread, ranks[1].spread);
        failed = interrupted(signals, *points / ROWS_OF_A_BLOCK);
        node[0] = (Node){0, (int32_t)*points, 0};
        *nodes = grow_nodes(code, 0, node, 0, 1);
    }
    free(in_bucket);
    free(ranks);
    return failed ? -1 : 0;
}

/* Numbers are below 2^31, so that a difference that is negative sets the highest bit: a loop
 * without branches costs little of the time it takes to build a tree. */
int tree_sound(const Node *node, int64_t nodes, int64_t points)
{
    const uint32_t end = (uint32_t)points, last = (uint32_t)nodes - 1;
    uint32_t wrong = 0;
    for (int64_t k = 0; k < nodes; k++) {
        uint32_t first = (uint32_t)node[k].first, here = (uint32_t)node[k].end;
        uint32_t child = (uint32_t)node[k].child, inner = 0 - (uint32_t)(child != 0);
        wrong |= first | here | child | (here - first) | (end - here);
        wrong |= inner & ((child - (uint32_t)k - 1) | (last - child - 1));
    }
    return !(wrong >> 31);
}

int tree_has(const int32_t *row, int64_t n, int64_t points)
{
    const uint32_t last = (uint32_t)points - 1;
    uint32_t wrong = n > 0 && points == 0 ? UINT32_MAX : 0;
    for (int64_t i = 0; i < n; i++) wrong |= (uint32_t)row[i] | (last - (uint32_t)row[i]);
    return !(wrong >> 31);
}

void enclose_children(const double *part, double *box)
{
    for (int c = 0; c < 2; c++) {
        box[c] = part[c] < part[4 + c] ? part[c] : part[4 + c];
        box[2 + c] = part[2 + c] > part[6 + c] ? part[2 + c] : part[6 + c];
    }
}

static void enclose_points(const double *point, int64_t count, double *box)
{
    double low[2] = {HUGE_VAL, HUGE_VAL}, high[2] = {-HUGE_VAL, -HUGE_VAL};
    for (int64_t i = 0; i < count; i++) {
        for (int c = 0; c < 2; c++) {
            double v = point[2 * i + c];
            if (v < low[c]) low[c] = v;
            if (v > high[c]) high[c] = v;
        }
    }
    memcpy(box, low, sizeof low);
    memcpy(box + 2, high, sizeof high);
}

void tree_enclose(const Node *node, int64_t first, int64_t end, const double *point, double *box)
{
    for (int64_t k = end - 1; k >= first; k--) {
        if (node[k].child)
            enclose_children(box + 4 * (int64_t)node[k].child, box + 4 * k);
        else
            enclose_points(point + 2 * (int64_t)node[k].first, node[k].end - node[k].first,
                           box + 4 * k);
    }
}

int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void note_unit(int64_t id, int64_t loss, int64_t *unit)
{
    if (unit[UNIT_LOSS] == 0) {
        int64_t divisor = common_divisor(loss, id);
        unit[UNIT_LOSS] = id > 0 ? loss / divisor : NO_UNIT;
        unit[UNIT_ID] = id / divisor;
    } else if (wide_compare(wide_product(loss, unit[UNIT_ID]), wide_product(unit[UNIT_LOSS], id))) {
        unit[UNIT_LOSS] = NO_UNIT;
    }
}

/* With one set of OOD and nothing extra, by far the most frequent case. */
static void collect_pairs(const int32_t *row, int64_t first, int64_t end, const RowMasses *from,
                          int64_t *mass)
{
    enum { WIDTH = FIRST_OOD + 1 };
    for (int64_t i = first; i < end; i++) {
        int64_t *here = mass + (int64_t)row[i] * WIDTH;
        const int64_t id = from->id[i], loss = from->loss[i], ood = from->ood[i];
        if (i + AHEAD < end) WILL_WRITE(mass + (int64_t)row[i + AHEAD] * WIDTH);
        here[ID] += id;
        here[LOSS] += loss;
        here[FIRST_OOD] += ood;
        here[MARK] |= (int64_t)scramble((uint64_t)row[i]) & -(int64_t)((id | loss | ood) != 0);
    }
}

static int collect_in_blocks(Signals *signals, const int32_t *row, int64_t n, const RowMasses *from,
                             int64_t *mass, int64_t *unit)
{
    for (int64_t first = 0; first < n; first += ROWS_OF_A_BLOCK) {
        const int64_t end = n - first < ROWS_OF_A_BLOCK ? n : first + ROWS_OF_A_BLOCK;
        if (interrupted(signals, 1)) return -1;
        collect_pairs(row, first, end, from, mass);
        for (int64_t i = first; i < end && unit[UNIT_LOSS] >= 0; i++)
            if (from->loss[i] > 0) note_unit(from->id[i], from->loss[i], unit);
    }
    return 0;
}

int tree_collect(Signals *signals, const int32_t *row, int64_t n, const RowMasses *from,
                 int64_t *mass, int64_t *unit)
{
    const int sets = from->sets, extras = from->extras, width = FIRST_OOD + sets + extras;
    unit[UNIT_LOSS] = unit[UNIT_ID] = 0;
    if (sets == 1 && extras == 0) return collect_in_blocks(signals, row, n, from, mass, unit);
    for (int64_t i = 0; i < n; i++) {
        if (interrupted_in_loop(signals, i)) return -1;
        if (i + AHEAD < n)
            for (int c = 0; c < width; c += ENTRIES_OF_A_LINE)
                WILL_WRITE(mass + (int64_t)row[i + AHEAD] * width + c);
        int64_t *here = mass + (int64_t)row[i] * width;
        const int64_t id = from->id[i], loss = from->loss[i];
        here[ID] += id;
        here[LOSS] += loss;
        int64_t any = id | loss;
        for (int s = 0; s < sets; s++) {
            here[FIRST_OOD + s] += from->ood[s * n + i];
            any |= from->ood[s * n + i];
        }
        /* Extra masses are parts of the others, most of them none: memory is left alone then. */
        for (int e = 0; e < extras; e++)
            if (from->extra[e * n + i]) here[FIRST_OOD + sets + e] += from->extra[e * n + i];
        /* Where rows are drawn, any of them may have none: a branch would be a guess. */
        here[MARK] |= (int64_t)scramble((uint64_t)row[i]) & -(int64_t)(any != 0);
        if (loss > 0 && unit[UNIT_LOSS] >= 0) note_unit(id, loss, unit);
    }
    return 0;
}

void total_children(const int64_t *part, int width, int64_t *sums)
{
    for (int c = 0; c < width; c++) sums[c] = add(part[c], part[width + c]);
}

ALWAYS_INLINE void total_nodes(const Node *node, int64_t first, int64_t end, const int64_t *mass,
                               int width, int64_t *sums)
{
    for (int64_t k = end - 1; k >= first; k--) {
        int64_t *into = sums + k * width;
        memset(into, 0, (size_t)width * sizeof *into);
        if (node[k].child) {
            add_row(into, sums + (int64_t)node[k].child * width, width);
            add_row(into, sums + ((int64_t)node[k].child + 1) * width, width);
            continue;
        }
        if (k >= first + NODES_AHEAD) {
            const Node *next = node + k - NODES_AHEAD;
            const int64_t *last = mass + (int64_t)next->end * width;
            for (const int64_t *m = mass + (int64_t)next->first * width; m < last && !next->child;
                 m += ENTRIES_OF_A_LINE)
                WILL_READ(m);
        }
        for (int64_t i = node[k].first; i < node[k].end; i++)
            add_row(into, mass + i * width, width);
    }
}

void tree_total(const Node *node, int64_t first, int64_t end, const int64_t *mass, int width,
                int64_t *sums)
{
    /* With one set of OOD, by far the most frequent case, rows are as wide as vectors. */
    if (width == FIRST_OOD + 1)
        total_nodes(node, first, end, mass, FIRST_OOD + 1, sums);
    else
        total_nodes(node, first, end, mass, width, sums);
}
