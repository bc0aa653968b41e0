"""The searches in plain NumPy: the definition of correct that faster engines must equal.

All thresholds of one score (`sweep`), all half-planes of two (`search_chart`), the best for every
pair of bounds (`BoundsTable`), and the widest line between two sides (`widest`).

Masses are int64. `nI`, `nO`, `L` are accepted ID mass, OOD mass per set and loss mass, as in
`demur.core.program`. Nothing is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.engines import midway
from demur._kernels.exact import DOUBT, Goal

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# PivotCells of a `BoundsTable` without an answer yet, and those that no rule meets.
_OPEN, _UNABLE = -2, -1
# How many points around the boundary are looked at before all of them are.
_NEARBY = 2048
_EPS = float(np.finfo(np.float64).eps)
_NORMAL = float(np.finfo(np.float64).tiny)
# Cutting planes end by themselves, unless rounding makes two points take turns.
_ROUNDS = 64


def along(direction: Any, x: Any, y: Any) -> Any:
    """Return the values of points along a direction: two products and a sum, each rounded."""
    return direction[0] * x + direction[1] * y


class Sweep(NamedTuple):
    """Cumulative masses at every distinct value of one score, ascending."""

    value: _Floats
    id: _Ints
    ood: _Ints
    loss: _Ints
    extra: _Ints
    """Shape (extra, values)."""

    def masses(self, row: int) -> tuple[int, int, int]:
        """Return the ID, OOD and loss mass accepted at a row."""
        return int(self.id[row]), int(self.ood[:, row].sum()), int(self.loss[row])


NO_EXTRA = np.zeros((0, 0), np.int64)


def sweep(
    values: _Floats,
    id_mass: _Ints,
    ood_mass: _Ints,
    loss_mass: _Ints,
    extra: _Ints | None = None,
) -> Sweep:
    """Sort once and accumulate; an operating point exists only after a whole group of ties.

    `extra` are masses of parts of the rows, shape (extra, n).
    """
    # The order within ties does not matter, so the fastest sort will do.
    order = np.argsort(values)
    ordered = values[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)])
    return Sweep(
        ordered[last],
        np.cumsum(id_mass[order])[last],
        np.cumsum(ood_mass[:, order], axis=1)[:, last],
        np.cumsum(loss_mass[order])[last],
        NO_EXTRA if extra is None else np.cumsum(extra[:, order], axis=1)[:, last],
    )


def best_of_sweep(swept: Sweep, goal: Goal) -> int | None:
    """Return the row of the best operating point of a sweep, None if none is feasible."""
    rows = np.flatnonzero(goal.met(swept.id, swept.ood, swept.loss, swept.extra))
    kept = goal.best(swept.id[rows], swept.ood.sum(axis=0)[rows], swept.loss[rows])
    return int(rows[kept[0]]) if len(kept) else None


class Merged(NamedTuple):
    """Distinct points in a chart, with the masses of their duplicates added up."""

    x: _Floats
    y: _Floats
    id: _Ints
    ood: _Ints
    loss: _Ints
    extra: _Ints


def merge(
    x: _Floats,
    y: _Floats,
    id_mass: _Ints,
    ood_mass: _Ints,
    loss_mass: _Ints,
    extra: _Ints | None = None,
) -> Merged:
    """Add up the masses of equal points; `extra` are those of parts of the rows."""
    if extra is None:
        extra = np.zeros((0, len(x)), np.int64)
    order = np.lexsort((y, x))
    xs, ys = x[order], y[order]
    first = np.flatnonzero(np.append(True, (xs[1:] != xs[:-1]) | (ys[1:] != ys[:-1]))[: len(xs)])
    if len(first) == 0:
        return Merged(xs, ys, id_mass, ood_mass, loss_mass, extra)
    return Merged(
        xs[first],
        ys[first],
        np.add.reduceat(id_mass[order], first),
        np.add.reduceat(ood_mass[:, order], first, axis=1),
        np.add.reduceat(loss_mass[order], first),
        np.add.reduceat(extra[:, order], first, axis=1) if len(extra) else extra[:, first],
    )


class PivotCells(NamedTuple):
    """Accepted sets of half-planes ``x + mu*y <= v`` whose boundary passes through a pivot.

    One row each, for any mu strictly between `low` and `high`; the pivot itself is accepted.
    """

    pivot: int
    low: _Floats
    high: _Floats
    id: _Ints
    ood: _Ints
    loss: _Ints
    extra: _Ints
    close: bool
    """Whether some are hardly apart, so that rounding may have put them in another order."""


def pivot_cells(points: Merged) -> Iterator[PivotCells]:
    """Enumerate the accepted sets of all half-planes with non-negative weights.

    The line that bounds a half-plane can be lowered until it touches an accepted point, the
    pivot i. Point j is then accepted when ``x_j + mu*y_j <= x_i + mu*y_i``, which changes at one
    mu at most. Sorting these mu gives every accepted set with pivot i. A set that exists only
    at a mu where several lines cross exists also beside it, with the line lifted a little, so
    open intervals between crossings suffice, and mu = 0 and infinity add nothing. Only points
    with ID mass are pivots: giving up an OOD point at the rim never hurts.
    """
    x, y = points.x, points.y
    for i in np.flatnonzero(points.id > 0):
        dx, dy = x - x[i], y - y[i]
        leaves, enters = (dx <= 0) & (dy > 0), (dx > 0) & (dy <= 0)
        crossing = np.flatnonzero(leaves | enters)
        with np.errstate(divide="ignore", over="ignore"):
            mu = np.abs(dx[crossing]) / np.abs(dy[crossing])
        order = np.argsort(mu)
        mu, crossing = mu[order], crossing[order]
        sign = np.where(enters[crossing], 1, -1)
        edges = np.concatenate([[0.0], mu, [np.inf]])
        # Equal quotients of exact differences are equal floats: ties leave no gap between them.
        keep = np.flatnonzero(edges[:-1] < edges[1:])
        yield PivotCells(
            int(i),
            edges[keep],
            edges[keep + 1],
            _running(points.id, dx <= 0, crossing, sign)[keep],
            np.stack([_running(ood, dx <= 0, crossing, sign)[keep] for ood in points.ood]),
            _running(points.loss, dx <= 0, crossing, sign)[keep],
            np.array(
                [_running(part, dx <= 0, crossing, sign)[keep] for part in points.extra], np.int64
            ),
            _are_close(mu, dx[crossing], dy[crossing]),
        )


def _are_close(mu: _Floats, dx: _Floats, dy: _Floats) -> bool:
    """Return whether quotients |dx/dy|, ascending, are too close for float64 to be sure."""
    # Coordinates that are equal are so for certain, and so are their quotients, 0 and infinite.
    proper = (dx != 0) & (dy != 0)
    mu = mu[proper]
    lost = (mu < _NORMAL) | (mu > 1 / _NORMAL)
    return bool(lost.any() or (np.diff(mu) <= DOUBT * mu[1:]).any())


class Meetings(NamedTuple):
    """Lines between the axes through a pivot and others, no pivot before it; one row each."""

    pivot: int
    other: _Ints
    """The last point on the line."""
    id: _Ints
    """Masses below the line, ..."""
    ood: _Ints
    loss: _Ints
    id_on: _Ints
    """... and on it."""


def meetings(points: Merged) -> Iterator[Meetings]:
    """Enumerate the lines that meet three points or more, of which there are pivots and others.

    A half-plane that ends just below such a line ends below all its points at once. Beside its
    direction some of them come first, whichever way it is turned.
    """
    x, y = points.x, points.y
    for i in np.flatnonzero(points.id > 0):
        dx, dy = x - x[i], y - y[i]
        leaves = (dx < 0) & (dy > 0)
        crossing = np.flatnonzero(leaves | ((dx > 0) & (dy < 0)))
        mu = dx[crossing] / -dy[crossing]
        order = np.lexsort((dx[crossing], mu))
        mu, crossing = mu[order], crossing[order]
        first = np.flatnonzero(np.append(True, mu[1:] != mu[:-1])[: len(mu)])
        if len(first) == 0:
            continue
        at_first = (dx < 0) | ((dx == 0) & (dy <= 0))
        sign = np.where(leaves[crossing], -1, 1)

        def on(mass: _Ints, crossing: _Ints = crossing, first: _Ints = first) -> _Ints:
            return np.asarray(np.add.reduceat(mass[crossing], first))

        own = points.ood.sum(axis=0)
        # Of two points one comes first on either side, unless each has masses of both kinds.
        few = (np.diff(np.append(first, len(mu))) == 1) & ((on(points.id) == 0) | (own[i] == 0))
        several = ~few & (on(points.id * leaves) == 0) & (on(own) > 0)
        id_, ood, loss = (
            (_running(mass, at_first, crossing, sign)[first] - mass[i] - on(mass * leaves))[several]
            for mass in (points.id, own, points.loss)
        )
        id_on = (points.id[i] + on(points.id))[several]
        last = np.append(first[1:], len(crossing)) - 1
        yield Meetings(int(i), crossing[last][several], id_, ood, loss, id_on)


def sides_of_line(points: Merged, i: int, j: int) -> _Ints:
    """Return on which side of the line through two points each point lies, exactly: -1, 0 or 1."""
    x, y = points.x, points.y
    step, fall = x[j] - x[i], y[i] - y[j]
    side = (x - x[i]) * fall + (y - y[i]) * step
    size = (np.abs(x) + abs(x[i])) * fall + (np.abs(y) + abs(y[i])) * step
    found: _Ints = np.sign(side).astype(np.int64)
    (xi, yi), (xj, yj) = ((Fraction(float(x[k])), Fraction(float(y[k]))) for k in (i, j))
    for k in np.flatnonzero(np.abs(side) <= 16 * _EPS * size):
        xk, yk = Fraction(float(x[k])), Fraction(float(y[k]))
        exactly = (xk - xi) * (yi - yj) + (yk - yi) * (xj - xi)
        found[k] = (exactly > 0) - (exactly < 0)
    return found


def _running(mass: _Ints, at_first: _Bools, crossing: _Ints, sign: _Ints) -> _Ints:
    start = int(mass[at_first].sum())
    return np.concatenate([[start], start + np.cumsum(sign * mass[crossing])])


def weights_between(low: _Floats, high: _Floats) -> _Floats:
    """Return weights (p, q), shape (n, 2), with low < q/p < high, larger weight 1."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        mu = np.sqrt(low) * np.sqrt(high)
    mu = np.where(low == 0, high / 2, mu)
    mu = np.where(np.isinf(high), 2 * low, mu)
    mu = np.where((low == 0) & np.isinf(high), 1.0, mu)
    mu = np.where((low < mu) & (mu < high), mu, low + (high - low) / 2)
    large = mu > 1
    return np.column_stack([np.where(large, 1 / np.where(large, mu, 1), 1), np.minimum(mu, 1)])


class ChartOptimum(NamedTuple):
    """Half-planes ``p*x + q*y <= v``, (p, q) the rows of `weights`, that are equally good.

    They share the accepted ID, OOD and loss mass.
    """

    weights: _Floats
    v: _Floats
    id: int
    ood: int
    loss: int


def search_chart(points: Merged, goal: Goal) -> ChartOptimum | None:
    """Return the optimal half-planes with non-negative weights, or None if none is feasible."""
    rows: list[tuple[float, float, int, int, int, int]] = []
    for cells in pivot_cells(points):
        rim = np.flatnonzero(goal.met(cells.id, cells.ood, cells.loss, cells.extra))
        nO = cells.ood.sum(axis=0)
        for k in rim[goal.best(cells.id[rim], nO[rim], cells.loss[rim])]:
            rows.append(
                (cells.low[k], cells.high[k], cells.pivot, cells.id[k], nO[k], cells.loss[k])
            )
    if not rows:
        return None
    low, high, pivot, nI, nO, L = (np.array(column) for column in zip(*rows, strict=True))
    kept = goal.best(nI, nO, L)
    weights = weights_between(low[kept], high[kept])
    v = along(weights.T, points.x[pivot[kept]], points.y[pivot[kept]])
    first = kept[0]
    return ChartOptimum(weights, v, int(nI[first]), int(nO[first]), int(L[first]))


class BoundsTable:
    """Which answer is best for which pair of bounds, filled in from loose bounds to tight ones.

    What is best under loose bounds stays best under all tighter ones that it meets, since
    tightening only takes rivals away. So each answer settles a whole rectangle of bounds, and
    bounds that cannot be met settle all tighter ones.
    """

    def __init__(self, min_id: _Ints, max_ood: _Ints) -> None:
        """Take bounds on ID mass (rows,) and on OOD masses (sets, columns), both ascending."""
        self._min_id, self._max_ood = min_id, max_ood
        self.cells: _Ints = np.full((len(min_id), max_ood.shape[1]), _OPEN)
        """Which of the answers each pair has, in the order they came; -1 for none."""
        self._answers = 0

    def open_cells(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs that need a search, the loosest first; each must then be settled."""
        rows, columns = self.cells.shape
        for row in range(rows):
            for column in range(columns - 1, -1, -1):
                if self.cells[row, column] == _OPEN:
                    yield row, column

    def settle(self, row: int, column: int, nI: int, nO: _Ints | None) -> None:
        """Hand the next answer, which accepts nI and nO, to all pairs it is the best for.

        Without `nO`, the OOD mass of each set, it goes to pairs of the same column only.
        """
        last = int(np.searchsorted(self._min_id, nI, side="right"))
        first = column
        if nO is not None:
            pairs = zip(self._max_ood, nO, strict=True)
            first = int(max(np.searchsorted(levels, mass) for levels, mass in pairs))
        self._set(self.cells[row:last, first : column + 1], self._answers)
        self._answers += 1

    def rule_out(self, row: int, column: int) -> None:
        """Note that nothing meets a pair of bounds, nor any tighter one."""
        self._set(self.cells[row:, : column + 1], _UNABLE)

    @staticmethod
    def _set(cells: _Ints, value: int) -> None:
        cells[cells == _OPEN] = value


def sides(scores: _Floats, accepted: _Bools, direction: Any) -> tuple[float, float]:
    """Return the last accepted and the first rejected value along a direction."""
    with np.errstate(over="ignore"):
        values = along(direction, *scores.T)
    last = np.where(accepted, values, -np.inf).max(initial=-np.inf)
    return float(last), float(np.where(accepted, np.inf, values).min(initial=np.inf))


def settle(scores: _Floats, line: _Floats) -> _Floats:
    """Return a line with unit weights and a threshold midway between the two sides.

    That is the last accepted value where nothing is between, or no point is rejected.
    """
    unit = line[:2] / np.hypot(line[0], line[1])
    with np.errstate(over="ignore", invalid="ignore"):
        last, following = sides(scores, along(line, *scores.T) <= line[2], unit)
    return np.append(unit, midway(last, following))


def count(scores: _Floats, masses: _Ints, lines: _Floats) -> _Ints:
    """Return the sums of masses, shape (kinds, n), that lines accept, shape (lines, kinds)."""
    accepted = np.zeros((len(lines), len(masses)), np.int64)
    directions, which = np.unique(lines[:, :-1], axis=0, return_inverse=True)
    by_direction = np.argsort(which.ravel(), kind="stable")
    ends = np.searchsorted(which.ravel()[by_direction], np.arange(len(directions) + 1))
    for direction, start, stop in zip(directions, ends[:-1], ends[1:], strict=True):
        rows = by_direction[start:stop]
        rows = rows[np.argsort(lines[rows, -1])]
        with np.errstate(over="ignore", invalid="ignore"):
            values = direction[0] * scores[:, 0]
            if len(direction) == 2:
                values = along(direction, *scores.T)
        # The first threshold that accepts each point.
        first = np.searchsorted(lines[rows, -1], values)
        for kind, mass in enumerate(masses):
            # Masses add up to less than 2**52, so floats hold the sums exactly.
            added = np.bincount(first, weights=mass, minlength=len(rows) + 1)
            accepted[rows, kind] = np.cumsum(added[: len(rows)])
    return accepted


def widest(
    scores: _Floats, accepted: _Bools, start: Any, scale: _Floats, nonneg: tuple[bool, bool]
) -> tuple[float, float, float]:
    """Return the direction with the widest gap between the two sides, and its width.

    Every half-plane with the same accepted set has the same operating point; the one whose
    boundary keeps the largest distance from both sides is the most robust. Distances are
    measured after dividing each score by `scale`, so that units do not matter. `nonneg` tells
    which weights may not be negative.

    Cutting planes: solve for the few points seen so far, look for the points that come
    closest in the direction found, and repeat until these are known already. The points around
    the boundary go first, so that one look at all of them usually ends it. `start` must
    separate the sides.
    """
    if accepted.all():
        return 1 / float(scale[0]), 1 / float(scale[1]), math.inf
    around = _around_boundary(scores, accepted, start)
    nearby = _LineSides(scores[around], accepted[around], scale)
    everything = _LineSides(scores, accepted, scale)
    first = np.array(start) * scale
    near, far = (point[None] for point in nearby.closest(first))
    _, _, near, far = _cut(nearby, near, far, nonneg)
    direction, width, _, _ = _cut(everything, near, far, nonneg)
    if width <= 0:
        # Rounding has eaten the gap of every direction but the one that came.
        direction, width = first, everything.width(first)
    return float(direction[0] / scale[0]), float(direction[1] / scale[1]), width


class _LineSides:
    """Points of the two sides; what comes out is in units of the scale."""

    def __init__(self, scores: _Floats, accepted: _Bools, scale: _Floats) -> None:
        self._scores, self._accepted, self._scale = scores, accepted, scale

    def closest(self, direction: _Floats) -> tuple[_Floats, _Floats]:
        """Return the last accepted and the first rejected point in a direction."""
        values = along(direction / self._scale, *self._scores.T)
        inside = np.argmax(np.where(self._accepted, values, -np.inf))
        outside = np.argmin(np.where(self._accepted, np.inf, values))
        return self._scores[inside] / self._scale, self._scores[outside] / self._scale

    def width(self, direction: _Floats) -> float:
        """Return the width of the gap in a direction; negative when the sides overlap."""
        return _gap(*self.closest(direction), direction)


def _gap(inside: _Floats, outside: _Floats, direction: _Floats) -> float:
    return float(along(direction, *(outside - inside)) / np.hypot(*direction))


def _around_boundary(scores: _Floats, accepted: _Bools, start: Any) -> _Ints:
    """Return the rows of some points on each side that are closest to the boundary."""
    values = along(start, *scores.T)
    rows = []
    for side, sign in ((accepted, -1.0), (~accepted, 1.0)):
        members = np.flatnonzero(side)
        if len(members) > _NEARBY:
            members = members[np.argpartition(sign * values[members], _NEARBY)[:_NEARBY]]
        rows.append(members)
    return np.concatenate(rows)


def _cut(
    sides: _LineSides, near: _Floats, far: _Floats, nonneg: tuple[bool, bool]
) -> tuple[_Floats, float, _Floats, _Floats]:
    """Return the widest direction, its width, and the points of each side that decide it."""
    best, best_width = np.zeros(2), -math.inf
    for _ in range(_ROUNDS):
        direction = _widest_of_few(near, far, nonneg)
        inside, outside = sides.closest(direction)
        width = _gap(inside, outside, direction)
        if width > best_width:
            best, best_width = direction, width
        known_inside, known_outside = _has(near, inside), _has(far, outside)
        if known_inside and known_outside:
            break
        near = near if known_inside else np.vstack([near, inside])
        far = far if known_outside else np.vstack([far, outside])
    return best, best_width, near, far


def _widest_of_few(near: _Floats, far: _Floats, nonneg: tuple[bool, bool]) -> _Floats:
    """Try every direction that can be the widest between two small sets.

    The widest gap is spanned by two points, or by an edge of one side and a point of the
    other, or is cut off where the directions end.
    """
    spanned = (far[:, None] - near[None, :]).reshape(-1, 2)
    edges = np.vstack([_edges(near), _edges(far)])
    normals = np.column_stack([-edges[:, 1], edges[:, 0]])
    ends = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    tried = np.vstack([spanned, normals, -normals, ends])
    for column, must_not_be_negative in enumerate(nonneg):
        if must_not_be_negative:
            tried = tried[tried[:, column] >= 0]
    length = np.hypot(tried[:, 0], tried[:, 1])
    tried = tried[length > 0] / length[length > 0, None]
    first, last = (along(tried.T[..., None], *side.T) for side in (far, near))
    widest: _Floats = tried[np.argmax(first.min(axis=1) - last.max(axis=1))]
    return widest


def _edges(corners: _Floats) -> _Floats:
    i, j = np.triu_indices(len(corners), 1)
    return corners[j] - corners[i]


def _has(rows: _Floats, row: _Floats) -> bool:
    return bool((rows == row).all(axis=1).any())
