"""`demur tune --learn`, and what other commands make of its file."""

import json

import numpy as np
import polars as pl
import pytest
from commands import run_here
from five_scores import NAMES, five_scores

import demur as dm

ROLES = ["--loss", "wrong", "--ood", "ood"]
ASKED = [*ROLES, "--min-tpr", ".7", "--max-fpr", ".3"]
SCORES = ["--scores", "a,b,c,d,e", "--confidence", "b"]


def write(path, sample):
    rows = np.concatenate([sample.id_scores, sample.ood_scores]) * [1, -1, 1, 1, 1]
    wrong = [*map(int, sample.id_loss), *[""] * sample.n_ood]
    ood = np.repeat([0, 1], [sample.n_id, sample.n_ood])
    told = zip(rows.tolist(), wrong, ood, strict=True)
    lines = [",".join(map(repr, row)) + f",{w},{o}" for row, w, o in told]
    path.write_text(",".join(NAMES) + ",wrong,ood\n" + "\n".join(lines) + "\n")
    return rows


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    write(tmp_path / "train.csv", five_scores(rng, 700, 400))
    write(tmp_path / "fresh.csv", five_scores(rng, 500, 300))
    return tmp_path


def test_rule_and_learned_scores_are_one_file_for_all_commands(folder):
    tuned = run_here(
        folder, "tune", "train.csv", *SCORES, *ASKED, "--learn", "logistic", "--holdout", ".3",
        "-o", "rule.json", "--json",
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    told = json.loads(tuned.stdout)
    assert told["learned"] == {"method": "logistic", "scores": NAMES}
    assert told["held_out"] is not None
    rule = dm.learn.LearnedRule.load(folder / "rule.json")
    assert rule.card.points["held out"] and rule.card.to_data()["learned"]["scores"] == NAMES
    fresh = dm.Sample.from_frame(
        pl.read_csv(folder / "fresh.csv"), NAMES, loss="wrong", ood="ood",
        confidence="b",
    )  # fmt: skip
    point = dm.evaluate(rule.rule, rule.learned.sample_of(fresh))
    seen = run_here(folder, "evaluate", "rule.json", "fresh.csv", "--json")
    assert json.loads(seen.stdout)["point"]["tpr"] == point.tpr
    applied = run_here(folder, "apply", "rule.json", "fresh.csv", "-o", "out.csv")
    assert applied.returncode == 0, applied.stderr
    accepted = [line.endswith("true") for line in (folder / "out.csv").read_text().splitlines()[1:]]
    decided = rule.accept(np.concatenate([fresh.id_scores, fresh.ood_scores]))
    assert accepted == decided.tolist()
    promised = run_here(folder, "certify", "rule.json", "fresh.csv", "--min-tpr", ".5")
    assert promised.returncode == 0 and "certified" in promised.stdout
    refused = run_here(folder, "certify", "rule.json", "train.csv")
    assert refused.returncode == 2 and "made the rule" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tune", "train.csv", *SCORES, *ASKED], "demur tune --learn"),
        (["tune", "train.csv", *SCORES, *ASKED, "--learn", "auto", "--counts", "c.json"], "retune"),
        (["tune", "train.csv", "--scores", "a", *ASKED, "--learn", "auto"], "several scores"),
    ],
)
def test_what_cannot_be_is_said(folder, arguments, message):
    done = run_here(folder, *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_guarantee_rests_on_rows_that_the_scores_were_not_learned_on(folder):
    asked = [*ROLES, "--min-tpr", ".5", "--max-fpr", ".5"]
    done = run_here(
        folder, "tune", "train.csv", *SCORES, *asked, "--learn", "logistic", "--guarantee", ".9",
        "-o", "rule.json", "--report", "page.html", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["learned"]["scores"] == NAMES and "not learned on" in done.stderr
    rule = dm.learn.LearnedRule.load(folder / "rule.json")
    train = dm.Sample.from_frame(
        pl.read_csv(folder / "train.csv"), NAMES, loss="wrong", ood="ood", confidence="b"
    )
    # A half taught the scores, the other half made the rule and its promise.
    assert rule.learned.card.to_data()["rows"]["id"] == 350
    assert rule.learned.share_of_own_rows(train) == pytest.approx(0.5, abs=0.01)
    point = rule.rule.card.points["certified"]
    assert point["tpr"] >= 0.5 and point["fpr"] <= 0.5
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert "both are learned (logistic) from a, b, c, d, e" in page
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    # The rule that the page saves is about learned scores, which are in the same file.
    saved = dm.learn.LearnedRule.from_json(
        json.dumps(data["learned"] | {"rule": json.loads(rule.rule.to_json())})
    )
    rows = np.concatenate([train.id_scores, train.ood_scores])
    assert (saved.accept(rows) == rule.accept(rows)).all()
    assert data["sql"] is None and "--learn logistic" in data["command"]


def test_a_rule_on_learned_scores_is_watched(folder):
    tuned = run_here(
        folder, "tune", "train.csv", *SCORES, *ASKED, "--learn", "logistic", "--holdout", ".4",
        "-o", "rule.json",
    )  # fmt: skip
    assert tuned.returncode == 0, tuned.stderr
    rule = dm.learn.LearnedRule.load(folder / "rule.json")
    fresh = pl.read_csv(folder / "fresh.csv")
    accepted = int(rule.accept(fresh).sum())
    for _ in range(2):
        seen = run_here(
            folder, "watch", "rule.json", "fresh.csv", "--state", "w.json", "--json",
            "--report", "watch.html",
        )  # fmt: skip
        assert seen.returncode == 0, seen.stderr
        told = json.loads(seen.stdout)
        assert (told["rows"], told["accepted"]) == (800, accepted)
        assert "drift of conditional_risk" in {one["name"] for one in told["watched"]}
    assert "<bdi>e</bdi>" in (folder / "watch.html").read_text(encoding="utf-8")
    # Another fit is another rule.
    again = run_here(
        folder, "tune", "fresh.csv", *SCORES, *ASKED, "--learn", "logistic", "-o", "other.json"
    )
    assert again.returncode == 0, again.stderr
    refused = run_here(folder, "watch", "other.json", "fresh.csv", "--state", "w.json")
    assert refused.returncode == 2 and "another rule" in refused.stderr
    # Out-of-fold scores are of other fits: nothing to compare live rows with.
    unknown = run_here(folder, "watch", "other.json", "train.csv")
    assert "drift cannot be tested: tune with --holdout" in unknown.stderr
