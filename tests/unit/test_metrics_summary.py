"""The summary from one sort equals the metrics taken one by one, and scikit-learn's."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

import demur as dm
from demur import metrics


def samples():
    rng = np.random.default_rng(0)
    for decimals in (0, 1, 12):
        for n_id, n_ood in ((40, 30), (1, 5), (60, 1)):
            scores = np.round(rng.normal(size=n_id), decimals)
            ood = np.round(rng.normal(0.8, size=n_ood), decimals)
            yield dm.Sample(scores, rng.random(n_id) < 0.3, ood)
            scores[rng.random(n_id) < 0.1] = np.inf
            ood[rng.random(n_ood) < 0.3] = np.inf
            yield dm.Sample(scores, rng.random(n_id) < 0.3, ood)
    yield dm.Sample(rng.normal(size=9), rng.random(9) < 0.5, id_weight=rng.random(9))
    weights = {"id_weight": rng.random(50), "ood_weight": rng.integers(0, 3, 20) + 0.5}
    yield dm.Sample(rng.normal(size=50), rng.random(50) < 0.2, rng.normal(1, size=20), **weights)


@pytest.mark.parametrize("sample", list(samples()), ids=str)
@pytest.mark.parametrize("prior", [None, 0.1])
def test_summary_equals_the_single_functions(sample, prior):
    s = metrics.summary(sample, ood_prior=prior)
    expected = {
        "auroc": metrics.auroc(sample),
        "aupr": metrics.aupr(sample, ood_prior=prior),
        "average_precision": metrics.aupr(sample, method="average_precision", ood_prior=prior),
        "fpr_at_tpr_95": metrics.fpr_at_tpr(sample, 0.95),
        "f1": metrics.f1(sample, ood_prior=prior),
        "id_accuracy": metrics.id_accuracy(sample),
        "oscr_accepted": metrics.oscr(sample, per="accepted"),
        "oscr_all": metrics.oscr(sample, per="all"),
        "aurc": metrics.aurc(sample),
        "augrc": metrics.augrc(sample),
    }
    for name, value in expected.items():
        assert getattr(s, name) == pytest.approx(value, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_areas_with_ood_as_the_positive_class(decimals):
    rng = np.random.default_rng(1)
    scores = np.round(rng.normal(size=300), decimals)
    ood = np.round(rng.normal(0.5, size=200), decimals)
    s = metrics.summary(dm.Sample(scores, np.zeros(300), ood))
    is_ood, doubt = np.r_[np.zeros(300), np.ones(200)], np.r_[scores, ood]
    assert s.average_precision_ood == pytest.approx(
        average_precision_score(is_ood, doubt), abs=1e-12
    )
    assert s.average_precision == pytest.approx(
        average_precision_score(1 - is_ood, -doubt), abs=1e-12
    )
    assert s.auroc == pytest.approx(roc_auc_score(is_ood, doubt), abs=1e-12)


def test_summary_needs_one_score_and_leaves_out_what_losses_do_not_say():
    two = dm.Sample([[1, 2]], [0], [[3, 4]])
    with pytest.raises(dm.InvalidInputError, match="one score"):
        metrics.summary(two)
    general = metrics.summary(dm.Sample([1, 2], [0.5, 2], [3]))
    assert np.isnan(general.oscr_all) and np.isnan(general.id_accuracy)
    assert general.aurc == pytest.approx((0.5 + 1.25) / 2)
