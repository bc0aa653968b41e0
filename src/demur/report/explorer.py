"""The rules behind the sliders of the page, with what each accepts.

One frontier with fine levels holds a best rule for every pair of bounds. Of these rules the
page needs few: the best at each of its 101 x 101 levels of TPR and FPR, the best for every
bound on precision at each level of recall, and the best for all costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.points import Points
from demur.core.program import Totals, at_least
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.scores import combine
from demur.report.summary import Case
from demur.tuning.frontier import PERCENT, Frontier, frontier
from demur.tuning.result import Grid

# Up to so many ID and OOD rows, every count of rows is a level of the fine frontier.
_MOST_ID, _MOST_OOD = 800, 600
# Beyond, half as many levels lose less than the fourth digit of an objective.
_TPR_LEVELS, _FPR_LEVELS = 400, 300
_COST_STEPS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Accepted masses, an entry per rule, in the units of `totals`."""

    id: IntArray
    loss: IntArray
    ood_sets: IntArray
    """Shape (sets, rules)."""
    totals: Totals

    @property
    def ood(self) -> IntArray:
        """Accepted OOD mass of all sets together."""
        return np.asarray(self.ood_sets.sum(axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class Explorer:
    """Rules to choose from, and the best of them for each pair of percent bounds."""

    lines: FloatArray
    """Direction and threshold of each rule, shape (rules, k + 1)."""
    tuned: Counts
    held_out: Counts | None
    cells: IntArray
    """Rule by min TPR (row) and max FPR (column) in percent; -1 where none meets them."""
    start: int
    """Number of the rule that was tuned."""
    worst: bool
    """Whether the FPR bound holds for every OOD set, not for all rows together."""
    max_reject_cost: float
    """The largest cost of rejecting an ID input that the page offers."""
    exact: bool
    """Whether all directions were searched, not a grid of angles."""

    @property
    def has_ood(self) -> bool:
        """Whether there are OOD rows."""
        return sum(self.tuned.totals.ood) > 0

    def rule(self, number: int, names: tuple[str, ...] | None = None) -> Rule:
        """Return a rule by its number."""
        *direction, threshold = self.lines[number].tolist()
        return Rule(tuple(direction), threshold, score_names=names)


def explore(case: Case) -> Explorer:
    """Collect the rules of the page for a sample and the rule tuned on it."""
    sample, held_out = case.sample, case.held_out
    cost = _largest_cost(sample)
    points = Points.of(sample, "worst")
    lines, cells = _candidates(case, points, cost)
    nothing = [1.0, *[0.0] * (sample.n_scores - 1), -np.inf]
    tuned = case.rule.for_doubts(sample.columns)
    lines, cells = _with_tuned(points, np.vstack([lines, nothing]), cells, tuned)
    raw = np.column_stack([sample.columns.as_doubts(lines[:, :-1]) + 0.0, lines[:, -1]])
    return Explorer(
        lines=raw,
        tuned=count(points, lines),
        held_out=None if held_out is None else count(Points.of(held_out, "worst"), lines),
        cells=cells,
        start=len(lines) - 1,
        worst=case.worst,
        max_reject_cost=cost,
        exact=not isinstance(case.search, Grid) or sample.n_scores == 1,
    )


def _candidates(case: Case, points: Points, largest_cost: float) -> tuple[FloatArray, IntArray]:
    """Return the rules that are best for some bounds or costs, and which one each cell has."""
    sample = case.sample
    tprs = _levels(sample.n_id, _evenly(sample.n_id))
    fprs = _levels(sample.n_ood, _densest_at_zero(sample.n_ood))
    surface = frontier(
        sample,
        min_tpr=tprs,
        max_fpr=fprs,
        directions=case.directions,
        search=case.search,
        ood=case.ood,
    )
    lines, cells, counts = _distinct(surface, Points.of(sample, "pooled").totals)
    if case.worst:
        counts = count(points, lines)
    cells = cells[np.ix_(_percent_of(tprs), _percent_of(fprs))]
    kept = np.unique(
        np.concatenate(
            [
                cells[cells >= 0],
                _best_at_any_precision(counts, worst=case.worst),
                _best_at_any_cost(counts, np.linspace(0, largest_cost, _COST_STEPS + 1)),
            ]
        )
    )
    return lines[kept], np.where(cells < 0, -1, np.searchsorted(kept, cells))


def _levels(rows: int, counts: Iterable[int]) -> list[Fraction]:
    """Return the percent levels and those of these counts."""
    fine = {Fraction(k, rows) for k in counts} if rows else set()
    return sorted(fine | set(PERCENT))


def _percent_of(levels: list[Fraction]) -> list[int]:
    places = {level: i for i, level in enumerate(levels)}
    return [places[level] for level in PERCENT]


def _evenly(rows: int) -> Iterable[int]:
    if rows <= _MOST_ID:
        return range(rows + 1)
    return {round(k * rows / _TPR_LEVELS) for k in range(_TPR_LEVELS + 1)}


def _densest_at_zero(rows: int) -> Iterable[int]:
    """Return counts whose *relative* distance is small: precision depends on it."""
    if rows <= _MOST_OOD:
        return range(rows + 1)
    half = _FPR_LEVELS // 2
    return {*range(half), *np.geomspace(half, rows, half).round().astype(int).tolist()}


def _distinct(surface: Frontier, totals: Totals) -> tuple[FloatArray, IntArray, Counts]:
    """Return the different rules of a frontier as lines, which one each cell has, and counts."""
    shape = surface.selective_risk.shape
    accepted = [surface.accepted_id, surface.accepted_ood, surface.accepted_loss]
    exponents = [totals.id_exponent, totals.ood_exponent, totals.loss_exponent]
    keys = np.stack([np.ldexp(a.ravel(), e) for a, e in zip(accepted, exponents, strict=True)])
    able = np.flatnonzero(~np.isnan(keys[0]))
    order = able[np.lexsort(keys[:, able])]
    new = np.append(True, (np.diff(keys[:, order], axis=1) != 0).any(axis=0))[: len(order)]
    cells = np.full(keys.shape[1], -1)
    cells[order] = np.cumsum(new) - 1
    first = order[new]
    directions = surface.directions.reshape(len(cells), -1)[first]
    lines = np.column_stack([directions, surface.thresholds.ravel()[first]])
    id_, ood, loss = keys[:, first].astype(np.int64)
    return lines, cells.reshape(shape), Counts(id_, loss, ood[None], totals)


def _with_tuned(
    points: Points, lines: FloatArray, cells: IntArray, rule: Rule
) -> tuple[FloatArray, IntArray]:
    """Put the tuned rule last; it takes the place of one that accepts the same masses.

    Of the rules with these masses it is the one with the widest margin.
    """
    lines = np.vstack([lines, [*rule.direction, rule.threshold]])
    counts = count(points, lines)
    masses = np.vstack([counts.id, counts.loss, counts.ood_sets])
    same = (masses == masses[:, -1:]).all(axis=0)
    same[-1] = False
    kept = np.flatnonzero(~same)
    renumbered = np.full(len(lines), len(kept) - 1)
    renumbered[kept] = np.arange(len(kept))
    return lines[kept], np.where(cells < 0, -1, renumbered[cells])


def _largest_cost(sample: Sample) -> float:
    """Return the loss above which rejecting an ID row never pays, as a round number."""
    largest = float(sample.id_loss.max())
    if largest <= 0:
        return 1.0
    unit = 10.0 ** np.floor(np.log10(largest))
    return float(next(m * unit for m in (1, 2, 5, 10) if m * unit >= largest))


def count(points: Points, lines: FloatArray) -> Counts:
    """Return the masses that each line (direction and threshold) accepts.

    `points` keeps the OOD sets apart.
    """
    masses = np.vstack([points.id, points.loss, points.ood])
    accepted = np.zeros((len(masses), len(lines)), np.int64)
    directions, which = np.unique(lines[:, :-1], axis=0, return_inverse=True)
    by_direction = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[by_direction], np.arange(len(directions) + 1))
    for direction, start, stop in zip(directions, ends[:-1], ends[1:], strict=True):
        rows = by_direction[start:stop]
        rows = rows[np.argsort(lines[rows, -1])]
        # The first threshold that accepts each point.
        first = np.searchsorted(lines[rows, -1], combine(direction, points.scores))
        for total, mass in zip(accepted, masses, strict=True):
            # Masses add up to less than 2**52, so floats hold the sums exactly.
            added = np.bincount(first, weights=mass, minlength=len(rows) + 1)
            total[rows] = np.cumsum(added[: len(rows)])
    return Counts(accepted[0], accepted[1], accepted[2:], points.totals)


def _best_at_any_precision(counts: Counts, *, worst: bool) -> IntArray:
    """Return the rules that are best at a percent level of recall and some precision.

    At any prior a bound on precision bounds the quotient of FPR and TPR. By rising quotient,
    the rules wanted are those that no earlier one with enough ID mass beats.
    """
    totals = counts.totals
    if sum(totals.ood) == 0 or len(counts.id) == 0:
        return np.empty(0, np.int64)
    quotient = _fpr(counts, worst=worst) / counts.id
    rank = np.empty(len(quotient), np.int64)
    rank[np.lexsort((quotient, -counts.id, counts.loss / counts.id))] = np.arange(len(rank))
    order = np.lexsort((rank, quotient))
    found = []
    for level in PERCENT:
        least = at_least(level, totals.id, totals.id_rounding)
        rows = order[counts.id[order] >= least]
        best_before = np.minimum.accumulate(np.append(len(rank), rank[rows]))[:-1]
        found.append(rows[rank[rows] < best_before])
    return np.unique(np.concatenate(found))


def _best_at_any_cost(counts: Counts, reject_id: FloatArray) -> IntArray:
    """Return the rules that are best for these costs of rejecting ID and any cost of OOD.

    What an ID row costs is a number per rule, what an OOD row costs a factor of its OOD mass:
    the rules wanted are the corners of a convex chain.
    """
    totals, ood = counts.totals, counts.ood
    if len(ood) == 0:
        return np.empty(0, np.int64)
    loss = counts.loss * 2.0**-totals.loss_exponent
    weight = counts.id * 2.0**-totals.id_exponent
    found = []
    for cost in reject_id:
        paid = loss - cost * weight
        order = np.lexsort((-counts.id, paid, ood))
        first = order[np.append(True, np.diff(ood[order]) > 0)]
        found.append(first[_convex_chain(ood[first].astype(float), paid[first])])
    return np.unique(np.concatenate(found))


def _convex_chain(x: FloatArray, y: FloatArray) -> list[int]:
    """Return the corners of the lower hull from the left end down to the lowest point."""
    chain: list[int] = []
    for i in range(int(np.argmin(y)) + 1):
        while len(chain) > 1 and _above(x, y, chain[-2], chain[-1], i):
            chain.pop()
        chain.append(i)
    return chain


def _above(x: FloatArray, y: FloatArray, a: int, b: int, c: int) -> bool:
    return bool((y[b] - y[a]) * (x[c] - x[a]) >= (y[c] - y[a]) * (x[b] - x[a]))


def _fpr(counts: Counts, *, worst: bool) -> FloatArray:
    totals = np.array(counts.totals.ood, float)
    if not worst:
        return np.asarray(counts.ood / totals.sum())
    some = totals > 0
    return np.asarray((counts.ood_sets[some] / totals[some, None]).max(axis=0))
