"""tau in closed form, against the linear program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import demur as dm
from demur.population import FiniteProblem, boundary_rule


def collinear_problem(p_id, ratio, *, mu, size):
    """Return a problem with r = lambda - mu*g for a suitable lambda, and g in proportion."""
    p = np.array(p_id, float) / sum(p_id)
    g = np.array(ratio, float) / (p @ np.array(ratio, float))
    line = -mu * g
    r = line - line.min() + size
    # One class that is always predicted at the cost r(x): two classes, losses 0 and `top`.
    top = max(1.0, 4 * r.max())
    share = r / top
    table = np.column_stack([p * (1 - share), p * share])
    return FiniteProblem(table, p * g, [[0, top], [top, 0]])


def plain_optimum(problem, phi, rho):
    """Return the optimal risk of the program as printed, None if infeasible."""
    p = problem.p_marginal
    result = linprog(
        p * problem.conditional_risk(),
        A_eq=[p],
        b_eq=[phi],
        A_ub=[problem.p_ood],
        b_ub=[rho],
        bounds=(0, 1),
        method="highs",
    )
    return result.fun / phi if result.status == 0 else None


def selective_risk(problem, c):
    """Return the selective risk of c."""
    p = problem.p_marginal
    return float((p * problem.conditional_risk()) @ c / (p @ c))


weights = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=7).filter(
    lambda rows: any(g for _, g in rows)
)
share = st.sampled_from([0.05, 0.1, 0.25, 0.4, 0.5, 0.75, 0.9, 1.0])


@given(rows=weights, mu=st.sampled_from([-1.5, -0.1, 0.0, 0.1, 2.0]), phi=share, rho=share)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_closed_form_equals_the_linear_program(rows, mu, phi, rho):
    problem = collinear_problem(*zip(*rows, strict=True), mu=mu, size=0.1)
    model = dm.TprFprModel(phi, rho)
    expected = plain_optimum(problem, phi, rho)
    if expected is None:
        with pytest.raises(dm.InfeasibleError):
            boundary_rule(problem, model, mu=mu)
        return
    c = boundary_rule(problem, model, mu=mu).accept_probability(problem.likelihood_ratio())
    assert selective_risk(problem, c) == pytest.approx(expected, abs=1e-8)
    assert problem.p_marginal @ c == pytest.approx(phi, abs=1e-9)
    assert problem.p_ood @ c <= rho + 1e-9


@given(rows=weights, mu=st.sampled_from([-0.5, 0.0, 0.5]), rho=st.sampled_from([0, 0.1, 0.5, 1]))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_closed_form_without_a_bound_on_tpr(rows, mu, rho):
    problem = collinear_problem(*zip(*rows, strict=True), mu=mu, size=0.1)
    g, r = problem.likelihood_ratio(), problem.conditional_risk()
    allowed = g == 0 if rho == 0 else g >= 0
    model = dm.TprFprModel(0, rho)
    if not allowed.any():
        with pytest.raises(dm.InfeasibleError):
            boundary_rule(problem, model, mu=mu)
        return
    c = boundary_rule(problem, model, mu=mu).accept_probability(g)
    assert selective_risk(problem, c) == pytest.approx(r[allowed].min())
    assert problem.p_ood @ c <= rho + 1e-12


def test_counterexample_to_the_appendix():
    problem = FiniteProblem([[0.425, 0.075], [0.475, 0.025]], [0.25, 0.75])
    assert problem.likelihood_ratio() == pytest.approx([0.5, 1.5])
    assert problem.conditional_risk() == pytest.approx([0.15, 0.05])
    rule = boundary_rule(problem, dm.TprFprModel(0.4, 0.9), mu=0.1)
    c = rule.accept_probability(problem.likelihood_ratio())
    assert selective_risk(problem, c) == pytest.approx(0.05)
    assert plain_optimum(problem, 0.4, 0.9) == pytest.approx(0.05)
    # What the appendix asks for, the largest gamma_1 with FPR = rho_max: all of g = 1.5 and
    # .6 of g = .5.
    printed = np.array([0.6, 1.0])
    assert problem.p_ood @ printed == pytest.approx(0.9)
    assert selective_risk(problem, printed) == pytest.approx(0.0875)


def test_the_window_is_an_interval_with_shares_at_both_ends():
    problem = collinear_problem([1, 1, 1, 1], [1, 2, 3, 4], mu=0.3, size=0.05)
    # Four inputs of ID mass .25 and OOD mass .1 to .4: half of the first, all of the second and
    # half of the third hold ID mass .5 and OOD mass .4.
    rule = boundary_rule(problem, dm.TprFprModel(0.5, 0.4), mu=0.3)
    assert (rule.lower, rule.upper) == pytest.approx((0.4, 1.2))
    assert (rule.lower_share, rule.upper_share) == pytest.approx((0.5, 0.5))
    c = rule.accept_probability(problem.likelihood_ratio())
    assert c == pytest.approx([0.5, 1, 0.5, 0])


def test_the_score_must_be_constant():
    problem = FiniteProblem([[0.4, 0.1], [0.3, 0.2]], [0.25, 0.75])
    with pytest.raises(dm.InvalidInputError, match="must be the same for all inputs"):
        boundary_rule(problem, dm.TprFprModel(0.5, 0.5), mu=0.3)
    with pytest.raises(dm.InvalidInputError, match="mu must be finite"):
        boundary_rule(problem, dm.TprFprModel(0.5, 0.5), mu=np.inf)
