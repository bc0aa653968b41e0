"""Reading tables: the columns of one file or of many, whole or batch by batch.

CSV, Parquet and Arrow/Feather files are read as record batches, NPZ files through NumPy alone,
JSON and Excel whole. Columns that the folders of a file name are read like those inside it.

Tables that are text (CSV with any separator, JSON and JSON lines, packed or from a pipe) follow one
rule for all engines. The first line of a CSV file names the columns and says by what they are
separated; ``"`` quotes; no line is a comment. A number has a decimal point and nothing between
its digits; in columns of numbers an empty cell and the `MISSING` texts are missing values, in
other columns only an empty cell is.
"""

from __future__ import annotations

import csv
import io
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from demur._files import single_entries
from demur.core.columns import check_names, match_name
from demur.errors import InvalidInputError, ReadingWarning
from demur.sources.archives import npz_columns, npz_names
from demur.sources.files import (
    HEADER_BYTES,
    PACKED,
    STANDARD_INPUT,
    check_input,
    file_format,
    find_partitions,
    hive_columns,
    hive_kind,
    hive_values,
    is_database_url,
    is_lake,
    is_partitioned,
    split_table,
    standard_input,
)
from demur.sources.lakes import open_lake
from demur.sources.record_batches import (
    Stream,
    arrow,
    column_stream,
    csv_stream,
    csv_table,
    ipc_stream,
    parquet_stream,
    selected,
    to_numpy,
)


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the columns of a file."""
    check_input(path)
    kind = file_format(path)
    with _reading(path, kind):
        if kind == "NPZ":
            return npz_names(path)
        if kind == "CSV":
            return list(csv_dialect(os.fspath(path)).names)
    return list(open_stream(path).schema.names)


def read_columns(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named columns; missing numbers are NaN, other missing values None."""
    check_input(path)
    kind, text = file_format(path), os.fspath(path)
    with _reading(path, kind):
        if kind in ("NPZ", "JSONL", "JSON", "Excel"):
            return _whole(text, kind, names)
        if kind == "CSV":
            # Unlike a stream, this looks at the whole column before it settles on a type.
            dialect = csv_dialect(text)
            found = _matched(text, dialect.names, names)
            with open_text(text) as file:
                table = csv_table(file, dialect.separator, list(dict.fromkeys(found.values())))
            return {name: to_numpy(table.column(old)) for name, old in found.items()}
        stream = open_stream(path, names)
        table = arrow("pyarrow").Table.from_batches(stream.batches, stream.schema)
        return {name: to_numpy(table.column(name)) for name in names}


def open_stream(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> Stream:
    """Open a file to be read batch by batch, all its columns or the named ones."""
    check_input(path)
    kind, text = file_format(path), os.fspath(path)
    with _reading(path, kind):
        stream = _stream(text, kind, names)
        # Names that are no text are found here and not later.
        _ = list(stream.schema.names)
    return Stream(stream.schema, stream.rows, _guarded(path, kind, stream.batches), stream.text)


def _stream(path: str, kind: str, names: Sequence[str] | None) -> Stream:
    if kind == "CSV":
        dialect = csv_dialect(path)
        found = None if names is None else _matched(path, dialect.names, names)
        kept = None if found is None else list(found.values())
        stream = csv_stream(open_text(path), dialect.separator, dialect.names, kept)
        return stream if found is None else selected(stream, found)
    if kind in ("NPZ", "JSONL", "JSON", "Excel"):
        return column_stream(_whole(path, kind, names))
    stream = parquet_stream(path, None) if kind == "Parquet" else ipc_stream(path)
    if names is None:
        return stream
    found = _matched(path, stream.schema.names, names)
    if kind == "Parquet":
        stream = parquet_stream(path, list(dict.fromkeys(found.values())))
    return selected(stream, found)


def _whole(path: str, kind: str, names: Sequence[str] | None) -> dict[str, npt.NDArray[Any]]:
    """Return all or the named columns of a file that is read into memory as a whole."""
    if kind == "NPZ":
        every = npz_names(path)
        found = _matched(path, every, every if names is None else names)
        columns = npz_columns(path, list(dict.fromkeys(found.values())))
    else:
        columns = _excel_columns(path) if kind == "Excel" else json_columns(path, kind)
        every = list(columns)
        found = _matched(path, every, every if names is None else names)
    return {name: columns[old] for name, old in found.items()}


def _excel_columns(path: str) -> dict[str, npt.NDArray[Any]]:
    """Read the first sheet with pandas, and whatever pandas reads such files with.

    Cells come as they are: pandas would number columns of one name, and take a set called None for
    an empty cell.
    """
    options = {"header": None, "dtype": object, "keep_default_na": False, "na_values": [""]}
    try:
        pandas = import_module("pandas")
        with pandas.ExcelFile(path) as book:
            sheets, frame = book.sheet_names, pandas.read_excel(book, **options)
    except ImportError as error:
        raise InvalidInputError(
            f"cannot read {path!r}: Excel files need pandas and openpyxl ({error}); install these, "
            "or save the sheet as CSV"
        ) from None
    except Exception as error:
        # Each of the readers of pandas has errors of its own.
        raise InvalidInputError(f"cannot read {path!r} as Excel: {error}") from None
    if len(sheets) > 1:
        warnings.warn(
            f"{path!r} has {len(sheets)} sheets, of which the first, {sheets[0]!r}, is read",
            ReadingWarning,
            # One place for all callers, so that it is said once.
            stacklevel=1,
        )
    frame = frame[frame.notna().any(axis=1)]
    columns: dict[str, npt.NDArray[Any]] = {}
    for number in frame.columns:
        cells = [None if cell != cell else cell for cell in frame[number].tolist()]
        head, *values = cells or [None]
        name = f"column {number + 1}" if head is None else str(head)
        if name in columns:
            raise InvalidInputError(f"{path!r} has several columns called {name!r}")
        if head is not None or any(value is not None for value in values):
            columns[name] = column_of(values)
    return columns


def _matched(path: str, available: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the columns of a file that names mean."""
    with warnings.catch_warnings():
        # Whoever asked for the names was told already.
        warnings.simplefilter("ignore")
        check_names(available, [("columns", name) for name in dict.fromkeys(names)], repr(path))
    return {name: match_name(name, available) for name in names}


def _guarded(path: Any, kind: str, batches: Iterator[Any]) -> Iterator[Any]:
    with _reading(path, kind):
        yield from batches


@contextmanager
def _reading(path: Any, kind: str) -> Iterator[None]:
    try:
        yield
    except InvalidInputError:
        raise
    except (arrow("pyarrow").ArrowException, OSError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as {kind}: {reason}") from None


def refuse_hive_conflict(file: str, names: Sequence[str]) -> None:
    """Refuse a file that has a column which its folders name as well, with other values."""
    both = [name for name in hive_columns(file) if name in names]
    for name in both:
        said = hive_values(file)[name]
        column = read_columns(file, [name])[name]
        same = [_hive_text(item) == said for item in column.tolist()]
        if not all(same):
            row = same.index(False)
            raise InvalidInputError(
                f"{file!r}: the folder says {name}={said}, but the column {name!r} of the file is "
                f"{column[row : row + 1].tolist()[0]!r} in row {row}: drop or rename one of them"
            )


def _hive_text(item: Any) -> str | None:
    if item is None or item != item:
        return None
    return str(int(item)) if isinstance(item, float) and item.is_integer() else str(item)


def table_columns(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the columns of a file, or of the first of many, and of their folders."""
    if is_database_url(path):
        return _database_table(path, None)[0]
    if is_lake(path):
        return list(open_lake(path).schema.names)
    first = find_partitions(path).files[0] if is_partitioned(path) else path
    names = column_names(first)
    return names + [name for name in hive_columns(first) if name not in names]


def read_table(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named columns of a file or of many, one after the other, as `read_columns`."""
    if is_database_url(path):
        return _database_table(path, names)[1]
    if is_lake(path):
        return open_lake(path).read(names)
    files = find_partitions(path).files if is_partitioned(path) else (path,)
    parts = [_read_part(file, names) for file in files]
    said = [hive_values(file) for file in files]
    columns = {name: [part[name] for part in parts] for name in names}
    for name, pieces in columns.items():
        if all(name in values for values in said):
            columns[name] = _hive_arrays(pieces, [values[name] for values in said])
    return {name: np.concatenate(pieces) for name, pieces in columns.items()}


def _database_table(
    path: Any, names: Sequence[str] | None
) -> tuple[list[str], dict[str, npt.NDArray[Any]]]:
    """Return the names of the columns of a table of a database, and some of the columns."""
    from demur.sources.engines.connections import Database
    from demur.sources.engines.sql import read_sql

    url, table = split_table(str(path))
    if table is None:
        raise InvalidInputError("--table is needed: a table or view of the database")
    database = Database.of(url)
    try:
        return read_sql(database, table, names)
    finally:
        database.close()


def _read_part(file: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named columns of a file, those of its folders as text."""
    said = hive_values(file)
    if not any(name in said for name in names):
        return read_columns(file, names)
    available = column_names(file)
    refuse_hive_conflict(os.fspath(file), available)
    inside = [name for name in names if name not in said or name in available]
    # Some column is needed to know how many rows there are.
    columns = read_columns(file, inside or available[:1])
    rows = len(next(iter(columns.values())))
    for name in names:
        if name not in inside:
            columns[name] = np.full(rows, said[name], object)
    return columns


def _hive_arrays(pieces: list[Any], said: list[str | None]) -> list[Any]:
    """Return a column of folders as numbers, if all its values are whole numbers."""
    if hive_kind(said) != "BIGINT":
        return pieces
    return [
        np.full(len(piece), np.nan if value is None else int(value))
        for piece, value in zip(pieces, said, strict=True)
    ]


MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""Texts that stand for a missing number."""


_OTHERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_KNOWN = {
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"PK\x03\x04": "a ZIP archive",
    b"PAR1": "a Parquet file",
    b"ARROW1": "an Arrow file",
    b"\x1f\x8b": "packed by gzip; call it .csv.gz, or unpack it",
    b"\x28\xb5\x2f\xfd": "packed by zstd; call it .csv.zst, or unpack it",
    b"%PDF": "a PDF",
    b"\xff\xfe": "UTF-16 text; write it as UTF-8",
    b"\xfe\xff": "UTF-16 text; write it as UTF-8",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    separator: str
    names: tuple[str, ...]
    """Names of the columns, as the first line has them."""


def open_text(path: str) -> Any:
    """Open a text file, which may be packed or standard input, as a stream of Arrow."""
    pa = arrow("pyarrow")
    if path == STANDARD_INPUT:
        return pa.BufferReader(standard_input())
    return pa.input_stream(path, compression=PACKED.get(os.path.splitext(path)[1].lower()))


def csv_dialect(path: str) -> Dialect:
    """Return the separator and the columns that the first line of a CSV file tells.

    Commas, if there is any outside quotes; else whichever of semicolon, tab and bar is most
    frequent, which is said.
    """
    with open_text(path) as file:
        header = _decoded(path, file.read(HEADER_BYTES))
    if not header.strip():
        raise InvalidInputError(f"cannot read {path!r} as CSV: it is empty")
    first = _first_line(header)
    outside = "".join(first.split('"')[::2])
    if os.path.splitext(path)[1].lower() == ".tsv" or ".tsv." in os.path.basename(path).lower():
        separator = "\t"
    elif "," in outside or not any(mark in outside for mark in _OTHERS):
        separator = ","
    else:
        separator = max(_OTHERS, key=outside.count)
        warnings.warn(
            f"{path!r} is read as columns separated by {_OTHERS[separator]}, as its first line "
            "has no comma",
            ReadingWarning,
            # One place for all callers, so that it is said once.
            stacklevel=1,
        )
    try:
        names = next(csv.reader(io.StringIO(first), delimiter=separator))
    except (csv.Error, StopIteration) as error:
        raise InvalidInputError(f"cannot read the header of {path!r}: {error}") from None
    return Dialect(separator, tuple(names))


def _first_line(text: str) -> str:
    """Return the first line that is not empty; quoted line ends do not end it."""
    line = ""
    for piece in text.splitlines(keepends=True):
        line += piece
        if line.strip() and line.count('"') % 2 == 0:
            return line.strip("\r\n")
        line = line if line.strip() else ""
    return line


def _decoded(path: str, start: bytes) -> str:
    """Return the start of a text file; refuse what is none."""
    for magic, what in _KNOWN.items():
        if start.startswith(magic):
            raise InvalidInputError(f"cannot read {path!r} as text: it is {what}")
    if b"\0" in start:
        raise InvalidInputError(f"cannot read {path!r} as text: it holds zero bytes")
    # Only the header has to be whole; a character may be cut at the end of what was read.
    end = start.find(b"\n")
    line = start if end < 0 else start[: end + 1]
    try:
        line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"cannot read {path!r} as text: byte {error.start} of its first line is not UTF-8; "
            "write it as UTF-8, with iconv -f latin1 -t utf8 say"
        ) from None
    return start.decode("utf-8-sig", errors="replace")


def json_columns(path: str, kind: str) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of JSON lines, or of a JSON list of objects.

    A key that some objects lack is missing there. Numbers become an array of numbers, anything
    else an array of objects.
    """
    with open_text(path) as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"cannot read {path!r} as {kind}: byte {error.start} is not UTF-8"
        ) from None
    rows = list(_json_rows(path, kind, text))
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: column_of([row.get(name) for row in rows]) for name in names}


def _json_rows(path: str, kind: str, text: str) -> Iterator[dict[str, Any]]:
    if kind == "JSON":
        found = _parsed(path, kind, text, "")
        if not isinstance(found, list):
            raise InvalidInputError(
                f"cannot read {path!r} as JSON: a table is a list of objects, this is "
                f"{_name_of(found)}; an object in each line is called .jsonl"
            )
        numbered = enumerate(found)
    else:
        lines = (line for line in text.split("\n") if line.strip())
        numbered = enumerate(
            _parsed(path, kind, line, f"row {i}: ") for i, line in enumerate(lines)
        )
    for number, row in numbered:
        if not isinstance(row, dict):
            raise InvalidInputError(
                f"cannot read {path!r} as {kind}: row {number} is {_name_of(row)}, not an object"
            )
        yield row


def _parsed(path: str, kind: str, text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=single_entries)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"cannot read {path!r} as {kind}: {where}{error}") from None


def _name_of(value: Any) -> str:
    names = {dict: "one object", list: "a list", str: "text", type(None): "null"}
    return names.get(type(value), "a number")


def column_of(values: list[Any]) -> npt.NDArray[Any]:
    """Return values as numbers if all of them are, NaN where missing; else as they are."""
    if all(isinstance(value, bool) for value in values):
        return np.array(values, np.bool_)
    if all(value is None or isinstance(value, (bool, int, float)) for value in values):
        whole = all(isinstance(value, int) for value in values)
        if whole and all(-(2**63) <= value < 2**63 for value in values):
            return np.array(values, np.int64)
        return np.array([np.nan if value is None else _double(value) for value in values])
    column = np.empty(len(values), object)
    column[:] = values
    return column


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf
