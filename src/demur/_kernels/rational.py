"""What float64 cannot take apart, looked at in exact arithmetic.

Engines put boxes aside in which lines come within rounding errors of each other, or in which an
accepted set worth having found no place. Here all cells of such a box are listed in rational
numbers. A better accepted set is then either accepted by some float64 rule, which is found by
trying directions of its cell, or *unresolved*: counted, and the lower bound falls to its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels import exact
from demur._kernels.engines import Doubt, Frame, Outcome
from demur._kernels.exact import Linear

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

# Directions tried to find a rule for a cell.
_TRIED = 8
# Listing the cells of a box costs about the cube of its points; up to this much of it in all.
_WORK = 2_000_000


class DoubtfulRows(NamedTuple):
    """The points as rules see them: scores, and masses of shape (2 + sets + extra, n)."""

    scores: _Floats
    masses: _Ints
    frame: Frame


class Goal(NamedTuple):
    """Objective and bounds, as engines take them."""

    objective: _Ints
    per_id: bool
    min_id: int
    max_ood: _Ints
    ratio: _Ints
    linear: Linear | None

    def met(self, masses: _Ints) -> npt.NDArray[np.bool_]:
        """Return which columns of masses (ID, loss, OOD sets, extra) meet the bounds."""
        sets = masses[2 : 2 + len(self.max_ood)]
        bounds = max(1, self.min_id), self.max_ood, self.ratio
        met = exact.feasible(masses[0], sets, *bounds)
        if self.linear is not None:
            parts = [masses[0], masses[1], sets.sum(axis=0), *masses[2 + len(sets) :]]
            met &= exact.linear_met(self.linear, np.stack(parts))
        return met

    def best(self, masses: _Ints) -> _Ints:
        """Return the columns that none beats."""
        ood = masses[2 : 2 + len(self.max_ood)].sum(axis=0)
        return exact.best(masses[0], ood, masses[1], self.objective, self.per_id)

    def value(self, masses: _Ints) -> float:
        """Return the objective of masses, rounded."""
        loss, id_, ood = (int(c) for c in self.objective)
        total = loss * int(masses[1]) + id_ * int(masses[0])
        total += ood * int(masses[2 : 2 + len(self.max_ood)].sum())
        return float(Fraction(total, int(masses[0]) if self.per_id else 1))


class RationalCell(NamedTuple):
    """An accepted set of a box: how many of the lines in their order, and where."""

    accepted: tuple[int, ...]
    """Places of the points among those of the box."""
    places: list[tuple[Fraction, Fraction]]
    """Values of t with the height of the cell there."""


def settled(outcome: Outcome, rows: DoubtfulRows, goal: Goal) -> Outcome:
    """Return what a search found after its doubts were looked at exactly."""
    found, unresolved, bound = outcome, outcome.unresolved, outcome.lower_bound
    cells: list[tuple[Doubt, RationalCell]] = []
    work = 0.0
    for doubt in sorted(outcome.doubts, key=lambda doubt: doubt.merit):
        work += 30.0 + len(doubt.points) ** 3
        if work > _WORK:
            unresolved, bound = unresolved + 1, min(bound, doubt.merit)
        else:
            cells += [(doubt, cell) for cell in cells_of(doubt)]
    if cells:
        found, lost = _best_of(outcome, cells, rows, goal)
        unresolved += len(lost)
        bound = min([bound, *(goal.value(masses) for masses in lost)])
    status = found.status
    if len(found.v) and status != "budget":
        value = goal.value(np.array([found.id, found.loss, found.ood] + [0] * len(goal.max_ood)))
        bound = min(bound, value)
        if unresolved and bound < value and status == "optimal":
            status = "unresolved"
    return found._replace(status=status, lower_bound=bound, unresolved=unresolved, doubts=())


def _best_of(
    outcome: Outcome, cells: list[tuple[Doubt, RationalCell]], rows: DoubtfulRows, goal: Goal
) -> tuple[Outcome, list[_Ints]]:
    """Return the best of what was found and of cells; also masses that no rule was found for."""
    masses = np.stack(
        [doubt.below + doubt.masses[list(cell.accepted)].sum(axis=0) for doubt, cell in cells],
        axis=1,
    )
    kept = np.flatnonzero(goal.met(masses))
    lost: dict[bytes, _Ints] = {}
    known = np.zeros((len(masses), 1), np.int64)
    known[:3, 0] = outcome.id, outcome.loss, outcome.ood
    while len(kept):
        # The last column is the best known.
        columns = masses[:, kept]
        if len(outcome.v):
            columns = np.hstack([columns, known])
        winners = goal.best(columns)
        if winners[-1] == len(kept):
            break
        for winner in winners:
            doubt, cell = cells[kept[winner]]
            line = realised(doubt, cell, masses[:, kept[winner]], rows)
            if line is not None:
                best = masses[:, kept[winner]]
                ood = int(best[2 : 2 + len(goal.max_ood)].sum())
                status = "optimal" if outcome.status == "infeasible" else outcome.status
                better = outcome._replace(
                    weights=line[None, :2], v=line[2:], id=int(best[0]), ood=ood, loss=int(best[1])
                )
                better = better._replace(status=status, lower_bound=goal.value(best))
                return better, list(lost.values())
        for winner in winners:
            doubt, cell = cells[kept[winner]]
            which = doubt.points[list(cell.accepted)].tobytes() + doubt.below.tobytes()
            lost[which] = masses[:, kept[winner]]
        kept = np.delete(kept, winners)
    return outcome, list(lost.values())


def cells_of(doubt: Doubt) -> Iterator[RationalCell]:
    """Yield all accepted sets of the half-planes inside a box, in exact arithmetic."""
    p, q = doubt.points[:, doubt.still], doubt.points[:, 1 - doubt.still]
    u = [Fraction(doubt.unit) * Fraction(x) for x in p.tolist()]
    w = [Fraction(doubt.step) * Fraction(x) for x in q.tolist()]
    t0, t1 = (Fraction(t) for t in doubt.t)
    edges = [_line_through((t0, t1), ends) for ends in (doubt.low, doubt.high)]
    found: dict[tuple[int, ...], RationalCell] = {}
    order = list(range(len(u)))
    for start, end in _strips([*zip(u, w, strict=True), *edges], (t0, t1)):
        t = (start + end) / 2
        value = [a + t * b for a, b in zip(u, w, strict=True)]
        order.sort(key=value.__getitem__)
        low, high = (a + t * b for a, b in edges)
        ends = [low, *(min(max(value[i], low), high) for i in order), high]
        for k in range(len(order) + 1):
            height = ends[k + 1] - ends[k]
            if height > 0:
                chosen = tuple(sorted(order[:k]))
                cell = found.setdefault(chosen, RationalCell(chosen, []))
                cell.places.append((t, height))
                if start == 0:
                    # One score alone: whether it tells them apart is seen when it is tried.
                    cell.places.append((start, Fraction(0)))
    yield from found.values()


_Line = tuple[Fraction, Fraction]


def _line_through(t: _Line, ends: tuple[float, float]) -> _Line:
    # Where float64 overflowed, an edge is beyond all lines.
    a, b = (
        Fraction(v) if abs(v) < np.inf else Fraction(2) ** 4096 * (1 if v > 0 else -1) for v in ends
    )
    slope = (b - a) / (t[1] - t[0]) if t[1] > t[0] else Fraction(0)
    return a - slope * t[0], slope


def _strips(lines: list[_Line], t: _Line) -> Iterator[_Line]:
    """Yield the ranges of t between which no two lines meet."""
    meetings = {t[0], t[1]}
    for k, (a, b) in enumerate(lines):
        for c, d in lines[:k]:
            if b != d:
                meet = (c - a) / (b - d)
                if t[0] < meet < t[1]:
                    meetings.add(meet)
    ends = sorted(meetings)
    yield from pairwise(ends)


def realised(doubt: Doubt, cell: RationalCell, masses: _Ints, rows: DoubtfulRows) -> _Floats | None:
    """Return weights and threshold of a float64 rule with the masses of a cell; None if none is.

    The directions tried are those in which the cell is highest, one score alone, and what is next
    to them in float64.
    """
    places = sorted(cell.places, key=lambda place: -place[1])
    tried = [t for t, _ in places[: _TRIED // 2]] + [t for t, _ in places if t == 0][:1]
    directions: list[float] = []
    for t in tried:
        near = float(t)
        beside = float(np.nextafter(near, 2)), float(np.nextafter(near, -1))
        directions += [d for d in (near, *beside) if d >= 0]
    for share in dict.fromkeys(directions):
        weights = np.empty(2)
        weights[doubt.still], weights[1 - doubt.still] = doubt.unit, doubt.step * share
        line = _line_along(rows.frame.weights(weights), doubt, cell, masses, rows)
        if line is not None:
            return line
    return None


def _line_along(
    weights: _Floats, doubt: Doubt, cell: RationalCell, masses: _Ints, rows: DoubtfulRows
) -> _Floats | None:
    """Return the line of a direction that accepts just these masses."""
    inside = np.zeros(len(doubt.points), bool)
    inside[list(cell.accepted)] = True
    with np.errstate(over="ignore", invalid="ignore"):
        values = _weigh(weights, rows.scores)
        own = _weigh(weights, _scores_of(rows.frame, doubt.points))
    last, following = own[inside].max(initial=-np.inf), own[~inside].min(initial=np.inf)
    if not inside.any():
        last = values[values < following].max(initial=-np.inf)
    following = min(following, values[values > last].min(initial=np.inf))
    if not -np.inf < last < following:
        return None
    middle = last + (following - last) / 2
    threshold = middle if last <= middle < following else last
    accepted = values <= threshold
    same = all(
        int(row[accepted].sum()) == int(mass) for row, mass in zip(rows.masses, masses, strict=True)
    )
    return np.array([*weights, threshold]) if same else None


def _weigh(weights: _Floats, scores: _Floats) -> _Floats:
    return np.asarray(weights[0] * scores[:, 0] + weights[1] * scores[:, 1])


def _scores_of(frame: Frame, points: _Floats) -> _Floats:
    return np.asarray((points + np.array(frame.shift)) / np.array(frame.divisor))
