"""Cells for directions that are nearly the same: long along the lines, thin across them.

All half-planes of a cone have weights (1, t), or (t, 1), with t from t[0] to t[1]. Let a and b be
the values of a row in the two directions at its ends. In each direction between, the value of the
row is between a and b, at the same place for all rows: half-planes of the cone are half-planes of
(a, b) with two non-negative weights. Cells of (a, b) are crossed by few of them.

In a cell with a0 <= a <= a1 and b0 <= b <= b1, the point of the plane with values (a0, b0) is
accepted before all rows in every direction of the cone, and that with (a1, b1) after them; in
other directions this need not be so.

Rounding: `_DOUBT` times |x| + t*|y| is many times what rounding may put off any of a, b, these
two points, and what rules add up. Cells are larger by that, and the points by a quarter of it: so
the points lie beyond all rows, and cells beyond their points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from demur._arrays import FloatArray
from demur.core.bins import Axis, Bins, axis_for
from demur.tuning.streamed.cloud import Signs, corners
from demur.tuning.streamed.zones import Zone

_DOUBT = 2.0**-44
# Scores beyond this, whose sums may overflow, are left to cells of scores.
_LARGEST = 1e150
# Part of the width of a cone that is added on either side, and its least width relative to t.
_ROOM = 0.25
_THINNEST = 2.0**-16


class Cone(NamedTuple):
    """Directions between two."""

    signs: Signs
    """By which scores are multiplied before."""
    chart: int
    """The score with weight 1 or -1."""
    t: tuple[float, float]

    def direction(self, t: float) -> tuple[float, float]:
        """Return the weights of the scores for one of the directions."""
        x, y = self.signs
        p, q = (x, t * y) if self.chart == 0 else (t * x, y)
        return float(p), float(q)

    @property
    def weights(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The two directions, as weights of the scores."""
        return self.direction(self.t[0]), self.direction(self.t[1])

    def holds(self, direction: tuple[float, ...]) -> bool:
        """Return whether a direction is between the two."""
        p, q = (sign * weight for sign, weight in zip(self.signs, direction, strict=True))
        one, other = (p, q) if self.chart == 0 else (q, p)
        return one > 0 and self.t[0] <= other / one <= self.t[1]


def cone_of(
    zones: Mapping[Signs, Sequence[Zone]], low: FloatArray, high: FloatArray
) -> Cone | None:
    """Return a cone around all zones; None if they are of several charts.

    No score is below `low` or above `high`.
    """
    charts = {(signs, zone.chart) for signs, some in zones.items() for zone in some}
    if len(charts) != 1 or max(np.abs(low).max(), np.abs(high).max()) > _LARGEST:
        return None
    ((signs, chart),) = charts
    ends = [t for zone in zones[signs] for t in zone.t]
    room = max(_ROOM * (max(ends) - min(ends)), _THINNEST * max(ends), _THINNEST**2)
    return Cone(signs, chart, (max(0.0, min(ends) - room), min(1.0, max(ends) + room)))


def cone_bins(cone: Cone, rows: FloatArray, low: FloatArray, high: FloatArray, bins: int) -> Bins:
    """Return bins of (a, b) in which some rows spread evenly.

    `low` and `high` are corners of cells, shape (cells, 2). What is beyond all of them gets bins
    of its own.
    """
    plain = Bins((), cone.weights)
    first, last = corners(low.T, high.T, cone.signs)
    ends = np.array(cone.signs)
    reach = np.vstack(
        [plain.values(first.T * ends).min(axis=0), plain.values(last.T * ends).max(axis=0)]
    )
    values = plain.values(rows)
    inside = values[((values >= reach[0]) & (values <= reach[1])).all(axis=1)]
    axes = (axis_for(column, bins) for column in np.vstack([inside, reach]).T)
    guarded = (_guarded(axis, float(end)) for axis, end in zip(axes, reach[1], strict=True))
    return Bins(tuple(guarded), cone.weights)


def _guarded(axis: Axis, last: float) -> Axis:
    """Put a bin before the first and one after the last value."""
    start = np.concatenate([[-np.finfo(np.float64).max], axis.start, [np.nextafter(last, np.inf)]])
    first = np.concatenate([[0], axis.first + 1, [axis.bins + 2]])
    return Axis(start, np.concatenate([[0.0], axis.scale, [0.0]]), first)


class Extents(NamedTuple):
    """Values of a and b of cells, shape (cells, 2), and how far rounding may put them off."""

    low: FloatArray
    high: FloatArray
    doubt: FloatArray

    @property
    def widened(self) -> tuple[FloatArray, FloatArray]:
        """The extents with all doubts."""
        doubt = self.doubt[:, None]
        return self.low - doubt, self.high + doubt


def extents_of_scores(cone: Cone, low: FloatArray, high: FloatArray) -> Extents:
    """Return the extents of cells of scores, given their corners."""
    first, last = corners(low.T, high.T, cone.signs)
    plain, ends = Bins((), cone.weights), np.array(cone.signs)
    size = np.maximum(np.abs(low), np.abs(high)).sum(axis=1)
    return Extents(
        plain.values(first.T * ends), plain.values(last.T * ends), _DOUBT * size + 1e-300
    )


def extents_of_values(cone: Cone, low: FloatArray, high: FloatArray) -> Extents:
    """Return the extents of cells of (a, b), given the least and the largest values there."""
    apart = np.maximum(np.abs(high[:, 1] - low[:, 0]), np.abs(low[:, 1] - high[:, 0]))
    along = apart / (cone.t[1] - cone.t[0])
    size = np.maximum(np.abs(low[:, 0]), np.abs(high[:, 0])) + 2 * along
    return Extents(low, high, _DOUBT * size + 1e-300)


def outer_points(cone: Cone, extents: Extents) -> tuple[FloatArray, FloatArray]:
    """Return points, shape (cells, 2), that are accepted before and after the rows of cells."""
    return _point(cone, extents.low, -extents.doubt / 4), _point(
        cone, extents.high, extents.doubt / 4
    )


def _point(cone: Cone, values: FloatArray, outwards: FloatArray) -> FloatArray:
    """Return the point with the values a and b, but for a shift of both."""
    (t0, t1), (a, b) = cone.t, values.T
    other = (b - a) / (t1 - t0)
    one = a - t0 * other + outwards
    point = np.array([one, other] if cone.chart == 0 else [other, one])
    return np.asarray(point.T * np.array(cone.signs))
