"""The best rule for every pair of bounds on a source.

The source is counted once, and the rows that matter for any of the bounds are fetched at once,
as far as memory allows; see `grids`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from demur._arrays import IntArray
from demur.core.bounds import Bound
from demur.core.models import RejectionModel
from demur.core.program import Number, Totals
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
        _aimed(aim, tprs[round(p * (len(tprs) - 1))], fprs[round(p * (len(fprs) - 1))])
        for p in places
    ]
    stream = Streamed(source, hints, allowed, ood=ood, plan=plan)
    levels = Levels(
        np.array([_aimed(aim, a, 1).program(stream.totals).min_id for a in tprs]),
        np.array([_aimed(aim, 0, b).program(stream.totals).max_ood for b in fprs]).T,
    )
    program = _aimed(aim, 0, 1).program(stream.totals)
    return stream.totals, *Grids(stream, program, levels, allowed).best()


def _aimed(aim: Aim, min_tpr: Number, max_fpr: Number) -> RejectionModel:
    bounds = Bound("tpr", at_least=min_tpr), Bound("fpr", at_most=max_fpr)
    return RejectionModel("selective_risk" if aim == "risk" else aim, bounds)
