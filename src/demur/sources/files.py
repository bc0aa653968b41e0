"""Tables in files: one file, or the many of a folder or a pattern, whose folders may name columns.

CSV, Parquet and Arrow/Feather files are read as record batches, NPZ files through NumPy alone,
JSON and Excel whole. A path that exists means itself, whatever marks its name holds.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from demur.core.columns import check_names, guess, match_name
from demur.errors import InvalidInputError
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
from demur.sources.text_files import (
    PACKED,
    STANDARD_INPUT,
    csv_dialect,
    input_format,
    json_columns,
    open_text,
)

FORMATS = {
    ".csv": "CSV",
    ".tsv": "CSV",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Feather",
    ".npz": "NPZ",
    ".jsonl": "JSONL",
    ".ndjson": "JSONL",
    ".json": "JSON",
    ".xlsx": "Excel",
    ".xls": "Excel",
}
"""Formats by the ending of the file's name."""

_TEXT = ("CSV", "JSONL", "JSON")
"""Formats that may be packed."""

_MAGIC = re.compile(r"[*?\[]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

# An array that takes more than the first and so many times its packed size is taken for a trap.
_UNPACKED, _RATIO = 2**30, 200


def file_format(path: str | os.PathLike[str]) -> str:
    """Return the format that the ending of the name stands for; standard input is looked at.

    Examples
    --------
    >>> file_format("scores.parquet"), file_format("scores.tsv.gz")
    ('Parquet', 'CSV')
    """
    text = path_text(path)
    if text == STANDARD_INPUT:
        return input_format()
    stem, suffix = os.path.splitext(text.lower())
    packed = suffix in PACKED
    if packed:
        suffix = os.path.splitext(stem)[1]
    kind = FORMATS.get(suffix)
    if kind is None or (packed and kind not in _TEXT):
        raise InvalidInputError(
            f"{text!r}: the ending {Path(text).suffix!r} is none of {', '.join(FORMATS)}; "
            "CSV and JSON may be packed, as .csv.gz or .jsonl.zst"
        )
    return kind


def output_format(path: str | os.PathLike[str]) -> str:
    """Return the format in which a file of this name is written.

    Examples
    --------
    >>> output_format("decided.tsv"), output_format("decided.jsonl")
    ('TSV', 'JSONL')
    """
    text = path_text(path)
    kind = file_format(text)
    if os.path.splitext(text)[1].lower() in PACKED:
        raise InvalidInputError(f"{text!r}: packed files are read only; write it and pack it then")
    if kind in ("JSON", "Excel"):
        raise InvalidInputError(f"{text!r}: {kind} is read only; write .jsonl, .csv or .parquet")
    return "TSV" if text.lower().endswith(".tsv") else kind


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text; refuse what cannot be one."""
    if not isinstance(path, (str, os.PathLike)):
        raise InvalidInputError(f"a file must be named by text or a Path, got {path!r}")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInputError(f"{text!r} is not a path")
    return text


def check_input(path: str | os.PathLike[str]) -> None:
    """Refuse a path that is not a regular file, with a guess at what was meant."""
    text = path_text(path)
    if text == STANDARD_INPUT:
        return
    try:
        found = os.stat(text)
    except OSError as error:
        raise InvalidInputError(_no_file(text, error)) from None
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInputError(f"{text!r} is a folder, not a file")
    if not stat.S_ISREG(found.st_mode):
        what = "a pipe" if stat.S_ISFIFO(found.st_mode) else "a device or socket"
        raise InvalidInputError(
            f"{text!r} is {what}, not a regular file: save the rows to a file, or pipe them to "
            "standard input and give '-'"
        )


def _no_file(text: str, error: OSError) -> str:
    """Say why there is no such file."""
    target = Path(text)
    if text.endswith(("/", os.sep)) and target.is_file():
        return f"{text!r} ends in a slash, but is a file, not a folder"
    if target.is_symlink():
        return f"{text!r} is a link that leads to no file"
    if isinstance(error, PermissionError):
        return f"cannot read {text!r}: permission denied"
    siblings = [p.name for p in target.parent.iterdir()] if target.parent.is_dir() else []
    hint = guess(target.name, siblings).strip()
    return f"there is no file {text!r}" + (f"; {hint}" if hint else "")


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
    """Read the first sheet with pandas, and whatever pandas reads such files with."""
    try:
        frame = import_module("pandas").read_excel(path)
    except ImportError as error:
        raise InvalidInputError(
            f"cannot read {path!r}: Excel files need pandas and openpyxl ({error}); install these, "
            "or save the sheet as CSV"
        ) from None
    except Exception as error:
        # Each of the readers of pandas has errors of its own.
        raise InvalidInputError(f"cannot read {path!r} as Excel: {error}") from None
    table = arrow("pyarrow").Table.from_pandas(frame, preserve_index=False)
    return {str(name): to_numpy(table.column(i)) for i, name in enumerate(table.column_names)}


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


@dataclass(frozen=True, slots=True)
class Partitions:
    """The files, in the order of their names, and the folder they all lie in."""

    root: Path
    files: tuple[Path, ...]


def is_partitioned(path: str | os.PathLike[str]) -> bool:
    """Return whether a path means many files: a folder, or a pattern that is no file itself.

    Examples
    --------
    >>> is_partitioned("scores/*.parquet"), is_partitioned("scores.parquet")
    (True, False)
    """
    text = path_text(path)
    return os.path.isdir(text) or (bool(_MAGIC.search(text)) and not os.path.lexists(text))


def find_partitions(path: str | os.PathLike[str]) -> Partitions:
    """Return the files of a folder, with all its subfolders, or those that match a pattern.

    Names that begin with ``_`` or ``.`` are skipped, as Spark and Hive do: they are notes and
    unfinished files. So are files in a folder that have the ending of no table.
    """
    text = path_text(path)
    if os.path.isdir(text):
        root, pattern = Path(text), "**/*"
    else:
        parts = Path(text).parts
        # A folder that exists is itself, whatever marks its name holds.
        plain = next(
            i
            for i, part in enumerate(parts)
            if _MAGIC.search(part) and not os.path.lexists(Path(*parts[: i + 1]))
        )
        root, pattern = Path(*parts[:plain]), str(Path(*parts[plain:]))
    found = [
        file
        for file in sorted(root.glob(pattern))
        if file.is_file() and not _is_hidden(file.relative_to(root))
    ]
    if os.path.isdir(text):
        found = [file for file in found if _has_format(file)]
    if not found:
        raise InvalidInputError(
            f"{text!r} holds no file that ends in one of {', '.join(FORMATS)}"
            if os.path.isdir(text)
            else f"no file matches {text!r}"
        )
    return Partitions(root, tuple(found))


def _has_format(file: Path) -> bool:
    try:
        file_format(file)
    except InvalidInputError:
        return False
    return True


def find_files(
    data: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> tuple[tuple[str, ...], str]:
    """Return the files that a path, a pattern, a folder or a list of those means, and their format.

    Only formats that can be counted in without holding the rows.
    """
    paths = [data] if isinstance(data, (str, os.PathLike)) else list(data)
    files: list[str] = []
    for path in paths:
        if is_partitioned(path):
            files += [str(file) for file in find_partitions(path).files]
        else:
            check_input(path)
            files.append(path_text(path))
    if not files:
        raise InvalidInputError("data is an empty list: give at least one file")
    kinds = {file_format(file): file for file in files}
    for kind, file in kinds.items():
        packed = os.path.splitext(file)[1].lower() in PACKED
        if kind not in ("Parquet", "CSV") or packed or file == STANDARD_INPUT:
            what = "standard input" if file == STANDARD_INPUT else "packed " * packed + kind
            raise InvalidInputError(
                f"{file!r} is {what}, which is read into memory only; "
                "write it as Parquet, or use Sample (--engine memory)"
            )
    if len(kinds) > 1:
        raise InvalidInputError(
            f"the files are of different formats: {', '.join(sorted(kinds.values()))}"
        )
    return tuple(files), next(iter(kinds))


@dataclass(frozen=True, slots=True)
class Located:
    """Files of one format that an engine is to read, and how."""

    files: tuple[str, ...]
    kind: str
    separator: str = ","
    numbers: tuple[str, ...] = ()
    """Columns that must hold numbers."""
    hive: Mapping[str, str] = field(default_factory=dict)
    """Columns that only the folders name, and the kind of each."""


def hive_columns(file: str | os.PathLike[str]) -> list[str]:
    """Return the columns that the folders of a file name, as in ``day=1/scores.parquet``.

    Examples
    --------
    >>> hive_columns("scores/year=2025/day=1/part.parquet")
    ['year', 'day']
    """
    return list(hive_values(file))


def hive_values(file: str | os.PathLike[str]) -> dict[str, str | None]:
    """Return what the folders of a file say: the text of each column, or None where it is missing.

    Examples
    --------
    >>> hive_values("scores/set=svhn%20small/part.parquet")
    {'set': 'svhn small'}
    """
    values: dict[str, str | None] = {}
    for part in Path(file).parts[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            values[unquote(key)] = None if value == _NO_VALUE else unquote(value)
    return values


def hive_kind(values: Sequence[str | None]) -> str:
    """Return of which kind the values of a hive column are: "BIGINT", "DATE" or "VARCHAR"."""
    known = [value for value in values if value is not None]
    for kind, pattern in _HIVE_KINDS.items():
        if known and all(re.fullmatch(pattern, value) for value in known):
            return kind
    return "VARCHAR"


_HIVE_KINDS = {"BIGINT": r"0|-?[1-9][0-9]{0,17}", "DATE": r"[0-9]{4}-[0-9]{2}-[0-9]{2}"}


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
                f"{column[row]!r} in row {row}: drop or rename one of them"
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


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def npz_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the arrays."""
    with _archive(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if not names:
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as NPZ: it holds no array")
    return names


def npz_columns(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named arrays, which must be one-dimensional and of one length."""
    with _archive(path) as archive:
        columns = {name: _array(archive, name) for name in names}
    for name, column in columns.items():
        if column.ndim != 1:
            raise InvalidInputError(
                f"{os.fspath(path)!r}: array {name!r} has shape {column.shape}; "
                "a column has one dimension"
            )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(
            f"{os.fspath(path)!r}: the arrays are of different lengths: "
            + ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        )
    return columns


def _array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """Read an array, if the archive holds as many bytes as its header speaks of."""
    info = archive.getinfo(f"{name}.npy")
    if info.file_size > max(_UNPACKED, _RATIO * info.compress_size):
        raise ValueError(
            f"array {name!r} unpacks to {info.file_size} bytes, more than 1 GiB and than "
            f"{_RATIO} times its packed size: save it with numpy.savez, unpacked"
        )
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in read:
            raise ValueError(f"array {name!r} is of version {version}, which holds no numbers")
        shape, _, dtype = read[version](member)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, and reading those could run code")
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size != info.file_size - member.tell():
            raise ValueError(
                f"array {name!r} is damaged: its header speaks of {size} bytes, "
                f"there are {info.file_size - member.tell()}"
            )
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def write_npz(file: BinaryIO, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an archive; unlike `numpy.savez` under any names."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, column, allow_pickle=False)


@contextmanager
def _archive(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    check_input(path)
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except InvalidInputError:
        raise
    except zipfile.BadZipFile as error:
        raise InvalidInputError(
            f"cannot read {os.fspath(path)!r} as NPZ: it is no such archive ({error})"
        ) from None
    # An encrypted member is a RuntimeError, an unknown way of packing NotImplementedError.
    except (
        *(OSError, EOFError, ValueError, KeyError, zlib.error, RuntimeError, SyntaxError),
        *(TypeError, MemoryError, OverflowError, UnicodeError),
    ) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as NPZ: {reason}") from None
