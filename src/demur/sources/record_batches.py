"""Record batches of Arrow: out of files, as numbers, with decisions, and into files.

The only place that imports pyarrow, in the function `arrow`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray
from demur.errors import InvalidInputError, MissingExtraError

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


def arrow(module: str) -> Any:
    """Import a part of pyarrow, which is an extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError("pyarrow", "files") from None


def csv_table(file: Any, separator: str, names: Sequence[str]) -> Any:
    """Read columns of a CSV file whole: their types are settled after the last row."""
    arrow_csv = arrow("pyarrow.csv")
    return arrow_csv.read_csv(
        file,
        parse_options=_parsing(separator),
        convert_options=arrow_csv.ConvertOptions(include_columns=list(names)),
    )


def csv_stream(
    file: Any, separator: str, every: Sequence[str], names: Sequence[str] | None
) -> Stream:
    """Read a CSV file with the columns `every`; everything comes as text."""
    arrow_csv, text = arrow("pyarrow.csv"), arrow("pyarrow").string()
    read = arrow_csv.ReadOptions(block_size=_CSV_BLOCK)
    convert = arrow_csv.ConvertOptions(
        column_types=dict.fromkeys(every, text),
        include_columns=[] if names is None else list(dict.fromkeys(names)),
    )
    reader = arrow_csv.open_csv(file, read, _parsing(separator), convert)
    return Stream(reader.schema, None, iter(reader), text=True)


def _parsing(separator: str) -> Any:
    return arrow("pyarrow.csv").ParseOptions(delimiter=separator, newlines_in_values=True)


def parquet_stream(path: str, names: list[str] | None) -> Stream:
    """Open a Parquet file."""
    # Small reads instead of whole row groups, which a writer can make as large as the file.
    file = arrow("pyarrow.parquet").ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    batches = file.iter_batches(BATCH_ROWS, columns=names)
    return Stream(file.schema_arrow, file.metadata.num_rows, batches)


def ipc_stream(path: str) -> Stream:
    """Open an Arrow or Feather file, or an Arrow stream; every batch is checked for damage."""
    ipc, source = arrow("pyarrow.ipc"), arrow("pyarrow").memory_map(path)
    if source.read(6) == b"ARROW1":
        reader = ipc.open_file(source)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        source.seek(0)
        reader = batches = ipc.open_stream(source)
    pieces = (piece for batch in batches for piece in _pieces(_sound(batch)))
    return Stream(reader.schema, None, pieces)


def selected(stream: Stream, columns: Mapping[str, str]) -> Stream:
    """Keep columns, under the names that are the keys; asked for "a", Parquet also gives "a.b"."""
    pa = arrow("pyarrow")
    fields = [stream.schema.field(old).with_name(new) for new, old in columns.items()]
    schema = pa.schema(fields, stream.schema.metadata)
    batches = (
        pa.RecordBatch.from_arrays([batch.column(old) for old in columns.values()], schema=schema)
        for batch in stream.batches
    )
    return Stream(schema, stream.rows, batches, stream.text)


def column_stream(columns: Mapping[str, npt.NDArray[Any]]) -> Stream:
    """Return columns in memory as if they were read from a file."""
    pa = arrow("pyarrow")
    # NaN stands for a missing number in columns; written as text it would be a word.
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    table = pa.table(arrays)
    return Stream(table.schema, table.num_rows, iter(table.to_batches(max_chunksize=BATCH_ROWS)))


def _sound(batch: Any) -> Any:
    # Offsets and lengths that were damaged lead out of the buffers.
    batch.validate(full=True)
    return batch


def _pieces(batch: Any) -> Iterator[Any]:
    return (batch.slice(start, BATCH_ROWS) for start in range(0, batch.num_rows, BATCH_ROWS))


def floats(array: Any) -> FloatArray:
    """Return an Arrow array of numbers as floats, NaN where a value is missing."""
    pa = arrow("pyarrow")
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    values = _raw(_castable(array)).astype(np.float64, copy=False)
    return np.where(_present(array), values, np.nan) if array.null_count else values


def _castable(array: Any) -> Any:
    """Return values that NumPy takes as they are stored; Arrow's own casts load many functions."""
    pa = arrow("pyarrow")
    if pa.types.is_boolean(array.type):
        return array.cast(pa.int8())
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        return array
    # Cast at once, decimals are off by an ulp; text is read to the nearest double.
    whole = array.cast(pa.string()) if pa.types.is_decimal(array.type) else array
    return whole.cast(pa.float64(), safe=False)


def to_numpy(column: Any) -> npt.NDArray[Any]:
    """Return a column of a table: missing numbers are NaN, other missing values None."""
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


def _present(array: Any) -> BoolArray:
    stored = np.frombuffer(array.buffers()[0], np.uint8)
    bits = np.unpackbits(stored, count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].astype(np.bool_)


def is_number(kind: Any) -> bool:
    """Return whether values of this Arrow type can be read as floats."""
    types = arrow("pyarrow").types
    checks = types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_null
    return any(check(kind) for check in checks)


def batch_numbers(batch: Any, name: str, *, text: bool, first_row: int) -> FloatArray:
    """Return a column of a batch as floats, NaN where a value is missing."""
    column = batch.column(name)
    pa = arrow("pyarrow")
    if text:
        compute = arrow("pyarrow.compute")
        stripped = compute.utf8_trim_whitespace(column)
        column = compute.replace_substring_regex(stripped, _missing_pattern(), "nan")
    elif not is_number(column.type):
        raise InvalidInputError(f"column {name!r} holds {column.type}, not numbers")
    try:
        return floats(column)
    except pa.ArrowInvalid:
        row, value = next((i, v.as_py()) for i, v in enumerate(column) if not _parses(v))
        raise InvalidInputError(
            f"column {name!r}, row {first_row + row} is {value!r}, not a number"
        ) from None


def decision_schema(schema: Any, keep: Sequence[str], name: str) -> Any:
    """Return the schema of the columns `keep` and one more, the decision."""
    pa = arrow("pyarrow")
    kept = [schema.field(column) for column in keep]
    return pa.schema([*kept, pa.field(name, pa.bool_())], schema.metadata)


def with_decision(batch: Any, schema: Any, accept: BoolArray) -> Any:
    """Return the batch under `decision_schema`, with `accept` as its last column."""
    pa = arrow("pyarrow")
    kept = [batch.column(name) for name in schema.names[:-1]]
    bits = pa.py_buffer(np.packbits(accept, bitorder="little"))
    decision = pa.Array.from_buffers(pa.bool_(), len(accept), [None, bits])
    return pa.RecordBatch.from_arrays([*kept, decision], schema=schema)


@contextmanager
def open_writer(file: BinaryIO, kind: str, schema: Any) -> Iterator[Callable[[Any], None]]:
    """Yield a function that appends a batch to `file` in the given format."""
    try:
        with _writer(file, kind, schema) as write:
            yield write
    except arrow("pyarrow").ArrowException as error:
        raise InvalidInputError(f"cannot write {kind}: {' '.join(str(error).split())}") from None


@contextmanager
def _writer(file: BinaryIO, kind: str, schema: Any) -> Iterator[Callable[[Any], None]]:
    if kind in ("CSV", "TSV"):
        yield _csv_writer(file, schema, "," if kind == "CSV" else "\t")
    elif kind == "JSONL":
        yield _json_writer(file)
    elif kind == "Parquet":
        with arrow("pyarrow.parquet").ParquetWriter(file, schema) as writer:
            yield writer.write_batch
    elif kind not in ("Arrow", "Feather"):
        raise InvalidInputError(f"{kind} is read only: write CSV, JSONL or Parquet")
    else:
        ipc = arrow("pyarrow.ipc")
        options = ipc.IpcWriteOptions(compression="lz4" if kind == "Feather" else None)
        with ipc.new_file(file, schema, options=options) as writer:
            yield writer.write_batch


def _json_writer(file: BinaryIO) -> Callable[[Any], None]:
    """Write an object in each line; dates are text, and what JSON has no number for is null."""

    def write(batch: Any) -> None:
        for row in batch.to_pylist():
            text = json.dumps(_json_value(row), ensure_ascii=False, allow_nan=False, default=str)
            file.write(text.encode() + b"\n")

    return write


def _json_value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    return [_json_value(item) for item in value] if isinstance(value, list) else value


def _csv_writer(file: BinaryIO, schema: Any, separator: str) -> Callable[[Any], None]:
    pa, arrow_csv = arrow("pyarrow"), arrow("pyarrow.csv")
    for field in schema:
        if pa.types.is_nested(field.type):
            raise InvalidInputError(
                f"column {field.name!r} holds {field.type}, which CSV cannot hold: "
                "write Parquet, or keep a single column with --id"
            )
    header = io.StringIO()
    csv.writer(header, delimiter=separator, lineterminator="\n").writerow(schema.names)
    file.write(header.getvalue().encode())

    def write(batch: Any) -> None:
        plain = pa.RecordBatch.from_arrays([_plain(c) for c in batch.columns], batch.schema.names)
        # Arrow quotes all text or none, so quote only the batches that need it.
        for style in ("none", "needed"):
            options = arrow_csv.WriteOptions(
                include_header=False, quoting_style=style, delimiter=separator
            )
            buffer = pa.BufferOutputStream()
            try:
                arrow_csv.write_csv(plain, buffer, options)
            except pa.ArrowInvalid:
                if style == "needed":
                    raise
            else:
                file.write(buffer.getvalue())
                return

    return write


def _plain(column: Any) -> Any:
    """Return a column of a type that Arrow writes as CSV; Polars has text as views."""
    pa = arrow("pyarrow")
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    views = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return column.cast(views.get(column.type, column.type))


def _missing_pattern() -> str:
    """Return what matches the texts that Arrow takes for missing values."""
    texts = arrow("pyarrow.csv").ConvertOptions().null_values
    return "^(" + "|".join(map(re.escape, texts)) + ")$"


def _parses(scalar: Any) -> bool:
    pa = arrow("pyarrow")
    try:
        scalar.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
