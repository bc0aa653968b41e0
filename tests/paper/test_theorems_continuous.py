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
    risk_coverage,
    threshold_curve,
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


def excess_risk(problem, rule):
    """Return how much a rule's true risk exceeds the optimum at its own true rates."""
    c = rule.accept(problem.scores()).astype(float)
    p = problem.p_marginal
    tpr, fpr = p @ c, problem.p_ood @ c
    best = optimum(problem, dm.TprFprModel(float(tpr), float(min(1, fpr * (1 + 1e-9)))))
    return (p * problem.conditional_risk()) @ c / tpr - best.point.selective_risk


def test_tuned_double_score_approaches_the_optimum(problem):
    population = optimum(problem, MODELS[0])
    distance, excess = [], []
    for n in (120, 480, 1920):
        tuned = [dm.tune(CORRECTED.sample(n, seed), MODELS[0]) for seed in range(5)]
        risks = np.array([t.point.selective_risk for t in tuned])
        distance.append(np.abs(risks - population.point.selective_risk).mean())
        extra = [excess_risk(problem, t.rule) for t in tuned]
        # Theorem 3: no rule, tuned or not, is better than the optimum at its own rates.
        assert min(extra) > -1e-6
        excess.append(np.mean(extra))
    assert distance[-1] < 0.015 and distance[-1] < distance[0]
    assert excess[-1] < 0.003 and excess[-1] < excess[0]


def test_no_tuned_double_score_rule_beats_the_population_roc(problem):
    best = threshold_curve(problem, math.inf)
    for seed in range(3):
        rule = dm.tune(CORRECTED.sample(400, seed), MODELS[0]).rule
        c = rule.accept(problem.scores()).astype(float)
        tpr, fpr = problem.p_marginal @ c, problem.p_ood @ c
        assert tpr <= np.interp(fpr, best.fpr, best.tpr) + 1e-9
        assert not (problem.p_marginal * problem.conditional_risk()) @ c / tpr < (
            risk_coverage(problem, [tpr], max_fpr=float(fpr) + 1e-9)[0] - 1e-6
        )
