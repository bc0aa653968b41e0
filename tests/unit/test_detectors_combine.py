import math

import numpy as np
import pytest

import demur as dm
from demur import detectors as dt


def test_sirc_is_the_published_formula_in_confidences():
    rng = np.random.default_rng(0)
    train, risk, foreign = rng.normal(size=200) + 4, rng.uniform(size=50), rng.normal(size=50) * 9
    confidence = [-x for x in train.tolist()]  # s2; s1 = 1 - risk has the maximum 1
    mean = sum(confidence) / 200
    deviation = math.sqrt(sum((c - mean) ** 2 for c in confidence) / 200)
    a, b = mean - 3 * deviation, 1 / deviation
    published = [
        -math.log(1 - (1 - r)) - math.log(1 + math.exp(-b * (-g - a)))
        for r, g in zip(risk.tolist(), foreign.tolist(), strict=True)
    ]
    score = dt.Sirc().fit(train).score(risk, foreign)
    # Published as a confidence: -log(s1max - s1) falls when the risk grows.
    assert score == pytest.approx(-np.array(published), rel=1e-12)


def test_sirc_follows_the_risk_until_the_ood_score_is_extreme():
    sirc = dt.Sirc().fit([-1.0, 1.0])
    low, high = sirc.score([0.1, 0.2], [-5.0, -5.0])
    assert high - low == pytest.approx(math.log(2), rel=1e-12)
    assert sirc.score([0.1], [30.0])[0] - sirc.score([0.1], [20.0])[0] == pytest.approx(10)


def test_sirc_with_vanished_risk_and_infinite_scores():
    sirc = dt.Sirc().fit([0.0, 1.0])
    score = sirc.score([0.0, 1e-300, np.inf, 0.0], [0.0, 0.0, 0.0, np.inf])
    assert np.isfinite(score[:2]).all()
    assert score[0] < score[1]
    assert np.isposinf(score[2:]).all()
    dm.Sample(score, np.zeros(4))  # a legal score


def test_plug_in_rule_minimises_the_expected_cost_of_each_input():
    rng = np.random.default_rng(1)
    risk, ratio = rng.uniform(size=500), rng.exponential(size=500)
    for reject_id, accept_ood in [(0.2, 0.3), (0.0, 0.5), (0.5, 0.0), (0.4, 0.6)]:
        score = dt.plug_in(risk, ratio, reject_id=reject_id, accept_ood=accept_ood)
        for s, r, g in zip(score.tolist(), risk.tolist(), ratio.tolist(), strict=True):
            accepting = (1 - reject_id - accept_ood) * r + accept_ood * g
            assert (s > reject_id) == (accepting > reject_id)
        # The same rule in the paper's form, with the confidence and -g.
        threshold = 1 - 2 * reject_id - accept_ood
        paper = (1 - reject_id - accept_ood) * (1 - risk) - accept_ood * ratio < threshold
        clear = np.abs(score - reject_id) > 1e-12
        assert np.array_equal(paper[clear], (score > reject_id)[clear])


def test_plug_in_passes_infinite_scores_on():
    assert np.isposinf(dt.plug_in([0.1], [np.inf], reject_id=0.1, accept_ood=0.0))
    assert np.isposinf(dt.plug_in([np.inf], [1.0], reject_id=0.5, accept_ood=0.5))


def test_the_learned_ratio_is_the_true_one_where_it_is_log_linear():
    rng = np.random.default_rng(2)
    # N(0, 1) against N(1, 1): log p_OOD / p_ID = s - 1/2, whatever the sample sizes.
    rule = dt.PlugIn(0.2, 0.3).fit(rng.normal(size=40_000), rng.normal(size=10_000) + 1)
    grid = np.linspace(-2, 3, 11)
    assert np.log(rule.likelihood_ratio(grid)) == pytest.approx(grid - 0.5, abs=0.08)


def test_the_learned_ratio_is_the_maximum_of_the_smoothed_likelihood():
    rng = np.random.default_rng(3)
    ids, oods = rng.normal(size=30), rng.normal(size=20) * 2 + 1
    rule = dt.PlugIn(0.2, 0.3).fit(ids, oods)
    intercept, slope = rule._state

    def loss(a, b):
        total = 0.0
        for scores, target in ((ids, 1 / 32), (oods, 21 / 22)):
            for s in scores.tolist():
                f = a + b * s
                total += (math.log1p(math.exp(f)) - target * f) / len(scores)
        return total

    best = loss(intercept, slope)
    for da, db in [(1e-3, 0), (-1e-3, 0), (0, 1e-3), (0, -1e-3), (1e-3, -1e-3), (-1e-3, 1e-3)]:
        assert loss(intercept + da, slope + db) > best


def test_scaling_the_score_leaves_the_rule_alone():
    rng = np.random.default_rng(4)
    ids, oods, risk = rng.normal(size=50), rng.normal(size=40) + 1, rng.uniform(size=50)
    plain = dt.PlugIn(0.2, 0.3).fit(ids, oods).score(risk, ids)
    moved = dt.PlugIn(0.2, 0.3).fit(1e6 * ids - 5, 1e6 * oods - 5).score(risk, 1e6 * ids - 5)
    assert moved == pytest.approx(plain, rel=1e-8)


def test_separable_constant_and_far_scores_stay_finite():
    separable = dt.PlugIn(0.2, 0.3).fit([0.0, 1.0], [100.0, 101.0])
    assert np.isfinite(separable.score([0.1, 0.1], [-1e9, 1e9])).all()
    assert dt.PlugIn(0.2, 0.3).fit([1.0], [1.0]).likelihood_ratio([1.0, 7.0]).tolist() == [1, 1]
    assert np.isposinf(separable.likelihood_ratio([np.inf]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dt.Sirc().fit([1.0, 1.0]), "two different values"),
        (lambda: dt.Sirc().fit([]), "two different values"),
        (lambda: dt.Sirc().fit([1.0, np.inf]), r"id_ood_score\[1\] is infinite"),
        (lambda: dt.Sirc().fit([0.0, 1.0]).score([-0.1], [1.0]), r"risk_score\[0\] is negative"),
        (lambda: dt.Sirc().fit([0.0, 1.0]).score([0.1], [1.0, 2.0]), "ood_score has 2 rows"),
        (lambda: dt.PlugIn(0.7, 0.4), "at most 1"),
        (lambda: dt.PlugIn(-0.1, 0.4), "reject_id must be a non-negative number"),
        (lambda: dt.PlugIn(0.1, np.nan), "accept_ood must be a non-negative number"),
        (lambda: dt.PlugIn(0.1, 0.4).fit([], [1.0]), "at least one ID and one OOD score"),
        (lambda: dt.plug_in([0.1], [-1.0], reject_id=0, accept_ood=1), "likelihood_ratio.*neg"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        call()


def test_unfitted():
    with pytest.raises(dm.NotTunedError, match="Sirc is not fitted"):
        dt.Sirc().score([0.1], [0.1])
    with pytest.raises(dm.NotTunedError, match="PlugIn is not fitted"):
        dt.PlugIn(0.1, 0.1).score([0.1], [0.1])
