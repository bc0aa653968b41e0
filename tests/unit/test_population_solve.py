"""Optimal rules of finite problems, against an unscaled linear program and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog

import demur as dm
from demur.population import FiniteProblem, best_threshold, optimum, threshold_curve

BOUNDS = [0, 0.1, 0.25, 0.3, 0.5, 0.6, 0.75, 0.9, 1]


def random_problem(rng, n=None):
    """Return a problem with ties, zeros and a random loss."""
    n = int(rng.integers(1, 8)) if n is None else n
    p_id = rng.integers(0, 4, (n, 2)).astype(float)
    p_id[int(rng.integers(n)), 0] += 1
    p_ood = rng.integers(0, 4, n).astype(float)
    p_ood[int(rng.integers(n))] += 1
    if rng.random() < 0.3:
        p_id, p_ood = rng.random((n, 2)), rng.random(n)
    loss = None if rng.random() < 0.5 else [[0, rng.random()], [3 * rng.random(), 0.1]]
    return FiniteProblem(p_id / p_id.sum(), p_ood / p_ood.sum(), loss)


def random_model(rng):
    """Return a bounded model."""
    first, second = rng.choice(BOUNDS, 2).tolist()
    if rng.random() < 0.5:
        return dm.TprFprModel(first, second)
    return dm.PrecisionRecallModel(first, second, float(rng.choice([0, 0.25, 0.5, 0.9])))


def plain_bounds(model):
    """Return phi_min and the largest FPR at TPR = phi_min."""
    if isinstance(model, dm.TprFprModel):
        return model.min_tpr, model.max_fpr
    pi, kappa = model.ood_prior, model.min_precision
    if pi == 0 or kappa == 0:
        return model.min_recall, 1.0
    return model.min_recall, (1 - pi) * (1 - kappa) / (pi * kappa) * model.min_recall


def plain_program(problem, model):
    """Return the optimal risk of the paper's program as printed; None if infeasible."""
    phi, rho = plain_bounds(model)
    p, r = problem.p_marginal, problem.conditional_risk()
    result = linprog(
        p * r,
        A_eq=p[None, :],
        b_eq=[phi],
        A_ub=problem.p_ood[None, :],
        b_ub=[rho],
        bounds=(0, 1),
        method="highs",
    )
    return result.fun / phi if result.status == 0 else None


def meets(point, model, slack=1e-8):
    """Return whether an operating point meets the bounds of its model."""
    if isinstance(model, dm.TprFprModel):
        return point.tpr >= model.min_tpr - slack and point.fpr <= model.max_fpr + slack
    return point.tpr >= model.min_recall - slack and point.precision >= model.min_precision - slack


@pytest.mark.parametrize("seed", range(300))
def test_optimum_equals_the_program_as_printed(seed):
    rng = np.random.default_rng(seed)
    problem, model = random_problem(rng), random_model(rng)
    phi, _ = plain_bounds(model)
    if phi == 0:
        return
    expected = plain_program(problem, model)
    if expected is None:
        with pytest.raises(dm.InfeasibleError):
            optimum(problem, model)
        return
    best = optimum(problem, model)
    assert best.point.selective_risk == pytest.approx(expected, abs=1e-8)
    assert best.point.tpr == pytest.approx(phi, abs=1e-9)
    assert meets(best.point, model)
    c = best.accept_probability
    assert ((c >= 0) & (c <= 1)).all() and best.mu >= 0
    assert best.point.fpr == pytest.approx(sum(problem.p_ood * c))
    assert best.point.selective_risk == pytest.approx(
        sum(problem.p_marginal * problem.conditional_risk() * c) / sum(problem.p_marginal * c)
    )


@pytest.mark.parametrize("seed", range(100))
def test_without_a_bound_on_tpr_the_optimum_is_the_limit_of_small_bounds(seed):
    rng = np.random.default_rng(1000 + seed)
    problem = random_problem(rng)
    second = float(rng.choice(BOUNDS))
    tiny = 1e-3
    if rng.random() < 0.5:
        model, near = dm.TprFprModel(0, second), dm.TprFprModel(tiny, second)
    else:
        model = dm.PrecisionRecallModel(second, 0, 0.5)
        near = dm.PrecisionRecallModel(second, tiny, 0.5)
    expected = plain_program(problem, near)
    if expected is None:
        with pytest.raises(dm.InfeasibleError):
            optimum(problem, model)
        return
    best = optimum(problem, model)
    # All masses are far above 1e-3, so that the small bound restricts nothing.
    if problem.p_marginal[problem.p_marginal > 0].min() > 0.02:
        assert best.point.selective_risk == pytest.approx(expected, abs=1e-8)
    assert best.point.tpr > 0 and meets(best.point, model)


def test_mixture_of_two_inputs_is_needed_without_a_bound_on_recall():
    # FPR/TPR <= 1 (pi = kappa = 1/2): half of g = 2 with r = 0 and half of g = 0 with r = .4.
    problem = FiniteProblem([[0.4, 0.0], [0.3, 0.2], [0.0, 0.1]], [0.8, 0.0, 0.2])
    best = optimum(problem, dm.PrecisionRecallModel(0.5, 0, 0.5))
    assert best.point.selective_risk == pytest.approx(0.2)
    assert best.point.precision == pytest.approx(0.5)
    problem = FiniteProblem([[0.4, 0.0], [0.36, 0.24]], [1.0, 0.0])
    best = optimum(problem, dm.PrecisionRecallModel(0.5, 0, 0.5))
    # g = (2.5, 0): weights .4 and .6 of the accepted ID mass have mean g = 1, mean r = .24.
    assert best.point.selective_risk == pytest.approx(0.24)
    assert best.point.precision == pytest.approx(0.5)
    assert best.accept_probability == pytest.approx([1.0, 1.0])
    assert best.mu == pytest.approx(0.4 / 2.5) and best.threshold == pytest.approx(0.4)


@pytest.mark.parametrize("seed", range(150))
def test_infeasible_error_carries_the_limits_of_all_rules(seed):
    rng = np.random.default_rng(2000 + seed)
    problem, model = random_problem(rng), random_model(rng)
    phi, _ = plain_bounds(model)
    try:
        optimum(problem, model)
    except dm.InfeasibleError as error:
        attainable, message = error.attainable, str(error)
    else:
        return
    p, q = problem.p_marginal, problem.p_ood

    def extreme(cost, a_ub, b_ub):
        result = linprog(cost, A_ub=[a_ub], b_ub=[b_ub], bounds=(0, 1), method="highs")
        return result.fun

    least_fpr = extreme(q, -p, -phi)
    if isinstance(model, dm.TprFprModel):
        assert attainable["max_tpr"] == pytest.approx(-extreme(-p, q, model.max_fpr), abs=1e-8)
        assert attainable["min_fpr"] == pytest.approx(least_fpr, abs=1e-8)
        assert attainable["max_tpr"] < model.min_tpr or model.min_tpr == 0
        assert "relax a bound" in message
        return
    pi, kappa = model.ood_prior, model.min_precision
    ratio = (1 - pi) * (1 - kappa) / (pi * kappa)
    assert attainable["max_recall"] == pytest.approx(-extreme(-p, q - ratio * p, 0), abs=1e-8)
    if phi > 0:
        precision = (1 - pi) * phi / ((1 - pi) * phi + pi * least_fpr)
        assert attainable["max_precision"] == pytest.approx(precision, abs=1e-8)
    assert attainable["max_precision"] < kappa


def test_infeasible_message_names_the_bounds():
    problem = FiniteProblem([[0.5], [0.5]], [0.3, 0.7])
    with pytest.raises(dm.InfeasibleError) as caught:
        optimum(problem, dm.TprFprModel(0.9, 0.2))
    assert str(caught.value) == (
        "no rule reaches tpr >= 0.9 with fpr <= 0.2: at fpr <= 0.2 the largest tpr is 0.3333, "
        "at tpr >= 0.9 the smallest fpr is 0.86; relax a bound"
    )
    with pytest.raises(dm.InfeasibleError, match="every rule that accepts any ID input breaks"):
        optimum(problem, dm.TprFprModel(0, 0))


def test_a_cost_or_unknown_model_has_no_bounds():
    problem = FiniteProblem([[0.5], [0.5]], [0.3, 0.7])
    with pytest.raises(dm.InvalidInputError, match="model must be"):
        best_threshold(problem, dm.CostModel(0.1), mu=0)
    with pytest.raises(dm.InvalidInputError, match="model must be"):
        optimum(problem, "tpr")
    for model in (
        dm.RejectionModel("selective_risk", [dm.Bound("selective_risk", at_most=0.1)]),
        dm.RejectionModel("selective_risk", [dm.Bound("tpr", at_least=0.1, group="rare")]),
        dm.RejectionModel(dm.ExpectedCost(0.1), [dm.Bound("tpr", at_least=0.1)], 0.2),
    ):
        with pytest.raises(dm.InvalidInputError, match="tpr and precision at least"):
            optimum(problem, model)


@pytest.mark.parametrize("solver", ["dual", "highs"])
def test_the_most_tpr_without_a_bound_on_risk_is_that_of_neyman_and_pearson(solver):
    problem = FiniteProblem([[0.3, 0.2], [0.3, 0.0], [0.1, 0.1]], [0.1, 0.4, 0.5])
    model = dm.RejectionModel("tpr", [dm.Bound("fpr", at_most=0.3)])
    best = optimum(problem, model, solver=solver)
    assert best.accept_probability == pytest.approx([1, 0.5, 0])
    assert best.point.tpr == pytest.approx(0.65)


def test_bounds_of_any_kind_are_kept_together():
    problem = FiniteProblem([[0.3, 0.1], [0.2, 0.2], [0.15, 0.05]], [0.1, 0.2, 0.7])
    purity, tpr = dm.Bound("precision", at_least=0.9), dm.Bound("tpr", at_least=0.5)
    strict = dm.RejectionModel("selective_risk", [tpr, purity, dm.Bound("fpr", at_most=0.18)], 0.2)
    best = optimum(problem, strict)
    assert best.point.tpr == pytest.approx(0.5)
    assert best.point.fpr <= 0.18 + 1e-12 and best.point.precision >= 0.9 - 1e-12
    assert optimum(problem, dm.RejectionModel("selective_risk", [purity, tpr], 0.2)).point == (
        optimum(problem, dm.PrecisionRecallModel(0.9, 0.5, 0.2)).point
    )
    with pytest.raises(dm.InfeasibleError, match=r"precision >= 0\.999 and fpr") as caught:
        optimum(problem, strict.moved(purity, 0.999))
    assert set(caught.value.attainable) == {"max_recall", "max_precision", "min_fpr"}
    with pytest.raises(dm.InfeasibleError, match="tpr > 0 with fpr <= 0"):
        optimum(problem, dm.RejectionModel("selective_risk", [dm.Bound("fpr", at_most=0)]))


def test_neyman_pearson_limit_has_infinite_mu():
    # TPR .75 with FPR .25 forces all of g = 0 and half of g = 1/2; r cannot matter.
    problem = FiniteProblem([[0.2, 0.05], [0.45, 0.05], [0.25, 0.0]], [0.0, 0.25, 0.75])
    best = optimum(problem, dm.TprFprModel(0.5, 0.125))
    assert best.mu == math.inf and best.rule.direction == (0.0, 1.0)
    assert best.accept_probability == pytest.approx([1, 0.5, 0])
    assert best.threshold == 0.5 and best.boundary.tolist() == [False, True, False]
    assert best.rule.accept(problem.scores()).tolist() == [True, True, False]


def test_no_ood_allowed_accepts_the_surest_inputs_without_ood():
    problem = FiniteProblem([[0.2, 0.1], [0.3, 0.05], [0.35, 0.0]], [0.0, 0.0, 1.0])
    best = optimum(problem, dm.TprFprModel(0.4, 0.0))
    assert best.point.fpr == 0 and best.point.tpr == pytest.approx(0.4)
    assert best.accept_probability == pytest.approx([1 / 6, 1, 0])


def test_slack_bound_on_ood_means_mu_zero():
    problem = FiniteProblem([[0.5, 0.0], [0.3, 0.2]], [0.1, 0.9])
    best = optimum(problem, dm.TprFprModel(0.6, 0.9))
    assert best.mu == 0 and best.rule.direction == (1.0, 0.0)
    assert best.accept_probability == pytest.approx([1, 0.2])


def test_inputs_without_id_mass_are_never_accepted():
    problem = FiniteProblem([[0.5, 0.2], [0.3, 0.0], [0, 0]], [0.3, 0.3, 0.4])
    for model in (dm.TprFprModel(1, 1), dm.CostModel(5, ood_prior=0.1), dm.CostModel(5)):
        best = optimum(problem, model)
        assert best.accept_probability.tolist() == [1, 1, 0]
        assert best.point.fpr == pytest.approx(0.6)
        assert best.rule.accept(problem.scores()).tolist() == [True, True, False]


@pytest.mark.parametrize("seed", range(60))
def test_the_unit_rule_accepts_what_the_optimum_accepts(seed):
    rng = np.random.default_rng(3000 + seed)
    problem, model = random_problem(rng), random_model(rng)
    try:
        best = optimum(problem, model)
    except dm.InfeasibleError:
        return
    wanted = (best.accept_probability == 1) | best.boundary
    assert best.rule.accept(problem.scores()).tolist() == wanted.tolist()
    assert np.hypot(*best.rule.direction) == pytest.approx(1)
    assert best.rule.mu == pytest.approx(best.mu)
    if np.isfinite(best.mu) and best.boundary.any():
        scaled = best.threshold / math.hypot(1, best.mu)
        assert best.rule.threshold == pytest.approx(scaled, abs=1e-8)
    assert best.tau.tolist() == best.accept_probability[best.boundary].tolist()


def test_tiny_probabilities_obey_the_score_as_well():
    rng = np.random.default_rng(5)
    n = 200
    mass = 10.0 ** rng.uniform(-25, 0, n)
    error = rng.uniform(0, 0.5, n)
    p_id = np.column_stack([mass * (1 - error), mass * error]) / mass.sum()
    p_ood = mass * 10.0 ** rng.uniform(-3, 3, n)
    problem = FiniteProblem(p_id, p_ood / p_ood.sum())
    model = dm.TprFprModel(0.6, 0.7 * threshold_curve(problem, 0).fpr[-1] * 0.3)
    best = optimum(problem, model)
    assert 0 < best.mu < math.inf and meets(best.point, model)
    s = problem.conditional_risk() + best.mu * problem.likelihood_ratio()
    close = 1e-7 * np.maximum(1, problem.likelihood_ratio())
    assert (best.accept_probability[s < best.threshold - close] == 1).all()
    assert (best.accept_probability[s > best.threshold + close] == 0).all()
    assert best.boundary.sum() <= 2


def test_the_smallest_float_can_be_the_best_input():
    problem = FiniteProblem([[0.9, 0.1], [5e-324, 0.0]], [1.0, 0.0])
    best = optimum(problem, dm.TprFprModel(0, 0.5))
    assert best.accept_probability.tolist() == [0, 1]
    assert best.point.selective_risk == 0 and best.point.tpr == 5e-324


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_units_of_the_loss_do_not_matter(scale):
    rng = np.random.default_rng(8)
    p_id, p_ood = rng.random((30, 3)), rng.random(30)
    tables = p_id / p_id.sum(), p_ood / p_ood.sum()
    model = dm.TprFprModel(0.5, 0.35)
    one = optimum(FiniteProblem(*tables, 1 - np.eye(3)), model)
    other = optimum(FiniteProblem(*tables, scale * (1 - np.eye(3))), model)
    assert 0 < one.mu < math.inf
    assert other.accept_probability == pytest.approx(one.accept_probability, abs=1e-7)
    assert other.mu == pytest.approx(scale * one.mu, rel=1e-6)


def test_table_of_ten_thousand_inputs():
    rng = np.random.default_rng(6)
    n = 10_000
    p_id, p_ood = rng.dirichlet(np.full(3 * n, 0.1)).reshape(n, 3), rng.dirichlet(np.full(n, 0.1))
    problem = FiniteProblem(p_id, p_ood)
    model = dm.TprFprModel(0.8, 0.3)
    best = optimum(problem, model)
    assert 0 < best.mu < math.inf
    assert best.point.tpr == pytest.approx(0.8, abs=1e-9) and best.point.fpr <= 0.3 + 1e-9
    assert best.boundary.sum() <= 2
    # Weak duality: no c can have a lower risk than the Lagrangian of (mu, lambda).
    p, r = problem.p_marginal, problem.conditional_risk()
    gain = np.maximum(0, best.threshold * p - r * p - best.mu * problem.p_ood)
    bound = (best.threshold * 0.8 - best.mu * 0.3 - gain[p > 0].sum()) / 0.8
    assert best.point.selective_risk == pytest.approx(bound, abs=1e-8)


@pytest.mark.parametrize("seed", range(120))
def test_best_threshold_equals_a_dense_search(seed):
    rng = np.random.default_rng(4000 + seed)
    problem, model = random_problem(rng), random_model(rng)
    mu = float(rng.choice([0, 0.2, 1, math.inf]))
    r, g = problem.scores().T
    usable = np.isfinite(g)
    s = np.where(usable, g if mu == math.inf else r + mu * np.where(usable, g, 0), np.inf)
    lowest = math.inf
    for value, tau in itertools.product(np.unique(s[usable]), np.linspace(0, 1, 201)):
        c = np.where(s < value, 1.0, np.where(s == value, tau, 0.0))
        tpr, fpr = problem.p_marginal @ c, problem.p_ood @ c
        if tpr == 0:
            continue
        prior = model.ood_prior or 0.0
        precision = (1 - prior) * tpr / ((1 - prior) * tpr + prior * fpr)
        point = dm.OperatingPoint(tpr, fpr, 0, 0, 0, 0, precision=precision)
        if meets(point, model, slack=1e-12):
            lowest = min(lowest, (problem.p_marginal * r) @ c / tpr)
    try:
        best = best_threshold(problem, model, mu=mu)
    except dm.InfeasibleError:
        assert lowest == math.inf
        return
    assert meets(best.point, model) and best.mu == mu
    assert best.point.selective_risk <= lowest + 1e-12
    assert lowest == math.inf or best.point.selective_risk == pytest.approx(lowest, abs=0.02)


@pytest.mark.parametrize("mu", [-0.1, math.nan])
def test_mu_must_be_a_non_negative_number(mu):
    problem = FiniteProblem([[0.5], [0.5]], [0.3, 0.7])
    with pytest.raises(dm.InvalidInputError, match="mu must be"):
        threshold_curve(problem, mu)


def test_threshold_curve_by_hand():
    problem = FiniteProblem([[0.25, 0.0], [0.25, 0.25], [0.25, 0], [0, 0]], [0.5, 0.25, 0, 0.25])
    curve = threshold_curve(problem, 0)
    assert curve.threshold.tolist() == [-math.inf, 0, 0.5]
    assert curve.tpr.tolist() == [0, 0.5, 1] and curve.fpr.tolist() == [0, 0.5, 0.75]
    assert np.isnan(curve.selective_risk[0])
    assert curve.selective_risk[1:].tolist() == [0, 0.25]
    assert curve.precision(0.5)[1:] == pytest.approx([0.5, 1 / 1.75])
    with pytest.raises(dm.InvalidInputError, match="ood_prior"):
        curve.precision(1.0)
