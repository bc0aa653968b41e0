"""The widest line between the accepted and the rejected points.

Every half-plane with the same accepted set has the same operating point on the sample; the
one whose boundary keeps the largest distance from both sides is the most robust. Distances
are measured after dividing each score by its spread, so that units do not matter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.tuning.charts import DirectionSet


class Line(NamedTuple):
    """Weights of the two scores and the width of the gap, in spreads."""

    direction: tuple[float, float]
    width: float


def spread(scores: FloatArray, id_mass: np.ndarray) -> FloatArray:
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
    width = high - low
    whole = np.ptp(scores, axis=0)
    width = np.where(width > 0, width, whole)
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
    closest in the direction found, and repeat until these are known already. `start` must
    separate the sides.
    """
    inside, outside = scores[accepted] / scale, scores[~accepted] / scale
    if len(outside) == 0:
        return Line((1 / scale[0], 1 / scale[1]), np.inf)
    direction = np.array(start) * scale
    near = inside[[np.argmax(inside @ direction)]]
    far = outside[[np.argmin(outside @ direction)]]
    best = Line(start, _width(inside, outside, direction))
    for _ in range(64):
        direction = _widest_of_few(near, far, allowed)
        width = _width(inside, outside, direction)
        if width > best.width:
            best = Line((direction[0] / scale[0], direction[1] / scale[1]), width)
        closest_in = inside[np.argmax(inside @ direction)]
        closest_out = outside[np.argmin(outside @ direction)]
        if _has(near, closest_in) and _has(far, closest_out):
            break
        near = np.unique(np.vstack([near, closest_in]), axis=0)
        far = np.unique(np.vstack([far, closest_out]), axis=0)
    return best


def _width(inside: FloatArray, outside: FloatArray, direction: FloatArray) -> float:
    gap = (outside @ direction).min() - (inside @ direction).max()
    return float(gap / np.hypot(*direction))


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
