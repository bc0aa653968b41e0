"""`demur estimate`, `prior`, `retune`, `compare --replicates`, and promises in `demur report`."""

import json
import re

import numpy as np
import pytest
from commands import make_table, rates, rows_of, run, write_table

import demur as dm
from demur import guarantees

COLUMNS = ["--loss", "is_wrong", "--ood", "is_ood"]
BOUNDS = ["--min-tpr", ".6", "--max-fpr", ".3"]
MODEL = dm.TprFprModel(0.6, 0.3)


def sample_of(table, scores):
    return dm.Sample.from_frame(table, scores, loss="is_wrong", ood="is_ood")


def done(folder, *arguments):
    found = run(folder, *arguments)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_estimate_prints_folds_and_bootstrap_whatever_the_workers(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    common = ["estimate", "s.csv", "--scores", "msp,knn", *COLUMNS, *BOUNDS, "--seed", "3"]
    options = [*common, "--folds", "4", "--replicates", "25", "--level", ".9"]
    one, two = (done(tmp_path, *options, "--json", "--workers", n) for n in ("1", "2"))
    assert one == two
    found = json.loads(one)
    sample = sample_of(table, ["msp", "knn"])
    folds = guarantees.cross_tune(sample, MODEL, folds=4, rng=3)
    assert found["cross"]["held_out"]["selective_risk"] == folds.held_out.selective_risk
    assert len(found["cross"]["folds"]) == 4
    resampled = guarantees.bootstrap(sample, MODEL, replicates=25, confidence=0.9, rng=3)
    for name, measure in resampled.measures.items():
        shown = found["bootstrap"]["measures"][name]
        assert (shown["low"], shown["high"]) == (measure.interval.low, measure.interval.high)
        assert shown["optimism"] == measure.optimism
    text = done(tmp_path, *options)
    assert f"{folds.held_out.selective_risk:.5f}" in text
    assert "90 % interval" in text and "optimistic" in text
    nothing = run(tmp_path, *common, "--folds", "0", "--replicates", "0")
    assert nothing.returncode == 2 and "--folds or --replicates" in nothing.stderr
    only = json.loads(done(tmp_path, *common, "--replicates", "0", "--json"))
    assert only["bootstrap"] is None and len(only["cross"]["folds"]) == 5


def test_rows_of_one_id_stay_in_one_fold(tmp_path):
    table = make_table()
    # OOD rows first in the file: the ids must follow the rows into the sample.
    table = table.take(np.random.default_rng(0).permutation(len(table)))
    patient = np.random.default_rng(1).integers(0, 50, len(table))
    table = table.append_column("patient", [patient])
    write_table(table, tmp_path / "s.csv")
    common = ["s.csv", "--scores", "knn", *COLUMNS, *BOUNDS, "--seed", "3", "--id"]
    ood = table["is_ood"].to_numpy(zero_copy_only=False)
    folds = guarantees.cross_tune(
        sample_of(table, ["knn"]), MODEL, rng=3, groups=(patient[~ood], patient[ood])
    )
    few = ["--replicates", "3"]
    found = json.loads(done(tmp_path, "estimate", *common, "patient", *few, "--json"))
    assert found["cross"]["held_out"]["selective_risk"] == folds.held_out.selective_risk
    assert found["cross"]["held_out"]["tpr"] == folds.held_out.tpr
    thresholds = [fold["rule"]["threshold"] for fold in found["cross"]["folds"]]
    assert thresholds == [fold.rule.threshold for fold in folds.folds]
    drawn = "Replicates drew ids, each with all its rows"
    assert drawn in done(tmp_path, "estimate", *common, "patient", *few)
    assert drawn not in done(tmp_path, "estimate", *common, "image", *few)
    groups = patient[~ood], patient[ood]
    again = guarantees.bootstrap(
        sample_of(table, ["knn"]), MODEL, rng=3, replicates=3, groups=groups
    )
    risk = again.measures["selective_risk"]
    assert found["bootstrap"]["measures"]["selective_risk"]["estimate"] == risk.estimate
    statements = json.loads(done(tmp_path, "report", *common, "patient", "--json"))["promises"]
    cross = next(s for s in statements["statements"] if s["key"] == "cross")
    assert cross["rates"]["selective risk"]["value"] == folds.held_out.selective_risk
    refused = run(tmp_path, "estimate", *common, "set", *few)
    assert refused.returncode == 2 and "only 1 groups of ID rows" in refused.stderr


def test_estimated_rules_read_the_columns_as_they_are(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    flipped = ["--scores", "knn_conf", "--confidence", "knn_conf", "--replicates", "0"]
    found = json.loads(done(tmp_path, "estimate", "s.csv", *flipped, *COLUMNS, *BOUNDS, "--json"))
    rules = [dm.Rule.from_json(json.dumps(fold["rule"])) for fold in found["cross"]["folds"]]
    assert all(rule.direction == (-1.0,) for rule in rules)
    tpr, fpr, _ = rates(rows_of(table), lambda r: -r.knn_conf <= rules[0].threshold)
    assert tpr > 0.55 and fpr < 0.35


def test_compare_adds_paired_differences(tmp_path):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    scores = ["--scores", "knn", "--scores", "msp", "--scores", "msp,knn"]
    common = ["compare", "s.csv", *scores, *COLUMNS, "--min-tpr", ".3", "--max-fpr", ".5"]
    options = [*common, "--replicates", "20", "--seed", "5"]
    found = json.loads(done(tmp_path, *options, "--json"))["differences"]
    shown = {(tuple(d["second"]), d["quantity"]): d for d in found}
    first, second = sample_of(table, ["knn"]), sample_of(table, ["msp"])
    area = guarantees.compare_auroc(first, second)
    assert shown[("msp",), "AUROC"]["value"] == area.difference
    assert shown[("msp",), "AUROC"]["details"]["p_value"] == area.p_value
    paired = guarantees.compare(first, second, dm.TprFprModel(0.3, 0.5), replicates=20, rng=5)
    measure = paired.differences["selective_risk"]
    risk = shown[("msp",), "selective risk at TPR(0.3), FPR(0.5)"]
    assert risk["value"] == measure.estimate
    assert risk["interval"] == {"low": measure.interval.low, "high": measure.interval.high}
    # A pair has no AUROC of its own to compare.
    assert [d["quantity"] for d in found if d["second"] == ["msp", "knn"]] == [
        "selective risk at TPR(0.3), FPR(0.5)"
    ]
    text = done(tmp_path, *options)
    assert "knn minus msp" in text and "DeLong" in text and "20 replicates" in text
    assert "minus" not in done(tmp_path, *common)


def test_an_interval_without_width_is_explained(tmp_path):
    table = make_table()
    away = np.where(table["is_ood"].to_numpy(zero_copy_only=False), 99.0, 0.0)
    knn = table["knn"].to_numpy()
    table = table.append_column("one", [knn + away]).append_column("two", [knn + 2 * away])
    write_table(table, tmp_path / "s.csv")
    common = ["compare", "s.csv", *COLUMNS, "--replicates", "1", "--scores", "one"]
    plain = done(tmp_path, *common, "--scores", "two")
    assert "+0.0000 to +0.0000" in plain
    assert plain.endswith("as when a score separates them all (AUROC 1).\n")
    latex = done(tmp_path, *common, "--scores", "two", "--format", "latex")
    assert latex.splitlines()[-1].startswith("% An interval without width")
    assert "without width" not in done(tmp_path, *common, "--scores", "knn")


@pytest.mark.parametrize("scores", ["knn_conf", "msp,knn_conf"])
def test_retuning_needs_no_rows(tmp_path, scores):
    table = make_table()
    write_table(table, tmp_path / "s.csv")
    flipped = ["--scores", scores, "--confidence", "knn_conf"]
    common = ["tune", "s.csv", *flipped, *COLUMNS]
    done(tmp_path, *common, *BOUNDS, "--counts", "counts.json")
    (tmp_path / "s.csv").rename(tmp_path / "away.csv")
    precise = ["--min-precision", ".85", "--min-recall", ".4", "--prior", ".3"]
    found = json.loads(
        done(tmp_path, "retune", "counts.json", *precise, "--json", "-o", "new.json")
    )
    rule = dm.Rule.load(tmp_path / "new.json")
    names = scores.split(",")
    weights = dict(zip(names, rule.direction, strict=True))
    assert weights["knn_conf"] <= 0

    def accepts(row):
        return sum(w * getattr(row, name) for name, w in weights.items()) <= rule.threshold

    tpr, fpr, risk = rates(rows_of(table), accepts)
    assert found["tuned"]["tpr"] == tpr >= 0.4
    assert found["tuned"]["fpr"] == fpr
    assert found["tuned"]["selective_risk"] == pytest.approx(risk)
    assert 0.7 * tpr / (0.7 * tpr + 0.3 * fpr) >= 0.85
    if scores == "knn_conf":
        (tmp_path / "away.csv").rename(tmp_path / "s.csv")
        exact = json.loads(done(tmp_path, *common, *precise, "--json"))
        assert found["tuned"]["selective_risk"] == exact["tuned"]["selective_risk"]
        assert found["complete"]
    impossible = ["--min-tpr", ".999", "--max-fpr", ".001"]
    unable = run(tmp_path, "retune", "counts.json", *impossible)
    assert unable.returncode == 3
    assert ("rules saved; the rows may give others" in unable.stderr) == ("," in scores)
    refused = run(tmp_path, "retune", "new.json", *BOUNDS)
    assert refused.returncode == 2 and "Traceback" not in refused.stderr


def test_prior_from_unlabelled_rows(tmp_path):
    dm.Rule((1.0,), 1.0, score_names=("knn",)).save(tmp_path / "r.json")
    fresh, today = make_table(1, 900, 600), make_table(2, 700, 300)
    write_table(fresh, tmp_path / "fresh.csv")
    write_table(today.select(["image", "knn"]), tmp_path / "today.csv")
    # No loss is needed to tell ID from OOD.
    common = ["prior", "r.json", "fresh.csv", "--ood", "is_ood", "--deployed", "today.csv"]
    found = json.loads(done(tmp_path, *common, "--json"))
    share = np.mean(today["knn"].to_numpy() <= 1)
    assert found["accepted_share"] == share
    assert found["estimate"] == pytest.approx(0.3, abs=0.05)
    assert found["low"] < found["likely"]["low"] < found["likely"]["high"] < found["high"]
    assert found["low"] < 0.3 < found["high"]
    text = done(tmp_path, *common)
    low, high = (float(end) for end in re.search(r"--prior-range (\S+) (\S+)", text).groups())
    # Rounded outwards, so that nothing of the interval is left out.
    assert 0 <= found["low"] - low < 1e-4 and 0 <= high - found["high"] < 1e-4
    assert "together with confidence 0.9; for 0.95, give --level 0.975" in text
    write_table(fresh.filter(fresh["is_ood"].cast("bool")), tmp_path / "today.csv")
    assert "certify" not in done(tmp_path, *common)  # it takes no share of 1


def test_prior_raises_an_alarm_where_no_share_explains_what_is_accepted(tmp_path):
    # Accepts most of both sides of the labelled rows, and nothing of what is in use.
    dm.Rule((1.0,), 2.0, score_names=("knn",)).save(tmp_path / "r.json")
    fresh = make_table(1, 900, 600)
    write_table(fresh, tmp_path / "fresh.csv")
    (tmp_path / "today.csv").write_text("knn\n" + "9.5\n" * 500)
    common = ["prior", "r.json", "fresh.csv", "--ood", "is_ood", "--deployed", "today.csv"]
    found = run(tmp_path, *common, "--json")
    assert found.returncode == 4 and json.loads(found.stdout)["low"] is None
    text = run(tmp_path, *common)
    assert text.returncode == 4 and "No share of OOD inputs explains that" in text.stdout
    certify = ["certify", "r.json", "fresh.csv", *COLUMNS, "--prior-range", ".1", ".4", "--json"]
    promise = json.loads(done(tmp_path, *certify))
    low, high = promise["tpr"]["low"], promise["fpr"]["high"]
    assert promise["precision"]["low"] == pytest.approx(0.6 * low / (0.6 * low + 0.4 * high))
    assert promise["ood_prior"] == [0.1, 0.4]
    for extra, message in [
        (["--prior-range", ".4", ".1"], "with the smaller first, got 0.4 and 0.1"),
        (["--prior-range", ".4"], "--prior-range"),
    ]:
        refused = run(tmp_path, "certify", "r.json", "fresh.csv", *COLUMNS, *extra)
        assert refused.returncode == 2 and message in refused.stderr


def test_the_report_holds_every_promise(tmp_path):
    write_table(make_table(0, 800, 400), tmp_path / "s.csv")
    write_table(make_table(2, 300, 60).select(["msp", "knn_conf"]), tmp_path / "today.csv")
    scores = ["--scores", "msp,knn_conf", "--confidence", "knn_conf"]
    common = ["report", "s.csv", *scores, *COLUMNS, *BOUNDS, "--holdout", ".5", "--seed", "1"]
    options = ["--replicates", "15", "--guarantee", ".9", "--prior-range", ".01", ".1"]
    found = json.loads(done(tmp_path, *common, *options, "--deployed", "today.csv", "--json"))
    promises = found["promises"]
    assert [s["key"] for s in promises["statements"]] == [
        "tuned",
        "cross",
        "bootstrap",
        "held_out",
        "certified",
        "guaranteed",
    ]
    assert promises["missing"] == []
    assert promises["ood_prior"] == {"low": 0.01, "high": 0.1}
    assert 0 <= promises["prior_estimate"]["low"] < 60 / 360 < promises["prior_estimate"]["high"]
    done(tmp_path, *common, *options, "-o", "r.html")
    page = (tmp_path / "r.html").read_text()
    assert all(f'data-statement="{s["key"]}"' in page for s in promises["statements"])
    short = json.loads(done(tmp_path, *common, "--folds", "0", "--json"))["promises"]
    assert [s["key"] for s in short["statements"]] == ["tuned", "held_out", "certified"]
    for extra, message in [
        (["--deployed", "today.csv", "--folds", "0"], "--deployed needs --holdout"),
        (["--fpr-of", "worst", "--replicates", "5"], "all OOD rows together"),
    ]:
        refused = run(tmp_path, "report", "s.csv", *scores, *COLUMNS, *BOUNDS, *extra)
        assert refused.returncode == 2 and message in refused.stderr
