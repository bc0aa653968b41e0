"""Tuning again with other weights equals tuning on the rows drawn."""

import numpy as np
import pytest

import demur as dm
from demur.core.points import RowMasses
from demur.guarantees.retuning import Retuner

MODELS = [
    dm.TprFprModel(0.7, 0.4),
    dm.PrecisionRecallModel(0.7, 0.6, ood_prior=0.3),
    dm.CostModel(0.15, 0.05, 0.02, ood_prior=0.4),
]


def sample_of(rng, scores, weighted):
    id_scores = np.round(rng.normal(size=(60, scores)) * 8) / 8
    ood_scores = np.round(rng.normal(1, size=(40, scores)) * 8) / 8
    id_scores[:2], ood_scores[0, 0] = np.inf, np.inf
    loss = (rng.random(60) < 0.3) * rng.exponential(size=60)
    weights = (rng.random(60), rng.random(40)) if weighted else (None, None)
    return dm.Sample(id_scores, loss, ood_scores, id_weight=weights[0], ood_weight=weights[1])


def drawn(sample, times):
    """Return the sample with each row as often as it was drawn."""
    id_rows = np.repeat(np.arange(sample.n_id), times[: sample.n_id])
    ood_rows = np.repeat(np.arange(sample.n_ood), times[sample.n_id :])
    id_weight = None if sample.id_weight is None else sample.id_weight[id_rows]
    ood_weight = None if sample.ood_weight is None else sample.ood_weight[ood_rows]
    rows = sample.id_scores[id_rows], sample.id_loss[id_rows], sample.ood_scores[ood_rows]
    return dm.Sample(*rows, id_weight=id_weight, ood_weight=ood_weight)


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("scores", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("search", [None, dm.Grid(9)], ids=["exact", "grid"])
def test_equals_tuning_on_the_rows_drawn(model, scores, weighted, search):
    rng = np.random.default_rng(5)
    sample = sample_of(rng, scores, weighted)
    near = dm.tune(sample, model, search=search).rule
    again = Retuner(sample, model, search=search, near=near)
    for _ in range(15):
        times = np.concatenate([np.bincount(rng.integers(0, n, n), minlength=n) for n in (60, 40)])
        rule = again.rule(times)
        try:
            tuned = dm.tune(drawn(sample, times), model, search=search)
        except dm.InfeasibleError:
            assert rule is None
            continue
        point = dm.evaluate(rule, drawn(sample, times), model=model)
        assert point.tpr == pytest.approx(tuned.point.tpr, rel=1e-12)
        assert point.fpr == pytest.approx(tuned.point.fpr, rel=1e-12)
        assert point.selective_risk == pytest.approx(tuned.point.selective_risk, rel=1e-12)


def test_no_id_row_drawn_means_no_rule():
    sample = dm.Sample([0.1, 0.2], [0, 1], ood_scores=[0.3])
    assert Retuner(sample, dm.TprFprModel(0.5)).rule(np.array([0, 0, 1])) is None


def test_one_enormous_loss_may_be_drawn_many_times():
    sample = dm.Sample([0.1, 0.2], [0.1, 1e12], ood_scores=[0.3])
    masses = RowMasses.of(sample, spare=6).repeated(np.array([0, 60, 1]))
    assert masses.totals.loss < 2**52
    assert masses.totals.loss * 2.0**-masses.totals.loss_exponent == pytest.approx(6e13)
    rule = Retuner(sample, dm.TprFprModel(0.5)).rule(np.array([3, 3, 1]))
    assert rule.accept(sample.id_scores).tolist() == [True, False]
