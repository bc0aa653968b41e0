/* Cutting a box that a few thousand points cross into many parts at once.
 *
 * A frontier has something to find all over the dual plane, so that most of its boxes are small,
 * and cut again. Here a box is cut into *columns* of t, and each column by many chords, which run
 * along its lines, into *bands*. In a column a point is above some chords for certain, below
 * others for certain, and crosses the bands between: two numbers, which are found without looking
 * at the bands. So all masses are added up in one go, however many bands there are, and what the
 * chords leave uncertain is little but what lines do that change places in the column.
 *
 * Bands that may hold something better, as far as they lie side by side, are a *window*: a box of
 * the next round. Rounds come one after the other, and half-planes on chords, and some between these,
 * are tried in each, so that what is to beat is known well before windows become small and many.
 *
 * Points are on a side of a chord if they are by more than rounding errors. Among whole points
 * those within rounding errors are on both sides of it, as in boxes that are cut in two.
 */
#include "mesh.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bands.h"
#include "sides.h"

#define FEWEST_COLUMNS 4
#define FEWEST_ROWS 8           /* between the chords at an end of a column, */
#define POINTS_OF_A_ROW 4      /* no more than have so many points, */
#define DRIFT_OF_ROWS 2.0      /* or than lines drift apart by so many of them */
#define DRIFT_OF_A_COLUMN 0.5  /* in heights of the zone */
#define RESOLVED 0.25          /* of a row; larger errors make cuts useless */
#define FEW_CROSSINGS 32        /* of lines, expected in a window that is tried as a leaf, */
#define MOST_CROSSINGS 64       /* and seen there */
#define MOST_WAITING ((int64_t)1 << 18) /* points of the windows of a round */
#define FINEST_ROWS 4           /* half-planes tried to a row, */
#define POINTS_OF_A_TRIAL 1    /* no more than have so many points */
#define STIFF 0.7     /* part of the points that still crosses one of the parts: many lines meet there, */
#define MOST_STALE 2  /* and where they do after so many cuts, more of these would go on without end */

/* A box that waits for the next round: what lies below it, and where its points are listed. */
typedef struct {
    Zone zone;
    Accepted below;
    uint64_t mark;
    Tally crosses;
    double level; /* at which the worth of that was found */
    double merit;
    int64_t first;
    int32_t count, stale; /* how many cuts in a row left nearly all points in one part */
} Window;

typedef struct {
    Window *window;
    int64_t count, room;
    Items points; /* numbers of points of the mesh */
} Round;

/* Half-planes at a cut: the rows they end in, and what is below these, once it was counted. */
typedef struct {
    const Places *at;
    Places finer_at;
    int counted, finer; /* how many to a row of the column */
    Tally certain[MOST_ROWS_OF_A_COLUMN + 2];
    char tried[MOST_ROWS_OF_A_COLUMN + 1];
} Trial;

struct Mesh {
    /* A box and the points that cross it. */
    Box box;
    int32_t count;
    int32_t item[MESH_POINTS];
    double base[MESH_POINTS], moving[MESH_POINTS];
    Tally tally[MESH_POINTS];
    Round round[2]; /* this one and the next */
    Keyed *order;
    int64_t order_room;

    /* The window at hand, and its points. */
    const Window *window;
    double level; /* all that has to be beaten in it is at most this */
    int32_t near;
    double near_base[MESH_POINTS + LANES], near_moving[MESH_POINTS + LANES];
    Tally near_tally[MESH_POINTS];
    Cuts cuts;
    Places places[2];                           /* at the ends of a column, */
    Trial trial[2];                             /* and half-planes there */
    int32_t from[MESH_POINTS + LANES], to[MESH_POINTS + LANES]; /* bands that points cross */
    Tally possible[MOST_BANDS + 1], certain[MOST_BANDS + 1];
    double merit[MOST_BANDS + 1];
};

/* Values of floor and ceiling at a cut; see cut_in_t. */
static void cut_zone(const Zone *zone, int whole, int j, Cuts *cuts)
{
    const Edge *edge[2] = {&zone->floor, &zone->ceiling};
    const int last = j == cuts->columns;
    double v[2], t = cuts->t[j];
    for (int e = 0; e < 2; e++) {
        v[e] = edge_at(edge[e], t);
        const double drawn = edge[e]->v[nearer_end(edge[e], t)];
        const double error = whole ? 0 : DBL_EPSILON * (fabs(v[e]) + 4 * fabs(v[e] - drawn));
        v[e] += e ? error : -error;
    }
    cuts->low[j] = j == 0 || last ? zone->low[last] : v[0];
    cuts->high[j] = j == 0 || last ? zone->high[last] : v[1];
}

/* How far slopes carry lines from the mean of all, in heights of the zone. */
static double drift_of(const Search *s, const Mesh *mesh)
{
    const Zone *zone = &mesh->window->zone;
    const int stride = mesh->near / SAMPLED + 1;
    double sum = 0, apart = 0;
    int n = 0;
    for (int k = 0; k < mesh->near; k += stride, n++) sum += mesh->near_moving[k];
    for (int k = 0; k < mesh->near; k += stride) apart += fabs(mesh->near_moving[k] - sum / n);
    double height = (zone->high[0] - zone->low[0] + zone->high[1] - zone->low[1]) / 2;
    double step = fabs(s->chart[mesh->box.chart].step);
    return step * (apart / n) * (zone->t[1] - zone->t[0]) / height;
}

/* Whether rows are higher than rounding errors, at the end where they are highest. */
static int resolved(const Zone *zone, int rows)
{
    for (int end = 0; end < 2; end++) {
        double size = fmax(fabs(zone->low[end]), fabs(zone->high[end]));
        if (RESOLVED * (zone->high[end] - zone->low[end]) > TOLERANCE * 2 * size * rows) return 1;
    }
    return 0;
}

/* Whether floats let the zone be cut. */
static int choose_cuts(const Search *s, Mesh *mesh, double drift)
{
    const Zone *zone = &mesh->window->zone;
    Cuts *cuts = &mesh->cuts;
    int columns = FEWEST_COLUMNS, rows = FEWEST_ROWS;
    while (columns < MOST_COLUMNS && drift > DRIFT_OF_A_COLUMN * columns) columns *= 2;
    while (rows < MOST_ROWS_OF_A_COLUMN && rows * POINTS_OF_A_ROW < mesh->near &&
           rows * drift < DRIFT_OF_ROWS * columns)
        rows *= 2;
    cuts->columns = columns;
    cuts->rows = rows;
    for (int j = 0; j <= columns; j++) {
        cuts->t[j] = zone->t[0] + (zone->t[1] - zone->t[0]) / columns * j;
        if (j == columns) cuts->t[j] = zone->t[1];
        if (j > 0 && !(cuts->t[j - 1] < cuts->t[j])) return 0;
        cut_zone(zone, s->tree->whole, j, cuts);
    }
    return resolved(zone, rows);
}

/* What lies below the window and, of its points, below a band. */
static void sum_below(const Mesh *mesh, const Tally *below, int64_t *sums)
{
    const Window *window = mesh->window;
    sums[ID] = window->below.id + (int64_t)(below->mass & ID_BITS);
    sums[LOSS] = window->below.loss + (int64_t)below->loss;
    sums[MARK] = (int64_t)(window->mark + below->mark);
    sums[FIRST_OOD] = window->below.ood + (int64_t)(below->mass >> OOD_SHIFT);
}

/* Place and count points at cut j in finer rows than bands have there. */
static void count_trial(const Search *s, Mesh *mesh, int j)
{
    Trial *trial = mesh->trial + j % 2;
    const double weight = s->chart[mesh->box.chart].step * mesh->cuts.t[j];
    Cuts cuts = mesh->cuts;
    for (trial->finer = 1; trial->finer < FINEST_ROWS; trial->finer *= 2) {
        const int rows = 2 * trial->finer * mesh->cuts.rows;
        if (rows > MOST_ROWS_OF_A_COLUMN || rows * POINTS_OF_A_TRIAL > mesh->near) break;
    }
    cuts.rows *= trial->finer;
    trial->at = trial->finer > 1 ? &trial->finer_at : mesh->places + j % 2;
    if (trial->finer > 1)
        place_at(&cuts, j, s->tree->whole, weight, mesh->near_base, mesh->near_moving, mesh->near,
                 &trial->finer_at);
    count_rows(mesh->near_tally, trial->at->below, mesh->near, cuts.rows, trial->certain);
    memset(trial->tried, 0, sizeof trial->tried);
    trial->counted = 1;
}

/* Try the half-planes at an end of column j where bands from `first` to `last` end that may hold
 * something better; returns how many were taken. */
static int try_cut(Search *s, Mesh *mesh, int j, int end, int first, int last)
{
    const double t = mesh->cuts.t[j + end];
    Trial *trial = mesh->trial + (j + end) % 2;
    char doubtful[MOST_ROWS_OF_A_COLUMN + 1] = {0};
    int found = 0;
    if (j + end == 0 || j + end == mesh->cuts.columns) return 0;
    if (!trial->counted) count_trial(s, mesh, j + end);
    Cuts cuts = mesh->cuts;
    cuts.rows *= trial->finer;
    for (int b = first; b <= last; b++) {
        if (mesh->merit[b] == HUGE_VAL) continue;
        const int floor = row_of_chord(&mesh->cuts, mesh->cuts.first + b, end) * trial->finer;
        const int ceiling = row_of_chord(&mesh->cuts, mesh->cuts.first + b + 1, end) * trial->finer;
        for (int row = floor; row <= ceiling; row++) {
            int64_t sums[FIRST_OOD + 1];
            if (trial->tried[row]) continue;
            trial->tried[row] = 1;
            sum_below(mesh, trial->certain + row, sums);
            if (!s->wanted(s, sums)) continue;
            if (found++ == 0) find_doubts(trial->at, mesh->near, doubtful);
            if (!doubtful[row])
                take_half_plane(s, &s->chart[mesh->box.chart], t, row_at(&cuts, j + end, row), sums);
        }
    }
    return found;
}

/* Chord c of column j; floor and ceiling are kept as they were drawn. */
static Edge chord_of(const Mesh *mesh, int j, int c)
{
    const Cuts *cuts = &mesh->cuts;
    Edge chord;
    if (c == cuts->first) return mesh->window->zone.floor;
    if (c == cuts->first + cuts->bands) return mesh->window->zone.ceiling;
    for (int end = 0; end < 2; end++) {
        chord.t[end] = cuts->t[j + end];
        chord.v[end] = row_at(cuts, j + end, row_of_chord(cuts, c, end));
    }
    return chord;
}

static Zone zone_of(const Mesh *mesh, int j, int first, int last)
{
    const int low = mesh->cuts.first + first, high = mesh->cuts.first + last + 1;
    Zone zone = {.floor = chord_of(mesh, j, low), .ceiling = chord_of(mesh, j, high)};
    for (int end = 0; end < 2; end++) {
        zone.t[end] = mesh->cuts.t[j + end];
        zone.low[end] = row_at(&mesh->cuts, j + end, row_of_chord(&mesh->cuts, low, end));
        zone.high[end] = row_at(&mesh->cuts, j + end, row_of_chord(&mesh->cuts, high, end));
    }
    return zone;
}

static int reserve_window(Round *round, int points)
{
    if (reserve_items(&round->points, round->points.count + points)) return -1;
    if (round->count < round->room) return 0;
    size_t room = 2 * (size_t)round->room + 64;
    if (MAKE_ROOM(&round->window, room)) return -1;
    round->room = (int64_t)room;
    return 0;
}

/* List the points that cross bands from `first` to `last`; returns how many. Most points do not, and
 * neighbours in the list are alike. */
static int32_t list_points(const Mesh *mesh, int first, int last, int32_t *list)
{
    const int32_t *point = mesh->round[0].points.item + mesh->window->first, n = mesh->near;
    uint8_t crosses[MESH_POINTS + LANES];
    int32_t found = 0, k = 0;
    mark_crossing(mesh->from, mesh->to, n, first, last, crosses);
    for (; k + 8 <= n; k += 8) {
        uint64_t any;
        memcpy(&any, crosses + k, sizeof any);
        if (!any) continue;
        for (int i = 0; i < 8; i++) {
            list[found] = point[k + i];
            found += crosses[k + i];
        }
    }
    for (; k < n; k++) {
        list[found] = point[k];
        found += crosses[k];
    }
    return found;
}

/* Let bands from `first` to `last` of column j wait for the next round. */
static int add_window(Mesh *mesh, int j, int first, int last)
{
    Round *next = mesh->round + 1;
    const Tally *below = mesh->certain + first, *all = mesh->possible + last;
    if (reserve_window(next, mesh->near)) return -1;
    Window *window = next->window + next->count++;
    int64_t sums[FIRST_OOD + 1];
    sum_below(mesh, below, sums);
    window->zone = zone_of(mesh, j, first, last);
    window->below = (Accepted){sums[ID], sums[FIRST_OOD], sums[LOSS]};
    window->mark = (uint64_t)sums[MARK];
    window->crosses = (Tally){all->mass - below->mass, all->loss - below->loss,
                              all->worth - below->worth, 0};
    window->level = mesh->level;
    window->merit = mesh->merit[first];
    for (int b = first; b <= last; b++) window->merit = fmin(window->merit, mesh->merit[b]);
    window->first = next->points.count;
    window->count = list_points(mesh, first, last, next->points.item + next->points.count);
    next->points.count += window->count;
    window->stale = window->count > STIFF * mesh->near ? mesh->window->stale + 1 : 0;
    return 0;
}

/* Judge the bands of column j. Returns whether any may hold something better; these are from `first`
 * to `last`, with others between. */
static int judge_column(Search *s, Mesh *mesh, int *first, int *last)
{
    const int bands = mesh->cuts.bands;
    const Bands all = {.ground = mesh->window->below, .level = mesh->level, .count = bands,
                       .certain = mesh->certain, .possible = mesh->possible,
                       .merit = mesh->merit};
    s->glance(s, &all);
    for (*first = 0; *first < bands && mesh->merit[*first] == HUGE_VAL;) ++*first;
    for (*last = bands - 1; *last > *first && mesh->merit[*last] == HUGE_VAL;) --*last;
    return *first < bands;
}

/* Search column j for half-planes at its ends, and list what is left of it. */
static int search_column(Search *s, Mesh *mesh, int j)
{
    Cuts *cuts = &mesh->cuts;
    const Places *left = mesh->places + j % 2, *right = mesh->places + 1 - j % 2;
    int first, last;
    cuts->climb = choose_climb(cuts, j, mesh->near, left, right);
    cuts->first = cuts->climb > 0 ? -cuts->climb : 0;
    cuts->bands = cuts->rows + abs(cuts->climb);
    join_places(left, right, filled_up(mesh->near), cuts, mesh->from, mesh->to);
    count_bands(mesh->near_tally, mesh->from, mesh->to, mesh->near, cuts->bands, mesh->possible,
                 mesh->certain);
    if (!judge_column(s, mesh, &first, &last)) return 0;
    int found = try_cut(s, mesh, j, 0, first, last);
    found += try_cut(s, mesh, j, 1, first, last);
    if (found && !judge_column(s, mesh, &first, &last)) return 0;
    for (int b = first, end; b <= last; b = end + 1) {
        for (end = b; end <= last && mesh->merit[end] != HUGE_VAL;) end++;
        if (end > b && add_window(mesh, j, b, end - 1)) return -1;
    }
    return 0;
}

/* By how much less than `level` a point has of loss per ID mass, times its ID mass, rounded up. */
static uint64_t worth_at(const Tally *tally, double level)
{
    double worth = level * (double)(tally->mass & ID_BITS) - (double)tally->loss;
    return worth > 0 ? (uint64_t)(worth * (1 + BOUND_ROUNDING)) + 1 : 0;
}

/* Have the points of a window side by side. */
static void gather(const Search *s, Mesh *mesh)
{
    const int32_t *point = mesh->round[0].points.item + mesh->window->first;
    const int n = mesh->near = mesh->window->count;
    for (int k = 0; k < n; k++) {
        mesh->near_base[k] = mesh->base[point[k]];
        mesh->near_moving[k] = mesh->moving[point[k]];
        mesh->near_tally[k] = mesh->tally[point[k]];
    }
    for (int k = n; k < filled_up(n); k++) mesh->near_base[k] = mesh->near_moving[k] = 0;
    for (int k = 0; k < n && s->classes; k++)
        mesh->near_tally[k].worth = worth_at(mesh->near_tally + k, mesh->level);
}

/* Cut the window at hand into those of the next round. Returns 0 if floats do not let it be. */
static int cut_window(Search *s, Mesh *mesh, double drift)
{
    const Cuts *cuts = &mesh->cuts;
    const double step = s->chart[mesh->box.chart].step;
    if (!choose_cuts(s, mesh, drift)) return 0;
    for (int j = -1; j < cuts->columns; j++) {
        place_at(cuts, j + 1, s->tree->whole, step * cuts->t[j + 1], mesh->near_base,
                 mesh->near_moving, mesh->near, mesh->places + (j + 1) % 2);
        mesh->trial[(j + 1) % 2].counted = 0;
        if (j >= 0 && search_column(s, mesh, j)) return -1;
    }
    return 1;
}

/* Make the window at hand a box, and its points those of the box at hand. */
static void hand_over(Search *s, const Mesh *mesh, Box *box, int64_t *sums)
{
    const Window *window = mesh->window;
    const int32_t *point = mesh->round[0].points.item + window->first;
    const Tree *tree = s->tree;
    *box = mesh->box;
    box->zone = window->zone;
    box->depth++;
    box->count = window->count;
    box->merit = window->merit;
    memset(&box->crossing, 0, sizeof box->crossing);
    memset(sums, 0, (size_t)s->row_size * sizeof *sums);
    sums[ID] = window->below.id;
    sums[LOSS] = window->below.loss;
    sums[FIRST_OOD] = window->below.ood;
    sums[MARK] = (int64_t)window->mark;
    s->popped.count = window->count;
    for (int k = 0; k < window->count; k++) {
        const int64_t item = s->popped.item[k] = mesh->item[point[k]];
        const int64_t *mass = tree->mass + ~item * tree->width;
        box->crossing.id += mass[ID];
        box->crossing.loss += mass[LOSS];
        if (!s->classes) continue;
        sums[tree->width + 2 * s->class_of[~item]] += mass[ID];
        sums[tree->width + 2 * s->class_of[~item] + 1] += mass[LOSS];
    }
}

/* Whether what was found since leaves a window something to find. */
static int still_promising(Search *s, const Window *window)
{
    static const Tally none = {0, 0, 0, 0};
    double merit;
    const Bands band = {.ground = window->below, .level = window->level, .count = 1,
                          .certain = &none, .possible = &window->crosses, .merit = &merit};
    s->glance(s, &band);
    return merit != HUGE_VAL;
}

static int search_window(Search *s, Mesh *mesh)
{
    int64_t sums[MOST_OF_A_ROW];
    Box box;
    s->boxes++;
    if (interrupted(s->signals, 1)) return -1;
    if (!still_promising(s, mesh->window)) return 0;
    const int leaf = mesh->window->count <= LEAF;
    if (leaf || s->classes) hand_over(s, mesh, &box, sums);
    if (s->classes && s->judge(s, &box, sums) == HOPELESS) return 0;
    mesh->level = s->classes ? s->highest(s, &box, sums) : 0;
    const int stiff = mesh->window->stale > MOST_STALE;
    const int room = mesh->round[1].points.count < MOST_WAITING;
    int done = leaf ? settle(s, &box, sums, INT64_MAX) : 0;
    if (!done && !leaf && room && !stiff) {
        gather(s, mesh);
        double drift = drift_of(s, mesh), points = (double)mesh->near;
        /* Where lines hardly cross, all that is left are thresholds. */
        if (drift * points * points < FEW_CROSSINGS) {
            hand_over(s, mesh, &box, sums);
            done = settle(s, &box, sums, MOST_CROSSINGS);
        }
        if (!done) done = cut_window(s, mesh, drift);
    }
    if (done) return done < 0 ? -1 : 0;
    hand_over(s, mesh, &box, sums);
    box.stiff = room || stiff;
    return stack_push(&s->now, &box, &s->popped, sums, s->row_size);
}

/* Search all windows of a round, the best ones first. */
static int search_round(Search *s, Mesh *mesh)
{
    const int64_t n = mesh->round[0].count;
    if (n > mesh->order_room) {
        if (MAKE_ROOM(&mesh->order, 4 * (size_t)n)) return -1;
        mesh->order_room = 2 * n;
    }
    for (int64_t k = 0; k < n; k++) {
        mesh->order[k].key = mesh->round[0].window[k].merit;
        mesh->order[k].item = (int32_t)k;
    }
    sort_keyed(mesh->order, mesh->order + n, n);
    for (int64_t k = 0; k < n; k++) {
        mesh->window = mesh->round[0].window + mesh->order[k].item;
        if (search_window(s, mesh)) return -1;
    }
    return 0;
}

static int search_rounds(Search *s, Mesh *mesh)
{
    while (mesh->round[0].count) {
        if (search_round(s, mesh)) return -1;
        Round done = mesh->round[0];
        mesh->round[0] = mesh->round[1];
        mesh->round[1] = done;
        mesh->round[1].count = mesh->round[1].points.count = 0;
    }
    return 0;
}

/* Make a box of points the only window of the first round. */
static int begin_mesh(Search *s, const Box *box, const int64_t *sums)
{
    Mesh *mesh = s->mesh;
    Round *first = mesh->round;
    const Tree *tree = s->tree;
    const Chart *chart = &s->chart[box->chart];
    mesh->box = *box;
    first->count = mesh->round[1].count = mesh->round[1].points.count = 0;
    if (reserve_window(first, box->count)) return -1;
    for (int32_t k = 0; k < box->count; k++) {
        const int64_t i = ~(mesh->item[k] = s->popped.item[k]), *mass = tree->mass + i * tree->width;
        mesh->base[k] = chart->fixed * tree->point[2 * i + chart->still];
        mesh->moving[k] = tree->point[2 * i + chart->moving];
        mesh->tally[k] = (Tally){(uint64_t)mass[ID] | (uint64_t)mass[FIRST_OOD] << OOD_SHIFT,
                                 (uint64_t)mass[LOSS], (uint64_t)mass[LOSS], (uint64_t)mass[MARK]};
        first->points.item[k] = k;
    }
    Tally crosses = {(uint64_t)box->crossing.id, (uint64_t)box->crossing.loss,
                     (uint64_t)box->crossing.loss, 0};
    first->window[0] = (Window){.zone = box->zone, .below = {sums[ID], sums[FIRST_OOD], sums[LOSS]},
                                .mark = (uint64_t)sums[MARK], .crosses = crosses,
                                .level = HUGE_VAL, .merit = box->merit, .count = box->count};
    first->count = 1;
    return 0;
}

Mesh *make_mesh(void) { return calloc(1, sizeof(Mesh)); }

void free_mesh(Mesh *mesh)
{
    for (int k = 0; mesh && k < 2; k++) {
        free(mesh->round[k].window);
        free(mesh->round[k].points.item);
    }
    if (mesh) free(mesh->order);
    free(mesh);
}

/* Let a box be crossed by points only. */
static int open_nodes(Search *s, Box *box, int64_t *sums)
{
    const Chart *chart = &s->chart[box->chart];
    Cut cut = {.chart = chart, .parts = 1, .open_above = -1, .open_items = 1};
    Part *part = &s->part[0];
    for (int k = 0; k < 3; k++) cut.weight[k] = chart->step * box->zone.t[k > 0];
    part->box.zone = box->zone;
    begin_part(s, part, box, sums);
    if (sift(s, &cut, s->popped.item, box->count)) return -1;
    if (reserve_items(&s->popped, part->items.count)) return -1;
    if (part->items.count)
        memcpy(s->popped.item, part->items.item, (size_t)part->items.count * sizeof(int32_t));
    memcpy(sums, part->sums, (size_t)s->row_size * sizeof *sums);
    *box = part->box;
    s->popped.count = part->items.count;
    box->count = (int32_t)part->items.count;
    return 0;
}

static int few_points(const Search *s, const Box *box)
{
    int64_t points = box->count - box->nodes;
    if (box->nodes > MESH_POINTS) return 0;
    for (int64_t k = 0; k < box->count && points <= MESH_POINTS && box->nodes; k++) {
        int32_t item = s->popped.item[k];
        if (item >= 0) points += s->tree->node[item].end - s->tree->node[item].first;
    }
    return points <= MESH_POINTS;
}

int search_points(Search *s, Box *box, int64_t *sums)
{
    /* Where float64 cannot take lines apart, all parts would be like the whole. */
    if (box->stiff || box->zone.t[0] == box->zone.t[1] || !few_points(s, box)) return 0;
    if (box->nodes) {
        if (open_nodes(s, box, sums)) return -1;
        int verdict = s->judge(s, box, sums);
        if (verdict == HOPELESS) return 1;
        if (verdict == PUT_OFF)
            return stack_push(&s->later, box, &s->popped, sums, s->row_size) ? -1 : 1;
    }
    if (box->count <= LEAF || too_low(s, box)) return 0;
    if (s->classes && s->highest(s, box, sums) == HUGE_VAL) return 0;
    if (reserve_items(&s->popped, MESH_POINTS) || begin_mesh(s, box, sums)) return -1;
    int stage = s->stage;
    s->stage = s->last_stage; /* to put windows off costs more than to search them */
    int failed = search_rounds(s, s->mesh);
    s->stage = stage;
    return failed ? -1 : 1;
}
