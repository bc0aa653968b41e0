"""The general solver and the dual give the same optimum, with mu and lambda from the duals."""

import numpy as np
import pytest

import demur as dm
from demur.population import CORRECTED, FiniteProblem, optimum


def random_case(rng):
    n = int(rng.integers(2, 30))
    p_id, p_ood = rng.random((n, 3)), rng.random(n) * rng.integers(0, 2, n)
    p_ood[0] += 0.1
    problem = FiniteProblem(p_id / p_id.sum(), p_ood / p_ood.sum())
    phi, rho = rng.uniform(0.05, 1), rng.uniform(0, 1)
    if rng.random() < 0.5:
        return problem, dm.TprFprModel(round(phi, 3), round(rho, 3))
    return problem, dm.PrecisionRecallModel(round(rng.uniform(0.3, 0.99), 3), round(phi, 3), 0.4)


def test_both_solvers_agree():
    rng = np.random.default_rng(0)
    feasible = 0
    for _ in range(300):
        problem, model = random_case(rng)
        try:
            dual = optimum(problem, model)
        except dm.InfeasibleError as error:
            with pytest.raises(dm.InfeasibleError) as caught:
                optimum(problem, model, solver="highs")
            assert caught.value.attainable == error.attainable
            continue
        feasible += 1
        highs = optimum(problem, model, solver="highs")
        assert highs.point.selective_risk == pytest.approx(dual.point.selective_risk, abs=1e-6)
        assert highs.point.tpr == pytest.approx(dual.point.tpr, abs=1e-6)
        if np.isfinite(dual.mu):
            # Between two inputs of a discrete problem the price of OOD is a range: compare what
            # it means, that no input is on the wrong side of the boundary.
            score = highs.mu * problem.likelihood_ratio() + problem.conditional_risk()
            c = highs.accept_probability
            assert score[c == 1].max(initial=-np.inf) <= score[c == 0].min(initial=np.inf) + 1e-6
    assert feasible > 150


@pytest.mark.parametrize(
    "model", [dm.TprFprModel(0.7, 0.2), dm.PrecisionRecallModel(0.9, 0.7, 0.25)]
)
def test_both_solvers_agree_on_the_paper_example(model):
    problem = CORRECTED.discretise(5000)
    dual, highs = optimum(problem, model), optimum(problem, model, solver="highs")
    assert highs.point.selective_risk == pytest.approx(dual.point.selective_risk, abs=1e-7)
    assert highs.mu == pytest.approx(dual.mu, rel=1e-3)
    assert highs.threshold == pytest.approx(dual.threshold, rel=1e-3)
    with pytest.raises(dm.InvalidInputError, match="solver"):
        optimum(problem, model, solver="simplex")
