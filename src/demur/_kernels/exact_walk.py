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
from demur._kernels.engines import Doubt, Frame, Optima, Outcome, midway
from demur._kernels.exact import DOUBT, Goal, best_first, may_beat

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Directions of a cell that are tried for a float64 rule, between its ends, in this order. It is an
# odd number: where ends have few digits so have multiples of 1/128, and all of them round alike.
_PARTS = 131
_FROM_THE_MIDDLE = sorted(range(1, _PARTS), key=lambda k: abs(2 * k - _PARTS))
# Floats on either side of its ends and its middle that are tried, too.
_NEIGHBOURS = 12
# Steps of all exact walks through boxes together; each takes some microseconds.
_STEPS = 400_000
# The same for all pairs of bounds, and what it takes to look for a rule of a set, without the rows
# whose values have to be found exactly.
_STEPS_OF_ALL, _STEPS_OF_A_RULE, _STEPS_OF_A_VALUE = 5_000_000, 500, 3
# Rows that are looked at in the time of a step, where all of them are.
_ROWS_OF_A_STEP = 100
# Values of rows that are looked at together when directions are tried.
_VALUES_AT_ONCE = 2**16
_TINY = float(np.finfo(np.float64).tiny)
_SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


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


def is_confirmed(outcome: Outcome, rows: DoubtfulRows) -> bool:
    """Return whether what was found is what anybody would find who looks at its accepted set.

    Rules of which float64 is certain are, and so are those that trying directions of their cell
    finds again. Others may be no half-planes: rounding made them, or hid what they accept.
    """
    lines = list(zip(outcome.weights, outcome.v.tolist(), strict=True))
    x, y = rows.scores.T
    if not lines or any(is_certain(weights, v, x, y) for weights, v in lines):
        return True
    sets = {found.key: found for found in (AcceptedSet.of_rule(*line, rows) for line in lines)}
    return any(found.rule() is not None for found in sets.values())


def is_certain(weights: _Floats, v: float, x: _Floats, y: _Floats) -> bool:
    """Return whether rounding errors keep accepted rows with scores x, y apart from the others."""
    with np.errstate(over="ignore"):
        a, b = weights[0] * x, weights[1] * y
        values, error = a + b, DOUBT * (np.abs(a) + np.abs(b)) + _TINY
    inside = values <= v
    last = (values + error)[inside].max(initial=-np.inf)
    return bool(last < (values - error)[~inside].min(initial=np.inf))


def settled(outcome: Outcome, rows: DoubtfulRows, goal: Goal) -> Outcome:
    """Return what a search found after its doubts were looked at exactly.

    Boxes that were cut are larger than their parts of the whole by rounding errors, so that no cell
    is lost between them; what passes beside the whole may cross there, unknown to the box. Where
    that makes a difference to the best cells, such a box is walked through again with all lines.
    """
    goal = goal.of_some_id()
    unresolved, bound = outcome.unresolved, outcome.lower_bound
    steps, found = _STEPS, outcome
    cells: list[ExactCell] = []
    doubts = sorted(outcome.doubts, key=lambda doubt: doubt.merit)
    while doubts:
        for doubt in doubts:
            seen = None
            if len(doubt.points) <= steps:
                walk = ExactWalk(doubt)
                seen = walk.cells(steps, goal.min_id)
                steps -= walk.steps
            if seen is None:
                unresolved, bound = unresolved + 1, min(bound, doubt.merit)
            else:
                cells += map(walk.placed, _worth(seen, outcome, goal))
        found, wrong = _best_of(outcome._replace(lower_bound=bound), cells, rows, goal)
        gone = {id(doubt) for doubt in wrong}
        cells = [cell for cell in cells if id(cell.doubt) not in gone]
        steps -= len(wrong) * (len(rows.scores) // _ROWS_OF_A_STEP)
        doubts = [with_all_lines(doubt, rows) if steps >= 0 else doubt for doubt in wrong]
    # Boxes that were given up are bounded by what crosses them, which may be less than nothing.
    bound = max(found.lower_bound, _least(rows.masses, goal))
    status = found.status
    if len(found.v) and status != "budget":
        value = _value(_known(found, len(rows.masses)), goal)
        bound = min(bound, value)
        if (unresolved or found.lost) and bound < value and status == "optimal":
            status = "unresolved"
    return found._replace(status=status, lower_bound=float(bound), unresolved=unresolved, doubts=())


def settled_everywhere(
    found: Optima, rows: DoubtfulRows, min_id: _Ints, max_ood: _Ints
) -> tuple[Optima, _Bools]:
    """Return what a search for all pairs of bounds found after its doubts were looked at exactly.

    Also for which pairs something better cannot be ruled out: a set for which no float64 rule was
    found, or boxes that nothing took apart.
    """
    table = _AllBest(found, rows, min_id, max_ood)
    for doubt in sorted(found.doubts, key=lambda doubt: len(doubt.points)):
        if not table.look_into(doubt):
            # Lines that its box does not know make a difference.
            table.look_into(with_all_lines(doubt, rows), again=True)
    return table.best(), table.unresolved()


_Three = tuple[int, int, int]
"""ID, OOD and loss mass."""


class _AllBest:
    """The best sets for all pairs of bounds, while doubts are looked into.

    A set belongs to the largest ID mass and the smallest OOD mass, of those asked for, that it
    meets, and goes on to all weaker bounds where it is better.
    """

    def __init__(self, found: Optima, rows: DoubtfulRows, min_id: _Ints, max_ood: _Ints) -> None:
        self._rows, self._min_id, self._max_ood = rows, min_id, max_ood
        self._masses = np.stack([found.id, found.ood, found.loss])
        self._lines = np.concatenate([found.weights, found.v[..., None]], axis=-1)
        self._hope = np.full(found.id.shape, np.inf) if found.hope is None else found.hope
        self._steps = _STEPS_OF_ALL
        self._tried: set[bytes] = set()
        self._lost: set[_Three] = set()

    def best(self) -> Optima:
        """Return the best that is known."""
        nI, nO, L = self._masses
        return Optima(nI, nO, L, self._lines[..., :2], self._lines[..., 2])

    def unresolved(self) -> _Bools:
        """Return for which pairs of bounds there may be something better."""
        nI, _, L = self._masses
        risk = np.full(nI.shape, np.inf)
        np.divide(L, nI, out=risk, where=nI > 0)
        hope = np.minimum.accumulate(self._hope[::-1], axis=0)[::-1]
        hope = np.minimum.accumulate(hope, axis=1)
        found: _Bools = (hope <= risk * (1 + DOUBT)) & (hope < np.inf)
        for masses in self._lost:
            row, column = self._place(masses)
            if self._is_better(masses, row, column):
                found[: row + 1, column:] |= self._where_better(masses, row, column)
        return found

    def look_into(self, doubt: Doubt, *, again: bool = False) -> bool:
        """Take in the sets of a box; False if one of them accepts other masses than the box says.

        After that it is only given up if this happens `again`.
        """
        walk, seen = ExactWalk(doubt), None
        if len(doubt.points) <= self._steps:
            seen = walk.cells(self._steps, max(1, int(self._min_id[0])))
            self._steps -= walk.steps
        if seen is None:
            self._give_up(doubt)
            return True
        for cell in self._worth(seen):
            if not self._take(walk.placed(cell)):
                if not again:
                    return False
                self._give_up(doubt)
        return True

    def _worth(self, seen: list[_Seen]) -> list[_Seen]:
        """Return the sets that may be better than what is known, the best ones first."""
        if not seen:
            return []
        table = np.array([masses for masses, *_ in seen], np.int64).T
        nI, L, nO = table[0], table[1], table[2:].sum(axis=0)
        row = np.searchsorted(self._min_id, nI, side="right") - 1
        column = np.searchsorted(self._max_ood, nO)
        met = np.flatnonzero((row >= 0) & (column < len(self._max_ood)))
        id_, ood, loss = self._masses[:, row[met], column[met]]
        better = may_beat((nI[met], nO[met], L[met]), (id_, ood, loss), is_exact=False)
        kept = met[better]
        return [seen[k] for k in kept[best_first(nI[kept], nO[kept], L[kept])]]

    def _take(self, cell: ExactCell) -> bool:
        """Take in a set if it is better and float64 has a rule for it, or note that it is lost.

        False if it accepts other masses than its box says.
        """
        masses = _in_all(cell.masses)
        row, column = self._place(masses)
        if not self._is_better(masses, row, column):
            return True
        if self._steps < 0:
            self._lost.add(masses)
            return True
        self._steps -= _STEPS_OF_A_RULE + len(self._rows.scores) // _ROWS_OF_A_STEP
        accepted = AcceptedSet.of_cell(cell, self._rows)
        if accepted.masses != cell.masses:
            return False
        line = None if accepted.key in self._tried else accepted.rule()
        self._steps -= accepted.steps
        self._tried.add(accepted.key)
        if line is None:
            self._lost.add(masses)
            return True
        better = self._where_better(masses, row, column)
        self._masses[:, : row + 1, column:][:, better] = np.array(masses)[:, None]
        self._lines[: row + 1, column:][better] = line
        return True

    def _place(self, masses: _Three) -> tuple[int, int]:
        """Return the tightest bounds that a set meets."""
        row = int(np.searchsorted(self._min_id, masses[0], side="right")) - 1
        return row, int(np.searchsorted(self._max_ood, masses[1]))

    def _is_better(self, masses: _Three, row: int, column: int) -> bool:
        """Return whether a set is better than what is known for a pair of bounds."""
        nI, nO, L = masses
        id_, ood, loss = self._masses[:, row, column].tolist()
        # Without anything known, ID mass is 0.
        return id_ == 0 or (L * id_, -nI, nO) < (loss * nI, -id_, ood)

    def _where_better(self, masses: _Three, row: int, column: int) -> _Bools:
        """Return the same for these bounds and all weaker ones."""
        id_, _, loss = self._masses[:, : row + 1, column:]
        ours, theirs = float(masses[2]) * id_, float(masses[0]) * loss
        better: _Bools = (ours < theirs) | (id_ == 0)
        close = (np.abs(ours - theirs) <= DOUBT * theirs) & (id_ > 0)
        for j, k in np.argwhere(close).tolist():
            better[j, k] = self._is_better(masses, j, column + k)
        return better

    def _give_up(self, doubt: Doubt) -> None:
        """Leave a box: nothing in it has more ID or less OOD or loss mass than are certain."""
        nI, nO, L = _in_all(tuple(doubt.below.tolist()))
        nI += int(doubt.masses[:, 0].sum())
        row, column = self._place((nI, nO, L))
        if nI > 0 and row >= 0 and column < len(self._max_ood):
            self._hope[row, column] = min(self._hope[row, column], L / nI)


def _in_all(masses: tuple[int, ...]) -> _Three:
    """Return the masses of a set, the OOD mass of all sets in one."""
    return masses[0], sum(masses[2:]), masses[1]


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
    close = masses[:2, rows[share <= share.min() * (1 + DOUBT)]]
    # Most rows have the mass of many others.
    shares = {Fraction(L, nI) for nI, L in set(zip(*close.tolist(), strict=True))}
    return float(loss * min(shares))


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


def _best_of(
    outcome: Outcome, cells: list[ExactCell], rows: DoubtfulRows, goal: Goal
) -> tuple[Outcome, list[Doubt]]:
    """Return the best of what was found and of cells, and the masses that no rule was found for.

    Or else the boxes of cells that would be among the best but accept other masses.
    """
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
        line, wrong = _rule_of([cells[k] for k in left[winners]], rows)
        if line is not None:
            found = _with_rule(outcome, line, best, goal)
            break
        if wrong:
            return outcome, wrong
        lost[_totals(best, goal)] = _value(best, goal)
        left = np.delete(left, winners)
    bound = min([outcome.lower_bound, found.lower_bound, *lost.values()])
    return found._replace(lost=tuple(lost), lower_bound=bound), []


def _rule_of(cells: list[ExactCell], rows: DoubtfulRows) -> tuple[_Floats | None, list[Doubt]]:
    """Return weights and threshold of a float64 rule with the accepted set of one of the cells.

    Also the boxes of those that accept other masses than their boxes say.
    """
    tried: set[bytes] = set()
    wrong: dict[int, Doubt] = {}
    for cell in cells:
        if id(cell.doubt) in wrong:
            continue
        accepted = AcceptedSet.of_cell(cell, rows)
        if accepted.masses != cell.masses:
            wrong[id(cell.doubt)] = cell.doubt
        elif accepted.key not in tried:
            tried.add(accepted.key)
            line = accepted.rule()
            if line is not None:
                return line, []
    return None, list(wrong.values())


def with_all_lines(doubt: Doubt, rows: DoubtfulRows) -> Doubt:
    """Return a box with the lines of all rows that cross it, and the masses of those below."""
    points = rows.frame.points(rows.scores)
    p, q = points[:, doubt.still], points[:, 1 - doubt.still]
    below, above = np.ones(len(points), bool), np.ones(len(points), bool)
    for t, low, high in zip(doubt.t, doubt.low, doubt.high, strict=True):
        below &= _at_most(doubt, t, low, p, q)
        above &= ~_at_most(doubt, t, high, p, q)
    crossing = ~(below | above)
    return doubt._replace(
        points=points[crossing],
        masses=rows.masses[:, crossing].T,
        below=rows.masses[:, below].sum(axis=1),
    )


def _at_most(doubt: Doubt, t: float, edge: float, p: _Floats, q: _Floats) -> _Bools:
    """Return which lines have a value at t that is no larger than one on an edge."""
    weights = Fraction(doubt.unit), Fraction(t) * Fraction(doubt.step)
    values, error = _weighted(weights, p, q)
    found: _Bools = values <= edge
    if abs(edge) < np.inf:
        close = np.abs(values - edge) <= error + DOUBT * abs(edge)
        for i in np.flatnonzero(close).tolist():
            found[i] = _exactly(weights, p[i], q[i]) <= edge
    return found


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
    """Rows that are accepted, and all directions in which these have the smallest values.

    Nothing here hangs on who found them. A direction is a pair of weights of points without their
    signs, the larger of them 1.
    """

    def __init__(self, inside: _Bools, signs: _Floats, rows: DoubtfulRows) -> None:
        self.inside, self._signs, self._rows = inside, signs, rows
        self.steps = 0
        self._points = rows.frame.points(rows.scores) * signs

    @classmethod
    def of_cell(cls, cell: ExactCell, rows: DoubtfulRows) -> AcceptedSet:
        """Return what the half-plane of a cell accepts in exact arithmetic."""
        doubt = cell.doubt
        signs = math.copysign(1.0, doubt.unit), math.copysign(1.0, doubt.step)
        nobody = np.zeros(len(rows.scores), bool)
        accepted = cls(nobody, np.array([signs[doubt.still], signs[1 - doubt.still]]), rows)
        weights = abs(Fraction(doubt.unit)), abs(Fraction(doubt.step)) * cell.t
        along = weights[doubt.still], weights[1 - doubt.still]
        values, error = accepted._values(along)
        v = _nearest(cell.v)
        apart = values - v
        accepted.inside = apart <= 0
        for i in np.flatnonzero(np.abs(apart) <= error + DOUBT * abs(v)).tolist():
            accepted.inside[i] = accepted._value(along, i) <= cell.v
        return accepted

    @classmethod
    def of_rule(cls, weights: _Floats, v: float, rows: DoubtfulRows) -> AcceptedSet:
        """Return what a rule accepts in float64."""
        return cls(_weigh(weights, rows.scores) <= v, np.copysign(1.0, weights), rows)

    @property
    def masses(self) -> tuple[int, ...]:
        """What is accepted."""
        return tuple(self._rows.masses[:, self.inside].sum(axis=1).tolist())

    @property
    def key(self) -> bytes:
        """What tells it from others."""
        return self.inside.tobytes() + self._signs.tobytes()

    def rule(self) -> _Floats | None:
        """Return weights and threshold of a float64 rule that accepts just these; None if none is.

        Sets that no half-plane accepts have none, whatever rounding does.
        """
        scores, inside = self._rows.scores, self.inside
        tried = np.array(list(dict.fromkeys(self._tried()))).reshape(-1, 2)
        many = max(1, _VALUES_AT_ONCE // len(scores))
        for start in range(0, len(tried), many):
            weights = self._rows.frame.weights(self._signs * tried[start : start + many])
            values = _weigh(weights.T[:, :, None], scores)
            last = values[:, inside].max(axis=1)
            following = values[:, ~inside].min(axis=1, initial=np.inf)
            for k in np.flatnonzero(last < following)[:1]:
                return np.array([*weights[k], midway(last[k], following[k])])
        return None

    def _tried(self) -> Iterator[tuple[float, float]]:
        """Yield directions between both ends of those that accept just these rows.

        They are spread over all of them, and come close to the lower end in steps of a quarter. So
        where float64 is certain of all rows in any direction, it is right in one of these: values
        change linearly, those of accepted rows are no larger than others at the end, and a quarter
        of their distance or more is left nearer to it, where rounding errors are no larger.
        """
        ends = self._ends()
        if ends is None:
            return
        for still in range(2):
            # The weight of the other score, where this one has its full weight.
            low, high = sorted(
                end[1 - still] / end[still] if end[still] else Fraction(2) for end in ends
            )
            high = min(high, Fraction(1))
            if low >= high:
                continue
            for share in _shares(low, high):
                yield (1.0, share) if still == 0 else (share, 1.0)

    def _ends(self) -> tuple[_Direction, _Direction] | None:
        """Return the two directions between which these rows have the smallest values.

        The gap between the largest value of these and the smallest of the others is concave along
        all directions: Newton's method ends at its zeros, from either side. None if it has none.
        """
        none, all_ = Fraction(0), Fraction(1)
        first, last = self._end((all_, none), 1), self._end((none, all_), 0)
        if first is None or last is None:
            return None
        return (first, last) if first[0] * last[1] > first[1] * last[0] else None

    def _end(self, end: _Direction, to: int) -> _Direction | None:
        """Return the first direction, from an axis to the other, without a row on the wrong side.

        None if some pair of rows stays in the wrong order.
        """
        while not self.inside.all():
            last = self._extreme(end, self.inside, 1)
            following = self._extreme(end, ~self.inside, -1)
            apart = [
                Fraction(float(b)) - Fraction(float(a))
                for a, b in zip(self._points[last], self._points[following], strict=True)
            ]
            if end[0] * apart[0] + end[1] * apart[1] >= 0:
                break
            if apart[to] <= 0:
                return None
            largest = max(abs(apart[0]), abs(apart[1]))
            end = abs(apart[1]) / largest, abs(apart[0]) / largest
        return end

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
        return _weighted(along, *self._points.T)

    def _value(self, along: _Direction, row: int) -> Fraction:
        self.steps += _STEPS_OF_A_VALUE
        return _exactly(along, *self._points[row])


_Direction = tuple[Fraction, Fraction]


def _weighted(weights: _Direction, x: _Floats, y: _Floats) -> tuple[_Floats, _Floats]:
    """Return weighted sums, and by how much they may be off."""
    p, q = (_nearest(weight) for weight in weights)
    with np.errstate(over="ignore"):
        a, b = p * x, q * y
        error = DOUBT * (np.abs(a) + np.abs(b)) + _TINY
    # Weights that are so small have fewer digits, or none.
    for weight, scores in ((p, x), (q, y)):
        if abs(weight) < _TINY:
            error += _SMALLEST * np.abs(scores)
    return a + b, error


def _exactly(weights: _Direction, x: float, y: float) -> Fraction:
    return weights[0] * Fraction(float(x)) + weights[1] * Fraction(float(y))


def _nearest(value: Fraction) -> float:
    """Return a fraction as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _shares(low: Fraction, high: Fraction) -> Iterator[float]:
    """Yield numbers from 0 to 1 between two: from the middle on, at the ends, towards the lower."""
    # Quotients of whole numbers are rounded once, as those of fractions, which take longer.
    bottom, top = low.numerator * high.denominator, high.numerator * low.denominator
    unit = _PARTS * low.denominator * high.denominator
    for k in _FROM_THE_MIDDLE:
        yield ((_PARTS - k) * bottom + k * top) / unit
    # Beyond narrow cells rounding may help, too.
    for end in dict.fromkeys([_nearest((low + high) / 2), _nearest(low), _nearest(high)]):
        yield from (share for share in _around(end) if 0 <= share <= 1)
    yield _nearest(low) ** 0.5 * _nearest(high) ** 0.5
    # As far as float64 tells them from each other.
    last, part = 2.0, (high - low) / 4
    while (share := _nearest(low + part)) < last:
        yield share
        last, part = share, part / 4


def _around(value: float) -> list[float]:
    """Return a float and its neighbours."""
    found = [value]
    for to in (-np.inf, np.inf):
        near = value
        for _ in range(_NEIGHBOURS):
            found.append(near := float(np.nextafter(near, to)))
    return found


def _weigh(weights: _Floats, scores: _Floats) -> _Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(reference.along(weights, *scores.T))
