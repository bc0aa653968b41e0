"""The rules behind the sliders of the page, with what each accepts.

One frontier with fine levels holds a best rule for every pair of bounds. Of these rules the
page needs few: the best at each of its 101 x 101 levels of TPR and FPR, the best for every
bound on precision at each level of recall, and the best for all costs. `choice` picks them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.points import Points
from demur.core.program import Totals
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.report.choice import best_at_any_cost, best_at_any_precision
from demur.report.counts import Counts, count
from demur.report.how import How
from demur.tuning.frontier import PERCENT, Frontier, frontier
from demur.tuning.result import Grid, Tuning

# Up to so many ID and OOD rows, every count of rows is a level of the fine frontier.
_MOST_ID, _MOST_OOD = 800, 600
# Beyond, half as many levels lose less than the fourth digit of an objective.
_TPR_LEVELS, _FPR_LEVELS = 400, 300
_COST_STEPS = 100


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

    def rule(self, number: int, names: tuple[str, ...] | None = None) -> Rule:
        """Return a rule by its number."""
        *direction, threshold = self.lines[number].tolist()
        return Rule(tuple(direction), threshold, score_names=names)


def explore(sample: Sample, tuning: Tuning, how: How, *, held_out: Sample | None) -> Explorer:
    """Collect the rules of the page for a sample and the rule tuned on it."""
    tprs = _levels(sample.n_id, _evenly(sample.n_id))
    fprs = _levels(sample.n_ood, _densest_at_zero(sample.n_ood))
    surface = frontier(
        sample,
        min_tpr=tprs,
        max_fpr=fprs,
        directions=how.directions,
        search=how.search,
        ood=how.ood,
    )
    lines, cells, counts = _distinct(surface, Points.of(sample, "pooled").totals)
    points = Points.of(sample, "worst")
    if how.worst:
        counts = count(points, lines)
    cells = cells[np.ix_(_percent_of(tprs), _percent_of(fprs))]
    cost = _largest_cost(sample)
    kept = np.unique(
        np.concatenate(
            [
                cells[cells >= 0],
                best_at_any_precision(counts, worst=how.worst),
                best_at_any_cost(counts, np.linspace(0, cost, _COST_STEPS + 1)),
            ]
        )
    )
    cells = np.where(cells < 0, -1, np.searchsorted(kept, cells))
    nothing = [1.0, *[0.0] * (sample.n_scores - 1), -np.inf]
    lines, cells = _with_tuned(points, np.vstack([lines[kept], nothing]), cells, tuning.rule)
    return Explorer(
        lines=lines,
        tuned=count(points, lines),
        held_out=None if held_out is None else count(Points.of(held_out, "worst"), lines),
        cells=cells,
        start=len(lines) - 1,
        worst=how.worst,
        max_reject_cost=cost,
        exact=not isinstance(how.search, Grid) or sample.n_scores == 1,
    )


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
