"""Tuning with a guarantee, and planning: exact error rates of the tests, and the procedure."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest
from scipy.special import ndtr

import demur as dm
from demur.guarantees import plan, plan_tuning, tune_certified
from demur.guarantees.bound_tests import FreshCounts, Requirement, SplitSizes
from demur.guarantees.candidates import LearnedDirections, judge_directions, rows_below
from demur.guarantees.intervals import rate_lower, rate_upper, risk_upper, sidak
from demur.guarantees.learned_rules import RankLogistic
from demur.guarantees.planning import fewest_rows, rows_to_prove
from demur.guarantees.splits import split


def pmf(n, p):
    return np.array([comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


def gaussian(n, seed, *, scores=1, risk=0.1):
    rng = np.random.default_rng(seed)
    id_, ood = rng.normal(0, 1, (n, scores)), rng.normal(2.5, 1, (n, scores))
    return dm.Sample(id_, rng.random(n) < risk, ood_scores=ood)


def asked(model):
    """Values of the bounds, in their order."""
    return [bound.value for bound in model.bounds]


def claims(requirement, sizes):
    return np.array(
        [
            [requirement.proven(FreshCounts(k, o)) for o in range(sizes.test_ood + 1)]
            for k in range(sizes.test_id + 1)
        ]
    )


def test_false_claims_on_tpr_and_fpr_are_rare():
    sizes = SplitSizes(10, 10, 24, 19)
    made = claims(Requirement.of(dm.TprFprModel(0.6, 0.3), sizes, 0.1), sizes)
    assert made.any()
    for tpr, fpr in ((0.599, 0.0), (0.599, 0.29), (1.0, 0.301), (0.7, 0.301), (0.5, 0.5)):
        assert pmf(24, tpr) @ made @ pmf(19, fpr) <= 0.1


def test_false_claims_on_precision_and_recall_are_rare():
    model = dm.PrecisionRecallModel(0.8, 0.5, ood_prior=0.4)
    slope = 0.6 * 0.2 / (0.4 * 0.8)
    for sizes in (SplitSizes(9, 9, 30, 22), SplitSizes(9, 9, 12, 60)):
        requirement = Requirement.of(model, sizes, 0.15, 0.8)
        made = claims(requirement, sizes)
        assert made.any()
        for tpr in np.linspace(0.3, 1, 15):
            fpr = min(1, slope * tpr + 1e-6)
            assert pmf(sizes.test_id, tpr) @ made @ pmf(sizes.test_ood, fpr) <= 0.15
        for fpr in (0.0, 0.05):
            assert pmf(sizes.test_id, 0.499) @ made @ pmf(sizes.test_ood, fpr) <= 0.15


def test_tightened_bounds_are_proven_when_they_are_met_exactly():
    sizes = SplitSizes(60, 60, 140, 140)
    required = Requirement.of(dm.TprFprModel(0.7, 0.3), sizes, 0.025)
    tpr, fpr = asked(required.tightened(0))
    assert required.proven(FreshCounts(round(tpr * 140), round(fpr * 140)))
    assert not required.proven(FreshCounts(round(tpr * 140) - 1, 0))
    assert not required.proven(FreshCounts(140, round(fpr * 140) + 1))
    bolder, safer = asked(required.tightened(-1)), asked(required.tightened(1))
    assert 0.7 <= bolder[0] < tpr < safer[0]
    assert 0.3 >= bolder[1] > fpr > safer[1]
    assert required.tightened(-9) == dm.TprFprModel(0.7, 0.3)
    assert required.tightened(50) is None
    assert replace(required, sizes=SplitSizes(60, 60, 9, 9)).tightened(0) is None
    no_bound = Requirement.of(dm.TprFprModel(0, 1), SplitSizes(5, 0, 5, 0), 0.025)
    assert no_bound.tightened(2) == dm.TprFprModel(0, 1)
    assert no_bound.proven(FreshCounts(0, 0))


def test_precision_bounds_tighten_with_the_margin():
    model = dm.PrecisionRecallModel(0.8, 0.5, ood_prior=0.4)
    required = Requirement.of(model, SplitSizes(60, 60, 140, 140), 0.025, 0.7)
    bolder, safer = asked(required.tightened(0)), asked(required.tightened(1))
    assert 0.5 < bolder[1] < safer[1]
    assert 0.8 < bolder[0] < safer[0] < 1
    assert asked(required.tightened(-9))[0] == 0.8
    free = Requirement.of(replace(model, ood_prior=0), SplitSizes(6, 0, 14, 0), 0.1, 1)
    assert asked(free.tightened(0))[0] == 0.8
    assert free.proven(FreshCounts(14, 0))


MODELS = [dm.TprFprModel(0.7, 0.25), dm.PrecisionRecallModel(0.8, 0.7, ood_prior=0.4)]


def parts(sample, share, seed):
    """The rows to learn on and to test on, as `tune_certified` draws them."""
    return split(sample, share, np.random.default_rng(seed).spawn(3)[0])


def rounded(n, seed, digits=1):
    """Rows with ties, along which the path is taken."""
    sample = gaussian(n, seed)
    return dm.Sample(
        np.round(sample.id_scores, digits),
        sample.id_loss,
        ood_scores=np.round(sample.ood_scores, digits),
    )


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scores", [1, 2])
def test_thresholds_come_from_the_test_rows_alone(model, scores):
    n = 900 if scores == 1 else 300
    sample = gaussian(n, 4, scores=scores)
    found = tune_certified(sample, model, confidence=0.9, rng=5)
    learn, test = parts(sample, 0.2, 5)
    assert found.method == "tolerance limits"
    assert (learn.n_id, test.n_id) == (round(0.2 * n), n - round(0.2 * n))
    assert found.sizes == SplitSizes(learn.n_id, learn.n_ood, test.n_id, test.n_ood)
    margins = np.array([c.margin for c in found.candidates])
    assert (np.diff(margins) < 0).all() and len(margins) == 1 if scores == 1 else len(margins) > 1
    weights = 0.04 + np.exp(-(((margins - 0.5) / 1.2) ** 2) / 2)
    for candidate, weight in zip(found.candidates, weights / weights.sum(), strict=True):
        rule = candidate.rule
        combined = np.sort(test.id_scores @ np.array(rule.direction))
        k = int(np.sum(combined <= rule.threshold))
        # The TPR to be kept is at least the one asked for: under a precision it may be more.
        asked = np.linspace(0.7, 1, 6, endpoint=False)
        limits = [rows_below(p, test.n_id, 0.055 * weight) for p in asked]
        assert k in (limits if model is MODELS[1] else limits[:1])
        # Just below the next row, so that the rows below are draws from what is accepted.
        assert combined[k] == pytest.approx(rule.threshold, abs=1e-12)
        errors = int(test.id_loss[rule.accept(test.id_scores)].sum())
        assert candidate.selective_risk == pytest.approx(rate_upper(errors, k, 0.015 * weight))
        assert candidate.tested == dm.evaluate(rule, test, model=model)
        assert candidate.learned == dm.evaluate(rule, learn, model=model)
        if candidate.proven and model is MODELS[0]:
            assert rate_upper(int(candidate.tested.accepted_ood), test.n_ood, 0.03) <= 0.25
    proven = [c for c in found.candidates if c.proven]
    assert any((found.rule, found.selective_risk) == (c.rule, c.selective_risk) for c in proven)
    assert tune_certified(sample, model, confidence=0.9, rng=5) == found


@pytest.mark.parametrize(("phi", "n", "level"), [(0.7, 40, 0.02), (0.55, 21, 0.1), (0.9, 60, 0.05)])
def test_a_tolerance_limit_is_missed_as_rarely_as_stated(phi, n, level):
    # Whatever the probability of single values: of the value q that passes phi it decides.
    k = rows_below(phi, n, level) + 1
    worst = 0.0
    for below in np.linspace(0.6 * phi, phi - 1e-9, 25):
        for on in phi - below + np.geomspace(1e-6, 1 - phi, 60):
            # The k-th row is below q; or it is the only one on q, and q is rejected.
            missed = pmf(n, below)[k:].sum()
            missed += n * comb(n - 1, k - 1) * below ** (k - 1) * on * (1 - below - on) ** (n - k)
            worst = max(worst, missed)
    assert 0.6 * level < worst <= level


def test_where_all_rows_are_needed_their_losses_bound_the_risk():
    assert rows_below(0.8, 14, 0.05) == 14 and 0.8**14 <= 0.05 < 0.8**13
    rng = np.random.default_rng(0)
    test = dm.Sample(rng.normal(size=14), np.arange(14) < 3, ood_scores=rng.normal(9, 1, 60))
    required = Requirement.of(dm.TprFprModel(0.8, 0.1), SplitSizes(5, 5, 14, 60), 0.05)
    rules = ((1.0, dm.Rule((1.0,), 0.0)),)
    (found,) = judge_directions(
        LearnedDirections(required, rules, (1.0,), 0.05, 0.4), test, None, 0
    )
    assert found.rule.threshold == test.id_scores.max()
    assert found.proven and found.selective_risk == rate_upper(3, 14, 0.4) / 0.8


def test_values_of_positive_probability_do_not_break_the_risk():
    # Values near the threshold are always wrong, and each has about one row: if a rule took one
    # in that the rows below know nothing of, its risk would be larger than promised.
    rng, n, level = np.random.default_rng(3), 60, 0.3
    values = np.concatenate([np.zeros(1), np.arange(1, 31)])
    shares = np.concatenate([[0.5], np.full(30, 0.5 / 30)])
    risks = np.concatenate([[0.0], np.ones(30)])
    required = Requirement.of(dm.TprFprModel(0.6, 1), SplitSizes(5, 0, n, 0), 0.5)
    learned = LearnedDirections(required, ((0.0, dm.Rule((1.0,), 0.0)),), (1.0,), 0.3, level)
    missed = promised = 0
    for _ in range(1500):
        drawn = rng.choice(31, n, p=shares)
        test = dm.Sample(values[drawn] + 0.0, risks[drawn], ood_scores=[])
        (found,) = judge_directions(learned, test, None, 0)
        accepted = values <= found.rule.threshold
        risk = (shares * risks)[accepted].sum() / shares[accepted].sum()
        promised += found.selective_risk < 1
        missed += risk > found.selective_risk
    assert promised > 300
    assert missed / promised <= level + 3 * np.sqrt(level / promised)


def test_ties_are_seen_on_the_learning_rows_and_take_the_path():
    tied = tune_certified(rounded(1500, 4), dm.TprFprModel(0.8, 0.12), rng=0)
    assert tied.method == "path"
    assert tune_certified(gaussian(1500, 4), dm.TprFprModel(0.8, 0.12), rng=0).method != "path"
    # Ties far below the threshold do not matter.
    sample = gaussian(1500, 4)
    low = dm.Sample(np.maximum(sample.id_scores, -1), sample.id_loss, ood_scores=sample.ood_scores)
    assert tune_certified(low, dm.TprFprModel(0.8, 0.12)).method == "tolerance limits"


def test_a_threshold_tied_among_the_test_rows_promises_no_risk():
    learn, test = gaussian(200, 1), gaussian(400, 2)
    rule = dm.tune(learn, MODELS[0]).rule
    required = Requirement.of(MODELS[0], SplitSizes(200, 200, 400, 400), 0.05)
    learned = LearnedDirections(required, ((1.0, rule),), (1.0,), 0.026, 0.01)
    (smooth,) = judge_directions(learned, test, None, 0)
    assert smooth.selective_risk < 0.3
    values = test.id_scores[:, 0].copy()
    order = np.argsort(values)
    on = int((values <= smooth.rule.threshold).sum())
    assert values[order[on]] == np.nextafter(smooth.rule.threshold, np.inf)
    values[order[on + 1]] = values[order[on]]
    tied = dm.Sample(values, test.id_loss, ood_scores=test.ood_scores)
    (found,) = judge_directions(learned, tied, None, 0)
    assert found.rule.threshold == values[order[on]] and found.selective_risk == 1


def test_infinite_doubts_are_never_accepted():
    sample = gaussian(600, 4, scores=2)
    scores = sample.id_scores.copy()
    scores[::10, 1] = np.inf
    held = dm.Sample(scores, sample.id_loss, ood_scores=sample.ood_scores)
    found = tune_certified(held, dm.TprFprModel(0.7, 0.25))
    assert np.isfinite(found.rule.threshold)
    assert not found.rule.accept(held.id_scores)[::10].any()


def test_few_rows_of_one_side_are_not_thinned_because_the_other_is_long():
    rng = np.random.default_rng(0)
    long = dm.Sample(rng.normal(size=200_000), np.zeros(200_000), rng.normal(4, 1, 300))
    found = tune_certified(long, dm.TprFprModel(0.7, 0.2))
    assert (found.sizes.learn_id, found.sizes.learn_ood) == (20_000, 60)


def test_smoothed_losses_have_the_mean_of_the_losses():
    # Newton's steps without a check overshoot in one such fit of a hundred.
    for seed in range(150):
        rng = np.random.default_rng((60, seed))
        scores = rng.normal(size=(60, 2))
        wrong = (rng.random(60) < 0.02 + 0.3 * (scores[:, 0] > 1)).astype(float)
        fitted = RankLogistic.fit(scores, wrong).predict(scores)
        assert fitted.mean() == pytest.approx(wrong.mean(), abs=0.02)


def test_a_grid_of_angles_over_unlike_units_is_warned_of():
    sample = gaussian(300, 4, scores=2)
    units = dm.Sample(sample.id_scores * [1, 1e6], sample.id_loss, sample.ood_scores * [1, 1e6])
    with pytest.warns(dm.ScoreUnitsWarning) as told:
        tune_certified(units, MODELS[0], search=dm.Grid(90))
    assert len(told) == 1
    with pytest.raises(dm.InvalidInputError, match="search must be"):
        tune_certified(sample, MODELS[0], search="grid")
    with pytest.raises(dm.InvalidInputError, match="OOD"):
        tune_certified(dm.Sample(sample.id_scores[:, 0], sample.id_loss, []), MODELS[0])


def test_mistakes_are_told_once_and_of_the_losses_given():
    sample = gaussian(300, 1)
    with pytest.warns(dm.LikelyMistakeWarning, match="91% of the losses") as told:
        tune_certified(
            dm.Sample(sample.id_scores, 1 - sample.id_loss, sample.ood_scores), MODELS[0]
        )
    assert len(told) == 1


def test_rules_on_the_path_are_tested_in_order_up_to_the_first_failure():
    # The bolder candidates accept more, until they fail.
    model = dm.RejectionModel("tpr", dm.TprFprModel(0.8, 0.12).bounds)
    sample = gaussian(1500, 4)
    found = tune_certified(sample, model, rng=0)
    flags = [c.proven for c in found.candidates]
    assert flags == sorted(flags, reverse=True) and {True, False} == set(flags)
    _, test = parts(sample, 0.2, 0)
    proven = True
    for candidate in found.candidates:
        point = candidate.tested
        proven = proven and (
            rate_lower(int(point.accepted_id), test.n_id, 0.04) >= 0.8
            and rate_upper(int(point.accepted_ood), test.n_ood, 0.04) <= 0.12
        )
        assert candidate.proven == proven
        assert candidate.selective_risk == rate_upper(
            int(point.accepted_loss), int(point.accepted_id), 0.01 / len(flags) / 2
        )
    best = max((c for c in found.candidates if c.proven), key=lambda c: c.objective)
    assert (found.rule, found.objective) == (best.rule, best.objective)


def test_every_set_is_promised():
    rng = np.random.default_rng(1)
    sets = {"near": rng.normal(2.5, 1, 700), "far": rng.normal(4, 1, 300)}
    sample = dm.Sample(rng.normal(0, 1, 1000), rng.random(1000) < 0.1, ood_scores=sets)
    pooled = tune_certified(sample, dm.TprFprModel(0.8, 0.2))
    each = tune_certified(sample, dm.TprFprModel(0.8, 0.2).of_every_set())
    assert each.method == pooled.method == "tolerance limits"
    assert each.sizes.test_sets == (560, 240)
    for candidate in each.candidates:
        proven = all(
            rate_upper(round(candidate.tested.fpr_by_set[name] * n), n, 0.014) <= 0.2
            for name, n in (("near", 560), ("far", 240))
        )
        assert candidate.proven == proven
    hard = dm.TprFprModel(0.8, 0.075)
    tune_certified(sample, hard)
    with pytest.raises(dm.InfeasibleError, match=r"fpr <= 0.075 of every set"):
        tune_certified(sample, hard.of_every_set())


def test_a_bound_on_the_risk_is_tested_like_the_others():
    model = dm.RejectionModel(
        "tpr", [dm.Bound("selective_risk", at_most=0.2), dm.Bound("fpr", at_most=0.3)]
    )
    sizes = SplitSizes(10, 10, 20, 16)
    required = Requirement.of(model, sizes, 0.1)
    for accepted in (8, 20):
        for risk in (0.201, 0.35):
            # However few OOD rows are accepted, the losses decide.
            claimed = [
                required.proven(FreshCounts(accepted, 0, (), np.arange(accepted) < errors))
                for errors in range(accepted + 1)
            ]
            assert pmf(accepted, risk) @ np.array(claimed) <= 0.1
    assert required.tightened(0) is not None
    safer = {b.quantity: b.value for b in required.tightened(0).bounds}
    assert safer["selective_risk"] < 0.2 and safer["fpr"] < 0.3
    with pytest.raises(dm.InvalidInputError, match="proven by losses"):
        required.proven(FreshCounts(5, 0))


def test_other_objectives_are_bounded_beside_the_risk():
    sample = gaussian(900, 4)
    fpr = dm.Bound("fpr", at_most=0.2)
    most = tune_certified(sample, dm.RejectionModel("tpr", [fpr]))
    assert most.method == "path" and most.expected_cost is None
    level = 0.01 / (2 * len(most.candidates))
    n = most.sizes.test_id
    assert most.objective == rate_lower(int(most.point.accepted_id), n, level)
    assert most.point.tpr > most.objective > 0.8
    tpr = dm.Bound("tpr", at_least=0.7)
    least = tune_certified(sample, dm.RejectionModel("fpr", [tpr]))
    assert least.point.fpr < least.objective < 0.1
    costly = tune_certified(sample, dm.RejectionModel(dm.ExpectedCost(0.3), [tpr], 0.2))
    assert costly.expected_cost == costly.objective
    assert costly.point.expected_cost < costly.expected_cost < 0.4


def test_groups_are_refused_or_one_row_of_each_is_drawn():
    sample = gaussian(900, 4)
    groups = np.arange(900) // 2, 1000 + np.arange(900) // 3
    with pytest.raises(dm.InvalidInputError, match="1,800 rows have 750 ids"):
        tune_certified(sample, MODELS[0], groups=groups)
    found = tune_certified(sample, MODELS[0], groups=groups, per_id="draw")
    assert found.sizes.learn_id + found.sizes.test_id == 450
    assert found.sizes.learn_ood + found.sizes.test_ood == 300
    assert "Every id counts once" in found.caveat
    shared = np.arange(900) // 2, np.arange(900) // 3
    once = np.arange(900), np.arange(900)
    for names, way in ((shared, "draw"), (once, "draw"), (once, "refuse")):
        with pytest.raises(dm.InvalidInputError, match="keep each id on one side"):
            tune_certified(sample, MODELS[0], groups=names, per_id=way)


def test_cost_is_bounded_on_the_test_rows():
    model = dm.CostModel(reject_id=0.3, accept_ood=1, reject_ood=0, ood_prior=0.25)
    sample = gaussian(1000, 2)
    found = tune_certified(sample, model, confidence=0.9)
    learn, test = parts(sample, 0.3, 0)
    assert found.rule == dm.tune(learn, model).rule
    accepted = found.rule.accept(test.id_scores)
    nO = int(found.rule.accept(test.ood_scores).sum())
    level = sidak(0.1, 3)
    risk = risk_upper(test.id_loss[accepted], level)
    tpr = rate_lower(int(accepted.sum()), test.n_id, level / 2)
    fpr = rate_upper(nO, test.n_ood, level)
    assert risk < 0.3
    assert found.selective_risk == risk
    assert found.expected_cost == pytest.approx(0.75 * (tpr * risk + 0.3 * (1 - tpr)) + 0.25 * fpr)
    assert found.expected_cost > dm.evaluate(found.rule, test, model=model).expected_cost


def test_bounded_losses_and_several_ood_sets():
    rng = np.random.default_rng(0)
    sample = dm.Sample(
        rng.normal(0, 1, 600),
        3 * rng.beta(1, 9, 600),
        ood_scores={"near": rng.normal(2.5, 1, 300), "far": rng.normal(5, 1, 300)},
    )
    found = tune_certified(sample, dm.TprFprModel(0.7, 0.2), max_loss=3)
    assert found.point.selective_risk < found.selective_risk < 0.45
    assert set(found.point.fpr_by_set) == {"near", "far"}
    with pytest.raises(dm.InvalidInputError, match="max_loss"):
        tune_certified(sample, dm.TprFprModel(0.7, 0.2))


def test_too_few_rows_say_how_many_are_needed():
    with pytest.raises(dm.InfeasibleError, match="not even a perfect result on 32 ID") as caught:
        tune_certified(gaussian(40, 0), dm.TprFprModel(0.8, 0.1))
    # One direction: 40 test rows without one accepted prove fpr <= 0.1 at 0.3 * 0.05.
    assert 0.9**40 < 0.015 < 0.9**39
    assert caught.value.attainable == {"needed_id": 40, "needed_ood": 50}
    assert "at least 40 ID and 50 OOD rows" in str(caught.value)


def test_a_small_margin_asks_for_more_rows():
    with pytest.raises(dm.InfeasibleError, match="the safest candidate has tpr") as caught:
        tune_certified(gaussian(250, 2), dm.TprFprModel(0.85, 0.12))
    needed = caught.value.attainable
    assert needed["needed_id"] >= 250 and needed["needed_ood"] >= 250
    assert max(needed.values()) > 250
    for seed in range(12):
        try:
            tune_certified(gaussian(300, seed), dm.TprFprModel(0.86, 0.14))
        except dm.InfeasibleError as error:
            assert max(error.attainable.values()) > 300
    with pytest.raises(dm.InfeasibleError, match=r"about .* OOD rows are needed"):
        tune_certified(gaussian(400, 1), dm.PrecisionRecallModel(0.91, 0.88, 0.5))
    with pytest.raises(dm.InfeasibleError, match=r"at least .* OOD rows are needed"):
        tune_certified(gaussian(40, 2), dm.PrecisionRecallModel(0.9, 0.8, 0.5))


def test_rows_that_are_asked_for_are_enough_about_as_often_as_stated():
    # The whole sample is to be planned with, not one candidate's luck on the test rows.
    model = dm.TprFprModel(0.85, 0.12)
    with pytest.raises(dm.InfeasibleError, match=r"at best .* on all rows") as caught:
        tune_certified(gaussian(250, 3), model)
    needed = int(max(caught.value.attainable.values()))
    assert 250 < needed < 5000
    proven = 0
    for seed in range(20):
        try:
            tune_certified(gaussian(needed, 100 + seed), model)
            proven += 1
        except dm.InfeasibleError:
            pass
    assert proven >= 12


def test_too_few_rows_to_learn_on_are_told_from_impossible_bounds():
    # The first seed at which the learning rows have no rule, but all rows have one.
    model = dm.TprFprModel(0.88, 0.1)
    for seed in range(50):
        sample = gaussian(200, seed)
        learn, _ = parts(sample, 0.2, 0)
        feasible = [not np.isnan(dm.metrics.selective_risk_at(s, model)) for s in (learn, sample)]
        if feasible == [False, True]:
            break
    with pytest.raises(dm.InfeasibleError, match="no rule meets them on the 40 ID") as caught:
        tune_certified(sample, model)
    assert set(caught.value.attainable) == {"needed_id", "needed_ood"}


def test_bounds_that_no_sample_proves():
    with pytest.raises(dm.InfeasibleError, match="no finite sample proves") as caught:
        tune_certified(gaussian(300, 0), dm.TprFprModel(0.1, 0))
    assert np.isnan(caught.value.attainable["needed_ood"])
    with pytest.raises(dm.InfeasibleError, match="rows set aside for learning") as caught:
        tune_certified(gaussian(300, 0), dm.TprFprModel(0.99, 0.01))
    assert set(caught.value.attainable) == {"max_tpr", "min_fpr"}


def test_inputs_of_certified_tuning_are_checked():
    weighted = dm.Sample([0, 1], [0, 1], ood_scores=[1], id_weight=[1, 2])
    with pytest.raises(dm.InvalidInputError, match="independent rows"):
        tune_certified(weighted, MODELS[0])
    with pytest.raises(dm.InvalidInputError, match="share"):
        tune_certified(gaussian(50, 0), MODELS[0], learn_share=1)
    with pytest.raises(dm.InvalidInputError, match="cannot be split"):
        tune_certified(dm.Sample([0], [0], ood_scores=[1]), MODELS[0])


def test_models_without_a_test_are_refused_with_what_is_possible():
    for bound in (
        dm.Bound("tpr", at_most=0.8),
        dm.Bound("fpr", at_least=0.8),
    ):
        with pytest.raises(dm.InvalidInputError, match="bounds that have a test"):
            tune_certified(gaussian(50, 0), dm.RejectionModel("selective_risk", [bound]))
    rare = dm.RejectionModel("tpr", [dm.Bound("tpr", at_least=0.8, group="rare")])
    with pytest.raises(dm.InvalidInputError, match="'rare'; the rows have no groups"):
        tune_certified(gaussian(50, 0), rare)
    foreign = dm.RejectionModel("tpr", [dm.Bound("fpr", at_most=0.8, ood_set="svhn")])
    with pytest.raises(dm.InvalidInputError, match="'svhn'; there are"):
        tune_certified(gaussian(50, 0), foreign)


# The rare group has larger scores, so that a threshold for all breaks what is asked of it.
OF_PARTS = dm.RejectionModel(
    "selective_risk",
    [
        dm.Bound("tpr", at_least=0.5),
        dm.Bound("tpr", at_least=0.6, group="rare"),
        dm.Bound("selective_risk", at_most=0.25, group="rare"),
        dm.Bound("fpr", at_most=0.15, ood_set="near"),
    ],
)


def with_groups(n, seed):
    """Rows of two groups and two OOD sets of normal scores, larger ones more often wrong."""
    rng = np.random.default_rng(seed)
    rare = rng.random(n) < 0.3
    near = rng.random(n) < 0.5
    own, foreign = rng.normal(0.5 * rare, 1), rng.normal(3, 1, n)
    return dm.Sample(
        own,
        rng.random(n) < 0.05 + 0.1 * (own > 0),
        {"near": foreign[near], "far": 2 + foreign[~near]},
        id_group=np.where(rare, "rare", "usual"),
    )


def test_bounds_of_groups_and_sets_fail_as_rarely_as_stated():
    runs, delta, broken, plainly, proven = 80, 0.2, 0, 0, 0
    for seed in range(runs):
        sample = with_groups(300, seed)
        rules = {"plain": dm.tune(sample, OF_PARTS).rule}
        try:
            found = tune_certified(sample, OF_PARTS, confidence=1 - delta)
        except dm.InfeasibleError:
            pass
        else:
            assert found.method == "path"
            rules["promised"] = found.rule
            proven += 1
        for name, rule in rules.items():
            cut = rule.threshold / rule.direction[0]
            rates = np.array([ndtr(cut), ndtr(cut - 0.5)])
            lost = 0.15 * rates - 0.1 * np.minimum(rates, [ndtr(0), ndtr(-0.5)])
            tpr, loss = rates @ [0.7, 0.3], lost @ [0.7, 0.3]
            kept = tpr >= 0.5 and rates[1] >= 0.6 and ndtr(cut - 3) <= 0.15
            kept = kept and lost[1] / rates[1] <= 0.25
            if name == "plain":
                plainly += not kept
            else:
                broken += not kept or found.selective_risk < loss / tpr
    assert proven > 0.5 * runs
    assert plainly > 0.3 * runs
    assert broken <= delta * runs + 3 * np.sqrt(delta * (1 - delta) * runs)


def test_groups_are_counted_and_tested_at_the_same_level():
    sample = with_groups(800, 1)
    found = tune_certified(sample, OF_PARTS)
    n, m = found.sizes.test_groups[0], found.sizes.test_sets[0]
    assert sum(found.sizes.test_groups) == found.sizes.test_id
    passed = True
    for candidate in found.candidates:
        point = candidate.tested
        accepted = round(point.tpr_by_group["rare"] * n)
        wrong = round(point.selective_risk_by_group["rare"] * accepted)
        passed = passed and (
            rate_lower(int(point.accepted_id), found.sizes.test_id, 0.04) >= 0.5
            and rate_lower(accepted, n, 0.04) >= 0.6
            and rate_upper(wrong, accepted, 0.04) <= 0.25
            and rate_upper(round(point.fpr_by_set["near"] * m), m, 0.04) <= 0.15
        )
        assert candidate.proven == passed
    # The card states what is promised of all rows, and the model has the parts.
    card = found.rule.card
    assert card.points["certified"]["tpr"] == 0.5
    assert card.model.bounds == OF_PARTS.bounds


def test_a_group_with_few_rows_asks_for_more():
    sample = with_groups(60, 0)
    with pytest.raises(dm.InfeasibleError, match="groups in the same proportions") as caught:
        tune_certified(sample, OF_PARTS)
    assert caught.value.attainable["needed_id"] > 60
    # A group that is not among the rows to learn on is tested all the same.
    one = dm.Sample(
        np.linspace(0, 1, 400),
        np.zeros(400),
        np.linspace(2, 3, 400),
        id_group=np.where(np.arange(400) == 7, "one", "others"),
    )
    model = dm.RejectionModel("tpr", [dm.Bound("tpr", at_least=0.1, group="one")])
    with pytest.raises(dm.InfeasibleError, match=r"tpr >= 0.1 of one .* perfect result"):
        tune_certified(one, model)


def test_plans_for_groups_sets_and_risk():
    planned = plan(OF_PARTS, margins=[0.1])
    # Three statements of all rows and one of the parts; four bounds must all be proven.
    level, each = 0.05 / 4, 1 - 0.1 / 4
    assert planned.rows[0].n_id == rows_to_prove(0.5, 0.6, level, each)
    assert planned.rows[0].n_ood == 0
    assert planned.rows[0].parts == {
        "tpr >= 0.6 of rare": rows_to_prove(0.6, 0.7, level, each),
        "selective_risk <= 0.25 of rare": rows_to_prove(0.75, 0.85, level, each),
        "fpr <= 0.15 of near": rows_to_prove(0.85, 0.95, level, each),
    }
    risk = plan(
        dm.RejectionModel("tpr", [dm.Bound("selective_risk", at_most=0.05)]), margins=[0.05]
    )
    assert risk.rows[0].parts == {
        "selective_risk <= 0.05": rows_to_prove(0.95, 1.0, sidak(0.05, 2), 0.95)
    }
    few, many = plan_tuning(with_groups(400, 0), OF_PARTS, [(60, 60), (900, 900)], draws=5)
    assert few.found < many.found


def test_bounds_are_what_counts_not_the_class_of_the_model():
    tpr, fpr = dm.Bound("tpr", at_least=0.7), dm.Bound("fpr", at_most=0.25)
    sample = gaussian(900, 4)
    plain = tune_certified(sample, dm.TprFprModel(0.7, 0.25))
    assert tune_certified(sample, dm.RejectionModel("selective_risk", [fpr, tpr])) == plain
    pure = dm.Bound("precision", at_least=0.8)
    found = tune_certified(sample, dm.RejectionModel("selective_risk", [pure, tpr], 0.4))
    assert found == tune_certified(sample, dm.PrecisionRecallModel(0.8, 0.7, 0.4))
    n = found.sizes.test_id
    all_three = tune_certified(sample, dm.RejectionModel("selective_risk", [pure, tpr, fpr], 0.4))
    for candidate in all_three.candidates:
        if candidate.proven:
            assert rate_upper(int(candidate.tested.accepted_ood), n, 0.014) <= 0.25
    one_sided = tune_certified(sample, dm.RejectionModel("selective_risk", [fpr]))
    assert one_sided.candidates[0].proven


def test_a_shortage_of_id_rows_alone_is_told():
    few = dm.Sample(np.arange(20.0), np.zeros(20), ood_scores=[])
    for model in (dm.TprFprModel(0.99), dm.PrecisionRecallModel(0.5, 0.99, ood_prior=0)):
        with pytest.raises(dm.InfeasibleError, match="ID and 0 OOD rows are needed") as caught:
            tune_certified(few, model)
        assert caught.value.attainable["needed_id"] > 20


def power(n, bound, rate, level):
    """Chance of proving the bound, from the binomial probabilities themselves."""
    proving = [k for k in range(n + 1) if rate_lower(k, n, level) >= bound]
    return pmf(n, rate)[proving].sum() if proving else 0.0


@pytest.mark.parametrize(
    ("bound", "rate", "level", "wanted"),
    [(0.8, 0.95, 0.05, 0.9), (0.5, 0.8, 0.017, 0.95), (0.9, 1.0, 0.05, 0.8), (0.2, 0.5, 0.1, 0.9)],
)
def test_rows_to_prove_is_the_last_time_the_power_is_too_small(bound, rate, level, wanted):
    powers = [power(n, bound, rate, level) for n in range(200)]
    needed = rows_to_prove(bound, rate, level, wanted)
    assert needed == max(n for n in range(200) if powers[n] < wanted) + 1
    assert fewest_rows(bound, level) == min(n for n in range(200) if powers[n] > 0)


def test_plan():
    planned = plan(dm.TprFprModel(0.7, 0.3), margins=[0.2, 0.4], power=0.81)
    level = sidak(0.05, 3)
    for row in planned.rows:
        assert row.n_id == rows_to_prove(0.7, row.tpr, level, 0.9)
        assert row.n_ood == rows_to_prove(0.7, 1 - row.fpr, level, 0.9)
    assert [(row.tpr, row.fpr) for row in planned.rows] == [(0.9, 0.1), (1.0, 0.0)]
    for point in planned.curve:
        rate = {0.2: 0.9, 0.4: 1.0}[point.margin]
        assert point.tpr_power == pytest.approx(power(point.rows, 0.7, rate, level))
    last = [p for p in planned.curve if p.margin == 0.2][-1]
    assert last.rows >= 2 * planned.rows[0].n_id
    assert min(last.tpr_power, last.fpr_power) > 0.9


def test_plan_without_ood_bound_and_without_margin():
    planned = plan(dm.TprFprModel(0.8), margins=[0])
    assert planned.fewest_ood == 0
    assert planned.fewest_id == fewest_rows(0.8, sidak(0.05, 2))
    assert planned.rows[0].n_id is None
    assert planned.rows[0].n_ood == 0
    never = plan(dm.TprFprModel(1, 0), margins=[0.1])
    assert (never.fewest_id, never.fewest_ood, never.rows[0].n_id) == (None, None, None)
    assert rows_to_prove(0.8, 0.8 + 1e-9, 0.05, 0.9) is None
    for bad in ({"margins": [2]}, {"power": 1}, {"confidence": 0}):
        with pytest.raises(dm.InvalidInputError):
            plan(dm.TprFprModel(0.8), **bad)
    for model in (dm.CostModel(0.1), dm.PrecisionRecallModel(0.9, 0.8, 0.2)):
        with pytest.raises(dm.InvalidInputError, match="TprFprModel"):
            plan(model)


def test_a_planned_sample_is_certified_as_often_as_planned():
    # The exact chance that both bounds are certified, with the sizes of the plan.
    planned = plan(dm.TprFprModel(0.7, 0.3), margins=[0.15], power=0.8)
    row, level = planned.rows[0], sidak(0.05, 3)
    both = power(row.n_id, 0.7, 0.85, level) * power(row.n_ood, 0.7, 0.85, level)
    assert both >= 0.8


@pytest.mark.parametrize(
    "model", [dm.TprFprModel(0.6, 0.3), dm.CostModel(0.2, 1, 0, ood_prior=0.3)]
)
def test_the_card_tells_what_was_asked_and_all_rows(model):
    rng = np.random.default_rng(1)
    wrong = rng.random(3000) < 0.1
    sample = dm.Sample(rng.normal(size=3000) + wrong, wrong, rng.normal(2.5, 1, 1500))
    promised = dm.guarantees.tune_certified(sample, model)
    card = dm.Rule.from_json(promised.rule.to_json()).card
    assert card.model == model
    assert card.to_data()["rows"]["id"] == 3000 and card.fingerprint.share_of(sample) == 1
    (kind,) = card.points
    said = card.points[kind]
    assert kind == "certified" and said["selective_risk"] == promised.selective_risk
    assert said["confidence"] == 0.95
    for bound in model.bounds:
        assert said[bound.quantity] == bound.value
    if model.cost is not None:
        assert said["expected_cost"] == promised.expected_cost
    # Candidates were learned for safer bounds, on a part of the rows: they have no card.
    assert all(candidate.rule.card is None for candidate in promised.candidates)
    with pytest.raises(dm.InvalidInputError, match="made the rule"):
        dm.guarantees.certify(promised.rule, sample)
