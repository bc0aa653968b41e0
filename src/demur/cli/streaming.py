"""Commands on rows that stay where they are, counted by an engine."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from demur.cli.inputs import DataOptions, EngineOptions
from demur.cli.options import ModelOptions, SearchOptions
from demur.cli.output import Progress
from demur.core.rates import OperatingPoint, evaluate
from demur.core.source import Overview, ScoreSource
from demur.errors import InvalidInputError
from demur.tuning.result import Tuning
from demur.tuning.tune import tune


@contextmanager
def opened(
    engine: EngineOptions,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    progress: Progress,
) -> Iterator[ScoreSource]:
    """Open DATA as a source."""
    from demur.sources.open import open_source

    if data.data is None:
        raise click.UsageError("give a file DATA, or --openood score files")
    if not scores:
        raise click.UsageError("--scores is needed: the columns of the scores")
    if len(scores) > 2:
        raise click.UsageError(f"--scores {','.join(scores)}: a rule takes one or two scores")
    with _cluster(engine.engine):
        source: Any = open_source(
            data.data,
            scores,
            loss=data.loss,
            label=data.label,
            prediction=data.prediction,
            loss_function=data.loss_function,  # type: ignore[arg-type]
            ood=data.ood,
            weight=data.weight,
            confidence=confidence,
            memory=engine.memory,
            progress=progress.at,
            engine="duckdb" if engine.engine in ("auto", "memory") else engine.engine,  # type: ignore[arg-type]
        )
        try:
            yield source
        finally:
            if hasattr(source, "close"):
                source.close()


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
        opened(engine, data, scores, confidence, progress) as source,
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
