"""Rows of a data frame that is in memory: pandas, pyarrow, Polars and others by narwhals."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from demur.core.source import MEMORY, Overview, Rows
from demur.sources.batched import BatchedSource
from demur.sources.counting import take
from demur.sources.looking import grouped, overview_of
from demur.sources.roles import Roles
from demur.sources.standard import Missing, Standard, Table

_BATCH = 1 << 17


class FrameSource(BatchedSource):
    """Rows of a frame in memory.

    Examples
    --------
    >>> import demur, pandas
    >>> frame = pandas.DataFrame({"s": [0.1, 0.2, 0.9], "l": [0, 1, 0], "o": [0, 0, 1]})
    >>> source = FrameSource(frame, Roles(("s",), loss="l", ood="o"))
    >>> demur.tune(source, demur.TprFprModel(0.5)).point.selective_risk
    0.0
    """

    def __init__(
        self, frame: Any, roles: Roles, *, missing: Missing = "error", memory: int = MEMORY
    ) -> None:
        import narwhals.stable.v2 as nw

        self._frame = nw.from_native(frame, eager_only=True)
        self._standard = Standard.of(self._frame, roles, missing)
        super().__init__(roles.scores, self._overview.sets, memory=memory)

    @cached_property
    def _overview(self) -> Overview:
        roles = self._standard.roles
        return overview_of(roles, labelled_groups(self._frame, self._standard))

    def overview(self) -> Overview:
        """Look at all rows once; refuse rows that cannot be used."""
        return self._overview

    def _batches(self, by: str | None = None) -> Iterator[tuple[Rows, Any]]:
        rows, values = standard_rows(self._frame, self._standard, self._sets, by)
        for start in range(0, len(rows.loss), _BATCH):
            part = take(rows, np.arange(start, min(start + _BATCH, len(rows.loss))))
            yield part, None if values is None else values[start : start + _BATCH]


def labelled_groups(frame: Any, standard: Standard) -> Table:
    """Return the groups that an overview is made of, for a narwhals frame in memory."""
    return columns_of(grouped(standard.rows(frame, labels=True), standard.roles))


def standard_rows(
    frame: Any, standard: Standard, sets: tuple[str, ...], by: str | None = None
) -> tuple[Rows, list[Any] | None]:
    """Return the rows of a narwhals frame in memory, and the values of the column `by`."""
    rows = standard.rows(frame, sets, by=by)
    held = standard.fetched(columns_of(rows.drop("by") if by is not None else rows))
    return held, None if by is None else _with_none(rows["by"])


def columns_of(frame: Any) -> Table:
    """Return the columns of a narwhals frame as arrays."""
    return {name: frame[name].to_numpy() for name in frame.columns}


def _with_none(series: Any) -> list[Any]:
    """Return values with None where they are missing, of which pandas has several kinds."""
    missing = series.is_null().to_list()
    return [None if gone else value for value, gone in zip(series.to_list(), missing, strict=True)]
