"""Tables that are more than files on this machine: Delta Lake, Iceberg, and object stores.

Each becomes a stream of Arrow batches that can be read anew for every pass. The only place that
imports deltalake and pyiceberg.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy.typing as npt

from demur.core.columns import check_names, listing, match_name
from demur.errors import DemurError, InvalidInputError, MissingExtraError
from demur.sources.files import FORMATS, hive_kind, hive_values, is_store_url, lake_format
from demur.sources.record_batches import arrow, to_numpy

_METADATA = re.compile(r"v?(?P<number>\d+)(-.*)?\.metadata\.json")
# Keys may be a part of the URL, and are told nobody.
_KEYS = re.compile(r"://[^/@]*@")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_STORE = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://")
# Seconds without a byte after which a request to S3 has failed, and how often it is made.
PATIENCE = 10.0
_ATTEMPTS = 3


def open_lake(path: str | os.PathLike[str]) -> LakeTable:
    """Open a table of Delta Lake or Iceberg, or Parquet files of an object store."""
    if is_store_url(path):
        return StoredFiles(str(path))
    return (DeltaFolder if lake_format(path) == "Delta Lake" else IcebergFolder)(os.fspath(path))


class LakeTable(ABC):
    """Rows that can be streamed as often as needed, always those of the same moment."""

    kind: str
    schema: Any
    """Of Arrow."""

    def __init__(self, path: str) -> None:
        self.path = path
        with self._told():
            self.schema = self._open()

    @abstractmethod
    def _open(self) -> Any:
        """Find out what there is; return its schema."""

    @abstractmethod
    def _reader(self, names: Sequence[str] | None) -> Any:
        """Return a reader of all or some columns."""

    def check(self) -> None:
        """Refuse rows that are not what they were."""
        # Tables with a log keep the rows that were opened.
        return

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Stream all rows, once more."""
        with self._told():
            return self._reader(None).__arrow_c_stream__(requested_schema)

    def read(self, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
        """Return some columns, as `read_columns` does."""
        check_names(self.schema.names, [("columns", name) for name in names], repr(self.path))
        found = {name: match_name(name, self.schema.names) for name in names}
        with self._told():
            table = self._reader(list(dict.fromkeys(found.values()))).read_all()
        return {name: to_numpy(table.column(old)) for name, old in found.items()}

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn failures of packages into one of ours."""
        try:
            yield
        except DemurError:
            raise
        except Exception as error:
            raise self.failure(error) from None

    def failure(self, error: Exception) -> InvalidInputError:
        """Return what to say of a failure of a package."""
        plain = _COLOR.sub("", str(error))
        words = " ".join(plain.split())[:600] or type(error).__name__
        return InvalidInputError(f"cannot read {self.path!r} as {self.kind}: {words}")


class DeltaFolder(LakeTable):
    """The newest version of a Delta Lake table, without rows that were deleted or replaced."""

    kind = "a table of Delta Lake"

    def _open(self) -> Any:
        try:
            package = import_module("deltalake")
        except ModuleNotFoundError:
            raise MissingExtraError("deltalake", "lakes") from None
        self._dataset = package.DeltaTable(self.path).to_pyarrow_dataset()
        return self._dataset.schema

    def _reader(self, names: Sequence[str] | None) -> Any:
        return self._dataset.scanner(columns=names).to_reader()

    def failure(self, error: Exception) -> InvalidInputError:
        """Return what to say of a failure, such as files that were vacuumed meanwhile."""
        told = super().failure(error)
        if "not found" not in str(error):
            return told
        return InvalidInputError(f"{told}; were its files vacuumed? open the table anew")


class IcebergFolder(LakeTable):
    """The newest snapshot of an Iceberg table in a folder, without deleted rows."""

    kind = "a table of Iceberg"

    def _open(self) -> Any:
        try:
            tables = import_module("pyiceberg.table")
            schemas = import_module("pyiceberg.io.pyarrow")
        except ModuleNotFoundError:
            raise MissingExtraError("pyiceberg", "lakes") from None
        self._table = tables.StaticTable.from_metadata(str(newest_metadata(self.path)))
        return schemas.schema_to_pyarrow(self._table.schema(), include_field_ids=False)

    def _reader(self, names: Sequence[str] | None) -> Any:
        chosen = ("*",) if names is None else tuple(names)
        return self._table.scan(selected_fields=chosen).to_arrow_batch_reader()


def newest_metadata(path: str) -> Path:
    """Return the file that says what an Iceberg table is now; refuse to guess between two."""
    files: dict[int, list[Path]] = {}
    for file in sorted(Path(path).glob("metadata/*.metadata.json")):
        if found := _METADATA.fullmatch(file.name):
            files.setdefault(int(found["number"]), []).append(file)
    if not files:
        raise InvalidInputError(f"{path!r} has no metadata file of Iceberg that has a number")
    newest = files[max(files)]
    if len(newest) > 1:
        names = " and ".join(repr(file.name) for file in newest)
        raise InvalidInputError(
            f"{path!r} has two newest metadata files, {names}, of which one was not committed: "
            "open the table by its catalog (pyiceberg) and give scan().to_arrow()"
        )
    return newest[0]


class StoredFiles(LakeTable):
    """Parquet files of an object store: one, a folder, or a pattern."""

    kind = "Parquet files of an object store"

    def _open(self) -> Any:
        given, self.path = self.path, _KEYS.sub("://...@", self.path)
        self._system, place = _opened(_without_pattern(given))
        self._stamps = self._found(place)
        if not self._stamps:
            raise InvalidInputError(
                f"{self.path!r} holds no Parquet file, or does not exist; {self._beside(place)}"
            )
        datasets = arrow("pyarrow.dataset")
        parts = [
            datasets.dataset(file, filesystem=self._system, format="parquet")
            for file in self._stamps
        ]
        pa = arrow("pyarrow")
        schema = pa.unify_schemas([part.schema for part in parts], promote_options="permissive")
        keys = hive_values(next(iter(self._stamps)))
        inside = [key for key in keys if key in schema.names]
        if inside:
            raise InvalidInputError(
                f"{self.path!r}: {inside[0]!r} is a column and the name of a folder: drop one"
            )
        said = [hive_values(file) for file in self._stamps]
        whole = {key: hive_kind([values.get(key) for values in said]) == "BIGINT" for key in keys}
        added = [(key, pa.int64() if whole[key] else pa.string()) for key in keys]
        hive = datasets.partitioning(pa.schema(added), flavor="hive") if keys else None
        schema = pa.schema([*schema, *added])
        options = {"filesystem": self._system, "format": "parquet", "partitioning": hive}
        self._dataset = datasets.dataset(list(self._stamps), schema=schema, **options)
        return schema

    def _beside(self, place: str) -> str:
        """Return what there is in the place of files that are not there."""
        fs = arrow("pyarrow.fs")
        bucket, _, inside = place.strip("/").partition("/")
        if self._system.get_file_info(bucket).type == fs.FileType.NotFound:
            return f"there is no bucket {bucket!r}, or these keys may not see it"
        above = place.rstrip("/").rpartition("/")[0] if inside else place
        seen = fs.FileSelector(above, allow_not_found=True)
        names = sorted(Path(one.path).name for one in self._system.get_file_info(seen))
        return f"{above!r} holds {listing(names)}"

    def _found(self, place: str) -> dict[str, tuple[Any, ...]]:
        """Return the files, with what tells whether they changed."""
        fs = arrow("pyarrow.fs")
        info = self._system.get_file_info(place)
        found = [info]
        if info.type == fs.FileType.Directory:
            found = self._system.get_file_info(fs.FileSelector(place, recursive=True))
        files = [file for file in found if file.type == fs.FileType.File]
        pattern = _STORE.sub("", self.path).partition("?")[0]
        if "*" in pattern:
            wanted = _as_regex(pattern)
            files = [file for file in files if wanted.fullmatch(file.path)]
        shown = [f for f in files if not Path(f.path).name.startswith(("_", "."))]
        for file in shown:
            if FORMATS.get(Path(file.path).suffix.lower()) not in ("Parquet", None):
                raise InvalidInputError(
                    f"{file.path!r}: only Parquet is read from object stores; copy it, or write "
                    "it as Parquet"
                )
        kept = [f for f in shown if FORMATS.get(Path(f.path).suffix.lower()) == "Parquet"]
        return {file.path: (file.size, file.mtime_ns) for file in sorted(kept, key=_path_of)}

    def _reader(self, names: Sequence[str] | None) -> Any:
        return self._dataset.scanner(columns=names).to_reader()

    def failure(self, error: Exception) -> InvalidInputError:
        """Return what to say of a failure, and where keys are looked for."""
        told = super().failure(error)
        if "Timeout was reached" in str(error):
            return InvalidInputError(
                f"{told}; in {PATIENCE:g} seconds nothing came, {_ATTEMPTS} times in a row: is the "
                "address right, and the network up?"
            )
        if "NETWORK_CONNECTION" in str(error):
            return InvalidInputError(
                f"{told}; it was tried several times: is the address right, and the network up?"
            )
        if "ACCESS_DENIED" not in str(error) and "credential" not in str(error).lower():
            return told
        return InvalidInputError(
            f"{told}; for S3 set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION"
        )

    def check(self) -> None:
        """Refuse files that are not what they were."""
        with self._told():
            found = self._system.get_file_info(list(self._stamps))
        for file in found:
            if (file.size, file.mtime_ns) != self._stamps[file.path]:
                raise InvalidInputError(
                    f"{file.path!r} changed while it was read: its rows were seen in part before "
                    "and in part after; work on files that stay as they are"
                )


def _opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the place in it.

    As URLs have them, connections to S3 that stall are made some thirty times; here they soon fail.
    """
    fs = arrow("pyarrow.fs")
    system, place = fs.FileSystem.from_uri(url)
    if system.type_name == "s3":
        # What it is pickled by: all that the URL says.
        again, (options,) = system.__reduce__()
        retries = fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS)
        limits = {"connect_timeout": PATIENCE, "request_timeout": PATIENCE}
        system = again({**options, **limits, "retry_strategy": retries})
    return system, place


def _path_of(file: Any) -> str:
    return str(file.path)


def _without_pattern(url: str) -> str:
    """Return the folder above the first part of a URL that is a pattern; options are after "?"."""
    bare, mark, options = url.partition("?")
    parts = bare.split("/")
    plain = next((k for k, part in enumerate(parts) if k > 2 and "*" in part), len(parts))
    return "/".join(parts[:plain]) + mark + options


def _as_regex(pattern: str) -> re.Pattern[str]:
    """Return a pattern of paths as an expression: ``*`` within a name, ``**`` across folders."""
    marks = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*"}
    pieces = re.split(r"(\*\*/|\*\*|\*)", pattern)
    return re.compile("".join(marks.get(piece, re.escape(piece)) for piece in pieces))
