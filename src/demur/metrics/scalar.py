"""Metrics at one operating point.

One score: over all thresholds. Two scores: over all thresholds and all mu >= 0, tuned on the
sample itself and so optimistic.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from demur._arrays import takes
from demur.core.models import RejectionModel
from demur.core.points import Points
from demur.core.program import Number, at_least, at_most
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.metrics.oscr import best_ccr
from demur.metrics.rates import Per, Rates, check_correctness, prior, share
from demur.metrics.rules import given, roc_rules
from demur.tuning.directions import Directions
from demur.tuning.operating_points import Search
from demur.tuning.prepared import Prepared
from demur.tuning.tune import tune


@takes(sample=(Sample, Prepared))
def selective_risk_at(
    sample: Sample,
    model: RejectionModel,
    *,
    directions: Directions | None = None,
    search: Search = None,
    ood: Literal["pooled", "worst"] = "pooled",
) -> float:
    """Return the selective risk of the rule `tune` finds; NaN if no rule meets the bounds.

    The evaluation metric the paper proposes: with `TprFprModel` the risk at TPR and FPR, with
    `PrecisionRecallModel` the risk at precision and recall.

    Parameters
    ----------
    model, directions, search, ood
        As in `tune`.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> sample = Sample([0.1, 0.2, 0.3, 0.9], [0, 1, 0, 1], ood_scores=[0.25, 0.8])
    >>> selective_risk_at(sample, TprFprModel(min_tpr=0.5, max_fpr=0))
    0.5
    >>> selective_risk_at(sample, TprFprModel(min_tpr=0.75, max_fpr=0))
    nan
    """
    try:
        tuned = tune(sample, model, directions=directions, search=search, ood=ood)
    except InfeasibleError:
        return math.nan
    return tuned.point.selective_risk


def fpr_at_tpr(sample: Sample | Prepared, min_tpr: Number, *, search: Search = None) -> float:
    """Return the smallest FPR with TPR at least `min_tpr`.

    One score: the FPR of the first threshold that reaches the TPR. NaN without OOD rows, and
    when rows with a score of +inf put the TPR out of reach.

    Parameters
    ----------
    min_tpr
        In [0, 1]; a float means its shortest decimal.
    search
        As in `auroc`.

    Examples
    --------
    >>> fpr_at_tpr(Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.2, 0.9]), 0.95)
    0.5
    """
    asked = share("min_tpr", min_tpr)
    rows = given(sample)
    totals, total_ood = rows.points.totals, sum(rows.points.totals.ood)
    min_id = at_least(asked, totals.id, totals.id_rounding)
    if total_ood == 0:
        return math.nan
    if min_id == 0:
        return 0.0
    stairs = roc_rules(rows, search)
    step = int(np.searchsorted(stairs.id, min_id))
    return int(stairs.ood[step]) / total_ood if step < len(stairs.id) else math.nan


def tnr_at_tpr(sample: Sample | Prepared, min_tpr: Number, *, search: Search = None) -> float:
    """Return the largest share of OOD rejected with TPR at least `min_tpr`: 1 - `fpr_at_tpr`.

    Examples
    --------
    >>> tnr_at_tpr(Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.2, 0.9]), 0.95)
    0.5
    """
    return 1 - fpr_at_tpr(sample, min_tpr, search=search)


def ccr_at_fpr(
    sample: Sample | Prepared, max_fpr: Number, *, per: Per = "accepted", search: Search = None
) -> float:
    """Return the correct classification rate at the largest threshold with FPR <= `max_fpr`.

    NaN without OOD rows, and per accepted row when no ID row is accepted.

    Parameters
    ----------
    sample
        With losses of 0 and 1. Two scores: the largest of these rates over mu >= 0.
    max_fpr
        In [0, 1]; a float means its shortest decimal.
    per
        ``"accepted"``: correct among the accepted ID rows. ``"all"``: correct and accepted
        among all ID rows.
    search
        As in `auroc`.

    Examples
    --------
    >>> sample = Sample([0.1, 0.2, 0.7], [0, 1, 0], ood_scores=[0.3, 0.9])
    >>> ccr_at_fpr(sample, 0.1), round(ccr_at_fpr(sample, 0.1, per="all"), 4)
    (0.5, 0.3333)
    """
    asked = share("max_fpr", max_fpr)
    rows = given(sample)
    check_correctness(rows.sample, per)
    rates = Rates(rows.points.totals)
    if rates.ood == 0:
        return math.nan
    best = best_ccr(rows, per, search)
    max_ood = at_most(asked, rates.ood, rates.totals.ood_rounding)
    row = int(np.searchsorted(best.start, max_ood, side="right")) - 1
    ccr = rates.ccr(best.rules.id, best.rules.loss, per)
    return float(ccr[row]) if row >= 0 else math.nan


def f1(
    sample: Sample | Prepared, *, ood_prior: Number | None = None, search: Search = None
) -> float:
    """Return the largest F1, the harmonic mean of precision and recall, with ID as positive.

    NaN without OOD rows.

    Parameters
    ----------
    ood_prior
        Share of OOD inputs behind the precision; the sample's own, `ood_share`, by default.
    search
        As in `auroc`.

    Examples
    --------
    >>> round(f1(Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.3, 0.9])), 4)
    0.8571
    """
    rows = given(sample)
    rates = Rates(rows.points.totals)
    pi = prior(rates, ood_prior)
    if rates.ood == 0:
        return math.nan
    stairs = roc_rules(rows, search)
    tpr, fpr = (1 - pi) * rates.tpr(stairs.id), pi * rates.fpr(stairs.ood)
    # Rejecting everything has recall 0, so F1 = 0.
    return float((2 * tpr / (1 - pi + tpr + fpr)).max(initial=0.0))


@takes(sample=Sample)
def id_accuracy(sample: Sample) -> float:
    """Return the share of correct ID rows when all are accepted, whatever their scores.

    Parameters
    ----------
    sample
        With losses of 0 and 1; others are refused, since they do not say what is correct.

    Examples
    --------
    >>> id_accuracy(Sample([0.1, 0.2, 0.7, 0.8], [0, 1, 0, 0]))
    0.75
    """
    check_correctness(sample)
    totals = Points.of(sample).totals
    return 1 - totals.loss_sum(totals.loss) / totals.id_weight(totals.id)


@takes(sample=Sample)
def ood_share(sample: Sample) -> float:
    """Return the share of OOD in the sample, by weight: the default prior of `aupr` and `f1`.

    Examples
    --------
    >>> ood_share(Sample([0.1, 0.2, 0.7], [0, 1, 0], ood_scores=[0.3]))
    0.25
    """
    return Rates(Points.of(sample).totals).ood_share
