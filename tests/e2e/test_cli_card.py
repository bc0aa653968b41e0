"""What a rule's card does for the commands that read it, and what stands for options."""

import json
import subprocess

import numpy as np
import pyarrow as pa
import pytest
from commands import ENVIRONMENT, command, make_table, rates, rows_of, run, run_here, write_table

import demur as dm

ROLES = ["--loss", "is_wrong", "--ood", "set"]
BOUNDS = ["--min-tpr", ".8", "--max-fpr", ".1"]
TUNE = ["tune", "s.csv", "--scores", "msp,knn", *ROLES, *BOUNDS]


def done(folder, *arguments, code=0, given=b""):
    found = run_here(folder, *arguments, given=given)
    assert found.returncode == code, (found.stdout, found.stderr)
    return found


@pytest.fixture
def folder(tmp_path):
    write_table(make_table(), tmp_path / "s.csv")
    write_table(make_table(seed=5), tmp_path / "fresh.csv")
    return tmp_path


def test_tune_writes_where_the_rule_comes_from(folder):
    done(folder, *TUNE, "--holdout", ".3", "--id", "image", "-o", "r.json")
    rule = dm.Rule.load(folder / "r.json")
    assert rule.card.columns == {"loss": "is_wrong", "ood": "set", "id": "image"}
    assert rule.card.model == dm.TprFprModel(0.8, 0.1)
    assert set(rule.card.points) == {"tuned", "held out"}
    judged = done(folder, *TUNE, "--holdout", ".3", "--id", "image", "--json")
    shown = json.loads(judged.stdout)["held_out"]
    assert rule.card.points["held out"]["tpr"] == shown["tpr"]
    assert len((folder / "r.json").read_bytes()) < 200_000
    done(folder, *TUNE, "--engine", "duckdb", "-o", "counted.json")
    counted = dm.Rule.load(folder / "counted.json").card
    assert counted.columns == {"loss": "is_wrong", "ood": "set"}
    assert counted.model == rule.card.model and counted.to_data()["rows"]["id"] == 240


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_every_command_reads_standard_input(folder, ending):
    """What it says of a pipe is what it says of the file."""
    done(folder, *TUNE, "-o", "r.json", "--counts", "c.json")
    given = {}
    for name, seed in (("s", 0), ("fresh", 5)):
        write_table(make_table(seed), folder / f"{name}.{ending}")
        given[f"{name}.{ending}"] = (folder / f"{name}.{ending}").read_bytes()
    given |= {name: (folder / name).read_bytes() for name in ("r.json", "c.json")}
    s, fresh = f"s.{ending}", f"fresh.{ending}"
    roles = ["--scores", "msp,knn", *ROLES, *BOUNDS]
    calls = [
        (["tune", s, *roles], s),
        (["tune", s, *roles, "-o", "-"], s),
        (["evaluate", "r.json", fresh], fresh),
        (["evaluate", "r.json", fresh], "r.json"),
        (["certify", "r.json", fresh], fresh),
        (["certify", "r.json", fresh], "r.json"),
        (["prior", "r.json", fresh, "--deployed", s], s),
        (["prior", "r.json", fresh, "--deployed", s], fresh),
        (["compare", s, "--scores", "msp", "--scores", "knn", *ROLES], s),
        (["estimate", s, *roles, "--folds", "2", "--replicates", "3"], s),
        (["retune", "c.json", *BOUNDS], "c.json"),
        (["apply", "r.json", fresh, "-o", "out.csv"], fresh),
        (["apply", "r.json", fresh, "-o", "out.csv"], "r.json"),
    ]
    for call, name in calls:
        expected = run_here(folder, *call)
        files = {path: path.read_bytes() for path in folder.glob("out.*")}
        for path in files:
            path.unlink()
        piped = ["-" if word == name else word for word in call]
        found = run_here(folder, *piped, given=given[name])
        if call[-1] != "-":
            assert found.stdout == expected.stdout, piped
        assert found.returncode == expected.returncode
        assert found.stderr == expected.stderr.replace(f"card of {name}", "card of -")
        assert {path: path.read_bytes() for path in folder.glob("out.*")} == files
        for path in files:
            path.unlink()
    assert not (folder / "-").exists()
    refused = done(folder, "evaluate", "-", "-", given=given["r.json"], code=2)
    assert "standard input, which is the rule already" in refused.stderr


def test_commands_make_a_pipe(folder):
    """Tune, decide and judge without a file between."""
    first, *others = (
        subprocess.list2cmdline(command(*words))
        for words in (
            [*TUNE, "-o", "-"],
            ["apply", "-", "fresh.csv"],
            ["evaluate", "r.json", "-", "--json"],
        )
    )
    done(folder, *TUNE, "-o", "r.json")
    piped = subprocess.run(
        f"set -o pipefail; {first} | {others[0]} | {others[1]}",
        shell=True,
        executable="/bin/bash",
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    expected = done(folder, "evaluate", "r.json", "fresh.csv", "--json", code=3)
    assert (piped.returncode, json.loads(piped.stdout)) == (3, json.loads(expected.stdout))
    assert "Traceback" not in piped.stderr


@pytest.mark.parametrize("scores", ["knn", "msp,knn"])
def test_a_rule_from_counts_has_the_card_of_its_rows(folder, scores):
    tune = ["tune", "s.csv", "--scores", scores, *ROLES, *BOUNDS, "--id", "image"]
    done(folder, *tune, "--counts", "c.json", "-o", "r.json")
    done(folder, "retune", "c.json", "--min-tpr", ".7", "--max-fpr", ".2", "-o", "again.json")
    first, again = (dm.Rule.load(folder / name).card.to_data() for name in ("r.json", "again.json"))
    assert again["model"] == dm.TprFprModel(0.7, 0.2).to_data()
    assert again["columns"] == {"loss": "is_wrong", "ood": "set", "id": "image"}
    # Where rows lie is told by decision, and counts do not know the rows.
    differ = {"model", "points", "created", "reference"}
    assert {k: v for k, v in first.items() if k not in differ} == {
        k: v for k, v in again.items() if k not in differ
    }
    judged = done(folder, "evaluate", "again.json", "s.csv", "--json")
    shown = json.loads(judged.stdout)
    assert shown["tuning_rows"] == 1 and "these rows made the rule" in judged.stderr
    for rate, value in again["points"]["tuned"].items():
        assert shown["point"][rate] == value
    # Counts of before have none, and tune all the same.
    counts = json.loads((folder / "c.json").read_text())
    del counts["card"]
    (folder / "old.json").write_text(json.dumps(counts))
    done(folder, "retune", "old.json", "--min-tpr", ".7", "--max-fpr", ".2", "-o", "o.json")
    assert dm.Rule.load(folder / "o.json") == dm.Rule.load(folder / "again.json")
    counts["card"] = {"fingerprint": 3}
    (folder / "bad.json").write_text(json.dumps(counts))
    bad = done(folder, "retune", "bad.json", "--min-tpr", ".7", "--max-fpr", ".2", code=2)
    assert "fingerprint" in bad.stderr


def test_streamed_rows_that_made_the_rule_are_noticed(folder):
    done(folder, *TUNE, "-o", "r.json")
    done(folder, *TUNE, "--engine", "duckdb", "-o", "streamed.json")
    for rule in ("r.json", "streamed.json"):
        for more in ([], ["--engine", "duckdb"], ["--by", "label"]):
            same = done(folder, "evaluate", rule, "s.csv", *more, "--json")
            assert json.loads(same.stdout)["tuning_rows"] == 1
            assert same.stderr.count("these rows made the rule") == 1
            fresh = done(folder, "evaluate", rule, "fresh.csv", *more, "--json", code=3)
            assert json.loads(fresh.stdout)["tuning_rows"] == 0
            assert "made the rule" not in fresh.stderr
        refused = done(folder, "certify", rule, "s.csv", code=2)
        assert "these rows made the rule" in refused.stderr


def test_a_guaranteed_rule_remembers_its_promise_and_all_of_its_rows(tmp_path):
    write_table(make_table(seed=1, n_id=2400, n_ood=1200), tmp_path / "s.csv")
    bounds = ["--min-tpr", ".5", "--max-fpr", ".2", "--guarantee", ".95"]
    tune = ["tune", "s.csv", "--scores", "msp,knn", *ROLES, *bounds]
    promised = json.loads(done(tmp_path, *tune, "-o", "r.json", "--json").stdout)["guarantee"]
    card = dm.Rule.load(tmp_path / "r.json").card
    certified = card.points["certified"]
    assert (certified["tpr"], certified["fpr"], certified["confidence"]) == (0.5, 0.2, 0.95)
    assert certified["selective_risk"] == promised["selective_risk"]
    assert card.model == dm.TprFprModel(0.5, 0.2)
    refused = done(tmp_path, "certify", "r.json", "s.csv", code=2)
    assert "these rows made the rule" in refused.stderr


def test_columns_and_bounds_come_from_the_card(folder):
    done(folder, *TUNE, "-o", "r.json")
    long = done(folder, "evaluate", "r.json", "fresh.csv", *ROLES, *BOUNDS, "--json", code=3)
    short = done(folder, "evaluate", "r.json", "fresh.csv", "--json", code=3)
    assert short.stdout == long.stdout and long.stderr == ""
    assert "from the card of r.json: --loss is_wrong, --ood set" in short.stderr
    assert "from the card of r.json: tpr >= 0.8 and fpr <= 0.1" in short.stderr
    other = done(folder, "evaluate", "r.json", "fresh.csv", "--min-tpr", ".5", "--ood", "is_ood")
    assert "tpr >= 0.5: met" in other.stdout and "FPR of" not in other.stdout
    promise = json.loads(done(folder, "certify", "r.json", "fresh.csv", "--json", code=3).stdout)
    assert list(promise["met"]) == ["tpr >= 0.8", "fpr <= 0.1"] and promise["tuning_rows"] == 0
    estimate = done(folder, "prior", "r.json", "fresh.csv", "--deployed", "fresh.csv")
    assert "--ood set" in estimate.stderr
    page = json.loads(done(folder, "report", "fresh.csv", "--like", "r.json", "--json").stdout)
    assert page["model"]["min_tpr"] == 0.8 or page["model"]["name"] == "TprFprModel"


def test_weights_of_the_card_can_be_left_out(folder):
    """Where rows have to be counted one by one, the message says how."""
    for seed, name in ((0, "s.csv"), (5, "fresh.csv")):
        table = make_table(seed)
        weights = pa.array(np.arange(len(table)) % 2 + 1.0)
        write_table(table.append_column("w", weights), folder / name)
    done(folder, *TUNE, "--weight", "w", "-o", "r.json")
    refused = done(folder, "certify", "r.json", "fresh.csv", code=2)
    assert "--weight '' where a rule's card names them" in refused.stderr
    found = run_here(folder, "certify", "r.json", "fresh.csv", "--weight", "")
    assert found.returncode in (0, 3) and "TPR" in found.stdout


def test_rows_without_the_ood_column_of_the_card_are_id(folder):
    done(folder, *TUNE, "-o", "r.json")
    table = make_table(seed=5)
    table = table.filter(pa.compute.invert(table["is_ood"])).drop_columns(["set"])
    write_table(table, folder / "id.csv")
    found = run_here(folder, "evaluate", "r.json", "id.csv", "--json")
    assert found.returncode in (0, 3)
    assert "DATA has no column 'set', which was --ood in tuning" in found.stderr
    assert list(json.loads(found.stdout)["bounds_met"]) == ["tpr >= 0.8"]


def test_bounds_of_every_set_are_checked_set_by_set(folder):
    bounds = ["--min-tpr", ".5", "--max-fpr", ".1", "--fpr-of", "worst"]
    done(folder, "tune", "s.csv", "--scores", "msp,knn", *ROLES, *bounds, "-o", "r.json")
    found = run_here(folder, "evaluate", "r.json", "fresh.csv", "--json")
    result = json.loads(found.stdout)
    worst = max(result["point"]["fpr_by_set"].values())
    assert result["bounds_met"]["fpr <= 0.1 of every set"] == (worst <= 0.1)
    assert found.returncode == (0 if all(result["bounds_met"].values()) else 3)


def test_rows_that_made_the_rule_are_noticed(folder):
    done(folder, *TUNE, "--holdout", ".3", "-o", "r.json")
    warned = run_here(folder, "evaluate", "r.json", "s.csv", "--json")
    assert "warning: about 70% of these rows made the rule" in warned.stderr
    assert json.loads(warned.stdout)["tuning_rows"] == pytest.approx(0.7)
    refused = done(folder, "certify", "r.json", "s.csv", code=2)
    assert "--allow-tuning-rows" in refused.stderr and refused.stdout == ""
    allowed = run_here(folder, "certify", "r.json", "s.csv", "--allow-tuning-rows")
    assert allowed.returncode in (0, 3) and "made the rule" in allowed.stderr
    assert "made the rule" not in run_here(folder, "evaluate", "r.json", "fresh.csv").stderr


@pytest.mark.parametrize("digits", [0, 1, 2, 3])
def test_rounded_scores_raise_no_alarm(tmp_path, digits):
    names = ("old.csv", "new.csv")
    for seed, name in enumerate(names):
        table = make_table(seed=seed, n_id=2000, n_ood=1000)
        for column in ("msp", "knn"):
            rounded = pa.array(np.round(table[column].to_numpy(), digits))
            table = table.set_column(table.column_names.index(column), column, rounded)
        write_table(table, tmp_path / name)
    scores = ["--scores", "msp,knn", *ROLES, "--min-tpr", ".5", "--max-fpr", ".2"]
    done(tmp_path, "tune", "old.csv", *scores, "-o", "r.json")
    assert run_here(tmp_path, "certify", "r.json", "new.csv").returncode in (0, 3)
    # The very same rows are known whatever the rounding.
    assert run_here(tmp_path, "certify", "r.json", "old.csv").returncode == 2


def test_apply_notices_per_cent(folder):
    tune = ["tune", "s.csv", "--scores", "knn", *ROLES, *BOUNDS]
    done(folder, *tune, "-o", "r.json")
    quiet = done(folder, "apply", "r.json", "fresh.csv", "-o", "quiet.csv", "--json")
    assert "warning" not in quiet.stderr and "warnings" not in json.loads(quiet.stdout)
    table = make_table(seed=5)
    scaled = pa.array(100 * table["knn"].to_numpy())
    write_table(table.set_column(2, "knn", scaled), folder / "percent.csv")
    loud = done(folder, "apply", "r.json", "percent.csv", "-o", "loud.csv", "--json")
    assert "have 'knn' outside what tuning saw" in loud.stderr
    assert "is it in per cent now?" in loud.stderr
    assert len(json.loads(loud.stdout)["warnings"]) == 1
    done(folder, "tune", "percent.csv", "--scores", "knn", *ROLES, *BOUNDS, "-o", "p.json")
    write_table(table.set_column(2, "knn", pa.array(np.full(360, 2000.0))), folder / "odd.csv")
    assert (
        "is it the same score?" in done(folder, "apply", "p.json", "odd.csv", "-o", "o.csv").stderr
    )


def test_a_repeated_option_is_a_list(folder):
    pair = done(folder, *TUNE, "--json").stdout
    twice = ["tune", "s.csv", "--scores", "msp", "--scores", "knn", *ROLES, *BOUNDS, "--json"]
    rules = [json.loads(text)["rule"] for text in (pair, done(folder, *twice).stdout)]
    assert rules[0]["score_names"] == rules[1]["score_names"] == ["msp", "knn"]
    assert rules[0]["threshold"] == rules[1]["threshold"]


def test_correct_is_the_other_way_round(folder):
    table = make_table()
    right = pa.compute.invert(table["is_wrong"])
    write_table(table.append_column("right", right), folder / "s.csv")
    loss = json.loads(done(folder, *TUNE, "--json").stdout)
    correct = [word if word != "is_wrong" else "right" for word in TUNE]
    correct[correct.index("--loss")] = "--correct"
    done(folder, *correct, "-o", "r.json")
    found = json.loads(done(folder, *correct, "--json").stdout)
    assert found["tuned"] == loss["tuned"]
    # The card knows it too.
    write_table(make_table(seed=5).append_column("right", pa.array([True] * 360)), folder / "f.csv")
    judged = run_here(folder, "evaluate", "r.json", "f.csv", "--json")
    assert json.loads(judged.stdout)["point"]["selective_risk"] == 0


def test_likely_mistakes_are_said(folder):
    table = make_table()
    right = pa.compute.invert(table["is_wrong"])
    write_table(table.append_column("right", right), folder / "s.csv")
    wrong = ["tune", "s.csv", "--scores", "msp,knn", "--loss", "right", "--ood", "set", *BOUNDS]
    said = done(folder, *wrong).stderr
    assert "demur: warning:" in said and "correct" in said
    reverse = ["tune", "s.csv", "--scores", "knn_conf", *ROLES, *BOUNDS]
    refused = done(folder, *reverse, code=3).stderr
    assert refused.index("a likely cause") < refused.index("relax a bound")
    pair = done(folder, *TUNE, "--min-tpr", ".99", "--max-fpr", ".01", code=3).stderr
    assert "add a second score" not in pair


def test_few_ood_rows_come_with_a_caution(tmp_path):
    write_table(make_table(n_ood=8), tmp_path / "s.csv")
    tune = ["tune", "s.csv", "--scores", "knn", "--loss", "is_wrong", "--ood", "is_ood"]
    shown = done(tmp_path, *tune, "--min-tpr", ".5", "--max-fpr", ".5")
    assert "(8 rows)" in shown.stdout
    assert "Caution: the FPR rests on 8 OOD rows, each of which is 12% of it." in shown.stdout
    found = json.loads(done(tmp_path, *tune, "--min-tpr", ".5", "--json").stdout)
    assert len(found["cautions"]) == 1
    write_table(make_table(), tmp_path / "s.csv")
    assert "Caution" not in done(tmp_path, *tune, "--min-tpr", ".5").stdout


def test_a_confidence_is_at_least_something(folder):
    scores = ["--scores", "knn_conf", "--confidence", "knn_conf"]
    shown = done(folder, "tune", "s.csv", *scores, *ROLES, *BOUNDS).stdout
    assert "Accept an input when knn_conf >= -" in shown


def test_the_level_has_one_name(folder):
    done(folder, *TUNE, "-o", "r.json")
    common = ["certify", "r.json", "fresh.csv", "--json"]
    new, old = (run_here(folder, *common, name, ".9") for name in ("--level", "--confidence"))
    assert new.stdout == old.stdout and json.loads(new.stdout)["confidence"] == 0.9
    assert "--confidence 0.9 is taken for --level 0.9" in old.stderr
    plan = ["plan", "--min-tpr", "80%", "--max-fpr", "1/10"]
    assert (
        done(folder, *plan, "--level", ".9").stdout
        == done(folder, *plan, "--confidence", ".9").stdout
    )


def test_evaluate_exits_with_3_where_a_bound_is_not_met(folder):
    dm.Rule((1.0,), 0.5, score_names=("knn",)).save(folder / "r.json")
    tpr, _, _ = rates(rows_of(make_table(seed=5)), lambda row: row.knn <= 0.5)
    common = ["evaluate", "r.json", "fresh.csv", *ROLES]
    done(folder, *common)
    done(folder, *common, "--min-tpr", str(tpr - 0.01))
    done(folder, *common, "--min-tpr", str(tpr + 0.01), code=3)


def test_a_project_file_stands_for_options(folder):
    text = """
    [columns]
    scores = ["msp", "knn"]
    loss = "is_wrong"
    ood = "set"
    [bounds]
    min-tpr = 0.8
    max-fpr = "10%"
    [paths]
    data = "s.csv"
    fresh = "fresh.csv"
    rule = "r.json"
    """
    typed = json.loads(done(folder, *TUNE, "--json").stdout)
    (folder / "demur.toml").write_text(text)
    told = done(folder, "tune", "--json")
    assert json.loads(told.stdout)["tuned"] == typed["tuned"]
    assert "from demur.toml: --scores msp,knn, --loss is_wrong, --ood set" in told.stderr
    assert (folder / "r.json").exists()
    judged = run_here(folder, "evaluate")
    # From elsewhere, paths are those beside the file.
    (folder / "below").mkdir()
    away = run_here(folder / "below", "evaluate", "--project", "../demur.toml")
    assert away.returncode == 3 and away.stdout == judged.stdout
    assert judged.returncode == 3 and "DATA fresh.csv, RULE r.json" in judged.stderr
    # What is typed counts, and leaves out what does not go with it.
    cost = json.loads(done(folder, "estimate", "--cost-reject-id", ".1", "--json").stdout)
    assert cost["model"]["name"] == "CostModel"
    labels = ["--label", "label", "--prediction", "pred", "--max-fpr", ".2", "--force", "--json"]
    other = json.loads(done(folder, "tune", *labels).stdout)
    assert other["model"] == {"name": "TprFprModel", "min_tpr": 0.8, "max_fpr": 0.2}


def test_the_rule_on_standard_output(folder):
    shown = done(folder, *TUNE, "-o", "-")
    rule = dm.Rule.from_json(shown.stdout)
    assert rule.score_names == ("msp", "knn") and "Accept an input when" in shown.stderr
    assert not (folder / "-").exists()
    rows = done(folder, *TUNE, "-o", "r.json") and run(
        folder, "apply", "r.json", "s.csv", "-o", "-"
    )
    assert rows.returncode == 0 and rows.stdout.startswith("image,msp")


def piped(folder, *arguments, **options):
    return subprocess.run(
        arguments, cwd=folder, capture_output=True, shell=False, env=ENVIRONMENT, **options
    )


def test_output_that_is_not_read_ends_quietly(tmp_path):
    write_table(make_table(n_id=40_000, n_ood=20_000), tmp_path / "s.csv")
    dm.Rule((1.0,), 0.5, score_names=("knn",)).save(tmp_path / "r.json")
    line = " ".join(command("apply", "r.json", "s.csv"))
    found = piped(tmp_path, "bash", "-c", f"{line} | head -1; exit ${{PIPESTATUS[0]}}")
    assert found.returncode in (0, 141)
    assert found.stdout.decode().count("\n") == 1
    assert found.stderr == b""


def test_a_closed_output_is_one_line(folder):
    line = " ".join(command(*TUNE))
    found = piped(folder, "bash", "-c", f"{line} >&-")
    assert found.returncode == 2
    assert found.stderr.decode().startswith("demur: standard output is closed")
    assert found.stderr.count(b"\n") == 1


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_a_terminal_that_lacks_a_character(folder, encoding):
    table = ["compare", "s.csv", "--scores", "msp", *ROLES, "--format", "markdown"]
    found = run(folder, *table, PYTHONIOENCODING=encoding)
    assert found.returncode == 0 and "Traceback" not in found.stderr
    assert "\\u2191 AUROC" in found.stdout


def test_an_openood_file_below_a_folder_with_an_equals_sign(tmp_path):
    place = tmp_path / "runs" / "day=1"
    for name, scores in (("cifar10", [0.9, 0.8, 0.4, 0.7]), ("svhn", [0.2, 0.3])):
        folder = place / "msp"
        folder.mkdir(parents=True, exist_ok=True)
        label = [0] * len(scores) if name == "cifar10" else [-1] * len(scores)
        np.savez(folder / f"{name}.npz", pred=[0] * len(scores), conf=scores, label=label)
    bounds = ["--openood-id", "cifar10", "--min-tpr", ".5", "--max-fpr", ".5", "--json"]
    for text, name in (("runs/day=1/msp", "msp"), ("x=runs/day=1/msp", "x")):
        found = json.loads(done(tmp_path, "tune", "--openood", text, *bounds).stdout)
        assert found["rule"]["score_names"] == [name]
    inside = done(tmp_path / "runs", "tune", "--openood", "day=1/msp", *bounds)
    assert json.loads(inside.stdout)["rule"]["score_names"] == ["msp"]
