"""Boxes of the dual plane and the lines that cross them.

A box is a trapezoid: t between t[0] and t[1], v between two edges that run straight from
low[0] to low[1] and from high[0] to high[1]. Only its inside counts: a line at or below the
lower edge is accepted everywhere in it, one at or above the upper edge nowhere, and any other
line, or range of lines, crosses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.bound import Cheap
from demur._kernels.lines import EPS, Chart
from demur._kernels.tree import ID, Tree, ranges

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]


class Edges(NamedTuple):
    """Trapezoids; all of shape (2, boxes), left end and right end."""

    t: _Floats
    low: _Floats
    high: _Floats

    def flat(self) -> _Bools:
        """Return which are too low for float64 to cut from side to side."""
        scale = np.abs(self.low).max(axis=0) + np.abs(self.high).max(axis=0)
        flat: _Bools = (self.high - self.low).mean(axis=0) <= 64 * EPS * scale
        return flat


class Boxes(NamedTuple):
    """Boxes of one chart; `items` are the crossing items, box by box."""

    t: _Floats
    low: _Floats
    high: _Floats
    accepted: _Floats
    """Shape (rows of Tree.mass, boxes): masses accepted everywhere in the box."""
    crossing: _Floats
    """Shape (3, boxes): crossing ID mass, cheap ID mass, cheap loss mass."""
    lines: _Floats
    """Shape (6, boxes), about the crossing lines: largest size of u and w, difference of
    smallest and largest w, mean w, mean v in the middle, mean distance from that."""
    stale: _Ints
    """How many cuts in a row got rid of next to no crossing items."""
    points: _Bools
    """Whether all crossing items are points."""
    start: _Ints
    """Shape (boxes + 1,): where in `items` the items of a box begin."""
    items: _Ints

    @property
    def size(self) -> _Ints:
        """Return the number of crossing items of each box."""
        return self.start[1:] - self.start[:-1]

    @property
    def edges(self) -> Edges:
        """Return the trapezoids."""
        return Edges(self.t, self.low, self.high)


def take(boxes: Boxes, chosen: _Ints) -> Boxes:
    """Return the chosen boxes in that order."""
    size = boxes.size.take(chosen)
    _, places = ranges(boxes.start.take(chosen), size)
    fields: list[Any] = [field.take(chosen, axis=-1) for field in boxes[:-2]]
    return Boxes(*[*fields, _offsets(size), boxes.items.take(places)])


def join(parts: Sequence[Boxes]) -> Boxes:
    """Return all boxes one after the other."""
    if len(parts) == 1:
        return parts[0]
    fields: list[Any] = [np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)]
    fields[-2] = _offsets(np.concatenate([part.size for part in parts]))
    return Boxes(*fields)


def _offsets(size: _Ints) -> _Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])


def assemble(
    tree: Tree,
    chart: Chart,
    cheap: Cheap,
    edges: Edges,
    accepted: _Floats,
    members: Sequence[tuple[_Ints, _Ints]],
    crossing: _Floats | None = None,
) -> Boxes:
    """Return boxes from lists of (crossing items, the box of each)."""
    count = accepted.shape[1]
    items, box = (np.concatenate(column) for column in zip(*members, strict=True))
    if (box[1:] < box[:-1]).any():
        # Sixteen bits are sorted much faster.
        order = np.argsort(box.astype(np.uint16) if count < 1 << 16 else box, kind="stable")
        items, box = items.take(order), box.take(order)
    size = np.bincount(box, minlength=count)
    if crossing is None:
        crossing = crossing_masses(tree, cheap, items, box, count)
    points = np.bincount(box, items >= tree.points, minlength=count) == 0
    stale = np.zeros(count, np.int64)
    start = _offsets(size)
    lines = _describe(chart, edges, items, box, start)
    return Boxes(*edges, accepted, crossing, lines, stale, points, start, items)


def crossing_masses(tree: Tree, cheap: Cheap, items: _Ints, box: _Ints, count: int) -> _Floats:
    """Return crossing ID, cheap ID and cheap loss mass of each box."""
    masses = np.zeros((3, count))
    for total, values in zip(masses, (tree.mass[ID], cheap.id, cheap.loss), strict=True):
        total += np.bincount(box, values.take(items), minlength=count)
    return masses


def _describe(chart: Chart, edges: Edges, items: _Ints, box: _Ints, start: _Ints) -> _Floats:
    lines = np.zeros((6, len(start) - 1))
    size = start[1:] - start[:-1]
    some = np.flatnonzero(size)
    if len(some) == 0:
        return lines
    first, number = start.take(some), size.take(some)
    u, w = chart.u0.take(items), chart.w0.take(items)
    smallest = np.minimum.reduceat(w, first)
    size_u = np.maximum.reduceat(np.abs(u), first)
    if items[-1] >= chart.points or (items >= chart.points).any():
        u1, w1 = chart.u1.take(items), chart.w1.take(items)
        size_u = np.maximum(size_u, np.maximum.reduceat(u1, first))
        largest = np.maximum.reduceat(w1, first)
        u, w = (u + u1) / 2, (w + w1) / 2
    else:
        largest = np.maximum.reduceat(w, first)
    t, low, high = (ends.mean(axis=0).take(box) for ends in edges)
    v = np.minimum(np.maximum(u + t * w, low), high)
    mean = np.add.reduceat(v, first) / number
    off = np.add.reduceat(np.abs(v - np.repeat(mean, number)), first) / number
    lines[:, some] = (
        size_u,
        np.maximum(-smallest, largest),
        largest - smallest,
        np.add.reduceat(w, first) / number,
        mean,
        off,
    )
    return lines
