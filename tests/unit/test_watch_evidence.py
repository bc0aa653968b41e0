"""Evidence from counts: against integrals, exact martingales and plain loops."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from demur.watch.evidence import (
    above,
    audited_share,
    below,
    mean_above,
    mean_below,
    mean_sequence,
    outside,
    share_sequence,
)


def by_integral(k, n, p0):
    b = max(1.0, 1 / p0 - 1)
    weight = lambda p: b * (1 - p) ** (b - 1) / (1 - p0) ** b  # noqa: E731
    ratio = lambda p: (p / p0) ** k * ((1 - p) / (1 - p0)) ** (n - k)  # noqa: E731
    return quad(lambda p: weight(p) * ratio(p), p0, 1, limit=200, points=[min(0.99, k / n + 0.01)])[
        0
    ]


@pytest.mark.parametrize(
    ("k", "n", "p0"), [(0, 5, 0.1), (3, 20, 0.06), (30, 250, 0.06), (9, 10, 0.7)]
)
def test_evidence_is_the_weighted_mean_of_likelihood_ratios(k, n, p0):
    assert math.exp(above(k, n, p0)) == pytest.approx(by_integral(k, n, p0), rel=1e-5)
    assert below(n - k, n, 1 - p0) == pytest.approx(float(above(k, n, p0)))


@pytest.mark.parametrize("p0", [0.01, 0.06, 0.5, 0.9])
@pytest.mark.parametrize("p", [1.0, 0.8])
def test_evidence_is_a_supermartingale_and_starts_at_one(p0, p):
    n = np.arange(0, 40)[:, None]
    k = np.arange(0, 40)[None, :]
    with np.errstate(invalid="ignore"):
        now, hit, miss = (np.exp(above(*kn, p0)) for kn in ((k, n), (k + 1, n + 1), (k, n + 1)))
    share = p * p0
    expected = share * hit + (1 - share) * miss
    real = k <= n
    assert np.exp(above(0, 0, p0)) == pytest.approx(1)
    if p == 1:
        assert expected[real] == pytest.approx(now[real])
    assert (expected[real] <= now[real] * (1 + 1e-9)).all()


def test_shares_at_the_ends():
    assert above(1, 5, 0.0) == np.inf
    assert above(0, 5, 0.0) < 0
    assert above(5, 5, 1.0) == 0
    assert below(4, 5, 1.0) == np.inf
    assert outside(3, 5, 0.0, 1.0) == 0
    assert outside(3, 5, 0.0, 0.2) == above(3, 5, 0.2)
    mean = (math.exp(above(3, 5, 0.9)) + math.exp(below(3, 5, 0.5))) / 2
    assert math.exp(outside(3, 5, 0.5, 0.9)) == pytest.approx(mean)


@pytest.mark.parametrize("seed", range(20))
def test_graded_evidence_is_at_most_that_of_the_bets_themselves(seed):
    rng = np.random.default_rng(seed)
    m, n = rng.uniform(0.02, 0.9), int(rng.integers(1, 200))
    values = rng.choice([0, 1], n) if seed % 3 == 0 else rng.beta(*rng.uniform(0.2, 3, 2), n)
    sums = [n, values.sum(), (values**2).sum()]
    bets = 0.95 * (0.25 * m) ** np.linspace(1, 0, 12) / m
    capital = np.mean([np.prod(1 + bet * (values - m)) for bet in bets])
    assert math.exp(mean_above(sums, m)) <= capital * (1 + 1e-9)
    mirrored = [n, (1 - values).sum(), ((1 - values) ** 2).sum()]
    assert mean_below(sums, m) == pytest.approx(float(mean_above(mirrored, 1 - m)))


def test_sequences_hold_what_was_seen_and_are_where_evidence_crosses():
    k, n = np.array([0, 3, 30, 250]), np.array([10, 50, 300, 250])
    low, high = share_sequence(k, n, 0.05, around=0.06)
    assert (low <= k / n).all()
    assert (k / n <= high).all()
    assert low[0] == 0
    assert high[3] == 1
    for i in (1, 2):
        assert above(k[i], n[i], low[i], around=0.06) == pytest.approx(math.log(40), abs=1e-4)
        assert below(k[i], n[i], high[i], around=0.06) == pytest.approx(math.log(40), abs=1e-4)
    low, high = mean_sequence([100, 20.0, 6.0], 0.05)
    assert low < 0.2 < high


def test_audit_rates_transform_there_and_back():
    shares = np.linspace(0, 1, 11)
    there = audited_share(shares, (0.1, 0.5))
    assert there[5] == pytest.approx(0.1 / 0.6)
    assert audited_share(there, (0.5, 0.1)) == pytest.approx(shares)
    assert audited_share(shares, (0.3, 0.3)) == pytest.approx(shares)


def test_false_alarms_are_rare_however_often_one_looks():
    rng = np.random.default_rng(0)
    k = (rng.random((400, 3000)) < 0.06).cumsum(axis=1)[:, 9::10]
    n = np.arange(10, 3001, 10)
    ever = (above(k, n, 0.06) >= math.log(20)).any(axis=1).mean()
    assert ever <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    low, high = share_sequence(k[:100, ::30], n[::30], 0.05, around=0.06)
    assert ((low > 0.06) | (high < 0.06)).any(axis=1).mean() <= 0.05 + 3 * math.sqrt(0.05 / 100)
    found = (rng.random((400, 3000)) < 0.12).cumsum(axis=1)[:, 9::10]
    hit = above(found, n, 0.06) >= math.log(20)
    assert np.median(hit.argmax(axis=1) * 10 + 10) <= 260
