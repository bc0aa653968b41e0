"""`demur apply` on folders and patterns: all files or none."""

import json
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from commands import ENVIRONMENT, command, heard, run

import demur as dm

RULE = dm.Rule((0.6, 0.8), 1.25, score_names=("msp", "knn"))


def part(seed, rows=50):
    rng = np.random.default_rng(seed)
    return pa.table(
        {"n": range(rows), "msp": rng.gamma(2, size=rows), "knn": rng.normal(size=rows)}
    )


def accepted(table):
    rows = table.to_pylist()
    return [0.6 * row["msp"] + 0.8 * row["knn"] <= 1.25 for row in rows]


def everything(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.fixture
def folder(tmp_path):
    RULE.save(tmp_path / "r.json")
    for i in range(12):
        day = tmp_path / "lake" / f"day={i // 4}"
        day.mkdir(parents=True, exist_ok=True)
        pa.parquet.write_table(part(i), day / f"part-{i:02}.parquet")
    (tmp_path / "lake" / "_SUCCESS").write_text("")
    (tmp_path / "lake" / "_temporary").mkdir()
    (tmp_path / "lake" / "_temporary" / "part.parquet").write_text("unfinished")
    (tmp_path / "lake" / "readme.txt").write_text("not a table")
    return tmp_path


@pytest.mark.parametrize("data", ["lake", "lake/", "lake/day=*/*.parquet", "lake/**/*.parquet"])
def test_every_file_is_written_under_its_own_name(folder, data):
    done = run(folder, "apply", "r.json", data, "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    expected = [f"day={i // 4}/part-{i:02}.parquet" for i in range(12)]
    assert everything(folder / "out") == expected
    total = 0
    for i, name in enumerate(expected):
        written = pa.parquet.ParquetFile(folder / "out" / name).read()
        assert written["accept"].to_pylist() == accepted(part(i))
        assert written.drop_columns("accept").equals(part(i))
        total += sum(accepted(part(i)))
    summary = {"rows": 600, "accepted": total, "missing": 0, "output": "out"}
    summary["work"] = {"engine": "memory", "passes": 1, "rows_fetched": 600}
    assert json.loads(done.stdout) == summary


def test_files_keep_their_formats(folder):
    (folder / "mixed").mkdir()
    pa.parquet.write_table(part(1), folder / "mixed" / "a.parquet")
    pa.csv.write_csv(part(2), folder / "mixed" / "b.csv")
    columns = part(3).to_pydict()
    np.savez(folder / "mixed" / "c.npz", **{k: np.array(v) for k, v in columns.items()})
    assert run(folder, "apply", "r.json", "mixed", "-o", "out").returncode == 0
    assert everything(folder / "out") == ["a.parquet", "b.csv", "c.npz"]
    with np.load(folder / "out" / "c.npz") as archive:
        assert archive["accept"].tolist() == accepted(part(3))
    assert pa.csv.read_csv(folder / "out" / "b.csv")["accept"].to_pylist() == accepted(part(2))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-200])


def wrong_type(path):
    table = part(0)
    text = [str(v) for v in table["knn"].to_pylist()]
    pa.parquet.write_table(table.set_column(2, "knn", [text]), path)


def no_score(path):
    table = part(0)
    values = table["knn"].to_pylist()
    values[7] = None
    pa.parquet.write_table(table.set_column(2, "knn", [values]), path)


def no_column(path):
    pa.parquet.write_table(part(0).rename_columns(["n", "msp", "kn"]), path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, ["cannot read", "Parquet"]),
        (wrong_type, ["column 'knn' holds string, not numbers"]),
        (no_score, ["column 'knn', row 7 is nan"]),
        (no_column, ["no column 'knn'", "did you mean 'kn'?"]),
    ],
)
@pytest.mark.parametrize("before", [False, True])
def test_trouble_in_the_tenth_file_leaves_nothing_half_written(folder, damage, words, before):
    damage(folder / "lake" / "day=2" / "part-09.parquet")
    if before:
        assert run(folder, "apply", "r.json", "lake/day=[01]", "-o", "out").returncode == 2
        assert run(folder, "apply", "r.json", "lake/day=[01]/*", "-o", "out").returncode == 0
    old = everything(folder)
    done = run(folder, "apply", "r.json", "lake", "-o", "out", "--force")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for word in ["lake/day=2/part-09.parquet", *words]:
        assert word in done.stderr
    assert everything(folder) == old


def test_an_existing_folder_is_replaced_only_if_asked_and_only_if_it_is_ours(folder):
    assert run(folder, "apply", "r.json", "lake", "-o", "out").returncode == 0
    done = run(folder, "apply", "r.json", "lake", "-o", "out")
    assert done.returncode == 2 and "--force" in done.stderr
    dm.Rule((0.6, 0.8), -np.inf, score_names=("msp", "knn")).save(folder / "none.json")
    done = run(folder, "apply", "none.json", "lake", "-o", "out", "--force")
    assert done.returncode == 0 and "accepted 0 of 600" in done.stderr
    (folder / "out" / "thesis.tex").write_text("the only copy")
    done = run(folder, "apply", "r.json", "lake", "-o", "out", "--force")
    assert done.returncode == 2 and "'thesis.tex'" in done.stderr
    assert (folder / "out" / "thesis.tex").read_text() == "the only copy"


@pytest.mark.parametrize(
    ("data", "target", "words"),
    [
        ("lake", "lake", "holds DATA itself"),
        ("lake/*/*.parquet", ".", "holds DATA itself"),
        ("lake", "r.json", "is a file"),
        ("lake", "none/out", "does not exist"),
        ("lake/*.csv", "out", "no file matches"),
        ("lake/_temporary", "lake/x", None),
    ],
)
def test_folders_that_cannot_be_used(folder, data, target, words):
    old = everything(folder)
    done = run(folder, "apply", "r.json", data, "-o", target, "--force")
    assert done.returncode == 2
    assert words is None or words in done.stderr
    assert everything(folder) == old


def test_many_files_need_a_folder(folder):
    done = run(folder, "apply", "r.json", "lake")
    assert (done.returncode, done.stdout) == (2, "")
    assert "many files need -o" in done.stderr


def large_part(folder):
    """Return whether the large file is being written."""
    return any(part.stat().st_size > 10**6 for part in folder.glob(".out.*/parts/*"))


def test_a_stopped_run_leaves_nothing_behind(folder):
    noise = np.random.default_rng(0).random(4_000_000)
    pa.parquet.write_table(pa.table({"msp": noise, "knn": noise}), folder / "lake" / "z.parquet")
    old = everything(folder)
    process = subprocess.Popen(
        command("apply", "r.json", "lake", "-o", "out"), cwd=folder, env=ENVIRONMENT
    )
    while not large_part(folder) and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    assert process.wait() == 128 + signal.SIGTERM
    assert everything(folder) == old
    assert not list(folder.glob(".out.*"))


def resumed(folder, *more):
    return run(folder, "apply", "r.json", "lake", "-o", "out", "--resume", "--json", *more)


def results_of(folder):
    return {
        name: pa.parquet.ParquetFile(folder / name).read()["accept"].to_pylist()
        for name in everything(folder)
    }


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_goes_on_where_it_was(folder, end):
    noise = np.random.default_rng(0).random(4_000_000)
    pa.parquet.write_table(pa.table({"msp": noise, "knn": noise}), folder / "lake" / "z.parquet")
    with heard(signal.SIGINT):
        process = subprocess.Popen(
            command("apply", "r.json", "lake", "-o", "out", "--resume"), cwd=folder, env=ENVIRONMENT
        )
    place = folder / ".out.resume"
    while not large_part(folder) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(end)
    assert process.wait() != 0
    assert not (folder / "out").exists()
    lines = [json.loads(line) for line in (place / "done.jsonl").read_text().splitlines()]
    assert len(lines) == 13 and all("size" in line for line in lines[1:])
    first = place / "results" / "day=0" / "part-00.parquet"
    stamp = first.stat().st_mtime_ns
    # A line that was cut off, and a result shorter than was noted, do not count.
    with open(place / "done.jsonl", "a") as log:
        log.write('{"name": "z.parquet", "si')
    truncate(place / "results" / "day=1" / "part-04.parquet")
    done = resumed(folder)
    assert done.returncode == 0 and "11 of 13 files were decided before" in done.stderr
    assert (folder / "out/day=0/part-00.parquet").stat().st_mtime_ns == stamp
    assert not place.exists()
    whole = run(folder, "apply", "r.json", "lake", "-o", "whole", "--json")
    assert results_of(folder / "out") == results_of(folder / "whole")
    told, expected = json.loads(done.stdout), json.loads(whole.stdout)
    assert told | {"output": ""} == expected | {"output": ""}


def test_another_question_does_not_go_on(folder):
    truncate(folder / "lake" / "day=2" / "part-09.parquet")
    old = everything(folder)
    assert resumed(folder).returncode == 2
    # What cannot be read is known before anything is begun.
    assert everything(folder) == old
    no_score(folder / "lake" / "day=2" / "part-09.parquet")
    assert resumed(folder).returncode == 2
    assert (folder / ".out.resume" / "done.jsonl").exists() and not (folder / "out").exists()
    for more in (["--column", "kept"], ["--missing", "reject"]):
        done = resumed(folder, *more)
        assert done.returncode == 2 and "was begun with another rule, other options" in done.stderr
    pa.parquet.write_table(part(9), folder / "lake" / "day=2" / "part-09.parquet")
    done = resumed(folder)
    assert done.returncode == 2 and "files that have changed since" in done.stderr
    done = run(folder, "apply", "r.json", "lake/day=0/part-00.parquet", "-o", "x.csv", "--resume")
    assert done.returncode == 2 and "--resume is about many files" in done.stderr
