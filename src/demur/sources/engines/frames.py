"""Rows in memory: the arrays of a sample, or a data frame of pandas, pyarrow, Polars and others.

Also the rows of a Polars LazyFrame, scanned by its streaming engine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from numbers import Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.columns import (
    ScoreColumns,
    are_decimals,
    dtype_of,
    floats,
    frame_columns,
    match_name,
)
from demur.core.row_draws import RowDraw, hashed_order, key_numbers
from demur.core.rule import Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.core.source import (
    MEMORY,
    Measure,
    NoRowsError,
    Overview,
    Rows,
    Sides,
    Sum,
    Tally,
    unknown_set,
)
from demur.errors import InvalidInputError
from demur.sources.engines.base import (
    BatchCounting,
    LabelledSource,
    RowQuestion,
    ScannedSource,
)
from demur.sources.engines.expressions import (
    KEY,
    StandardRows,
    Table,
    check_class_values,
    known_frame,
)
from demur.sources.engines.group_sums import grouped, tally_of, value_name
from demur.sources.open import Missing, Roles
from demur.sources.record_batches import is_number

_BATCH = 1 << 17
_AS_NUMBERS = ("scores", "loss", "ood", "audited", "by")


class BatchedSource(BatchCounting):
    """Answers by going through checked batches.

    A subclass hands out batches whose rows are all fit for use, and may answer single questions
    in a better way.
    """

    def __init__(self, columns: ScoreColumns, sides: Sides, *, memory: int) -> None:
        super().__init__(columns, memory=memory)
        self._sides = sides

    @abstractmethod
    def _valued(self, by: str | None) -> Iterator[tuple[Rows, Any]]:
        """Yield all rows, scores column by column, and the values of the column `by`."""

    def _batches(self) -> Iterator[Rows]:
        return (rows for rows, _ in self._valued(None))

    def overview(self) -> Overview:
        """Look at all rows once."""
        parts = [_overview(rows, self._sides) for rows in self._batches()]
        if not parts:
            raise NoRowsError(self.place)
        return _merged(parts)

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows, chosen by chance."""
        total = self.overview().rows
        rng = np.random.default_rng(seed)
        share = min(1.0, rows / max(total, 1))
        parts = [
            batch.take(np.flatnonzero(rng.random(len(batch.loss)) < share))
            for batch in self._batches()
        ]
        return Rows.joined(parts, self._columns.count)

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule` accepts, for each value of the column `by`."""
        sums: dict[Any, Any] = {}
        for rows, values in self._valued(by):
            masses = measure.masses(rows).table
            names, place = _numbered(values, len(rows.loss))
            both = np.zeros((2, measure.rows, len(names)), np.int64)
            every = np.ones(len(rows.loss), bool)
            for sums_, counted in zip(both, (rule.accept(rows.scores), every), strict=True):
                for one, mass in zip(sums_, masses, strict=True):
                    np.add.at(one, place[counted], mass[counted])
            for name, table in zip(names, np.moveaxis(both, 2, 0), strict=True):
                sums[name] = sums.get(name, 0) + table
        if by is None and not sums:
            sums[None] = np.zeros((2, measure.rows), np.int64)
        return {group: tally_of(table[0], table[1], measure) for group, table in sums.items()}


class ArraySource(BatchedSource):
    """The rows of a `Sample` as a source, counted in batches.

    Examples
    --------
    >>> from demur import Sample, TprFprModel, tune
    >>> sample = Sample([[0, 1], [1, 0], [2, 2]], [0, 0, 1], [[3, 3]])
    >>> tune(ArraySource(sample), TprFprModel(0.6)).point.selective_risk
    0.0
    """

    def __init__(
        self,
        sample: Sample,
        *,
        keys: tuple[Any, Any] | None = None,
        memory: int = MEMORY,
        batch: int = _BATCH,
    ) -> None:
        columns = sample.columns
        if columns.names is None:
            columns = ScoreColumns(columns.count, tuple(f"score_{k}" for k in range(columns.count)))
        super().__init__(columns, Sides(tuple(sample.ood_sets), sample.groups), memory=memory)
        group = np.full(sample.n_ood, 0)
        for k, rows in enumerate(sample.ood_sets.values()):
            group[rows] = k
        own = np.full(sample.n_id, -1)
        if sample.group_code is not None:
            own -= sample.group_code
        weighted = sample.id_weight is not None or sample.ood_weight is not None
        weights = [
            np.ones(n) if weight is None else weight
            for n, weight in ((sample.n_id, sample.id_weight), (sample.n_ood, sample.ood_weight))
        ]
        self._rows = Rows(
            np.asfortranarray(np.vstack([sample.id_doubts, sample.ood_doubts]) + 0.0),
            np.concatenate([own, group]),
            np.concatenate([sample.id_loss, np.zeros(sample.n_ood)]),
            np.concatenate(weights) if weighted else None,
        )
        self._batch = batch
        self._hashed = self._raw_scores()
        if keys is not None:
            both = [key_numbers(np.asarray(side), "keys") for side in keys]
            self._hashed = [np.concatenate(both)]
            self.drawn_by_key = True

    def _raw_scores(self) -> list[FloatArray]:
        """Return the scores as the columns have them, in the order in which they are hashed."""
        raw = dict(zip(self.score_names, (self._rows.scores * self._columns.signs).T, strict=True))
        return [raw[name] for name in hashed_order(self.score_names)]

    def drawn(self, draw: RowDraw) -> ArraySource:
        """Return the rows that a draw keeps, as a source of their own."""
        other, rows = self._without_answers(), self._rows
        places = np.flatnonzero(draw.keeps(self._hashed, rows.group >= 0))
        left = rows.take(places)
        other._hashed = [column[places] for column in self._hashed]
        if draw.repeats:
            own = 1.0 if left.weight is None else left.weight
            left = replace(left, weight=draw.times(other._hashed).astype(np.float64) * own)
        other._rows, other._sides = _with_sides_left(left, self._sides)
        return other

    def for_ood(self, name: str) -> ArraySource:
        """Return the ID rows and those of one OOD set, as a source of their own."""
        if name not in self._sides.sets:
            raise unknown_set(name, self._sides.sets)
        other, group = self._without_answers(), self._rows.group
        places = np.flatnonzero((group < 0) | (group == self._sides.sets.index(name)))
        other._hashed = [column[places] for column in self._hashed]
        other._rows, other._sides = _with_sides_left(self._rows.take(places), self._sides)
        return other

    def _valued(self, by: str | None) -> Iterator[tuple[Rows, Any]]:
        n = len(self._rows.loss)
        for start in range(0, n, self._batch):
            yield self._rows.take(np.arange(start, min(start + self._batch, n))), None


def _with_sides_left(rows: Rows, sides: Sides) -> tuple[Rows, Sides]:
    """Return rows by the places of those sets and groups that are left among them."""
    sets = [k for k in range(len(sides.sets)) if (rows.group == k).any()]
    groups = [k for k in range(len(sides.groups)) if (rows.group == -1 - k).any()]
    group = np.full(len(rows.group), -1)
    for place, k in enumerate(sets):
        group[rows.group == k] = place
    for place, k in enumerate(groups):
        group[rows.group == -1 - k] = -1 - place
    names = tuple(sides.sets[k] for k in sets) or (POOLED_NAME,)
    return replace(rows, group=group), Sides(names, tuple(sides.groups[k] for k in groups))


class FrameSource(LabelledSource, BatchedSource):
    """Rows of a frame in memory.

    Examples
    --------
    >>> import demur, pandas
    >>> frame = pandas.DataFrame({"s": [0.1, 0.2, 0.9], "l": [0, 1, 0], "o": [0, 0, 1]})
    >>> source = FrameSource(frame, Roles(("s",), loss="l", ood="o"))
    >>> demur.tune(source, demur.TprFprModel(0.5)).point.selective_risk
    0.0
    """

    def __init__(
        self, frame: Any, roles: Roles, *, missing: Missing = "error", memory: int = MEMORY
    ) -> None:
        self._frame = with_doubles(known_frame(frame), roles)
        self._standard = StandardRows.of(self._frame, roles, missing)
        super().__init__(roles.columns, self._overview.sides, memory=memory)
        self.drawn_by_key = roles.key is not None

    def drawn(self, draw: RowDraw) -> FrameSource:
        """Return the rows that a draw keeps, as a source of their own."""
        other = self._without_answers()
        other._standard = self._standard.drawn(draw)
        other._frame = with_key(self._frame, other._standard)
        other._sides = other._overview.sides
        return other

    @property
    def _leaves_out(self) -> bool:
        return self._standard.missing == "drop"

    def _answer(self, question: RowQuestion) -> Table:
        return answer_of(self._frame, question)

    def _look(self) -> tuple[Roles, Table]:
        return self._standard.roles, labelled_groups(self._frame, self._standard)

    def _keep_set(self, name: str) -> None:
        self._standard = self._standard.with_set(name)
        self._sides = Sides((name,), self._sides.groups)

    def _valued(self, by: str | None) -> Iterator[tuple[Rows, Any]]:
        rows, values = standard_rows(self._frame, self._standard, self._sides, by)
        for start in range(0, len(rows.loss), _BATCH):
            part = rows.take(np.arange(start, min(start + _BATCH, len(rows.loss))))
            yield part, None if values is None else values[start : start + _BATCH]


def with_doubles(frame: Any, roles: Roles) -> Any:
    """Return a frame in memory with numbers as doubles where libraries do not agree on them.

    They cast decimals to within an ulp, pyarrow refuses integers that others round, and pandas
    holds decimals, and flags of which some are missing, as objects. Numbers may also be the
    categories of a dictionary.
    """
    told = [*roles.numeric()]
    told += [(role, name) for role, name in roles.used() if role in ("ood", "key")]
    return with_numbers(frame, told)


def with_numbers(frame: Any, told: Sequence[tuple[str, str]]) -> Any:
    """Return a frame in memory with these columns, where they are numbers, as such doubles."""
    changed = []
    for argument, asked in told:
        name = match_name(asked, frame.columns)
        if name not in frame.columns:
            continue
        if _needs_doubles(frame[name]):
            values = floats(frame_columns(frame, [(argument, name)]), argument, name)
            backend = frame.implementation
            changed.append(nw.new_series(name, values, nw.Float64, backend=backend))
    return frame.with_columns(*changed) if changed else frame


def _needs_doubles(series: Any) -> bool:
    """Return whether a column holds numbers that not every library reads as the same doubles."""
    kind = dtype_of(series)
    if kind in (nw.Int64, nw.UInt64, nw.Boolean) or kind.is_decimal() or are_decimals(series):
        return True
    if kind == nw.Categorical:
        known = _categories(series)
    elif kind == nw.Object:
        known = series.filter(~series.is_null()).to_list()
    else:
        return False
    return bool(known) and all(isinstance(value, (Real, Decimal)) for value in known)


def _categories(series: Any) -> list[Any]:
    """Return the values of a dictionary; of a type of Arrow in pandas, one like them."""
    arrow_type = getattr(getattr(series.to_native(), "dtype", None), "pyarrow_dtype", None)
    if arrow_type is None:
        found: list[Any] = series.cat.get_categories().to_list()
        return found
    return [0.0] if is_number(arrow_type.value_type) else [""]


def with_key(frame: Any, standard: StandardRows) -> Any:
    """Return a frame in memory with the numbers of a key that is text, where rows are drawn."""
    name = standard.text_key
    if name is None or KEY in frame.columns:
        return frame
    values = np.empty(len(frame), object)
    values[:] = _with_none(frame[name])
    numbers = key_numbers(values, name)
    return frame.with_columns(nw.new_series(KEY, numbers, nw.Float64, backend=frame.implementation))


def labelled_groups(frame: Any, standard: StandardRows) -> Table:
    """Return the groups that an overview is made of, for a narwhals frame in memory."""
    check_class_values(frame, standard)
    return columns_of(grouped(standard.rows(frame, labels=True), standard.roles))


def standard_rows(
    frame: Any, standard: StandardRows, sides: Sides, by: str | None = None
) -> tuple[Rows, list[Any] | None]:
    """Return the rows of a narwhals frame in memory, and the values of the column `by`."""
    rows = standard.rows(frame, sides, by=by)
    held = standard.fetched(columns_of(rows.drop("by") if by is not None else rows))
    return held, None if by is None else _with_none(rows["by"])


def answer_of(frame: Any, question: RowQuestion) -> Table:
    """Return the answer of a narwhals frame in memory: numbers as such, other values as objects."""
    # Classes and names of rows stay as they are, to the last digit.
    told = [(argument, name) for argument, name in question.used if argument in _AS_NUMBERS]
    found = question.of_frame(with_numbers(frame, told))
    return {
        name: found[name].to_numpy() if found[name].dtype.is_numeric() else _listed(found[name])
        for name in found.columns
    }


def _listed(series: Any) -> Any:
    values = np.empty(len(series), object)
    values[:] = _with_none(series)
    return values


def columns_of(frame: Any) -> Table:
    """Return the columns of a narwhals frame as arrays."""
    return {name: frame[name].to_numpy() for name in frame.columns}


def _with_none(series: Any) -> list[Any]:
    """Return values with None where they are missing, of which pandas has several kinds."""
    missing = series.is_null().to_list()
    return [None if gone else value for value, gone in zip(series.to_list(), missing, strict=True)]


def _overview(rows: Rows, sides: Sides) -> Overview:
    """Return the overview of rows that are fit for use."""
    is_id = rows.group < 0
    weight = np.ones(len(is_id)) if rows.weight is None else rows.weight
    finite = rows.scores[np.isfinite(rows.scores).all(axis=1)]
    id_weight, ood_weight = weight[is_id], weight[~is_id]
    loss = id_weight * rows.loss[is_id]
    return Overview(
        int(is_id.sum()),
        tuple(int((rows.group == k).sum()) for k in range(len(sides.sets))),
        sides.sets,
        sides.groups,
        _sum(id_weight),
        _sum(ood_weight),
        _sum(loss),
        finite.min(axis=0, initial=np.inf),
        finite.max(axis=0, initial=-np.inf),
        rows.weight is not None,
        not bool(np.isin(rows.loss[is_id], (0, 1)).all()),
    )


def _merged(parts: Sequence[Overview]) -> Overview:
    """Return the overview of all parts."""
    return Overview(
        sum(part.id_rows for part in parts),
        tuple(sum(counts) for counts in zip(*(part.ood_rows for part in parts), strict=True)),
        parts[0].sets,
        parts[0].groups,
        _added([part.id for part in parts]),
        _added([part.ood for part in parts]),
        _added([part.loss for part in parts]),
        np.min([part.low for part in parts], axis=0),
        np.max([part.high for part in parts], axis=0),
        any(part.weighted for part in parts),
        any(part.graded for part in parts),
    )


def _added(sums: Sequence[Sum]) -> Sum:
    return Sum(sum(one.total for one in sums), all(one.whole for one in sums))


def _sum(values: Any) -> Sum:
    return Sum(float(values.sum()), bool((values == np.floor(values)).all()))


def _numbered(values: list[Any] | None, rows: int) -> tuple[list[Any], IntArray]:
    """Return the distinct values, and which of them each row has; all have None without values."""
    if values is None:
        return [None], np.zeros(rows, np.int64)
    number: dict[Any, int] = {}
    place = [number.setdefault(value_name(value), len(number)) for value in values]
    return list(number), np.array(place, np.int64)


class PolarsSource(ScannedSource):
    """Rows of a Polars LazyFrame.

    Parameters
    ----------
    frame
        The LazyFrame, such as ``polars.scan_parquet("scores/*.parquet")``.
    roles
        Which columns mean what.
    missing
        ``"error"`` refuses missing values, ``"drop"`` leaves such rows out.
    memory
        Bytes to get along with.

    Examples
    --------
    >>> import demur, polars
    >>> from demur.sources.open import Roles
    >>> frame = polars.LazyFrame({"s": [0.1, 0.2, 0.9], "l": [0, 1, 0], "o": [0, 0, 1]})
    >>> source = PolarsSource(frame, Roles(("s",), loss="l", ood="o"))
    >>> demur.tune(source, demur.TprFprModel(0.5)).point.selective_risk
    0.0
    """

    engine = "polars"

    def __init__(
        self, frame: Any, roles: Roles, *, missing: Missing = "error", memory: int = MEMORY
    ) -> None:
        with _told():
            super().__init__(frame, roles, missing=missing, memory=memory)

    def _batches(self) -> Iterator[Rows]:
        rows = self._standard.rows(self._frame, self._overview.sides).to_native()
        with self._passing(), _told():
            for batch in rows.collect_batches(
                chunk_size=_BATCH, maintain_order=False, engine="streaming"
            ):
                yield self._standard.fetched(_columns(batch))

    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        with self._passing(), _told():
            return _columns(frame.to_native().collect(engine="streaming"))

    def _with_key(self, native: Any, name: str) -> Any:
        import polars as pl

        def numbers(keys: Any) -> Any:
            return pl.Series(key_numbers(_objects(keys), name))

        text = pl.col(name).cast(pl.String)
        return native.with_columns(text.map_batches(numbers, return_dtype=pl.Float64).alias(KEY))

    def _thinned(self, share: float, seed: int) -> Any:
        import polars as pl

        return self._native.filter(pl.int_range(pl.len()).hash(seed) < int(share * 2**64))


@contextmanager
def _told() -> Iterator[None]:
    """Turn failures of Polars into one of ours."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, nw.exceptions.NarwhalsError, OSError) as error:
        raise InvalidInputError(f"Polars: {' '.join(str(error).split())[:1000]}") from None
    except pl.exceptions.PanicException as error:
        # No Exception by Python's book, but what becomes of a damaged page.
        raise InvalidInputError(f"Polars gave up on the rows: {str(error)[:200]}") from None


def _columns(frame: Any) -> Table:
    return {
        name: frame[name].to_numpy() if frame[name].dtype.is_numeric() else _objects(frame[name])
        for name in frame.columns
    }


def _objects(series: Any) -> Any:
    values = np.empty(len(series), object)
    values[:] = series.to_list()
    return values
