"""Exact tuning on files that memory does not hold, against DuckDB's own histogram of them.

``python -m benchmarks out-of-core --rows 1e7 1e8`` writes Parquet files (float32 scores), tunes on
them, and prints peak memory, CPU time relative to a GROUP BY of DuckDB on one integer key over
the same columns, the rows fetched, and the growth from the first size to the last.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MODELS = {"tpr .8, fpr .2": (0.8, 0.2), "tpr .8, fpr .5": (0.8, 0.5)}
_CHUNK = 1_000_000


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks out-of-core", description=__doc__)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--rows", nargs="+", type=number, default=[10_000_000])
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", choices=["tune", "group-by"], help=argparse.SUPPRESS)
    parser.add_argument("--model", choices=sorted(MODELS), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.only:
        path = str(options.folder)
        found = _group_by(path) if options.only == "group-by" else _tune(path, options)
        print(json.dumps(found | _used()))
        return
    print(f"memory {options.memory}, {os.cpu_count()} cores\n")
    print("| rows | MB | bounds | CPU s | GROUP BY s | ratio | wall s | peak MB | fetched | risk |")
    print("|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in MODELS}
    for rows in options.rows:
        path = generate(options.folder, rows)
        base = _run(path, options, "group-by")
        for name, found in runs.items():
            run = _run(path, options, "tune", name)
            found.append(run)
            print(
                f"| {rows:.0e} | {path.stat().st_size / 1e6:.0f} | {name} | {run['cpu']:.1f} "
                f"| {base['cpu']:.1f} | {run['cpu'] / base['cpu']:.2f}x | {run['wall']:.1f} "
                f"| {run['peak'] / 1e6:.0f} | {run['fetched'] / rows:.2%} | {run['risk']:.6f} |",
                flush=True,
            )
    _growth(options.rows, runs)


def generate(folder: Path, rows: int) -> Path:
    """Write scored rows: two thirds ID with 6 % errors, one third OOD; done once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"demur-out-of-core-{rows}.parquet"
    if path.exists():
        return path
    kinds = {"risk": pa.float32(), "far": pa.float32(), "wrong": pa.bool_(), "ood": pa.bool_()}
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(
        partial, pa.schema(kinds), compression="none", use_dictionary=False
    ) as to:
        for start in range(0, rows, _CHUNK):
            table = columns(np.random.default_rng(start), min(_CHUNK, rows - start))
            to.write_table(pa.table(table, pa.schema(kinds)))
    partial.rename(path)
    return path


def columns(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    """Return rows: two thirds ID with 6 % errors, one third OOD."""
    ood = rng.random(n) < 1 / 3
    doubt = rng.standard_normal(n)
    # A score of errors in (0, 1) that many rows crowd near 0, and a distance.
    risk = 1 / (1 + np.exp(-(1.6 * doubt - 3 + 1.5 * ood)))
    far = np.exp(0.35 * rng.standard_normal(n) + 0.1 * doubt + 0.8 * ood)
    wrong = (rng.random(n) < np.minimum(1.0, risk)) & ~ood
    return {
        "risk": risk.astype(np.float32),
        "far": far.astype(np.float32),
        "wrong": wrong,
        "ood": ood,
    }


def _run(path: Path, options: argparse.Namespace, what: str, model: str = "") -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "out-of-core", "--only", what]
    command += ["--folder", str(path), "--memory", options.memory]
    command += ["--model", model] if model else []
    start = time.perf_counter()
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr)
    result: dict[str, float] = json.loads(found.stdout)
    return result | {"wall": time.perf_counter() - start}


def _group_by(path: str) -> dict[str, float]:
    import duckdb

    place = "least(greatest(floor({}), 0), 1023)::INTEGER"
    key = f"{place.format('risk * 1024')} * 1024 + {place.format('far * 200')}"
    with duckdb.connect() as connection:
        cells = connection.execute(
            f"SELECT {key} AS key, count(*), sum(wrong::INTEGER), sum(ood::INTEGER) "
            f"FROM read_parquet('{path}') GROUP BY key"
        ).fetchnumpy()
    return {"cells": len(cells["key"])}


def _tune(path: str, options: argparse.Namespace) -> dict[str, float]:
    import demur as dm
    from demur.sources.engines.duckdb import DuckDBSource
    from demur.sources.open import Roles

    source = DuckDBSource(
        path, Roles(("risk", "far"), loss="wrong", ood="ood"), memory=_bytes(options.memory)
    )
    fetched = 0
    fetch = source.rows

    def counted(cells):  # type: ignore[no-untyped-def]
        nonlocal fetched
        rows = fetch(cells)
        fetched += len(rows.loss)
        return rows

    source.rows = counted  # type: ignore[method-assign]
    with source:
        tuned = dm.tune(source, dm.TprFprModel(*MODELS[options.model]))
    assert tuned.certificate.status == "optimal"
    return {"fetched": fetched, "risk": tuned.point.selective_risk}


def _used() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024}


def _growth(sizes: list[int], runs: dict[str, list[dict[str, float]]]) -> None:
    if len(sizes) < 2:
        return
    times = sizes[-1] / sizes[0]
    for name, found in runs.items():
        cpu = found[-1]["cpu"] / found[0]["cpu"]
        print(
            f"\n{name}: {times:.3g} times the rows take {cpu:.3g} times the CPU time "
            f"(exponent {math.log(cpu) / math.log(times):.2f}) and "
            f"{found[-1]['peak'] / found[0]['peak']:.2f} times the memory"
        )


def _bytes(text: str) -> int:
    units = {"GB": 10**9, "MB": 10**6}
    for unit, size in units.items():
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * size)
    return int(float(text))
