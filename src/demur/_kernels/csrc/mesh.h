#ifndef DEMUR_MESH_H
#define DEMUR_MESH_H

#include "search.h"

#define MOST_OF_A_ROW 64 /* sums of a box */

#define MOST_MASS ((int64_t)1 << 31) /* ID, and OOD, mass of all points has to be less */

/* Search a box that few points cross, after its nodes were opened. Returns 0 if it has to be cut
 * in another way, -1 without memory. */
int search_points(Search *s, Box *box, int64_t *sums);
Layer *make_layers(void);

#endif
