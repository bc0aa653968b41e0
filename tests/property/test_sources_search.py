"""Searching counted rows finds what searching the rows finds, however coarse the counting."""

from dataclasses import replace

import numpy as np
import pytest
from scored_tables import SETS
from streams import (
    DIRECTIONS,
    check_against_memory,
    informative_sample,
    random_model,
    random_sample,
)

import demur as dm
from demur.sources.engines.frames import ArraySource
from demur.tuning.result import DIRECTION_SETS
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.tune import Streamed, tune_source


@pytest.mark.parametrize("seed", range(SETS or 25))
def test_tuning_is_that_of_memory(seed):
    rng = np.random.default_rng(1000 + seed)
    sample = random_sample(rng, scores=1 if seed % 4 == 0 else 2)
    model, directions = random_model(rng, sample), str(rng.choice(DIRECTIONS))
    cost = isinstance(model, dm.CostModel)
    ood = "worst" if not cost and rng.random() < 0.3 else "pooled"
    # Few bins and a small sample leave much open; a small memory makes the bins finer.
    fetched = int(rng.choice([60, 10**6, 10**6]))
    plan = StreamPlan(
        int(rng.choice([5, 50, 200])), int(rng.choice([2, 8, 32])), fetched, boxes=300
    )
    if seed % 3:
        # A closer look at whatever is left open.
        plan = replace(plan, plenty=0, thin=int(rng.choice([2, 8, 64])))
    source = ArraySource(sample, batch=int(rng.choice([50, 10**6])))

    def there():
        return tune_source(
            source, model, DIRECTION_SETS[directions], dm.Exact(), ood=ood, plan=plan
        )

    try:
        check_against_memory(sample, there, model, directions=directions, ood=ood)
    except dm.InvalidInputError as error:
        # The only other outcome that is allowed, and only where memory is short.
        assert fetched == 60 and "rows would have to be held" in str(error)


def test_fetches_a_small_part_of_many_rows():
    n = 100_000
    sample = informative_sample(np.random.default_rng(0), n)
    source, model = ArraySource(sample), dm.TprFprModel(0.8, 0.2)
    fetched = []
    plain_rows = source.rows

    def counted(cells):
        rows = plain_rows(cells)
        fetched.append(len(rows.loss))
        return rows

    source.rows = counted
    plan = StreamPlan(sample=20_000, bins=256, fetched=100_000)
    there = tune_source(source, model, DIRECTION_SETS["nonneg"], dm.Exact(), plan=plan)
    here = dm.tune(sample, model)
    assert there.point == here.point and there.certificate.status == "optimal"
    assert len(fetched) == 1 and fetched[0] < 0.05 * 2 * n


def test_finer_bins_where_memory_is_short():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(20_000, 2))
    wrong = rng.random(20_000) < 1 / (1 + np.exp(3 - 2 * scores[:, 0]))
    sample = dm.Sample(scores, wrong, rng.normal([0.5, 2.0], 1, (20_000, 2)))
    model = dm.TprFprModel(0.8, 0.2)
    finer = []
    source = ArraySource(sample)
    plain_histogram = source.histogram

    def counted(bins, measure, *, strips=(), within=None):
        finer.append(within is not None)
        return plain_histogram(bins, measure, strips=strips, within=within)

    source.histogram = counted
    plan = StreamPlan(sample=2000, bins=16, fetched=4000)
    there = tune_source(source, model, DIRECTION_SETS["nonneg"], dm.Exact(), plan=plan)
    assert finer[0] is False and len(finer) > 1 and all(finer[1:])
    assert there.point == dm.tune(sample, model).point


def test_too_little_memory_says_so():
    rng = np.random.default_rng(2)
    sample = dm.Sample(rng.normal(size=(3000, 2)), rng.random(3000) < 0.5)
    source, model = ArraySource(sample), dm.TprFprModel(0.5)
    plan = StreamPlan(sample=100, bins=4, fetched=1, boxes=50)
    with pytest.raises(dm.InvalidInputError, match="rows would have to be held"):
        tune_source(source, model, DIRECTION_SETS["circle"], dm.Exact(), plan=plan)


def test_data_that_change_are_noticed():
    rng = np.random.default_rng(3)
    first, second = (dm.Sample(rng.normal(size=(500, 2)), rng.random(500) < 0.2) for _ in range(2))
    source, other = ArraySource(first), ArraySource(second)
    source.tally = other.tally
    with pytest.raises(dm.InvalidInputError, match="the data changed"):
        dm.tune(source, dm.TprFprModel(0.5))


@pytest.mark.parametrize("engine", ["numpy", "compiled"])
def test_both_engines(engine, monkeypatch):
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    rng = np.random.default_rng(4)
    sample = random_sample(rng)
    model = dm.TprFprModel(0.5, 0.5)
    assert dm.tune(ArraySource(sample), model).point == dm.tune(sample, model).point


def test_what_a_source_cannot_do():
    sample = dm.Sample([[0, 1], [1, 0]], [0, 1])
    with pytest.raises(dm.InvalidInputError, match="Grid needs a Sample"):
        dm.frontier(ArraySource(sample), search=dm.Grid(10))
    with pytest.raises(dm.InvalidInputError, match="must be a Sample or a ScoreSource, got list"):
        dm.tune([1, 2], dm.TprFprModel(0.5))
    with pytest.raises(dm.InvalidInputError, match="by needs a source"):
        dm.evaluate(dm.Rule((1.0, 0.0), 0.5), sample, by="day")


@pytest.mark.parametrize("seed", range(6))
def test_frontier_is_that_of_memory(seed):
    rng = np.random.default_rng(2000 + seed)
    sample = random_sample(rng, scores=1 + seed % 2, most=150)
    levels = {"min_tpr": [0, 0.3, 0.6, 0.9], "max_fpr": [0, 0.1, 0.4, 1]}
    ood = "worst" if seed == 3 else "pooled"
    there, here = (dm.frontier(s, **levels, ood=ood) for s in (ArraySource(sample), sample))
    for name in ("selective_risk", "accepted_id", "accepted_ood", "accepted_loss"):
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name), name)
    for row, column in np.argwhere(~np.isnan(there.selective_risk)):
        found = dm.evaluate(there.rule(row, column), sample)
        assert found.accepted_id == here.accepted_id[row, column]
        assert found.selective_risk == here.selective_risk[row, column]


def test_a_search_after_one_that_cut_cells_finds_what_it_finds_alone():
    sample = informative_sample(np.random.default_rng(3), 3000)
    # Coarse bins leave more rows open than may be held, so cells are cut.
    plan, allowed = StreamPlan(200, 8, fetched=700, boxes=300), DIRECTION_SETS["nonneg"]
    models = [dm.TprFprModel(0.8, 0.2), dm.TprFprModel(0.5, 0.05), dm.TprFprModel(0.9, 0.6)]
    stream = Streamed(ArraySource(sample), models, allowed, plan=plan)
    layers = []
    for model in models:
        line, _ = stream.find(model.program(stream.totals), allowed, dm.Exact())
        point = dm.tune(sample, model).point
        counts = round(sample.n_id * point.tpr), round(sample.n_ood * point.fpr)
        assert (line.id, line.ood, line.loss) == (*counts, round(point.accepted_loss))
        layers.append(len(stream.layers.bins))
    assert max(layers[:-1]) > 1
