"""A half-plane in the making: what a search returns before it becomes a `Rule`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from demur._kernels import exact
from demur.core.program import Program


@dataclass(frozen=True, slots=True)
class Line:
    """Accept when ``direction . scores <= threshold``; the masses that accepts."""

    direction: tuple[float, ...]
    threshold: float
    id: int
    ood: int
    loss: int
    width: float
    """Width of the gap around the boundary, in spreads of the scores."""


def reject_all(program: Program, scores: int) -> list[Line]:
    """Return the line that accepts nothing, where the program lets it compete."""
    direction = (1.0,) if scores == 1 else (1.0, 0.0)
    return [Line(direction, -math.inf, 0, 0, 0, math.inf)] if program.reject_all else []


def preferred(lines: list[Line], program: Program) -> Line | None:
    """Return the best line; among equals the widest, then the one nearest to s_r alone."""
    tied = [lines[i] for i in tied_best([(ln.id, ln.ood, ln.loss) for ln in lines], program)]
    return min(tied, key=lambda line: (-line.width, line.direction[::-1]), default=None)


def tied_best(masses: list[tuple[int, int, int]], program: Program) -> list[int]:
    """Return the indices of the masses (ID, OOD, loss) that none of the others beats."""
    if not masses:
        return []
    nI, nO, L = np.array(masses, np.int64).T
    objective = np.array([program.loss, program.id, program.ood], np.int64)
    kept: list[int] = exact.best(nI, nO, L, objective, program.per_id).tolist()
    return kept
