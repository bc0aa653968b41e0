"""Metrics at one operating point, and all scalar metrics of one score, from one sort.

One score: over all thresholds. Two scores: over all thresholds and all mu >= 0, tuned on the
sample itself and so optimistic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from demur._arrays import takes
from demur._kernels import compiled
from demur._kernels.engines import engine_name
from demur.core.models import RejectionModel, check_share
from demur.core.points import Points
from demur.core.program import Number, Program, Totals, at_least, at_most
from demur.core.sample import Sample
from demur.errors import InfeasibleError, InvalidInputError
from demur.metrics.areas import (
    Groups,
    Per,
    Rates,
    area_under_ccr,
    area_under_generalised_risk,
    area_under_precision,
    area_under_risk,
    area_under_roc,
    check_correctness,
    prior,
    share_of,
    tie_groups,
    unit_groups,
)
from demur.metrics.oscr import best_ccr
from demur.metrics.rules import given, roc_rules
from demur.tuning.operating_points import Search, is_swept
from demur.tuning.prepared import Prepared
from demur.tuning.result import DIRECTION_SETS, Directions
from demur.tuning.staircases import ERROR
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
    asked = check_share("min_tpr", min_tpr)
    rows = given(sample)
    totals, total_ood = rows.points.totals, sum(rows.points.totals.ood)
    min_id = at_least(asked, totals.id, totals.id_rounding)
    if total_ood == 0:
        return math.nan
    if min_id == 0:
        return 0.0
    if isinstance(rows, Prepared) and not is_swept(rows.points, search):
        return _least_ood(rows, min_id) / total_ood
    stairs = roc_rules(rows, search, 0.0)
    step = int(np.searchsorted(stairs.id, min_id))
    return int(stairs.ood[step]) / total_ood if step < len(stairs.id) else math.nan


def _least_ood(prepared: Prepared, min_id: int) -> float:
    """Return the smallest OOD mass accepted with so much ID mass; NaN if no rule does that."""
    sets = len(prepared.points.totals.ood)
    no_bounds = prepared.points.totals.ood, ((0, 0),) * sets
    program = Program(0, 0, 1, False, min_id, *no_bounds)
    best = prepared.search(program, DIRECTION_SETS["nonneg"])
    return float(best.ood) if len(best.v) else math.nan


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
        With losses of 0 and 1. Two scores: the largest of these rates over mu >= 0; of more
        than some thousand rows as far as it is known within the error of `oscr`.
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
    asked = check_share("max_fpr", max_fpr)
    rows = given(sample)
    check_correctness(rows.sample, per)
    rates = Rates(rows.points.totals)
    if rates.ood == 0:
        return math.nan
    best = best_ccr(rows, per, search, ERROR)
    max_ood = at_most(asked, rates.ood, rates.totals.ood_rounding)
    row = int(np.searchsorted(best.start, max_ood, side="right")) - 1
    ccr = rates.ccr(best.rules.id, best.rules.loss, per)
    return float(ccr[row]) if row >= 0 else math.nan


def f1(
    sample: Sample | Prepared, *, ood_prior: Number | None = None, search: Search = None
) -> float:
    """Return the largest F1, the harmonic mean of precision and recall, with ID as positive.

    NaN without OOD rows. Two scores of more than some thousand rows: of the rules of `roc_curve`,
    which lie that close to the best ones.

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
    stairs = roc_rules(rows, search, ERROR)
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


_TPR = Fraction(95, 100)
_NEED_NO_OOD = ("aurc", "augrc")


@dataclass(frozen=True, slots=True, repr=False)
class ScoreSummary:
    """Scalar metrics of one score; NaN where a metric is not defined.

    ``*_ood`` take OOD as the positive class; the others are those of the functions of
    `demur.metrics`.

    Examples
    --------
    >>> import demur as dm
    >>> summary = dm.metrics.summary(dm.Sample([1, 2, 3], [0, 0, 1], [2.5, 4]))
    >>> round(summary.auroc, 4), round(summary.id_accuracy, 4)
    (0.8333, 0.6667)
    """

    ood_prior: float
    """The prior behind precision and F1."""
    auroc: float
    aupr: float
    """Trapezoid."""
    average_precision: float
    aupr_ood: float
    average_precision_ood: float
    fpr_at_tpr_95: float
    f1: float
    id_accuracy: float
    oscr_accepted: float
    oscr_all: float
    aurc: float
    augrc: float

    def __repr__(self) -> str:
        told = ("auroc", "aupr", "fpr_at_tpr_95", "oscr_accepted", "oscr_all", "aurc", "augrc")
        numbers = ", ".join(f"{name}={getattr(self, name):.4g}" for name in told)
        return f"ScoreSummary({numbers}, ...)"


@takes(sample=Sample)
def summary(sample: Sample, *, ood_prior: Number | None = None) -> ScoreSummary:
    """Return all scalar metrics of a single-score sample.

    Parameters
    ----------
    ood_prior
        Share of OOD inputs behind precision and F1; the sample's own by default.

    Examples
    --------
    >>> s = summary(Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.2, 0.9]))
    >>> s.auroc, round(s.aurc, 4), s.fpr_at_tpr_95
    (0.75, 0.1111, 0.5)
    """
    if sample.n_scores != 1:
        raise InvalidInputError(
            f"summary needs one score, the sample has {sample.n_scores}: "
            "choose one with sample.score(column)"
        )
    correct = bool(((sample.id_loss == 0) | (sample.id_loss == 1)).all())
    unweighted = sample.id_weight is None and sample.ood_weight is None
    if correct and unweighted and engine_name() == "compiled":
        return _by_counting(sample, ood_prior)
    if correct and unweighted:
        groups = unit_groups(sample)
        totals = Totals(sample.n_id, (sample.n_ood,), int(groups.loss[-1]))
    else:
        points = Points.of(sample)
        groups, totals = tie_groups(points), points.totals
    rates = Rates(totals)
    pi = prior(rates, ood_prior)
    return ScoreSummary(
        ood_prior=pi,
        auroc=area_under_roc(groups, totals),
        **_precision_areas(groups, rates, pi),
        fpr_at_tpr_95=_fpr_at_tpr(groups, totals),
        f1=_largest_f1(groups, rates, pi),
        id_accuracy=1 - float(rates.mean_loss(groups.loss[-1:])[0]) if correct else math.nan,
        oscr_accepted=area_under_ccr(groups, rates, "accepted") if correct else math.nan,
        oscr_all=area_under_ccr(groups, rates, "all") if correct else math.nan,
        aurc=area_under_risk(groups, rates),
        augrc=area_under_generalised_risk(groups, rates),
    )


def _by_counting(sample: Sample, ood_prior: Number | None) -> ScoreSummary:
    """Return the metrics of rows that count once and are right or wrong, by the compiled engine."""
    is_wrong = sample.id_loss == 1
    totals = Totals(sample.n_id, (sample.n_ood,), int(is_wrong.sum()))
    scores = sample.id_doubts[:, 0]
    pi = prior(Rates(totals), ood_prior)
    found = compiled.metrics(
        np.sort(scores[~is_wrong]),
        np.sort(scores[is_wrong]),
        np.sort(sample.ood_doubts[:, 0]),
        prior=pi,
        min_id=at_least(_TPR, totals.id, 0),
    )
    if sample.n_ood == 0:
        found = {name: found[name] if name in _NEED_NO_OOD else math.nan for name in found}
    return ScoreSummary(ood_prior=pi, id_accuracy=1 - totals.loss / totals.id, **found)


def _precision_areas(groups: Groups, rates: Rates, pi: float) -> dict[str, float]:
    names = ("aupr", "average_precision", "aupr_ood", "average_precision_ood")
    if rates.ood == 0:
        return dict.fromkeys(names, math.nan)
    tpr, fpr = rates.tpr(groups.id), rates.fpr(groups.ood)
    id_first = rates.precision(groups.id, groups.ood, pi), tpr
    # Rejecting from the most doubtful row on: what is not accepted, in reverse.
    ood, id_ = pi * (1 - fpr[::-1]), (1 - pi) * (1 - tpr[::-1])
    ood_first = share_of(ood, id_), 1 - fpr[::-1]
    values = [
        area_under_precision(*curve, trapezoid=trapezoid)
        for curve in (id_first, ood_first)
        for trapezoid in (True, False)
    ]
    return dict(zip(names, values, strict=True))


def _fpr_at_tpr(groups: Groups, totals: Totals) -> float:
    """Return the FPR of the first threshold with TPR at least 95 %."""
    if sum(totals.ood) == 0:
        return math.nan
    # The last group holds the rows with a score of +inf, which no threshold accepts.
    nI, nO = groups.id[:-1], groups.ood[:-1]
    row = int(np.searchsorted(nI, at_least(_TPR, totals.id, totals.id_rounding)))
    return int(nO[row]) / sum(totals.ood) if row < len(nI) else math.nan


def _largest_f1(groups: Groups, rates: Rates, pi: float) -> float:
    if rates.ood == 0:
        return math.nan
    tpr, fpr = (1 - pi) * rates.tpr(groups.id[:-1]), pi * rates.fpr(groups.ood[:-1])
    return float((2 * tpr / (1 - pi + tpr + fpr)).max(initial=0.0))
