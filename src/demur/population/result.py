"""What solving a known problem hands back: c(x) with its threshold, and every rate of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.core.scores import combine, midway
from demur.population.bayes import FiniteProblem


@dataclass(frozen=True, slots=True, eq=False)
class PopulationOptimum:
    """An optimal selective function c(x) of a known problem, and what it attains.

    c is 1 where ``r + mu*g < threshold``, 0 where it is greater, and tau(x) on the boundary.
    """

    problem: FiniteProblem
    model: RejectionModel
    accept_probability: FloatArray
    """c(x) of each input, shape (n,)."""
    mu: float
    """Weight of the likelihood ratio; inf means that it alone counts (the score is g)."""
    threshold: float
    """lambda in the units of ``r + mu*g`` (of g when mu is inf)."""
    boundary: BoolArray
    """Inputs on the threshold, whose c(x) is tau(x); shape (n,)."""
    rule: Rule
    """The same rule with a unit direction. It accepts the whole boundary (tau = 1)."""
    point: OperatingPoint
    """Rates of c, masses as probabilities."""

    def __post_init__(self) -> None:
        self.accept_probability.flags.writeable = False
        self.boundary.flags.writeable = False

    @property
    def tau(self) -> FloatArray:
        """tau(x) of the inputs on the boundary, in their order."""
        return self.accept_probability[self.boundary]


def direction(mu: float) -> tuple[float, float]:
    """Return the unit vector along (1, mu)."""
    if math.isinf(mu):
        return 0.0, 1.0
    length = math.hypot(1.0, mu)
    return 1 / length, mu / length


def combined_score(scores: FloatArray, mu: float) -> FloatArray:
    """Return r + mu*g, or g when mu is inf; +inf wherever g is."""
    ratio = scores[:, 1]
    if math.isinf(mu):
        return np.array(ratio)
    # With mu = 0 an infinite ratio would be NaN.
    return np.where(np.isfinite(ratio), combine((1.0, mu), scores), np.inf)


def assemble(
    problem: FiniteProblem, model: RejectionModel, scores: FloatArray, mu: float, c: FloatArray
) -> PopulationOptimum:
    """Put an optimum together from mu and c, some of which must be positive."""
    values = combined_score(scores, mu)
    last, first = _around_threshold(values, c)
    # Accepted and rejected values overlap in the boundary, one value up to rounding.
    boundary = np.isfinite(values) & (values >= first) & (values <= last)
    unit = direction(mu)
    on_rule = _around_threshold(Rule(unit, 0.0).combine(scores), np.where(boundary, 1.0, c))
    tied = bool(boundary.any())
    return PopulationOptimum(
        problem=problem,
        model=model,
        accept_probability=c,
        mu=mu,
        threshold=(last + first) / 2 if tied else float(midway(last, first)),
        boundary=boundary,
        rule=Rule(unit, on_rule[0] if tied else float(midway(*on_rule)), score_names=("r", "g")),
        point=operating_point(problem, model, scores[:, 0], c),
    )


def operating_point(
    problem: FiniteProblem, model: RejectionModel, risk: FloatArray, c: FloatArray
) -> OperatingPoint:
    """Return every rate of c."""
    marginal = problem.p_marginal
    tpr, fpr, loss = (float(p @ c) for p in (marginal, problem.p_ood, marginal * risk))
    prior = None if model.ood_prior is None else float(model.ood_prior)
    cost = None if model.cost is None else model.cost.at(tpr, fpr, loss, prior or 0.0)
    return OperatingPoint(
        tpr=tpr,
        fpr=fpr,
        selective_risk=float(quotient(loss, tpr)),
        accepted_id=tpr,
        accepted_ood=fpr,
        accepted_loss=loss,
        ood_prior=prior,
        precision=None if prior is None else float(precision(tpr, fpr, prior)),
        expected_cost=cost,
        fpr_by_set={"ood": fpr},
    )


def _around_threshold(values: FloatArray, c: FloatArray) -> tuple[float, float]:
    """Return the last (partly) accepted and the first (partly) rejected value."""
    rejected = np.isfinite(values) & (c < 1)
    return float(values[c > 0].max()), float(values[rejected].min(initial=np.inf))


def quotient(part: FloatArray | float, whole: FloatArray | float) -> FloatArray:
    """Return part / whole, NaN where the whole is nothing."""
    undefined = np.full(np.shape(whole), np.nan)
    return np.asarray(np.divide(part, whole, out=undefined, where=np.asarray(whole) > 0))


def precision(tpr: FloatArray | float, fpr: FloatArray | float, ood_prior: float) -> FloatArray:
    """Return ``(1-pi) TPR / ((1-pi) TPR + pi FPR)``, NaN where nothing is accepted."""
    accepted_id = (1 - ood_prior) * tpr
    return quotient(accepted_id, accepted_id + ood_prior * fpr)
