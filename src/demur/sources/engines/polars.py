"""Rows of a Polars LazyFrame, scanned by its streaming engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur.core.source import MEMORY, Rows
from demur.errors import InvalidInputError
from demur.sources.engines.base import ScannedSource
from demur.sources.engines.expressions import Table
from demur.sources.open import Missing, Roles

_BATCH = 1 << 17


class PolarsSource(ScannedSource):
    """Rows of a Polars LazyFrame.

    Parameters
    ----------
    frame
        The LazyFrame, such as ``polars.scan_parquet("scores/*.parquet")``.
    roles
        Which columns mean what.
    missing
        ``"error"`` refuses missing values, ``"drop"`` leaves such rows out.
    memory
        Bytes to get along with.

    Examples
    --------
    >>> import demur, polars
    >>> from demur.sources.open import Roles
    >>> frame = polars.LazyFrame({"s": [0.1, 0.2, 0.9], "l": [0, 1, 0], "o": [0, 0, 1]})
    >>> source = PolarsSource(frame, Roles(("s",), loss="l", ood="o"))
    >>> demur.tune(source, demur.TprFprModel(0.5)).point.selective_risk
    0.0
    """

    def __init__(
        self, frame: Any, roles: Roles, *, missing: Missing = "error", memory: int = MEMORY
    ) -> None:
        with _told():
            super().__init__(frame, roles, missing=missing, memory=memory)

    def _batches(self) -> Iterator[Rows]:
        rows = self._standard.rows(self._frame, self._overview.sets).to_native()
        with _told():
            for batch in rows.collect_batches(
                chunk_size=_BATCH, maintain_order=False, engine="streaming"
            ):
                yield self._standard.fetched(_columns(batch))

    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        with _told():
            return _columns(frame.to_native().collect(engine="streaming"))

    def _thinned(self, share: float, seed: int) -> Any:
        import polars as pl

        return self._native.filter(pl.int_range(pl.len()).hash(seed) < int(share * 2**64))


@contextmanager
def _told() -> Iterator[None]:
    """Turn failures of Polars into one of ours."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, nw.exceptions.NarwhalsError, OSError) as error:
        raise InvalidInputError(f"Polars: {' '.join(str(error).split())[:1000]}") from None


def _columns(frame: Any) -> Table:
    return {
        name: frame[name].to_numpy() if frame[name].dtype.is_numeric() else _objects(frame[name])
        for name in frame.columns
    }


def _objects(series: Any) -> Any:
    values = np.empty(len(series), object)
    values[:] = series.to_list()
    return values
