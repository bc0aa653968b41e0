"""The best rules at every level of accepted mass: what the curves of two scores are made of.

Small samples are enumerated. Larger ones are searched for all levels at once, within a gap that is
stated; where weights make too many levels, at levels that are as far apart as that. An engine that
cannot search for all levels at once, on samples too large to enumerate, brackets directions
instead, by sorting alone, and has the selective risk at every percent of coverage.

*Brackets.* In one direction the rule of an OOD mass is the largest that accepts no more. The
values of a point along the directions between two lie between its values along these two: so do
the OOD values that end a rule, and with them what it accepts. That bounds all directions between
from above, and each direction that is sorted along bounds them from below. The interval that
leaves most open is halved, until little is open or there are many intervals.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import Enum
from typing import Literal, NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._kernels.engines import Gap
from demur.core.columns import combine
from demur.core.points import Points
from demur.core.program import Totals
from demur.tuning.frontier import Levels, best_for_all_bounds
from demur.tuning.operating_points import (
    RuleBatch,
    Rules,
    Search,
    is_swept,
    operating_points,
    settle,
    sweep_along,
)
from demur.tuning.prepared import FEW, Prepared, spread
from demur.tuning.result import DIRECTION_SETS, Directions

_MOST_INTERVALS = 96
_MOST_BLOCKS = 100_000


class LevelRate(Enum):
    """What is to be large."""

    accepted_id = "accepted ID"
    correct_of_all = "correct of all ID"
    correct_of_accepted = "correct of accepted ID"

    def of(self, nI: FloatArray, L: FloatArray, total: float) -> FloatArray:
        """Return it as a rate, from accepted ID and loss mass; NaN where it is undefined."""
        if self is LevelRate.accepted_id:
            return nI / total
        if self is LevelRate.correct_of_all:
            return (nI - L) / total
        with np.errstate(invalid="ignore"):
            return 1 - L / nI


class BestAtLevels(NamedTuple):
    """Rules from each OOD mass on, by rising masses, and what the area under them may lack."""

    start: IntArray
    rules: Rules
    error: float


def best_at_levels(points: Points, height: LevelRate, error: float) -> BestAtLevels:
    """Return the best rules found; their area is too small by no more than `error` if possible."""
    search = _Brackets(points, height)
    while search.intervals < _MOST_INTERVALS and search.error() > error:
        search.halve()
    return search.found()


class _Brackets:
    def __init__(self, points: Points, height: LevelRate) -> None:
        self._points, self._height = points, height
        self._ood = points.ood.sum(axis=0)
        self._total = float(points.totals.id)
        total = int(self._ood.sum())
        blocks = min(_MOST_BLOCKS, total)
        # A block goes on to below its end; the last level accepts everything.
        self._edges = np.unique((np.arange(blocks + 1) * (total / max(1, blocks))).astype(np.int64))
        self._edges[-1] = total
        self._scale = spread(points.scores, points.id)
        levels = len(self._edges)
        self._rate = np.full(levels, -1.0)
        masses = (np.zeros(levels, np.int64) for _ in range(3))
        self._best = Rules(next(masses), next(masses), next(masses), np.full((levels, 3), np.nan))
        self._open: list[tuple[float, int, float, float, FloatArray]] = []
        self._values: dict[float, FloatArray] = {}
        self.intervals = 0
        for angle in (0.0, np.pi / 2):
            self._sweep(angle)
        self._add(0.0, np.pi / 2)

    def halve(self) -> None:
        """Take the interval apart that leaves most open."""
        _, _, low, high, _ = heapq.heappop(self._open)
        middle = (low + high) / 2
        self._sweep(middle)
        self._add(low, middle)
        self._add(middle, high)

    def error(self) -> float:
        """Return how much larger the area may be."""
        widths = np.diff(self._edges)
        if len(widths) == 0 or widths.sum() == 0:
            return 0.0
        above = np.max([bound for *_, bound in self._open], axis=0) - self._rate[:-1]
        return float(widths @ np.maximum(above, 0.0)) / float(widths.sum())

    def found(self) -> BestAtLevels:
        """Return the rules found."""
        some = np.flatnonzero(self._rate >= 0)
        masses = np.column_stack([self._best.id, self._best.ood, self._best.loss])[some]
        new = np.append(True, (np.diff(masses, axis=0) != 0).any(axis=1))[: len(some)]
        first = some[new]
        return BestAtLevels(self._edges[first], self._best.take(first), self.error())

    def _direction(self, angle: float) -> tuple[float, float]:
        axes = {0.0: (1.0, 0.0), np.pi / 2: (0.0, 1.0)}
        weights = np.array([np.cos(angle), np.sin(angle)]) / self._scale
        return axes.get(angle, tuple((weights / np.hypot(*weights)).tolist()))

    def _sweep(self, angle: float) -> None:
        """Let a direction compete at the start of every block."""
        direction = self._direction(angle)
        # Bounds need positive combinations of two directions, at whatever length.
        self._values[angle] = combine(direction, self._points.scores)
        swept, thresholds = sweep_along(self._points, direction)
        nO = swept.ood.sum(axis=0)
        row = np.searchsorted(nO, self._edges, side="right") - 1
        nI, L = np.append(swept.id, 0)[row], np.append(swept.loss, 0)[row]
        rate = self._lowest_rate(nO, swept.id, swept.loss)
        better = np.flatnonzero(rate > self._rate)
        self._rate[better] = rate[better]
        best = self._best
        best.id[better], best.loss[better] = nI[better], L[better]
        best.ood[better] = np.append(nO, 0)[row[better]]
        best.lines[better, :2] = direction
        best.lines[better, 2] = np.append(thresholds, -np.inf)[row[better]]

    def _lowest_rate(self, nO: IntArray, nI: IntArray, L: IntArray) -> FloatArray:
        """Return the lowest rate of a direction at the levels of each block; NaN for none."""
        # The rate changes where the OOD mass does, to that of the last rule with the same mass.
        last = np.flatnonzero(np.append(nO[1:] != nO[:-1], True)[: len(nO)])
        rates = self._height.of(nI[last].astype(float), self._in_units(L[last]), self._total)
        rates = np.append(np.nan, rates)
        first = np.searchsorted(nO[last], self._edges, side="right")
        stop = np.searchsorted(nO[last], np.append(self._edges[1:], self._edges[-1] + 1))
        lowest: FloatArray = np.array(rates[first])
        wide = np.flatnonzero(stop > first)
        if len(wide):
            spans = np.column_stack([first[wide], stop[wide] + 1]).ravel()
            lowest[wide] = np.minimum.reduceat(np.append(rates, np.inf), spans)[::2]
        return lowest

    def _in_units(self, L: IntArray) -> FloatArray:
        totals = self._points.totals
        units: FloatArray = L.astype(np.float64) * 2.0 ** (
            totals.id_exponent - totals.loss_exponent
        )
        return units

    def _add(self, low: float, high: float) -> None:
        bound = self._bound(self._values[low], self._values[high])
        above = np.maximum(bound - self._rate[:-1], 0.0)
        leaves_open = float(np.diff(self._edges) @ above)
        self.intervals += 1
        heapq.heappush(self._open, (-leaves_open, self.intervals, low, high, bound))

    def _bound(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return what no direction between two exceeds at any level of each block."""
        least, most = np.minimum(first, second), np.maximum(first, second)
        starts, lasts = self._edges[:-1], self._edges[1:] - 1
        # Rules of the block end below a value between these.
        from_, to = self._ends(least, starts), self._ends(most, lasts)
        points = self._points
        good = points.id.astype(np.float64)
        if self._height is not LevelRate.accepted_id:
            good = good - self._in_units(points.loss)
        right = _below(least, good, to, side="right")
        if self._height is not LevelRate.correct_of_accepted:
            return right / self._total
        wrong = _below(most, self._in_units(points.loss), from_)
        with np.errstate(invalid="ignore"):
            return np.nan_to_num(right / (right + wrong), nan=-1.0)

    def _ends(self, values: FloatArray, levels: IntArray) -> FloatArray:
        """Return the OOD value with which more than so much OOD mass is accepted."""
        rows = np.flatnonzero(self._ood)
        rows = rows[np.argsort(values[rows])]
        place = np.searchsorted(np.cumsum(self._ood[rows]), levels, side="right")
        ends: FloatArray = np.append(values[rows], np.inf)[place]
        return ends


def _below(
    values: FloatArray, mass: FloatArray, ends: FloatArray, side: Literal["left", "right"] = "left"
) -> FloatArray:
    """Return the mass of the points whose value is below each end, or at it with "right"."""
    rows = np.flatnonzero(mass)
    rows = rows[np.argsort(values[rows])]
    sums: FloatArray = np.append(0.0, np.cumsum(mass[rows]))
    return sums[np.searchsorted(values[rows], ends, side=side)]


Cost = Callable[[IntArray, IntArray, IntArray], FloatArray]
"""What must be small, from accepted ID, OOD and loss mass."""

ERROR = 1e-4
"""By how much areas of large samples of two scores may be too small, unless all is asked for."""

_NONNEG = DIRECTION_SETS["nonneg"]
# Whole-number weights are counts as long as they do not ask for many more levels than rows.
_LEVELS_PER_ROW = 4
# Levels where there are no counts to go through.
_MOST_LEVELS = 20_000
_COVERAGES = 100


class Stairs(NamedTuple):
    """Rules by rising masses, and how far others may lie beyond the staircase they make.

    What is best at a level is better by no more than `y_gap` than the staircase is, or is so
    at a level that is more generous by `x_gap`; both are rates.
    """

    rules: Rules
    x_gap: float = 0.0
    y_gap: float = 0.0

    @property
    def error(self) -> float:
        """By how much the area under the staircase may be too small, or over it too large."""
        return self.x_gap + self.y_gap


def roc_stairs(prepared: Prepared, search: Search, error: float = 0.0) -> Stairs:
    """Return the rules that no other beats in both ID and OOD mass, by rising masses.

    `error` is what the area under them may lack, where the sample is not small.
    """
    points = prepared.points
    how = _how(prepared, search, error)
    if how == "enumerated":
        return Stairs(staircase(points, "nonneg", search, lambda nI, nO, L: nO.astype(float)))
    if how == "bracketed":
        return _bracketed(prepared, error)
    total_id, total_ood = int(points.id.sum()), int(points.ood.sum())
    levels, apart = _levels(total_ood, points.totals, len(points.scores))
    gap = Gap(id=float(int(error / 2 * total_id)), ood=int(error / 2 * total_ood))
    # Without losses all rules have the same risk, and the larger ID mass decides.
    rules = _searched(prepared, np.zeros_like(points.loss), np.array([1]), levels, gap)
    x_gap = (apart + gap.ood) / max(1, total_ood)
    return Stairs(rules, x_gap, gap.id / max(1, points.totals.id))


def precision_stairs(prepared: Prepared, search: Search, error: float = 0.0) -> Stairs:
    """Return, for each bound from below on ID mass, the rule with the least OOD per ID mass.

    The gaps are those of the ROC curve: `x_gap` of the FPR, `y_gap` of the TPR.
    """
    if _how(prepared, search, error) == "enumerated":
        points = prepared.points
        return Stairs(staircase(points, "nonneg", search, lambda nI, nO, L: nO / nI))
    stairs = roc_stairs(prepared, search, error)
    return stairs._replace(rules=most_precise(stairs.rules))


def most_precise(rules: Rules) -> Rules:
    """Return the rules that none beats in ID mass and in OOD per ID mass."""
    # At equal OOD mass more ID mass is better for the bound and for the ratio.
    rules = rules.take(rules.id > 0)
    return rules.take(undominated(rules.id, rules.ood / rules.id, rules.ood))


def risk_stairs(prepared: Prepared, search: Search, max_ood: int, error: float = 0.0) -> Stairs:
    """Return, for each bound from below on ID mass, the rule with the least selective risk.

    None of them accepts more than `max_ood`. The error of the risk is a share of the largest
    loss, or of ten times the mean loss if that is less.
    """
    points = prepared.points
    how = _how(prepared, search, error)
    if how == "enumerated":
        found = staircase(
            points, "nonneg", search, lambda nI, nO, L: np.where(nO <= max_ood, L / nI, np.inf)
        )
        return Stairs(found)
    totals, total = points.totals, int(points.id.sum())
    if how == "bracketed":
        levels, apart = _spaced(total, _COVERAGES)
    else:
        levels, apart = _levels(total, totals, len(points.scores))
    gap = Gap(risk=error * _loss_scale(points))
    levels = levels[levels > 0]
    rules = _searched(prepared, points.loss, levels, np.array([max_ood]), gap)
    y_gap = gap.risk * 2.0 ** (totals.id_exponent - totals.loss_exponent)
    return Stairs(rules, apart / max(1, totals.id), y_gap)


def settled_stairs(prepared: Prepared, rules: Rules, search: Search) -> Rules:
    """Return rules with lines of unit weights and thresholds midway between the sides."""
    points = prepared.points
    if is_swept(points, search) or len(points.scores) <= FEW or len(rules.id) == 0:
        return rules
    return rules._replace(lines=prepared.settled(rules.lines))


def _how(prepared: Prepared, search: Search, error: float) -> str:
    points = prepared.points
    small = is_swept(points, search) or len(points.scores) <= FEW
    if small or (error == 0 and not is_searched(prepared, search)):
        return "enumerated"
    return "searched" if prepared.searches_all_bounds else "bracketed"


def is_searched(prepared: Prepared, search: Search) -> bool:
    """Return whether one search finds what is best at every count of rows."""
    points = prepared.points
    if is_swept(points, search) or len(points.scores) <= FEW:
        return False
    return prepared.searches_all_bounds and _are_counts(points.totals, len(points.scores))


def _are_counts(totals: Totals, rows: int) -> bool:
    whole = totals.id_exponent == totals.ood_exponent == 0
    return whole and totals.id + sum(totals.ood) <= _LEVELS_PER_ROW * rows


def _levels(total: int, totals: Totals, rows: int) -> tuple[IntArray, int]:
    """Return levels from 0 to a total mass, and how much mass lies between two of them."""
    return _spaced(total, total if _are_counts(totals, rows) else _MOST_LEVELS)


def _spaced(total: int, most: int) -> tuple[IntArray, int]:
    if total <= most:
        return np.arange(total + 1), 0
    levels = np.unique((np.arange(most + 1) * (total / most)).astype(np.int64))
    levels[-1] = total
    return levels, int(np.diff(levels).max())


def _loss_scale(points: Points) -> float:
    """Return the largest loss of a row, or ten times the mean if that is less, in masses."""
    some = points.id > 0
    if not points.loss[some].any():
        return 0.0
    largest = float((points.loss[some] / points.id[some]).max())
    return min(largest, 10 * float(points.loss.sum()) / float(points.id.sum()))


def _bracketed(prepared: Prepared, error: float) -> Stairs:
    best = best_at_levels(prepared.points, LevelRate.accepted_id, error)
    rules = best.rules.take(
        undominated(best.rules.id, best.rules.ood.astype(float), best.rules.ood)
    )
    return Stairs(rules, 0.0, best.error)


def _searched(
    prepared: Prepared, loss: IntArray, id_levels: IntArray, ood_levels: IntArray, gap: Gap
) -> Rules:
    pooled = prepared.points.ood.sum(axis=0, keepdims=True)
    points = replace(prepared.points, ood=pooled, loss=loss)
    levels = Levels(id_levels, ood_levels[None])
    rules, _ = best_for_all_bounds(prepared.reweighted(points), _NONNEG, levels, gap)
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
