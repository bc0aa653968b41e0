"""Slabs cut by chords into strips, and where lines cross them.

The strips of a slab are numbered upwards. An item crosses the strips from `first` up to, but
not including, `stop`; it is accepted in those from `stop` on and rejected in those before
`first`. In doubt it crosses, so that rounding does no harm.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.boxes import EPS, Chart, Edges, at_most

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]
_Lines = tuple[_Floats, _Floats]
# Arithmetic is several times faster than choosing by a mask.
_HUGE = 2.0**100
# Rows worked on together; their arrays stay in the cache.
_CHUNK = 1 << 12


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
        rounding_margin(edges, sizes),
        np.zeros(count, bool),
    )


def rounding_margin(edges: Edges, sizes: _Floats) -> _Floats:
    """Return how far rounding may put lines off, given upper bounds on their u and w."""
    size = (
        sizes[0]
        + edges.t[1] * sizes[1]
        + np.abs(edges.low).max(axis=0)
        + np.abs(edges.high).max(axis=0)
    )
    return np.asarray(4 * EPS * size + float(np.finfo(np.float64).tiny))


class Places(NamedTuple):
    """Items in slabs and the strips they cross."""

    items: _Ints
    slab: _Ints
    first: _Ints
    stop: _Ints


def place(chart: Chart, slabs: Slabs, items: _Ints, slab: _Ints) -> Places:
    """Find the strips that items cross in the slab of each."""
    first, stop = _place(chart, slabs, items, slab, 1.0)
    if slabs.exact.any():
        rows = np.flatnonzero(slabs.exact.take(slab))
        some, its_slab = items.take(rows), slab.take(rows)
        first_, stop_ = _place(chart, slabs, some, its_slab, -1.0)
        unsure = np.flatnonzero((first_ != first.take(rows)) | (stop_ != stop.take(rows)))
        rows, some, its_slab = rows.take(unsure), some.take(unsure), its_slab.take(unsure)
        first[rows], stop[rows] = _place_exactly(chart, slabs, some, its_slab)
    return Places(items, slab, np.minimum(first, stop), stop)


def _place(
    chart: Chart, slabs: Slabs, items: _Ints, slab: _Ints, doubt: float
) -> tuple[_Ints, _Ints]:
    """Place items, rounding errors being `doubt` times the margin."""
    first, stop = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
    is_node = items >= chart.points
    nodes = np.flatnonzero(is_node)
    if 0 < len(nodes) < len(items):
        for rows in (np.flatnonzero(~is_node), nodes):
            places = _place(chart, slabs, items.take(rows), slab.take(rows), doubt)
            first[rows], stop[rows] = places
        return first, stop
    scale = _ChordScale.of(slabs, doubt)
    for start in range(0, len(items), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        some = items[chunk]
        bottom = chart.u0.take(some), chart.w0.take(some)
        top = (chart.u1.take(some), chart.w1.take(some)) if len(nodes) else None
        with np.errstate(over="ignore"):
            first[chunk], stop[chunk] = _strips(scale, slab[chunk], bottom, top)
    return first, stop


class _ChordScale(NamedTuple):
    """How to turn v into a number of chords, at both ends of slabs."""

    t: _Floats
    shift: _Floats
    """Chords below v = 0, plus a half."""
    low: _Floats
    high: _Floats
    rise: _Floats
    strips: _Floats
    fuzz: _Floats

    @classmethod
    def of(cls, slabs: Slabs, doubt: float) -> _ChordScale:
        rise = 1 / slabs.step
        return cls(
            slabs.edges.t,
            slabs.strips / 2 - slabs.middle * rise,
            slabs.edges.low - doubt * slabs.margin,
            slabs.edges.high + doubt * slabs.margin,
            rise,
            slabs.strips.astype(np.float64),
            doubt * (slabs.margin * rise + 16 * EPS * slabs.strips),
        )


def _strips(
    scale: _ChordScale, slab: _Ints, bottom: _Lines, top: _Lines | None
) -> tuple[_Floats, _Floats]:
    """Place ranges of lines, or single lines if there is no `top`."""
    rise, strips, fuzz = scale.rise.take(slab), scale.strips.take(slab), scale.fuzz.take(slab)
    last = strips - 0.5
    ends = [[values[k].take(slab) for values in scale[:4]] for k in (0, 1)]

    def chords(line: _Lines, end: list[_Floats]) -> _Floats:
        """Return how many chords are below, plus a half; huge numbers are outside the slab."""
        t, shift, low, high = end
        v = line[0] + t * line[1]
        count = np.minimum(np.maximum(v * rise + shift, 0.5), last)
        return np.maximum(np.minimum(count, (v - low) * _HUGE), (v - high) * _HUGE)

    below = [chords(bottom, end) for end in ends]
    above = below if top is None else [chords(top, end) for end in ends]
    first = np.floor(np.minimum(*below) - fuzz)
    stop = np.ceil(np.maximum(*above) + fuzz)
    return np.minimum(np.maximum(first, 0), strips), np.maximum(np.minimum(stop, strips), 0)


def _place_exactly(chart: Chart, slabs: Slabs, items: _Ints, slab: _Ints) -> tuple[_Ints, _Ints]:
    u0, u1, w0, w1 = (corner.take(items) for corner in chart.corners)
    t = slabs.edges.t.take(slab, axis=1)
    strips = slabs.strips.take(slab)
    first, stop = np.zeros(len(slab), np.int64), np.zeros(len(slab), np.int64)
    for k in range(int(strips.max(initial=0)) + 1):
        edge = slabs.edge(slab, np.full(len(slab), k))
        below = at_most(u1, w1, t[0], edge[0]) & at_most(u1, w1, t[1], edge[1])
        above = at_most(-u0, -w0, t[0], -edge[0]) & at_most(-u0, -w0, t[1], -edge[1])
        stop += ~below & (k < strips)
        first += above & (k > 0) & (k <= strips)
    return first, stop
