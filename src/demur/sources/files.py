"""Which files a path means: their format, the many of a folder or a pattern, and what folders say.

A path that exists means itself, whatever marks its name holds.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

from demur.core.columns import guess
from demur.errors import InvalidInputError

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

STANDARD_INPUT = "-"

PACKED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""Endings of packed text files, and how these were packed."""

HEADER_BYTES = 1 << 20

_TEXT = ("CSV", "JSONL", "JSON")
"""Formats that may be packed."""

_MAGIC = re.compile(r"[*?\[]")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


DATABASES = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
    "snowflake": "snowflake",
    "bigquery": "bigquery",
    "trino": "trino",
}
"""Dialects of SQL by what URLs, SQLAlchemy and ADBC call a database."""

_URL = re.compile(r"(?P<name>[a-z0-9]+)(\+[a-z0-9_]+)?://")


def is_database_url(path: object) -> bool:
    """Return whether a text is the URL of a database.

    Examples
    --------
    >>> is_database_url("postgresql+psycopg://me@host/db"), is_database_url("s3://bucket/x.parquet")
    (True, False)
    """
    found = _URL.match(path) if isinstance(path, str) else None
    return found is not None and found["name"] in DATABASES


def is_store_url(path: object) -> bool:
    """Return whether a path is the URL of an object store.

    Examples
    --------
    >>> is_store_url("s3://bucket/scores"), is_store_url("scores"), is_store_url("sqlite:///x.db")
    (True, False, False)
    """
    return isinstance(path, str) and bool(_URL.match(path)) and not is_database_url(path)


def lake_format(path: object) -> str | None:
    """Return whether a folder is a table of "Delta Lake" or "Iceberg", or none of these."""
    if not isinstance(path, (str, os.PathLike)) or "://" in os.fspath(path):
        return None
    folder = Path(path)
    if (folder / "_delta_log").is_dir():
        return "Delta Lake"
    return "Iceberg" if any(folder.glob("metadata/*.metadata.json")) else None


def shown(path: str) -> str:
    """Return a path or URL as it may be shown: without a password.

    Examples
    --------
    >>> shown("postgresql://me:secret@host/db#scores")
    'postgresql://me:***@host/db#scores'
    """
    return re.sub(r"(?<=://)([^/@:]*):[^@/]*@", r"\1:***@", path)


def split_table(url: str, table: str | None = None) -> tuple[str, str | None]:
    """Return the URL of a database and the name of a table, which may be written behind a #.

    Examples
    --------
    >>> split_table("sqlite:///lake.db#scores")
    ('sqlite:///lake.db', 'scores')
    """
    bare, mark, behind = url.partition("#")
    if mark and table is not None and table != behind:
        raise InvalidInputError(f"the URL names the table {behind!r}, and table is {table!r}")
    return bare, table if table is not None else behind or None


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
    if is_store_url(text):
        raise InvalidInputError(
            f"{shown(text)!r} is in an object store, where a file of this machine is needed"
        )
    if is_database_url(text):
        raise InvalidInputError(
            f"{shown(text)!r} is a database, where a file is needed: write its rows to a file, or "
            "decide them there, by the SQL of Rule.to_sql"
        )
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
    if is_database_url(text) or is_store_url(text):
        return False
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
    files = [file for file in sorted(root.glob(pattern)) if file.is_file()]
    _refuse_lake_table(text, root, files)
    found = [file for file in files if not _is_hidden(file.relative_to(root))]
    if os.path.isdir(text):
        found = [file for file in found if _has_format(file)]
    if not found:
        raise InvalidInputError(
            f"{text!r} holds no file that ends in one of {', '.join(FORMATS)}"
            if os.path.isdir(text)
            else f"no file matches {text!r}"
        )
    return Partitions(root, tuple(found))


def _refuse_lake_table(text: str, root: Path, files: Sequence[Path]) -> None:
    """Refuse files whose rows count only where a log says so: some may be deleted or replaced."""
    folders = {root} | {folder for file in files for folder in _folders(file, root)}
    for folder in sorted(folders):
        kind = "Delta Lake" if (folder / "_delta_log").is_dir() else "Iceberg"
        if kind == "Delta Lake" or any(folder.glob("metadata/*.metadata.json")):
            there = "it" if str(folder) == text.rstrip("/") else repr(str(folder))
            raise InvalidInputError(
                f"{text!r}: {there} is a table of {kind}, whose folder also holds deleted rows; "
                "give the folder itself and no other engine than DuckDB, or open it with Spark and "
                "give the frame"
            )


def _folders(file: Path, root: Path) -> Iterator[Path]:
    """Yield the folders between a file and the root, and some above: a table may begin there."""
    yield from (folder for folder in file.parents if folder.is_relative_to(root))
    yield from list(root.absolute().parents)[:3]


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
    alike: tuple[tuple[str, ...], ...] = ()
    """The files by the types of their columns, where these differ."""
    mixed: tuple[str, ...] = ()
    """Columns of numbers whose types differ, to be read as doubles."""


class Stamps(Protocol):
    """Tells whether rows are what they were."""

    def check(self) -> None:
        """Refuse rows that changed."""


class FileStamps:
    """What files were like when they were first looked at: passes over changed ones are refused."""

    def __init__(self, files: Sequence[str] = ()) -> None:
        # Other places than this machine have no such stamps.
        self._stamps = {file: _stamp(file) for file in files if "://" not in file}

    def check(self) -> None:
        """Refuse a file that is not what it was."""
        for file, before in self._stamps.items():
            now = _stamp(file)
            if now != before:
                raise InvalidInputError(
                    f"{file!r} {'changed' if now else 'vanished'} while it was read: its rows were "
                    "seen in part before and in part after; work on files that stay as they are"
                )


def _stamp(file: str) -> tuple[int, ...]:
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


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


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


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
    start = standard_input()[:HEADER_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    return {b"{": "JSONL", b"[": "JSON"}.get(start, "CSV")


def is_lake(path: object) -> bool:
    """Return whether a path is read here: a Delta or Iceberg table, or an object store."""
    return is_store_url(path) or lake_format(path) is not None
