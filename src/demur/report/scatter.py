"""The rows as points of the (s_r, s_g) plane, or as counts when they are many or have one score."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.sample import Sample
from demur.report.summary import is_zero_one

MOST_POINTS = 5000
GRID = 64
# Some scores have long tails; the few rows beyond these shares are drawn on the edge.
_VIEW = (0.002, 0.992)


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Three groups of rows: ID with little loss (right), ID with more (wrong), OOD."""

    low: FloatArray
    """Corner of the view, an entry per score."""
    high: FloatArray
    points: tuple[FloatArray, ...]
    """A (n, 2) array per group; rows outside the view lie on its edge. Empty with `density`."""
    density: tuple[IntArray, ...]
    """Counts per group in GRID steps of each score: of two scores, rows are s_g."""
    sizes: tuple[int, ...]
    """Rows of each group, those with infinite scores left out."""


def scatter(sample: Sample) -> Scatter:
    """Return what to draw of a sample."""
    wrong = sample.id_loss > (0 if is_zero_one(sample) else np.median(sample.id_loss))
    groups = [sample.id_scores[~wrong], sample.id_scores[wrong], sample.ood_scores]
    groups = [group[np.isfinite(group).all(axis=1)] for group in groups]
    sizes = tuple(map(len, groups))
    low, high = _view(np.concatenate(groups))
    inside = tuple(np.clip(group, low, high) for group in groups)
    if sample.n_scores == 2 and sum(sizes) <= MOST_POINTS:
        return Scatter(low, high, inside, (), sizes)
    return Scatter(low, high, (), tuple(_grid(group, low, high) for group in inside), sizes)


def _view(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    if len(scores) == 0:
        return np.zeros(scores.shape[1]), np.ones(scores.shape[1])
    low, high = np.quantile(scores, _VIEW, axis=0)
    flat = high <= low
    low[flat], high[flat] = scores.min(axis=0)[flat] - 0.5, scores.max(axis=0)[flat] + 0.5
    return low, high


def _grid(scores: FloatArray, low: FloatArray, high: FloatArray) -> IntArray:
    places = np.minimum((GRID * ((scores - low) / (high - low))).astype(np.int64), GRID - 1)
    place = places @ np.array([1, GRID][: scores.shape[1]])
    return np.bincount(place, minlength=GRID ** scores.shape[1]).astype(np.int64)
