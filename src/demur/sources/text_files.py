"""Tables that are text: CSV with any separator, JSON and JSON lines, packed or from a pipe.

One rule for all engines. The first line of a CSV file names the columns and says by what they are
separated; ``"`` quotes; no line is a comment. A number has a decimal point and nothing between
its digits; in columns of numbers an empty cell and the `MISSING` texts are missing values, in
other columns only an empty cell is.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError, ReadingWarning
from demur.sources.record_batches import arrow

STANDARD_INPUT = "-"

MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
)
"""Texts that stand for a missing number."""

PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""Endings of packed text files, and how these were packed."""

_OTHERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_HEADER_BYTES = 1 << 20
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


_seen: tuple[Any, bytes] | None = None
_taken: tuple[Any, str] | None = None


def standard_input() -> bytes:
    """Return all of standard input, which can be read only once and is therefore kept."""
    global _seen
    if _taken is not None and _taken[0] is sys.stdin:
        raise InvalidInputError(f"'-' means standard input, which is {_taken[1]} already")
    if _seen is None or _seen[0] is not sys.stdin:
        if sys.stdin is None or sys.stdin.closed:
            raise InvalidInputError("'-' means standard input, which is closed")
        raw = getattr(sys.stdin, "buffer", None)
        content = raw.read() if raw is not None else sys.stdin.read().encode()
        if not content:
            raise InvalidInputError("'-' means standard input, which is empty")
        _seen = (sys.stdin, content)
    return _seen[1]


def input_text(what: str) -> str:
    """Return all of standard input as text, which then is no table as well."""
    global _taken
    try:
        text = standard_input().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"cannot read {what} from standard input: {error}") from None
    _taken = (sys.stdin, what)
    return text


def input_format() -> str:
    """Return the format of standard input: JSON lines begin with a brace, JSON with a bracket."""
    start = standard_input()[:_HEADER_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return {b"{": "JSONL", b"[": "JSON"}.get(start, "CSV")


def csv_dialect(path: str) -> Dialect:
    """Return the separator and the columns that the first line of a CSV file tells.

    Commas, if there is any outside quotes; else whichever of semicolon, tab and bar is most
    frequent, which is said.
    """
    with open_text(path) as file:
        header = _decoded(path, file.read(_HEADER_BYTES))
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
        return json.loads(text, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"cannot read {path!r} as {kind}: {where}{error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


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
