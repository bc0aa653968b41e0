"""Tuning with a guarantee, and planning: exact error rates of the tests, and the procedure."""

from dataclasses import replace
from math import comb

import numpy as np
import pytest

import demur as dm
from demur.guarantees import plan, tune_certified
from demur.guarantees.certified_rule import risk_upper
from demur.guarantees.intervals import rate_lower, rate_upper, sidak
from demur.guarantees.planning import fewest_rows, rows_to_prove
from demur.guarantees.requirements import Requirement, Sizes
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
            [requirement.proven(k, o) for o in range(sizes.test_ood + 1)]
            for k in range(sizes.test_id + 1)
        ]
    )


def test_false_claims_on_tpr_and_fpr_are_rare():
    sizes = Sizes(10, 10, 24, 19)
    made = claims(Requirement.of(dm.TprFprModel(0.6, 0.3), sizes, 0.1), sizes)
    assert made.any()
    for tpr, fpr in ((0.599, 0.0), (0.599, 0.29), (1.0, 0.301), (0.7, 0.301), (0.5, 0.5)):
        assert pmf(24, tpr) @ made @ pmf(19, fpr) <= 0.1


def test_false_claims_on_precision_and_recall_are_rare():
    model = dm.PrecisionRecallModel(0.8, 0.5, ood_prior=0.4)
    slope = 0.6 * 0.2 / (0.4 * 0.8)
    for sizes in (Sizes(9, 9, 30, 22), Sizes(9, 9, 12, 60)):
        requirement = Requirement.of(model, sizes, 0.15, 0.8)
        made = claims(requirement, sizes)
        assert made.any()
        for tpr in np.linspace(0.3, 1, 15):
            fpr = min(1, slope * tpr + 1e-6)
            assert pmf(sizes.test_id, tpr) @ made @ pmf(sizes.test_ood, fpr) <= 0.15
        for fpr in (0.0, 0.05):
            assert pmf(sizes.test_id, 0.499) @ made @ pmf(sizes.test_ood, fpr) <= 0.15


def test_tightened_bounds_are_proven_when_they_are_met_exactly():
    sizes = Sizes(60, 60, 140, 140)
    required = Requirement.of(dm.TprFprModel(0.7, 0.3), sizes, 0.025)
    tpr, fpr = asked(required.tightened(0))
    assert required.proven(round(tpr * 140), round(fpr * 140))
    assert not required.proven(round(tpr * 140) - 1, 0)
    assert not required.proven(140, round(fpr * 140) + 1)
    bolder, safer = asked(required.tightened(-1)), asked(required.tightened(1))
    assert 0.7 <= bolder[0] < tpr < safer[0]
    assert 0.3 >= bolder[1] > fpr > safer[1]
    assert required.tightened(-9) == dm.TprFprModel(0.7, 0.3)
    assert required.tightened(50) is None
    assert replace(required, sizes=Sizes(60, 60, 9, 9)).tightened(0) is None
    no_bound = Requirement.of(dm.TprFprModel(0, 1), Sizes(5, 0, 5, 0), 0.025)
    assert no_bound.tightened(2) == dm.TprFprModel(0, 1)
    assert no_bound.proven(0, 0)


def test_precision_bounds_tighten_with_the_margin():
    model = dm.PrecisionRecallModel(0.8, 0.5, ood_prior=0.4)
    required = Requirement.of(model, Sizes(60, 60, 140, 140), 0.025, 0.7)
    bolder, safer = asked(required.tightened(0)), asked(required.tightened(1))
    assert 0.5 < bolder[1] < safer[1]
    assert 0.8 < bolder[0] < safer[0] < 1
    assert asked(required.tightened(-9))[0] == 0.8
    free = Requirement.of(replace(model, ood_prior=0), Sizes(6, 0, 14, 0), 0.1, 1)
    assert asked(free.tightened(0))[0] == 0.8
    assert free.proven(14, 0)


MODELS = [dm.TprFprModel(0.7, 0.25), dm.PrecisionRecallModel(0.8, 0.7, ood_prior=0.4)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("scores", [1, 2])
def test_promises_come_from_the_test_rows_alone(model, scores):
    n = 900 if scores == 1 else 240
    sample = gaussian(n, 4, scores=scores)
    found = tune_certified(sample, model, confidence=0.9, rng=5)
    learn, test = split(sample, 0.3, 5)
    assert (learn.n_id, test.n_id) == (round(0.3 * n), n - round(0.3 * n))
    assert found.sizes == Sizes(learn.n_id, learn.n_ood, test.n_id, test.n_ood)
    proven = [c for c in found.candidates if c.proven]
    assert [c.proven for c in found.candidates] == sorted(
        (c.proven for c in found.candidates), reverse=True
    )
    margins = [c.margin for c in found.candidates]
    assert margins == sorted(margins, reverse=True)
    for candidate in found.candidates:
        accepted = candidate.rule.accept(test.id_scores)
        level = 0.05 / len(found.candidates)
        assert candidate.selective_risk == rate_upper(
            int(test.id_loss[accepted].sum()), int(accepted.sum()), level
        )
        assert candidate.tested == dm.evaluate(candidate.rule, test, model=model)
        assert candidate.learned == dm.evaluate(candidate.rule, learn, model=model)
    for candidate in proven:
        point = candidate.tested
        assert rate_lower(int(point.accepted_id), test.n_id, 0.05) >= 0.7
        if isinstance(model, dm.TprFprModel):
            assert rate_upper(int(point.accepted_ood), test.n_ood, 0.05) <= 0.25
    best = min(proven, key=lambda c: c.selective_risk)
    assert (found.rule, found.selective_risk) == (best.rule, best.selective_risk)
    assert found.point == best.tested
    assert tune_certified(sample, model, confidence=0.9, rng=5) == found


def test_the_order_of_tests_stops_at_the_first_failure():
    # The bounds leave so little room that the bolder candidates fail.
    found = tune_certified(gaussian(1500, 4), dm.TprFprModel(0.8, 0.12), rng=0)
    assert [c.proven for c in found.candidates] == [True, True, False]
    n = found.sizes.test_id
    for candidate in found.candidates:
        point = candidate.tested
        assert candidate.proven == (
            rate_lower(int(point.accepted_id), n, 0.025) >= 0.8
            and rate_upper(int(point.accepted_ood), n, 0.025) <= 0.12
        )


def test_cost_is_bounded_on_the_test_rows():
    model = dm.CostModel(reject_id=0.3, accept_ood=1, reject_ood=0, ood_prior=0.25)
    sample = gaussian(1000, 2)
    found = tune_certified(sample, model, confidence=0.9)
    learn, test = split(sample, 0.3, 0)
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
    with pytest.raises(dm.InfeasibleError, match="not even a perfect result on 28 ID") as caught:
        tune_certified(gaussian(40, 0), dm.TprFprModel(0.8, 0.1))
    # 36 test rows without one accepted prove fpr <= 0.1 at 0.025: 0.9**36 < 0.025 < 0.9**35.
    assert 0.9**36 < 0.025 < 0.9**35
    assert caught.value.attainable == {"needed_id": 40, "needed_ood": 52}
    assert "at least 40 ID and 52 OOD rows" in str(caught.value)


def test_a_small_margin_asks_for_more_rows():
    with pytest.raises(dm.InfeasibleError, match="the safest candidate has tpr") as caught:
        tune_certified(gaussian(400, 1), dm.TprFprModel(0.88, 0.12))
    needed = caught.value.attainable
    assert needed["needed_id"] >= 400 and needed["needed_ood"] >= 400
    assert max(needed.values()) > 400
    with pytest.raises(dm.InfeasibleError, match=r"about .* OOD rows are needed"):
        tune_certified(gaussian(400, 1), dm.PrecisionRecallModel(0.88, 0.85, 0.5))
    with pytest.raises(dm.InfeasibleError, match=r"at least .* OOD rows are needed"):
        tune_certified(gaussian(40, 2), dm.PrecisionRecallModel(0.9, 0.8, 0.5))


def test_rows_that_are_asked_for_are_enough_about_as_often_as_stated():
    # The whole sample is to be planned with, not one candidate's luck on the test rows.
    model = dm.TprFprModel(0.85, 0.15)
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
        learn, _ = split(sample, 0.3, 0)
        feasible = [not np.isnan(dm.metrics.selective_risk_at(s, model)) for s in (learn, sample)]
        if feasible == [False, True]:
            break
    with pytest.raises(dm.InfeasibleError, match="no rule meets them on the 60 ID") as caught:
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
    tpr, fpr = dm.Bound("tpr", at_least=0.8), dm.Bound("fpr", at_most=0.1)
    for model in (
        dm.RejectionModel("tpr", [dm.Bound("selective_risk", at_most=0.1)]),
        dm.RejectionModel("tpr", [fpr]),
        dm.RejectionModel("selective_risk", [tpr, dm.Bound("selective_risk", at_most=0.1)]),
        dm.RejectionModel("selective_risk", [dm.Bound("tpr", at_least=0.8, group="rare")]),
        dm.RejectionModel("selective_risk", [dm.Bound("fpr", at_most=0.1, ood_set="each")]),
        dm.RejectionModel("selective_risk", [dm.Bound("fpr", at_most=0.1, ood_set="svhn")]),
        dm.RejectionModel("selective_risk", [dm.Bound("tpr", at_most=0.8)]),
        dm.RejectionModel(dm.ExpectedCost(0.1), [tpr], 0.2),
    ):
        with pytest.raises(dm.InvalidInputError, match=r"knows TprFprModel.*each of all rows"):
            tune_certified(gaussian(50, 0), model)


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
            assert rate_upper(int(candidate.tested.accepted_ood), n, 0.025) <= 0.25
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
