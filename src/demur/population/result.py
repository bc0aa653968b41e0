"""What solving a known problem hands back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.core.models import CostModel, PrecisionRecallModel, RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.population.bayes import FiniteProblem
from demur.population.bounds import precision, quotient


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


def combine(scores: FloatArray, mu: float) -> FloatArray:
    """Return r + mu*g, or g when mu is inf; +inf wherever g is."""
    risk, ratio = scores.T
    if math.isinf(mu):
        return np.array(ratio)
    finite = np.isfinite(ratio)
    return np.where(finite, risk + mu * np.where(finite, ratio, 0.0), np.inf)


def assemble(
    problem: FiniteProblem, model: RejectionModel, scores: FloatArray, mu: float, c: FloatArray
) -> PopulationOptimum:
    """Put an optimum together from mu and c, some of which must be positive."""
    values = combine(scores, mu)
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
        threshold=(last + first) / 2 if tied else _middle(last, first),
        boundary=boundary,
        rule=Rule(unit, on_rule[0] if tied else _middle(*on_rule), score_names=("r", "g")),
        point=operating_point(problem, model, scores[:, 0], c),
    )


def operating_point(
    problem: FiniteProblem, model: RejectionModel, risk: FloatArray, c: FloatArray
) -> OperatingPoint:
    """Return every rate of c."""
    marginal = problem.p_marginal
    tpr, fpr, loss = marginal @ c, problem.p_ood @ c, (marginal * risk) @ c
    prior = cost = None
    if isinstance(model, (CostModel, PrecisionRecallModel)):
        prior = float(model.ood_prior)
    if isinstance(model, CostModel):
        on_id = loss + float(model.reject_id) * (1 - tpr)
        on_ood = float(model.accept_ood) * fpr + float(model.reject_ood) * (1 - fpr)
        cost = float((1 - float(model.ood_prior)) * on_id + float(model.ood_prior) * on_ood)
    return OperatingPoint(
        tpr=float(tpr),
        fpr=float(fpr),
        selective_risk=float(quotient(loss, tpr)),
        accepted_id=float(tpr),
        accepted_ood=float(fpr),
        accepted_loss=float(loss),
        ood_prior=prior,
        precision=None if prior is None else float(precision(tpr, fpr, prior)),
        expected_cost=cost,
        fpr_by_set={"ood": float(fpr)},
    )


def _around_threshold(values: FloatArray, c: FloatArray) -> tuple[float, float]:
    """Return the last (partly) accepted and the first (partly) rejected value."""
    rejected = np.isfinite(values) & (c < 1)
    return float(values[c > 0].max()), float(values[rejected].min(initial=np.inf))


def _middle(last: float, first: float) -> float:
    """Return a threshold from `last` on and, if possible, below `first`."""
    middle = last if math.isinf(first) else last + (first - last) / 2
    return middle if last <= middle < first else last
