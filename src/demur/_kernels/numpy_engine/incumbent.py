"""The best cells found so far, and hard inputs, judged against them slab by slab.

The best are compared on integers and proved on all points. A good first one comes from directions
tried on a coarse level of the tree, then on all points.

*Hard inputs.* Where scores say little, boxes survive until so few lines cross them that a box
costs more to keep than to judge. Here one slab of the dual plane is judged at a time, for all v
that still matter: its lines are put into strips, masses are added up along them, and if some
strips survive both halves of the slab are judged next. What survives with few lines is left to the
search of boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels import exact
from demur._kernels.numpy_engine.bounds import Best, Cheap, Prices, Problem
from demur._kernels.numpy_engine.boxes import EPS, Boxes, Chart, Edges, Zone, cut_t
from demur._kernels.numpy_engine.splitting import Alive, gather
from demur._kernels.numpy_engine.strips import LeafCells, cells_on_line, worth
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


class HalfPlane(NamedTuple):
    """A half-plane of points, by a (t, v) well inside its cell."""

    weights: _Floats
    v: float
    room: float
    mass: _Floats


class Incumbent:
    """The best cells so far, equal in value, nI and nO; `best` is None until one is feasible."""

    def __init__(self, tree: Tree, problem: Problem) -> None:
        self.best: Best | None = None
        self._tree = tree
        self._problem = problem
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
        nO = cells.mass[self._problem.sets].astype(np.int64)
        met = self._problem.feasible(nI, nO)
        if self._problem.linear is not None:
            whole = self._problem.linear_masses(cells.mass).astype(np.int64)
            met &= exact.linear_met(self._problem.linear, whole)
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
            winners = self._problem.best(id_, ood, loss)
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
        nI, L, nO = plane.mass[ID], plane.mass[LOSS], plane.mass[self._problem.sets].sum()
        value = self._problem.value(nI, L, nO)
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
            middle = last + (following - last) / 2
            found = plane._replace(weights=weights, v=float(middle if middle < following else last))
            accepted = values <= found.v
        tag = float(plane.mass[TAG])
        # The threads of a product of matrices take longer to come together than to add these up.
        total = np.einsum("kn,n->k", tree.mass[:, :n], accepted.astype(np.float64))
        if (total == plane.mass).all():
            self._failed.pop(tag, None)
            return found
        self._failed[tag] = max(plane.room, self._failed.get(tag, 0.0))
        return None

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


def first_look(tree: Tree, all_charts: list[Chart], problem: Problem, incumbent: Incumbent) -> None:
    """Offer the best cells of the most promising directions."""
    level = int(np.argmax(np.diff(tree.level) <= _NODES))
    nodes = np.arange(tree.level[level], tree.level[level + 1])
    nodes = nodes[tree.alive[nodes]]
    found: list[tuple[float, Chart, float, float, float]] = []
    for chart in all_charts:
        u = (chart.u0.take(nodes) + chart.u1.take(nodes)) / 2
        w = (chart.w0.take(nodes) + chart.w1.take(nodes)) / 2
        for t in _typical_t(u, w):
            hit = _best_threshold(tree, problem, nodes, u + t * w)
            if hit is not None:
                found.append((hit[0], chart, t, hit[1], hit[2]))
    found.sort(key=lambda row: row[0])
    for _, chart, t, low, high in found[:_TRIED]:
        _look_closely(
            tree,
            chart,
            problem,
            incumbent,
            (t, low, high),
            Cheap(tree.mass[0], tree.mass[0], Prices(0.0, 0.0), problem.counted),
        )


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


# Slabs of a chart to begin with, and the narrowest that are cut in two.
_SLABS = 2
_NARROW = 2.0**-14
# Slabs with no more lines than this, or than that in a strip, are left to the search of boxes.
_FEW = 256
_THIN = 24
_STRIPS = 2048
# Strips of equal height are of use where lines span at most so many times the middle 80 % of some.
_EVEN = 1000.0
_SAMPLED = 1000
# Strips to the mean distance that lines drift over a slab.
_FINE = 3.0


class _Slab(NamedTuple):
    """A narrow box over all v that still matter, and the points that may cross it."""

    zone: Zone
    points: _Ints
    accepted: _Floats
    """Masses that all its half-planes accept, besides those of `points`."""


class _Strips(NamedTuple):
    """Strips of equal height along the mean drift; a point crosses those from `first` to `stop`."""

    bottom: float
    step: float
    lean: float
    number: int
    flat: bool
    """Whether they are as low as float64 can tell apart."""
    first: _Ints
    stop: _Ints

    def crossed(self) -> _Ints:
        """Return how many points cross each strip."""
        come, gone = (np.bincount(at, minlength=self.number + 1) for at in (self.first, self.stop))
        return np.cumsum(come - gone)[: self.number]

    def edge(self, strip: int) -> tuple[float, float]:
        """Return both ends of the lower edge of a strip."""
        left = self.bottom + strip * self.step
        return left, left + self.lean


def are_even(tree: Tree, chart: Chart) -> bool:
    """Return whether strips of equal height part the lines of a chart, at both of its ends."""
    u, w = chart.u0[: tree.points], chart.w0[: tree.points]
    with np.errstate(over="ignore"):
        return all(_is_even(v) for v in (u, u + w))


def _is_even(v: _Floats) -> bool:
    low, high = np.quantile(v[:: max(1, len(v) // _SAMPLED)], (0.1, 0.9))
    return bool(np.ptp(v) <= _EVEN * (high - low))


def surviving(tree: Tree, chart: Chart, cheap: Cheap, alive: Alive) -> Iterator[Boxes]:
    """Yield the boxes of a chart that `alive` cannot rule out."""
    slabs = _first_slabs(tree, chart)
    while slabs:
        slab = slabs.pop()
        strips = _cut(chart, slab)
        accepted, crossing = _masses(tree, cheap, slab, strips)
        survives = alive(accepted, crossing)
        if not survives.any():
            continue
        # A set that is accepted all over a strip is met where the next line crosses it.
        crossed = strips.crossed()
        left = np.flatnonzero(survives & (crossed > 0))
        if len(left) == 0:
            continue
        first, stop = int(left[0]), int(left[-1]) + 1
        crosses = np.flatnonzero((strips.stop > first) & (strips.first < stop))
        accepted[TAG, first] += tree.mass[TAG].take(slab.points[strips.stop <= first]).sum()
        zone = slab.zone._replace(low=strips.edge(first), high=strips.edge(stop))
        rest = _Slab(zone, slab.points.take(crosses), accepted[:, first])
        few = len(crosses) <= _FEW or crossed.take(left).max() <= _THIN
        if few or strips.flat or zone.t[1] - zone.t[0] < _NARROW:
            yield _box(tree, chart, cheap, rest)
        else:
            # The half with the smaller t comes first.
            slabs += [rest._replace(zone=half) for half in cut_t(zone, 0.5)[::-1]]


def _first_slabs(tree: Tree, chart: Chart) -> list[_Slab]:
    n = tree.points
    points = np.flatnonzero(tree.alive[:n])
    u, w = chart.u0.take(points), chart.w0.take(points)
    ends = []
    for t in np.linspace(0.0, 1.0, _SLABS + 1).tolist():
        v = u + t * w
        ends.append((t, float(v.min()), float(np.nextafter(v.max(), np.inf))))
    nothing = np.zeros(len(tree.mass))
    slabs = []
    for (t0, low0, high0), (t1, low1, high1) in pairwise(ends):
        zone = Zone(chart.unit, (t0, t1), (low0, low1), (high0, high1))
        slabs.append(_Slab(zone, points, nothing))
    return slabs[::-1]


def _cut(chart: Chart, slab: _Slab) -> _Strips:
    u, w = chart.u0.take(slab.points), chart.w0.take(slab.points)
    _, (t0, t1), (low0, low1), (high0, high1) = slab.zone
    lean = float(w.mean()) * (t1 - t0)
    left, right = u + t0 * w, u + t1 * w
    right -= lean
    bottom, top = min(low0, low1 - lean), max(high0, high1 - lean)
    drift = float(np.abs(right - left).mean())
    size = chart.sizes[0, 0] + t1 * chart.sizes[1, 0] + abs(lean) + max(abs(bottom), abs(top))
    least = 64 * EPS * size + float(np.finfo(np.float64).tiny)
    step = max(drift / _FINE, (top - bottom) / _STRIPS)
    flat, step = step < least, max(step, least)
    number = int(np.ceil((top - bottom) / step))
    # In doubt a point crosses, so that rounding does no harm.
    doubt = 16 * EPS * (size / step + number)
    first = np.floor((np.minimum(left, right) - bottom) / step - doubt)
    stop = np.floor((np.maximum(left, right) - bottom) / step + doubt) + 1
    places = (np.minimum(np.maximum(place, 0), number).astype(np.int64) for place in (first, stop))
    return _Strips(bottom, step, lean, number, flat, *places)


def _masses(tree: Tree, cheap: Cheap, slab: _Slab, strips: _Strips) -> tuple[_Floats, _Floats]:
    """Return accepted masses and crossing (ID, cheap ID, cheap loss, counted) of all strips."""

    def add_up(row: _Floats, place: _Ints) -> _Floats:
        total = np.bincount(place, row.take(slab.points), minlength=strips.number + 1)
        return np.cumsum(total[: strips.number])

    accepted = np.zeros((len(tree.mass), strips.number))
    for k, row in enumerate(tree.mass):
        # Tags are of no use to the judge.
        if k != TAG:
            accepted[k] = add_up(row, strips.stop)
    crossing = np.zeros((3 + len(cheap.counted), strips.number))
    for place, k in ((0, ID), *enumerate(cheap.counted, 3)):
        crossing[place] = add_up(tree.mass[k], strips.first) - accepted[k]
    crossing[1] = add_up(cheap.id, strips.first) - add_up(cheap.id, strips.stop)
    if cheap.prices.dearest > 0:
        crossing[2] = add_up(cheap.loss, strips.first) - add_up(cheap.loss, strips.stop)
    return accepted + slab.accepted[:, None], crossing


def _box(tree: Tree, chart: Chart, cheap: Cheap, slab: _Slab) -> Boxes:
    edges = Edges(*(np.array(ends)[:, None] for ends in slab.zone[1:]))
    box = np.zeros(len(slab.points), np.int64)
    accepted = slab.accepted[:, None].copy()
    return gather(tree, chart, cheap, edges, chart.sizes, accepted, slab.points, box)
