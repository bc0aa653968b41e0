"""A source whose rows come in batches of arrays, through which it goes for every question."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from demur.core.bins import Bins
from demur.core.rule import Rule
from demur.core.source import Cells, Histogram, Measure, Overview, Rows, Strip, Sum, Tally
from demur.sources.counting import CellFinder, Counter, take


class BatchedSource(ABC):
    """Answers by going through checked batches.

    A subclass hands out batches whose rows are all fit for use, and may answer single questions
    in a better way.
    """

    def __init__(self, score_names: tuple[str, ...], sets: tuple[str, ...], *, memory: int) -> None:
        self._names, self._sets, self._memory = score_names, sets, memory

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the score columns."""
        return self._names

    @property
    def memory(self) -> int:
        """Bytes that a search may use."""
        return self._memory

    @abstractmethod
    def _batches(self, by: str | None = None) -> Iterator[tuple[Rows, Any]]:
        """Yield all rows, scores column by column, and the values of the column `by`."""

    def overview(self) -> Overview:
        """Look at all rows once."""
        return merged_overviews([overview_of(rows, self._sets) for rows, _ in self._batches()])

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows, chosen by chance."""
        total = self.overview().rows
        rng = np.random.default_rng(seed)
        share = min(1.0, rows / max(total, 1))
        parts = [
            take(batch, np.flatnonzero(rng.random(len(batch.loss)) < share))
            for batch, _ in self._batches()
        ]
        return joined_rows(parts, len(self._names))

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell."""
        counter = Counter(bins, measure, strips=strips, within=within)
        for rows, _ in self._batches():
            counter.add(rows)
        return counter.result()

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        finder, parts = CellFinder(cells), []
        for rows, _ in self._batches():
            finite = rows
            if len(rows.loss) and rows.scores.max() == np.inf:
                finite = take(rows, np.flatnonzero(np.isfinite(rows.scores).all(axis=1)))
            parts.append(take(finite, finder.rows(finite.scores)))
        return joined_rows(parts, len(self._names))

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule` accepts, for each value of the column `by`."""
        sums: dict[Any, Any] = {}
        for rows, values in self._batches(by):
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


def tally_of(accepted: Any, total: Any) -> Tally:
    """Return a tally from ID, loss and OOD masses accepted, and of all rows."""
    (nI, L, *nO), (NI, NL, *NO) = accepted.tolist(), total.tolist()
    return Tally(nI, tuple(nO), L, NI, tuple(NO), NL)


def overview_of(rows: Rows, sets: tuple[str, ...]) -> Overview:
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


def merged_overviews(parts: Sequence[Overview]) -> Overview:
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


def joined_rows(parts: Sequence[Rows], scores: int) -> Rows:
    """Return the rows of all parts."""
    if not parts:
        return Rows(np.empty((0, scores)), np.empty(0, np.int64), np.empty(0), None)
    weights = [part.weight for part in parts if part.weight is not None]
    return Rows(
        np.vstack([part.scores for part in parts]),
        np.concatenate([part.group for part in parts]),
        np.concatenate([part.loss for part in parts]),
        np.concatenate(weights) if weights else None,
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
