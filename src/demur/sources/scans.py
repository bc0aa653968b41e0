"""Files as one table of DuckDB, checked so that what is wrong is said with file and column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from demur.core.columns import guess, listing
from demur.errors import InvalidInputError
from demur.sources.files import check_input, file_format
from demur.sources.partitions import find_partitions, is_partitioned
from demur.sources.roles import Roles

_NUMBERS = {"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE"}


@dataclass(slots=True)
class Scan:
    """Files of one format."""

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
        names = ", ".join(_text(file) for file in files)
        if self.kind == "Parquet":
            # By name, so that columns get the widest type of all files.
            return f"read_parquet([{names}], union_by_name = true)"
        forced = ", ".join(f"{_text(name)}: {_text(kind)}" for name, kind in (types or {}).items())
        return f"read_csv([{names}]" + (f", types = {{{forced}}})" if forced else ")")

    def _check_parquet(self, connection: Any, roles: Roles) -> None:
        """Refuse files in which a column is missing, or not of the kind that it must be."""
        names = ", ".join(_text(file) for file in self.files)
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
            if kind is None and not _is_partition(file, name):
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


def scan_of(data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> Scan:
    """Return the files that a path, a pattern, a folder or a list of those means."""
    paths = [data] if isinstance(data, (str, os.PathLike)) else list(data)
    files: list[str] = []
    for path in paths:
        if is_partitioned(path):
            files += [str(file) for file in find_partitions(path).files]
        else:
            check_input(path)
            files.append(os.fspath(path))
    if not files:
        raise InvalidInputError("data is an empty list: give at least one file")
    kinds = {file_format(file): file for file in files}
    for kind, file in kinds.items():
        if kind not in ("Parquet", "CSV"):
            raise InvalidInputError(
                f"{file!r} is {kind}, which is read into memory only; "
                "write it as Parquet, or use Sample"
            )
    if len(kinds) > 1:
        raise InvalidInputError(
            f"the files are of different formats: {', '.join(sorted(kinds.values()))}"
        )
    return Scan(tuple(files), next(iter(kinds)))


def _is_partition(file: str, name: str) -> bool:
    """Return whether a column is told by the folder, as in ``day=1/scores.parquet``."""
    return any(part.startswith(f"{name}=") for part in file.split(os.sep))


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
