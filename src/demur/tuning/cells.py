"""The best rule for every pair of bounds, by as few searches as there are different rules.

A rule that is best under loose bounds stays best under all tighter ones that it meets, since
tightening only takes rivals away. So each search settles a whole rectangle of cells, and bounds
that cannot be met settle all tighter ones.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.program import Program
from demur.tuning.charts import DirectionSet
from demur.tuning.prepared import Prepared
from demur.tuning.settle import Rules

_OPEN, _UNABLE = -2, -1


def best_by_search(
    prepared: Prepared,
    program: Program,
    allowed: DirectionSet,
    min_id: IntArray,
    max_ood: IntArray,
) -> tuple[Rules, IntArray]:
    """Return the rules that are best somewhere, and which one in each cell, -1 for none.

    `min_id` has shape (rows,), `max_ood` (sets, columns), both ascending; `program` says what is
    minimised.
    """
    cells = np.full((len(min_id), max_ood.shape[1]), _OPEN)
    found: list[Rules] = []
    for row in range(cells.shape[0]):
        for column in range(cells.shape[1] - 1, -1, -1):
            if cells[row, column] != _OPEN:
                continue
            bounds = tuple(int(level) for level in max_ood[:, column])
            asked = replace(program, min_id=int(min_id[row]), max_ood=bounds)
            best = prepared.search(asked, allowed)
            if len(best.v) == 0:
                _settle(cells[row:, : column + 1], _UNABLE)
                continue
            line = np.append(best.weights[0], best.v[0])
            masses = (np.array([mass]) for mass in (best.id, best.ood, best.loss))
            rule = Rules(next(masses), next(masses), next(masses), line[None])
            last_row = int(np.searchsorted(min_id, best.id, side="right"))
            first_column = _first_met(prepared, line, max_ood)
            _settle(cells[row:last_row, first_column : column + 1], len(found))
            found.append(rule)
    return Rules.joined(Rules.none(2), *found), cells


def _first_met(prepared: Prepared, line: FloatArray, max_ood: IntArray) -> int:
    """Return the tightest column whose bounds on OOD the line meets."""
    scores, ood = prepared.points.scores, prepared.points.ood
    accepted = line[0] * scores[:, 0] + line[1] * scores[:, 1] <= line[2]
    masses = ood[:, accepted].sum(axis=1)
    return int(max(np.searchsorted(m, o) for m, o in zip(max_ood, masses, strict=True)))


def _settle(cells: IntArray, value: int) -> None:
    cells[cells == _OPEN] = value
