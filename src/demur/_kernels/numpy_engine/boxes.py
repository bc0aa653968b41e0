"""The dual plane: points as lines, half-planes as points, and boxes of half-planes.

In a *chart* one score has weight +1 or -1 and the other +t or -t, 0 <= t <= 1. A point is then
the line ``u + t*w``, a half-plane is a point (t, v), and it accepts the lines at or below it.
Two charts make a quarter of all directions. The larger weight being 1, a chart needs no
scaling, and t has its full relative precision however different the units are.

A box is a trapezoid: t between t[0] and t[1], v between two edges that run straight from
low[0] to low[1] and from high[0] to high[1]. Only its inside counts: a line at or below the
lower edge is accepted everywhere in it, one at or above the upper edge nowhere, and any other
line, or range of lines, crosses. `Zone` is one box, `Boxes` are many with what crosses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.bounds import BoxMasses, Cheap
from demur._kernels.numpy_engine.tree import ID, LOSS, Tree, ranges

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

EPS = float(np.finfo(np.float64).eps)
LINE_EPS = 4 * EPS
"""Sums of two products in float64 are off by less than this, relative to their terms."""
SIGNS = ((1, 1), (-1, 1), (-1, -1), (1, -1))
"""Signs of the two weights in each quarter."""
_HALVES = 2.0**27 + 1


class Chart(NamedTuple):
    """Bounding boxes of all items as ranges of lines, from ``u0 + t*w0`` to ``u1 + t*w1``."""

    points: int
    """Number of items that are points."""
    unit: int
    """The score with weight +1 or -1."""
    signs: tuple[int, int]
    u0: _Floats
    u1: _Floats
    w0: _Floats
    w1: _Floats

    @property
    def corners(self) -> tuple[_Floats, _Floats, _Floats, _Floats]:
        """Return u0, u1, w0, w1."""
        return self.u0, self.u1, self.w0, self.w1

    @property
    def low(self) -> tuple[_Floats, _Floats]:
        """Return u0 and w0."""
        return self.u0, self.w0

    @property
    def high(self) -> tuple[_Floats, _Floats]:
        """Return u1 and w1."""
        return self.u1, self.w1

    @property
    def sizes(self) -> _Floats:
        """Return upper bounds on the sizes of u and w, shape (2, 1)."""
        ends = np.abs([[self.u0[-1], self.u1[-1]], [self.w0[-1], self.w1[-1]]])
        return np.asarray(ends.max(axis=1, keepdims=True))

    def weights(self, t: float) -> _Floats:
        """Return the weights of the two scores."""
        return np.array(self.signs) * ((1.0, t) if self.unit == 0 else (t, 1.0))


def charts(tree: Tree, quarter: int) -> tuple[Chart, Chart]:
    """Return the two charts of a quarter of all directions."""
    signs = SIGNS[quarter]
    x, y = (
        tree.corner[2 * k : 2 * k + 2] if sign > 0 else -tree.corner[2 * k : 2 * k + 2][::-1]
        for k, sign in enumerate(signs)
    )
    return Chart(tree.points, 0, signs, *x, *y), Chart(tree.points, 1, signs, *y, *x)


class Zone(NamedTuple):
    """A trapezoid of half-planes of a chart."""

    chart: int
    """The score with weight 1."""
    t: tuple[float, float]
    low: tuple[float, float]
    high: tuple[float, float]

    @property
    def middle(self) -> Zone:
        """The half-plane in the middle, as a zone of its own."""
        t, v = sum(self.t) / 2, sum(self.low + self.high) / 4
        return Zone(self.chart, (t, t), (v, v), (v, v))

    @property
    def height(self) -> float:
        """How far v reaches in the middle."""
        return (sum(self.high) - sum(self.low)) / 2

    @property
    def tilt(self) -> float:
        """How far v moves from one end to the other."""
        return (self.low[1] - self.low[0] + self.high[1] - self.high[0]) / 2


def cut_t(zone: Zone, near_zero: float) -> Sequence[Zone]:
    """Cut a box between two directions; float64 may refuse."""
    t0, t1 = zone.t
    middle = (t0 + t1) / 2
    if t1 > 4 * t0:
        # On a logarithmic scale where t spans octaves.
        middle = (t0 * t1) ** 0.5 if t0 > 0 else t1 * min(0.5, max(2.0**-10, near_zero))
    if not t0 < middle < t1:
        return ()
    part = (middle - t0) / (t1 - t0)
    # Rounded outwards, so that the halves cover the box.
    low, high = (
        a + part * (b - a) + outwards * 4 * LINE_EPS * max(abs(a), abs(b))
        for (a, b), outwards in ((zone.low, -1), (zone.high, 1))
    )
    return (
        zone._replace(t=(t0, middle), low=(zone.low[0], low), high=(zone.high[0], high)),
        zone._replace(t=(middle, t1), low=(low, zone.low[1]), high=(high, zone.high[1])),
    )


def cut_v(zone: Zone, lean: float, value: float) -> Sequence[Zone]:
    """Cut along a chord that leans as the lines do; it stays inside the box."""
    rim = [0.05 * (b - a) for a, b in zip(zone.low, zone.high, strict=True)]
    chord = tuple(
        min(max(v, low + edge), high - edge)
        for v, low, high, edge in zip(
            (value - lean / 2, value + lean / 2), zone.low, zone.high, rim, strict=True
        )
    )
    if not all(a < c < b for a, c, b in zip(zone.low, chord, zone.high, strict=True)):
        chord = tuple((a + b) / 2 for a, b in zip(zone.low, zone.high, strict=True))
        if not any(a < c < b for a, c, b in zip(zone.low, chord, zone.high, strict=True)):
            return ()
    return zone._replace(high=(chord[0], chord[1])), zone._replace(low=(chord[0], chord[1]))


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
    """Shape (3 + counted, boxes): crossing ID mass, cheap ID mass, cheap loss mass, and those
    that `Cheap.counted` names."""
    sizes: _Floats
    """Shape (2, boxes): largest sizes of u and w of the crossing lines."""
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


def box_masses(accepted: _Floats, crossing: _Floats, sets: slice) -> BoxMasses:
    """Return what judges boxes, given masses as `Boxes` have them, and where the OOD sets are."""
    return BoxMasses(
        *(accepted[ID], accepted[LOSS], accepted[sets]),
        *(crossing[0], crossing[1], crossing[2]),
        accepted[sets.stop :],
        crossing[3:],
    )


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
    sizes = _largest_sizes(chart, items, start)
    return Boxes(*edges, accepted, crossing, sizes, stale, points, start, items)


def crossing_masses(tree: Tree, cheap: Cheap, items: _Ints, box: _Ints, count: int) -> _Floats:
    """Return crossing ID, cheap ID, cheap loss and counted mass of each box."""
    rows = tree.mass[ID], cheap.id, cheap.loss, *(tree.mass[k] for k in cheap.counted)
    masses = np.zeros((len(rows), count))
    for total, values in zip(masses, rows, strict=True):
        total += np.bincount(box, values.take(items), minlength=count)
    return masses


def _largest_sizes(chart: Chart, items: _Ints, start: _Ints) -> _Floats:
    sizes = np.zeros((2, len(start) - 1))
    some = np.flatnonzero(start[1:] > start[:-1])
    if len(some) == 0:
        return sizes
    first = start.take(some)
    nodes = items[-1] >= chart.points or bool((items >= chart.points).any())
    for row, low, high in zip(sizes, (chart.u0, chart.w0), (chart.u1, chart.w1), strict=True):
        size = np.abs(low.take(items))
        if nodes:
            np.maximum(size, np.abs(high.take(items)), out=size)
        row[some] = np.maximum.reduceat(size, first)
    return sizes


def at_most(u: _Floats, w: _Floats, t: _Floats, v: _Floats) -> _Bools:
    """Return where ``u + t*w <= v``, exactly."""
    product, difference = t * w, v - u
    found = product < difference
    # Both are rounded sums plus a rest, so the rounded sums decide unless they are equal.
    equal = np.flatnonzero(product == difference)
    if len(equal):
        t, w, v, u = (values.take(equal) for values in (t, w, v, u))
        found[equal] = _product_rest(t, w) <= _difference_rest(v, u)
    return np.asarray(found)


def _product_rest(a: _Floats, b: _Floats) -> _Floats:
    """Return what rounding loses of a*b."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: _Floats) -> tuple[_Floats, _Floats]:
    scaled = _HALVES * a
    high = scaled - (scaled - a)
    return high, a - high


def _difference_rest(a: _Floats, b: _Floats) -> _Floats:
    """Return what rounding loses of a-b."""
    difference = a - b
    gone = difference - a
    return (a - (difference - gone)) - (b + gone)
