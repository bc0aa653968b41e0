"""`demur certify`, `demur plan` and `demur tune --guarantee`, against SciPy and plain counting."""

import json

import pytest
from commands import make_table, rates, rows_of, run, write_table
from scipy.stats import beta

import demur as dm

COLUMNS = ["--loss", "is_wrong", "--ood", "is_ood"]


def test_certify_states_exact_binomial_bounds(tmp_path):
    dm.Rule((0.6, 0.8), 1.25, score_names=("msp", "knn")).save(tmp_path / "r.json")
    table = make_table(seed=5, n_id=600, n_ood=300)
    write_table(table, tmp_path / "fresh.parquet")
    common = ["certify", "r.json", "fresh.parquet", *COLUMNS, "--confidence", ".9"]
    done = run(tmp_path, *common, "--min-tpr", ".4", "--max-fpr", ".2", "--json")
    assert done.returncode == 0, done.stderr
    promise = json.loads(done.stdout)
    tpr, fpr, _ = rates(rows_of(table), lambda r: 0.6 * r.msp + 0.8 * r.knn <= 1.25)
    # Three bounds that hold together with 90 % chance, each at 1 - 0.9 ** (1/3).
    level = 1 - 0.9 ** (1 / 3)
    accepted_id, accepted_ood = round(tpr * 600), round(fpr * 300)
    low = beta.ppf(level, accepted_id, 600 - accepted_id + 1)
    high = beta.ppf(1 - level, accepted_ood + 1, 300 - accepted_ood)
    assert promise["tpr"]["low"] == pytest.approx(low, rel=1e-9)
    assert promise["fpr"]["high"] == pytest.approx(high, rel=1e-9)
    assert promise["met"] == {"tpr >= 0.4": True, "fpr <= 0.2": True}
    done = run(tmp_path, *common, "--min-tpr", ".95", "--max-fpr", ".2")
    assert done.returncode == 3
    assert "tpr >= 0.95: not certified" in done.stdout
    assert "only for them" in done.stdout


def test_certify_refuses_weights_and_nonsense(tmp_path):
    dm.Rule((1.0,), 1.25, score_names=("knn",)).save(tmp_path / "r.json")
    write_table(make_table(), tmp_path / "fresh.csv")
    for extra, message in [
        (["--weight", "msp"], "weight"),
        (["--confidence", "1.5"], "confidence"),
        (["--confidence", "high"], "not a number"),
    ]:
        done = run(tmp_path, "certify", "r.json", "fresh.csv", *COLUMNS, *extra)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_plan_prints_sizes_and_the_power_curve(tmp_path):
    bounds = ["--min-tpr", ".8", "--max-fpr", ".1", "--confidence", ".95"]
    done = run(tmp_path, "plan", *bounds)
    assert done.returncode == 0, done.stderr
    assert "850" in done.stdout and "421" in done.stdout
    planned = json.loads(run(tmp_path, "plan", *bounds, "--margin", ".05", "--json").stdout)
    (row,) = planned["rows"]
    assert (row["n_id"], row["n_ood"]) == (850, 421)
    powers = [point["tpr_power"] for point in planned["curve"]]
    assert powers[0] < 0.2 < 0.9 < powers[-1]
    done = run(tmp_path, "plan", "--cost-reject-id", "1")
    assert done.returncode == 2
    assert "--min-tpr" in done.stderr


def test_tune_with_a_guarantee(tmp_path):
    write_table(make_table(seed=1, n_id=2400, n_ood=1200), tmp_path / "scores.parquet")
    tune = ["tune", "scores.parquet", "--scores", "msp,knn", *COLUMNS]
    bounds = ["--min-tpr", ".5", "--max-fpr", ".2", "--guarantee", ".95"]
    done = run(tmp_path, *tune, *bounds, "-o", "rule.json", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rule = dm.Rule.load(tmp_path / "rule.json")
    assert json.loads(rule.to_json()) == result["rule"]
    # Fresh rows of the same kind: the promise holds, with room to spare for these.
    fresh = make_table(seed=2, n_id=20_000, n_ood=10_000)
    a, b = rule.direction
    tpr, fpr, risk = rates(rows_of(fresh), lambda r: a * r.msp + b * r.knn <= rule.threshold)
    assert tpr >= 0.5 and fpr <= 0.2
    assert risk <= result["guarantee"]["selective_risk"]
    done = run(tmp_path, *tune, *bounds)
    assert "With probability 0.95" in done.stdout
    write_table(make_table(seed=1, n_id=30, n_ood=10), tmp_path / "few.parquet")
    few = ["tune", "few.parquet", "--scores", "knn", *COLUMNS, *bounds]
    done = run(tmp_path, *few, "-o", "no.json")
    assert done.returncode == 3
    assert "rows" in done.stderr
    assert not (tmp_path / "no.json").exists()
