"""The real executable, and files of every format for it to work on."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

import demur

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(demur.__file__).parents[1])}
FORMATS = ["csv", "parquet", "feather", "arrow", "npz"]


def command(*arguments):
    return [sys.executable, "-m", "demur", *map(str, arguments)]


def run(folder, *arguments, **environment):
    """Run ``demur ...`` in a folder."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        env=ENVIRONMENT | environment,
    )


def make_table(seed=0, n_id=240, n_ood=120):
    rng = np.random.default_rng(seed)
    wrong = rng.random(n_id) < 0.2
    knn = np.r_[rng.normal(0, 1, n_id), rng.normal(2.5, 1, n_ood)]
    label = rng.integers(0, 3, n_id + n_ood)
    return pa.table(
        {
            "image": [f"{i:04d}" for i in range(n_id + n_ood)],
            # Quarters make plenty of ties.
            "msp": np.floor(np.r_[rng.gamma(1 + 2 * wrong), rng.gamma(1.5, size=n_ood)] * 4) / 4,
            "knn": knn,
            "knn_conf": -knn,
            "is_wrong": np.r_[wrong, np.zeros(n_ood, bool)],
            "label": label,
            "pred": (label + np.r_[wrong, np.zeros(n_ood, bool)]) % 3,
            "is_ood": np.r_[np.zeros(n_id, bool), np.ones(n_ood, bool)],
            "set": ["id"] * n_id + ["svhn"] * (n_ood // 3) + ["mnist"] * (n_ood - n_ood // 3),
        }
    )


def write_table(table, path):
    suffix = Path(path).suffix
    if suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    elif suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    elif suffix == ".feather":
        pyarrow.feather.write_feather(table, path)
    elif suffix == ".arrow":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    elif suffix == ".jsonl":
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        columns = {name: table[name].to_numpy() for name in table.column_names}
        np.savez(path, **{n: c.astype(str) if c.dtype == object else c for n, c in columns.items()})


def rows_of(table):
    """Return the rows as plain Python values."""
    return [SimpleNamespace(**row) for row in table.to_pylist()]


def rates(rows, accepts):
    """Return TPR, FPR and selective risk by counting, for a function of a row."""
    id_rows = [row for row in rows if not row.is_ood]
    ood_rows = [row for row in rows if row.is_ood]
    taken = [row for row in id_rows if accepts(row)]
    passed = [row for row in ood_rows if accepts(row)]
    risk = sum(row.is_wrong for row in taken) / len(taken) if taken else float("nan")
    return len(taken) / len(id_rows), len(passed) / len(ood_rows), risk


@contextmanager
def heard(number):
    """Let what is started here hear a signal, which is ignored, say, under nohup."""
    before = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, before)


def run_here(folder, *arguments, given=b""):
    """Run ``demur ...`` in a folder as `run` does, but in this process, which takes no start-up.

    `given` is its standard input.
    """
    from demur.cli import main

    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr, warnings.showwarning, os.getcwd()
    caught = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in caught}
    try:
        os.chdir(folder)
        sys.argv = ["demur", *map(str, arguments)]
        sys.stdin, (sys.stdout, sys.stderr) = io.TextIOWrapper(io.BytesIO(given), "utf-8"), streams
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr, warnings.showwarning, place = kept
        os.chdir(place)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    out, err = (stream.buffer.getvalue().decode() for stream in streams)
    return subprocess.CompletedProcess(arguments, code, out, err)
