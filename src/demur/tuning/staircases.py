"""The best rules at every level of accepted mass: what the curves of two scores are made of.

Small samples are enumerated. Larger ones are searched for all levels at once by an engine that
can do that, as long as levels are counts of rows; with other weights there are too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.points import Points
from demur.tuning.directions import DIRECTION_SETS, Directions
from demur.tuning.frontier import Levels, best_for_all_bounds
from demur.tuning.operating_points import (
    RuleBatch,
    Rules,
    Search,
    is_swept,
    operating_points,
    settle,
)
from demur.tuning.prepared import FEW, Prepared

Cost = Callable[[IntArray, IntArray, IntArray], FloatArray]
"""What must be small, from accepted ID, OOD and loss mass."""

_NONNEG = DIRECTION_SETS["nonneg"]
# Whole-number weights are counts as long as they do not ask for many more levels than rows.
_LEVELS_PER_ROW = 4


def roc_stairs(prepared: Prepared, search: Search) -> Rules:
    """Return the rules that no other beats in both ID and OOD mass, by rising masses."""
    points = prepared.points
    if not _is_searched(prepared, search):
        return staircase(points, "nonneg", search, lambda nI, nO, L: nO.astype(float))
    # Without losses all rules have the same risk, and the larger ID mass decides.
    no_loss = np.zeros_like(points.loss)
    return _searched(prepared, no_loss, np.array([1]), np.arange(int(points.ood.sum()) + 1))


def precision_stairs(prepared: Prepared, search: Search) -> Rules:
    """Return, for each bound from below on ID mass, the rule with the least OOD per ID mass."""
    if not _is_searched(prepared, search):
        return staircase(prepared.points, "nonneg", search, lambda nI, nO, L: nO / nI)
    # At equal OOD mass more ID mass is better for the bound and for the ratio.
    stairs = roc_stairs(prepared, search)
    return stairs.take(undominated(stairs.id, stairs.ood / stairs.id, stairs.ood))


def risk_stairs(prepared: Prepared, search: Search, max_ood: int) -> Rules:
    """Return, for each bound from below on ID mass, the rule with the least selective risk.

    None of them accepts more than `max_ood`.
    """
    points = prepared.points
    if not _is_searched(prepared, search):
        return staircase(
            points, "nonneg", search, lambda nI, nO, L: np.where(nO <= max_ood, L / nI, np.inf)
        )
    id_levels = np.arange(1, int(points.id.sum()) + 1)
    return _searched(prepared, points.loss, id_levels, np.array([max_ood]))


def settled_stairs(prepared: Prepared, stairs: Rules, search: Search) -> Rules:
    """Return the stairs with lines of unit weights and thresholds midway between the sides."""
    if not _is_searched(prepared, search):
        return stairs
    settled, met = settle(prepared.points, stairs, "nonneg")
    # A line that float64 cannot bring to unit length stays as the search found it.
    return stairs._replace(lines=np.where(met[:, None], settled.lines, stairs.lines))


def _is_searched(prepared: Prepared, search: Search) -> bool:
    points, totals = prepared.points, prepared.points.totals
    if is_swept(points, search) or len(points.scores) <= FEW or not prepared.searches_all_bounds:
        return False
    are_counts = totals.id_exponent == totals.ood_exponent == 0
    return are_counts and totals.id + sum(totals.ood) <= _LEVELS_PER_ROW * len(points.scores)


def _searched(
    prepared: Prepared, loss: IntArray, id_levels: IntArray, ood_levels: IntArray
) -> Rules:
    pooled = prepared.points.ood.sum(axis=0, keepdims=True)
    points = replace(prepared.points, ood=pooled, loss=loss)
    levels = Levels(id_levels, ood_levels[None])
    rules, _ = best_for_all_bounds(prepared.reweighted(points), _NONNEG, levels)
    order = np.lexsort((rules.ood, rules.id))
    first = np.append(True, np.diff(rules.id[order]) > 0)[: len(order)]
    return rules.take(order[first])


def staircase(points: Points, directions: Directions, search: Search, cost: Cost) -> Rules:
    """Return, for each bound from below on ID mass, the rule of least cost.

    Rules come by rising ID mass. Equal costs go to the larger ID mass, then the smaller OOD
    mass. An infinite cost bars a rule.
    """
    none = Rules.none(points.scores.shape[1])
    found = _pareto(operating_points(points, directions, search), cost, none)
    if is_swept(points, search):
        return found
    found, settled = settle(points, found, directions)
    if settled.all():
        return found
    batches = operating_points(points, directions, search, settled=True)
    return _pareto(batches, cost, found.take(settled))


def _pareto(batches: Iterable[RuleBatch], cost: Cost, known: Rules) -> Rules:
    """Return the rules, by rising ID mass, that no other beats in both ID mass and cost."""
    best, best_cost = known, cost(known.id, known.ood, known.loss)
    for batch in batches:
        nO, some = batch.ood.sum(axis=0), batch.id > 0
        price = np.full(len(nO), np.inf)
        price[some] = cost(batch.id[some], nO[some], batch.loss[some])
        # The cheapest known rule with at least as much ID mass comes next in the staircase.
        rival = np.searchsorted(best.id, batch.id)
        rival_cost = np.append(best_cost, np.inf)[rival]
        same = (price == rival_cost) & (batch.id == np.append(best.id, 0)[rival])
        fewer = same & (nO < np.append(best.ood, 0)[rival])
        rows = np.flatnonzero((price < rival_cost) | fewer)
        if len(rows) == 0:
            continue
        new = Rules(batch.id[rows], nO[rows], batch.loss[rows], batch.lines(rows))
        found = new.found()
        joint, price = Rules.joined(best, new.take(found)), np.append(best_cost, price[rows[found]])
        kept = undominated(joint.id, price, joint.ood)
        best, best_cost = joint.take(kept), price[kept]
    return best


def undominated(nI: IntArray, cost: FloatArray, nO: IntArray) -> IntArray:
    """Return the rows, by rising ID mass, that none beats in ID mass and cost."""
    order = np.lexsort((nO, cost, -nI))
    falling = cost[order]
    least_before = np.minimum.accumulate(np.append(np.inf, falling[:-1]))
    kept: IntArray = order[falling < least_before][::-1]
    return kept
