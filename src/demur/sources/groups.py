"""From groups of sums, as an engine returns them, to histograms and tallies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.bins import Axis, Bins
from demur.core.source import Histogram, Measure, Overview, Profile, Strip, Tally
from demur.sources import expressions as ex
from demur.sources.standard import Table

if TYPE_CHECKING:
    from demur.sources.expressions import Expr

INFINITE, NOWHERE = -1, -2
"""Keys of rows with an infinite score, and of rows that are not to be counted."""

_LARGEST = float(np.finfo(np.float64).max)


class StripAxis:
    """Bins along a strip, whose edges are the thresholds of its profile."""

    def __init__(self, strip: Strip) -> None:
        self._weights = strip.weights
        steps = max(2, strip.steps)
        with np.errstate(over="ignore"):
            scale = steps / min(strip.high - strip.low, _LARGEST) if strip.high > strip.low else 0.0
        if not 0 < scale < 2.0**1000:
            steps, scale = 1, 0.0
        # Two pieces more: what is at most `low`, and what is above `high`.
        start = [-_LARGEST, np.nextafter(strip.low, np.inf), np.nextafter(strip.high, np.inf)]
        self.axis = Axis(
            np.array(start), np.array([0.0, scale, 0.0]), np.array([0, 1, 1 + steps, 2 + steps])
        )
        self.threshold = np.nextafter(self.axis.edges(), -np.inf)

    @property
    def bins(self) -> int:
        """Number of bins that count: all but the one above the strip."""
        return self.axis.bins - 1

    def key(self, scores: Sequence[str], first: int) -> Expr:
        """Return the bin of a row, counted from `first`."""
        import narwhals.stable.v2 as nw

        value = ex.combined(self._weights, scores)
        inside = ex.finite(scores) & (value < float(self.axis.start[2]))
        place = ex.place(self.axis, value) + first
        return nw.when(inside).then(place).otherwise(nw.lit(NOWHERE)).cast(nw.Int64)


def histogram_of(
    table: Table, bins: Bins, measure: Measure, strips: Sequence[StripAxis], overview: Overview
) -> Histogram:
    """Return the histogram that is in groups by key and side."""
    sums = _Sums(table, measure)
    cells = sums.between(0, bins.cells)
    key = np.unique(cells.key)
    at = np.searchsorted(key, cells.key)
    by_cell = cells.added(at, len(key))
    infinite = sums.between(INFINITE, 0)
    lost = infinite.added(np.zeros(len(infinite.key), np.int64), 1)
    profiles, start = [], bins.cells
    for strip in strips:
        part = sums.between(start, start + strip.bins)
        table_ = np.cumsum(part.added(part.key - start, strip.bins).masses, axis=1)
        profiles.append(Profile(strip.threshold, table_[0], table_[2:], table_[1]))
        start += strip.bins
    low, high = _extents(bins, key, overview)
    return Histogram(
        *(key, low, high, by_cell.rows),
        *(
            by_cell.masses[0],
            by_cell.masses[2:],
            by_cell.masses[1],
            by_cell.cheap[0],
            by_cell.cheap[1],
        ),
        tuple(int(mass) for mass in lost.masses[:, 0]),
        sums.inexact,
        tuple(profiles),
    )


def tallies_of(table: Table, measure: Measure) -> dict[Any, Tally]:
    """Return the tallies that are in groups by the values of a column, acceptance and side."""
    n = len(table["side"])
    names = [None] * n if "by" not in table else table["by"].tolist()
    groups = {name: place for place, name in enumerate(dict.fromkeys(names))} or {None: 0}
    place = np.array([groups[name] for name in names], np.int64)
    sums = _Sums(dict(table) | {"key": 2 * place + table["accept"].astype(np.int64)}, measure)
    masses = sums.added(sums.key, 2 * len(groups)).masses
    found = {}
    for name, at in groups.items():
        accepted, total = masses[:, 2 * at + 1], masses[:, 2 * at : 2 * at + 2].sum(axis=1)
        whole = [[int(mass) for mass in part] for part in (accepted, total)]
        (id_, loss, *ood), (total_id, total_loss, *total_ood) = whole
        found[name] = Tally(id_, tuple(ood), loss, total_id, tuple(total_ood), total_loss)
    return found


class _Added:
    """Sums by place: masses (ID, loss, OOD of each set), rows, and cheap ID and loss masses."""

    def __init__(self, places: int, columns: int) -> None:
        self.masses = np.zeros((2 + columns, places), np.int64)
        self.rows = np.zeros(places, np.int64)
        self.cheap = np.zeros((2, places), np.int64)


class _Sums:
    """Groups of sums as integer columns, of which "one" and "loss" are always there."""

    def __init__(self, table: Table, measure: Measure) -> None:
        self._measure = measure
        self._table = {
            name: column.astype(np.int64) for name, column in table.items() if name != "by"
        }
        self.key, self._side = self._table["key"], self._table["side"]

    def between(self, start: int, stop: int) -> _Sums:
        """Return the groups with keys from `start` to `stop`."""
        kept = (self.key >= start) & (self.key < stop)
        return _Sums({name: column[kept] for name, column in self._table.items()}, self._measure)

    def added(self, place: IntArray, places: int) -> _Added:
        """Add the groups up by place."""
        table, total = self._table, _Added(places, self._measure.columns)
        is_id = self._side < 0
        mass = table.get("mass", table["one"])
        np.add.at(total.rows, place, table["one"])
        np.add.at(total.masses[0], place[is_id], mass[is_id])
        np.add.at(total.masses[1], place[is_id], table["loss"][is_id])
        np.add.at(total.masses, (2 + self._side[~is_id], place[~is_id]), mass[~is_id])
        if not self._measure.plain:
            for sums, name in zip(total.cheap, ("cheap_id", "cheap_loss"), strict=True):
                np.add.at(sums, place[is_id], table[name][is_id])
        elif self._measure.price > 1:
            total.cheap[:] = total.masses[:2]
        else:
            total.cheap[0] = total.masses[0] - total.masses[1]
        return total

    @property
    def inexact(self) -> tuple[bool, bool]:
        """Whether any ID, any OOD mass was rounded."""
        if self._measure.plain:
            return False, False
        rounded = self._table["inexact"] > 0
        return bool(rounded[self._side < 0].any()), bool(rounded[self._side >= 0].any())


def _extents(bins: Bins, key: IntArray, overview: Overview) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest values that rows of the cells can have."""
    low, high = [], []
    for axis, place, least, most in zip(
        bins.axes, bins.places(key), *_reach(bins, overview), strict=True
    ):
        edges = axis.edges()
        low.append(np.maximum(np.append(-np.inf, edges), least)[place])
        high.append(np.minimum(np.append(np.nextafter(edges, -np.inf), np.inf), most)[place])
    return np.column_stack(low), np.column_stack(high)


def _reach(bins: Bins, overview: Overview) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest value that each axis can meet."""
    if bins.weights is None:
        return overview.low, overview.high
    low, high = [], []
    for number, weights in enumerate(bins.weights):
        up = np.array(weights) >= 0
        ends = np.array(
            [
                np.where(up, overview.low, overview.high),
                np.where(up, overview.high, overview.low),
            ]
        )
        least, most = bins.values(ends)[:, number]
        low.append(least)
        high.append(most)
    return np.array(low), np.array(high)
