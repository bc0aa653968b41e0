/* The widest gap between the points that a half-plane accepts and those it rejects. */
#ifndef DEMUR_MARGIN_H
#define DEMUR_MARGIN_H

#include "tree.h"

/* The largest value of an accepted and the smallest of a rejected point along a direction; an
 * infinity where there is no such point. Points without mass do not count. */
void margin_sides(const Tree *tree, const double *weight, double v, const double *along,
                  double *last, double *following);
/* The weights brought to unit length, and the threshold midway between the points next to the
 * boundary along them: where there is nothing between, or no other point, the last accepted. */
void margin_settle(const Tree *tree, const double *weight, double v, double *unit,
                   double *threshold);
/* The direction with the widest gap, after dividing scores by `scale`; weights of the scores that
 * must not be negative are told by `nonneg`. */
void margin_widest(const Tree *tree, const double *weight, double v, const double *scale,
                   const int *nonneg, double *direction, double *width);

#endif
