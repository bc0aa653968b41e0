"""Rows in files, or in DuckDB: scanned by DuckDB, counted here.

DuckDB hands its rows over in Arrow batches, and adding them up in arrays takes less than its own
hash tables would. Nothing here holds more than a few batches, the histogram and the marked rows.
The only place that imports duckdb.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur.core.columns import guess, listing
from demur.core.source import MEMORY, Rows
from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.engines.base import ScannedSource
from demur.sources.engines.expressions import Table
from demur.sources.files import find_files, hive_columns
from demur.sources.open import Missing, Roles
from demur.sources.record_batches import arrow, floats

Progress = Callable[[int, int], None]
"""Told, during a pass, how many rows were seen and how many there are."""

_BATCH = 1 << 17
# DuckDB's own part of the memory; scans need little, wide groups spill.
_SHARE = 4
# Types of Parquet columns that are numbers.
_NUMBERS = {"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE"}


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
    >>> from demur.sources.open import Roles
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
        self._scan: FileScan | None = None
        self._connection: Any = None
        if isinstance(data, (str, os.PathLike, list, tuple)):
            self._scan = FileScan(*find_files(data))
            self._connection, spill = _connect(memory // _SHARE)
            # Also when the source is forgotten, and when Python ends.
            self._shut = weakref.finalize(self, _close, self._connection, spill)
            with self._explained():
                relation = self._scan.open(self._connection, roles)
        else:
            relation = data
        self._progress = progress
        super().__init__(relation, roles, missing=missing, memory=memory)

    def close(self) -> None:
        """Close the connection to files; that of a relation is left alone."""
        if self._connection is not None:
            self._shut()
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


@dataclass(slots=True)
class FileScan:
    """Files of one format as one table; what is wrong is said with file and column."""

    files: tuple[str, ...]
    kind: str
    used: tuple[tuple[str, str], ...] = ()
    """Argument and name of the columns that are read."""

    def open(self, connection: Any, roles: Roles) -> Any:
        """Return the files as a relation."""
        self.used = tuple(roles.used())
        if self.kind == "Parquet":
            self._check_parquet(connection, roles)
            return connection.sql(f"SELECT * FROM {self._table(self.files)}")
        found = connection.sql(f"DESCRIBE SELECT * FROM {self._table(self.files)}").fetchall()
        kinds = {name: kind for name, kind, *_ in found}
        # A guess from the first lines must not decide how numbers are read.
        types = {
            name: "DOUBLE" for _, name in roles.numeric() if kinds.get(name, "BOOLEAN") != "BOOLEAN"
        }
        return connection.sql(f"SELECT * FROM {self._table(self.files, types)}")

    def explain(self, error: Exception, connection: Any) -> InvalidInputError:
        """Return an error that names the file, and the column if it is one."""
        reason = " ".join(str(error).split())
        if connection is None or any(file in reason for file in self.files):
            return InvalidInputError(f"cannot read the {self.kind} files: {reason}")
        for file in self.files:
            for argument, name in self.used:
                quoted = '"' + name.replace('"', '""') + '"'
                try:
                    connection.execute(
                        f"SELECT count(DISTINCT hash({quoted}) % 2) FROM {self._table([file])}"
                    ).fetchall()
                except Exception as failure:
                    told = " ".join(str(failure).split())
                    return InvalidInputError(
                        f"{argument}: cannot read column {name!r} of {file!r}: {told}"
                    )
        return InvalidInputError(f"cannot read the {self.kind} files: {reason}")

    def _table(self, files: Sequence[str], types: dict[str, str] | None = None) -> str:
        """Return the files as a table of SQL."""
        names = ", ".join(_quoted(file) for file in files)
        if self.kind == "Parquet":
            # By name, so that columns get the widest type of all files.
            return f"read_parquet([{names}], union_by_name = true)"
        forced = ", ".join(
            f"{_quoted(name)}: {_quoted(kind)}" for name, kind in (types or {}).items()
        )
        return f"read_csv([{names}]" + (f", types = {{{forced}}})" if forced else ")")

    def _check_parquet(self, connection: Any, roles: Roles) -> None:
        """Refuse files in which a column is missing, or not of the kind that it must be."""
        names = ", ".join(_quoted(file) for file in self.files)
        found = connection.execute(
            "SELECT file_name, name, type, converted_type, logical_type "
            f"FROM parquet_schema([{names}])"
        ).fetchall()
        columns: dict[str, dict[str, str]] = {file: {} for file in self.files}
        for file, name, kind, *detail in found:
            if kind is not None:
                decimal = any("DECIMAL" in str(note).upper() for note in detail)
                columns.setdefault(file, {})[name] = "DOUBLE" if decimal else kind
        numeric = set(roles.numeric())
        for argument, name in self.used:
            self._check_column(columns, argument, name, numeric=(argument, name) in numeric)

    def _check_column(
        self, columns: dict[str, dict[str, str]], argument: str, name: str, *, numeric: bool
    ) -> None:
        first = columns[self.files[0]].get(name)
        for file, kinds in columns.items():
            kind = kinds.get(name)
            if kind is None and name not in hive_columns(file):
                raise InvalidInputError(
                    f"{argument}: {file!r} has no column {name!r}; {guess(name, kinds)}"
                    f"the columns are {listing(list(kinds))}"
                )
            if numeric and kind is not None and kind not in _NUMBERS:
                raise InvalidInputError(
                    f"{argument}: column {name!r} of {file!r} holds {kind}, not numbers"
                )
            if (kind in _NUMBERS) != (first in _NUMBERS):
                raise InvalidInputError(
                    f"{argument}: column {name!r} holds {first} in {self.files[0]!r} "
                    f"and {kind} in {file!r}"
                )


# Blocks of rows, which is much cheaper than single rows.
_SAMPLE = "SELECT * FROM demur_rows TABLESAMPLE {} PERCENT (system, {})"


def duckdb() -> Any:
    """Import duckdb, which is an extra."""
    try:
        return import_module("duckdb")
    except ModuleNotFoundError:
        raise MissingExtraError("duckdb", "files") from None


def _connect(memory: int) -> tuple[Any, str]:
    """Return a connection, and the folder that it spills to and nobody else."""
    connection = duckdb().connect()
    spill = tempfile.mkdtemp(prefix="demur-duckdb-")
    connection.execute(f"SET memory_limit = '{max(memory, 64 * 10**6)}B'")
    connection.execute("SET temp_directory = ?", [spill])
    # The order of rows makes no difference to any answer.
    connection.execute("SET preserve_insertion_order = false")
    return connection, spill


def _close(connection: Any, spill: str) -> None:
    connection.close()
    shutil.rmtree(spill, ignore_errors=True)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
