"""`frontier` on a source: the best rule for every pair of bounds.

The source is counted once. A rule that is best under loose bounds stays best under all tighter
ones that it meets, so each search settles a rectangle of bounds; rows that one search fetched
serve the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from demur._arrays import IntArray
from demur.core.models import TprFprModel
from demur.core.program import Number, Totals
from demur.core.source import ScoreSource
from demur.tuning.charts import DirectionSet
from demur.tuning.line import Line
from demur.tuning.result import Exact
from demur.tuning.settle import Rules
from demur.tuning.streamed.plan import Plan
from demur.tuning.streamed.solve import Streamed

_OPEN, _UNABLE = -2, -1
# Pairs of bounds whose optimum on the sample makes strips.
_HINTS = 4


def rules_of_source(
    source: ScoreSource,
    tprs: Sequence[Number],
    fprs: Sequence[Number],
    allowed: DirectionSet,
    *,
    ood: Literal["pooled", "worst"] = "pooled",
    plan: Plan | None = None,
) -> tuple[Totals, Rules, IntArray]:
    """Return totals, the rules that are best somewhere, and which one where, -1 for none."""
    places = np.linspace(0, 1, _HINTS)
    hints = [
        TprFprModel(tprs[round(p * (len(tprs) - 1))], fprs[round(p * (len(fprs) - 1))])
        for p in places
    ]
    stream = Streamed(source, hints, allowed, ood=ood, plan=plan)
    program = TprFprModel(0).program(stream.totals)
    min_id = np.array([TprFprModel(a).program(stream.totals).min_id for a in tprs])
    max_ood = np.array([TprFprModel(0, b).program(stream.totals).max_ood for b in fprs]).T
    cells = np.full((len(tprs), len(fprs)), _OPEN)
    found: list[Line] = []
    for row in range(len(tprs)):
        for column in range(len(fprs) - 1, -1, -1):
            if cells[row, column] != _OPEN:
                continue
            bounds = tuple(int(level) for level in max_ood[:, column])
            asked = replace(program, min_id=int(min_id[row]), max_ood=bounds)
            line, _ = stream.find(asked, allowed, Exact())
            if line is None:
                _settle(cells[row:, : column + 1], _UNABLE)
                continue
            last = int(np.searchsorted(min_id, line.id, side="right"))
            # Several sets are not told apart in what a line accepts.
            first = column if len(max_ood) > 1 else int(np.searchsorted(max_ood[0], line.ood))
            _settle(cells[row:last, first : column + 1], len(found))
            found.append(line)
    return stream.totals, _rules(found, len(source.score_names)), cells


def _settle(cells: IntArray, value: int) -> None:
    cells[cells == _OPEN] = value


def _rules(found: list[Line], scores: int) -> Rules:
    if not found:
        return Rules.none(scores)
    masses = np.array([(line.id, line.ood, line.loss) for line in found], np.int64).T
    lines = np.array([(*line.direction, line.threshold) for line in found])
    return Rules(masses[0], masses[1], masses[2], lines)
