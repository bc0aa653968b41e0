"""Wrong input: a clear message, exit code 2, nothing written."""

import pytest
from commands import make_table, run, write_table

TUNE = ["--loss", "is_wrong", "--ood", "is_ood", "--min-tpr", ".8", "--max-fpr", ".1"]
SCORES = ["--scores", "msp,knn"]


@pytest.fixture
def folder(tmp_path):
    table = make_table()
    for suffix in ("csv", "parquet"):
        write_table(table, tmp_path / f"scores.{suffix}")
    whole = (tmp_path / "scores.parquet").read_bytes()
    (tmp_path / "short.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "header.csv").write_text("msp,knn,is_wrong,is_ood\n")
    (tmp_path / "gaps.csv").write_text("knn,loss,far\n1,0,0\n2,1,0\n3,,1\n4,,1\n")
    (tmp_path / "classes.csv").write_text("knn,true,said\n1,cat,cat\n2,,dog\n3,dog,cat\n")
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    (tmp_path / "old.json").write_text("precious")
    return tmp_path


CASES = {
    "wrong column": (
        ["tune", "scores.csv", "--scores", "mps,knn", *TUNE],
        ["--scores: 'scores.csv' has no column 'mps'", "did you mean 'msp'?", "'knn_conf'"],
    ),
    "wrong role": (
        ["compare", "scores.parquet", "--scores", "msp", "--loss", "wrong"],
        ["--loss: 'scores.parquet' has no column 'wrong'", "did you mean 'is_wrong'?"],
    ),
    "no scores": (["tune", "scores.csv", *TUNE], ["--scores is needed", "'image', 'msp'"]),
    "text column": (
        ["tune", "scores.csv", "--scores", "set", *TUNE],
        ["column 'set' holds str values such as 'id', not numbers"],
    ),
    "empty class": (
        [
            *("tune", "classes.csv", "--scores", "knn", "--min-tpr", ".5"),
            *("--label", "true", "--prediction", "said"),
        ],
        ["label: column 'true', row 1 is empty", "--ood COLUMN"],
    ),
    "empty file": (["tune", "empty.csv", *SCORES, *TUNE], ["cannot read 'empty.csv' as CSV"]),
    "no rows": (["tune", "header.csv", *SCORES, *TUNE], ["'header.csv' has no rows"]),
    "truncated": (
        ["tune", "short.parquet", *SCORES, *TUNE],
        ["cannot read 'short.parquet' as Parquet"],
    ),
    "no archive": (["tune", "bad.npz", *SCORES, *TUNE], ["cannot read 'bad.npz' as NPZ"]),
    "folder": (
        ["tune", ".", *SCORES, *TUNE, "--engine", "memory"],
        ["cannot read 'bad.npz' as NPZ"],
    ),
    "mixed folder": (["tune", ".", *SCORES, *TUNE], ["'bad.npz' is NPZ"]),
    "no such file": (
        ["tune", "score.csv", *SCORES, *TUNE],
        ["there is no file 'score.csv'; did you mean 'scores.csv'?"],
    ),
    "old file": (
        ["tune", "scores.csv", *SCORES, *TUNE, "-o", "old.json"],
        ["'old.json' exists; add --force to replace it"],
    ),
    "no folder": (
        ["tune", "scores.csv", *SCORES, *TUNE, "-o", "nowhere/r.json"],
        ["the folder 'nowhere' does not exist"],
    ),
    "unwritable": (
        ["tune", "scores.csv", *SCORES, *TUNE, "-o", "/proc/rule.json"],
        ["cannot write '/proc/rule.json'"],
    ),
    "device": (
        ["tune", "scores.csv", *SCORES, *TUNE, "-o", "/dev/null", "--force"],
        ["'/dev/null' is not a regular file"],
    ),
    "half a model": (
        ["tune", "scores.csv", *SCORES, "--max-fpr", ".1"],
        ["--max-fpr needs --min-tpr", "--min-precision --min-recall --prior"],
    ),
    "no OOD column": (
        ["tune", "scores.csv", *SCORES, "--loss", "is_wrong", "--min-tpr", ".8", "--max-fpr", ".1"],
        ["need OOD rows", "--ood"],
    ),
    "no number": (
        ["tune", "scores.csv", *SCORES, "--min-tpr", "80 per cent"],
        ["'80 per cent' is not a number such as 0.8, 80% or 1/3"],
    ),
    "out of range": (
        ["tune", "scores.csv", *SCORES, *TUNE, "--min-tpr", "1.01"],
        ["'1.01' is not a share from 0 to 1"],
    ),
    "no rule": (
        ["evaluate", "scores.csv", "scores.csv", "--loss", "is_wrong"],
        ["the rule is not valid JSON"],
    ),
    "no loss on OOD rows": (
        ["tune", "gaps.csv", "--scores", "knn", "--loss", "loss", "--min-tpr", ".5"],
        ["row 2 is nan", "(2 such rows); if these are the OOD rows, name the column", "--ood"],
    ),
    "wrong command": (["tuna"], ["Did you mean 'tune'?"]),
}


@pytest.mark.parametrize("case", CASES)
def test_message_and_exit_code(folder, case):
    arguments, messages = CASES[case]
    before = sorted(p.name for p in folder.iterdir())
    done = run(folder, *arguments)
    assert done.returncode == 2, done.stdout
    for message in messages:
        assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert sorted(p.name for p in folder.iterdir()) == before
    assert (folder / "old.json").read_text() == "precious"


def test_ood_rows_need_no_loss(folder):
    scores = ["--scores", "knn", "--loss", "loss", "--min-tpr", ".5"]
    done = run(folder, "tune", "gaps.csv", *scores, "--ood", "far")
    assert done.returncode == 0, done.stderr
    large = run(folder, "tune", "gaps.csv", *scores, "--engine", "duckdb")
    assert large.returncode == 2 and "missing or NaN in 2 rows" in large.stderr
    assert "name the column that marks them (--ood COLUMN)" in large.stderr
    (folder / "gaps.csv").write_text("knn,loss,far\n1,0,0\n2,,0\n3,,1\n")
    gap = run(folder, "tune", "gaps.csv", *scores, "--ood", "far")
    assert gap.returncode == 2 and "row 1 is nan" in gap.stderr
    assert "--ood" not in gap.stderr


def test_force_replaces(folder):
    done = run(folder, "tune", "scores.csv", *SCORES, *TUNE, "-o", "old.json", "--force")
    assert done.returncode == 0
    assert '"format": "demur.rule"' in (folder / "old.json").read_text()
