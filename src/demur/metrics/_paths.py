"""The rules behind a curve, and what they accept on other data."""

from __future__ import annotations

import numpy as np

from demur._arrays import FloatArray
from demur.core.points import Points
from demur.core.sample import Sample
from demur.core.scores import combine
from demur.errors import InvalidInputError
from demur.tuning.envelope import sweep_along
from demur.tuning.prepared import Prepared, as_prepared
from demur.tuning.settle import Rules


def with_ood(name: str, source: Sample | Prepared) -> Prepared:
    """Return a sample prepared that must have OOD rows."""
    prepared = as_prepared(source, None)
    if sum(prepared.points.totals.ood) == 0:
        raise InvalidInputError(f"{name} has no OOD rows, so this curve is undefined")
    return prepared


def comparable(sample: Sample, evaluate_on: Sample) -> Points:
    """Return the points of the sample that rules tuned on another are read on."""
    if evaluate_on.n_scores != sample.n_scores:
        raise InvalidInputError(
            f"evaluate_on has {evaluate_on.n_scores} scores a row, the sample {sample.n_scores}"
        )
    if sample.n_ood:
        return with_ood("evaluate_on", evaluate_on).points
    return Points.of(evaluate_on)


def all_thresholds(points: Points) -> Rules:
    """Return all thresholds of one score, ascending."""
    swept, thresholds = sweep_along(points, (1.0,))
    lines = np.column_stack([np.ones(len(thresholds)), thresholds])
    return Rules(swept.id, swept.ood.sum(axis=0), swept.loss, lines)


def from_nothing(path: Rules) -> Rules:
    """Put the rule that rejects everything in front."""
    nothing = np.zeros(path.lines.shape[1])
    nothing[0], nothing[-1] = 1, -np.inf
    zero = np.zeros(1, np.int64)
    return Rules.joined(Rules(zero, zero, zero, nothing[None]), path)


def accepted_by(points: Points, lines: FloatArray) -> Rules:
    """Return the masses that each line accepts."""
    masses = np.zeros((3, len(lines)), np.int64)
    directions, which = np.unique(lines[:, :-1], axis=0, return_inverse=True)
    for i, direction in enumerate(directions):
        rows = np.flatnonzero(which == i)
        rows = rows[np.argsort(lines[rows, -1])]
        # The first threshold that accepts each point.
        first = np.searchsorted(lines[rows, -1], combine(direction, points.scores))
        for row, mass in zip(masses, (points.id, points.ood.sum(axis=0), points.loss), strict=True):
            # Sums of masses are below 2**52, so floats hold them exactly.
            added = np.bincount(first, weights=mass, minlength=len(rows) + 1)
            row[rows] = np.cumsum(added[: len(rows)])
    return Rules(masses[0], masses[1], masses[2], lines)
