"""Platforms that hold rows, one file each, which is imported when it is first needed.

A new one is a file here, with a subclass of `base.ScannedSource` or `base.PushdownSource`, and a
line in `_LAZY`. Databases are all in `sql`; a new dialect is a line in `sql_rows.DIALECTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from demur.core.source import ScoreSource
from demur.errors import InvalidInputError
from demur.sources.files import Located

_LAZY = {
    "POLARS": ("frames", "PolarsSource"),
    "DUCKDB": ("duckdb", "DuckDBSource"),
    "DASK": ("dask", "DaskSource"),
    "PYSPARK": ("spark", "SparkSource"),
    "PYSPARK_CONNECT": ("spark", "SparkSource"),
}
"""File and class by the name that narwhals has for a lazy frame."""


def engine_of(frame: Any) -> Callable[..., ScoreSource]:
    """Return the kind of source that is made for a frame."""
    import narwhals.stable.v2 as nw

    try:
        known = nw.from_native(frame)
    except nw.exceptions.DuplicateError as error:
        raise InvalidInputError(f"data has columns of the same name: {error}") from None
    except (nw.exceptions.NarwhalsError, ValueError) as error:
        raise InvalidInputError(f"data cannot be read: {' '.join(str(error).split())}") from None
    except TypeError:
        raise InvalidInputError(
            f"data is a {type(frame).__name__}: give files, a frame of Spark, Dask, Polars, "
            "DuckDB, pandas or pyarrow, or a connection to a database"
        ) from None
    module, name = "frames", "FrameSource"
    if isinstance(known, nw.LazyFrame):
        if known.implementation.name not in _LAZY:
            raise InvalidInputError(
                f"data is a lazy frame of {known.implementation}, which demur cannot count in"
            )
        module, name = _LAZY[known.implementation.name]
    found: Callable[..., ScoreSource] = getattr(_engine(module), name)
    return found


def is_connection(data: Any) -> bool:
    """Return whether something is a connection to a database, or an engine of SQLAlchemy."""
    kind = type(data)
    return callable(getattr(kind, "cursor", None)) or kind.__module__.startswith("sqlalchemy.")


def read_files(files: Located, engine: str) -> Any:
    """Return Parquet or CSV files as a frame of an engine."""
    return _engine(engine).read_files(files)


def _engine(module: str) -> Any:
    return import_module(f"{__name__}.{module}")
