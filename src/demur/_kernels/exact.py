"""What is decided exactly: the tie policy on integers, and what float64 cannot take apart.

The smaller objective is better, then the larger ID mass, then the smaller OOD mass, then the
smaller loss mass. This is the only place that knows that order; everything that picks, sorts or
compares operating points calls it. Masses are compared in float64 wherever that provably gives
the order of the integers; what it cannot decide is decided on Python's integers, one by one.

Engines put boxes aside in which lines come within rounding errors of each other, or in which an
accepted set worth having found no place. Here all cells of such a box are listed in rational
numbers. A better accepted set is then either accepted by some float64 rule, which is found by
trying directions of its cell, or *unresolved*: counted, and the lower bound falls to its value.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from demur._kernels.engines import Doubt, Frame, Outcome

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Differences below this, relative to the terms compared, are decided on integers.
_DOUBT = 16 * np.finfo(np.float64).eps


class Linear(NamedTuple):
    """Bounds ``coefficients . (nI, L, sum(nO), *extra) >= least``; see `demur.core.program`.

    `extra` are masses of parts of the rows, such as the ID rows of a group.
    """

    coefficients: _Ints
    """Shape (bounds, 3 + extra)."""
    least: _Ints
    hope: _Ints
    """Shape (bounds, 2 + extra): what a unit of ID, loss and extra mass that may or may not be
    accepted adds at best."""

    @property
    def extra(self) -> int:
        """How many masses there are beside ID, loss and OOD."""
        return int(self.hope.shape[1]) - 2


def linear_close(linear: Linear, masses: _Floats) -> _Bools:
    """Return where linear bounds hold or fail by no more than rounding."""
    met = np.ones(masses.shape[1], bool)
    for coefficients, least in zip(linear.coefficients, linear.least, strict=True):
        used = np.flatnonzero(coefficients)
        terms = coefficients[used, None].astype(np.float64) * masses[used]
        size = np.abs(terms).sum(axis=0) + abs(float(least))
        met &= terms.sum(axis=0) - float(least) >= -_DOUBT * size
    return met


def linear_met(linear: Linear, masses: _Ints) -> _Bools:
    """Return where linear bounds hold for masses (nI, L, sum(nO), *extra), shape (3 + extra, n)."""
    met = np.ones(masses.shape[1], bool)
    for coefficients, least in zip(linear.coefficients, linear.least, strict=True):
        used = np.flatnonzero(coefficients)
        terms = coefficients[used, None].astype(np.float64) * masses[used]
        value = terms.sum(axis=0) - float(least)
        size = np.abs(terms).sum(axis=0) + abs(float(least))
        holds = value >= 0
        if size.max(initial=0) >= 2.0**53:
            for i in np.flatnonzero(np.abs(value) <= _DOUBT * size):
                exactly = sum(int(coefficients[k]) * int(masses[k, i]) for k in used)
                holds[i] = exactly >= int(least)
        met &= holds
    return met


def feasible(nI: _Ints, nO: _Ints, min_id: int, max_ood: _Ints, ratio: _Ints) -> _Bools:
    """Return where all bounds hold: nI >= min_id, nO <= max_ood and a*nI >= b*nO per set.

    `nI` has shape (n,), `nO` (sets, n), `max_ood` (sets,), `ratio` (sets, 2).
    """
    met = nI >= min_id
    for accepted, largest, (a, b) in zip(nO, max_ood, ratio, strict=True):
        met &= accepted <= largest
        if b > 0:
            met &= products_ordered(int(b), accepted, int(a), nI)
    return met


def products_ordered(a: int, p: _Ints, b: int, q: _Ints) -> _Bools:
    """Return where a*p <= b*q."""
    left, right = float(a) * p, float(b) * q
    met: _Bools = left <= right
    if max(left.max(initial=0), right.max(initial=0)) >= 2.0**53:
        close = np.flatnonzero(np.abs(left - right) <= _DOUBT * np.maximum(left, right))
        for i in close:
            met[i] = a * int(p[i]) <= b * int(q[i])
    return met


def best(nI: _Ints, nO: _Ints, L: _Ints, objective: _Ints, per_id: bool) -> _Ints:
    """Return the indices of all rows equal in (objective, nI, nO, L) that no row beats.

    The objective is ``(objective . (L, nI, nO)) / (nI if per_id else 1)``, smaller is better,
    then the larger nI, then the smaller nO, then the smaller L. `nO` is the OOD mass of all sets
    together.
    """
    if len(nI) == 0:
        return np.empty(0, np.int64)
    loss, id_, ood = (int(c) for c in objective)
    terms = np.abs(float(loss)) * L + np.abs(float(id_)) * nI + np.abs(float(ood)) * nO
    value = float(loss) * L + float(id_) * nI + float(ood) * nO
    denominator = nI.astype(np.float64) if per_id else np.ones(len(nI))
    value, error = value / denominator, _DOUBT * terms / denominator
    if _float_is_exact(terms, nI, per_id):
        kept = np.flatnonzero(value == value.min())
    else:
        close = np.flatnonzero(value - error <= (value + error).min())
        kept = _smallest_exactly(close, nI, nO, L, (loss, id_, ood), per_id)
    kept = kept[nI[kept] == nI[kept].max()]
    kept = kept[nO[kept] == nO[kept].min()]
    tied: _Ints = kept[L[kept] == L[kept].min()]
    return tied


def _float_is_exact(terms: _Floats, nI: _Ints, per_id: bool) -> bool:
    largest = float(terms.max())
    return quotients_are_exact(largest, float(nI.max())) if per_id else largest < 2.0**53


def quotients_are_exact(numerator: float, denominator: float) -> bool:
    """Return whether float64 tells all quotients up to these integers apart, in their order."""
    # Integers below 2**53 are floats. Two different quotients a/b, c/d are at least 1/(b*d)
    # apart, relative to a/b at least 1/(a*d): below 2**52 they round to different floats.
    return numerator * denominator < 2.0**52


def _smallest_exactly(
    rows: _Ints, nI: _Ints, nO: _Ints, L: _Ints, objective: tuple[int, int, int], per_id: bool
) -> _Ints:
    loss, id_, ood = objective
    smallest: tuple[int, int] | None = None
    kept: list[int] = []
    for i in rows:
        p = loss * int(L[i]) + id_ * int(nI[i]) + ood * int(nO[i])
        q = int(nI[i]) if per_id else 1
        if smallest is None or p * smallest[1] < smallest[0] * q:
            smallest, kept = (p, q), [int(i)]
        elif p * smallest[1] == smallest[0] * q:
            kept.append(int(i))
    return np.array(kept, np.int64)


def best_first(nI: _Ints, nO: _Ints, L: _Ints) -> _Ints:
    """Return the rows from the best to the worst, the objective being L/nI, all nI positive."""
    value = L / nI
    order: _Ints = np.lexsort((nO, -nI, value))
    if quotients_are_exact(float(L.max(initial=0)), float(nI.max(initial=0))):
        return order
    ascending = value[order]
    apart = np.flatnonzero(np.diff(ascending) > _DOUBT * ascending[1:]) + 1
    edges = np.concatenate([[0], apart, [len(order)]])
    for i in np.flatnonzero(np.diff(edges) > 1):
        close = slice(edges[i], edges[i + 1])
        if ascending[close][-1] > 0:
            order[close] = sorted(
                order[close], key=lambda r: (Fraction(int(L[r]), int(nI[r])), -nI[r], nO[r])
            )
    return order


def ranks(nI: _Ints, nO: _Ints, L: _Ints) -> _Ints:
    """Return the place of each row from the best, 0, to the worst; equal rows share a place."""
    order = best_first(nI, nO, L)
    # Equal quotients with equal denominators have equal numerators.
    masses = np.stack([nI, nO, L])[:, order]
    worse = (masses[:, 1:] != masses[:, :-1]).any(axis=0)
    place = np.zeros(len(order), np.int64)
    place[order[1:]] = np.cumsum(worse)
    return place


def may_beat(
    masses: tuple[_Ints, _Ints, _Ints], rivals: tuple[_Ints, _Ints, _Ints], *, is_exact: bool
) -> _Bools:
    """Return False only where a row (nI, nO, L) does not beat its rival, the objective being L/nI.

    A rival with no ID mass is none. `is_exact` is what `quotients_are_exact` says of all of them.
    """
    (nI, nO, L), (rival_id, rival_ood, rival_loss) = masses, rivals
    value, rival_value = L / nI, np.full(len(rival_id), np.inf)
    np.divide(rival_loss, rival_id, out=rival_value, where=rival_id > 0)
    certain = is_exact | (L == 0)
    doubt = np.where(certain, 0.0, _DOUBT * value)
    tied_better = (nI > rival_id) | ((nI == rival_id) & (nO < rival_ood))
    different = (nI != rival_id) | (rival_loss != L)
    tied = np.abs(value - rival_value) <= doubt
    better: _Bools = tied & (tied_better | (different & ~certain))
    better |= value < rival_value - doubt
    return better


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
        met = feasible(masses[0], sets, *bounds)
        if self.linear is not None:
            parts = [masses[0], masses[1], sets.sum(axis=0), *masses[2 + len(sets) :]]
            met &= linear_met(self.linear, np.stack(parts))
        return met

    def best(self, masses: _Ints) -> _Ints:
        """Return the columns that none beats."""
        ood = masses[2 : 2 + len(self.max_ood)].sum(axis=0)
        return best(masses[0], ood, masses[1], self.objective, self.per_id)

    def least(self, masses: _Ints) -> float:
        """Return what no accepted set falls below: the objective of the best single row."""
        loss, id_, ood = (int(c) for c in self.objective)
        rows = np.flatnonzero(masses[0])
        if not self.per_id or id_ or ood < 0 or loss < 0 or len(rows) == 0:
            return -np.inf
        share = masses[1, rows] / masses[0, rows]
        close = rows[share <= share.min() * (1 + _DOUBT)]
        return float(loss * min(Fraction(int(masses[1, i]), int(masses[0, i])) for i in close))

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
    # Boxes that were given up are bounded by what crosses them, which may be less than nothing.
    bound = max(bound, goal.least(rows.masses))
    status = found.status
    if len(found.v) and status != "budget":
        value = goal.value(np.array([found.id, found.loss, found.ood] + [0] * len(goal.max_ood)))
        bound = min(bound, value)
        if unresolved and bound < value and status == "optimal":
            status = "unresolved"
    return found._replace(status=status, lower_bound=float(bound), unresolved=unresolved, doubts=())


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
