"""Rows of a Spark DataFrame, classic or Connect, counted by the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from demur._arrays import IntArray
from demur.core.bins import Axis, Bins
from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.files import arrow
from demur.sources.pushed import PushedSource
from demur.sources.standard import Table

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw


class SparkSource(PushedSource):
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

    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        found = frame.to_native().toArrow()
        return {name: _values(found.column(name)) for name in found.column_names}

    def _thinned(self, share: float, seed: int) -> Any:
        return self._native.sample(fraction=share, seed=seed)

    def _keys(self, key: IntArray) -> Any:
        table = arrow("pyarrow").table({"key": key})
        return self._native.sparkSession.createDataFrame(table).hint("broadcast")

    def _with_cell(self, rows: nw.LazyFrame[Any], name: str, bins: Bins) -> nw.LazyFrame[Any]:
        """Look the pieces up in arrays.

        Nested conditions for all pieces would become a method so long that Java does not
        compile it.
        """
        import narwhals.stable.v2 as nw

        frame, temporary = rows.to_native(), [f"{name}_{score}" for score in self._scores]
        for piece, score, axis in zip(temporary, self._scores, bins.axes, strict=True):
            frame = frame.withColumn(piece, _piece(axis, score))
        for piece, axis in zip(temporary, bins.axes, strict=True):
            frame = frame.withColumn(
                piece, spark("pyspark.sql.functions").get(_pieces(axis), piece)
            )
        frame = frame.withColumn(name, _key(bins, self._scores, temporary))
        keyed: nw.LazyFrame[Any] = nw.from_native(frame.drop(*temporary)).lazy()
        return keyed


def _piece(axis: Axis, score: str) -> Any:
    """Return the number of the piece that a score is in."""
    functions = spark("pyspark.sql.functions")
    number = functions.lit(0)
    for start in axis.start[1:]:
        number = number + (functions.col(score) >= float(start)).cast("int")
    return number


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


def _key(bins: Bins, scores: Sequence[str], pieces: Sequence[str]) -> Any:
    """Return `Bins.key`, given the pieces."""
    functions = spark("pyspark.sql.functions")
    key = functions.lit(0).cast("long")
    for axis, score, name in zip(bins.axes, scores, pieces, strict=True):
        piece = functions.col(name)
        apart = (functions.col(score) - piece["start"]) * piece["scale"]
        place = functions.least(functions.greatest(apart, functions.lit(0.0)), piece["last"])
        key = key * axis.bins + functions.floor(place).cast("long") + piece["first"]
    # Never missing, and Spark must know: else a join looks for missing keys first.
    return functions.coalesce(key, functions.lit(-1).cast("long"))


def read_spark(paths: Sequence[str], kind: str) -> Any:
    """Return files as a frame of the active Spark session, or else of a new one."""
    sql = spark("pyspark.sql")
    try:
        session = sql.SparkSession.builder.getOrCreate()
    except Exception as error:
        raise InvalidInputError(
            f"Spark does not start: {' '.join(str(error).split())[:300]}; it needs Java 17 or newer"
        ) from None
    try:
        if kind == "CSV":
            return session.read.csv(list(paths), header=True, inferSchema=True)
        return session.read.parquet(*paths)
    except spark("pyspark.errors").PySparkException as error:
        raise InvalidInputError(f"Spark: {' '.join(str(error).split())}") from None


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
