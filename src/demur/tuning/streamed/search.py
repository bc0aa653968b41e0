"""Branch and bound over half-planes on cells: which of them must be looked into.

A half-plane ``p*x + q*y <= v`` with p, q >= 0 is a point (t, v) of one of two charts, with
weights (1, t) or (t, 1). A cell is then the range of lines from ``u0 + t*w0`` to ``u1 + t*w1``.
A box is a trapezoid of half-planes, t from t[0] to t[1], v between two straight edges. A box
that cannot beat the best half-plane known is dropped, others are cut in two, until cutting no
longer helps because the cells are coarser than the box. Those boxes survive.

Every half-plane that is better than the best one known, or as good, is in a surviving box. In
doubt an item crosses a box, so that rounding does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.tuning.streamed.bound import Bound
from demur.tuning.streamed.pyramid import Pyramid

_EPS = 2.0**-51
# Crossing rows of a box, relative to those of a half-plane in its middle, that end its cutting;
# from one round of the search to the next.
ROUNDS = (5.0, 2.0)
# The same for a box that would survive in part only.
TIGHT = 1.15
_DEEPEST = 64
# Nodes whose lines spread over more than this part of the height of a box are opened.
_COARSE = 0.5


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


class Lines:
    """The items of a pyramid as ranges of lines, in both charts."""

    def __init__(self, pyramid: Pyramid, signs: tuple[int, ...]) -> None:
        self.pyramid = pyramid
        ranges = [
            (low, high) if sign > 0 else (-high, -low)
            for low, high, sign in zip(pyramid.low, pyramid.high, signs, strict=True)
        ]
        self._size = [np.maximum(np.abs(low), np.abs(high)) for low, high in ranges]
        self._ranges = ranges

    def root(self, chart: int) -> Zone:
        """Return the zone of all half-planes of a chart."""
        (u0, u1), (w0, w1) = self._ranges[chart], self._ranges[1 - chart]
        root = self.pyramid.root
        low = (float(u0[root]), float(u0[root] + w0[root]))
        high = (float(u1[root]), float(u1[root] + w1[root]))
        reach = [4 * _EPS * max(abs(a), abs(b)) + 1e-300 for a, b in zip(low, high, strict=True)]
        return Zone(
            chart,
            (0.0, 1.0),
            (low[0] - reach[0], low[1] - reach[1]),
            (high[0] + reach[0], high[1] + reach[1]),
        )

    def sift(self, zone: Zone, items: IntArray) -> tuple[BoolArray, BoolArray]:
        """Return which items every half-plane of the zone accepts, and which cross it."""
        (u0, u1), (w0, w1) = self._ranges[zone.chart], self._ranges[1 - zone.chart]
        doubt = self._size[zone.chart].take(items)
        doubt += zone.t[1] * self._size[1 - zone.chart].take(items)
        doubt *= _EPS
        last, first = u1.take(items), u0.take(items)
        last_w, first_w = w1.take(items), w0.take(items)
        last += doubt
        first -= doubt
        inside = last + zone.t[0] * last_w <= zone.low[0]
        inside &= last + zone.t[1] * last_w <= zone.low[1]
        outside = first + zone.t[0] * first_w > zone.high[0]
        outside &= first + zone.t[1] * first_w > zone.high[1]
        return inside, ~(inside | outside)

    def spread(self, zone: Zone, items: IntArray) -> FloatArray:
        """Return over how much of v the lines of each item spread in the middle of a zone."""
        t = sum(zone.t) / 2
        (u0, u1), (w0, w1) = self._ranges[zone.chart], self._ranges[1 - zone.chart]
        spread: FloatArray = (u1.take(items) - u0.take(items)) + t * (
            w1.take(items) - w0.take(items)
        )
        return spread

    def drift(self, zone: Zone, items: IntArray) -> FloatArray:
        """Return the slope of the middle line of each item."""
        w0, w1 = self._ranges[1 - zone.chart]
        return np.asarray((w0.take(items) + w1.take(items)) / 2)

    def value(self, zone: Zone, items: IntArray) -> FloatArray:
        """Return v of the middle line of each item in the middle of the zone."""
        u0, u1 = self._ranges[zone.chart]
        middle = (u0.take(items) + u1.take(items)) / 2
        return np.asarray(middle + sum(zone.t) / 2 * self.drift(zone, items))


class _Box(NamedTuple):
    zone: Zone
    items: IntArray
    accepted: IntArray
    depth: int


class Survey:
    """A search of one pyramid, and what it found."""

    def __init__(self, lines: Lines, bound: Bound, *, enough: float, few: int, budget: int) -> None:
        self._lines, self._bound = lines, bound
        self._enough, self._few, self._budget = enough, few, budget
        self.zones: list[Zone] = []
        """Boxes that may hold the best half-plane."""
        self.met = np.zeros(lines.pyramid.root + 1, bool)
        """Cells that these boxes may cross, and all nodes that were looked into."""
        self.boxes = 0

    def run(self, zones: Iterable[Zone]) -> None:
        """Look at `zones` and leave the parts that may hold something better or equal."""
        pyramid = self._lines.pyramid
        nothing = np.zeros(len(pyramid.mass), np.int64)
        stack = [_Box(zone, np.array([pyramid.root]), nothing, 0) for zone in zones]
        while stack:
            box = self._opened(stack.pop(), _COARSE)
            self.boxes += 1
            crossing = pyramid.mass.take(box.items, axis=1).sum(axis=1)
            if not self._bound.alive(box.accepted, crossing):
                continue
            parts: Sequence[Zone] = ()
            if self.boxes < self._budget and not self._done(box):
                parts = _halves(self._lines, box)
            stack.extend(box._replace(zone=zone, depth=box.depth + 1) for zone in parts)
            if not parts:
                self.zones.append(box.zone)
                self.met[self._opened(box, -1.0).items] = True

    def _opened(self, box: _Box, coarse: float) -> _Box:
        """Sort out the items of a box, and open the nodes that are too coarse for it."""
        pyramid, zone = self._lines.pyramid, box.zone
        height = coarse * (sum(zone.high) - sum(zone.low)) / 2
        accepted = box.accepted.copy()
        kept: list[IntArray] = []
        items = box.items
        while len(items):
            inside, crossing = self._lines.sift(zone, items)
            accepted += pyramid.mass.take(items[inside], axis=1).sum(axis=1)
            items = items[crossing]
            wide = (items >= pyramid.cells) & (self._lines.spread(zone, items) > height)
            kept.append(items[~wide])
            self.met[items[wide]] = True
            items = pyramid.children(items[wide])
        return box._replace(items=np.concatenate(kept) if kept else items, accepted=accepted)

    def _done(self, box: _Box) -> bool:
        """Return whether cutting the box would hardly leave fewer rows to look at."""
        pyramid = self._lines.pyramid
        rows = int(pyramid.wanted.take(box.items).sum())
        if rows <= self._few or box.depth >= _DEEPEST:
            return True
        if (box.items >= pyramid.cells).any():
            return False
        inside, crossing = self._lines.sift(box.zone.middle, box.items)
        there = box.items[crossing]
        least = int(pyramid.wanted.take(there).sum())
        if rows <= TIGHT * least:
            return True
        if rows > self._enough * least:
            return False
        accepted = box.accepted + pyramid.mass.take(box.items[inside], axis=1).sum(axis=1)
        return self._bound.alive(accepted, pyramid.mass.take(there, axis=1).sum(axis=1))


def _halves(lines: Lines, box: _Box) -> Sequence[Zone]:
    """Cut a box in t where its lines drift apart, otherwise along them; float64 may refuse."""
    zone = box.zone
    height = (sum(zone.high) - sum(zone.low)) / 2
    slope = lines.drift(zone, box.items)
    width = zone.t[1] - zone.t[0]
    mean = float(slope.mean())
    tilt = (zone.low[1] - zone.low[0] + zone.high[1] - zone.high[0]) / 2
    drift = width * float(slope.max() - slope.min()) + abs(width * mean - tilt)
    if drift > height:
        return _cut_t(zone, height / drift)
    return _cut_v(
        zone,
        mean * width,
        float(np.clip(lines.value(zone, box.items), sum(zone.low) / 2, sum(zone.high) / 2).mean()),
    )


def _cut_t(zone: Zone, near_zero: float) -> Sequence[Zone]:
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
        a + part * (b - a) + outwards * 4 * _EPS * max(abs(a), abs(b))
        for (a, b), outwards in ((zone.low, -1), (zone.high, 1))
    )
    return (
        zone._replace(t=(t0, middle), low=(zone.low[0], low), high=(zone.high[0], high)),
        zone._replace(t=(middle, t1), low=(low, zone.low[1]), high=(high, zone.high[1])),
    )


def _cut_v(zone: Zone, lean: float, value: float) -> Sequence[Zone]:
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


def survey(lines: Lines, bound: Bound, zones: list[Zone], *, few: int, budget: int) -> Survey:
    """Search finer and finer until no more than `budget` boxes can be expected to do.

    Between the rounds only zones are kept, so that many of them take little memory.
    """
    boxes = 0
    for enough in ROUNDS:
        found = Survey(lines, bound, enough=enough, few=few, budget=budget)
        # Where scores overflow their sums a cut is worse, never wrong.
        with np.errstate(over="ignore", invalid="ignore"):
            found.run(zones)
        boxes += found.boxes
        zones = found.zones
        if boxes + 3 * found.boxes > budget:
            break
    found.boxes = boxes
    return found
