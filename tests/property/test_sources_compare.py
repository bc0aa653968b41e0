"""Comparisons of scores from counts are those of the same rows in memory, on every engine."""

import itertools

import engines
import numpy as np
import pyarrow as pa
import pytest

import demur as dm
from demur import metrics
from demur.guarantees import compare, compare_auroc
from demur.metrics.rules import binned_rows, counted_rows
from demur.sources.engines.frames import ArraySource
from demur.sources.open import Roles

ENGINES = engines.EVERY
SLOW = ("pushdown", "spark")
"""Engines that take long to plan a draw."""
SLOWER = (*SLOW, "dask")
"""Engines of which every pass takes a second or so; their tunings have tests of their own."""
MODELS = [
    dm.TprFprModel(0.6, 0.5),
    dm.TprFprModel(0.99, 0.01),
    dm.PrecisionRecallModel(0.8, 0.5, 0.3),
    dm.RejectionModel("fpr", [dm.Bound("tpr", at_least=0.95)]),
]


def random_table(seed, n=700):
    """Return rows with ties, two OOD sets and a key."""
    rng = np.random.default_rng(seed)
    ood = rng.random(n) < 0.4
    scores = rng.normal(size=(n, 2)) + 1.2 * ood[:, None]
    if seed % 2:
        scores = np.round(scores, 1)
    sets = np.where(ood, np.where(rng.random(n) < 0.3, "near", "far"), "id")
    wrong = (rng.random(n) < 1 / (1 + np.exp(1 - scores[:, 0]))).astype(np.int64)
    columns = {"a": scores[:, 0], "b": scores[:, 1], "loss": wrong, "set": sets}
    return pa.table(columns | {"key": np.arange(n)})


def sample_of(table, scores):
    return dm.Sample.from_frame(table, scores, loss="loss", ood="set")


def value(rows, model):
    try:
        return dm.tune(rows, model, directions="nonneg").point
    except dm.InfeasibleError as error:
        return error.attainable


@pytest.mark.parametrize("engine", ENGINES)
def test_one_set_and_single_scores_equal_memory(engine):
    with ENGINES[engine]() as source_of:
        for seed in range(1 if engine in SLOWER else 2):
            table = random_table(seed)
            for scores in (("a",), ("a", "b")):
                sample = sample_of(table, list(scores))
                source = source_of(table, Roles(scores, loss="loss", ood="set"))
                for name in ("near", "far"):
                    part, there = sample.for_ood(name), source.for_ood(name)
                    models = MODELS[:2] if engine in SLOW else MODELS
                    for model in models if name == "near" else MODELS[:1]:
                        here = value(part, model)
                        assert value(there, model) == here
                    if len(scores) == 1:
                        few = counted_rows(there)
                        assert few.error == 0
                        for metric in (metrics.auroc, metrics.aupr, metrics.oscr):
                            assert metric(few.sample) == pytest.approx(metric(part), abs=1e-12)


def weighted_table(seed):
    """Return graded losses, and weights whose sums are decades apart in the two sets."""
    table, rng = random_table(seed), np.random.default_rng(9)
    graded = rng.random(len(table)) * table["loss"].to_numpy()
    decade = np.where(table["set"].to_numpy() == "near", 1e-12, 1e9)
    weight = np.where(table["set"].to_numpy() == "id", 1.0, decade) * rng.random(len(table))
    table = table.set_column(table.column_names.index("loss"), "loss", pa.array(graded))
    return table.append_column("weight", pa.array(weight))


@pytest.mark.parametrize("engine", ENGINES)
def test_one_set_of_weighted_rows_and_graded_losses_equals_memory(engine):
    table = weighted_table(0)
    weights = (None, "weight") if engine not in SLOWER else ("weight",)
    with ENGINES[engine]() as source_of:
        for scores, weight in itertools.product((("a",), ("a", "b")), weights):
            columns = {"loss": "loss", "ood": "set", "weight": weight}
            sample = dm.Sample.from_frame(table, list(scores), **columns)
            source = source_of(table, Roles(scores, **columns))
            # Each of both sets by one or by two scores, where an engine takes long.
            either = ("near",) if len(scores) == 1 else ("far",)
            for name in either if engine in SLOWER else ("near", "far"):
                here, there = sample.for_ood(name), source.for_ood(name)
                assert value(there, MODELS[0]) == value(here, MODELS[0])
                if len(scores) == 1:
                    for rows in (counted_rows(there), binned_rows(there)):
                        assert rows.error < 0.002
                        area = metrics.auroc(rows.sample)
                        assert area == pytest.approx(metrics.auroc(here), abs=rows.error + 1e-9)
            assert value(source, MODELS[0]) == value(sample, MODELS[0])


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in SLOW])
def test_two_methods_are_compared_alike(engine):
    table, model = random_table(0), dm.TprFprModel(0.6, 0.6)
    samples = [sample_of(table, list(scores)) for scores in ("a", "ab")]
    # A sample has its ID rows first, then those of each set.
    order = {
        name: np.flatnonzero(table["set"].to_numpy() == name) for name in ("id", "far", "near")
    }
    keys = order["id"], np.concatenate([order[name] for name in samples[0].ood_sets])
    arrays = [ArraySource(sample, keys=keys) for sample in samples]
    here = compare(*arrays, model, replicates=1, rng=5)
    with ENGINES[engine]() as source_of:
        roles = [
            Roles(scores, loss="loss", ood="set", key="key") for scores in (("a",), ("a", "b"))
        ]
        there = compare(*(source_of(table, one) for one in roles), model, replicates=1, rng=5)
        both = compare_auroc(source_of(table, Roles(("a", "b"), loss="loss", ood="set")))
    for name, rate in here.differences.items():
        assert there.differences[name].interval == rate.interval
        np.testing.assert_array_equal(there.differences[name].out_of_bag, rate.out_of_bag)
    plain = compare(*samples, model, replicates=1, rng=0)
    for name, rate in plain.differences.items():
        assert there.differences[name].apparent == rate.apparent
    exact = compare_auroc(*(sample_of(table, [name]) for name in "ab"))
    assert both.difference == pytest.approx(exact.difference, abs=2e-3)
    assert both.standard_error == pytest.approx(exact.standard_error, rel=0.02)


def test_scores_with_few_values_are_compared_exactly():
    table = random_table(1)
    both = compare_auroc(ArraySource(sample_of(table, ["a", "b"])))
    exact = compare_auroc(*(sample_of(table, [name]) for name in "ab"))
    assert both.difference == pytest.approx(exact.difference, abs=1e-12)
    assert both.standard_error == pytest.approx(exact.standard_error, abs=1e-12)
    assert both.p_value == pytest.approx(exact.p_value)


def test_the_bootstrap_of_two_sources_is_that_of_rows():
    rng = np.random.default_rng(0)
    risk, far = rng.random(2000), rng.random(2000)
    ood = rng.random((1500, 2)) + np.array([0, 0.7])
    wrong = rng.random(2000) < risk / 2
    one = dm.Sample(far, wrong, ood_scores=ood[:, 1])
    two = dm.Sample(np.column_stack([risk, far]), wrong, ood_scores=ood)
    keys = np.arange(2000), np.arange(2000, 3500)
    model = dm.TprFprModel(0.5, 0.2)
    here = compare(one, two, model, replicates=60, rng=0)
    there = compare(
        ArraySource(one, keys=keys), ArraySource(two, keys=keys), model, replicates=60, rng=0
    )
    for name in ("selective_risk", "fpr"):
        a, b = here.differences[name], there.differences[name]
        assert a.apparent == b.apparent
        spread = a.in_bag.std()
        assert abs(a.optimism - b.optimism) < 0.6 * spread
        assert 0.6 < (b.interval.high - b.interval.low) / (a.interval.high - a.interval.low) < 1.6


def test_bins_say_how_far_off_they_are():
    rng = np.random.default_rng(3)
    own, foreign = rng.normal(size=300_000), rng.normal(1, 1, 200_000)
    sample = dm.Sample(own, (rng.random(300_000) < 0.1).astype(float), foreign)
    source = ArraySource(sample, memory=16_000_000)
    few = counted_rows(source)
    assert 0 < few.error < 1e-4
    assert abs(metrics.auroc(few.sample) - metrics.auroc(sample)) <= few.error
    for metric in (metrics.aupr, metrics.oscr):
        assert metric(few.sample) == pytest.approx(metric(sample), abs=1e-4)


def test_rows_in_bins_keep_their_weights_and_losses():
    rng = np.random.default_rng(4)
    own, foreign, loss = rng.normal(size=40_000), rng.normal(1, 1, 30_000), 3 * rng.random(40_000)
    weights = {"id_weight": rng.random(40_000), "ood_weight": rng.random(30_000)}
    own[:50] = np.inf
    sample = dm.Sample(own, loss, foreign, **weights)
    few = binned_rows(ArraySource(sample))
    assert 0 < few.error < 1e-3
    assert abs(metrics.auroc(few.sample) - metrics.auroc(sample)) <= few.error
    for metric in (metrics.aupr, metrics.aurc):
        assert metric(few.sample) == pytest.approx(metric(sample), rel=1e-3)
    assert few.sample.id_weight.sum() == pytest.approx(weights["id_weight"].sum())
    lost = few.sample.id_weight @ few.sample.id_loss
    assert lost == pytest.approx(weights["id_weight"] @ loss)


def test_what_cannot_be_compared_is_refused():
    table = random_table(0)
    one, two = (ArraySource(sample_of(table, list(scores))) for scores in ("a", "ab"))
    model = dm.TprFprModel(0.6, 0.6)
    with pytest.raises(dm.InvalidInputError, match="same key="):
        compare(one, two, model, replicates=2)
    with pytest.raises(dm.InvalidInputError, match="both be sources"):
        compare(one, sample_of(table, ["a"]), model, replicates=2)
    other = ArraySource(sample_of(table.slice(0, 300), ["a"]))
    with pytest.raises(dm.InvalidInputError, match="the same rows"):
        compare(one, other, model, replicates=2)
    with pytest.raises(dm.InvalidInputError, match="two scores to compare"):
        compare_auroc(one)
    with pytest.raises(dm.InvalidInputError, match="no OOD set is called 'x'"):
        one.for_ood("x")
    with pytest.raises(dm.InvalidInputError, match="no OOD set is called 'x'"):
        dm.open_source(table, "a", loss="loss", ood="set").for_ood("x")
    infinite = dm.Sample([[0.1, np.inf], [0.2, 0.1]], [0, 1], [[1, 1], [2, 2]])
    with pytest.raises(dm.InvalidInputError, match="finite"):
        compare_auroc(ArraySource(infinite))
