"""`demur evaluate` on new rows, against plain counting."""

import json

import pytest
from commands import FORMATS, make_table, rates, rows_of, run, write_table

import demur as dm


@pytest.mark.parametrize("suffix", FORMATS)
def test_rates_on_new_rows(tmp_path, suffix):
    rule = dm.Rule((0.6, 0.8), 1.25, score_names=("msp", "knn"))
    rule.save(tmp_path / "r.json")
    table = make_table(seed=5)
    write_table(table, tmp_path / f"new.{suffix}")
    columns = ["--loss", "is_wrong", "--ood", "set", "--prior", ".25"]
    bounds = ["--min-tpr", ".5", "--max-fpr", ".02"]
    done = run(tmp_path, "evaluate", "r.json", f"new.{suffix}", *columns, *bounds, "--json")
    # The FPR is above its bound.
    assert done.returncode == 3, done.stderr
    result = json.loads(done.stdout)
    point, rows = result["point"], rows_of(table)
    tpr, fpr, risk = rates(rows, lambda r: 0.6 * r.msp + 0.8 * r.knn <= 1.25)
    assert (point["tpr"], point["fpr"], point["selective_risk"]) == (tpr, fpr, risk)
    assert point["precision"] == pytest.approx(0.75 * tpr / (0.75 * tpr + 0.25 * fpr), abs=1e-12)
    for name in ("svhn", "mnist"):
        part = [row for row in rows if row.set in ("id", name)]
        expected = rates(part, lambda r: 0.6 * r.msp + 0.8 * r.knn <= 1.25)[1]
        assert point["fpr_by_set"][name] == expected
    assert result["bounds_met"] == {"tpr >= 0.5": tpr >= 0.5, "fpr <= 0.02": fpr <= 0.02}
    assert fpr > 0.02


def test_other_columns_and_text(tmp_path):
    dm.Rule((1.0,), 0.5).save(tmp_path / "r.json")
    write_table(make_table(), tmp_path / "new.csv")
    common = ["evaluate", "r.json", "new.csv", "--loss", "is_wrong", "--ood", "is_ood"]
    done = run(tmp_path, *common)
    assert done.returncode == 2
    assert "name them with --scores" in done.stderr
    done = run(tmp_path, *common, "--scores", "knn", "--min-tpr", ".99")
    tpr, _, risk = rates(rows_of(make_table()), lambda r: r.knn <= 0.5)
    assert f"{tpr:.4f}" in done.stdout and f"{risk:.5f}" in done.stdout
    assert "tpr >= 0.99: not met" in done.stdout
