"""The best half-planes for all pairs of bounds of a grid, from one set of fetched rows.

The corners of all cells, which look no better than rows, give a half-plane for every pair of
bounds. One branch and bound over half-planes then leaves the cells that something better for
any pair may cross (`levels`); their rows are fetched, and the search over all bounds at once is
done on these rows and the corners of all other cells. Why that finds the best over all rows is
told in `solve`: it holds for every pair of bounds by itself, and does not mind more cells being
fetched than a pair needs.

Where the rows would not fit into memory, one rule is searched after the other, as for a single
model.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from demur._arrays import BoolArray, IntArray
from demur.core.points import Points
from demur.core.program import Program
from demur.tuning.cells import best_by_search
from demur.tuning.charts import DirectionSet, direction_set
from demur.tuning.double import robust_line
from demur.tuning.envelope import operating_points
from demur.tuning.result import Exact
from demur.tuning.settle import Rules
from demur.tuning.streamed.cells import Grid
from demur.tuning.streamed.cloud import Signs, cloud, turned
from demur.tuning.streamed.levels import Levels, LevelsBound
from demur.tuning.streamed.one import points_of_one
from demur.tuning.streamed.opened import open_cells
from demur.tuning.streamed.pyramid import Pyramid, build
from demur.tuning.streamed.solve import _SIGNS, Streamed
from demur.tuning.streamed.table import Table, rules_of
from demur.tuning.surface import Surface

_NONNEG = direction_set("nonneg")


class Grids:
    """A source that was counted once, to be searched for all bounds of a grid.

    `program` says what is best: the least loss or OOD mass per ID mass, or the most ID mass.
    """

    def __init__(
        self, stream: Streamed, program: Program, levels: Levels, allowed: DirectionSet
    ) -> None:
        self._stream, self._program, self._allowed = stream, program, allowed
        self._levels = levels
        self._grid = stream._grid
        self._pyramid: Pyramid | None = None
        if len(stream.source.score_names) == 2:
            self._pyramid = build(stream._grid)
            self._grid = self._pyramid.grid

    def best(self) -> tuple[Rules, IntArray]:
        """Return the rules that are best somewhere, and which one where, -1 for none."""
        nodes = len(self._grid.key) if self._pyramid is None else self._pyramid.root + 1
        met, none = np.ones(nodes, bool), np.zeros(len(self._grid.key), bool)
        met[: len(none)] = False
        known = self._solve(self._levels, met, none, settled=False)
        price = self._stream.measure.price
        met, marked = self._open(LevelsBound(self._program, price, self._levels, *known))
        if int(self._grid.rows[marked].sum()) <= self._stream.plan.fetched:
            return self._solve(self._levels, met, marked)
        return self._one_by_one()

    def _one_by_one(self) -> tuple[Rules, IntArray]:
        """Search for one rule after the other; rows that one search fetched serve the next."""
        table = Table(self._levels)
        rows, columns = self._levels.shape
        for row in range(rows):
            for column in range(columns - 1, -1, -1):
                if table.is_open(row, column):
                    asked = self._levels.program(self._program, row, column)
                    line, _ = self._stream.find(asked, self._allowed, Exact())
                    table.settle(row, column, line)
        return rules_of(table.found, self._grid.low.shape[1]), table.cells

    def _open(self, bound: LevelsBound) -> tuple[BoolArray, BoolArray]:
        """Return which cells and nodes may be crossed, and which cells must be fetched."""
        if self._pyramid is None:
            marked = _mark(self._grid, bound)
            return marked, marked
        everything = {_SIGNS[quarter]: None for quarter in self._allowed.quarters}
        opened = open_cells(self._pyramid, bound, self._stream.plan, everything)
        return opened.met, opened.marked

    def _solve(
        self, levels: Levels, met: BoolArray, marked: BoolArray, *, settled: bool = True
    ) -> tuple[Rules, IntArray]:
        """Return the best rules on the rows of marked cells and the corners of the others."""
        rows, totals = self._stream.layers.fetch(self._grid, marked), self._stream.totals
        if self._pyramid is None:
            points = self._aimed(points_of_one(self._grid, marked, rows, totals))
            surface = Surface(levels.min_id, levels.max_ood, points)
            for batch in operating_points(points, "nonneg", None):
                surface.add(batch)
            return surface.best()
        parts = []
        for quarter in self._allowed.quarters:
            signs = _SIGNS[quarter]
            points = cloud(self._pyramid, met, rows, signs, totals)
            parts.append(self._best_on(self._aimed(points), signs, levels, settled))
        return _better(parts)

    def _best_on(
        self, points: Points, signs: Signs, levels: Levels, settled: bool
    ) -> tuple[Rules, IntArray]:
        """Return the best lines on points with scores times `signs`."""
        prepared = self._stream._prepared(points, signs)
        program = replace(self._program, loss=1, id=0, ood=0, per_id=True)
        found, bounds = None, (levels.min_id, levels.max_ood)
        # The search for all bounds at once takes it that losses are those of ID mass.
        if not points.loss[points.id == 0].any():
            found = prepared.all_bounds(_NONNEG, *bounds)
        rules, cells = found or best_by_search(prepared, program, _NONNEG, *bounds)
        if not settled:
            return rules, cells
        lines = [
            turned(robust_line(prepared, (p, q), v, masses, _NONNEG), signs)
            for (p, q, v), masses in zip(
                rules.lines.tolist(), np.stack(rules[:3]).T.tolist(), strict=True
            )
        ]
        return rules_of(lines, 2), cells

    def _aimed(self, points: Points) -> Points:
        """Return points whose loss per ID mass is what must be small.

        Without any loss all rules are equal, and the larger ID mass decides.
        """
        if self._program.loss:
            return points
        loss = points.ood.sum(axis=0) * self._program.ood
        return replace(points, loss=loss, totals=replace(points.totals, loss=int(loss.sum())))


def _mark(grid: Grid, bound: LevelsBound) -> BoolArray:
    """Return which cells of one score may hold something best inside."""
    order = np.argsort(grid.low[:, 0], kind="stable")
    mass = grid.mass[:, order]
    before = np.cumsum(mass, axis=1) - mass
    marked = np.zeros(len(order), bool)
    for place in np.flatnonzero((grid.low < grid.high)[order, 0]):
        marked[order[place]] = bound.alive(before[:, place], mass[:, place])
    return marked


def _better(parts: list[tuple[Rules, IntArray]]) -> tuple[Rules, IntArray]:
    """Return the best of several answers for every pair of bounds."""
    rules, cells = parts[0]
    for other, places in parts[1:]:
        places = np.where(places >= 0, places + len(rules.id), -1)
        rules = Rules.joined(rules, other)
        rank = _ranks(rules)
        # No rule, -1, has the last rank.
        cells = np.where(rank[places] < rank[cells], places, cells)
    return rules, cells


def _ranks(rules: Rules) -> IntArray:
    """Return the place of each rule from the best to the worst, and one more for no rule."""
    keys = [(Fraction(L, nI), -nI, nO) for nI, nO, L in np.stack(rules[:3]).T.tolist()]
    place = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return np.array([*(place[key] for key in keys), len(place)])
