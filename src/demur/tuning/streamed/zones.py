"""Boxes of half-planes, and how they are cut in two.

A half-plane ``p*x + q*y <= v`` with p, q >= 0 is a point (t, v) of one of two charts, with
weights (1, t) or (t, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

EPS = 2.0**-50
"""Sums of two products in float64 are off by less than this, relative to their terms."""


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
        a + part * (b - a) + outwards * 4 * EPS * max(abs(a), abs(b))
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
