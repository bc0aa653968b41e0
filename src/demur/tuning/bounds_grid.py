"""The rule of least selective risk for every pair of bounds of a grid.

Either it is gathered from operating points that come in batches (`Surface`), or searched for
(`best_for_all_bounds`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels import exact
from demur._kernels.engines import Optima
from demur._kernels.reference import BoundsTable
from demur.core.points import Points
from demur.core.program import Program
from demur.core.scores import combine
from demur.tuning.boundary import Rules
from demur.tuning.directions import DirectionSet
from demur.tuning.operating_points import RuleBatch
from demur.tuning.prepared import Prepared

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


class Surface:
    """The best operating points, those that `exact` prefers, for all pairs of bounds.

    Each operating point goes to the highest level of ID mass and the lowest level of OOD mass it
    meets; a running minimum over the grid then hands it on to all weaker bounds.
    """

    def __init__(self, levels: Levels, points: Points) -> None:
        self._min_id, self._max_ood = levels.min_id, levels.max_ood
        totals = points.totals
        self._is_exact = exact.quotients_are_exact(float(totals.loss), float(totals.id))
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
        new = exact.may_beat(
            (nI, nO, L), (rivals[0], rivals[1], rivals[2]), is_exact=self._is_exact
        )
        if not new.any():
            return
        rules = Rules(nI[new], nO[new], L[new], batch.lines(met[new]))
        found = rules.found()
        self._waiting.append((rules.take(found), place[new][found]))
        if sum(len(places) for _, places in self._waiting) >= _BUFFER:
            self._fold()

    def keep(self, best: Rules, kept: BoolArray) -> None:
        """Start anew from some of the rules last returned by `best`, with their lines settled."""
        self._best, self._places = best.take(kept), self._places[kept]
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
        order = exact.best_first(joint.id, joint.ood, joint.loss)
        grid = np.full(self._cells.size, len(order))
        np.minimum.at(grid, places[order], np.arange(len(order)))
        grid = np.minimum.accumulate(grid.reshape(self._cells.shape)[::-1], axis=0)[::-1]
        grid = np.minimum.accumulate(grid, axis=1)
        used = np.unique(grid[grid < len(order)])
        self._cells = np.where(grid < len(order), np.searchsorted(used, grid), -1)
        self._best = joint.take(order[used])
        self._places = places[order[used]]


def best_for_all_bounds(
    prepared: Prepared, allowed: DirectionSet, levels: Levels
) -> tuple[Rules, IntArray]:
    """Return the rules that are best somewhere, and which one for each pair, -1 for none."""
    points = prepared.points
    # Engines bound the OOD mass of all sets together, and take it that losses are those of ID
    # mass.
    if len(levels.max_ood) == 1 and not points.loss[points.id == 0].any():
        return _different(prepared.all_bounds(allowed, levels.min_id, levels.max_ood[0]))
    return _one_by_one(prepared, allowed, levels)


def _different(best: Optima) -> tuple[Rules, IntArray]:
    """Return the different rules among those for all pairs of bounds, and which is where."""
    able = np.flatnonzero(best.id > 0)
    lines = np.column_stack([best.weights.reshape(-1, 2), best.v.ravel()])[able]
    # A half-plane was found for one accepted set, so that its line tells rules apart.
    keys = np.ascontiguousarray(lines).view(np.dtype((np.void, lines.strides[0]))).ravel()
    _, first, rules = np.unique(keys, return_index=True, return_inverse=True)
    index = np.full(best.id.shape, -1)
    index.flat[able] = rules
    masses = (mass.ravel()[able[first]] for mass in (best.id, best.ood, best.loss))
    return Rules(next(masses), next(masses), next(masses), lines[first]), index


def _one_by_one(
    prepared: Prepared, allowed: DirectionSet, levels: Levels
) -> tuple[Rules, IntArray]:
    """Search for one rule after the other."""
    table = BoundsTable(levels.min_id, levels.max_ood)
    no_ratio = ((0, 0),) * len(levels.max_ood)
    risk = Program(1, 0, 0, per_id=True, min_id=1, max_ood=(), ratio=no_ratio)
    found = [Rules.none(2)]
    for row, column in table.open_cells():
        best = prepared.search(levels.program(risk, row, column), allowed)
        if len(best.v) == 0:
            table.rule_out(row, column)
            continue
        line = np.append(best.weights[0], best.v[0])
        table.settle(row, column, best.id, _accepted_ood(prepared.points, line))
        masses = (np.array([mass]) for mass in (best.id, best.ood, best.loss))
        found.append(Rules(next(masses), next(masses), next(masses), line[None]))
    return Rules.joined(*found), table.cells


def _accepted_ood(points: Points, line: FloatArray) -> IntArray:
    """Return the OOD mass of each set that a line accepts."""
    masses: IntArray = points.ood[:, combine(line[:2], points.scores) <= line[2]].sum(axis=1)
    return masses
