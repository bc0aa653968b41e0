"""The page of rows that stay where they are, beside the page of the same rows in memory."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from engines import EVERY
from scored_tables import SETS, table_of
from streams import random_sample

import demur as dm
from demur.cli import app, streamed
from demur.core.points import Points
from demur.metrics.rules import CountedCells
from demur.sources.engines.frames import ArraySource
from demur.tuning.prepared import counted_plainly

ROWS = 12_000
DRAWN = 4_000


def some_lines(rng, sample, count=60):
    """Lines of any direction through the rows, among them those along one score."""
    scores = np.vstack([sample.id_scores, sample.ood_scores])
    scores = scores[np.isfinite(scores).all(axis=1)]
    weights = rng.normal(size=(count, scores.shape[1]))
    weights[::5] = np.eye(scores.shape[1])[rng.integers(0, scores.shape[1], len(weights[::5]))]
    through = scores[rng.integers(0, len(scores), count)] if len(scores) else np.zeros_like(weights)
    limits = (weights * through).sum(axis=1) + rng.choice([0, 1e-9, 0.1], count)
    lines = np.column_stack([weights, limits])
    lines[0, -1] = -np.inf
    return lines


def check_cells(source, sample, lines):
    cells = CountedCells(source)
    found = cells.accepted(lines)
    true = counted_plainly(Points.of(sample, "worst"), lines).T
    assert cells.totals.id == Points.of(sample, "worst").totals.id
    # Sums of products may round on the other side of a row that a line passes through.
    near = np.zeros(len(lines), bool)
    scores = np.vstack([sample.id_scores, sample.ood_scores])
    for k, (*weights, limit) in enumerate(lines.tolist()):
        with np.errstate(invalid="ignore"):
            near[k] = (np.abs(scores @ weights - limit) <= 1e-12 * (1 + abs(limit))).any()
    sure = ~near
    assert (found.least <= found.masses).all() and (found.masses <= found.most).all()
    assert (found.least[:, sure] <= true[:, sure]).all()
    assert (true[:, sure] <= found.most[:, sure]).all()
    return cells, found, true


@pytest.mark.parametrize("seed", range(SETS or 12))
def test_cells_enclose_what_lines_accept(seed):
    rng = np.random.default_rng(8100 + seed)
    sample = random_sample(rng, most=400)
    check_cells(ArraySource(sample), sample, some_lines(rng, sample))


@pytest.mark.parametrize("name", EVERY)
def test_cells_on_every_engine(name):
    rng = np.random.default_rng(81)
    sample = random_sample(rng, most=300)
    table, roles = table_of(sample, rng)
    with EVERY[name]() as source_of:
        check_cells(source_of(table, roles), sample, some_lines(rng, sample))


def spread_sample(rng, scores=2, n=ROWS):
    own, foreign = rng.normal(0, 1, (n * 2 // 3, scores)), rng.normal(1.5, 1, (n // 3, scores))
    wrong = rng.random(len(own)) < 1 / (1 + np.exp(2 - own[:, 0]))
    return dm.Sample(own, wrong, {"far": foreign[::2], "near": foreign[1::2] - 0.5})


def test_many_rows_are_counted_far_closer_than_their_cells_are_wide():
    rng = np.random.default_rng(3)
    sample = spread_sample(rng, n=100_000)
    _, found, true = check_cells(ArraySource(sample), sample, some_lines(rng, sample))
    off = np.abs(found.masses - true).max(axis=1)
    assert (off < [120, 40, 60, 60]).all(), off
    assert ((found.most - found.least).max(axis=1) > 10 * off).all()


def test_thresholds_of_one_score_are_exact():
    rng = np.random.default_rng(4)
    sample = spread_sample(rng, scores=1)
    cells = CountedCells(ArraySource(sample))
    limits = cells.thresholds()
    lines = np.column_stack([np.ones(len(limits)), limits])
    found = cells.accepted(lines)
    np.testing.assert_array_equal(found.least, found.most)
    np.testing.assert_array_equal(
        found.masses, counted_plainly(Points.of(sample, "worst"), lines).T
    )


def write_lake(folder, n):
    rng = np.random.default_rng(6)
    sample = spread_sample(rng, n=n)
    place = rng.permutation(sample.n_id + sample.n_ood)
    sets = np.array(["id"] * sample.n_id + ["far"] * (sample.n_ood // 2 + sample.n_ood % 2))
    sets = np.concatenate([sets, ["near"] * (sample.n_id + sample.n_ood - len(sets))])
    loss = np.concatenate([sample.id_loss, np.zeros(sample.n_ood)])
    scores = np.vstack([sample.id_scores, sample.ood_scores])
    table = {"risk": scores[:, 0], "far": scores[:, 1], "wrong": loss, "set": sets}
    table = pa.table({name: column[place] for name, column in table.items()})
    for part in range(2):
        rows = table.slice(part * len(place) // 2, len(place) // 2 + part * len(place) % 2)
        pq.write_table(rows, folder / f"{part}.parquet")
    return folder


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    return write_lake(tmp_path_factory.mktemp("lake"), ROWS)


def report(folder, monkeypatch, *more, engine="duckdb", error=None, drawn=DRAWN):
    monkeypatch.setattr(streamed, "PAGE_ROWS", drawn)
    given = ["report", str(folder), "--loss", "wrong", "--ood", "set", "--engine", engine]
    done = CliRunner().invoke(app, [*given, "--folds", "0", "--json", *more])
    assert (done.exit_code == 0) == (error is None), done.output
    assert error is None or isinstance(done.exception, error)
    return json.loads(done.stdout)


def all_rows(folder, scores):
    return dm.Sample.from_frame(pq.read_table(folder), scores, loss="wrong", ood="set")


MODELS = {
    "two scores": ["--scores", "risk,far", "--min-tpr", ".8", "--max-fpr", ".2"],
    "every set": [
        "--scores",
        "risk,far",
        "--min-tpr",
        ".7",
        "--max-fpr",
        ".2",
        "--fpr-of",
        "worst",
    ],
    "one score": ["--scores", "far", "--min-tpr", ".5", "--max-fpr", ".2"],
}


CASES = [(model, held) for model in ("two scores", "one score") for held in (False, True)]


@pytest.mark.parametrize(("model", "is_held"), CASES)
def test_numbers_are_those_of_the_page_in_memory(model, is_held, lake, monkeypatch):
    held = ["--holdout", ".3"] if is_held else []
    given = [*MODELS[model], *held]
    there = report(lake, monkeypatch, *given)
    here = report(
        lake, monkeypatch, *given, *(["--holdout-by", "hash"] if held else []), engine="memory"
    )
    # The rule, its rates and their intervals, and what may be promised by them, are of all rows.
    there["rule"].pop("text"), here["rule"].pop("text")
    for name in ("rule", "tuned", "held_out", "verdict", "decision", "evidence", "promises"):
        assert there[name] == here[name], name
    assert "rates are those of all 12,000" in there["rests_on"] and here["rests_on"] is None
    page, exact = there["explorer"], here["explorer"]
    assert page["tuned"]["accepted_id"][-1] == exact["tuned"]["accepted_id"][-1]
    assert not page["complete"]
    check_rules(page, there, lake, given)
    check_best(page, exact)


def check_rules(page, there, lake, given):
    """Counts of all rules lie within what the page states of them."""
    names = given[1].split(",")
    sample = all_rows(lake, names)
    stated = page["binned"]
    assert f"{stated['bins'][0]:,}" in there["rests_on"]
    if there["held_out"] is not None:
        return
    lines = np.array(page["rules"], float)
    lines[np.isnan(lines)] = -np.inf
    masses = counted_plainly(Points.of(sample), lines)
    for column, name, limit, total in (
        (0, "accepted_id", stated["tpr"], sample.n_id),
        (2, "accepted_ood", stated["fpr"], sample.n_ood),
        (1, "accepted_loss", stated["loss"], sample.n_id),
    ):
        off = np.abs(masses[:, column] - np.array(page["tuned"][name])) / total
        assert off.max() <= limit + 1e-12, name
        assert off.mean() < 0.01


def check_best(page, exact):
    """No rule of the page is better than the best there is, nor much worse: few rows were drawn."""
    risks = []
    for explorer in (page, exact):
        counts = explorer["tuned"]
        own, loss = (np.array(counts[name]) for name in ("accepted_id", "accepted_loss"))
        risks.append(np.divide(loss, own, out=np.full(len(own), np.nan), where=own > 0))
    for tpr in range(30, 95, 8):
        for fpr in range(5, 100, 8):
            places = page["cells"][tpr][fpr], exact["cells"][tpr][fpr]
            if min(places) < 0:
                continue
            found, least = (risk[place] for risk, place in zip(risks, places, strict=True))
            assert least - 3e-3 <= found <= least * 1.2 + 2e-3, (tpr, fpr)


def test_bounds_on_every_set_are_about_all_rows(tmp_path, monkeypatch):
    small = write_lake(tmp_path, 1_500)
    there = report(small, monkeypatch, *MODELS["every set"], drawn=500)
    here = report(small, monkeypatch, *MODELS["every set"], engine="memory")
    for name in ("tuned", "verdict", "decision", "promises"):
        assert there[name] == here[name], name
    check_rules(there["explorer"], there, small, MODELS["every set"])


def test_a_page_of_bounds_out_of_reach_says_whose_its_numbers_are(lake, tmp_path, monkeypatch):
    asked = ["--scores", "risk,far", "--min-tpr", ".95", "--max-fpr", ".01"]
    page = tmp_path / "page.html"
    report(lake, monkeypatch, *asked, "-o", str(page), error=dm.InfeasibleError)
    assert "no rule meets the bounds is true of all 12,000 rows" in page.read_text()


def test_tune_writes_the_same_page(lake, tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "PAGE_ROWS", DRAWN)
    page = tmp_path / "page.html"
    asked = ["tune", str(lake), "--loss", "wrong", "--ood", "set", *MODELS["two scores"]]
    done = CliRunner().invoke(app, [*asked, "--engine", "duckdb", "--report", str(page)])
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "its rates are those of all 12,000" in text and "tuned with a guarantee" not in text
