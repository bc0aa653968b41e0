"""Promises from rows that stay where they are: counted, or drawn one by one by a hash."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import demur as dm
from demur.cli import app

ROLES = ["--loss", "wrong", "--ood", "ood"]
BOUNDS = ["--min-tpr", ".6", "--max-fpr", ".5"]
MANY = 120_000


def make(n, seed):
    rng = np.random.default_rng(seed)
    ood = rng.random(n) < 0.4
    doubt = rng.normal(size=n) + 1.5 * ood
    wrong = (rng.random(n) < 1 / (1 + np.exp(2 - doubt))) & ~ood
    return pa.table(
        {
            "a": doubt,
            "b": rng.normal(size=n) + ood,
            "wrong": wrong.astype(float),
            "graded": np.where(ood, 0.0, rng.random(n) * 3 * wrong),
            "ood": ood,
            "row": np.arange(n),
            "patient": rng.integers(0, n // 3, n),
            "coarse": np.round(doubt),
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder of few rows, the same rows as a file, one of many rows, and rules."""
    folder = tmp_path_factory.mktemp("promises")
    for name, n, seed in (("few", 2000, 1), ("live", 1500, 2), ("many", MANY, 3)):
        table = make(n, seed)
        (folder / name).mkdir()
        for part in range(2):
            pq.write_table(table.slice(part * n // 2, n // 2), folder / name / f"{part}.parquet")
        pq.write_table(table, folder / f"{name}.parquet")
    dm.Rule((1.0, 0.5), 1.2, score_names=("a", "b")).save(folder / "rule.json")
    dm.Rule((1.0,), 0.9, score_names=("coarse",)).save(folder / "coarse.json")
    return folder


def run(place, *given, code=0):
    given = [str(place / one) if (place / str(one)).exists() else str(one) for one in given]
    done = CliRunner().invoke(app, [*given, "--json"])
    assert done.exit_code == code or isinstance(done.exception, dm.DemurError), done.output
    if isinstance(done.exception, dm.DemurError):
        assert code, done.output
        return str(done.exception)
    return (json.loads(done.stdout) if code == 0 else done.output), done.stderr


def promised(place, *given):
    found, said = run(place, "certify", "rule.json", *given)
    return {name: value for name, value in found.items() if name not in ("work", "rule")}, said


def test_inputs_in_use_bound_precision_wherever_the_rows_are(place):
    asked = [*ROLES, "--deployed", "live.parquet"]
    here, _ = promised(place, "few.parquet", *asked)
    there, _ = promised(place, "few", *asked)
    assert here == there and 0 < here["precision"]["low"] < 1
    both, _ = promised(place, "few", *ROLES, "--deployed", "live", "--engine", "duckdb")
    assert both["precision"] == here["precision"]


def test_large_losses_are_bounded_one_by_one(place):
    asked = ["--loss", "graded", "--ood", "ood", "--max-loss", "3"]
    here, _ = promised(place, "few.parquet", *asked)
    there, said = promised(place, "few", *asked)
    # Betting goes through the rows in another order.
    assert here["tpr"] == there["tpr"] and here["fpr"] == there["fpr"]
    assert here["rows"] == there["rows"] and "drawn" not in said
    assert there["selective_risk"]["high"] == pytest.approx(here["selective_risk"]["high"], rel=0.1)
    # Of more rows than memory holds as many as fit are drawn, and that is said.
    some, said = promised(place, "many", *asked, "--memory", "50MB")
    assert "drawn by a hash of 120,000" in said and 70_000 < sum_of(some["rows"]) < 95_000
    assert some["selective_risk"]["high"] < there["selective_risk"]["high"]
    refused = run(place, "certify", "rule.json", "few", *asked[:4], code=1)
    assert "--max-loss" in refused


def test_promises_do_not_depend_on_the_order_of_the_rows(place):
    """Engines bring them in any; splits, bets and folds go by places."""
    table = make(2000, 1)
    weight = np.random.default_rng(5).integers(1, 3, len(table)) / 2
    # Rows that agree in all but their weight.
    table = table.append_column("weight", pa.array(weight)).set_column(
        0, "a", pa.array(np.round(table["a"].to_numpy(), 1))
    )
    found = []
    shuffled = table.take(np.random.default_rng(6).permutation(2000))
    for name, rows in (("one", table), ("other", shuffled)):
        (place / name).mkdir()
        for part in range(3):
            pq.write_table(rows.slice(part * 700, 700), place / name / f"{part}.parquet")
        asked = ["--loss", "graded", "--ood", "ood", "--max-loss", "3"]
        promise, _ = promised(place, name, *asked)
        scores = ["--scores", "a,b", *BOUNDS, "--guarantee", ".9"]
        tuned, _ = run(place, "tune", name, *scores, *asked)
        weighted = [*ROLES, "--weight", "weight", *scores[:-2], "--folds", "2"]
        page, _ = run(place, "report", name, *weighted, "--engine", "duckdb")
        page = {key: page[key] for key in page if key not in ("command", "title", "work")}
        found.append((promise, tuned["rule"]["threshold"], tuned["guarantee"], page))
    assert found[0] == found[1]


def sum_of(rows):
    return rows["id"] + rows["ood"]


def test_ids_that_tell_rows_apart_are_counted_and_others_refused(place):
    plain, _ = promised(place, "few", *ROLES)
    told, _ = promised(place, "few", *ROLES, "--id", "row")
    assert plain == told
    refused = run(place, "certify", "rule.json", "few", *ROLES, "--id", "patient", code=1)
    assert "rows share ids in column 'patient'" in refused and "--engine memory" in refused
    drawn = ["--id", "patient", "--per-id", "draw"]
    said = run(place, "certify", "rule.json", "few", *ROLES, *drawn, "--engine", "duckdb", code=2)
    assert "--per-id needs the rows in memory" in " ".join(said[0].split())


def test_what_needs_memory_looks_at_the_size_first(place):
    """A folder that fits is read; of one that does not it is said how much memory it takes."""
    drawn = [*ROLES, "--id", "patient", "--per-id", "draw"]
    assert promised(place, "few", *drawn)[0] == promised(place, "few.parquet", *drawn)[0]
    learned = [*ROLES, "--scores", "a,b,coarse", *BOUNDS, "--learn", "logistic"]
    found = [run(place, "tune", few, *learned)[0] for few in ("few", "few.parquet")]
    assert found[0]["tuned"] == found[1]["tuned"]
    pq.write_table(pa.concat_tables([make(MANY, 3)] * 2), place / "more.parquet")
    asked = {
        "--per-id": ["certify", "rule.json", "more.parquet", *drawn],
        "--learn": ["tune", "more.parquet", *learned],
        "--compare": ["report", "more.parquet", *ROLES, "--scores", "a,b", "--compare", "a"],
        "--id": ["prior", "rule.json", "more.parquet", *drawn[2:6], "--deployed", "few"],
    }
    asked["--compare"] += BOUNDS
    for option, command in asked.items():
        said = refused(place, *command, "--memory", "50MB")
        assert f"{option} needs the rows in memory" in said
        assert "give --engine memory --memory 72MB, which reads folders, too" in said
        said = refused(place, *command, "--memory", "50MB", "--engine", "memory")
        assert "these rows take about 72MB there, and --memory is 50MB" in said
    assert refused(place, *asked["--per-id"], "--engine", "duckdb").endswith("72MB is needed")


def refused(place, *given):
    """Return, in one line, what is said of a wrong call."""
    return " ".join(run(place, *given, code=2)[0].split())


def test_rows_drawn_by_scores_that_many_share_prove_nothing(place):
    """Of seven values a hash draws some and leaves out others: the rates drawn are not theirs."""
    asked = [*ROLES, "--scores", "coarse", *BOUNDS, "--guarantee", ".9", "--memory", "50MB"]
    refused = run(place, "tune", "many", *asked, code=1)
    assert "rows share the scores of one" in refused and "--id" in refused
    found, said = run(place, "tune", "many", *asked, "--id", "row")
    assert "drawn by a hash of 120,000" in said
    assert found["guarantee"]["confidence"] == 0.9
    # In the population, of which the 120,000 rows are nearly all there is.
    threshold = found["rule"]["threshold"]
    whole = make(MANY, 3).to_pandas()
    accepted = whole.coarse <= threshold
    assert accepted[~whole.ood].mean() >= 0.6 and accepted[whole.ood].mean() <= 0.5
    shared = run(place, "tune", "many", *asked, "--id", "patient", code=1)
    assert "rows share ids in column 'patient'" in shared
    losses = ["--loss", "graded", "--ood", "ood", "--max-loss", "3", "--memory", "50MB"]
    assert "share the scores" in run(place, "certify", "coarse.json", "many", *losses, code=1)
    page = ["report", "many", *asked, "--folds", "0"]
    assert "share the scores" in run(place, *page, code=1)
    # All rows are there, and nothing is drawn.
    run(place, "tune", "few", *asked)
    assert "share the scores" in run(place, "tune", "few", *asked, "--holdout", ".3", code=1)


def test_estimates_take_the_grid_of_the_paper(place):
    asked = ["--scores", "a,b", *ROLES, *BOUNDS, "--grid", "20"]
    found, _ = run(place, "estimate", "few", *asked, "--folds", "2", "--engine", "duckdb")
    here, _ = run(place, "tune", "few.parquet", *asked)
    assert found["tuned"]["selective_risk"] == here["tuned"]["selective_risk"]
    assert len(found["cross"]["folds"]) == 2 and found["cross"]["held_out"]["tpr"] > 0.5
