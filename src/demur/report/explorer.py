"""The rules behind the sliders of the page, with what each accepts.

One frontier with fine levels holds a best rule for every pair of bounds. Of these rules the
page needs few: the best at each of its 101 x 101 levels of TPR and FPR, the best for every
bound on precision at each level of recall, and the best for all costs.

Numbers of a rule are rounded only as far as its counts stay.

Between the last accepted and the first rejected row there is a gap. A rounded rule accepts the
same rows if it shifts no value, and the threshold, by as much as the gap leaves room for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.points import Points
from demur.core.program import Totals, at_least, at_most
from demur.core.rates import AcceptedMasses, accepted_rows
from demur.core.rule import BoxRule, Rule
from demur.core.sample import Sample
from demur.metrics.rules import CountedCells
from demur.report.choices import all_best, unbeaten, widest_lines
from demur.report.summary import AllRows, Case, WholeRows
from demur.tuning.frontier import PERCENT, frontier
from demur.tuning.operating_points import Rules
from demur.tuning.prepared import Prepared, counted, prepare
from demur.tuning.result import Grid

FEWEST, MOST = 3, 17
"""Digits that are shown at least, and with which every float64 is itself."""


def formula_digits(lines: FloatArray, samples: Sequence[Prepared]) -> IntArray:
    """Return to how many digits each line (weights of doubts, threshold) may be rounded.

    `samples` are the rows on which the counts must stay.
    """
    room = np.min([_room(lines, prepared) for prepared in samples], axis=0)
    largest = np.max([_largest(prepared.sample) for prepared in samples], axis=0)
    digits = np.full(len(lines), MOST)
    for count in range(MOST - 1, FEWEST - 1, -1):
        rounded = _rounded(lines, count)
        with np.errstate(invalid="ignore"):
            moved = np.abs(rounded - lines)
        moved[~np.isfinite(lines)] = 0.0
        # Sums in float64 may be off by a little more.
        shift = moved[:, :-1] @ largest + moved[:, -1]
        shift += 8 * np.finfo(float).eps * (np.abs(lines[:, :-1]) @ largest)
        digits[(shift < room) & (digits == count + 1)] = count
    return digits


def _largest(sample: Sample) -> FloatArray:
    """Return the largest size of each score, rows that are always rejected left out."""
    scores = np.vstack([sample.id_scores, sample.ood_scores])
    return np.asarray(np.abs(scores[np.isfinite(scores).all(axis=1)]).max(axis=0, initial=0.0))


def _rounded(lines: FloatArray, digits: int) -> FloatArray:
    flat = [float(f"{value:.{digits}g}") for value in lines.ravel().tolist()]
    return np.array(flat).reshape(lines.shape)


def _room(lines: FloatArray, prepared: Prepared) -> FloatArray:
    """Return the distance of each threshold from the nearest value on either side."""
    limits = lines[:, -1]
    if lines.shape[1] == 2:
        values = np.unique(prepared.points.scores[:, 0])
        place = np.searchsorted(values, limits, side="right")
        sides = np.column_stack(
            [np.append(-np.inf, values)[place], np.append(values, np.inf)[place]]
        )
    else:
        sides = prepared.beside(lines)
    with np.errstate(invalid="ignore"):
        room = np.minimum(limits - sides[:, 0], sides[:, 1] - limits)
    return np.where(np.isneginf(limits), np.inf, room)


# Up to so many ID and OOD rows, every count of rows is a level of the fine frontier.
_MOST_ID, _MOST_OOD = 800, 600
# Beyond, half as many levels lose less than the fourth digit of an objective.
_TPR_LEVELS, _FPR_LEVELS = 400, 300
_COST_STEPS = 100
# What rules and their counts may take of a page of 2 MB.
_PAGE_BYTES = 1_500_000


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


@dataclass(frozen=True, slots=True)
class Binned:
    """Counts that come from a histogram of all rows, and how far off they are at most."""

    bins: tuple[int, ...]
    """Of each score."""
    tpr: float
    """By how much the TPR of any rule may be off; that of the page's own rule is exact."""
    fpr: float
    loss: float
    """The loss of accepted rows, per ID row."""

    @classmethod
    def of(cls, cells: CountedCells, found: Sequence[CellCounts]) -> Binned:
        """Return how far the counts of rules in cells are off at most."""
        off = np.zeros(3)
        for one in found:
            totals = one.counts.totals
            unit = 2.0 ** (totals.id_exponent - totals.loss_exponent) / max(totals.id, 1)
            most = one.off.max(axis=1, initial=0)
            ood = max(sum(totals.ood), 1)
            off = np.maximum(off, [most[0] / max(totals.id, 1), most[2] / ood, most[1] * unit])
        return cls(cells.bins, *off.tolist())

    @property
    def text(self) -> str:
        """What to say of the counts."""
        cells = " by ".join(f"{count:,}" for count in self.bins)
        if not max(self.tpr, self.fpr, self.loss):
            return f"counted exactly, at the ends of {cells} bins of all rows"
        return (
            f"counted in a histogram of all rows with {cells} bins: no TPR is off by more than "
            f"{self.tpr:.1g}, no FPR by {self.fpr:.1g} and no loss per ID row by {self.loss:.1g}, "
            "and most by far less"
        )


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
    complete: bool
    """Whether the best rule for any bounds and costs is among them."""
    widest: bool
    """Whether each is the very rule that `tune` returns for its counts."""
    digits: IntArray
    """To how many digits the numbers of each rule may be rounded, so that its counts stay."""
    binned: Binned | None = None
    """How far counts of rules may be off, where they are those of rows in cells."""

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
    sample = case.sample
    cost = _largest_cost(sample)
    if isinstance(case.rule, BoxRule):
        return _only(case, case.rule, cost)
    if case.whole is not None and case.whole.tuned.cells is not None:
        return _of_all_rows(case, case.whole, case.whole.tuned.cells, cost)
    prepared = prepare(sample, ood=case.ood)
    # Masses of the OOD sets apart, on the rows tuned on and on the others.
    rows = (
        prepared.reweighted(Points.of(sample, "worst"))
        if sample.n_scores == 2
        else (counted(sample, "worst"))
    )
    fresh = None if case.held_out is None else counted(case.held_out, "worst")
    found = all_best(case, prepared)
    if found is None:
        lines, cells = _candidates(case, prepared, rows, cost)
    else:
        lines = found.lines
        cells = _cells(count(prepared, lines))
    nothing = [1.0, *[0.0] * (sample.n_scores - 1), -np.inf]
    shown = case.rule.for_doubts(sample.columns)
    lines, cells = _with_shown(case, rows, np.vstack([lines, nothing]), cells, shown)
    raw = np.column_stack([sample.columns.as_doubts(lines[:, :-1]) + 0.0, lines[:, -1]])
    return Explorer(
        lines=raw,
        tuned=count(rows, lines),
        held_out=None if fresh is None else count(fresh, lines),
        cells=cells,
        start=len(lines) - 1,
        worst=case.worst,
        max_reject_cost=cost,
        exact=not isinstance(case.search, Grid) or sample.n_scores == 1,
        complete=found is not None,
        widest=found.widest if found is not None else _is_searched(case),
        digits=formula_digits(lines, [rows] if fresh is None else [rows, fresh]),
    )


def _only(case: Case, rule: BoxRule, cost: float) -> Explorer:
    """Return a box as the one rule there is."""
    samples = [case.sample] if case.held_out is None else [case.sample, case.held_out]
    counts = [_box_counts(case, rule, sample) for sample in samples]
    return Explorer(
        lines=np.array([[*rule.limits, rule.threshold]]),
        tuned=counts[0],
        held_out=None if case.held_out is None else counts[1],
        cells=np.full((101, 101), -1),
        start=0,
        worst=case.worst,
        max_reject_cost=cost,
        exact=True,
        complete=False,
        widest=True,
        digits=np.array([_box_digits(rule, samples)]),
    )


def _box_counts(case: Case, rule: BoxRule, sample: Sample) -> Counts:
    known = case.counted(sample)
    if known is not None:
        tally, measure = known.whole, known.measure
        totals = Totals(
            *(tally.total_id, tally.total_ood, tally.total_loss),
            *(measure.id_exponent, measure.ood_exponent, measure.loss_exponent),
        )
        ood = np.array(tally.ood, np.int64).reshape(-1, 1)
        return Counts(np.array([tally.id]), np.array([tally.loss]), ood, totals)
    points = Points.of(sample, "worst")
    accepted = AcceptedMasses.of(rule, points, sample.columns)
    ood = np.array(accepted.ood, np.int64).reshape(-1, 1)
    return Counts(np.array([accepted.id]), np.array([accepted.loss]), ood, points.totals)


def _box_digits(rule: BoxRule, samples: Sequence[Sample]) -> int:
    """Return to how many digits limits may be rounded, so that they accept the same rows."""
    accepted = [accepted_rows(rule, sample) for sample in samples]
    for digits in range(FEWEST, MOST):
        limits = _rounded(np.array([rule.limits]), digits)[0]
        rounded = replace(rule, limits=tuple(limits.tolist()))
        again = [accepted_rows(rounded, sample) for sample in samples]
        pairs = zip(accepted, again, strict=True)
        if all(np.array_equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True)):
            return digits
    return MOST


def _of_all_rows(case: Case, whole: WholeRows, cells: CountedCells, cost: float) -> Explorer:
    """Return rules that are best on drawn rows, by what they accept of all rows.

    Of one score these are the thresholds between bins, whose counts are exact.
    """
    sample = case.sample
    rows = counted(sample, "worst")
    if sample.n_scores == 1:
        limits = cells.thresholds()
        lines = np.column_stack([np.ones(len(limits)), limits])
    else:
        prepared = prepare(sample, ood=case.ood)
        lines, _ = _candidates(case, prepared, rows, cost, widest=False)
    shown = case.rule.for_doubts(sample.columns)
    nothing = [1.0, *[0.0] * (sample.n_scores - 1), -np.inf]
    lines = np.vstack([lines, nothing, [*shown.direction, shown.threshold]])
    found = _counted_in(whole.tuned, cells, cells.sets, lines)
    fixed = len(lines) - 2
    best = _best(found, fixed + 2 * case.is_choice, worst=case.worst)
    grid = _cells(_bounded(found.take(best), worst=case.worst))
    kept = _few_enough(np.arange(len(best)), np.unique(grid[grid >= 0]), _most_rules(case))
    # The rule that accepts nothing and the page's own come last.
    order = np.concatenate([best[kept][best[kept] < fixed], [fixed, fixed + 1]])
    place = np.full(len(lines) + 1, -1)
    place[order] = np.arange(len(order))
    cells_of = place[np.append(best, -1)[grid]]
    lines, counts = lines[order], found.take(order)
    fresh = None
    if whole.held_out is not None and whole.held_out.cells is not None:
        fresh = _counted_in(whole.held_out, whole.held_out.cells, cells.sets, lines)
    complete = sample.n_scores == 1 and cells.single and len(kept) == len(best)
    return Explorer(
        lines=np.column_stack([sample.columns.as_doubts(lines[:, :-1]) + 0.0, lines[:, -1]]),
        tuned=counts.counts,
        held_out=None if fresh is None else fresh.counts,
        cells=cells_of,
        start=len(lines) - 1,
        worst=case.worst,
        max_reject_cost=cost,
        exact=not isinstance(case.search, Grid) or sample.n_scores == 1,
        complete=complete,
        widest=complete,
        digits=_more_digits(formula_digits(lines, [rows]), len(rows.points.scores), whole),
        binned=Binned.of(cells, [counts] if fresh is None else [counts, fresh]),
    )


def _more_digits(digits: IntArray, drawn: int, whole: WholeRows) -> IntArray:
    """Return more digits than drawn rows ask for: all rows lie closer to a boundary."""
    return np.minimum(
        MOST, digits + math.ceil(math.log10(max(1.0, whole.tuned.sizes.rows / drawn))) + 1
    )


class CellCounts(NamedTuple):
    """Masses of rows in cells that rules accept, about, and how far off each is at most."""

    counts: Counts
    off: IntArray
    """Shape (3, rules): ID, loss and OOD mass."""

    def take(self, rules: IntArray) -> CellCounts:
        """Return some of the rules."""
        c = self.counts
        return CellCounts(
            Counts(c.id[rules], c.loss[rules], c.ood_sets[:, rules], c.totals), self.off[:, rules]
        )


def _counted_in(
    rows: AllRows, cells: CountedCells, sets: tuple[str, ...], lines: FloatArray
) -> CellCounts:
    """Return what lines accept of all rows, by OOD set; of the last line, the rule's, exactly."""
    found = cells.accepted(lines)
    parts = [part.copy() for part in found]
    if rows.counts is not None:
        tally = rows.counts.whole
        own = [tally.id, tally.loss, *tally.ood]
        for part in parts:
            part[:, -1] = own
    about, least, most = parts
    off = np.maximum(about - least, most - about)
    # A part of the rows may lack a set that others have.
    place = [cells.sets.index(name) if name in cells.sets else -1 for name in sets]
    none = np.zeros(len(lines), np.int64)
    ood = np.array([about[2 + k] if k >= 0 else none for k in place], np.int64)
    totals = replace(cells.totals, ood=tuple(cells.totals.ood[k] if k >= 0 else 0 for k in place))
    counts = Counts(about[0], about[1], ood.reshape(len(sets), -1), totals)
    return CellCounts(counts, np.vstack([off[:2], off[2:].sum(axis=0)]))


def _bounded(found: CellCounts, *, worst: bool) -> Counts:
    """Return counts with the OOD masses that bounds are about: of every set, or of all."""
    counts = found.counts
    if worst:
        return counts
    totals = replace(counts.totals, ood=(sum(counts.totals.ood),))
    return Counts(counts.id, counts.loss, counts.ood[None], totals)


def _best(found: CellCounts, rules: int, *, worst: bool) -> IntArray:
    """Return which of the first rules none other beats, the best first."""
    counts = _bounded(found, worst=worst)
    masses = np.vstack([counts.id, counts.loss, counts.ood_sets])[:, :rules]
    some = np.flatnonzero(counts.id[:rules])
    return some[unbeaten(masses[:, some])]


def _cells(counts: Counts) -> IntArray:
    """Return which of some rules, the best first, is best for each pair of percent bounds."""
    totals = counts.totals
    levels = [at_least(level, totals.id, totals.id_rounding) for level in PERCENT]
    row = np.searchsorted(levels, counts.id, side="right") - 1
    column = np.zeros(len(counts.id), np.int64)
    for mass, total in zip(counts.ood_sets, totals.ood, strict=True):
        most = [at_most(level, total, totals.ood_rounding) for level in PERCENT]
        column = np.maximum(column, np.searchsorted(most, mass))
    grid = np.full((101, 101), len(counts.id))
    np.minimum.at(grid, (row, column), np.arange(len(counts.id)))
    grid = np.minimum.accumulate(grid[::-1], axis=0)[::-1]
    grid = np.minimum.accumulate(grid, axis=1)
    return np.where(grid < len(counts.id), grid, -1)


def _candidates(
    case: Case, prepared: Prepared, rows: Prepared, largest_cost: float, *, widest: bool = True
) -> tuple[FloatArray, IntArray]:
    """Return the rules that are best for some bounds or costs, and which one each cell has.

    `rows` are those of `prepared` with the masses of the OOD sets apart.
    """
    sample = case.sample
    tprs = _levels(sample.n_id, _evenly(sample.n_id))
    fprs = _levels(sample.n_ood, _densest_at_zero(sample.n_ood))
    surface = frontier(
        prepared, min_tpr=tprs, max_fpr=fprs, directions=case.directions, search=case.search
    )
    rules, cells = _distinct(*surface.found())
    counts = _counts_of(rules, prepared) if not case.worst else count(rows, rules.lines)
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
    kept = _few_enough(kept, np.unique(cells[cells >= 0]), _most_rules(case))
    rules = rules.take(kept)
    cells = np.where(cells < 0, -1, np.searchsorted(kept, cells))
    if not (widest and _is_searched(case)):
        return rules.lines, cells
    return widest_lines(case, prepared, rules, counts.ood_sets[:, kept]), cells


def _most_rules(case: Case) -> int:
    """Return how many rules a page has room for: each has its line, and counts for every set."""
    counts = 4 * (2 + len(case.sample.ood_sets)) * (1 if case.held_out is None else 2)
    line = 8 * (case.sample.n_scores + 1) + 1
    return int(_PAGE_BYTES / ((line + counts) * 4 / 3))


def _few_enough(rules: IntArray, needed: IntArray, most: int) -> IntArray:
    """Return at most so many rules: those needed, and of the others some, evenly spread."""
    others = np.setdiff1d(rules, needed)
    room = max(0, most - len(needed))
    if len(others) > room:
        others = others[np.linspace(0, len(others) - 1, room).round().astype(int)]
    return np.union1d(needed, others)


def _is_searched(case: Case) -> bool:
    """Return whether every rule of the page can be had as `tune` returns it."""
    return case.sample.n_scores == 2 and not isinstance(case.search, Grid)


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


def _distinct(rules: Rules, cells: IntArray) -> tuple[Rules, IntArray]:
    """Return one of the rules that accept the same masses, and which one each cell has."""
    masses = np.column_stack([rules.id, rules.ood, rules.loss])
    _, first, number = np.unique(masses, axis=0, return_index=True, return_inverse=True)
    return rules.take(first), np.append(number.ravel(), -1)[cells]


def _counts_of(rules: Rules, prepared: Prepared) -> Counts:
    """Return the masses that rules come with, those of all OOD sets together."""
    return Counts(rules.id, rules.loss, rules.ood[None], prepared.points.totals)


def _with_shown(
    case: Case, rows: Prepared, lines: FloatArray, cells: IntArray, rule: Rule
) -> tuple[FloatArray, IntArray]:
    """Put the rule that the page is about last.

    If it was tuned it takes the place of one that accepts the same masses: of the rules with
    these masses it is the one with the widest margin.
    """
    lines = np.vstack([lines, [*rule.direction, rule.threshold]])
    if not case.is_choice:
        return lines, cells
    counts = count(rows, lines)
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


def count(rows: Prepared, lines: FloatArray) -> Counts:
    """Return the masses that each line (direction and threshold) accepts."""
    id_, loss, *ood = rows.count(lines).T
    return Counts(id_, loss, np.array(ood, np.int64).reshape(-1, len(lines)), rows.points.totals)


def _best_at_any_precision(counts: Counts, *, worst: bool) -> IntArray:
    """Return the rules that are best at a percent level of recall and some precision.

    At any prior a bound on precision bounds the quotient of FPR and TPR. By rising quotient,
    the rules wanted are those that no earlier one with enough ID mass beats.
    """
    totals = counts.totals
    if sum(totals.ood) == 0 or len(counts.id) == 0:
        return np.empty(0, np.int64)
    quotient = bounded_fpr(counts, worst=worst) / counts.id
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


def bounded_fpr(counts: Counts, *, worst: bool) -> FloatArray:
    """Return the FPR that bounds are about: of all OOD rows, or the largest of a set."""
    totals = np.array(counts.totals.ood, float)
    if not worst:
        return np.asarray(counts.ood / totals.sum())
    some = totals > 0
    return np.asarray((counts.ood_sets[some] / totals[some, None]).max(axis=0))
