"""A table in many files: a folder, or a pattern such as ``scores/day=*/*.parquet``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError
from demur.sources.files import FORMATS, column_names, read_columns

_MAGIC = re.compile(r"[*?\[]")


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
