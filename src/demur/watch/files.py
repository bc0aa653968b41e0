"""Counting files: their periods, labels that come in a file of their own, rows to look at.

Files are read batch by batch, in the order of their names, so that they may be larger than memory
and labels count in the order of the rows.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from demur._arrays import FloatArray
from demur.core.columns import check_names, floats
from demur.core.fingerprint import LOOKED_AT
from demur.errors import InvalidInputError
from demur.losses import check_kinds, label_kinds
from demur.sources.files import (
    DATABASES,
    check_input,
    find_partitions,
    hive_values,
    is_partitioned,
)
from demur.sources.record_batches import arrow, batch_numbers, is_number, to_numpy
from demur.sources.tables import column_names, open_stream, read_columns
from demur.watch.counts import KnownRows, LabelledRows, LiveCounts, known_rows
from demur.watch.setup import DecidedRows, WatchSetup
from demur.watch.timeline import SET_OF_FILES, SHORT_MARK, Period, in_order_of_time

# Flags as CSV files have them; an empty cell tells nothing.
_FLAGS = {None: np.nan, "0": 0.0, "0.0": 0.0, "false": 0.0, "1": 1.0, "1.0": 1.0, "true": 1.0}
# A whole number that was written as a fraction.
_POINT_ZERO = re.compile(r"^(0|-?[1-9][0-9]*)\.0*$")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")
_MOST_FILES = 64
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Which columns mean what; those of labels may be in the file of labels."""

    scores: tuple[str, ...]
    by: str | None = None
    """Names the period; without it every file is one."""
    on: str | None = None
    """Names the row, in the data and in the labels."""
    loss: str | None = None
    ood: str | None = None
    label: str | None = None
    prediction: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class ExampleRow:
    """A row to look at."""

    key: str
    period: Period
    why: str
    scores: tuple[float, ...]


@dataclass(slots=True)
class FileCounts:
    """What was counted in files, by period."""

    counts: dict[Period, LiveCounts] = field(default_factory=dict)
    files: dict[Period, list[str]] = field(default_factory=dict)
    waiting: Period | None = None
    """The period of the first audited row without a label; labels from there on wait."""
    unmatched: int = 0
    """Labels of which no row was found."""
    matched: int = 0
    """Labels of which a row was."""
    broken: deque[ExampleRow] = field(default_factory=lambda: deque(maxlen=_SHOWN))
    """Latest accepted rows that turned out wrong or foreign."""
    beyond: deque[ExampleRow] = field(default_factory=lambda: deque(maxlen=_SHOWN))
    """Latest rows with a score beyond all of tuning."""
    rows: int = 0
    examined: int | None = None
    """So many rows were looked at one by one, where not all of them were."""
    looked_at: list[FloatArray] = field(default_factory=list)
    """Scores of the first rows, by which those that made the rule are recognised."""

    @property
    def examples(self) -> list[ExampleRow]:
        """Rows to look at."""
        return [*self.beyond, *self.broken]

    def withhold(self, waits: Sequence[Period]) -> None:
        """Take back the labels of all periods behind the first of some that wait."""
        self.waiting = first = min(waits, default=None)
        for name, counts in self.counts.items():
            if first is not None and name > first:  # type: ignore[operator]
                counts.drop_labels()

    def part(self, period: Period) -> str:
        """Return the name of a period's part: marks of its files, in order."""
        marks = sorted({_mark(file) for file in self.files[period]})
        if len(marks) > _MOST_FILES:
            # Whole marks would make the state large, and among many files short ones will do.
            return SET_OF_FILES + " ".join(sorted({mark[:SHORT_MARK] for mark in marks}))
        return " ".join(marks)


def _mark(file: str) -> str:
    # One file has one mark, by whatever way it is reached; so has a table, whoever reads it.
    place = place_of(file) if "://" in file else os.path.realpath(file)
    return hashlib.sha256(place.encode()).hexdigest()[:12]


def place_of(url: str) -> str:
    """Return the URL of a table without user and password; a file of SQLite by its full path.

    Examples
    --------
    >>> place_of("postgresql+psycopg://me:secret@host/db#live")
    'postgres://host/db#live'
    """
    said, _, rest = url.partition("://")
    kind, rest = said.partition("+")[0], re.sub(r"^[^/@]*@", "", rest)
    if kind in _IN_FILES:
        file, mark, table = rest.removeprefix("/").partition("#")
        rest = "/" + os.path.realpath(file) + mark + table
    return f"{DATABASES.get(kind, kind)}://{rest}"


@dataclass(slots=True)
class PeriodNames:
    """Names of periods by what engines and databases make of their column."""

    column: str
    files: dict[Period, list[str]] = field(default_factory=dict)
    """The files that hold rows of a period, where they were looked at."""
    _known: dict[Any, Period | None] | None = None
    """Periods by what is told of them; None where two would be one, or where nothing is known."""

    @classmethod
    def of_files(cls, files: Sequence[str], column: str) -> PeriodNames:
        """Look at the column of the periods, and at nothing else: engines read text as other kinds.

        Folders that name the periods tell them without a look.
        """
        names = cls(column, {}, {})
        for file in files:
            for value, period in _periods_in(file, column):
                names._learn(value, period)
                held = names.files.setdefault(period, [])
                if held[-1:] != [file]:
                    held.append(file)
                names.refuse_many(len(names.files))
        return names

    def refuse_many(self, periods: int) -> None:
        """Refuse what is no period, such as an id."""
        if periods > _MOST_PERIODS:
            raise InvalidInputError(
                f"--by: column {self.column!r} has more than {_MOST_PERIODS:,} values, too many "
                "for a period: give one such as a day"
            )

    def _learn(self, value: Any, period: Period) -> None:
        known = self._known if self._known is not None else {}
        spelled = [_told(value)]
        if isinstance(value, str) and _number_text(value) is not None:
            spelled.append(float(str(_number_text(value))))
        for key in spelled:
            known[key] = period if known.get(key, period) == period else None

    def __call__(self, value: Any) -> Period:
        """Return the period that a value of an engine or a database means."""
        if value is None or value != value or (isinstance(value, str) and not value.strip()):
            raise InvalidInputError(f"--by: column {self.column!r} is empty in some rows")
        told = _told(value)
        if self._known is None:
            return told if isinstance(told, float) else period_of(value_text(value), self.column)
        found = self._known.get(told)
        if found is None:
            raise InvalidInputError(
                f"--by: column {self.column!r} holds {told!r} as this engine reads it, which files "
                "spell otherwise or in several ways: leave out --engine, or write the periods as "
                "dates, whole numbers or plain text in Parquet files"
            )
        return found


_IN_FILES = ("sqlite", "duckdb")
_MOST_PERIODS = 100_000


def _periods_in(file: str, column: str) -> Iterator[tuple[Any, Period]]:
    """Yield the values of a file's column of periods, each once, and what they are called."""
    said, available = hive_values(file), column_names(file)
    if column in said and column not in available:
        yield said[column], period_of(said[column], column)
        return
    check_names(available, [("--by", column)], repr(file))
    stream = open_stream(file, [column])
    for batch in stream.batches:
        held = batch.column(column).unique()
        part = _Batch({column: held}, said, len(held), stream.text, 0)
        yield from zip(part.values(column).tolist(), part.periods(column).tolist(), strict=True)


def _told(value: Any) -> Any:
    """Return a value of a column of periods so that it is the same from every engine."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (bool, int, float, Decimal)):
        return float(value)
    text = value_text(value)
    # Some engines make the first moment of a day of a date.
    return text.removesuffix(" 00:00:00") if isinstance(value, datetime) else text


def value_text(value: Any) -> str:
    """Return a value as text; of a moment with a time zone, that in UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return str(value.astimezone(UTC))
    return str(value)


def data_files(paths: Sequence[str]) -> list[str]:
    """Return the files that paths, folders and patterns mean, each once, in order of the names.

    Numbers in names are numbers: day=2 comes before day=10.
    """
    files: list[str] = []
    for path in paths:
        if is_partitioned(path):
            files += [str(file) for file in find_partitions(path).files]
        else:
            check_input(path)
            files.append(os.fspath(path))
    each = {os.path.realpath(file): file for file in reversed(files)}
    return sorted(each.values(), key=_natural)


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), part) if k % 2 else (0, part) for k, part in enumerate(parts)]


class AuditLabels:
    """Labels of a file, found by the name of the row."""

    def __init__(self, path: str, columns: FileColumns, max_loss: float | None) -> None:
        if columns.on is None:
            raise InvalidInputError("labels need --on, the column that names a row in both files")
        available = column_names(path)
        check_names(available, [("--on", columns.on)], repr(path))
        roles = [(r, getattr(columns, r)) for r in ("loss", "ood", "label")]
        self.roles = {role: name for role, name in roles if name in available}
        if not self.roles:
            asked = ", ".join(f"--{role} {name}" for role, name in roles if name is not None)
            raise InvalidInputError(
                f"the labels {path!r} have no column {asked or '--loss, --ood or --label'}; "
                f"the columns are {', '.join(available)}"
            )
        table = read_columns(path, list(dict.fromkeys([columns.on, *self.roles.values()])))
        self.keys = texts(table[columns.on])
        order = np.argsort(self.keys, kind="stable")
        self.keys = self.keys[order]
        twice = np.flatnonzero(self.keys[1:] == self.keys[:-1])
        if len(twice):
            raise InvalidInputError(f"the labels {path!r} have {self.keys[twice[0]]!r} twice")
        size = len(order)
        loss = floats(table, "--loss", self.roles["loss"])[order] if "loss" in self.roles else None
        ood = without_empty(table[self.roles["ood"]])[order] if "ood" in self.roles else None
        self.known = known_rows(loss, ood, size, max_loss)
        self.kinds = ClassKinds.of(columns)
        self.classes = None
        if "label" in self.roles:
            labels = without_empty(table[self.roles["label"]][order])
            self.classes = self.kinds.told("label", labels)
        self.matched = np.zeros(size, bool)

    def of(self, keys: Any, predictions: Any) -> tuple[Any, KnownRows]:
        """Return which rows were audited, and what is known of every row."""
        place = np.searchsorted(self.keys, keys)
        place[place == len(self.keys)] = 0
        audited = self.keys[place] == keys if len(self.keys) else np.zeros(len(keys), bool)
        found = place[audited]
        again = found[self.matched[found]]
        self.matched[found] = True
        ordered = np.sort(found)
        again = np.concatenate([again, ordered[1:][ordered[1:] == ordered[:-1]]])
        if len(again):
            raise InvalidInputError(
                f"--on: several rows of DATA are called {self.keys[again[0]]!r}, which has a "
                "label: rows must have names of their own, and no file may be given twice as a copy"
            )
        known, is_ood, loss, names = (column[place] for column in self.known)
        if self.classes is not None and predictions is not None:
            truth = self.classes[place]
            given = truth != ""
            loss = np.where(given, (truth != predictions).astype(np.float64), loss)
            known = known | given
        loss = np.where(audited, loss, np.nan)
        return audited, KnownRows(known & audited, is_ood & audited, loss, names)


class ClassKinds:
    """Labels and predictions of files, compared as values: see `demur.losses.check_kinds`.

    Cells of a CSV file have no kind: a column of them is of numbers if all of them are.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._typed: dict[str, dict[str, Any]] = {role: {} for role in names}
        self._cells: dict[str, dict[str, Any]] = {role: {} for role in names}

    @classmethod
    def of(cls, columns: FileColumns) -> ClassKinds:
        """Take the columns of classes, where there are two."""
        asked = {"label": columns.label, "prediction": columns.prediction}
        return cls({role: f"--{role} {name}" for role, name in asked.items() if name is not None})

    def told(self, role: str, values: Any, *, cells: bool = False, numbers: bool = True) -> Any:
        """Return classes in one spelling, empty where there is none, and remember their kinds.

        `cells` are text of a CSV file, which are spelled as `numbers` only where these may be met.
        """
        if not cells:
            given = values[~_missing(values)]
            self._typed[role] |= label_kinds(given) | self._typed[role]
            plain = given.dtype.kind == "O" and "text" in self._typed[role]
            return np.where(_missing(values), "", values) if plain else texts(values)
        spelled: dict[Any, str] = {None: ""}
        for cell in dict.fromkeys(values.tolist()):
            number = None if cell is None else _number_text(cell)
            if cell is not None:
                self._cells[role].setdefault("text" if number is None else "numbers", cell)
                spelled[cell] = number if numbers and number is not None else cell
        return np.array([spelled[cell] for cell in values.tolist()], object)

    @property
    def of_text(self) -> bool:
        """Whether the labels are known to be text."""
        return "text" in self._typed["label"]

    def check(self) -> None:
        """Refuse numbers on one side and names on the other, once all of them were seen."""
        kinds = {role: self._kinds(role) for role in self._names}
        if len(kinds) == 2 and all(kinds.values()):
            (label, labels), (prediction, predictions) = (
                (self._names[role], found) for role, found in kinds.items()
            )
            check_kinds(label, labels, prediction, predictions)

    def _kinds(self, role: str) -> dict[str, Any]:
        cells = self._cells[role]
        return self._typed[role] | ({"text": cells["text"]} if "text" in cells else cells)


def _missing(values: Any) -> Any:
    if values.dtype.kind == "O":
        return np.array([value is None or value != value for value in values.tolist()], bool)
    return np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)


def _number_text(cell: str) -> str | None:
    """Return a cell of a CSV file as `texts` spells numbers; None if it is no number."""
    flag = {"true": "1", "false": "0"}.get(cell.casefold())
    if flag is not None or not _NUMBER.fullmatch(cell):
        return flag
    return str(int(cell)) if cell.lstrip("+-").isdigit() else str(texts(np.array([float(cell)]))[0])


def without_empty(values: Any) -> Any:
    """Return values with None in place of empty texts: nothing is known where nothing stands."""
    if values.dtype.kind != "O":
        return values
    return np.array(
        [None if v is None or str(v).strip() == "" else v for v in values.tolist()], object
    )


def texts(values: Any) -> Any:
    """Return names of rows, or classes, as text; 17 and 17.0 are the same, missing ones empty."""
    if values.dtype.kind in "iub":
        return values.astype(np.int64).astype(str).astype(object)
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.floor(values))
        pairs = zip(values.tolist(), whole.tolist(), strict=True)
        found = np.array([f"{v:.0f}" if w else repr(v) for v, w in pairs])
        return np.where(np.isnan(values), "", found).astype(object)
    return np.array(
        [
            "" if v is None or v != v else _POINT_ZERO.sub(r"\1", str(v).strip())
            for v in values.tolist()
        ],
        object,
    )


def count_files(
    setup: WatchSetup,
    files: Sequence[str],
    columns: FileColumns,
    labels: AuditLabels | None,
    *,
    held: Period | None = None,
    closed: Callable[[Period], bool] = lambda period: False,
    advance: Callable[[int], None] = lambda rows: None,
) -> FileCounts:
    """Count the rows of files.

    Parameters
    ----------
    held
        A period whose labels waited before: where it is not among the files, labels of it and of
        all that follow go on waiting.
    closed
        Tells which periods are not counted any more: nothing waits for their labels.
    """
    found = FileCounts()
    counter = _FileCounter(setup, columns, labels, found, closed)
    for file in files:
        counter.add_file(file, advance)
    counter.kinds.check()
    _ = in_order_of_time(found.counts)
    counter.withhold(None if held is None or held in found.counts or closed(held) else held)
    if labels is not None:
        found.matched = int(labels.matched.sum())
        found.unmatched = len(labels.matched) - found.matched
    return found


class _FileCounter:
    def __init__(
        self,
        setup: WatchSetup,
        columns: FileColumns,
        labels: AuditLabels | None,
        found: FileCounts,
        closed: Callable[[Period], bool],
    ) -> None:
        self._setup, self._columns, self._labels, self._found = setup, columns, labels, found
        self._rule_names = columns.scores
        self.kinds = ClassKinds.of(columns) if labels is None else labels.kinds
        self._closed = closed
        self._flagged: bool | None = None
        """Whether OOD rows are marked by flags, not by the names of sets; None before any is."""
        self._stopped: set[Period] = set()
        """Periods of which an audited row had no label: labels behind it wait."""

    def add_file(self, file: str, advance: Callable[[int], None]) -> None:
        said, available = hive_values(file), column_names(file)
        inside = self._inside(file, available, said)
        stream = open_stream(file, inside)
        done = 0
        for batch in stream.batches:
            table = {name: batch.column(name) for name in inside}
            scores = np.column_stack(
                [
                    batch_numbers(batch, name, text=stream.text, first_row=done)
                    for name in self._rule_names
                ]
            )
            rows = len(scores)
            if (room := LOOKED_AT - self._found.rows - done) > 0:
                self._found.looked_at.append(scores[:room])
            self._add(file, scores, _Batch(table, said, rows, stream.text, done), done)
            done += rows
            advance(rows)
        self._found.rows += done

    def _inside(self, file: str, available: list[str], said: dict[str, str | None]) -> list[str]:
        """Return the columns to read from a file; refuse one that lacks any."""
        c = self._columns
        in_labels = set() if self._labels is None else set(self._labels.roles)
        wanted = [("--scores", name) for name in c.scores]
        for role in ("by", "on", "loss", "ood", "prediction", "group"):
            name = getattr(c, role)
            if name is not None and role not in in_labels and name not in said:
                wanted.append((f"--{role}", name))
        if c.label is not None and self._labels is None:
            wanted.append(("--label", c.label))
        check_names(available, wanted, repr(file))
        return list(dict.fromkeys(name for _, name in wanted))

    def _add(self, file: str, scores: FloatArray, batch: _Batch, before: int) -> None:
        c = self._columns
        counted = self._setup.rows(scores)
        keys = None if c.on is None else texts(batch.values(c.on))
        chosen, known = self._known(batch, keys)
        group = None if c.group is None else texts(batch.values(c.group))
        # The folder too: files of different days often have one name.
        by = np.full(batch.rows, "/".join(Path(file).absolute().parts[-2:]), object)
        if c.by is not None:
            by = batch.periods(c.by)
        for period in dict.fromkeys(by.tolist()):
            part: Any = np.flatnonzero(by == period) if (by != period).any() else slice(None)
            these = counted if isinstance(part, slice) else counted.take(part)
            total = self._found.counts.setdefault(period, LiveCounts.none(self._setup.layout))
            total.add(these.counts(self._setup.layout))
            known_files = self._found.files.setdefault(period, [])
            if file not in known_files:
                known_files.append(file)
            told = None
            if known is not None:
                told = KnownRows(*(column[part] for column in known))
                picked = None if chosen is None else chosen[part]
                of_group = None if group is None else group[part]
                self._add_labels(total, period, these, told, picked, of_group)
            shown = [(self._found.broken, *found) for found in rows_broken(these, told)]
            shown += [(self._found.beyond, *found) for found in rows_beyond(self._setup, these)]
            for kept, k, why in shown:
                row = int(np.arange(batch.rows)[part][k])
                key = f"{Path(file).name}, row {before + row + 1}" if keys is None else keys[row]
                kept.append(ExampleRow(str(key), period, why, tuple(scores[row].tolist())))

    def _known(self, batch: _Batch, keys: Any) -> tuple[Any, KnownRows | None]:
        c = self._columns
        if self._labels is not None:
            compares = self._labels.classes is not None and c.prediction is not None
            prediction = self._classes(batch, "prediction") if compares else None
            return self._labels.of(keys, prediction)
        loss = None if c.loss is None else batch.numbers(c.loss)
        if c.label is not None and c.prediction is not None:
            truth, prediction = (self._classes(batch, role) for role in ("label", "prediction"))
            loss = np.where(truth == "", np.nan, (truth != prediction).astype(np.float64))
        ood = None if c.ood is None else self._marks(batch, c.ood)
        if loss is None and ood is None:
            return None, None
        return None, known_rows(loss, ood, batch.rows, self._setup.max_loss)

    def _classes(self, batch: _Batch, role: str) -> Any:
        name = str(getattr(self._columns, role))
        cells = batch.text or name not in batch.table
        values = batch.values(name)
        return self.kinds.told(role, values, cells=cells, numbers=not self.kinds.of_text)

    def _marks(self, batch: _Batch, name: str) -> Any:
        """Return marks of OOD rows, of which all files must have one kind."""
        marks = batch.marks(name)
        if any(mark is not None and mark == mark for mark in marks.tolist()):
            flagged = marks.dtype.kind != "O"
            if self._flagged not in (None, flagged):
                raise InvalidInputError(
                    f"--ood: column {name!r} holds flags (0, 1) in some rows and names of sets in "
                    "others: write one of both"
                )
            self._flagged = flagged
        return marks

    def _add_labels(
        self,
        total: LiveCounts,
        period: Period,
        rows: DecidedRows,
        told: KnownRows,
        picked: Any,
        group: Any,
    ) -> None:
        if period in self._stopped or self._closed(period):
            return
        which = told.known if picked is None else picked
        if picked is not None:
            lacking = np.flatnonzero(picked & ~told.complete(rows.accepted))
            if len(lacking):
                # What comes behind an audited row without a label waits for it.
                which = picked & (np.arange(len(picked)) < lacking[0])
                self._stopped.add(period)
        labelled = LabelledRows(rows.accepted, told.is_ood, told.loss, told.set_name, group)
        total.add_labelled(labelled.take(which))

    def withhold(self, held: Period | None) -> None:
        """Take back the labels of all periods behind the first one that waits."""
        self._found.withhold([*self._stopped, *([] if held is None else [held])])


def rows_beyond(setup: WatchSetup, rows: DecidedRows) -> Iterator[tuple[int, str]]:
    """Yield the latest rows with a score that no row of tuning had, and why to look at them."""
    for number, name in enumerate(setup.names):
        last = len(setup.cuts[number])
        for place, where in ((0, "below"), (last, "above")) if last else ():
            for k in np.flatnonzero(rows.bins[number] == place)[-_SHOWN:]:
                yield int(k), f"{name} {where} all of tuning"


def rows_broken(rows: DecidedRows, told: KnownRows | None) -> Iterator[tuple[int, str]]:
    """Yield the latest accepted rows that turned out wrong or foreign, and why to look at them."""
    if told is None:
        return
    bad = rows.accepted & told.known & (told.is_ood | (told.loss > 0))
    for k in np.flatnonzero(bad)[-_SHOWN:]:
        name = told.set_name[k]
        yield int(k), f"accepted, OOD ({name})" if told.is_ood[k] else "accepted, wrong"


@dataclass(frozen=True, slots=True)
class _Batch:
    """Columns of some rows, and what the folders of their file say."""

    table: dict[str, Any]
    said: dict[str, str | None]
    rows: int
    text: bool
    """Whether cells are the text of a CSV file; what folders say always is."""
    first: int
    """Number of the first row."""

    def values(self, name: str) -> Any:
        if name not in self.table:
            return np.full(self.rows, self.said[name], object)
        found = to_numpy(arrow("pyarrow").chunked_array([self.table[name]]))
        return without_empty(found)

    def marks(self, name: str) -> Any:
        """Return a column as flags, if all its cells are, else as it is."""
        values = self.values(name)
        if name in self.table and not self.text:
            return values
        cells = [None if value is None else str(value).strip().casefold() for value in values]
        if not set(cells) <= _FLAGS.keys():
            return values
        return np.array([_FLAGS[cell] for cell in cells])

    def numbers(self, name: str) -> FloatArray:
        if name in self.table and is_number(self.table[name].type):
            return np.asarray(self.values(name), np.float64)
        found = self.marks(name)
        if found.dtype.kind == "O" and self.text and name in self.table:
            batch = arrow("pyarrow").record_batch({name: self.table[name]})
            return batch_numbers(batch, name, text=True, first_row=self.first)
        return floats({name: found}, "--loss", name)

    def periods(self, name: str) -> Any:
        values = self.values(name)
        if values.dtype.kind in "iuf":
            if np.isnan(values.astype(np.float64)).any():
                raise InvalidInputError(f"--by: column {name!r} is empty in some rows")
            return values.astype(np.float64).astype(object)
        meaning = {value: period_of(value, name) for value in dict.fromkeys(values.tolist())}
        return np.array([meaning[value] for value in values.tolist()], object)


def period_of(value: Any, name: str) -> Period:
    """Return a value of a file as a period: a whole number is one."""
    if value is None:
        raise InvalidInputError(f"--by: column {name!r} is empty in some rows")
    text = str(value)
    return float(text) if _WHOLE.fullmatch(text) else text
