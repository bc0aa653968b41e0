"""Rows of a Spark DataFrame, classic or Connect, counted by the cluster.

The only place that imports pyspark, in the function `spark`.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur._arrays import IntArray
from demur.core.bins import Axis, Bins
from demur.core.row_draws import KEY_DIGITS
from demur.core.source import Overview
from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.engines.base import PushdownSource
from demur.sources.engines.expressions import KEY, Table, known_frame
from demur.sources.files import Located
from demur.sources.record_batches import arrow

# Rows that are worth a task of their own, which takes some hundredths of a second at least, and
# tasks that every core gets if there are as many.
_TASK_ROWS = 250_000
_TASKS_EACH = 4


class SparkSource(PushdownSource):
    """Rows of a Spark DataFrame, classic or Connect.

    Parameters
    ----------
    frame
        The DataFrame. Every pass computes it anew: persist what is dear to compute, and do not
        draw random numbers in it.
    roles
        Which columns mean what.
    missing
        ``"error"`` refuses missing values, ``"drop"`` leaves such rows out.
    memory
        Bytes to get along with in the driver.
    """

    engine = "spark"

    def overview(self) -> Overview:
        """Look at all rows once; small partitions share tasks from then on.

        Joined are neighbours, without a shuffle. So many are left that a cluster stays at work.
        """
        known = "_overview" in vars(self)
        seen = super().overview()
        if not known:
            tasks = max(_TASKS_EACH * _parallelism(self._native), seen.rows // _TASK_ROWS)
            self._native = self._native.coalesce(tasks)
            self._frame = known_frame(self._native).lazy()
        return seen

    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        with self._passing(), _told():
            found = frame.to_native().toArrow()
        return {name: _values(found.column(name)) for name in found.column_names}

    def _with_key(self, native: Any, name: str) -> Any:
        functions = spark("pyspark.sql.functions")
        text = native[_quoted(name)].cast("string").cast("binary")
        digits = functions.substring(functions.md5(text), 1, KEY_DIGITS)
        return native.withColumn(KEY, functions.conv(digits, 16, 10).cast("double"))

    def _thinned(self, share: float, seed: int) -> Any:
        return self._native.sample(fraction=share, seed=seed)

    def _keys(self, key: IntArray) -> Any:
        table = arrow("pyarrow").table({"key": key})
        return self._native.sparkSession.createDataFrame(table).hint("broadcast")

    def _with_cell(self, rows: nw.LazyFrame[Any], name: str, bins: Bins) -> nw.LazyFrame[Any]:
        """Find the pieces by bisection in an array.

        Conditions for all of them would become a method of more than 8000 bytes, which Java
        interprets and does not compile.
        """
        functions = spark("pyspark.sql.functions")
        temporary = [f"{name}_{score}" for score in self._scores]
        # No score is missing; where Spark knows that, its code is a third as long.
        known = {s: functions.coalesce(s, functions.lit(float("inf"))) for s in self._scores}
        frame = rows.to_native().withColumns(known)
        cut = list(self._scores)
        if bins.weights is not None:
            cut = [f"{piece}_sum" for piece in temporary]
            sums = zip(cut, bins.weights, strict=True)
            frame = frame.withColumns({s: _sum(weights, self._scores) for s, weights in sums})
        frame = frame.withColumns({piece: functions.lit(0) for piece in temporary})
        ways = list(zip(temporary, cut, bins.axes, strict=True))
        for step in _steps(bins):
            # A projection for each, so that no step is written out twice in the next.
            frame = frame.withColumns({p: _next(axis, p, score, step) for p, score, axis in ways})
        frame = frame.withColumns({p: functions.get(_pieces(axis), p) for p, _, axis in ways})
        frame = frame.withColumn(name, _key(bins, cut, temporary))
        extra = [column for column in (*temporary, *cut) if column not in self._scores]
        keyed: nw.LazyFrame[Any] = nw.from_native(frame.drop(*extra)).lazy()
        return keyed


def _parallelism(frame: Any) -> int:
    """Return how many tasks run at a time; of a session elsewhere, how many a shuffle has."""
    session = frame.sparkSession
    if "connect" in type(session).__module__:
        return int(session.conf.get("spark.sql.shuffle.partitions"))
    return int(session.sparkContext.defaultParallelism)


def computed_once(frame: Any, name: str) -> Any:
    """Return the frame with a column of numbers that filters are not pushed through.

    They would bring the whole expression with them. What Spark takes for chance stays where it is.
    """
    functions = spark("pyspark.sql.functions")
    never = functions.monotonically_increasing_id() < 0
    kept = functions.when(never, functions.lit(0).cast("long")).otherwise(functions.col(name))
    return frame.withColumn(name, kept)


def _sum(weights: Sequence[float], scores: Sequence[str]) -> Any:
    """Return one of `Bins.values`."""
    functions = spark("pyspark.sql.functions")
    total = functions.lit(float(weights[0])) * functions.col(scores[0])
    for weight, score in zip(weights[1:], scores[1:], strict=True):
        total = total + functions.lit(float(weight)) * functions.col(score)
    return total


def _steps(bins: Bins) -> list[int]:
    """Return the steps of a search by bisection among the pieces."""
    most = max(len(axis.start) for axis in bins.axes)
    return [1 << k for k in reversed(range((most - 1).bit_length()))]


def _next(axis: Axis, piece: str, score: str, step: int) -> Any:
    """Return the piece after one more step: so many further, if that begins below the score."""
    functions = spark("pyspark.sql.functions")
    starts = functions.array(*(functions.lit(float(start)) for start in axis.start))
    there = functions.get(starts, functions.col(piece) + step)
    reached = functions.col(score) >= functions.coalesce(there, functions.lit(float("inf")))
    return functions.col(piece) + reached.cast("int") * step


def _pieces(axis: Axis) -> Any:
    """Return the pieces as an array of their starts, scales, last places and first bins."""
    functions = spark("pyspark.sql.functions")
    size = np.diff(axis.first)
    return functions.array(
        *(
            functions.struct(
                functions.lit(float(axis.start[k])).alias("start"),
                functions.lit(float(axis.scale[k])).alias("scale"),
                functions.lit(float(size[k] - 1)).alias("last"),
                functions.lit(int(axis.first[k])).cast("long").alias("first"),
            )
            for k in range(len(size))
        )
    )


def _key(bins: Bins, cut: Sequence[str], pieces: Sequence[str]) -> Any:
    """Return `Bins.key`, given the pieces."""
    functions = spark("pyspark.sql.functions")
    key = functions.lit(0).cast("long")
    for axis, value, name in zip(bins.axes, cut, pieces, strict=True):
        piece = functions.col(name)
        apart = (functions.col(value) - piece["start"]) * piece["scale"]
        place = functions.least(functions.greatest(apart, functions.lit(0.0)), piece["last"])
        key = key * axis.bins + functions.floor(place).cast("long") + piece["first"]
    # Never missing, and Spark must know: else a join looks for missing keys first.
    return functions.coalesce(key, functions.lit(-1).cast("long"))


def read_files(files: Located) -> Any:
    """Return files as a frame of the active Spark session, or else of a new one."""
    session = _session()
    with _told():
        read = session.read
        if files.hive:
            read = read.option("basePath", _base(files.files[0], files.hive))
        paths = _escaped(files.files)
        if files.kind == "CSV":
            return read.csv(
                paths, header=True, inferSchema=True, sep=files.separator, escape='"', quote='"'
            )
        if not files.mixed:
            return read.parquet(*paths)
        # Spark reads no column as a type that its file does not have.
        parts = [
            part.withColumns({name: part[_quoted(name)].cast("double") for name in files.mixed})
            for part in (read.parquet(*_escaped(group)) for group in files.alike)
        ]
        return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)


def _session() -> Any:
    """Return the active Spark session, or else a new one."""
    sql = spark("pyspark.sql")
    try:
        return sql.SparkSession.builder.getOrCreate()
    except Exception as error:
        raise InvalidInputError(
            f"Spark does not start: {' '.join(str(error).split())[:300]}; it needs Java 17 or newer"
        ) from None
    except BaseException:
        # A signal: pyspark has removed the folder in which Java is to say that it is there.
        _end_java()
        raise


def _end_java() -> None:
    """End the Java that pyspark was starting, which would outlive a stop at that moment."""
    if getattr(spark("pyspark").SparkContext, "_gateway", None) is not None:
        # One that is there ends by itself once this process does.
        return
    try:
        told = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=", "-o", "ppid=", "-o", "args="],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:
        return
    for process in told.stdout.splitlines():
        number, parent, command = process.split(maxsplit=2)
        if int(parent) == os.getpid() and "pyspark-shell" in command:
            with suppress(ProcessLookupError):
                os.kill(int(number), signal.SIGKILL)


# What is written must be all rows of one file, in one file, with types that others read.
_WRITING = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.maxRecordsPerFile": "0",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

# Files at a time, where Spark does not say how many tasks it runs.
_WIDTH = 16


@dataclass(frozen=True, slots=True)
class FileDecision:
    """A rule as Spark is to apply it to a file."""

    steps: tuple[Mapping[str, str], ...]
    """Columns in SQL that the rule is about, each of those before; none for most rules."""
    accept: str
    """The rule in SQL."""
    column: str
    """Name of the decision."""
    keep: tuple[str, ...]
    """Columns that are written beside it."""
    needed: tuple[str, ...]
    """Scores that must not be missing."""
    limits: Mapping[str, tuple[float, float, float, float]]
    """For a score what is far away, below and above, and what is unusual."""

    @property
    def scores(self) -> tuple[str, ...]:
        """The scores that are looked at, by whose places they are counted."""
        return tuple(dict.fromkeys([*self.needed, *self.limits]))


@contextmanager
def writing() -> Iterator[tuple[Callable[[str, Path, FileDecision], Mapping[str, Any]], int]]:
    """Yield what has a file decided, and how many at a time; settings are put back at the end.

    Nothing but counts comes here, and nothing of demur has to be installed where the rows are.
    """
    session = _session()
    before = {name: session.conf.get(name, None) for name in _WRITING}
    for name, value in _WRITING.items():
        session.conf.set(name, value)
    try:
        context = getattr(session, "_sc", None)
        yield partial(_write_decided, session), getattr(context, "defaultParallelism", _WIDTH)
    finally:
        for name, value in before.items():
            session.conf.unset(name) if value is None else session.conf.set(name, value)


def _write_decided(
    session: Any, file: str, folder: Path, decision: FileDecision
) -> Mapping[str, Any]:
    """Write the rows of a Parquet file and the decisions as one file into a new folder.

    Returned are the counts of one pass: "rows", "accepted", "missing"; and for the score of number
    k "missing k", "finite k", "far k", "unusual k" and "largest k".
    """
    functions = spark("pyspark.sql.functions")
    decided = f"demur_{secrets.token_hex(8)}"
    with _told():
        (path,) = _escaped([file])
        rows = session.read.parquet(path)
        for step in (*decision.steps, {decided: decision.accept}):
            added = [functions.expr(value).alias(name) for name, value in step.items()]
            rows = rows.select("*", *added)
        seen = spark("pyspark.sql").Observation()
        rows = rows.observe(seen, *_counted(decision, decided))
        kept = [functions.col(_quoted(name)) for name in decision.keep]
        rows = rows.select(*kept, functions.col(decided).alias(decision.column))
        # One task goes through the file from the beginning to the end.
        rows.coalesce(1).write.parquet(f"file://{folder}")
        counts: Mapping[str, Any] = seen.get
    return counts


def _counted(decision: FileDecision, decided: str) -> list[Any]:
    """Return what is counted while rows are written."""
    functions = spark("pyspark.sql.functions")
    infinity = functions.lit(float("inf"))
    counts = {"rows": functions.count(functions.lit(1))}
    counts["accepted"] = functions.count_if(functions.col(decided))
    lacking = functions.lit(False)
    for k, name in enumerate(decision.scores):
        value = functions.col(_quoted(name)).cast("double")
        missing = value.isNull() | functions.isnan(value) | (value == -infinity)
        finite = ~missing & (value < infinity)
        if name in decision.needed:
            counts[f"missing {k}"] = functions.count_if(missing)
            lacking = lacking | missing
        if name in decision.limits:
            low, high, usual_low, usual_high = map(functions.lit, decision.limits[name])
            counts[f"finite {k}"] = functions.count_if(finite)
            counts[f"far {k}"] = functions.count_if(finite & ((value < low) | (value > high)))
            unusual = (value < usual_low) | (value > usual_high)
            counts[f"unusual {k}"] = functions.count_if(finite & unusual)
            counts[f"largest {k}"] = functions.max(functions.when(finite, functions.abs(value)))
    counts["missing"] = functions.count_if(lacking)
    return [value.alias(name) for name, value in counts.items()]


def _escaped(files: Sequence[str]) -> list[str]:
    """Return paths, each of which Spark would take for a pattern."""
    return [p if "://" in p else re.sub(r"([\\{}\[\]*?])", r"\\\1", p) for p in files]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _base(file: str, hive: Mapping[str, str]) -> str:
    """Return the folder below which folders name columns."""
    parts = Path(file).absolute().parts
    first = next(i for i, part in enumerate(parts) if part.partition("=")[0] in hive)
    return str(Path(*parts[:first]))


@contextmanager
def _told() -> Iterator[None]:
    """Turn failures of Spark into one of ours, without the places in its own code."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        lines = [line for line in str(error).splitlines() if not line.startswith("\tat ")]
        raise InvalidInputError(f"Spark: {' '.join(' '.join(lines).split())[:1000]}") from None


def spark(module: str) -> Any:
    """Import a part of PySpark, which is an extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError("pyspark", "spark") from None


def _values(column: Any) -> Any:
    types = arrow("pyarrow").types
    if types.is_integer(column.type) or types.is_floating(column.type):
        return column.to_numpy()
    values = np.empty(len(column), object)
    values[:] = column.to_pylist()
    return values
