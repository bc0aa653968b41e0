"""Commands on a folder that memory does not hold, next to a plain scan of its columns.

``python -m benchmarks lake-commands --rows 1e8`` writes ten days of Parquet files, runs `tune`,
`certify`, `evaluate --by day` and `report` on them, each in a process of its own, and prints CPU
time, peak memory (resident set) and the CPU time in scans. A scan is a process of its own, too,
that imports duckdb and adds up the four columns that the commands read. demur is compiled to
bytecode first, as it is where it was installed.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import demur
from benchmarks.out_of_core import columns

DAYS = 10
_CHUNK = 1_000_000
_COLUMNS = ["--loss", "wrong", "--ood", "ood"]
_MODEL = ["--scores", "risk,far", *_COLUMNS, "--min-tpr", ".8", "--max-fpr", ".2"]
_SCAN = """
import duckdb
rows = duckdb.sql("SELECT sum(risk), sum(far), sum(wrong::INT), sum(ood::INT) FROM {table}")
print(rows.fetchall())
"""


@dataclass(frozen=True)
class Run:
    """What a process took."""

    cpu: float
    wall: float
    peak: float
    told: str


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks lake-commands", description=__doc__)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--rows", type=number, default=100_000_000)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", nargs="+", help="of tune, certify, evaluate, report")
    parser.add_argument("--prepare", action="store_true", help="write the files and no more")
    options = parser.parse_args(arguments)
    lake = options.folder / f"demur-lake-{options.rows}"
    _write(lake, options.rows, seed=0)
    fresh = options.folder / "demur-lake-fresh"
    _write(fresh, _CHUNK, seed=10**12)
    if options.prepare:
        return
    compileall.compile_dir(Path(demur.__file__).parent, quiet=2)
    with tempfile.TemporaryDirectory() as place:
        _print_table(_commands(lake, fresh, Path(place), options), lake, options)


def _write(lake: Path, rows: int, *, seed: int) -> None:
    """Write days of rows like those of `out_of_core`; done once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if lake.exists():
        return
    partial = lake.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for day in range(DAYS):
        folder = partial / f"day={day}"
        folder.mkdir(parents=True)
        part = rows // DAYS
        schema = pa.schema(
            {"risk": pa.float32(), "far": pa.float32(), "wrong": pa.bool_(), "ood": pa.bool_()}
        )
        with pq.ParquetWriter(
            folder / "rows.parquet", schema, compression="none", use_dictionary=False
        ) as to:
            for start in range(0, part, _CHUNK):
                rng = np.random.default_rng(seed + day * part + start)
                to.write_table(pa.table(columns(rng, min(_CHUNK, part - start)), schema))
    partial.rename(lake)


def _commands(
    lake: Path, fresh: Path, place: Path, options: argparse.Namespace
) -> dict[str, list[str]]:
    """Return the commands by name; the rule that is judged is of other rows."""
    command = [sys.executable, "-m", "demur"]
    rule, limit = str(place / "rule.json"), ["--memory", options.memory]
    _measured([*command, "tune", str(fresh), *_MODEL, "-o", rule])
    commands = {
        "certify": [*command, "certify", rule, str(lake), *_COLUMNS, *limit],
        "evaluate": [*command, "evaluate", rule, str(lake), *_COLUMNS, "--by", "day", *limit],
        "tune": [*command, "tune", str(lake), *_MODEL, "-o", str(place / "all.json"), "--force"],
        "report": [*command, "report", str(lake), *_MODEL, "-o", str(place / "a.html"), "--force"],
    }
    for name in ("tune", "report"):
        commands[name] += limit
    return {name: commands[name] for name in options.only or commands}


def _print_table(commands: dict[str, list[str]], lake: Path, options: argparse.Namespace) -> None:
    table = f"read_parquet('{lake}/*/*.parquet', hive_partitioning = true)"
    scan = [sys.executable, "-c", _SCAN.format(table=table)]
    size = sum(file.stat().st_size for file in lake.glob("*/*.parquet"))
    print(f"{options.rows:.0e} rows, {size / 1e6:.0f} MB, {os.cpu_count()} cores\n")
    print("| command | CPU s | scans | wall s | peak MB |\n|---|--:|--:|--:|--:|")
    for name, command in {"scan": scan, **commands}.items():
        times = options.repetitions if name in ("scan", "certify") else 1
        # In turns, so that both see the same machine.
        pairs = [(_measured(scan), _measured(command)) for _ in range(times)]
        ratio = statistics.median(own.cpu / other.cpu for other, own in pairs)
        run = min((own for _, own in pairs), key=lambda own: own.cpu)
        print(
            f"| {name} | {run.cpu:.2f} | {ratio:.2f} | {run.wall:.1f} | {run.peak / 1e6:.0f} |",
            flush=True,
        )


def _measured(command: list[str]) -> Run:
    """Run a command; its memory is the largest resident set, which the kernel tells."""
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        told = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    # 3: a bound is not met, which is an answer.
    if process.returncode not in (0, 3):
        raise SystemExit(json.dumps(command) + "\n" + told)
    wall = time.perf_counter() - start
    return Run(used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024.0, told)
