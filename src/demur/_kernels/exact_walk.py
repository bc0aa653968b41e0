"""What float64 cannot take apart, walked through in whole numbers.

Engines put boxes aside in which lines come within rounding errors of each other, or in which an
accepted set worth having found no place. Here all cells of such a box are walked through in whole
numbers. A better accepted set is then either accepted by some float64 rule, which is found by
trying directions of its cell, or *lost*: counted, and the lower bound falls to its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from heapq import heappop, heappush
from itertools import accumulate
from operator import add
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels import reference
from demur._kernels.engines import Doubt, Frame, Outcome, midway
from demur._kernels.exact import DOUBT, Goal

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Directions of a cell that are tried for a float64 rule, between its ends.
_PARTS = 128
# Steps of all exact walks through boxes together; each takes some microseconds.
_STEPS = 400_000


class DoubtfulRows(NamedTuple):
    """The points as rules see them: scores, and masses of shape (2 + sets + extra, n)."""

    scores: _Floats
    masses: _Ints
    frame: Frame


class ExactCell(NamedTuple):
    """An accepted set of a box: its masses, and a half-plane (t, v) of the box that has it."""

    masses: tuple[int, ...]
    doubt: Doubt
    t: Fraction
    v: Fraction


def settled(outcome: Outcome, rows: DoubtfulRows, goal: Goal) -> Outcome:
    """Return what a search found after its doubts were looked at exactly."""
    goal = goal.of_some_id()
    unresolved, bound = outcome.unresolved, outcome.lower_bound
    cells: list[ExactCell] = []
    steps = _STEPS
    for doubt in sorted(outcome.doubts, key=lambda doubt: doubt.merit):
        walk = ExactWalk(doubt)
        seen = walk.cells(steps, goal.min_id)
        steps -= walk.steps
        if seen is None:
            unresolved, bound = unresolved + 1, min(bound, doubt.merit)
        else:
            cells += map(walk.placed, _worth(seen, outcome, goal))
    found = _best_of(outcome._replace(lower_bound=bound), cells, rows, goal)
    # Boxes that were given up are bounded by what crosses them, which may be less than nothing.
    bound = max(found.lower_bound, _least(rows.masses, goal))
    status = found.status
    if len(found.v) and status != "budget":
        value = _value(_known(found, len(rows.masses)), goal)
        bound = min(bound, value)
        if (unresolved or found.lost) and bound < value and status == "optimal":
            status = "unresolved"
    return found._replace(status=status, lower_bound=float(bound), unresolved=unresolved, doubts=())


def _split(masses: _Ints, goal: Goal) -> tuple[_Ints, _Ints, _Ints, _Ints]:
    """Return ID mass, OOD mass of each set, loss and extra masses."""
    sets = 2 + len(goal.max_ood)
    return masses[0], masses[2:sets], masses[1], masses[sets:]


def _totals(masses: _Ints, goal: Goal) -> tuple[int, int, int]:
    """Return the ID, OOD and loss mass of one accepted set."""
    nI, nO, L, _ = _split(masses, goal)
    return int(nI), int(nO.sum()), int(L)


def _value(masses: _Ints, goal: Goal) -> float:
    """Return the objective of one accepted set, rounded."""
    return float(Fraction(*goal.quotient(*_totals(masses, goal))))


def _least(masses: _Ints, goal: Goal) -> float:
    """Return what no accepted set falls below: the objective of the best single row."""
    loss, id_, ood = (int(c) for c in goal.objective)
    rows = np.flatnonzero(masses[0])
    if not goal.per_id or id_ or ood < 0 or loss < 0 or len(rows) == 0:
        return -np.inf
    share = masses[1, rows] / masses[0, rows]
    close = rows[share <= share.min() * (1 + DOUBT)]
    return float(loss * min(Fraction(int(masses[1, i]), int(masses[0, i])) for i in close))


def _known(outcome: Outcome, width: int) -> _Ints:
    """Return the masses of the best that was found, all OOD sets in one."""
    masses = np.zeros(width, np.int64)
    masses[:3] = outcome.id, outcome.loss, outcome.ood
    return masses


def _worth(cells: list[_Seen], outcome: Outcome, goal: Goal) -> list[_Seen]:
    """Return the cells that meet the bounds and may be better than what was found."""
    if not cells:
        return []
    masses = np.array([masses for masses, *_ in cells], np.int64).T
    kept = np.flatnonzero(goal.met(*_split(masses, goal)))
    if len(outcome.v):
        known = _value(_known(outcome, len(masses)), goal)
        kept = kept[[_value(masses[:, k], goal) <= known for k in kept]]
    return [cells[k] for k in kept]


def _best_of(outcome: Outcome, cells: list[ExactCell], rows: DoubtfulRows, goal: Goal) -> Outcome:
    """Return the best of what was found and of cells, and the masses that no rule was found for."""
    masses = np.array([cell.masses for cell in cells], np.int64).reshape(-1, len(rows.masses)).T
    left = np.arange(len(cells))
    lost: dict[tuple[int, int, int], float] = {}
    found = outcome
    while len(left):
        # The last column is the best known.
        columns = masses[:, left]
        if len(outcome.v):
            columns = np.column_stack([columns, _known(outcome, len(masses))])
        nI, nO, L, _ = _split(columns, goal)
        winners = goal.best(nI, nO.sum(axis=0), L)
        if winners[-1] == len(left):
            break
        best = masses[:, left[winners[0]]]
        line = _rule_of([cells[k] for k in left[winners]], rows)
        if line is not None:
            found = _with_rule(outcome, line, best, goal)
            break
        lost[_totals(best, goal)] = _value(best, goal)
        left = np.delete(left, winners)
    bound = min([outcome.lower_bound, found.lower_bound, *lost.values()])
    return found._replace(lost=tuple(lost), lower_bound=bound)


def _rule_of(cells: list[ExactCell], rows: DoubtfulRows) -> _Floats | None:
    """Return weights and threshold of a float64 rule with the accepted set of one of the cells."""
    tried: set[bytes] = set()
    for cell in cells:
        accepted = AcceptedSet(cell, rows)
        if accepted.key not in tried:
            tried.add(accepted.key)
            line = accepted.rule()
            if line is not None:
                return line
    return None


def _with_rule(outcome: Outcome, line: _Floats, masses: _Ints, goal: Goal) -> Outcome:
    """Return an outcome with a better rule."""
    id_, ood, loss = _totals(masses, goal)
    return outcome._replace(
        weights=line[None, :2],
        v=line[2:],
        id=id_,
        ood=ood,
        loss=loss,
        status="optimal" if outcome.status == "infeasible" else outcome.status,
        lower_bound=_value(masses, goal),
    )


_Seen = tuple[tuple[int, ...], int, int, int]
"""Masses of a cell, twice a place in units of the walk, the lines below and above it there."""


class ExactWalk:
    """All cells of a box, by sweeping over its lines in integers.

    Values at both ends of the box are floats, and so whole numbers in some unit. Between them a
    line is their mean with weights 1 - s and s. Neighbours change places where they meet, which
    ends the cell between them; the edges of the box are lines like the others, without mass.
    """

    def __init__(self, doubt: Doubt) -> None:
        self.steps = 0
        self._doubt = doubt
        self._left, self._right, self._unit = _ends(doubt)
        nothing = (0,) * doubt.masses.shape[1]
        self._mass = [tuple(row) for row in doubt.masses.tolist()] + [nothing, nothing]
        # Quotients with such denominators that differ do so by more than 2**-bits.
        drift = max(abs(b - a) for a, b in zip(self._left, self._right, strict=True))
        self._bits = 2 * (2 * drift + 1).bit_length() + 2

    def cells(self, most: int, least_id: int) -> list[_Seen] | None:
        """Return the cells with so much ID mass; None if these are more steps than `most`."""
        left, right = self._left, self._right
        self._order = sorted(range(len(left)), key=lambda i: (left[i], right[i]))
        self._place = [0] * len(left)
        for k, i in enumerate(self._order):
            self._place[i] = k
        below = tuple(self._doubt.below.tolist())
        self._prefix = list(accumulate((self._mass[i] for i in self._order), _sum, initial=below))
        # Since when the lines beside a cell are the same, and a place where there is one.
        self._since = [0] * len(self._prefix)
        self._seen: list[_Seen | None] = [None] * len(self._prefix)
        found: list[_Seen | None] = []
        waiting: list[tuple[int, int, int]] = []
        for k in range(1, len(left)):
            self._await(waiting, k)
        self.steps = len(left)
        while waiting and self.steps <= most:
            s, lower, upper = heappop(waiting)
            k = self._place[upper]
            # Others may have come between.
            if self._place[lower] == k - 1:
                self.steps += 1
                for cell in (k - 1, k, k + 1):
                    self._look(cell, s, least_id)
                found.append(self._seen[k])
                self._swap(k)
                self._await(waiting, k - 1)
                self._await(waiting, k + 1)
        if self.steps > most:
            return None
        for k in range(1, len(left)):
            self._look(k, 1 << self._bits, least_id)
        return [cell for cell in found + self._seen if cell is not None]

    def _await(self, waiting: list[tuple[int, int, int]], k: int) -> None:
        """Note where the lines at k - 1 and k meet, if they do before the end."""
        if not 0 < k < len(self._order):
            return
        lower, upper = self._order[k - 1 : k + 1]
        apart = self._left[upper] - self._left[lower]
        over = self._right[lower] - self._right[upper]
        if apart > 0 and over > 0:
            heappush(waiting, ((apart << self._bits) // (apart + over), lower, upper))

    def _swap(self, k: int) -> None:
        lower, upper = self._order[k - 1 : k + 1]
        self._order[k - 1], self._order[k] = upper, lower
        self._place[upper], self._place[lower] = k - 1, k
        self._prefix[k] = _sum(self._prefix[k - 1], self._mass[upper])
        self._seen[k] = None

    def _look(self, k: int, until: int, least_id: int) -> None:
        """See to the cell between the lines at k - 1 and k, which are these up to now."""
        since, self._since[k] = self._since[k], until
        floor, ceiling = self._place[-2:]
        inside = floor < k <= ceiling and since < until
        if not inside or self._seen[k] is not None or self._prefix[k][0] < least_id:
            return
        a, b = self._order[k - 1 : k + 1]
        if (self._left[a], self._right[a]) != (self._left[b], self._right[b]):
            self._seen[k] = self._prefix[k], since + until, a, b

    def placed(self, seen: _Seen) -> ExactCell:
        """Return a cell with a half-plane inside."""
        masses, twice, *beside = seen
        s = Fraction(twice, 2 << self._bits)
        ends = sum((1 - s) * self._left[i] + s * self._right[i] for i in beside)
        first, last = (Fraction(t) for t in self._doubt.t)
        v = Fraction(ends) / (2 * self._unit)
        return ExactCell(masses, self._doubt, first + s * (last - first), v)


def _sum(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(add, a, b))


def _ends(doubt: Doubt) -> tuple[list[int], list[int], int]:
    """Return the values of all lines, and of both edges, at both ends, as multiples of a unit."""
    points = doubt.points[:, [doubt.still, 1 - doubt.still]].T.tolist()
    (x, x_unit), (y, y_unit) = (_whole(column) for column in points)
    (unit, step, *t), scale = _whole([doubt.unit, doubt.step, *doubt.t])
    edges = [v for v in (*doubt.low, *doubt.high) if abs(v) < np.inf]
    e, e_unit = _whole([*edges, 0.0])
    common = max(x_unit * scale, y_unit * scale * scale, e_unit)
    x = [v * unit * (common // (x_unit * scale)) for v in x]
    y = [v * step * (common // (y_unit * scale * scale)) for v in y]
    ends = [[a + b * at for a, b in zip(x, y, strict=True)] for at in t]
    known = iter(e)
    # Where float64 overflowed, an edge is beyond all lines.
    beyond = 1 + max(abs(v) for end in ends for v in [*end, *(w * (common // e_unit) for w in e)])
    corners = [
        next(known) * (common // e_unit) if abs(v) < np.inf else beyond * (1 if v > 0 else -1)
        for v in (*doubt.low, *doubt.high)
    ]
    return ends[0] + corners[::2], ends[1] + corners[1::2], common


def _whole(values: list[float]) -> tuple[list[int], int]:
    """Return floats as multiples of one power of two, which is 1 over the second result."""
    ratios = [value.as_integer_ratio() for value in values]
    unit = max((below for _, below in ratios), default=1)
    return [above * (unit // below) for above, below in ratios], unit


class AcceptedSet:
    """The rows that a half-plane accepts in exact arithmetic, and all directions that do so.

    These are the same whatever box the half-plane was found in. A direction is a pair of weights
    of points without their signs, the larger of them 1.
    """

    def __init__(self, cell: ExactCell, rows: DoubtfulRows) -> None:
        doubt, self._rows = cell.doubt, rows
        signs = math.copysign(1.0, doubt.unit), math.copysign(1.0, doubt.step)
        self._signs = np.array([signs[doubt.still], signs[1 - doubt.still]])
        self._points = rows.frame.points(rows.scores) * self._signs
        weights = abs(Fraction(doubt.unit)), abs(Fraction(doubt.step)) * cell.t
        along = weights[doubt.still], weights[1 - doubt.still]
        values, error = self._values(along)
        v = _nearest(cell.v)
        apart = values - v
        self.inside = apart <= 0
        for i in np.flatnonzero(np.abs(apart) <= error + DOUBT * abs(v)).tolist():
            self.inside[i] = self._value(along, i) <= cell.v

    @property
    def key(self) -> bytes:
        """What tells it from others."""
        return self.inside.tobytes() + self._signs.tobytes()

    def rule(self) -> _Floats | None:
        """Return weights and threshold of a float64 rule that accepts just these; None if none is.

        The directions tried are spread over all that do in exact arithmetic, and what is next to
        some of them in float64.
        """
        scores, inside = self._rows.scores, self.inside
        for direction in self._tried():
            weights = self._rows.frame.weights(self._signs * direction)
            with np.errstate(over="ignore", invalid="ignore"):
                values = reference.along(weights, *scores.T)
            last, following = values[inside].max(), values[~inside].min(initial=np.inf)
            if last < following:
                return np.array([*weights, midway(last, following)])
        return None

    def _tried(self) -> Iterator[_Floats]:
        """Yield directions between both ends of those that accept just these rows."""
        ends = self._ends()
        for still in range(2):
            # The weight of the other score, where this one has its full weight.
            shares = sorted(end[1 - still] / end[still] for end in ends if end[still])
            if not shares:
                continue
            low, high = shares[0], shares[-1] if len(shares) == 2 else 2 * shares[0] + 1
            parts = sorted(range(1, _PARTS), key=lambda k: abs(2 * k - _PARTS))
            tried = [_nearest(low + (high - low) * k / _PARTS) for k in parts]
            tried += [_nearest(low) ** 0.5 * _nearest(high) ** 0.5, 0.0]
            for to in (2.0, -1.0):
                tried += [near := float(np.nextafter(tried[0], to)), float(np.nextafter(near, to))]
            for share in dict.fromkeys(share for share in tried if 0 <= share < np.inf):
                direction = np.ones(2)
                direction[1 - still] = share
                yield direction / direction.max()

    def _ends(self) -> list[_Direction]:
        """Return the two directions at which these rows stop being those with the least values.

        The gap between the largest value of these and the smallest of the others is concave along
        all directions: Newton's method ends at its zeros, from either side.
        """
        ends: list[_Direction] = []
        for end in ((Fraction(1), Fraction(0)), (Fraction(0), Fraction(1))):
            while not self.inside.all():
                last, following = (
                    self._extreme(end, self.inside, 1),
                    self._extreme(end, ~self.inside, -1),
                )
                dx, dy = (
                    Fraction(float(b)) - Fraction(float(a))
                    for a, b in zip(self._points[last], self._points[following], strict=True)
                )
                if end[0] * dx + end[1] * dy >= 0:
                    break
                largest = max(abs(dx), abs(dy))
                end = abs(dy) / largest, abs(dx) / largest
            ends.append(end)
        return ends

    def _extreme(self, along: _Direction, among: _Bools, sign: int) -> int:
        """Return the row of some with the largest value times a sign."""
        values, error = self._values(along)
        values = sign * values
        least = (values - error)[among].max()
        close: list[int] = np.flatnonzero(among & (values + error >= least)).tolist()
        if len(close) == 1:
            return close[0]
        return max(close, key=lambda i: sign * self._value(along, i))

    def _values(self, along: _Direction) -> tuple[_Floats, _Floats]:
        """Return the values of all rows, and by how much they may be off."""
        p, q = (_nearest(weight) for weight in along)
        with np.errstate(over="ignore"):
            a, b = p * self._points[:, 0], q * self._points[:, 1]
            return a + b, DOUBT * (np.abs(a) + np.abs(b)) + np.finfo(np.float64).tiny

    def _value(self, along: _Direction, row: int) -> Fraction:
        x, y = self._points[row].tolist()
        return along[0] * Fraction(x) + along[1] * Fraction(y)


_Direction = tuple[Fraction, Fraction]


def _nearest(value: Fraction) -> float:
    """Return a fraction as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
