"""From the options that name files, engines and columns to samples, and back to the columns."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray
from demur.cli.options import (
    Command,
    Names,
    Size,
    complete_column,
    gathered,
    option,
    size_text,
)
from demur.cli.output import Progress
from demur.core.columns import (
    check_names,
    listing,
    numbers,
    ood_rows,
    refuse_unclear_ood,
    sample_from_columns,
)
from demur.core.row_draws import hashed_order, key_numbers
from demur.core.sample import Sample
from demur.core.source import MEMORY
from demur.errors import InvalidInputError

if TYPE_CHECKING:
    from demur.learn import Learned

# No column of a file has an empty name and this one a space.
_NO_LOSS = " "
ROW_BYTES = 300
"""What a row takes in memory from reading to the end of the search."""
PAGE_ROW_BYTES = 5000
"""What it takes until a page about it is drawn."""
_ROLES = ("loss", "correct", "label", "prediction", "ood", "weight")
# Of rows, as a bound names them; --id is another matter.
_GROUP = "group"


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Where the rows are, and which columns mean what."""

    data: str | None
    loss: str | None
    correct: str | None
    label: str | None
    prediction: str | None
    loss_function: str
    ood: str | None
    weight: str | None
    openood: tuple[str, ...]
    openood_id: str | None
    openood_ood: tuple[str, ...] | None
    id_group: str | None = None
    table: str | None = None

    def __post_init__(self) -> None:
        if self.table is not None:
            # From here on the URL names the table.
            object.__setattr__(self, "data", with_table(self.data, self.table))
            object.__setattr__(self, "table", None)

    @property
    def has_ood(self) -> bool:
        """Whether there may be OOD rows."""
        return bool(self.ood) or bool(self.openood)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Paths that are read."""
        return (*([self.data] if self.data else []), *(_named_path(p)[1] for p in self.openood))

    @property
    def names_losses(self) -> bool:
        """Whether any column of losses, or one to make them from, is named."""
        return any((self.loss, self.correct, self.label, self.prediction))

    def roles(self, group: str | None = None) -> dict[str, str]:
        """Return the columns by their roles, as a rule's card tells them; none of OpenOOD's."""
        if self.openood:
            return {}
        named = {role: getattr(self, role) for role in _ROLES} | {"id": group}
        named[_GROUP] = self.id_group
        return {role: name for role, name in named.items() if name}


def with_table(data: str | None, table: str) -> str:
    """Return the URL of a database with the name of a table."""
    from demur.sources.files import is_database_url, split_table

    if data is None or not is_database_url(data):
        raise click.UsageError(
            "--table is about databases: DATA must be a URL such as postgresql://host/database or "
            "sqlite:///file.db"
        )
    return "#".join(map(str, split_table(data, table)))


def data_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the file and its columns as `data`."""
    add = option("Columns")
    openood = option("OpenOOD score files, in place of DATA")
    column: dict[str, Any] = {"metavar": "COLUMN", "shell_complete": complete_column}
    return gathered(
        "data",
        DataOptions,
        [
            click.argument("data", required=False, type=click.Path(), metavar="[DATA]"),
            add("--loss", **column, help="Loss of each ID row, such as 1 if wrong and 0 if right."),
            add(
                "--correct",
                **column,
                help="1 where the prediction is right, 0 where it is wrong; in place of --loss.",
            ),
            add("--label", **column, help="True class; with --prediction in place of --loss."),
            add("--prediction", **column, help="Predicted class."),
            add(
                "--loss-function",
                type=click.Choice(["zero_one", "absolute"]),
                default="zero_one",
                show_default=True,
                help="Loss of --label and --prediction.",
            ),
            add(
                "--ood",
                **column,
                help="Which rows are OOD: a flag (true/false, 1/0), or the name of the OOD set, "
                'where "id", empty and missing mean ID.',
            ),
            add("--weight", **column, help="Weight of each row."),
            add(
                "--group",
                "id_group",
                **column,
                help="Group of each ID row, for --bound 'tpr of GROUP >= .6'.",
            ),
            add(
                "--table",
                metavar="NAME",
                help="Table or view of a database, where DATA is a URL such as "
                "postgresql://host/database or sqlite:///file.db.",
            ),
            openood(
                "--openood",
                multiple=True,
                metavar="[SCORE=]PATH",
                help="One score: a .pkl file, or a folder with one .npz per data set. Repeat "
                "for a second score. Pickles are read without running them.",
            ),
            openood("--openood-id", metavar="SET", help="Which .npz of the folder is ID."),
            openood(
                "--openood-ood",
                type=Names(),
                metavar="SETS",
                help="OOD sets to use; by default all.",
            ),
        ],
    )


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Which engine reads the rows, if they are not read into memory."""

    engine: str
    memory: int

    def streams(
        self, data: DataOptions, *, folders: bool = True, row_bytes: int = ROW_BYTES
    ) -> bool:
        """Return whether the rows stay where they are; with `folders`, many files always do."""
        from demur.sources.files import is_database_url, is_lake

        if is_database_url(data.data):
            if self.engine not in ("auto", "memory"):
                raise click.UsageError(
                    f"--engine {self.engine}: the rows of a database are counted there; leave it "
                    "out, or give --engine memory"
                )
            return self.engine == "auto"
        if self.engine == "auto" and is_lake(data.data):
            return True
        if self.engine == "memory":
            self._refuse_more_than_fits(data.data)
            return False
        if self.engine != "auto":
            if data.openood:
                raise click.UsageError("--openood score files are read into memory")
            return True
        from demur.sources.files import is_partitioned

        if data.data is None:
            return False
        many = folders and is_partitioned(data.data)
        return many or self.takes(data.data, row_bytes) > self.memory

    def _refuse_more_than_fits(self, path: str | None) -> None:
        """Refuse rows that memory is asked to hold and does not; counting them takes no time."""
        try:
            taken = self.takes(path)
        except InvalidInputError:
            # What is wrong with a file is told by its reader.
            return
        if taken > self.memory:
            raise click.UsageError(
                f"--engine memory: these rows take about {size_text(taken)} there, and --memory is "
                f"{size_text(self.memory)}: give --memory {size_text(taken)} if there is as much, "
                "or leave --engine out"
            )

    def into_memory(self, path: str | None) -> str:
        """Return which options read rows into memory all the same, and what that takes."""
        taken = self.takes(path)
        more = f" --memory {size_text(taken)}" if taken > self.memory else ""
        needed = f"{size_text(taken)} is" if taken else f"{ROW_BYTES} bytes a row are"
        return f"give --engine memory{more}, which reads folders, too; about {needed} needed"

    def takes(self, path: str | None, row_bytes: int = ROW_BYTES) -> int:
        """Return about how many bytes a file or many take in memory; 0 if that is not known."""
        from demur.sources.files import find_partitions, is_database_url, is_lake, is_partitioned

        if path is None or is_database_url(path) or is_lake(path):
            return 0
        if not is_partitioned(path):
            return self._takes(path, row_bytes)
        return sum(self._takes(str(file), row_bytes) for file in find_partitions(path).files)

    def _takes(self, path: str, row_bytes: int) -> int:
        """Return about how many bytes a file takes in memory, if it can be counted in."""
        from demur.sources.files import FORMATS, check_input
        from demur.sources.tables import open_stream

        kind = FORMATS.get(Path(path).suffix.lower())
        if kind == "Parquet":
            return (open_stream(path).rows or 0) * row_bytes
        # Whatever else is wrong with a file is told by its reader.
        if kind != "CSV":
            return 0
        check_input(path)
        # Numbers take about as many bytes as text as in memory; the search takes more.
        return Path(path).stat().st_size * 8 * row_bytes // ROW_BYTES


_AUTO = "auto: memory if it suffices, else DuckDB."


def engine_options(auto: str = _AUTO) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of large data as `engine`."""
    add = option("Large data")
    return gathered(
        "engine",
        EngineOptions,
        [
            add(
                "--engine",
                type=click.Choice(["auto", "memory", "duckdb", "spark", "dask"]),
                default="auto",
                show_default=True,
                help=f"What reads DATA. {auto} Spark: the "
                "session of SPARK_REMOTE or the default one. Dask: the cluster of "
                "DASK_SCHEDULER_ADDRESS, or threads.",
            ),
            add(
                "--memory",
                type=Size(),
                default=MEMORY,
                metavar="SIZE",
                help="Memory to get along with here, such as 2GB (default) or 512MiB.",
            ),
        ],
    )


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The columns that were read, and how to make samples of them."""

    columns: dict[str, npt.NDArray[Any]]
    options: DataOptions
    scores: tuple[tuple[str, ...], ...]
    """Single scores and pairs that were asked for."""
    confidence: tuple[str, ...]
    learned: Learned | None = None
    """What makes samples of learned doubts out of all the scores."""

    @property
    def tuned_scores(self) -> tuple[str, ...]:
        """The score or the pair to tune on, which is the first."""
        if len(self.scores[0]) > 2:
            raise click.UsageError("--scores is needed: choose one or two of the --openood scores")
        return self.scores[0]

    def sample(self, scores: Sequence[str], kept: BoolArray | None = None) -> Sample:
        """Return the sample of one score or pair, from all rows or those kept.

        Where scores are learned, it is that of the learned doubts.
        """
        raw = self.raw_sample(scores, kept)
        return raw if self.learned is None else self.learned.sample_of(raw)

    def raw_sample(self, scores: Sequence[str], kept: BoolArray | None = None) -> Sample:
        """Return the sample of scores as they are in the file."""
        columns = self.columns
        if kept is not None:
            columns = {name: column[kept] for name, column in columns.items()}
        return sample_from_columns(
            columns,
            scores,
            loss=self.options.loss,
            correct=self.options.correct,
            label=self.options.label,
            prediction=self.options.prediction,
            loss_function=self.options.loss_function,
            ood=self.options.ood,
            weight=self.options.weight,
            group=self.options.id_group,
            confidence=[name for name in scores if name in self.confidence],
            part=True,
        )

    def split(self, scores: Sequence[str], held: BoolArray | None) -> tuple[Sample, Sample | None]:
        """Return the rows to tune on and the rows held out, if any are."""
        if held is None:
            return self.sample(scores), None
        return self.sample(scores, ~held), self.sample(scores, held)

    def hashed(self, key: str | None) -> list[FloatArray]:
        """Return the columns that rows are drawn by: their ids, or else the scores."""
        if key is not None:
            return [key_numbers(self.columns[key], key)]
        return [numbers(self.columns, "--scores", name) for name in hashed_order(self.tuned_scores)]

    def ids(
        self, column: str | None, held: BoolArray | None = None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Return the ids of the ID and of the OOD rows to tune on, in the order of the sample."""
        if column is None:
            return None
        kept = slice(None) if held is None else ~held
        columns = {name: values[kept] for name, values in self.columns.items()}
        ids = columns[column]
        is_ood, sets = ood_rows(columns, self.options.ood, len(ids))
        return ids[~is_ood], np.concatenate([ids[members] for members in sets.values()])


def read_rows(
    options: DataOptions,
    scores: Sequence[tuple[str, ...]],
    *,
    confidence: tuple[str, ...] = (),
    group: str | None = None,
    need_loss: bool = True,
    many: bool = False,
) -> ScoreTable:
    """Read the columns that the options name.

    Parameters
    ----------
    scores
        Single scores and pairs; without any, all OpenOOD scores.
    group
        One more column to read.
    need_loss
        Whether losses matter; without them every loss is 0.
    many
        Whether more than two scores may go together, to be learned from.
    """
    if (options.data is None) == (not options.openood):
        raise click.UsageError("give a file DATA, or --openood score files")
    wide = [names for names in scores if len(names) > 2]
    if wide and not many:
        raise click.UsageError(
            f"--scores {','.join(wide[0])}: a rule takes one or two scores; demur tune --learn "
            "auto makes two of many, demur compare shows many side by side"
        )
    if options.openood and group is not None:
        raise click.UsageError("--id names a column of DATA, and --openood score files have none")
    if options.openood:
        return _read_openood(options, scores)
    return _read_file(options, scores, confidence, group, need_loss=need_loss)


def _read_file(
    options: DataOptions,
    scores: Sequence[tuple[str, ...]],
    confidence: tuple[str, ...],
    group: str | None,
    *,
    need_loss: bool,
) -> ScoreTable:
    from demur.sources.files import shown
    from demur.sources.tables import read_table, table_columns

    path = str(options.data)
    names = table_columns(path)
    if not scores:
        raise click.UsageError(f"--scores is needed; the columns are {listing(names)}")
    told = options.loss or options.correct
    lacks_loss = not told and not (options.label and options.prediction)
    if lacks_loss and need_loss:
        raise click.UsageError(
            "--loss, --correct, or --label and --prediction, is needed; the columns are "
            f"{listing(names)}"
        )
    check_losses(options)
    roles = options.roles(group)
    wanted = [("--scores", name) for pair in scores for name in pair]
    wanted += [(f"--{role}", name) for role, name in roles.items()]
    check_names(names, wanted, repr(shown(path)))
    check_confidence(confidence, {name for pair in scores for name in pair})
    columns = _read_columns(path, list(dict.fromkeys(name for _, name in wanted)), read_table)
    if lacks_loss:
        columns[_NO_LOSS] = np.zeros(len(columns[scores[0][0]]))
        options = replace(options, loss=_NO_LOSS, label=None, prediction=None)
    refuse_unclear_ood(columns, options.ood)
    # An empty name says that there is no such column, whatever the rule's card says.
    options = replace(
        options,
        ood=options.ood or None,
        weight=options.weight or None,
        id_group=options.id_group or None,
    )
    return ScoreTable(columns, options, tuple(scores), confidence)


def check_losses(options: DataOptions) -> None:
    """Refuse losses that are told in two ways."""
    ways = {
        "--loss": options.loss,
        "--correct": options.correct,
        "--label and --prediction": options.label or options.prediction,
    }
    given = [way for way, value in ways.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"give either {given[0]}, or {given[1]}")


def _read_columns(
    path: str, names: list[str], read: Callable[[str, list[str]], dict[str, npt.NDArray[Any]]]
) -> dict[str, npt.NDArray[Any]]:
    from demur.sources.files import shown

    with Progress(f"reading {shown(path)}"):
        columns = read(path, names)
    if len(columns[names[0]]) == 0:
        raise InvalidInputError(f"{shown(path)!r} has no rows")
    return columns


def _read_openood(options: DataOptions, scores: Sequence[tuple[str, ...]]) -> ScoreTable:
    from demur.adapters.openood import LABEL, PREDICTION, SET, openood_columns

    paths = dict(_named_path(text) for text in options.openood)
    if len(paths) < len(options.openood):
        raise click.UsageError("--openood: two scores have the same name; write NAME=PATH")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        columns = openood_columns(paths, id_set=options.openood_id, ood_sets=options.openood_ood)
    for warning in caught:
        click.echo(f"demur: {warning.message}", err=True)
    check_names(list(paths), [("--scores", n) for pair in scores for n in pair], "--openood")
    roles = replace(options, label=LABEL, prediction=PREDICTION, ood=SET)
    names = tuple(scores) or (tuple(paths),)
    return ScoreTable(columns, roles, names, tuple(paths))


def _named_path(text: str) -> tuple[str, str]:
    """Split ``NAME=PATH``; the name of the file or folder is the default name."""
    name, equals, path = text.partition("=")
    # A folder such as day=1 has the sign in its own name.
    plain = bool(equals and name) and "/" not in name and os.sep not in name
    if plain and not (os.path.exists(text) and not os.path.exists(path)):
        return name, path
    place = Path(text).absolute()
    # OpenOOD calls every such folder "scores"; the one above has the name of the method.
    return (place.parent.name if place.name == "scores" else place.stem), text


def check_confidence(confidence: Sequence[str], scores: set[str]) -> None:
    """Refuse a confidence that is none of the scores."""
    for name in confidence:
        if name not in scores:
            raise click.UsageError(
                f"--confidence: {name!r} is not one of the scores {listing(sorted(scores))}"
            )


def read_deployed(path: str, names: Sequence[str]) -> FloatArray:
    """Return the scores of inputs in use, which have no labels."""
    from demur.sources.tables import read_table, table_columns

    check_names(table_columns(path), [("--scores", name) for name in names], repr(path))
    columns = _read_columns(path, list(names), read_table)
    return np.column_stack([numbers(columns, "--scores", name) for name in names])
