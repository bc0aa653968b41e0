"""The cost-based model in closed form (Theorem 1 of the paper)."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core.models import CostModel
from demur.core.rule import Rule
from demur.population.bayes import FiniteProblem
from demur.population.result import PopulationOptimum, direction, operating_point


def cost_optimum(
    problem: FiniteProblem, model: CostModel, *, classifier: Any = None
) -> PopulationOptimum:
    """Return the rule of least expected cost: accept when ``r + mu*g <= eps1``.

    ``mu = (eps2 - eps3) pi/(1-pi)``. On the boundary every tau is optimal; here it is 1.
    Inputs with p_I(x) = 0 are rejected, and so is everything if that is cheapest (the
    selective risk is then NaN).

    Examples
    --------
    >>> from demur import CostModel
    >>> problem = FiniteProblem([[0.5, 0.05], [0.15, 0.3]], p_ood=[0.1, 0.9])
    >>> best = cost_optimum(problem, CostModel(reject_id=0.25, ood_prior=0.2))
    >>> best.accept_probability, round(best.mu, 3), best.threshold
    (array([1., 0.]), 0.25, 0.25)
    """
    prior = float(model.ood_prior)
    mu = (float(model.accept_ood) - float(model.reject_ood)) * prior / (1 - prior)
    threshold = float(model.reject_id)
    unit = direction(mu)
    scores = problem.scores(classifier)
    # unit[0] is 1/sqrt(1 + mu^2), the scale of a rule with a unit direction.
    rule = Rule(unit, threshold * unit[0], score_names=("r", "g"))
    accept = rule.accept(scores).astype(np.float64)
    return PopulationOptimum(
        problem=problem,
        model=model,
        accept_probability=accept,
        mu=mu,
        threshold=threshold,
        boundary=np.asarray(rule.combine(scores) == rule.threshold),
        rule=rule,
        point=operating_point(problem, model, scores[:, 0], accept),
    )
