"""Rules tuned on samples of the continuous example approach its population optimum."""

from __future__ import annotations

import math

import numpy as np
import pytest

import demur as dm
from demur.population import (
    CORRECTED,
    METHODS,
    best_threshold,
    optimum,
)

MODELS = [dm.TprFprModel(0.7, 0.2), dm.PrecisionRecallModel(0.9, 0.7, 0.25)]


@pytest.fixture(scope="module")
def problem():
    return CORRECTED.discretise(2_000)


def single_score(sample, mu):
    """Return the sample with the one score r + mu*g, or g."""

    def combined(scores):
        return scores[:, 1] if mu == math.inf else scores @ [1.0, mu]

    return dm.Sample(combined(sample.id_scores), sample.id_loss, combined(sample.ood_scores))


@pytest.mark.parametrize("model", MODELS, ids=["tpr-fpr", "precision-recall"])
@pytest.mark.parametrize("name", ["A", "B"])
def test_tuned_single_score_approaches_the_population(problem, model, name):
    mu = METHODS[name]
    best = best_threshold(problem, model, mu=mu)
    errors = []
    for n in (1_000, 300_000):
        sample = single_score(CORRECTED.sample(n, 11), mu)
        tuned = dm.tune(sample, model)
        errors.append(abs(tuned.point.selective_risk - best.point.selective_risk))
        if n > 1_000:
            assert tuned.rule.threshold == pytest.approx(best.threshold, rel=0.02)
            assert tuned.point.tpr == pytest.approx(best.point.tpr, abs=0.005)
    # Three standard errors of the error rate among 157,500 accepted rows.
    assert errors[-1] < 0.003


def test_method_c_is_unable_on_large_samples_too(problem):
    sample = single_score(CORRECTED.sample(200_000, 12), 0.0)
    with pytest.raises(dm.InfeasibleError) as empirical:
        dm.tune(sample, MODELS[0])
    with pytest.raises(dm.InfeasibleError) as population:
        best_threshold(problem, MODELS[0], mu=0)
    for name, value in population.value.attainable.items():
        assert empirical.value.attainable[name] == pytest.approx(value, abs=0.01)


def true_rates(problem, rule):
    """Return TPR, FPR and selective risk of a rule in the population."""
    c, p = rule.accept(problem.scores()).astype(float), problem.p_marginal
    return p @ c, problem.p_ood @ c, (p * problem.conditional_risk()) @ c / (p @ c)


def test_tuned_double_score_approaches_the_optimum(problem):
    best = optimum(problem, MODELS[0]).point
    off_risk, off_rates = [], []
    for n in (120, 480, 1920):
        tuned = [dm.tune(CORRECTED.sample(n, seed), MODELS[0]) for seed in range(5)]
        rates = np.array([true_rates(problem, t.rule) for t in tuned])
        off_risk.append(np.mean([abs(t.point.selective_risk - best.selective_risk) for t in tuned]))
        off_rates.append(np.abs(rates - [best.tpr, best.fpr, best.selective_risk]).mean(axis=0))
    assert off_risk[-1] < 0.012 and off_risk[-1] < off_risk[0]
    assert (off_rates[-1] < [0.02, 0.03, 0.012]).all()
    assert (off_rates[-1] < off_rates[0]).all()


@pytest.mark.parametrize("seed", range(4))
def test_every_rule_of_the_theorem_is_optimal_at_its_own_rates(problem, seed):
    # The converse of Theorem 3: r + mu*g <= lambda with mu >= 0 cannot be improved, so tuning
    # with the true scores only ever errs in the rates, never in the shape of the rule.
    rule = dm.tune(CORRECTED.sample(400, seed), MODELS[0]).rule
    tpr, fpr, risk = true_rates(problem, rule)
    assert rule.mu >= 0
    best = optimum(problem, dm.TprFprModel(float(tpr), float(fpr)))
    assert risk == pytest.approx(best.point.selective_risk, abs=1e-10)


def test_a_rule_of_another_shape_is_not_optimal_at_its_own_rates(problem):
    p, r = problem.p_marginal, problem.conditional_risk()
    c = (np.cumsum(p) <= 0.6).astype(float)
    tpr, fpr = float(p @ c), float(problem.p_ood @ c)
    best = optimum(problem, dm.TprFprModel(tpr, fpr))
    assert (p * r) @ c / tpr > best.point.selective_risk + 0.02
