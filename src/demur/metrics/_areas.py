"""Areas of one score as functions of its groups of equal scores."""

from __future__ import annotations

import math

import numpy as np

from demur._arrays import FloatArray
from demur.core.program import Totals
from demur.metrics._rates import Groups, Per, Rates


def area_under_roc(groups: Groups, totals: Totals) -> float:
    """Return ``P(s_id < s_ood) + P(s_id = s_ood) / 2``; NaN without OOD."""
    total_id, total_ood = totals.id, sum(totals.ood)
    if total_ood == 0:
        return math.nan
    steps, heights = np.diff(groups.ood), groups.id
    if total_id * total_ood < 2**62:
        twice = int(steps @ heights[1:]) + int(steps @ heights[:-1])
        return twice / (2 * total_id * total_ood)
    return _joined(steps / total_ood, heights / total_id)


def area_under_precision(precision: FloatArray, recall: FloatArray, *, trapezoid: bool) -> float:
    """Return the area under operating points of rising recall, joined by lines or by steps."""
    steps = np.diff(recall)
    return _joined(steps, precision) if trapezoid else float(steps @ precision[1:])


def area_under_ccr(groups: Groups, rates: Rates, per: Per) -> float:
    """Return the area under the correct classification rate over the FPR; NaN without OOD."""
    if rates.ood == 0:
        return math.nan
    ccr = rates.ccr(groups.id, groups.loss, per)
    # Before any ID is accepted, the first known rate stands in.
    first = int(np.searchsorted(groups.id, 1))
    if per == "accepted":
        ccr[:first] = ccr[first]
    return _joined(np.diff(rates.fpr(groups.ood)), ccr)


def area_under_risk(groups: Groups, rates: Rates) -> float:
    """Return the mean, over the ID rows, of the selective risk up to their score."""
    first = int(np.searchsorted(groups.id, 1))
    nI, L = groups.id[first - 1 :], groups.loss[first:]
    return float(np.diff(rates.tpr(nI)) @ rates.selective_risk(nI[1:], L))


def area_under_generalised_risk(groups: Groups, rates: Rates) -> float:
    """Return the area under accepted loss / all ID over the TPR."""
    return _joined(np.diff(rates.tpr(groups.id)), rates.mean_loss(groups.loss))


def _joined(steps: FloatArray, heights: FloatArray) -> float:
    """Return the area under points so many steps apart, joined by straight lines."""
    return (float(steps @ heights[1:]) + float(steps @ heights[:-1])) / 2
