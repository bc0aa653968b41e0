"""Rows of a Polars LazyFrame, counted by its streaming engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from demur._arrays import IntArray
from demur.sources.lazy import LazySource
from demur.sources.standard import Table

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw


class PolarsSource(LazySource):
    """Rows of a Polars LazyFrame."""

    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        found = frame.to_native().collect(engine="streaming")
        return {name: found[name].to_numpy() for name in found.columns}

    def _thinned(self, share: float, seed: int) -> Any:
        import polars as pl

        return self._native.filter(pl.int_range(pl.len()).hash(seed) < int(share * 2**64))

    def _keys(self, key: IntArray) -> Any:
        import polars as pl

        return pl.LazyFrame({"key": key})
