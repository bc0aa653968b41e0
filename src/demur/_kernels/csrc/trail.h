/* What a search looked at, to be looked at again with other masses.
 *
 * Which points lie below a box and which cross it does not depend on masses. A trail is the tree of
 * boxes of one search: for each box the items that turned out to lie below it since its parent was
 * cut, and for the boxes that were not cut the items that cross them. Other masses of the same
 * points are added up along it without any geometry; boxes that may then hold something better
 * are searched as ever. Together the boxes that were not cut are all half-planes, so nothing is
 * lost, however much the masses differ. */
#ifndef DEMUR_TRAIL_H
#define DEMUR_TRAIL_H

#include "search.h"

/* A box of the search. Its items are nodes, then points: those below, then those that cross. */
typedef struct {
    Zone zone;
    int64_t first;         /* of its items */
    int32_t below[2];      /* how many nodes and points lie below, */
    int32_t crossing[2];   /* and cross; none if it was cut */
    int32_t parent;        /* comes before it; -1 for none */
    int32_t chart, depth, last; /* last: it was not cut */
} Step;

typedef struct Trail {
    Step *step;
    int32_t *item;
    int64_t steps, items;
    int64_t points, nodes; /* of the tree it is of, */
    int64_t step_room, item_room;
} Trail;

/* Record a trail after a search that found an optimum: boxes are cut unless they could not even
 * beat it if it were worse by `slack`, relatively. */
int record_trail(Search *s, Trail *trail, const int64_t *quarter, int quarters, double slack);
/* Whether it is of a tree of this size, and its steps are in range. */
int trail_sound(const Trail *trail, const Tree *tree, int charts);
int follow_trail(Search *s, const Trail *trail, const int64_t *quarter, int quarters);
void trail_free(Trail *trail);

#endif
