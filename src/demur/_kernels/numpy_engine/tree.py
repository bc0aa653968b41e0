"""A tree over weighted points in the plane, built once and searched many times.

The points are sorted along a Z-order curve, equal points are merged, and every `FAN`
neighbours on the curve form a node, every `FAN` nodes a node of the next level, up to a single
root. Points and nodes together are *items*: points come first, then the levels from the finest
to the root. An item has a bounding box and the sums of the masses below it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.engines import Frame

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

FAN = 8
# Rows of `Tree.mass`; the OOD sets follow, then extra masses, parts of the others.
ID, LOSS, TAG, OOD = 0, 1, 2, 3
# Scores are put on the curve by their approximate rank, read off this many quantiles of a sample.
_KNOTS = 33
_PLAIN = Frame()
_SAMPLE = 2048


class Given(NamedTuple):
    """The rows as they were handed in."""

    scores: _Floats
    id: _Ints
    ood: _Ints
    loss: _Ints
    extra: _Ints

    def present(self) -> Given:
        """Return the rows that have any mass."""
        some = np.flatnonzero((self.id > 0) | (self.ood > 0).any(axis=0))
        if len(some) == len(self.id):
            return self
        parts = self.ood[:, some], self.loss[some], self.extra[:, some]
        return Given(self.scores[some], self.id[some], *parts)


class Tree(NamedTuple):
    """Items, points first; masses are whole numbers below 2**52 held in float64."""

    corner: _Floats
    """Shape (4, items): smallest and largest first score, smallest and largest second score."""
    mass: _Floats
    """Shape (3 + sets + extra, items): ID, loss, tag, OOD of each set, extra masses. Tags tell
    accepted sets apart."""
    alive: _Bools
    """Items with any mass."""
    first: _Ints
    """First child of a node; the children of an item are consecutive. Points have none."""
    children: _Ints
    """Number of children."""
    level: _Ints
    """First item of each level, the points being level 0, and the number of items."""
    row: _Ints
    """The rows handed in, along the curve."""
    start: _Ints
    """Where in `row` each point begins."""
    given: Given
    frame: Frame = _PLAIN
    """Of what scores the points are."""

    @property
    def points(self) -> int:
        """Return the number of distinct points."""
        return len(self.start)


def prepare(
    scores: _Floats,
    id: _Ints,
    ood: _Ints,
    loss: _Ints,
    extra: _Ints | None = None,
    *,
    frame: Frame = _PLAIN,
    lazily: bool = False,
) -> Tree:
    """Sort the rows along the curve, merge equal points and build the tree, all at once.

    `scores` is (n, 2), finite; `id` and `loss` are (n,), `ood` is (sets, n), `extra` (extra, n).
    """
    searched = frame.points(scores)
    row = _curve(searched)
    x, y = searched[:, 0].take(row), searched[:, 1].take(row)
    start = np.flatnonzero(_changes(x, y))
    first, children, level = _levels(len(start))
    corner = np.empty((4, level[-1]))
    corner[:2, : len(start)], corner[2:, : len(start)] = x.take(start), y.take(start)
    fill_up(corner[::2], level, np.minimum)
    fill_up(corner[1::2], level, np.maximum)
    nothing = np.empty((0, 0)), np.empty(0, bool)
    given = Given(scores, id, ood, loss, np.zeros((0, len(scores)), np.int64))
    empty = Tree(corner, *nothing, first, children, level, row, start, given, frame)
    return reweight(empty, id, ood, loss, extra)


def reweight(
    tree: Tree,
    id: _Ints,
    ood: _Ints,
    loss: _Ints,
    extra: _Ints | None = None,
    *,
    into: Tree | None = None,
) -> Tree:
    """Return the tree of the same rows with other masses, some of which may be zero.

    It is a new one: `into` is left alone.
    """
    points = tree.points
    if extra is None:
        extra = np.zeros((0, len(id)), np.int64)
    mass = np.empty((OOD + len(ood) + len(extra), tree.level[-1]))
    for k, values in ((ID, id), (LOSS, loss), *enumerate((*ood, *extra), OOD)):
        of_rows = values.take(tree.row)
        # Mostly every row is a point of its own.
        several = points < len(of_rows)
        mass[k, :points] = np.add.reduceat(of_rows, tree.start) if several else of_rows
    held = (mass[ID, :points] > 0) | (mass[LOSS, :points] > 0)
    held |= (mass[OOD:, :points] > 0).any(axis=0)
    mass[TAG, :points] = _tags(points) * held
    fill_up(mass, tree.level, np.add)
    given = Given(tree.given.scores, id, ood, loss, extra)
    return tree._replace(mass=mass, alive=mass[TAG] > 0, given=given)


def fill_up(rows: npt.NDArray[Any], level: _Ints, combine: np.ufunc) -> None:
    """Fill in what the nodes have together, given rows (..., items) of what the points have."""
    for below, here, above in zip(level[:-2], level[1:-1], level[2:], strict=True):
        groups = np.arange(0, here - below, FAN)
        for row in rows:
            combine.reduceat(row[below:here], groups, out=row[here:above])


def level_starts(points: int) -> _Ints:
    """Return the first item of each level, the points being level 0, and the number of items."""
    level, size = [0, points], points
    while size > 1:
        size = -(-size // FAN)
        level.append(level[-1] + size)
    return np.array(level)


def ranges(first: _Ints, count: _Ints) -> tuple[_Ints, _Ints]:
    """Return, for ranges [first, first + count), the range of each member and the member."""
    owner = np.repeat(np.arange(len(count)), count)
    skipped = np.cumsum(count) - count
    return owner, np.arange(len(owner)) + (first - skipped).take(owner)


def points_below(tree: Tree, items: _Ints) -> tuple[_Ints, _Ints]:
    """Return all points below `items`, and for each the place of its item in `items`."""
    level = np.searchsorted(tree.level, items, side="right") - 1
    width = FAN**level
    first = (items - tree.level.take(level)) * width
    owner, points = ranges(first, np.minimum(width, tree.points - first))
    living = np.flatnonzero(tree.alive.take(points))
    return owner.take(living), points.take(living)


def _levels(points: int) -> tuple[_Ints, _Ints, _Ints]:
    """Return first child and number of children of all items, and where the levels begin."""
    level = level_starts(points)
    first, children = [np.zeros(points, np.int64)], [np.zeros(points, np.int64)]
    for below, here in pairwise(level[:-1].tolist()):
        starts = np.arange(0, here - below, FAN)
        first.append(below + starts)
        children.append(np.minimum(FAN, here - below - starts))
    return np.concatenate(first), np.concatenate(children), level


def _tags(points: int) -> _Floats:
    """Return pseudo-random whole numbers from 1 up, whose sum stays below 2**52.

    The sum of the tags of a set identifies it, but for collisions that do no harm.
    """
    bits = 51 - max(points, 1).bit_length()
    mixed = np.arange(1, points + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    return ((mixed >> np.uint64(64 - bits)) + np.uint64(1)).astype(np.float64)


def _curve(scores: _Floats) -> _Ints:
    """Return the rows in Z-order, equal points next to each other."""
    index_bits = max(len(scores) - 1, 1).bit_length()
    bits = min((64 - index_bits) // 2, 24)
    key = interleaved(_rank(scores[:, 0], bits), _rank(scores[:, 1], bits))
    key <<= np.uint64(index_bits)
    key |= np.arange(len(scores), dtype=np.uint64)
    key.sort()
    row = (key & np.uint64((1 << index_bits) - 1)).astype(np.int64)
    key >>= np.uint64(index_bits)
    return _sort_shared_cells(scores, row, key)


def _rank(values: _Floats, bits: int) -> npt.NDArray[np.uint64]:
    """Return approximate ranks as integers of so many bits, equal for equal values."""
    if len(values) == 0:
        return np.empty(0, np.uint64)
    sample = np.sort(values[:: max(1, len(values) // _SAMPLE)])
    places = np.linspace(0, len(sample) - 1, _KNOTS).astype(np.int64)
    knots = np.unique(np.concatenate([[values.min()], sample[places], [values.max()]]))
    # Knots a subnormal apart make the slope infinite; any finite rank will do there.
    rank = np.nan_to_num(np.interp(values, knots, np.arange(len(knots))))
    scale = (2.0**bits - 1) / max(len(knots) - 1, 1)
    return (np.clip(rank, 0, len(knots) - 1) * scale).astype(np.uint64)


def interleaved(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return places along a Z-order curve: the bits of both integers, below 2**31, in turns."""
    place: npt.NDArray[Any] = (_spread_bits(x) << 1) | _spread_bits(y)
    return place


def _spread_bits(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Put a zero between any two bits."""
    for shift, kept in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        values = (values | (values << shift)) & kept
    return values


def _sort_shared_cells(scores: _Floats, row: _Ints, key: npt.NDArray[np.uint64]) -> _Ints:
    """Sort the rows of every cell that holds different points, so that equal points meet."""
    if len(row) < 2:
        return row
    x, y = scores[:, 0].take(row), scores[:, 1].take(row)
    same_cell = key[1:] == key[:-1]
    mixed = np.flatnonzero(same_cell & _changes(x, y)[1:])
    if len(mixed) == 0:
        return row
    cell = np.concatenate([[0], np.cumsum(~same_cell)])
    chosen = np.zeros(cell[-1] + 1, bool)
    chosen[cell[mixed]] = True
    places = np.flatnonzero(chosen.take(cell))
    order = np.lexsort((y.take(places), x.take(places), cell.take(places)))
    row[places] = row.take(places.take(order))
    return row


def _changes(x: _Floats, y: _Floats) -> _Bools:
    """Return where a point differs from the one before it; the first always does."""
    changed = np.ones(len(x), bool)
    changed[1:] = (x[1:] != x[:-1]) | (y[1:] != y[:-1])
    return changed
