"""`--max-risk`, `--group` and `--bound`, against plain counting and the library."""

import json

import numpy as np
import pytest
from commands import make_table, rates, rows_of, run, write_table

import demur as dm

TOO_MUCH = "tpr of rare >= .99"
COLUMNS = ["--scores", "msp,knn", "--loss", "is_wrong", "--ood", "set"]


@pytest.fixture(scope="module")
def table():
    plain = make_table()
    rng = np.random.default_rng(1)
    return plain.append_column("who", [np.where(rng.random(len(plain)) < 0.3, "rare", "often")])


@pytest.fixture
def folder(tmp_path, table):
    write_table(table, tmp_path / "s.csv")
    return tmp_path


def test_the_most_answers_at_a_risk_against_every_threshold(folder, table):
    asked = ["--max-risk", "12%", "--max-fpr", ".1", "--json"]
    done = run(folder, "tune", "s.csv", "--scores", "knn", *COLUMNS[2:], *asked)
    assert done.returncode == 0, done.stderr
    rows = rows_of(table)
    tried = [rates(rows, lambda r, t=t: r.knn <= t) for t in {r.knn for r in rows}]
    best = max((tpr, -fpr) for tpr, fpr, risk in tried if risk <= 0.12 and fpr <= 0.1)
    tuned = json.loads(done.stdout)
    assert (tuned["tuned"]["tpr"], -tuned["tuned"]["fpr"]) == best
    assert tuned["tuned"]["selective_risk"] <= 0.12
    assert tuned["model"] == {"name": "RiskFprModel", "max_selective_risk": 0.12, "max_fpr": 0.1}


def test_bounds_on_a_group_and_a_set_travel_with_the_rule(folder, table):
    asked = ["--min-tpr", ".5", "--bound", "tpr of rare >= 70%", "--bound", "fpr of svhn <= .05"]
    said = ["--group", "who", "-o", "r.json", "--report", "page.html"]
    done = run(folder, "tune", "s.csv", *COLUMNS, *asked, *said)
    assert done.returncode == 0, done.stderr
    assert "TPR of rare" in done.stdout and "FPR of svhn" in done.stdout
    sample = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="set", group="who")
    bounds = [
        dm.Bound("tpr", at_least=0.5),
        dm.Bound("tpr", at_least=0.7, group="rare"),
        dm.Bound("fpr", at_most=0.05, ood_set="svhn"),
    ]
    expected = dm.tune(sample, dm.RejectionModel("selective_risk", bounds))
    rule = dm.Rule.load(folder / "r.json")
    assert rule == expected.rule
    a, b = rule.direction
    rare = [r for r in rows_of(table) if r.who == "rare" or r.is_ood]
    tpr, _, _ = rates(rare, lambda r: a * r.msp + b * r.knn <= rule.threshold)
    assert tpr == expected.point.tpr_by_group["rare"] >= 0.7
    assert rule.card.columns["group"] == "who"
    counts = dict(zip(*np.unique(sample.id_group, return_counts=True), strict=True))
    assert rule.card.to_data()["rows"]["id_groups"] == counts
    page = (folder / "page.html").read_text()
    assert "TPR ≥ 0.7 of rare" in page and "FPR ≤ 0.05 of svhn" in page
    judged = run(folder, "evaluate", "r.json", "s.csv")
    assert judged.returncode == 0, judged.stderr
    assert "tpr >= 0.7 of rare: met" in judged.stdout


def test_a_page_that_compares_sets_keeps_the_bounds_of_each(folder):
    """Each set alone is judged by what is asked of it, not of the others."""
    asked = ["--min-tpr", ".5", "--bound", "fpr of svhn <= .2"]
    done = run(folder, "report", "s.csv", *COLUMNS, *asked, "-o", "page.html")
    assert done.returncode == 0, done.stderr
    assert (folder / "page.html").exists()


def test_a_risk_in_per_cent_is_noticed(folder):
    done = run(folder, "tune", "s.csv", *COLUMNS, "--max-risk", "5", "--max-fpr", ".1")
    assert done.returncode == 0 and "did you mean 0.05 (5%)?" in done.stderr
    done = run(folder, "tune", "s.csv", *COLUMNS, "--min-tpr", ".5", "--bound", "fpr of svhn <= 5")
    assert done.returncode == 2 and "did you mean 0.05 or 5%?" in done.stderr


def test_bounds_alone_are_a_model(folder):
    least = run(folder, "tune", "s.csv", *COLUMNS, "--bound", "tpr >= .8", "--json")
    same = run(folder, "tune", "s.csv", *COLUMNS, "--min-tpr", ".8", "--json")
    assert json.loads(least.stdout)["rule"] == json.loads(same.stdout)["rule"]
    most = run(folder, "tune", "s.csv", *COLUMNS, "--bound", "risk <= .12", "--json")
    same = run(folder, "tune", "s.csv", *COLUMNS, "--max-risk", ".12", "--json")
    assert json.loads(most.stdout)["rule"] == json.loads(same.stdout)["rule"]


def test_a_project_file_may_have_them(folder):
    (folder / "demur.toml").write_text(
        '[columns]\nscores = ["msp", "knn"]\nloss = "is_wrong"\nood = "set"\ngroup = "who"\n'
        '[bounds]\nmin_tpr = 0.5\nmax_fpr = 0.3\nbound = ["tpr of rare >= .6"]\n'
    )
    done = run(folder, "tune", "s.csv", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tuned"]["tpr_by_group"]["rare"] >= 0.6
    other = run(folder, "tune", "s.csv", "--max-risk", ".12", "--json")
    assert other.returncode == 0, other.stderr
    bounds = json.loads(other.stdout)["model"]["bounds"]
    assert [bound["quantity"] for bound in bounds] == ["selective_risk", "fpr", "tpr"]


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        (["--bound", "tpr of rare > .5"], 2, "is not a bound such as"),
        (["--bound", "accuracy >= .5"], 2, "quantity must be one of"),
        (["--bound", "tpr of rare >= 60"], 2, "did you mean 0.6 or 60%?"),
        (["--bound", "tpr of rarer >= .6", "--group", "who"], 2, "'often', 'rare'"),
        (["--bound", "tpr of rare >= .6"], 2, "--group COLUMN"),
        (["--bound", "fpr of cifar <= .6"], 2, "'mnist', 'svhn'"),
        (["--max-risk", ".1", "--min-tpr", ".8"], 2, "mix models"),
        (["--max-risk", "-.1"], 2, "at least 0"),
        (
            ["--max-fpr", ".1", "--min-tpr", ".5", "--group", "who", "--bound", TOO_MUCH],
            3,
            "the largest tpr of rare is",
        ),
    ],
)
def test_what_is_wrong_is_said(folder, asked, code, said):
    done = run(folder, "tune", "s.csv", *COLUMNS, *asked, "-o", "r.json")
    assert done.returncode == code
    assert said in done.stderr
    assert not (folder / "r.json").exists()
