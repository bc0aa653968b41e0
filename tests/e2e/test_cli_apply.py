"""`demur apply`: every input format to every output format, and what must not be lost."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from commands import (
    ENVIRONMENT,
    command,
    heard,
    make_table,
    rows_of,
    run,
    run_here,
    write_table,
)

import demur as dm

RULE = dm.Rule((0.6, 0.8), 1.25, score_names=("msp", "knn"))


@pytest.fixture
def folder(tmp_path):
    RULE.save(tmp_path / "r.json")
    return tmp_path


def expected_decisions(table):
    return [0.6 * row.msp + 0.8 * row.knn <= 1.25 for row in rows_of(table)]


def read_back(path):
    if path.suffix == ".parquet":
        return pa.parquet.read_table(path)
    if path.suffix == ".npz":
        with np.load(path) as archive:
            return pa.table(dict(archive))
    if path.suffix == ".csv":
        return pa.csv.read_csv(path)
    return pa.feather.read_table(path)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("s.parquet", "o.parquet"),
        ("s.feather", "o.feather"),
        ("s.arrow", "o.arrow"),
        ("s.csv", "o.csv"),
        ("s.npz", "o.npz"),
        ("s.npz", "o.parquet"),
    ],
)
def test_keeps_every_column_and_adds_the_decision(folder, source, target):
    table = make_table(seed=2)
    write_table(table, folder / source)
    done = run(folder, "apply", "r.json", source, "-o", target, "--json")
    assert done.returncode == 0, done.stderr
    expected = expected_decisions(table)
    summary = {"rows": 360, "accepted": sum(expected), "missing": 0, "output": target}
    summary["work"] = {"engine": "memory", "passes": 1, "rows_fetched": 360}
    assert json.loads(done.stdout) == summary
    written = read_back(folder / target)
    assert written.column_names == [*table.column_names, "accept"]
    assert written["accept"].to_pylist() == expected
    kept = written.drop_columns("accept")
    if target == "o.csv":
        # The reader of this test takes the digits of the image names for numbers.
        kept = kept.set_column(0, "image", [table["image"].to_pylist()])
    assert kept.to_pylist() == table.to_pylist()
    assert sorted(p.name for p in folder.iterdir()) == sorted(["r.json", source, target])


def test_csv_passes_text_on_unchanged(folder):
    content = (
        "image,msp,knn,remark\n"
        "007,0.10,1e-3,plain\n"
        '008, 0.50 ,0.25,"with, comma and ""quotes"""\n'
        '009,9,9,"two\nlines"\n'
        "010,NA,1,\n"
    )
    (folder / "s.csv").write_text(content)
    done = run(folder, "apply", "r.json", "s.csv", "--missing", "reject", "--column", "ok")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "image,msp,knn,remark,ok"
    written = pa.csv.read_csv(
        pa.BufferReader(done.stdout.encode()),
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(["image", "msp", "knn", "remark"], pa.string())
        ),
    ).to_pydict()
    assert written["image"] == ["007", "008", "009", "010"]
    assert written["msp"] == ["0.10", " 0.50 ", "9", "NA"]
    assert written["remark"] == ["plain", 'with, comma and "quotes"', "two\nlines", ""]
    assert written["ok"] == [True, True, False, False]
    assert "accepted 2 of 4 rows (50.0%); 1 rows lack a score" in done.stderr


def test_missing_scores(folder):
    table = pa.table(
        {"k": [1, 2, 3, 4], "msp": [0.1, None, 0.2, np.inf], "knn": [0.0, 1, np.nan, 0]}
    )
    pa.parquet.write_table(table, folder / "s.parquet")
    done = run(folder, "apply", "r.json", "s.parquet", "-o", "o.parquet")
    assert done.returncode == 2
    assert "column 'msp', row 1 is nan" in done.stderr and "--missing reject" in done.stderr
    assert not (folder / "o.parquet").exists()
    done = run(folder, "apply", "r.json", "s.parquet", "--missing", "reject", "--id", "k")
    assert done.stdout == "k,accept\n1,true\n2,false\n3,false\n4,false\n"


@pytest.mark.parametrize("missing", ["raise", "error"])
def test_missing_scores_by_the_words_of_python(folder, missing):
    (folder / "s.csv").write_text("msp,knn\n0.1,0.2\n0.1,\n")
    done = run_here(folder, "apply", "r.json", "s.csv", "--missing", missing, "-o", "o.csv")
    assert done.returncode == 2 and "column 'knn', row 1 is nan" in done.stderr
    assert not (folder / "o.csv").exists()


def test_text_as_polars_keeps_it_goes_to_csv(folder):
    names = pa.array(["a,b", None]).cast(pa.string_view())
    raw = pa.array([b"x", b"y"]).cast(pa.binary_view())
    table = pa.table({"msp": [0.1, 9.0], "knn": [0.2, 9.0], "name": names, "raw": raw})
    pa.feather.write_feather(table, folder / "s.feather")
    done = run_here(folder, "apply", "r.json", "s.feather", "-o", "o.csv")
    assert done.returncode == 0, done.stderr
    assert (folder / "o.csv").read_text().splitlines()[1:] == [
        '0.1,0.2,"a,b","x",true',
        '9,9,,"y",false',
    ]


def test_json_lines_are_json_whatever_the_numbers(folder):
    columns = {
        "msp": [0.1, np.inf],
        "knn": [0.2, 0.2],
        "other": [np.nan, -np.inf],
        "many": [[1.0, np.inf], [np.nan]],
    }
    pa.parquet.write_table(pa.table(columns), folder / "s.parquet")
    done = run_here(folder, "apply", "r.json", "s.parquet", "-o", "o.jsonl")
    assert done.returncode == 0, done.stderr

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    lines = (folder / "o.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [row["accept"] for row in rows] == [True, False]
    assert rows[1] == {"msp": None, "knn": 0.2, "other": None, "many": [None], "accept": False}


def test_rows_are_counted_over_batches(folder):
    n = 300_000
    scores = np.zeros(n)
    scores[250_001] = np.nan
    pa.parquet.write_table(pa.table({"msp": scores, "knn": scores}), folder / "s.parquet")
    done = run(folder, "apply", "r.json", "s.parquet", "-o", "o.parquet")
    assert "row 250001 is nan" in done.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["r.json", "s.parquet"]


def test_nothing_to_decide(folder):
    (folder / "s.csv").write_text("image,msp,knn\n")
    done = run(folder, "apply", "r.json", "s.csv")
    assert (done.returncode, done.stdout) == (0, "image,msp,knn,accept\n")


def test_damage_in_the_middle_leaves_the_old_file(folder):
    table = pa.table({"msp": np.random.default_rng(0).random(200_000), "knn": np.zeros(200_000)})
    pa.parquet.write_table(table, folder / "s.parquet", row_group_size=50_000, compression="gzip")
    content = bytearray((folder / "s.parquet").read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2000] = bytes(2000)
    (folder / "s.parquet").write_bytes(content)
    (folder / "o.parquet").write_text("old")
    done = run(folder, "apply", "r.json", "s.parquet", "-o", "o.parquet", "--force")
    assert done.returncode == 2
    assert "cannot read 's.parquet' as Parquet" in done.stderr
    assert (folder / "o.parquet").read_text() == "old"
    assert sorted(p.name for p in folder.iterdir()) == ["o.parquet", "r.json", "s.parquet"]


def test_lists_go_to_parquet_but_not_to_csv(folder):
    table = pa.table({"msp": [0.1], "knn": [0.2], "feature": [[1.0, 2.0]]})
    pa.parquet.write_table(table, folder / "s.parquet")
    done = run(folder, "apply", "r.json", "s.parquet")
    assert done.returncode == 2
    assert "column 'feature' holds list<" in done.stderr and "--id" in done.stderr
    assert run(folder, "apply", "r.json", "s.parquet", "-o", "o.parquet").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_run_leaves_nothing_behind(folder, number):
    zeros = np.zeros(4_000_000)
    pa.parquet.write_table(pa.table({"msp": zeros, "knn": zeros}), folder / "s.parquet")
    with heard(number):
        process = subprocess.Popen(
            command("apply", "r.json", "s.parquet", "-o", "o.csv"), cwd=folder, env=ENVIRONMENT
        )
    while not list(folder.glob(".o.csv.*")) and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    assert process.wait() == 128 + number
    assert sorted(p.name for p in folder.iterdir()) == ["r.json", "s.parquet"]


@pytest.mark.parametrize("ending", ["csv", "npz", "jsonl"])
def test_a_score_of_weight_zero_need_not_be_there(folder, ending):
    """Not by any command that reads a rule, whether or not other files have the column."""
    rule = dm.Rule((0.0, -0.5), -0.25, score_names=("msp", "knn_conf"), confidence=("knn_conf",))
    rule.save(folder / "r.json")
    table = make_table(1)
    expected = [-0.5 * row.knn_conf <= -0.25 for row in rows_of(table)]
    for name, kept in {"with": table, "without": table.drop_columns(["msp"])}.items():
        write_table(kept, folder / f"{name}.{ending}")
        out = f"{name}-out.{'npz' if ending == 'npz' else 'parquet'}"
        done = run_here(folder, "apply", "r.json", f"{name}.{ending}", "-o", out)
        assert done.returncode == 0, done.stderr
        assert read_back(folder / out)["accept"].to_pylist() == expected
    columns = ["--loss", "is_wrong", "--ood", "is_ood", "--json"]
    data = [f"with.{ending}", f"without.{ending}"]
    for command_, more in {"evaluate": [], "certify": [], "prior": ["--deployed", data[1]]}.items():
        both = [run_here(folder, command_, "r.json", name, *columns, *more) for name in data]
        assert [done.returncode for done in both] == [0, 0], both[1].stderr
        one, other = (json.loads(done.stdout) for done in both)
        # The rule said is that of the columns that are there.
        assert other.pop("rule")["score_names"] == ["knn_conf"]
        assert {name: one[name] for name in other} == other


@pytest.mark.parametrize("given", ["knn,msp", "knn,other"])
def test_columns_of_the_rule_do_not_change_places(folder, given):
    (folder / "s.csv").write_text("msp,knn,other\n1.5,0.1,0\n0.1,1.5,0\n")
    for command_name in ("apply", "evaluate"):
        done = run(folder, command_name, "r.json", "s.csv", "--scores", given)
        assert (done.returncode, done.stdout) == (2, "")
        assert "'knn' would be read in place of 'msp'" in done.stderr
        assert "The rule's order is msp,knn" in done.stderr
    others = run(folder, "apply", "r.json", "s.csv", "--scores", "other,knn")
    assert [line[-4:] for line in others.stdout.split()[1:]] == ["true", "true"]


def test_columns_called_alike_are_refused(folder):
    (folder / "s.csv").write_text("msp,knn,x,x\n1,1,1,1\n")
    done = run(folder, "apply", "r.json", "s.csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert "several columns called 'x'" in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_told_without_a_traceback(folder):
    write_table(make_table(), folder / "s.csv")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("apply", "r.json", "s.csv"),
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("demur: ") and "No space left" in done.stderr
    assert "Traceback" not in done.stderr
