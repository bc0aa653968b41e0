"""What is minimised, and how good the half-planes inside a box can be at best.

With nI, nO, L the accepted masses and the value r of the best half-plane known, a half-plane is
better when ``F = cL*L + cO*nO - h*nI - r*(not per_id)`` is negative, h being ``r - cI`` for a
quotient and ``-cI`` for a sum. A box knows the masses accepted everywhere inside it and those of
what crosses it. At best the crossing ID points that lower F are all accepted, the others only as
far as nI must still grow to meet its bound, and no crossing OOD point is.

Points whose loss per ID mass is below a price are called cheap. Which points are cheap is settled
once, so that the cheap masses can be added up in a tree, or counted in cells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.exact import Goal, Linear
from demur._kernels.numpy_engine import tree as trees
from demur._kernels.numpy_engine.tree import ID, LOSS, OOD, Tree

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Sums of a few float64 products are off by less than this, relative to their terms.
_ROUNDING = 2.0**-46


class Problem(NamedTuple):
    """A program in float64, which bounds are made of, and in integers, which decide."""

    loss: float
    id: float
    ood: float
    per_id: bool
    min_id: int
    max_ood: _Floats
    ratio: _Floats
    goal: Goal
    """The same in integers, and linear bounds."""

    @classmethod
    def of(cls, goal: Goal) -> Problem:
        """Take what is searched for; at least one ID mass must be accepted."""
        goal = goal.of_some_id()
        loss, id_, ood = (float(c) for c in goal.objective)
        bounds = goal.max_ood.astype(np.float64), goal.ratio.astype(np.float64)
        return cls(loss, id_, ood, goal.per_id, goal.min_id, *bounds, goal)

    @property
    def linear(self) -> Linear | None:
        """The linear bounds, if there are any."""
        return self.goal.linear

    @property
    def sets(self) -> slice:
        """Where in the rows of a tree's masses the OOD sets are."""
        return slice(OOD, OOD + len(self.max_ood))

    def ignores_ood(self, total: _Floats) -> bool:
        """Return whether no bound and no cost is about OOD mass, given all masses there are."""
        met = (total[self.sets] <= self.max_ood).all() and not self.ratio[:, 1].any()
        return bool(met) and self.ood == 0 and self.linear is None

    @property
    def counted(self) -> tuple[int, ...]:
        """Rows of a tree's masses of which linear bounds want to know what crosses."""
        if self.linear is None:
            return ()
        return LOSS, *range(self.sets.stop, self.sets.stop + self.linear.extra)

    def linear_masses(self, mass: _Floats) -> _Floats:
        """Return what linear bounds are about, (nI, L, nO, *extra), of rows of masses."""
        extra = mass[self.sets.stop :]
        return np.stack([mass[ID], mass[LOSS], mass[self.sets].sum(axis=0), *extra])

    def hopes(self, masses: BoxMasses) -> _Bools:
        """Return in which boxes linear bounds can hold, rounding aside."""
        linear = self.linear
        hopeful = np.ones(np.shape(masses.id), bool)
        if linear is None:
            return hopeful
        certain = [masses.id, masses.loss, masses.ood.sum(axis=0), *masses.extra]
        crossing = [masses.crossing_id, *masses.counted]
        for row, least, hope in zip(*linear, strict=True):
            value, size = -float(least), abs(float(least))
            for coefficients, parts in ((row, certain), (hope, crossing)):
                for k in np.flatnonzero(coefficients):
                    term = float(coefficients[k]) * parts[k]
                    value, size = value + term, size + abs(term)
            hopeful &= value >= -_ROUNDING * size
        return hopeful

    def value(self, id: Any, loss: Any, ood: Any) -> Any:
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

    def step(self, best: Best) -> float:
        """Return the least gain over `best`: F nearer to zero than half of it is none.

        Unless rounding blurs it, that is.
        """
        return 1 / best.id if self.per_id else 1.0


class Best(NamedTuple):
    """The best half-plane known: its value and masses."""

    value: float
    id: int
    ood: int
    loss: int


class Prices(NamedTuple):
    """Loss per ID mass, times its coefficient, on either side of what is cheap."""

    dearest: float
    """No cheap point has a larger one."""
    next: float
    """No other point has a smaller one."""


class Cheap(NamedTuple):
    """Masses of the points of a tree that can lower the objective."""

    id: _Floats
    loss: _Floats
    prices: Prices
    counted: tuple[int, ...] = ()
    """Rows of the tree's masses of which it also matters what crosses a box."""


def cheap_masses(tree: Tree, problem: Problem, gain: float) -> Cheap:
    """Add up ID and loss mass of the points that are cheap at `gain`.

    It must be at least as large as any later gain.
    """
    n = tree.points
    id, loss = tree.mass[ID, :n], tree.mass[LOSS, :n]
    held = np.flatnonzero(id > 0)
    price = np.full(n, np.inf)
    price[held] = problem.loss * loss.take(held) / id.take(held)
    cheap = price < gain
    sums = np.zeros((2, tree.level[-1]))
    sums[0, :n] = id * cheap
    sums[1, :n] = loss * cheap
    trees.fill_up(sums, tree.level, np.add)
    dearest = float(price[cheap].max(initial=0.0))
    prices = Prices(dearest, float(price[~cheap].min(initial=np.inf)))
    return Cheap(sums[0], sums[1], prices, problem.counted)


class BoxMasses(NamedTuple):
    """Masses that all half-planes of a box accept, and those of what crosses it.

    Numbers for one box, arrays for many.
    """

    id: Any
    loss: Any
    ood: Any
    """Shape (sets,) or (sets, boxes)."""
    crossing_id: Any
    cheap_id: Any
    """Of what crosses."""
    cheap_loss: Any
    extra: Any = ()
    """Shape (extra,) or (extra, boxes): as in `Linear`."""
    counted: Any = ()
    """Crossing loss and crossing extra mass, where there are linear bounds."""


class LowerBound(NamedTuple):
    """A lower bound on F over boxes, depending on the ID mass to be reached."""

    willing: Any
    """The bound when no ID mass is asked for."""
    held: Any
    """ID mass that is then accepted."""
    price: float
    """What each unit beyond adds to F."""
    next: float
    terms: Any
    """Sum of the sizes of all terms."""
    larger: Callable[..., Any]

    def least(self, min_id: int) -> Any:
        """Return a lower bound on F given nI >= min_id."""
        return self.willing + self.price * self.larger(min_id - self.held, 0)

    def error(self, min_id: int) -> Any:
        """Return how far rounding may put it off."""
        return _ROUNDING * (self.terms + self.next * self.larger(min_id - self.held, 0))


def lower_bound(
    problem: Problem,
    value: float,
    prices: Prices,
    masses: BoxMasses,
    larger: Callable[..., Any] = np.maximum,
) -> LowerBound:
    """Return how small F can be in boxes; `larger` is `max` for a single one."""
    h = problem.gain(value)
    fixed = 0.0 if problem.per_id else -value
    paid = problem.loss * masses.loss
    if problem.ood:
        paid = paid + problem.ood * masses.ood.sum(axis=0)
    gained, cheap_id = h * masses.id, masses.cheap_id
    # At an h below the dearest cheap price some of them no longer pay: bound them one by one.
    cost, worth = problem.loss * masses.cheap_loss, max(h, prices.dearest) * cheap_id
    willing = paid - gained + fixed + larger(cost - worth, -h * cheap_id)
    terms = paid + gained + abs(fixed) + cost + worth
    if h > prices.next:
        # Points that are not cheap may also pay.
        rest = masses.crossing_id - cheap_id
        willing, terms = willing - (h - prices.next) * rest, terms + h * rest
    needed = prices.next if h <= prices.next < np.inf else 0.0
    price = needed - h if needed else 0.0
    return LowerBound(willing, masses.id + cheap_id, price, needed, terms, larger)


class Verdict(NamedTuple):
    """Which boxes can still matter, and a lower bound on the value of their half-planes."""

    alive: _Bools
    value: _Floats


def judge(
    problem: Problem,
    prices: Prices,
    best: Best | None,
    masses: BoxMasses,
    *,
    ties: bool,
    slack: float,
) -> Verdict:
    """Judge boxes by their masses.

    A box matters if it may hold a better half-plane than `best` by more than `slack`, or,
    without slack, a tied one with larger nI, or smaller nO, or, with `ties`, the same.
    """
    most = masses.id + masses.crossing_id
    possible = problem.allows(most, masses.ood)
    if problem.linear is not None:
        possible &= problem.hopes(masses)
    if best is None:
        return Verdict(possible, np.full(len(most), -np.inf))
    bound = lower_bound(problem, best.value, prices, masses)
    least, error = bound.least(problem.min_id), bound.error(problem.min_id)
    value = np.where(possible, best.value + _per(problem, least - error, masses), np.inf)
    if slack > 0:
        return Verdict(possible & (value < best.value - slack), value)
    step = problem.step(best)
    better = least <= np.where(error < step / 4, -step / 2, error)
    nO = masses.ood.sum(axis=0)
    level = nO <= best.ood if ties else nO < best.ood
    better |= (bound.least(best.id + 1) <= error) & (most > best.id)
    better |= (bound.least(best.id) <= error) & (most >= best.id) & level
    return Verdict(possible & better, value)


def _per(problem: Problem, least: _Floats, masses: BoxMasses) -> _Floats:
    """Turn a bound on F into one on the difference of the objective."""
    if not problem.per_id:
        return least
    return np.asarray(np.minimum(least, 0) / np.maximum(masses.id, problem.min_id))
