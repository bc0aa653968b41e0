"""Curves of two scores on larger samples: searched for all levels at once, equal to enumeration."""

import numpy as np
import pytest

import demur as dm
from demur import metrics
from demur._kernels import compiled
from demur.tuning import staircases

pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built")


def cloud(seed, n=220, step=8):
    rng = np.random.default_rng(seed)
    id_scores = np.round(rng.normal(size=(n, 2)) * step) / step
    ood_scores = np.round(rng.normal(0.7, size=(n // 2, 2)) * step) / step
    id_scores[:3, 0], ood_scores[0] = np.inf, np.inf
    sets = {"near": ood_scores[: n // 4], "far": ood_scores[n // 4 :]}
    return dm.Sample(id_scores, rng.random(n) < 0.2, sets)


CURVES = {
    "roc": metrics.roc_curve,
    "precision-recall": metrics.precision_recall_curve,
    "risk-coverage": metrics.risk_coverage_curve,
    "risk-coverage at FPR": lambda sample: metrics.risk_coverage_curve(sample, max_fpr=0.3),
    "ccr": lambda sample: metrics.ccr_fpr_curve(sample, per="all"),
}
AREAS = {
    "auroc": metrics.auroc,
    "aupr": metrics.aupr,
    "oscr": lambda sample: metrics.oscr(sample, per="all"),
    "f1": metrics.f1,
    "fpr": lambda sample: metrics.fpr_at_tpr(sample, 0.8),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("seed", range(4))
def test_curves_are_the_same(name, seed, monkeypatch):
    sample = cloud(seed, step=8 if seed % 2 else 2**20)
    enumerated = CURVES[name](sample)
    monkeypatch.setattr(staircases, "FEW", 0)
    searched = CURVES[name](sample)
    np.testing.assert_array_equal(searched.x, enumerated.x)
    np.testing.assert_array_equal(searched.y, enumerated.y)
    for k in range(0, len(searched), 7):
        point = dm.evaluate(searched.rule(k), sample)
        attained = {"TPR": point.tpr, "coverage": point.tpr, "recall": point.tpr}
        if searched.y_label == "TPR":
            assert (searched.x[k], searched.y[k]) == (point.fpr, point.tpr)
        if searched.x_label in attained:
            assert searched.x[k] == attained[searched.x_label]
        if searched.y_label == "selective risk":
            assert searched.y[k] == point.selective_risk


@pytest.mark.parametrize("name", AREAS)
def test_areas_are_the_same(name, monkeypatch):
    for seed in range(6):
        sample = cloud(10 + seed)
        enumerated = AREAS[name](sample)
        monkeypatch.setattr(staircases, "FEW", 0)
        assert AREAS[name](sample) == enumerated
        assert AREAS[name](dm.prepare(sample)) == enumerated
        monkeypatch.undo()


def test_ten_thousand_rows_take_seconds():
    rng = np.random.default_rng(1)
    sample = dm.Sample(rng.normal(size=(7000, 2)), np.zeros(7000), rng.normal(1, size=(3000, 2)))
    curve = metrics.roc_curve(sample)
    for k in (10, len(curve) // 2):
        bound = round(curve.x[k] * 3000)
        best = dm.tune(sample, dm.TprFprModel(curve.y[k], bound / 3000)).point
        assert best.accepted_ood <= bound and best.tpr == curve.y[k]
        with pytest.raises(dm.InfeasibleError):
            dm.tune(sample, dm.TprFprModel(curve.y[k] + 1 / 7000, bound / 3000))
