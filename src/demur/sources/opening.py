"""`open_source`: files and frames of any engine as a source."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from demur.core.columns import check_names
from demur.core.source import MEMORY, ScoreSource
from demur.errors import InvalidInputError
from demur.sources.files import is_number, open_stream
from demur.sources.roles import Roles
from demur.sources.scans import scan_of
from demur.sources.standard import Missing

Engine = Literal["duckdb", "spark", "dask"]


def open_source(
    data: Any,
    scores: str | Sequence[str],
    *,
    loss: str | None = None,
    label: str | None = None,
    prediction: str | None = None,
    loss_function: Literal["zero_one", "absolute"] = "zero_one",
    ood: str | None = None,
    weight: str | None = None,
    confidence: Sequence[str] = (),
    missing: Missing = "error",
    memory: int = MEMORY,
    engine: Engine = "duckdb",
    progress: Callable[[int, int], None] | None = None,
) -> ScoreSource:
    """Return rows that stay where they are as a source, which `tune` and `evaluate` take.

    Parameters
    ----------
    data
        Files: a path, a pattern such as ``"scores/*.parquet"``, a folder, or a list of these.
        Or a frame: Spark (classic or Connect), Dask, Polars, a DuckDB relation, pandas, pyarrow.
    scores, loss, label, prediction, loss_function, ood, weight
        Columns, as in `Sample.from_frame`.
    confidence
        Those of `scores` in which higher means *less* doubt; their sign is flipped.
    missing
        ``"error"`` refuses rows that lack a value, ``"drop"`` leaves them out.
    memory
        Bytes to get along with in this process.
    engine
        What reads files: ``"duckdb"``, the active ``"spark"`` session, or ``"dask"``.
    progress
        Called by DuckDB during each pass with the rows seen and all there are.

    Examples
    --------
    >>> import demur, polars
    >>> frame = polars.LazyFrame({"s": [0.1, 0.2, 0.9], "wrong": [0, 1, 0], "ood": [0, 0, 1]})
    >>> source = open_source(frame, "s", loss="wrong", ood="ood")
    >>> demur.tune(source, demur.TprFprModel(min_tpr=0.5)).point.selective_risk
    0.0
    """
    roles = Roles(
        (scores,) if isinstance(scores, str) else tuple(scores),
        *(loss, label, prediction, loss_function, ood, weight),
        tuple(confidence),
    )
    if engine not in get_args(Engine):
        raise InvalidInputError(f"engine must be one of {', '.join(get_args(Engine))}")
    if isinstance(data, (str, os.PathLike, list, tuple)):
        if engine == "duckdb":
            from demur.sources.duckdb import DuckDBSource

            return DuckDBSource(data, roles, missing=missing, memory=memory, progress=progress)
        data = _read(data, engine, roles)
    return _kind(data)(data, roles, missing=missing, memory=memory)


def _kind(frame: Any) -> Callable[..., ScoreSource]:
    """Return the source that is made for a frame."""
    import narwhals.stable.v2 as nw

    try:
        known = nw.from_native(frame)
    except TypeError:
        raise InvalidInputError(
            f"data is a {type(frame).__name__}: give files, or a frame of Spark, Dask, Polars, "
            "DuckDB, pandas or pyarrow"
        ) from None
    if not isinstance(known, nw.LazyFrame):
        from demur.sources.frames import FrameSource

        return FrameSource
    implementation = known.implementation
    if implementation.is_polars():
        from demur.sources.polars import PolarsSource

        return PolarsSource
    if implementation.is_duckdb():
        from demur.sources.duckdb import DuckDBSource

        return DuckDBSource
    if implementation.is_dask():
        from demur.sources.dask import DaskSource

        return DaskSource
    if implementation.is_pyspark() or implementation.is_pyspark_connect():
        from demur.sources.spark import SparkSource

        return SparkSource
    raise InvalidInputError(
        f"data is a lazy frame of {implementation}, which demur cannot count in"
    )


def _read(data: Any, engine: Engine, roles: Roles) -> Any:
    """Return files as a frame of a distributed engine."""
    paths = [os.fspath(path) for path in ([data] if isinstance(data, (str, os.PathLike)) else data)]
    # What is not on this machine is not looked for here.
    if any("://" in path for path in paths):
        kind = "CSV" if paths[0].endswith(".csv") else "Parquet"
    else:
        scan = scan_of(paths)
        kind = scan.kind
        if kind == "Parquet":
            _check_parquet(scan.files, roles)
    if engine == "spark":
        from demur.sources.spark import read_spark

        return read_spark(paths, kind)
    from demur.sources.dask import read_dask

    return read_dask(paths, kind)


def _check_parquet(files: Sequence[str], roles: Roles) -> None:
    """Refuse a file that is cut short, or lacks a column, or has text where numbers must be."""
    for file in files:
        schema = open_stream(file).schema
        keys = [part.partition("=")[0] for part in Path(file).parts if "=" in part]
        check_names([*schema.names, *keys], roles.used(), repr(file))
        for argument, name in roles.numeric():
            if name in schema.names and not is_number(schema.field(name).type):
                raise InvalidInputError(
                    f"{argument}: column {name!r} of {file!r} holds {schema.field(name).type}, "
                    "not numbers"
                )
