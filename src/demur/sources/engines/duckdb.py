"""Rows in files, or in DuckDB: scanned by DuckDB, counted here.

DuckDB hands its rows over in Arrow batches, and adding them up in arrays takes less than its own
hash tables would. Nothing here holds more than a few batches, the histogram and the marked rows.
The only place that imports duckdb.
"""

from __future__ import annotations

import base64
import glob
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur._files import finished, unfinished
from demur.core.columns import (
    NEITHER_FLAG_NOR_NAME,
    check_names,
    guess,
    listing,
    match_name,
)
from demur.core.row_draws import KEY_DIGITS
from demur.core.source import MEMORY, Rows
from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.engines.base import ScannedSource
from demur.sources.engines.expressions import KEY, Table
from demur.sources.files import FileStamps, Stamps, find_files, hive_kind, hive_values
from demur.sources.lakes import LakeTable
from demur.sources.open import Missing, Roles
from demur.sources.record_batches import arrow, floats, to_numpy
from demur.sources.tables import MISSING, Dialect, csv_dialect, refuse_hive_conflict

Progress = Callable[[int, int], None]
"""Told, during a pass, how many rows were seen and how many there are."""

_BATCH = 1 << 17
# DuckDB's own part of the memory; scans need little, wide groups spill.
_SHARE = 4
# Types of Parquet columns that are numbers.
_NUMBERS = {"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE"}
_FLOATS = ("FLOAT", "DOUBLE")
# Where rows come from that are only looked at, and from how large files they do.
_STRETCHES = 24
_FEWEST_TIMES = 10
_ROW_NUMBER = "file_row_number"


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

    engine = "duckdb"

    def __init__(
        self,
        data: Any,
        roles: Roles,
        *,
        missing: Missing = "error",
        memory: int = MEMORY,
        progress: Progress | None = None,
    ) -> None:
        stamps: Stamps = FileStamps()
        self._lake: LakeTable | None = None
        self._scan: FileScan | None = None
        self._connection: Any = None
        if isinstance(data, (str, os.PathLike, list, tuple)):
            self._scan = FileScan(*find_files(data))
            stamps = FileStamps(self._scan.files)
            self.place = repr(data if isinstance(data, str) else self._scan.files[0])
            self._connection, spill = _connect(memory // _SHARE)
            # Also when the source is forgotten, and when Python ends.
            self._shut = weakref.finalize(self, _close, self._connection, spill)
            with self._explained():
                relation = self._scan.open(self._connection, roles)
        elif isinstance(data, LakeTable):
            check_names(list(data.schema.names), roles.used(), repr(data.path))
            stamps, self._lake, self.place = data, data, repr(data.path)
            self._connection, spill = _connect(memory // _SHARE)
            self._shut = weakref.finalize(self, _close, self._connection, spill)
            relation = _with_nulls(self._connection.from_arrow(data), roles)
        else:
            # Two columns of one name would be one in a schema.
            check_names(list(data.columns), roles.used(), "the relation")
            relation = _with_nulls(data, roles)
        self._progress = progress
        super().__init__(relation, roles, missing=missing, memory=memory)
        self.watch_files(stamps)

    def close(self) -> None:
        """Close the connection to files; that of a relation is left alone."""
        if self._connection is not None:
            self._shut()
            self._connection = None

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows."""
        with self._explained():
            return super().sample(rows, seed=seed)

    def glimpse(self, rows: int) -> Rows:
        """Return about so many rows, of large Parquet files from a few places.

        A sample would go through all of their pages.
        """
        total = self.sizes().rows
        if self._scan is None or self._standard.draws or total < _FEWEST_TIMES * rows:
            return super().glimpse(rows)
        with self._explained():
            query = self._scan.stretches(self._connection, self._native, rows)
            if query is None:
                return super().glimpse(rows)
            relation = nw.from_native(self._connection.sql(query)).lazy()
            with self._passing():
                seen = self._standard.rows(relation, self.sizes().sides).to_native().fetchnumpy()
            return self._standard.fetched(seen)

    def _batches(self) -> Iterator[Rows]:
        """Go through all rows."""
        total, seen = self._overview.rows, 0
        rows = self._standard.rows(self._frame, self._overview.sides)
        with self._passing(), self._explained():
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
        with self._passing(), self._explained():
            table = frame.to_native().to_arrow_table()
        return {name: _values(table.column(name)) for name in table.column_names}

    def _collect_few(self, frame: nw.LazyFrame[Any]) -> Table:
        # Without Arrow, whose import takes longer than that.
        with self._passing(), self._explained():
            relation = frame.to_native()
            names, found = relation.columns, relation.fetchall()
        rows = list(zip(*found, strict=True)) or [()] * len(names)
        return {n: np.fromiter(v, object, len(v)) for n, v in zip(names, rows, strict=True)}

    def _counted(self, flag: str) -> nw.Expr:
        # Sums of flags take a fraction of the time of sums of integers.
        return nw.col(flag).sum()

    def _with_key(self, native: Any, name: str) -> Any:
        digits = f"substr(md5(CAST({_name(name)} AS VARCHAR)), 1, {KEY_DIGITS})"
        return native.project(f"*, CAST(CAST('0x' || {digits} AS BIGINT) AS DOUBLE) AS {KEY}")

    def _thinned(self, share: float, seed: int) -> Any:
        return self._native.query("demur_rows", _SAMPLE.format(100 * share, seed))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of DuckDB into ours, which name the file and the column."""
        try:
            yield
        except RuntimeError as error:
            # What the handler of a signal raises gets lost in DuckDB.
            if "interrupted" in str(error):
                raise KeyboardInterrupt from None
            raise
        except duckdb().Error as error:
            if self._scan is not None:
                raise self._scan.explain(error, self._connection) from None
            if self._lake is not None:
                raise self._lake.failure(error) from None
            raise InvalidInputError(f"DuckDB: {' '.join(str(error).split())}") from None


_UNKNOWN = Dialect("", ())


@dataclass(slots=True)
class FileScan:
    """Files of one format as one table; what is wrong is said with file and column."""

    files: tuple[str, ...]
    kind: str
    used: tuple[tuple[str, str], ...] = ()
    """Argument and name of the columns that are read."""
    hive: dict[str, str] = field(default_factory=dict)
    """Columns that the folders name, and their types."""
    dialect: Dialect = _UNKNOWN
    """How CSV files are written."""
    alike: bool = True
    """Whether all CSV files have the same first line."""
    numeric: tuple[str, ...] = ()
    """Arguments whose columns must hold numbers."""

    def open(self, connection: Any, roles: Roles) -> Any:
        """Return the files as a relation."""
        self.numeric = tuple(argument for argument, _ in roles.numeric())
        self._find_hive()
        if self.kind == "Parquet":
            self.used = tuple(roles.used())
            self._check_parquet(connection, roles)
            return connection.sql(f"SELECT * FROM {self._table(self.files)}")
        return self._open_csv(connection, roles)

    def stretches(self, connection: Any, relation: Any, rows: int) -> str | None:
        """Return a query of about so many rows in stretches all over Parquet files, as they lie.

        None where single rows of the files cannot be asked for.
        """
        if self.kind != "Parquet" or _ROW_NUMBER in relation.columns:
            return None
        # Rows of a union have the types of all files together.
        cast = [
            f"CAST({_name(name)} AS {kind}) AS {_name(name)}"
            for name, kind in zip(relation.columns, relation.types, strict=True)
            if name in {match_name(used, list(relation.columns)) for _, used in self.used}
        ]
        names = ", ".join(_quoted(glob.escape(file)) for file in self.files)
        found = connection.execute(
            f"SELECT file_name, num_rows FROM parquet_file_metadata([{names}])"
        ).fetchall()
        ends = np.cumsum([count for _, count in found])
        length = rows // _STRETCHES
        steps = np.arange(_STRETCHES) + np.random.default_rng(0).random(_STRETCHES)
        places = dict[str, list[str]]()
        for start in (steps / _STRETCHES * int(ends[-1])).astype(np.int64):
            place = int(np.searchsorted(ends, start, side="right"))
            first = int(start - (ends[place] - found[place][1]))
            there = f"{_ROW_NUMBER} BETWEEN {first} AND {first + length - 1}"
            places.setdefault(found[place][0], []).append(there)
        return " UNION ALL ".join(
            f"SELECT {', '.join(cast)} FROM {self._table([file], numbered=True)} "
            f"WHERE {' OR '.join(stretches)}"
            for file, stretches in places.items()
        )

    def _find_hive(self) -> None:
        """Find the columns that the folders name, if all files lie in such folders."""
        said = [hive_values(file) for file in self.files]
        if all(values.keys() == said[0].keys() for values in said):
            self.hive = {key: hive_kind([values[key] for values in said]) for key in said[0]}

    def _open_csv(self, connection: Any, roles: Roles) -> Any:
        """Return CSV files as a relation; no guess from the first lines decides on a type.

        A first pass looks at the cells in use as text. Numbers are cast as everywhere in demur,
        by DuckDB itself where all cells are plain; classes and names of sets become numbers if all
        of them are.
        """
        for file in self.files:
            self._check_header(file, roles)
        names = self.dialect.names
        used = [(role, match_name(name, names)) for role, name in roles.used()]
        self.used = tuple((role, name) for role, name in used if name in names)
        numeric = {match_name(name, names) for _, name in roles.numeric()}
        inside = list(dict.fromkeys(name for _, name in self.used))
        table = self._table(self.files, dict.fromkeys(inside, "VARCHAR"))
        kinds = {name: "DOUBLE" for name in inside if name in numeric}
        kinds |= {name: _LOSS for argument, name in self.used if argument in _FLAGGED}
        others = [name for name in inside if name not in kinds]
        counts = [_kind_counts(name) for name in others] + [_odd_count(name) for name in kinds]
        (found,) = connection.execute(f"SELECT {', '.join(counts)} FROM {table}").fetchall()
        odd = dict(zip(kinds, found[3 * len(others) :], strict=True))
        plain = {name: "DOUBLE" for name in odd if not odd[name]}
        kinds |= {name: _kind_of(*found[3 * i : 3 * i + 3]) for i, name in enumerate(others)}
        casts = [f"{_cast(n, kind)} AS {_name(n)}" for n, kind in kinds.items() if n not in plain]
        table = self._table(self.files, dict.fromkeys(inside, "VARCHAR") | plain)
        replaced = f" REPLACE ({', '.join(casts)})" if casts else ""
        return connection.sql(f"SELECT *{replaced} FROM {table}")

    def _check_header(self, file: str, roles: Roles) -> None:
        """Refuse a CSV file that is none, lacks a column, or is separated by something else."""
        dialect = csv_dialect(file)
        self.dialect = self.dialect if self.dialect.names else dialect
        self.alike = self.alike and dialect.names == self.dialect.names
        if dialect.separator != self.dialect.separator:
            raise InvalidInputError(
                f"{file!r} is separated by {dialect.separator!r}, {self.files[0]!r} by "
                f"{self.dialect.separator!r}"
            )
        outside = [name for name in self.hive if name not in dialect.names]
        check_names([*dialect.names, *outside], roles.used(), repr(file))
        refuse_hive_conflict(file, dialect.names)

    def explain(self, error: Exception, connection: Any) -> InvalidInputError:
        """Return an error that names the file, and the column if it is one."""
        reason = " ".join(str(error).split())
        if connection is None or any(file in reason for file in self.files):
            return InvalidInputError(f"cannot read the {self.kind} files: {reason}")
        for file in self.files:
            for argument, name in self.used:
                try:
                    if self.kind == "CSV":
                        self._refuse_text(connection, file, argument, name)
                    connection.execute(
                        f"SELECT count(DISTINCT hash({_name(name)}) % 2) FROM {self._table([file])}"
                    ).fetchall()
                except InvalidInputError as told_already:
                    return told_already
                except Exception as failure:
                    told = " ".join(str(failure).split())
                    return InvalidInputError(
                        f"{argument}: cannot read column {name!r} of {file!r}: {told}"
                    )
        return InvalidInputError(f"cannot read the {self.kind} files: {reason}")

    def _refuse_text(self, connection: Any, file: str, argument: str, name: str) -> None:
        """Refuse a cell of a CSV file that is no number where one must be."""
        if argument not in self.numeric:
            return
        text = _bare(name, flags=argument in _FLAGGED)
        found = connection.execute(
            f"SELECT {_name(name)} FROM {self._table([file], {name: 'VARCHAR'})} "
            f"WHERE {text} IS NOT NULL AND TRY_CAST({text} AS DOUBLE) IS NULL LIMIT 1"
        ).fetchall()
        if found:
            raise InvalidInputError(
                f"{argument}: column {name!r} of {file!r} holds {found[0][0]!r}, not a number"
            )

    def _table(
        self, files: Sequence[str], types: dict[str, str] | None = None, *, numbered: bool = False
    ) -> str:
        """Return the files as a table of SQL; Parquet files with numbers of their rows if asked."""
        # Names that exist are no patterns.
        names = ", ".join(_quoted(glob.escape(file)) for file in files)
        options = [f"hive_partitioning = {str(bool(self.hive)).lower()}"]
        if self.hive:
            kinds = ", ".join(f"{_quoted(key)}: {kind}" for key, kind in self.hive.items())
            options += ["hive_types_autocast = false", f"hive_types = {{{kinds}}}"]
        if self.kind == "Parquet":
            # By name, so that columns get the widest type of all files. The least and largest
            # values that a file tells of leave NaN out; DuckDB would take that for a promise.
            options += ["union_by_name = true", "can_have_nan = true"]
            options += ["file_row_number = true"] * numbered
            return f"read_parquet([{names}], {', '.join(options)})"
        options += [f"delim = {_quoted(self.dialect.separator)}", "header = true"]
        options += ["quote = '\"'", "escape = '\"'", "comment = ''"]
        if not self.alike:
            options.append("union_by_name = true")
        elif any(name != name.strip() for name in self.dialect.names):
            # DuckDB would take the spaces away.
            options.append(f"names = [{', '.join(map(_quoted, self.dialect.names))}]")
        if types:
            forced = ", ".join(f"{_quoted(name)}: {_quoted(kind)}" for name, kind in types.items())
            options.append(f"types = {{{forced}}}")
        return f"read_csv([{names}], {', '.join(options)})"

    def _check_parquet(self, connection: Any, roles: Roles) -> None:
        """Refuse files in which a column is missing, or not of the kind that it must be."""
        names = ", ".join(_quoted(glob.escape(file)) for file in self.files)
        found = connection.execute(
            "SELECT file_name, name, num_children, type, converted_type, logical_type, precision "
            f"FROM parquet_schema([{names}])"
        ).fetchall()
        outer = _outer_columns(found)
        self._check_twice(outer)
        columns: dict[str, dict[str, str]] = {file: {} for file in self.files}
        for file, name, kind in outer:
            columns.setdefault(file, {})[name] = kind
        for file in self.files:
            refuse_hive_conflict(file, list(columns[file]))
        used = {name for _, name in self.used}
        if any(kinds.get(name) == "INT64" for kinds in columns.values() for name in used):
            self._mark_durations(connection, columns)
        numeric = set(roles.numeric())
        for argument, name in self.used:
            self._check_column(columns, argument, name, numeric=(argument, name) in numeric)

    def _mark_durations(self, connection: Any, columns: dict[str, dict[str, str]]) -> None:
        """Tell durations from whole numbers: Parquet has no type for them, Arrow's notes do."""
        names = ", ".join(_quoted(glob.escape(file)) for file in self.files)
        noted = connection.execute(
            "SELECT value, list(file_name) FROM "
            f"parquet_kv_metadata([{names}]) WHERE key = 'ARROW:schema' GROUP BY value"
        ).fetchall()
        for note, files in noted:
            for name in _durations(note):
                for file in files:
                    columns[file][name] = _DURATION

    def _check_twice(self, columns: Sequence[tuple[str, str, str]]) -> None:
        """Refuse a name that several columns of a file have: the engine would number them."""
        seen: set[tuple[str, str]] = set()
        used = {name: argument for argument, name in self.used}
        for file, name, _ in columns:
            if name in used and (file, name) in seen:
                raise InvalidInputError(
                    f"{used[name]}: {file!r} has several columns called {name!r}"
                )
            seen.add((file, name))

    def _check_column(
        self, columns: dict[str, dict[str, str]], argument: str, name: str, *, numeric: bool
    ) -> None:
        first = columns[self.files[0]].get(match_name(name, list(columns[self.files[0]])))
        for file, kinds in columns.items():
            kind = kinds.get(match_name(name, list(kinds)))
            if kind is None and name not in self.hive:
                raise InvalidInputError(
                    f"{argument}: {file!r} has no column {name!r}; {guess(name, kinds)}"
                    f"the columns are {listing(list(kinds))}"
                )
            if numeric and kind is not None and kind not in _NUMBERS:
                raise InvalidInputError(
                    f"{argument}: column {name!r} of {file!r} holds {kind}, not numbers"
                )
            if argument == "ood" and kind == _DURATION:
                raise InvalidInputError(
                    f"ood: column {name!r} of {file!r} holds {kind}, {NEITHER_FLAG_NOR_NAME}"
                )
            if (kind in _NUMBERS) != (first in _NUMBERS):
                raise InvalidInputError(
                    f"{argument}: column {name!r} holds {first} in {self.files[0]!r} "
                    f"and {kind} in {file!r}"
                )


def _with_nulls(relation: Any, roles: Roles) -> Any:
    """Return a relation with nothing where there was NaN.

    It may come from Parquet files, whose statistics leave NaN out, and then DuckDB takes tests for
    NaN and comparisons to be settled by them; not so `isfinite`.
    """
    used = {match_name(name, list(relation.columns)) for _, name in roles.used()}
    kinds = zip(relation.columns, relation.types, strict=True)
    floats = [_name(name) for name, kind in kinds if name in used and str(kind) in _FLOATS]
    if not floats:
        return relation
    known = [f"CASE WHEN isfinite({n}) OR isinf({n}) THEN {n} END AS {n}" for n in floats]
    return relation.project(f"* REPLACE ({', '.join(known)})")


def _outer_columns(schema: Sequence[Any]) -> list[tuple[str, str, str]]:
    """Return file, name and kind of the columns; what is nested in one of them is left out."""
    outer, inside = [], 0
    last = None
    for file, name, children, kind, *detail in schema:
        if file != last:
            # The root, whose children are the columns.
            last, inside = file, 0
            continue
        if not inside:
            nested = str(detail[0] or "STRUCT")
            outer.append((file, name, nested if children else _parquet_kind(kind, *detail)))
        inside += (children or 0) - (inside > 0)
    return outer


def _durations(note: Any) -> list[str]:
    """Return the columns that Arrow's own schema in a Parquet file calls durations."""
    pa = arrow("pyarrow")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(note)))
    except (pa.ArrowException, OSError, ValueError):
        return []
    return [field.name for field in schema if pa.types.is_duration(field.type)]


def _parquet_kind(
    kind: str, converted: str | None, logical: str | None, precision: int | None
) -> str:
    """Return the type of a column as numbers are called in Parquet, or what else it means."""
    told = str(logical or converted or "").partition("(")[0].removesuffix("Type").upper()
    if told == "DECIMAL" and (precision or 0) > _DIGITS:
        return f"decimals of {precision} digits, of which DuckDB keeps {_DIGITS}"
    if told in ("DECIMAL", "FLOAT16"):
        return "DOUBLE"
    # A time is stored as a whole number, but it is none.
    return told if told and not told.startswith(("INT", "UINT")) else kind


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_DURATION = "DURATION"
# Decimals of more are read as doubles that are not the nearest ones.
_DIGITS = 38
# Arguments whose numbers may be written as flags.
_FLAGGED = ("loss", "correct")
# A number as everywhere in demur: no mark between its digits.
_NUMBER = r"^[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|inf|infinity|nan)$"
_INTEGER = r"^[+-]?[0-9]{1,18}$"
_FLAG = r"^(true|false)$"
# Kind of a column of numbers that may be flags.
_LOSS = "LOSS"


def _given(name: str) -> str:
    """Return a cell without spaces around it, NULL where it stands for no number."""
    none = ", ".join(_quoted(text) for text in MISSING)
    return f"CASE WHEN trim({_name(name)}) IN ({none}) THEN NULL ELSE trim({_name(name)}) END"


def _kind_counts(name: str) -> str:
    """Return how many cells are not whole numbers, not flags, and not numbers."""
    return ", ".join(
        f"count(*) FILTER (NOT regexp_matches({_given(name)}, '{pattern}', 'i'))"
        for pattern in (_INTEGER, _FLAG, _NUMBER)
    )


def _odd_count(name: str) -> str:
    """Return how many cells DuckDB does not read as the number that they are."""
    column = _name(name)
    unread = f"{column} IS NOT NULL AND TRY_CAST({column} AS DOUBLE) IS NULL"
    return f"count(*) FILTER (contains({column}, '_') OR ({unread}))"


def _kind_of(not_integer: int, not_flag: int, not_number: int) -> str:
    """Return the type of a column with so many cells that are not of a type."""
    kinds = {"BIGINT": not_integer, "BOOLEAN": not_flag, "DOUBLE": not_number}
    return next((kind for kind, others in kinds.items() if not others), "VARCHAR")


def _cast(name: str, kind: str) -> str:
    """Return a cell as a value; text is passed on as it is."""
    if kind == "VARCHAR":
        return _name(name)
    if kind not in ("DOUBLE", _LOSS):
        return f"CAST({_given(name)} AS {kind})"
    # Most cells are numbers, and of these the rest is not computed.
    plain = f"TRY_CAST({_name(name)} AS DOUBLE)"
    marked = f"contains({_name(name)}, '_')"
    slow = f"CAST({_bare(name, flags=kind == _LOSS)} AS DOUBLE)"
    return f"coalesce(CASE WHEN {marked} THEN NULL ELSE {plain} END, {slow})"


def _bare(name: str, *, flags: bool) -> str:
    """Return the text of a number; 0 and 1 may be written as flags where that is said."""
    # With spaces 1_000 is no number; DuckDB would read it as a thousand.
    digits = f"replace({_given(name)}, '_', ' _ ')"
    if not flags:
        return digits
    flag = f"CASE lower({_given(name)}) WHEN 'true' THEN '1' WHEN 'false' THEN '0' END"
    return f"coalesce({flag}, {digits})"


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
    spill = unfinished(tempfile.mkdtemp(prefix="demur-duckdb-"))
    connection.execute(f"SET memory_limit = '{max(memory, 64 * 10**6)}B'")
    connection.execute("SET temp_directory = ?", [spill])
    # The order of rows makes no difference to any answer.
    connection.execute("SET preserve_insertion_order = false")
    # What the ends of files say is needed again in every pass.
    connection.execute("SET parquet_metadata_cache = true")
    return connection, spill


def _close(connection: Any, spill: str) -> None:
    connection.close()
    shutil.rmtree(spill, ignore_errors=True)
    finished(spill)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _values(column: Any) -> Any:
    types = arrow("pyarrow").types
    if types.is_integer(column.type) or types.is_floating(column.type):
        return to_numpy(column)
    if types.is_decimal(column.type) and column.type.scale == 0:
        # Sums of integers, of a few groups.
        return np.array([int(value or 0) for value in column.to_pylist()], np.int64)
    values = np.empty(len(column), object)
    values[:] = column.to_pylist()
    return values
