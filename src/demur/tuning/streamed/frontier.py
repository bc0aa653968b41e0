"""The best rule for every pair of bounds on a source, from one set of fetched rows.

The corners of all cells, which look no better than rows, give a half-plane for every pair of
bounds. One branch and bound over half-planes then leaves the cells that something better for
any pair may cross (`LevelsJudge`); their rows are fetched, and the search over all bounds at once
is done on these rows and the corners of all other cells. Why that finds the best over all rows is
told in `tune`: it holds for every pair of bounds by itself, and does not mind more cells being
fetched than a pair needs.

Where the rows would not fit into memory, one rule is searched after the other, as for a single
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from demur._arrays import BoolArray, IntArray
from demur._kernels import exact
from demur._kernels.numpy_engine.boxes import SIGNS
from demur._kernels.reference import BoundsTable
from demur.core.models import Bound, RejectionModel
from demur.core.points import Points
from demur.core.program import Number, Program, Totals
from demur.core.source import ScoreSource
from demur.tuning.frontier import (
    BestForBounds,
    Levels,
    Surface,
    best_for_all_bounds,
    best_settled,
)
from demur.tuning.operating_points import Rules, operating_points
from demur.tuning.result import DIRECTION_SETS, DirectionSet, Exact
from demur.tuning.streamed.cells import ID, OOD, Pyramid, Signs, build, cloud, turned
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.search import BoxJudge, known, open_cells
from demur.tuning.streamed.tune import Streamed, mark_cells, points_of_one
from demur.tuning.tune import robust_line

_NONNEG = DIRECTION_SETS["nonneg"]

Aim = Literal["risk", "tpr", "precision"]
"""Least selective risk, largest TPR, or largest precision (least OOD per ID mass)."""

# Pairs of bounds whose optimum on the sample makes strips.
_HINTS = 4


def rules_of_source(
    source: ScoreSource,
    tprs: Sequence[Number],
    fprs: Sequence[Number],
    allowed: DirectionSet,
    *,
    aim: Aim = "risk",
    ood: Literal["pooled", "worst"] = "pooled",
    plan: StreamPlan | None = None,
) -> tuple[Totals, BestForBounds]:
    """Return totals, and the rules that are best somewhere."""
    places = np.linspace(0, 1, _HINTS)
    hints = [
        _aimed(aim, tprs[round(p * (len(tprs) - 1))], fprs[round(p * (len(fprs) - 1))])
        for p in places
    ]
    stream = Streamed(source, hints, allowed, ood=ood, plan=plan)
    levels = Levels(
        np.array([_aimed(aim, a, 1).program(stream.totals).min_id for a in tprs]),
        np.array([_aimed(aim, 0, b).program(stream.totals).max_ood for b in fprs]).T,
    )
    program = _aimed(aim, 0, 1).program(stream.totals)
    return stream.totals, _AllBounds(stream, program, levels, allowed).best()


def _aimed(aim: Aim, min_tpr: Number, max_fpr: Number) -> RejectionModel:
    bounds = Bound("tpr", at_least=min_tpr), Bound("fpr", at_most=max_fpr)
    return RejectionModel("selective_risk" if aim == "risk" else aim, bounds)


class LevelsJudge(BoxJudge):
    """Judges boxes under all pairs of bounds at once; `best` and `cells` are the incumbents.

    A half-plane that is best under some bounds is also best under the tightest of the grid that
    it meets: tightening only takes rivals away. So it is as good as the *incumbent* there,
    anything known to meet those bounds. Of the half-planes in a box it is known between which
    levels their masses lie; the box is judged by the incumbent of the tightest bounds that any of
    them may meet.
    """

    def __init__(
        self, program: Program, price: float, levels: Levels, best: Rules, cells: IntArray
    ) -> None:
        self._asked, self._price, self._levels = program, price, levels
        self._known = [known(program, *masses) for masses in np.stack(best[:3]).T.tolist()]
        self._cells = cells
        self._bounds: dict[tuple[int, int], BoxJudge] = {}

    def alive(self, accepted: IntArray, crossing: IntArray) -> bool:
        """Return whether a box with these masses may hold what is best under some bounds."""
        min_id, max_ood = self._levels.min_id, self._levels.max_ood
        row = int(np.searchsorted(min_id, accepted[ID] + crossing[ID], side="right")) - 1
        column = max(
            int(np.searchsorted(levels, mass))
            for levels, mass in zip(max_ood, accepted[OOD:], strict=True)
        )
        if row < 0 or column == max_ood.shape[1]:
            return False
        sure = max(0, int(np.searchsorted(min_id, accepted[ID], side="right")) - 1)
        return self._bound(sure, int(self._cells[row, column])).alive(accepted, crossing)

    def alive_each(self, accepted: IntArray, crossing: IntArray) -> BoolArray:
        """Return the same for many boxes; masses have shape (4 + sets, boxes)."""
        pairs = zip(accepted.T, crossing.T, strict=True)
        return np.array([self.alive(below, across) for below, across in pairs], bool)

    def _bound(self, row: int, rule: int) -> BoxJudge:
        """Return what judges by an incumbent, with the bounds that all in a box must meet."""
        if (row, rule) not in self._bounds:
            program = self._levels.program(self._asked, row, -1)
            best = self._known[rule] if rule >= 0 else None
            self._bounds[row, rule] = BoxJudge(program, self._price, best)
        return self._bounds[row, rule]


class _AllBounds:
    """A source that was counted once, to be searched for all bounds of a grid.

    `program` says what is best: the least loss or OOD mass per ID mass, or the most ID mass.
    """

    def __init__(
        self, stream: Streamed, program: Program, levels: Levels, allowed: DirectionSet
    ) -> None:
        self._stream, self._program, self._allowed = stream, program, allowed
        self._levels = levels
        self._grid = stream.grid
        self._pyramid: Pyramid | None = None
        if len(stream.source.score_names) == 2:
            self._pyramid = build(stream.grid)
            self._grid = self._pyramid.grid

    def best(self) -> BestForBounds:
        """Return the rules that are best somewhere."""
        nodes = len(self._grid.key) if self._pyramid is None else self._pyramid.root + 1
        met, none = np.ones(nodes, bool), np.zeros(len(self._grid.key), bool)
        met[: len(none)] = False
        known = self._solve(self._levels, met, none, settled=False)
        price = self._stream.measure.price
        judge = LevelsJudge(self._program, price, self._levels, known.rules, known.cells)
        met, marked = self._open(judge)
        if int(self._grid.rows[marked].sum()) <= self._stream.plan.fetched:
            return self._solve(self._levels, met, marked)
        return self._one_by_one()

    def _one_by_one(self) -> BestForBounds:
        """Search for one rule after the other; rows that one search fetched serve the next."""
        levels, found = self._levels, []
        table = BoundsTable(levels.min_id, levels.max_ood)
        unresolved = np.zeros(levels.shape, bool)
        for row, column in table.open_cells():
            asked = levels.program(self._program, row, column)
            line, sure = self._stream.find(asked, self._allowed, Exact())
            before = table.cells.copy() if sure.unresolved else table.cells
            if line is None:
                table.rule_out(row, column)
                unresolved |= table.cells != before
                continue
            # Several sets are not told apart in what a line accepts.
            several = len(levels.max_ood) > 1
            table.settle(row, column, line.id, None if several else np.array([line.ood]))
            unresolved |= table.cells != before
            found.append(line)
        rules = Rules.of_lines(found, self._grid.low.shape[1])
        return BestForBounds(rules, table.cells, unresolved)

    def _open(self, bound: LevelsJudge) -> tuple[BoolArray, BoolArray]:
        """Return which cells and nodes may be crossed, and which cells must be fetched."""
        if self._pyramid is None:
            marked = mark_cells(self._grid, bound)
            return marked, marked
        everything: dict[Signs, None] = {SIGNS[quarter]: None for quarter in self._allowed.quarters}
        opened = open_cells(self._pyramid, bound, self._stream.plan, everything)
        return opened.met, opened.marked

    def _solve(
        self, levels: Levels, met: BoolArray, marked: BoolArray, *, settled: bool = True
    ) -> BestForBounds:
        """Return the best rules on the rows of marked cells and the corners of the others."""
        rows, totals = self._stream.layers.fetch(self._grid, marked), self._stream.totals
        if self._pyramid is None:
            points = self._aimed(points_of_one(self._grid, marked, rows, totals))
            surface = Surface(levels, points)
            for batch in operating_points(points, "nonneg", None):
                surface.add(batch)
            best = surface.best()
            return BestForBounds(*best, np.zeros(levels.shape, bool))
        parts = []
        for quarter in self._allowed.quarters:
            signs = SIGNS[quarter]
            points = cloud(self._pyramid, met, rows, signs, totals)
            parts.append(self._best_on(self._aimed(points), signs, levels, settled))
        return _better(parts)

    def _best_on(
        self, points: Points, signs: Signs, levels: Levels, settled: bool
    ) -> BestForBounds:
        """Return the best lines on points with scores times `signs`."""
        prepared = self._stream.prepared(points)
        if not settled:
            best = best_for_all_bounds(prepared, _NONNEG, levels)
            return BestForBounds(*best, np.zeros(levels.shape, bool))
        rules, cells, unresolved = best_settled(prepared, _NONNEG, levels)
        lines = [
            turned(robust_line(prepared, (p, q), v, masses, _NONNEG), signs)
            for (p, q, v), masses in zip(
                rules.lines.tolist(), np.stack(rules[:3]).T.tolist(), strict=True
            )
        ]
        return BestForBounds(Rules.of_lines(lines, 2), cells, unresolved)

    def _aimed(self, points: Points) -> Points:
        """Return points whose loss per ID mass is what must be small.

        Without any loss all rules are equal, and the larger ID mass decides.
        """
        if self._program.loss:
            return points
        loss = points.ood.sum(axis=0) * self._program.ood
        return replace(points, loss=loss, totals=replace(points.totals, loss=int(loss.sum())))


def _better(parts: list[BestForBounds]) -> BestForBounds:
    """Return the best of several answers for every pair of bounds.

    What one of them leaves open may be no better than another answer.
    """
    rules, cells, unresolved = parts[0]
    for other, places, left in parts[1:]:
        unresolved = unresolved | left
        places = np.where(places >= 0, places + len(rules.id), -1)
        rules = Rules.joined(rules, other)
        # No rule, -1, has the last rank.
        rank = np.append(exact.ranks(rules.id, rules.ood, rules.loss), len(rules.id))
        cells = np.where(rank[places] < rank[cells], places, cells)
    return BestForBounds(rules, cells, unresolved)
