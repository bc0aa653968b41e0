"""Exact binomial bounds and bounds for means, against enumeration and published numbers."""

from fractions import Fraction
from itertools import product
from math import comb, log

import numpy as np
import pytest
from scipy import stats

from demur.errors import InvalidInputError
from demur.guarantees import Interval, clopper_pearson, mean_lower, mean_upper
from demur.guarantees.intervals import (
    fewest_for,
    hoeffding_bentkus,
    miss,
    most_for,
    rate_lower,
    rate_upper,
    sidak,
)


def at_least(k, n, p):
    """P(Bin(n, p) >= k) in exact arithmetic."""
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize(
    ("successes", "trials", "confidence", "low", "high"),
    [
        # statsmodels 0.15, proportion_confint(method="beta").
        (8, 10, 0.95, 0.4439045376923585, 0.9747892736731666),
        (0, 30, 0.90, 0.0, 0.09503385285530414),
        (437, 500, 0.98, 0.8354718135580286, 0.9064284721062551),
    ],
)
def test_clopper_pearson_is_that_of_statsmodels(successes, trials, confidence, low, high):
    interval = clopper_pearson(successes, trials, confidence=confidence)
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))
    scipy = stats.binomtest(successes, trials).proportion_ci(confidence, "exact")
    assert interval.low == pytest.approx(scipy.low)
    assert interval.high == pytest.approx(scipy.high)


def test_the_ends_are_where_the_tail_has_the_level():
    for n, k in ((1, 1), (7, 3), (40, 39), (40, 1)):
        low, high = rate_lower(k, n, 0.02), rate_upper(k, n, 0.02)
        assert float(at_least(k, n, Fraction(low))) == pytest.approx(0.02)
        if k < n:
            assert float(1 - at_least(k + 1, n, Fraction(high))) == pytest.approx(0.02)
    assert (rate_lower(0, 5, 0.1), rate_upper(5, 5, 0.1)) == (0, 1)
    assert (rate_lower(0, 0, 0.1), rate_upper(0, 0, 0.1)) == (0, 1)


def test_one_sided_bounds_fail_with_at_most_their_level_at_every_rate():
    n, delta = 23, 0.04
    lower = [rate_lower(k, n, delta) for k in range(n + 1)]
    upper = [rate_upper(k, n, delta) for k in range(n + 1)]
    for p in np.linspace(0.001, 0.999, 500):
        chance = stats.binom.pmf(np.arange(n + 1), n, p)
        assert chance[np.array(lower) > p].sum() <= delta + 1e-12
        assert chance[np.array(upper) < p].sum() <= delta + 1e-12


def test_the_counts_that_prove_a_share():
    for n, share, delta in product((1, 5, 30, 77), (0.1, 0.5, 0.8, 0.97), (0.3, 0.05, 0.001)):
        proving = [k for k in range(n + 1) if rate_lower(k, n, delta) >= share]
        assert fewest_for(share, n, delta) == (proving[0] if proving else None)
        proving = [k for k in range(n + 1) if rate_upper(k, n, delta) <= share]
        assert most_for(share, n, delta) == (proving[-1] if proving else None)


def test_levels_and_checks():
    assert sidak(0.05, 1) == pytest.approx(0.05)
    assert (1 - sidak(0.05, 3)) ** 3 == pytest.approx(0.95)
    assert miss(0.95) == 0.05
    assert 0.5 in Interval(0.5, 0.5)
    assert 0.6 not in Interval(0.1, 0.5)
    for confidence in (0, 1, -1, 95):
        with pytest.raises(InvalidInputError, match="confidence"):
            clopper_pearson(1, 2, confidence=confidence)
    with pytest.raises(InvalidInputError, match="successes"):
        clopper_pearson(3, 2)


@pytest.mark.parametrize(
    ("mean", "n", "bound", "p_value"),
    [
        # MAPIE 1.6, compute_hoeffding_bentkus_p_value.
        (0.1, 100, 0.2, 1.54843688e-02),
        (0.05, 100, 0.2, 5.07776848e-05),
        (0.3, 100, 0.2, 1.0),
        (0.123, 57, 0.2, 0.30560134),
        (0.123, 57, 0.3, 0.00661868),
    ],
)
def test_hoeffding_bentkus_is_that_of_mapie(mean, n, bound, p_value):
    assert hoeffding_bentkus(mean, n, bound) == pytest.approx(p_value, rel=1e-6)


def test_hoeffding_bentkus_bound_inverts_the_p_value():
    values = np.linspace(0, 0.4, 60)
    bound = mean_upper(values, 0.03, method="hoeffding_bentkus")
    assert hoeffding_bentkus(values.mean(), 60, bound + 1e-9) <= 0.03
    assert hoeffding_bentkus(values.mean(), 60, bound - 1e-9) > 0.03


def capital(values, m, delta):
    """The gambler's largest capital on the way, one value at a time."""
    n, total, squares, stake = len(values), 0.5, 0.25, 1.0
    variance, best = 0.25, 0.0
    for t, x in enumerate(values, start=1):
        bet = min((2 * log(1 / delta) / (n * variance)) ** 0.5, 0.75 / (1 - m))
        stake *= 1 + bet * (m - x)
        best = max(best, stake)
        total += x
        squares += (x - total / (t + 1)) ** 2
        variance = squares / (t + 1)
    return best


def test_betting_bound_is_where_the_capital_reaches_one_over_delta():
    rng = np.random.default_rng(0)
    for n, delta in ((1, 0.5), (12, 0.1), (80, 0.01)):
        values = rng.beta(1, 5, n)
        bound = mean_upper(values, delta)
        assert capital(values, bound + 1e-9, delta) >= 1 / delta
        assert capital(values, bound - 1e-9, delta) < 1 / delta


@pytest.mark.parametrize("method", ["betting", "hoeffding_bentkus"])
def test_mean_bounds_hold_in_every_small_world(method):
    # All sequences of three values, so the probability of a failure is exact.
    support, n, delta = np.array([0.0, 0.4, 1.0]), 6, 0.2
    sequences = np.array(list(product(range(3), repeat=n)))
    upper = np.array([mean_upper(support[s], delta, method=method) for s in sequences])
    for chances in ([0.3, 0.5, 0.2], [0.5, 0.0, 0.5], [0.2, 0.3, 0.5], [0.65, 0.0, 0.35]):
        weight = np.array(chances)[sequences].prod(axis=1)
        mean = support @ chances
        assert weight.sum() == pytest.approx(1)
        assert 0 < weight[upper < mean].sum() <= delta


def test_mean_bounds_scale_mirror_and_check():
    values = np.random.default_rng(1).beta(2, 3, 50)
    assert mean_upper(10 * values, 0.05, max_value=10) == pytest.approx(
        10 * mean_upper(values, 0.05)
    )
    assert mean_lower(values, 0.05) == pytest.approx(1 - mean_upper(1 - values, 0.05))
    assert mean_lower(values, 0.05) < values.mean() < mean_upper(values, 0.05)
    assert mean_upper([], 0.05, max_value=3) == 3
    assert mean_upper(np.ones(5), 0.05) == 1
    with pytest.raises(InvalidInputError, match=r"values\[1\] is 2.0, above the declared"):
        mean_upper([0, 2], 0.05)
    with pytest.raises(InvalidInputError, match="max_value"):
        mean_upper([0], 0.05, max_value=0)
    with pytest.raises(InvalidInputError, match="method"):
        mean_upper([0], 0.05, method="chernoff")


def test_betting_adapts_to_the_variance():
    calm = np.tile([0.09, 0.11], 250)
    assert mean_upper(calm, 0.05) < 0.11
    assert mean_upper(calm, 0.05, method="hoeffding_bentkus") > 0.12


@pytest.mark.parametrize("delta", [0, 1.5, -1, float("nan")])
def test_a_bound_needs_a_level_between_0_and_1(delta):
    with pytest.raises(InvalidInputError, match="delta must be between 0 and 1"):
        mean_upper([0.1, 0.2], delta)
