/* Counting what many half-planes accept in one walk through the tree.
 *
 * Each node is looked at once, with all half-planes that may have points of it on both sides. What
 * is found is taken off what they are said to accept, so that nothing must be left.
 */
#include "claims.h"

#include <math.h>
#include <stdlib.h>

/* A node, and where the half-planes that are to look at it are listed. */
typedef struct {
    int32_t node;
    int64_t first, end;
} Visit;

static inline void take_off(Claim *claim, Accepted a)
{
    claim->accepts.id -= a.id;
    claim->accepts.ood -= a.ood;
    claim->accepts.loss -= a.loss;
}

/* The scores at the ends of a box, or of a point, from those in the tree. */
static void scores_at(const Tree *tree, const double *ends, double *score, int n)
{
    for (int k = 0; k < n; k++) score[k] = score_of(tree, ends[k], k % 2);
}

/* List the claims that a node does not settle as a whole; returns how many. Rounding is monotone:
 * corners bound the values of all points inside. */
static int64_t list_open(const Tree *tree, int32_t node, Claim *claims, const int32_t *list,
                         int64_t n, int32_t *open)
{
    const Accepted inside = accepted_by(tree->sums + (int64_t)node * tree->width, tree->sets);
    double score[4];
    int64_t found = 0;
    scores_at(tree, tree->box + 4 * (int64_t)node, score, 4);
    for (int64_t k = 0; k < n; k++) {
        Claim *claim = claims + list[k];
        const int back[2] = {claim->weight[0] < 0 ? 2 : 0, claim->weight[1] < 0 ? 2 : 0};
        const double low =
            claim->weight[0] * score[back[0]] + claim->weight[1] * score[1 + back[1]];
        const double high =
            claim->weight[0] * score[2 - back[0]] + claim->weight[1] * score[3 - back[1]];
        open[found] = list[k];
        if (low - claim->error > claim->v) continue;
        if (high + claim->error < claim->v)
            take_off(claim, inside);
        else
            found++;
    }
    return found;
}

/* Count a point; returns whether its rounding errors reach a claim. */
static int count_point(const Tree *tree, int64_t i, Claim *claims, const int32_t *list, int64_t n)
{
    const int64_t *mass = tree->mass + i * tree->width;
    const Accepted here = accepted_by(mass, tree->sets);
    double score[2];
    int reached = 0;
    scores_at(tree, tree->point + 2 * i, score, 2);
    for (int64_t k = 0; k < n; k++) {
        Claim *claim = claims + list[k];
        const double value = claim->weight[0] * score[0] + claim->weight[1] * score[1];
        if (value <= claim->v) take_off(claim, here);
        if (claim->error > 0 && !(fabs(value - claim->v) > claim->error) && mass[MARK])
            reached |= comes_close(tree, claim->weight, claim->v, tree->point + 2 * i);
    }
    return reached;
}

static int walk_claims(const Tree *tree, Claim *claims, Items *list)
{
    Visit waiting[LEVELS];
    int count = 0, reached = 0;
    waiting[count++] = (Visit){0, 0, list->count};
    while (count && !reached) {
        const Visit at = waiting[--count];
        const int64_t n = at.end - at.first;
        if (reserve_items(list, at.end + n)) return -1;
        const int64_t open =
            list_open(tree, at.node, claims, list->item + at.first, n, list->item + at.end);
        if (open == 0) continue;
        const Node *here = opened(tree, at.node);
        for (int k = 0; here->child && k < 2; k++)
            waiting[count++] = (Visit){here->child + k, at.end, at.end + open};
        for (int64_t i = here->first; !here->child && i < here->end; i++)
            reached |= count_point(tree, i, claims, list->item + at.end, open);
    }
    return reached;
}

int claims_hold(const Tree *tree, Claim *claims, int64_t n)
{
    Items list = {NULL, 0, 0};
    if (n == 0) return 1;
    if (reserve_items(&list, n)) return -1;
    for (; list.count < n; list.count++) list.item[list.count] = (int32_t)list.count;
    const int reached = walk_claims(tree, claims, &list);
    free(list.item);
    if (reached) return reached < 0 ? -1 : 0;
    for (int64_t k = 0; k < n; k++) {
        const Accepted left = claims[k].accepts;
        if (left.id || left.ood || left.loss) return 0;
    }
    return 1;
}
