"""Cells of histograms: a tree over them, ever finer layers, and the points that stand for them.

Cells are sorted along a Z-order curve; every `FAN` neighbours make a node, every `FAN` nodes a
node of the next level, up to a single root. Cells and nodes together are *items*: the cells
first, then the levels, the root last. Rows and corners of cells together are a cloud of points on
which no half-plane looks too good.

Linear bounds on the masses of cells are judged here too: whether they hold, and whether they can in
a box. What crosses a box can add so much to a bound at best:

- ID mass of all rows, or of a group, where more of it is better;
- under a bound ``b * L <= a * nI`` on risk the rows whose loss per ID mass is below a/b. With 0/1
  losses these are the rows without loss. Otherwise it is known which rows are *cheap*, below a
  price p: cheap rows above a/b cost no more than (b*p - a) a unit, other rows below a/b gain no
  more than (a - b*p). Of groups only the ID mass is known, as if it came without loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels import exact
from demur._kernels.exact import Linear
from demur._kernels.numpy_engine.tree import FAN, fill_up, interleaved, level_starts
from demur.core.bins import Bins
from demur.core.columns import combine
from demur.core.points import Points
from demur.core.program import LinearBound, Part, Program, Totals
from demur.core.source import (
    Cells,
    Histogram,
    Measure,
    Profile,
    Rows,
    ScoreSource,
    data_changed,
)
from demur.errors import InvalidInputError
from demur.tuning.operating_points import Line
from demur.tuning.streamed.plan import StreamPlan

Signs = tuple[int, ...]

# Rows of `CellGrid.mass`; the OOD masses follow, then ID and loss masses of groups.
ID, LOSS, CHEAP_ID, CHEAP_LOSS, OOD = 0, 1, 2, 3, 4


def table_of(counted: Histogram | Profile) -> IntArray:
    """Return masses in the rows of `CellGrid.mass`; of a profile nothing is known to be cheap."""
    none = np.zeros_like(counted.id)
    cheap = (none, none)
    if isinstance(counted, Histogram):
        cheap = counted.cheap_id, counted.cheap_loss
    groups = counted.ood[:0] if counted.groups is None else counted.groups
    return np.vstack([counted.id, counted.loss, *cheap, counted.ood, groups])


def split_ood(mass: IntArray, columns: int) -> tuple[IntArray, IntArray]:
    """Return the OOD masses among the rows of `CellGrid.mass`, and those of groups."""
    return mass[OOD : OOD + columns], mass[OOD + columns :]


def first_and_last(
    first: FloatArray, last: FloatArray, mass: IntArray, totals: Totals
) -> list[Points]:
    """Return cells as two points each: what looks good accepted last, what does not first.

    ID mass goes last, OOD and loss mass first.
    """
    ood, groups = split_ood(mass, len(totals.ood))
    none, half = np.zeros_like(mass[ID]), len(groups) // 2
    early, late = groups.copy(), groups.copy()
    early[:half], late[half:] = 0, 0
    return [
        Points(first, none, ood, mass[LOSS], totals, of_groups=early),
        Points(last, mass[ID], np.zeros_like(ood), none, totals, of_groups=late),
    ]


class CellGrid(NamedTuple):
    """Disjoint cells, some perhaps finer than others."""

    key: IntArray
    """The key in the bins of its level."""
    level: IntArray
    """How many times the bins were refined."""
    place: IntArray
    """Shape (k, cells): where the cell begins, in the finest bins."""
    low: FloatArray
    """Shape (cells, k)."""
    high: FloatArray
    rows: IntArray
    mass: IntArray
    """Shape (4 + sets + 2 * groups, cells): ID, loss, cheap ID, cheap loss, OOD masses, and ID
    and loss masses of groups."""

    def take(self, cells: IntArray | BoolArray) -> CellGrid:
        """Return some of the cells."""
        return CellGrid(
            self.key[cells],
            self.level[cells],
            self.place[:, cells],
            self.low[cells],
            self.high[cells],
            self.rows[cells],
            self.mass[:, cells],
        )

    def joined(self, other: CellGrid) -> CellGrid:
        """Return the cells of both."""
        axes = (0, 0, 1, 0, 0, 0, 1)
        pairs = zip(self, other, axes, strict=True)
        return CellGrid(*(np.concatenate([a, b], axis=axis) for a, b, axis in pairs))


def grid_of(counted: Histogram, bins: Bins, level: int) -> CellGrid:
    """Return the cells of a histogram."""
    return CellGrid(
        counted.key,
        np.full(len(counted.key), level),
        np.array(bins.places(counted.key)),
        counted.low,
        counted.high,
        counted.rows,
        table_of(counted),
    )


def refined(rest: CellGrid, bins: Bins, found: CellGrid, finer: Bins) -> CellGrid:
    """Return cells found in finer bins together with those that stayed as they were."""
    place = [
        np.searchsorted(axis.coarse(fine), at)
        for axis, fine, at in zip(bins.axes, finer.axes, rest.place, strict=True)
    ]
    return rest._replace(place=np.array(place)).joined(found)


class Pyramid(NamedTuple):
    """Items: bounding boxes and sums."""

    grid: CellGrid
    """The cells, along the curve."""
    level: IntArray
    """First item of each level, cells being level 0, and the number of items."""
    low: FloatArray
    """Shape (2, items)."""
    high: FloatArray
    mass: IntArray
    """Shape (4 + sets + 2 * groups, items)."""
    wanted: IntArray
    """Rows that would have to be fetched; none for a cell that holds a single point."""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return int(self.level[1])

    @property
    def root(self) -> int:
        """The item that holds all others."""
        return int(self.level[-1]) - 1

    def children(self, items: IntArray) -> IntArray:
        """Return the children of nodes."""
        level = np.searchsorted(self.level, items, side="right") - 1
        first = self.level[level - 1] + (items - self.level[level]) * FAN
        stop = np.minimum(first + FAN, self.level[level])
        every = first[:, None] + np.arange(FAN)
        return np.asarray(every[every < stop[:, None]])

    def parents(self) -> IntArray:
        """Return the node that each item is part of; the root is part of itself."""
        size = np.diff(self.level)
        above = np.minimum(np.repeat(self.level[1:], size), self.root)
        within = np.arange(self.root + 1) - np.repeat(self.level[:-1], size)
        return np.asarray(np.where(above == self.root, self.root, above + within // FAN))


def build(grid: CellGrid) -> Pyramid:
    """Return the tree over the cells of a grid."""
    grid = grid.take(np.argsort(interleaved(*grid.place), kind="stable"))
    is_point = (grid.low == grid.high).all(axis=1)
    cells, level = len(grid.key), level_starts(len(grid.key))
    low, high = np.empty((2, level[-1])), np.empty((2, level[-1]))
    mass = np.empty((len(grid.mass) + 1, level[-1]), np.int64)
    low[:, :cells], high[:, :cells] = grid.low.T, grid.high.T
    mass[:-1, :cells], mass[-1, :cells] = grid.mass, np.where(is_point, 0, grid.rows)
    fill_up(low, level, np.minimum)
    fill_up(high, level, np.maximum)
    fill_up(mass, level, np.add)
    return Pyramid(grid, level, low, high, mass[:-1], mass[-1])


class Layers:
    """Bins of all layers, the coarsest first; a cell of a grid knows its layer as `level`."""

    def __init__(
        self, source: ScoreSource, measure: Measure, totals: Totals, plan: StreamPlan, bins: Bins
    ) -> None:
        self.source, self.measure, self.totals, self.plan = source, measure, totals, plan
        self.bins: list[Bins] = [bins]
        self._held: dict[int, tuple[IntArray, Points]] = {}

    def forget_finer(self) -> None:
        """Keep the first layer only: the others are cut where one search needed it."""
        del self.bins[1:]
        self._held = {level: held for level, held in self._held.items() if level == 0}

    def refine(self, grid: CellGrid, marked: BoolArray) -> CellGrid:
        """Look closer into marked cells, by another histogram."""
        level, bins = len(self.bins) - 1, self.bins[-1]
        marked = marked & (grid.level == level)
        # Cells of a few rows are as good as the rows.
        crowd = grid.rows[marked].sum() / max(1, marked.sum())
        finer = bins.refined(2 ** int(np.clip(math.log2(max(crowd, 1) / 4) / 2, 1, 3)))
        within = Cells(bins, np.sort(grid.key[marked]))
        counted = self.source.histogram(finer, self.measure, within=within)
        self.bins.append(finer)
        return refined(grid.take(~marked), bins, grid_of(counted, finer, level + 1), finer)

    def check_size(self, rows: int) -> None:
        """Raise unless so many rows can be held."""
        if rows > self.plan.fetched:
            raise InvalidInputError(
                f"{rows:,} rows would have to be held to tell the optimum from its rivals, and "
                f"the memory of {self.source.memory:,} bytes allows {self.plan.fetched:,}: "
                "allow more memory, or tune on a sample"
            )

    def fetch(self, grid: CellGrid, marked: BoolArray) -> Points:
        """Return the rows of marked cells; those that an earlier search fetched serve again."""
        parts = [no_points(len(self.source.score_names), self.totals)]
        for level, bins in enumerate(self.bins):
            there = np.flatnonzero(marked & (grid.level == level))
            there = there[np.argsort(grid.key[there])]
            if len(there):
                parts.append(self._rows(level, bins, grid.key[there], grid.rows[there]))
        return joined(parts, self.totals)

    def _rows(self, level: int, bins: Bins, keys: IntArray, counted: IntArray) -> Points:
        held, points = self._held.get(level, (keys[:0], None))
        new = np.isin(keys, held, invert=True)
        if points is None or len(points.scores) + counted[new].sum() > self.plan.fetched:
            # What both searches need would be too much to hold.
            held, new, points = keys[:0], np.ones(len(keys), bool), None
        if new.any():
            rows = self.source.rows(Cells(bins, keys[new]))
            if len(rows.loss) != counted[new].sum():
                raise data_changed("rows of some cells", int(counted[new].sum()), len(rows.loss))
            found = points_of(rows, self.measure, self.totals)
            points = found if points is None else joined([points, found], self.totals)
            held = np.union1d(held, keys)
            self._held[level] = (held, points)
        assert points is not None
        if len(held) == len(keys):
            return points
        return some_points(points, np.isin(bins.key(points.scores), keys))


def cloud(
    pyramid: Pyramid, met: BoolArray, fetched: Points, signs: Signs, totals: Totals
) -> Points:
    """Return the points to search, with scores times `signs`.

    Cells that are `met` come as their rows, which are `fetched`, or as a point if they are one.
    Of what is not met the largest nodes come as their two corners: ID mass at the corner that
    is accepted last, OOD and loss mass at the one accepted first.
    """
    parents = pyramid.parents()
    closed = ~met & met[parents]
    closed[pyramid.root] = not met[pyramid.root]
    cells = np.zeros(len(met), bool)
    cells[: pyramid.cells] = pyramid.wanted[: pyramid.cells] == 0
    single, pairs = np.flatnonzero(cells & (met | closed)), np.flatnonzero(closed & ~cells)
    first, last = corners(pyramid.low, pyramid.high, signs)
    alone, ood = pyramid.mass[:, single], len(totals.ood)
    parts = [
        replace(fetched, scores=fetched.scores * np.array(signs)),
        Points(
            first[:, single].T,
            alone[ID],
            split_ood(alone, ood)[0],
            alone[LOSS],
            totals,
            of_groups=split_ood(alone, ood)[1],
        ),
        *first_and_last(first[:, pairs].T, last[:, pairs].T, pyramid.mass[:, pairs], totals),
    ]
    found = joined(parts, totals)
    return replace(found, scores=found.scores + 0.0)


def corners(low: FloatArray, high: FloatArray, signs: Signs) -> tuple[FloatArray, FloatArray]:
    """Return the corners accepted first and last, shape (k, n), of scores times `signs`."""
    up = np.array(signs)[:, None] > 0
    return np.where(up, low, -high), np.where(up, high, -low)


def middle_points(pyramid: Pyramid, level: int, totals: Totals) -> Points:
    """Return the items of a level as points in their middles."""
    items = slice(int(pyramid.level[level]), int(pyramid.level[level + 1]))
    mass = pyramid.mass[:, items]
    ood, groups = split_ood(mass, len(totals.ood))
    # Halves, since sums may overflow.
    middle = pyramid.low[:, items] / 2 + pyramid.high[:, items] / 2 + 0.0
    return Points(middle.T, mass[ID], ood, mass[LOSS], totals, of_groups=groups)


def met_along(
    pyramid: Pyramid, signs: Signs, weights: tuple[float, float], threshold: float
) -> BoolArray:
    """Return which items reach half a cell or nearer to a line, in scores times `signs`.

    A node that holds one of them is one, too.
    """
    first, last = corners(pyramid.low, pyramid.high, signs)
    with np.errstate(over="ignore", invalid="ignore"):
        early, late = (combine(weights, corner.T) for corner in (first, last))
        crossed = np.flatnonzero((early <= threshold) & (late > threshold))
        crossed = crossed[crossed < pyramid.cells]
        # Ranks, since cells of tails are wide.
        reach = float(np.median((late - early)[crossed])) / 2 if len(crossed) else 0.0
        return np.asarray((early <= threshold + reach) & (late > threshold - reach))


def points_of(rows: Rows, measure: Measure, totals: Totals) -> Points:
    """Return rows as points."""
    masses = measure.masses(rows)
    mass = masses.id, masses.ood, masses.loss
    return Points(rows.scores + 0.0, *mass, totals, of_groups=masses.groups)


def no_points(scores: int, totals: Totals) -> Points:
    """Return no points."""
    none: IntArray = np.empty(0, np.int64)
    ood = np.empty((len(totals.ood), 0), np.int64)
    of_groups = np.empty((2 * len(totals.groups), 0), np.int64)
    return Points(np.empty((0, scores)), none, ood, none, totals, of_groups=of_groups)


def some_points(points: Points, kept: BoolArray) -> Points:
    """Return those points that are kept."""
    return replace(
        points,
        scores=points.scores[kept],
        id=points.id[kept],
        ood=points.ood[:, kept],
        loss=points.loss[kept],
        of_groups=None if points.of_groups is None else points.of_groups[:, kept],
    )


def joined(parts: list[Points], totals: Totals) -> Points:
    """Return all points."""
    if len(parts) == 1:
        return replace(parts[0], totals=totals)
    groups = [part.of_groups for part in parts if part.of_groups is not None]
    return Points(
        np.vstack([part.scores for part in parts]),
        np.concatenate([part.id for part in parts]),
        np.hstack([part.ood for part in parts]),
        np.concatenate([part.loss for part in parts]),
        totals,
        of_groups=np.hstack(groups) if len(groups) == len(parts) else None,
    )


def turned(line: Line, signs: Signs) -> Line:
    """Return the line for scores before they were multiplied by `signs`."""
    direction = tuple(sign * weight for sign, weight in zip(signs, line.direction, strict=True))
    # No -0.0: a weight of zero has no sign.
    return replace(line, direction=tuple(weight + 0.0 for weight in direction))


# Sums of a few float64 products are off by less than this, relative to their terms.
_ROUNDING = 2.0**-46


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in the rows of `CellGrid.mass` the masses of sets and groups are."""

    sets: tuple[str, ...]
    groups: tuple[str, ...]
    zero_one: bool
    """Whether all masses are 0 or 1."""

    @classmethod
    def of(cls, measure: Measure) -> Layout:
        """Return the layout of what a source counts."""
        return cls(measure.sets, measure.groups, measure.plain)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return OOD + max(1, len(self.sets)) + 2 * len(self.groups)

    @property
    def gains(self) -> BoolArray:
        """Which rows are of ID mass, of which more is better."""
        first = OOD + max(1, len(self.sets))
        of_groups = range(first, first + len(self.groups))
        return np.isin(np.arange(self.rows), [ID, *of_groups])

    def coefficients(self, terms: tuple[tuple[Part, int], ...]) -> FloatArray:
        """Return what each row counts in a sum of parts, none of which is of cheap rows."""
        found = np.zeros(self.rows)
        for part, coefficient in terms:
            found[self._places(part)] += float(coefficient)
        return found

    def _places(self, part: Part) -> Any:
        first = OOD + max(1, len(self.sets))
        if part.mass == "ood":
            return slice(OOD, first) if part.of is None else OOD + self.sets.index(part.of)
        if part.of is None:
            return ID if part.mass == "id" else LOSS
        later = len(self.groups) if part.mass == "loss" else 0
        return first + later + self.groups.index(part.of)

    def met(self, program: Program, mass: IntArray) -> BoolArray:
        """Return at which operating points the linear bounds of a program hold, exactly."""
        exactly = np.array(
            [[int(c) for c in self._whole(bound)] for bound in program.linear], object
        )
        least = np.array([bound.least for bound in program.linear], np.int64)
        # Every row of the masses is one of its own here.
        none = np.zeros((len(least), 2 + self.rows - 3), np.int64)
        return exact.linear_met(Linear(exactly.astype(np.int64), least, none), mass)

    def _whole(self, bound: LinearBound) -> list[int]:
        found = [0] * self.rows
        for part, coefficient in bound.terms:
            places = self._places(part)
            for place in range(self.rows)[places] if isinstance(places, slice) else (places,):
                found[place] += coefficient
        return found


class LinearJudge:
    """Tells in which boxes all linear bounds of a program can hold."""

    def __init__(self, program: Program, price: float, layout: Layout) -> None:
        self._least = np.array([float(bound.least) for bound in program.linear])
        self._certain = np.array([layout.coefficients(bound.terms) for bound in program.linear])
        hopes = [_hopes(bound, price, layout) for bound in program.linear]
        self._crossing = [np.array(way) for way in zip(*hopes, strict=True)]

    def hopeful(self, accepted: IntArray, crossing: IntArray) -> Any:
        """Return whether a box, or each of many, can meet the bounds, rounding aside."""
        least = self._least if accepted.ndim == 1 else self._least[:, None]
        value = self._certain @ accepted - least
        size = np.abs(self._certain) @ accepted + np.abs(least)
        value = value + np.minimum(*(way @ crossing for way in self._crossing))
        size = size + np.maximum(*(np.abs(way) @ crossing for way in self._crossing))
        return (value >= -_ROUNDING * size).all(axis=0)


def _hopes(bound: LinearBound, price: float, layout: Layout) -> tuple[FloatArray, FloatArray]:
    """Return two upper bounds on what crossing masses add, as coefficients of their rows."""
    plain = tuple((part, c) for part, c in bound.hope if part.below is None)
    first, second = layout.coefficients(plain), layout.coefficients(plain)
    for part, coefficient in bound.hope:
        if part.below is None or part.mass == "loss":
            continue
        a, b = (float(number) for number in part.below)
        if layout.zero_one or part.of is not None:
            # Without losses, unless all of them are welcome or none is known.
            lossless = layout.zero_one and a < b
            terms = [(Part("id", part.of), coefficient)]
            terms += [(Part("loss", part.of), -coefficient)] if lossless else []
            first += layout.coefficients(tuple(terms))
            second += layout.coefficients(tuple(terms))
            continue
        dearer = max(0.0, a - b * price)
        for way in (first, second):
            way[ID] += dearer
            way[CHEAP_ID] += a - dearer
        second[CHEAP_LOSS] -= b
        second[CHEAP_ID] += max(0.0, b * price - a)
    return first, second
