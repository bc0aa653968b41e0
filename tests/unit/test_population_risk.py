"""The most TPR with bounded risk and FPR: the theorem, both solvers, and the sample's answer."""

import math

import numpy as np
import pytest

import demur as dm
from demur.population import CORRECTED, FiniteProblem, best_threshold, optimum


def random_case(rng):
    n = int(rng.integers(1, 12))
    p_id = rng.random((n, 3)) * (rng.random((n, 3)) < 0.8)
    p_ood = rng.random(n) * (rng.random(n) < 0.8)
    p_id[0, 0] += 0.1
    p_ood[-1] += 0.1
    problem = FiniteProblem(p_id / p_id.sum(), p_ood / p_ood.sum())
    risk, fpr = rng.choice([0, 0.1, 0.2, 0.3, 0.5, 0.7]), rng.choice([0, 0.1, 0.3, 0.6, 1])
    return problem, dm.RiskFprModel(float(risk), float(fpr))


def test_it_is_a_threshold_on_r_plus_mu_g_and_both_solvers_agree():
    rng = np.random.default_rng(0)
    feasible = 0
    for _ in range(300):
        problem, model = random_case(rng)
        try:
            best = optimum(problem, model)
        except dm.InfeasibleError as error:
            with pytest.raises(dm.InfeasibleError):
                optimum(problem, model, solver="highs")
            assert error.attainable["min_selective_risk"] > model.max_selective_risk
            continue
        feasible += 1
        point = best.point
        assert point.selective_risk <= model.max_selective_risk * (1 + 1e-9) + 1e-12
        assert point.fpr <= model.max_fpr * (1 + 1e-9) + 1e-12
        assert optimum(problem, model, solver="highs").point.tpr == pytest.approx(
            point.tpr, abs=2e-6
        )
        scores = problem.scores()
        usable = np.isfinite(scores[:, 1])
        risk, ratio = scores[usable].T
        score = ratio if math.isinf(best.mu) else risk + best.mu * ratio
        c = best.accept_probability[usable]
        assert best.mu >= 0
        assert score[c > 0].max(initial=-np.inf) <= score[c < 1].min(initial=np.inf) * (1 + 1e-9)
        # No rule of one mu does better.
        for mu in (0.0, 0.1, 1.0, math.inf):
            try:
                other = best_threshold(problem, model, mu=mu)
            except dm.InfeasibleError:
                continue
            assert other.point.tpr <= point.tpr + 1e-9
            assert other.point.selective_risk <= model.max_selective_risk * (1 + 1e-9) + 1e-12
    assert feasible > 100


def test_it_turns_the_least_risk_around():
    """At the TPR it attains, the least risk under the same FPR is the bound."""
    problem = CORRECTED.discretise(4000)
    most = optimum(problem, dm.RiskFprModel(0.12, 0.2))
    least = optimum(problem, dm.TprFprModel(most.point.tpr, 0.2))
    assert most.point.selective_risk == pytest.approx(0.12, abs=1e-9)
    assert least.point.selective_risk == pytest.approx(0.12, abs=1e-9)
    assert least.mu == pytest.approx(most.mu, rel=1e-3)
    assert best_threshold(problem, dm.RiskFprModel(0.12, 0.2), mu=most.mu).point.tpr == (
        pytest.approx(most.point.tpr, abs=1e-3)
    )


def test_a_slack_risk_leaves_the_neyman_pearson_rule():
    problem = CORRECTED.discretise(1000)
    most = optimum(problem, dm.RiskFprModel(1, 0.1))
    with pytest.raises(dm.InfeasibleError) as caught:
        optimum(problem, dm.TprFprModel(1, 0.1))
    assert most.point.tpr == pytest.approx(caught.value.attainable["max_tpr"], rel=1e-9)


def test_the_sample_comes_close_to_the_population():
    rng = np.random.default_rng(2)
    problem = CORRECTED.discretise(2000)
    scores = problem.scores()
    own = rng.choice(problem.n_inputs, 20_000, p=problem.p_marginal)
    foreign = rng.choice(problem.n_inputs, 20_000, p=problem.p_ood / problem.p_ood.sum())
    foreign = foreign[np.isfinite(scores[foreign, 1])]
    wrong = (rng.random(len(own)) < scores[own, 0]).astype(float)
    tuned = dm.tune(dm.Sample(scores[own], wrong, scores[foreign]), dm.RiskFprModel(0.12, 0.2))
    most = optimum(problem, dm.RiskFprModel(0.12, 0.2))
    assert tuned.point.tpr == pytest.approx(most.point.tpr, abs=0.03)


@pytest.mark.parametrize(
    "model",
    [
        dm.RejectionModel("tpr", [dm.Bound("tpr", at_least=0.5)]),
        dm.RejectionModel("tpr", [dm.Bound("selective_risk", at_most=0.5, group="a")]),
    ],
)
def test_other_bounds_are_refused(model):
    with pytest.raises(dm.InvalidInputError, match="RiskFprModel"):
        optimum(CORRECTED.discretise(100), model)
