"""Conventions fixed once: decimals, ties, infinities, rejecting everything, several OOD sets."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import demur as dm


def test_a_float_bound_means_its_shortest_decimal():
    # 0.07 * 100 is 7.000000000000001 in floats; seven OOD rows are within 0.07.
    sample = dm.Sample(np.arange(100), np.zeros(100), ood_scores=np.arange(100) + 0.5)
    tuned = dm.tune(sample, dm.TprFprModel(0.07, 0.07))
    assert tuned.point.accepted_ood == 7
    assert tuned.point.accepted_id == 8
    for bound in (Decimal("0.07"), Fraction(7, 100), np.float64(0.07), np.float32(0.07)):
        assert dm.tune(sample, dm.TprFprModel(bound, bound)).point == tuned.point


def test_precision_met_exactly_is_met():
    # pi = .25, TPR = 1, FPR = 1/3: precision is exactly 0.9.
    sample = dm.Sample([1, 1, 1], [0, 0, 1], ood_scores=[0, 2, 2])
    point = dm.tune(sample, dm.PrecisionRecallModel(0.9, 1, 0.25)).point
    assert (point.tpr, point.fpr) == (1, 1 / 3)
    with pytest.raises(dm.InfeasibleError) as caught:
        dm.tune(sample, dm.PrecisionRecallModel(Fraction(9, 10) + Fraction(1, 10**9), 1, 0.25))
    assert caught.value.attainable == {"max_recall": 0.0, "max_precision": 0.9}


def test_precision_bounds_agree_with_fractions_on_every_count():
    rng = np.random.default_rng(0)
    for _ in range(300):
        id_total, ood_total = (int(v) for v in rng.integers(1, 40, 2))
        kappa = Fraction(int(rng.integers(1, 100)), 100)
        prior = Fraction(int(rng.integers(1, 100)), 100)
        totals = dm.core.program.Totals(id_total, (ood_total,), 0)
        ((a, b),) = dm.PrecisionRecallModel(kappa, 0, prior).program(totals).ratio
        for nI in range(1, id_total + 1):
            for nO in range(ood_total + 1):
                tpr, fpr = Fraction(nI, id_total), Fraction(nO, ood_total)
                met = (1 - prior) * tpr >= kappa * ((1 - prior) * tpr + prior * fpr)
                assert (a * nI >= b * nO) == met


def test_equal_scores_are_accepted_together():
    sample = dm.Sample([1, 2, 2, 3], [0, 0, 1, 0], ood_scores=[2])
    with pytest.raises(dm.InfeasibleError) as caught:
        dm.tune(sample, dm.TprFprModel(0.5, 0))
    assert caught.value.attainable == {"max_tpr": 0.25, "min_fpr": 1.0}
    assert str(caught.value) == (
        "no rule reaches tpr >= 0.5 with fpr <= 0: at fpr <= 0 the largest tpr is 0.25, "
        "at tpr >= 0.5 the smallest fpr is 1; relax a bound or add a second score"
    )


def test_minus_zero_is_zero():
    sample = dm.Sample([0.0, -0.0, 1.0], [0, 1, 0], ood_scores=[[-0.0]])
    assert dm.tune(sample, dm.TprFprModel(0.1)).point.accepted_id == 3
    two = dm.Sample([[0.0, 1], [-0.0, 1], [5, 5]], [0, 1, 1])
    assert dm.tune(two, dm.TprFprModel(0.1)).point.accepted_id == 2


def test_ties_prefer_tpr_then_fpr_then_width():
    # Zero risk with 1, 2 or 3 rows: take 3. Widest line: halfway to the nearest rejected row.
    sample = dm.Sample([1, 2, 3, 7], [0, 0, 0, 1], ood_scores=[5])
    tuned = dm.tune(sample, dm.TprFprModel(0.25))
    assert tuned.rule.threshold == 4
    assert (tuned.point.tpr, tuned.point.fpr) == (0.75, 0)


def test_widest_line_between_two_points():
    # One accepted corner, one rejected: the boundary is their perpendicular bisector.
    square = [[0, 0], [0, 1], [1, 0], [1, 1]]
    sample = dm.Sample(square, [0, 0, 0, 1])
    rule = dm.tune(sample, dm.TprFprModel(0.75)).rule
    assert rule.direction == pytest.approx((np.sqrt(0.5), np.sqrt(0.5)))
    assert rule.threshold == pytest.approx(1.5 * np.sqrt(0.5))


def test_widest_line_among_different_sets_of_equal_worth():
    # Dropping either wrong row leaves risk 0; the one further away leaves the wider gap.
    sample = dm.Sample([[0, 0], [9, 0], [0, 4]], [0, 1, 1])
    tuned = dm.tune(sample, dm.TprFprModel(0.3))
    assert tuned.point.selective_risk == 0
    assert tuned.rule.accept([[0, 0], [9, 0], [0, 4]]).tolist() == [True, False, False]
    either = dm.Sample([[0, 0], [9, 0], [0, 4], [9, 4]], [0, 0, 0, 1], ood_scores=[[9, 0], [0, 4]])
    chosen = dm.tune(either, dm.TprFprModel(0.5, 0.5)).rule.accept([[9, 0], [0, 4]])
    assert chosen.sum() == 1


def test_accepting_everything_ends_at_the_largest_finite_score():
    sample = dm.Sample([1, 2, 3], [0, 0, 0], ood_scores=[np.inf])
    tuned = dm.tune(sample, dm.TprFprModel(1, 0))
    assert tuned.rule.threshold == 3
    assert tuned.point.fpr == 0


def test_infinite_scores_are_always_rejected():
    sample = dm.Sample([[0, 0], [np.inf, 0], [0, np.inf]], [1, 0, 0], ood_scores=[[0, np.inf]])
    point = dm.tune(sample, dm.TprFprModel(0.1, 0)).point
    assert (point.tpr, point.fpr, point.selective_risk) == (1 / 3, 0, 1)
    with pytest.raises(dm.InfeasibleError, match=r"rows with a score of \+inf are rejected"):
        dm.tune(sample, dm.TprFprModel(0.5, 1))
    circle = dm.tune(sample, dm.TprFprModel(0.1, 0), directions="circle")
    assert circle.rule.accept([[np.inf, 0], [0, np.inf]]).tolist() == [False, False]


def test_rejecting_everything_competes_only_under_the_cost_model():
    sample = dm.Sample([1, 2], [1, 1], ood_scores=[1])
    tuned = dm.tune(sample, dm.CostModel(0.5, 1, 0, 0.5))
    assert tuned.rule.threshold == -np.inf
    assert np.isnan(tuned.point.selective_risk)
    assert tuned.point.expected_cost == 0.25
    assert not tuned.rule.accept([1, 2]).any()
    assert dm.tune(sample, dm.TprFprModel(0, 1)).point.tpr > 0


def test_priors_need_ood_rows():
    sample = dm.Sample([1, 2], [0, 1])
    for model in (dm.CostModel(0.5, ood_prior=0.1), dm.PrecisionRecallModel(0.5, 0.5, 0.1)):
        with pytest.raises(dm.InvalidInputError, match="no OOD rows"):
            dm.tune(sample, model)


@pytest.fixture
def two_sets():
    rng = np.random.default_rng(5)
    return dm.Sample(
        rng.normal(size=(80, 2)),
        rng.random(80) < 0.2,
        ood_scores={
            "near": rng.normal(0.9, size=(30, 2)),
            "far": rng.normal(4.0, size=(90, 2)),
        },
    )


def test_several_ood_sets_pooled_per_set_and_worst(two_sets):
    model = dm.TprFprModel(0.6, 0.1)
    pooled = dm.tune(two_sets, model)
    assert pooled.point.fpr <= 0.1 < pooled.point.fpr_by_set["near"]
    near = dm.tune(two_sets.for_ood("near"), model)
    worst = dm.tune(two_sets, model, ood="worst")
    assert max(worst.point.fpr_by_set.values()) <= 0.1
    # Here the near set is the only one that binds.
    assert worst.point.selective_risk == near.point.selective_risk
    assert pooled.point.selective_risk <= worst.point.selective_risk


def test_worst_set_under_precision_and_when_infeasible(two_sets):
    model = dm.PrecisionRecallModel(0.9, 0.3, 0.4)
    point = dm.tune(two_sets, model, ood="worst").point
    for fpr in point.fpr_by_set.values():
        assert 0.6 * point.tpr >= 0.9 * (0.6 * point.tpr + 0.4 * fpr) - 1e-12
    with pytest.raises(dm.InfeasibleError) as caught:
        dm.tune(two_sets, dm.TprFprModel(0.9, 0.2), ood="worst")
    smallest = caught.value.attainable["min_fpr"]
    assert dm.tune(two_sets, dm.TprFprModel(0.9, smallest), ood="worst").point.tpr >= 0.9
    with pytest.raises(dm.InfeasibleError):
        dm.tune(two_sets, dm.TprFprModel(0.9, round(smallest - 1e-4, 4)), ood="worst")
    with pytest.raises(dm.InvalidInputError, match="CostModel"):
        dm.tune(two_sets, dm.CostModel(0.2, ood_prior=0.2), ood="worst")


def test_grid_is_the_printed_algorithm():
    rng = np.random.default_rng(6)
    id_scores, ood = rng.normal(size=(50, 2)), rng.normal(size=(30, 2)) + 1
    loss = (rng.random(50) < 0.3).astype(float)
    best = np.inf
    for angle in np.linspace(0, np.pi, 360):
        combine = lambda s, a=angle: s[:, 0] * np.cos(a) + s[:, 1] * np.sin(a)  # noqa: E731
        for limit in combine(np.vstack([id_scores, ood])):
            taken = combine(id_scores) <= limit
            if taken.mean() >= 0.6 and (combine(ood) <= limit).mean() <= 0.3:
                best = min(best, loss[taken].mean())
    tuned = dm.tune(dm.Sample(id_scores, loss, ood), dm.TprFprModel(0.6, 0.3), search=dm.Grid())
    assert tuned.point.selective_risk == best
    assert tuned.certificate.status == "grid"
    assert dm.Grid() == dm.Grid(360)


def test_scores_over_many_decades_are_tuned_exactly():
    # s_r spans 20 decades; the optimum needs mu near 1e-18.
    risk = np.array([1e-20, 2e-18, 3e-18, 1e-9, 0.5, 1.0])
    ood = np.array([0.1, 0.2, 4.0, 0.1, 0.1, 0.1])
    sample = dm.Sample(np.column_stack([risk, ood]), [0, 0, 0, 1, 1, 1], [[1e-18, 9.0]])
    tuned = dm.tune(sample, dm.TprFprModel(0.5, 0))
    assert (tuned.point.tpr, tuned.point.selective_risk) == (0.5, 0)
    assert 0 < tuned.rule.mu < 1e-9
