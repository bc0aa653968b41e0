"""Box rules: the limits, one for each score, that a rejection model asks for."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur._kernels import exact, limits
from demur._kernels.limits import BoxOptima, LimitAxis, Objective
from demur.core.points import Points
from demur.core.program import Program
from demur.errors import InvalidInputError
from demur.tuning.prepared import LinearParts, Prepared, kernel_arguments
from demur.tuning.result import Exact, SearchCertificate, Status


class Box(NamedTuple):
    """A box: accept doubts that are at most their limits; and what it accepts."""

    limits: tuple[float, ...]
    id: int
    ood: int
    loss: int
    width: float
    """By how much all limits can grow, in spreads, before the box accepts more."""


class BoxFinder:
    """Finds boxes on points that are sorted once, for any number of programs."""

    def __init__(self, prepared: Prepared) -> None:
        self._points = prepared.points.present()
        self._spread = prepared.spread
        scores = self._points.scores
        if scores.shape[1] > 2:
            raise InvalidInputError(
                f'shape="box" takes one or two scores, got {scores.shape[1]}: choose two of them'
            )
        # Beside a score that is always 0 there is one limit to be found.
        second = scores[:, 1] if scores.shape[1] == 2 else np.zeros(len(scores))
        self._axes = LimitAxis(scores[:, 0]), LimitAxis(second)

    def find(self, program: Program, search: Exact) -> tuple[Box | None, SearchCertificate]:
        """Return the best box, None if none meets the bounds, and how sure that is.

        Among boxes with the same masses the one wins whose limits can grow the most.
        """
        found = self._search(program, search)
        if not found.complete and len(found.limits) == 0 and not program.reject_all:
            raise InvalidInputError(
                f"the budget of {search.budget} boxes ended before any rule that meets the bounds "
                "was found or their infeasibility proven; raise budget"
            )
        boxes = self._distinct(found)
        bound = found.lower_bound
        if program.reject_all:
            bound = min(bound, 0.0)
            nothing = Box((-math.inf,) * self._points.scores.shape[1], 0, 0, 0, math.inf)
            if not boxes or self._is_worse(boxes[0], nothing, program):
                boxes = [nothing]
        best = min(boxes, key=lambda box: (-box.width, box.limits), default=None)
        lower = program.scale * bound + program.offset
        status: Status = "budget" if not found.complete else "gap" if search.gap else "optimal"
        return best, SearchCertificate(status, lower, found.cells)

    def _is_worse(self, box: Box, other: Box, program: Program) -> bool:
        objective, per_id, *_ = kernel_arguments(program)
        nI, nO, L = (np.array([getattr(b, m) for b in (box, other)]) for m in ("id", "ood", "loss"))
        return 0 not in exact.best(nI, nO, L, objective, per_id)

    def masses(self, program: Program, search: Exact) -> tuple[int, int, int] | None:
        """Return the ID, OOD and loss mass that the best box accepts; None if there is none."""
        found = self._search(program, search)
        if len(found.limits):
            return found.id, found.ood, found.loss
        return (0, 0, 0) if program.reject_all else None

    def _search(self, program: Program, search: Exact) -> BoxOptima:
        points = self._points
        bounds = LinearParts.of(program, points)
        extra = np.stack([points.part(p) for p in bounds.parts]) if bounds.parts else None
        return limits.search(
            self._axes,
            (points.id, points.ood, points.loss, extra),
            Objective(*kernel_arguments(program), bounds.linear),
            gap=search.gap / program.scale,
            budget=search.budget,
        )

    def _distinct(self, found: BoxOptima) -> list[Box]:
        """Return the boxes found, one for each accepted set, with limits in the middle."""
        scores = self._points.scores
        left = found.limits[:, : scores.shape[1]]
        boxes: list[Box] = []
        while len(left):
            tight = _tight(scores, left[0])
            boxes.append(self._widened(tight, found))
            # A box with the same masses that holds this one accepts the same rows.
            left = left[~(left >= tight).all(axis=1)]
        return boxes

    def _widened(self, tight: FloatArray, found: BoxOptima) -> Box:
        """Return the box midway between its own limits and those at which it accepts more."""
        points = self._points
        # Column by column: reductions over the short axis of pairs are slow.
        beyond = np.full(len(points.scores), -np.inf)
        for column, last, spread in zip(points.scores.T, tight, self._spread, strict=True):
            np.maximum(beyond, (column - last) / spread, out=beyond)
        masses = found.id, found.ood, found.loss
        width = float(np.where(beyond > 0, beyond, np.inf).min())
        if width == math.inf:
            return Box(tuple(tight.tolist()), *masses, math.inf)
        # Nothing says how far a limit may go that no row is beyond.
        limited = np.array([column.max() for column in points.scores.T]) > tight
        wide = np.where(limited, tight + width / 2 * self._spread, tight)
        if not _accepts(points, wide, masses):
            # float64 has nothing between the two.
            wide = tight
        return Box(tuple(wide.tolist()), *masses, width)


def _tight(scores: FloatArray, box: FloatArray) -> FloatArray:
    """Return the smallest limits that accept what a box accepts."""
    accepted = np.flatnonzero(_inside(scores, box))
    return np.array([column[accepted].max() for column in scores.T])


def _inside(scores: FloatArray, box: FloatArray) -> BoolArray:
    inside: BoolArray = scores[:, 0] <= box[0]
    for column, limit in zip(scores.T[1:], box[1:], strict=True):
        inside &= column <= limit
    return inside


def _accepts(points: Points, box: FloatArray, masses: tuple[int, int, int]) -> bool:
    accepted = np.flatnonzero(_inside(points.scores, box))
    found = points.id[accepted].sum(), points.ood[:, accepted].sum(), points.loss[accepted].sum()
    return tuple(map(int, found)) == masses
