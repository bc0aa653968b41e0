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
    Chosen,
    Optima,
    RowPasses,
    ScalarMetrics,
    Trail,
)
from demur._kernels.exact import Goal
from demur._kernels.numpy_engine.branch_and_bound import search
from demur._kernels.numpy_engine.tree import Tree, prepare, reweight

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


def frontier(tree: Tree, *args: object, **kwargs: object) -> Optima:
    """Tell that rules have to be searched for one by one, see `demur.tuning.frontier`."""
    raise NotImplementedError("the NumPy engine does not search for all pairs of bounds at once")


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
