"""`demur tune`: values against plain counting, on files of each format."""

import json

import numpy as np
import pytest
from commands import FORMATS, make_table, rates, rows_of, run, write_table

import demur as dm

COLUMNS = ["--loss", "is_wrong", "--ood", "is_ood"]
BOUNDS = ["--min-tpr", ".8", "--max-fpr", ".1"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_one_score_against_every_threshold(tmp_path, suffix):
    table = make_table()
    write_table(table, tmp_path / f"s.{suffix}")
    done = run(tmp_path, "tune", f"s.{suffix}", "--scores", "knn", *COLUMNS, *BOUNDS, "--json")
    assert done.returncode == 0, done.stderr
    tuned = json.loads(done.stdout)
    rows = rows_of(table)
    candidates = [
        (risk, -tpr, fpr)
        for tpr, fpr, risk in (
            rates(rows, lambda r, limit=limit: r.knn <= limit) for limit in {r.knn for r in rows}
        )
        if tpr >= 0.8 and fpr <= 0.1
    ]
    best = min(candidates)
    point = tuned["tuned"]
    assert (point["selective_risk"], -point["tpr"], point["fpr"]) == best
    threshold = tuned["rule"]["threshold"]
    assert rates(rows, lambda r: r.knn <= threshold) == (-best[1], best[2], best[0])
    assert tuned["tuned"]["rows"] == {"id": 240, "ood": 120, "ood_sets": {"ood": 120}}
    certificate = tuned["certificate"]
    assert (certificate["status"], certificate["unresolved"]) == ("optimal", 0)
    assert certificate["lower_bound"] == pytest.approx(tuned["tuned"]["selective_risk"])


def test_pair_from_labels_writes_the_rule_and_explains_it(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    labels = ["--label", "label", "--prediction", "pred", "--ood", "set"]
    done = run(tmp_path, "tune", "s.csv", "--scores", "msp,knn", *labels, *BOUNDS, "-o", "r.json")
    assert done.returncode == 0, done.stderr
    sample = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="set")
    expected = dm.tune(sample, dm.TprFprModel(0.8, 0.1))
    rule = dm.Rule.load(tmp_path / "r.json")
    assert rule == expected.rule
    assert rule.score_names == ("msp", "knn")
    a, b = rule.direction
    tpr, fpr, risk = rates(rows_of(table), lambda r: a * r.msp + b * r.knn <= rule.threshold)
    assert done.stdout.startswith("Accept an input when ")
    assert f"accepts {tpr:.2%} of ID and {fpr:.2%} of OOD inputs" in done.stdout
    assert f"selective risk {risk:.5f}" in done.stdout
    assert "FPR of mnist" in done.stdout and "FPR of svhn" in done.stdout
    assert "The tuned numbers are optimistic" in done.stdout
    assert "FPR holds for the OOD data supplied, and only for them." in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_confidences_end_up_as_negative_weights_on_raw_columns(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.parquet")
    scores = ["--scores", "msp,knn_conf", "--confidence", "knn_conf"]
    done = run(tmp_path, "tune", "s.parquet", *scores, *COLUMNS, *BOUNDS, "-o", "r.json", "--json")
    assert "knn_conf" in done.stderr and "negative weight" in done.stderr
    rule = dm.Rule.load(tmp_path / "r.json")
    doubt = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="is_ood")
    expected = dm.tune(doubt, dm.TprFprModel(0.8, 0.1)).rule
    assert rule.direction == (expected.direction[0], -expected.direction[1])
    assert rule.threshold == expected.threshold
    raw = np.column_stack([table["msp"], table["knn_conf"]])
    np.testing.assert_array_equal(
        rule.accept(raw), expected.accept(np.column_stack([table["msp"], table["knn"]]))
    )
    # The saved rule evaluates on the raw columns to the very point that was tuned.
    again = run(tmp_path, "evaluate", "r.json", "s.parquet", *COLUMNS, "--json")
    tuned = json.loads(done.stdout)["tuned"]
    assert json.loads(again.stdout)["point"] == tuned


def test_holdout_keeps_ids_together_and_evaluates_the_rest(tmp_path):
    table = make_table(n_id=400, n_ood=200)
    group = [f"video {i // 5}" for i in range(600)]
    table = table.append_column("video", [group])
    write_table(table, tmp_path / "s.feather")
    common = ["tune", "s.feather", "--scores", "knn", "--loss", "is_wrong", "--ood", "set", *BOUNDS]
    split = ["--holdout", ".3", "--seed", "7", "--id", "video", "--prior", "1/3", "--json"]
    done = run(tmp_path, *common, *split)
    result = json.loads(done.stdout)
    tuned, held = result["tuned"], result["held_out"]
    # 80 ID groups of 5 rows, OOD sets of 66 and 134 rows: groups 80-92 and 93-119.
    assert held["rows"]["id"] == 24 * 5
    assert tuned["rows"]["id"] + held["rows"]["id"] == 400
    assert tuned["rows"]["ood"] + held["rows"]["ood"] == 200
    assert all(
        0 < held["rows"]["ood_sets"][s] < tuned["rows"]["ood_sets"][s]
        for s in held["rows"]["ood_sets"]
    )
    limit = result["rule"]["threshold"]
    whole = [row for row in rows_of(table) if row.knn <= limit]
    assert sum(not row.is_ood for row in whole) == tuned["accepted_id"] + held["accepted_id"]
    assert sum(row.is_ood for row in whole) == tuned["accepted_ood"] + held["accepted_ood"]
    expected = (2 / 3 * held["tpr"]) / (2 / 3 * held["tpr"] + 1 / 3 * held["fpr"])
    assert held["precision"] == pytest.approx(expected, abs=1e-12)
    text = run(tmp_path, *common, *split[:-1]).stdout
    assert "held out" in text and "quote the held-out ones" in text


@pytest.mark.parametrize(
    ("options", "model"),
    [
        (
            ["--min-precision", ".95", "--min-recall", ".6", "--prior", ".3"],
            dm.PrecisionRecallModel(0.95, 0.6, 0.3),
        ),
        (
            ["--cost-reject-id", ".15", "--cost-accept-ood", "2", "--prior", ".2"],
            dm.CostModel(0.15, 2, 0, 0.2),
        ),
    ],
)
def test_the_other_models(tmp_path, options, model):
    table = make_table()
    write_table(table, tmp_path / "s.parquet")
    scores = ["--scores", "msp,knn", "--directions", "real", "--fpr-of", "pooled"]
    done = run(tmp_path, "tune", "s.parquet", *scores, *COLUMNS, *options, "--json")
    assert done.returncode == 0, done.stderr
    sample = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="is_ood")
    expected = dm.tune(sample, model, directions="real")
    result = json.loads(done.stdout)
    assert dm.Rule.from_json(json.dumps(result["rule"])) == expected.rule
    assert result["tuned"]["precision"] == expected.point.precision
    assert result["tuned"]["expected_cost"] == expected.point.expected_cost


def test_decimals_stay_exact(tmp_path):
    # 0.07 * 100 is more than 7 in floats; and 1/3 of 3 rows is one row.
    rows = "\n".join(f"{i},0,0\n{i}.5,0,1" for i in range(100))
    (tmp_path / "s.csv").write_text("s,loss,ood\n" + rows + "\n")
    common = ["tune", "s.csv", "--scores", "s", "--loss", "loss", "--ood", "ood", "--json"]
    done = run(tmp_path, *common, "--min-tpr", ".07", "--max-fpr", "0.07")
    assert json.loads(done.stdout)["tuned"]["accepted_ood"] == 7


def test_infeasible_bounds(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    common = ["tune", "s.csv", "--scores", "knn", *COLUMNS, "--min-tpr", ".9", "--max-fpr", ".01"]
    done = run(tmp_path, *common, "--json", "-o", "r.json")
    assert done.returncode == 3
    rows = rows_of(table)
    points = [rates(rows, lambda r, v=v: r.knn <= v) for v in {r.knn for r in rows}]
    attainable = json.loads(done.stdout)["attainable"]
    assert attainable["max_tpr"] == max(tpr for tpr, fpr, _ in points if fpr <= 0.01)
    assert attainable["min_fpr"] == min(fpr for tpr, fpr, _ in points if tpr >= 0.9)
    assert "no rule reaches tpr >= 0.9 with fpr <= 0.01" in done.stderr
    assert not (tmp_path / "r.json").exists()
