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
from demur.tuning.streamed import search
from demur.tuning.streamed.cells import build
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.search import Lines, Survey, sift
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


@pytest.mark.parametrize("seed", range(8))
def test_where_all_bounds_bind_rows_near_the_likely_best_are_fetched_first(seed):
    rng = np.random.default_rng(4000 + seed)
    sample, directions = informative_sample(rng, 20_000), DIRECTIONS[seed % len(DIRECTIONS)]
    # Few half-planes meet both bounds; nothing is known of any that a small sample suggests.
    free = dm.RejectionModel("tpr", (dm.Bound("fpr", at_most=0.1 + 0.05 * seed),))
    most = dm.tune(sample, free, directions=directions).point
    model = dm.TprFprModel(most.tpr - 0.002 - 0.002 * rng.random(), most.fpr)
    allowed = DIRECTION_SETS[directions]
    source = ArraySource(sample)
    stream = Streamed(source, [model], allowed, plan=StreamPlan(2000, 128, 10**6))
    program = model.program(stream.totals)
    here = dm.tune(sample, model, directions=directions).point
    stream._profiles = ()
    near, corner = stream._near_look(program, allowed), stream._corner_look(program, 0)
    assert near is not None
    assert near.id >= program.min_id and near.ood <= program.max_ood[0]
    # No better than the best, and better than corners of cells.
    assert near.loss / near.id >= here.accepted_loss / here.accepted_id
    assert corner is None or near.value <= corner.value
    line, certificate = stream.find(program, allowed, dm.Exact())
    found = line.id, line.ood, line.loss
    assert found == (here.accepted_id, here.accepted_ood, here.accepted_loss)
    assert certificate.status == "optimal"


@pytest.mark.parametrize("seed", range(6))
def test_rounds_that_are_left_out_would_change_nothing(seed):
    rng = np.random.default_rng(5000 + seed)
    sample, allowed = informative_sample(rng, 5000), DIRECTION_SETS["nonneg"]
    model = dm.TprFprModel(0.8, 0.1 + 0.1 * seed)
    stream = Streamed(ArraySource(sample), [model], allowed, plan=StreamPlan(500, 32, 10**6))
    program = model.program(stream.totals)
    _, bound, _ = stream._opened(program, allowed, near=True)
    lines = Lines(build(stream.grid), (1, 1))
    first = Survey(lines, bound, enough=80.0, few=30, budget=10**6)
    first.run([lines.root(0), lines.root(1)])
    assert first.loosest > 1
    again = Survey(lines, bound, enough=first.loosest, few=30, budget=10**6)
    again.run(first.zones)
    assert sorted(again.zones) == sorted(first.zones)
    finer = Survey(lines, bound, enough=first.loosest - 1e-9, few=30, budget=10**6)
    finer.run(first.zones)
    assert sorted(finer.zones) != sorted(first.zones)


@pytest.mark.parametrize("kept", [0, 300, 10**6])
@pytest.mark.parametrize("seed", range(4))
def test_every_item_that_crosses_a_box_left_is_met(seed, kept, monkeypatch):
    # What a round knows of its boxes is left to the next, or found anew.
    monkeypatch.setattr(search, "_LEFT", kept)
    rng = np.random.default_rng(6000 + seed)
    sample, allowed = informative_sample(rng, 5000), DIRECTION_SETS["nonneg"]
    model = dm.TprFprModel(0.8, 0.1 + 0.2 * seed)
    plan = StreamPlan(500, 32, 10**6, few=20)
    stream = Streamed(ArraySource(sample), [model], allowed, plan=plan)
    program = model.program(stream.totals)
    _, bound, opened = stream._opened(program, allowed, near=True)
    pyramid = opened.pyramid
    lines, every = Lines(pyramid, (1, 1)), np.arange(pyramid.root + 1)
    crossed = np.zeros(pyramid.cells, bool)
    for zone in opened.zones[1, 1]:
        _, crossing = sift(zone, lines.part(zone.chart, every))
        assert opened.met[crossing].all()
        crossed |= crossing[: pyramid.cells]
    np.testing.assert_array_equal(opened.met[: pyramid.cells], crossed)
    # Every item is met, in a node that is not, or the largest that is not.
    assert opened.met[pyramid.parents()][opened.met].all()
    # The same boxes as without anything that was left.
    afresh = Survey(lines, bound, enough=2.0, few=20, budget=10**6)
    afresh.run(opened.zones[1, 1])
    assert afresh.rows <= opened.rows
