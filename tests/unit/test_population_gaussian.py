"""The paper's synthetic example and the population values of its methods."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

import demur as dm
from demur.population import (
    AS_PRINTED,
    CORRECTED,
    METHODS,
    FiniteProblem,
    GaussianExample,
    best_threshold,
    optimum,
    population_values,
    risk_coverage,
    threshold_curve,
)

TPR_FPR = dm.TprFprModel(0.7, 0.2)
PRECISION_RECALL = dm.PrecisionRecallModel(0.9, 0.7, 0.25)


@pytest.fixture(scope="module")
def problem():
    return CORRECTED.discretise(20_000)


def values(problem, name):
    """Return the population values of one of the methods A to D."""
    return population_values(
        problem, METHODS[name], tpr_fpr=TPR_FPR, precision_recall=PRECISION_RECALL
    )


@pytest.mark.parametrize("example", [CORRECTED, AS_PRINTED, GaussianExample(0.5, 2.0)])
def test_densities_and_scores_equal_their_definitions(example):
    x = np.linspace(-6, 8, 57)
    joint = np.column_stack([0.3 * norm.pdf(x, -1), 0.3 * norm.pdf(x, 1), 0.4 * norm.pdf(x, 3)])
    ood = norm.pdf(x, example.ood_mean, math.sqrt(example.ood_variance))
    assert example.id_density(x) == pytest.approx(joint)
    assert example.ood_density(x) == pytest.approx(ood)
    total = joint.sum(axis=1)
    assert example.conditional_risk(x) == pytest.approx(1 - joint.max(axis=1) / total)
    assert example.likelihood_ratio(x) == pytest.approx(ood / total)


@pytest.mark.parametrize("bad", [{"ood_variance": 0.0}, {"ood_prior": 1.0}])
def test_bad_settings_are_refused_by_name(bad):
    with pytest.raises(dm.InvalidInputError, match=next(iter(bad))):
        GaussianExample(**bad)


def test_a_grid_that_misses_the_ood_data_is_refused():
    with pytest.raises(dm.InvalidInputError, match="too narrow or too coarse"):
        GaussianExample(ood_mean=40.0).discretise()


def test_scores_stay_finite_far_out():
    assert CORRECTED.conditional_risk([-60.0, 60.0]).tolist() == [0.0, 0.0]
    assert CORRECTED.likelihood_ratio([-60.0, 60.0]).tolist() == [0.0, 0.0]


def test_discretised_problem_has_the_exact_masses(problem):
    # Bayes decision boundaries are where two weighted densities are equal.
    low, high = 0.0, 2 - math.log(4 / 3) / 2
    correct = 0.3 * norm.cdf(low, -1) + 0.3 * (norm.cdf(high, 1) - norm.cdf(low, 1))
    correct += 0.4 * norm.sf(high, 3)
    error = problem.p_marginal @ problem.conditional_risk()
    assert error == pytest.approx(1 - correct, abs=1e-6)
    assert problem.n_inputs == 20_000
    with pytest.raises(dm.InvalidInputError, match="cells"):
        CORRECTED.discretise(5)


# Rows of risk at TPR .7 FPR .2, risk at precision .9 recall .7, AUROC, AUPR, OSCR per accepted
# and per all ID, computed by independent prototypes; nan is "unable".
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("A", [0.1585, 0.1585, 0.8782, 0.9620, 0.8198, 0.7188]),
        ("B", [0.1418, 0.1418, 0.8649, 0.9543, 0.8267, 0.7112]),
        ("C", [math.nan, math.nan, 0.7576, 0.9139, 0.8619, 0.6446]),
    ],
)
def test_single_score_methods(problem, name, expected):
    found = values(problem, name)
    row = [
        found.risk_at_tpr_fpr,
        found.risk_at_precision_recall,
        found.auroc,
        found.aupr,
        found.oscr_accepted,
        found.oscr_all,
    ]
    assert row == pytest.approx(expected, abs=1.2e-4, nan_ok=True)


def test_double_score_method(problem):
    found = values(problem, "D")
    assert found.risk_at_tpr_fpr == pytest.approx(0.1259, abs=1e-4)
    assert found.risk_at_precision_recall == pytest.approx(0.1242, abs=1e-4)
    single = [values(problem, name) for name in "ABC"]
    assert found.auroc == single[0].auroc and found.aupr == single[0].aupr
    assert found.oscr_accepted == pytest.approx(0.8619, abs=1e-4)
    for other in single:
        assert found.oscr_accepted >= other.oscr_accepted - 1e-6
        assert found.oscr_all >= other.oscr_all - 1e-6
        assert not found.risk_at_tpr_fpr > other.risk_at_tpr_fpr


def test_multipliers_and_certificate_of_the_optimum(problem):
    best = optimum(problem, TPR_FPR)
    assert best.mu == pytest.approx(0.0435, abs=5e-4)
    assert optimum(problem, PRECISION_RECALL).mu == pytest.approx(0.0275, abs=5e-4)
    assert best.point.tpr == pytest.approx(0.7) and best.point.fpr == pytest.approx(0.2)
    assert best.boundary.sum() <= 2
    # Weak duality holds for every mu and lambda: nothing is below this.
    p, r = problem.p_marginal, problem.conditional_risk()
    gain = np.maximum(0, (best.threshold - r) * p - best.mu * problem.p_ood)
    bound = (0.7 * best.threshold - 0.2 * best.mu - gain.sum()) / 0.7
    assert best.point.selective_risk == pytest.approx(bound, abs=1e-9)


def test_method_c_is_unable_and_the_error_says_how_far(problem):
    with pytest.raises(dm.InfeasibleError) as caught:
        best_threshold(problem, TPR_FPR, mu=0)
    assert caught.value.attainable["max_tpr"] == pytest.approx(0.589, abs=5e-4)
    assert caught.value.attainable["min_fpr"] == pytest.approx(0.328, abs=5e-4)


def test_as_printed_the_conditional_risk_is_worse_than_chance():
    found = values(AS_PRINTED.discretise(20_000), "C")
    assert found.auroc == pytest.approx(0.366, abs=1e-3)


def test_the_optimal_roc_curve_dominates_every_other(problem):
    best = threshold_curve(problem, math.inf)
    levels = np.linspace(0, 1, 101)
    largest = np.interp(levels, best.fpr, best.tpr)
    for mu in (0.0, 0.05, 0.2, 3.0):
        curve = threshold_curve(problem, mu)
        assert (np.interp(levels, curve.fpr, curve.tpr) <= largest + 1e-6).all()


def test_risk_coverage_of_the_optimum_is_below_all_methods():
    problem = CORRECTED.discretise(1500)
    levels = np.linspace(0.05, 0.95, 19)
    best = risk_coverage(problem, levels, max_fpr=0.2)
    assert (np.diff(best[~np.isnan(best)]) >= -1e-9).all()
    assert np.isnan(best[-1]) and not np.isnan(best[:10]).any()
    for name in "ABC":
        single = risk_coverage(problem, levels, max_fpr=0.2, mu=METHODS[name])
        able = ~np.isnan(single)
        assert able.any() and (best[able] <= single[able] + 1e-9).all()
    slack = risk_coverage(problem, levels[:8], max_fpr=0.2, mu=0)
    assert best[:8] == pytest.approx(slack, abs=1e-9)


def test_areas_of_a_problem_by_hand():
    # One ID input, half of OOD on it, the other half elsewhere.
    problem = FiniteProblem([[0.75, 0.25], [0, 0]], [0.5, 0.5])
    found = population_values(
        problem,
        0.0,
        tpr_fpr=dm.TprFprModel(0.5, 0.3),
        precision_recall=dm.PrecisionRecallModel(0.5, 0.5, 0.5),
    )
    # ROC (0,0)-(.5,1)-(1,1); precision is 2/3 throughout; .75 of what is accepted is correct.
    assert found.auroc == pytest.approx(0.75) and found.aupr == pytest.approx(2 / 3)
    assert found.oscr_accepted == pytest.approx(0.75)
    assert found.oscr_all == pytest.approx(0.75 * 0.75)
    assert found.risk_at_tpr_fpr == pytest.approx(0.25)


def test_samples_follow_the_example(problem):
    sample = CORRECTED.sample(200_001, 3)
    assert (sample.n_id, sample.n_ood) == (150_001, 50_000)
    error = problem.p_marginal @ problem.conditional_risk()
    assert sample.id_loss.mean() == pytest.approx(error, abs=0.005)
    # The scores are calibrated: r is the chance of a loss, g the ratio of the densities.
    assert sample.id_scores[:, 0].mean() == pytest.approx(error, abs=0.005)
    assert sample.id_scores[:, 1].mean() == pytest.approx(1.0, abs=0.02)
    risky = sample.id_scores[:, 0] > 0.3
    assert sample.id_loss[risky].mean() == pytest.approx(
        sample.id_scores[risky, 0].mean(), abs=0.01
    )
    mean_g = problem.p_ood @ problem.likelihood_ratio()
    assert sample.ood_scores[:, 1].mean() == pytest.approx(mean_g, rel=0.01)
    assert (CORRECTED.sample(50, 1).id_scores == CORRECTED.sample(50, 1).id_scores).all()
