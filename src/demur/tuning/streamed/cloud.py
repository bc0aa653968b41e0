"""Rows and corners of cells as one cloud of points, on which no half-plane looks too good."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.points import Points
from demur.core.program import Totals
from demur.core.source import Measure, Rows
from demur.tuning.line import Line
from demur.tuning.streamed.cells import ID, LOSS, OOD
from demur.tuning.streamed.pyramid import Pyramid

Signs = tuple[int, ...]


def cloud(
    pyramid: Pyramid, met: BoolArray, fetched: Points, signs: Signs, totals: Totals
) -> Points:
    """Return the points to search, with scores times `signs`.

    Cells that are `met` come as their rows, which are `fetched`, or as a point if they are one.
    Of what is not met the largest nodes come as their two corners: ID mass at the corner that
    is accepted last, OOD and loss mass at the one accepted first.
    """
    parents = pyramid.parents()
    closed = ~met & met[parents]
    closed[pyramid.root] = not met[pyramid.root]
    cells = np.zeros(len(met), bool)
    cells[: pyramid.cells] = pyramid.wanted[: pyramid.cells] == 0
    single, pairs = np.flatnonzero(cells & (met | closed)), np.flatnonzero(closed & ~cells)
    first, last = corners(pyramid.low, pyramid.high, signs)
    scores = np.vstack(
        [
            fetched.scores * np.array(signs),
            first[:, single].T,
            first[:, pairs].T,
            last[:, pairs].T,
        ]
    )
    mass, none = pyramid.mass, np.zeros(len(pairs), np.int64)
    nothing = np.zeros((len(mass) - OOD, len(pairs)), np.int64)
    return Points(
        scores + 0.0,
        id=np.concatenate([fetched.id, mass[ID, single], none, mass[ID, pairs]]),
        ood=np.hstack([fetched.ood, mass[OOD:, single], mass[OOD:, pairs], nothing]),
        loss=np.concatenate([fetched.loss, mass[LOSS, single], mass[LOSS, pairs], none]),
        totals=totals,
    )


def corners(low: FloatArray, high: FloatArray, signs: Signs) -> tuple[FloatArray, FloatArray]:
    """Return the corners accepted first and last, shape (k, n), of scores times `signs`."""
    up = np.array(signs)[:, None] > 0
    return np.where(up, low, -high), np.where(up, high, -low)


def points_of(rows: Rows, measure: Measure, totals: Totals) -> Points:
    """Return rows as points."""
    masses = measure.masses(rows)
    return Points(rows.scores + 0.0, masses.id, masses.ood, masses.loss, totals)


def no_points(scores: int, columns: int, totals: Totals) -> Points:
    """Return no points."""
    none: IntArray = np.empty(0, np.int64)
    return Points(np.empty((0, scores)), none, np.empty((columns, 0), np.int64), none, totals)


def joined(parts: list[Points], totals: Totals) -> Points:
    """Return all points."""
    if len(parts) == 1:
        return replace(parts[0], totals=totals)
    return Points(
        np.vstack([part.scores for part in parts]),
        np.concatenate([part.id for part in parts]),
        np.hstack([part.ood for part in parts]),
        np.concatenate([part.loss for part in parts]),
        totals,
    )


def turned(line: Line, signs: Signs) -> Line:
    """Return the line for scores before they were multiplied by `signs`."""
    direction = tuple(sign * weight for sign, weight in zip(signs, line.direction, strict=True))
    # No -0.0: a weight of zero has no sign.
    return replace(line, direction=tuple(weight + 0.0 for weight in direction))
