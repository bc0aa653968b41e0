"""The best pair of limits: accept when each of two scores is at most its own limit.

A pair of limits is a pair of ranks, and masses only grow with either. A *cell* is a range of ranks
on each axis: every box in it accepts the rows below its low corner and at most those below its
high corner. Cells are taken apart, those that can hold nothing better than the best box known are
dropped, and what is left in the end are single boxes. Rows that cross a cell lie in one strip of
each axis, so a level of cells costs about as much as the rows of their strips.

Cells are judged in float64 with room for rounding; which box is better is decided by
`demur._kernels.exact` on integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels import exact
from demur._kernels.exact import Linear

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# How many bits of the ranks of each axis the first level of cells takes, and the others.
_FIRST, _NEXT = 7, 3
# So many entries of a level are held at a time.
_ROOM = 1 << 19
# So many promising cells are taken apart before the others: a better box spares cells.
_AHEAD = 4
# So many tied boxes are compared by their margin.
TIED = 1024
_DOUBT = 64 * np.finfo(np.float64).eps


class Objective(NamedTuple):
    """What is best and what is feasible; see `demur.core.program`."""

    coefficients: _Ints
    """Of loss, ID and OOD mass."""
    per_id: bool
    min_id: int
    max_ood: _Ints
    ratio: _Ints
    linear: Linear | None = None


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


class _LimitMasses:
    """Masses of rows, a column each: ID, loss, OOD of each set, and extra ones."""

    def __init__(self, id: _Ints, ood: _Ints, loss: _Ints, extra: _Ints | None) -> None:
        columns = [id, loss, *ood, *(() if extra is None else extra)]
        self.columns = [_spanned(column) for column in columns]
        self.sets = len(ood)
        self.zero_one = bool(((loss == 0) | (loss == id)).all())
        self.row_id, self.row_loss = id, loss

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


@dataclass(slots=True)
class _BestBox:
    """The best boxes so far, by their high ranks."""

    id: int = 0
    ood: int = 0
    loss: int = 0
    ranks: _Ints | None = None

    def value(self, objective: Objective) -> tuple[int, int]:
        """Return numerator and denominator of the objective."""
        loss, id_, ood = (int(c) for c in objective.coefficients)
        total = loss * self.loss + id_ * self.id + ood * self.ood
        return total, self.id if objective.per_id else 1

    def offer(self, ranks: _Ints, nI: _Ints, nO: _Ints, L: _Ints, objective: Objective) -> None:
        """Take boxes that are feasible: the best of them, if none known is better."""
        if self.ranks is not None:
            nI, nO, L = (
                np.append(masses, known)
                for masses, known in ((nI, self.id), (nO, self.ood), (L, self.loss))
            )
        kept = exact.best(nI, nO, L, objective.coefficients, objective.per_id)
        if len(kept) == 0:
            return
        self.id, self.ood, self.loss = int(nI[kept[0]]), int(nO[kept[0]]), int(L[kept[0]])
        found = ranks[kept[kept < len(ranks)]]
        if self.ranks is not None and kept[-1] == len(ranks):
            found = np.vstack([self.ranks, found])
        self.ranks = found[:TIED]


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


def search(
    axes: tuple[LimitAxis, LimitAxis],
    masses: tuple[_Ints, _Ints, _Ints, _Ints | None],
    objective: Objective,
    *,
    gap: float = 0.0,
    budget: int | None = None,
) -> BoxOptima:
    """Return all boxes that are optimal on points with these two scores.

    `masses` are ID, OOD of each set, loss, and extra ones that linear bounds are about. The search
    stops when no box can be better by more than `gap`, or after `budget` cells.
    """
    return _LimitSearch(axes, masses, objective, gap).run(budget)


class _LimitSearch:
    def __init__(
        self,
        axes: tuple[LimitAxis, LimitAxis],
        masses: tuple[_Ints, _Ints, _Ints, _Ints | None],
        objective: Objective,
        gap: float,
    ) -> None:
        self.axes = axes
        self.masses = _LimitMasses(*masses)
        self.objective, self.gap = objective, gap
        self.best = _BestBox()
        id_, ood, loss, _ = masses
        totals = loss.sum(), id_.sum(), ood.sum()
        self.size = float(np.abs(objective.coefficients.astype(np.float64)) @ totals)
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
        best = self.best
        open_ = min((float(cells.hope.min()) for cells in self.waiting), default=np.inf)
        if best.ranks is None:
            return BoxOptima(np.empty((0, 2)), 0, 0, 0, not self.waiting, open_, self.cells)
        total, per = best.value(self.objective)
        x, y = self.axes
        limits = np.column_stack([x.values[best.ranks[:, 0]], y.values[best.ranks[:, 1]]])
        lower = min(total / per - self.gap, open_)
        return BoxOptima(limits, best.id, best.ood, best.loss, not self.waiting, lower, self.cells)

    def _still_open(self, cells: _BoxCells) -> _BoxCells:
        """Return the cells that may hold a box better than the best, which may be new."""
        if self.best.ranks is None:
            return cells
        total, per = self.best.value(self.objective)
        # Quotients are of sums without a sign; other objectives may cancel to next to nothing.
        size = abs(total / per) if self.objective.per_id else self.size
        kept = cells.hope <= total / per - self.gap + _DOUBT * size
        return cells if kept.all() else _part(cells, kept)

    def _take_apart(self, cells: _BoxCells) -> None:
        """Judge the parts of cells, and keep those that may hold a better box."""
        first = _FIRST if len(cells.low) == 1 else _NEXT
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
        _accumulate(tables)
        low, high = tables[:, :, :-1, :-1], tables[:, :, 1:, 1:]
        corner = self._corners(cells, taken, left)
        inside = (corner[0] < len(self.axes[0])) & (corner[1] < len(self.axes[1]))
        self.cells += int(inside.sum())
        self._try(corner, left, inside, high)
        crossing = self._welcome(keys, rows, low, high)
        hope, kept = self._judge(low, high, crossing)
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
        """Offer the largest box of every part that is feasible."""
        objective, sets = self.objective, self.masses.sets
        at = np.flatnonzero(inside)
        masses = high.reshape(len(high), -1)[:, at].astype(np.int64)
        nI, L, nO = masses[0], masses[1], masses[2 : 2 + sets]
        met = exact.feasible(nI, nO, max(objective.min_id, 0), objective.max_ood, objective.ratio)
        total = nO.sum(axis=0)
        if objective.linear is not None:
            met[met] = exact.linear_met(
                objective.linear, np.vstack([nI, L, total, masses[2 + sets :]])[:, met]
            )
        # Two limits that no row meets are no box.
        met &= (nI > 0) if objective.per_id else (nI > 0) | (total > 0)
        found = np.flatnonzero(met)
        if len(found) == 0:
            return
        ends = [len(axis) - 1 for axis in self.axes]
        ranks = np.column_stack(
            [
                np.minimum(c.reshape(-1)[at[found]] + (1 << bits) - 1, end)
                for c, bits, end in zip(corner, left, ends, strict=True)
            ]
        )
        self.best.offer(ranks, nI[found], total[found], L[found], objective)

    def _welcome(
        self, keys: _Ints, rows: _Ints | None, low: _Floats, high: _Floats
    ) -> tuple[_Floats, _Floats, float]:
        """Return what crossing rows can take off the best objective, and with how much ID mass.

        Also what a unit of other ID mass would add at least.
        """
        loss, id_, _ = self._weights()
        crossing_id, crossing_loss = high[0] - low[0], high[1] - low[1]
        if self.masses.zero_one:
            right, wrong = id_, loss + id_
            correct = crossing_id - crossing_loss
            taken = min(right, 0.0) * correct + min(wrong, 0.0) * crossing_loss
            with_id = correct * (right <= 0) + crossing_loss * (wrong <= 0)
            return taken, with_id, max(0.0, min(wrong, right) if right > 0 else wrong)
        row_id, row_loss = self.masses.row_id, self.masses.row_loss
        if rows is not None:
            row_id, row_loss = row_id[rows], row_loss[rows]
        value = loss * row_loss + id_ * row_id
        shape = (low.shape[1], low.shape[2] + 1, low.shape[3] + 1)
        found: list[_Floats] = []
        for mass in (np.minimum(value, 0.0), np.where(value <= 0, row_id, 0.0)):
            table = np.bincount(keys, mass, int(np.prod(shape))).astype(np.float64)
            table = table.reshape(1, *shape)
            _accumulate(table)
            found.append(table[0, :, 1:, 1:] - table[0, :, :-1, :-1])
        return found[0], found[1], 0.0

    def _weights(self) -> tuple[float, float, float]:
        """Return what a unit of loss and ID mass is worth, the best box being worth 0."""
        loss, id_, _ = (float(c) for c in self.objective.coefficients)
        if not self.objective.per_id or self.best.ranks is None:
            return loss, id_, 1.0
        total, per = self.best.value(self.objective)
        return loss * per, id_ * per - float(total), float(per)

    def _judge(
        self, low: _Floats, high: _Floats, crossing: tuple[_Floats, _Floats, float]
    ) -> tuple[_Floats, _Bools]:
        """Return the least objective a part may hold, and whether it may hold a better box."""
        objective, sets = self.objective, self.masses.sets
        possible = self._possible(low, high)
        # Parts that no row crosses are known by their largest box.
        possible &= (high[0] > low[0]) | (high[2 : 2 + sets] > low[2 : 2 + sets]).any(axis=0)
        if self.best.ranks is None:
            return np.full(low.shape[1:], -np.inf), possible
        loss, id_, per = self._weights()
        taken, with_id, penalty = crossing
        ood = float(objective.coefficients[2]) * per
        certain_ood = low[2 : 2 + sets].sum(axis=0)
        least = loss * low[1] + id_ * low[0] + ood * certain_ood + taken
        reachable = low[0] + with_id
        if penalty:
            least += penalty * np.maximum(objective.min_id - reachable, 0.0)
            reachable = np.maximum(reachable, objective.min_id)
        total, denominator = self.best.value(objective)
        size = (
            abs(loss) * high[1].max()
            + abs(id_) * high[0].max()
            + ood * high[2 : 2 + sets].sum(0).max()
        )
        if not objective.per_id:
            least -= float(total)
            size += abs(float(total))
        doubt = 0.0 if size < 2.0**53 else _DOUBT * size
        smallest = np.maximum(np.maximum(low[0], objective.min_id), 1.0)
        scale = per * smallest if objective.per_id else 1.0
        hope = total / denominator + np.minimum(least - doubt, 0.0) / scale
        if self.gap:
            return hope, possible & (hope < total / denominator - self.gap)
        kept = least < 0 if doubt == 0 else least <= doubt
        if doubt == 0:
            tied = least == 0
            more = reachable > self.best.id
            alike = (reachable >= self.best.id) & (certain_ood <= self.best.ood)
            kept |= tied & (more | alike)
        return hope, possible & kept

    def _possible(self, low: _Floats, high: _Floats) -> _Bools:
        """Return where a part may hold a box that is feasible."""
        objective, sets = self.objective, self.masses.sets
        possible: _Bools = high[0] >= max(objective.min_id, int(objective.per_id))
        for accepted, most, (a, b) in zip(
            low[2 : 2 + sets], objective.max_ood, objective.ratio, strict=True
        ):
            possible &= accepted <= most
            if b > 0:
                possible &= float(b) * accepted <= float(a) * high[0] * (1 + _DOUBT)
        linear = objective.linear
        if linear is None:
            return possible
        total = low[2 : 2 + sets].sum(axis=0)
        certain = [low[0], low[1], total, *low[2 + sets :]]
        crossing = [high[k] - low[k] for k in (0, 1, *range(2 + sets, len(low)))]
        for terms, least, hope in zip(linear.coefficients, linear.least, linear.hope, strict=True):
            value, size = np.full(total.shape, -float(least)), abs(float(least))
            for weight, mass in (
                *zip(terms, certain, strict=True),
                *zip(hope, crossing, strict=True),
            ):
                if weight:
                    value += float(weight) * mass
                    size += abs(float(weight)) * mass.max(initial=0)
            possible &= value >= (0.0 if size < 2.0**53 else -_DOUBT * size)
        return possible


def _accumulate(tables: _Floats) -> None:
    np.cumsum(tables, axis=2, out=tables)
    np.cumsum(tables, axis=3, out=tables)


def _part(cells: _BoxCells, taken: slice | _Bools) -> _BoxCells:
    return _BoxCells(cells.low[taken], cells.base[:, taken], cells.hope[taken], cells.bits)


def _strips(axis: LimitAxis, low: _Ints, bits: int) -> tuple[_Ints, _Ints]:
    """Return for each cell the rows in its strip of an axis: cells, and rows."""
    first = axis.start[low]
    lengths = axis.start[low + (1 << bits)] - first
    cell = np.repeat(np.arange(len(low)), lengths)
    within = np.arange(len(cell)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return cell, axis.order[first[cell] + within]
