"""`optimum`: the optimal rule of any of the three models for known distributions."""

from __future__ import annotations

from typing import Any

from demur.core.models import CostModel, RejectionModel
from demur.errors import InvalidInputError
from demur.population.bayes import FiniteProblem
from demur.population.cost import cost_optimum
from demur.population.lp import Solver, bounded_optimum
from demur.population.result import PopulationOptimum


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
        `CostModel`, `TprFprModel` or `PrecisionRecallModel`.
    classifier
        Shape (n,), the class predicted at each input. The Bayes classifier, by default, is
        optimal under all three models; no other can do better.
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
    if isinstance(model, CostModel):
        return cost_optimum(problem, model, classifier=classifier)
    if solver not in ("dual", "highs"):
        raise InvalidInputError(f'solver must be "dual" or "highs", got {solver!r}')
    return bounded_optimum(problem, model, classifier=classifier, solver=solver)
