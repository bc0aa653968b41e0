"""The compiled engine: exact searches over all half-planes, in C.

`AVAILABLE` tells whether the extension was built; nothing else here may be called without it.
Masses are int64 with totals below 2**52. Nothing is checked here.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from demur._kernels.engines import Optima, Outcome, Status

try:
    from demur._kernels import _engine
except ImportError:  # pragma: no cover
    AVAILABLE = False
else:
    AVAILABLE = True

_Ints = npt.NDArray[np.int64]
_Ints32 = npt.NDArray[np.int32]
_Floats = npt.NDArray[np.float64]

searches_all_bounds = True

# As in csrc/tree.h and csrc/search.h.
_COLUMNS = 3
_HALF_PLANES = 256
_UNLIMITED = 2**63 - 1
# As in csrc/metrics.h.
_METRICS = (
    "auroc",
    "aupr",
    "average_precision",
    "aupr_ood",
    "average_precision_ood",
    "fpr_at_tpr_95",
    "f1",
    "oscr_accepted",
    "oscr_all",
    "aurc",
    "augrc",
)


class MortonTree(NamedTuple):
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


def prepare(scores: _Floats, id: _Ints, ood: _Ints, loss: _Ints) -> MortonTree:
    """Build the tree over scores (n, 2) with masses id (n,), ood (sets, n) and loss (n,)."""
    n = len(scores)
    point, row, node = np.empty((n, 2)), np.empty(n, np.int32), np.empty((2 * n, 3), np.int32)
    tilt = np.empty(1, np.int32)
    # NumPy asks for large pages, which random access needs.
    room = np.empty(n, np.uint64)
    points, nodes = _engine.arrange(np.ascontiguousarray(scores), room, point, row, node, tilt)
    point, node = point[:points], node[:nodes]
    box = np.empty((len(node), 4))
    _engine.enclose(node, point, box)
    masses = _masses(row, points, node, id, ood, loss)
    return MortonTree(point, row, node, box, *masses, tilt, len(ood))


def reweight(tree: MortonTree, id: _Ints, ood: _Ints, loss: _Ints) -> MortonTree:
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
    tree: MortonTree,
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
    first, shape (k, 2), instead of the default ones. When losses do not count, half-planes may
    differ in loss; the one given is that of the first.
    """
    weights, v = np.empty((_HALF_PLANES, 2)), np.empty(_HALF_PLANES)
    found, id_, ood, loss, status, lower_bound, boxes, unresolved = _engine.search(
        *_tree(tree),
        *_program(objective, per_id, min_id, max_ood, ratio),
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


def grid(
    tree: MortonTree,
    directions: _Floats,
    objective: _Ints,
    per_id: bool,
    min_id: int,
    max_ood: _Ints,
    ratio: _Ints,
    *,
    each: bool = False,
) -> Optima:
    """Return the optimal threshold of given directions, shape (d, 2), values taken as computed.

    Unless `each`, directions that are not among the best of all are cut short: their entries
    are missing, or not the best they could be.
    """
    weights = np.ascontiguousarray(directions, np.float64)
    masses, v = np.empty((len(weights), 3), np.int64), np.empty(len(weights))
    program = _program(objective, per_id, min_id, max_ood, ratio)
    _engine.directions(*_tree(tree), *program, weights, int(each), masses, v)
    return Optima(masses[:, 0], masses[:, 1], masses[:, 2], weights, v)


def frontier(
    tree: MortonTree, quarters: tuple[int, ...], id_levels: _Ints, ood_levels: _Ints
) -> Optima:
    """Return the least selective risk for every pair of bounds, exact over all directions.

    Entry (j, k) has at least ``id_levels[j]`` ID and at most ``ood_levels[k]`` OOD mass of all
    sets together, both ascending; ties go to the larger ID, then to the smaller OOD mass.
    """
    shape = len(id_levels), len(ood_levels)
    masses, risk = np.zeros((*shape, 3), np.int64), np.full(shape, np.inf)
    weights, v = np.full((*shape, 2), np.nan), np.full(shape, np.nan)
    _engine.frontier(
        *_tree(tree),
        np.array(quarters, np.int64),
        np.ascontiguousarray(id_levels, np.int64),
        np.ascontiguousarray(ood_levels, np.int64),
        *(masses, risk, weights, v),
    )
    return Optima(masses[..., 0], masses[..., 1], masses[..., 2], weights, v)


def sides(tree: MortonTree, weight: _Floats, v: float, along: _Floats) -> tuple[float, float]:
    """Return the last accepted and the first rejected value along a direction."""
    return _engine.sides(*_tree(tree), weight, v, along)


def widest(
    tree: MortonTree, weight: _Floats, v: float, scale: _Floats, nonneg: tuple[bool, bool]
) -> tuple[float, float, float]:
    """Return the direction with the widest gap, of those with the accepted set of a half-plane.

    Also the width of the gap, in units of `scale`. `nonneg` tells which weights may not be
    negative.
    """
    return _engine.widest(*_tree(tree), weight, v, scale, np.array(nonneg, np.int64))


def metrics(
    correct: _Floats, wrong: _Floats, ood: _Floats, *, prior: float, min_id: int
) -> dict[str, float]:
    """Return all scalar metrics of one score, given the ascending scores of three kinds of rows.

    `prior` is the share of OOD behind precision, `min_id` the number of ID rows that
    ``fpr_at_tpr_95`` asks for. Names are those of `demur.metrics.ScoreSummary`.
    """
    values = np.empty(len(_METRICS))
    _engine.metrics(correct, wrong, ood, prior, min_id, values)
    found = dict(zip(_METRICS, values.tolist(), strict=True))
    found["auroc"] /= 2 * (len(correct) + len(wrong)) * max(1, len(ood))
    return found


def _program(
    objective: _Ints, per_id: bool, min_id: int, max_ood: _Ints, ratio: _Ints
) -> tuple[_Ints, int, int, _Ints, _Ints]:
    columns = (np.ascontiguousarray(column, np.int64) for column in (objective, max_ood, ratio))
    coefficients, most, pairs = columns
    return coefficients, int(per_id), min_id, most, pairs


def _tree(
    tree: MortonTree,
) -> tuple[_Floats, _Ints32, _Floats, _Ints, _Ints, _Ints, _Ints32, int]:
    return (
        *(tree.point, tree.node, tree.box, tree.mass),
        *(tree.sums, tree.unit, tree.tilt, tree.sets),
    )
