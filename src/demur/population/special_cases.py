"""Rules of known problems in two special cases: all inputs on the boundary; the most TPR.

**tau(x) in closed form when every input lies on the boundary.**

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

**The most TPR with bounded selective risk and FPR.**

    maximise   sum p_I c
    subject to sum p_I (r - beta) c <= 0,  sum p_O c <= rho,  0 <= c <= 1

With prices nu and eta of the two bounds an input is accepted when ``nu r + eta g < 1 + nu beta``,
that is when ``r + mu g < lambda`` with mu = eta/nu >= 0: the rules are those of the other models.

The least loss L(phi) of the rules with TPR phi and FPR at most rho is a linear program in the
right-hand side phi, so L(phi) - beta phi is convex and piecewise linear, and 0 at phi = 0. The
answer is its largest zero. Its slope is lambda - beta, the price of one more unit of ID mass;
Newton's steps from the right end after finitely many pieces. The plain reference hands the program
to SciPy's HiGHS as it stands.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import NUMBER, FloatArray, takes
from demur.core.models import RejectionModel
from demur.errors import InvalidInputError
from demur.population.problems import FiniteProblem, PopulationOptimum, assemble, combined_score
from demur.population.solve import Inputs, Solver, least_risk
from demur.population.thresholds import (
    Bounds,
    ThresholdCurve,
    candidates,
    infeasible_error,
    risk_infeasible,
    threshold_curve,
)

# How far r + mu*g may be from constant, and a rate from its bound, relative to their size.
_CONSTANT = 1e-9
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class BoundaryRule:
    """tau(x): 1 for ``lower < g < upper``, the given shares at the two ends, 0 outside.

    Examples
    --------
    >>> from demur.population import BoundaryRule
    >>> BoundaryRule(0.5, 0.0, 2.0, 0.25).accept_probability([0.5, 1.0, 2.0, 3.0])
    array([0.  , 1.  , 0.25, 0.  ])
    """

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


# Pieces that Newton's steps may cross; halving the range takes over where they do not help.
_MAX_STEPS = 400
# HiGHS keeps its limits to about this.
_HIGHS_TOLERANCE = 1e-7


def most_tpr(
    problem: FiniteProblem,
    model: RejectionModel,
    *,
    classifier: Any = None,
    solver: Solver = "dual",
) -> PopulationOptimum:
    """Return a rule of the largest TPR under bounds on selective risk and FPR.

    mu is inf where the bound on risk is slack: the Neyman-Pearson rule.

    Raises
    ------
    InfeasibleError
        Every rule that accepts any ID input has a larger selective risk.

    Examples
    --------
    >>> from demur import RiskFprModel
    >>> problem = FiniteProblem([[0.5, 0.0], [0.25, 0.25]], p_ood=[0.25, 0.75])
    >>> best = most_tpr(problem, RiskFprModel(0.2))
    >>> best.accept_probability.round(6), round(best.point.selective_risk, 6)
    (array([1.      , 0.666667]), 0.2)
    """
    bounds = Bounds.of_risk(model)
    scores = problem.scores(classifier)
    usable = np.flatnonzero(np.isfinite(scores[:, 1]))
    p_id, risk, ratio = problem.p_marginal[usable], scores[usable, 0], scores[usable, 1]
    allowed = ratio == 0 if bounds.max_fpr == 0 else np.ones(len(usable), bool)
    least = float(risk[allowed].min(initial=math.inf))
    if least > bounds.max_risk * (1 + _ROUNDING):
        raise risk_infeasible(model, least)
    # No rule has a larger risk than this, which a model without a bound on it allows.
    beta = min(bounds.max_risk, float(risk.max(initial=0.0)))
    bounds = replace(bounds, max_risk=beta)
    if solver == "highs":
        mu, accepted = _by_highs(p_id, risk, ratio, bounds)
    else:
        curve = threshold_curve(problem, math.inf, classifier=classifier)
        most = candidates(curve, Bounds(0.0, bounds.max_fpr, math.inf)).tpr.max()
        mu, accepted = _by_newton(Inputs(p_id, risk, ratio, p_id), bounds, float(most))
    c = np.zeros(problem.n_inputs)
    c[usable] = accepted
    return assemble(problem, model, scores, mu, c)


def _by_newton(inputs: Inputs, bounds: Bounds, most: float) -> tuple[float, FloatArray]:
    """Return mu and c of the largest TPR, at most `most`, whose least risk is low enough."""
    beta, low, high, tpr = bounds.max_risk, 0.0, most, most
    best: tuple[float, FloatArray] | None = None
    # No zero lies beyond that of a tangent, so if it is low enough there it is the largest.
    at_tangent = False
    for _ in range(_MAX_STEPS):
        solved = least_risk(inputs._replace(room=inputs.p_id / tpr), bounds.max_fpr / tpr)
        if solved is None:
            # Only rounding can forbid what the Neyman-Pearson rule attains.
            tpr = high = tpr * (1 - _ROUNDING)
            continue
        mu, mass = solved
        excess = float(inputs.risk @ mass) - beta
        if excess <= _ROUNDING * max(beta, _ROUNDING):
            low, best = tpr, (mu, np.minimum(tpr * mass / inputs.p_id, 1.0))
        else:
            high = tpr
        if low == most or high - low <= _ROUNDING * high or (low == tpr and at_tangent):
            break
        slope = _last_score(inputs, mu, mass) - beta
        step = tpr - tpr * excess / slope if 0 < slope < math.inf else math.nan
        at_tangent = high == tpr and low < step < high
        tpr = step if low < step < high else (low + high) / 2
    if best is None:
        raise ArithmeticError("no rule was found although one exists")
    mu, c = best
    c[c > 1 - _ROUNDING] = 1.0
    return mu, c


def _last_score(inputs: Inputs, mu: float, mass: FloatArray) -> float:
    """Return lambda, the largest score that is accepted."""
    if math.isinf(mu):
        return math.inf
    return float((inputs.risk + mu * inputs.ratio)[mass > 0].max())


def _by_highs(
    p_id: FloatArray, risk: FloatArray, ratio: FloatArray, bounds: Bounds
) -> tuple[float, FloatArray]:
    from scipy.optimize import linprog

    result = linprog(
        -p_id,
        A_ub=np.vstack([p_id * (risk - bounds.max_risk), p_id * ratio]),
        b_ub=[0.0, bounds.max_fpr],
        bounds=(0, 1),
        method="highs",
    )
    if result.status != 0:
        raise ArithmeticError(f"HiGHS did not solve the linear program: {result.message}")
    nu, eta = (max(0.0, -float(price)) for price in result.ineqlin.marginals)
    c = np.where(result.x < _HIGHS_TOLERANCE, 0.0, result.x)
    c[c > 1 - _HIGHS_TOLERANCE] = 1.0
    return (eta / nu if nu > 0 else math.inf), c
