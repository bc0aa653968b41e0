"""Where lines cross strips.

The strips of a slab are numbered upwards. An item crosses the strips from `first` up to, but
not including, `stop`; it is accepted in those from `stop` on and rejected in those before
`first`. Places within rounding errors of an edge are found again exactly, so that lines that
meet in the end of an edge are told apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.cuts import Slabs
from demur._kernels.lines import EPS, Chart, at_most

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]


class Places(NamedTuple):
    """Items in slabs and the strips they cross."""

    items: _Ints
    slab: _Ints
    first: _Ints
    stop: _Ints


def place(chart: Chart, slabs: Slabs, items: _Ints, slab: _Ints) -> Places:
    """Find the strips that items cross in the slab of each."""
    first, stop = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
    is_node = items >= chart.points
    for rows in (np.flatnonzero(~is_node), np.flatnonzero(is_node)):
        if len(rows) == len(items):
            return Places(items, slab, *_place(chart, slabs, items, slab))
        if len(rows):
            first[rows], stop[rows] = _place(chart, slabs, items.take(rows), slab.take(rows))
    return Places(items, slab, first, stop)


def _place(chart: Chart, slabs: Slabs, items: _Ints, slab: _Ints) -> tuple[_Ints, _Ints]:
    """Place items that are all points or all nodes."""
    strips = slabs.strips.take(slab)
    u1, w1 = chart.u1.take(items), chart.w1.take(items)
    is_point = bool(len(items)) and items[0] < chart.points
    u0, w0 = (u1, w1) if is_point else (chart.u0.take(items), chart.w0.take(items))
    fuzz = slabs.fuzz.take(slab)
    begin = _steps(slabs, 0, u1, w1, slab, strips, fuzz)
    end = _steps(slabs, 1, u1, w1, slab, strips, fuzz)
    highest = np.maximum(begin[0], end[0])
    unsure = begin[1] | end[1]
    if not is_point:
        begin = _steps(slabs, 0, u0, w0, slab, strips, fuzz)
        end = _steps(slabs, 1, u0, w0, slab, strips, fuzz)
        unsure |= begin[1] | end[1]
    lowest = np.minimum(begin[0], end[0])
    stop = np.minimum(np.ceil(highest).astype(np.int64), strips)
    first = np.maximum(np.floor(lowest).astype(np.int64), 0)
    rows = np.flatnonzero(unsure)
    if len(rows):
        corners = [corner.take(rows) for corner in (u0, w0, u1, w1)]
        first[rows], stop[rows] = _place_exactly(slabs, corners, slab.take(rows))
    return np.minimum(first, stop), stop


def _steps(
    slabs: Slabs, side: int, u: _Floats, w: _Floats, slab: _Ints, strips: _Ints, fuzz: _Floats
) -> tuple[_Floats, _Bools]:
    """Return how many chords lie below lines at one side of their slabs, plus a half.

    Minus a half is on or below the lower edge. And where rounding may have upset it.
    """
    t, low, high = (ends[side].take(slab) for ends in slabs.edges)
    v = u + t * w
    steps = (v - slabs.middle[side].take(slab)) * slabs.rise.take(slab) + strips * 0.5
    near = np.abs(steps - np.rint(steps)) <= fuzz
    steps = np.minimum(np.maximum(steps, 0.5), strips - 0.5)
    margin = slabs.margin.take(slab)
    from_low, from_high = v - low, v - high
    near |= (np.abs(from_low) <= margin) | (np.abs(from_high) <= margin)
    steps = np.where(from_low > 0, steps, -0.5)
    return np.where(from_high < 0, steps, strips + 0.5), near


def _place_exactly(slabs: Slabs, corners: list[_Floats], slab: _Ints) -> tuple[_Ints, _Ints]:
    u0, w0, u1, w1 = corners
    t = slabs.edges.t.take(slab, axis=1)
    strips = slabs.strips.take(slab)
    first, stop = np.zeros(len(slab), np.int64), np.zeros(len(slab), np.int64)
    for k in range(int(strips.max()) + 1):
        edge = slabs.edge(slab, np.full(len(slab), k))
        below = at_most(u1, w1, t[0], edge[0]) & at_most(u1, w1, t[1], edge[1])
        above = at_most(-u0, -w0, t[0], -edge[0]) & at_most(-u0, -w0, t[1], -edge[1])
        stop += ~below & (k < strips)
        first += above & (k > 0) & (k <= strips)
    return first, stop
