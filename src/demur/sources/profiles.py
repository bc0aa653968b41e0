"""Exact masses along some directions, next to a histogram of the same rows.

Which side of a threshold a whole cell is on follows from its corners, because products and sums
round monotonically. So only the rows of cells that a strip passes through are looked at one by
one; the others come from the histogram. Where its cells are not those of the scores, all rows are
looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.source import Histogram, Measure, Profile, Rows, Strip
from demur.sources.finder import Finder

_LARGEST = float(np.finfo(np.float64).max)


class ProfileCounter:
    """Counts along strips, batch by batch."""

    def __init__(
        self, strips: Sequence[Strip], finders: Sequence[Finder] | None, measure: Measure
    ) -> None:
        """Count along `strips`; `finders` are those of a histogram of all rows by scores."""
        self._measure = measure
        self._lines = [_Line(strip, finders, measure) for strip in strips]
        self._touched: BoolArray | None = None
        if finders is not None:
            self._touched = np.logical_or.reduce([line.touched for line in self._lines])

    def add(self, rows: Rows, key: IntArray) -> None:
        """Count a batch, given the cells of its rows."""
        picked = rows
        if self._touched is not None:
            some = np.flatnonzero(self._touched.take(key))
            key = key.take(some)
            picked = Rows(
                rows.scores.take(some, axis=0),
                rows.group.take(some),
                rows.loss.take(some),
                None if rows.weight is None else rows.weight.take(some),
            )
        masses = self._measure.masses(picked)
        table = np.vstack([masses.id, masses.loss, masses.ood])
        for line in self._lines:
            line.add(picked.scores, key, table)

    def result(self, histogram: Histogram) -> tuple[Profile, ...]:
        """Return the profiles, given the masses of all cells."""
        table = np.vstack([histogram.id, histogram.loss, histogram.ood])
        return tuple(line.profile(histogram.key, table) for line in self._lines)


class _Line:
    def __init__(self, strip: Strip, finders: Sequence[Finder] | None, measure: Measure) -> None:
        self._weights = strip.weights
        thresholds = np.linspace(strip.low, strip.high, max(2, strip.steps))
        self._thresholds = np.unique(thresholds)
        self._below = self.touched = np.empty(0, bool)
        if finders is not None:
            least, most = _corner_values(strip.weights, finders)
            self._below = (most <= strip.low).ravel()
            self.touched = ~self._below & (least <= strip.high).ravel()
        self._sums = np.zeros((2 + measure.columns, len(self._thresholds) + 1), np.int64)

    def add(self, scores: FloatArray, key: IntArray, masses: IntArray) -> None:
        value = self._weights[0] * scores[:, 0]
        for weight, column in zip(self._weights[1:], scores.T[1:], strict=True):
            value = value + weight * column
        slot = np.searchsorted(self._thresholds, value)
        if len(self.touched):
            # Cells that are below come with the histogram.
            own = np.flatnonzero(self.touched.take(key))
            slot, masses = slot[own], masses[:, own]
        for sums, column in zip(self._sums, masses, strict=True):
            np.add.at(sums, slot, column)

    def profile(self, key: IntArray, masses: IntArray) -> Profile:
        total = np.cumsum(self._sums[:, :-1], axis=1)
        if len(self._below):
            total += masses[:, self._below[key]].sum(axis=1, keepdims=True)
        return Profile(self._thresholds, total[0], total[2:], total[1])


def _corner_values(
    weights: tuple[float, ...], finders: Sequence[Finder]
) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest value that a row of each cell can have."""
    least, most = np.zeros(1), np.zeros(1)
    with np.errstate(over="ignore"):
        for place, (weight, finder) in enumerate(zip(weights, finders, strict=True)):
            low = weight * np.append(-_LARGEST, finder.edges)
            high = weight * np.append(np.nextafter(finder.edges, -np.inf), _LARGEST)
            if weight < 0:
                low, high = high, low
            least = low if place == 0 else least[:, None] + low
            most = high if place == 0 else most[:, None] + high
    return least, most
