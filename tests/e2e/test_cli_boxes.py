"""`demur tune --shape box`: the file, the page, and what goes with it."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import demur as dm
from demur.cli import app

COMMON = ["--scores", "conf,knn", "--confidence", "conf", "--loss", "wrong", "--ood", "set"]
BOUNDS = ["--min-tpr", ".7", "--max-fpr", ".2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    wrong = rng.random(600) < 0.15
    own = np.column_stack([1 - rng.beta(2 + 3 * wrong, 8), rng.normal(0, 1, 600)])
    foreign = np.column_stack([1 - rng.beta(4, 6, 300), rng.normal(2, 1, 300)])
    frame = pd.DataFrame(np.vstack([own, foreign]), columns=["conf", "knn"])
    frame["wrong"] = np.append(wrong, np.zeros(300))
    frame["set"] = ["id"] * 600 + ["svhn"] * 300
    path = tmp_path_factory.mktemp("boxes") / "rows.csv"
    frame.to_csv(path, index=False)
    return path


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_a_box_is_saved_drawn_judged_and_applied(data, tmp_path):
    rule, page, out = (tmp_path / name for name in ("rule.json", "page.html", "out.csv"))
    shown = run("tune", data, *COMMON, *BOUNDS, "--shape", "box", "-o", rule, "--report", page)
    assert "conf >= " in shown.output and " and knn <= " in shown.output
    saved = dm.Rule.load(rule)
    assert isinstance(saved, dm.BoxRule) and json.loads(rule.read_text())["shape"] == "box"
    text = page.read_text(encoding="utf-8")
    assert "limit of conf" in text and 'class="boundary"' in text and "<script" not in text
    judged = json.loads(run("evaluate", rule, data, *COMMON[4:], "--json").stdout)
    run("apply", rule, data, "-o", out, "--column", "taken")
    frame = pd.read_csv(out)
    own = frame["set"] == "id"
    tuned = json.loads(rule.read_text())["card"]["points"]["tuned"]
    assert frame["taken"][own].mean() == tuned["tpr"]
    assert frame["taken"][~own].mean() == tuned["fpr"]
    assert str(tuned["tpr"]) in json.dumps(judged)
    run("certify", rule, data, *COMMON[4:], "--allow-tuning-rows", code=3)


@pytest.mark.parametrize(
    "beside",
    [["--grid", "10"], ["--directions", "real"], ["--learn", "mean"]],
)
def test_what_does_not_go_with_a_box(data, beside):
    result = run("tune", data, *COMMON, *BOUNDS, "--shape", "box", *beside, code=2)
    assert "--shape box" in result.output


def test_a_promised_box(data, tmp_path):
    rule, page = tmp_path / "rule.json", tmp_path / "page.html"
    words = [*COMMON, "--min-tpr", ".6", "--max-fpr", ".4", "--shape", "box", "--guarantee", ".8"]
    shown = run("tune", data, *words, "-o", rule, "--report", page)
    assert "promised is this" in shown.output and "limit" in page.read_text(encoding="utf-8")
    saved = dm.Rule.load(rule)
    assert isinstance(saved, dm.BoxRule) and "certified" in saved.card.points


def test_boxes_are_found_where_the_rows_are(data, tmp_path):
    told = [
        json.loads(run("tune", data, *COMMON, *BOUNDS, "--shape", "box", *more, "--json").stdout)
        for more in ([], ["--engine", "duckdb"])
    ]
    assert told[0]["rule"]["limits"] == told[1]["rule"]["limits"]


def test_bounds_out_of_reach_of_boxes(data):
    asked = ["--min-tpr", ".99", "--max-fpr", ".01"]
    result = CliRunner().invoke(app, ["tune", str(data), *COMMON, *asked, "--shape", "box"])
    assert isinstance(result.exception, dm.InfeasibleError)
    assert "no box reaches" in str(result.exception)
