"""Rows in files, or in DuckDB: scanned by DuckDB, counted here.

DuckDB hands its rows over in Arrow batches, and adding them up in arrays takes less than its own
hash tables would. Nothing here holds more than a few batches, the histogram and the marked rows.
The only place that imports duckdb.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import numpy as np

from demur.core.source import MEMORY, Rows
from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.files import arrow, floats
from demur.sources.roles import Roles
from demur.sources.scanned import ScannedSource
from demur.sources.scans import Scan, scan_of
from demur.sources.standard import Missing, Table

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

Progress = Callable[[int, int], None]
"""Told, during a pass, how many rows were seen and how many there are."""

_BATCH = 1 << 17
# DuckDB's own part of the memory; scans need little, wide groups spill.
_SHARE = 4


class DuckDBSource(ScannedSource):
    """Rows of files or of a DuckDB relation.

    Parameters
    ----------
    data
        A path, a pattern such as ``"scores/*.parquet"``, a folder (hive partitions become
        columns), a list of paths, or a DuckDB relation such as ``connection.sql("SELECT ...")``.
    roles
        Which columns mean what.
    missing
        ``"error"`` refuses missing values, ``"drop"`` leaves such rows out.
    memory
        Bytes to get along with. A relation keeps the limit of its own connection.
    progress
        Called during every pass over the rows.

    Examples
    --------
    >>> import duckdb, demur
    >>> from demur.sources.roles import Roles
    >>> con = duckdb.connect()
    >>> rows = con.sql("SELECT * FROM (VALUES (.1, 0, 0), (.2, 1, 0), (.9, 0, 1)) t(s, l, o)")
    >>> with DuckDBSource(rows, Roles(("s",), loss="l", ood="o")) as source:
    ...     demur.tune(source, demur.TprFprModel(0.5)).point.selective_risk
    0.0
    """

    def __init__(
        self,
        data: Any,
        roles: Roles,
        *,
        missing: Missing = "error",
        memory: int = MEMORY,
        progress: Progress | None = None,
    ) -> None:
        self._scan: Scan | None = None
        self._connection: Any = None
        if isinstance(data, (str, os.PathLike, list, tuple)):
            self._scan = scan_of(data)
            self._connection = _connect(memory // _SHARE)
            with self._explained():
                relation = self._scan.open(self._connection, roles)
        else:
            relation = data
        self._progress = progress
        super().__init__(relation, roles, missing=missing, memory=memory)

    def close(self) -> None:
        """Close the connection to files; that of a relation is left alone."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> DuckDBSource:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows."""
        with self._explained():
            return super().sample(rows, seed=seed)

    def _batches(self) -> Iterator[Rows]:
        """Go through all rows."""
        total, seen = self._overview.rows, 0
        rows = self._standard.rows(self._frame, self._overview.sets)
        with self._explained():
            for batch in rows.to_native().to_arrow_reader(_BATCH):
                yield self._rows_of(batch)
                seen += batch.num_rows
                if self._progress is not None:
                    self._progress(seen, total)

    def _rows_of(self, batch: Any) -> Rows:
        column = {name: floats(batch.column(name)) for name in batch.schema.names}
        scores = np.stack([column[name] for name in self._scores])
        # Adding zero turns -0.0 into 0.0.
        scores += 0.0
        return Rows(scores.T, column["side"].astype(np.int64), column["loss"], column.get("weight"))

    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        with self._explained():
            table = frame.to_native().to_arrow_table()
        return {name: _values(table.column(name)) for name in table.column_names}

    def _thinned(self, share: float, seed: int) -> Any:
        return self._native.query("demur_rows", _SAMPLE.format(100 * share, seed))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of DuckDB into ours, which name the file and the column."""
        try:
            yield
        except duckdb().Error as error:
            if self._scan is not None:
                raise self._scan.explain(error, self._connection) from None
            raise InvalidInputError(f"DuckDB: {' '.join(str(error).split())}") from None


# Blocks of rows, which is much cheaper than single rows.
_SAMPLE = "SELECT * FROM demur_rows TABLESAMPLE {} PERCENT (system, {})"


def duckdb() -> Any:
    """Import duckdb, which is an extra."""
    try:
        return import_module("duckdb")
    except ModuleNotFoundError:
        raise MissingExtraError("duckdb", "files") from None


def _connect(memory: int) -> Any:
    connection = duckdb().connect()
    connection.execute(f"SET memory_limit = '{max(memory, 64 * 10**6)}B'")
    connection.execute("SET temp_directory = ?", [str(Path(gettempdir()) / "demur-duckdb")])
    # The order of rows makes no difference to any answer.
    connection.execute("SET preserve_insertion_order = false")
    return connection


def _values(column: Any) -> Any:
    types = arrow("pyarrow").types
    # Sums of integers come as decimals.
    whole = types.is_integer(column.type) or types.is_decimal(column.type)
    if whole or types.is_floating(column.type):
        parts = [floats(chunk) for chunk in column.chunks]
        values = np.concatenate(parts) if parts else np.empty(0)
        return values.astype(np.int64) if whole else values
    values = np.empty(len(column), object)
    values[:] = column.to_pylist()
    return values
