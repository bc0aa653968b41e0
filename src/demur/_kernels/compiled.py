"""The compiled engine: exact searches over all half-planes, in C.

`AVAILABLE` tells whether the extension was built, and of these sources; nothing else here may be
called without it.
Masses are int64 with totals below 2**52. Nothing is checked here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from demur._kernels.box_cells import TIED, AxisMasses, strip_edges
from demur._kernels.box_search import BoxMargin, BoxOptima
from demur._kernels.engines import (
    EXACT,
    NO_TRAIL,
    PLAIN,
    Chosen,
    Doubt,
    Frame,
    Gap,
    Optima,
    Outcome,
    Ranges,
    Status,
    Trail,
)
from demur._kernels.exact import Goal, Linear

try:
    from demur._kernels import _engine
except ImportError:  # pragma: no cover
    AVAILABLE = False
    IS_OF_OTHERS = False
else:
    # Functions and their arguments, as in csrc/module.c: one that was built before they changed
    # must not be called.
    IS_OF_OTHERS = getattr(_engine, "INTERFACE", 0) != 4
    AVAILABLE = not IS_OF_OTHERS

_Ints = npt.NDArray[np.int64]
_Ints32 = npt.NDArray[np.int32]
_Floats = npt.NDArray[np.float64]

_Result = TypeVar("_Result")

searches_all_bounds = True
grows_lazily = True

# As in csrc/tree.h, csrc/ranks.h and csrc/search.h.
_COLUMNS, _MARK = 3, 2
_RANKS, _LARGEST = 515, 2
_HALF_PLANES = 256
_UNLIMITED = 2**63 - 1
# The fewest rows of a cell that waits to be looked into, on average, and the most bits of its
# number.
_ROWS_OF_A_CELL, _MOST_CELL_BITS = 12, 16
# How many cores passes over many rows may use.
THREADS = "DEMUR_THREADS"
# A pass over fewer rows is done before another thread has begun; more cores wait for memory.
_ROWS_OF_A_SHARE = 500_000
_MOST_CORES = 8
# Beyond so many masses shares of rows would need much memory.
_MOST_SHARED = 16
# Half-planes with the same masses that there is room for, on average.
_EQUALS = 16
# Bits of the ranks by which cells of boxes are taken apart.
_STEP = 3
# Boxes of a trail are cut unless what is best could be so much worse, relatively.
_SLACK = 0.005
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
    """ID, loss, a pseudo-random mark, OOD per set and extra, shape (points, 3 + sets + extra)."""
    sums: _Ints
    """The same for each node."""
    unit: _Ints
    """Loss and ID mass of a lossy row up to a factor, if one pair fits all; else loss is -1."""
    tilt: _Ints32
    """By how many powers of two the first score spreads wider than the second."""
    sets: int
    extra: int
    frame: _Floats
    """What scores the points stand for; see `Frame.numbers`."""
    soil: tuple[Any, ...] | None = None
    """What it grows from: then the arrays above are as large as they may become."""
    tenths: _Floats | None = None
    """Points at which a tenth and nine tenths of the ID mass are reached, shape (2, 2)."""


def prepare(
    scores: _Floats,
    id: _Ints,
    ood: _Ints,
    loss: _Ints,
    extra: _Ints | None = None,
    *,
    frame: Frame = PLAIN,
    lazily: bool = False,
) -> MortonTree:
    """Build the tree over scores (n, 2) with masses id (n,), ood (sets, n) and loss (n,).

    `extra`, shape (extra, n), are parts of these masses that linear bounds are about. A tree that
    is built `lazily` grows where it is looked at, and must be looked at by one caller at a time.
    """
    n = len(scores)
    if lazily and n:
        return _sown(scores, id, ood, loss, extra, frame)
    point, row, node = np.empty((n, 2)), np.empty(n, np.int32), np.empty((2 * n, 3), np.int32)
    tilt = np.empty(1, np.int32)
    # NumPy asks for large pages, which random access needs.
    room = np.empty(n, np.uint64)
    points, nodes = _engine.arrange(
        np.ascontiguousarray(frame.points(scores)), room, point, row, node, tilt
    )
    point, node = point[:points], node[:nodes]
    box = np.empty((len(node), 4))
    _engine.enclose(node, point, box)
    extra = _no_extra(n) if extra is None else extra
    masses = _masses(row, points, node, (id, ood, loss, extra))
    return MortonTree(point, row, node, box, *masses, tilt, len(ood), len(extra), frame.numbers)


def _sown(
    scores: _Floats, id: _Ints, ood: _Ints, loss: _Ints, extra: _Ints | None, frame: Frame
) -> MortonTree:
    """Return a tree that ends in cells, which grow when they are looked into."""
    n, bits = len(scores), _cell_bits(len(scores))
    columns = ood if extra is None else np.vstack([ood, extra])
    width, nodes, cells = _COLUMNS + len(columns), 2 * n + (2 << bits), 1 << bits
    node, box = np.empty((nodes, 3), np.int32), np.empty((nodes, 4))
    sums, tilt = np.empty((nodes, width), np.int64), np.empty(1, np.int32)
    state, found = np.zeros(3, np.int64), np.empty((2, 2))
    points, ranks = np.ascontiguousarray(frame.points(scores)), np.empty((2, _RANKS))
    soil = (
        points,
        np.ascontiguousarray(id),
        np.ascontiguousarray(columns),
        np.ascontiguousarray(loss),
        bits,
        ranks,
        np.empty(n, np.uint16),
        np.empty(n, np.int32),
        np.empty(cells, np.int32),
        state,
    )
    _engine.learn(points, ranks, tilt)
    shares = _shares(n) if width <= _MOST_SHARED else [(0, n)]
    number = len(shares)
    # What is known of the cells of each share of the rows.
    known = (
        np.zeros((number, cells, width), np.int64),
        np.zeros((number, cells), np.uint32),
        np.empty((number, 2), np.int64),
        np.empty((number, 2, 2)),
    )
    _at_once(
        lambda k: _engine.put(*soil, width, *shares[k], *(share[k] for share in known)), number
    )
    cell_sums, count, unit, range_ = known
    total, before = count.sum(axis=0, dtype=np.uint32), np.cumsum(count, axis=0, dtype=np.uint32)
    end = np.cumsum(total, dtype=np.uint32)
    start = end - total + before - count
    _at_once(lambda k: _engine.list_rows(*soil, width, *shares[k], start[k]), number)
    of_all = (
        cell_sums.sum(axis=0),
        total,
        _common_unit(unit),
        _joined(list(range_)),
    )
    _engine.sow(*soil, width, *of_all, end, node, box, sums, found)
    room = np.empty((int(state[_LARGEST]), 4), np.uint64)
    point, mass = np.empty((n, 2)), np.empty((n, width), np.int64)
    row = np.empty(0, np.int32)
    sizes = len(ood), len(columns) - len(ood)
    built = point, row, node, box, mass, sums, of_all[2], tilt
    return MortonTree(*built, *sizes, frame.numbers, (*soil, room), found)


def _joined(ranges: list[_Floats]) -> _Floats:
    """Return the smallest and the largest scores of all rows from those of shares of them."""
    if len(ranges) == 1:
        return ranges[0]
    low, high = zip(*ranges, strict=True)
    return np.stack([np.min(low, axis=0), np.max(high, axis=0)])


def _common_unit(units: _Ints) -> _Ints:
    """Return the unit of all rows from those of shares of them, in lowest terms each."""
    if len(units) == 1:
        return np.asarray(units[0])
    lossy = units[units[:, 0] != 0]
    if len(lossy) == 0:
        return np.zeros(2, np.int64)
    loss, id_ = lossy[0].tolist()
    return np.array([loss if (lossy == lossy[0]).all() else -1, id_])


def _shares(rows: int) -> list[tuple[int, int]]:
    """Return from which row up to which other there is work for a core."""
    number = rows // _ROWS_OF_A_SHARE
    if number < 2:
        return [(0, rows)]
    number = min(_cores(), number)
    ends = [rows * k // number for k in range(number + 1)]
    return list(pairwise(ends))


def _cores() -> int:
    """Return how many cores passes over many rows may use: ``DEMUR_THREADS``, or all there are."""
    asked = os.environ.get(THREADS, "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    here = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(here, _MOST_CORES)


def _at_once(work: Callable[[int], _Result], number: int) -> list[_Result]:
    """Return what work(0), work(1), ... return, done at the same time; the first one is done here.

    The engine releases Python's lock. Signals are heard by the first one only; the others end soon.
    """
    if number == 1:
        return [work(0)]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(number - 1) as pool:
        others = [pool.submit(work, k) for k in range(1, number)]
        return [work(0), *(other.result() for other in others)]


def tenths(tree: MortonTree) -> _Floats | None:
    """Return the scores at which a tenth and nine tenths of the ID mass are reached, by column."""
    if tree.tenths is None:
        return None
    shift, divisor = tree.frame[:2, None], tree.frame[2:4, None]
    return np.asarray((tree.tenths + shift) / divisor)


def _cell_bits(rows: int) -> int:
    """Return the bits of the numbers of cells, an even number."""
    bits = (max(1, rows // _ROWS_OF_A_CELL).bit_length() - 1) // 2 * 2
    return min(max(bits, 2), _MOST_CELL_BITS)


def reweight(
    tree: MortonTree,
    id: _Ints,
    ood: _Ints,
    loss: _Ints,
    extra: _Ints | None = None,
    *,
    into: MortonTree | None = None,
) -> MortonTree:
    """Give the same rows other masses, which may be zero.

    What `into` has, a tree of these rows that was reweighted before, is overwritten.
    """
    extra = _no_extra(len(id)) if extra is None else extra
    room = None if into is None else (into.mass, into.sums)
    masses = id, ood, loss, extra
    mass, sums, unit = _masses(tree.row, len(tree.point), tree.node, masses, room)
    return tree._replace(mass=mass, sums=sums, unit=unit, sets=len(ood), extra=len(extra))


def _no_extra(rows: int) -> _Ints:
    return np.empty((0, rows), np.int64)


def _masses(
    row: _Ints32,
    points: int,
    node: _Ints32,
    masses: tuple[_Ints, _Ints, _Ints, _Ints],
    room: tuple[_Ints, _Ints] | None = None,
) -> tuple[_Ints, _Ints, _Ints]:
    id, ood, loss, extra = (np.ascontiguousarray(column) for column in masses)
    width = _COLUMNS + len(ood) + len(extra)
    if room is not None and room[0].shape == (points, width):
        mass, sums = room
        mass.fill(0)
    else:
        mass = np.zeros((points, width), np.int64)
        sums = np.empty((len(node), width), np.int64)
    unit = np.zeros(2, np.int64)
    _engine.collect(row, id, ood, loss, extra, points, len(ood), len(extra), mass, unit)
    _engine.total(node, mass, width - _COLUMNS, sums)
    return mass, sums, unit


def search(
    tree: MortonTree,
    quarters: tuple[int, ...],
    goal: Goal,
    *,
    gap: float = 0.0,
    budget: int | None = None,
    start: _Floats | None = None,
    trail: Trail | None = None,
    certain: bool = False,
) -> Outcome:
    """Return the optimal half-planes with directions in `quarters`.

    Quarter q holds the directions from q to q + 1 right angles. The search stops when nothing
    can be better by more than `gap`, or after `budget` boxes. `start` are directions to try
    first, shape (k, 2), instead of the default ones; a `trail` of the same rows and quarters
    tells which boxes to begin with. If it has to be `certain`, rounding errors of no point reach as
    far as a half-plane.
    """
    weights, v = np.empty((_HALF_PLANES, 2)), np.empty(_HALF_PLANES)
    found, id_, ood, loss, status, lower_bound, boxes, unresolved, doubts = _engine.search(
        *_tree(tree),
        *_program(tree.extra, goal),
        np.array(quarters, np.int64),
        np.empty((0, 2)) if start is None else np.ascontiguousarray(start),
        gap,
        _UNLIMITED if budget is None else budget,
        weights,
        v,
        *(NO_TRAIL if trail is None else trail),
        int(certain),
    )
    return Outcome(
        weights[:found].copy(),
        v[:found].copy(),
        *(id_, ood, loss, cast(Status, status), lower_bound, boxes, unresolved),
        tuple(_doubt(tree, *doubt) for doubt in doubts),
    )


def trail(
    tree: MortonTree,
    quarters: tuple[int, ...],
    goal: Goal,
    *,
    start: _Floats | None = None,
) -> Trail | None:
    """Return what a search looks at, for searches of the same rows with other masses.

    None where nothing is feasible.
    """
    steps, items, *sizes = _engine.trail(
        *_tree(tree),
        *_program(tree.extra, goal),
        np.array(quarters, np.int64),
        np.empty((0, 2)) if start is None else np.ascontiguousarray(start),
        _SLACK,
    )
    if not steps:
        return None
    parts = np.frombuffer(steps, np.int64).copy(), np.frombuffer(items, np.int32).copy()
    return Trail(*parts, *sizes)


def _doubt(
    tree: MortonTree,
    still: int,
    unit: float,
    step: float,
    *rest: Any,
) -> Doubt:
    t0, t1, low0, low1, high0, high1, points, below, merit = rest
    which = np.frombuffer(points, np.int32)
    return Doubt(
        *(still, unit, step, (t0, t1), (low0, low1), (high0, high1)),
        tree.point[which],
        np.delete(tree.mass[which], _MARK, axis=1),
        np.delete(np.frombuffer(below, np.int64), _MARK),
        merit,
    )


def grid(
    tree: MortonTree,
    directions: _Floats,
    goal: Goal,
    *,
    each: bool = False,
) -> Optima:
    """Return the optimal threshold of given directions, shape (d, 2), values taken as computed.

    Unless `each`, directions that are not among the best of all are cut short: their entries
    are missing, or not the best they could be.
    """
    weights = np.ascontiguousarray(directions, np.float64)
    masses, v = np.empty((len(weights), 3), np.int64), np.empty(len(weights))
    program = _program(tree.extra, goal)
    _engine.directions(*_tree(tree), *program, weights, int(each), masses, v)
    return Optima(masses[:, 0], masses[:, 1], masses[:, 2], weights, v)


def frontier(
    tree: MortonTree,
    quarters: tuple[int, ...],
    id_levels: _Ints,
    ood_levels: _Ints,
    *,
    gap: Gap = EXACT,
    with_doubts: bool = False,
) -> Optima:
    """Return the least selective risk for every pair of bounds, exact over all directions.

    Entry (j, k) has at least ``id_levels[j]`` ID and at most ``ood_levels[k]`` OOD mass of all
    sets together, both ascending; ties go to the larger ID, then to the smaller OOD mass. What is
    better by no more than `gap` may be missed. Boxes that float64 cannot take apart are told
    `with_doubts`.
    """
    shape = len(id_levels), len(ood_levels)
    masses, risk = np.zeros((*shape, 3), np.int64), np.full(shape, np.inf)
    weights, v = np.full((*shape, 2), np.nan), np.full(shape, np.nan)
    hope = np.full(shape if with_doubts else (0, 0), np.inf)
    _, doubts = _engine.frontier(
        *_tree(tree),
        np.array(quarters, np.int64),
        np.ascontiguousarray(id_levels, np.int64),
        np.ascontiguousarray(ood_levels, np.int64),
        *(masses, risk, weights, v),
        *(gap.risk, gap.id, gap.ood, hope),
    )
    best = masses[..., 0], masses[..., 1], masses[..., 2], weights, v
    return Optima(*best, tuple(_doubt(tree, *doubt) for doubt in doubts), hope)


def equal_fpr(tree: MortonTree, quarters: tuple[int, ...], *, gap: float = 0.0) -> Chosen:
    """Return the largest share of correct ID at every OOD mass, from 0 to all of it.

    `tree` has OOD mass for ID, correct ID mass for losses and wrong ID mass for its one set.
    """
    levels = 1 + (int(tree.sums[0, 0]) if len(tree.sums) else 0)
    masses, rate = np.zeros((levels, 3), np.int64), np.full(levels, -1.0)
    weights, v = np.full((levels, 2), np.nan), np.full(levels, np.nan)
    _engine.equal_fpr(*_tree(tree), np.array(quarters, np.int64), gap, masses, rate, weights, v)
    return Chosen(rate, masses[:, 0], masses[:, 1], masses[:, 2], weights, v)


def equals(
    tree: MortonTree, quarters: tuple[int, ...], masses: _Ints
) -> tuple[_Ints, _Floats] | None:
    """Return all half-planes that accept one of some masses: which, and weights and v.

    `masses` are (ID, OOD, loss), shape (n, 3). None where there are too many.
    """
    order = np.lexsort((masses[:, 1], masses[:, 0]))
    room = _EQUALS * len(masses) + _HALF_PLANES
    which, lines = np.empty(room, np.int64), np.empty((room, 3))
    targets = np.ascontiguousarray(masses[order], np.int64)
    found = _engine.equals(*_tree(tree), np.array(quarters, np.int64), targets, which, lines)
    return None if found == room else (order[which[:found]], lines[:found])


def sides(tree: MortonTree, weight: _Floats, v: float, along: _Floats) -> tuple[float, float]:
    """Return the last accepted and the first rejected value along a direction."""
    return _engine.sides(*_tree(tree), weight, v, along)


def count(tree: MortonTree, lines: _Floats) -> _Ints:
    """Return the masses that lines (weights and threshold) accept, shape (lines, 2 + sets).

    These are ID, loss, and OOD of each set.
    """
    rows = np.empty((len(lines), _COLUMNS + tree.sets), np.int64)
    _engine.count(*_tree(tree), np.ascontiguousarray(lines, np.float64), rows)
    return np.delete(rows, _MARK, axis=1)


def settle(tree: MortonTree, lines: _Floats) -> tuple[_Floats, _Floats]:
    """Return lines with unit weights and thresholds midway between the two sides.

    Also the last accepted and the first rejected value along the weights given, shape (lines, 2).
    """
    settled, sides = np.empty((len(lines), 3)), np.empty((len(lines), 2))
    _engine.settle(*_tree(tree), np.ascontiguousarray(lines, np.float64), settled, sides)
    return settled, sides


def widest(
    tree: MortonTree, weight: _Floats, v: float, scale: _Floats, nonneg: tuple[bool, bool]
) -> tuple[float, float, float]:
    """Return the direction with the widest gap, of those with the accepted set of a half-plane.

    Also the width of the gap, in units of `scale`. `nonneg` tells which weights may not be
    negative.
    """
    return _engine.widest(*_tree(tree), weight, v, scale, np.array(nonneg, np.int64))


def limits(
    scores: _Floats,
    masses: AxisMasses,
    goal: Goal,
    *,
    gap: float = 0.0,
    budget: int | None = None,
) -> BoxOptima:
    """Return all boxes that are optimal on rows with two scores, shape (n, 2)."""
    id_, ood, loss, extra, zero_one = masses
    columns = ood if extra is None else np.vstack([ood, extra])
    id_, loss, columns = (np.ascontiguousarray(part) for part in (id_, loss, columns))
    corners, sets, parts = np.empty((TIED, 2)), len(ood), len(columns) - len(ood)
    found, best_id, best_ood, best_loss, left, lower, seen = _engine.limits(
        np.ascontiguousarray(scores),
        strip_edges(scores),
        id_,
        loss,
        columns,
        sets,
        parts,
        *_program(parts, goal),
        gap,
        _UNLIMITED if budget is None else budget,
        _STEP,
        int(zero_one),
        corners,
    )
    return BoxOptima(corners[:found], best_id, best_ood, best_loss, left == 0, lower, seen)


def box_margin(scores: _Floats, box: _Floats, unit: _Floats) -> BoxMargin:
    """Return how far a box may grow before it accepts more rows, in units of each score."""
    tight, wide = np.empty(2), np.empty(2)
    rows = np.ascontiguousarray(scores)
    width = _engine.box_margin(rows, np.ascontiguousarray(box), unit, tight, wide)
    return BoxMargin(tight, wide, width)


class _Passes:
    """Passes over all rows, in C."""

    def copy_scores(
        self, scores: _Floats, signs: tuple[float, ...], into: _Floats
    ) -> Ranges | None:
        """Copy columns, each multiplied by its sign, with 0 for -0, and return their ranges."""
        rows, sign = np.ascontiguousarray(scores), np.array(signs)

        def copy(first: int, end: int) -> tuple[bool, _Floats]:
            range_ = np.array([[np.inf] * 2, [-np.inf] * 2])
            return _engine.copy(rows[first:end], sign, into[first:end], *range_), range_

        shares = _shares(len(rows))
        copied = _at_once(lambda k: copy(*shares[k]), len(shares))
        if not all(finite for finite, _ in copied):
            return None
        low, high = _joined([range_ for _, range_ in copied]).tolist()
        return list(zip(low, high, strict=True))

    def tally(
        self,
        scores: _Floats,
        direction: tuple[float, ...],
        threshold: float,
        masses: tuple[_Ints, _Ints, _Ints],
        *,
        closed: bool,
    ) -> list[int]:
        """Return the ID mass, the loss and the OOD mass of each set that a half-plane accepts."""
        rows, weights = np.ascontiguousarray(scores), np.array(direction)

        def tally(first: int, end: int) -> _Ints:
            id_, loss, ood = (np.ascontiguousarray(mass[..., first:end]) for mass in masses)
            sums = np.empty(2 + len(ood), np.int64)
            _engine.tally(rows[first:end], weights, threshold, closed, id_, loss, ood, sums)
            return sums

        shares = _shares(len(rows))
        first, *others = _at_once(lambda k: tally(*shares[k]), len(shares))
        for sums in others:
            first += sums
        found: list[int] = first.tolist()
        return found


passes = _Passes()


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


def _program(extra: int, goal: Goal) -> tuple[_Ints, int, int, _Ints, _Ints, _Ints, _Ints, _Ints]:
    linear = goal.linear
    if linear is None:
        linear = Linear(*(np.empty((0, k), np.int64) for k in (3 + extra, 1, 2 + extra)))
    columns = (goal.objective, goal.max_ood, goal.ratio, *linear)
    coefficients, most, pairs, *bounds = (
        np.ascontiguousarray(column, np.int64) for column in columns
    )
    return coefficients, int(goal.per_id), goal.min_id, most, pairs, bounds[0], bounds[1], bounds[2]


def _tree(
    tree: MortonTree,
) -> tuple[
    _Floats,
    _Ints32,
    _Floats,
    _Ints,
    _Ints,
    _Ints,
    _Ints32,
    int,
    int,
    _Floats,
    tuple[Any, ...] | None,
]:
    return (
        *(tree.point, tree.node, tree.box, tree.mass),
        *(tree.sums, tree.unit, tree.tilt, tree.sets, tree.extra, tree.frame, tree.soil),
    )
