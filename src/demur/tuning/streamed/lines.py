"""Items of a pyramid as ranges of lines in (t, v), and which of them cross a zone.

A point is accepted by the half-plane (t, v) if the line ``u + t*w`` of its two scores is at most
v there. An item is the range between the lines of the corner accepted first and of the one
accepted last. In doubt an item crosses a zone, so that rounding does no harm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.tuning.streamed.pyramid import Pyramid
from demur.tuning.streamed.zones import EPS, Zone


class Part(NamedTuple):
    """Some items, with all that is known of them side by side."""

    items: IntArray
    line: FloatArray
    """Shape (5, n): u of the first and of the last line, moved apart by how much rounding may
    put them off; w of both; how much rounding may put off w."""
    mass: IntArray
    """Shape (5 + sets, n): as in the pyramid, and then the rows wanted."""

    def take(self, places: IntArray) -> Part:
        """Return some of the items."""
        return Part(
            self.items.take(places), self.line.take(places, axis=1), self.mass.take(places, axis=1)
        )


def joined_parts(parts: list[Part]) -> Part:
    """Return the items of all parts."""
    if len(parts) == 1:
        return parts[0]
    items, lines, masses = zip(*parts, strict=True)
    return Part(np.concatenate(items), np.hstack(lines), np.hstack(masses))


class Lines:
    """The items of a pyramid over cells of the two scores, times `signs`, in both charts."""

    def __init__(self, pyramid: Pyramid, signs: tuple[int, ...]) -> None:
        self.pyramid = pyramid
        self._ranges = [
            (low, high) if sign > 0 else (-high, -low)
            for low, high, sign in zip(pyramid.low, pyramid.high, signs, strict=True)
        ]

    def root(self, chart: int) -> Zone:
        """Return the zone of all half-planes of a chart."""
        (u0, u1), (w0, w1) = self._ranges[chart], self._ranges[1 - chart]
        root = self.pyramid.root
        low = (float(u0[root]), float(u0[root] + w0[root]))
        high = (float(u1[root]), float(u1[root] + w1[root]))
        reach = [4 * EPS * max(abs(a), abs(b)) + 1e-300 for a, b in zip(low, high, strict=True)]
        return Zone(
            chart,
            (0.0, 1.0),
            (low[0] - reach[0], low[1] - reach[1]),
            (high[0] + reach[0], high[1] + reach[1]),
        )

    def part(self, chart: int, items: IntArray) -> Part:
        """Return some items as lines of a chart."""
        u0, u1 = (end.take(items) for end in self._ranges[chart])
        w0, w1 = (end.take(items) for end in self._ranges[1 - chart])
        doubt = EPS * np.maximum(np.abs(u0), np.abs(u1))
        line = np.array([u0 - doubt, u1 + doubt, w0, w1, EPS * np.maximum(np.abs(w0), np.abs(w1))])
        return Part(items, line, _mass(self.pyramid, items))


def sift(zone: Zone, part: Part) -> tuple[BoolArray, BoolArray]:
    """Return which items every half-plane of the zone accepts, and which cross it."""
    t0, t1 = zone.t
    first, last, first_w, last_w, doubt = part.line
    doubt = t1 * doubt
    last = last + doubt
    first = first - doubt
    inside = last + t0 * last_w <= zone.low[0]
    inside &= last + t1 * last_w <= zone.low[1]
    outside = first + t0 * first_w > zone.high[0]
    outside &= first + t1 * first_w > zone.high[1]
    return inside, ~(inside | outside)


def _mass(pyramid: Pyramid, items: IntArray) -> IntArray:
    mass = np.empty((len(pyramid.mass) + 1, len(items)), np.int64)
    mass[:-1] = pyramid.mass.take(items, axis=1)
    mass[-1] = pyramid.wanted.take(items)
    return mass
