/* The best half-plane for every pair of a required ID and an allowed OOD mass. */
#ifndef DEMUR_FRONTIER_H
#define DEMUR_FRONTIER_H

#include "search.h"

#define CLASSES 12

/* Ascending levels, with a table that brackets the place of a number among them. */
#define BRACKETS 1024
#define MOST_LEVELS ((int64_t)1 << 24)

typedef struct {
    const int64_t *level;
    int count;
    double scale;
    int least[BRACKETS + 1], most[BRACKETS + 1];
    int64_t from, to; /* numbers from here to before there have the place looked up last */
    int last;
} Levels;

typedef struct {
    Levels id, ood; /* rows and columns */
    double risk_gap; /* boxes that promise no more than this are left alone, */
    double id_gap;   /* the same for the ID mass where nothing has a loss, */
    int64_t ood_gap; /* against what is known for so much more OOD mass */
    int rows, columns;
    Accepted *best;                      /* rows x columns, id 0 for none */
    double *risk;                        /* of `best`, infinite for none */
    double *weight, *v;                  /* of a half-plane that attains it */
    double *hope;                        /* rows x columns: no risk is smaller in boxes given up
                                            that serve these bounds and weaker ones; or NULL */
    int classes;
    double low[CLASSES], high[CLASSES]; /* loss per ID mass within a class of points */
    uint8_t *class_of;                  /* per point; NULL when losses are regular */
    int64_t *class_sums;                /* per node */
} Frontier;

/* With `hope`, boxes that float64 cannot take apart are kept as doubts, and half-planes are taken
 * only if rounding errors of no point reach them. */
int search_frontier(Search *s, Frontier *f, const int64_t *quarter, int quarters);

#endif
