"""Certificates of fixed rules: exact coverage by enumerating all outcomes."""

from math import comb

import numpy as np
import pytest

import demur as dm
from demur.guarantees import certify, tune_certified
from demur.guarantees.intervals import (
    mean_lower,
    mean_upper,
    rate_lower,
    rate_upper,
    ratio_upper,
    sidak,
)

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


def test_any_bound_is_checked_and_unknown_parts_are_refused():
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
    rare = dm.RejectionModel("selective_risk", [dm.Bound("tpr", at_least=0.8, group="rare")])
    with pytest.raises(dm.InvalidInputError, match=r"called 'rare'; the rows have no groups"):
        certify(rule, sample, model=rare)
    grouped = dm.Sample([0, 1], [0, 1], ood_scores=[1], id_group=["a", "b"])
    with pytest.raises(dm.InvalidInputError, match=r"called 'rare'; there are \['a', 'b'\]"):
        certify(rule, grouped, model=rare)
    with pytest.raises(dm.InvalidInputError, match="no OOD set is called 'svhn'"):
        certify(
            rule,
            sample,
            model=dm.RejectionModel("tpr", [dm.Bound("fpr", at_most=1, ood_set="svhn")]),
        )


SETS = dm.Sample(
    np.linspace(0, 1, 300),
    np.zeros(300),
    ood_scores={"near": np.linspace(0.8, 2, 120), "far": np.linspace(2, 3, 80)},
)


def test_every_set_is_tested_at_the_level_of_one():
    rule = dm.Rule((1.0,), 0.9)
    each = dm.RejectionModel(
        "tpr",
        [dm.Bound("fpr", at_most=0.2, ood_set="each"), dm.Bound("tpr", at_least=0.8)],
    )
    promise = certify(rule, SETS, model=each)
    level = sidak(0.05, 3)
    accepted = int((SETS.ood_scores[:120] <= 0.9).sum())
    assert promise.worst
    assert promise.fpr.high == rate_upper(accepted, 120, level)
    assert promise.fpr_by_set["far"].high == rate_upper(0, 80, level)
    assert promise.met == {"tpr >= 0.8": True, "fpr <= 0.2 of every set": True}
    two = certify(rule, SETS, model=each, sides="two")
    assert two.fpr.high == rate_upper(accepted, 120, level / 2)
    assert two.fpr.low == rate_lower(accepted, 200, level / 2)
    # Pooled rows look better than the worst set.
    pooled = certify(rule, SETS, model=dm.TprFprModel(0.8, 0.2))
    assert pooled.fpr.high < promise.fpr.high and not pooled.worst
    both = dm.RejectionModel("tpr", [*each.bounds, dm.Bound("fpr", at_most=0.1, ood_set="far")])
    named = certify(rule, SETS, model=both)
    # One statement more, on the same rows: levels add up.
    assert named.fpr.high == rate_upper(accepted, 120, 0.05 / 4)
    assert named.met["fpr <= 0.1 of far"] == (rate_upper(0, 80, 0.05 / 4) <= 0.1)


PARTS = dm.RejectionModel(
    "selective_risk",
    [
        dm.Bound("tpr", at_least=0.4, group="a"),
        dm.Bound("tpr", at_least=0.3, group="b"),
        dm.Bound("selective_risk", at_most=0.6, group="a"),
        dm.Bound("fpr", at_most=0.5, ood_set="near"),
    ],
)


def parted(n, accepted, errors):
    """Groups a and b, sets near and far of `n` rows each: so many accepted, so many of them wrong.

    Errors are those of the groups.
    """
    scores = [np.where(np.arange(m) < k, 0.0, 1.0) for m, k in zip(n, accepted, strict=True)]
    loss = [np.arange(m) < e for m, e in zip(n[:2], errors, strict=True)]
    return dm.Sample(
        np.concatenate(scores[:2]),
        np.concatenate(loss).astype(float),
        {"near": scores[2], "far": scores[3]},
        id_group=np.repeat(["a", "b"], n[:2]),
    )


@pytest.mark.parametrize("sides", ["one", "two"])
def test_bounds_of_parts_share_the_level_of_one(sides):
    n, accepted, errors = (40, 30, 25, 20), (30, 24, 5, 1), (6, 2)
    sample = parted(n, accepted, errors)
    promise = certify(RULE, sample, model=PARTS, sides=sides)
    # TPR, FPR and risk of all rows, and one for all parts together.
    level = 0.05 / 4 / (1 if sides == "one" else 2)
    assert promise.tpr.low == rate_lower(54, 70, level)
    assert promise.fpr.high == rate_upper(6, 45, level)
    assert promise.tpr_by_group["a"].low == rate_lower(30, 40, level)
    assert promise.tpr_by_group["b"].low == rate_lower(24, 30, level)
    assert promise.selective_risk_by_group["a"].high == rate_upper(6, 30, level)
    assert promise.fpr_by_set["near"].high == rate_upper(5, 25, level)
    assert set(promise.selective_risk_by_group) == {"a"} and set(promise.fpr_by_set) == {"near"}
    assert promise.met == {
        "tpr >= 0.4 of a": True,
        "tpr >= 0.3 of b": True,
        "selective_risk <= 0.6 of a": True,
        "fpr <= 0.5 of near": True,
    }
    assert "one at a time" in promise.caveat
    one = dm.RejectionModel("tpr", PARTS.bounds[:1])
    assert "one at a time" not in certify(RULE, sample, model=one).caveat
    graded = dm.Sample(
        sample.id_scores, 2 * sample.id_loss, sample.ood_scores, id_group=sample.id_group
    )
    risk = dm.RejectionModel("tpr", PARTS.bounds[2:3])
    found = certify(RULE, graded, model=risk, max_loss=2).selective_risk_by_group["a"]
    shuffled = np.random.default_rng(0).permutation(2.0 * (np.arange(30) < 6))
    assert found.high == mean_upper(shuffled, 0.05 / 4, max_value=2)


def test_all_parts_are_claimed_as_rarely_as_stated_if_one_is_false():
    # Exactly, over all outcomes: one bound is false at a time, the others as true as can be.
    n, delta = (5, 4, 4, 1), 0.3
    promises = {
        (a, wrong, b, o): certify(
            RULE, parted(n, (a, b, o, 0), (wrong, 0)), confidence=1 - delta, model=PARTS
        ).holds
        for a in range(6)
        for wrong in range(a + 1)
        for b in range(5)
        for o in range(5)
    }
    claimed = set()
    for tpr_a, tpr_b, risk, fpr in (
        (0.39, 1.0, 0.0, 0.0),
        (1.0, 0.29, 0.0, 0.0),
        (1.0, 1.0, 0.61, 0.0),
        (1.0, 1.0, 0.0, 0.51),
        (0.39, 0.29, 0.61, 0.51),
    ):
        false = sum(
            holds
            * binomial(a, 5, tpr_a)
            * binomial(wrong, a, risk)
            * binomial(b, 4, tpr_b)
            * binomial(o, 4, fpr)
            for (a, wrong, b, o), holds in promises.items()
        )
        # Of the four statements that hold together the parts are one.
        assert false <= delta / 4
        claimed.add(false > 0)
    assert claimed == {True}


def test_parts_of_rows_that_share_an_id():
    rng = np.random.default_rng(0)
    ids = np.arange(100, 160).repeat(4)
    sample = dm.Sample(
        rng.normal(size=240),
        np.zeros(240),
        rng.normal(3, 1, 80),
        id_group=np.where(ids < 120, 0, 1),
    )
    model = dm.RejectionModel("tpr", [dm.Bound("tpr", at_least=0.1, group="0")])
    names = ids, np.arange(200, 280)
    mean = certify(RULE, sample, model=model, groups=names, per_id="mean")
    shares = (sample.id_scores[:80, 0] <= 0.5).reshape(20, 4).mean(axis=1)
    shuffled = np.random.default_rng(0).permutation(shares)
    assert mean.tpr_by_group["0"].low == mean_lower(shuffled, 0.05 / 4)
    drawn = certify(RULE, sample, model=model, groups=names, per_id="draw")
    assert any(drawn.tpr_by_group["0"].low == rate_lower(k, 20, 0.05 / 4) for k in range(21))
    mixed = dm.Sample(sample.id_scores, sample.id_loss, [3.0] * 80, id_group=np.arange(240) % 2)
    certify(RULE, mixed, model=model, groups=names, per_id="draw")
    with pytest.raises(dm.InvalidInputError, match="rows of several groups"):
        certify(RULE, mixed, model=model, groups=names, per_id="mean")


def test_a_rule_that_accepts_nothing_keeps_no_bound_of_a_group():
    promise = certify(dm.Rule((1.0,), -np.inf), parted((5,) * 4, (5,) * 4, (0, 0)), model=PARTS)
    assert promise.tpr_by_group["a"].high == 0 and np.isnan(
        promise.selective_risk_by_group["a"].high
    )
    assert [text for text, met in promise.met.items() if met] == ["fpr <= 0.5 of near"]


def test_a_set_without_rows_proves_nothing():
    sample = dm.Sample([0.1] * 50, [0] * 50, ood_scores={"a": [2.0] * 50, "b": []})
    each = dm.RejectionModel("tpr", [dm.Bound("fpr", at_most=0.5, ood_set="each")])
    assert not certify(dm.Rule((1.0,), 1), sample, model=each).holds


def test_the_worst_of_sets_is_missed_as_rarely_as_stated():
    # Exactly, over all counts of two sets: the bound is below the larger rate.
    n, m, level = 12, 9, 0.1
    for first, second in ((0.3, 0.3), (0.5, 0.2), (0.1, 0.6)):
        missed = 0.0
        for a in range(n + 1):
            for b in range(m + 1):
                chance = comb(n, a) * first**a * (1 - first) ** (n - a)
                chance *= comb(m, b) * second**b * (1 - second) ** (m - b)
                high = max(rate_upper(a, n, level), rate_upper(b, m, level))
                missed += chance * (high < max(first, second))
        assert missed <= level


def test_rows_of_one_id_are_refused_drawn_or_averaged():
    rng = np.random.default_rng(0)
    # Two digits each, so that texts sort like numbers.
    ids, foreign = np.repeat(np.arange(10, 50), 25), np.repeat(np.arange(50, 80), 20)
    sample = dm.Sample(
        rng.random(40).repeat(25), rng.random(1000) < 0.1, ood_scores=0.5 + rng.random(600)
    )
    rule, groups = dm.Rule((1.0,), 0.8), (ids, foreign)
    with pytest.raises(dm.InvalidInputError, match=r"1,600 rows have 70 ids: .*per_id=\"draw\""):
        certify(rule, sample, groups=groups)
    with pytest.raises(dm.InvalidInputError, match="per_id"):
        certify(rule, sample, groups=groups, per_id="some")
    drawn = certify(rule, sample, groups=groups, per_id="draw", rng=3)
    level = 0.05 / 3
    shares = sample.id_scores[::25, 0] <= 0.8
    assert drawn.tpr.low == rate_lower(int(shares.sum()), 40, level)
    means = certify(rule, sample, groups=groups, per_id="mean", rng=3)
    order = np.random.default_rng(3)
    assert means.tpr.low == mean_lower(order.permutation(shares.astype(float)), level)
    accepted = (sample.ood_scores[:, 0] <= 0.8).reshape(30, 20).mean(axis=1)
    shuffled = np.random.default_rng(3).permutation(accepted)
    assert means.fpr.high == pytest.approx(mean_upper(shuffled, level))
    for promise in (drawn, means):
        assert "Every id counts once" in promise.caveat
        assert promise.tpr.low < certify(rule, sample).tpr.low
    alone = certify(rule, sample, groups=(np.arange(1000), np.arange(1000, 1600)))
    assert alone == certify(rule, sample)
    # An id on both sides: the sides are not independent, and levels add up.
    shared = certify(rule, sample, groups=(np.arange(1000), np.arange(600)))
    assert shared.fpr.high == rate_upper(int((sample.ood_scores <= 0.8).sum()), 600, level)
    # An id in two OOD sets: a row drawn would represent neither.
    two = dm.Sample(
        sample.id_scores, sample.id_loss, {"a": np.linspace(0, 2, 300), "b": np.linspace(1, 2, 300)}
    )
    names = ids, np.tile(np.arange(50, 80), 20)
    with pytest.raises(dm.InvalidInputError, match="several OOD sets"):
        certify(rule, two, groups=names, per_id="draw")
    averaged = certify(rule, two, groups=names, per_id="mean", rng=3)
    assert averaged.fpr.high > two.ood_scores[two.ood_scores <= 0.8].size / 600
    nothing = dm.Sample(sample.id_scores, sample.id_loss, ood_scores=[])
    drawn = certify(rule, nothing, groups=(ids, []), per_id="draw", rng=3)
    assert drawn.tpr.low == rate_lower(int(shares.sum()), 40, 0.05 / 2)


def test_a_ratio_of_means_is_a_mean_where_all_is_accepted():
    rng = np.random.default_rng(1)
    losses, accepted = rng.random(400) * 3, rng.random(400) < 0.6
    whole = ratio_upper(losses, np.ones(400), 0.05, max_value=3)
    assert losses.mean() < whole < mean_upper(losses, 0.05, max_value=3) * 1.05
    part = ratio_upper(losses * accepted, accepted.astype(float), 0.05, max_value=3)
    assert losses[accepted].mean() < part < losses[accepted].mean() + 0.45
    assert ratio_upper(losses[:0], losses[:0], 0.05, max_value=3) == 3


def test_rows_that_made_the_rule_cannot_certify_it():
    rng = np.random.default_rng(2)
    rows = [
        dm.Sample(rng.normal(size=300), rng.random(300) < 0.1, rng.normal(2, size=200))
        for _ in range(2)
    ]
    rule = dm.tune(rows[0], dm.TprFprModel(0.6, 0.4)).rule
    with pytest.raises(dm.InvalidInputError, match="made the rule, and a promise needs rows"):
        certify(rule, rows[0])
    assert certify(rule, rows[0], allow_tuning_rows=True).tpr.low > 0
    assert certify(rule, rows[1]).tpr.low > 0
    promised = tune_certified(rows[0], dm.TprFprModel(0.6, 0.4)).rule
    with pytest.raises(dm.InvalidInputError, match="made the rule"):
        certify(promised, rows[0])
