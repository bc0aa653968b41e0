"""What tuning on a cluster would take, from the rates of a real run on this machine.

``python -m benchmarks scale-plan --engine spark --rows 1e7`` tunes on generated rows with Spark,
Dask or DuckDB, prints what every pass took for a row, and from that an estimate for more rows on a
cluster: nothing of the estimate is measured, and all its inputs are printed. With ``--workers 2``
executors of Spark or workers of Dask are processes of their own, and ``--kill`` ends one of them
by SIGKILL during the first histogram. How many tasks a pass was, and how much was sent to every
process for it, is counted; ``--split 4`` makes parts of 4 MB of the file, and with ``--fixed``
Spark does not adapt the number of partitions after a shuffle.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from benchmarks.out_of_core import generate

PASSES = ("overview", "sample", "histogram", "rows", "tally")
# How much finer bins become, and by how much fewer rows are then marked.
_REFINE = 8
_GROUP_BYTES = 48
_SPLIT = 128e6


@dataclass
class Pass:
    """What one question took, over all times it was asked."""

    times: int = 0
    cpu: float = 0.0
    bytes: int = 0
    rows: int = 0
    sent: int = 0
    tasks: int = 0


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale-plan", description=__doc__)
    number = lambda text: int(float(text))  # noqa: E731
    parser.add_argument("--engine", choices=["spark", "dask", "duckdb"], default="spark")
    parser.add_argument("--rows", type=number, default=10_000_000)
    parser.add_argument("--targets", nargs="+", type=number, default=[10**9, 10**10, 10**11])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--network", type=float, default=1e9, help="bytes a second and node")
    parser.add_argument("--memory", type=number, default=2 * 10**9)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--workers", type=int, default=0, help="processes of a cluster here")
    parser.add_argument("--kill", action="store_true", help="end one of them in the middle")
    parser.add_argument("--split", type=float, default=16, help="MB of a part of the file")
    parser.add_argument("--fixed", action="store_true", help="Spark adapts no partitions")
    options = parser.parse_args(arguments)
    path = generate(options.folder, options.rows)
    with _cluster(options):
        passes = _measure(path, options)
    width = path.stat().st_size / options.rows
    _print_rates(passes, options, width)
    _print_plan(passes, options, width)


def _measure(path: Path, options: argparse.Namespace) -> dict[str, Pass]:
    import demur as dm

    data: Any = str(path)
    if options.engine == "dask":
        import dask.dataframe as dd

        data = dd.read_parquet(
            path, split_row_groups="adaptive", blocksize=int(options.split * 1e6)
        )
        print(f"{data.npartitions} partitions of Dask")
    source: Any = dm.open_source(
        data,
        ["risk", "far"],
        loss="wrong",
        ood="ood",
        engine=None if options.engine == "dask" else options.engine,
        memory=options.memory,
    )
    # Starting the engine is no part of the rates.
    source.overview()
    source.__dict__.pop("_overview", None)
    passes = {name: Pass() for name in PASSES}
    for name, found in passes.items():
        setattr(source, name, _watched(getattr(source, name), found))
    spark = options.engine == "spark"
    if options.kill:
        source.histogram = _while_one_dies(source.histogram, 2.0 if spark else 0.1)
    tuned = dm.tune(source, dm.TprFprModel(0.8, 0.2))
    print(f"{tuned.point}, {tuned.certificate.status}\n")
    return passes


@contextmanager
def _cluster(options: argparse.Namespace) -> Iterator[None]:
    """Have a cluster of processes on this machine, if one is asked for."""
    if options.workers and options.engine == "spark":
        import pyspark

        os.environ["SPARK_HOME"] = os.path.dirname(pyspark.__file__)
        os.environ["PYSPARK_SUBMIT_ARGS"] = (
            f"--master local-cluster[{options.workers},1,2048] --conf spark.executor.memory=1536m "
            f"--conf spark.sql.files.maxPartitionBytes={int(options.split * 2**20)} "
            f"--conf spark.sql.adaptive.enabled={str(not options.fixed).lower()} "
            "--conf spark.ui.enabled=false "
            "--conf spark.driver.memory=2g pyspark-shell"
        )
    if options.workers and options.engine == "dask":
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=options.workers, threads_per_worker=1) as cluster,
            Client(cluster),
        ):
            yield
        return
    yield


_lost = 0.0
"""CPU seconds of processes that were killed."""


def _while_one_dies(question: Any, seconds: float) -> Any:
    """Ask a question the first time while a worker process is killed, after some seconds."""
    import psutil

    def workers() -> list[Any]:
        found = psutil.Process().children(recursive=True)
        marks = ("CoarseGrainedExecutorBackend", "multiprocessing.spawn", "multiprocessing-fork")
        alive = [one for one in found if one.status() != psutil.STATUS_ZOMBIE]
        return [one for one in alive if any(mark in " ".join(one.cmdline()) for mark in marks)]

    def kill() -> None:
        global _lost
        # The one that works most: a tracker of resources does nothing.
        victim = max(workers(), key=lambda one: sum(one.cpu_times()[:2]))
        _lost += sum(victim.cpu_times()[:2])
        os.kill(victim.pid, signal.SIGKILL)
        print(f"killed process {victim.pid} after {time.monotonic() - start:.1f} s of a histogram")

    start, killer = 0.0, threading.Timer(seconds, kill)

    def ask(*arguments: Any, **options: Any) -> Any:
        nonlocal start
        if not start:
            start = time.monotonic()
            killer.start()
        answer = question(*arguments, **options)
        killer.cancel()
        return answer

    return ask


def _watched(question: Any, found: Pass) -> Any:
    def ask(*arguments: Any, **options: Any) -> Any:
        start, tasks = _cpu(), _tasks_done()
        answer = question(*arguments, **options)
        spent = _cpu() - start
        found.tasks += _tasks_done() - tasks
        found.sent += _size(arguments) + _size(tuple(options.values()))
        # The overview is kept after the first time.
        found.times += spent > 0.01
        found.cpu += spent
        found.bytes += _size(answer)
        found.rows += len(answer.loss) if hasattr(answer, "group") else 0
        return answer

    return ask


def _cpu() -> float:
    """Return the CPU seconds of this process and of those it started."""
    import psutil

    spent = time.process_time() + _lost
    for child in psutil.Process().children(recursive=True):
        spent += sum(child.cpu_times()[:2])
    return spent


def _tasks_done() -> int:
    """Return how many tasks Spark or workers of Dask have finished, as far as that is told."""
    if "pyspark" in sys.modules:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        if session is None:
            return 0
        told = session.sparkContext.statusTracker()
        jobs = filter(None, map(told.getJobInfo, told.getJobIdsForGroup()))
        stages = {stage for job in jobs for stage in job.stageIds}
        return sum(info.numCompletedTasks for info in map(told.getStageInfo, stages) if info)
    if "distributed" in sys.modules:
        from distributed import get_client

        return len(get_client().get_task_stream())
    return 0


def _size(answer: Any) -> int:
    if hasattr(answer, "nbytes"):
        return int(answer.nbytes)
    if is_dataclass(answer):
        return sum(_size(getattr(answer, field.name)) for field in fields(answer))
    return sum(map(_size, answer)) if isinstance(answer, (tuple, list)) else 0


def _print_rates(passes: dict[str, Pass], options: argparse.Namespace, width: float) -> None:
    print(f"{options.engine}, {options.rows:.0e} rows of {width:.1f} bytes in Parquet\n")
    print("| pass | times | tasks | CPU ns a row | sent to each process | brought here |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, found in passes.items():
        rate = found.cpu / max(found.times, 1) / options.rows * 1e9
        sizes = f"{found.sent / 1e6:.2f} MB | {found.bytes / 1e6:.1f} MB"
        print(f"| {name} | {found.times} | {found.tasks} | {rate:.0f} | {sizes} |")
    share = passes["rows"].rows / options.rows
    print(f"\nrows fetched: {passes['rows'].rows:,} ({share:.2%})\n")


def _print_plan(passes: dict[str, Pass], options: argparse.Namespace, width: float) -> None:
    from demur.tuning.streamed.plan import StreamPlan

    print(
        f"Estimate for {options.nodes} nodes of {options.cores} cores and "
        f"{options.network / 1e9:g} GB/s, {_SPLIT / 1e6:.0f} MB a task, "
        f"{options.memory / 1e9:g} GB here\n"
    )
    print("| rows | passes | read | between nodes | brought here | CPU hours | minutes |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    rate = {name: one.cpu / max(one.times, 1) / options.rows for name, one in passes.items()}
    fetched_share = passes["rows"].rows / options.rows
    cells = passes["histogram"].bytes / max(passes["histogram"].times, 1)
    for rows in options.targets:
        fetched = rows * fetched_share
        limit = StreamPlan.of(rows, 2, options.memory).fetched
        finer = max(0, math.ceil(math.log(fetched / limit, _REFINE)))
        fetched = min(fetched, limit)
        times = {name: max(1, one.times) for name, one in passes.items()}
        times["histogram"] += finer
        times["rows"] += finer
        tasks = max(1.0, rows * width / _SPLIT)
        # Every task hands over each of its cells once.
        moved = tasks * min(rows / tasks, cells / _GROUP_BYTES) * _GROUP_BYTES * times["histogram"]
        cpu = sum(rate[name] * count for name, count in times.items()) * rows
        here = cells * times["histogram"] + fetched * 40
        busy = min(tasks, options.nodes * options.cores)
        seconds = cpu / busy + moved / (options.nodes * options.network) + here / options.network
        print(
            f"| {rows:.0e} | {sum(times.values())} | {_bytes(rows * width * sum(times.values()))} "
            f"| {_bytes(moved)} | {_bytes(here)} | {cpu / 3600:.1f} | {seconds / 60:.1f} |"
        )


def _bytes(size: float) -> str:
    for unit, least in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if size >= least:
            return f"{size / least:.3g} {unit}"
    return f"{size:.0f} B"
