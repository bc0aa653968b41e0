"""Tables in files: CSV, Parquet, Arrow/Feather through pyarrow, NPZ through NumPy alone.

The only place that imports pyarrow, in the function `arrow`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray
from demur.core.columns import guess
from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.npz import npz_columns, npz_names

FORMATS = {
    ".csv": "CSV",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Feather",
    ".npz": "NPZ",
}
"""Formats by the ending of the file's name."""

# Bounds the memory of a stream whatever the size of the file.
BATCH_ROWS = 1 << 17
_CSV_BLOCK = 1 << 22


@dataclass(frozen=True, slots=True)
class Stream:
    """A table that is read piece by piece."""

    schema: Any
    rows: int | None
    """Number of rows, where the format tells it in advance."""
    batches: Iterator[Any]
    text: bool = False
    """Whether numbers come as the text of a CSV file, so that it can be passed on unchanged."""


def file_format(path: str | os.PathLike[str]) -> str:
    """Return the format that the ending of the name stands for."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise InvalidInputError(
            f"{os.fspath(path)!r}: the ending {suffix!r} is none of {', '.join(FORMATS)}"
        )
    return FORMATS[suffix]


def check_input(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not a file, with a guess at what was meant."""
    target = Path(path)
    if target.is_dir():
        raise InvalidInputError(f"{str(target)!r} is a folder, not a file")
    if not target.exists():
        siblings = [p.name for p in target.parent.glob("*")] if target.parent.is_dir() else []
        hint = guess(target.name, siblings).strip()
        raise InvalidInputError(f"there is no file {str(target)!r}" + (f"; {hint}" if hint else ""))


def column_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the columns of a file."""
    check_input(path)
    if file_format(path) == "NPZ":
        return npz_names(path)
    return list(open_stream(path).schema.names)


def read_columns(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named columns; missing numbers are NaN, other missing values None."""
    check_input(path)
    kind = file_format(path)
    if kind == "NPZ":
        return npz_columns(path, names)
    if kind == "CSV":
        # Unlike a stream, this looks at the whole column before it settles on a type.
        arrow_csv = arrow("pyarrow.csv")
        with _reading(path, kind):
            table = arrow_csv.read_csv(
                path,
                parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(include_columns=list(names)),
            )
    else:
        stream = open_stream(path, names)
        table = arrow("pyarrow").Table.from_batches(stream.batches, stream.schema)
    return {name: _to_numpy(table.column(name)) for name in names}


def open_stream(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> Stream:
    """Open a file to be read batch by batch, all its columns or the named ones."""
    check_input(path)
    kind = file_format(path)
    open_ = {"CSV": _open_csv, "Parquet": _open_parquet, "NPZ": _open_npz}.get(kind, _open_ipc)
    with _reading(path, kind):
        stream = open_(os.fspath(path), None if names is None else list(names))
    return Stream(stream.schema, stream.rows, _guarded(path, kind, stream.batches), stream.text)


def _open_csv(path: str, names: list[str] | None) -> Stream:
    arrow_csv, text = arrow("pyarrow.csv"), arrow("pyarrow").string()
    read = arrow_csv.ReadOptions(block_size=_CSV_BLOCK)
    parse = arrow_csv.ParseOptions(newlines_in_values=True)
    with arrow_csv.open_csv(path, read_options=read, parse_options=parse) as header:
        every = header.schema.names
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(every, text), include_columns=names or []
    )
    reader = arrow_csv.open_csv(path, read, parse, convert)
    return Stream(reader.schema, None, iter(reader), text=True)


def _open_parquet(path: str, names: list[str] | None) -> Stream:
    # Small reads instead of whole row groups, which a writer can make as large as the file.
    file = arrow("pyarrow.parquet").ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    batches = file.iter_batches(BATCH_ROWS, columns=names)
    return _selected(Stream(file.schema_arrow, file.metadata.num_rows, batches), names)


def _open_ipc(path: str, names: list[str] | None) -> Stream:
    ipc, source = arrow("pyarrow.ipc"), arrow("pyarrow").memory_map(path)
    if source.read(6) == b"ARROW1":
        reader = ipc.open_file(source)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        source.seek(0)
        reader = batches = ipc.open_stream(source)
    pieces = (piece for batch in batches for piece in _pieces(batch))
    return _selected(Stream(reader.schema, None, pieces), names)


def _selected(stream: Stream, names: list[str] | None) -> Stream:
    """Keep the named columns; asked for "a", Parquet also hands out "a.b"."""
    if names is None:
        return stream
    fields = [stream.schema.field(name) for name in names]
    schema = arrow("pyarrow").schema(fields, stream.schema.metadata)
    return Stream(schema, stream.rows, (batch.select(names) for batch in stream.batches))


def _open_npz(path: str, names: list[str] | None) -> Stream:
    columns = npz_columns(path, npz_names(path) if names is None else names)
    table = arrow("pyarrow").table(columns)
    return Stream(table.schema, table.num_rows, iter(table.to_batches(max_chunksize=BATCH_ROWS)))


def _pieces(batch: Any) -> Iterator[Any]:
    return (batch.slice(start, BATCH_ROWS) for start in range(0, batch.num_rows, BATCH_ROWS))


def floats(array: Any) -> FloatArray:
    """Return an Arrow array of numbers as floats, NaN where a value is missing."""
    pa = arrow("pyarrow")
    # Arrow casts booleans to integers only.
    whole = array.cast(pa.int8()) if pa.types.is_boolean(array.type) else array
    values = _raw(whole.cast(pa.float64(), safe=False))
    return np.where(_bits(array.is_null()), np.nan, values) if array.null_count else values


def _to_numpy(column: Any) -> npt.NDArray[Any]:
    types = arrow("pyarrow").types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    numeric = types.is_integer(column.type) or types.is_floating(column.type)
    if is_number(column.type):
        convert = _raw if numeric and column.null_count == 0 else floats
        parts = [convert(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0)
    values = np.empty(len(column), object)
    values[:] = column.to_pylist()
    return values


def _raw(array: Any) -> npt.NDArray[Any]:
    """Return numbers as they are stored; Arrow's own conversions import pandas if they can."""
    dtype = np.dtype(array.type.to_pandas_dtype())
    start = array.offset * dtype.itemsize
    return np.frombuffer(array.buffers()[1] or b"", dtype, len(array), start)


def _bits(array: Any) -> BoolArray:
    stored = np.frombuffer(array.buffers()[1], np.uint8)
    bits = np.unpackbits(stored, count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].astype(np.bool_)


def is_number(kind: Any) -> bool:
    """Return whether values of this Arrow type can be read as floats."""
    types = arrow("pyarrow").types
    checks = types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null
    return any(check(kind) for check in checks)


def _guarded(path: Any, kind: str, batches: Iterator[Any]) -> Iterator[Any]:
    with _reading(path, kind):
        yield from batches


@contextmanager
def _reading(path: Any, kind: str) -> Iterator[None]:
    try:
        yield
    except (arrow("pyarrow").ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as {kind}: {reason}") from None


def arrow(module: str) -> Any:
    """Import a part of pyarrow, which is an extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError("pyarrow", "files") from None
