"""`optimum`: the optimal rule of a model for known distributions.

The cost-based model has a closed form (Theorem 1 of the paper), bounded models are linear programs.

Scaling c leaves the selective risk and the precision as they are and lowers the FPR, so that
*some* optimum has TPR = phi_min (not every one: the lemma of the paper that says so is wrong,
its program is right). With ``w = c / TPR(c)`` both models are then one linear program,

    minimise   sum p_I r w
    subject to sum p_I w = 1,  sum p_O w <= ratio,  0 <= w <= 1/phi_min,

where ratio is ``rho_max / phi_min`` for bounded TPR-FPR and ``(1-pi)(1-kappa)/(pi kappa)``
for bounded precision-recall. It keeps its meaning for phi_min = 0, where the upper limit is
dropped: the lowest selective risk of all rules that accept anything.

By default it is solved through its dual, whose only unknown is the price mu of OOD: filling up
in the order of ``r + mu*g`` solves what is left, and lambda is the score at which the mass is
reached. The plain reference hands the same program to SciPy's HiGHS as it stands, with mu read off
its duals: a general solver that works in absolute tolerances of about 1e-7, which small
probabilities fall below, and is slow beyond some ten thousand inputs.

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
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, takes
from demur.core.models import ExpectedCost, RejectionModel
from demur.core.rule import Rule
from demur.errors import InvalidInputError
from demur.population.problems import (
    FiniteProblem,
    PopulationOptimum,
    assemble,
    direction,
    operating_point,
)
from demur.population.thresholds import (
    Bounds,
    candidates,
    infeasible_error,
    risk_infeasible,
    threshold_curve,
)

# Numbers closer than this, relative to their size, are equal up to rounding.
_ROUNDING = 1e-12
_EPS = float(np.finfo(np.float64).eps)
# Far more prices than ever needed; each step about halves their range.
_MAX_STEPS = 1000
# Pieces that Newton's steps may cross; halving the range takes over where they do not help.
_NEWTON_STEPS = 400
# Primal values closer to a limit than this are on it; HiGHS keeps its limits to 1e-7.
_HIGHS_TOLERANCE = 1e-7
_HIGHS_INFEASIBLE = 2


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
        The least expected cost, or the least selective risk with bounds on TPR, FPR and precision,
        or the most TPR with bounds on selective risk and FPR: `CostModel`, `TprFprModel`,
        `PrecisionRecallModel`, `RiskFprModel`.
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
    if model.objective == "tpr":
        return most_tpr(problem, model, classifier=classifier, solver=solver)
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


class Inputs(NamedTuple):
    """The inputs that a rule can accept: those with ID mass."""

    p_id: FloatArray
    risk: FloatArray
    ratio: FloatArray
    room: FloatArray
    """Largest accepted ID mass ``p_I w``."""


Solver = Literal["dual", "highs"]


def bounded_optimum(
    problem: FiniteProblem,
    model: RejectionModel,
    *,
    classifier: Any = None,
    solver: Solver = "dual",
) -> PopulationOptimum:
    """Return a rule of least selective risk under bounds on TPR, FPR and precision.

    Its TPR is `min_tpr` (`min_recall`) exactly; with a bound of 0 it is the largest that the
    optimal shape of c allows. mu is 0 when the bound on OOD is slack and inf when only the
    Neyman-Pearson rule meets it. Bounds hold up to rounding.

    Parameters
    ----------
    solver
        ``"dual"``, or ``"highs"`` for SciPy's general solver, whose mu is finite and whose
        bounds hold to about 1e-7.

    Raises
    ------
    InfeasibleError
        No c meets the bounds; carries the nearest attainable ones over all rules.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> problem = FiniteProblem([[0.5, 0.0], [0.3, 0.2]], p_ood=[0.75, 0.25])
    >>> best = bounded_optimum(problem, TprFprModel(min_tpr=0.5, max_fpr=0.5))
    >>> best.accept_probability, round(best.mu, 6), round(best.point.selective_risk, 6)
    (array([0.5, 0.5]), 0.4, 0.2)
    """
    bounds = Bounds.of(model)
    scores = problem.scores(classifier)
    usable = np.flatnonzero(np.isfinite(scores[:, 1]))
    p_id = problem.p_marginal[usable]
    room = p_id / bounds.min_tpr if bounds.min_tpr > 0 else np.full(len(p_id), np.inf)
    inputs = Inputs(p_id, scores[usable, 0], scores[usable, 1], room)
    solution = (
        least_risk(inputs, bounds.ratio)
        if solver == "dual"
        else _solve_by_highs(inputs.risk, inputs.ratio, inputs.room, bounds.ratio)
    )
    if solution is None:
        curve = threshold_curve(problem, math.inf, classifier=classifier)
        raise infeasible_error(model, curve)
    mu, mass = solution
    c = np.zeros(problem.n_inputs)
    c[usable] = _probabilities(mass, inputs, bounds)
    return assemble(problem, model, scores, mu, c)


class _Filled(NamedTuple):
    """A solution of the program without the bound on OOD, at some price of OOD."""

    mass: FloatArray
    last: int
    """The input that was filled up last, usually in part."""


def least_risk(inputs: Inputs, ratio: float) -> tuple[float, FloatArray] | None:
    """Return mu and the accepted ID masses ``p_I w``, or None if the bounds cannot be met."""
    surest = _fill(inputs.room, inputs.risk, inputs.ratio)
    if inputs.ratio @ surest.mass <= ratio * (1 + _ROUNDING):
        return 0.0, surest.mass
    purest = _fill(inputs.room, inputs.ratio, inputs.risk)
    least = float(inputs.ratio @ purest.mass)
    if least > ratio * (1 + _ROUNDING):
        return None
    if least >= ratio * (1 - _ROUNDING):
        return math.inf, purest.mass
    return _priced(inputs, ratio, surest, purest)


def _fill(room: FloatArray, key: FloatArray, then: FloatArray) -> _Filled:
    """Fill inputs up in the order of `key`, ties in that of `then`, until the mass is 1."""
    order = np.lexsort((then, key))
    before = np.concatenate([[0.0], np.cumsum(room[order])[:-1]])
    mass = np.empty(len(room))
    mass[order] = np.clip(1 - before, 0.0, room[order])
    return _Filled(mass, int(order[np.flatnonzero(before < 1 - len(room) * _EPS)[-1]]))


def _priced(
    inputs: Inputs, ratio: float, heavy: _Filled, light: _Filled
) -> tuple[float, FloatArray]:
    """Solve the program through its dual, where the bound on OOD is active.

    At a price mu of OOD the program without that bound is solved by filling up in the order of
    r + mu*g. `heavy` is such a solution with too much OOD, `light` one with too little. At the
    price where both cost the same, either another solution costs less and takes the place of
    one of them, or both are optimal, and so is their mixture that uses the bound up.
    """
    # Mass counts by what it uses up of the two right-hand sides, 1 and ratio.
    unit = np.maximum(1.0, inputs.ratio / ratio)
    for _ in range(_MAX_STEPS):
        mu, above, off = _equal_price(inputs, heavy, light)
        found = _fill(inputs.room, above, inputs.ratio)
        moved = [unit * np.abs(found.mass - old.mass) for old in (heavy, light)]
        misplaced = max(float(mass[off].sum()) for mass in moved)
        if misplaced <= len(off) * _EPS or not all(mass.any() for mass in moved):
            break
        if inputs.ratio @ found.mass > ratio:
            heavy = found
        else:
            light = found
    # Off the boundary the two differ by rounding at most; there the score decides.
    certain = np.where(above < 0, inputs.room, 0.0)
    more, less = (np.where(off, certain, old.mass) for old in (heavy, light))
    least, most = inputs.ratio @ less, inputs.ratio @ more
    share = (ratio - least) / (most - least)
    return mu, share * more + (1 - share) * less


def _equal_price(
    inputs: Inputs, heavy: _Filled, light: _Filled
) -> tuple[float, FloatArray, BoolArray]:
    """Return the mu at which two solutions cost the same, and how far inputs are off.

    That is, their score less that of an input on the boundary, and whether that is more than
    rounding.
    """
    change = light.mass - heavy.mass
    # Masses add up to 1 up to rounding; seen from an input on the boundary that does not count,
    # and mu gets all its digits. If rounding has swallowed one side of the exchange, that was
    # the input filled up last.
    size = np.abs(change)
    at = int(size.argmax())
    if abs(change.sum()) > size.sum() / 2:
        at = max(heavy.last, light.last, key=lambda i: float(inputs.room[i]))
    risk, odds = inputs.risk - inputs.risk[at], inputs.ratio - inputs.ratio[at]
    mu = -float(risk @ change) / float(odds @ change)
    scale = inputs.risk + inputs.risk[at] + mu * (inputs.ratio + inputs.ratio[at])
    above = risk + mu * odds
    return mu, above, np.abs(above) > _ROUNDING * scale


def _probabilities(mass: FloatArray, inputs: Inputs, bounds: Bounds) -> FloatArray:
    """Return c(x), as large as allowed when the TPR is free."""
    share = bounds.min_tpr
    if share == 0:
        used, fpr = mass > 0, float(inputs.ratio @ mass)
        share = float((inputs.p_id[used] / mass[used]).min())
        share = min(share, bounds.max_fpr / fpr) if fpr > 0 else share
    c = share * mass / inputs.p_id
    c[c > 1 - _ROUNDING] = 1.0
    return np.asarray(c)


def _solve_by_highs(
    risk: FloatArray, ratio: FloatArray, room: FloatArray, max_ratio: float
) -> tuple[float, FloatArray] | None:
    """Minimise ``risk . z`` with ``sum z = 1``, ``ratio . z <= max_ratio``, ``0 <= z <= room``.

    Returns mu, the price of the second row, and z; None if the program is infeasible.
    """
    from scipy.optimize import linprog

    # Each row is divided by its right-hand side, so that tolerances are relative to it.
    row, bound = (ratio / max_ratio, 1.0) if 0 < max_ratio < np.inf else (ratio, max_ratio)
    bounded = bool(np.isfinite(max_ratio))
    result = linprog(
        risk,
        A_eq=np.ones((1, len(risk))),
        b_eq=[1.0],
        A_ub=row[None, :] if bounded else None,
        b_ub=[bound] if bounded else None,
        bounds=np.column_stack([np.zeros(len(room)), room]),
        method="highs",
    )
    if result.status == _HIGHS_INFEASIBLE:
        return None
    if result.status != 0:
        raise ArithmeticError(f"HiGHS did not solve the linear program: {result.message}")
    price = -float(result.ineqlin.marginals[0]) if bounded else 0.0
    mass = np.where(result.x < _HIGHS_TOLERANCE * np.minimum(room, 1.0), 0.0, result.x)
    mass = np.where(room - mass < _HIGHS_TOLERANCE * np.minimum(room, 1.0), room, mass)
    scale = max_ratio if 0 < max_ratio < np.inf else 1.0
    return price / scale, mass


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
    for _ in range(_NEWTON_STEPS):
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
