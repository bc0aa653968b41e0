"""A good first cell: directions tried on a coarse level of the tree, then on all points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from demur._kernels.bound import Cheap, Problem
from demur._kernels.boxes import Edges
from demur._kernels.divide import gather
from demur._kernels.incumbent import Incumbent
from demur._kernels.leaf import cells_on_line, worth
from demur._kernels.lines import Chart
from demur._kernels.tree import OOD, Tree

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

_NODES = 4096
_DIRECTIONS = 16
_TRIED = 2
# Part of the nodes on either side of the coarse threshold that the second look covers.
_WINDOW = 0.02


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
            Cheap(tree.mass[0], tree.mass[0], 0.0, 0.0),
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
