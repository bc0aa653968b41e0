"""Reading tables: the columns of one file or of many, whole or batch by batch.

CSV, Parquet and Arrow/Feather files are read as record batches, NPZ files through NumPy alone,
JSON and Excel whole. Columns that the folders of a file name are read like those inside it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.core.columns import check_names, match_name
from demur.errors import InvalidInputError, ReadingWarning
from demur.sources.archives import npz_columns, npz_names
from demur.sources.files import (
    check_input,
    file_format,
    find_partitions,
    hive_columns,
    hive_kind,
    hive_values,
    is_partitioned,
)
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
from demur.sources.text_files import column_of, csv_dialect, json_columns, open_text


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
    first = find_partitions(path).files[0] if is_partitioned(path) else path
    names = column_names(first)
    return names + [name for name in hive_columns(first) if name not in names]


def read_table(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named columns of a file or of many, one after the other, as `read_columns`."""
    files = find_partitions(path).files if is_partitioned(path) else (path,)
    parts = [_read_part(file, names) for file in files]
    said = [hive_values(file) for file in files]
    columns = {name: [part[name] for part in parts] for name in names}
    for name, pieces in columns.items():
        if all(name in values for values in said):
            columns[name] = _hive_arrays(pieces, [values[name] for values in said])
    return {name: np.concatenate(pieces) for name, pieces in columns.items()}


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
