"""What the page chooses from and what it draws: rules that are best for something, and rows.

Rules are all that are best for some bounds, costs or prior. Rows are points to draw, and those
nearest to the boundary.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.points import Points
from demur.core.program import Program
from demur.core.rule import Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.errors import InvalidInputError
from demur.report.summary import Case, is_zero_one
from demur.tuning.frontier import Levels, best_for_all_bounds
from demur.tuning.operating_points import Rules, operating_points, sweep_along
from demur.tuning.prepared import FEW, Prepared
from demur.tuning.result import DIRECTION_SETS, Exact, Grid
from demur.tuning.tune import robust_line, search_exact, search_grid

# Counts of ID rows times counts of OOD rows, up to which every pair of bounds is looked at.
_MOST_LEVELS = 1_000_000
# So many rules fit into a page of a reasonable size.
_MOST_RULES = 20_000
# Rules times points up to which each rule is searched for anew: some seconds.
_MOST_SEARCHED = 8_000_000
_BLOCK = 512


@dataclass(frozen=True, slots=True, eq=False)
class BestRules:
    """All rules that are best for something."""

    lines: FloatArray
    """Weights of the doubts and threshold, shape (rules, k + 1)."""
    widest: bool
    """Whether each is the very rule that `tune` returns, of equals the one with the widest gap."""


def all_best(case: Case, prepared: Prepared) -> BestRules | None:
    """Return all rules that are best for something, None where they are too many to find."""
    points = prepared.points
    if points.scores.shape[1] == 1:
        return _of_one_score(points)
    if isinstance(case.search, Grid):
        return _searched(case, prepared)
    few = len(points.scores) <= FEW
    return (_searched(case, prepared) if few else None) or _by_counts(case, prepared)


def _of_one_score(points: Points) -> BestRules | None:
    swept, thresholds = sweep_along(points, (1.0,))
    masses = np.vstack([swept.id, swept.loss, swept.ood])
    some = np.flatnonzero(swept.id)
    rows = some[unbeaten(masses[:, some])]
    if len(rows) > _MOST_RULES:
        return None
    return BestRules(np.column_stack([np.ones(len(rows)), thresholds[rows]]), widest=True)


def _searched(case: Case, prepared: Prepared) -> BestRules | None:
    """Look at the masses of all half-planes, then search for the widest of the best."""
    points = prepared.points
    found = np.empty((2 + len(points.ood), 0), np.int64)
    for batch in operating_points(points, case.directions, case.search):
        new = np.vstack([batch.id, batch.loss, batch.ood])[:, batch.id > 0]
        found = np.hstack([found, new])
        if found.shape[1] > _MOST_LEVELS:
            found = found[:, unbeaten(found)]
    found = found[:, unbeaten(found)]
    if found.shape[1] > _MOST_RULES or found.shape[1] * len(points.scores) > _MOST_SEARCHED:
        return None
    lines = np.full((found.shape[1], 3), np.nan)
    rules = Rules(found[0], found[2:].sum(axis=0), found[1], lines)
    return BestRules(widest_lines(case, prepared, rules, found[2:]), widest=True)


def _by_counts(case: Case, prepared: Prepared) -> BestRules | None:
    """Look at every pair of counts of ID and OOD rows."""
    totals, allowed = prepared.points.totals, DIRECTION_SETS[str(case.directions)]
    counted = totals.id_exponent == totals.ood_exponent == 0 and len(totals.ood) == 1
    if not counted or (totals.id + 1) * (totals.ood[0] + 1) > _MOST_LEVELS:
        return None
    levels = Levels(np.arange(1, totals.id + 1), np.arange(totals.ood[0] + 1)[None])
    rules, _ = best_for_all_bounds(prepared, allowed, levels)
    rules = rules.take(unbeaten(np.vstack([rules.id, rules.loss, rules.ood])))
    if len(rules.id) > _MOST_RULES:
        return None
    return BestRules(widest_lines(case, prepared, rules), widest=True)


def unbeaten(masses: IntArray) -> IntArray:
    """Return which columns (ID, loss, OOD of each set) none other beats, the best first."""
    id_, loss, *ood = masses
    order = np.lexsort((*ood, -id_, loss / id_))
    ranked = masses[:, order]
    new = np.append(True, (np.diff(ranked, axis=1) != 0).any(axis=0))[: len(order)]
    order, ranked = order[new], ranked[:, new]
    kept = _stairs(ranked) if len(ood) <= 1 else _in_blocks(ranked)
    return np.asarray(order[kept])


def _stairs(masses: IntArray) -> IntArray:
    """Return the unbeaten of columns by rising risk, with at most one OOD set.

    Those kept so far form a staircase: more ID mass goes with more OOD mass.
    """
    ids: list[int] = []
    oods: list[int] = []
    kept = []
    ood = masses[2].tolist() if len(masses) > 2 else [0] * masses.shape[1]
    for column, (a, b) in enumerate(zip(masses[0].tolist(), ood, strict=True)):
        place = bisect_left(ids, a)
        if place < len(ids) and oods[place] <= b:
            continue
        kept.append(column)
        first = bisect_left(oods, b)
        stop = bisect_right(ids, a)
        ids[first:stop], oods[first:stop] = [a], [b]
    return np.array(kept, np.int64)


def _in_blocks(masses: IntArray) -> IntArray:
    """Return the unbeaten of columns by rising risk, with any number of OOD sets."""
    # As costs: an earlier column beats a later one if it is nowhere higher.
    costs = np.vstack([-masses[0], masses[2:]])
    kept = np.empty(0, np.int64)
    for start in range(0, costs.shape[1], _BLOCK):
        block = np.arange(start, min(start + _BLOCK, costs.shape[1]))
        block = block[~_beaten(costs[:, kept], costs[:, block]).any(axis=0)]
        earlier = np.triu(np.ones((len(block), len(block)), bool), 1)
        among = _beaten(costs[:, block], costs[:, block]) & earlier
        kept = np.concatenate([kept, block[~among.any(axis=0)]])
    return kept


def _beaten(by: IntArray, costs: IntArray) -> BoolArray:
    result = np.ones((by.shape[1], costs.shape[1]), bool)
    for one, other in zip(by, costs, strict=True):
        result &= one[:, None] <= other[None]
    return result


def widest_lines(
    case: Case, prepared: Prepared, rules: Rules, ood: IntArray | None = None
) -> FloatArray:
    """Return the line that `tune` returns for each of these rules, with their OOD mass by set.

    Of all half-planes with the same masses it is the one with the widest gap.
    """
    allowed = DIRECTION_SETS[str(case.directions)]
    ood = rules.ood[None] if ood is None else ood
    masses = np.column_stack([rules.id, rules.ood, rules.loss])
    found = None if isinstance(case.search, Grid) else prepared.equals(allowed, masses)
    if found is None:
        return _one_by_one(case, prepared, rules, ood)
    which, lines = found
    if len(ood) > 1:
        same = (prepared.count(lines)[:, 2:] == ood.T[which]).all(axis=1)
        which, lines = which[same], lines[same]
    order = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[order], np.arange(len(masses) + 1))
    widest = rules.lines.copy()
    for row in np.flatnonzero(np.diff(ends)).tolist():
        own = int(rules.id[row]), int(rules.ood[row]), int(rules.loss[row])
        equals = lines[order[ends[row] : ends[row + 1]]].tolist()
        tied = [robust_line(prepared, (p, q), v, own, allowed) for p, q, v in equals]
        line = min(tied, key=lambda line: (-line.width, line.direction[::-1]))
        widest[row] = *line.direction, line.threshold
    # Sets that float64 hardly separates may be found by a search for them alone.
    rest = np.flatnonzero(np.diff(ends) == 0)
    widest[rest] = _one_by_one(case, prepared, rules.take(rest), ood[:, rest])
    return widest


def _one_by_one(case: Case, prepared: Prepared, rules: Rules, ood: IntArray) -> FloatArray:
    """Return the widest lines by a search for each rule.

    Asked for just its own masses, a rule that none beats is the optimum. Lines that are known
    are where the search begins, so that little is left to do but to find its equals.
    """
    allowed = DIRECTION_SETS[str(case.directions)]
    lines = rules.lines.copy()
    for row, (id_, *most) in enumerate(np.vstack([rules.id, ood]).T.tolist()):
        bounds = Program(1, 0, 0, True, id_, tuple(most), ((0, 0),) * len(most))
        if isinstance(case.search, Grid):
            line = search_grid(prepared, bounds, allowed, case.search.angles)
        else:
            start = None if np.isnan(lines[row, 2]) else lines[row : row + 1, :2]
            line, _ = search_exact(prepared, bounds, allowed, Exact(), start=start)
        assert line is not None
        lines[row] = *line.direction, line.threshold
    return lines


SHOWN = 10
MOST_POINTS = 4000
"""Up to so many rows all are drawn; beyond, some of each group and outlines of all."""
GRID = 48
_BINS = (12, 60)
_SAMPLED = 250
# Some scores have long tails, which the even scale leaves out; the scale by rank does not.
_VIEW = (0.002, 0.992)
_KNOTS = 65

Ids = tuple[Any, Any]
"""Identifiers of the ID rows and of the OOD rows, in the order of the sample."""


@dataclass(frozen=True, slots=True)
class BoundaryRow:
    """One row of the sample."""

    id: str
    kind: str
    """``"ID"``, or the name of the OOD set."""
    loss: float | None
    scores: tuple[float, ...]
    margin: float
    """Threshold minus combined score: positive for accepted rows."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Rows on either side of the boundary, nearest first."""

    accepted: tuple[BoundaryRow, ...]
    """The most doubtful of the accepted rows."""
    rejected: tuple[BoundaryRow, ...]
    """The most trusted of the rejected rows."""


def doubtful_rows(rule: Rule, sample: Sample, ids: Ids) -> Doubtful:
    """Return the accepted rows with the largest doubt and the rejected ones with the smallest."""
    if not isinstance(ids, tuple) or len(ids) != 2:
        raise InvalidInputError("ids must be a pair: those of the ID rows and of the OOD rows")
    names = [*_texts("ids[0]", ids[0], sample.n_id), *_texts("ids[1]", ids[1], sample.n_ood)]
    scores = np.concatenate([sample.id_scores, sample.ood_scores])
    kinds = ["ID"] * sample.n_id
    for name, rows in sample.ood_sets.items():
        kinds += ["OOD" if name == POOLED_NAME else name] * (rows.stop - rows.start)
    matched = rule.on(sample.columns)
    doubt, accepted = matched.combine(scores), matched.accept(scores)
    # Rows with an infinite score are rejected whatever the rule: nothing to look at.
    order = [int(i) for i in np.argsort(doubt, kind="stable") if np.isfinite(doubt[i])]

    def row(i: int) -> BoundaryRow:
        loss = float(sample.id_loss[i]) if i < sample.n_id else None
        margin = float(rule.threshold - doubt[i])
        return BoundaryRow(names[i], kinds[i], loss, tuple(scores[i].tolist()), margin)

    return Doubtful(
        accepted=tuple(row(i) for i in reversed(order) if accepted[i])[:SHOWN],
        rejected=tuple(row(i) for i in order if not accepted[i])[:SHOWN],
    )


def _texts(name: str, values: Any, length: int) -> list[str]:
    array = _arrays.labels(name, np.asarray(values, dtype=object), length=length)
    return [str(value) for value in array]


@dataclass(frozen=True, slots=True, eq=False)
class DrawnRows:
    """What is drawn of three groups of rows: ID with little loss (right) and more (wrong), OOD."""

    view: FloatArray
    """Lowest and highest value of each score on the even scale, shape (k, 2)."""
    knots: tuple[FloatArray, ...]
    """Of each score, quantiles at even distances: the scale by rank. Strictly rising."""
    crowded: bool
    """Whether most rows would share a small part of the even scale."""
    points: tuple[FloatArray, ...]
    """Of two scores, a (n, 2) array per group: all rows, or some."""
    names: tuple[tuple[str, ...], ...]
    """Of each point."""
    groups: tuple[str, ...]
    sizes: tuple[int, ...]
    """Rows of each group, those with infinite scores left out."""
    density: Mapping[str, tuple[IntArray, ...]] | None
    """Of two scores and many rows, counts per group in GRID x GRID cells of either scale."""
    histogram: Mapping[str, tuple[IntArray, ...]] | None
    """Of one score, counts per group in bins of either scale."""
    beyond: int
    """Rows outside of the view of the even scale."""

    @property
    def is_sampled(self) -> bool:
        """Whether not all rows are drawn as points."""
        return self.density is not None


def drawn_rows(sample: Sample, ids: Ids | None = None) -> DrawnRows:
    """Return what to draw of a sample."""
    zero_one = is_zero_one(sample)
    wrong = sample.id_loss > (0 if zero_one else np.median(sample.id_loss))
    rows = [np.flatnonzero(~wrong), np.flatnonzero(wrong), sample.n_id + np.arange(sample.n_ood)]
    scores = np.concatenate([sample.id_scores, sample.ood_scores])
    finite = np.isfinite(scores).all(axis=1)
    rows = [group[finite[group]] for group in rows]
    groups = [scores[group] for group in rows]
    everything = scores[finite]
    view, knots = _view(everything), tuple(_knots(column) for column in everything.T)
    pair, many = sample.n_scores == 2, len(everything) > MOST_POINTS
    bins = int(np.clip(math.isqrt(len(everything)), *_BINS))
    counts = _counted(groups, view, knots, GRID if pair else bins)
    drawn = [_some(group) if many else group for group in rows] if pair else []
    name = _namer(sample, ids)
    outside = (everything < view[:, 0]) | (everything > view[:, 1])
    return DrawnRows(
        view=view,
        knots=knots,
        crowded=any(
            _is_crowded(column, ends) for column, ends in zip(everything.T, view, strict=True)
        ),
        points=tuple(scores[group] for group in drawn),
        names=tuple(tuple(name(i) for i in group.tolist()) for group in drawn),
        groups=_titles(zero_one=zero_one),
        sizes=tuple(map(len, groups)),
        density=counts if pair and many else None,
        histogram=None if pair else counts,
        beyond=int(outside.any(axis=1).sum()),
    )


def _titles(*, zero_one: bool) -> tuple[str, ...]:
    if zero_one:
        return "ID, correct", "ID, wrong", "OOD"
    return "ID, loss up to the median", "ID, loss above it", "OOD"


def _namer(sample: Sample, ids: Ids | None) -> Callable[[int], str]:
    """Return the name of a row by its number, those of OOD rows after those of ID rows."""
    if ids is not None:
        given = [np.asarray(side, dtype=object) for side in ids]
        return lambda i: str(given[0][i] if i < sample.n_id else given[1][i - sample.n_id])
    parts = {n: rows for n, rows in sample.ood_sets.items() if rows.stop > rows.start}

    def name(i: int) -> str:
        if i < sample.n_id:
            return f"ID row {i + 1}"
        at = i - sample.n_id
        title, rows = next((n, r) for n, r in parts.items() if r.start <= at < r.stop)
        return f"{'OOD' if title == POOLED_NAME else title} row {at - rows.start + 1}"

    return name


def _some(rows: IntArray) -> IntArray:
    if len(rows) <= _SAMPLED:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, _SAMPLED, replace=False))


def _view(scores: FloatArray) -> FloatArray:
    if len(scores) == 0:
        return np.tile([0.0, 1.0], (scores.shape[1], 1))
    low = np.quantile(scores, _VIEW[0], axis=0, method="lower")
    high = np.quantile(scores, _VIEW[1], axis=0, method="higher")
    flat = high <= low
    low[flat], high[flat] = scores.min(axis=0)[flat] - 0.5, scores.max(axis=0)[flat] + 0.5
    room = 0.03 * (high - low)
    return np.column_stack([low - room, high + room])


def _knots(values: FloatArray) -> FloatArray:
    if len(values) == 0:
        return np.array([0.0, 1.0])
    knots = np.unique(np.quantile(values, np.linspace(0, 1, _KNOTS)))
    return knots if len(knots) > 1 else knots[0] + np.array([-0.5, 0.5])


def _is_crowded(values: FloatArray, ends: FloatArray) -> bool:
    """Return whether half of the rows share a tenth of the view."""
    if len(values) < 20:
        return False
    counts, _ = np.histogram(values, 40, tuple(ends))
    return bool(np.convolve(counts, np.ones(4)).max() > 0.5 * len(values))


def _counted(
    groups: list[FloatArray], view: FloatArray, knots: tuple[FloatArray, ...], size: int
) -> dict[str, tuple[IntArray, ...]]:
    """Return counts per group in cells of the even scale and of that by rank."""

    def even(scores: FloatArray) -> FloatArray:
        return np.asarray((scores - view[:, 0]) / (view[:, 1] - view[:, 0]))

    def ranked(scores: FloatArray) -> FloatArray:
        columns = zip(scores.T, knots, strict=True)
        return np.column_stack([np.interp(c, k, np.linspace(0, 1, len(k))) for c, k in columns])

    return {
        kind: tuple(_in_cells(place(group), size) for group in groups)
        for kind, place in (("linear", even), ("rank", ranked))
    }


def _in_cells(places: FloatArray, size: int) -> IntArray:
    inside = places[((places >= 0) & (places <= 1)).all(axis=1)]
    cells = np.minimum((size * inside).astype(np.int64), size - 1)
    place = cells @ np.array([1, size][: places.shape[1]])
    return np.bincount(place, minlength=size ** places.shape[1]).astype(np.int64)
