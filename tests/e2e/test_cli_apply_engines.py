"""`demur apply --engine`: Spark and Dask decide as `Rule.accept` does, whoever is killed."""

import json
import os
import shutil
import signal
import subprocess
import time
from decimal import Decimal
from pathlib import Path

import engines
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import ENVIRONMENT, command, run, run_here

import demur as dm
from demur.learn import fit

ROWS = 60


def part(seed, rows=ROWS):
    """Return rows whose scores are of every type, and of which some lack one."""
    rng = np.random.default_rng(seed)
    msp, knn = np.round(rng.gamma(2, size=rows), 3), rng.normal(size=rows)
    knn[:5] = [np.nan, np.inf, -np.inf, -0.0, 1e308]
    stored = {
        0: pa.array([None if k == 7 else Decimal(f"{x:.3f}") for k, x in enumerate(msp)]),
        1: pa.array(msp.astype(np.float32)),
        2: pa.array(np.round(msp).astype(np.int8)),
        3: pa.array(np.round(msp).astype(np.uint64)),
    }[seed % 4]
    return pa.table(
        {
            "n": range(rows),
            "a b": rng.normal(size=rows),
            "msp": stored,
            "kNN": pa.array(knn),
            "knn": pa.array(np.zeros(rows)),
            "when": pa.array(range(rows), pa.timestamp("us")),
        }
    )


def values(table, names):
    columns = [
        [np.nan if value is None else float(value) for value in table[name].to_pylist()]
        for name in names
    ]
    return np.column_stack(columns)


def learned():
    rng = np.random.default_rng(3)
    ood = rng.random(400) < 0.4
    scores = rng.normal(size=(400, 3)) + ood[:, None]
    names = {"score_names": ("msp", "kNN", "a b"), "confidence": ("a b",)}
    sample = dm.Sample(scores[~ood], rng.random((~ood).sum()) < 0.3, scores[ood], **names)
    found = fit(sample, method="logistic")
    return found.rule(dm.tune(found.sample, dm.TprFprModel(0.7, 0.6)).rule)


RULES = {
    "plain": lambda: dm.Rule((0.6, 0.8), 1.25, score_names=("msp", "kNN")),
    "boundary": lambda: dm.Rule((1.0, 0.0), 1.0, 0.0, score_names=("msp", "gone")),
    "confidence": lambda: dm.Rule(
        (0.6, -0.8), 0.5, score_names=("msp", "a b"), confidence=("a b",)
    ),
    "box": lambda: dm.BoxRule((1.0, 1.0), ("msp", "kNN"), limits=(2.0, 0.5)),
    "nothing": lambda: dm.Rule((0.6, 0.8), -np.inf, score_names=("msp", "kNN")),
    "learned": learned,
}


def lake(folder, files=8, rows=ROWS):
    for i in range(files):
        day = folder / "lake" / f"day={i // 10:02}"
        day.mkdir(parents=True, exist_ok=True)
        pq.write_table(part(i, rows), day / f"part-{i:03}.parquet", row_group_size=25)
    (folder / "lake" / "_SUCCESS").write_text("")


def results(folder):
    return {
        str(path.relative_to(folder)): pq.ParquetFile(path).read()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "_SUCCESS"
    }


def check(folder, rule, told):
    """Assert that all files are there, row by row as they were, with the rule's decisions."""
    found, total = results(folder / "out"), 0
    assert list(found) == [f"day={i // 10:02}/part-{i:03}.parquet" for i in range(len(found))]
    names = [name for name in rule.score_names if name != "gone"]
    for i, table in enumerate(found.values()):
        before = part(i, table.num_rows)
        kept = dm.Rule(rule.direction[:1], *rule_rest(rule)) if "gone" in rule.score_names else rule
        expected = kept.accept(values(before, names), missing="reject")
        assert table["accept"].to_pylist() == expected.tolist(), (i, rule)
        for name in ("n", "a b", "when"):
            assert table[name].equals(before[name])
        np.testing.assert_array_equal(values(table, ["msp", "kNN"]), values(before, ["msp", "kNN"]))
        total += int(expected.sum())
    assert (told["accepted"], told["rows"]) == (total, sum(t.num_rows for t in found.values()))


def rule_rest(rule):
    return rule.threshold, rule.tau


@pytest.mark.parametrize("engine", ["dask", "spark"])
def test_every_rule_decides_as_it_does_here(engine, tmp_path):
    if engine == "spark":
        engines.spark_session()
    lake(tmp_path)
    for name, made in RULES.items():
        rule = made()
        rule.save(tmp_path / "r.json")
        given = ["apply", "r.json", "lake", "-o", "out", "--missing", "reject", "--json", "--force"]
        done = run_here(tmp_path, *given, "--engine", engine)
        assert done.returncode == 0, (name, done.stderr)
        told = json.loads(done.stdout)
        check(tmp_path, rule, told)
        here = run_here(tmp_path, *given)
        work = told.pop("work"), (same := json.loads(here.stdout)).pop("work")
        assert same == told
        rows = {"memory": told["rows"], engine: 0}
        assert [one["rows_fetched"] for one in work] == [rows[one["engine"]] for one in work]
        assert [one["engine"] for one in work] == [engine, "memory"]
        assert here.stderr == done.stderr
        check(tmp_path, rule, told)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake", "out", "r.json"]


@pytest.mark.parametrize("engine", ["dask", "spark"])
def test_what_is_refused(engine, tmp_path):
    if engine == "spark":
        engines.spark_session()
    lake(tmp_path)
    RULES["plain"]().save(tmp_path / "r.json")
    old = names_in(tmp_path / "lake")

    def refused(words, *arguments):
        done = run_here(tmp_path, "apply", "r.json", *arguments, "--engine", engine)
        assert done.returncode == 2 and words in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert names_in(tmp_path / "lake") == old
        left = {path.name for path in tmp_path.iterdir()} - {"lake", "r.json", "one.parquet"}
        assert left <= {"out"}, left

    pq.write_table(part(1), tmp_path / "one.parquet")
    refused("is about many files", "one.parquet", "-o", "o.parquet")
    refused("many files need -o", "lake")
    refused("holds DATA itself", "lake", "-o", "lake")
    refused("lies in DATA", "lake", "-o", "lake/out")
    refused("--missing reject", "lake", "-o", "out")
    (tmp_path / "out").mkdir()
    refused("--force", "lake", "-o", "out", "--missing", "reject")
    (tmp_path / "out").rmdir()
    text = part(1).set_column(3, "kNN", pa.array(["1.0"] * ROWS))
    place = tmp_path / "lake/day=00/part-003.parquet"
    pq.write_table(text, place)
    refused("'kNN' holds string", "lake", "-o", "out", "--missing", "reject")
    pq.write_table(part(1).drop_columns(["kNN", "knn"]), place)
    refused("no column 'kNN'", "lake", "-o", "out", "--missing", "reject")
    content = bytearray(pq_bytes(part(3), tmp_path))
    content[4:120] = bytes(116)
    place.write_bytes(content)
    refused("part-003.parquet", "lake", "-o", "out", "--missing", "reject")
    pq.write_table(part(3), place)
    if engine == "spark":
        pa.csv.write_csv(part(3).select(["msp", "kNN"]), tmp_path / "lake" / "x.csv")
        done = run_here(tmp_path, "apply", "r.json", "lake", "-o", "out", "--engine", "spark")
        assert done.returncode == 2 and "is CSV: Spark decides Parquet" in done.stderr


def names_in(folder):
    return {str(path) for path in folder.rglob("*")}


def pq_bytes(table, folder):
    pq.write_table(table, folder / "bytes")
    content = (folder / "bytes").read_bytes()
    (folder / "bytes").unlink()
    return content


def applying(folder, engine, **environment):
    given = ["apply", "r.json", "lake", "-o", "out", "--missing", "reject", "--resume", "--json"]
    return subprocess.Popen(
        command(*given, "--engine", engine),
        cwd=folder,
        env=ENVIRONMENT | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def noted(folder):
    log = folder / ".out.resume" / "done.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line)["name"] for line in lines[1:] if line.endswith("}")]


def wait_for(process, reached):
    """Wait until something is so, or the process has ended."""
    while not reached():
        if process.poll() is not None:
            raise AssertionError(process.communicate()[1])
        time.sleep(0.02)


def kill_and_resume(folder, engine, **environment):
    """Kill a run in the middle, and let others go on."""
    process = applying(folder, engine, **environment)
    wait_for(process, lambda: len(noted(folder)) >= 3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    process.stderr.close()
    assert not (folder / "out").exists()
    before = noted(folder)
    results_there = folder / ".out.resume" / "results"
    stamps = {name: (results_there / name).stat().st_mtime_ns for name in before}
    # Another rule, another column, another file: none of these goes on.
    dm.Rule((0.6, 0.8), 1.5, score_names=("msp", "kNN")).save(folder / "other.json")
    given = ["lake", "-o", "out", "--missing", "reject", "--resume", "--engine", engine]
    for arguments in (["other.json", *given], ["r.json", *given, "--column", "x"]):
        done = run(folder, "apply", *arguments, **environment)
        assert done.returncode == 2 and "begun with another rule" in done.stderr, done.stderr
    process = applying(folder, engine, **environment)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert f"{len(before)} of " in err and "were decided before" in err
    for name, stamp in stamps.items():
        assert (folder / "out" / name).stat().st_mtime_ns == stamp
    assert not (folder / ".out.resume").exists()
    return json.loads(out)


def cluster_of(client):
    return {"DASK_SCHEDULER_ADDRESS": client.scheduler.address}


def test_a_killed_run_goes_on_with_dask(tmp_path):
    rule = RULES["plain"]()
    rule.save(tmp_path / "r.json")
    lake(tmp_path, 150, 300)
    with engines.dask_client() as client:
        told = kill_and_resume(tmp_path, "dask", **cluster_of(client))
    check(tmp_path, rule, told)


def test_a_killed_worker_of_dask_changes_nothing(tmp_path):
    rule = RULES["plain"]()
    rule.save(tmp_path / "r.json")
    lake(tmp_path, 150, 300)
    with engines.dask_client() as client:
        before = client.run(os.getpid)
        process = applying(tmp_path, "dask", **cluster_of(client))
        wait_for(process, lambda: len(noted(tmp_path)) >= 2)
        os.kill(next(iter(before.values())), signal.SIGKILL)
        out, err = process.communicate()
        assert process.returncode == 0, err
        client.wait_for_workers(2)
        assert set(client.run(os.getpid).values()) != set(before.values())
    check(tmp_path, rule, json.loads(out))


SPARK = {"SPARK_LOCAL_IP": "127.0.0.1"}
QUIET = "--conf spark.ui.enabled=false --conf spark.driver.memory=1g"


def test_a_killed_run_goes_on_with_spark(tmp_path):
    engines.need_java()
    rule = RULES["plain"]()
    rule.save(tmp_path / "r.json")
    lake(tmp_path, 24)
    arguments = {"PYSPARK_SUBMIT_ARGS": f"--master local[2] {QUIET} pyspark-shell"}
    check(tmp_path, rule, kill_and_resume(tmp_path, "spark", **SPARK, **arguments))


def executors():
    """Return the processes of executors of Spark on this machine."""
    found = subprocess.run(["ps", "-ww", "-eo", "pid,args"], capture_output=True, text=True).stdout
    lines = [line for line in found.splitlines() if "CoarseGrainedExecutorBackend" in line]
    return {int(line.split()[0]) for line in lines if "/java" in line or " java" in line}


def test_a_killed_executor_of_spark_changes_nothing(tmp_path):
    """A cluster of two executors, processes of their own, of which one is killed at work."""
    engines.need_java()
    import pyspark

    rule = RULES["plain"]()
    rule.save(tmp_path / "r.json")
    lake(tmp_path, 24)
    master = f"--master local-cluster[2,1,1024] --conf spark.executor.memory=768m {QUIET}"
    environment = {
        "SPARK_HOME": os.path.dirname(pyspark.__file__),
        "PYSPARK_SUBMIT_ARGS": f"{master} pyspark-shell",
    }
    work = Path(environment["SPARK_HOME"]) / "work"
    others, before = executors(), set(work.glob("app-*"))
    process = applying(tmp_path, "spark", **SPARK, **environment)
    wait_for(process, lambda: len(noted(tmp_path)) >= 2)
    ours = executors() - others
    assert len(ours) == 2
    os.kill(min(ours), signal.SIGKILL)
    out, err = process.communicate()
    # Executors of such a cluster write where Spark is installed.
    for folder in set(work.glob("app-*")) - before:
        shutil.rmtree(folder, ignore_errors=True)
    assert process.returncode == 0, err
    check(tmp_path, rule, json.loads(out))
