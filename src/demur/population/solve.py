"""`optimum`: the optimal rule of a model for known distributions.

The cost-based model has a closed form (Theorem 1 of the paper), bounded models are linear programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from demur._arguments import takes
from demur.core.models import ExpectedCost, RejectionModel
from demur.core.rule import Rule
from demur.errors import InvalidInputError
from demur.population.bayes import FiniteProblem
from demur.population.lp import Solver, bounded_optimum
from demur.population.result import PopulationOptimum, direction, operating_point


@takes(problem=FiniteProblem, model=RejectionModel)
def optimum(
    problem: FiniteProblem,
    model: RejectionModel,
    *,
    classifier: Any = None,
    solver: Solver = "dual",
) -> PopulationOptimum:
    """Return an optimal selective function of `problem` under `model`.

    The cost-based model is solved in closed form (Theorem 1), the bounded models by linear
    programming.

    Parameters
    ----------
    model
        The least expected cost, or the least selective risk with bounds on TPR, FPR and precision:
        `CostModel`, `TprFprModel`, `PrecisionRecallModel`.
    classifier
        Shape (n,), the class predicted at each input. The Bayes classifier, by default, is
        optimal under all of them; no other can do better.
    solver
        Of the linear program: ``"dual"`` (fast and accurate to rounding) or ``"highs"``
        (SciPy's general solver). The closed form of `CostModel` needs none.

    Raises
    ------
    InfeasibleError
        No rule meets the bounds; carries the nearest attainable ones.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> problem = FiniteProblem([[0.5, 0.0], [0.3, 0.2]], p_ood=[0.75, 0.25])
    >>> best = optimum(problem, TprFprModel(min_tpr=0.5, max_fpr=0.5))
    >>> best.accept_probability, round(best.point.selective_risk, 6)
    (array([0.5, 0.5]), 0.2)
    """
    # What is no model at all is refused with the bounded ones.
    cost: ExpectedCost | None = getattr(model, "cost", None)
    if cost is not None and not model.bounds:
        return _cost_optimum(problem, model, cost, classifier)
    if solver not in ("dual", "highs"):
        raise InvalidInputError(f'solver must be "dual" or "highs", got {solver!r}')
    return bounded_optimum(problem, model, classifier=classifier, solver=solver)


def _cost_optimum(
    problem: FiniteProblem, model: RejectionModel, cost: ExpectedCost, classifier: Any
) -> PopulationOptimum:
    """Return the rule of least expected cost: accept when ``r + mu*g <= eps1``.

    ``mu = (eps2 - eps3) pi/(1-pi)``. On the boundary every tau is optimal; here it is 1.
    Inputs with p_I(x) = 0 are rejected, and so is everything if that is cheapest (the
    selective risk is then NaN).

    Examples
    --------
    >>> from demur import CostModel
    >>> problem = FiniteProblem([[0.5, 0.05], [0.15, 0.3]], p_ood=[0.1, 0.9])
    >>> best = optimum(problem, CostModel(reject_id=0.25, ood_prior=0.2))
    >>> best.accept_probability, round(best.mu, 3), best.threshold
    (array([1., 0.]), 0.25, 0.25)
    """
    prior = float(model.ood_prior or 0)
    mu = (float(cost.accept_ood) - float(cost.reject_ood)) * prior / (1 - prior)
    threshold = float(cost.reject_id)
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
