"""Rows of a Spark DataFrame, classic or Connect, counted by the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from demur._arrays import IntArray
from demur.sources.files import arrow
from demur.sources.lazy import LazySource
from demur.sources.standard import Table

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw


class SparkSource(LazySource):
    """Rows of a Spark DataFrame."""

    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        found = frame.to_native().toArrow()
        return {name: _values(found.column(name)) for name in found.column_names}

    def _thinned(self, share: float, seed: int) -> Any:
        return self._native.sample(fraction=share, seed=seed)

    def _keys(self, key: IntArray) -> Any:
        table = arrow("pyarrow").table({"key": key})
        return self._native.sparkSession.createDataFrame(table).hint("broadcast")


def _values(column: Any) -> Any:
    types = arrow("pyarrow").types
    if types.is_integer(column.type) or types.is_floating(column.type):
        return column.to_numpy()
    values = np.empty(len(column), object)
    values[:] = column.to_pylist()
    return values
