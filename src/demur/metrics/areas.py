"""Areas under the curves.

One score: equal scores are accepted together and the curve runs straight from one operating
point to the next; rows with a score of +inf are the last group of equal scores. Two scores:
the staircase of the best rules with mu >= 0, tuned on the sample itself. No rule attains what
lies between two operating points, so a staircase gives no half credit for ties.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from demur.core.points import Points
from demur.core.program import Number
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.metrics._areas import (
    area_under_ccr,
    area_under_generalised_risk,
    area_under_precision,
    area_under_risk,
    area_under_roc,
)
from demur.metrics._rates import Groups, Per, Rates, check_correctness, prior, tie_groups
from demur.metrics.equal_fpr import best_ccr
from demur.tuning.envelope import Search
from demur.tuning.prepared import Prepared, as_prepared
from demur.tuning.stairs import precision_stairs, roc_stairs


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
    prepared = as_prepared(sample, None)
    points = prepared.points
    total_id, total_ood = points.totals.id, sum(points.totals.ood)
    if total_ood == 0:
        return math.nan
    if prepared.sample.n_scores == 2:
        stairs = roc_stairs(prepared, search)
        steps = np.diff(np.append(stairs.ood, total_ood)) / total_ood
        return float(steps @ (stairs.id / total_id))
    return area_under_roc(tie_groups(points), points.totals)


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
    prepared = as_prepared(sample, None)
    points = prepared.points
    rates = Rates(points.totals)
    pi = prior(rates, ood_prior)
    if rates.ood == 0:
        return math.nan
    if prepared.sample.n_scores == 2:
        stairs = precision_stairs(prepared, search)
        # Rows with a score of +inf come last, whatever the rule.
        nI, nO = np.r_[0, stairs.id, points.totals.id], np.r_[0, stairs.ood, rates.ood]
    else:
        groups = tie_groups(points)
        nI, nO = groups.id, groups.ood
    trapezoid = method == "trapezoid" and prepared.sample.n_scores == 1
    precision = rates.precision(nI, nO, pi)
    return area_under_precision(precision, rates.tpr(nI), trapezoid=trapezoid)


def oscr(sample: Sample | Prepared, *, per: Per = "accepted", search: Search = None) -> float:
    """Return the area under the correct classification rate over the FPR.

    The two definitions in use rank methods differently: name the one you report. Where no ID
    row is accepted yet, the rate per accepted row is taken to be the first one there is. NaN
    without OOD rows.

    Parameters
    ----------
    sample
        With losses of 0 and 1. Two scores: at each FPR the largest rate over mu >= 0, see
        `ccr_fpr_curve`.
    per
        ``"accepted"``: correct among the accepted ID rows, 1 - selective risk, as in the
        paper. ``"all"``: correct and accepted among all ID rows, as in Dhamija et al. and in
        OpenOOD.
    search
        As in `auroc`. With two scores the exact area per accepted row takes time quadratic in
        the number of rows: beyond some ten thousand a grid is the choice.

    Examples
    --------
    >>> sample = Sample([0.1, 0.2, 0.7], [0, 1, 0], ood_scores=[0.15, 0.9])
    >>> round(oscr(sample), 4), round(oscr(sample, per="all"), 4)
    (0.8333, 0.5)
    """
    prepared = as_prepared(sample, None)
    check_correctness(prepared.sample, per)
    rates = Rates(prepared.points.totals)
    if rates.ood == 0:
        return math.nan
    if prepared.sample.n_scores == 2:
        best = best_ccr(prepared, per, search)
        if len(best.start) == 0:
            return math.nan
        steps = np.diff(np.r_[0, best.stop[:-1], rates.ood]) / rates.ood
        return float(steps @ rates.ccr(best.rules.id, best.rules.loss, per))
    return area_under_ccr(tie_groups(prepared.points), rates, per)


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
