"""Rows of a Dask DataFrame: partial counts on its partitions, added up in a tree.

Every task is a function of its partition alone, so one that is repeated after a worker was lost
gives the same numbers. The workers need demur; the rows do not leave them, but for the marked
ones. The only place that imports dask, in the function `dask`.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur.core.bins import Bins
from demur.core.columns import check_names, floats, frame_columns, match_name
from demur.core.row_draws import RowDraw
from demur.core.rule import Rule
from demur.core.source import (
    MEMORY,
    Cells,
    Histogram,
    Measure,
    Rows,
    Sides,
    Strip,
    Tally,
)
from demur.errors import DemurError, InvalidInputError, MissingExtraError
from demur.sources.counting import merged_histograms
from demur.sources.engines.base import (
    LabelledSource,
    RowQuestion,
    check_tallies,
    counted_whole,
)
from demur.sources.engines.expressions import StandardRows, Table, known_frame
from demur.sources.engines.frames import (
    BatchedSource,
    answer_of,
    labelled_groups,
    standard_rows,
    with_doubles,
    with_key,
)
from demur.sources.engines.group_sums import merged_tallies, regrouped
from demur.sources.files import Located, hive_values
from demur.sources.open import Missing, Roles
from demur.sources.tables import MISSING, csv_dialect

# Histograms that one task adds up; tasks that are given out at a time, if no worker is there yet.
_FAN = 8
# So few partitions are a task each. Of more, consecutive ones share a task up to so many rows: what
# a task takes whatever its rows, some hundredths of a second, is then little beside these.
_FEW_PARTITIONS = 64
_TASK_ROWS = 200_000
# Until sizes are known, by those of some partitions, and not more, since others may be large.
_PROBED, _GATHERED = 8, 16
# What Dask finds in the first rows, and what it is if all rows are so; any cell may be empty.
_SETTLED = {"int64": "Int64", "bool": "boolean", "float64": "float64"}


class DaskSource(LabelledSource):
    """Rows of a Dask DataFrame.

    Parameters
    ----------
    frame
        The DataFrame. Every pass computes it anew: persist what is dear to compute, and do not
        draw random numbers in it.
    roles
        Which columns mean what.
    missing
        ``"error"`` refuses missing values, ``"drop"`` leaves such rows out.
    memory
        Bytes to get along with here.
    client
        The `distributed.Client` to work on; by default what Dask would use.

    Examples
    --------
    >>> import demur, pandas
    >>> import dask.dataframe as dd
    >>> frame = pandas.DataFrame({"s": [0.1, 0.2, 0.9], "l": [0, 1, 0], "o": [0, 0, 1]})
    >>> source = DaskSource(dd.from_pandas(frame, npartitions=2), Roles(("s",), loss="l", ood="o"))
    >>> demur.tune(source, demur.TprFprModel(0.5)).point.selective_risk
    0.0
    """

    engine = "dask"

    def __init__(
        self,
        frame: Any,
        roles: Roles,
        *,
        missing: Missing = "error",
        memory: int = MEMORY,
        client: Any = None,
    ) -> None:
        super().__init__(roles.columns, memory=memory)
        # A partition has its numbers as doubles before anything is asked of it.
        readied = with_doubles(known_frame(frame._meta), roles)
        self._standard = StandardRows.of(readied, roles, missing)
        self._frame, self._client = frame, client
        # Rows of each partition, once they are counted; draws of these rows share them.
        self._partition_rows: list[int] = []

    def _look(self) -> tuple[Roles, Table]:
        roles = self._standard.roles
        tasks = self._tasks(_look, ())
        found = self._compute([*tasks, *self._counting()])
        self._partition_rows[:] = (size for sizes in found[len(tasks) :] for size in sizes)
        return roles, regrouped(found[: len(tasks)], roles)

    @property
    def _leaves_out(self) -> bool:
        return self._standard.missing == "drop"

    def _answer(self, question: RowQuestion) -> Table:
        """Return the answers of the partitions, one after the other."""
        names = list(self._standard.schema)
        check_names(names, question.used, "the frame")
        wanted = [match_name(name, names) for _, name in question.used]
        parts = [_joined(parts) for parts in self._gathered(wanted)]
        answer = dask("dask").delayed(_answer, pure=True)
        shared = dask("dask").delayed(question, pure=True)
        tasks = [answer(part, shared) for part in parts]
        if question.enough is None:
            return _one_table(self._compute(tasks))
        found: list[Table] = []
        rows, place = 0, 0
        with self._passing():
            while place < len(tasks) and rows < question.enough:
                # One partition is mostly enough; of small ones, several at a time.
                few = tasks[place : place + (_PROBED if place else 1)]
                found += self._gather(few)
                rows, place = sum(map(_length, found)), place + len(few)
        return {name: column[: question.enough] for name, column in _one_table(found).items()}

    def _keep_set(self, name: str) -> None:
        self._standard = self._standard.with_set(name)

    def drawn(self, draw: RowDraw) -> DaskSource:
        """Return the rows that a draw keeps, as a source of their own."""
        other = self._without_answers()
        other._standard = self._standard.drawn(draw)
        return other

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows, chosen by chance."""
        share = rows / max(self._overview.rows, 1)
        parts = self._each(_draw, self._overview.sides, share, seed=seed)
        return Rows.joined(parts, self._columns.count)

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell, first in each partition."""
        found: Histogram = self._total(
            merged_histograms, _count, self._overview.sides, bins, measure, tuple(strips), within
        )
        return counted_whole(self._overview, measure, found, within)

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        parts = self._each(_find, self._overview.sides, cells)
        return self._brought(Rows.joined(parts, self._columns.count))

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule` accepts, for each value of the column `by`."""
        found: Mapping[Any, Tally] = self._total(
            merged_tallies, _tally, self._overview.sides, rule, measure, by, by=by
        )
        check_tallies(self._overview, measure, found)
        return found

    def _each(self, task: Callable[..., Any], *arguments: Any, seed: int | None = None) -> Any:
        """Return what a task makes of every partition, with a seed of its own where asked for."""
        return self._compute(self._tasks(task, arguments, seed=seed))

    def _total(
        self,
        add: Callable[..., Any],
        task: Callable[..., Any],
        *arguments: Any,
        by: str | None = None,
    ) -> Any:
        """Return what a task makes of all partitions, added up in a tree."""
        parts = self._tasks(task, arguments, by=by)
        add_up = dask("dask").delayed(add, pure=True)
        while len(parts) > 1:
            parts = [add_up(parts[i : i + _FAN]) for i in range(0, len(parts), _FAN)]
        return self._compute(parts)[0]

    def _tasks(
        self,
        task: Callable[..., Any],
        arguments: Sequence[Any],
        *,
        by: str | None = None,
        seed: int | None = None,
    ) -> list[Any]:
        delayed = dask("dask").delayed
        names = list(self._standard.needed)
        if by is not None:
            names.append(by)
            check_names(list(self._standard.schema), [("by", by)], "the frame")
        parts = [_joined(parts) for parts in self._gathered(names)]
        # What the tasks share is sent once.
        shared = [delayed(value, pure=True) for value in (self._standard, *arguments)]
        call = delayed(task, pure=True)
        if seed is None:
            return [call(part, *shared) for part in parts]
        seeds = np.random.SeedSequence(seed).spawn(len(parts))
        return [call(part, *shared, one) for part, one in zip(parts, seeds, strict=True)]

    def _gathered(self, names: Sequence[str]) -> list[list[Any]]:
        """Return the partitions of some columns, which only are read, by the task they share."""
        parts = self._frame[list(dict.fromkeys(names))].to_delayed()
        if len(parts) <= _FEW_PARTITIONS:
            return [[part] for part in parts]
        if not self._partition_rows:
            probed = np.linspace(0, len(parts) - 1, _PROBED).astype(int)
            sizes = self._gather([dask("dask").delayed(len)(parts[place]) for place in probed])
            many = min(_GATHERED, max(1, _TASK_ROWS // max(1, *sizes)))
            return [parts[i : i + many] for i in range(0, len(parts), many)]
        # What begins within the same so many rows is one task.
        task = (np.cumsum(self._partition_rows) - 1) // _TASK_ROWS
        ends = [*np.flatnonzero(np.diff(task)) + 1, len(parts)]
        return [parts[i:j] for i, j in itertools.pairwise([0, *ends])]

    def _counting(self) -> list[Any]:
        """Return tasks that tell the sizes of partitions, where these are to be known."""
        if self._frame.npartitions <= _FEW_PARTITIONS:
            return []
        count = dask("dask").delayed(_lengths, pure=True)
        return [count(parts) for parts in self._gathered(self._standard.needed)]

    def _compute(self, tasks: list[Any]) -> Any:
        with self._passing():
            return self._gather(tasks)

    def _gather(self, tasks: list[Any]) -> Any:
        with _told():
            if self._client is None:
                return dask("dask").compute(*tasks)
            return self._client.gather(self._client.compute(tasks))


@contextmanager
def workers(client: Any) -> Iterator[tuple[Executor, int]]:
    """Yield what tasks are given to, the workers of a client or threads, and how many at a time."""
    if client is None:
        count = dask("dask").config.get("num_workers", None) or os.cpu_count() or 1
        with ThreadPoolExecutor(count) as pool:
            yield pool, count
        return
    with _told():
        # More than there are at work, so that none has to wait; workers may still come.
        width = max(2 * sum(client.nthreads().values()), _FAN)
        yield client.get_executor(pure=False), width


@contextmanager
def _told() -> Iterator[None]:
    """Turn failures of Dask into one of ours."""
    try:
        yield
    except DemurError:
        raise
    except Exception as error:
        known = isinstance(error, (OSError, TypeError, ValueError, ImportError))
        # Such as a task whose workers were killed again and again.
        if not known and type(error).__module__.partition(".")[0] != "distributed":
            raise
        raise InvalidInputError(f"Dask: {' '.join(str(error).split())[:1000]}") from None


class _Partition(BatchedSource):
    """A pandas frame, in which a task counts as for any rows in memory."""

    def __init__(
        self, frame: Any, standard: StandardRows, sides: Sides, by: str | None = None
    ) -> None:
        super().__init__(standard.roles.columns, sides, memory=MEMORY)
        held = _readied(frame, standard)
        self.held, self._values = standard_rows(held, standard, sides, by)

    def _valued(self, by: str | None) -> Iterator[tuple[Rows, Any]]:
        yield self.held, self._values


def _joined(parts: list[Any]) -> Any:
    """Return partitions that share a task as one frame."""
    if len(parts) == 1:
        return parts[0]
    return dask("dask").delayed(dask("dask.dataframe.dispatch").concat, pure=True)(parts)


def _lengths(parts: list[Any]) -> list[int]:
    return [len(part) for part in parts]


def _answer(frame: Any, question: RowQuestion) -> Table:
    return answer_of(nw.from_native(frame), question)


def _length(table: Table) -> int:
    return len(next(iter(table.values())))


def _one_table(parts: Sequence[Table]) -> Table:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _look(frame: Any, standard: StandardRows) -> Table:
    return labelled_groups(_readied(frame, standard), standard)


def _readied(frame: Any, standard: StandardRows) -> Any:
    return with_key(with_doubles(nw.from_native(frame), standard.roles), standard)


def _draw(frame: Any, standard: StandardRows, sides: Sides, share: float, seed: Any) -> Rows:
    rows = _Partition(frame, standard, sides).held
    chance = np.random.default_rng(seed).random(len(rows.loss))
    return rows.take(np.flatnonzero(chance < share))


def _count(
    frame: Any,
    standard: StandardRows,
    sides: Sides,
    bins: Bins,
    measure: Measure,
    strips: Sequence[Strip],
    within: Cells | None,
) -> Histogram:
    return _Partition(frame, standard, sides).histogram(bins, measure, strips=strips, within=within)


def _find(frame: Any, standard: StandardRows, sides: Sides, cells: Cells) -> Rows:
    return _Partition(frame, standard, sides).rows(cells)


def _tally(
    frame: Any,
    standard: StandardRows,
    sides: Sides,
    rule: Rule,
    measure: Measure,
    by: str | None,
) -> Mapping[Any, Tally]:
    return _Partition(frame, standard, sides, by).tally(rule, measure, by=by)


def read_files(files: Located) -> Any:
    """Return files as a Dask DataFrame."""
    frames = dask("dask.dataframe")
    paths = list(files.files)
    given = paths if len(paths) > 1 else paths[0]
    with _told():
        if files.mixed or any(_is_special(path) for path in files.files):
            reader = _FileReader(files)
            return frames.from_map(reader, files.files, meta=reader(files.files[0]).iloc[:0])
        if files.kind == "CSV":
            return _read_csv(given, files)
        return frames.read_parquet(given)


def _read_csv(given: Any, files: Located) -> Any:
    """Return CSV files as a frame; what a column holds is settled by all rows.

    Dask takes it from the first rows, and ends with an error where later ones are otherwise: text
    after numbers, an empty cell after whole numbers or flags, anything in a column empty at first.
    """
    frames, options = dask("dask.dataframe"), csv_options(files)
    found = frames.read_csv(given, **options)
    cells = frames.read_csv(given, dtype="str", **options)
    kinds = {name: str(kind) for name, kind in found.dtypes.items()}
    unsure = [name for name, kind in kinds.items() if kind in _SETTLED]
    sums = dask("dask").compute([_unlike(cells[name], kinds[name]) for name in unsure])[0]
    dtype = {
        name: "str" if words else "float64" if parts else _SETTLED[kinds[name]]
        for name, (words, parts) in zip(unsure, sums, strict=True)
    }
    return frames.read_csv(given, dtype=dtype, **options)


def _unlike(cells: Any, kind: str) -> tuple[Any, Any]:
    """Count the cells that are not numbers, or flags where these are expected, and fractions."""
    if kind == "bool":
        return (~cells.isna() & ~cells.str.lower().isin(["true", "false"])).sum(), 0
    numbers = dask("dask.dataframe").to_numeric(cells, errors="coerce")
    return (~cells.isna() & numbers.isna()).sum(), (numbers % 1 != 0).sum() - numbers.isna().sum()


def csv_options(files: Located) -> dict[str, Any]:
    """Return what makes pandas read CSV by demur's rule."""
    missing: Any = [""]
    if files.numbers:
        # Columns that this does not name would have no missing cells at all.
        names = csv_dialect(files.files[0]).names
        missing = {key: [""] for key in names} | {name: list(MISSING) for name in files.numbers}
    return {"sep": files.separator, "keep_default_na": False, "na_values": missing}


def _is_special(path: str) -> bool:
    """Return whether Dask would take a path for more than a file: a pattern, or hive columns."""
    here = "://" not in path
    return here and (glob.has_magic(path) or bool(hive_values(path)))


class _FileReader:
    """Reads one file as a pandas frame, with the columns that its folders name."""

    def __init__(self, files: Located) -> None:
        self._files = files

    def __call__(self, file: str) -> Any:
        pandas = import_module("pandas")
        if self._files.kind == "CSV":
            frame = pandas.read_csv(file, **csv_options(self._files))
        else:
            frame = pandas.read_parquet(file, partitioning=None)
        # Dask takes the types of the first file for those of all.
        mixed = frame_columns(frame, [("data", name) for name in self._files.mixed])
        frame = frame.assign(**{name: floats(mixed, "data", name) for name in mixed})
        said = hive_values(file)
        for name, kind in self._files.hive.items():
            value = said[name]
            if kind == "BIGINT":
                frame[name] = np.full(len(frame), np.nan if value is None else float(value))
            else:
                frame[name] = pandas.Series([value] * len(frame), index=frame.index, dtype="str")
        return frame


def dask(module: str) -> Any:
    """Import a part of Dask, which is an extra."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise MissingExtraError("dask", "dask") from None
