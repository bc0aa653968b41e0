"""Rows that are counted where they are: when, by which engine, and with how much memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from demur.cli.inputs import DataOptions, check_losses
from demur.cli.options import Command, ModelOptions, SearchOptions, gathered, option
from demur.cli.output import Progress
from demur.core.rates import OperatingPoint, evaluate
from demur.core.source import MEMORY, Overview, ScoreSource
from demur.errors import InvalidInputError
from demur.tuning.result import Tuning
from demur.tuning.tune import tune

_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

# What a row takes in memory from reading to the end of the search.
_ROW_BYTES = 300
_LEAST, _MOST = 50 * 10**6, 2**50


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, such as 2GB or 512MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the number and its unit."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", value.strip())
        units = {unit.lower(): size for unit, size in _UNITS.items()}
        if found is None or found[2].lower() not in units:
            self.fail(f"{value!r} is not a size such as 2GB or 512MiB", param, ctx)
        amount = float(found[1]) * units[found[2].lower()]
        if amount > _MOST:
            self.fail(f"{value!r} is more than any machine has, {_MOST // 2**40}TiB", param, ctx)
        size = int(amount)
        if size < _LEAST:
            self.fail(f"{value!r} is too little: the least is {_LEAST // 10**6}MB", param, ctx)
        return size


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Which engine reads the rows, if they are not read into memory."""

    engine: str
    memory: int

    def streams(self, data: DataOptions) -> bool:
        """Return whether the rows stay where they are."""
        if self.engine != "auto":
            if data.openood and self.engine != "memory":
                raise click.UsageError("--openood score files are read into memory")
            return self.engine != "memory"
        return data.data is not None and self._is_large(data.data)

    def _is_large(self, path: str) -> bool:
        from demur.sources.files import FORMATS, check_input, is_partitioned, open_stream

        # Only files that can be counted in; whatever else is wrong is told by their readers.
        if is_partitioned(path):
            return True
        kind = FORMATS.get(Path(path).suffix.lower())
        if kind == "Parquet":
            rows = open_stream(path).rows or 0
            return rows * _ROW_BYTES > self.memory
        if kind == "CSV":
            check_input(path)
            # Numbers take about as many bytes as text as in memory; the search takes more.
            return Path(path).stat().st_size * 8 > self.memory
        return False

    @contextmanager
    def opened(
        self,
        data: DataOptions,
        scores: tuple[str, ...] | None,
        confidence: tuple[str, ...],
        progress: Progress,
    ) -> Iterator[ScoreSource]:
        """Open DATA as a source."""
        from demur.sources.open import open_source

        check_losses(data)
        if data.correct:
            raise click.UsageError(
                "--correct needs the rows in memory: give --loss, or --engine memory"
            )
        if data.data is None:
            raise click.UsageError("give a file DATA, or --openood score files")
        if not scores:
            raise click.UsageError("--scores is needed: the columns of the scores")
        if len(scores) > 2:
            raise click.UsageError(f"--scores {','.join(scores)}: a rule takes one or two scores")
        with _cluster(self.engine):
            source: Any = open_source(
                data.data,
                scores,
                loss=data.loss,
                label=data.label,
                prediction=data.prediction,
                loss_function=data.loss_function,  # type: ignore[arg-type]
                ood=data.ood or None,
                weight=data.weight or None,
                confidence=confidence,
                memory=self.memory,
                progress=progress.at,
                engine="duckdb" if self.engine in ("auto", "memory") else self.engine,  # type: ignore[arg-type]
            )
            try:
                yield source
            finally:
                if hasattr(source, "close"):
                    source.close()


def engine_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the options of large data as `engine`."""
    add = option("Large data")
    return gathered(
        "engine",
        EngineOptions,
        [
            add(
                "--engine",
                type=click.Choice(["auto", "memory", "duckdb", "spark", "dask"]),
                default="auto",
                show_default=True,
                help="What reads DATA. auto: memory if it suffices, else DuckDB. Spark: the "
                "session of SPARK_REMOTE or the default one. Dask: the cluster of "
                "DASK_SCHEDULER_ADDRESS, or threads.",
            ),
            add(
                "--memory",
                type=Size(),
                default=MEMORY,
                metavar="SIZE",
                help="Memory to get along with here, such as 2GB (default) or 512MiB.",
            ),
        ],
    )


def refuse_in_stream(given: Mapping[str, object]) -> None:
    """Refuse options that need all rows in memory."""
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(
                f"{name} needs the rows in memory: leave it out, or give --engine memory "
                "(and one file)"
            )


@dataclass(frozen=True, slots=True)
class StreamTuning:
    """A rule tuned on a source, what it does there, and how much there is."""

    tuned: Tuning
    point: OperatingPoint
    sizes: Overview


def tune_stream(
    engine: EngineOptions,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    options: ModelOptions,
    search: SearchOptions,
) -> StreamTuning:
    """Tune on rows that stay where they are."""
    with (
        Progress("counting rows") as progress,
        engine.opened(data, scores, confidence, progress) as source,
    ):
        model = options.one_model()
        options.check_ood(sum(source.overview().ood_rows), data.ood)
        tuned = tune(source, model, directions=search.directions, ood=search.fpr_of)
        point = tuned.point
        if options.prior is not None:
            point = evaluate(tuned.rule, source, model=model, ood_prior=options.prior)
        return StreamTuning(tuned, point, source.overview())


@contextmanager
def _cluster(engine: str) -> Iterator[None]:
    """Connect to the Dask cluster that the environment names, while the rows are read."""
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    if engine != "dask" or not address:
        yield
        return
    from demur.sources.engines.dask import dask

    try:
        client = dask("distributed").Client(address, timeout=20)
    except OSError as error:
        raise InvalidInputError(f"no Dask cluster at {address!r}: {error}") from None
    with client:
        yield
