"""`open_source`: files and frames of any engine as a source, and which columns mean what."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from demur._arrays import check_kind
from demur.core.columns import ScoreColumns, check_losses, check_names, match_name
from demur.core.source import MEMORY, ScoreSource
from demur.errors import InvalidInputError
from demur.sources.engines import engine_of, is_connection, read_files
from demur.sources.files import (
    FileStamps,
    Located,
    find_files,
    hive_columns,
    hive_kind,
    hive_values,
    is_database_url,
    is_lake,
    path_text,
    split_table,
)
from demur.sources.lakes import open_lake
from demur.sources.record_batches import is_number
from demur.sources.tables import csv_dialect, open_stream, refuse_hive_conflict

LOSSES = ("zero_one", "absolute")
"""Losses of a label and a prediction."""

Missing = Literal["error", "drop"]
"""Rows that lack a value are refused, or left out."""

SINGLE = ("loss", "correct", "label", "prediction", "ood", "weight", "group", "key")
"""Roles that one column has."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of columns, with the meaning they have in `Sample.from_frame`."""

    scores: tuple[str, ...]
    loss: str | None = None
    label: str | None = None
    prediction: str | None = None
    loss_function: str = "zero_one"
    ood: str | None = None
    weight: str | None = None
    confidence: tuple[str, ...] = ()
    """Those of the scores in which higher means *less* doubt; their sign is flipped."""
    correct: str | None = None
    """1 where the prediction is right, 0 where it is wrong."""
    group: str | None = None
    key: str | None = None
    """What rows are drawn by, such as a patient; without it, their scores."""
    labelled: bool = True
    """Whether there are losses; if not, every loss is 0."""

    def __post_init__(self) -> None:
        if len(self.scores) not in (1, 2) or len(set(self.scores)) < len(self.scores):
            raise InvalidInputError(
                f"scores must be one or two different columns, got {list(self.scores)}"
            )
        if self.labelled:
            check_losses(self.loss, self.correct, self.label, self.prediction)
        elif any((self.loss, self.correct, self.label, self.prediction)):
            raise InvalidInputError("labelled=False says that there are no losses, but some are")
        if self.loss_function not in LOSSES:
            raise InvalidInputError(
                f"loss_function must be one of {', '.join(LOSSES)}, got {self.loss_function!r}"
            )
        # Refuses a confidence that is none of the scores.
        _ = self.columns

    @property
    def columns(self) -> ScoreColumns:
        """The scores by name, and the sense of each."""
        return ScoreColumns.of(self.scores, confidence=self.confidence, count=len(self.scores))

    def used(self) -> list[tuple[str, str]]:
        """Return the columns with the arguments that name them."""
        named = [(role, getattr(self, role)) for role in SINGLE]
        return [
            *(("scores", name) for name in self.scores),
            *((role, name) for role, name in named if name is not None),
        ]

    def numeric(self) -> list[tuple[str, str]]:
        """Return those columns that must hold numbers, with the arguments that name them."""
        kinds = {"scores", "loss", "correct", "weight"}
        if self.loss_function == "absolute":
            kinds |= {"label", "prediction"}
        return [(role, name) for role, name in self.used() if role in kinds]


Engine = Literal["duckdb", "spark", "dask"]

_LEAST = 16 * 10**6
# Decimals of more are unknown to it.
_SPARK_DIGITS = 38


def open_source(
    data: Any,
    scores: str | Sequence[str],
    *,
    loss: str | None = None,
    correct: str | None = None,
    label: str | None = None,
    prediction: str | None = None,
    loss_function: Literal["zero_one", "absolute"] = "zero_one",
    ood: str | None = None,
    weight: str | None = None,
    confidence: str | Sequence[str] = (),
    group: str | None = None,
    key: str | None = None,
    labelled: bool = True,
    missing: Missing = "error",
    memory: int = MEMORY,
    engine: Engine = "duckdb",
    table: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ScoreSource:
    """Return rows that stay where they are as a source, which `tune` and `evaluate` take.

    Parameters
    ----------
    data
        Files: a path, a pattern such as ``"scores/*.parquet"``, a folder, or a list of these.
        Or a frame: Spark (classic or Connect), Dask, Polars, a DuckDB relation, pandas, pyarrow.
        Or, with `table`, a database: a connection (DB-API, ADBC), a SQLAlchemy engine, or a URL
        such as ``"postgresql://me@host/db"`` or ``"sqlite:///file.db"``.
    scores, loss, correct, label, prediction, loss_function, ood, weight, group
        Columns, as in `Sample.from_frame`.
    confidence
        Those of `scores` in which higher means *less* doubt: a name, or several. The rule is
        about the columns as they are.
    key
        Rows that agree in this column are drawn together, into one part of a split or one fold;
        without it those with the same scores are.
    labelled
        False: there are no losses, as of inputs in use for `guarantees.estimate_prior`; every loss
        is then 0.
    missing
        ``"error"`` refuses rows that lack a value, ``"drop"`` leaves them out.
    memory
        Bytes to get along with in this process, at least 16 MB.
    engine
        What reads files: ``"duckdb"``, the active ``"spark"`` session, or ``"dask"``.
    table
        Table or view of a database, ``"scores"`` or ``"schema.scores"``, which counts its rows.
    progress
        Called by DuckDB during each pass with the rows seen and all there are.

    Examples
    --------
    >>> import demur, polars
    >>> frame = polars.LazyFrame({"s": [0.1, 0.2, 0.9], "wrong": [0, 1, 0], "ood": [0, 0, 1]})
    >>> source = open_source(frame, "s", loss="wrong", ood="ood")
    >>> demur.tune(source, demur.TprFprModel(min_tpr=0.5)).point.selective_risk
    0.0
    """
    roles = Roles(
        _names("scores", scores),
        *(loss, label, prediction, loss_function, ood, weight),
        _names("confidence", confidence),
        correct,
        group,
        key,
        labelled,
    )
    for argument, name in roles.used():
        if not isinstance(name, str):
            raise InvalidInputError(f"{argument} must be the name of a column, got {name!r}")
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < _LEAST:
        raise InvalidInputError(
            f"memory must be a whole number of bytes, at least {_LEAST}, got {memory!r}"
        )
    if engine not in get_args(Engine):
        raise InvalidInputError(
            f"engine must be one of {', '.join(get_args(Engine))}, got {engine!r}"
        )
    if is_connection(data) or is_database_url(data):
        return _of_database(data, table, roles, missing=missing, memory=memory)
    if table is not None:
        given = f"a {type(data).__name__}"
        if isinstance(data, str) and "://" in data:
            given = f"one of {data.partition('://')[0]!r}, which demur does not know"
        raise InvalidInputError(
            "table is about databases: data must be a connection, or a URL such as "
            f"postgresql://host/database, not {given}"
        )
    if isinstance(data, (list, tuple)):
        for path in data:
            check_kind("data", path, (str, os.PathLike))
    if isinstance(data, (str, os.PathLike, list, tuple)):
        for path in [data] if isinstance(data, (str, os.PathLike)) else data:
            path_text(path)
        if engine == "duckdb":
            from demur.sources.engines.duckdb import DuckDBSource

            if is_lake(data):
                data = open_lake(data)  # type: ignore[arg-type]
            return DuckDBSource(data, roles, missing=missing, memory=memory, progress=progress)
        located = _located(data, roles, engine)
        stamps = FileStamps(located.files)
        source = engine_of(frame := read_files(located, engine))(
            frame, roles, missing=missing, memory=memory
        )
        source.watch_files(stamps)  # type: ignore[attr-defined]
        return source
    return engine_of(data)(data, roles, missing=missing, memory=memory)


def _of_database(data: Any, table: str | None, roles: Roles, **options: Any) -> ScoreSource:
    """Return a table of a database as a source."""
    from demur.sources.engines.connections import Database
    from demur.sources.engines.sql import SqlSource, table_name

    if isinstance(data, str):
        data, table = split_table(data, table)
    if table is None:
        raise InvalidInputError("table is needed: the name of a table or view of the database")
    table_name(table)
    database = Database.of(data)
    try:
        return SqlSource(database, table, roles, **options)
    except BaseException:
        database.close()
        raise


def _names(argument: str, given: Any) -> tuple[str, ...]:
    """Return a name or several as a tuple."""
    if isinstance(given, str):
        return (given,)
    try:
        names = tuple(given)
    except TypeError:
        names = (None,)
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"{argument} must be a name or a list of names, got {given!r}")
    return names


def _located(data: Any, roles: Roles, engine: Engine) -> Located:
    """Return files that a distributed engine is to read."""
    paths = [os.fspath(path) for path in ([data] if isinstance(data, (str, os.PathLike)) else data)]
    # What is not on this machine is not looked for here.
    if any("://" in path for path in paths):
        kind = "CSV" if paths[0].endswith((".csv", ".tsv")) else "Parquet"
        return Located(tuple(paths), kind)
    files, kind = find_files(paths)
    types = _check_parquet(files, roles) if kind == "Parquet" else _check_csv(files, roles)
    if engine == "spark":
        _refuse_unread_by_spark(types)
    names = types[files[0]]
    separators = {csv_dialect(file).separator for file in files} if kind == "CSV" else {","}
    if len(separators) > 1:
        raise InvalidInputError("the CSV files are separated by different marks")
    numbers = tuple(name for _, name in roles.numeric())
    said = [hive_values(file) for file in files]
    hive = {
        key: hive_kind([values[key] for values in said])
        for key in said[0]
        if key not in names and all(key in values for values in said)
    }
    alike, mixed = _mixed(types, roles)
    return Located(files, kind, separators.pop(), numbers, hive, alike, mixed)


def _refuse_unread_by_spark(types: Types) -> None:
    """Refuse files that Spark cannot open for the type of a column, be it in use or not."""
    for file, kinds in types.items():
        for name, kind in kinds.items():
            half = str(kind) == "halffloat"
            if half or (str(kind).startswith("decimal") and kind.precision > _SPARK_DIGITS):
                raise InvalidInputError(
                    f"column {name!r} of {file!r} holds {kind}, which Spark does not read: write "
                    f"it as {'float' if half else 'double'}, or read the files by Dask"
                )


Types = dict[str, dict[str, Any]]
"""The type of each column of each file; None where the file does not tell."""


def _mixed(types: Types, roles: Roles) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """Return files by the types of the columns in use, and the columns whose types differ."""
    mixed, groups = {}, dict[tuple[Any, ...], list[str]]()
    first = next(iter(types))
    for argument, asked in roles.used():
        for file, kinds in types.items():
            name = match_name(asked, list(kinds))
            here, there = (types[one].get(name) for one in (first, file))
            if here == there or here is None or there is None:
                continue
            if not (is_number(here) and is_number(there)):
                raise InvalidInputError(
                    f"{argument}: column {name!r} holds {here} in {first!r} and {there} in {file!r}"
                )
            mixed[name] = True
    if not mixed:
        return (), ()
    for file, kinds in types.items():
        groups.setdefault(tuple(kinds.get(name) for name in mixed), []).append(file)
    return tuple(map(tuple, groups.values())), tuple(mixed)


def _check_csv(files: Sequence[str], roles: Roles) -> Types:
    """Refuse a file that is no CSV, or lacks a column; return the columns."""
    types: Types = {}
    for file in files:
        names = list(csv_dialect(file).names)
        refuse_hive_conflict(file, names)
        outside = [name for name in hive_columns(file) if name not in names]
        check_names([*names, *outside], roles.used(), repr(file))
        types[file] = dict.fromkeys(names)
    return types


def _check_parquet(files: Sequence[str], roles: Roles) -> Types:
    """Refuse a file that is cut short, or lacks a column, or has text where numbers must be."""
    types: Types = {}
    for file in files:
        schema = open_stream(file).schema
        refuse_hive_conflict(file, schema.names)
        outside = [name for name in hive_columns(file) if name not in schema.names]
        check_names([*schema.names, *outside], roles.used(), repr(file))
        for argument, asked in roles.numeric():
            name = match_name(asked, schema.names)
            if name in schema.names and not is_number(schema.field(name).type):
                raise InvalidInputError(
                    f"{argument}: column {name!r} of {file!r} holds {schema.field(name).type}, "
                    "not numbers"
                )
        types[file] = dict(zip(schema.names, schema.types, strict=True))
    return types
