"""Box rules: the limits, one for each score, that a rejection model asks for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels import exact
from demur._kernels.engines import Engine
from demur._kernels.limit_cells import (
    AxisMasses,
    CellJudge,
    Objective,
    OpenCells,
    Welcome,
    open_cells,
)
from demur._kernels.limits import BoxOptima, KnownCells, LimitAxis, welcome_of_rows
from demur.core.program import Program
from demur.errors import InvalidInputError
from demur.tuning.prepared import LinearParts, Prepared, kernel_arguments
from demur.tuning.result import Exact, SearchCertificate, Status

# So many rows are worth telling apart before they are sorted.
MANY = 50_000
# Strips of an axis, as the engines have them, and rows from which their edges are taken.
_STRIPS = 128
_LOOKED_AT = 8192
# The part of all rows that may be left.
_MOST_LEFT = 0.6


class KeptRows(NamedTuple):
    """Rows of open strips, and one for each cell of all other rows; and what is known of cells."""

    axes: tuple[LimitAxis, LimitAxis]
    """Where its strip is not open, a row is at the strip's last score."""
    masses: AxisMasses
    known: KnownCells


def narrowed(
    engine: Engine, scores: FloatArray, masses: AxisMasses, objective: Objective, gap: float
) -> KeptRows | None:
    """Return the rows that can matter to the best boxes; None if these are most of them.

    Each axis is cut into strips. By the masses of the cells that they make most of these can hold
    no limits that are better than the best of those between cells: where both axes are in strips
    without any cell that can, rows are counted together.
    """
    edges = strip_edges(scores)
    keys, tables = engine.count_cells(scores, edges, masses)
    judge = CellJudge(objective, len(masses.ood), len(scores), gap)
    cells = open_cells(
        tables.reshape(-1, _STRIPS, _STRIPS),
        judge,
        None if masses.zero_one else lambda: _welcome(judge, keys, masses),
    )
    is_open = np.any(cells.is_open, axis=1), np.any(cells.is_open, axis=0)
    inside = (is_open[0][:, None] | is_open[1]).reshape(-1)
    rows = np.flatnonzero(inside[keys])
    if len(rows) > _MOST_LEFT * len(scores):
        return None
    merged = np.flatnonzero(tables.any(axis=0) & ~inside)
    strips = divmod(np.concatenate([keys[rows], merged]), _STRIPS)
    axes = []
    for axis, strip in enumerate(strips):
        value = np.minimum(edges[axis], scores[:, axis].max())[strip]
        true = np.flatnonzero(is_open[axis][strip[: len(rows)]])
        value[true] = scores[rows[true], axis]
        axes.append(LimitAxis(value))
    starts = [_first_ranks(axis, strip) for axis, strip in zip(axes, strips, strict=True)]
    counted = tables[:, merged]
    return KeptRows(
        (axes[0], axes[1]), _joined(masses, rows, counted), _known(cells, judge, starts)
    )


def _welcome(judge: CellJudge, keys: npt.NDArray[np.uint16], masses: AxisMasses) -> Welcome:
    side, cells = _STRIPS + 1, np.arange(_STRIPS**2)
    places = cells + cells // _STRIPS + side + 1
    return welcome_of_rows(judge, places[keys], masses.id, masses.loss, (side, side))


def _first_ranks(axis: LimitAxis, strip: IntArray) -> IntArray:
    """Return the first rank of each strip, and the end of all."""
    ranks = np.bincount(strip[axis.order[axis.start[: len(axis)]]], minlength=_STRIPS)
    return np.concatenate([[0], np.cumsum(ranks)])


def _joined(masses: AxisMasses, rows: IntArray, counted: IntArray) -> AxisMasses:
    """Return the masses of some rows, and of those that are counted together."""
    sets, extra = 2 + len(masses.ood), masses.extra
    return AxisMasses(
        np.concatenate([masses.id[rows], counted[0]]),
        np.concatenate([masses.ood[:, rows], counted[2:sets]], axis=1),
        np.concatenate([masses.loss[rows], counted[1]]),
        None if extra is None else np.concatenate([extra[:, rows], counted[sets:]], axis=1),
        masses.zero_one,
    )


def _known(cells: OpenCells, judge: CellJudge, starts: list[IntArray]) -> KnownCells:
    """Return the open cells by ranks, the most promising last, given the first rank of strips."""
    # Boxes that end in a strip without rows are those that end in the one before.
    some = np.diff(starts[0])[:, None] * np.diff(starts[1]) > 0
    place = np.flatnonzero(cells.is_open & some)
    hope = cells.hope.reshape(-1)[place]
    order = np.argsort(-hope, kind="stable")
    place = place[order]
    ends = [
        end[strip + k]
        for end, strip in zip(starts, divmod(place, _STRIPS), strict=True)
        for k in (0, 1)
    ]
    below = cells.below.reshape(len(cells.below), -1)[:, place].astype(np.int64)
    best = judge.best
    if best.ranks is not None:
        last = [end[rank + 1] - 1 for end, rank in zip(starts, best.ranks.T, strict=True)]
        best = replace(best, ranks=np.column_stack(last))
    return KnownCells(np.column_stack(ends), np.ascontiguousarray(below.T), hope[order], best)


def strip_edges(scores: FloatArray) -> FloatArray:
    """Return the last scores of strips with about as many rows each, the last being infinity."""
    seen = np.sort(scores[:: max(1, len(scores) // _LOOKED_AT)], axis=0)
    edges = np.full((scores.shape[1], _STRIPS), np.inf)
    places = np.arange(1, _STRIPS) * len(seen) // _STRIPS
    for edge, column in zip(edges, seen.T, strict=True):
        distinct = np.unique(column[places])
        edge[: len(distinct)] = distinct
    return edges


class Box(NamedTuple):
    """A box: accept doubts that are at most their limits; and what it accepts."""

    limits: tuple[float, ...]
    id: int
    ood: int
    loss: int
    width: float
    """By how much all limits can grow, in spreads, before the box accepts more."""


class BoxFinder:
    """Finds boxes on points that are sorted at most once, for any number of programs."""

    def __init__(self, prepared: Prepared) -> None:
        self._engine = prepared.engine
        self._points = prepared.points.present()
        self._prepared = prepared
        scores = self._points.scores
        if scores.shape[1] > 2:
            raise InvalidInputError(
                f'shape="box" takes one or two scores, got {scores.shape[1]}: choose two of them'
            )
        # Beside a score that is always 0 there is one limit to be found.
        self._pairs = (
            scores if scores.shape[1] == 2 else np.column_stack([scores, np.zeros(len(scores))])
        )
        self._axes: tuple[LimitAxis, LimitAxis] | None = None

    def find(self, program: Program, search: Exact) -> tuple[Box | None, SearchCertificate]:
        """Return the best box, None if none meets the bounds, and how sure that is.

        Among boxes with the same masses the one wins whose limits can grow the most.
        """
        found = self._search_once(program, search)
        if not found.complete and len(found.limits) == 0 and not program.reject_all:
            raise InvalidInputError(
                f"the budget of {search.budget} boxes ended before any rule that meets the bounds "
                "was found or their infeasibility proven; raise budget"
            )
        boxes = self._distinct(found)
        bound = found.lower_bound
        if program.reject_all:
            bound = min(bound, 0.0)
            nothing = Box((-math.inf,) * self._points.scores.shape[1], 0, 0, 0, math.inf)
            if not boxes or self._is_worse(boxes[0], nothing, program):
                boxes = [nothing]
        best = min(boxes, key=lambda box: (-box.width, box.limits), default=None)
        lower = program.scale * bound + program.offset
        status: Status = "budget" if not found.complete else "gap" if search.gap else "optimal"
        return best, SearchCertificate(status, lower, found.cells)

    def _is_worse(self, box: Box, other: Box, program: Program) -> bool:
        objective, per_id, *_ = kernel_arguments(program)
        nI, nO, L = (np.array([getattr(b, m) for b in (box, other)]) for m in ("id", "ood", "loss"))
        return 0 not in exact.best(nI, nO, L, objective, per_id)

    def masses(self, program: Program, search: Exact) -> tuple[int, int, int] | None:
        """Return the ID, OOD and loss mass that the best box accepts; None if there is none."""
        found = self._search(program, search)
        if len(found.limits):
            return found.id, found.ood, found.loss
        return (0, 0, 0) if program.reject_all else None

    def _search_once(self, program: Program, search: Exact) -> BoxOptima:
        """Return the best boxes, without sorting rows that cannot matter."""
        if self._axes is not None or len(self._pairs) < MANY or search.budget is not None:
            return self._search(program, search)
        objective, masses = self._asked(program)
        kept = narrowed(self._engine, self._pairs, masses, objective, search.gap / program.scale)
        if kept is None:
            return self._search(program, search)
        axes, masses, known = kept
        gap = search.gap / program.scale
        return self._engine.limits(axes, masses, objective, gap=gap, known=known)

    def _search(self, program: Program, search: Exact) -> BoxOptima:
        if self._axes is None:
            self._axes = LimitAxis(self._pairs[:, 0]), LimitAxis(self._pairs[:, 1])
        objective, masses = self._asked(program)
        gap = search.gap / program.scale
        return self._engine.limits(self._axes, masses, objective, gap=gap, budget=search.budget)

    def _asked(self, program: Program) -> tuple[Objective, AxisMasses]:
        points = self._points
        bounds = LinearParts.of(program, points)
        extra = np.stack([points.part(p) for p in bounds.parts]) if bounds.parts else None
        objective = Objective(*kernel_arguments(program), bounds.linear)
        zero_one = points.is_zero_one()
        return objective, AxisMasses(points.id, points.ood, points.loss, extra, zero_one)

    def _distinct(self, found: BoxOptima) -> list[Box]:
        """Return the boxes found, one for each accepted set, with limits in the middle."""
        left = found.limits[:, : self._points.scores.shape[1]]
        if len(left) == 0:
            return []
        # Column by column: steps over the short axis of pairs are slow.
        columns = [np.ascontiguousarray(column) for column in self._points.scores.T]
        boxes: list[Box] = []
        while len(left):
            inside = _inside(columns, left[0])
            tight = np.array([np.where(inside, column, -np.inf).max() for column in columns])
            boxes.append(self._widened(columns, tight, inside, found))
            # A box with the same masses that holds this one accepts the same rows.
            left = left[~(left >= tight).all(axis=1)]
        return boxes

    def _widened(
        self, columns: list[FloatArray], tight: FloatArray, inside: BoolArray, found: BoxOptima
    ) -> Box:
        """Return the box midway between its own limits and those at which it accepts more."""
        spread = self._prepared.spread
        beyond = (columns[0] - tight[0]) / spread[0]
        for column, last, unit in zip(columns[1:], tight[1:], spread[1:], strict=True):
            np.maximum(beyond, (column - last) / unit, out=beyond)
        masses = found.id, found.ood, found.loss
        width = float(np.where(inside, np.inf, beyond).min())
        if width == math.inf:
            return Box(tuple(tight.tolist()), *masses, math.inf)
        # Nothing says how far a limit may go that no row is beyond.
        limited = np.array([column.max() for column in columns]) > tight
        wide = np.where(limited, tight + width / 2 * spread, tight)
        if np.count_nonzero(_inside(columns, wide)) != np.count_nonzero(inside):
            # float64 has nothing between the two.
            wide = tight
        return Box(tuple(wide.tolist()), *masses, width)


def _inside(columns: list[FloatArray], box: FloatArray) -> BoolArray:
    inside: BoolArray = columns[0] <= box[0]
    for column, limit in zip(columns[1:], box[1:], strict=True):
        inside &= column <= limit
    return inside
