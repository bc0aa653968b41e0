"""Box rules: the limits, one for each score, that a rejection model asks for."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from demur._kernels import exact
from demur._kernels.box_cells import AxisMasses, Objective
from demur._kernels.box_search import BoxOptima
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
    """Finds boxes among points, for any number of programs."""

    def __init__(self, prepared: Prepared) -> None:
        self._engine = prepared.engine
        self._points = prepared.points.present()
        self._prepared = prepared
        scores = self._points.scores
        if scores.shape[1] > 2:
            raise InvalidInputError(
                f'shape="box" takes one or two scores, got {scores.shape[1]}: choose two of them'
            )
        # Beside a score that is always 0 there is one limit to be found.
        self._pairs = (
            scores if scores.shape[1] == 2 else np.column_stack([scores, np.zeros(len(scores))])
        )

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
        objective, masses = self._asked(program)
        gap = search.gap / program.scale
        return self._engine.limits(self._pairs, masses, objective, gap=gap, budget=search.budget)

    def _asked(self, program: Program) -> tuple[Objective, AxisMasses]:
        points = self._points
        bounds = LinearParts.of(program, points)
        objective = Objective(*kernel_arguments(program), bounds.linear)
        zero_one = points.is_zero_one()
        return objective, AxisMasses(
            points.id, points.ood, points.loss, points.parts(bounds.parts), zero_one
        )

    def _distinct(self, found: BoxOptima) -> list[Box]:
        """Return the boxes found, one for each accepted set, with limits in the middle."""
        left, scores = found.limits, self._points.scores.shape[1]
        unit = np.append(self._prepared.spread, 1.0)[:2]
        boxes: list[Box] = []
        while len(left):
            tight, wide, width = self._engine.box_margin(self._pairs, left[0], unit)
            limits = tuple(wide[:scores].tolist())
            boxes.append(Box(limits, found.id, found.ood, found.loss, width))
            # A box with the same masses that holds this one accepts the same rows.
            left = left[~(left >= tight).all(axis=1)]
        return boxes
