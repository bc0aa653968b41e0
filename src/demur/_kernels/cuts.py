"""How boxes are cut: at some t into slabs, and slabs by chords into strips.

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
_Bools = npt.NDArray[np.bool_]

# Upper limit of drift / height, and the number of slabs, and of parts of each, up to there.
_PLANS = ((1.4, 1, 8), (5.6, 2, 4), (24.0, 4, 2), (np.inf, 4, 1))
# Boxes up to so many items have so many strips to a part.
_SIZES = (64, 256)
_FINER = (1, 4, 8)
# The middle chord keeps this distance, in heights, from the edges.
_RIM = 0.02
# Boxes whose lines stayed together for this many cuts are cut where two of them meet, exactly.
STALE = 2


class Slabs(NamedTuple):
    """Slabs and the chords that cut them into strips."""

    edges: Edges
    strips: _Ints
    """Number of strips of each slab."""
    parts: _Ints
    """Number of new boxes that the strips of each slab may form."""
    middle: _Floats
    """Shape (2, slabs): where the middle of the strips begins and ends."""
    step: _Floats
    """Distance of neighbouring chords."""
    margin: _Floats
    """How far rounding may put a line off."""
    exact: _Bools
    """Whether places within the margin are to be found exactly."""

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
    return Slabs(
        edges,
        np.ones(count, np.int64),
        np.ones(count, np.int64),
        edges.low,
        np.full(count, np.inf),
        _margin(edges, sizes),
        np.zeros(count, bool),
    )


def cut(chart: Chart, boxes: Boxes) -> tuple[Slabs, _Ints]:
    """Return slabs, and how many each box is cut into.

    A box that float64 cannot cut becomes one slab of one strip.
    """
    edges = boxes.edges
    height = (edges.high - edges.low).mean(axis=0)
    width = edges.t[1] - edges.t[0]
    tilt = (edges.low[1] - edges.low[0] + edges.high[1] - edges.high[0]) / 2
    drift = width * boxes.lines[2] + 2 * np.abs(width * boxes.lines[3] - tilt)
    limits, slabs, parts = (np.array(column) for column in zip(*_PLANS, strict=True))
    plan = np.searchsorted(limits[:-1], drift / np.where(height > 0, height, 1.0))
    slabs, parts = slabs.take(plan), parts.take(plan)
    strips = parts * np.array(_FINER).take(np.searchsorted(_SIZES, boxes.size))
    strips[edges.flat()] = 1
    slabs[width <= 16 * EPS * edges.t[1]] = 1
    box = np.repeat(np.arange(len(boxes.stale)), slabs)
    edges = _slabs(edges, slabs, box, _cut_t(chart, boxes, drift, height))
    strips, parts = strips.take(box), parts.take(box)
    margin = _margin(edges, boxes.lines[:2].take(box, axis=1))
    stale = boxes.stale.take(box)
    chords = _chords(boxes, box, edges, strips)
    slabs_ = Slabs(edges, strips, parts, *chords, margin, stale >= STALE)
    uneven = np.flatnonzero((stale > 0) & (_largest(slabs_) > 0.9))
    if len(uneven):
        middle, step = (edges.low + edges.high) / 2, (edges.high - edges.low).max(axis=0) / strips
        chords[0][:, uneven], chords[1][uneven] = middle.take(uneven, axis=1), step.take(uneven)
    span = (strips / 2 - 1) * slabs_.step
    clipped = (slabs_.middle - span < edges.low - margin) | (
        slabs_.middle + span > edges.high + margin
    )
    clipped = clipped.any(axis=0) & (strips > 1)
    return slabs_._replace(exact=slabs_.exact | clipped), slabs


def _largest(slabs: Slabs) -> _Floats:
    """Return the part of each slab that its largest strip takes up."""
    count = len(slabs.strips)
    most = int(slabs.strips.max(initial=1))
    slab, strip = np.divmod(np.arange(count * (most + 1)), most + 1)
    area = np.diff(slabs.edge(slab, strip).mean(axis=0).reshape(count, most + 1), axis=1)
    share: _Floats = area.max(axis=1) / np.maximum(area.sum(axis=1), np.finfo(np.float64).tiny)
    return share


def _margin(edges: Edges, sizes: _Floats) -> _Floats:
    size = (
        sizes[0]
        + edges.t[1] * sizes[1]
        + np.abs(edges.low).max(axis=0)
        + np.abs(edges.high).max(axis=0)
    )
    return np.asarray(4 * EPS * size + float(np.finfo(np.float64).tiny))


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
    for k in np.flatnonzero((boxes.stale >= STALE) & boxes.points & (boxes.size >= 2)):
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


def _chords(boxes: Boxes, box: _Ints, edges: Edges, strips: _Ints) -> tuple[_Floats, _Floats]:
    """Return both ends of the middle chord, and the distance of neighbouring chords."""
    w, v, off = boxes.lines[3:].take(box, axis=1)
    t, low, high = (ends.mean(axis=0) for ends in edges)
    v = v + w * (t - boxes.t.mean(axis=0).take(box))
    rim = _RIM * (high - low)
    v = np.minimum(np.maximum(v, low + rim), high - rim)
    lean = w * (edges.t[1] - edges.t[0]) / 2
    reach = np.maximum(2 * off, rim)
    # Chords between these levels, in the middle, stay inside the slab.
    lowest = np.maximum(edges.low[0] + lean, edges.low[1] - lean)
    highest = np.minimum(edges.high[0] + lean, edges.high[1] - lean)
    first, last = np.maximum(lowest, v - reach), np.minimum(highest, v + reach)
    fits = (last - first >= reach / 2) & (strips > 2)
    v = np.where(fits, (first + last) / 2, v)
    step = np.where(fits, (last - first) / np.maximum(strips - 2, 1), 2 * reach / strips)
    return np.stack([v - lean, v + lean]), step
