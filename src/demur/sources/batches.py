"""Record batches: scores out of them, decisions into them, and writing them to a file."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.errors import InvalidInputError
from demur.sources.files import arrow, floats, is_number


def batch_numbers(batch: Any, name: str, *, text: bool, first_row: int) -> FloatArray:
    """Return a column of a batch as floats, NaN where a value is missing."""
    column = batch.column(name)
    pa, compute = arrow("pyarrow"), arrow("pyarrow.compute")
    if text:
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
    if kind == "CSV":
        yield _csv_writer(file, schema)
    elif kind == "Parquet":
        with arrow("pyarrow.parquet").ParquetWriter(file, schema) as writer:
            yield writer.write_batch
    else:
        ipc = arrow("pyarrow.ipc")
        options = ipc.IpcWriteOptions(compression="lz4" if kind == "Feather" else None)
        with ipc.new_file(file, schema, options=options) as writer:
            yield writer.write_batch


def _csv_writer(file: BinaryIO, schema: Any) -> Callable[[Any], None]:
    pa, arrow_csv = arrow("pyarrow"), arrow("pyarrow.csv")
    for field in schema:
        if pa.types.is_nested(field.type):
            raise InvalidInputError(
                f"column {field.name!r} holds {field.type}, which CSV cannot hold: "
                "write Parquet, or keep a single column with --id"
            )
    header = io.StringIO()
    csv.writer(header, lineterminator="\n").writerow(schema.names)
    file.write(header.getvalue().encode())

    def write(batch: Any) -> None:
        plain = pa.RecordBatch.from_arrays([_plain(c) for c in batch.columns], batch.schema.names)
        # Arrow quotes all text or none, so quote only the batches that need it.
        for style in ("none", "needed"):
            options = arrow_csv.WriteOptions(include_header=False, quoting_style=style)
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
    is_coded = arrow("pyarrow").types.is_dictionary(column.type)
    return column.dictionary_decode() if is_coded else column


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
