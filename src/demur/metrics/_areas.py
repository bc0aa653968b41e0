"""Areas of one score as functions of its groups of equal scores."""

from __future__ import annotations

import math

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.program import Totals
from demur.metrics._rates import Groups, Per, Rates


def area_under_roc(groups: Groups, totals: Totals) -> float:
    """Return ``P(s_id < s_ood) + P(s_id = s_ood) / 2``; NaN without OOD."""
    total_id, total_ood = totals.id, sum(totals.ood)
    if total_ood == 0:
        return math.nan
    steps, heights = np.diff(groups.ood), groups.id[1:] + groups.id[:-1]
    if total_id * total_ood < 2**62:
        return int(steps @ heights) / (2 * total_id * total_ood)
    return float((steps / total_ood) @ (heights / total_id)) / 2


def area_under_precision(precision: FloatArray, recall: FloatArray, *, trapezoid: bool) -> float:
    """Return the area under operating points of rising recall, joined by lines or by steps."""
    steps = np.diff(recall)
    if trapezoid:
        return float(steps @ (precision[1:] + precision[:-1])) / 2
    return float(steps @ precision[1:])


def area_under_ccr(groups: Groups, rates: Rates, per: Per) -> float:
    """Return the area under the correct classification rate over the FPR; NaN without OOD."""
    if rates.ood == 0:
        return math.nan
    ccr = rates.ccr(groups.id, groups.loss, per)
    # Before any ID is accepted, the first known rate stands in.
    first = int(np.searchsorted(groups.id, 1))
    if per == "accepted":
        ccr[:first] = ccr[first]
    return float(np.diff(rates.fpr(groups.ood)) @ (ccr[1:] + ccr[:-1])) / 2


def area_under_risk(groups: Groups, rates: Rates) -> float:
    """Return the mean, over the ID rows, of the selective risk up to their score."""
    nI, L = _with_id(groups)
    return float(np.diff(rates.tpr(nI)) @ rates.selective_risk(nI[1:], L[1:]))


def area_under_generalised_risk(groups: Groups, rates: Rates) -> float:
    """Return the area under accepted loss / all ID over the TPR."""
    nI, L = _with_id(groups)
    risk = rates.mean_loss(L)
    return float(np.diff(rates.tpr(nI)) @ (risk[1:] + risk[:-1])) / 2


def _with_id(groups: Groups) -> tuple[IntArray, IntArray]:
    """Return the groups that have ID rows, after nothing accepted."""
    rows = np.flatnonzero(np.diff(groups.id, prepend=-1))
    return groups.id[rows], groups.loss[rows]
