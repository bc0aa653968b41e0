"""Unknown priors, and operating points that are tuned again without the rows."""

import json

import numpy as np
import pytest
from instances import random_model, random_rows, to_sample

import demur as dm
from demur.guarantees import (
    Interval,
    OperatingTable,
    certify,
    cost_range,
    estimate_prior,
    explaining_priors,
    operating_table,
    precision_range,
)
from demur.guarantees.prior import _log_stakes, _profile


def grid(interval, steps=9):
    return np.linspace(interval.low, interval.high, steps)


def test_precision_range_is_that_of_a_grid():
    rng = np.random.default_rng(0)
    for _ in range(50):
        t, f, p = (Interval(*np.sort(rng.random(2))) for _ in range(3))
        tt, ff, pp = np.meshgrid(grid(t), grid(f), grid(p))
        values = (1 - pp) * tt / ((1 - pp) * tt + pp * ff)
        found = precision_range(t, f, p)
        assert found.low == pytest.approx(values.min())
        assert found.high == pytest.approx(values.max())


def test_precision_when_little_is_accepted():
    assert precision_range(0.5, 0.0, 0.3) == Interval(1, 1)
    assert precision_range(0.0, 0.5, 0.3) == Interval(0, 0)
    assert precision_range(0.5, 0.5, 0) == Interval(1, 1)
    assert precision_range(Interval(0, 1), Interval(0, 1), (0.1, 0.2)) == Interval(0, 1)
    assert np.isnan(precision_range(0.0, 0.0, 0.3).low)
    for bad in (1, -0.1, (0.2, 0.1), (0.2, 1)):
        with pytest.raises(dm.InvalidInputError, match="ood_prior"):
            precision_range(0.5, 0.5, bad)


def test_cost_range_is_that_of_a_grid():
    rng = np.random.default_rng(1)
    for _ in range(50):
        t, f, r, p = (Interval(*np.sort(rng.random(2))) for _ in range(4))
        low, high = np.sort(rng.random(2))
        model = dm.CostModel(float(rng.random()), float(high), float(low), ood_prior=0)
        tt, ff, rr, pp = np.meshgrid(grid(t, 5), grid(f, 5), grid(r, 5), grid(p, 5))
        id_cost = tt * rr + float(model.reject_id) * (1 - tt)
        values = (1 - pp) * id_cost + pp * (ff * high + (1 - ff) * low)
        found = cost_range(model, t, f, r, p)
        assert found.low == pytest.approx(values.min())
        assert found.high == pytest.approx(values.max())


def test_priors_that_explain_an_accepted_share():
    rng = np.random.default_rng(2)
    priors = np.linspace(0, 1, 2001)
    inconsistent = 0
    for _ in range(200):
        t, f, s = (Interval(*np.sort(rng.random(2))) for _ in range(3))
        least = (1 - priors) * t.low + priors * f.low
        most = (1 - priors) * t.high + priors * f.high
        possible = priors[(least <= s.high) & (most >= s.low)]
        found = explaining_priors(s, tpr=t, fpr=f)
        if len(possible) == 0:
            inconsistent += 1
            assert np.isnan(found.low)
        else:
            assert found.low == pytest.approx(possible[0], abs=6e-4)
            assert found.high == pytest.approx(possible[-1], abs=6e-4)
    assert inconsistent > 5


def shifted(n_id, n_ood, seed, columns=1):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 1, (n_id, columns)), rng.normal(2, 1, (n_ood, columns))


def labelled(n_id, n_ood, seed, columns=1):
    own, foreign = shifted(n_id, n_ood, seed, columns)
    return dm.Sample(own, np.zeros(n_id), ood_scores=foreign)


def test_prior_estimate():
    fresh = labelled(800, 600, 3)
    rule = dm.Rule((1.0,), 1.0)
    deployed = np.concatenate(shifted(600, 400, 4))
    found = estimate_prior(rule, deployed, validation=fresh, confidence=0.9)
    assert found.accepted_share == np.mean(deployed <= 1)
    assert 0.4 in found.interval and 0.4 in found.likely
    assert found.estimate == pytest.approx(0.4, abs=0.06)
    # The likelihood interval is the shorter one, and both are near what a normal one would be.
    widths = [one.high - one.low for one in (found.likely, found.interval)]
    assert 0.05 < widths[0] < widths[1] < 0.2
    assert found.consistent
    again = estimate_prior(rule, deployed, validation=fresh, confidence=0.9)
    assert again == found
    surer = estimate_prior(rule, deployed, validation=fresh, confidence=0.99)
    assert surer.interval.low < found.interval.low < found.interval.high < surer.interval.high
    # The interval can go straight into a certificate.
    promise = certify(rule, fresh, ood_prior=(found.interval.low, found.interval.high))
    worst = (1 - found.interval.high) * promise.tpr.low
    assert promise.precision.low == pytest.approx(
        worst / (worst + found.interval.high * promise.fpr.high)
    )


def test_the_prior_is_told_by_all_scores():
    # Two scores tell more than one, whatever the rule accepts.
    fresh, live = labelled(500, 500, 1, 2), np.concatenate(shifted(800, 200, 2, 2))
    both = estimate_prior(dm.Rule((1.0, 1.0), 2.0), live, validation=fresh)
    one = estimate_prior(dm.Rule((1.0,), 1.0), live[:, 0], validation=fresh.score(0))
    assert both.interval.high - both.interval.low < one.interval.high - one.interval.low
    everything = estimate_prior(dm.Rule((1.0, 1.0), 1e9), live, validation=fresh)
    assert everything.accepted_share == 1
    assert everything.interval == both.interval


def test_scores_in_use_are_read_by_name_as_the_rule_reads_them():
    own, foreign = shifted(300, 300, 1, 2)
    live = np.concatenate(shifted(200, 100, 2, 2))
    rule = dm.Rule((1.0, 0.5), 2.0, score_names=("a", "b"))
    plain = dm.Sample(own, np.zeros(300), foreign, score_names=["a", "b"])
    swapped = dm.Sample(own[:, ::-1], np.zeros(300), foreign[:, ::-1], score_names=["b", "a"])
    frame = {"b": live[:, 1], "other": live[:, 0] * np.nan, "a": live[:, 0]}
    found = estimate_prior(rule, live, validation=plain)
    assert estimate_prior(rule, frame, validation=swapped) == found
    # A column that the rule does not weigh tells nothing.
    one = dm.Rule((1.0, 0.0), 2.0, score_names=("a", "b"))
    alone = estimate_prior(one, live, validation=plain)
    assert alone == estimate_prior(one, live * [1, np.nan], validation=plain)
    assert alone.interval != found.interval


def test_fortunes_are_those_of_a_plain_loop():
    rng = np.random.default_rng(5)
    live, own, foreign = rng.random(50), rng.random(50) / 2, rng.random(50) / 2 + 0.5
    for prior in (0.0, 0.3, 1.0):
        stakes, squares = [1.0, 1.0], 0.05
        for i in range(50):
            x = live[i] - (1 - prior) * own[i] - prior * foreign[i]
            bet = min(0.75, np.sqrt(2 * np.log(2 / 0.1) / 50 / (squares / (i + 1))))
            stakes = [stakes[0] * (1 + bet * x), stakes[1] * (1 - bet * x)]
            squares += x * x
        found = _log_stakes(live, own, foreign, prior, 0.1)
        assert np.exp(found) == pytest.approx(stakes)


def test_profile_likelihood_is_that_of_a_search():
    from scipy.optimize import minimize

    live, own, foreign = np.array([30, 20, 50]), np.array([40, 30, 10]), np.array([5, 15, 60])
    for prior in (0.2, 0.6):

        def negative(x, prior=prior):
            p, q = (np.exp([*part, 0]) / np.exp([*part, 0]).sum() for part in (x[:2], x[2:]))
            mixed = (1 - prior) * p + prior * q
            return -(live @ np.log(mixed) + own @ np.log(p) + foreign @ np.log(q))

        best = minimize(negative, np.zeros(4), method="BFGS")
        found = _profile(live, own, foreign, np.array([prior]))[0]
        assert found == pytest.approx(-best.fun, abs=1e-4)


def test_inputs_unlike_the_labelled_ones_are_reported_as_such():
    fresh = dm.Sample(np.arange(500.0), np.zeros(500), ood_scores=np.arange(500.0))
    rng = np.random.default_rng(0)
    useless = estimate_prior(dm.Rule((1.0,), 250), 500 * rng.random(300), validation=fresh)
    assert (useless.interval.low, useless.interval.high) == (0, 1)
    own, foreign = shifted(900, 900, 0)
    # More ID than any ID sample, in the eyes of h.
    fresh = dm.Sample(np.r_[own, foreign], np.zeros(1800), ood_scores=foreign)
    unlike = estimate_prior(dm.Rule((1.0,), 1.0), own - 3, validation=fresh)
    assert not unlike.consistent and np.isnan(unlike.interval.high)
    with pytest.raises(dm.InvalidInputError, match="empty"):
        estimate_prior(dm.Rule((1.0,), 2.0), [], validation=fresh)
    with pytest.raises(dm.InvalidInputError, match="no OOD rows"):
        estimate_prior(dm.Rule((1.0,), 2.0), [1], validation=dm.Sample([1], [0]))
    with pytest.raises(dm.InvalidInputError, match="fewer than two"):
        estimate_prior(dm.Rule((1.0,), 2.0), [1], validation=dm.Sample([1], [0], [2]))


def test_one_score_is_tuned_again_exactly():
    rng = np.random.default_rng(4)
    infeasible = 0
    for _ in range(400):
        rows = random_rows(rng, 1)
        sample = to_sample(rows)
        table = OperatingTable.from_json(operating_table(sample).to_json())
        _, model = random_model(rng, rows)
        try:
            tuned = dm.tune(sample, model)
        except dm.InfeasibleError as error:
            infeasible += 1
            with pytest.raises(dm.InfeasibleError) as caught:
                table.tune(model)
            assert caught.value.attainable == pytest.approx(error.attainable, nan_ok=True)
        else:
            again = table.tune(model)
            assert again.rule == tuned.rule
            for name in ("tpr", "fpr", "selective_risk", "precision", "expected_cost"):
                assert getattr(again.point, name) == pytest.approx(
                    getattr(tuned.point, name), nan_ok=True, abs=0
                )
            assert again.certificate.status == "optimal"
    assert 20 < infeasible < 380


def test_the_table_is_small_where_neither_loss_nor_ood_grows():
    sample = dm.Sample(np.arange(1000), np.arange(1000) >= 998, ood_scores=[500.5, 600.5])
    assert len(operating_table(sample).thresholds) == 6


def test_two_scores_are_tuned_again_from_the_frontier():
    rng = np.random.default_rng(5)
    scores = rng.normal(0, 1, (50, 2))
    sample = dm.Sample(
        scores,
        rng.random(50) < 1 / (1 + np.exp(1 - scores[:, 0])),
        ood_scores=rng.normal(1, 1, (50, 2)),
        score_names=("r", "g"),
    )
    table = operating_table(sample)
    for direction, threshold, *masses in zip(
        table.directions,
        table.thresholds,
        table.accepted_id,
        table.accepted_ood,
        table.accepted_loss,
        strict=True,
    ):
        point = dm.evaluate(dm.Rule(direction, threshold), sample)
        assert masses == [point.accepted_id, point.accepted_ood, point.accepted_loss]
    for model in (dm.TprFprModel(0.6, 0.3), dm.TprFprModel(0.9, 0.7)):
        again, tuned = table.tune(model), dm.tune(sample, model)
        assert again.point.selective_risk == tuned.point.selective_risk
        assert again.rule.score_names == ("r", "g")
        assert again.certificate.status == "grid"
    for prior in (0.05, 0.2, 0.5):
        for model in (
            dm.PrecisionRecallModel(0.75, 0.5, prior),
            dm.CostModel(0.3, 1, 0, prior),
        ):
            again, tuned = table.tune(model), dm.tune(sample, model)
            name = "expected_cost" if isinstance(model, dm.CostModel) else "selective_risk"
            # Every optimum meets some pair of bounds in whole percents, here with 50 rows a side.
            assert getattr(again.point, name) == pytest.approx(getattr(tuned.point, name))


def test_given_rules_compete(tmp_path):
    sample = dm.Sample([[0, 0], [1, 1], [2, 5]], [0, 1, 1], ood_scores=[[1, 4], [9, 9]])
    rules = [dm.Rule((1.0, 0.0), 1.5), dm.Rule((0.0, 1.0), 0.5)]
    table = operating_table(sample, rules=rules)
    table.save(tmp_path / "table.json")
    loaded = OperatingTable.load(tmp_path / "table.json")
    assert loaded.tune(dm.TprFprModel(0.1, 0)).rule == rules[1]
    assert loaded.tune(dm.TprFprModel(0.5, 1)).rule == rules[0]
    assert loaded.tune(dm.CostModel(0, 1, 0, 0.5)).rule.threshold == 0.5
    nothing = operating_table(sample, rules=[rules[0]]).tune(dm.CostModel(0, 1, 0, 0.5))
    assert nothing.rule.threshold == -np.inf
    with pytest.raises(dm.InfeasibleError) as caught:
        loaded.tune(dm.TprFprModel(1, 0))
    assert caught.value.attainable["max_tpr"] == pytest.approx(1 / 3)


def test_unreadable_tables_are_refused(tmp_path):
    text = operating_table(dm.Sample([1], [0])).to_json()
    with pytest.raises(dm.InvalidInputError, match="cannot be read"):
        OperatingTable.from_json("{")
    with pytest.raises(dm.InvalidInputError, match=r"not demur\.operating_points"):
        OperatingTable.from_json(json.dumps({**json.loads(text), "version": 9}))
    with pytest.raises(dm.InvalidInputError, match="cannot be read"):
        OperatingTable.from_json(json.dumps({**json.loads(text), "totals": {}}))
    with pytest.raises(dm.InvalidInputError, match="cannot read"):
        OperatingTable.load(tmp_path / "missing.json")


@pytest.mark.parametrize("name", ["directions", "thresholds", "accepted_id", "accepted_loss"])
def test_damaged_tables_are_refused(name):
    sample = dm.Sample([1, 2, 3], [0, 1, 0], ood_scores=[2, 4])
    saved = json.loads(operating_table(sample).to_json())
    for damaged in (saved[name][:-1], [*saved[name], saved[name][-1]]):
        with pytest.raises(dm.InvalidInputError, match="damaged"):
            OperatingTable.from_json(json.dumps({**saved, name: damaged}))
    for too_many in (100, -1):
        counts = [*saved["accepted_ood"][:-1], too_many]
        with pytest.raises(dm.InvalidInputError, match="damaged"):
            OperatingTable.from_json(json.dumps({**saved, "accepted_ood": counts}))


def test_a_cost_range_needs_costs():
    with pytest.raises(dm.InvalidInputError, match="needs a model with costs"):
        cost_range(dm.TprFprModel(0.8), 0.8, 0.1, 0.1, 0.2)
