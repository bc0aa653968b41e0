"""`demur report` and `demur demo` as a user runs them."""

import base64
import html
import json
import re
import shlex
import time

import numpy as np
import pytest
from commands import make_table, rates, rows_of, run, write_table

import demur as dm

COLUMNS = ["--loss", "is_wrong", "--ood", "set"]
BOUNDS = ["--min-tpr", ".75", "--max-fpr", ".2"]


def page_data(path):
    text = path.read_text(encoding="utf-8")
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(block.group(1)), text


def test_page_data_and_text_say_the_same(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    common = ["report", "s.csv", "--scores", "msp,knn", *COLUMNS, *BOUNDS]
    written = run(tmp_path, *common, "-o", "r.html", "--title", "A & B")
    assert written.returncode == 0, written.stderr
    data = json.loads(run(tmp_path, *common, "--json").stdout)
    text = run(tmp_path, *common).stdout
    rule = dm.Rule.from_json(json.dumps(data["rule"]))
    sample = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="set")
    assert rule == dm.tune(sample, dm.TprFprModel(0.75, 0.2)).rule
    a, b = rule.direction
    counted = rates(rows_of(table), lambda r: a * r.msp + b * r.knn <= rule.threshold)
    seen = data["tuned"]["rates"]
    assert tuple(seen[n]["value"] for n in ("TPR", "FPR", "selective risk")) == counted
    assert all(f"{value:.5f}" in text for value in counted)
    assert list(data["comparison"]["ood_sets"][0]["values"]) == ["msp", "knn", "msp + knn"]
    embedded, page = page_data(tmp_path / "r.html")
    assert "A &amp; B" in page and data["decision"] in page
    assert embedded["command"] == "demur tune s.csv --scores msp,knn --loss is_wrong --ood set"
    assert data["decision"] in written.stdout and "The report is in r.html." in written.stdout


def test_held_out_rows_are_those_of_tune(tmp_path):
    write_table(make_table(n_id=400, n_ood=200), tmp_path / "s.parquet")
    split = ["--holdout", ".4", "--seed", "3", "--id", "image"]
    common = ["s.parquet", "--scores", "msp,knn", *COLUMNS, *BOUNDS, *split, "--json"]
    report = json.loads(run(tmp_path, "report", *common).stdout)
    tuned = json.loads(run(tmp_path, "tune", *common).stdout)
    assert {k: report["rule"][k] for k in tuned["rule"]} == tuned["rule"]
    for mine, its in (("tuned", "tuned"), ("held_out", "held_out")):
        for name, key in (("TPR", "tpr"), ("FPR", "fpr"), ("selective risk", "selective_risk")):
            assert report[mine]["rates"][name]["value"] == tuned[its][key]
    # The command in the page splits the rows in the same way.
    words = shlex.split(report["command"])
    assert words[1] == "tune"
    again = run(tmp_path, *words[1:], *BOUNDS, "--json")
    assert json.loads(again.stdout)["rule"] == tuned["rule"]
    # Rows are named by their own ids: tuning rows only, with their own scores.
    table = {row.image: row for row in rows_of(make_table(n_id=400, n_ood=200))}
    for row in report["doubtful"]["accepted"] + report["doubtful"]["rejected"]:
        source = table[row["id"]]
        assert row["scores"] == [source.msp, source.knn]
        assert row["kind"] == ("ID" if source.set == "id" else source.set)


def test_confidences_are_shown_as_they_are_in_the_file(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    scores = ["--scores", "msp,knn_conf", "--confidence", "knn_conf"]
    done = run(tmp_path, "report", "s.csv", *scores, *COLUMNS, *BOUNDS, "--json")
    data = json.loads(done.stdout)
    assert data["rule"]["score_names"] == ["msp", "knn_conf"]
    assert data["rule"]["confidence"] == ["knn_conf"]
    doubt = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="set")
    rule = dm.tune(doubt, dm.TprFprModel(0.75, 0.2)).rule
    assert data["rule"]["direction"] == [rule.direction[0], -rule.direction[1]]
    assert "--confidence knn_conf" in data["command"]


def test_more_scores_can_be_compared(tmp_path):
    write_table(make_table(), tmp_path / "s.csv")
    done = run(
        tmp_path,
        "report",
        "s.csv",
        "--scores",
        "knn",
        "--compare",
        "msp",
        *COLUMNS,
        *BOUNDS,
        "--json",
    )
    blocks = json.loads(done.stdout)["comparison"]["ood_sets"]
    assert [list(block["values"]) for block in blocks] == [["knn", "msp"]] * 3


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--min-tpr", ".99", "--max-fpr", ".001"], 3, "no rule reaches tpr >= 0.99"),
        (["--min-tpr", ".8", "--holdout", "1.5"], 2, "--holdout must be between 0 and 1"),
        ([], 2, "no rejection model is given"),
        (["--min-tpr", ".8", "--id", "imag"], 2, "did you mean 'image'?"),
        (["--min-tpr", ".8", "-o", "no/r.html"], 2, "does not exist"),
    ],
)
def test_errors(tmp_path, options, code, message):
    write_table(make_table(), tmp_path / "s.csv")
    done = run(tmp_path, "report", "s.csv", "--scores", "knn", *COLUMNS, *options)
    assert done.returncode == code and message in done.stderr
    assert "Traceback" not in done.stderr


def test_demo(tmp_path):
    start = time.monotonic()
    done = run(tmp_path, "demo", "--json")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - start < 60
    folder = tmp_path / "demur-demo"
    assert sorted(p.name for p in folder.iterdir()) == [
        "audits.csv",
        "live.csv",
        "report.html",
        "rule.json",
        "test.csv",
        "tune.csv",
        "watch.html",
        "watch.json",
    ]
    data = json.loads(done.stdout)
    assert 0.85 < data["accuracy"] < 1
    assert {tuple(o["scores"]) for o in data["outcomes"]} >= {("msp",), ("knn",), ("msp", "knn")}
    assert len({o["model"] for o in data["outcomes"]}) == 3
    # Each outcome follows from the score files by counting.
    for outcome in data["outcomes"]:
        if outcome["rule"] is None:
            continue
        rule = dm.Rule.from_json(json.dumps(outcome["rule"]))
        for name, key in (("tune.csv", "tuned"), ("test.csv", "held_out")):
            columns = np.genfromtxt(folder / name, delimiter=",", names=True, dtype=None)
            scores = np.column_stack([columns[s] for s in outcome["scores"]])
            accept, is_id = rule.accept(scores), columns["set"] == "id"
            point = outcome[key]
            assert point["accepted_id"] == (accept & is_id).sum()
            assert point["accepted_ood"] == (accept & ~is_id).sum()
            assert point["accepted_loss"] == columns["is_wrong"][accept & is_id].sum()
            assert set(columns["label"][~is_id]) == {7, 8, 9}
    # The second act: the alarm comes soon after the change on day 15, and says so.
    found = data["watch"]
    assert {alarm["expectation"] for alarm in found["alarms"]} >= {"accepted share"}
    assert all(15 <= alarm["period"] <= 30 for alarm in found["alarms"])
    assert min(alarm["period"] for alarm in found["alarms"]) <= 18
    assert found["rows"] == 9000
    # A pair never does worse than its parts on the rows they are tuned on.
    for model in {o["model"] for o in data["outcomes"]}:
        tuned = {tuple(o["scores"]): o["tuned"] for o in data["outcomes"] if o["model"] == model}
        key = "expected_cost" if model == "cost" else "selective_risk"
        for single in (("msp",), ("knn",)):
            if tuned[single] is not None:
                assert tuned["msp", "knn"][key] <= tuned[single][key] + 1e-12
    command = shlex.split(page_data(folder / "report.html")[0]["command"])
    again = run(tmp_path, *command[1:], "--min-tpr", ".8", "--max-fpr", ".2", "--json")
    printed = dm.Rule.from_json(json.dumps(json.loads(again.stdout)["rule"]))
    assert printed == dm.Rule.load(folder / "rule.json")
    refused = run(tmp_path, "demo")
    assert refused.returncode == 2 and "--force" in refused.stderr


def test_demo_prints_the_comparison(tmp_path):
    done = run(tmp_path, "demo", "-o", "my demo")
    assert done.returncode == 0, done.stderr
    assert "selective risk at TPR ≥ 0.8, FPR ≤ 0.2" in done.stdout
    assert "selective risk at precision ≥ 0.95, recall ≥ 0.7" in done.stdout
    assert "expected cost" in done.stdout and "msp + knn" in done.stdout
    assert "demur tune 'my demo/tune.csv' --scores msp,knn" in done.stdout
    evaluate = next(line for line in done.stdout.splitlines() if "demur evaluate" in line)
    again = run(tmp_path, *shlex.split(evaluate)[1:])
    assert again.returncode == 0, again.stderr
    assert "some are of a kind that tuning did not know" in done.stdout
    watch = next(line for line in done.stdout.splitlines() if "demur watch" in line)
    state = tmp_path / "my demo" / "watch.json"
    before = json.loads(state.read_text())
    # The same days again: counted anew, the same numbers, the same alarms.
    looked = run(tmp_path, *shlex.split(watch)[1:])
    assert looked.returncode == 4, looked.stderr
    assert json.loads(state.read_text())["segments"] == before["segments"]


def test_tune_writes_a_report_beside_the_rule(tmp_path):
    write_table(make_table(), tmp_path / "scores.csv")
    tune = ["tune", "scores.csv", "--scores", "msp,knn", "--loss", "is_wrong", "--ood", "set"]
    options = [*tune, "--min-tpr", ".5", "--max-fpr", ".3", "--holdout", ".3"]
    done = run(tmp_path, *options, "-o", "rule.json", "--report", "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!doctype html>") and "msp" in page
    before = (tmp_path / "rule.json").read_text()
    done = run(tmp_path, *options, "--report", "page.html")
    assert done.returncode == 2 and "--force" in done.stderr
    assert (tmp_path / "rule.json").read_text() == before


def test_tune_with_a_guarantee_writes_a_report(tmp_path):
    write_table(make_table(seed=1, n_id=900, n_ood=500), tmp_path / "s.csv")
    scores = ["--scores", "msp,knn_conf", "--confidence", "knn_conf"]
    bounds = [*COLUMNS, "--min-tpr", ".5", "--max-fpr", ".3", "--holdout", ".3", "--seed", "2"]
    common = ["s.csv", *scores, *bounds, "--guarantee", ".9", "--json"]
    done = run(tmp_path, "tune", *common, "-o", "rule.json", "--report", "page.html")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    # The rule that is saved has the promise; it reads the column as it is.
    rule = dm.Rule.load(tmp_path / "rule.json")
    assert dm.Rule.from_json(json.dumps(printed["rule"])) == rule and rule.direction[1] <= 0
    # The page is about the very rule that is saved, and tells its promise.
    data, page = page_data(tmp_path / "page.html")
    shown = [unpacked(column)[data["rules"]["start"]] for column in data["rules"]["lines"]]
    assert shown == [*rule.direction, rule.threshold]
    assert data["scores"] == ["msp", "knn_conf"] and data["guarantee"] == 0.9
    assert "Promised of this rule" in page and "Promised of another rule" not in page
    assert re.search(r'<p class="verdict proven"><strong>Proven.</strong>', page)
    assert data["command"].replace("0.3", ".3") == shlex.join(
        ["demur", "tune", "s.csv", *scores, *bounds[:4], *bounds[8:]]
    )
    # `demur report` saves no rule: it is about the best one, and tells the promise of another.
    report = json.loads(run(tmp_path, "report", *common, "--folds", "0").stdout)
    assert report["rule"]["threshold"] != rule.threshold
    statement = report["promises"]["statements"][-1]
    assert statement["key"] == "guaranteed" and "knn_conf" in statement["source"]
    limit = statement["rates"]["selective risk"]["high"]
    assert limit == printed["guarantee"]["selective_risk"]


def unpacked(packed):
    return np.frombuffer(base64.b64decode(packed["data"]), f"<{packed['type']}").tolist()


@pytest.mark.parametrize("verb", ["report", "tune"])
def test_bounds_out_of_reach_make_a_page(tmp_path, verb):
    write_table(make_table(n_id=200, n_ood=100), tmp_path / "s.csv")
    target = ["-o", "page.html"] if verb == "report" else ["--report", "page.html", "-o", "r.json"]
    bounds = ["--min-tpr", ".99", "--max-fpr", ".0015"]
    done = run(tmp_path, verb, "s.csv", "--scores", "msp,knn", *COLUMNS, *bounds, *target)
    assert done.returncode == 3 and "no rule reaches tpr >= 0.99" in done.stderr
    assert not (tmp_path / "r.json").exists()
    data, page = page_data(tmp_path / "page.html")
    assert data["unmet"] and data["start"]["fpr"] == "0.0015" and "Out of reach" in page
    # What is nearest: the least FPR at the share of ID that was asked for.
    sample = dm.Sample.from_frame(
        make_table(n_id=200, n_ood=100), ["msp", "knn"], loss="is_wrong", ood="set"
    )
    with pytest.raises(dm.InfeasibleError) as error:
        dm.tune(sample, dm.TprFprModel(0.99, 0.0015))
    rule = dm.Rule(
        tuple(unpacked(column)[data["rules"]["start"]] for column in data["rules"]["lines"][:2]),
        unpacked(data["rules"]["lines"][2])[data["rules"]["start"]],
    )
    point = dm.evaluate(rule, sample)
    assert point.tpr >= 0.99 and point.fpr == error.value.attainable["min_fpr"]


def test_a_page_tells_why_no_rule_can_be_guaranteed(tmp_path):
    write_table(make_table(seed=1, n_id=40, n_ood=20), tmp_path / "few.csv")
    common = ["tune", "few.csv", "--scores", "knn", *COLUMNS, "--min-tpr", ".5", "--max-fpr", ".1"]
    options = ["--guarantee", ".95", "-o", "no.json", "--report", "page.html"]
    done = run(tmp_path, *common, *options)
    assert done.returncode == 3
    assert not (tmp_path / "no.json").exists()
    reason = done.stderr[done.stderr.index("no rule is proven") :].strip()
    page = page_data(tmp_path / "page.html")[1]
    assert html.escape(reason) in page
    assert "No rule can be promised to keep the bounds" in page
