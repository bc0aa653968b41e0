"""Population values of the paper's exemplar methods A to D on a known problem."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray, takes
from demur.core.models import Bound, RejectionModel
from demur.errors import InfeasibleError, InvalidInputError
from demur.population.bayes import FiniteProblem
from demur.population.result import PopulationOptimum
from demur.population.solve import optimum
from demur.population.thresholds import best_threshold, score_curve, threshold_curve

METHODS: Mapping[str, float | None] = MappingProxyType(
    {"A": math.inf, "B": 0.2, "C": 0.0, "D": None}
)
"""mu of the paper's methods A(inf), B(0.2), C(0); None is D, every mu >= 0."""

# Where the envelope over mu is taken for D; single-score methods lie between.
_MU_GRID = (0.0, *np.geomspace(1e-4, 1e3, 57), math.inf)


@dataclass(frozen=True, slots=True)
class PopulationValues:
    """A row of the paper's Table 1 for known distributions; NaN means unable."""

    risk_at_tpr_fpr: float
    risk_at_precision_recall: float
    auroc: float
    aupr: float
    oscr_accepted: float
    """Area under correct / *accepted* ID (1 - selective risk) over FPR, as in the paper."""
    oscr_all: float
    """Area under correct and accepted / *all* ID over FPR, as elsewhere."""


@takes(problem=FiniteProblem, tpr_fpr=RejectionModel, precision_recall=RejectionModel)
def population_values(
    problem: FiniteProblem,
    mu: float | None,
    *,
    tpr_fpr: RejectionModel,
    precision_recall: RejectionModel,
) -> PopulationValues:
    """Return the metrics of the score ``r + mu*g``, or of all mu >= 0 together (mu None).

    For all mu together the ROC and precision-recall curves are those of g alone, which no
    rule exceeds; the OSCR areas are under the largest rate at equal FPR. Areas are trapezoids
    between thresholds; losses must be 0/1 for the OSCR areas to mean anything. AUPR uses the
    prior of `precision_recall`.

    Examples
    --------
    >>> from demur import PrecisionRecallModel, TprFprModel
    >>> from demur.population.gaussian import CORRECTED
    >>> values = population_values(CORRECTED.discretise(2000), METHODS["A"],
    ...     tpr_fpr=TprFprModel(0.7, 0.2), precision_recall=PrecisionRecallModel(0.9, 0.7, 0.25))
    >>> round(values.risk_at_tpr_fpr, 3), round(values.auroc, 3)
    (0.158, 0.878)
    """
    if precision_recall.ood_prior is None:
        raise InvalidInputError(f"precision_recall declares no ood_prior, got {precision_recall!r}")
    discriminator = threshold_curve(problem, math.inf if mu is None else mu)
    precision = discriminator.precision(float(precision_recall.ood_prior))
    per_accepted, per_all = _oscr_areas(problem, mu)
    return PopulationValues(
        risk_at_tpr_fpr=_risk(problem, tpr_fpr, mu),
        risk_at_precision_recall=_risk(problem, precision_recall, mu),
        auroc=_area(discriminator.fpr, discriminator.tpr),
        aupr=_area(discriminator.tpr, precision),
        oscr_accepted=per_accepted,
        oscr_all=per_all,
    )


@takes(problem=FiniteProblem)
def risk_coverage(
    problem: FiniteProblem, tpr: Any, *, max_fpr: float, mu: float | None = None
) -> FloatArray:
    """Return the lowest selective risk at each minimal TPR in `tpr`, FPR at most `max_fpr`.

    Parameters
    ----------
    mu
        Of the score ``r + mu*g``; None for the optimum over all rules.

    Returns
    -------
    FloatArray
        NaN where the bounds cannot be met.

    Examples
    --------
    >>> from demur.population.gaussian import CORRECTED
    >>> risk_coverage(CORRECTED.discretise(500), [0.4, 0.5, 0.6], max_fpr=0.2, mu=0).round(2)
    array([0.04, 0.07,  nan])
    """
    levels = _arrays.real_vector("tpr", tpr)
    most = Bound("fpr", at_most=max_fpr)
    models = [
        RejectionModel("selective_risk", (Bound("tpr", at_least=float(t)), most)) for t in levels
    ]
    return np.array([_risk(problem, model, mu) for model in models])


def _risk(problem: FiniteProblem, model: RejectionModel, mu: float | None) -> float:
    try:
        return _best(problem, model, mu).point.selective_risk
    except InfeasibleError:
        return math.nan


def _best(problem: FiniteProblem, model: RejectionModel, mu: float | None) -> PopulationOptimum:
    return optimum(problem, model) if mu is None else best_threshold(problem, model, mu=mu)


def _oscr_areas(problem: FiniteProblem, mu: float | None) -> tuple[float, float]:
    if mu is not None:
        curve = threshold_curve(problem, mu)
        return (
            _area(curve.fpr, 1 - curve.selective_risk),
            _area(curve.fpr, curve.tpr - curve.loss),
        )
    levels = np.unique(threshold_curve(problem, math.inf).fpr)
    best = np.max([_correct_among_accepted(problem, m, levels) for m in _MU_GRID], axis=0)
    # Correct and accepted is largest where 1 - r >= nu*g: thresholds of g / (1 - r).
    risk, ratio = problem.scores().T
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(np.isfinite(ratio), ratio / (1 - risk), np.inf)
    everywhere = score_curve(problem, values, risk)
    return _area(levels, best), _area(everywhere.fpr, everywhere.tpr - everywhere.loss)


def _correct_among_accepted(problem: FiniteProblem, mu: float, fpr: FloatArray) -> FloatArray:
    curve = threshold_curve(problem, mu)
    return np.interp(fpr, curve.fpr[1:], 1 - curve.selective_risk[1:])


def _area(x: FloatArray, y: FloatArray) -> float:
    """Return the area under a curve over [0, 1], flat before its first defined point."""
    defined = ~np.isnan(y)
    x, y = x[defined], y[defined]
    x, y = np.concatenate([[0.0], x, [1.0]]), np.concatenate([y[:1], y, y[-1:]])
    return float(np.trapezoid(y, x))
