"""The rules behind the curves of two scores on a source, at some levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from demur.core.program import Number, Totals
from demur.core.source import ScoreSource
from demur.errors import InvalidInputError
from demur.tuning.charts import direction_set
from demur.tuning.frontier import PERCENT, ascending
from demur.tuning.result import Exact
from demur.tuning.settle import Rules
from demur.tuning.streamed.frontier import Aim, rules_of_source


def rules_at(
    source: ScoreSource,
    levels: Sequence[Number] | None,
    aim: Aim,
    *,
    max_fpr: Number = 1,
    evaluate_on: Any,
    search: Any,
) -> tuple[Totals, Rules]:
    """Return the best rules for bounds on the FPR (aim "tpr") or on the TPR, by rising masses."""
    if len(source.score_names) == 1:
        raise InvalidInputError(
            "a source of one score has all its levels in metrics.distinct_rows(source): "
            "draw the curve of that"
        )
    if evaluate_on is not None or not isinstance(search, Exact | None):
        raise InvalidInputError("evaluate_on and search=Grid(...) need a Sample, not a source")
    asked = list(PERCENT) if levels is None else ascending("levels", levels)
    tprs, fprs = ([0], asked) if aim == "tpr" else (asked, [max_fpr])
    totals, rules, cells = rules_of_source(source, tprs, fprs, direction_set("nonneg"), aim=aim)
    if sum(totals.ood) == 0 and aim != "risk":
        raise InvalidInputError("the source has no OOD rows, so this curve is undefined")
    path = rules.take(np.unique(cells[cells >= 0]))
    order = np.lexsort((path.ood, path.id))
    first = np.append(True, np.diff(path.id[order]) > 0)[: len(order)]
    return totals, path.take(order[first])


def refuse_levels(levels: Sequence[Number] | None) -> None:
    """Say that rows in memory need none."""
    if levels is not None:
        raise InvalidInputError("levels are for a source; the curve of a Sample has every level")
