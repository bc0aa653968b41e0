"""What is minimised, and how good the cells inside a box can be at best.

With nI, nO, L the accepted masses and the value r of the best cell known, a cell is better
when ``F = cL*L + cO*nO - h*nI - r*(not per_id)`` is negative, h being ``r - cI`` for a quotient
and ``-cI`` for a sum. A box knows the masses accepted everywhere inside it and those of the
items that cross it. At best the crossing ID points that lower F are all accepted, the others
only as far as nI must still grow to meet its bound, and no crossing OOD point is.

Points whose loss is below ``h`` per ID mass lower F; they are called cheap. Which points are
cheap is settled once, for an h at least as large as any later one, so that the cheap masses
can be added up in the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels import tree as trees
from demur._kernels.tree import ID, LOSS, OOD, Tree

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Sums of a few float64 products are off by less than this, relative to their terms.
_ROUNDING = 2.0**-46


class Problem(NamedTuple):
    """A program in float64; see `demur.core.program`."""

    loss: float
    id: float
    ood: float
    per_id: bool
    min_id: int
    max_ood: _Floats
    ratio: _Floats

    def value(self, id: _Floats, loss: _Floats, ood: _Floats) -> _Floats:
        """Return the objective, rounded; `ood` is the mass of all sets."""
        total = self.loss * loss + self.id * id + self.ood * ood
        return total / id if self.per_id else total

    def gain(self, value: float) -> float:
        """Return by how much a unit of ID mass lowers F when the best value is `value`."""
        return value - self.id if self.per_id else -self.id

    def allows(self, id: _Floats, ood: _Floats) -> _Bools:
        """Return where bounds can hold with ID mass `id` and OOD masses `ood`, rounding aside."""
        met = id >= self.min_id
        for accepted, largest, (a, b) in zip(ood, self.max_ood, self.ratio, strict=True):
            met &= accepted <= largest
            if b > 0:
                met &= a * id >= b * accepted * (1 - _ROUNDING)
        return met


class Best(NamedTuple):
    """The best cell known: its value and masses."""

    value: float
    id: int
    ood: int
    loss: int


class Cheap(NamedTuple):
    """Masses of the points that can lower the objective."""

    id: _Floats
    loss: _Floats
    dearest: float
    """Largest loss per ID mass among them, times its coefficient."""
    next: float
    """Smallest loss per ID mass among the others, times its coefficient."""


def cheap_masses(tree: Tree, problem: Problem, gain: float) -> Cheap:
    """Add up ID and loss mass of the points that are cheap at `gain`."""
    n = tree.points
    id, loss = tree.mass[ID, :n], tree.mass[LOSS, :n]
    held = np.flatnonzero(id > 0)
    price = np.full(n, np.inf)
    price[held] = problem.loss * loss.take(held) / id.take(held)
    cheap = price < gain
    sums = np.zeros((2, tree.level[-1]))
    sums[0, :n] = id * cheap
    sums[1, :n] = loss * cheap
    for row in sums:
        trees.add_up(row, tree.level)
    dearest = price[cheap].max(initial=0.0)
    return Cheap(sums[0], sums[1], float(dearest), float(price[~cheap].min(initial=np.inf)))


class Bound(NamedTuple):
    """Which boxes can still matter, and a lower bound on the value of their cells."""

    alive: _Bools
    value: _Floats


def judge(
    problem: Problem,
    cheap: Cheap,
    best: Best | None,
    accepted: _Floats,
    crossing: _Floats,
    *,
    ties: bool,
    slack: float,
) -> Bound:
    """Judge boxes by accepted masses (as in `Tree.mass`) and crossing (ID, cheap ID, cheap loss).

    A box matters if it may hold a better cell than `best` by more than `slack`, or, without
    slack, a tied one with larger nI, or smaller nO, or, with `ties`, the same.
    """
    most = accepted[ID] + crossing[0]
    possible = problem.allows(most, accepted[OOD:])
    if best is None:
        return Bound(possible, np.full(len(most), -np.inf))
    bound, error = _bounds(problem, cheap, best.value, accepted, crossing)
    least = bound(problem.min_id)
    value = np.where(possible, best.value + _per(problem, least - error, accepted), np.inf)
    if slack > 0:
        return Bound(possible & (value < best.value - slack), value)
    # Values differ by at least this much, unless rounding blurs them.
    step = 1 / best.id if problem.per_id else 1.0
    better = least <= np.where(error < step / 4, -step / 2, error)
    nO = accepted[OOD:].sum(axis=0)
    level = nO <= best.ood if ties else nO < best.ood
    better |= (bound(best.id + 1) <= error) & (most > best.id)
    better |= (bound(best.id) <= error) & (most >= best.id) & level
    return Bound(possible & better, value)


def _bounds(
    problem: Problem, cheap: Cheap, value: float, accepted: _Floats, crossing: _Floats
) -> tuple[Callable[[int], _Floats], _Floats]:
    """Return a lower bound on F, given that nI reaches some mass, and its rounding error."""
    h = problem.gain(value)
    fixed = 0.0 if problem.per_id else -value
    paid = problem.loss * accepted[LOSS]
    if problem.ood:
        paid = paid + problem.ood * accepted[OOD:].sum(axis=0)
    gained = h * accepted[ID]
    _, cheap_id, cheap_loss = crossing
    # At an h below the dearest cheap price some of them no longer pay: bound them one by one.
    cost, worth = problem.loss * cheap_loss, max(h, cheap.dearest) * cheap_id
    willing = paid - gained + fixed + np.maximum(cost - worth, -h * cheap_id)
    held = accepted[ID] + cheap_id
    price = cheap.next - h if np.isfinite(cheap.next) else 0.0

    def bound(min_id: int) -> _Floats:
        return np.asarray(willing + price * np.maximum(min_id - held, 0))

    terms = paid + gained + abs(fixed) + cost + worth
    return bound, _ROUNDING * (terms + price * np.maximum(problem.min_id - held, 0))


def _per(problem: Problem, least: _Floats, accepted: _Floats) -> _Floats:
    """Turn a bound on F into one on the difference of the objective."""
    if not problem.per_id:
        return least
    return np.asarray(np.minimum(least, 0) / np.maximum(accepted[ID], problem.min_id))
