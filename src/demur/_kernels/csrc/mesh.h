#ifndef DEMUR_MESH_H
#define DEMUR_MESH_H

#include "search.h"

#define MESH_POINTS 4096 /* most points that cross a box */
#define MOST_OF_A_ROW 64 /* sums of a box */

#define MOST_MASS ((int64_t)1 << 31) /* ID, and OOD, mass of all points has to be less */

/* ID and OOD mass are counted in one number. */
#define OOD_SHIFT 32
#define ID_BITS (((uint64_t)1 << OOD_SHIFT) - 1)

/* Masses of points; `worth` is their loss or, with classes, what accepting them can gain. */
struct Tally {
    uint64_t mass, loss, worth, mark;
};

/* Parts of a box, the lower ones first: what lies below each for certain, and what may. */
struct Bands {
    Accepted ground; /* what lies below the box */
    double level;    /* at which `worth` was found: all that has to be beaten in the box is at most this */
    int count;
    const Tally *certain, *possible;
    double *merit; /* of boxes, HUGE_VAL for those that are hopeless */
};

/* Search a box that few points cross, after its nodes were opened. Returns 0 if it has to be cut
 * in another way, -1 without memory. */
int search_points(Search *s, Box *box, int64_t *sums);
Mesh *make_mesh(void);
void free_mesh(Mesh *mesh);

#endif
