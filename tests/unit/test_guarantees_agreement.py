"""Bounds and tests against SciPy, statsmodels and MAPIE, where they compute the same quantity."""

import numpy as np
import pytest
from scipy import stats

import demur as dm
from demur.guarantees import auroc_interval, clopper_pearson, plan, tune_certified
from demur.guarantees.intervals import (
    fewest_for,
    hoeffding_bentkus,
    most_for,
    rate_lower,
    rate_upper,
    sidak,
)


def test_clopper_pearson_for_all_counts():
    proportion = pytest.importorskip("statsmodels.stats.proportion", reason="needs statsmodels")
    for trials, confidence in ((1, 0.95), (13, 0.9), (60, 0.99), (1000, 0.95)):
        for successes in {0, 1, trials // 3, trials - 1, trials}:
            mine = clopper_pearson(successes, trials, confidence=confidence)
            theirs = proportion.proportion_confint(
                successes, trials, alpha=1 - confidence, method="beta"
            )
            assert (mine.low, mine.high) == pytest.approx(theirs, rel=1e-9, abs=1e-12)


def test_proofs_are_one_sided_binomial_tests():
    for trials, share, delta in ((40, 0.8, 0.05), (200, 0.65, 0.01), (7, 0.5, 0.1)):
        p_least = [
            stats.binomtest(k, trials, share, alternative="greater").pvalue
            for k in range(trials + 1)
        ]
        p_most = [
            stats.binomtest(k, trials, share, alternative="less").pvalue for k in range(trials + 1)
        ]
        for k in range(trials + 1):
            assert (rate_lower(k, trials, delta) >= share) == (p_least[k] <= delta)
            assert (rate_upper(k, trials, delta) <= share) == (p_most[k] <= delta)
        proving = [k for k, p in enumerate(p_least) if p <= delta]
        assert fewest_for(share, trials, delta) == (proving[0] if proving else None)
        proving = [k for k, p in enumerate(p_most) if p <= delta]
        assert most_for(share, trials, delta) == (proving[-1] if proving else None)


def test_power_is_that_of_the_binomial_test():
    planned = plan(dm.TprFprModel(0.7, 0.3), margins=[0.1])
    level = sidak(0.05, 3)
    for point in planned.curve[::3]:
        p_values = stats.binom.sf(np.arange(point.rows + 1) - 1, point.rows, 0.7)
        chance = stats.binom.pmf(np.arange(point.rows + 1), point.rows, 0.8)
        assert point.tpr_power == pytest.approx(chance[p_values <= level].sum(), abs=1e-9)


def test_shared_levels_are_those_of_sidak():
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="needs statsmodels")
    for bounds in (2, 3, 5):
        *_, each, _ = multitest.multipletests([0.5] * bounds, alpha=0.05, method="sidak")
        assert sidak(0.05, bounds) == pytest.approx(each)


def mapie_p_value(mean, n, bound, *, binary=False):
    methods = pytest.importorskip("mapie.risk_control.methods", reason="needs mapie")
    found = methods.compute_hoeffding_bentkus_p_value(
        np.array([mean]), n, np.array([bound]), binary=binary
    )
    return float(np.ravel(found)[0])


def test_hoeffding_bentkus_is_that_of_mapie_everywhere():
    for n in (5, 40, 333):
        for mean in (0.0, 0.02, 0.111, 0.25, 0.6):
            for bound in (0.05, 0.2, 0.5, 0.9):
                mine = hoeffding_bentkus(mean, n, bound)
                assert mine == pytest.approx(min(1.0, mapie_p_value(mean, n, bound)), rel=1e-6)


def test_the_bound_under_zero_one_loss_is_that_of_mapie():
    # MAPIE takes the smaller of Hoeffding's and the exact binomial p-value.
    # Counts out of powers of two: it takes ceil(100 * 0.07) for 8.
    for n, errors in ((32, 2), (128, 7), (256, 0)):
        upper = rate_upper(errors, n, 0.05)
        assert mapie_p_value(errors / n, n, upper + 1e-6, binary=True) <= 0.05
        assert mapie_p_value(errors / n, n, upper - 1e-4, binary=True) > 0.05


def test_candidates_are_proven_as_by_fixed_sequence_testing():
    fwer = pytest.importorskip("mapie.risk_control.fwer_control", reason="needs mapie")
    rng = np.random.default_rng(4)
    scores, foreign = rng.normal(0, 1, 1500), rng.normal(2.5, 1, 1500)
    sample = dm.Sample(scores, rng.random(1500) < 0.1, ood_scores=foreign)
    seen = set()
    for max_fpr in (0.1, 0.12, 0.2):
        model = dm.RejectionModel("tpr", dm.TprFprModel(0.8, max_fpr).bounds)
        found = tune_certified(sample, model, rng=0)
        p_values = []
        for candidate in found.candidates:
            point, sizes = candidate.tested, found.sizes
            tpr = stats.binomtest(int(point.accepted_id), sizes.test_id, 0.8, "greater").pvalue
            fpr = stats.binomtest(int(point.accepted_ood), sizes.test_ood, max_fpr, "less").pvalue
            # All bounds are claimed, so the weakest evidence counts.
            p_values.append(max(tpr, fpr))
        assert found.method == "path"
        proven = fwer.FWERFixedSequenceTesting().run(np.array(p_values), 0.04)
        mine = [i for i, candidate in enumerate(found.candidates) if candidate.proven]
        assert mine == sorted(int(i) for i in np.ravel(proven))
        seen.add((len(mine), len(found.candidates)))
    # Tests stopped on the way.
    assert any(0 < done < of for done, of in seen)


def test_tolerance_limits_are_those_of_order_statistics():
    # The level at which the k-th of n rows is a lower limit: F(k-th) is Beta(k, n - k + 1).
    for share, n, delta in ((0.7, 240, 0.02), (0.95, 400, 0.01), (0.5, 30, 0.1)):
        k = fewest_for(share, n, delta)
        assert (
            stats.beta.cdf(share, k, n - k + 1) <= delta < stats.beta.cdf(share, k - 1, n - k + 2)
        )
        assert stats.binom.sf(k - 1, n, share) <= delta < stats.binom.sf(k - 2, n, share)


def test_directions_are_proven_as_by_fixed_sequence_testing():
    fwer = pytest.importorskip("mapie.risk_control.fwer_control", reason="needs mapie")
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(600, 2))
    wrong = rng.random(600) < 0.4 / (1 + np.exp(1 - scores[:, 0]))
    sample = dm.Sample(scores, wrong, ood_scores=rng.normal([0.5, 2], 1, (600, 2)))
    found = tune_certified(sample, dm.TprFprModel(0.7, 0.2), rng=0)
    assert found.method == "tolerance limits"
    p_values = [
        stats.binomtest(int(c.tested.accepted_ood), found.sizes.test_ood, 0.2, "less").pvalue
        for c in found.candidates
    ]
    proven = fwer.FWERFixedSequenceTesting().run(np.array(p_values), 0.3 * 0.05)
    mine = [i for i, candidate in enumerate(found.candidates) if candidate.proven]
    assert mine == sorted(int(i) for i in np.ravel(proven))
    assert 0 < len(mine) < len(found.candidates)


def test_the_error_of_auroc_is_that_behind_brunner_and_munzel():
    # Their statistic is (AUROC - 1/2) over DeLong's standard error; ties count half in both.
    rng = np.random.default_rng(1)
    for n_id, n_ood in ((12, 9), (60, 200)):
        x, y = rng.integers(0, 9, n_id), rng.integers(2, 12, n_ood)
        found = auroc_interval(dm.Sample(x, np.zeros(n_id), ood_scores=y))
        statistic = stats.brunnermunzel(x, y).statistic
        assert (found.auroc - 0.5) / found.standard_error == pytest.approx(statistic)
