"""Certificates of fixed rules: exact coverage by enumerating all outcomes."""

from math import comb

import numpy as np
import pytest

import demur as dm
from demur.guarantees import certify
from demur.guarantees.intervals import mean_lower, mean_upper, rate_lower, rate_upper, sidak

RULE = dm.Rule((1.0,), 0.5)


def outcome(n_id, n_ood, accepted_id, errors, accepted_ood):
    """A sample in which RULE accepts so many rows, with so many errors among the ID ones."""
    loss = np.zeros(n_id)
    loss[:errors] = 1
    return dm.Sample(
        np.where(np.arange(n_id) < accepted_id, 0.0, 1.0),
        loss,
        ood_scores=np.where(np.arange(n_ood) < accepted_ood, 0.0, 1.0),
    )


def binomial(k, n, p):
    return comb(n, k) * p**k * (1 - p) ** (n - k)


@pytest.mark.parametrize("sides", ["one", "two"])
def test_all_bounds_hold_together_with_the_stated_probability(sides):
    n_id, n_ood, confidence = 7, 5, 0.7
    model = dm.CostModel(reject_id=0.4, accept_ood=1, reject_ood=0.1, ood_prior=0.3)
    promises = {
        (k, e, o): certify(
            RULE, outcome(n_id, n_ood, k, e, o), confidence=confidence, model=model, sides=sides
        )
        for k in range(n_id + 1)
        for e in range(k + 1)
        for o in range(n_ood + 1)
    }
    for tpr in (0.15, 0.5, 0.83, 0.97):
        for risk in (0.05, 0.3, 0.6):
            for fpr in (0.04, 0.33, 0.8):
                precision = 0.7 * tpr / (0.7 * tpr + 0.3 * fpr)
                id_cost = tpr * risk + 0.4 * (1 - tpr)
                cost = 0.7 * id_cost + 0.3 * (fpr + 0.1 * (1 - fpr))
                failed = 0.0
                for (k, e, o), promise in promises.items():
                    holds = (
                        tpr in promise.tpr and fpr in promise.fpr and risk in promise.selective_risk
                    )
                    if holds:
                        assert precision in promise.precision
                        low, high = promise.expected_cost.low, promise.expected_cost.high
                        assert low - 1e-12 <= cost <= high + 1e-12
                    else:
                        failed += (
                            binomial(k, n_id, tpr) * binomial(e, k, risk) * binomial(o, n_ood, fpr)
                        )
                assert failed <= 1 - confidence


def test_each_bound_gets_its_share_of_the_level():
    promise = certify(RULE, outcome(50, 40, 30, 4, 3), confidence=0.9)
    level = sidak(0.1, 3)
    assert promise.tpr.low == rate_lower(30, 50, level)
    assert promise.fpr.high == rate_upper(3, 40, level)
    assert promise.selective_risk.high == rate_upper(4, 30, level)
    assert (promise.tpr.high, promise.fpr.low, promise.selective_risk.low) == (1, 0, 0)
    assert promise.precision is None
    assert promise.expected_cost is None
    two = certify(RULE, outcome(50, 40, 30, 4, 3), confidence=0.9, sides="two")
    assert two.tpr.high == rate_upper(30, 50, level / 2)
    assert two.selective_risk.low == rate_lower(4, 30, level / 2)
    no_ood = certify(RULE, dm.Sample([0, 0, 1], [0, 1, 1]), confidence=0.9)
    assert no_ood.tpr.low == rate_lower(2, 3, sidak(0.1, 2))
    assert (no_ood.fpr.low, no_ood.fpr.high) == (0, 1)


def test_model_bounds_are_checked():
    sample = outcome(200, 200, 180, 5, 6)
    promise = certify(RULE, sample, model=dm.TprFprModel(0.8, 0.05))
    assert promise.met == {"tpr >= 0.8": True, "fpr <= 0.05": False}
    assert not promise.holds
    promise = certify(RULE, sample, model=dm.PrecisionRecallModel(0.9, 0.8, 0.25))
    assert promise.met == {"recall >= 0.8": True, "precision >= 0.9": True}
    assert promise.holds
    low, high = promise.tpr.low, promise.fpr.high
    assert promise.precision.low == pytest.approx(0.75 * low / (0.75 * low + 0.25 * high))


def test_a_prior_interval_is_the_worst_of_its_priors():
    sample = outcome(200, 200, 180, 5, 6)
    model = dm.CostModel(0.2, 1, 0, ood_prior=0.25)
    wide = certify(RULE, sample, model=model, ood_prior=(0.1, 0.6))
    points = [certify(RULE, sample, model=model, ood_prior=p) for p in np.linspace(0.1, 0.6, 11)]
    assert wide.precision.low == pytest.approx(min(p.precision.low for p in points))
    assert wide.expected_cost.high == pytest.approx(max(p.expected_cost.high for p in points))
    assert points[3].point.precision == pytest.approx(0.75 * 0.9 / (0.75 * 0.9 + 0.25 * 0.03))


def test_bounded_losses_use_the_accepted_rows_in_shuffled_order():
    rng = np.random.default_rng(3)
    scores, loss = rng.random(80), 5 * rng.beta(1, 4, 80)
    sample = dm.Sample(scores, loss, ood_scores=rng.random(20))
    promise = certify(RULE, sample, max_loss=5, sides="two", rng=7)
    shuffled = np.random.default_rng(7).permutation(loss[scores <= 0.5])
    level = sidak(0.05, 3) / 2
    assert promise.selective_risk.high == mean_upper(shuffled, level, max_value=5)
    assert promise.selective_risk.low == mean_lower(shuffled, level, max_value=5)


def test_a_rule_that_accepts_nothing_costs_what_rejection_costs():
    model = dm.CostModel(reject_id=0.3, accept_ood=2, reject_ood=0.5, ood_prior=0.25)
    promise = certify(dm.Rule((1.0,), -np.inf), outcome(9, 9, 5, 1, 2), model=model)
    assert promise.expected_cost.high == promise.expected_cost.low == pytest.approx(0.35)
    assert promise.tpr.high == promise.fpr.high == 0
    assert np.isnan(promise.selective_risk.high)
    assert np.isnan(promise.precision.low)


def test_no_accepted_row_leaves_the_trivial_risk_bound():
    assert certify(RULE, outcome(5, 5, 0, 0, 0)).selective_risk.high == 1


def test_what_cannot_be_certified_is_refused():
    weighted = dm.Sample([0, 1], [0, 1], ood_scores=[1], id_weight=[1, 2])
    with pytest.raises(dm.InvalidInputError, match="independent rows"):
        certify(RULE, weighted)
    graded = dm.Sample([0, 1], [0, 0.5], ood_scores=[1])
    with pytest.raises(dm.InvalidInputError, match=r"id_loss\[1\] is 0.5: .* declare max_loss"):
        certify(RULE, graded)
    with pytest.raises(dm.InvalidInputError, match=r"above the declared max_loss 0\.25"):
        certify(RULE, graded, max_loss=0.25)
    with pytest.raises(dm.InvalidInputError, match="no OOD rows"):
        certify(RULE, dm.Sample([0, 1], [0, 1]), ood_prior=0.2)
    with pytest.raises(dm.InvalidInputError, match="random on its boundary"):
        certify(dm.Rule((1.0,), 0.5, tau=0.5), outcome(5, 5, 1, 1, 1))
    with pytest.raises(dm.InvalidInputError, match="sides"):
        certify(RULE, outcome(5, 5, 1, 1, 1), sides="both")
    with pytest.raises(dm.InvalidInputError, match="ood_prior"):
        certify(RULE, outcome(5, 5, 1, 1, 1), ood_prior=(0.5, 0.2))


def test_any_bound_of_all_rows_is_checked_and_parts_are_refused():
    sample = dm.Sample(np.linspace(0, 1, 200), np.zeros(200), ood_scores=np.linspace(0.7, 2, 100))
    rule = dm.Rule((1.0,), 0.9)
    risk, pure = dm.Bound("selective_risk", at_most=0.03), dm.Bound("precision", at_least=0.99)
    promise = certify(rule, sample, model=dm.RejectionModel("tpr", [risk, pure], 0.2))
    assert promise.met == {
        "selective_risk <= 0.03": promise.selective_risk.high <= 0.03,
        "precision >= 0.99": promise.precision.low >= 0.99,
    }
    assert list(promise.met.values()) == [True, False]
    one_set = dm.RejectionModel("tpr", [dm.Bound("fpr", at_most=0.3, ood_set="each")])
    assert certify(rule, sample, model=one_set).holds
    several = dm.Sample([0, 1], [0, 0], ood_scores={"a": [1], "b": [2]})
    with pytest.raises(dm.InvalidInputError, match="of all OOD rows, not Bound"):
        certify(rule, several, model=one_set)
    rare = dm.RejectionModel("selective_risk", [dm.Bound("tpr", at_least=0.8, group="rare")])
    with pytest.raises(dm.InvalidInputError, match="of all OOD rows, not Bound"):
        certify(rule, sample, model=rare)
