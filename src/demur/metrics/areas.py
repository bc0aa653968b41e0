"""Areas under the curves: AUROC, AUPR, AURC, AUGRC; and the formulas of all areas.

One score: equal scores are accepted together and the curve runs straight from one operating
point to the next; rows with a score of +inf are the last group of equal scores. Two scores:
the staircase of the best rules with mu >= 0, tuned on the sample itself. No rule attains what
lies between two operating points, so a staircase gives no half credit for ties.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from demur._arrays import FloatArray, IntArray, takes
from demur.core.points import Points
from demur.core.program import Number, Totals
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.metrics.rates import Groups, Per, Rates, prior, tie_groups
from demur.metrics.rules import given
from demur.tuning.operating_points import Search
from demur.tuning.prepared import Prepared
from demur.tuning.staircases import precision_stairs, roc_stairs


def auroc(sample: Sample | Prepared, *, search: Search = None) -> float:
    """Return the area under the ROC curve, TPR over FPR.

    One score: ``P(s_id < s_ood) + P(s_id = s_ood) / 2``. NaN without OOD rows.

    Parameters
    ----------
    sample
        Or what `prepare` made of one. Two scores: the area under the largest TPR attainable at
        each bound on the FPR with mu >= 0, tuned on the sample itself and so optimistic.
    search
        For two scores: `Exact()` (default) or `Grid(d)`, a grid of d angles.

    Examples
    --------
    >>> auroc(Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.2, 0.9]))
    0.75
    """
    rows = given(sample)
    rates = Rates(rows.points.totals)
    if rates.ood == 0:
        return math.nan
    if isinstance(rows, Prepared):
        stairs = roc_stairs(rows, search)
        edges = np.append(stairs.ood, rates.ood)
        return area_under_steps(edges, rates.tpr(stairs.id), rates.ood)
    return area_under_roc(tie_groups(rows.points), rates.totals)


def aupr(
    sample: Sample | Prepared,
    *,
    method: Literal["trapezoid", "average_precision"] = "trapezoid",
    ood_prior: Number | None = None,
    search: Search = None,
) -> float:
    """Return the area under the precision-recall curve, with ID as the positive class.

    NaN without OOD rows.

    Parameters
    ----------
    sample
        Two scores: the area under the largest precision attainable at each bound on the
        recall with mu >= 0, a staircase that leaves no choice of `method`.
    method
        How the operating points of one score are joined: ``"trapezoid"`` by straight lines
        starting from precision 1 at recall 0, ``"average_precision"`` by steps.
    ood_prior
        Share of OOD inputs behind the precision; the sample's own, `ood_share`, by default.
    search
        As in `auroc`.

    Examples
    --------
    >>> sample = Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.3])
    >>> round(aupr(sample), 4), round(aupr(sample, method="average_precision"), 4)
    (0.9028, 0.9167)
    """
    if method not in ("trapezoid", "average_precision"):
        raise InvalidInputError(
            f'method must be "trapezoid" or "average_precision", got {method!r}'
        )
    rows = given(sample)
    rates = Rates(rows.points.totals)
    pi = prior(rates, ood_prior)
    if rates.ood == 0:
        return math.nan
    if isinstance(rows, Prepared):
        stairs = precision_stairs(rows, search)
        # Rows with a score of +inf come last, whatever the rule.
        nI, nO = np.r_[0, stairs.id, rates.totals.id], np.r_[0, stairs.ood, rates.ood]
    else:
        nI, nO, _ = tie_groups(rows.points)
    trapezoid = method == "trapezoid" and not isinstance(rows, Prepared)
    precision = rates.precision(nI, nO, pi)
    return area_under_precision(precision, rates.tpr(nI), trapezoid=trapezoid)


@takes(sample=Sample)
def aurc(sample: Sample) -> float:
    """Return the area under the risk-coverage curve of the ID rows.

    The mean, over the ID rows, of the selective risk when all rows with the same score or a
    smaller one are accepted. It weighs the losses of the least doubtful rows most; `augrc`
    does not. OOD rows play no part.

    Examples
    --------
    >>> round(aurc(Sample([0.1, 0.2, 0.7], [0, 1, 0])), 4)
    0.2778
    """
    return area_under_risk(*_groups_and_rates(sample, "aurc"))


@takes(sample=Sample)
def augrc(sample: Sample) -> float:
    """Return the area under the generalised risk-coverage curve of the ID rows.

    The generalised risk is the summed loss of the accepted ID rows divided by all ID rows.
    The curve runs straight through groups of equal scores. OOD rows play no part.

    Examples
    --------
    >>> round(augrc(Sample([0.1, 0.2, 0.7], [0, 1, 0])), 4)
    0.1667
    """
    return area_under_generalised_risk(*_groups_and_rates(sample, "augrc"))


def _groups_and_rates(sample: Sample, name: str) -> tuple[Groups, Rates]:
    if sample.n_scores != 1:
        raise InvalidInputError(
            f"{name} needs one score, the sample has {sample.n_scores}: "
            "choose one with sample.score(column)"
        )
    points = Points.of(sample)
    return tie_groups(points), Rates(points.totals)


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


def area_under_steps(edges: IntArray, heights: FloatArray, total: int) -> float:
    """Return the area under steps between these masses out of `total`."""
    return float((np.diff(edges) / total) @ heights)


def _joined(steps: FloatArray, heights: FloatArray) -> float:
    """Return the area under points so many steps apart, joined by straight lines."""
    return (float(steps @ heights[1:]) + float(steps @ heights[:-1])) / 2
