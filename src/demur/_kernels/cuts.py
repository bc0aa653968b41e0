"""How boxes are cut: at some t into slabs, and slabs by tilted chords into strips.

Lines drift apart over a wide box and crowd a high one. Boxes are cut so that the drift of the
lines over a strip is about its height. The chords of a slab are parallel to the mean drift and
lie, equally spaced, around the mean of the lines; where one would leave the slab it ends in a
corner instead, so that the strips together are the slab.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.boxes import Boxes, Edges
from demur._kernels.lines import EPS, Chart

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

# Upper limit of drift / height, and the number of slabs and strips up to there.
_PLANS = ((0.35, 1, 8), (1.4, 2, 4), (6.0, 4, 2), (np.inf, 4, 1))


class Slabs(NamedTuple):
    """Slabs and the chords that cut them into strips."""

    edges: Edges
    strips: _Ints
    """Number of strips of each slab."""
    middle: _Floats
    """Shape (2, slabs): both ends of the middle chord."""
    step: _Floats
    """Distance of neighbouring chords."""
    margin: _Floats
    """How far rounding may put a line off."""

    @property
    def rise(self) -> _Floats:
        """Return the number of steps in a unit."""
        return 1 / self.step

    @property
    def fuzz(self) -> _Floats:
        """Return how many steps rounding may put a line off."""
        return 2 * self.margin / self.step + 16 * EPS

    def edge(self, slab: _Ints, strip: _Ints) -> _Floats:
        """Return both ends of the lower edge of a strip; the strip after the last has the upper."""
        low, high = self.edges.low.take(slab, axis=1), self.edges.high.take(slab, axis=1)
        strips = self.strips.take(slab)
        chord = self.middle.take(slab, axis=1) + (strip - strips / 2) * self.step.take(slab)
        chord = np.minimum(np.maximum(chord, low), high)
        return np.where(strip <= 0, low, np.where(strip >= strips, high, chord))


def whole(edges: Edges, sizes: _Floats) -> Slabs:
    """Return boxes as slabs of one strip."""
    count = edges.t.shape[1]
    step = np.full(count, np.inf)
    return Slabs(edges, np.ones(count, np.int64), edges.low, step, _margin(edges, sizes))


def cut(chart: Chart, boxes: Boxes) -> tuple[Slabs, _Ints]:
    """Return slabs, and how many each box is cut into.

    A box that float64 cannot cut becomes one slab of one strip.
    """
    edges, lines = boxes.edges, boxes.lines
    height = (edges.high - edges.low).mean(axis=0)
    width = edges.t[1] - edges.t[0]
    drift = width * lines[2]
    limits, slabs, strips = (np.array(column) for column in zip(*_PLANS, strict=True))
    plan = np.searchsorted(limits[:-1] , drift / np.where(height > 0, height, 1.0))
    slabs, strips = slabs.take(plan), strips.take(plan)
    strips[edges.flat()] = 1
    slabs[width <= 16 * EPS * edges.t[1]] = 1
    box = np.repeat(np.arange(boxes.count), slabs)
    edges = _slabs(edges, slabs, box, _cut_t(chart, boxes, drift, height))
    w, v, off = boxes.lines[3:].take(box, axis=1)
    v = v + w * (edges.t.mean(axis=0) - boxes.t.mean(axis=0).take(box))
    lean = w * (edges.t[1] - edges.t[0]) / 2
    strips = strips.take(box)
    margin = _margin(edges, boxes.lines[:2].take(box, axis=1))
    least = (edges.high - edges.low).mean(axis=0) / 16
    step = np.maximum(np.maximum(4 * off, least) / strips, 4 * margin)
    return Slabs(edges, strips, np.stack([v - lean, v + lean]), step, margin), slabs


def _margin(edges: Edges, sizes: _Floats) -> _Floats:
    tiny = float(np.finfo(np.float64).tiny)
    return 4 * EPS * (sizes[0] + edges.t[1] * sizes[1]) + tiny


def _slabs(edges: Edges, slabs: _Ints, box: _Ints, t: _Floats) -> Edges:
    """Cut boxes at t, shape (5, boxes), into 1, 2 or 4 slabs."""
    t0, t1 = edges.t
    part = (t - t0) / np.where(t1 > t0, t1 - t0, 1.0)
    ends = []
    for (left, right), outwards in ((edges.low, -1), (edges.high, 1)):
        # Rounded outwards, so that the slabs cover the box.
        reach = outwards * 4 * EPS * np.maximum(np.abs(left), np.abs(right))
        values = left + part * (right - left) + reach
        values[0], values[-1] = left, right
        ends.append(values)
    stride = 4 // slabs.take(box)
    column = (np.arange(len(box)) - (np.cumsum(slabs) - slabs).take(box)) * stride
    return Edges(*(np.stack([v[column, box], v[column + stride, box]]) for v in (t, *ends)))


def _cut_t(chart: Chart, boxes: Boxes, drift: _Floats, height: _Floats) -> _Floats:
    """Return five values of t from the left to the right end of each box."""
    t0, t1 = boxes.t
    with np.errstate(divide="ignore", invalid="ignore"):
        near_zero = np.clip(height / drift, 2.0**-10, 0.5)
    middle = _between(t0, t1, near_zero)
    # Lines that stay together may all meet in a point: cut through it.
    for k in np.flatnonzero((boxes.stale >= 1) & boxes.points & (boxes.size >= 2)):
        i, j = boxes.items[boxes.start[k]], boxes.items[boxes.start[k + 1] - 1]
        if chart.w0[i] != chart.w0[j]:
            meet = (chart.u0[j] - chart.u0[i]) / (chart.w0[i] - chart.w0[j])
            middle[k] = meet if t0[k] < meet < t1[k] else middle[k]
    return np.stack(
        [t0, _between(t0, middle, near_zero), middle, _between(middle, t1, near_zero), t1]
    )


def _between(t0: _Floats, t1: _Floats, near_zero: _Floats) -> _Floats:
    """Return the middle, on a logarithmic scale if t spans octaves."""
    middle = (t0 + t1) / 2
    wide = np.where(t0 > 0, np.sqrt(t0) * np.sqrt(t1), t1 * near_zero)
    return np.where(t1 > 4 * t0, wide, middle)
