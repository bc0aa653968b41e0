"""The engine where no C compiler was at hand: exact searches over all half-planes, in NumPy.

`search` is as clever as the compiled one; what is asked for less often is done plainly here.
See `demur._kernels.engines.Engine` for what each function means.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from demur._kernels import reference
from demur._kernels.box_search import box_margin
from demur._kernels.box_search import search as limits
from demur._kernels.engines import (
    EXACT,
    Chosen,
    Gap,
    Optima,
    RowPasses,
    ScalarMetrics,
    Trail,
)
from demur._kernels.exact import Goal
from demur._kernels.numpy_engine.branch_and_bound import search
from demur._kernels.numpy_engine.tree import OOD, Tree, prepare, reweight

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

__all__ = [
    "box_margin",
    "count",
    "equal_fpr",
    "equals",
    "frontier",
    "grid",
    "grows_lazily",
    "limits",
    "metrics",
    "passes",
    "prepare",
    "reweight",
    "search",
    "searches_all_bounds",
    "settle",
    "sides",
    "tenths",
    "trail",
    "widest",
]

searches_all_bounds = False
grows_lazily = False
metrics: ScalarMetrics | None = None
passes: RowPasses | None = None


def tenths(tree: Tree) -> _Floats | None:
    """Tell that scores have to be looked at for it."""
    return None


def trail(tree: Tree, *args: object, **kwargs: object) -> Trail | None:
    """Tell that searches begin anew: boxes are worked on many at a time, as they come."""
    return None


def grid(
    tree: Tree,
    directions: _Floats,
    goal: Goal,
    *,
    each: bool = False,
) -> Optima:
    """Return the optimal threshold of given directions, by sorting along each."""
    given, goal = tree.given.present(), goal.of_some_id()
    masses, v = np.zeros((len(directions), 3), np.int64), np.full(len(directions), np.nan)
    for k, direction in enumerate(directions):
        with np.errstate(over="ignore", invalid="ignore"):
            values = reference.along(direction, *given.scores.T)
        swept = reference.sweep(values, given.id, given.ood, given.loss, given.extra)
        row = reference.best_of_sweep(swept, goal)
        if row is not None:
            masses[k], v[k] = swept.masses(row), swept.value[row]
    return Optima(masses[:, 0], masses[:, 1], masses[:, 2], directions, v)


def frontier(
    tree: Tree,
    quarters: tuple[int, ...],
    id_levels: _Ints,
    ood_levels: _Ints,
    *,
    gap: Gap = EXACT,
) -> Optima:
    """Return the least selective risk for every pair of bounds, by a search for each rule.

    All of it is exact, whatever the gap.
    """
    sets = slice(OOD, OOD + len(tree.given.ood))
    pooled = np.vstack([tree.mass[:OOD], tree.mass[sets].sum(axis=0)])
    tree = tree._replace(mass=pooled)
    table = reference.BoundsTable(id_levels, ood_levels[None])
    masses, lines = [(0, 0, 0)], [(np.nan, np.nan, np.nan)]
    risk, no_ratio = np.array([1, 0, 0]), np.zeros((1, 2), np.int64)
    for row, column in table.open_cells():
        bounds = int(id_levels[row]), ood_levels[column : column + 1], no_ratio
        found = search(tree, quarters, Goal(risk, True, *bounds))
        if len(found.v) == 0:
            table.rule_out(row, column)
            continue
        table.settle(row, column, found.id, np.array([found.ood]))
        masses.append((found.id, found.ood, found.loss))
        lines.append((*found.weights[0], found.v[0]))
    # No rule, -1, comes before the first.
    by_cell, line = np.array(masses)[table.cells + 1], np.array(lines)[table.cells + 1]
    return Optima(by_cell[..., 0], by_cell[..., 1], by_cell[..., 2], line[..., :2], line[..., 2])


def equal_fpr(tree: Tree, quarters: tuple[int, ...], *, gap: float = 0.0) -> Chosen:
    """Tell that directions have to be bracketed instead, see `demur.tuning.staircases`."""
    raise NotImplementedError("the NumPy engine does not search for all OOD masses at once")


def equals(tree: Tree, quarters: tuple[int, ...], masses: _Ints) -> tuple[_Ints, _Floats] | None:
    """Tell that each of these masses has to be searched for."""
    return None


def sides(tree: Tree, weight: _Floats, v: float, along: _Floats) -> tuple[float, float]:
    """Return the last accepted and the first rejected value along a direction."""
    return reference.sides(*_sides(tree, weight, v), along)


def count(tree: Tree, lines: _Floats) -> _Ints:
    """Return the masses that lines accept: ID, loss, and OOD of each set."""
    given = tree.given.present()
    return reference.count(given.scores, np.vstack([given.id, given.loss, given.ood]), lines)


def settle(tree: Tree, lines: _Floats) -> tuple[_Floats, _Floats]:
    """Return lines with unit weights and thresholds midway, and the values beside those given."""
    scores = tree.given.present().scores
    settled = np.array([reference.settle(scores, line) for line in lines]).reshape(-1, 3)
    beside = [reference.sides(*_sides(tree, line[:2], line[2]), line) for line in lines]
    return settled, np.array(beside).reshape(-1, 2)


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
