/* Columns of a window, cut into bands by chords, and where points are among these; see mesh.c. */
#ifndef DEMUR_BANDS_H
#define DEMUR_BANDS_H

#include "mesh.h"
#include "sides.h"

#define MOST_COLUMNS 16
#define MOST_ROWS_OF_A_COLUMN 128
#define MOST_BANDS (2 * MOST_ROWS_OF_A_COLUMN + 1) /* since chords may climb by all rows */
#define SAMPLED 24 /* points looked at to choose cuts */
#define TOLERANCE (8 * DBL_EPSILON) /* of values and chords, relative to their sizes */

/* How a window is cut: into columns at t, of rows between floor and ceiling. Chord c of the column
 * at hand goes from row c at its left end to row c + climb at its right end, or to where the zone
 * ends; `first` is the floor, the last one the ceiling. */
typedef struct {
    int columns, rows;
    double t[MOST_COLUMNS + 1], low[MOST_COLUMNS + 1], high[MOST_COLUMNS + 1];
    int climb, first, bands;
} Cuts;

/* At a cut: the last row whose floor points are above, -1 for none, and the first whose floor they
 * are below, rows + 1 for none. */
typedef struct {
    int32_t above[MESH_POINTS + LANES], below[MESH_POINTS + LANES];
} Places;

/* Lists of points have room up to a multiple of LANES. */
static inline int filled_up(int n) { return (n + LANES - 1) / LANES * LANES; }

/* The value at which a row begins at a cut, and the row in which chord c of a column ends. */
double row_at(const Cuts *cuts, int j, int row);
int row_of_chord(const Cuts *cuts, int c, int end);

/* Find the places of n points at cut j, where the moving scores have a weight. */
void place_at(const Cuts *cuts, int j, int whole, double weight, const double *base,
              const double *moving, int n, Places *at);
/* By how many rows most points rise in a column. */
int choose_climb(const Cuts *cuts, int j, int n, const Places *left, const Places *right);
/* Bands that points cross, from `from` to before `to`. */
void join_places(const Places *left, const Places *right, int n, const Cuts *cuts, int32_t *from,
                 int32_t *to);
/* What is certain and possible in each band, and what is below each row of a cut. */
void count_bands(const Tally *tally, const int32_t *from, const int32_t *to, int n, int bands,
                 Tally *possible, Tally *certain);
void count_rows(const Tally *tally, const int32_t *below, int n, int rows, Tally *certain);
/* Whether points cross any of the bands from `first` to `last`. */
void mark_crossing(const int32_t *from, const int32_t *to, int n, int first, int last,
                   uint8_t *crosses);
/* Which rows of a cut begin within rounding errors of a point. */
void find_doubts(const Places *at, int n, char *doubtful);

#endif
