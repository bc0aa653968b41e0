"""Exact tuning on files that memory does not hold, against DuckDB's own histogram of them.

``python -m benchmarks out-of-core --rows 1e7 1e8`` writes Parquet files (float32 scores), tunes on
them, and prints peak memory, CPU time relative to a GROUP BY of DuckDB on one integer key over
the same columns, the rows fetched, and the growth from the first size to the last. ``--shape``
chooses rows that are hard to count in cells: tails, many decades, ties, atoms. Bounds that no rule
meets are asked for as well there: it is proven, and what is attainable instead is searched for.
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
from typing import Any

import numpy as np
from scipy.special import ndtr

MODELS = {"tpr .8, fpr .2": (0.8, 0.2), "tpr .8, fpr .5": (0.8, 0.5)}
# Bounds that bind, that do not, and that no rule meets.
HARD_MODELS = {
    "tpr .7, fpr .42": (0.7, 0.42),
    "tpr .7, fpr .6": (0.7, 0.6),
    "tpr .8, fpr .1": (0.8, 0.1),
    "tpr .99, fpr .01": (0.99, 0.01),
}
SHAPES = ("plain", "cauchy", "tangents", "decades", "ties", "atoms", "flat")
_CHUNK = 1_000_000


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks out-of-core", description=__doc__)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--rows", nargs="+", type=number, default=[10_000_000])
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--shape", choices=SHAPES, default="plain")
    parser.add_argument("--only", choices=["tune", "group-by"], help=argparse.SUPPRESS)
    parser.add_argument("--model", choices=[*MODELS, *HARD_MODELS], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.only:
        path = str(options.folder)
        found = _group_by(path) if options.only == "group-by" else _tune(path, options)
        print(json.dumps(found | _used()))
        return
    print(f"memory {options.memory}, {os.cpu_count()} cores\n")
    print("| rows | MB | bounds | CPU s | GROUP BY s | ratio", end=" ")
    print("| wall s | passes | peak MB | fetched | risk |")
    print("|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    models = MODELS if options.shape == "plain" else HARD_MODELS
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in models}
    for rows in options.rows:
        path = generate(options.folder, rows, options.shape)
        base = _run(path, options, "group-by")
        for name, found in runs.items():
            run = _run(path, options, "tune", name)
            found.append(run)
            print(
                f"| {rows:.0e} | {path.stat().st_size / 1e6:.0f} | {name} | {run['cpu']:.1f} "
                f"| {base['cpu']:.1f} | {run['cpu'] / base['cpu']:.2f}x | {run['wall']:.1f} "
                f"| {run['passes']} | {run['peak'] / 1e6:.0f} | {run['fetched'] / rows:.2%} "
                f"| {run['told']} |",
                flush=True,
            )
    _growth(options.rows, runs)


def generate(folder: Path, rows: int, shape: str = "plain") -> Path:
    """Write scored rows; done once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = "" if shape == "plain" else f"{shape}-"
    path = folder / f"demur-out-of-core-{name}{rows}.parquet"
    if path.exists():
        return path
    kinds = {"risk": pa.float32(), "far": pa.float32(), "wrong": pa.bool_(), "ood": pa.bool_()}
    partial = path.with_suffix(".partial")
    with pq.ParquetWriter(
        partial, pa.schema(kinds), compression="none", use_dictionary=False
    ) as to:
        for start in range(0, rows, _CHUNK):
            rng, size = np.random.default_rng(start), min(_CHUNK, rows - start)
            table = columns(rng, size) if shape == "plain" else hard_columns(rng, size, shape)
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


def hard_columns(rng: np.random.Generator, n: int, shape: str) -> dict[str, np.ndarray]:
    """Return rows of a shape: three fifths ID with 15 % errors, two fifths OOD."""
    ood = rng.random(n) < 0.4
    wrong = (rng.random(n) < 0.15) & ~ood
    noise = rng.standard_cauchy if shape == "cauchy" else rng.standard_normal
    risk, far = noise(n) + wrong + 0.5 * ood, noise(n) + 1.5 * ood
    if shape == "tangents":
        # The ranks of normal scores, and tails of Cauchy's law.
        risk, far = (np.tan(np.pi * (ndtr(np.clip(s, -7, 7)) - 0.5)) for s in (risk, far))
    if shape == "decades":
        # From the first to the last of a thousand rows: twelve decades and more.
        risk, far = np.exp(5 * risk), np.exp(5 * far)
    if shape == "ties":
        risk, far = np.round(risk, 1), np.round(4 * far) / 4
    if shape == "atoms":
        # Saturated scores: an atom at the least value, and a tail.
        risk, far = np.expm1(4 * np.maximum(risk, 0.2) - 0.8), np.maximum(far, -0.5)
    if shape == "flat":
        # Atoms that tell nothing: many rules are nearly as good as the best.
        risk = np.where(rng.random(n) < 0.6, 0.0, np.exp(3 * risk))
        far = np.where(rng.random(n) < 0.3 - 0.2 * ood, -1.0, far)
    kinds = {"risk": risk.astype(np.float32), "far": far.astype(np.float32)}
    return kinds | {"wrong": wrong, "ood": ood}


def _run(path: Path, options: argparse.Namespace, what: str, model: str = "") -> dict[str, Any]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "out-of-core", "--only", what]
    command += ["--folder", str(path), "--memory", options.memory]
    command += ["--model", model] if model else []
    start = time.perf_counter()
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr)
    result: dict[str, Any] = json.loads(found.stdout)
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


def _tune(path: str, options: argparse.Namespace) -> dict[str, Any]:
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
        try:
            tuned = dm.tune(source, dm.TprFprModel(*(MODELS | HARD_MODELS)[options.model]))
        except dm.InfeasibleError as error:
            told = "infeasible, about" if "about" in str(error) else "infeasible"
        else:
            told = f"{tuned.point.selective_risk:.6f}"
            if tuned.certificate.status != "optimal":
                told += f" ({tuned.certificate.status})"
    return {"fetched": fetched, "passes": source.work.passes, "told": told}


def _used() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss * 1024}


def _growth(sizes: list[int], runs: dict[str, list[dict[str, Any]]]) -> None:
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
