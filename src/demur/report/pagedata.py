"""What the script of the page needs to know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.models import CostModel, PrecisionRecallModel, TprFprModel
from demur.report.counts import Counts
from demur.report.encode import packed
from demur.report.wording import score_names

if TYPE_CHECKING:
    from demur.report.report import Report

COST_STEPS = 100
"""Steps of the slider for the cost of rejecting ID; one step is the unit of all costs."""
MOST_COST_STEPS = 1000
DEFAULT_RECALL = 80
DEFAULT_FPR = 10


def page_data(report: Report) -> dict[str, Any]:
    """Return plain data, arrays packed."""
    explorer = report.explorer
    return {
        "scores": list(score_names(report.rule)),
        "named": report.rule.score_names is not None,
        "zeroOne": report.zero_one,
        "hasOod": sum(explorer.tuned.totals.ood) > 0,
        "exact": explorer.exact,
        "mode": mode(report),
        "start": start(report),
        "costUnit": explorer.max_reject_cost / COST_STEPS,
        "command": report.command,
        "arguments": report.arguments,
        "rules": {
            "lines": [packed(column) for column in explorer.lines.T],
            "tuned": _counts(explorer.tuned),
            "held": None if explorer.held_out is None else _counts(explorer.held_out),
            "cells": packed(explorer.cells),
            "start": explorer.start,
            "worst": explorer.worst,
            "whole": _whole(explorer.tuned),
        },
        "scatter": {
            "low": report.scatter.low.tolist(),
            "high": report.scatter.high.tolist(),
            "points": [packed(group, single=True) for group in report.scatter.points],
            "density": [packed(group) for group in report.scatter.density],
        },
    }


def mode(report: Report) -> str:
    """Return which sliders the page starts with."""
    if isinstance(report.model, PrecisionRecallModel) and max(report.explorer.tuned.totals.ood):
        return "pr"
    return "cost" if isinstance(report.model, CostModel) else "tprfpr"


def start(report: Report) -> dict[str, int]:
    """Return where the sliders start, each in its own whole steps."""
    model, totals = report.model, report.explorer.tuned.totals
    unit = report.explorer.max_reject_cost / COST_STEPS
    id_, ood = totals.id_weight(totals.id), totals.ood_weight(sum(totals.ood))
    recall = round(100 * report.tuned.point.tpr) or DEFAULT_RECALL
    places = {
        "tpr": recall,
        "fpr": DEFAULT_FPR,
        "recall": recall,
        "precision": 900,
        "prior": min(990, round(1000 * ood / (id_ + ood))),
        "rejectId": 10,
        "acceptOod": COST_STEPS,
        "rejectOod": 0,
    }
    if isinstance(model, TprFprModel):
        places |= {"tpr": _steps(model.min_tpr, 0.01), "fpr": _steps(model.max_fpr, 0.01)}
        places["recall"] = places["tpr"]
    if isinstance(model, PrecisionRecallModel):
        places["precision"] = _steps(model.min_precision, 0.001)
        places["recall"] = places["tpr"] = _steps(model.min_recall, 0.01)
    if isinstance(model, CostModel):
        places["rejectId"] = min(COST_STEPS, _steps(model.reject_id, unit))
        places["acceptOod"] = min(MOST_COST_STEPS, _steps(model.accept_ood, unit))
        places["rejectOod"] = min(MOST_COST_STEPS, _steps(model.reject_ood, unit))
    if isinstance(model, (CostModel, PrecisionRecallModel)):
        places["prior"] = min(990, _steps(model.ood_prior, 0.001))
    return places | {"costPrior": places["prior"]}


def _steps(value: Any, unit: float) -> int:
    return round(float(value) / unit)


def _counts(counts: Counts) -> dict[str, Any]:
    totals = counts.totals
    return {
        "id": packed(_weights(counts.id, totals.id_exponent)),
        "loss": packed(_weights(counts.loss, totals.loss_exponent)),
        "sets": [packed(_weights(row, totals.ood_exponent)) for row in counts.ood_sets],
        "totals": {
            "id": totals.id_weight(totals.id),
            "sets": [totals.ood_weight(mass) for mass in totals.ood],
        },
    }


def _weights(masses: IntArray, exponent: int) -> FloatArray:
    return np.ldexp(masses.astype(np.float64), -exponent)


def _whole(counts: Counts) -> bool:
    """Return whether ID and OOD rows are counted in whole numbers."""
    return counts.totals.id_exponent == counts.totals.ood_exponent == 0
