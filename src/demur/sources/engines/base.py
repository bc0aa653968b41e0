"""What engines share: a new platform subclasses `ScannedSource` or `PushdownSource`.

All lazy engines make overviews and tallies by the same expressions of narwhals. Cells are counted
here, where an engine hands over its rows in batches, or by the engine, where the rows are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, Self

import narwhals.stable.v2 as nw
import numpy as np

from demur._arrays import IntArray
from demur.core.bins import Axis, Bins
from demur.core.columns import ScoreColumns
from demur.core.row_draws import RowDraw
from demur.core.rule import Rule
from demur.core.source import (
    MEMORY,
    Cells,
    Histogram,
    Measure,
    Overview,
    Rows,
    RuleCounts,
    Sizes,
    Strip,
    Tally,
    Work,
    unknown_set,
)
from demur.errors import InvalidInputError
from demur.sources.counting import CellFinder, HistogramCounter
from demur.sources.engines import expressions as ex
from demur.sources.engines.expressions import StandardRows, Table
from demur.sources.engines.group_sums import (
    INFINITE,
    MOST_SETS,
    NOWHERE,
    grouped,
    histogram_of,
    judged_flags,
    overview_of,
    rule_counts_of,
    tallies_of,
    unclear_ood,
    with_set,
)
from demur.sources.files import FileStamps, Stamps
from demur.sources.open import Missing, Roles

if TYPE_CHECKING:
    from demur.sources.engines.sql_rows import SqlRows

_LARGEST = float(np.finfo(np.float64).max)


class RowQuestion(Protocol):
    """What is asked of rows as they are: none is refused or left out, labelled or not."""

    @property
    def used(self) -> Sequence[tuple[str, str]]:
        """The columns that are read, with the arguments that name them."""

    @property
    def numeric(self) -> Sequence[tuple[str, str]]:
        """Those of them that must hold numbers."""

    @property
    def enough(self) -> int | None:
        """So many rows of the answer will do, whichever; None for all."""

    def of_frame(self, frame: Any) -> Any:
        """Return the answer from a narwhals frame, lazy or not."""

    def of_table(self, rows: SqlRows, available: list[str]) -> str:
        """Return the query of the answer from the table of a database with these columns."""


class BaseSource(ABC):
    """What every source knows before it looks at any row."""

    engine = "memory"
    """Name of the platform that goes over the rows."""
    place = "the source"
    """What the rows are called where something is wrong with them."""
    _origin: BaseSource | None = None
    """The source that these rows were drawn from."""

    def __init__(self, columns: ScoreColumns, *, memory: int) -> None:
        self._columns, self._memory = columns, memory
        self.work = Work(self.engine)
        self._stamps: Stamps = FileStamps()
        self.drawn_by_key = False
        """Whether rows are drawn by a hash of their key, not of their scores."""

    def __repr__(self) -> str:
        names = ", ".join(self.score_names)
        return f"{type(self).__name__}(scores {names}; {self.work.passes} passes so far)"

    def close(self) -> None:  # noqa: B027 - those that opened something say what to close
        """Let go of what was opened for the rows, which of most sources is nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def watch_files(self, stamps: Stamps) -> None:
        """Refuse passes over files that are not what they were."""
        self._stamps = stamps

    def _without_answers(self) -> Self:
        """Return a source of the same rows that was asked nothing; work adds up in both."""
        other = copy(self)
        for known in ("_labelled", "_overview", "_sizes"):
            vars(other).pop(known, None)
        # What closes with the first must stay open as long as the other is in use.
        other._origin = self
        return other

    @contextmanager
    def _passing(self) -> Iterator[None]:
        """Go over the rows once more; a change of their files is said before any other failure."""
        self.work.passes += 1
        self._stamps.check()
        try:
            yield
        finally:
            self._stamps.check()

    def _brought(self, rows: Rows) -> Rows:
        """Return fetched rows, which count."""
        self.work.fetched += len(rows.loss)
        return rows

    def answered(self, question: RowQuestion) -> Table:
        """Return the answer to a question about rows as they are, in one pass.

        That of a source of many parts may come in parts, which are to be added up.
        """
        if self._origin is not None or self._leaves_out:
            raise InvalidInputError(
                "source: rows as they are cannot be had of a part of them: give the source that "
                'it was drawn from, opened without missing="drop"'
            )
        return self._answer(question)

    @property
    def _leaves_out(self) -> bool:
        """Whether rows that lack a value are left out."""
        return False

    def _answer(self, question: RowQuestion) -> Table:
        raise InvalidInputError(
            "source: its rows are arrays without names: give a frame, files or a table of a "
            "database"
        )

    @abstractmethod
    def overview(self) -> Overview:
        """Look at all rows once; refuse rows that cannot be used."""

    @abstractmethod
    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows."""

    def glimpse(self, rows: int) -> Rows:
        """Return about so many rows, from a few places if that is cheaper than a sample."""
        return self.sample(rows, seed=0)

    def sizes(self) -> Sizes:
        """Return how many rows there are, from the first pass, whichever it was."""
        known: Sizes | None = vars(self).get("_sizes")
        return known or self.overview()

    def rule_counts(self, rule: Rule, *, by: str | None = None) -> RuleCounts | None:
        """Return None: what a rule accepts takes an overview and a tally here."""
        return None

    @property
    def columns(self) -> ScoreColumns:
        """The score columns, and the sense of each."""
        return self._columns

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the score columns."""
        return self._columns.names or ()

    @property
    def memory(self) -> int:
        """Bytes that a search may use here."""
        return self._memory


class LabelledSource(BaseSource, ABC):
    """A source whose first pass groups the rows by their label: ID, or an OOD set."""

    @abstractmethod
    def _look(self) -> tuple[Roles, Table]:
        """Go over all rows: return their roles, and the groups that `overview_of` takes."""

    @abstractmethod
    def _keep_set(self, name: str) -> None:
        """Leave out, from now on, the rows of all OOD sets but one."""

    @cached_property
    def _labelled(self) -> tuple[Roles, Table]:
        return self._look()

    @cached_property
    def _overview(self) -> Overview:
        roles, table = self._labelled
        unclear = unclear_ood(roles, table)
        if unclear is not None and self._origin is not None:
            # Some of the rows may have no names of ID rows; what all of them say, counts.
            self._origin.overview()
        elif unclear is not None:
            raise unclear
        return overview_of(roles, table, self.place)

    def overview(self) -> Overview:
        """Look at all rows once; refuse rows that cannot be used."""
        return self._overview

    def for_ood(self, name: str) -> Self:
        """Return the ID rows and those of one OOD set, as a source of their own."""
        if name not in self._overview.sets:
            raise unknown_set(name, self._overview.sets)
        roles, table = self._labelled
        other = self._without_answers()
        if self._overview.sets != (name,):
            other._keep_set(name)
        # What was counted by label tells what there is of the set.
        other._labelled = roles, with_set(table, name)
        return other


class LazySource(LabelledSource, ABC):
    """Rows of a lazy frame; how cells are counted is left to subclasses."""

    def __init__(
        self,
        frame: Any,
        roles: Roles,
        *,
        missing: Missing = "error",
        memory: int = MEMORY,
    ) -> None:
        super().__init__(roles.columns, memory=memory)
        self._native = frame
        self._frame = ex.known_frame(frame).lazy()
        self._standard = StandardRows.of(self._frame, roles, missing)
        self._scores = self._standard.scores
        self.drawn_by_key = roles.key is not None

    @abstractmethod
    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        """Bring a small result here, as columns."""

    def _collect_few(self, frame: nw.LazyFrame[Any]) -> Table:
        """Bring a few rows here, as columns."""
        return self._collect(frame)

    @abstractmethod
    def _thinned(self, share: float, seed: int) -> Any:
        """Return the native frame with about this share of its rows."""

    def _with_key(self, native: Any, name: str) -> Any:
        """Return the native frame with `drawing.KEY`, the numbers of a key that is text."""
        raise InvalidInputError(
            f"key: column {name!r} is text, which rows of this engine cannot be drawn by: give a "
            "column of numbers"
        )

    @property
    def _leaves_out(self) -> bool:
        return self._standard.missing == "drop"

    def _answer(self, question: RowQuestion) -> Table:
        return self._collect(question.of_frame(self._frame))

    def drawn(self, draw: RowDraw) -> Self:
        """Return the rows that a draw keeps, as a source of their own."""
        other = self._without_answers()
        other._standard = self._standard.drawn(draw)
        if other._standard.text_key is not None and not self._standard.draws:
            other._native = self._with_key(self._native, other._standard.text_key)
            other._frame = ex.known_frame(other._native).lazy()
        return other

    def _look(self) -> tuple[Roles, Table]:
        roles, rows = self._standard.roles, self._standard.rows(self._frame, labels=True)
        return roles, self._collect(grouped(rows, roles))

    def _keep_set(self, name: str) -> None:
        self._standard = self._standard.with_set(name)

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows."""
        share = rows / max(self.sizes().rows, 1)
        thinned = self._native if share >= 1 else self._thinned(share, seed)
        return self._fetched(thinned)

    def _fetched(self, native: Any) -> Rows:
        """Bring the rows of a native frame here."""
        rows = self._standard.rows(nw.from_native(native).lazy(), self.sizes().sides)
        return self._standard.fetched(self._collect(rows))

    def _takes(self, rule: Rule) -> None:
        """Refuse a rule about another number of scores."""
        if len(rule.direction) != len(self._scores):
            raise InvalidInputError(
                f"the rule takes {len(rule.direction)} scores, the source has {len(self._scores)}"
            )

    def rule_counts(self, rule: Rule, *, by: str | None = None) -> RuleCounts | None:
        """Return in one pass what `rule` accepts; None where that takes an overview first."""
        self._takes(rule)
        standard = self._standard
        refuses = standard.missing == "error" and standard.roles.weight is None
        # A label and a value together might be as many as there are rows.
        if "_overview" in vars(self) or not refuses or (standard.labelled and by is not None):
            return None
        rows = standard.judged(self._frame, rule, by=by)
        flags = judged_flags()
        rows = rows.with_columns(**flags)
        sums = [nw.len().alias("rows"), *map(self._counted, flags)]
        keys = ["label"] * standard.labelled + ["by"] * (by is not None)
        counted = rows.group_by(*keys).agg(*sums) if keys else rows.select(*sums)
        few = self._collect_few(counted if by else counted.head(MOST_SETS + 5))
        found = rule_counts_of(standard.roles, few)
        if found is not None:
            self._sizes = found.sizes
        return found

    def _counted(self, flag: str) -> ex.Expr:
        """Return how often a flag is true, as a sum of integers."""
        return nw.col(flag).cast(nw.Int64).sum()

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule` accepts, for each value of the column `by`."""
        self._takes(rule)
        masses = self._masses(measure)
        rows = self._standard.rows(self._frame, measure.sides, by=by)
        value = ex.weighed(rule, [nw.col(name) for name in self._scores])
        within = value <= rule.threshold if rule.tau else value < rule.threshold
        accept = (within & ex.finite(self._scores)).cast(nw.Int64)
        rows = rows.with_columns(accept=accept).with_columns(**masses)
        keys = ["by", "accept", "side"] if by is not None else ["accept", "side"]
        sums = [nw.col(name).sum().cast(nw.Int64) for name in masses]
        tallies = tallies_of(self._collect(rows.group_by(*keys).agg(*sums)), measure)
        check_tallies(self._overview, measure, tallies)
        return tallies

    def _masses(self, measure: Measure) -> dict[str, ex.Expr]:
        return ex.masses(measure, weighted=self._standard.roles.weight is not None)


def counted_whole(
    overview: Overview, measure: Measure, found: Histogram, within: Cells | None
) -> Histogram:
    """Return a histogram; refuse one of all rows that holds others than the overview."""
    if within is None:
        id_mass, loss_mass, *ood = found.infinite[: 2 + measure.columns]
        overview.check_counted(
            measure,
            id_mass + int(found.id.sum()),
            sum(ood) + int(found.ood.sum()),
            loss_mass + int(found.loss.sum()),
        )
    return found


def check_tallies(overview: Overview, measure: Measure, tallies: Mapping[Any, Tally]) -> None:
    """Refuse tallies of other rows than those of the overview."""
    every = tallies.values()
    overview.check_counted(
        measure,
        sum(tally.total_id for tally in every),
        sum(sum(tally.total_ood) for tally in every),
        sum(tally.total_loss for tally in every),
    )


class BatchCounting(BaseSource, ABC):
    """Counts cells in batches of rows, whatever hands these over.

    Adding up in arrays takes less time and memory than the hash tables of the engines.
    """

    @abstractmethod
    def _batches(self) -> Iterator[Rows]:
        """Go through all rows, which are fit for use."""

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell and along strips."""
        counter = HistogramCounter(bins, measure, strips=strips, within=within)
        for rows in self._batches():
            counter.add(rows)
        return counter.result()

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        finder, parts = CellFinder(cells), []
        for rows in self._batches():
            if len(rows.loss) and rows.scores.max() == np.inf:
                rows = rows.take(np.flatnonzero(np.isfinite(rows.scores).all(axis=1)))
            parts.append(rows.take(finder.rows(rows.scores)))
        return self._brought(Rows.joined(parts, self._columns.count))


class ScannedSource(LazySource, BatchCounting):
    """Rows of a lazy frame whose engine runs in this process and hands them over in batches."""

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell and along strips."""
        found = super().histogram(bins, measure, strips=strips, within=within)
        return counted_whole(self._overview, measure, found, within)


class PushdownSource(LazySource):
    """Rows of a lazy frame whose engine counts cells: one expression for each question.

    Only groups of sums and the marked rows come back. Nothing of demur has to be installed where
    the rows are, and a task that its engine repeats gives the same integers again.
    """

    @abstractmethod
    def _with_cell(self, rows: nw.LazyFrame[Any], name: str, bins: Bins) -> nw.LazyFrame[Any]:
        """Add `Bins.key` of each row with finite scores; that of others means nothing."""

    @abstractmethod
    def _keys(self, key: IntArray) -> Any:
        """Return a native frame of the engine with the single column "key"."""

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell and along strips, in a single pass.

        Every row is counted once for its cell and once for every strip: the frame is unpivoted,
        and all the keys of cells and strips are different numbers.
        """
        axes = [StripAxis(strip) for strip in strips]
        masses = self._masses(measure)
        rows = self._standard.rows(self._frame, measure.sides)
        rows, kept = self._with_cell(rows, "cell", bins), nw.lit(True)
        if within is not None:
            rows = self._with_cell(rows, "within", within.bins)
            rows = rows.join(self._marked(within, "within"), on="within", how="left")
            kept = ~nw.col("marked").is_null()
        keys = self._row_keys(bins.cells, axes, kept)
        counted = rows.select("side", **keys, **masses)
        if strips:
            counted = counted.unpivot(
                on=list(keys), index=["side", *masses], variable_name="of", value_name="key"
            )
        else:
            counted = counted.rename({"cell": "key"})
        sums = [nw.col(name).sum().cast(nw.Int64) for name in masses]
        # Rows that do not count make a group of their own: a filter would compute keys twice.
        groups = counted.group_by("key", "side").agg(*sums)
        thresholds = [axis.threshold for axis in axes]
        found = histogram_of(self._collect(groups), bins, measure, thresholds, self._overview)
        return counted_whole(self._overview, measure, found, within)

    def _row_keys(self, start: int, axes: Sequence[StripAxis], kept: ex.Expr) -> dict[str, ex.Expr]:
        """Return the key of a row as one of its cell and, counted from `start`, of the strips."""
        key = nw.when(kept).then(nw.col("cell")).otherwise(nw.lit(NOWHERE))
        finite = ex.finite(self._scores)
        keys = {"cell": nw.when(finite).then(key).otherwise(nw.lit(INFINITE)).cast(nw.Int64)}
        for number, axis in enumerate(axes):
            place = nw.when(kept).then(axis.key(self._scores, start)).otherwise(nw.lit(NOWHERE))
            keys[f"strip{number}"] = place.cast(nw.Int64)
            start += axis.bins
        return keys

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        rows = self._standard.rows(self._frame, self._overview.sides)
        rows = rows.filter(ex.finite(self._scores))
        rows = self._with_cell(rows, "within", cells.bins)
        rows = rows.join(self._marked(cells, "within"), on="within", how="semi")
        return self._brought(self._standard.fetched(self._collect(rows.drop("within"))))

    def _marked(self, cells: Cells, name: str) -> nw.LazyFrame[Any]:
        """Return the keys of some cells under a name, beside a column "marked"."""
        keys = nw.from_native(self._keys(cells.key)).lazy()
        marked: nw.LazyFrame[Any] = keys.select(nw.col("key").alias(name), marked=nw.lit(1))
        return marked


class StripAxis:
    """Bins along a strip, whose edges are the thresholds of its profile."""

    def __init__(self, strip: Strip) -> None:
        self._weights = strip.weights
        self.axis = _even_axis(strip) if strip.axis is None else strip.axis
        edges = self.axis.edges()
        self.threshold = np.nextafter(edges, -np.inf)
        self.end = float(edges[-1])
        """Values from here on are above the strip."""

    @property
    def bins(self) -> int:
        """Number of bins that count: all but the one above the strip."""
        return self.axis.bins - 1

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of the scores."""
        return self._weights

    def key(self, scores: Sequence[str], first: int) -> ex.Expr:
        """Return the bin of a row, counted from `first`."""
        value = ex.combined(self._weights, [nw.col(name) for name in scores])
        inside = ex.finite(scores) & (value < self.end)
        place = ex.place(self.axis, value) + first
        return nw.when(inside).then(place).otherwise(nw.lit(NOWHERE)).cast(nw.Int64)


def _even_axis(strip: Strip) -> Axis:
    """Return the axis of a strip whose thresholds are evenly spaced."""
    steps = max(2, strip.steps)
    with np.errstate(over="ignore"):
        scale = steps / min(strip.high - strip.low, _LARGEST) if strip.high > strip.low else 0.0
    if not 0 < scale < 2.0**1000:
        steps, scale = 1, 0.0
    # Two pieces more: what is at most `low`, and what is above `high`.
    start = [-_LARGEST, np.nextafter(strip.low, np.inf), np.nextafter(strip.high, np.inf)]
    return Axis(
        np.array(start), np.array([0.0, scale, 0.0]), np.array([0, 1, 1 + steps, 2 + steps])
    )
