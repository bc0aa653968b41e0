"""Rows in arrays, counted into cells and along strips, batch by batch.

Which side of a threshold a whole cell is on follows from its corners, because products and sums
round monotonically. So only the rows of cells that a strip passes through are looked at one by
one; the others come from the histogram. Where its cells are not those of the scores, all rows are
looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.bins import BinFinder, Bins, key_of
from demur.core.columns import combine
from demur.core.source import Cells, Histogram, Measure, Profile, Rows, Strip

# Grids of more cells than this are searched and not looked up.
_MOST_CELLS = 1 << 26


class CellFinder:
    """Tells which rows are in some cells."""

    def __init__(self, cells: Cells) -> None:
        self._finders = [BinFinder(axis) for axis in cells.bins.axes]
        self._bins, self._key = cells.bins, cells.key
        self._table: BoolArray | None = None
        if cells.bins.cells <= _MOST_CELLS:
            self._table = np.zeros(cells.bins.cells, bool)
            self._table[cells.key] = True

    def rows(self, scores: FloatArray) -> IntArray:
        """Return the places of the rows that are in the cells; scores must be finite."""
        key = key_of(self._finders, self._bins.values(scores))
        if self._table is not None:
            return np.flatnonzero(self._table.take(key))
        place = np.searchsorted(self._key, key)
        return np.flatnonzero(np.append(self._key, -1).take(place) == key)


# Grids of more cells than this are counted batch by batch, and what is found merged.
_DENSE = 1 << 23
_PENDING = 1 << 20
_LARGEST = float(np.finfo(np.float64).max)


class HistogramCounter:
    """Adds up rows by cell, batch by batch; each batch once."""

    def __init__(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> None:
        self._bins, self._measure = bins, measure
        self._finders = [BinFinder(axis) for axis in bins.axes]
        self._coarse = None if within is None else CellFinder(within)
        dense = bins.cells <= (_DENSE if within is None else _DENSE // 4)
        self._table = _CellSums(bins.cells, len(bins.axes), measure) if dense else None
        self._parts: list[Histogram] = []
        self._pending = 0
        self._infinite = np.zeros(measure.rows, np.int64)
        plain = within is None and bins.weights is None
        self._strips = (
            _ProfileCounter(strips, self._finders if plain else None, measure) if strips else None
        )
        self._inexact = np.zeros(2, bool)

    def add(self, rows: Rows) -> None:
        """Count a batch."""
        rows = self._without_infinite(rows)
        if self._coarse is not None and len(rows.loss):
            # First, since few rows are left then.
            rows = rows.take(self._coarse.rows(rows.scores))
        if len(rows.loss) == 0:
            return
        values = self._bins.values(rows.scores)
        key = key_of(self._finders, values)
        if self._strips is not None:
            self._strips.add(rows, key)
        if self._table is not None:
            self._table.add(key, rows, values)
            return
        distinct, place = np.unique(key, return_inverse=True)
        table = _CellSums(len(distinct), len(self._finders), self._measure)
        table.add(place, rows, values)
        self._keep(table.histogram(distinct))

    def result(self) -> Histogram:
        """Return what was counted so far."""
        if self._table is not None:
            counted = self._table.histogram(np.arange(self._bins.cells))
        else:
            empty = _CellSums(0, len(self._finders), self._measure).histogram(np.empty(0, np.int64))
            counted = _merged_cells([empty, *self._parts])
        profiles: tuple[Profile, ...] = ()
        if self._strips is not None:
            profiles = self._strips.result(counted)
        return Histogram(
            *(counted.key, counted.low, counted.high, counted.rows),
            *(counted.id, counted.ood, counted.loss, counted.cheap_id, counted.cheap_loss),
            tuple(int(mass) for mass in self._infinite),
            (
                bool(counted.inexact[0] | self._inexact[0]),
                bool(counted.inexact[1] | self._inexact[1]),
            ),
            profiles,
            counted.groups,
        )

    def _keep(self, part: Histogram) -> None:
        self._parts.append(part)
        self._pending += len(part.key)
        if self._pending > _PENDING:
            self._parts = [_merged_cells(self._parts)]
            self._pending = len(self._parts[0].key) // 2

    def _without_infinite(self, rows: Rows) -> Rows:
        if len(rows.loss) == 0 or rows.scores.max() < np.inf:
            return rows
        infinite = np.isinf(rows.scores).any(axis=1)
        masses = self._measure.masses(rows.take(np.flatnonzero(infinite)))
        self._infinite += masses.table.sum(axis=1)
        self._inexact |= masses.inexact
        return rows.take(np.flatnonzero(~infinite))


class _CellSums:
    """Running sums and extremes of numbered cells."""

    def __init__(self, cells: int, scores: int, measure: Measure) -> None:
        self._measure = measure
        # The least and the largest value of each score: what a row changes lies together.
        self._ranges = np.empty((cells, scores, 2))
        self._ranges[..., 0], self._ranges[..., 1] = np.inf, -np.inf
        self._inexact = np.zeros(2, bool)
        # All masses 0 or 1: number of right and wrong (of each group) and OOD rows, by cell.
        self._kinds = 2 * max(1, len(measure.groups)) + measure.columns
        self._counts = np.zeros(cells * self._kinds if measure.plain else 0, np.int64)
        # Otherwise: rows, ID, loss, cheap ID, cheap loss, OOD masses and those of groups.
        self._sums = np.zeros((0 if measure.plain else 3 + measure.rows, cells), np.int64)

    def add(self, cell: IntArray, rows: Rows, values: FloatArray) -> None:
        for place, column in enumerate(values.T):
            np.minimum.at(self._ranges[:, place, 0], cell, column)
            np.maximum.at(self._ranges[:, place, 1], cell, column)
        if self._measure.plain:
            np.add.at(self._counts, cell * self._kinds + _kind_of(rows, self._measure), 1)
            return
        masses = self._measure.masses(rows)
        self._inexact |= masses.inexact
        cheap = masses.loss < self._measure.price * masses.id
        columns: list[Any] = [1, masses.id, masses.loss, masses.id * cheap, masses.loss * cheap]
        columns += [*masses.ood, *masses.groups]
        for sums, column in zip(self._sums, columns, strict=True):
            np.add.at(sums, cell, column)

    def histogram(self, key: IntArray) -> Histogram:
        """Return the cells that hold any row."""
        measure = self._measure
        if measure.plain:
            counts = self._counts.reshape(-1, self._kinds)
            held = np.flatnonzero(counts.any(axis=1))
            kinds = counts[held].T.copy()
            own, ood = kinds[: -measure.columns], kinds[-measure.columns :]
            right, wrong = own[::2].sum(axis=0), own[1::2].sum(axis=0)
            groups = np.vstack([own[::2] + own[1::2], own[1::2]]) if measure.groups else own[:0]
            rows, id_ = right + wrong + ood.sum(axis=0), right + wrong
            cheap = right + wrong if self._measure.price > 1 else right
            loss, cheap_loss = wrong, wrong if self._measure.price > 1 else np.zeros_like(wrong)
        else:
            held = np.flatnonzero(self._sums[0])
            sums = self._sums[:, held]
            rows, id_, loss, cheap, cheap_loss = sums[:5]
            ood, groups = sums[5 : 5 + measure.columns], sums[5 + measure.columns :]
        columns = (rows, id_, ood, loss, cheap, cheap_loss)
        inexact = (bool(self._inexact[0]), bool(self._inexact[1]))
        infinite = (0,) * measure.rows
        low, high = np.moveaxis(self._ranges[held], 2, 0)
        return Histogram(key[held], low, high, *columns, infinite, inexact, groups=groups)


def _kind_of(rows: Rows, measure: Measure) -> IntArray:
    """Return 0 for rows without loss, 1 for those with loss 1, and 2 + OOD set, all plain.

    With groups there are two kinds of ID rows for each of them.
    """
    first = 2 * max(1, len(measure.groups))
    ood = first + rows.group if measure.sets else np.int64(first)
    own = rows.loss.astype(np.int64)
    if measure.groups:
        own += 2 * (-1 - rows.group)
    return np.where(rows.group < 0, own, ood)


class _ProfileCounter:
    """Counts along strips, batch by batch."""

    def __init__(
        self, strips: Sequence[Strip], finders: Sequence[BinFinder] | None, measure: Measure
    ) -> None:
        """Count along `strips`; `finders` are those of a histogram of all rows by scores."""
        self._measure = measure
        self._strips = [_StripSums(strip, finders, measure) for strip in strips]
        self._touched: BoolArray | None = None
        if finders is not None:
            self._touched = np.logical_or.reduce([strip.touched for strip in self._strips])

    def add(self, rows: Rows, key: IntArray) -> None:
        """Count a batch, given the cells of its rows."""
        picked = rows
        if self._touched is not None:
            some = np.flatnonzero(self._touched.take(key))
            key = key.take(some)
            picked = rows.take(some)
        table = self._measure.masses(picked).table
        for strip in self._strips:
            strip.add(picked.scores, key, table)

    def result(self, histogram: Histogram) -> tuple[Profile, ...]:
        """Return the profiles, given the masses of all cells."""
        parts = [histogram.id, histogram.loss, histogram.ood]
        table = np.vstack(parts if histogram.groups is None else [*parts, histogram.groups])
        return tuple(strip.profile(histogram.key, table) for strip in self._strips)


class _StripSums:
    """Running sums between the thresholds of one strip."""

    def __init__(self, strip: Strip, finders: Sequence[BinFinder] | None, measure: Measure) -> None:
        self._weights = strip.weights
        self._finder = None if strip.axis is None else BinFinder(strip.axis)
        if self._finder is None:
            self._thresholds = np.unique(np.linspace(strip.low, strip.high, max(2, strip.steps)))
        else:
            self._thresholds = np.nextafter(self._finder.edges, -np.inf)
        self._below = self.touched = np.empty(0, bool)
        if finders is not None:
            least, most = _corner_values(strip.weights, finders)
            self._below = (most <= strip.low).ravel()
            self.touched = ~self._below & (least <= strip.high).ravel()
        self._measure = measure
        self._sums = np.zeros((measure.rows, len(self._thresholds) + 1), np.int64)

    def add(self, scores: FloatArray, key: IntArray, masses: IntArray) -> None:
        value = combine(self._weights, scores)
        if self._finder is None:
            slot = np.searchsorted(self._thresholds, value)
        else:
            slot = self._finder.bin(value).astype(np.int64)
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
        return Profile.of(self._thresholds, total, self._measure)


def _corner_values(
    weights: tuple[float, ...], finders: Sequence[BinFinder]
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


def merged_histograms(parts: Sequence[Histogram]) -> Histogram:
    """Return the histogram of all parts, with profiles; the thresholds of these are the same."""
    profiles = tuple(
        Profile(
            strip[0].threshold,
            sum(profile.id for profile in strip),
            sum(profile.ood for profile in strip),
            sum(profile.loss for profile in strip),
            sum(profile.groups for profile in strip if profile.groups is not None),
        )
        for strip in zip(*(part.profiles for part in parts), strict=True)
    )
    return replace(_merged_cells(parts), profiles=profiles)


def _merged_cells(parts: Iterable[Histogram]) -> Histogram:
    """Return the histogram of all rows, given those of disjoint parts without strips."""
    parts = list(parts)
    keys = np.concatenate([part.key for part in parts])
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.append(True, np.diff(keys[order]) > 0)[: len(order)])

    def joined(columns: list[Any], by: np.ufunc, axis: int = 0) -> Any:
        every = np.concatenate(columns, axis=axis).take(order, axis=axis)
        return by.reduceat(every, first, axis=axis) if len(first) else every

    return Histogram(
        keys[order][first],
        joined([part.low for part in parts], np.minimum),
        joined([part.high for part in parts], np.maximum),
        joined([part.rows for part in parts], np.add),
        joined([part.id for part in parts], np.add),
        joined([part.ood for part in parts], np.add, 1),
        joined([part.loss for part in parts], np.add),
        joined([part.cheap_id for part in parts], np.add),
        joined([part.cheap_loss for part in parts], np.add),
        tuple(int(total) for total in np.sum([part.infinite for part in parts], axis=0)),
        (any(part.inexact[0] for part in parts), any(part.inexact[1] for part in parts)),
        groups=joined([part.groups for part in parts], np.add, 1),
    )
