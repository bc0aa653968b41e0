"""The best cells found so far: compared on integers, proved on all points.

A good first one comes from directions tried on a coarse level of the tree, then on all points.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.bounds import Best, Cheap, Prices, Problem
from demur._kernels.numpy_engine.boxes import Chart, Edges
from demur._kernels.numpy_engine.leaves import LeafCells, cells_on_line, worth
from demur._kernels.numpy_engine.splitting import gather
from demur._kernels.numpy_engine.tree import ID, LOSS, OOD, TAG, Tree
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
    """A half-plane with a point (t, v) well inside its cell."""

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
        self._failed: dict[float, float] = {}

    @property
    def full(self) -> bool:
        """Return whether enough equally good cells are known."""
        return len(self._cells) >= self._most

    @property
    def unresolved(self) -> int:
        """Return the number of cells that float64 does not reproduce."""
        return len(self._failed)

    @property
    def limit(self) -> float:
        """Return a value that no cell worth a closer look exceeds."""
        return np.inf if self.best is None else self.best.value + 1e-12 * abs(self.best.value)

    def offer(self, chart: Chart, cells: LeafCells) -> None:
        """Take in the cells that are better than, or as good as, those known."""
        nI, L = (cells.mass[k].astype(np.int64) for k in (ID, LOSS))
        nO = cells.mass[OOD:].astype(np.int64)
        met = self._problem.feasible(nI, nO)
        if self._failed:
            met &= cells.room > [self._failed.get(tag, -1.0) for tag in cells.mass[TAG]]
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
                rows = rows[rows != winners[np.argmax(cells.room[winners])]]
                continue
            for plane in planes:
                self._add(plane)
            return

    def _start_over(self, plane: HalfPlane) -> bool:
        """Make a cell the best one known, if it stands the proof."""
        if not self._proves(plane):
            return False
        nI, L, nO = plane.mass[ID], plane.mass[LOSS], plane.mass[OOD:].sum()
        value = self._problem.value(nI, L, nO)
        self.best = Best(float(value), int(nI), int(nO), int(L))
        self._cells = {}
        return True

    def _add(self, plane: HalfPlane) -> None:
        tag = float(plane.mass[TAG])
        known = self._cells.get(tag)
        if (known is None and not self.full) or (known is not None and plane.room > known.room):
            self._cells[tag] = plane

    def _proves(self, plane: HalfPlane) -> bool:
        """Return whether float64 accepts just these masses, looking at every point."""
        n = self._tree.points
        x, y = self._tree.corner[0, :n], self._tree.corner[2, :n]
        accepted = along(plane.weights, x, y) <= plane.v
        proved = bool((self._tree.mass[:, :n] @ accepted == plane.mass).all())
        tag = float(plane.mass[TAG])
        if proved:
            self._failed.pop(tag, None)
        else:
            self._failed[tag] = max(plane.room, self._failed.get(tag, 0.0))
        return proved

    def proved(self) -> list[HalfPlane]:
        """Return the best cells that stand the proof."""
        return [plane for plane in self._cells.values() if self._proves(plane)]


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
            Cheap(tree.mass[0], tree.mass[0], Prices(0.0, 0.0)),
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
    value = problem.value(mass[0, rows], mass[1, rows], mass[OOD:, rows].sum(axis=0))
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
