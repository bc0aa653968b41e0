"""The best rule for every pair of bounds on a source.

The source is counted once, and the rows that matter for any of the bounds are fetched at once,
as far as memory allows; see `grids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from demur._arrays import IntArray
from demur.core.models import TprFprModel
from demur.core.program import Number, Program, Totals
from demur.core.source import ScoreSource
from demur.tuning.charts import DirectionSet
from demur.tuning.settle import Rules
from demur.tuning.streamed.grids import Grids
from demur.tuning.streamed.levels import Levels
from demur.tuning.streamed.plan import Plan
from demur.tuning.streamed.solve import Streamed

Aim = Literal["risk", "tpr", "precision"]
"""Least selective risk, largest TPR, or largest precision (least OOD per ID mass)."""

# Pairs of bounds whose optimum on the sample makes strips.
_HINTS = 4


@dataclass(frozen=True, slots=True)
class Aimed:
    """What is best under bounds on TPR and FPR."""

    aim: Aim
    min_tpr: Number
    max_fpr: Number

    def program(self, totals: Totals) -> Program:
        """Lower to integers."""
        program = TprFprModel(self.min_tpr, self.max_fpr).program(totals)
        if self.aim == "tpr":
            return replace(program, loss=0, id=-1, per_id=False, scale=1.0)
        if self.aim == "precision":
            return replace(program, loss=0, ood=1, scale=1.0)
        return program


def rules_of_source(
    source: ScoreSource,
    tprs: Sequence[Number],
    fprs: Sequence[Number],
    allowed: DirectionSet,
    *,
    aim: Aim = "risk",
    ood: Literal["pooled", "worst"] = "pooled",
    plan: Plan | None = None,
) -> tuple[Totals, Rules, IntArray]:
    """Return totals, the rules that are best somewhere, and which one where, -1 for none."""
    places = np.linspace(0, 1, _HINTS)
    hints = [
        Aimed(aim, tprs[round(p * (len(tprs) - 1))], fprs[round(p * (len(fprs) - 1))])
        for p in places
    ]
    stream = Streamed(source, hints, allowed, ood=ood, plan=plan)
    levels = Levels(
        np.array([Aimed(aim, a, 1).program(stream.totals).min_id for a in tprs]),
        np.array([Aimed(aim, 0, b).program(stream.totals).max_ood for b in fprs]).T,
    )
    program = Aimed(aim, 0, 1).program(stream.totals)
    return stream.totals, *Grids(stream, program, levels, allowed).best()
