"""The best pair of limits: accept when each of two scores is at most its own limit.

A pair of limits is a pair of ranks, and masses only grow with either. A *cell* is a range of ranks
on each axis: every box in it accepts the rows below its low corner and at most those below its
high corner. Cells are taken apart, those that can hold nothing better than the best box known are
dropped, and what is left in the end are single boxes. Rows that cross a cell lie in one strip of
each axis, so a level of cells costs about as much as the rows of their strips.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.box_cells import (
    STRIPS,
    AxisMasses,
    CellJudge,
    Welcome,
    accumulate,
    open_cells,
    strip_edges,
)
from demur._kernels.exact import Goal

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# So many rows are worth telling apart before they are sorted, if no larger part of them is left.
MANY = 50_000
_MOST_LEFT = 0.6
# How many bits of the ranks of each axis the first level of cells takes, and the others.
STEPS = (7, 3)
# So many entries of a level are held at a time.
_ROOM = 1 << 19
# So many promising cells are taken apart before the others: a better box spares cells.
_AHEAD = 4


class BoxOptima(NamedTuple):
    """All boxes found to be optimal, none if no box is feasible."""

    limits: _Floats
    """Shape (m, 2): the last score accepted on each axis."""
    id: int
    ood: int
    loss: int
    complete: bool
    """Whether all cells were looked at."""
    lower_bound: float
    """No box has a smaller objective."""
    cells: int


class LimitAxis:
    """The ranks of one score, sorted once for many searches."""

    def __init__(self, values: _Floats) -> None:
        self.order = np.argsort(values)
        ascending = values[self.order]
        first = np.empty(len(values), bool)
        first[:1] = True
        np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
        starts = np.flatnonzero(first)
        self.values = ascending[starts]
        self.rank = np.empty(len(values), np.int64)
        self.rank[self.order] = np.cumsum(first) - 1
        self.bits = max(0, len(starts) - 1).bit_length()
        # Where the rows of a rank begin in `order`, also for ranks that nothing has.
        self.start = np.full((1 << self.bits) + 1, len(values), np.int64)
        self.start[: len(starts)] = starts

    def __len__(self) -> int:
        return len(self.values)


class BoxMargin(NamedTuple):
    """How far a box may grow before it accepts more rows."""

    tight: _Floats
    """The largest scores of its rows."""
    wide: _Floats
    """Midway between these and the limits at which it accepts more, where any row is beyond."""
    width: float
    """By how much all limits can grow, in units, before it does."""


class LimitMasses:
    """Masses of rows, a column each: ID, loss, OOD of each set, and extra ones."""

    def __init__(self, masses: AxisMasses) -> None:
        id_, ood, loss, extra, self.zero_one = masses
        columns = [id_, loss, *ood, *(() if extra is None else extra)]
        self.columns = [_spanned(column) for column in columns]
        self.sets = len(ood)
        self.row_id, self.row_loss = id_, loss

    def tables(self, keys: _Ints, rows: _Ints | None, size: int) -> _Floats:
        """Return the mass of each key, shape (columns, size); `rows` have the keys, None if all."""
        return np.stack([_binned(column, keys, rows, size) for column in self.columns])


class _Span(NamedTuple):
    """The rows from `first` to `end` have this mass, all others none."""

    first: int
    end: int
    mass: _Floats | None
    """None if it is 1 for every row."""


def _spanned(mass: _Ints | _Floats) -> _Span:
    some = np.flatnonzero(mass)
    if len(some) == 0:
        return _Span(0, 0, None)
    first, end = int(some[0]), int(some[-1]) + 1
    inside = mass[first:end]
    plain = len(some) == end - first and bool((inside == 1).all())
    return _Span(first, end, None if plain else inside.astype(np.float64))


def _binned(span: _Span, keys: _Ints, rows: _Ints | None, size: int) -> _Floats:
    first, end, mass = span
    if rows is None:
        taken, weight = keys[first:end], mass
    else:
        inside = np.flatnonzero((rows >= first) & (rows < end))
        taken = keys[inside]
        weight = None if mass is None else mass[rows[inside] - first]
    return np.bincount(taken, weight, size).astype(np.float64)


class _BoxCells(NamedTuple):
    """Cells of one size: first ranks of each axis, and the masses below their low corners."""

    low: _Ints
    """Shape (cells, 2)."""
    base: _Floats
    """Shape (columns, cells)."""
    hope: _Floats
    """No box of a cell has a smaller objective."""
    bits: tuple[int, int]
    """Ranks of a cell, as powers of two."""


def count_cells(
    scores: _Floats, edges: _Floats, masses: AxisMasses
) -> tuple[npt.NDArray[np.uint16], _Ints]:
    """Return the cell that each row is in, and the masses of all cells, shape (columns, cells).

    `edges`, shape (2, strips), are the last scores of the strips that each axis is cut into,
    ascending up to infinity; the cells are those of the first strip, then those of the second, ...
    """
    x, y = (np.searchsorted(edge, column) for edge, column in zip(edges, scores.T, strict=True))
    keys = (x * edges.shape[1] + y).astype(np.int64)
    tables = LimitMasses(masses).tables(keys, None, edges.shape[1] ** 2)
    return keys.astype(np.uint16), tables.astype(np.int64)


def search(
    scores: _Floats,
    masses: AxisMasses,
    goal: Goal,
    *,
    gap: float = 0.0,
    budget: int | None = None,
) -> BoxOptima:
    """Return all boxes that are optimal on rows with two scores, shape (n, 2).

    The search stops when no box can be better by more than `gap`, or after `budget` cells.
    """
    kept = None
    if len(scores) >= MANY and budget is None:
        kept = narrowed(scores, masses, goal, gap)
    axes, masses = kept or ((LimitAxis(scores[:, 0]), LimitAxis(scores[:, 1])), masses)
    return _LimitSearch(axes, masses, goal, gap).run(budget)


class KeptRows(NamedTuple):
    """Rows of open strips, and one for each cell of all other rows."""

    axes: tuple[LimitAxis, LimitAxis]
    """Where its strip is not open, a row is at the strip's last score."""
    masses: AxisMasses


def narrowed(scores: _Floats, masses: AxisMasses, goal: Goal, gap: float) -> KeptRows | None:
    """Return the rows that can matter to the best boxes; None if these are most of them.

    Each axis is cut into strips. By the masses of the cells that they make most of these can hold
    no limits that are better than the best of those between cells: where both axes are in strips
    without any cell that can, rows are counted together.
    """
    edges = strip_edges(scores)
    keys, tables = count_cells(scores, edges, masses)
    judge = CellJudge(goal, len(masses.ood), len(scores), gap)
    is_open = open_cells(
        tables.reshape(-1, STRIPS, STRIPS),
        judge,
        None if masses.zero_one else lambda: _welcome(judge, keys, masses),
    )
    open_strips = np.any(is_open, axis=1), np.any(is_open, axis=0)
    # Where a strip is not open the best limits are at its end, or not in it.
    inside = (open_strips[0][:, None] | open_strips[1]).reshape(-1)
    rows = np.flatnonzero(inside[keys])
    if len(rows) > _MOST_LEFT * len(scores):
        return None
    merged = np.flatnonzero(tables.any(axis=0) & ~inside)
    strips = divmod(np.concatenate([keys[rows], merged]), STRIPS)
    axes = []
    for axis, strip in enumerate(strips):
        value = np.minimum(edges[axis], scores[:, axis].max())[strip]
        true = np.flatnonzero(open_strips[axis][strip[: len(rows)]])
        value[true] = scores[rows[true], axis]
        axes.append(LimitAxis(value))
    return KeptRows((axes[0], axes[1]), _joined(masses, rows, tables[:, merged]))


def _welcome(judge: CellJudge, keys: npt.NDArray[np.uint16], masses: AxisMasses) -> Welcome:
    side, cells = STRIPS + 1, np.arange(STRIPS**2)
    places = cells + cells // STRIPS + side + 1
    return welcome_of_rows(judge, places[keys], masses.id, masses.loss, (side, side))


def _joined(masses: AxisMasses, rows: _Ints, counted: _Ints) -> AxisMasses:
    """Return the masses of some rows, and of those that are counted together."""
    sets, extra = 2 + len(masses.ood), masses.extra
    return AxisMasses(
        np.concatenate([masses.id[rows], counted[0]]),
        np.concatenate([masses.ood[:, rows], counted[2:sets]], axis=1),
        np.concatenate([masses.loss[rows], counted[1]]),
        None if extra is None else np.concatenate([extra[:, rows], counted[sets:]], axis=1),
        masses.zero_one,
    )


class _LimitSearch:
    def __init__(
        self,
        axes: tuple[LimitAxis, LimitAxis],
        masses: AxisMasses,
        goal: Goal,
        gap: float,
    ) -> None:
        self.axes = axes
        self.masses = LimitMasses(masses)
        self.judge = CellJudge(goal, self.masses.sets, len(masses.id), gap)
        totals = masses.loss.sum(), masses.id.sum(), masses.ood.sum()
        self.size = float(np.abs(goal.objective.astype(np.float64)) @ totals)
        self.cells = 0
        self.waiting: list[_BoxCells] = []

    def run(self, budget: int | None) -> BoxOptima:
        x, y = self.axes
        if len(x):
            base = np.zeros((len(self.masses.columns), 1))
            hope = np.full(1, -np.inf)
            self.waiting.append(_BoxCells(np.zeros((1, 2), np.int64), base, hope, (x.bits, y.bits)))
        while self.waiting and (budget is None or self.cells < budget):
            cells = self._still_open(self.waiting.pop())
            if len(cells.low):
                self._take_apart(cells)
        return self._found()

    def _found(self) -> BoxOptima:
        best = self.judge.best
        open_ = min((float(cells.hope.min()) for cells in self.waiting), default=np.inf)
        if best.ranks is None:
            return BoxOptima(np.empty((0, 2)), 0, 0, 0, not self.waiting, open_, self.cells)
        total, per = best.value(self.judge.goal)
        x, y = self.axes
        limits = np.column_stack([x.values[best.ranks[:, 0]], y.values[best.ranks[:, 1]]])
        lower = min(total / per - self.judge.gap, open_)
        return BoxOptima(limits, best.id, best.ood, best.loss, not self.waiting, lower, self.cells)

    def _still_open(self, cells: _BoxCells) -> _BoxCells:
        """Return the cells that may hold a box better than the best, which may be new."""
        kept = self.judge.still_open(cells.hope, self.size)
        return cells if kept.all() else _part(cells, kept)

    def _take_apart(self, cells: _BoxCells) -> None:
        """Judge the parts of cells, and keep those that may hold a better box."""
        first = STEPS[0] if len(cells.low) == 1 else STEPS[1]
        taken = min(cells.bits[0], first), min(cells.bits[1], first)
        left = cells.bits[0] - taken[0], cells.bits[1] - taken[1]
        shape = (1 << taken[0]) + 1, (1 << taken[1]) + 1
        fits = self._fitting(cells, shape[0] * shape[1])
        if fits < len(cells.low):
            self.waiting.append(_part(cells, slice(fits, None)))
            cells = _part(cells, slice(fits))
        keys, rows = self._keys(cells, left, shape)
        size = len(cells.low) * shape[0] * shape[1]
        tables = self.masses.tables(keys, rows, size).reshape(-1, len(cells.low), *shape)
        tables[:, :, 0, 0] += cells.base
        accumulate(tables)
        low, high = tables[:, :, :-1, :-1], tables[:, :, 1:, 1:]
        corner = self._corners(cells, taken, left)
        inside = (corner[0] < len(self.axes[0])) & (corner[1] < len(self.axes[1]))
        self.cells += int(inside.sum())
        self._try(corner, left, inside, high)
        crossing = self._welcome(keys, rows, low, high)
        hope, kept = self.judge.judge(low, high, crossing)
        kept &= inside
        if left == (0, 0):
            return
        where = np.flatnonzero(kept)
        if len(where) == 0:
            return
        where = where[np.argsort(hope.reshape(-1)[where], kind="stable")]
        ranks = np.column_stack([c.reshape(-1)[where] for c in corner])
        base = low.reshape(len(low), -1)[:, where]
        found = _BoxCells(ranks, base, hope.reshape(-1)[where], left)
        if len(where) > _AHEAD:
            self.waiting.append(_part(found, slice(_AHEAD, None)))
        self.waiting.append(_part(found, slice(_AHEAD)))

    def _fitting(self, cells: _BoxCells, size: int) -> int:
        """Return how many of the cells are taken apart at a time."""
        most = max(1, _ROOM // (size * (len(self.masses.columns) + 4)))
        strips = sum(
            axis.start[low + (1 << bits)] - axis.start[low]
            for axis, low, bits in zip(self.axes, cells.low.T, cells.bits, strict=True)
        )
        return max(1, min(most, int(np.searchsorted(np.cumsum(strips), _ROOM, side="right"))))

    def _keys(
        self, cells: _BoxCells, left: tuple[int, int], shape: tuple[int, int]
    ) -> tuple[_Ints, _Ints | None]:
        """Return the place of each row that crosses a cell among the parts of it.

        Place 0 on an axis is below the cell, where all parts accept.
        """
        x, y = self.axes
        if len(cells.low) == 1 and cells.bits == (x.bits, y.bits):
            return ((x.rank >> left[0]) + 1) * shape[1] + (y.rank >> left[1]) + 1, None
        cell, rows = _strips(x, cells.low[:, 0], cells.bits[0])
        place = ((x.rank[rows] - cells.low[cell, 0]) >> left[0]) + 1
        other = y.rank[rows] - cells.low[cell, 1]
        near = np.flatnonzero(other < 1 << cells.bits[1])
        cell, rows, place, other = cell[near], rows[near], place[near], other[near]
        keys = (cell * shape[0] + place) * shape[1] + (np.maximum(other, -1) >> left[1]) + 1
        keys = np.where(other < 0, (cell * shape[0] + place) * shape[1], keys)
        cell, below = _strips(y, cells.low[:, 1], cells.bits[1])
        near = np.flatnonzero(x.rank[below] < cells.low[cell, 0])
        cell, below = cell[near], below[near]
        place = ((y.rank[below] - cells.low[cell, 1]) >> left[1]) + 1
        more = cell * shape[0] * shape[1] + place
        return np.concatenate([keys, more]), np.concatenate([rows, below])

    def _corners(
        self, cells: _BoxCells, taken: tuple[int, int], left: tuple[int, int]
    ) -> tuple[_Ints, _Ints]:
        """Return the first ranks of all parts of all cells, shape (cells, parts, parts)."""
        first, second = (np.arange(1 << taken[k]) << left[k] for k in (0, 1))
        full = len(cells.low), len(first), len(second)
        return (
            np.broadcast_to(cells.low[:, 0, None, None] + first[:, None], full),
            np.broadcast_to(cells.low[:, 1, None, None] + second, full),
        )

    def _try(
        self, corner: tuple[_Ints, _Ints], left: tuple[int, int], inside: _Bools, high: _Floats
    ) -> None:
        """Offer the largest box of every part."""
        at = np.flatnonzero(inside)
        last = [
            np.minimum(c.reshape(-1)[at] + (1 << bits) - 1, len(axis) - 1)
            for c, bits, axis in zip(corner, left, self.axes, strict=True)
        ]
        masses = high.reshape(len(high), -1)[:, at].astype(np.int64)
        self.judge.offer((last[0], last[1]), masses)

    def _welcome(self, keys: _Ints, rows: _Ints | None, low: _Floats, high: _Floats) -> Welcome:
        if self.masses.zero_one:
            return self.judge.welcome(low, high)
        row_id, row_loss = self.masses.row_id, self.masses.row_loss
        if rows is not None:
            row_id, row_loss = row_id[rows], row_loss[rows]
        shape = (low.shape[1], low.shape[2] + 1, low.shape[3] + 1)
        return welcome_of_rows(self.judge, keys, row_id, row_loss, shape)


def welcome_of_rows(
    judge: CellJudge, keys: _Ints, row_id: _Ints, row_loss: _Ints, shape: tuple[int, ...]
) -> Welcome:
    """Return what crossing rows are worth, by the place of each row in tables of a shape."""
    loss, id_, _ = judge.weights()
    value = loss * row_loss + id_ * row_id
    found: list[_Floats] = []
    for mass in (np.minimum(value, 0.0), np.where(value <= 0, row_id, 0.0)):
        table = np.bincount(keys, mass, int(np.prod(shape))).astype(np.float64).reshape(shape)
        accumulate(table)
        found.append(table[..., 1:, 1:] - table[..., :-1, :-1])
    return Welcome(found[0], found[1])


def _part(cells: _BoxCells, taken: slice | _Bools) -> _BoxCells:
    return _BoxCells(cells.low[taken], cells.base[:, taken], cells.hope[taken], cells.bits)


def _strips(axis: LimitAxis, low: _Ints, bits: int) -> tuple[_Ints, _Ints]:
    """Return for each cell the rows in its strip of an axis: cells, and rows."""
    first = axis.start[low]
    lengths = axis.start[low + (1 << bits)] - first
    cell = np.repeat(np.arange(len(low)), lengths)
    within = np.arange(len(cell)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return cell, axis.order[first[cell] + within]


def box_margin(scores: _Floats, box: _Floats, unit: _Floats) -> BoxMargin:
    """Return how far a box may grow before it accepts more rows, in units of each score."""
    # Column by column: steps over the short axis of pairs are slow.
    columns = [np.ascontiguousarray(column) for column in scores.T]
    inside = _inside(columns, box)
    tight = np.array([np.where(inside, column, -np.inf).max() for column in columns])
    # Scores as far apart as float64 goes are infinitely far apart.
    with np.errstate(over="ignore"):
        steps = [(column - tight[k]) / unit[k] for k, column in enumerate(columns)]
    width = float(np.where(inside, np.inf, np.maximum(*steps)).min())
    if width == np.inf:
        return BoxMargin(tight, tight, width)
    # Nothing says how far a limit may go that no row is beyond.
    limited = np.array([column.max() for column in columns]) > tight
    with np.errstate(over="ignore"):
        wide = np.where(limited, tight + width / 2 * unit, tight)
    if np.count_nonzero(_inside(columns, wide)) != np.count_nonzero(inside):
        # float64 has nothing between the two.
        wide = tight
    return BoxMargin(tight, wide, width)


def _inside(columns: list[_Floats], box: _Floats) -> _Bools:
    inside: _Bools = (columns[0] <= box[0]) & (columns[1] <= box[1])
    return inside
