"""Every command on rows that stay where they are: what it says of its work, and how it ends."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from commands import ENVIRONMENT, heard, run

import demur as dm

COLUMNS = ["--loss", "wrong", "--ood", "ood"]
BOUNDS = ["--min-tpr", ".7", "--max-fpr", ".4"]
PAIR = ["--scores", "a,b"]
DUCKDB = ["--engine", "duckdb"]
ONCE = ["--folds", "2", "--replicates", "0"]
COMMANDS = {
    "tune": ["tune", "lake", *PAIR, *COLUMNS, *BOUNDS, *DUCKDB, "-o", "new.json"],
    "page": ["tune", "lake", *PAIR, *COLUMNS, *BOUNDS, *DUCKDB, "--report", "page.html"],
    "certify": ["certify", "rule.json", "lake", *COLUMNS, *DUCKDB],
    "evaluate": ["evaluate", "rule.json", "lake", *COLUMNS, *DUCKDB, "--by", "day"],
    "compare": ["compare", "lake", "--scores", "a", *PAIR, *COLUMNS, *BOUNDS, *DUCKDB],
    "prior": ["prior", "rule.json", "lake", "--ood", "ood", "--deployed", "lake", *DUCKDB],
    "plan": ["plan", "lake", *PAIR, *COLUMNS, *BOUNDS, *DUCKDB, "--draws", "2"],
    "estimate": ["estimate", "lake", *PAIR, *COLUMNS, *BOUNDS, *DUCKDB, *ONCE],
    "report": ["report", "lake", *PAIR, *COLUMNS, *BOUNDS, *DUCKDB, "-o", "page.html"],
    "watch": ["watch", "rule.json", "lake/0.parquet", "lake/1.parquet", "--state", "watch.json"],
    "watch there": ["watch", "rule.json", "lake", *DUCKDB, "--by", "day", "--state", "watch.json"],
    "apply": ["apply", "rule.json", "lake", "-o", "decided"],
}
COUNTED = [name for name in COMMANDS if name not in ("watch", "apply", "report")]

# A signal soon after the work has begun; the file says when it was sent.
STOPPED = """
import os, pathlib, signal, sys, threading, time
import demur.cli.output as output
enter = output.Progress.__enter__
place, number, delay, *arguments = sys.argv[1:]

def stop():
    pathlib.Path(place).write_text(str(time.time()))
    os.kill(os.getpid(), int(number))

def entered(self):
    threading.Timer(float(delay), stop).start()
    output.Progress.__enter__ = enter
    return enter(self)

output.Progress.__enter__ = entered
sys.argv = ["demur", *arguments]
from demur.cli import main
main()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("stopped")
    (place / "lake").mkdir()
    for day in range(2):
        rng = np.random.default_rng(day)
        ood = rng.random(200_000) < 0.3
        scores = rng.normal(size=(200_000, 2)) + np.outer(ood, [0.7, 1.8])
        wrong = (rng.random(200_000) < 1 / (1 + np.exp(2 - scores[:, 0]))) & ~ood
        table = {"a": scores[:, 0], "b": scores[:, 1], "wrong": wrong, "ood": ood}
        table = pa.table(table | {"day": np.full(200_000, day)})
        pa.parquet.write_table(table, place / "lake" / f"{day}.parquet")
    dm.Rule((0.6, 0.8), 0.9, score_names=("a", "b")).save(place / "rule.json")
    return place


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent the POSIX way")
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_ends_every_command_at_once_and_leaves_nothing(folder, tmp_path, name, asked):
    before = sorted(os.listdir(folder))
    (tmp_path / "temporary").mkdir()
    sent = tmp_path / "sent"
    with heard(asked):
        done = subprocess.run(
            [sys.executable, "-c", STOPPED, sent, str(int(asked)), "0.02", *COMMANDS[name]],
            cwd=folder,
            env=ENVIRONMENT | {"TMPDIR": str(tmp_path / "temporary")},
            capture_output=True,
            text=True,
        )
    seconds = time.time() - float(sent.read_text())
    assert done.returncode == 128 + asked, done.stderr
    # What was said before the work began is not about its end.
    said = [line for line in done.stderr.splitlines() if "from the card" not in line]
    assert (done.stdout, said) == ("", [f"demur: stopped by {asked.name}"])
    assert seconds < 1
    assert sorted(os.listdir(folder)) == before
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent the POSIX way")
def test_a_signal_while_spark_starts_leaves_no_java(folder, tmp_path):
    """Its place to answer at is removed on the way out, and then it would wait forever."""
    pytest.importorskip("pyspark")
    process = subprocess.Popen(
        [sys.executable, "-m", "demur", *COMMANDS["tune"], "--engine", "spark"],
        cwd=folder,
        env=ENVIRONMENT | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + 60
    while len(of_group(process.pid)) < 2 and time.monotonic() < end:
        time.sleep(0.02)
    assert len(of_group(process.pid)) > 1, "Java did not start"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 143
    # What Java itself has started ends soon after it.
    end = time.monotonic() + 30
    while of_group(process.pid) and time.monotonic() < end:
        time.sleep(0.1)
    left = of_group(process.pid)
    for one in left:
        os.kill(one, signal.SIGKILL)
    assert not left and os.listdir(tmp_path) == []


def of_group(leader):
    """Return the processes of a group that have not ended."""
    told = subprocess.run(
        ["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True
    )
    every = [line.split() for line in told.stdout.splitlines()]
    return [int(pid) for pid, group, stat in every if int(group) == leader and stat[0] != "Z"]


@pytest.mark.parametrize("name", COUNTED)
def test_every_command_says_what_its_engine_did(folder, name):
    extra = [] if name != "page" else ["--force"]
    done = run(folder, *COMMANDS[name], *extra, "--json")
    assert done.returncode in (0, 3, 4), done.stderr
    for made in ("new.json", "page.html", "watch.json", "watch.json.lock"):
        (folder / made).unlink(missing_ok=True)
    work = json.loads(done.stdout)["work"]
    assert work["engine"] == "duckdb"
    # Certifying and evaluating is a single pass; the look for rows that made the rule is none.
    assert work["passes"] >= 1
    assert (work["rows_fetched"] == 0) == (name in ("certify", "evaluate"))
