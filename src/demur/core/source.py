"""What data must be able to tell so that a rule can be tuned on them without holding them.

A `ScoreSource` is asked five questions, each a single pass over its rows: an *overview*, a
*sample*, a *histogram*, the *rows* of marked cells, and the *tally* of a rule. All answers but
the rows are sums and extremes, so partial answers of partitions can be merged in any order.

A row has one or two scores, belongs to ID or to one OOD set, has a loss (read on ID rows only)
and perhaps a weight. Masses are formed row by row as `Measure` says, so that sums of them are
the integers that the same rows give in memory, whatever the order and the partitions.

Rows with a score of +inf count in totals but lie in no cell. Rows with a missing or NaN score,
ID loss or weight are refused by `overview`, or left out of every answer where the user asked for
that. A score of -inf, and a negative or infinite loss or weight, are always refused. A score of
-0.0 is 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.bins import Axis, Bins
from demur.core.columns import ScoreColumns
from demur.core.points import exponent_of, on_grid
from demur.core.rule import Rule
from demur.errors import InvalidInputError

MEMORY = 2 * 10**9
"""Bytes a search may use unless told otherwise."""
FRONTIER_ROW_BYTES = 1000
"""What a row takes in memory while the rules that are best for any bounds are searched."""


class Sum(NamedTuple):
    """A float sum of non-negative numbers, and whether all of them are whole."""

    total: float
    whole: bool


class Sides(NamedTuple):
    """What is told apart: a row is of an OOD set, or of a group of ID rows."""

    sets: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Sizes:
    """How many rows there are of what is told apart."""

    id_rows: int
    ood_rows: tuple[int, ...]
    """Rows of each OOD set."""
    sets: tuple[str, ...]
    """Names of the OOD sets in ascending order; ``("ood",)`` if they have none."""
    groups: tuple[str, ...]
    """Names of the groups of ID rows in ascending order; none if they have no groups."""

    @property
    def sides(self) -> Sides:
        """All there is to tell apart."""
        return Sides(self.sets, self.groups)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.id_rows + sum(self.ood_rows)


@dataclass(frozen=True, slots=True, eq=False)
class Overview(Sizes):
    """What the first pass tells about all rows, those with infinite scores included."""

    id: Sum
    """Weights of the ID rows; ``(rows, True)`` without a weight column."""
    ood: Sum
    loss: Sum
    """Losses of the ID rows times their weights."""
    low: FloatArray
    """Smallest score of each column over the rows without infinite scores; shape (k,)."""
    high: FloatArray
    """Largest one."""
    weighted: bool
    """Whether rows have weights."""
    graded: bool
    """Whether any loss is neither 0 nor 1."""

    @property
    def plain(self) -> bool:
        """Whether all masses are 0 or 1."""
        return not self.weighted and not self.graded

    def check_counted(self, measure: Measure, id_mass: int, ood_mass: int, loss_mass: int) -> None:
        """Refuse masses of all rows that a later pass counted, if they are not those of the first.

        Weights are compared within what rounding can do to them.
        """
        for what, mass, exponent, first, rows in (
            ("ID rows", id_mass, measure.id_exponent, self.id, self.id_rows),
            ("OOD rows", ood_mass, measure.ood_exponent, self.ood, sum(self.ood_rows)),
            ("losses", loss_mass, measure.loss_exponent, self.loss, self.id_rows),
        ):
            counted = math.ldexp(mass, -exponent)
            slack = rows * math.ldexp(0.5, -exponent) + 1e-6 * first.total
            if abs(counted - first.total) > (0.0 if measure.plain else slack):
                raise data_changed(what, first.total, counted)


def data_changed(what: str, first: float, then: float) -> InvalidInputError:
    """Return the error that two passes over the rows do not agree."""
    return InvalidInputError(
        f"source: {what} added up to {first:g} in one pass and to {then:g} in a later one: the "
        "data changed while they were read; work on data that stay as they are"
    )


class NoRowsError(InvalidInputError):
    """There are no rows, or a draw leaves none."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} has no rows, or none that are to be counted")


def unknown_set(name: str, sets: Sequence[str]) -> InvalidInputError:
    """Return the error that no OOD set has a name."""
    return InvalidInputError(f"no OOD set is called {name!r}; there are {sorted(sets)}")


@dataclass(slots=True)
class Work:
    """What was done to answer the questions that a source was asked."""

    engine: str
    passes: int = 0
    """How often the rows were gone over."""
    fetched: int = 0
    """Rows that were brought here to be looked at one by one."""


@dataclass(frozen=True, slots=True)
class Measure:
    """How the rows become integer masses; see `demur.core.points`.

    An ID row has ID mass ``floor(weight * 2**id_exponent + 0.5)`` and loss mass
    ``floor(weight * loss * 2**loss_exponent + 0.5)``, an OOD row has OOD mass
    ``floor(weight * 2**ood_exponent + 0.5)`` in its set; without weights, weight is 1.
    """

    id_exponent: int
    ood_exponent: int
    loss_exponent: int
    sets: tuple[str, ...]
    """OOD sets to be told apart, or an empty tuple to count them together."""
    plain: bool
    """Whether all masses are 0 or 1."""
    price: float = 1.0
    """An ID row is *cheap* if its loss mass is smaller than this times its ID mass."""
    groups: tuple[str, ...] = ()
    """Groups of ID rows whose masses are wanted, too."""

    @classmethod
    def of(
        cls, overview: Overview, *, apart: bool, price: float = 1.0, grouped: bool = False
    ) -> Measure:
        """Return the measure that `Masses.of` uses for the same rows in memory."""
        return cls(
            exponent_of(*overview.id),
            exponent_of(*overview.ood),
            exponent_of(*overview.loss),
            overview.sets if apart else (),
            overview.plain,
            price,
            overview.groups if grouped else (),
        )

    @classmethod
    def of_counts(cls, sizes: Sizes) -> Measure:
        """Return the measure of rows without weights whose losses are 0 and 1, all told apart."""
        whole = [exponent_of(float(rows), True) for rows in (sizes.id_rows, sum(sizes.ood_rows))]
        return cls(whole[0], whole[1], whole[0], sizes.sets, True, groups=sizes.groups)

    @property
    def sides(self) -> Sides:
        """What is to be told apart."""
        return Sides(self.sets, self.groups)

    @property
    def rows(self) -> int:
        """How many masses there are: ID, loss, OOD, then ID and loss of each group."""
        return 2 + self.columns + 2 * len(self.groups)

    @property
    def columns(self) -> int:
        """How many OOD masses there are."""
        return len(self.sets) or 1

    def masses(self, rows: Rows) -> MassedRows:
        """Return the masses of some rows."""
        n = len(rows.loss)
        is_id = rows.group < 0
        column = np.where(is_id, 0, rows.group) if self.sets else np.zeros(n, np.int64)
        ood = np.zeros((self.columns, n), np.int64)
        weight = np.ones(n) if rows.weight is None else rows.weight
        id_mass, id_inexact = on_grid(np.where(is_id, weight, 0.0), self.id_exponent)
        ood_mass, ood_inexact = on_grid(np.where(is_id, 0.0, weight), self.ood_exponent)
        loss = np.where(is_id, weight * rows.loss, 0.0)
        ood[column, np.arange(n)] = ood_mass
        loss_mass, _ = on_grid(loss, self.loss_exponent)
        groups = np.zeros((2 * len(self.groups), n), np.int64)
        for k in range(len(self.groups)):
            member = rows.group == -1 - k
            groups[k, member] = id_mass[member]
            groups[len(self.groups) + k, member] = loss_mass[member]
        return MassedRows(id_mass, ood, loss_mass, (id_inexact, ood_inexact), groups)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows as they are."""

    scores: FloatArray
    """Shape (n, k)."""
    group: IntArray
    """-1 for ID, or -1 less the place of its group in `Overview.groups`; otherwise the place of
    the OOD set in `Overview.sets`."""
    loss: FloatArray
    """0 on OOD rows."""
    weight: FloatArray | None

    def take(self, places: IntArray) -> Rows:
        """Return some of the rows."""
        return Rows(
            self.scores.take(places, axis=0),
            self.group.take(places),
            self.loss.take(places),
            None if self.weight is None else self.weight.take(places),
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows], scores: int) -> Rows:
        """Return the rows of all parts, which have so many scores each."""
        if not parts:
            return cls(np.empty((0, scores)), np.empty(0, np.int64), np.empty(0), None)
        weights = [part.weight for part in parts if part.weight is not None]
        return cls(
            np.vstack([part.scores for part in parts]),
            np.concatenate([part.group for part in parts]),
            np.concatenate([part.loss for part in parts]),
            np.concatenate(weights) if weights else None,
        )


class MassedRows(NamedTuple):
    """Integer masses of rows."""

    id: IntArray
    ood: IntArray
    """Shape (sets, n)."""
    loss: IntArray
    inexact: tuple[bool, bool]
    """Whether any ID, any OOD mass was rounded."""
    groups: IntArray
    """Shape (2 * groups, n): ID mass of each group, then loss mass of each."""

    @property
    def table(self) -> IntArray:
        """All masses as `Measure.rows` counts them."""
        return np.vstack([self.id, self.loss, self.ood, self.groups])


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Some cells of the grid that `bins` make, by their keys in ascending order."""

    bins: Bins
    key: IntArray


@dataclass(frozen=True, slots=True)
class Strip:
    """A direction and the thresholds of interest in it."""

    weights: tuple[float, ...]
    low: float
    high: float
    steps: int
    """About how many thresholds to tell about between `low` and `high`."""
    axis: Axis | None = None
    """Whose bins end at the thresholds; None if these are evenly spaced, more or less."""

    @classmethod
    def along(cls, weights: tuple[float, ...], axis: Axis) -> Strip:
        """Return the strip with a threshold before each bin of an axis of two bins or more."""
        thresholds = np.nextafter(axis.edges(), -np.inf)
        ends = float(thresholds[0]), float(thresholds[-1])
        return cls(weights, *ends, len(thresholds), axis)


class Profile(NamedTuple):
    """Masses accepted by ``weights . scores <= threshold``, thresholds ascending.

    The value of a row is ``weights[0] * scores[0] + weights[1] * scores[1]`` in float64: two
    products, one sum, as in `Rule`.
    """

    threshold: FloatArray
    id: IntArray
    ood: IntArray
    """Shape (sets, thresholds)."""
    loss: IntArray
    groups: IntArray | None = None
    """Shape (2 * groups, thresholds): as in `MassedRows`; None without groups."""

    @classmethod
    def of(cls, threshold: FloatArray, table: IntArray, measure: Measure) -> Profile:
        """Return the profile of masses as `Measure.rows` counts them."""
        ood = 2 + measure.columns
        return cls(threshold, table[0], table[2:ood], table[1], table[ood:])


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Masses of the cells that hold any row with finite scores."""

    key: IntArray
    """Ascending."""
    low: FloatArray
    """Shape (cells, k): no row of the cell has a smaller score, or smaller values where
    `Bins.weights` are given. Best is the smallest one."""
    high: FloatArray
    """No row of the cell has a larger one."""
    rows: IntArray
    id: IntArray
    ood: IntArray
    """Shape (sets, cells)."""
    loss: IntArray
    cheap_id: IntArray
    """ID mass of the cheap rows; see `Measure.price`."""
    cheap_loss: IntArray
    """Loss mass of the cheap rows."""
    infinite: tuple[int, ...]
    """Masses of the rows with an infinite score, as `Measure.rows` counts them."""
    inexact: tuple[bool, bool]
    """Whether any ID, any OOD mass was rounded."""
    profiles: tuple[Profile, ...] = ()
    """One for each strip that was asked for."""
    groups: IntArray | None = None
    """Shape (2 * groups, cells): as in `MassedRows`; None without groups."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Masses that a rule accepts, and all there are."""

    id: int
    ood: tuple[int, ...]
    loss: int
    total_id: int
    total_ood: tuple[int, ...]
    total_loss: int
    groups: tuple[int, ...] = ()
    """ID mass of each group of ID rows, then loss mass of each."""
    total_groups: tuple[int, ...] = ()

    def __add__(self, other: Tally) -> Tally:
        """Return the tally of these rows and of others."""
        return Tally(
            self.id + other.id,
            _added(self.ood, other.ood),
            self.loss + other.loss,
            self.total_id + other.total_id,
            _added(self.total_ood, other.total_ood),
            self.total_loss + other.total_loss,
            _added(self.groups, other.groups),
            _added(self.total_groups, other.total_groups),
        )


def _added(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


class RuleCounts(NamedTuple):
    """What a rule accepts of all rows, OOD sets and groups told apart."""

    sizes: Sizes
    measure: Measure
    tallies: Mapping[Any, Tally]
    """For each value of a column; a single one, under None, where no column was named."""

    @property
    def whole(self) -> Tally:
        """What it accepts of all rows together."""
        first, *others = self.tallies.values()
        return sum(others, start=first)


@runtime_checkable
class ScoreSource(Protocol):
    """Scored rows that can be counted; `demur.tune` and `demur.evaluate` take any of these.

    Examples
    --------
    >>> import demur as dm
    >>> import pyarrow
    >>> table = pyarrow.table({"msp": [0.1, 0.9, 0.8], "wrong": [0, 1, 0], "ood": [0, 0, 1]})
    >>> source = dm.open_source(table, "msp", loss="wrong", ood="ood")
    >>> isinstance(source, dm.ScoreSource), source.score_names
    (True, ('msp',))
    """

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the one or two score columns."""
        ...

    @property
    def columns(self) -> ScoreColumns:
        """Names and senses of the score columns; whatever else a source tells is of doubts."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that a search may use here for cells and fetched rows; see `MEMORY`."""
        ...

    def overview(self) -> Overview:
        """Look at all rows once; refuse rows that cannot be used.

        Raises
        ------
        InvalidInputError
            Names the column, what is wrong with it and the number of rows.
        """
        ...

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows, or all if there are no more; chance need not be perfect.

        Only the speed of a search rests on the sample, never its answer.
        """
        ...

    def glimpse(self, rows: int) -> Rows:
        """Return about so many rows, from a few places if that is cheaper than a sample."""
        ...

    def sizes(self) -> Sizes:
        """Return how many rows there are, from the first pass, whichever it was."""
        ...

    def rule_counts(self, rule: Rule, *, by: str | None = None) -> RuleCounts | None:
        """Return in one pass what `rule`, a rule on doubts, accepts of rows not looked at before.

        None where that takes more than one: rows with weights, losses beside 0 and 1 or infinite
        scores, rows to be refused, and sources that were asked for their `overview` before.
        """
        ...

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell and, with `strips`, along some directions.

        Parameters
        ----------
        within
            Leave out the rows that are in none of these cells of another grid, also along the
            strips.
        """
        ...

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells; `Histogram.rows` told how many these are."""
        ...

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule`, a rule on doubts, accepts, for each value of the column `by`.

        Without `by` there is a single entry, under None.
        """
        ...


@runtime_checkable
class DividedSource(ScoreSource, Protocol):
    """A source whose OOD sets can be had one by one."""

    def for_ood(self, name: str) -> DividedSource:
        """Return the ID rows and those of one OOD set, as `Sample.for_ood` does."""
        ...
