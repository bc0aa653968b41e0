"""The paper's theorems as claims about random finite problems."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import demur as dm
from demur.population import FiniteProblem, optimum

SEEDS = range(60)
BOUNDS = [0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0]


def random_problem(rng, n):
    """Return a problem with three classes, a random loss, ties and empty cells."""
    p_id = rng.integers(0, 4, (n, 3)) * rng.choice([0.01, 1.0, 1.0], (n, 1))
    p_id[int(rng.integers(n)), 0] += 1
    p_ood = rng.integers(0, 4, n) * rng.choice([0.01, 1.0, 1.0], n)
    p_ood[int(rng.integers(n))] += 1
    loss = None if rng.random() < 0.5 else rng.integers(0, 6, (3, 3))
    return FiniteProblem(p_id / p_id.sum(), p_ood / p_ood.sum(), loss)


def bounded_model(rng):
    """Return a bounded TPR-FPR or precision-recall model."""
    first, second = rng.choice(BOUNDS, 2).tolist()
    if rng.random() < 0.5:
        return dm.TprFprModel(first, second)
    return dm.PrecisionRecallModel(first, second, float(rng.choice([0.1, 0.25, 0.5])))


def cost_model(rng):
    """Return a cost model."""
    reject_ood, accept_ood = sorted(rng.choice([0, 0.5, 1, 2, 5], 2).tolist())
    prior = float(rng.choice([0, 0.1, 0.5, 0.8]))
    return dm.CostModel(float(rng.choice([0, 0.2, 0.5, 1.5])), accept_ood, reject_ood, prior)


def solved(problem, model, classifier=None):
    """Return the optimum, or None if the bounds cannot be met."""
    try:
        return optimum(problem, model, classifier=classifier)
    except dm.InfeasibleError:
        return None


def objective(best):
    """Return what the model of an optimum minimises."""
    cost = best.point.expected_cost
    return best.point.selective_risk if cost is None else cost


def rates(problem, c, classifier=None):
    """Return TPR, FPR and selective risk of c by plain loops over inputs and classes."""
    h = problem.bayes_classifier() if classifier is None else classifier
    tpr = fpr = loss = 0.0
    for x, probability in enumerate(c):
        fpr += problem.p_ood[x] * probability
        for y in range(problem.p_id.shape[1]):
            tpr += problem.p_id[x, y] * probability
            loss += problem.p_id[x, y] * probability * problem.loss[y, h[x]]
    return tpr, fpr, loss / tpr if tpr > 0 else math.nan


def expected_cost(problem, c, model):
    """Return Definition 1 by plain loops over every kind of event."""
    pi, total = model.ood_prior, 0.0
    h = problem.bayes_classifier()
    for x, probability in enumerate(c):
        total += (
            pi
            * problem.p_ood[x]
            * (probability * model.accept_ood + (1 - probability) * model.reject_ood)
        )
        for y in range(problem.p_id.shape[1]):
            cost = probability * problem.loss[y, h[x]] + (1 - probability) * model.reject_id
            total += (1 - pi) * problem.p_id[x, y] * cost
    return total


def feasible(tpr, fpr, model, slack=0.0):
    """Return whether rates meet the bounds of a model."""
    if isinstance(model, dm.TprFprModel):
        return tpr >= model.min_tpr - slack and fpr <= model.max_fpr + slack
    pi = model.ood_prior
    kappa = (1 - pi) * tpr / ((1 - pi) * tpr + pi * fpr) if tpr > 0 else 0.0
    return tpr >= model.min_recall - slack and kappa >= model.min_precision - slack


# Theorem 1 -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_theorem_1_no_set_of_inputs_is_cheaper_than_the_closed_form(seed):
    rng = np.random.default_rng(seed)
    problem, model = random_problem(rng, int(rng.integers(1, 8))), cost_model(rng)
    best = optimum(problem, model)
    sets = itertools.product([0.0, 1.0], repeat=problem.n_inputs)
    cheapest = min(expected_cost(problem, c, model) for c in sets)
    assert best.point.expected_cost == pytest.approx(cheapest, abs=1e-12)
    assert best.point.expected_cost == pytest.approx(
        expected_cost(problem, best.accept_probability, model), abs=1e-12
    )
    pi = model.ood_prior
    assert best.threshold == model.reject_id
    assert best.mu == pytest.approx((model.accept_ood - model.reject_ood) * pi / (1 - pi))


@pytest.mark.parametrize("seed", range(20))
def test_theorem_1_tau_is_arbitrary_on_the_boundary(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 6)
    risks = problem.conditional_risk()[problem.p_marginal > 0]
    model = dm.CostModel(float(rng.choice(risks)))
    best = optimum(problem, model)
    on = np.isclose(problem.conditional_risk(), model.reject_id) & (problem.p_marginal > 0)
    assert on.any()
    for tau in (0.0, 0.37, 1.0):
        c = np.where(on, tau, best.accept_probability)
        assert expected_cost(problem, c, model) == pytest.approx(best.point.expected_cost)


@pytest.mark.parametrize("seed", range(20))
def test_theorem_1_without_ood_is_chows_rule(seed):
    rng = np.random.default_rng(seed)
    problem = random_problem(rng, 6)
    best = optimum(problem, dm.CostModel(0.35))
    chow = (problem.conditional_risk() <= 0.35) & (problem.p_marginal > 0)
    assert best.mu == 0 and best.accept_probability.tolist() == chow.astype(float).tolist()


# Theorems 2 and 4 --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [bounded_model, cost_model])
def test_theorems_2_and_4_no_classifier_beats_bayes(seed, kind):
    rng = np.random.default_rng(100 + seed)
    problem, model = random_problem(rng, 5), kind(rng)
    best = solved(problem, model)
    for _ in range(5):
        h = rng.integers(0, 3, problem.n_inputs)
        other = solved(problem, model, h)
        assert (other is None) == (best is None)
        if best is not None:
            assert objective(best) <= objective(other) + 1e-12
            if kind is bounded_model:
                # The same c with the Bayes classifier: the statement of the theorem.
                exchanged = rates(problem, other.accept_probability)[2]
                assert exchanged <= other.point.selective_risk + 1e-12


# Theorems 3 and 5 --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_theorems_3_and_5_form_of_an_optimum(seed):
    rng = np.random.default_rng(200 + seed)
    problem, model = random_problem(rng, int(rng.integers(1, 12))), bounded_model(rng)
    # For any classifier, not only that of Bayes.
    h = None if seed % 2 else rng.integers(0, 3, problem.n_inputs)
    best = solved(problem, model, h)
    if best is None:
        return
    g, r = problem.likelihood_ratio(), problem.conditional_risk(h)
    seen = problem.p_marginal > 0
    s = np.full(problem.n_inputs, math.inf)
    s[seen] = g[seen] if best.mu == math.inf else r[seen] + best.mu * g[seen]
    assert best.mu >= 0
    assert (best.accept_probability[s < best.threshold * (1 - 1e-11)] == 1).all()
    assert (best.accept_probability[s > best.threshold * (1 + 1e-11)] == 0).all()
    assert s[best.boundary] == pytest.approx(best.threshold, rel=1e-11)
    tpr, fpr, risk = rates(problem, best.accept_probability, h)
    assert feasible(tpr, fpr, model, slack=1e-11)
    assert (tpr, fpr, risk) == pytest.approx(
        (best.point.tpr, best.point.fpr, best.point.selective_risk)
    )
    if best.mu == 0:
        return
    # Complementary slackness: a positive price means that the bound on OOD is used up.
    used = best.point.fpr if isinstance(model, dm.TprFprModel) else best.point.precision
    bound = model.max_fpr if isinstance(model, dm.TprFprModel) else model.min_precision
    assert used == pytest.approx(bound, rel=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
def test_theorems_3_and_5_no_feasible_c_has_a_lower_risk(seed):
    rng = np.random.default_rng(400 + seed)
    problem, model = random_problem(rng, 5), bounded_model(rng)
    best = solved(problem, model)
    tried = [np.array(c) for c in itertools.product([0.0, 0.5, 1.0], repeat=5)]
    tried += list(rng.random((200, 5))) + list(rng.random((200, 5)) ** 0.1)
    for c in tried:
        tpr, fpr, risk = rates(problem, c)
        if tpr > 0 and feasible(tpr, fpr, model):
            assert best is not None
            assert best.point.selective_risk <= risk + 1e-12


@pytest.mark.parametrize("seed", SEEDS)
def test_without_a_bound_on_ood_it_is_the_bounded_abstention_model(seed):
    rng = np.random.default_rng(500 + seed)
    problem = random_problem(rng, 7)
    phi = float(rng.choice(BOUNDS))
    best = optimum(problem, dm.TprFprModel(phi))
    # Fill up by conditional risk until the coverage is reached.
    left, loss = phi, 0.0
    for r, p in sorted(zip(problem.conditional_risk(), problem.p_marginal, strict=True)):
        loss += r * min(p, left)
        left -= min(p, left)
    assert best.mu == 0
    assert best.point.selective_risk == pytest.approx(loss / phi, abs=1e-12)
    same = optimum(problem, dm.PrecisionRecallModel(0.9, phi, 0))
    assert same.mu == 0 and same.point.selective_risk == best.point.selective_risk


def test_active_and_slack_and_limit_cases_all_occur():
    seen = set()
    for seed in range(200):
        rng = np.random.default_rng(200 + seed)
        problem, model = random_problem(rng, int(rng.integers(1, 12))), bounded_model(rng)
        best = solved(problem, model)
        if best is not None:
            seen.add("slack" if best.mu == 0 else "limit" if best.mu == math.inf else "active")
    assert seen == {"slack", "limit", "active"}


def test_randomisation_is_needed_on_finite_inputs():
    problem = FiniteProblem([[0.5, 0.0], [0.3, 0.2]], [0.75, 0.25])
    model = dm.TprFprModel(0.5, 0.5)
    deterministic = []
    for c in itertools.product([0.0, 1.0], repeat=2):
        tpr, fpr, risk = rates(problem, c)
        if feasible(tpr, fpr, model):
            deterministic.append(risk)
    assert min(deterministic) == pytest.approx(0.4)
    best = optimum(problem, model)
    assert best.point.selective_risk == pytest.approx(0.2)
    assert best.tau == pytest.approx([0.5, 0.5])


def test_randomisation_is_needed_on_many_random_problems():
    needed = 0
    for seed in range(40):
        rng = np.random.default_rng(600 + seed)
        problem, model = random_problem(rng, 5), bounded_model(rng)
        best = solved(problem, model)
        if best is None:
            continue
        lowest = math.inf
        for c in itertools.product([0.0, 1.0], repeat=5):
            tpr, fpr, risk = rates(problem, c)
            if tpr > 0 and feasible(tpr, fpr, model):
                lowest = min(lowest, risk)
        assert best.point.selective_risk <= lowest + 1e-9
        needed += best.point.selective_risk < lowest - 1e-3
    assert needed >= 10


def test_one_common_tau_does_not_suffice():
    # Both inputs are on the boundary; their shares must differ to use both bounds up.
    problem = FiniteProblem([[0.5, 0.0], [0.3, 0.2]], [0.75, 0.25])
    best = optimum(problem, dm.TprFprModel(0.6, 0.5))
    assert best.boundary.all() and best.tau == pytest.approx([0.4, 0.8])
    common = rates(problem, [0.6, 0.6])
    assert common[1] > 0.5 + 0.09


# Corrections -------------------------------------------------------------------------------


def test_the_coverage_lemma_is_wrong_an_optimum_may_accept_more():
    # All inputs are equally risky: c = 1 is optimal with positive risk and TPR 1 > phi_min.
    problem = FiniteProblem([[0.3, 0.1], [0.45, 0.15]], [0.5, 0.5])
    best = optimum(problem, dm.TprFprModel(0.4))
    tpr, _, risk = rates(problem, [1.0, 1.0])
    assert tpr == pytest.approx(1.0) and risk == pytest.approx(0.25)
    assert best.point.selective_risk == pytest.approx(risk)
    assert best.point.tpr == pytest.approx(0.4)


@pytest.mark.parametrize("seed", range(20))
def test_scaling_c_changes_neither_selective_risk_nor_precision(seed):
    rng = np.random.default_rng(700 + seed)
    problem = random_problem(rng, 6)
    c = rng.random(6)
    (tpr, fpr, risk), (less_tpr, less_fpr, same) = rates(problem, c), rates(problem, 0.3 * c)
    assert same == pytest.approx(risk)
    assert less_fpr / less_tpr == pytest.approx(fpr / tpr)
