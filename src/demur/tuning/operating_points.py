"""Operating points: all of a sample in batches, and the lines that have them.

They come as an iterable of batches, so that another enumeration can take the place of the one
here: what is done with them needs only the masses and, for the few that are kept, a line.

Every half-plane with the same accepted set has the same operating point on the sample. The line
handed out is *settled*: it has unit weights and a threshold midway between the two sides, and
means in float64 what it means on paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels import reference
from demur._kernels.engines import Frame, Optima, midway
from demur.core.columns import combine
from demur.core.points import Points, frame_of
from demur.core.program import Totals
from demur.errors import InvalidInputError
from demur.tuning.prepared import spread
from demur.tuning.result import (
    DIRECTION_SETS,
    Directions,
    DirectionSet,
    Exact,
    Grid,
    grid_directions,
)

Search = Exact | Grid | None

Lines = Callable[[IntArray], FloatArray]
"""Weights of the scores and threshold, shape (rows, k + 1), of the rows asked for."""

# Entries of the largest table of rules x points.
_CHUNK = 2**20


@dataclass(frozen=True, slots=True)
class Line:
    """Accept when ``direction . scores <= threshold``; the masses that accepts."""

    direction: tuple[float, ...]
    threshold: float
    id: int
    ood: int
    loss: int
    width: float
    """Width of the gap around the boundary, in spreads of the scores."""


class Rules(NamedTuple):
    """Rules as lines, and the masses they accept."""

    id: IntArray
    ood: IntArray
    loss: IntArray
    lines: FloatArray
    """Weights of the scores and threshold, shape (rules, k + 1)."""

    @classmethod
    def none(cls, scores: int) -> Rules:
        """Return no rules on this many scores."""
        mass = np.empty(0, np.int64)
        return cls(mass, mass, mass, np.empty((0, scores + 1)))

    @classmethod
    def joined(cls, *parts: Rules) -> Rules:
        """Return the rules of all parts, one after the other."""
        return cls(
            np.concatenate([part.id for part in parts]),
            np.concatenate([part.ood for part in parts]),
            np.concatenate([part.loss for part in parts]),
            np.concatenate([part.lines for part in parts]),
        )

    @classmethod
    def of_lines(cls, lines: list[Line], scores: int) -> Rules:
        """Return lines of this many scores as rules."""
        if not lines:
            return cls.none(scores)
        masses = np.array([(line.id, line.ood, line.loss) for line in lines], np.int64).T
        weights = np.array([(*line.direction, line.threshold) for line in lines])
        return cls(masses[0], masses[1], masses[2], weights)

    @classmethod
    def distinct(cls, best: Optima) -> tuple[Rules, IntArray]:
        """Return the different ones of the optima for all pairs of bounds, and which is where."""
        able = np.flatnonzero(best.id > 0)
        lines = np.column_stack([best.weights.reshape(-1, 2), best.v.ravel()])[able]
        # A half-plane was found for one accepted set, so that its line tells rules apart.
        keys = np.ascontiguousarray(lines).view(np.dtype((np.void, lines.strides[0]))).ravel()
        _, first, rules = np.unique(keys, return_index=True, return_inverse=True)
        index = np.full(best.id.shape, -1)
        index.flat[able] = rules
        masses = (mass.ravel()[able[first]] for mass in (best.id, best.ood, best.loss))
        return cls(next(masses), next(masses), next(masses), lines[first]), index

    def take(self, rows: IntArray | BoolArray | slice) -> Rules:
        """Return some of the rules."""
        return Rules(self.id[rows], self.ood[rows], self.loss[rows], self.lines[rows])

    def found(self) -> BoolArray:
        """Return which rules have a line."""
        return ~np.isnan(self.lines[:, -1])

    def weights(self, totals: Totals) -> FloatArray:
        """Return accepted ID, OOD and loss of each rule as weights, shape (rules, 3)."""
        return np.column_stack(
            [
                self.id * 2.0**-totals.id_exponent,
                self.ood * 2.0**-totals.ood_exponent,
                self.loss * 2.0**-totals.loss_exponent,
            ]
        )


def settle(points: Points, rules: Rules, directions: Directions) -> tuple[Rules, BoolArray]:
    """Give each line of two scores unit weights and a threshold midway between the two sides.

    The second result tells which lines accept just their masses when evaluated in float64. A
    line that does so only before it gets unit weights is turned to the widest gap instead.
    """
    lines, met, separable = _settle_all(points, rules)
    rest = np.flatnonzero(separable & ~met)
    if len(rest):
        allowed, scale = DIRECTION_SETS[str(directions)], spread(points.scores, points.id)
        turned = [_widest(points, line, scale, allowed) for line in rules.lines[rest]]
        again = rules.take(rest)._replace(lines=np.array(turned))
        lines[rest], met[rest], _ = _settle_all(points, again)
    return rules._replace(lines=lines), met


class LazyLines:
    """The lines of rules, each settled when it is first asked for.

    Settling costs a look at the points next to each line, and few of many are ever deployed.
    """

    def __init__(self, rules: Rules, settled: Callable[[FloatArray], FloatArray] | None) -> None:
        """Take how to settle lines, None if they are settled already."""
        self.rules, self._settled_by = rules, settled
        self._lines = rules.lines.copy()
        self._settled = np.full(len(rules.id), settled is None)

    def __call__(self, rows: IntArray) -> FloatArray:
        """Return the lines of some rules."""
        new = rows[~self._settled[rows]]
        if len(new) and self._settled_by is not None:
            self._lines[new] = self._settled_by(self.rules.lines[new])
            self._settled[new] = True
        return self._lines[rows]


def settled_lines(
    points: Points,
    lines: Lines,
    nI: IntArray,
    nO: IntArray,
    L: IntArray,
    directions: Directions,
) -> Lines:
    """Return settled lines, NaN where float64 does not accept just these masses."""

    def settled(rows: IntArray) -> FloatArray:
        rules = Rules(nI[rows], nO[rows], L[rows], lines(rows))
        rules, met = settle(points, rules, directions)
        rules.lines[~met] = np.nan
        return rules.lines

    return settled


def _widest(
    points: Points, line: FloatArray, scale: FloatArray, allowed: DirectionSet
) -> FloatArray:
    accepted = combine(line[:-1], points.scores) <= line[-1]
    *direction, _ = reference.widest(points.scores, accepted, line[:2], scale, allowed.nonneg)
    return np.append(direction, combine(direction, points.scores)[accepted].max())


def _settle_all(points: Points, rules: Rules) -> tuple[FloatArray, BoolArray, BoolArray]:
    lines, met, separable = rules.lines.copy(), *np.zeros((2, len(rules.id)), bool)
    rows = max(1, _CHUNK // max(1, len(points.scores)))
    for start in range(0, len(rules.id), rows):
        part = slice(start, start + rows)
        lines[part], met[part], separable[part] = _settle(points, rules.take(part))
    return lines, met, separable


def _settle(points: Points, rules: Rules) -> tuple[FloatArray, BoolArray, BoolArray]:
    weights = rules.lines[:, :-1].T[:, :, None]
    accepted = combine(weights, points.scores) <= rules.lines[:, -1:]
    unit = weights / np.hypot(weights[0], weights[1])
    values = combine(unit, points.scores)
    last = np.where(accepted, values, -np.inf).max(axis=1, initial=-np.inf)
    following = np.where(values > last[:, None], values, np.inf).min(axis=1, initial=np.inf)
    threshold = midway(last, following)
    met = _accepts(points, values <= threshold[:, None], rules)
    separable = accepted.any(axis=1) & _accepts(points, accepted, rules)
    return np.column_stack([unit[0], unit[1], threshold]), met, separable


def _accepts(points: Points, accepted: BoolArray, rules: Rules) -> BoolArray:
    # Masses add up to less than 2**52, so float64 holds all their sums.
    rows = accepted.astype(np.float64)
    met: BoolArray = rows @ points.id == rules.id
    met &= rows @ points.ood.sum(axis=0) == rules.ood
    met &= rows @ points.loss == rules.loss
    return met


class RuleBatch(NamedTuple):
    """Accepted masses of some rules, and their lines on request."""

    id: IntArray
    ood: IntArray
    """Shape (sets, n)."""
    loss: IntArray
    lines: Lines
    in_doubt: bool = False
    """Whether float64 is not sure which sets are accepted."""


@dataclass(frozen=True, slots=True)
class Quarter:
    """Directions from one axis to the next: ``p*start + q*stop`` with p, q >= 0.

    It swaps and flips the two scores so that its directions get two non-negative weights; swaps and
    sign changes are exact in floating point.
    """

    start: tuple[int, int]
    stop: tuple[int, int]

    def coordinates(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the scores along `start` and `stop`."""
        return _along(self.start, scores), _along(self.stop, scores)


_AXES = [(1, 0), (0, 1), (-1, 0), (0, -1)]
_QUARTERS = [Quarter(_AXES[i], _AXES[(i + 1) % 4]) for i in range(4)]


def quarters(allowed: DirectionSet) -> list[Quarter]:
    """Return the quarter turns that a set of directions covers."""
    return [_QUARTERS[quarter] for quarter in allowed.quarters]


def _along(axis: tuple[int, int], scores: FloatArray) -> FloatArray:
    column = scores[:, 0] if axis[0] else scores[:, 1]
    return column if sum(axis) > 0 else -column


def operating_points(
    points: Points, directions: Directions, search: Search, *, settled: bool = False
) -> Iterator[RuleBatch]:
    """Yield the operating points of all rules with the allowed directions.

    Left out are rules whose last accepted point has no ID mass: giving it up costs nothing.
    Where directions are not swept the lines are not settled yet. With `settled` they are, at
    the price of a pass over the points for each line asked for.
    """
    if is_swept(points, search):
        for direction in swept_directions(points, directions, search):
            yield _swept(points, direction)
        return
    frame = frame_of(points.scores)
    searched = frame.points(points.scores)
    for chart in quarters(DIRECTION_SETS[str(directions)]):
        merged = reference.merge(*chart.coordinates(searched), points.id, points.ood, points.loss)
        for cells in reference.pivot_cells(merged):
            lines = cell_lines(chart, frame, merged, cells)
            in_doubt = cells.close and not frame.whole
            batch = RuleBatch(cells.id, cells.ood, cells.loss, lines, in_doubt)
            if settled:
                total = cells.ood.sum(axis=0)
                lines = settled_lines(points, batch.lines, batch.id, total, batch.loss, directions)
                batch = batch._replace(lines=lines)
            yield batch


def is_swept(points: Points, search: Search) -> bool:
    """Return whether directions are swept one by one, which gives final thresholds."""
    if search is not None and not isinstance(search, (Exact, Grid)):
        raise InvalidInputError(f"search must be Exact() or Grid(angles), got {search!r}")
    return points.scores.shape[1] == 1 or isinstance(search, Grid)


def swept_directions(
    points: Points, directions: Directions, search: Search
) -> list[tuple[float, ...]]:
    """Return the directions to sweep: the only one of one score, or the grid."""
    allowed = DIRECTION_SETS[str(directions)]
    if isinstance(search, Grid) and points.scores.shape[1] == 2:
        return [*grid_directions(allowed, search.angles)]
    return [(1.0,)]


def sweep_along(points: Points, direction: tuple[float, ...]) -> tuple[reference.Sweep, FloatArray]:
    """Return the sweep in one direction and the thresholds midway to the next value."""
    values = combine(direction, points.scores)
    swept = reference.sweep(values, points.id, points.ood, points.loss)
    return swept, midway(swept.value, np.append(swept.value[1:], np.inf)[: len(swept.value)])


def cell_lines(
    chart: Quarter, frame: Frame, merged: reference.Merged, cells: reference.PivotCells
) -> Lines:
    """Return the lines through the pivot, one amid the directions of each cell."""
    axes = np.array([chart.start, chart.stop], float)
    pivot = frame.scores(np.array([merged.x[cells.pivot], merged.y[cells.pivot]]) @ axes)

    def lines(rows: IntArray) -> FloatArray:
        between = reference.weights_between(cells.low[rows], cells.high[rows])
        weights = frame.weights(between @ axes)
        return np.column_stack([weights, reference.along(weights.T, *pivot)])

    return lines


def _swept(points: Points, direction: tuple[float, ...]) -> RuleBatch:
    swept, thresholds = sweep_along(points, direction)

    def lines(rows: IntArray) -> FloatArray:
        return np.column_stack([np.tile(direction, (len(rows), 1)), thresholds[rows]])

    return RuleBatch(swept.id, swept.ood, swept.loss, lines)
