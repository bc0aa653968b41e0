"""The best cells found so far, and a good first one.

The best are compared on integers and proved on all points. A good first one comes from directions
to start with, if any are given, and from directions tried on a coarse level of the tree, then on
all points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.engines import midway
from demur._kernels.exact_walk import is_certain
from demur._kernels.numpy_engine.bounds import Best, Cheap, Prices, Problem
from demur._kernels.numpy_engine.boxes import Chart, Edges
from demur._kernels.numpy_engine.splitting import gather
from demur._kernels.numpy_engine.strips import LeafCells, cells_along, cells_on_line, worth
from demur._kernels.numpy_engine.tree import ID, LOSS, TAG, Tree
from demur._kernels.reference import along

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

# Equally good cells kept; fewer when each takes long to prove.
_MOST = 256
_WORK = 50_000_000
# Nodes and directions of the first look, and how many of these are looked at closely.
_NODES = 4096
_DIRECTIONS = 16
_TRIED = 2
# Part of the nodes on either side of the coarse threshold that the second look covers.
_WINDOW = 0.02
# What is met in passing is looked at closely if it is better by so much, relatively, and until
# that was in vain for so many times: float64 may not hold what it seems to find.
_GAIN = 1e-12
_MISSES = 16


class HalfPlane(NamedTuple):
    """A half-plane of points, by a (t, v) well inside its cell."""

    weights: _Floats
    v: float
    room: float
    mass: _Floats


class Incumbent:
    """The best cells so far, equal in value, nI and nO; `best` is None until one is feasible."""

    def __init__(self, tree: Tree, problem: Problem, *, certain: bool = False) -> None:
        self.best: Best | None = None
        self.problem = problem
        self._tree = tree
        self._certain = certain
        self._most = int(np.clip(_WORK // max(tree.points, 1), 8, _MOST))
        # By tag, which identifies the accepted set.
        self._cells: dict[float, HalfPlane] = {}
        self._sure: HalfPlane | None = None
        self._failed: dict[float, float] = {}
        n, frame = tree.points, tree.frame
        self._points = tree.corner[0, :n], tree.corner[2, :n]
        self._scores = self._points
        if not frame.plain:
            parts = zip(self._points, frame.shift, frame.divisor, strict=True)
            x, y = ((point + shift) / divisor for point, shift, divisor in parts)
            self._scores = x, y

    @property
    def full(self) -> bool:
        """Return whether enough equally good cells are known."""
        return len(self._cells) >= self._most

    @property
    def limit(self) -> float:
        """Return a value that no cell worth a closer look exceeds."""
        return np.inf if self.best is None else self.best.value + 1e-12 * abs(self.best.value)

    def offer(self, chart: Chart, cells: LeafCells) -> _Ints:
        """Take in the cells that are better than, or as good as, those known.

        Return the boxes of those that float64 does not reproduce.
        """
        nI, L = (cells.mass[k].astype(np.int64) for k in (ID, LOSS))
        nO = cells.mass[self.problem.sets].astype(np.int64)
        extra = cells.mass[self.problem.sets.stop :].astype(np.int64)
        met = self.problem.goal.met(nI, nO, L, extra)
        failed = np.zeros(0, np.int64)
        if self._failed:
            known = cells.room <= [self._failed.get(tag, -1.0) for tag in cells.mass[TAG]]
            failed = cells.box[met & known]
            met &= ~known
        rows, total = np.flatnonzero(met), nO.sum(axis=0)
        while len(rows):
            masses = [column[rows] for column in (nI, total, L)]
            if self.best is not None:
                masses = [np.append(*pair) for pair in zip(masses, self.best[1:], strict=True)]
            id_, ood, loss = masses
            winners = self.problem.goal.best(id_, ood, loss)
            beaten = self.best is None or winners[-1] < len(rows)
            winners = rows[winners[winners < len(rows)]]
            planes = [_half_plane(chart, cells, int(row)) for row in winners]
            if beaten and not self._start_over(max(planes, key=lambda plane: plane.room)):
                unproved = winners[np.argmax(cells.room[winners])]
                failed = np.append(failed, cells.box[unproved])
                rows = rows[rows != unproved]
                continue
            for plane in planes:
                self._add(plane)
            break
        return failed

    def _start_over(self, plane: HalfPlane) -> bool:
        """Make a cell the best one known, if it stands the proof."""
        if self._proved(plane) is None:
            return False
        nI, L, nO = plane.mass[ID], plane.mass[LOSS], plane.mass[self.problem.sets].sum()
        value = self.problem.value(nI, L, nO)
        self.best = Best(float(value), int(nI), int(nO), int(L))
        self._cells = {}
        self._sure = plane
        return True

    def _add(self, plane: HalfPlane) -> None:
        tag = float(plane.mass[TAG])
        known = self._cells.get(tag)
        if (known is None and not self.full) or (known is not None and plane.room > known.room):
            self._cells[tag] = plane

    def _proved(self, plane: HalfPlane) -> HalfPlane | None:
        """Return the half-plane of scores that accepts just these masses, looking at every one."""
        n, tree = self._tree.points, self._tree
        accepted = along(plane.weights, *self._points) <= plane.v
        found = plane
        if not tree.frame.plain:
            weights = tree.frame.weights(plane.weights)
            with np.errstate(over="ignore"):
                values = along(weights, *self._scores)
            here = accepted & tree.alive[:n]
            last = values[here].max(initial=-np.inf)
            following = values[~accepted & tree.alive[:n]].min(initial=np.inf)
            found = plane._replace(weights=weights, v=float(midway(last, following)))
            accepted = values <= found.v
        tag = float(plane.mass[TAG])
        # The threads of a product of matrices take longer to come together than to add these up.
        total = np.einsum("kn,n->k", tree.mass[:, :n], accepted.astype(np.float64))
        if (total == plane.mass).all() and (not self._certain or self._is_certain(found)):
            self._failed.pop(tag, None)
            return found
        self._failed[tag] = max(plane.room, self._failed.get(tag, 0.0))
        return None

    def _is_certain(self, plane: HalfPlane) -> bool:
        """Return whether no point is close to a half-plane of scores."""
        x, y = (column[self._tree.alive[: self._tree.points]] for column in self._scores)
        return is_certain(plane.weights, plane.v, x, y)

    def proved(self) -> list[HalfPlane]:
        """Return the best cells, as half-planes of scores, that stand the proof."""
        proved = [self._proved(plane) for plane in self._cells.values()]
        if not any(proved) and self._sure is not None:
            # Cells with more room were no better after all.
            proved = [self._proved(self._sure)]
        return [plane for plane in proved if plane is not None]


def _half_plane(chart: Chart, cells: LeafCells, row: int) -> HalfPlane:
    weights = chart.weights(cells.t[row])
    return HalfPlane(weights, float(cells.v[row]), float(cells.room[row]), cells.mass[:, row])


def first_look(
    tree: Tree,
    all_charts: list[Chart],
    problem: Problem,
    incumbent: Incumbent,
    start: _Floats | None,
) -> None:
    """Offer the best cells of the most promising directions, and of those to start with."""
    level = int(np.argmax(np.diff(tree.level) <= _NODES))
    nodes = np.arange(tree.level[level], tree.level[level + 1])
    nodes = nodes[tree.alive[nodes]]
    cheap = Cheap(tree.mass[0], tree.mass[0], Prices(0.0, 0.0), problem.counted)
    found: list[tuple[float, Chart, float, float, float]] = []
    for chart in all_charts:
        u = (chart.u0.take(nodes) + chart.u1.take(nodes)) / 2
        w = (chart.w0.take(nodes) + chart.w1.take(nodes)) / 2
        for t in _places_in(chart, tree, start):
            _look_at_all(tree, chart, problem, incumbent, t)
        for t in _typical_t(u, w):
            hit = _best_threshold(tree, problem, nodes, u + t * w)
            if hit is not None:
                found.append((hit[0], chart, t, hit[1], hit[2]))
    found.sort(key=lambda row: row[0])
    for _, chart, t, low, high in found[:_TRIED]:
        _look_closely(tree, chart, problem, incumbent, (t, low, high), cheap)


class CloserLook:
    """Looks closely where masses that are met in passing are better than the best known."""

    def __init__(self, tree: Tree, problem: Problem, incumbent: Incumbent) -> None:
        self._tree = tree
        self._problem = problem
        self._incumbent = incumbent
        self._misses = 0

    def best(self, mass: _Floats) -> int | None:
        """Return which of some masses, by rows of the tree, is better by most, if any is."""
        best, problem = self._incumbent.best, self._problem
        if self._misses > _MISSES:
            return None
        limit = np.inf if best is None else best.value - _GAIN * abs(best.value)
        better = np.flatnonzero(worth(problem, mass, limit))
        if len(better) == 0:
            return None
        mass = mass.take(better, axis=1)
        value = problem.value(mass[ID], mass[LOSS], mass[problem.sets].sum(axis=0))
        return int(better[value.argmin()])

    def look(self, chart: Chart, window: tuple[float, float, float]) -> None:
        """Offer the cells of one direction between two thresholds."""
        before = self._incumbent.best
        tree, problem = self._tree, self._problem
        cheap = Cheap(tree.mass[0], tree.mass[0], Prices(0.0, 0.0), problem.counted)
        _look_closely(tree, chart, problem, self._incumbent, window, cheap)
        self._misses += self._incumbent.best is before


def _places_in(chart: Chart, tree: Tree, start: _Floats | None) -> list[float]:
    """Return the t of those directions, weights of scores, that are in a chart."""
    found = []
    for weights in [] if start is None else start:
        own = weights / np.array(tree.frame.divisor) * np.array(chart.signs)
        unit, other = own[chart.unit], own[1 - chart.unit]
        if unit > 0 and 0 <= other <= unit:
            found.append(float(other / unit))
    return found


def _typical_t(u: _Floats, w: _Floats) -> _Floats:
    """Return values of t spread as those at which pairs of lines meet."""
    pairs = np.stack(
        [np.roll(np.arange(len(u)), -shift) for shift in (1 + len(u) // 3, 1 + len(u) // 7)]
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        t = (u.take(pairs) - u) / (w - w.take(pairs))
    t = t[(t > 0) & (t <= 1)]
    count = int(np.ceil(_DIRECTIONS * len(t) / max(len(u), 1)))
    return np.quantile(t, (np.arange(count) + 0.5) / count) if count else np.ones(1)


def _best_threshold(
    tree: Tree, problem: Problem, nodes: _Ints, values: _Floats
) -> tuple[float, float, float] | None:
    """Return the best value on the nodes taken as points, and thresholds around it."""
    order = np.argsort(values)
    mass = np.cumsum(tree.mass.take(nodes.take(order), axis=1), axis=1)
    rows = np.flatnonzero(worth(problem, mass, np.inf))
    if len(rows) == 0:
        return None
    value = problem.value(mass[0, rows], mass[1, rows], mass[problem.sets, rows].sum(axis=0))
    k = int(value.argmin())
    reach = max(8, int(_WINDOW * len(nodes)))
    low, high = max(0, rows[k] - reach), min(len(nodes) - 1, rows[k] + reach)
    return float(value[k]), float(values[order[low]]), float(values[order[high]])


def _look_at_all(
    tree: Tree, chart: Chart, problem: Problem, incumbent: Incumbent, t: float
) -> None:
    """Offer the cells of one direction, at all thresholds."""
    points, nothing = np.flatnonzero(tree.alive[: tree.points]), np.zeros(len(tree.mass))
    last = chart.u0[: tree.points] + t * chart.w0[: tree.points]
    line = t, float(last.min()), float(np.nextafter(last.max(), np.inf))
    cells = cells_along(tree, chart, points, nothing, line, problem, incumbent.limit)
    incumbent.offer(chart, cells)


def _look_closely(
    tree: Tree,
    chart: Chart,
    problem: Problem,
    incumbent: Incumbent,
    window: tuple[float, float, float],
    cheap: Cheap,
) -> None:
    """Offer the cells of one direction between two thresholds."""
    t, low, high = window
    top = np.nextafter(high, np.inf)
    edges = Edges(np.full((2, 1), t), np.full((2, 1), low), np.full((2, 1), top))
    root = np.array([tree.level[-1] - 1]), np.zeros(1, np.int64)
    nothing = np.zeros((len(tree.mass), 1))
    boxes = gather(tree, chart, cheap, edges, chart.sizes, nothing, *root, coarse=0.05)
    incumbent.offer(chart, cells_on_line(tree, chart, boxes, problem, incumbent.limit))
