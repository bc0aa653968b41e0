"""Tuning again with other weights equals tuning on the rows drawn."""

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled
from demur._kernels.engines import VARIABLE
from demur.core.points import RowMasses
from demur.guarantees.cross_tuning import Retuner
from demur.tuning.prepared import prepare
from demur.tuning.result import DIRECTION_SETS

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


def kinds_of_rows(rng, n):
    """Return scores that fall apart, scores with ties, and scores on a curve."""
    plain = rng.normal(size=(n, 2))
    curve = np.column_stack([plain[:, 0], np.exp(plain[:, 0])])
    return {
        "plain": plain,
        "steps": plain.round(1),
        "thirds": np.rint(3 * plain) / 3,
        "curve": curve,
    }


TRAILED = [
    dm.TprFprModel(0.3, 0.7),
    dm.PrecisionRecallModel(0.6, 0.3, ood_prior=0.3),
    dm.CostModel(0.15, 0.05, 0.02, ood_prior=0.4),
    dm.RiskFprModel(0.4, 0.6),
]


@pytest.fixture
def in_c(monkeypatch):
    if not compiled.AVAILABLE:
        pytest.skip("only the compiled engine records trails")
    monkeypatch.setenv(VARIABLE, "compiled")


@pytest.mark.parametrize("kind", ["plain", "steps", "thirds", "curve"])
@pytest.mark.parametrize("zero_one", [True, False])
@pytest.mark.parametrize("directions", ["nonneg", "circle"])
@pytest.mark.parametrize("model", TRAILED, ids=lambda m: type(m).__name__)
def test_a_trail_changes_nothing_however_masses_differ(in_c, kind, zero_one, directions, model):
    rng = np.random.default_rng(11)
    scores = kinds_of_rows(rng, 900)[kind]
    loss = rng.random(600) < 0.3 if zero_one else rng.exponential(size=600) * (scores[:600, 0] > 0)
    sample = dm.Sample(scores[:600], loss, scores[600:] + 0.5 * (kind == "plain"))
    allowed = DIRECTION_SETS[directions]
    again = Retuner(sample, model, directions=directions, near=dm.tune(sample, model).rule)
    assert len(again._trail.items) > 200
    for share in (1.0, 0.1, 0.01):
        # All rows about as often, or nearly all of them never.
        times = rng.poisson(1.0, 900) * (rng.random(900) < share)
        times[[0, -1]] = 1
        masses = again._masses.repeated(times)
        ready = again._prepared.reweighted(again._prepared.points.weighted(masses))
        program = model.program(masses.totals)
        found, plain = (ready.search(program, allowed, trail=t) for t in (again._trail, None))
        assert found[2:7] == plain[2:7]
        assert found.unresolved == plain.unresolved or kind == "thirds"


def test_a_trail_of_other_rows_is_refused(in_c):
    rng = np.random.default_rng(2)
    samples = [sample_of(rng, 2, False), dm.Sample(rng.normal(size=(9, 2)), np.zeros(9), [[1, 1]])]
    first, other = (prepare(sample) for sample in samples)
    model = dm.TprFprModel(0.5)
    trail = first.trail(model.program(first.points.totals), DIRECTION_SETS["nonneg"], None)
    program = model.program(other.points.totals)
    with pytest.raises(ValueError, match="another tree"):
        other.search(program, DIRECTION_SETS["nonneg"], trail=trail)


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
