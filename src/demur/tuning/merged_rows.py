"""Less than one sort: most rows of a large sample are merged before anything is searched.

A sample of the rows gives a guess. The rows of the cells around it are searched, which gives a
half-plane to beat; then all cells are judged, and what may matter is searched exactly, all other
rows being one point per cell. The answer and its certificate are those of a search over all rows.

Cells are rectangles of the plane of scores. With some half-plane to beat, narrow slabs of
directions are judged on cells alone, over all thresholds at once: a cell that no half-plane left
over crosses is accepted or rejected as a whole by each of them, so that any of its rows can stand
for all. Half-planes that were ruled out cannot win on the merged points either, since they were
ruled out wherever the rows of a cell lie in it. So the merged points have the optima of all rows,
ties included, and no others. Both engines search what is left.

Of decimals equal rows are merged, and all that is left is searched.

It is for engines whose trees do not grow where a search looks, and pays for many rows whose scores
tell something. It is left to the tree over all rows where there are fewer than a million, where
scores are decimals but most of them differ, where more than a quarter of the rows may matter or too
many directions do (noise), where the scores span so many decades that cells of equal steps tell
nothing, where no rule meets the bounds, and with bounds on groups, single sets and risk, a gap or a
budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels.engines import Frame, Outcome
from demur._kernels.numpy_engine.bounds import Best, BoxMasses, Prices, Problem, judge
from demur._kernels.numpy_engine.boxes import EPS, SIGNS
from demur.core.points import Points
from demur.core.program import Program
from demur.tuning.prepared import Prepared, goal_of
from demur.tuning.result import DirectionSet

_MOST_OPEN = 0.25
# Rows that give the guess, and the part of all rows that is searched around it.
_GUESSED_FROM = 20_000
_AROUND = 0.03
# What is to be beaten need not be the best next to the guess, but for this part, nor proven to be.
_GAP = 1e-3
_BOXES_AROUND = 3000
_ROUNDS = 3
# StripCells have about so many rows, and there are at most so many to an axis.
_ROWS_OF_A_CELL = 40
_MOST_GROUPS = 256
# Equal steps that an axis is cut into first, and the rows that tell which to join.
_STEPS = 8192
_SAMPLE = 8192
# Equal rows of decimals are merged if there are so many for each step of the lattice.
_ROWS_OF_A_STEP = 4
# Rows looked at together.
_BLOCK = 2**17
# Strips of a slab, slabs looked at before this is given up, and slabs of a chart to begin with.
_STRIPS = 1024
_MOST_SLABS = 600
# Where many directions are equally good, as where OOD inputs cost nothing, a search among merged
# rows may take minutes where one among all rows takes a second. Most take some hundred boxes.
_MOST_BOXES = 20_000
_SLABS = 4
# Slabs are halved while lines drift over them by more than this part of the size of cells.
_DRIFT = 0.5


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The rows that can matter, merged where they cannot, and what was found among them."""

    prepared: Prepared
    outcome: Outcome


def narrowed(prepared: Prepared, program: Program, allowed: DirectionSet) -> Narrowed | None:
    """Return the search among the rows that can matter; None where it does not pay."""
    points = prepared.points
    if program.linear or prepared.is_grown:
        return None
    if prepared.frame.whole:
        alike = merged_equals(prepared)
        return None if alike is None else Narrowed(alike, alike.search(program, allowed))
    guess = _guess(prepared, program, allowed)
    if guess is None:
        return None
    searched = prepared.frame.points(points.scores)
    cells = StripCells.of(searched)
    sums = RowSums.of(cells, points.id, points.ood, points.loss)
    problem = Problem.of(goal_of(program))
    found = _to_beat(prepared, cells, sums, guess, program, allowed)
    if found is None:
        return None
    value = float(problem.value(found.id, found.loss, found.ood))
    best = Best(value, found.id, found.ood, found.loss)
    masses = RowMass.of(cells, sums, problem, best, points.id, points.loss)
    matter = open_cells(cells, masses, allowed.quarters, problem, best)
    if matter is None or int(cells.rows[matter].sum()) > _MOST_OPEN * len(points.scores):
        return None
    part = _merged(prepared, cells, sums, matter)
    outcome = part.search(program, allowed, start=found.weights[:1], budget=_MOST_BOXES)
    if outcome.status == "budget":
        return None
    lines = zip(outcome.weights, outcome.v, strict=True)
    stray = any((_crossed(prepared, cells, *line) & ~matter).any() for line in lines)
    return None if stray or len(outcome.v) == 0 else Narrowed(part, outcome)


def merged_equals(prepared: Prepared) -> Prepared | None:
    """Return one point for all equal rows of decimals; None where most differ.

    ID rows with and without loss, and OOD rows, stay apart: bounds are sharper if all losses of a
    kind are alike.
    """
    frame, points = prepared.frame, prepared.points
    ends = np.array([(column.min(), column.max()) for column in points.scores.T])
    lattice = _Lattice(*frame.points(ends.T))
    if lattice.size * _ROWS_OF_A_STEP > len(points.scores):
        return None
    id_, lossy, loss, *ood = lattice.totals(frame, points)
    none = np.zeros_like(loss)
    nobody = [none] * len(ood)
    kinds = ((id_ - lossy, none, nobody), (lossy, loss, nobody), (none, none, ood))
    parts = [lattice.part(frame, *kind) for kind in kinds]
    scores = np.concatenate([part[0] for part in parts])
    masses = np.concatenate([part[1] for part in parts], axis=1)
    merged = Points(scores, masses[0], masses[2:], masses[1], points.totals)
    return prepared.of_points(merged)


class _Lattice(NamedTuple):
    """Whole numbers from a lower left to an upper right corner."""

    first: FloatArray
    last: FloatArray

    @property
    def high(self) -> int:
        return int(self.last[1] - self.first[1]) + 1

    @property
    def size(self) -> int:
        return (int(self.last[0] - self.first[0]) + 1) * self.high

    def totals(self, frame: Frame, points: Points) -> FloatArray:
        """Return ID, ID with loss, loss and OOD masses of all places; ID rows come first."""
        number = int(np.count_nonzero(points.id))
        found = np.zeros((3 + len(points.ood), self.size))
        for block in _blocks(len(points.scores)):
            place = frame.points(points.scores[block]) - self.first
            cell = (place[:, 0] * self.high + place[:, 1]).astype(np.int64)
            middle = max(block.start, min(number, block.stop))
            own, rest = slice(block.start, middle), slice(middle, block.stop)
            id_, loss = points.id[own], points.loss[own]
            pairs = [(own, mass) for mass in (id_, id_ * (loss > 0), loss)]
            pairs += [(rest, row[rest]) for row in points.ood]
            for total, (rows, mass) in zip(found, pairs, strict=True):
                where = cell[rows.start - block.start : rows.stop - block.start]
                total += np.bincount(where, mass, minlength=self.size)
        return found

    def part(
        self, frame: Frame, id: FloatArray, loss: FloatArray, ood: list[FloatArray]
    ) -> tuple[FloatArray, IntArray]:
        """Return the scores of places with ID or OOD mass, and the masses (ID, loss, OOD)."""
        used = np.flatnonzero(id + sum(ood))
        place = np.column_stack([used // self.high, used % self.high]) + self.first
        return frame.scores(place), np.array([row[used] for row in (id, loss, *ood)], np.int64)


def _to_beat(
    prepared: Prepared,
    cells: StripCells,
    sums: RowSums,
    guess: FloatArray,
    program: Program,
    allowed: DirectionSet,
) -> Outcome | None:
    """Return a good half-plane next to a guess, None if there is none.

    It must cross no merged cell: then it accepts of all rows what it accepts of the merged ones.
    """
    opened = np.zeros(len(cells.rows), bool)
    line, gap = guess[:3], _GAP * abs(guess[3])
    for _ in range(_ROUNDS):
        opened |= _around(prepared, cells, line)
        part = _merged(prepared, cells, sums, opened)
        start = line[None, :2]
        outcome = part.search(program, allowed, start=start, gap=gap, budget=_BOXES_AROUND)
        if len(outcome.v) == 0:
            return None
        line = np.array([*outcome.weights[0], outcome.v[0]])
        if not (_crossed(prepared, cells, line[:2], line[2]) & ~opened).any():
            return outcome
    return None


def _guess(prepared: Prepared, program: Program, allowed: DirectionSet) -> FloatArray | None:
    """Return weights, threshold and value of what is best on a sample of the rows."""
    points = prepared.points
    rows = np.unique(np.random.default_rng(0).integers(0, len(points.scores), _GUESSED_FROM))
    some = _part(points, rows)
    share = [float(part.sum()) / max(1, int(all_.sum())) for part, all_ in _pairs(some, points)]
    scaled = replace(
        program,
        min_id=int(program.min_id * share[0]),
        max_ood=tuple(
            -int(-most * part // 1) for most, part in zip(program.max_ood, share[1:], strict=True)
        ),
    )
    outcome = prepared.of_points(some).search(scaled, allowed, gap=0.0, budget=_MOST_BOXES)
    if outcome.status == "budget" or len(outcome.v) == 0:
        return None
    return np.array([*outcome.weights[0], outcome.v[0], outcome.lower_bound])


def _pairs(some: Points, points: Points) -> list[tuple[IntArray, IntArray]]:
    return [(some.id, points.id), *zip(some.ood, points.ood, strict=True)]


def _part(points: Points, rows: IntArray) -> Points:
    masses = points.id[rows], points.ood[:, rows], points.loss[rows]
    return Points(points.scores[rows], *masses, points.totals)


def _corners(
    prepared: Prepared, cells: StripCells, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest value of scores in each cell along a direction."""
    frame = prepared.frame
    low, high = (
        (ends + np.array(frame.shift)[:, None]) / np.array(frame.divisor)[:, None]
        for ends in (cells.low, cells.high)
    )
    sides = [(a, b) if w >= 0 else (b, a) for a, b, w in zip(low, high, weights, strict=True)]
    least, most = (weights[0] * sides[0][k] + weights[1] * sides[1][k] for k in (0, 1))
    return least, most


def _around(prepared: Prepared, cells: StripCells, line: FloatArray) -> BoolArray:
    """Return the cells next to a line, with a few per cent of the rows."""
    least, most = _corners(prepared, cells, line[:2])
    away = np.maximum(least - line[2], line[2] - most)
    order = np.argsort(away)
    few = np.searchsorted(np.cumsum(cells.rows[order]), _AROUND * len(cells.cell))
    opened: BoolArray = away <= 0
    opened[order[:few]] = True
    return opened


def _crossed(prepared: Prepared, cells: StripCells, weights: FloatArray, v: float) -> BoolArray:
    """Return the cells that a half-plane may cross."""
    least, most = _corners(prepared, cells, weights)
    return np.asarray((least <= v) & (most > v))


def _merged(prepared: Prepared, cells: StripCells, sums: RowSums, opened: BoolArray) -> Prepared:
    """Return the rows of some cells, every other cell being one point."""
    points = prepared.points
    rows, closed = np.flatnonzero(opened.take(cells.cell)), np.flatnonzero(~opened)
    scores = np.concatenate([points.scores[rows], points.scores[cells.some[closed]]])
    pairs = (
        (points.id, sums.id),
        (points.loss, sums.loss),
        *zip(points.ood, sums.ood, strict=True),
    )
    id_, loss, *ood = (
        np.concatenate([row[rows], total[closed].astype(np.int64)]) for row, total in pairs
    )
    return prepared.of_points(Points(scores, id_, np.stack(ood), loss, points.totals))


class StripCells(NamedTuple):
    """Rows in cells, of which only those with rows are listed."""

    cell: NDArray[np.int32]
    """The cell of each row."""
    low: FloatArray
    """Shape (2, cells): no row of a cell has a smaller coordinate, ..."""
    high: FloatArray
    """... nor a larger one."""
    rows: IntArray
    """How many rows each has."""
    some: IntArray
    """One row of each."""

    @classmethod
    def of(cls, points: FloatArray) -> StripCells:
        """Put points, shape (n, 2), into cells of about equally many."""
        groups = int(min(_MOST_GROUPS, max(2, (len(points) / _ROWS_OF_A_CELL) ** 0.5)))
        axes = [_CellAxis.of(points[:, c], groups) for c in (0, 1)]
        cell = np.empty(len(points), np.int32)
        rows, some = np.zeros((2, groups * groups), np.int64)
        for block in _blocks(len(points)):
            one, other = (axis.group(points[block, c]) for c, axis in enumerate(axes))
            one *= groups
            one += other
            cell[block] = one
            rows += np.bincount(one, minlength=groups * groups)
            some[one] = np.arange(block.start, block.stop)
        used = np.flatnonzero(rows)
        place = np.zeros(groups * groups, np.int32)
        place[used] = np.arange(len(used))
        for block in _blocks(len(points)):
            cell[block] = place.take(cell[block])
        at = used // groups, used % groups
        low, high = (
            np.stack([edge[k] for edge, k in zip(edges, at, strict=True)])
            for edges in zip(*((axis.low, axis.high) for axis in axes), strict=True)
        )
        return cls(cell, low, high, rows[used], some[used])

    def sums(self, mass: IntArray, rows: slice = slice(None)) -> FloatArray:
        """Return what some rows of each cell have together; whole numbers below 2**52."""
        cell, mass = self.cell[rows], mass[rows]
        # Rows that are alike are counted.
        alike = len(mass) > 0 and bool(mass.min() == mass.max())
        found = np.zeros(len(self.rows))
        for block in _blocks(len(cell)):
            weights = None if alike else mass[block]
            found += np.bincount(cell[block], weights, minlength=len(found))
        return found * float(mass[0]) if alike else found


def _blocks(rows: int) -> Iterator[slice]:
    """Yield parts of the rows, so that what is computed on the way stays small."""
    for start in range(0, rows, _BLOCK):
        yield slice(start, min(rows, start + _BLOCK))


class RowSums(NamedTuple):
    """RowMass of cells: shape (cells,), those of OOD (sets, cells)."""

    id: FloatArray
    loss: FloatArray
    ood: FloatArray

    @classmethod
    def of(cls, cells: StripCells, id: IntArray, ood: IntArray, loss: IntArray) -> RowSums:
        """Add up the masses of rows; those with ID mass come first."""
        number = int(np.count_nonzero(id))
        own, foreign = slice(0, number), slice(number, None)
        return cls(
            cells.sums(id, own),
            cells.sums(loss, own),
            np.stack([cells.sums(row, foreign) for row in ood]),
        )


class _CellAxis(NamedTuple):
    """An axis in groups of equal steps, each with about as many rows."""

    first: float
    last: float
    steps: float
    """Steps per unit."""
    group_of: IntArray
    """Of each step."""
    low: FloatArray
    high: FloatArray
    """Ends of the groups, a little apart."""

    @classmethod
    def of(cls, values: FloatArray, groups: int) -> _CellAxis:
        sample = np.sort(values[:: max(1, len(values) // _SAMPLE)])
        first, last = float(sample[len(sample) // 200]), float(sample[-1 - len(sample) // 200])
        if not 0 < last - first < np.inf or not _STEPS / (last - first) < np.inf:
            first, last = float(sample[0]), float(sample[0]) + 1.0
        steps = _STEPS / (last - first)
        axis = cls(first, last, steps, np.arange(_STEPS), *np.empty((2, 0)))
        share = np.cumsum(np.bincount(axis.group(sample), minlength=_STEPS)) / len(sample)
        group_of = np.minimum((share * groups).astype(np.int64), groups - 1)
        ends = np.searchsorted(group_of, np.arange(groups + 1))
        # Rounding may put a row into the next step.
        apart = 1e-6 / steps + 16 * EPS * max(abs(first), abs(last))
        low = first + ends[:-1] / steps - apart
        high = first + ends[1:] / steps + apart
        low[ends[:-1] == 0] = float(values.min())
        high[ends[1:] == _STEPS] = float(values.max())
        return axis._replace(group_of=group_of, low=low, high=high)

    def group(self, values: FloatArray) -> IntArray:
        step = np.clip(values, self.first, self.last)
        step -= self.first
        step *= self.steps
        return self.group_of.take(np.minimum(step.astype(np.int64), _STEPS - 1))


class RowMass(NamedTuple):
    """RowMass of cells as bounds need them."""

    id: FloatArray
    loss: FloatArray
    ood: FloatArray
    cheap_id: FloatArray
    cheap_loss: FloatArray
    prices: Prices

    @classmethod
    def of(
        cls,
        cells: StripCells,
        sums: RowSums,
        problem: Problem,
        best: Best,
        id: IntArray,
        loss: IntArray,
    ) -> RowMass:
        """Tell which rows are cheap, given what is to be beaten."""
        number = int(np.count_nonzero(id))
        id, loss, own = id[:number], loss[:number], slice(0, number)
        gain = problem.gain(best.value) * (1 + 4 * EPS)
        none = np.zeros(len(cells.rows))
        if gain <= 0:
            return cls(*sums, none, none, Prices(0.0, _least_price(problem, id, loss)))
        if 0 < gain <= problem.loss and ((loss == 0) | (loss == id)).all():
            # Rows without loss are cheap, and nothing else is.
            return cls(*sums, sums.id - sums.loss, none, Prices(0.0, problem.loss))
        price = problem.loss * loss / id
        # Prices may be off by rounding; a little more is cheap then, which is fine.
        cheap = price < gain
        prices = Prices(
            float(price.max(initial=0.0, where=cheap)),
            float(price.min(initial=np.inf, where=~cheap)),
        )
        cheap_id, cheap_loss = (cells.sums(np.where(cheap, row, 0), own) for row in (id, loss))
        return cls(*sums, cheap_id, cheap_loss, prices)


def _least_price(problem: Problem, id: IntArray, loss: IntArray) -> float:
    return float((problem.loss * loss / id).min(initial=np.inf))


class _Band(NamedTuple):
    t: tuple[float, float]
    low: tuple[float, float]
    high: tuple[float, float]
    cells: IntArray
    """Those that may cross it."""
    below: FloatArray
    """RowMass of those below: ID, loss, then OOD of each set."""


def open_cells(
    cells: StripCells, masses: RowMass, quarters: tuple[int, ...], problem: Problem, best: Best
) -> BoolArray | None:
    """Return the cells crossed by half-planes that may be as good as `best`, or better.

    None if there are too many to find them all.
    """
    opened = np.zeros(len(cells.rows), bool)
    looked_at = 0
    for quarter in quarters:
        for unit in (0, 1):
            lines = _LineSet.of(cells, SIGNS[quarter], unit)
            slabs = lines.slabs(masses)
            while slabs:
                looked_at += 1
                if looked_at > _MOST_SLABS:
                    return None
                slabs += _judge_slab(lines, masses, problem, best, slabs.pop(), opened)
    return opened


class _LineSet(NamedTuple):
    """StripCells as ranges of lines, from ``u0 + t*w0`` to ``u1 + t*w1``."""

    u0: FloatArray
    u1: FloatArray
    w0: FloatArray
    w1: FloatArray

    @classmethod
    def of(cls, cells: StripCells, signs: tuple[int, int], unit: int) -> _LineSet:
        # With both scores on one scale most directions are about as interesting; powers of two
        # change no digit.
        scale = [_power_near(low, high) for low, high in zip(cells.low, cells.high, strict=True)]
        ends = [
            (low / by, high / by) if sign > 0 else (-high / by, -low / by)
            for low, high, by, sign in zip(cells.low, cells.high, scale, signs, strict=True)
        ]
        return cls(*ends[unit], *ends[1 - unit])

    def slabs(self, masses: RowMass) -> list[_Band]:
        t = np.linspace(0.0, 1.0, _SLABS + 1).tolist()
        ends = [
            (float((self.u0 + s * self.w0).min()), float((self.u1 + s * self.w1).max())) for s in t
        ]
        every, nothing = np.arange(len(self.u0)), np.zeros(2 + len(masses.ood))
        return [
            _Band(
                (t[k], t[k + 1]),
                (ends[k][0], ends[k + 1][0]),
                (ends[k][1], ends[k + 1][1]),
                *(every, nothing),
            )
            for k in range(_SLABS)
        ]


def _power_near(low: FloatArray, high: FloatArray) -> float:
    """Return a power of two near the range that most cells spread over."""
    few, many = np.quantile(low / 2 + high / 2, [0.1, 0.9])
    spread = float(many - few)
    return 2.0 ** int(np.floor(np.log2(spread))) if 0 < spread < np.inf else 1.0


def _judge_slab(
    lines: _LineSet,
    masses: RowMass,
    problem: Problem,
    best: Best,
    slab: _Band,
    opened: BoolArray,
) -> list[_Band]:
    """Open the cells of a narrow slab that matter, or return the halves of a wide one."""
    u0, u1, w0, w1 = (corner.take(slab.cells) for corner in lines)
    (t0, t1), (low0, low1), (high0, high1) = slab[:3]
    lean = float((w0 + w1).mean()) / 2 * (t1 - t0)
    lower = np.minimum(u0 + t0 * w0, u0 + t1 * w0 - lean)
    upper = np.maximum(u1 + t0 * w1, u1 + t1 * w1 - lean)
    bottom, top = min(low0, low1 - lean), max(high0, high1 - lean)
    size = abs(bottom) + abs(top) + abs(lean) + float(np.abs(u0).max() + np.abs(w0).max())
    step = max((top - bottom) / _STRIPS, 64 * EPS * size)
    number = int((top - bottom) / step) + 1
    # In doubt a cell crosses, so that rounding does no harm.
    doubt = 16 * EPS * (size / step + number)
    first, stop = (
        np.clip(np.floor((ends - bottom) / step + by), 0, number).astype(np.int64)
        for ends, by in ((lower, -doubt), (upper, doubt + 1))
    )
    add_up = _RunningSums(slab.cells, first, stop, number)
    accepted = [add_up(row, stop) for row in (masses.id, masses.loss, *masses.ood)]
    begun = [add_up(row, first) for row in (masses.id, masses.cheap_id, masses.cheap_loss)]
    done = [add_up(row, stop) for row in (masses.cheap_id, masses.cheap_loss)]
    judged = BoxMasses(
        accepted[0] + slab.below[0],
        accepted[1] + slab.below[1],
        np.stack(accepted[2:]) + slab.below[2:, None],
        begun[0] - accepted[0],
        begun[1] - done[0],
        begun[2] - done[1],
    )
    alive = judge(problem, masses.prices, best, judged, ties=True, slack=0.0).alive
    if not alive.any():
        return []
    before = np.concatenate([[0], np.cumsum(alive)])
    crosses = before.take(stop) > before.take(np.minimum(first, stop))
    drift = (
        float(np.abs(u0 + t1 * w0 - lean - (u0 + t0 * w0))[crosses].mean()) if crosses.any() else 0
    )
    extent = (u1 - u0 + (t0 + t1) / 2 * (w1 - w0))[crosses]
    if not crosses.any() or drift <= _DRIFT * float(extent.mean()):
        opened[slab.cells[crosses]] = True
        return []
    ends = np.flatnonzero(alive)
    floor, ceiling = bottom + ends[0] * step, bottom + (ends[-1] + 1) * step
    inside = (stop > ends[0]) & (first <= ends[-1])
    below = slab.cells[stop <= ends[0]]
    base = slab.below + [row[below].sum() for row in (masses.id, masses.loss, *masses.ood)]
    middle, half = (t0 + t1) / 2, lean / 2
    kept = slab.cells[inside]
    return [
        _Band((t0, middle), (floor, floor + half), (ceiling, ceiling + half), kept, base),
        _Band(
            (middle, t1), (floor + half, floor + lean), (ceiling + half, ceiling + lean), kept, base
        ),
    ]


class _RunningSums(NamedTuple):
    cells: IntArray
    first: IntArray
    stop: IntArray
    number: int

    def __call__(self, row: FloatArray, place: IntArray) -> FloatArray:
        """Return what lies before each strip, given the strip from which a cell does."""
        total = np.bincount(place, row.take(self.cells), minlength=self.number + 1)
        return np.cumsum(total[: self.number])
