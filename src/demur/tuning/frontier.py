"""The selective risk over a grid of bounds on TPR and FPR: the best rule for every pair of them.

The best rules are either gathered from operating points that come in batches (`Surface`), or
searched for (`best_for_all_bounds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, zip_longest
from typing import Any, Literal, NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray, check_kind, data_frame
from demur._kernels.engines import EXACT, Gap, Outcome
from demur._kernels.exact import best_first, may_beat, quotients_are_exact
from demur._kernels.reference import BoundsTable
from demur.core.card import Card
from demur.core.columns import ScoreColumns, combine
from demur.core.models import TprFprModel
from demur.core.points import Points
from demur.core.program import Number, Program, Totals, exact
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import ScoreSource
from demur.errors import InfeasibleError, InvalidInputError
from demur.tuning.operating_points import (
    LazyLines,
    RuleBatch,
    Rules,
    Search,
    is_swept,
    operating_points,
    settle,
)
from demur.tuning.prepared import FEW, Prepared, as_prepared
from demur.tuning.result import (
    DIRECTION_SETS,
    Directions,
    DirectionSet,
    Grid,
    grid_directions,
    warn_of_units,
)

PERCENT: tuple[Fraction, ...] = tuple(Fraction(k, 100) for k in range(101))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frontier:
    """The best selective risk for every pair of bounds; NaN where no rule meets them.

    Arrays have a row per `min_tpr` and a column per `max_fpr`. Like every tuned value the
    risks are optimistic: judge a rule on fresh data with `demur.evaluate`.

    Examples
    --------
    >>> import demur as dm
    >>> sample = dm.Sample([1, 2, 3, 4], [0, 0, 0, 1], [3, 5, 6])
    >>> found = dm.frontier(sample, min_tpr=[0.5, 1.0], max_fpr=[0.0, 0.5])
    >>> found.selective_risk
    array([[0.  , 0.  ],
           [ nan, 0.25]])
    >>> found.rule_at(min_tpr=1.0, max_fpr=0.5).threshold
    4.5
    """

    min_tpr: FloatArray
    max_fpr: FloatArray
    selective_risk: FloatArray
    accepted_id: FloatArray
    """Number (weight) of ID accepted by the best rule."""
    accepted_ood: FloatArray
    accepted_loss: FloatArray
    columns: ScoreColumns
    """Names and senses of the score columns."""
    unresolved: BoolArray
    """Where float64 leaves open whether something is better, such as a set of rows that it has no
    rule for. `tune` counts it in ``certificate.unresolved``."""
    _cells: IntArray
    """Which of the different rules each cell has, -1 for none."""
    _lines: LazyLines
    card: Card | None = None
    """What is known of the rows, for the cards of rules."""

    @property
    def directions(self) -> FloatArray:
        """Shape (rows, columns, k): the direction of a rule that attains the risk."""
        return self._all_lines()[..., :-1]

    @property
    def thresholds(self) -> FloatArray:
        """Shape (rows, columns): the threshold of a rule that attains the risk."""
        return self._all_lines()[..., -1]

    def found(self) -> tuple[Rules, IntArray]:
        """Return the rules as they were found, and which one each cell has, -1 for none.

        The lines of these are not settled: `rule` hands out those that are.
        """
        return self._lines.rules, self._cells

    def rule(self, row: int, column: int) -> Rule:
        """Return a rule that attains the risk of ``min_tpr[row]``, ``max_fpr[column]``.

        `demur.tune` at these bounds finds a rule that accepts the same masses and has the
        widest margin.

        Raises
        ------
        InfeasibleError
            No rule meets the two bounds; carries the nearest attainable levels.
        """
        for name, place, levels in (
            ("row", row, self.min_tpr),
            ("column", column, self.max_fpr),
        ):
            if isinstance(place, bool) or not isinstance(place, (int, np.integer)):
                raise InvalidInputError(
                    f"{name} must be a position, 0 to {len(levels) - 1}, got {place!r}: for bounds "
                    "ask rule_at(min_tpr=..., max_fpr=...)"
                )
            if not -len(levels) <= place < len(levels):
                raise InvalidInputError(
                    f"{name} is {place}, but the frontier has {len(levels)} levels there"
                )
        if np.isnan(self.selective_risk[row, column]):
            raise self._infeasible(row, column)
        *direction, threshold = self._lines(self._cells[row, column][None])[0].tolist()
        rule = Rule.of_doubts(direction, threshold, self.columns)
        if self.card is None:
            return rule
        model = TprFprModel(float(self.min_tpr[row]), float(self.max_fpr[column]))
        return replace(rule, card=self.card.with_entries(model=model.to_data()))

    def rule_at(self, *, min_tpr: Number, max_fpr: Number) -> Rule:
        """Return the rule of two bounds that are levels of this frontier.

        Raises
        ------
        InfeasibleError
            No rule meets the two bounds.
        """
        places = []
        for name, bound, levels in (
            ("min_tpr", min_tpr, self.min_tpr),
            ("max_fpr", max_fpr, self.max_fpr),
        ):
            found = np.flatnonzero(levels == float(exact(name, bound)))
            if len(found) == 0:
                near = levels[np.argsort(np.abs(levels - float(exact(name, bound))))[:2]]
                raise InvalidInputError(
                    f"{name}={bound} is not a level of this frontier; the nearest are "
                    f"{' and '.join(f'{level:g}' for level in np.sort(near))}. tune() takes any"
                )
            places.append(int(found[0]))
        return self.rule(*places)

    def plot(self, ax: Any = None) -> Any:
        """Draw the risk over both bounds with matplotlib, on `ax` or on new axes; return these."""
        from demur import plots

        return plots.frontier(self.min_tpr, self.max_fpr, self.selective_risk, ax=ax)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas or Polars with a row per pair of bounds."""
        tpr, fpr = np.meshgrid(self.min_tpr, self.max_fpr, indexing="ij")
        columns = {
            "min_tpr": tpr,
            "max_fpr": fpr,
            "selective_risk": self.selective_risk,
            "accepted_id": self.accepted_id,
            "accepted_ood": self.accepted_ood,
            "accepted_loss": self.accepted_loss,
            "unresolved": self.unresolved,
        }
        return data_frame({name: values.ravel() for name, values in columns.items()}, backend)

    def _all_lines(self) -> FloatArray:
        lines = self._lines(np.arange(self._cells.max(initial=-1) + 1))
        return _by_cell(lines, self._cells)

    def _infeasible(self, row: int, column: int) -> InfeasibleError:
        able = ~np.isnan(self.selective_risk)
        model = TprFprModel(float(self.min_tpr[row]), float(self.max_fpr[column]))
        max_tpr = float(self.min_tpr[able[:, column]].max(initial=-np.inf))
        min_fpr = float(self.max_fpr[able[row]].min(initial=np.inf))
        attainable = {
            "max_tpr": max_tpr if np.isfinite(max_tpr) else np.nan,
            "min_fpr": min_fpr if np.isfinite(min_fpr) else np.nan,
        }
        return InfeasibleError(
            f"no rule reaches tpr >= {model.min_tpr} with fpr <= {model.max_fpr}: of the levels "
            f"of this frontier, the largest tpr at that fpr is {attainable['max_tpr']:.4g} and "
            f"the smallest fpr at that tpr is {attainable['min_fpr']:.4g}; relax a bound or "
            "add a second score",
            model=model,
            attainable=attainable,
        )

    def __repr__(self) -> str:
        rows, columns = self.selective_risk.shape
        able = int((~np.isnan(self.selective_risk)).sum())
        left = int(self.unresolved.sum())
        said = f", {left} unresolved" if left else ""
        return f"Frontier({rows} x {columns} bounds, {able} attainable{said})"


def frontier(
    source: Sample | Prepared | ScoreSource,
    *,
    min_tpr: Sequence[Number] = PERCENT,
    max_fpr: Sequence[Number] = PERCENT,
    directions: Directions = "nonneg",
    search: Search = None,
    ood: Literal["pooled", "worst"] | None = None,
) -> Frontier:
    """Return what `tune` attains under every `TprFprModel` of a grid of bounds.

    Parameters
    ----------
    source
        A `Sample`, or what `prepare` made of one; or a `ScoreSource`, which is read four
        times for all levels together, or about once for each different rule where the rows that
        matter for any of them do not fit into its memory.
    min_tpr, max_fpr
        Ascending levels in [0, 1]; 0, 0.01, ..., 1 by default.
    directions, search, ood
        As in `tune`.

    Examples
    --------
    >>> sample = Sample([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], ood_scores=[0.25, 0.8])
    >>> surface = frontier(sample, min_tpr=[0.5, 0.75], max_fpr=[0, 0.5])
    >>> surface.selective_risk.round(3)
    array([[0.   , 0.   ],
           [  nan, 0.333]])
    >>> surface.rule(0, 1).threshold
    0.225
    """
    check_kind("source", source, (Sample, Prepared, ScoreSource))
    tprs, fprs = ascending("min_tpr", min_tpr), ascending("max_fpr", max_fpr)
    if not isinstance(source, (Sample, Prepared)):
        return _of_source(source, tprs, fprs, directions, search, ood)
    prepared = as_prepared(source, ood)
    totals = prepared.points.totals
    levels = _levels(tprs, fprs, totals)
    allowed = DIRECTION_SETS[str(directions)]
    if isinstance(search, Grid) and prepared.sample.n_scores == 2:
        swept = grid_directions(allowed, search.angles)
        warn_of_units(prepared.points.scores, prepared.spread, swept, stacklevel=2)
    best = None
    if is_swept(prepared.points, search) or (
        len(prepared.points.scores) <= FEW and not _searched_at_once(prepared, levels)
    ):
        best = _by_enumeration(prepared.points, directions, search, levels)
    lines = None if best is None else LazyLines(best.rules, None)
    if best is None or lines is None:
        best = best_settled(prepared, allowed, levels)
        lines = LazyLines(best.rules, prepared.settled)
    found = _frontier(tprs, fprs, totals, best, lines, prepared.sample.columns)
    return replace(found, card=Card.of_rows(prepared.sample).with_entries(ood=prepared.ood))


def _of_source(
    source: ScoreSource,
    tprs: list[Fraction],
    fprs: list[Fraction],
    directions: Directions,
    search: Search,
    ood: Literal["pooled", "worst"] | None,
) -> Frontier:
    # Imported here, since most calls have no use for it.
    from demur.tuning.streamed.frontier import rules_of_source

    if isinstance(search, Grid):
        raise InvalidInputError("search: Grid needs a Sample; a source is searched by Exact()")
    allowed = DIRECTION_SETS[str(directions)]
    totals, best = rules_of_source(source, tprs, fprs, allowed, ood=ood or "pooled")
    return _frontier(tprs, fprs, totals, best, LazyLines(best.rules, None), source.columns)


def _frontier(
    tprs: list[Fraction],
    fprs: list[Fraction],
    totals: Totals,
    best: BestForBounds,
    lines: LazyLines,
    columns: ScoreColumns,
) -> Frontier:
    masses = _by_cell(best.rules.weights(totals), best.cells)
    accepted_id, accepted_ood, accepted_loss = np.moveaxis(masses, -1, 0)
    return Frontier(
        min_tpr=np.array(tprs, float),
        max_fpr=np.array(fprs, float),
        selective_risk=accepted_loss / accepted_id,
        accepted_id=accepted_id,
        accepted_ood=accepted_ood,
        accepted_loss=accepted_loss,
        columns=columns,
        unresolved=best.unresolved,
        _cells=best.cells,
        _lines=lines,
    )


def _by_enumeration(
    points: Points, directions: Directions, search: Search, levels: Levels
) -> BestForBounds | None:
    """Look at every operating point there is; None where float64 is not sure what these are."""
    surface = Surface(levels, points)
    for batch in operating_points(points, directions, search):
        if batch.in_doubt:
            return None
        surface.add(batch)
    best, cells = surface.best()
    if not is_swept(points, search):
        best, settled = settle(points, best, directions)
        if not settled.all():
            return None
    return BestForBounds(best, cells, np.zeros(cells.shape, bool))


def ascending(name: str, levels: Sequence[Number]) -> list[Fraction]:
    """Return levels as fractions, checked."""
    given = levels if isinstance(levels, Iterable) else ()
    exact_levels = [exact(name, level) for level in given]
    if not exact_levels or any(b <= a for a, b in pairwise(exact_levels)):
        raise InvalidInputError(f"{name} must be a list of ascending levels, got {levels!r}")
    return exact_levels


def _by_cell(rows: FloatArray, cells: IntArray) -> FloatArray:
    """Return the row of each cell, NaN for cell -1."""
    table: FloatArray = np.vstack([rows, np.full(rows.shape[1], np.nan)])[cells]
    return table


# Operating points that wait to be compared.
_BUFFER = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """All pairs of a bound on ID mass from below and bounds on OOD masses from above."""

    min_id: IntArray
    """Ascending, shape (rows,)."""
    max_ood: IntArray
    """Ascending, shape (sets, columns)."""

    @property
    def shape(self) -> tuple[int, int]:
        """How many bounds there are."""
        return len(self.min_id), self.max_ood.shape[1]

    def program(self, program: Program, row: int, column: int) -> Program:
        """Return the program with one pair of bounds."""
        bounds = tuple(int(level) for level in self.max_ood[:, column])
        return replace(program, min_id=int(self.min_id[row]), max_ood=bounds)


class BestForBounds(NamedTuple):
    """The rules that are best for some pair of bounds."""

    rules: Rules
    cells: IntArray
    """Which one for each pair, -1 for none."""
    unresolved: BoolArray
    """For which pairs something better cannot be ruled out."""


class Surface:
    """The best operating points, those that `exact` prefers, for all pairs of bounds.

    Each operating point goes to the highest level of ID mass and the lowest level of OOD mass it
    meets; a running minimum over the grid then hands it on to all weaker bounds.
    """

    def __init__(self, levels: Levels, points: Points) -> None:
        self._min_id, self._max_ood = levels.min_id, levels.max_ood
        totals = points.totals
        self._is_exact = quotients_are_exact(float(totals.loss), float(totals.id))
        self._best = Rules.none(points.scores.shape[1])
        self._cells = np.full(levels.shape, -1)
        self._waiting: list[tuple[Rules, IntArray]] = []
        self._places = np.empty(0, np.int64)

    def add(self, batch: RuleBatch) -> None:
        """Take in operating points."""
        row = np.searchsorted(self._min_id, batch.id, side="right") - 1
        column = np.max(
            [np.searchsorted(m, o) for m, o in zip(self._max_ood, batch.ood, strict=True)], axis=0
        )
        columns = self._cells.shape[1]
        met = np.flatnonzero((row >= 0) & (column < columns))
        place = row[met] * columns + column[met]
        nI, nO, L = batch.id[met], batch.ood[:, met].sum(axis=0), batch.loss[met]
        best, rival = self._best, self._cells.ravel()[place]
        rivals = [np.append(mass, 0)[rival] for mass in (best.id, best.ood, best.loss)]
        new = may_beat((nI, nO, L), (rivals[0], rivals[1], rivals[2]), is_exact=self._is_exact)
        if not new.any():
            return
        rules = Rules(nI[new], nO[new], L[new], batch.lines(met[new]))
        found = rules.found()
        self._waiting.append((rules.take(found), place[new][found]))
        if sum(len(places) for _, places in self._waiting) >= _BUFFER:
            self._fold()

    def best(self) -> tuple[Rules, IntArray]:
        """Return the rules that are best somewhere, and where."""
        self._fold()
        return self._best, self._cells

    def _fold(self) -> None:
        """Let the waiting operating points compete for the cells they serve."""
        parts = [(self._best, self._places), *self._waiting]
        self._waiting = []
        joint = Rules.joined(*(rules for rules, _ in parts))
        places = np.concatenate([place for _, place in parts])
        order = best_first(joint.id, joint.ood, joint.loss)
        grid = np.full(self._cells.size, len(order))
        np.minimum.at(grid, places[order], np.arange(len(order)))
        grid = np.minimum.accumulate(grid.reshape(self._cells.shape)[::-1], axis=0)[::-1]
        grid = np.minimum.accumulate(grid, axis=1)
        used = np.unique(grid[grid < len(order)])
        self._cells = np.where(grid < len(order), np.searchsorted(used, grid), -1)
        self._best = joint.take(order[used])
        self._places = places[order[used]]


def best_for_all_bounds(
    prepared: Prepared, allowed: DirectionSet, levels: Levels, gap: Gap = EXACT
) -> tuple[Rules, IntArray]:
    """Return the rules that are best somewhere, and which one for each pair, -1 for none.

    What is better by no more than `gap` may be missed.
    """
    if _searched_at_once(prepared, levels):
        best = prepared.all_bounds(allowed, levels.min_id, levels.max_ood[0], gap=gap)
        return Rules.distinct(best)
    found = _one_by_one(prepared, allowed, levels)
    return found.rules, found.cells


def best_settled(prepared: Prepared, allowed: DirectionSet, levels: Levels) -> BestForBounds:
    """Return the rules that are best somewhere, as `tune` finds them for each pair."""
    if not _searched_at_once(prepared, levels):
        return _one_by_one(prepared, allowed, levels)
    best, unresolved = prepared.all_bounds_settled(allowed, levels.min_id, levels.max_ood[0])
    return BestForBounds(*Rules.distinct(best), unresolved)


def _levels(tprs: list[Fraction], fprs: list[Fraction], totals: Totals) -> Levels:
    """Return bounds in integers; a program has one of either kind, so one serves for two."""
    programs = [TprFprModel(a, b).program(totals) for a, b in zip_longest(tprs, fprs, fillvalue=0)]
    min_id = [program.min_id for program in programs[: len(tprs)]]
    max_ood = [program.max_ood for program in programs[: len(fprs)]]
    return Levels(np.array(min_id), np.array(max_ood).T)


def _searched_at_once(prepared: Prepared, levels: Levels) -> bool:
    # Engines bound the OOD mass of all sets together, and take it that losses are those of ID
    # mass.
    points = prepared.points
    is_plain = len(levels.max_ood) == 1 and not points.loss[points.id == 0].any()
    return is_plain and prepared.searches_all_bounds


def _one_by_one(prepared: Prepared, allowed: DirectionSet, levels: Levels) -> BestForBounds:
    """Search for one rule after the other."""
    points = prepared.points
    if len(levels.max_ood) < len(points.ood):
        pooled = points.ood.sum(axis=0, keepdims=True)
        prepared = prepared.of_points(replace(points, ood=pooled))
    unresolved = np.zeros(levels.shape, bool)
    table = BoundsTable(levels.min_id, levels.max_ood)
    no_ratio = ((0, 0),) * len(levels.max_ood)
    risk = Program(1, 0, 0, per_id=True, min_id=1, max_ood=(), ratio=no_ratio)
    found = [Rules.none(2)]
    for row, column in table.open_cells():
        best = prepared.search(levels.program(risk, row, column), allowed)
        before = table.cells.copy() if best.unresolved or best.lost else None
        if len(best.v) == 0:
            table.rule_out(row, column)
        else:
            line = np.append(best.weights[0], best.v[0])
            table.settle(row, column, best.id, _accepted_ood(prepared.points, line))
        if before is not None:
            unresolved |= (table.cells != before) & _left_open(best, levels)
        if len(best.v) == 0:
            continue
        masses = (np.array([mass]) for mass in (best.id, best.ood, best.loss))
        found.append(Rules(next(masses), next(masses), next(masses), line[None]))
    return BestForBounds(Rules.joined(*found), table.cells, unresolved)


def _left_open(outcome: Outcome, levels: Levels) -> BoolArray:
    """Return the bounds that something better may meet, of those whose optimum is the same."""
    if outcome.unresolved or len(levels.max_ood) > 1:
        # Of boxes that were given up, and of sets, it is not known what meets which.
        return np.ones(levels.shape, bool)
    found = np.zeros(levels.shape, bool)
    for nI, nO, _ in outcome.lost:
        found |= (levels.min_id[:, None] <= nI) & (levels.max_ood[0] >= nO)
    return found


def _accepted_ood(points: Points, line: FloatArray) -> IntArray:
    """Return the OOD mass of each set that a line accepts."""
    masses: IntArray = points.ood[:, combine(line[:2], points.scores) <= line[2]].sum(axis=1)
    return masses
