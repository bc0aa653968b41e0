#ifndef DEMUR_SURVEY_H
#define DEMUR_SURVEY_H

#include "search.h"

/* Where to cut a zone. Both cuts are there, in case float64 has no room for the better one. */
typedef struct {
    int in_t;         /* whether to cut across t rather than by a chord, */
    double at;        /* and there, as a part of the width; */
    double chord[2];  /* values of the chord at both ends, */
    double beside[2]; /* from there to the next item, or to the edge, towards the middle */
    int has_chord;
} Survey;

/* Look at a few of the items that cross the popped box. */
Survey survey_items(const Search *s, const Box *box);

#endif
