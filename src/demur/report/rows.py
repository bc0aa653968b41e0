"""Rows that a page shows: all of them as points of the plane, and those nearest to the boundary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray, IntArray
from demur.core.rule import Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.errors import InvalidInputError
from demur.report.case import is_zero_one

SHOWN = 10
MOST_POINTS = 5000
GRID = 64
# Some scores have long tails; the few rows beyond these shares are drawn on the edge.
_VIEW = (0.002, 0.992)

Ids = tuple[Any, Any]
"""Identifiers of the ID rows and of the OOD rows, in the order of the sample."""


@dataclass(frozen=True, slots=True)
class BoundaryRow:
    """One row of the sample."""

    id: str
    kind: str
    """``"ID"``, or the name of the OOD set."""
    loss: float | None
    scores: tuple[float, ...]
    margin: float
    """Threshold minus combined score: positive for accepted rows."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Rows on either side of the boundary, nearest first."""

    accepted: tuple[BoundaryRow, ...]
    """The most doubtful of the accepted rows."""
    rejected: tuple[BoundaryRow, ...]
    """The most trusted of the rejected rows."""


def doubtful_rows(rule: Rule, sample: Sample, ids: Ids) -> Doubtful:
    """Return the accepted rows with the largest doubt and the rejected ones with the smallest."""
    if not isinstance(ids, tuple) or len(ids) != 2:
        raise InvalidInputError("ids must be a pair: those of the ID rows and of the OOD rows")
    names = [*_texts("ids[0]", ids[0], sample.n_id), *_texts("ids[1]", ids[1], sample.n_ood)]
    scores = np.concatenate([sample.id_scores, sample.ood_scores])
    kinds = ["ID"] * sample.n_id
    for name, rows in sample.ood_sets.items():
        kinds += ["OOD" if name == POOLED_NAME else name] * (rows.stop - rows.start)
    matched = rule.on(sample.columns)
    doubt, accepted = matched.combine(scores), matched.accept(scores)
    # Rows with an infinite score are rejected whatever the rule: nothing to look at.
    order = [int(i) for i in np.argsort(doubt, kind="stable") if np.isfinite(doubt[i])]

    def row(i: int) -> BoundaryRow:
        loss = float(sample.id_loss[i]) if i < sample.n_id else None
        margin = float(rule.threshold - doubt[i])
        return BoundaryRow(names[i], kinds[i], loss, tuple(scores[i].tolist()), margin)

    return Doubtful(
        accepted=tuple(row(i) for i in reversed(order) if accepted[i])[:SHOWN],
        rejected=tuple(row(i) for i in order if not accepted[i])[:SHOWN],
    )


def _texts(name: str, values: Any, length: int) -> list[str]:
    array = _arrays.labels(name, np.asarray(values, dtype=object), length=length)
    return [str(value) for value in array]


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Rows as points of the (s_r, s_g) plane, or counts when they are many or have one score.

    Three groups: ID with little loss (right), ID with more (wrong), OOD.
    """

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
