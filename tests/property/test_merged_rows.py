"""Rows merged before the search change nothing: the same rule and certificate as with all rows."""

import os

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled
from demur._kernels.engines import NAMES, VARIABLE
from demur.tuning import merged_rows, tune
from demur.tuning.prepared import Prepared

CASES = int(os.environ.get("DEMUR_CASES", "40"))


@pytest.fixture(params=NAMES)
def engine(request, monkeypatch):
    if request.param == "compiled" and not compiled.AVAILABLE:
        pytest.skip("the extension is not built")
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param


@pytest.fixture
def small(monkeypatch):
    """Let small samples be narrowed, whatever it costs."""
    monkeypatch.setattr(tune, "MANY", 0)
    monkeypatch.setattr(compiled, "grows_lazily", False)
    monkeypatch.setattr(merged_rows, "_MOST_OPEN", 1.0)
    monkeypatch.setattr(merged_rows, "_AROUND", 0.25)
    monkeypatch.setattr(merged_rows, "_GUESSED_FROM", 600)
    monkeypatch.setattr(merged_rows, "_ROWS_OF_A_CELL", 2)
    monkeypatch.setattr(merged_rows, "_MOST_SLABS", 10_000)
    monkeypatch.setattr(merged_rows, "_ROWS_OF_A_STEP", 0)
    monkeypatch.setattr(merged_rows, "_BLOCK", 100)


def scores_of(rng, n, shift, kind):
    x = rng.normal(size=(n, 2)) + shift
    if kind == "tied":
        return np.round(x, 1)
    if kind == "skewed":
        return np.exp(x)
    if kind == "saturated":
        return np.maximum(x, 1 / 3)
    if kind == "units":
        return x * [1e-3, 1e4] + [0, 1e5]
    return x


def random_sample(rng):
    kind = str(rng.choice(["plain", "tied", "skewed", "saturated", "units"]))
    n_id, n_ood = int(rng.integers(400, 1500)), int(rng.integers(200, 900))
    id_scores = scores_of(rng, n_id, 0.0, kind)
    wrong = rng.random(n_id) < 1 / (1 + np.exp(2 - np.argsort(np.argsort(id_scores[:, 0])) / n_id))
    loss = wrong * (rng.integers(1, 5, n_id) if rng.random() < 0.3 else 1)
    ood = scores_of(rng, n_ood, rng.choice([0.5, 1.5]), kind)
    sets = {"near": ood[: n_ood // 3], "far": ood[n_ood // 3 :]} if rng.random() < 0.3 else ood
    weight = rng.integers(1, 4, n_id).astype(float) if rng.random() < 0.3 else None
    return dm.Sample(id_scores, loss, sets, id_weight=weight)


def random_model(rng):
    return [
        dm.TprFprModel(float(rng.choice([0.5, 0.8])), float(rng.choice([0.3, 0.6]))),
        dm.PrecisionRecallModel(0.6, 0.5, ood_prior=0.3),
        dm.CostModel(0.3, 0.5, 0.0, ood_prior=0.4),
    ][int(rng.integers(3))]


def test_the_rule_and_its_certificate_are_those_of_all_rows(engine, small, monkeypatch):
    rng = np.random.default_rng(11)
    taken = []
    search = merged_rows.narrowed
    monkeypatch.setattr(
        merged_rows, "narrowed", lambda *given: taken.append(search(*given)) or taken[-1]
    )
    for _ in range(CASES if engine == "compiled" else CASES // 4):
        sample, model = random_sample(rng), random_model(rng)
        directions = str(rng.choice(["nonneg", "nonneg", "real", "circle"]))
        ood = "pooled" if isinstance(model, dm.CostModel) else str(rng.choice(["pooled", "worst"]))
        options = {"directions": directions, "ood": ood}
        try:
            found = dm.tune(sample, model, **options)
        except dm.InfeasibleError:
            found = None
        with monkeypatch.context() as patched:
            patched.setattr(merged_rows, "narrowed", lambda *given: None)
            try:
                expected = dm.tune(sample, model, **options)
            except dm.InfeasibleError:
                expected = None
        if found is None or expected is None:
            assert found is expected
            continue
        assert found.rule.direction == expected.rule.direction
        assert found.rule.threshold == expected.rule.threshold
        assert found.point == expected.point
        assert found.certificate.status == expected.certificate.status == "optimal"
        assert found.certificate.lower_bound == expected.certificate.lower_bound
    assert sum(part is not None for part in taken) > len(taken) / 3


def test_most_rows_of_a_large_sample_are_merged(engine, monkeypatch):
    monkeypatch.setattr(tune, "MANY", 20_000)
    rng = np.random.default_rng(3)
    id_scores, ood = rng.normal(size=(20_000, 2)), rng.normal(2, 1, (20_000, 2))
    wrong = rng.random(20_000) < 1 / (1 + np.exp(3 - 2 * id_scores[:, 0]))
    prepared = dm.prepare(dm.Sample(id_scores, wrong, ood))
    model = dm.TprFprModel(0.8, 0.3)
    program = model.program(prepared.points.totals)
    part = merged_rows.narrowed(prepared, program, tune.DIRECTION_SETS["nonneg"])
    assert part is not None
    assert len(part.prepared.points.scores) < 10_000
    assert part.prepared.points.id.sum() == 20_000
    # Noise is left to the tree over all rows.
    noise = dm.prepare(dm.Sample(id_scores, rng.random(20_000) < 0.5, rng.normal(size=(20_000, 2))))
    program = dm.TprFprModel(0.5, 1.0).program(noise.points.totals)
    assert merged_rows.narrowed(noise, program, tune.DIRECTION_SETS["circle"]) is None


def test_where_all_directions_are_equally_good_it_gives_up_soon(engine, small, monkeypatch):
    rng = np.random.default_rng(5)
    boxes = []
    search = Prepared.search

    def counted(self, *given, **options):
        found = search(self, *given, **options)
        boxes.append((options.get("budget"), found.boxes))
        return found

    id_scores, ood_scores = rng.normal(size=(3000, 2)), rng.normal(1.5, 1, (1500, 2))
    sample = dm.Sample(id_scores, rng.random(3000) < 0.1, ood_scores)
    # Every direction accepts all ID rows at the same cost: only the FPR tells them apart.
    model = dm.CostModel(1, 0, 0, ood_prior=0.2)
    monkeypatch.setattr(tune, "MANY", 10**9)
    expected = dm.tune(sample, model)
    monkeypatch.setattr(tune, "MANY", 0)
    monkeypatch.setattr(compiled, "grows_lazily", False)
    monkeypatch.setattr(merged_rows, "_MOST_BOXES", 3)
    monkeypatch.setattr(Prepared, "search", counted)
    found = dm.tune(sample, model)
    assert found.rule == expected.rule and found.certificate == expected.certificate
    (guess, few), (whole, _) = boxes
    assert (guess, whole) == (3, None) and few < expected.certificate.boxes
