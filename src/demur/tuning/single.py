"""All thresholds of one score."""

from __future__ import annotations

import math

import numpy as np

from demur._kernels import exact, reference
from demur.core.points import Points
from demur.core.program import Program
from demur.core.scores import midway
from demur.tuning.line import Line, preferred, reject_all


def search(points: Points, program: Program) -> Line | None:
    """Return the best threshold, or None if none meets the bounds."""
    swept = reference.sweep(points.scores[:, 0], points.id, points.ood, points.loss)
    row = best_of_sweep(swept, program)
    lines = reject_all(program, 1)
    if row is not None:
        last, following = np.append(swept.value[row : row + 2], math.inf)[:2].tolist()
        lines.append(Line((1.0,), float(midway(last, following)), *masses_at(swept, row), math.inf))
    return preferred(lines, program)


def best_of_sweep(swept: reference.Sweep, program: Program) -> int | None:
    """Return the row of the best operating point of one sweep, or None if none is feasible."""
    met = exact.feasible(
        swept.id, swept.ood, program.min_id, np.array(program.max_ood), np.array(program.ratio)
    )
    rows = np.flatnonzero(met)
    objective = np.array([program.loss, program.id, program.ood])
    nO = swept.ood.sum(axis=0)[rows]
    kept = exact.best(swept.id[rows], nO, swept.loss[rows], objective, program.per_id)
    return int(rows[kept[0]]) if len(kept) else None


def masses_at(swept: reference.Sweep, row: int) -> tuple[int, int, int]:
    """Return the ID, OOD and loss mass accepted at one row of a sweep."""
    return int(swept.id[row]), int(swept.ood[:, row].sum()), int(swept.loss[row])
