"""The compiled engine: exact searches over all half-planes, in C.

`AVAILABLE` tells whether the extension was built; nothing else here may be called without it.
Masses are int64 with totals below 2**52. Nothing is checked here.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

try:
    from demur._kernels import _engine
except ImportError:  # pragma: no cover
    AVAILABLE = False
else:
    AVAILABLE = True

_Ints = npt.NDArray[np.int64]
_Ints32 = npt.NDArray[np.int32]
_Floats = npt.NDArray[np.float64]

Status = Literal["optimal", "gap", "budget", "infeasible"]

# As in csrc/tree.h and csrc/search.h.
_COLUMNS = 3
_HALF_PLANES = 256
_UNLIMITED = 2**63 - 1


class Tree(NamedTuple):
    """Distinct points along a Morton curve under a binary tree of bounding boxes."""

    point: _Floats
    """The distinct points, shape (points, 2)."""
    row: _Ints32
    """Which point each of the original rows is."""
    node: _Ints32
    """First point, end and first of two children (0 for a leaf) of each node, shape (nodes, 3)."""
    box: _Floats
    """Smallest, then largest scores of each node, shape (nodes, 4)."""
    mass: _Ints
    """ID, loss, a pseudo-random mark and OOD per set, shape (points, 3 + sets)."""
    sums: _Ints
    """The same for each node."""
    unit: _Ints
    """Loss and ID mass of a lossy row up to a factor, if one pair fits all; else loss is -1."""
    tilt: _Ints32
    """By how many powers of two the first score spreads wider than the second."""
    sets: int


class Outcome(NamedTuple):
    """All half-planes found to be optimal: accept when ``weights . scores <= v``."""

    weights: _Floats
    """Weights of the two scores, shape (m, 2); the larger is 1 in size."""
    v: _Floats
    id: int
    ood: int
    loss: int
    status: Status
    lower_bound: float
    """No half-plane has a smaller objective."""
    boxes: int
    unresolved: int
    """How many boxes or cells float64 could not take apart."""


def prepare(scores: _Floats, id: _Ints, ood: _Ints, loss: _Ints) -> Tree:
    """Build the tree over scores (n, 2) with masses id (n,), ood (sets, n) and loss (n,)."""
    n = len(scores)
    point, key, row = np.empty((n, 2)), np.empty(n, np.uint32), np.empty(n, np.int32)
    tilt = np.empty(1, np.int32)
    points = _engine.arrange(np.ascontiguousarray(scores), point, key, row, tilt)
    point = point[:points]
    node = np.empty((2 * points, 3), np.int32)
    node = node[: _engine.grow(key[:points], node)]
    box = np.empty((len(node), 4))
    _engine.enclose(node, point, box)
    masses = _masses(row, points, node, id, ood, loss)
    return Tree(point, row, node, box, *masses, tilt, len(ood))


def reweight(tree: Tree, id: _Ints, ood: _Ints, loss: _Ints) -> Tree:
    """Give the same rows other masses, which may be zero."""
    mass, sums, unit = _masses(tree.row, len(tree.point), tree.node, id, ood, loss)
    return tree._replace(mass=mass, sums=sums, unit=unit, sets=len(ood))


def _masses(
    row: _Ints32, points: int, node: _Ints32, id: _Ints, ood: _Ints, loss: _Ints
) -> tuple[_Ints, _Ints, _Ints]:
    sets = len(ood)
    mass = np.zeros((points, _COLUMNS + sets), np.int64)
    sums = np.empty((len(node), _COLUMNS + sets), np.int64)
    unit = np.zeros(2, np.int64)
    id, ood, loss = (np.ascontiguousarray(column) for column in (id, ood, loss))
    _engine.collect(row, id, ood, loss, points, sets, mass, unit)
    _engine.total(node, mass, sets, sums)
    return mass, sums, unit


def search(
    tree: Tree,
    quarters: tuple[int, ...],
    objective: _Ints,
    per_id: bool,
    min_id: int,
    max_ood: _Ints,
    ratio: _Ints,
    *,
    gap: float = 0.0,
    budget: int | None = None,
    start: _Floats | None = None,
) -> Outcome:
    """Return the optimal half-planes with directions in `quarters`; see `demur.core.program`.

    Quarter q holds the directions from q to q + 1 right angles. The search stops when nothing
    can be better by more than `gap`, or after `budget` boxes. `start` are directions to try
    first, shape (k, 2), instead of the default ones.
    """
    weights, v = np.empty((_HALF_PLANES, 2)), np.empty(_HALF_PLANES)
    found, id_, ood, loss, status, lower_bound, boxes, unresolved = _engine.search(
        *_arguments(tree),
        *(np.ascontiguousarray(objective), per_id, min_id),
        *(np.ascontiguousarray(max_ood), np.ascontiguousarray(ratio)),
        np.array(quarters, np.int64),
        np.empty((0, 2)) if start is None else np.ascontiguousarray(start),
        gap,
        _UNLIMITED if budget is None else budget,
        weights,
        v,
    )
    return Outcome(
        weights[:found].copy(),
        v[:found].copy(),
        *(id_, ood, loss, cast(Status, status), lower_bound, boxes, unresolved),
    )


def _arguments(
    tree: Tree,
) -> tuple[_Floats, _Ints32, _Floats, _Ints, _Ints, _Ints, _Ints32, int]:
    return (
        *(tree.point, tree.node, tree.box, tree.mass),
        *(tree.sums, tree.unit, tree.tilt, tree.sets),
    )
