"""`demur compare`: values of the library in the layout of the paper."""

import json
import math

import numpy as np
import pytest
from commands import make_table, rates, rows_of, run, write_table

import demur as dm
from demur import metrics

SCORES = ["--scores", "msp", "--scores", "knn_conf", "--scores", "msp,knn_conf"]
COLUMNS = ["--confidence", "knn_conf", "--loss", "is_wrong"]
BOUNDS = ["--min-tpr", ".8", "--max-fpr", ".1"]


def test_values_per_set_and_pooled(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.parquet")
    prior = ["--min-precision", ".9", "--min-recall", ".7", "--prior", ".25"]
    done = run(
        tmp_path,
        "compare",
        "s.parquet",
        *SCORES,
        *COLUMNS,
        "--ood",
        "set",
        *BOUNDS,
        *prior,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert [r["ood"] for r in results] == ["mnist"] * 3 + ["svhn"] * 3 + ["pooled"] * 3
    pair = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="set")
    for result in results:
        part = pair if result["ood"] == "pooled" else pair.for_ood(result["ood"])
        columns = [("msp", "knn_conf").index(name) for name in result["scores"]]
        sample = part if len(columns) == 2 else part.score(columns[0])
        bounds, precise = dm.TprFprModel(0.8, 0.1), dm.PrecisionRecallModel(0.9, 0.7, 0.25)
        expected = {
            "sel. risk at TPR(0.8), FPR(0.1)": metrics.selective_risk_at(sample, bounds),
            "sel. risk at Prec(0.9), Recall(0.7)": metrics.selective_risk_at(sample, precise),
            "AUROC": metrics.auroc(sample),
            "AUPR": metrics.aupr(sample, method="average_precision", ood_prior=0.25),
            "OSCR/accepted": metrics.oscr(sample, per="accepted"),
            "OSCR/all": metrics.oscr(sample, per="all"),
            "FPR@TPR(0.95)": metrics.fpr_at_tpr(sample, 0.95),
        }
        found = {k: math.nan if v is None else v for k, v in result["metrics"].items()}
        assert found == pytest.approx(expected, nan_ok=True)
    # By counting: the share of ID-OOD pairs in the right order.
    rows = rows_of(table)
    inside = [row.knn for row in rows if not row.is_ood]
    outside = [row.knn for row in rows if row.is_ood]
    wins = sum(a < b for a in inside for b in outside) / (len(inside) * len(outside))
    assert results[7]["metrics"]["AUROC"] == pytest.approx(wins)


def test_text_table_says_unable_and_marks_the_best(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    done = run(tmp_path, "compare", "s.csv", *SCORES, *COLUMNS, "--ood", "is_ood", *BOUNDS)
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["score", "sel.", "risk", "at"]
    assert lines[2].split()[:2] == ["msp", "unable"]
    rows = rows_of(table)
    risks = [
        risk
        for tpr, fpr, risk in (
            rates(rows, lambda r, v=v: r.knn <= v) for v in {r.knn for r in rows}
        )
        if tpr >= 0.8 and fpr <= 0.1
    ]
    assert lines[3].split()[:2] == ["knn_conf", f"{min(risks):.5f}"]
    assert lines[4].startswith("msp + knn_conf") and lines[4].split()[3].endswith("*")
    assert "Pairs are tuned on the rows they are shown for" in done.stdout


def test_markdown_and_latex(tmp_path):
    write_table(make_table(), tmp_path / "s.csv")
    common = ["compare", "s.csv", *SCORES, *COLUMNS, "--ood", "is_ood", *BOUNDS]
    markdown = run(tmp_path, *common, "--format", "markdown").stdout.splitlines()
    assert markdown[0].startswith("| score | ↓ sel. risk at TPR(0.8), FPR(0.1) | ↑ AUROC |")
    assert markdown[1] == "|---|" + "---:|" * 6
    assert markdown[2].startswith("| msp | unable |")
    assert markdown[4].startswith("| msp + knn_conf | **0.")
    done = run(tmp_path, *common, "--format", "latex", "-o", "table.tex")
    assert (done.returncode, done.stdout) == (0, "")
    latex = (tmp_path / "table.tex").read_text().splitlines()
    assert latex[1] == r"\begin{tabular}{lrrrrrr}"
    assert latex[3].startswith(r"score & $\downarrow$ sel. risk at TPR(0.8), FPR(0.1) & $\uparrow$")
    assert latex[6].startswith(r"knn\_conf & 0.")
    assert latex[7].startswith(r"msp + knn\_conf & \textbf{0.") and latex[7].endswith(r"\\")
    assert latex[9] == r"\end{tabular}"


def test_losses_that_are_not_errors_have_no_oscr(tmp_path):
    rows = "0.1,0.5,0\n0.2,2,0\n0.3,0,1\n0.9,1,1\n"
    (tmp_path / "s.csv").write_text("s,loss,ood\n" + rows)
    done = run(
        tmp_path, "compare", "s.csv", "--scores", "s", "--loss", "loss", "--ood", "ood", "--json"
    )
    assert list(json.loads(done.stdout)["results"][0]["metrics"]) == [
        "AUROC",
        "AUPR",
        "FPR@TPR(0.95)",
    ]


@pytest.mark.parametrize("weighted", [[], ["--weight", "w"]])
@pytest.mark.parametrize("graded", [0.25, 1])
def test_rows_that_stay_where_they_are_have_graded_losses_weights_and_sets(
    tmp_path, graded, weighted
):
    table = make_table()
    losses = table["is_wrong"].to_numpy() * graded
    weights = np.random.default_rng(0).random(len(table)) + 0.1
    # No exponent that suits one set suits the other.
    weights[table["set"].to_numpy() == "svhn"] *= 1e-12
    place = table.column_names.index("is_wrong")
    table = table.set_column(place, "is_wrong", [losses]).append_column("w", [weights])
    write_table(table, tmp_path / "s.parquet")
    asked = ["compare", "s.parquet", *SCORES, *COLUMNS, "--ood", "set", *BOUNDS, "--json"]
    asked += weighted
    here, there = (
        json.loads(run(tmp_path, *asked, "--engine", engine).stdout)["results"]
        for engine in ("memory", "duckdb")
    )
    assert len(here) == len(there) == 9
    assert ("OSCR/all" in there[0]["metrics"]) == (graded == 1)
    for one, other in zip(here, there, strict=True):
        assert one["scores"] == other["scores"] and one["ood"] == other["ood"]
        assert list(one["metrics"]) == list(other["metrics"])
        for name, value in one["metrics"].items():
            assert other["metrics"][name] == pytest.approx(value, abs=1e-9), name


def test_areas_are_not_compared_where_rows_share_an_id(tmp_path):
    table = make_table()
    for ids, expected in ((np.arange(len(table)), 1), (np.arange(len(table)) // 3, 0)):
        write_table(table.append_column("patient", [ids]), tmp_path / "s.parquet")
        asked = ["compare", "s.parquet", "--scores", "msp", "--scores", "knn_conf", *COLUMNS]
        asked += ["--ood", "set", *BOUNDS, "--id", "patient", "--replicates", "2", "--json"]
        for engine in ("memory", "duckdb"):
            done = run(tmp_path, *asked, "--engine", engine)
            found = [one["quantity"] for one in json.loads(done.stdout)["differences"]]
            assert found.count("AUROC") == expected, (engine, found)


def test_a_missing_column_of_ids_is_named_by_its_option(tmp_path):
    write_table(make_table(), tmp_path / "s.parquet")
    asked = ["compare", "s.parquet", *SCORES, *COLUMNS, "--ood", "set", *BOUNDS, "--id", "nobody"]
    for engine in ("memory", "duckdb"):
        done = run(tmp_path, *asked, "--replicates", "3", "--engine", engine)
        assert done.returncode == 2 and "--id" in done.stderr, done.stderr
        assert "key:" not in done.stderr and "nobody" in done.stderr
