"""`open_source`: files and frames of any engine as a source, and which columns mean what."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from demur._arrays import check_kind
from demur.core.columns import check_names
from demur.core.scores import ScoreColumns
from demur.core.source import MEMORY, ScoreSource
from demur.errors import InvalidInputError
from demur.sources.engines import engine_of, read_files
from demur.sources.files import find_files, hive_columns, open_stream
from demur.sources.record_batches import is_number

LOSSES = ("zero_one", "absolute")
"""Losses of a label and a prediction."""

Missing = Literal["error", "drop"]
"""Rows that lack a value are refused, or left out."""

_SINGLE = ("loss", "label", "prediction", "ood", "weight")


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

    def __post_init__(self) -> None:
        if len(self.scores) not in (1, 2) or len(set(self.scores)) < len(self.scores):
            raise InvalidInputError(
                f"scores must be one or two different columns, got {list(self.scores)}"
            )
        pair = self.label is not None and self.prediction is not None
        if (self.loss is None) != pair or (
            self.loss is not None and (self.label or self.prediction)
        ):
            raise InvalidInputError("give either loss, or label and prediction")
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
        named = [(role, getattr(self, role)) for role in _SINGLE]
        return [
            *(("scores", name) for name in self.scores),
            *((role, name) for role, name in named if name is not None),
        ]

    def numeric(self) -> list[tuple[str, str]]:
        """Return those columns that must hold numbers, with the arguments that name them."""
        kinds = {"scores", "loss", "weight"}
        if self.loss_function == "absolute":
            kinds |= {"label", "prediction"}
        return [(role, name) for role, name in self.used() if role in kinds]


Engine = Literal["duckdb", "spark", "dask"]


def open_source(
    data: Any,
    scores: str | Sequence[str],
    *,
    loss: str | None = None,
    label: str | None = None,
    prediction: str | None = None,
    loss_function: Literal["zero_one", "absolute"] = "zero_one",
    ood: str | None = None,
    weight: str | None = None,
    confidence: Sequence[str] = (),
    missing: Missing = "error",
    memory: int = MEMORY,
    engine: Engine = "duckdb",
    progress: Callable[[int, int], None] | None = None,
) -> ScoreSource:
    """Return rows that stay where they are as a source, which `tune` and `evaluate` take.

    Parameters
    ----------
    data
        Files: a path, a pattern such as ``"scores/*.parquet"``, a folder, or a list of these.
        Or a frame: Spark (classic or Connect), Dask, Polars, a DuckDB relation, pandas, pyarrow.
    scores, loss, label, prediction, loss_function, ood, weight
        Columns, as in `Sample.from_frame`.
    confidence
        Those of `scores` in which higher means *less* doubt; their sign is flipped.
    missing
        ``"error"`` refuses rows that lack a value, ``"drop"`` leaves them out.
    memory
        Bytes to get along with in this process.
    engine
        What reads files: ``"duckdb"``, the active ``"spark"`` session, or ``"dask"``.
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
    if isinstance(scores, str) or not isinstance(scores, Sequence):
        check_kind("scores", scores, str)
    if isinstance(memory, bool) or not isinstance(memory, int) or memory < 1:
        raise InvalidInputError(f"memory must be a number of bytes above 0, got {memory!r}")
    roles = Roles(
        (scores,) if isinstance(scores, str) else tuple(scores),
        *(loss, label, prediction, loss_function, ood, weight),
        tuple(confidence),
    )
    if engine not in get_args(Engine):
        raise InvalidInputError(f"engine must be one of {', '.join(get_args(Engine))}")
    if isinstance(data, (list, tuple)):
        for path in data:
            check_kind("data", path, (str, os.PathLike))
    if isinstance(data, (str, os.PathLike, list, tuple)):
        if engine == "duckdb":
            from demur.sources.engines.duckdb import DuckDBSource

            return DuckDBSource(data, roles, missing=missing, memory=memory, progress=progress)
        data = _read(data, engine, roles)
    return engine_of(data)(data, roles, missing=missing, memory=memory)


def _read(data: Any, engine: Engine, roles: Roles) -> Any:
    """Return files as a frame of a distributed engine."""
    paths = [os.fspath(path) for path in ([data] if isinstance(data, (str, os.PathLike)) else data)]
    # What is not on this machine is not looked for here.
    if any("://" in path for path in paths):
        kind = "CSV" if paths[0].endswith(".csv") else "Parquet"
    else:
        files, kind = find_files(paths)
        if kind == "Parquet":
            _check_parquet(files, roles)
    return read_files(paths, kind, engine)


def _check_parquet(files: Sequence[str], roles: Roles) -> None:
    """Refuse a file that is cut short, or lacks a column, or has text where numbers must be."""
    for file in files:
        schema = open_stream(file).schema
        check_names([*schema.names, *hive_columns(file)], roles.used(), repr(file))
        for argument, name in roles.numeric():
            if name in schema.names and not is_number(schema.field(name).type):
                raise InvalidInputError(
                    f"{argument}: column {name!r} of {file!r} holds {schema.field(name).type}, "
                    "not numbers"
                )
