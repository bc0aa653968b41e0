"""The engine where no C compiler was at hand: exact searches over all half-planes, in NumPy.

`search` is as clever as the compiled one; what is asked for less often is done plainly here.
See `demur._kernels.engines.Engine` for what each function means.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from demur._kernels import exact, reference
from demur._kernels.engines import Optima, ScalarMetrics
from demur._kernels.numpy_engine.branch_and_bound import search
from demur._kernels.numpy_engine.tree import OOD, Tree, prepare, reweight

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

__all__ = [
    "frontier",
    "grid",
    "metrics",
    "prepare",
    "reweight",
    "search",
    "searches_all_bounds",
    "sides",
    "widest",
]

searches_all_bounds = False
metrics: ScalarMetrics | None = None


def grid(
    tree: Tree,
    directions: _Floats,
    objective: _Ints,
    per_id: bool,
    min_id: int,
    max_ood: _Ints,
    ratio: _Ints,
    *,
    each: bool = False,
) -> Optima:
    """Return the optimal threshold of given directions, by sorting along each."""
    given = tree.given.present()
    masses, v = np.zeros((len(directions), 3), np.int64), np.full(len(directions), np.nan)
    for k, direction in enumerate(directions):
        with np.errstate(over="ignore", invalid="ignore"):
            values = reference.along(direction, *given.scores.T)
        swept = reference.sweep(values, given.id, given.ood, given.loss)
        rows = np.flatnonzero(exact.feasible(swept.id, swept.ood, max(1, min_id), max_ood, ratio))
        total = swept.ood.sum(axis=0)
        kept = exact.best(swept.id[rows], total[rows], swept.loss[rows], objective, per_id)
        if len(kept):
            row = rows[kept[0]]
            masses[k], v[k] = (swept.id[row], total[row], swept.loss[row]), swept.value[row]
    return Optima(masses[:, 0], masses[:, 1], masses[:, 2], directions, v)


def frontier(tree: Tree, quarters: tuple[int, ...], id_levels: _Ints, ood_levels: _Ints) -> Optima:
    """Return the least selective risk for every pair of bounds, by a search for each rule."""
    pooled = np.vstack([tree.mass[:OOD], tree.mass[OOD:].sum(axis=0)])
    tree = tree._replace(mass=pooled)
    table = reference.BoundsTable(id_levels, ood_levels[None])
    masses, lines = [(0, 0, 0)], [(np.nan, np.nan, np.nan)]
    risk, no_ratio = np.array([1, 0, 0]), np.zeros((1, 2), np.int64)
    for row, column in table.open_cells():
        bounds = int(id_levels[row]), ood_levels[column : column + 1], no_ratio
        found = search(tree, quarters, risk, True, *bounds)
        if len(found.v) == 0:
            table.rule_out(row, column)
            continue
        table.settle(row, column, found.id, np.array([found.ood]))
        masses.append((found.id, found.ood, found.loss))
        lines.append((*found.weights[0], found.v[0]))
    # No rule, -1, comes before the first.
    by_cell, line = np.array(masses)[table.cells + 1], np.array(lines)[table.cells + 1]
    return Optima(by_cell[..., 0], by_cell[..., 1], by_cell[..., 2], line[..., :2], line[..., 2])


def sides(tree: Tree, weight: _Floats, v: float, along: _Floats) -> tuple[float, float]:
    """Return the last accepted and the first rejected value along a direction."""
    return reference.sides(*_sides(tree, weight, v), along)


def widest(
    tree: Tree, weight: _Floats, v: float, scale: _Floats, nonneg: tuple[bool, bool]
) -> tuple[float, float, float]:
    """Return the direction of the widest gap and its width."""
    return reference.widest(*_sides(tree, weight, v), weight, scale, nonneg)


def _sides(tree: Tree, weight: _Floats, v: float) -> tuple[_Floats, npt.NDArray[np.bool_]]:
    """Return the points with mass and which of them a half-plane accepts."""
    scores = tree.given.present().scores
    with np.errstate(over="ignore", invalid="ignore"):
        return scores, reference.along(weight, *scores.T) <= v
