"""The best threshold of one combined score ``r + mu*g`` with mu fixed."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur.core.models import RejectionModel
from demur.population.bayes import FiniteProblem
from demur.population.bounds import Bounds
from demur.population.curve import candidates, checked_mu, score_curve
from demur.population.infeasible import infeasible_error
from demur.population.result import PopulationOptimum, assemble, combine


def best_threshold(
    problem: FiniteProblem, model: RejectionModel, *, mu: float, classifier: Any = None
) -> PopulationOptimum:
    """Return the best rule of a bounded model among those with the given mu.

    The tie on the threshold is accepted with one common probability tau.

    Parameters
    ----------
    model
        `TprFprModel` or `PrecisionRecallModel`.
    mu
        Weight of the likelihood ratio, 0 to inf.
    classifier
        Class predicted at each input; the Bayes classifier by default.

    Raises
    ------
    InfeasibleError
        No threshold meets the bounds; carries the nearest attainable ones for this mu.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> problem = FiniteProblem([[0.5, 0.0], [0.25, 0.25]], p_ood=[0.25, 0.75])
    >>> best = best_threshold(problem, TprFprModel(min_tpr=0.75), mu=0.0)
    >>> best.accept_probability, best.threshold
    (array([1. , 0.5]), 0.5)
    """
    scores = problem.scores(classifier)
    values = combine(scores, checked_mu(mu))
    curve = score_curve(problem, values, scores[:, 0])
    found = candidates(curve, Bounds.of(model))
    if len(found.row) == 0:
        raise infeasible_error(model, curve)
    best = np.lexsort((-found.tpr, found.loss / found.tpr))[0]
    row = found.row[best]
    tied = values == curve.threshold[row + 1]
    c = np.where(tied, found.share[best], values <= curve.threshold[row]).astype(np.float64)
    return assemble(problem, model, scores, float(mu), c)
