"""tau(x) in closed form when every input lies on the boundary.

The appendix of the paper assumes that ``r + mu*g = lambda`` for all inputs. Then the selective
risk is ``lambda - mu * FPR/TPR`` and only the likelihood ratio g matters. Scaling c leaves
FPR/TPR as it is, so TPR = phi_min can be asked for, and an optimal c accepts a *window* of the
inputs ordered by g that holds the ID mass phi_min:

* mu < 0: FPR/TPR is to be small: the window of the smallest g.
* mu = 0 (missing in the appendix): every feasible c is optimal; the window of the smallest g is
  feasible whenever any c is.
* mu > 0: FPR/TPR is to be large: the window of the largest g if its FPR is within rho_max,
  otherwise the window whose FPR is rho_max. Sliding the window moves its FPR continuously from
  the smallest to the largest, so it exists, and no c has FPR/TPR above rho_max/phi_min.

The appendix asks for FPR = rho_max in the last case whatever the problem, which is wrong where
the bound is slack: for p_I = (.5, .5), g = (.5, 1.5), r = .2 - .1 g, phi_min = .4 and
rho_max = .9 its formula gives .0875; the optimum is .05.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import NUMBER, FloatArray, takes
from demur.core.models import RejectionModel
from demur.errors import InvalidInputError
from demur.population.bayes import FiniteProblem
from demur.population.result import combined_score
from demur.population.thresholds import Bounds, ThresholdCurve, infeasible_error, threshold_curve

# How far r + mu*g may be from constant, and a rate from its bound, relative to their size.
_CONSTANT = 1e-9
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class BoundaryRule:
    """tau(x): 1 for ``lower < g < upper``, the given shares at the two ends, 0 outside."""

    lower: float
    """gamma_1."""
    lower_share: float
    """chi_1, the acceptance probability where g equals `lower`."""
    upper: float
    """gamma_2."""
    upper_share: float
    """chi_2."""

    def accept_probability(self, likelihood_ratio: Any) -> FloatArray:
        """Return tau of inputs with these likelihood ratios."""
        g = _arrays.real_vector("likelihood_ratio", likelihood_ratio)
        inside = ((self.lower < g) & (g < self.upper)).astype(np.float64)
        at_upper = np.where(g == self.upper, self.upper_share, inside)
        return np.where(g == self.lower, self.lower_share, at_upper)


@takes(problem=FiniteProblem, model=RejectionModel, mu=NUMBER)
def boundary_rule(
    problem: FiniteProblem, model: RejectionModel, *, mu: float, classifier: Any = None
) -> BoundaryRule:
    """Return an optimal tau of a problem whose score ``r + mu*g`` is the same for all inputs.

    Parameters
    ----------
    model
        Least selective risk with bounds on TPR and FPR, such as `TprFprModel`.
    mu
        Any finite number; its sign decides which inputs are accepted.

    Raises
    ------
    InvalidInputError
        ``r + mu*g`` is not constant on the inputs with p_I(x) > 0.
    InfeasibleError
        No c meets the bounds.

    Examples
    --------
    The counterexample to the appendix:

    >>> from demur import TprFprModel
    >>> problem = FiniteProblem([[0.425, 0.075], [0.475, 0.025]], p_ood=[0.25, 0.75])
    >>> rule = boundary_rule(problem, TprFprModel(min_tpr=0.4, max_fpr=0.9), mu=0.1)
    >>> rule.accept_probability([0.5, 1.5]).round(6)
    array([0. , 0.8])
    """
    _check_constant(problem.scores(classifier), mu)
    # All inputs tie in r + mu*g; ordered by g, they are the Neyman-Pearson curve.
    curve = threshold_curve(problem, math.inf, classifier=classifier)
    bounds = Bounds.of(model)
    if model.bound("precision") is not None:
        raise InvalidInputError(
            f"boundary_rule knows bounds on tpr and fpr (TprFprModel), got {model!r}"
        )
    phi, rho = bounds.min_tpr, bounds.max_fpr
    share = _window(curve, mu, phi, rho) if phi > 0 else _single_ratio(curve, mu, rho)
    if share is None:
        raise infeasible_error(model, curve)
    rows = np.flatnonzero(share > 0)
    g, first, last = curve.threshold[1:], rows[0], rows[-1]
    return BoundaryRule(float(g[first]), float(share[first]), float(g[last]), float(share[last]))


def _window(curve: ThresholdCurve, mu: float, phi: float, rho: float) -> FloatArray | None:
    """Return the accepted share of each distinct g, or None if even the smallest g are too many.

    Windows are given by the ID mass `left` of the inputs below them.
    """
    below, ood = curve.tpr, curve.fpr
    phi = min(phi, float(below[-1]))
    farthest = below[-1] - phi
    left = np.unique(np.clip(np.concatenate([below, below - phi]), 0.0, farthest))
    fpr = np.interp(left + phi, below, ood) - np.interp(left, below, ood)
    if fpr[0] > rho * (1 + _ROUNDING):
        return None
    if mu <= 0:
        start = 0.0
    elif fpr[-1] <= rho:
        start = float(farthest)
    else:
        k = int(np.flatnonzero(fpr > rho)[0])
        # Rounding may leave even the first window a little above the bound.
        start = float(np.interp(rho, fpr[k - 1 : k + 1], left[k - 1 : k + 1])) if k else 0.0
    covered = np.minimum(below[1:], start + phi) - np.maximum(below[:-1], start)
    mass = np.diff(below)
    share = np.zeros(len(mass))
    np.divide(covered, mass, out=share, where=mass > 0)
    share = np.clip(share, 0.0, 1.0)
    # Slivers left by rounding are not part of the window.
    share[share < _ROUNDING] = 0.0
    return share


def _single_ratio(curve: ThresholdCurve, mu: float, rho: float) -> FloatArray | None:
    """Return the shares when any TPR above 0 will do: one g, as much of it as rho allows."""
    share = np.zeros(len(curve.tpr) - 1)
    row = len(share) - 1 if mu > 0 and rho > 0 else 0
    ood = curve.fpr[row + 1] - curve.fpr[row]
    share[row] = min(1.0, rho / ood) if ood > 0 else 1.0
    return share if share[row] > 0 else None


def _check_constant(scores: FloatArray, mu: float) -> None:
    if not math.isfinite(mu):
        raise InvalidInputError(f"mu must be finite, got {mu}")
    usable = scores[np.isfinite(scores[:, 1])]
    risk, ratio = usable.T
    values = combined_score(usable, mu)
    size = np.abs(risk).max() + abs(mu) * ratio.max()
    if np.ptp(values) > _CONSTANT * size:
        raise InvalidInputError(
            f"r + mu*g must be the same for all inputs, it runs from {values.min():.6g} "
            f"to {values.max():.6g} at mu = {mu}"
        )
