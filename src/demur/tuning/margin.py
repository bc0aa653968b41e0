"""The widest line between the accepted and the rejected points.

Every half-plane with the same accepted set has the same operating point on the sample; the
one whose boundary keeps the largest distance from both sides is the most robust. Distances
are measured after dividing each score by its spread, so that units do not matter.
"""

from __future__ import annotations

import math
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


def sides(
    scores: FloatArray, accepted: BoolArray, direction: tuple[float, float]
) -> tuple[float, float]:
    """Return the last accepted and the first rejected value along a direction."""
    with np.errstate(over="ignore"):
        values = _along(np.array(direction), scores)
    last = np.where(accepted, values, -np.inf).max(initial=-np.inf)
    return float(last), float(np.where(accepted, np.inf, values).min(initial=np.inf))


def spread(scores: FloatArray, id_mass: IntArray) -> FloatArray:
    """Return the 10-90 % range of each score over the ID rows, falling back on the whole range."""
    rows = np.flatnonzero(id_mass)
    if len(rows) == 0:
        return np.ones(scores.shape[1])
    # ID rows come first, and mostly all have mass: then nothing needs to be copied.
    taken = slice(len(rows)) if rows[-1] == len(rows) - 1 else rows
    columns = zip(scores[taken].T, scores.T, strict=True)
    return np.array([_range(id_, id_mass[taken]) or _whole(all_) for id_, all_ in columns])


def _range(values: FloatArray, mass: IntArray) -> float:
    """Return the distance of the 10 % and the 90 % quantile; 0 if it is none or too large."""
    if mass.min() == mass.max():
        # Equal weights need a selection only.
        low, high = (max(0, -(-len(values) * tenths // 10) - 1) for tenths in (1, 9))
        # One at a time: NumPy selects two at once much more slowly.
        values = values.copy()
        values.partition(low)
        values[low:].partition(high - low)
        lower, upper = float(values[low]), float(values[high])
    else:
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(mass[order])
        shares = np.array([1, 9]) * (int(reached[-1]) / 10)
        lower, upper = values[order[np.searchsorted(reached, shares)]].tolist()
    return upper - lower if math.isfinite(upper - lower) else 0.0


def _whole(values: FloatArray) -> float:
    width = float(values.max()) - float(values.min())
    return width if 0 < width < math.inf else 1.0


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
    the boundary go first, so that one look at all of them usually ends it. `start` must
    separate the sides.
    """
    if accepted.all():
        return Line((1 / float(scale[0]), 1 / float(scale[1])), math.inf)
    around = _around_boundary(scores, accepted, start)
    nearby = _Sides(scores[around], accepted[around], scale)
    everything = _Sides(scores, accepted, scale)
    first = np.array(start) * scale
    near, far = (point[None] for point in nearby.closest(first))
    _, _, near, far = _cut(nearby, near, far, allowed)
    direction, width, _, _ = _cut(everything, near, far, allowed)
    if width <= 0:
        # Rounding has eaten the gap of every direction but the one that came.
        direction, width = first, everything.width(first)
    return Line((float(direction[0] / scale[0]), float(direction[1] / scale[1])), width)


class _Sides:
    """Points of the two sides; what comes out is in spreads."""

    def __init__(self, scores: FloatArray, accepted: BoolArray, scale: FloatArray) -> None:
        self._scores, self._accepted, self._scale = scores, accepted, scale

    def closest(self, direction: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the last accepted and the first rejected point in a direction."""
        values = _along(direction / self._scale, self._scores)
        inside = np.argmax(np.where(self._accepted, values, -np.inf))
        outside = np.argmin(np.where(self._accepted, np.inf, values))
        return self._scores[inside] / self._scale, self._scores[outside] / self._scale

    def width(self, direction: FloatArray) -> float:
        """Return the width of the gap in a direction; negative when the sides overlap."""
        return _gap(*self.closest(direction), direction)


def _gap(inside: FloatArray, outside: FloatArray, direction: FloatArray) -> float:
    return float(_along(direction, (outside - inside)[None])[0] / np.hypot(*direction))


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
    sides: _Sides, near: FloatArray, far: FloatArray, allowed: DirectionSet
) -> tuple[FloatArray, float, FloatArray, FloatArray]:
    """Return the widest direction, its width, and the points of each side that decide it."""
    best, best_width = np.zeros(2), -math.inf
    for _ in range(_ROUNDS):
        direction = _widest_of_few(near, far, allowed)
        inside, outside = sides.closest(direction)
        width = _gap(inside, outside, direction)
        if width > best_width:
            best, best_width = direction, width
        known_inside, known_outside = _has(near, inside), _has(far, outside)
        if known_inside and known_outside:
            break
        near = near if known_inside else np.vstack([near, inside])
        far = far if known_outside else np.vstack([far, outside])
    return best, best_width, near, far


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
    gaps = _along(tried.T[..., None], far).min(axis=1) - _along(tried.T[..., None], near).max(
        axis=1
    )
    widest: FloatArray = tried[np.argmax(gaps)]
    return widest


def _along(direction: FloatArray, points: FloatArray) -> FloatArray:
    """Return the points' values along one direction, or along several (2, d, 1)."""
    # Two products and a sum, each rounded, as the compiled engine has it.
    values: FloatArray = direction[0] * points[:, 0] + direction[1] * points[:, 1]
    return values


def _edges(corners: FloatArray) -> FloatArray:
    i, j = np.triu_indices(len(corners), 1)
    return corners[j] - corners[i]


def _has(rows: FloatArray, row: FloatArray) -> bool:
    return bool((rows == row).all(axis=1).any())
