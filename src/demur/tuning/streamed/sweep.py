"""Branch and bound over the directions of a cone: all thresholds of some directions at once.

For directions from one to another, each cell is accepted for certain above some threshold and
rejected for certain below another. Between these it crosses. So one sort of the thresholds tells
which masses are accepted and which cross at each of them, and `Bound` whether a half-plane there
may be as good as the best one known. Directions with such thresholds are cut in two, until the
cells are wider than their values differ between the directions. Cells that cross then at any
threshold that is left are marked.

Directions are numbered from 0 to 1, and the threshold of a line is what it has above
``lean * direction``, so that lines of the same place have about the same threshold throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.tuning.streamed.bound import Bound
from demur.tuning.streamed.zones import EPS, Zone

# Part of what cells cross that may come from the width of an interval of directions.
ENOUGH = 0.35
_DEEPEST = 40


class Bands(NamedTuple):
    """Cells as bands of lines, from ``first`` to ``last``."""

    cell: IntArray
    first: FloatArray
    """Shape (2, n): threshold in direction 0, moved outwards as rounding asks for; and slope."""
    last: FloatArray
    mass: IntArray
    """Shape (5 + sets, n): the masses of a grid, and then rows that can be fetched."""

    def take(self, places: IntArray) -> Bands:
        """Return some of the cells."""
        return Bands(
            self.cell.take(places),
            self.first.take(places, axis=1),
            self.last.take(places, axis=1),
            self.mass.take(places, axis=1),
        )


def bands_of(low: FloatArray, high: FloatArray, mass: IntArray, rows: IntArray) -> Bands:
    """Return cells with values from `low` to `high`, shape (cells, 2), in the two directions."""
    doubt = 4 * EPS * np.maximum(np.abs(low), np.abs(high)).sum(axis=1)
    first, last = (np.array([end[:, 0], end[:, 1] - end[:, 0]]) for end in (low, high))
    first[0] -= doubt
    last[0] += doubt
    return Bands(np.arange(len(low)), first, last, np.vstack([mass, rows]))


class _Interval(NamedTuple):
    ends: tuple[float, float]
    window: tuple[float, float]
    bands: Bands
    accepted: IntArray
    depth: int


class Sweep:
    """A search of bands, and what it found."""

    def __init__(self, bands: Bands, zones: Sequence[Zone], t: tuple[float, float]) -> None:
        """Search `zones`, which are of one chart and have directions between those of `t`."""
        middle = (bands.first[1] + bands.last[1]) / 2
        rows = bands.mass[-1]
        self._lean = float((middle * rows).sum() / max(1, rows.sum()))
        lean, doubt = np.array([[0.0], [self._lean]]), np.array([[4 * EPS * abs(self._lean)], [0]])
        self._bands = bands._replace(
            first=bands.first - lean - doubt, last=bands.last - lean + doubt
        )
        self._place = (np.array([zone.t for zone in zones]) - t[0]) / (t[1] - t[0])
        self._edges = np.array([(zone.low, zone.high) for zone in zones])
        self.marked = np.zeros(len(bands.cell), bool)
        """Cells that may be crossed by something as good as the best known."""
        self.boxes = 0
        """Intervals of directions looked at."""

    def run(self, bound: Bound, *, few: int, budget: int) -> None:
        """Look at all directions; after `budget` of intervals all that is left counts as open."""
        bands = self._bands
        # Cells of single rows have no width that ends the cutting.
        few = max(few, int(bands.mass[-1].sum()) // 1000)
        start, stop = float(self._place.min()) - 4 * EPS, float(self._place.max()) + 4 * EPS
        nothing = np.zeros(len(bands.mass) - 1, np.int64)
        stack = [_Interval((start, stop), (-np.inf, np.inf), bands, nothing, 0)]
        while stack:
            interval = stack.pop()
            self.boxes += 1
            window = self._window(interval)
            if window is None:
                continue
            interval, first, last = _sifted(interval._replace(window=window))
            levels, alive = _alive(interval, first, last, bound)
            if not alive.any():
                continue
            crossed = _crossed(first, last, levels, alive)
            if self.boxes >= budget or self._done(interval, first, last, crossed, few):
                self.marked[interval.bands.cell[crossed]] = True
                continue
            some = np.flatnonzero(alive)
            end = np.append(levels, window[1])[some[-1] + 1]
            left = interval._replace(window=(float(levels[some[0]]), float(end)))
            stack.extend(_halves(left))

    def _window(self, interval: _Interval) -> tuple[float, float] | None:
        """Return the thresholds of all zones in the interval; None if there are none."""
        start, stop = self._place.T
        # The places of zones are rounded.
        begin = np.maximum(start - 4 * EPS, interval.ends[0])
        end = np.minimum(stop + 4 * EPS, interval.ends[1])
        met = np.flatnonzero(begin <= end)
        if len(met) == 0:
            return None
        part = np.array([begin - 16 * EPS, end + 16 * EPS])[:, met] - start[met]
        part = np.clip(part / np.maximum(stop[met] - start[met], 1e-300), 0, 1)
        low, high = (
            edge[:, 0] + part * (edge[:, 1] - edge[:, 0])
            for edge in (self._edges[met, 0], self._edges[met, 1])
        )
        lean = self._lean * np.array([begin, end])[:, met]
        room = 16 * EPS * (np.abs(self._edges).max() + abs(self._lean))
        window = (
            max(interval.window[0], float((low - lean).min()) - room),
            min(interval.window[1], float((high - lean).max()) + room),
        )
        return window if window[0] <= window[1] else None

    def _done(
        self,
        interval: _Interval,
        first: FloatArray,
        last: FloatArray,
        crossed: BoolArray,
        few: int,
    ) -> bool:
        """Return whether cutting the interval would hardly leave fewer rows to look at."""
        bands, (start, stop) = interval.bands, interval.ends
        rows = bands.mass[-1][crossed]
        if interval.depth >= _DEEPEST or int(rows.sum()) <= few:
            return True
        middle = start + (stop - start) / 2
        if not start < middle < stop:
            return True
        high, low = (end[0] + middle * end[1] for end in (bands.last, bands.first))
        there, whole = ((b - a)[crossed] @ rows for a, b in ((low, high), (first, last)))
        return bool(whole - there <= ENOUGH * whole)


def _sifted(interval: _Interval) -> tuple[_Interval, FloatArray, FloatArray]:
    """Leave the bands that cross the window, and return where they begin and end."""
    start, stop = interval.ends
    bands, (low, high) = interval.bands, interval.window
    first, last = bands.first, bands.last
    begin = np.minimum(first[0] + start * first[1], first[0] + stop * first[1])
    end = np.maximum(last[0] + start * last[1], last[0] + stop * last[1])
    inside = end <= low
    kept = np.flatnonzero(~inside & (begin <= high))
    below = bands.mass[:-1].take(np.flatnonzero(inside), axis=1).sum(axis=1)
    interval = interval._replace(bands=bands.take(kept), accepted=interval.accepted + below)
    return interval, begin.take(kept), end.take(kept)


def _alive(
    interval: _Interval, first: FloatArray, last: FloatArray, bound: Bound
) -> tuple[FloatArray, BoolArray]:
    """Return where masses change, and whether something good may be from there to the next."""
    low, high = interval.window
    mass = interval.bands.mass[:-1]
    levels = np.concatenate([[low], first[first > low], last[last <= high]])
    levels.sort()
    begun, ended = (_sums(mass, at, levels) for at in (first, last))
    return levels, bound.alive_each(interval.accepted[:, None] + ended, begun - ended)


def _sums(mass: IntArray, at: FloatArray, levels: FloatArray) -> IntArray:
    """Return the masses at or below each level."""
    order = np.argsort(at)
    total = np.zeros((len(mass), len(at) + 1), np.int64)
    np.cumsum(mass.take(order, axis=1), axis=1, out=total[:, 1:])
    return total.take(np.searchsorted(at.take(order), levels, side="right"), axis=1)


def _crossed(
    first: FloatArray, last: FloatArray, levels: FloatArray, alive: BoolArray
) -> BoolArray:
    """Return which bands cross some of the thresholds that are left."""
    before = np.concatenate([[0], np.cumsum(alive)])
    # From the piece in which a band begins up to the one that begins where it ends.
    begin = np.maximum(np.searchsorted(levels, first, side="right") - 1, 0)
    end = np.searchsorted(levels, last, side="left")
    return np.asarray(before[np.maximum(end, begin)] > before[begin])


def _halves(interval: _Interval) -> list[_Interval]:
    (start, stop), depth = interval.ends, interval.depth + 1
    middle = start + (stop - start) / 2
    return [interval._replace(ends=ends, depth=depth) for ends in ((start, middle), (middle, stop))]
