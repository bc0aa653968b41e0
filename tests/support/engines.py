"""Real engines for the tests: what makes a table a source of each, started once a test process."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import shutil
import sys
import warnings
from contextlib import contextmanager

import pytest

import demur as dm


@contextmanager
def arrays():
    """Yield what puts a table into arrays, to be counted in small batches."""
    from demur.sources.engines.frames import ArraySource

    def source_of(table, roles):
        columns = {"loss": roles.loss, "ood": roles.ood, "weight": roles.weight}
        return ArraySource(dm.Sample.from_frame(table, roles.scores, **columns), batch=97)

    yield source_of


@contextmanager
def frames():
    """Yield what makes a table a source as it is."""
    from demur.sources.engines.frames import FrameSource

    yield FrameSource


@contextmanager
def duckdb():
    """Yield what makes a table a relation of DuckDB."""
    from duckdb import connect

    from demur.sources.engines.duckdb import DuckDBSource

    with connect() as connection:
        yield lambda table, *roles, **options: DuckDBSource(
            connection.from_arrow(table), *roles, **options
        )


@contextmanager
def polars():
    """Yield what makes a table a LazyFrame."""
    from polars import from_arrow

    from demur.sources.engines.frames import PolarsSource

    yield lambda table, *roles, **options: PolarsSource(from_arrow(table).lazy(), *roles, **options)


@contextmanager
def pushdown():
    """Yield what pushes the counting to Polars in the place of Spark, which is slow to start."""
    from polars import from_arrow

    kind = _pushed_to_polars()
    yield lambda table, *roles, **options: kind(from_arrow(table).lazy(), *roles, **options)


def _pushed_to_polars():
    import narwhals.stable.v2 as nw
    import numpy as np
    import polars as pl

    from demur.sources.engines.base import PushdownSource
    from demur.sources.engines.frames import PolarsSource

    class PushedToPolars(PushdownSource):
        """The expressions are those of Spark."""

        _collect = PolarsSource._collect
        _thinned = PolarsSource._thinned
        _with_key = PolarsSource._with_key

        def _keys(self, key):
            return pl.LazyFrame({"key": key})

        def _with_cell(self, rows, name, bins):
            def key(series):
                scores = series.struct.unnest().to_numpy()
                finite = np.isfinite(scores).all(axis=1)
                found = np.zeros(len(scores), np.int64)
                found[finite] = bins.key(scores[finite])
                return pl.Series(found)

            cell = pl.struct(self._scores).map_batches(key, return_dtype=pl.Int64).alias(name)
            return nw.from_native(rows.to_native().with_columns(cell))

    return PushedToPolars


@contextmanager
def dask():
    """Yield what parts a table for two worker processes; every second source is given a client."""
    from demur.sources.engines.dask import DaskSource

    with dask_client() as client:
        given = itertools.cycle([None, client])
        yield lambda table, *roles, **options: DaskSource(
            dask_frame(table, 11), *roles, client=next(given), **options
        )


@contextmanager
def spark():
    """Yield what makes a table a DataFrame of Spark, of Connect where that is at work."""
    from demur.sources.engines.spark import SparkSource

    session = spark_session()

    def source_of(table, *roles, **options):
        frame = session.createDataFrame(_without_unsigned(table)).repartition(3)
        assert ("connect" in type(frame).__module__) == _is_connect()
        return SparkSource(frame, *roles, **options)

    yield source_of


def _without_unsigned(table):
    """Return large unsigned numbers as decimals, which Spark makes of them in Parquet files."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if field.type == pa.uint64():
            stored = table[field.name].cast(pa.decimal128(20, 0))
            table = table.set_column(place, field.name, stored)
    return table


def dask_frame(table, partitions=5):
    """Return a table as a Dask DataFrame."""
    import dask.dataframe as dd
    import pandas as pd
    import pyarrow as pa

    def kept(kind):
        # Of other decimals pandas makes objects, and Dask text of these.
        return pd.ArrowDtype(kind) if pa.types.is_decimal(kind) else None

    frame = table.to_pandas(types_mapper=kept)
    return dd.from_pandas(frame, npartitions=partitions, sort=False)


@contextmanager
def dask_client():
    """Yield a client of a cluster of two worker processes."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def need_java():
    """Skip where Spark cannot start."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17, and there is no java on the PATH")


@functools.cache
def _started():
    # The workers must be of this Python, and Spark must not look for other hosts.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.sql.shuffle.partitions", "2")
    if not _is_connect():
        builder = (
            builder.master("local[2,4]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "1g")
            # Nothing runs long enough here to earn what Java's best compiler costs.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        )
    session = builder.getOrCreate()
    if not _is_connect():
        session.sparkContext.setLogLevel("OFF")
    atexit.register(session.stop)
    return session


def spark_session():
    """Return the session of this process: two threads that try a failed task up to four times.

    With ``SPARK_REMOTE`` in the environment it is one of Spark Connect.
    """
    need_java()
    return _started()


def _is_connect():
    return "SPARK_REMOTE" in os.environ


def without_pandas_warning(function, *arguments):
    """Call PySpark where it warns that it does not know this pandas yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return function(*arguments)


def _sql_source(connection, dialect):
    from databases import put

    from demur.sources.engines.connections import Database
    from demur.sources.engines.sql import SqlSource

    def source_of(table, *roles, **options):
        name = put(connection, table, dialect)
        return SqlSource(Database.of(connection), name, *roles, **options)

    return source_of


@contextmanager
def postgres():
    """Yield what puts a table into PostgreSQL."""
    import databases

    with databases.postgres() as connection:
        yield _sql_source(connection, "postgres")


@contextmanager
def sqlite():
    """Yield what puts a table into SQLite."""
    import sqlite3

    connection = sqlite3.connect(":memory:")
    yield _sql_source(connection, "sqlite")
    connection.close()


@contextmanager
def duckdb_sql():
    """Yield what puts a table into DuckDB, to be counted there by SQL."""
    from duckdb import connect

    with connect() as connection:
        yield _sql_source(connection, "duckdb")


EVERY = {
    "frames": frames,
    "duckdb": duckdb,
    "polars": polars,
    "pushdown": pushdown,
    "dask": dask,
    "spark": spark,
    "postgres": postgres,
    "sqlite": sqlite,
}
"""What opens a table on each engine there is."""
