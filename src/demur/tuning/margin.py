"""The widest line between the accepted and the rejected points.

Every half-plane with the same accepted set has the same operating point on the sample; the
one whose boundary keeps the largest distance from both sides is the most robust. Distances
are measured after dividing each score by its spread, so that units do not matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.tuning.charts import DirectionSet

# How many points around the boundary are looked at before all of them are.
_NEARBY = 2048
# Cutting planes end by themselves, unless rounding makes two points take turns.
_ROUNDS = 64


class Line(NamedTuple):
    """Weights of the two scores and the width of the gap, in spreads."""

    direction: tuple[float, float]
    width: float


def spread(scores: FloatArray, id_mass: IntArray) -> FloatArray:
    """Return the 10-90 % range of each score over the ID rows, falling back on the whole range."""
    rows = id_mass > 0
    if not rows.any():
        return np.ones(scores.shape[1])
    mass = id_mass[rows]
    # Equal weights need no sort of the scores.
    weights = None if mass.min() == mass.max() else mass
    low, high = np.quantile(
        scores[rows], [0.1, 0.9], axis=0, method="inverted_cdf", weights=weights
    )
    with np.errstate(over="ignore"):
        width = high - low
        if not (width > 0).all():
            width = np.where(width > 0, width, np.ptp(scores, axis=0))
    return np.where((width > 0) & np.isfinite(width), width, 1.0)


def widest_line(
    scores: FloatArray,
    accepted: BoolArray,
    start: tuple[float, float],
    scale: FloatArray,
    allowed: DirectionSet,
) -> Line:
    """Return the direction, among the allowed, with the widest gap between the two sides.

    Cutting planes: solve for the few points seen so far, look for the points that come
    closest in the direction found, and repeat until these are known already. The points around
    the boundary go first, so that all of them are seldom looked at more than twice. `start`
    must separate the sides.
    """
    if accepted.all():
        return Line((1 / float(scale[0]), 1 / float(scale[1])), np.inf)
    around = _around_boundary(scores, accepted, start)
    first = _Sides(scores[around] / scale, accepted[around])
    start_direction = np.array(start) * scale
    near, far = first.closest(start_direction)
    _, near, far = _cut(first, near[None], far[None], start_direction, allowed)
    everything = _Sides(scores / scale, accepted)
    direction, _, _ = _cut(everything, near, far, start_direction, allowed)
    width = everything.width(direction)
    return Line((float(direction[0] / scale[0]), float(direction[1] / scale[1])), width)


class _Sides:
    """Points of the two sides, in spreads."""

    def __init__(self, points: FloatArray, accepted: BoolArray) -> None:
        self._points, self._accepted = points, accepted

    def closest(self, direction: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the last accepted and the first rejected point in a direction."""
        values = self._points @ direction
        inside = np.argmax(np.where(self._accepted, values, -np.inf))
        outside = np.argmin(np.where(self._accepted, np.inf, values))
        return self._points[inside], self._points[outside]

    def width(self, direction: FloatArray) -> float:
        """Return the width of the gap in a direction; negative when the sides overlap."""
        inside, outside = self.closest(direction)
        return float((outside - inside) @ direction / np.hypot(*direction))


def _around_boundary(
    scores: FloatArray, accepted: BoolArray, start: tuple[float, float]
) -> IntArray:
    """Return the rows of some points on each side that are closest to the boundary."""
    values = start[0] * scores[:, 0] + start[1] * scores[:, 1]
    rows = []
    for side, sign in ((accepted, -1.0), (~accepted, 1.0)):
        members = np.flatnonzero(side)
        if len(members) > _NEARBY:
            members = members[np.argpartition(sign * values[members], _NEARBY)[:_NEARBY]]
        rows.append(members)
    return np.concatenate(rows)


def _cut(
    sides: _Sides,
    near: FloatArray,
    far: FloatArray,
    start: FloatArray,
    allowed: DirectionSet,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the widest direction, and the points of each side that decide it."""
    best, best_width = start, sides.width(start)
    for _ in range(_ROUNDS):
        direction = _widest_of_few(near, far, allowed)
        inside, outside = sides.closest(direction)
        width = float((outside - inside) @ direction / np.hypot(*direction))
        if width > best_width:
            best, best_width = direction, width
        if _has(near, inside) and _has(far, outside):
            break
        near = np.unique(np.vstack([near, inside]), axis=0)
        far = np.unique(np.vstack([far, outside]), axis=0)
    return best, near, far


def _widest_of_few(near: FloatArray, far: FloatArray, allowed: DirectionSet) -> FloatArray:
    """Try every direction that can be the widest between two small sets.

    The widest gap is spanned by two points, or by an edge of one side and a point of the
    other, or is cut off where the directions end.
    """
    spanned = (far[:, None] - near[None, :]).reshape(-1, 2)
    edges = np.vstack([_edges(near), _edges(far)])
    normals = np.column_stack([-edges[:, 1], edges[:, 0]])
    ends = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    tried = np.vstack([spanned, normals, -normals, ends])
    if allowed.risk_nonneg:
        tried = tried[tried[:, 0] >= 0]
    if allowed.ood_nonneg:
        tried = tried[tried[:, 1] >= 0]
    length = np.hypot(tried[:, 0], tried[:, 1])
    tried = tried[length > 0] / length[length > 0, None]
    gaps = (far @ tried.T).min(axis=0) - (near @ tried.T).max(axis=0)
    widest: FloatArray = tried[np.argmax(gaps)]
    return widest


def _edges(corners: FloatArray) -> FloatArray:
    i, j = np.triu_indices(len(corners), 1)
    return corners[j] - corners[i]


def _has(rows: FloatArray, row: FloatArray) -> bool:
    return bool((rows == row).all(axis=1).any())
