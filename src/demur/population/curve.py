"""All thresholds of one score of a known problem, with randomised boundaries.

Between two thresholds lies a tie, accepted with probability tau: its operating points are the
straight line between those of the two thresholds. TPR, FPR and accepted loss of a score are
therefore a polygon, and a bound cuts it in points that can be written down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.errors import InvalidInputError
from demur.population.bayes import FiniteProblem
from demur.population.bounds import Bounds, precision, quotient
from demur.population.result import combine

# Relative rounding allowed when a point on a bound is checked against it.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdCurve:
    """Rates of "accept when the score is at most `threshold`", for all distinct scores.

    Rows ascend; the first has threshold -inf and accepts nothing. Inputs with p_I(x) = 0 are
    never accepted.
    """

    threshold: FloatArray
    tpr: FloatArray
    fpr: FloatArray
    loss: FloatArray
    """Accepted loss, ``sum p_I r c``."""

    @property
    def selective_risk(self) -> FloatArray:
        """Mean loss of the accepted ID; NaN where nothing is accepted."""
        return quotient(self.loss, self.tpr)

    def precision(self, ood_prior: float) -> FloatArray:
        """Share of ID among the accepted at `ood_prior`; NaN where nothing is accepted."""
        if not 0 <= ood_prior < 1:
            raise InvalidInputError(f"ood_prior must be in [0, 1), got {ood_prior}")
        return precision(self.tpr, self.fpr, ood_prior)


def threshold_curve(problem: FiniteProblem, mu: float, *, classifier: Any = None) -> ThresholdCurve:
    """Return the operating points of the score ``r + mu*g`` (of g itself when mu is inf).

    With mu = inf these are the Neyman-Pearson points: the ROC and precision-recall curves that
    no rule exceeds.

    Examples
    --------
    >>> problem = FiniteProblem([[0.5, 0.0], [0.25, 0.25]], p_ood=[0.25, 0.75])
    >>> curve = threshold_curve(problem, np.inf)
    >>> curve.threshold, curve.tpr, curve.fpr
    (array([-inf,  0.5,  1.5]), array([0. , 0.5, 1. ]), array([0.  , 0.25, 1.  ]))
    """
    scores = problem.scores(classifier)
    return score_curve(problem, combine(scores, checked_mu(mu)), scores[:, 0])


def score_curve(problem: FiniteProblem, values: FloatArray, risk: FloatArray) -> ThresholdCurve:
    """Return the operating points of any score; inputs with a value of +inf are left out."""
    order = np.argsort(values, kind="stable")
    order = order[np.isfinite(values[order])]
    ordered = values[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)])
    marginal = problem.p_marginal

    def cumulated(mass: FloatArray) -> FloatArray:
        return np.concatenate([[0.0], np.cumsum(mass[order])[last]])

    return ThresholdCurve(
        threshold=np.concatenate([[-np.inf], ordered[last]]),
        tpr=cumulated(marginal),
        fpr=cumulated(problem.p_ood),
        loss=cumulated(marginal * risk),
    )


def checked_mu(mu: float) -> float:
    """Return mu as a float, refusing what is not in [0, inf]."""
    if math.isnan(mu) or mu < 0:
        raise InvalidInputError(f"mu must be in [0, inf], got {mu}")
    return float(mu)


class Candidates(NamedTuple):
    """Points of a curve where an optimum under bounds can lie."""

    row: IntArray
    """Everything up to this row of the curve is accepted ..."""
    share: FloatArray
    """... and this share of the next tie."""
    tpr: FloatArray
    fpr: FloatArray
    loss: FloatArray


def candidates(curve: ThresholdCurve, bounds: Bounds) -> Candidates:
    """Return the vertices that meet `bounds` and the points where the curve crosses a bound.

    On the line between two vertices, selective risk, TPR, FPR and precision are monotone, so
    that one of these points is optimal whichever of them is optimised. Points without ID mass
    are left out.
    """
    vertices = np.arange(len(curve.tpr) - 1), np.ones(len(curve.tpr) - 1)
    margins = [curve.tpr - bounds.min_tpr, curve.fpr - bounds.max_fpr]
    if math.isfinite(bounds.max_ratio):
        margins.append(curve.fpr - bounds.max_ratio * curve.tpr)
    parts = [vertices, *map(_crossings, margins)]
    row = np.concatenate([part[0] for part in parts])
    share = np.concatenate([part[1] for part in parts])
    tpr, fpr, loss = (
        (1 - share) * column[row] + share * column[row + 1]
        for column in (curve.tpr, curve.fpr, curve.loss)
    )
    met = (tpr > 0) & (tpr >= bounds.min_tpr * (1 - _ROUNDING))
    met &= fpr <= bounds.max_fpr * (1 + _ROUNDING)
    if math.isfinite(bounds.max_ratio):
        met &= fpr <= bounds.max_ratio * tpr * (1 + _ROUNDING)
    return Candidates(row[met], share[met], tpr[met], fpr[met], loss[met])


def _crossings(margin: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return where a function that is linear between vertices changes its sign."""
    before, after = margin[:-1], margin[1:]
    row = np.flatnonzero((np.sign(before) * np.sign(after)) < 0)
    return row, before[row] / (before[row] - after[row])
