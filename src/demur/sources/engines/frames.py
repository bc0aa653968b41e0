"""Rows in memory: the arrays of a sample, or a data frame of pandas, pyarrow, Polars and others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.scores import ScoreColumns
from demur.core.source import MEMORY, Measure, Overview, Rows, Sum, Tally
from demur.sources.engines.base import BatchCounting
from demur.sources.engines.expressions import (
    StandardRows,
    Table,
    check_class_values,
    known_frame,
)
from demur.sources.engines.group_sums import grouped, overview_of, tally_of
from demur.sources.open import Missing, Roles

_BATCH = 1 << 17


class BatchedSource(BatchCounting):
    """Answers by going through checked batches.

    A subclass hands out batches whose rows are all fit for use, and may answer single questions
    in a better way.
    """

    def __init__(self, columns: ScoreColumns, sets: tuple[str, ...], *, memory: int) -> None:
        super().__init__(columns, memory=memory)
        self._sets = sets

    @abstractmethod
    def _valued(self, by: str | None) -> Iterator[tuple[Rows, Any]]:
        """Yield all rows, scores column by column, and the values of the column `by`."""

    def _batches(self) -> Iterator[Rows]:
        return (rows for rows, _ in self._valued(None))

    def overview(self) -> Overview:
        """Look at all rows once."""
        return _merged([_overview(rows, self._sets) for rows in self._batches()])

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
            accepted = rule.accept(rows.scores)
            masses = measure.masses(rows)
            table = np.vstack([masses.id, masses.loss, masses.ood])
            for group, places in _groups(values, len(rows.loss)):
                part = table[:, places]
                both = np.array([part[:, accepted[places]].sum(axis=1), part.sum(axis=1)])
                sums[group] = sums.get(group, 0) + both
        if by is None and not sums:
            sums[None] = np.zeros((2, 2 + measure.columns), np.int64)
        return {group: tally_of(*table) for group, table in sums.items()}


class ArraySource(BatchedSource):
    """The rows of a `Sample` as a source, counted in batches.

    Examples
    --------
    >>> from demur import Sample, TprFprModel, tune
    >>> sample = Sample([[0, 1], [1, 0], [2, 2]], [0, 0, 1], [[3, 3]])
    >>> tune(ArraySource(sample), TprFprModel(0.6)).point.selective_risk
    0.0
    """

    def __init__(self, sample: Sample, *, memory: int = MEMORY, batch: int = _BATCH) -> None:
        columns = sample.columns
        if columns.names is None:
            columns = ScoreColumns(columns.count, tuple(f"score_{k}" for k in range(columns.count)))
        super().__init__(columns, tuple(sample.ood_sets), memory=memory)
        group = np.full(sample.n_ood, 0)
        for k, rows in enumerate(sample.ood_sets.values()):
            group[rows] = k
        weighted = sample.id_weight is not None or sample.ood_weight is not None
        weights = [
            np.ones(n) if weight is None else weight
            for n, weight in ((sample.n_id, sample.id_weight), (sample.n_ood, sample.ood_weight))
        ]
        self._rows = Rows(
            np.asfortranarray(np.vstack([sample.id_doubts, sample.ood_doubts]) + 0.0),
            np.concatenate([np.full(sample.n_id, -1), group]),
            np.concatenate([sample.id_loss, np.zeros(sample.n_ood)]),
            np.concatenate(weights) if weighted else None,
        )
        self._batch = batch

    def _valued(self, by: str | None) -> Iterator[tuple[Rows, Any]]:
        n = len(self._rows.loss)
        for start in range(0, n, self._batch):
            yield self._rows.take(np.arange(start, min(start + self._batch, n))), None


class FrameSource(BatchedSource):
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
        self._frame = _with_doubles(known_frame(frame), roles)
        self._standard = StandardRows.of(self._frame, roles, missing)
        super().__init__(roles.columns, self._overview.sets, memory=memory)

    @cached_property
    def _overview(self) -> Overview:
        roles = self._standard.roles
        return overview_of(roles, labelled_groups(self._frame, self._standard))

    def overview(self) -> Overview:
        """Look at all rows once; refuse rows that cannot be used."""
        return self._overview

    def _valued(self, by: str | None) -> Iterator[tuple[Rows, Any]]:
        rows, values = standard_rows(self._frame, self._standard, self._sets, by)
        for start in range(0, len(rows.loss), _BATCH):
            part = rows.take(np.arange(start, min(start + _BATCH, len(rows.loss))))
            yield part, None if values is None else values[start : start + _BATCH]


def _with_doubles(frame: Any, roles: Roles) -> Any:
    """Return a pyarrow table with large integers as doubles, which others round and it refuses."""
    if not frame.implementation.is_pyarrow():
        return frame
    table = frame.to_native()
    for name in [name for _, name in roles.numeric()] + [roles.ood] * (roles.ood is not None):
        place = table.schema.get_field_index(name)
        if place >= 0 and str(table.schema.field(place).type) in ("int64", "uint64"):
            table = table.set_column(place, name, table.column(place).cast("float64", safe=False))
    return nw.from_native(table)


def labelled_groups(frame: Any, standard: StandardRows) -> Table:
    """Return the groups that an overview is made of, for a narwhals frame in memory."""
    check_class_values(frame, standard)
    return columns_of(grouped(standard.rows(frame, labels=True), standard.roles))


def standard_rows(
    frame: Any, standard: StandardRows, sets: tuple[str, ...], by: str | None = None
) -> tuple[Rows, list[Any] | None]:
    """Return the rows of a narwhals frame in memory, and the values of the column `by`."""
    rows = standard.rows(frame, sets, by=by)
    held = standard.fetched(columns_of(rows.drop("by") if by is not None else rows))
    return held, None if by is None else _with_none(rows["by"])


def columns_of(frame: Any) -> Table:
    """Return the columns of a narwhals frame as arrays."""
    return {name: frame[name].to_numpy() for name in frame.columns}


def _with_none(series: Any) -> list[Any]:
    """Return values with None where they are missing, of which pandas has several kinds."""
    missing = series.is_null().to_list()
    return [None if gone else value for value, gone in zip(series.to_list(), missing, strict=True)]


def _overview(rows: Rows, sets: tuple[str, ...]) -> Overview:
    """Return the overview of rows that are fit for use."""
    is_id = rows.group < 0
    weight = np.ones(len(is_id)) if rows.weight is None else rows.weight
    finite = rows.scores[np.isfinite(rows.scores).all(axis=1)]
    id_weight, ood_weight = weight[is_id], weight[~is_id]
    loss = id_weight * rows.loss[is_id]
    return Overview(
        int(is_id.sum()),
        tuple(int((rows.group == k).sum()) for k in range(len(sets))),
        sets,
        _sum(id_weight),
        _sum(ood_weight),
        _sum(loss),
        finite.min(axis=0, initial=np.inf),
        finite.max(axis=0, initial=-np.inf),
        rows.weight is None and bool(((loss == 0) | (loss == 1)).all()),
    )


def _merged(parts: Sequence[Overview]) -> Overview:
    """Return the overview of all parts."""
    return Overview(
        sum(part.id_rows for part in parts),
        tuple(sum(counts) for counts in zip(*(part.ood_rows for part in parts), strict=True)),
        parts[0].sets,
        _added([part.id for part in parts]),
        _added([part.ood for part in parts]),
        _added([part.loss for part in parts]),
        np.min([part.low for part in parts], axis=0),
        np.max([part.high for part in parts], axis=0),
        all(part.plain for part in parts),
    )


def _added(sums: Sequence[Sum]) -> Sum:
    return Sum(sum(one.total for one in sums), all(one.whole for one in sums))


def _sum(values: Any) -> Sum:
    return Sum(float(values.sum()), bool((values == np.floor(values)).all()))


def _groups(values: Any, rows: int) -> Iterator[tuple[Any, Any]]:
    """Yield the distinct values and the places of each."""
    if values is None:
        yield None, slice(0, rows)
        return
    for value in dict.fromkeys(values):
        yield value, np.array([other == value for other in values], bool)
