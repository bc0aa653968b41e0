"""All thresholds of one score of a known problem, with randomised boundaries, and the best one.

Between two thresholds lies a tie, accepted with probability tau: its operating points are the
straight line between those of the two thresholds. TPR, FPR and accepted loss of a score are
therefore a polygon, and a bound cuts it in points that can be written down.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from demur import _arrays
from demur._arrays import NUMBER, FloatArray, IntArray, takes
from demur.core.models import EACH_SET, Bound, RejectionModel
from demur.core.program import exact
from demur.core.wording import bound_text
from demur.errors import InfeasibleError, InvalidInputError
from demur.population.problems import (
    FiniteProblem,
    PopulationOptimum,
    assemble,
    combined_score,
    precision,
    quotient,
)

# Relative rounding allowed when a point on a bound is checked against it.
_ROUNDING = 1e-12
# How far r + mu*g may be from constant, relative to its size.
_CONSTANT = 1e-9
_SENSES = {"tpr": True, "fpr": False, "precision": True}
"""Quantities that can be bounded here, and whether from below."""
_RISK_SENSES = {"selective_risk": False, "fpr": False}
"""The same where the TPR is to be large."""


@dataclass(frozen=True, slots=True, eq=False)
class ThresholdCurve:
    """Rates of "accept when the score is at most `threshold`", for all distinct scores.

    Rows ascend; the first has threshold -inf and accepts nothing. Inputs with p_I(x) = 0 are
    never accepted.

    Examples
    --------
    >>> from demur.population import CORRECTED, threshold_curve
    >>> curve = threshold_curve(CORRECTED.discretise(500), mu=0.2)
    >>> curve.tpr[0], round(curve.tpr[-1], 6)
    (np.float64(0.0), np.float64(1.0))
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


@takes(problem=FiniteProblem, mu=NUMBER)
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
    return score_curve(problem, combined_score(scores, _checked_mu(mu)), scores[:, 0])


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


@takes(problem=FiniteProblem, model=RejectionModel, mu=NUMBER)
def best_threshold(
    problem: FiniteProblem, model: RejectionModel, *, mu: float, classifier: Any = None
) -> PopulationOptimum:
    """Return the best rule of a bounded model among those with the given mu.

    The tie on the threshold is accepted with one common probability tau.

    Parameters
    ----------
    model
        Least selective risk, with bounds on TPR, FPR and precision; or the most TPR, with bounds
        on selective risk and FPR.
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
    values = combined_score(scores, _checked_mu(mu))
    curve = score_curve(problem, values, scores[:, 0])
    if model.objective == "tpr":
        found = candidates(curve, Bounds.of_risk(model))
        if len(found.row) == 0:
            raise risk_infeasible(model, float(np.nanmin(curve.selective_risk)))
        best = np.lexsort((found.loss, found.fpr, -found.tpr))[0]
    else:
        found = candidates(curve, Bounds.of(model))
        if len(found.row) == 0:
            raise infeasible_error(model, curve)
        best = np.lexsort((-found.tpr, found.loss / found.tpr))[0]
    row = found.row[best]
    tied = values == curve.threshold[row + 1]
    c = np.where(tied, found.share[best], values <= curve.threshold[row]).astype(np.float64)
    return assemble(problem, model, scores, float(mu), c)


def _checked_mu(mu: float) -> float:
    """Return mu as a float, refusing what is not in [0, inf]."""
    if math.isnan(mu) or mu < 0:
        raise InvalidInputError(f"mu must be in [0, inf], got {mu}")
    return float(mu)


@dataclass(frozen=True, slots=True)
class Bounds:
    """tpr >= min_tpr, fpr <= max_fpr, fpr <= max_ratio * tpr and loss <= max_risk * tpr."""

    min_tpr: float
    max_fpr: float
    max_ratio: float
    max_risk: float = math.inf

    @classmethod
    def of_risk(cls, model: RejectionModel) -> Bounds:
        """Lower a model that asks for the most TPR with bounds on selective risk and FPR."""
        known = model.objective == "tpr" and all(
            _RISK_SENSES.get(bound.quantity) == bound.is_lower and not bound.is_of_part
            for bound in model.bounds
        )
        if not known:
            raise InvalidInputError(
                "the most tpr is known with selective_risk and fpr at most a bound "
                f"(RiskFprModel), got {model!r}"
            )
        asked = {
            name: [float(b.value) for b in model.bounds if b.quantity == name]
            for name in _RISK_SENSES
        }
        fpr, risk = min(asked["fpr"], default=1.0), min(asked["selective_risk"], default=math.inf)
        return cls(0.0, fpr, math.inf, risk)

    @classmethod
    def of(cls, model: RejectionModel) -> Bounds:
        """Lower a bounded model; precision >= kappa is FPR <= (1-pi)(1-kappa)/(pi kappa) TPR."""
        _check_bounded(model)
        prior = exact("ood_prior", model.ood_prior or 0)
        asked = {name: [b for b in model.bounds if b.quantity == name] for name in _SENSES}
        shares = [bound.share for bound in asked["precision"]]
        ratios = [(1 - prior) * (1 - k) / (prior * k) for k in shares if prior and k]
        return cls(
            max((float(bound.value) for bound in asked["tpr"]), default=0.0),
            min((float(bound.value) for bound in asked["fpr"]), default=1.0),
            min(map(float, ratios), default=math.inf),
        )

    @property
    def ratio(self) -> float:
        """The largest FPR / TPR when TPR is as small as allowed (in the limit, if that is 0)."""
        if self.max_fpr == 0:
            return 0.0
        quotient = self.max_fpr / self.min_tpr if self.min_tpr > 0 else math.inf
        return min(self.max_ratio, quotient)


def _check_bounded(model: RejectionModel) -> None:
    """Refuse what is not the least selective risk under bounds of all inputs."""
    # What is no model at all has no objective.
    known = getattr(model, "objective", None) == "selective_risk" and all(
        _SENSES.get(bound.quantity) == bound.is_lower
        and bound.group is None
        and bound.ood_set in (None, EACH_SET)
        for bound in model.bounds
    )
    if not known:
        raise InvalidInputError(
            "model must be the least selective risk with tpr and precision at least and fpr at "
            "most a bound (TprFprModel, PrecisionRecallModel), or for `optimum` a CostModel, got "
            f"{model!r}"
        )


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
    if math.isfinite(bounds.max_risk):
        margins.append(curve.loss - bounds.max_risk * curve.tpr)
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
    if math.isfinite(bounds.max_risk):
        met &= loss <= bounds.max_risk * tpr * (1 + _ROUNDING) + _ROUNDING * _ROUNDING
    return Candidates(row[met], share[met], tpr[met], fpr[met], loss[met])


def _crossings(margin: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return where a function that is linear between vertices changes its sign."""
    before, after = margin[:-1], margin[1:]
    row = np.flatnonzero((np.sign(before) * np.sign(after)) < 0)
    return row, before[row] / (before[row] - after[row])


def risk_infeasible(model: RejectionModel, least: float) -> InfeasibleError:
    """Return the error that says which selective risk is the smallest."""
    asked = " with ".join(bound_text(model, bound) for bound in model.bounds)
    return InfeasibleError(
        f"no rule reaches {asked}: the smallest selective_risk is {least:.4g}; relax a bound",
        model=model,
        attainable={"min_selective_risk": least},
    )


def infeasible_error(model: RejectionModel, curve: ThresholdCurve) -> InfeasibleError:
    """Return the error that says how far the bounds are out of reach of the rules of `curve`.

    On the Neyman-Pearson curve (mu = inf) these are the limits of all rules.
    """
    bounds, asked = Bounds.of(model), model.bound("tpr")
    word = "tpr" if asked is None else model.word(asked)
    wanted = "tpr > 0" if asked is None else bound_text(model, asked)
    others = [bound for bound in model.bounds if bound.quantity != "tpr"]
    with_them = " and ".join(bound_text(model, bound) for bound in others)
    pure = candidates(curve, Bounds(0.0, bounds.max_fpr, bounds.max_ratio))
    largest = float(pure.tpr.max(initial=0.0))
    enough = candidates(curve, Bounds(bounds.min_tpr, 1.0, math.inf))
    nearest = {bound: _nearest(model, bound, enough) for bound in others}
    limits = " and the ".join(_limit_text(model, *found) for found in nearest.items())
    possible = f"at {with_them} the largest {word} is {largest:.4g}"
    if largest == 0:
        possible = f"every rule that accepts any ID input breaks {with_them}"
    return InfeasibleError(
        f"no rule reaches {wanted} with {with_them}: {possible}, at {wanted} the {limits}; "
        "relax a bound",
        model=model,
        attainable={f"max_{word}": largest}
        | {f"{'max' if b.is_lower else 'min'}_{b.quantity}": v for b, v in nearest.items()},
    )


def _nearest(model: RejectionModel, bound: Bound, enough: Candidates) -> float:
    """Return the best of a bounded quantity among points with enough TPR."""
    if bound.quantity == "precision":
        return float(precision(enough.tpr, enough.fpr, float(model.ood_prior or 0)).max())
    # Without a bound on TPR, accepting ever less brings the FPR down to 0.
    return float(enough.fpr.min()) if Bounds.of(model).min_tpr > 0 else 0.0


def _limit_text(model: RejectionModel, bound: Bound, limit: float) -> str:
    if bound.quantity == "precision":
        return f"largest precision is {limit:.4g} (ood_prior {model.ood_prior})"
    return f"smallest fpr is {limit:.4g}"


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
