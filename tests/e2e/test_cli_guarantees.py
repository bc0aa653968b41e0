"""`demur certify`, `demur plan` and `demur tune --guarantee`, against SciPy and plain counting."""

import json

import numpy as np
import pyarrow as pa
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
    # As printed, no end promises more than the exact one.
    shown = {line.split("  ")[0]: float(line.split()[-1]) for line in done.stdout.splitlines()[4:7]}
    exact = promise["tpr"]["low"], promise["fpr"]["high"], promise["selective_risk"]["high"]
    assert 0 <= exact[0] - shown["TPR"] < 1e-5
    assert 0 <= shown["FPR"] - exact[1] < 1e-5
    assert 0 <= shown["selective risk"] - exact[2] < 1e-5
    assert "only for them" in done.stdout


def test_certify_refuses_weights_and_nonsense(tmp_path):
    dm.Rule((1.0,), 1.25, score_names=("knn",)).save(tmp_path / "r.json")
    write_table(make_table(), tmp_path / "fresh.csv")
    for extra, message in [
        (["--weight", "msp"], "weight"),
        (["--confidence", "1.5"], "'--confidence': '1.5' is not between 0 and 1"),
        (["--max-loss", "-1"], "max_loss must be a positive number, got -1"),
        (["--level", "high"], "not a number"),
        (["--confidence", "high"], "--confidence: 'high' is not one of the scores 'knn'"),
        (["--confidence", ".9", "--level", ".9"], "the level is given twice"),
        (["--prior", ".2", "--prior-range", ".1", ".3"], "leave out one of the two"),
        (
            ["--prior", ".2", "--prior-range", ".1", ".3", "--min-tpr", ".5"],
            "leave out one of the two",
        ),
    ]:
        done = run(tmp_path, "certify", "r.json", "fresh.csv", *COLUMNS, *extra)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


def test_certify_shows_what_was_seen_at_the_prior(tmp_path):
    dm.Rule((1.0,), 1.25, score_names=("knn",)).save(tmp_path / "r.json")
    table = make_table()
    write_table(table, tmp_path / "fresh.csv")
    tpr, fpr, _ = rates(rows_of(table), lambda r: r.knn <= 1.25)
    asked = ["--min-precision", ".5", "--min-recall", ".5", "--prior-range", ".1", ".3"]
    for extra, prior in [(["--prior", ".2"], 0.2), ([], 0.3)]:
        done = run(tmp_path, "certify", "r.json", "fresh.csv", *COLUMNS, *asked, *extra, "--json")
        assert done.returncode == 0, done.stderr
        promise = json.loads(done.stdout)
        seen = (1 - prior) * tpr / ((1 - prior) * tpr + prior * fpr)
        assert promise["point"]["precision"] == pytest.approx(seen)
        low, high = promise["tpr"]["low"], promise["fpr"]["high"]
        assert promise["precision"]["low"] == pytest.approx(0.7 * low / (0.7 * low + 0.3 * high))


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
    done = run(tmp_path, "plan", "--max-fpr", ".1")
    assert done.returncode == 2
    assert "--min-tpr" in done.stderr
    text = run(tmp_path, "plan", "--min-tpr", ".8").stdout
    assert "fpr" not in text.splitlines()[0] and "OOD" not in text.splitlines()[-1]
    assert "relax it" in run(tmp_path, "plan", "--min-tpr", "1").stdout


def test_tune_with_a_guarantee(tmp_path):
    write_table(make_table(seed=1, n_id=2400, n_ood=1200), tmp_path / "scores.parquet")
    tune = ["tune", "scores.parquet", "--scores", "msp,knn", *COLUMNS]
    bounds = ["--min-tpr", ".5", "--max-fpr", ".2", "--guarantee", ".95"]
    done = run(tmp_path, *tune, *bounds, "-o", "rule.json", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    rule = dm.Rule.load(tmp_path / "rule.json")
    assert dm.Rule.from_json(json.dumps(result["rule"])) == rule
    # Fresh rows of the same kind: the promise holds, with room to spare for these.
    fresh = make_table(seed=2, n_id=20_000, n_ood=10_000)
    a, b = rule.direction
    tpr, fpr, risk = rates(rows_of(fresh), lambda r: a * r.msp + b * r.knn <= rule.threshold)
    assert tpr >= 0.5 and fpr <= 0.2
    assert risk <= result["guarantee"]["selective_risk"]
    done = run(tmp_path, *tune, *bounds)
    said = " ".join(done.stdout.split())
    assert "With probability 0.95 over the choice of rows, in the population tpr >= 0.5" in said
    assert "on 1,920 ID and 960 OOD rows set aside to test it" in said
    shown = float(said.partition("the selective risk is at most ")[2].split()[0].rstrip("."))
    assert 0 <= shown - result["guarantee"]["selective_risk"] < 1e-5
    write_table(make_table(seed=1, n_id=30, n_ood=10), tmp_path / "few.parquet")
    few = ["tune", "few.parquet", "--scores", "knn", *COLUMNS, *bounds]
    done = run(tmp_path, *few, "-o", "no.json")
    assert done.returncode == 3
    assert "rows" in done.stderr
    assert not (tmp_path / "no.json").exists()


def test_a_guarantee_that_cannot_be_given_writes_nothing(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.parquet")
    half = pa.array(np.arange(len(table)) // 2)
    write_table(table.append_column("patient", half), tmp_path / "pairs.parquet")
    bounds = ["--scores", "msp,knn", *COLUMNS, "--min-tpr", ".5", "--max-fpr", ".3"]
    files = ["-o", "no.json", "--report", "no.html", "--counts", "no.counts"]
    for data, extra, message in [
        ("s.parquet", ["--guarantee", "1.5"], "'--guarantee': '1.5' is not between 0 and 1"),
        ("s.parquet", ["--guarantee", ".9", "--per-id", "draw"], "--per-id needs --id"),
        ("s.parquet", ["--per-id", "draw"], "--per-id is about --guarantee"),
        ("pairs.parquet", ["--guarantee", ".9", "--id", "patient"], "ids in"),
    ]:
        refused = run(tmp_path, "tune", data, *bounds, *extra, *files)
        assert refused.returncode == 2
        assert message in refused.stderr
        assert not list(tmp_path.glob("no.*"))
    named = table.append_column("row", pa.array(np.arange(len(table))))
    write_table(named, tmp_path / "named.parquet")
    done = run(tmp_path, "tune", "named.parquet", *bounds, "--guarantee", ".9", "--id", "row")
    assert done.returncode == 0, done.stderr


def test_a_rule_that_accepts_nothing_promises_its_cost_only(tmp_path):
    write_table(make_table(), tmp_path / "s.csv")
    free = ["--cost-reject-id", "0", "--prior", ".3", "--guarantee", ".9"]
    done = run(tmp_path, "tune", "s.csv", "--scores", "msp", *COLUMNS, *free)
    assert done.returncode == 0, done.stderr
    assert "expected cost is at most 0.00000." in done.stdout
    assert "undefined" not in done.stdout and "selective risk" not in done.stdout


SETS = ["--loss", "is_wrong", "--ood", "set"]


def test_every_set_is_certified_and_promised(tmp_path):
    table = make_table(seed=3, n_id=1500, n_ood=900)
    write_table(table, tmp_path / "s.parquet")
    write_table(make_table(seed=4, n_id=1500, n_ood=900), tmp_path / "fresh.parquet")
    bounds = ["--scores", "msp,knn", *SETS, "--min-tpr", ".4", "--max-fpr", ".5"]
    worst = [*bounds, "--fpr-of", "worst"]
    done = run(tmp_path, "tune", "s.parquet", *worst, "--guarantee", ".9", "-o", "r.json")
    assert done.returncode == 0, done.stderr
    assert "fpr <= 0.5 of every set" in done.stdout
    # The card knows how the rule was tuned.
    columns = ["certify", "r.json", "fresh.parquet", *SETS, "--json"]
    found = json.loads(run(tmp_path, *columns).stdout)
    assert found["worst"] and "fpr <= 0.5 of every set" in found["met"]
    assert found["fpr"]["high"] == max(one["high"] for one in found["fpr_by_set"].values())
    pooled = json.loads(run(tmp_path, *columns, "--min-tpr", ".4", "--max-fpr", ".5").stdout)
    assert not pooled["worst"] and pooled["fpr"]["high"] < found["fpr"]["high"]
    said = run(tmp_path, *columns[:-1], "--fpr-of", "worst").stdout
    assert "largest FPR of a set" in said


def test_bounds_of_groups_and_single_sets_are_promised_certified_and_planned(tmp_path):
    for name, seed in (("s.parquet", 3), ("fresh.parquet", 4)):
        table = make_table(seed=seed, n_id=1500, n_ood=900)
        rng = np.random.default_rng(seed)
        ward = np.where(rng.random(table.num_rows) < 0.3, "rare", "usual")
        table = table.append_column("ward", pa.array(ward))
        write_table(table, tmp_path / name)
    fresh = rows_of(table)
    columns = [*SETS, "--group", "ward"]
    bounds = ["--min-tpr", ".4", "--bound", "tpr of rare >= .4", "--bound", "fpr of svhn <= .6"]
    asked = ["--scores", "msp,knn", *columns, *bounds, "--guarantee", ".9", "-o", "r.json"]
    done = run(tmp_path, "tune", "s.parquet", *asked)
    assert done.returncode == 0, done.stderr
    assert "tpr >= 0.4 of rare and fpr <= 0.6 of svhn" in done.stdout
    # Bounds and columns are those of the card.
    found = json.loads(run(tmp_path, "certify", "r.json", "fresh.parquet", "--json").stdout)
    rule = dm.Rule.load(tmp_path / "r.json")
    own = [row for row in fresh if row.set == "id" and row.ward == "rare"]
    accepted = sum(rule.accept_one({"msp": row.msp, "knn": row.knn}) for row in own)
    low = beta.ppf(0.05 / 4, accepted, len(own) - accepted + 1)
    assert found["tpr_by_group"]["rare"]["low"] == pytest.approx(low)
    assert set(found["fpr_by_set"]) == {"svhn"}
    assert found["met"]["tpr >= 0.4 of rare"] == (low >= 0.4)
    streamed = ["certify", "r.json", "fresh.parquet", "--engine", "duckdb", "--json"]
    assert json.loads(run(tmp_path, *streamed).stdout)["tpr_by_group"] == found["tpr_by_group"]
    said = run(tmp_path, "certify", "r.json", "fresh.parquet").stdout
    assert "TPR of rare" in said and "FPR of svhn" in said and "one at a time" in said
    planned = run(tmp_path, "plan", *bounds, "--margin", ".1").stdout
    assert "for tpr >= 0.4 of rare" in planned and "rows of it" in planned
    wrong = run(tmp_path, "certify", "r.json", "fresh.parquet", "--bound", "tpr of rar >= .4")
    assert wrong.returncode == 2 and "no group of ID rows is called 'rar'" in wrong.stderr


def test_rows_that_share_an_id_are_refused_or_every_id_counts_once(tmp_path):
    table = make_table(seed=3, n_id=1500, n_ood=900)
    write_table(table, tmp_path / "s.parquet")
    ids = pa.array([f"{kind}{i // 3}" for i, kind in enumerate(table.column("set").to_pylist())])
    write_table(table.append_column("patient", ids), tmp_path / "by.parquet")
    rule = dm.Rule((1.0, 1.0), 1.0, score_names=("msp", "knn"))
    rule.save(tmp_path / "r.json")
    certify = ["certify", "r.json", "by.parquet", *SETS, "--id", "patient"]
    refused = run(tmp_path, *certify)
    assert refused.returncode == 2 and "say with --per-id what to promise" in refused.stderr
    alone = json.loads(run(tmp_path, *certify[:-2], "--json").stdout)
    for way in ("draw", "mean"):
        found = json.loads(run(tmp_path, *certify, "--per-id", way, "--json").stdout)
        assert found["caveat"].startswith("Every id counts once")
        assert found["tpr"]["low"] < alone["tpr"]["low"]
    in_use = ["--deployed", "s.parquet", "--json"]
    wider = json.loads(run(tmp_path, *certify, "--per-id", "mean", *in_use).stdout)["ood_prior"]
    alone = json.loads(run(tmp_path, *certify[:-2], *in_use).stdout)["ood_prior"]
    assert wider[1] - wider[0] > 1.2 * (alone[1] - alone[0])
    prior = ["prior", *certify[1:3], "--ood", "set", *certify[-2:], *in_use, "--level", ".975"]
    told = json.loads(run(tmp_path, *prior).stdout)
    assert [told["low"], told["high"]] == wider
    asked = ["--scores", "msp,knn", *SETS, "--min-tpr", ".4", "--max-fpr", ".5"]
    page = [*asked, "--holdout", ".5", "--id", "patient", "--report", "page.html"]
    assert run(tmp_path, "tune", "by.parquet", *page).returncode == 0
    assert "Every id counts once" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_compared_methods_are_drawn_by_id(tmp_path):
    table = make_table(seed=3, n_id=120, n_ood=60)
    doubled = pa.concat_tables([table] * 4)
    ids = pa.array([f"p{i % 180}" for i in range(720)])
    write_table(doubled.append_column("patient", ids), tmp_path / "by.parquet")
    asked = ["--scores", "msp", "--scores", "knn", *COLUMNS, "--min-tpr", ".4", "--max-fpr", ".6"]
    compare = ["compare", "by.parquet", *asked, "--replicates", "300", "--json"]
    alone, by_id = (
        json.loads(run(tmp_path, *compare, *more).stdout)["differences"]
        for more in ([], ["--id", "patient"])
    )
    width = [one[0]["interval"]["high"] - one[0]["interval"]["low"] for one in (alone, by_id)]
    # Four times the rows, but not four times as much is known.
    assert width[1] > 1.4 * width[0]
    assert [one["quantity"] for one in alone][1:] == ["AUROC"] and len(by_id) == 1


def test_precision_is_certified_over_the_priors_of_inputs_in_use(tmp_path):
    for seed, name in ((3, "s"), (4, "live")):
        write_table(make_table(seed=seed, n_id=1500, n_ood=900), tmp_path / f"{name}.parquet")
    dm.Rule((1.0, 1.0), 1.0, score_names=("msp", "knn")).save(tmp_path / "r.json")
    certify = ["certify", "r.json", "s.parquet", *COLUMNS, "--json"]
    found = json.loads(run(tmp_path, *certify, "--deployed", "live.parquet").stdout)
    low, high = found["ood_prior"]
    # Three in eight inputs in use are OOD.
    assert low < 0.375 < high and high - low < 0.25
    shared = ["--level", ".975", "--prior-range", repr(low), repr(high)]
    again = json.loads(run(tmp_path, *certify, *shared).stdout)
    assert found["precision"] == again["precision"] and found["confidence"] == 0.95
    prior = ["prior", "r.json", "s.parquet", "--ood", "is_ood", "--deployed", "live.parquet"]
    told = json.loads(run(tmp_path, *prior, "--level", ".975", "--json").stdout)
    assert (told["low"], told["high"]) == (low, high)
    assert low < told["likely"]["low"] < told["likely"]["high"] < high


def test_tuning_with_a_guarantee_is_planned_from_a_pilot_sample(tmp_path):
    write_table(make_table(seed=3, n_id=300, n_ood=200), tmp_path / "s.parquet")
    plan = ["plan", "s.parquet", "--scores", "msp,knn", *COLUMNS, "--min-tpr", ".5"]
    plan += ["--max-fpr", ".3", "--rows", "8", "8", "--rows", "2000", "1500", "--draws", "5"]
    few, many = json.loads(run(tmp_path, *plan, "--json").stdout)["tuning"]
    assert few["found"] == 0 and many["found"] == 1 and 0 <= many["above_best"] < 0.1
    said = run(tmp_path, *plan).stdout
    assert "With 2,000 ID and 1,500 OOD rows a rule with tpr >= 0.5 and fpr <= 0.3 is found" in said
    assert run(tmp_path, "plan", "--min-tpr", ".5", "--rows", "9", "9").returncode == 2
