"""A search ends within a second of Ctrl-C or SIGTERM, in Python and on the command line."""

import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from commands import ENVIRONMENT, heard

from demur._kernels import compiled

pytestmark = [
    pytest.mark.skipif(not compiled.AVAILABLE, reason="the C extension is not built"),
    pytest.mark.skipif(sys.platform == "win32", reason="signals are sent the POSIX way"),
]

# Noise, in all directions: seconds of search.
HARD = """
import signal, sys
import numpy as np
from demur._kernels import _engine, compiled
from demur._kernels.exact import Goal

def hard(n=500_000):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2 * n, 2))
    id = (np.arange(2 * n) < n).astype(np.int64)
    loss = id * (rng.random(2 * n) < 0.5)
    return compiled.prepare(scores, id, 1 - id[None], loss)

def goal(n=500_000):
    bounds = n // 5, np.array([3 * n // 10]), np.zeros((1, 2), np.int64)
    return Goal(np.array([1, 0, 0]), True, *bounds)

CALLS = {
    "search": lambda tree: compiled.search(tree, (0, 1, 2, 3), goal()),
    "directions": lambda tree: compiled.grid(tree, angles(), goal(), each=True),
    "frontier": lambda tree: compiled.frontier(tree, (0, 1, 2, 3), *levels()),
}

def angles(count=1_000_000):
    turn = np.linspace(0, 2 * np.pi, count, endpoint=False)
    return np.column_stack([np.cos(turn), np.sin(turn)])

def levels(n=500_000):
    return np.arange(1, n, 5000), np.arange(0, n, 5000)
"""
CALLED = """
tree = hard()
print("ready", flush=True)
try:
    CALLS["{name}"](tree)
except {exception}:
    print("stopped", flush=True)
    small = hard(300)
    again = compiled.search(small, (0,), goal(300))
    assert again.status == "optimal"
"""
RAISING = """
class Ended(Exception): ...
def end(*_): raise Ended
signal.signal(signal.SIGTERM, end)
"""
COMMAND = """
def told(*arguments, search=_engine.search):
    print("ready", flush=True)
    return search(*arguments)

_engine.search = told
sys.argv = ["demur", "tune", "s.npz", "--scores", "r,g", "--loss", "wrong", "--ood", "ood",
            "--min-tpr", "0.2", "--max-fpr", "0.3", "--directions", "circle", "-o", "rule.json"]
from demur.cli import main
main()
"""


def stop(code, number, folder=None, **variables):
    """Send a signal to a process that has begun to search; return how and when it ended."""
    with heard(number):
        process = subprocess.Popen(
            [sys.executable, "-c", HARD + code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=ENVIRONMENT | {"DEMUR_ENGINE": "compiled"} | variables,
        )
    try:
        assert process.stdout.readline() == "ready\n", process.stderr.read()
        time.sleep(0.3)
        assert process.poll() is None
        sent = time.perf_counter()
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, out, err, time.perf_counter() - sent


@pytest.mark.parametrize("name", ["search", "directions", "frontier"])
def test_ctrl_c_is_a_keyboard_interrupt(name):
    code = CALLED.format(name=name, exception="KeyboardInterrupt")
    returned, out, err, seconds = stop(code, signal.SIGINT)
    assert (returned, out, err) == (0, "stopped\n", "")
    assert seconds < 1


def test_what_a_handler_raises_ends_a_search():
    code = RAISING + CALLED.format(name="search", exception="Ended")
    returned, out, err, seconds = stop(code, signal.SIGTERM)
    assert (returned, out, err) == (0, "stopped\n", "")
    assert seconds < 1


def test_sigterm_without_a_handler_ends_the_process():
    code = CALLED.format(name="search", exception="BaseException")
    returned, out, err, seconds = stop(code, signal.SIGTERM)
    assert (returned, out, err) == (-signal.SIGTERM, "", "")
    assert seconds < 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_ends_with_one_line(tmp_path, number):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(1_000_000, 2))
    ood = np.arange(1_000_000) >= 500_000
    wrong = (rng.random(1_000_000) < 0.5) & ~ood
    np.savez(tmp_path / "s.npz", r=scores[:, 0], g=scores[:, 1], wrong=wrong * 1.0, ood=ood)
    returned, out, err, seconds = stop(COMMAND, number, tmp_path)
    assert (returned, out) == (128 + number, "")
    assert err.splitlines() == [f"demur: stopped by {number.name}"]
    assert seconds < 1
    assert [path.name for path in tmp_path.iterdir()] == ["s.npz"]


PASS = """
from demur.sources.engines.duckdb import DuckDBSource

def told(self, frame, collect=DuckDBSource._collect):
    print("ready", flush=True)
    # A pass of DuckDB that hears of no signal for a while.
    return collect(self, frame)

DuckDBSource._collect = told
sys.argv = ["demur", "tune", "many", "--scores", "r,g", "--loss", "wrong", "--ood", "ood",
            "--min-tpr", "0.2", "--max-fpr", "0.3", "-o", "rule.json"]
from demur.cli import main
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_pass_of_an_engine_ends_with_one_line(tmp_path, number):
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "many").mkdir()
    with duckdb.connect() as connection:
        rows = (
            "SELECT random() r, random() g, i % 5 = 0 wrong, i % 3 = 0 ood FROM range(400000) t(i)"
        )
        for part in range(16):
            target = tmp_path / "many" / f"{part}.parquet"
            connection.execute(f"COPY ({rows}) TO '{target}' (COMPRESSION ZSTD)")
    (tmp_path / "temporary").mkdir()
    temporary = str(tmp_path / "temporary")
    returned, out, err, seconds = stop(PASS, number, tmp_path, TMPDIR=temporary)
    # A quick machine has begun another pass.
    assert returned == 128 + number and set(out.split()) <= {"ready"}
    assert err.splitlines() == [f"demur: stopped by {number.name}"]
    assert seconds < 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["many", "temporary"]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.fixture
def alarms():
    """Count signals that arrive every few milliseconds, and are handled by doing nothing."""
    count = []
    before = signal.signal(signal.SIGALRM, lambda *_: count.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    yield count
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def budgeted():
    defined = {}
    exec(HARD, defined)
    tree, goal = defined["hard"](10_000), defined["goal"](10_000)
    return lambda: compiled.search(tree, (0, 1, 2, 3), goal, budget=40_000)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_signals_that_raise_nothing_change_nothing(alarms):
    search = budgeted()
    found = search()
    assert alarms
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert same(found, search())


def test_searches_in_other_threads_go_on(alarms):
    search = budgeted()
    found = []
    threads = [threading.Thread(target=lambda: found.append(search())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alarms
    assert len(found) == 2 and same(*found) and same(found[0], search())
