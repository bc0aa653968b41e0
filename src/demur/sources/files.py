"""Tables in files: one file, or the many of a folder or a pattern, whose folders may name columns.

CSV, Parquet and Arrow/Feather files are read as record batches, NPZ files through NumPy alone.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from demur.core.columns import guess
from demur.errors import InvalidInputError
from demur.sources.record_batches import (
    Stream,
    arrow,
    column_stream,
    csv_stream,
    csv_table,
    ipc_stream,
    parquet_stream,
    to_numpy,
)

FORMATS = {
    ".csv": "CSV",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Feather",
    ".npz": "NPZ",
}
"""Formats by the ending of the file's name."""

_MAGIC = re.compile(r"[*?\[]")


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
        with _reading(path, kind):
            table = csv_table(path, names)
    else:
        stream = open_stream(path, names)
        table = arrow("pyarrow").Table.from_batches(stream.batches, stream.schema)
    return {name: to_numpy(table.column(name)) for name in names}


def open_stream(path: str | os.PathLike[str], names: Sequence[str] | None = None) -> Stream:
    """Open a file to be read batch by batch, all its columns or the named ones."""
    check_input(path)
    kind = file_format(path)
    open_ = {"CSV": csv_stream, "Parquet": parquet_stream, "NPZ": _npz_stream}.get(kind, ipc_stream)
    with _reading(path, kind):
        stream = open_(os.fspath(path), None if names is None else list(names))
    return Stream(stream.schema, stream.rows, _guarded(path, kind, stream.batches), stream.text)


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
    text = os.fspath(path)
    return os.path.isdir(text) or (bool(_MAGIC.search(text)) and not os.path.exists(text))


def find_partitions(path: str | os.PathLike[str]) -> Partitions:
    """Return the files of a folder, with all its subfolders, or those that match a pattern.

    Names that begin with ``_`` or ``.`` are skipped, as Spark and Hive do: they are notes and
    unfinished files. So are files in a folder that have the ending of no table.
    """
    text = os.fspath(path)
    if os.path.isdir(text):
        root, pattern = Path(text), "**/*"
    else:
        parts = Path(text).parts
        plain = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        root, pattern = Path(*parts[:plain]), str(Path(*parts[plain:]))
    found = [
        file
        for file in sorted(root.glob(pattern))
        if file.is_file() and not _is_hidden(file.relative_to(root))
    ]
    if os.path.isdir(text):
        found = [file for file in found if file.suffix.lower() in FORMATS]
    if not found:
        raise InvalidInputError(
            f"{text!r} holds no file that ends in one of {', '.join(FORMATS)}"
            if os.path.isdir(text)
            else f"no file matches {text!r}"
        )
    return Partitions(root, tuple(found))


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
    return tuple(files), next(iter(kinds))


def hive_columns(file: str | os.PathLike[str]) -> list[str]:
    """Return the columns that the folders of a file name, as in ``day=1/scores.parquet``.

    Examples
    --------
    >>> hive_columns("scores/year=2025/day=1/part.parquet")
    ['year', 'day']
    """
    return [part.partition("=")[0] for part in Path(file).parts if "=" in part]


def table_columns(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the columns of a file, or of the first of many."""
    return column_names(find_partitions(path).files[0] if is_partitioned(path) else path)


def read_table(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named columns of a file or of many, one after the other, as `read_columns`."""
    if not is_partitioned(path):
        return read_columns(path, names)
    parts = [read_columns(file, names) for file in find_partitions(path).files]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def npz_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the arrays."""
    with _archive(path) as archive:
        return list(archive.files)


def npz_columns(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named arrays, which must be one-dimensional and of one length."""
    with _archive(path) as archive:
        columns = {name: archive[name] for name in names}
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


def write_npz(file: BinaryIO, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an archive; unlike `numpy.savez` under any names."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, column, allow_pickle=False)


@contextmanager
def _archive(path: str | os.PathLike[str]) -> Iterator[Any]:
    # NumPy takes any other file for a pickle and says so.
    if not zipfile.is_zipfile(path):
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as NPZ: it is no such archive")
    try:
        with np.load(path, allow_pickle=False) as archive:
            yield archive
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        reason = " ".join(str(error).split())
        if "allow_pickle" in reason:
            reason = "it holds Python objects, and reading those could run code"
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as NPZ: {reason}") from None


def _npz_stream(path: str, names: list[str] | None) -> Stream:
    return column_stream(npz_columns(path, npz_names(path) if names is None else names))
