"""Counts to tune from, of rows that stay where they are: those of memory, or of fewer rules."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from engines import EVERY
from scored_tables import SETS, table_of
from streams import informative_sample, random_model, random_sample

import demur as dm
from demur.cli import app, commands, streamed
from demur.core.points import Points
from demur.guarantees import operating_tables
from demur.guarantees.operating_tables import operating_table
from demur.sources.engines.frames import ArraySource
from demur.tuning.prepared import counted_plainly
from demur.tuning.streamed.plan import StreamPlan


def check_counts(table, sample):
    """Every saved count is what the rule accepts of all rows, counted plainly."""
    points = Points.of(sample)
    doubts = sample.columns.as_doubts(table.directions)
    true = counted_plainly(points, np.column_stack([doubts, table.thresholds]))
    found = np.column_stack([table.accepted_id, table.accepted_loss, table.accepted_ood])
    np.testing.assert_array_equal(found, true)
    assert table.totals.id == points.totals.id
    assert sum(table.totals.ood) == sum(points.totals.ood)
    assert table.totals.loss == points.totals.loss


def told(table, model):
    """What tuning from counts says: a point, or what is attainable."""
    try:
        return table.tune(model).point
    except dm.InfeasibleError as error:
        return error.attainable
    except dm.InvalidInputError as error:
        return str(error)


def check_same(there, here, models):
    """Two tables give the same answers."""
    assert there.complete == here.complete
    for model in models:
        # NaN is equal to NaN here.
        assert repr(told(there, model)) == repr(told(here, model)), model


@pytest.mark.parametrize("seed", range(SETS or 10))
def test_rows_that_memory_holds_have_the_table_of_memory(seed):
    rng = np.random.default_rng(5200 + seed)
    sample = random_sample(rng, scores=1 + seed % 2, most=150)
    here, there = operating_table(sample), operating_table(ArraySource(sample, batch=31))
    check_counts(there, sample)
    check_same(there, here, [random_model(rng, sample) for _ in range(5)])
    if sample.n_scores == 1:
        for name in ("directions", "thresholds", "accepted_id", "accepted_ood", "accepted_loss"):
            np.testing.assert_array_equal(getattr(there, name), getattr(here, name), name)
        assert there.totals == here.totals


@pytest.mark.parametrize("seed", range(SETS or 10))
def test_of_more_rows_every_count_is_exact(seed, monkeypatch):
    rng = np.random.default_rng(5300 + seed)
    sample = random_sample(rng, scores=1 + seed % 2, most=300)
    monkeypatch.setattr(operating_tables, "FRONTIER_ROW_BYTES", 10**9)
    monkeypatch.setattr(operating_tables, "DRAWN_ROWS", 50)
    tiny = StreamPlan(50, 8, fetched=0)
    monkeypatch.setattr(StreamPlan, "of", lambda *_: tiny)
    try:
        table = operating_table(ArraySource(sample, batch=31, memory=60 * 10**9))
    except dm.InvalidInputError as error:
        # A draw of some fifty of a few rows may leave no ID row.
        assert "no rows" in str(error) or "ID" in str(error)
        return
    check_counts(table, sample)
    assert sample.n_scores == 1 or not table.complete


@pytest.mark.parametrize("name", EVERY)
def test_counts_on_every_engine(name, monkeypatch):
    rng = np.random.default_rng(52)
    sample = informative_sample(rng, 300)
    table, roles = table_of(sample, rng)
    with EVERY[name]() as source_of:
        monkeypatch.setattr(operating_tables, "FRONTIER_ROW_BYTES", 10**7)
        monkeypatch.setattr(operating_tables, "DIRECTIONS_COUNTED", 4)
        monkeypatch.setattr(operating_tables, "THRESHOLDS", 40)
        some = operating_table(source_of(table, roles))
    check_counts(some, sample)
    assert not some.complete and 100 < len(some.thresholds) < 300
    # Another engine draws the same rows, and counts the same rules.
    here = operating_table(ArraySource(sample))
    np.testing.assert_array_equal(some.thresholds, here.thresholds)
    np.testing.assert_array_equal(some.directions, here.directions)


def test_few_directions_are_nearly_as_good_as_all():
    rng = np.random.default_rng(6)
    sample = informative_sample(rng, 30_000)
    table = operating_table(ArraySource(sample, memory=50_000_000))
    assert not table.complete and len(table.thresholds) < 20_000
    model = dm.TprFprModel(0.8, 0.6)
    best, found = dm.tune(sample, model).point, table.tune(model).point
    assert best.selective_risk <= found.selective_risk <= 1.05 * best.selective_risk
    cost = dm.CostModel(0.3, 0.5, 0, 0.1)
    best, found = dm.tune(sample, cost).point, table.tune(cost).point
    assert best.expected_cost <= found.expected_cost <= 1.01 * best.expected_cost


def test_given_rules_are_counted_where_the_rows_are():
    rng = np.random.default_rng(7)
    sample = random_sample(rng, most=200)
    rules = [dm.Rule((1.0, w), t) for w, t in rng.normal(size=(5, 2))]
    there, here = (operating_table(rows, rules=rules) for rows in (ArraySource(sample), sample))
    check_counts(there, sample)
    assert there.totals == here.totals and len(there.thresholds) == len(here.thresholds) == 6
    assert len(operating_table(ArraySource(sample), rules=[]).thresholds) == 1
    box = dm.tune(sample, dm.TprFprModel(0.1, 1), shape="box").rule
    with pytest.raises(dm.InvalidInputError, match="no boxes"):
        operating_table(ArraySource(sample), rules=[box])


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake")
    rng = np.random.default_rng(8)
    table, _ = table_of(informative_sample(rng, 3000), rng)
    for part in range(2):
        pq.write_table(table.slice(part * 3000, 3000), folder / f"{part}.parquet")
    return folder


def run(*given, code=0):
    done = CliRunner().invoke(app, [str(one) for one in given])
    unmet = 3 if isinstance(done.exception, dm.InfeasibleError) else None
    assert (unmet or done.exit_code) == code, done.output
    return done


def tune(lake, counts, *more, code=0, names="score 0,score 1"):
    roles = ["--scores", names, "--loss", "loss", "--ood", "group", "--force"]
    bounds = [] if "--min-tpr" in more else ["--min-tpr", ".7", "--max-fpr", ".6"]
    return run("tune", lake, *roles, *bounds, "--counts", counts, *more, code=code)


def test_a_folder_and_its_rows_in_memory_have_the_same_counts(lake, tmp_path):
    for names in ("score 0,score 1", "score 1"):
        tune(lake, tmp_path / "there.json", names=names)
        tune(lake, tmp_path / "here.json", "--engine", "memory", names=names)
        there, here = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("there", "here"))
        assert there.pop("card")["columns"] == here.pop("card")["columns"]
        assert there == here
        asked = ["--min-precision", ".9", "--min-recall", ".5", "--prior", ".1", "--json"]
        found = json.loads(run("retune", tmp_path / "there.json", *asked).stdout)
        assert found["complete"] == (names == "score 1")


def test_more_rows_than_memory_holds_are_said(lake, tmp_path, monkeypatch):
    for module in (operating_tables, streamed, commands.tune):
        monkeypatch.setattr(module, "FRONTIER_ROW_BYTES", 10**4)
    done = tune(lake, tmp_path / "counts.json", "--memory", "50MB", "--json")
    assert "of all 6,000 rows, along 32 directions that 5,000 of them" in done.stderr
    assert "need more --memory, about 10000 bytes a row" in done.stderr
    data = json.loads(done.stdout)
    assert data["work"]["passes"] > 5
    best = data["tuned"]["selective_risk"]
    asked = ["--min-tpr", ".7", "--max-fpr", ".6", "--json"]
    found = json.loads(run("retune", tmp_path / "counts.json", *asked).stdout)["tuned"]
    assert best <= found["selective_risk"] <= 1.05 * best and found["tpr"] >= 0.7
    # One file of as many rows is counted where it is, too.
    pq.write_table(pq.read_table(lake), tmp_path / "one.parquet")
    done = tune(tmp_path / "one.parquet", tmp_path / "one.json", "--memory", "50MB")
    assert "32 directions" in done.stderr
    one, many = (json.loads((tmp_path / f"{n}.json").read_text()) for n in ("one", "counts"))
    assert one["thresholds"] == many["thresholds"] and one["accepted_id"] == many["accepted_id"]


def test_counts_are_kept_where_no_rule_meets_the_bounds(lake, tmp_path):
    tune(lake, tmp_path / "c.json", "--min-tpr", ".99", "--max-fpr", ".001", code=3)
    run("retune", tmp_path / "c.json", "--min-tpr", ".5", "--max-fpr", ".5")


def test_held_out_rows_are_not_counted(lake, tmp_path):
    held = "--holdout", ".3", "--seed", "1"
    for names in ("score 0,score 1", "score 0"):
        data = json.loads(tune(lake, tmp_path / "c.json", *held, "--json", names=names).stdout)
        saved = json.loads((tmp_path / "c.json").read_text())
        assert saved["totals"]["id"] == data["tuned"]["rows"]["id"] < 3000


def test_counts_beside_a_guarantee_are_of_all_rows(lake, tmp_path):
    done = tune(
        lake, tmp_path / "c.json", "--guarantee", ".9", "--min-tpr", ".5", "--max-fpr", ".5"
    )
    assert "With probability 0.9" in done.stdout
    assert json.loads((tmp_path / "c.json").read_text())["totals"]["id"] == 3000
    assert math.isfinite(dm.guarantees.OperatingTable.load(tmp_path / "c.json").thresholds[-1])
