"""Curves of one score: every operating point, with the rule that attains it."""

import math

import numpy as np
import pytest

from demur import InvalidInputError, Rule, Sample, evaluate
from demur.metrics import ccr_fpr_curve, precision_recall_curve, risk_coverage_curve, roc_curve

SAMPLE = Sample(
    [0.1, 0.2, 0.2, 0.5, 0.8, math.inf],
    [0, 1, 0, 0, 1, 0],
    ood_scores=[0.05, 0.2, 0.3, 0.8],
    score_names=("msp",),
)


def test_roc_curve():
    curve = roc_curve(SAMPLE)
    np.testing.assert_allclose(curve.x, np.array([0, 1, 1, 2, 3, 3, 4]) / 4)
    np.testing.assert_allclose(curve.y, np.array([0, 0, 1, 3, 3, 4, 5]) / 6)
    np.testing.assert_allclose(curve.thresholds[:3], [-math.inf, 0.075, 0.15])
    assert curve.thresholds[-1] == 0.8
    assert (curve.x_label, curve.y_label, curve.interpolation) == ("FPR", "TPR", "linear")
    assert curve.attainable == (0, 1)
    assert curve.rule(1) == Rule((1.0,), curve.thresholds[1], score_names=("msp",))
    assert repr(curve) == "Curve(TPR over FPR, 7 points)"


def test_precision_recall_curve():
    curve = precision_recall_curve(SAMPLE)
    np.testing.assert_allclose(curve.x, np.array([0, 1, 3, 3, 4, 5]) / 6)
    np.testing.assert_allclose(curve.y, [0, 1 / 2, 3 / 5, 3 / 6, 4 / 7, 5 / 9])
    assert curve.ood_prior == 0.4
    assert (curve.x_label, curve.y_label) == ("recall", "precision")
    declared = precision_recall_curve(SAMPLE, ood_prior=0.25)
    assert declared.ood_prior == 0.25
    expected = evaluate(declared.rule(2), SAMPLE, ood_prior=0.25).precision
    assert declared.y[2] == pytest.approx(expected)


def test_ccr_fpr_curve():
    curve = ccr_fpr_curve(SAMPLE)
    np.testing.assert_allclose(curve.x, np.array([1, 2, 3, 3, 4]) / 4)
    np.testing.assert_allclose(curve.y, [1, 2 / 3, 2 / 3, 3 / 4, 3 / 5])
    assert curve.y_label == "CCR per accepted ID"
    per_all = ccr_fpr_curve(SAMPLE, per="all")
    np.testing.assert_allclose(per_all.x, roc_curve(SAMPLE).x)
    np.testing.assert_allclose(per_all.y, np.array([0, 0, 1, 2, 2, 3, 3]) / 6, atol=1e-15)
    assert per_all.y_label == "CCR per all ID"


def test_risk_coverage_curve():
    curve = risk_coverage_curve(SAMPLE)
    np.testing.assert_allclose(curve.x, np.array([1, 3, 4, 5]) / 6)
    np.testing.assert_allclose(curve.y, [0, 1 / 3, 1 / 4, 2 / 5])
    assert (curve.x_label, curve.y_label) == ("coverage", "selective risk")


def test_risk_coverage_curve_ends_at_the_fpr_bound():
    curve = risk_coverage_curve(SAMPLE, max_fpr=0.5)
    np.testing.assert_allclose(curve.x, np.array([1, 3]) / 6)
    assert curve.attainable == (1 / 6, 1 / 2)
    none = risk_coverage_curve(SAMPLE, max_fpr=0)
    assert len(none) == 0
    assert np.isnan(none.attainable).all()


def test_every_point_is_what_its_rule_does():
    rng = np.random.default_rng(5)
    sample = Sample(
        rng.integers(0, 9, 30),
        rng.random(30),
        ood_scores=rng.integers(2, 12, 20),
        id_weight=rng.random(30),
        ood_weight=rng.random(20),
    )
    roc, risk = roc_curve(sample), risk_coverage_curve(sample, max_fpr=0.7)
    pr = precision_recall_curve(sample, ood_prior=0.3)
    for curve in (roc, risk, pr):
        for i in range(len(curve)):
            point = evaluate(curve.rule(i), sample, ood_prior=0.3)
            x, y = {
                "TPR": (point.fpr, point.tpr),
                "selective risk": (point.tpr, point.selective_risk),
                "precision": (point.tpr, point.precision),
            }[curve.y_label]
            assert (curve.x[i], curve.y[i]) == pytest.approx((x, y))
    assert (risk.x > 0).all()
    assert max(evaluate(risk.rule(i), sample).fpr for i in range(len(risk))) <= 0.7


@pytest.mark.parametrize("curve_of", [roc_curve, precision_recall_curve, ccr_fpr_curve])
def test_curves_over_ood_need_ood_rows(curve_of):
    bare = Sample([0.1, 0.2], [0, 1])
    with pytest.raises(InvalidInputError, match="sample has no OOD rows"):
        curve_of(bare)
    with pytest.raises(InvalidInputError, match="evaluate_on has no OOD rows"):
        curve_of(SAMPLE, evaluate_on=bare)
    with pytest.raises(InvalidInputError, match="evaluate_on has 2 scores"):
        curve_of(SAMPLE, evaluate_on=Sample([[0, 0]], [0], ood_scores=[[1, 1]]))


def test_risk_coverage_without_ood():
    bare = Sample([0.1, 0.2, 0.3], [0, 1, 0])
    curve = risk_coverage_curve(bare, evaluate_on=Sample([0.1, 0.2, 0.2], [1, 0, 0]))
    np.testing.assert_allclose(curve.x, [1 / 3, 1, 1])
    np.testing.assert_allclose(curve.y, [1, 1 / 3, 1 / 3])
    assert curve.interpolation == "none"


def test_evaluate_on_reads_the_same_rules_elsewhere():
    rng = np.random.default_rng(6)
    other = Sample(
        [*rng.integers(0, 9, 30) / 10, math.inf],
        [*(rng.random(30) < 0.3), 1],
        ood_scores=rng.integers(2, 12, 20) / 10,
    )
    tuned, read = roc_curve(SAMPLE), roc_curve(SAMPLE, evaluate_on=other)
    np.testing.assert_array_equal(tuned.thresholds, read.thresholds)
    assert read.interpolation == "none"
    for i in range(len(read)):
        point = evaluate(tuned.rule(i), other)
        assert (read.x[i], read.y[i]) == (point.fpr, point.tpr)
    ccr = ccr_fpr_curve(SAMPLE, evaluate_on=other)
    for i in range(len(ccr)):
        point = evaluate(ccr.rule(i), other)
        assert (ccr.x[i], ccr.y[i]) == pytest.approx((point.fpr, 1 - point.selective_risk))
    prior = precision_recall_curve(SAMPLE, evaluate_on=other).ood_prior
    assert prior == precision_recall_curve(SAMPLE).ood_prior == 0.4
