"""All scalar metrics of one score, from one sort."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from demur._arrays import takes
from demur._kernels import compiled
from demur._kernels.engines import engine_name
from demur.core.points import Points
from demur.core.program import Number, Totals, at_least
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.metrics.areas import (
    area_under_ccr,
    area_under_generalised_risk,
    area_under_precision,
    area_under_risk,
    area_under_roc,
)
from demur.metrics.rates import Groups, Rates, prior, share_of, tie_groups, unit_groups

_TPR = Fraction(95, 100)
_NEED_NO_OOD = ("aurc", "augrc")


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """Scalar metrics of one score; NaN where a metric is not defined.

    ``*_ood`` take OOD as the positive class; the others are those of the functions of
    `demur.metrics`.
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
