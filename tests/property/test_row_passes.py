"""What is read off all rows in one pass in C is what NumPy reads off them."""

import os

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled
from demur.core.points import Points
from demur.core.rates import AcceptedMasses
from demur.tuning import prepared
from demur.tuning.prepared import as_prepared, spread

CASES = int(os.environ.get("DEMUR_CASES", "300"))

pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built")


@pytest.fixture(params=["baseline", "widest"])
def vectors(request):
    from demur._kernels import _engine

    _engine.vectors(0 if request.param == "baseline" else -1)
    yield
    _engine.vectors(-1)


def values_of(rng, n):
    x = rng.normal(size=(n, 2))
    kind = rng.integers(7)
    if kind == 1:
        x = np.round(x, int(rng.integers(0, 2)))
    elif kind == 2:
        x = np.where(rng.random(x.shape) < 0.3, -0.0, x)
    elif kind == 3:
        x = np.where(rng.random(x.shape) < 0.1, np.inf, x)
    elif kind == 4:
        x *= 1e308
    elif kind == 5:
        x[:, int(rng.integers(2))] = 0.25
    elif kind == 6:
        x = np.exp(8 * x)
    return x


def random_sample(rng):
    n_id, n_ood = int(rng.integers(1, 60)), int(rng.integers(0, 60))
    ood = values_of(rng, n_ood)
    loss = rng.random(n_id) < 0.4 if rng.random() < 0.5 else rng.exponential(size=n_id)
    weight = rng.integers(0, 4, n_id) + 0.0 if rng.random() < 0.4 else None
    if weight is not None and weight.sum() == 0:
        weight = None
    names = ("a", "b") if rng.random() < 0.5 else None
    return dm.Sample(
        values_of(rng, n_id),
        loss,
        {"near": ood[: n_ood // 2], "far": ood[n_ood // 2 :]} if n_ood > 1 else None,
        id_weight=weight,
        score_names=names,
        confidence=("b",) if names and not np.isinf(ood).any() and rng.random() < 0.5 else (),
    )


def samples(seed):
    rng = np.random.default_rng(seed)
    made = 0
    while made < CASES:
        try:
            sample = random_sample(rng)
        except dm.InvalidInputError:
            # A confidence of +inf is a doubt of -inf, which is none.
            continue
        made += 1
        yield rng, sample


def on(monkeypatch, engine, run):
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    return run()


def same_bits(a, b):
    return a.shape == b.shape and (a.view(np.int64) == b.view(np.int64)).all()


@pytest.mark.filterwarnings("ignore")
def test_points_are_the_same(monkeypatch, vectors):
    ranges = 0
    for rng, sample in samples(1):
        ood = str(rng.choice(["pooled", "worst"]))
        found, expected = (
            on(monkeypatch, engine, lambda: Points.of(sample, ood))  # noqa: B023
            for engine in ("compiled", "numpy")
        )
        assert same_bits(found.scores, expected.scores)
        assert found.ranges == expected.ranges
        assert found.totals == expected.totals
        for a, b in ((found.id, expected.id), (found.ood, expected.ood)):
            assert (a == b).all()
        assert sum(found.totals.ood) == sum(mass for _, mass in found.totals.sets)
        if found.rows is None:
            assert found.totals.ood == tuple(found.ood.sum(axis=1))
        ranges += found.ranges is not None
    assert ranges > CASES / 4


@pytest.mark.filterwarnings("ignore")
def test_what_a_rule_accepts_is_the_same(monkeypatch, vectors):
    some = 0
    for rng, sample in samples(2):
        points = Points.of(sample, "worst")
        direction = tuple(rng.choice([-1.0, 0.0, 0.5, 1.0, 1e300], 2))
        if direction == (0.0, 0.0):
            direction = (1.0, 0.0)
        values = [direction[0] * x + direction[1] * y for x, y in points.scores[:5].tolist()]
        thresholds = [0.0, -np.inf, 1e308, *(v for v in values if np.isfinite(v))]
        rule = dm.Rule(direction, float(rng.choice(thresholds)), float(rng.choice([0.0, 1.0])))
        found, expected = (
            on(
                monkeypatch,
                engine,
                lambda: AcceptedMasses.of(rule, points, sample.columns),  # noqa: B023
            )
            for engine in ("compiled", "numpy")
        )
        assert found == expected
        some += 0 < found.id < points.totals.id
    assert some > CASES / 10


@pytest.mark.parametrize("n", [1, 2, 9, 10, 11, 399, 5000])
def test_the_spread_is_that_of_sorted_scores(n):
    rng = np.random.default_rng(n)
    for mass in (np.full(n, 3), rng.integers(1, 9, n)):
        scores = rng.normal(size=(n, 2))
        repeated = np.sort(np.repeat(scores, mass, axis=0), axis=0)
        low, high = (repeated[-(-len(repeated) * tenths // 10) - 1] for tenths in (1, 9))
        whole = np.ptp(scores, axis=0) if n > 1 else np.ones(2)
        expected = np.where(high > low, high - low, whole)
        assert spread(scores, mass).tolist() == expected.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_middle_of_the_scores_is_the_same(monkeypatch, bits):
    monkeypatch.setenv("DEMUR_ENGINE", "compiled")
    monkeypatch.setattr(compiled, "_cell_bits", lambda rows: bits)
    monkeypatch.setattr(prepared, "LAZY", 0)
    known = 0
    for _, sample in samples(3):
        rows = as_prepared(sample, None, for_one_call=True)
        if len(rows.points.scores) == 0:
            continue
        try:
            rows._grown()
        except dm.InvalidInputError:
            # Two scores that no weights bring together.
            continue
        tenths = compiled.tenths(rows._any_tree())
        assert tenths is not None
        known += bool(np.isfinite(tenths).all())
        assert rows.spread.tolist() == spread(rows.points.scores, rows.points.id).tolist()
    assert known > CASES / 2


@pytest.mark.filterwarnings("ignore")
def test_rates_of_rows_drawn_are_the_same(monkeypatch, vectors):
    from demur.guarantees.standard_errors import CountedRows

    monkeypatch.setenv("DEMUR_ENGINE", "compiled")
    some = 0
    for rng, sample in samples(4):
        counted, model = CountedRows.of(sample), dm.TprFprModel(0.5)
        rule = dm.Rule(tuple(rng.normal(size=2)), float(rng.normal()), float(rng.choice([0, 1])))
        times = rng.integers(0, 4, sample.n_id), rng.integers(0, 4, sample.n_ood)
        views = [times, None, tuple((t == 0).astype(np.int64) for t in times)]
        found = counted.points_of(rule, views, model)
        once = np.ones(sample.n_id, np.int64), np.ones(sample.n_ood, np.int64)
        decided = counted.decide(rule)
        expected = [counted.point(decided, view or once, model) for view in views]
        np.testing.assert_equal(found, expected)
        some += sum(point is not None and 0 < point.tpr < 1 for point in found)
    assert some > CASES / 2
