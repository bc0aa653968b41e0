"""NumPy archives as tables: every one-dimensional array is a column."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError


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
