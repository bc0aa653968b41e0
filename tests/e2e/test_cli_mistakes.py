"""Mistaken command lines: the exit code, a message that names the cause, nothing half written."""

import hashlib

import dask
import numpy as np
import pyarrow as pa
import pytest
from commands import make_table, run_here, write_table

import demur as dm

ROLES = ["--loss", "is_wrong", "--ood", "is_ood"]
BOUNDS = ["--min-tpr", ".8", "--max-fpr", ".1"]
PAIR = ["--scores", "msp,knn"]
TUNE = ["tune", "s.csv", *PAIR, *ROLES]
MODEL = [*TUNE, *BOUNDS]
REPORT = ["report", "s.csv", *PAIR, *ROLES, *BOUNDS]
ESTIMATE = ["estimate", "s.csv", *PAIR, *ROLES, *BOUNDS]
CERTIFY = ["certify", "r.json", "s.csv", *ROLES]
EVALUATE = ["evaluate", "r.json", "s.csv", *ROLES]
CHEAP_OOD = ["--cost-accept-ood", "0", "--cost-reject-ood", "1", "--prior", ".1"]
TEXT_LOSS = ["--label", "set", "--prediction", "set", "--loss-function", "absolute"]

PROJECTS = {
    "typo.toml": '[columns]\nscore = "msp"\n',
    "section.toml": '[column]\nscores = "msp"\n',
    "broken.toml": "[columns\n",
    "number.toml": "[columns]\nloss = 3\n",
    "flag.toml": "[bounds]\nmin-tpr = true\n",
    "percent.toml": "[bounds]\nmin-tpr = 80\nmax-fpr = 0.1\n",
    "flat.toml": 'columns = "msp"\n',
    "lists.toml": "[columns]\nscores = [1, 2]\n",
    "nobody.toml": '[columns]\nloss = "nobody"\nood = "is_ood"\n',
}


def write_files(folder):
    table = make_table()
    write_table(table, folder / "s.csv")
    write_table(table, folder / "s.parquet")
    (folder / "lake").mkdir()
    write_table(table, folder / "lake" / "a.parquet")
    nan = table.set_column(1, "msp", pa.array([float("nan"), *np.arange(359.0)]))
    write_table(nan, folder / "nan.csv")
    few = table.append_column("one", pa.array(["a"] * len(table)))
    write_table(few, folder / "few.csv")
    patients = table.append_column("patient", pa.array(np.arange(len(table)) // 4))
    write_table(patients, folder / "patients.csv")
    ids = table.filter(pa.compute.invert(table["is_ood"]))
    write_table(ids, folder / "id.csv")
    dm.Rule((0.6, 0.8), 1.25, score_names=("msp", "knn")).save(folder / "r.json")
    dm.Rule((1.0,), 1.25).save(folder / "nameless.json")
    sample = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="is_ood")
    dm.tune(sample, dm.TprFprModel(0.5, 0.5)).rule.save(folder / "tuned.json")
    (folder / "v9.json").write_text('{"format": "demur.rule", "version": 9}')
    (folder / "empty.json").write_text("")
    (folder / "list.json").write_text("[]")
    (folder / "old.json").write_text("precious")
    (folder / "text.txt").write_text("hello")
    (folder / "empty.csv").write_text("")
    (folder / "header.csv").write_text("msp,knn,is_wrong,is_ood\n")
    for name, text in PROJECTS.items():
        (folder / name).write_text(text)


def state(folder):
    """Return everything in a folder, also what is hidden, and what it holds."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("mistakes")
    write_files(place)
    return place, state(place)


WRONG = {
    # Commands and options that there are not.
    "no such command": (["tunne"], "Did you mean 'tune'?"),
    "no such option": ([*MODEL, "--max-frp", ".1"], "--max-fpr"),
    "no value": ([*TUNE, "--min-tpr"], "--min-tpr"),
    "no DATA": (["tune", *PAIR, *ROLES, *BOUNDS], "give a file DATA"),
    "two DATA": (["tune", "s.csv", "s.csv", *PAIR], "unexpected extra argument"),
    "no RULE": (["evaluate"], "RULE"),
    "plan without bounds": (["plan"], "--min-tpr"),
    "no shell": (["completion", "tcl"], "tcl"),
    # Numbers.
    "per cent as number": ([*TUNE, "--min-tpr", "80"], "did you mean 0.8 or 80%?"),
    "per cent of the FPR": ([*MODEL, "--max-fpr", "5"], "did you mean 0.05 or 5%?"),
    "more than all": ([*TUNE, "--min-tpr", "120%"], "'120%' is not a share from 0 to 1"),
    "negative": ([*TUNE, "--min-tpr", "-.5"], "'-.5' is not a share"),
    "NaN": ([*TUNE, "--min-tpr", "nan"], "not a finite number"),
    "infinite": ([*TUNE, "--cost-reject-id", "inf"], "not a finite number"),
    "huge exponent": ([*TUNE, "--cost-reject-id", "1e999999"], "reasonable size"),
    "4,000 digits": ([*TUNE, "--cost-reject-id", "7" * 4000], "more than 100 digits"),
    "division by zero": ([*TUNE, "--min-tpr", "1/0"], "'1/0' is not a number"),
    "comma": ([*TUNE, "--min-tpr", "0,8"], "'0,8' is not a number such as 0.8"),
    "word": ([*TUNE, "--min-tpr", "high"], "'high' is not a number"),
    "double per cent": ([*TUNE, "--min-tpr", "80%%"], "'80%%' is not a number"),
    "negative cost": ([*TUNE, "--cost-reject-id", "-1"], "reject_id must be at least 0"),
    "prior of all": (
        [*TUNE, "--min-precision", ".9", "--min-recall", ".5", "--prior", "1"],
        "ood_prior must be in [0, 1)",
    ),
    "prior in per cent": (
        [*TUNE, "--min-precision", ".9", "--min-recall", ".5", "--prior", "10"],
        "did you mean 0.1 or 10%?",
    ),
    "guarantee in per cent": ([*MODEL, "--guarantee", "95"], "did you mean 0.95 or 95%?"),
    "guarantee of all": ([*MODEL, "--guarantee", "1"], "not between 0 and 1"),
    "level of none": ([*CERTIFY, "--level", "0"], "not between 0 and 1"),
    "level twice": ([*CERTIFY, "--level", ".9", "--confidence", ".9"], "given twice"),
    "power": (["plan", "--min-tpr", ".8", "--power", "2"], "not between 0 and 1"),
    "plan in per cent": (["plan", "--min-tpr", "80"], "did you mean 0.8 or 80%?"),
    "negative seed": ([*MODEL, "--holdout", ".3", "--seed", "-1"], "-1 is not in the range x>=0"),
    "negative seed in estimate": ([*ESTIMATE, "--seed", "-1"], "-1 is not in the range x>=0"),
    "seed of text": ([*MODEL, "--seed", "lucky"], "not a valid integer"),
    "huge grid": ([*MODEL, "--grid", "1000000000000"], "is not in the range 1<=x<=1000000"),
    "grid in floats": ([*MODEL, "--grid", "1e12"], "not a valid integer"),
    "no grid": ([*MODEL, "--grid", "0"], "0 is not in the range"),
    "memory of 20 digits": ([*MODEL, "--memory", "9" * 20], "more than any machine has"),
    "memory of 20 digits GB": ([*MODEL, "--memory", "9" * 20 + "GB"], "more than any machine"),
    "little memory": ([*MODEL, "--memory", "1kB"], "the least is 50MB"),
    "memory in parsecs": ([*MODEL, "--memory", "2parsec"], "is not a size such as 2GB"),
    "tiny holdout": ([*MODEL, "--holdout", "1e-9"], "holds out less than one"),
    "huge holdout": ([*MODEL, "--holdout", ".999999"], "tunes on less than one"),
    "no holdout": ([*MODEL, "--holdout", "0"], "--holdout must be between 0 and 1"),
    "all held out": ([*MODEL, "--holdout", "1"], "--holdout must be between 0 and 1"),
    "one id": (
        ["tune", "few.csv", *PAIR, *ROLES, *BOUNDS, "--holdout", ".5", "--id", "one"],
        "of 1 ids holds out less than one",
    ),
    "no folds": ([*ESTIMATE, "--folds", "0"], "at least 2 folds"),
    "one fold": ([*ESTIMATE, "--folds", "1"], "at least 2 folds"),
    "nothing to estimate": ([*ESTIMATE, "--folds", "0", "--replicates", "0"], "nothing is left"),
    "negative replicates": ([*ESTIMATE, "--replicates", "-5"], "-5 is not in the range"),
    "no workers": ([*ESTIMATE, "--workers", "0"], "0 is not in the range"),
    # Models.
    "no model": (TUNE, "no rejection model is given"),
    "half a model": ([*TUNE, "--max-fpr", ".1"], "--max-fpr needs --min-tpr"),
    "precision alone": ([*TUNE, "--min-precision", ".9"], "--min-precision needs --min-recall"),
    "recall alone": ([*TUNE, "--min-recall", ".9"], "--min-recall needs --min-precision"),
    "no prior": ([*TUNE, "--min-precision", ".9", "--min-recall", ".5"], "needs --prior"),
    "costs without prior": (
        [*TUNE, "--cost-reject-id", ".1", "--cost-accept-ood", "5"],
        "costs of OOD inputs need --prior",
    ),
    "OOD cost alone": ([*TUNE, "--cost-accept-ood", "5"], "needs --cost-reject-id"),
    "cheap OOD": (
        [*TUNE, "--cost-reject-id", ".1", *CHEAP_OOD],
        "accepting an OOD input cannot be cheaper",
    ),
    "mixed models": ([*MODEL, "--cost-reject-id", ".1"], "the options mix models"),
    "mixed bounds to check": (
        [*EVALUATE, *BOUNDS, "--cost-reject-id", ".1"],
        "check one at a time",
    ),
    "no OOD rows named": (
        ["tune", "s.csv", *PAIR, "--loss", "is_wrong", *BOUNDS],
        "need OOD rows: name their column with --ood",
    ),
    "no OOD rows": (
        ["tune", "id.csv", *PAIR, *ROLES, *BOUNDS],
        "column 'is_ood' marks no row as OOD",
    ),
    "prior and range": (
        [*CERTIFY, "--prior", ".2", "--prior-range", ".1", ".3"],
        "leave out one of the two",
    ),
    "worst estimate": ([*ESTIMATE, "--fpr-of", "worst"], "all OOD rows together"),
    "deployed without holdout": ([*REPORT, "--deployed", "s.csv"], "--deployed needs --holdout"),
    "nothing to compare": (
        ["compare", "s.csv", "--scores", "msp", "--loss", "is_wrong"],
        "nothing to compare",
    ),
    # Columns.
    "no scores": (["tune", "s.csv", *ROLES, *BOUNDS], "--scores is needed"),
    "wrong score": (
        ["tune", "s.csv", "--scores", "mps,knn", *ROLES, *BOUNDS],
        "did you mean 'msp'?",
    ),
    "three scores": (
        ["tune", "s.csv", "--scores", "msp,knn,knn_conf", *ROLES, *BOUNDS],
        "a rule takes one or two scores",
    ),
    "three scores, repeated": (
        [*TUNE, "--scores", "knn_conf", *BOUNDS],
        "a rule takes one or two scores",
    ),
    "a score twice": (["tune", "s.csv", "--scores", "msp,msp", *ROLES], "different names"),
    "a score twice, repeated": ([*TUNE, "--scores", "msp", *BOUNDS], "'msp' is given twice"),
    "empty name": (["tune", "s.csv", "--scores", "msp,", *ROLES], "different names"),
    "set as score": (["tune", "s.csv", "--scores", "set", *ROLES, *BOUNDS], "not numbers"),
    "strange confidence": (
        [*MODEL, "--confidence", "energy"],
        "--confidence: 'energy' is not one of the scores",
    ),
    "strange confidence of a rule": ([*EVALUATE, "--confidence", "x"], "not one of the scores"),
    "confidence a rule doubts": ([*EVALUATE, "--confidence", "msp"], "for more doubt"),
    "no loss": (["tune", "s.csv", *PAIR, "--ood", "is_ood", *BOUNDS], "--loss, --correct"),
    "half a loss": (
        ["tune", "s.csv", *PAIR, "--label", "label", "--ood", "is_ood", *BOUNDS],
        "--loss, --correct, or --label and --prediction",
    ),
    "two losses": ([*MODEL, "--correct", "is_wrong"], "give either --loss, or --correct"),
    "loss and label": (
        [*MODEL, "--label", "label", "--prediction", "pred"],
        "give either --loss, or --label and --prediction",
    ),
    "correct in numbers": (
        ["tune", "s.csv", *PAIR, "--correct", "knn", "--ood", "is_ood", *BOUNDS],
        "neither 1 (right) nor 0 (wrong)",
    ),
    "correct in text": (
        ["tune", "s.csv", *PAIR, "--correct", "set", "--ood", "is_ood", *BOUNDS],
        "correct: column 'set' holds",
    ),
    "no such correct": (
        ["tune", "s.csv", *PAIR, "--correct", "is_right", "--ood", "is_ood", *BOUNDS],
        "--correct: 's.csv' has no column 'is_right'",
    ),
    "correct in a stream": (
        ["tune", "lake", *PAIR, "--correct", "knn", "--ood", "is_ood", *BOUNDS],
        "correct: column 'knn' is neither 0 nor 1",
    ),
    "no such OOD column": (
        ["tune", "s.csv", *PAIR, "--loss", "is_wrong", "--ood", "ood", *BOUNDS],
        "did you mean 'is_ood'?",
    ),
    "negative weights": ([*MODEL, "--weight", "knn_conf"], "weight"),
    "no such id": ([*MODEL, "--holdout", ".3", "--id", "patient"], "--id: 's.csv' has no column"),
    "absolute loss of text": (
        ["tune", "s.csv", *PAIR, *TEXT_LOSS, "--min-tpr", ".5"],
        "is 'id', not a number",
    ),
    "NaN as score": (["tune", "nan.csv", *PAIR, *ROLES, *BOUNDS], "row 0 is nan"),
    "repeated ids": (
        ["tune", "patients.csv", *PAIR, *ROLES, *BOUNDS, "--guarantee", ".9", "--id", "patient"],
        "counts independent rows",
    ),
    "by a column that is not there": ([*EVALUATE, "--by", "day"], "'day'"),
    "apply and a column": (
        ["apply", "r.json", "s.csv", "--column", "msp"],
        "has a column 'msp' already",
    ),
    "apply to NaN": (["apply", "r.json", "nan.csv", "-o", "out.csv"], "add --missing reject"),
    "apply by id": (["apply", "r.json", "s.csv", "--id", "nobody"], "--id: 's.csv' has no column"),
    "apply to other columns": (
        ["apply", "r.json", "s.csv", "--scores", "msp"],
        "the rule takes 2 columns",
    ),
    # Files that are read.
    "no file": (["tune", "t.csv", *PAIR, *ROLES, *BOUNDS], "there is no file 't.csv'"),
    "no ending": (["tune", "text.txt", *PAIR, *ROLES, *BOUNDS], "the ending '.txt' is none of"),
    "an empty file": (["tune", "empty.csv", *PAIR, *ROLES, *BOUNDS], "cannot read 'empty.csv'"),
    "no rows": (["tune", "header.csv", *PAIR, *ROLES, *BOUNDS], "'header.csv' has no rows"),
    "no match": (["tune", "*.pq", *PAIR, *ROLES, *BOUNDS], "no file matches '*.pq'"),
    "no rule file": (["evaluate", "none.json", "s.csv", *ROLES], "cannot read the rule"),
    "data as rule": (["evaluate", "s.csv", "r.json", *ROLES], "the rule is not valid JSON"),
    "empty rule": (["apply", "empty.json", "s.csv"], "the rule is not valid JSON"),
    "list as rule": (["apply", "list.json", "s.csv"], "the JSON is not a rule"),
    "a rule of tomorrow": (["certify", "v9.json", "s.csv", *ROLES], "version 9"),
    "a folder as rule": (["certify", "lake", "s.csv", *ROLES], "cannot read the rule 'lake'"),
    "a rule without names": (["evaluate", "nameless.json", "s.csv", *ROLES], "with --scores"),
    "no deployed file": (
        ["prior", "r.json", "s.csv", *ROLES, "--deployed", "none.csv"],
        "there is no file 'none.csv'",
    ),
    "no counts": (["retune", "none.json", *BOUNDS], "none.json"),
    "rule as counts": (["retune", "r.json", *BOUNDS], "not demur.operating_points"),
    "no OpenOOD file": (["tune", "--openood", "none.pkl", *BOUNDS], "none.pkl"),
    "OpenOOD file in a folder like day=1": (
        ["tune", "--openood", "runs/day=1/msp.pkl", *BOUNDS],
        "runs/day=1/msp.pkl",
    ),
    "OpenOOD and DATA": (["tune", "s.csv", "--openood", "a.pkl", *BOUNDS], "give a file DATA"),
    "two OpenOOD scores of one name": (
        ["tune", "--openood", "a=x.pkl", "--openood", "a=y.pkl", *BOUNDS],
        "two scores have the same name",
    ),
    "OpenOOD in a stream": (
        ["tune", "--openood", "a.pkl", *BOUNDS, "--engine", "duckdb"],
        "read into memory",
    ),
    "holdout of a stream": (
        ["tune", "lake", *PAIR, *ROLES, *BOUNDS, "--holdout", ".3", "--holdout-by", "chance"],
        "--holdout-by chance deals rows in memory",
    ),
    # Rows that made the rule.
    "certified on the rows that made it": (
        ["certify", "tuned.json", "s.csv", *ROLES],
        "these rows made the rule, and a promise needs rows that did not",
    ),
    # Files that are written.
    "over the data": ([*MODEL, "-o", "s.csv", "--force"], "-o: 's.csv' is read by this command"),
    "over the data, by another way": (
        [*MODEL, "-o", "lake/../s.csv", "--force"],
        "is read by this command and would be lost",
    ),
    "report over the data": ([*MODEL, "--report", "s.csv", "--force"], "--report: 's.csv' is read"),
    "counts over the data": ([*MODEL, "--counts", "s.csv", "--force"], "--counts: 's.csv' is read"),
    "over one of many": (
        ["tune", "lake", *PAIR, *ROLES, *BOUNDS, "-o", "lake/a.parquet", "--force"],
        "is read by this command",
    ),
    "compared over the data": (
        ["compare", "s.csv", *PAIR, *ROLES, "-o", "s.csv", "--force"],
        "is read by this command",
    ),
    "page over the data": ([*REPORT, "-o", "s.csv", "--force"], "is read by this command"),
    "page over the rule": (
        ["report", "s.csv", "--like", "r.json", *ROLES, *BOUNDS, "-o", "r.json", "--force"],
        "is read by this command",
    ),
    "decisions over the data": (
        ["apply", "r.json", "s.csv", "-o", "s.csv", "--force"],
        "is read by this command",
    ),
    "decisions over the rule": (
        ["apply", "r.json", "s.csv", "-o", "r.json", "--force"],
        "is read by this command",
    ),
    "rule over its counts": (["retune", "r.json", *BOUNDS, "-o", "r.json", "--force"], "is read"),
    "rule and page in one": (
        [*MODEL, "-o", "x.json", "--report", "x.json"],
        "-o and --report are the same file 'x.json'",
    ),
    "rule and counts in one": (
        [*MODEL, "-o", "x.json", "--counts", "./x.json"],
        "-o and --counts are the same file",
    ),
    "page and counts in one": (
        [*MODEL, "--report", "x", "--counts", "x"],
        "--report and --counts are the same file",
    ),
    "page on standard output": ([*MODEL, "--report", "-"], "only -o may be -"),
    "counts on standard output": ([*MODEL, "--counts", "-"], "only -o may be -"),
    "nothing on standard input": (["tune", "-", *PAIR, *ROLES, *BOUNDS], "which is empty"),
    "no rule on standard input": (["evaluate", "-", "s.csv"], "which is empty"),
    "no counts on standard input": (["retune", "-", *BOUNDS], "which is empty"),
    "JSON beside the rule": ([*MODEL, "-o", "-", "--json"], "both write to standard output"),
    "an old file": ([*MODEL, "-o", "old.json"], "add --force to replace it"),
    "an old page": ([*MODEL, "--report", "old.json"], "add --force to replace it"),
    "a folder": ([*MODEL, "-o", "lake"], "'lake' is a folder"),
    "no folder": ([*MODEL, "-o", "nowhere/x.json"], "the folder 'nowhere' does not exist"),
    "a device": ([*MODEL, "-o", "/dev/null", "--force"], "is not a regular file"),
    "decisions into the data": (["apply", "r.json", "lake", "-o", "lake/out"], "lies in DATA"),
    "decisions where the data are": (["apply", "r.json", "lake", "-o", "lake"], "holds DATA"),
    "decisions where a pattern finds them": (
        ["apply", "r.json", "lake/**/*.parquet", "-o", "lake/out"],
        "lies in DATA",
    ),
    "many files without a folder": (["apply", "r.json", "lake"], "many files need -o"),
    "many files to standard output": (["apply", "r.json", "lake", "-o", "-"], "many files need"),
    "JSON beside the rows": (["apply", "r.json", "s.csv", "--json"], "--json needs -o"),
    "decisions without a format": (["apply", "r.json", "s.csv", "-o", "out"], "the ending ''"),
    # Project files.
    "no project": ([*MODEL, "--project", "none.toml"], "there is no file 'none.toml'"),
    "a typo in a project": ([*MODEL, "--project", "typo.toml"], "did you mean 'scores'?"),
    "a wrong section": ([*MODEL, "--project", "section.toml"], "did you mean 'columns'?"),
    "no TOML": ([*MODEL, "--project", "broken.toml"], "cannot read 'broken.toml' as TOML"),
    "CSV as project": ([*MODEL, "--project", "s.csv"], "cannot read 's.csv' as TOML"),
    "a number for a column": ([*MODEL, "--project", "number.toml"], "loss must be text"),
    "a flag for a bound": ([*MODEL, "--project", "flag.toml"], "min_tpr must be a number"),
    "per cent in a project": (
        [*TUNE, "--project", "percent.toml"],
        "did you mean 0.8 or 80%?",
    ),
    "no sections": ([*MODEL, "--project", "flat.toml"], "must be a section [columns]"),
    "numbers for columns": ([*MODEL, "--project", "lists.toml"], "must be a list of columns"),
    "a column of nobody": (
        ["tune", "s.csv", *PAIR, *BOUNDS, "--project", "nobody.toml"],
        "--loss: 's.csv' has no column 'nobody'",
    ),
}

UNMET = {
    "no rule": ([*TUNE, "--min-tpr", ".99", "--max-fpr", ".01"], "no rule reaches tpr >= 0.99"),
    "confidence as doubt": (
        ["tune", "s.csv", "--scores", "knn_conf", *ROLES, *BOUNDS, "-o", "x.json"],
        "a likely cause: ",
    ),
    "too few rows for a guarantee": (
        [*TUNE, "--min-tpr", ".8", "--max-fpr", ".12", "--guarantee", ".999", "-o", "x.json"],
        "rows",
    ),
}


def check(folder, arguments, code, message):
    place, before = folder
    done = run_here(place, *arguments)
    assert done.returncode == code, (done.stdout, done.stderr)
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert state(place) == before


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_named(folder, case):
    check(folder, WRONG[case][0], 2, WRONG[case][1])


@pytest.mark.parametrize("case", UNMET)
def test_what_cannot_be_is_said(folder, case):
    check(folder, UNMET[case][0], 3, UNMET[case][1])


def test_no_rule_to_report_on_makes_a_page_that_says_so(folder):
    place, before = folder
    bounds = ["--min-tpr", ".99", "--max-fpr", ".01"]
    done = run_here(place, "report", "s.csv", *PAIR, *ROLES, *bounds, "-o", "x.html")
    assert done.returncode == 3
    assert "no rule reaches" in done.stderr and "Traceback" not in done.stderr
    page = place / "x.html"
    assert "which no rule meets" in page.read_text(encoding="utf-8")
    page.unlink()
    assert state(place) == before


def test_the_table_is_long():
    # With the damaged files of test_files_malformed and test_cli_errors there are more than 270.
    assert len(WRONG) + len(UNMET) >= 160


@pytest.mark.parametrize("address", ["foo::bar", "foo://bar", "tcp://127.0.0.1:x"])
def test_a_cluster_that_is_nowhere(folder, address, monkeypatch):
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    check(folder, [*MODEL, "--engine", "dask"], 2, f"no Dask cluster at '{address}'")
    # What comes after it in this process finds the schedulers as they were.
    assert dask.config.get("scheduler", None) is None
