"""What cells of boxes can hold: which box is best so far, and which cells may hold a better one.

A cell is judged by the masses below its low corner, which all its boxes accept, and those below its
high corner, beyond which none of them reaches. Judged in float64, with room for rounding; which
box is better is decided by `demur._kernels.exact` on integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.exact import Goal

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# So many tied boxes are compared by their margin.
TIED = 1024
# Strips of an axis, as in csrc/strips.h, and rows from which their edges are taken.
STRIPS = 128
_LOOKED_AT = 8192
_EPS = float(np.finfo(np.float64).eps)


class AxisMasses(NamedTuple):
    """Masses of rows, or of points that stand for several of them."""

    id: _Ints
    ood: _Ints
    """Shape (sets, n)."""
    loss: _Ints
    extra: _Ints | None
    """Shape (parts, n): those that linear bounds are about."""
    zero_one: bool
    """Whether the loss of every row is none, or as much as its ID mass."""


@dataclass(slots=True)
class BestBox:
    """The best boxes so far, by their high ranks."""

    id: int = 0
    ood: int = 0
    loss: int = 0
    ranks: _Ints | None = None

    def value(self, goal: Goal) -> tuple[int, int]:
        """Return numerator and denominator of the objective."""
        return goal.quotient(self.id, self.ood, self.loss)

    def offer(self, ranks: _Ints, nI: _Ints, nO: _Ints, L: _Ints, goal: Goal) -> None:
        """Take boxes that are feasible: the best of them, if none known is better."""
        if self.ranks is not None:
            nI, nO, L = (
                np.append(masses, known)
                for masses, known in ((nI, self.id), (nO, self.ood), (L, self.loss))
            )
        kept = goal.best(nI, nO, L)
        if len(kept) == 0:
            return
        self.id, self.ood, self.loss = int(nI[kept[0]]), int(nO[kept[0]]), int(L[kept[0]])
        found = ranks[kept[kept < len(ranks)]]
        if self.ranks is not None and kept[-1] == len(ranks):
            found = np.vstack([self.ranks, found])
        self.ranks = found[:TIED]


class Welcome(NamedTuple):
    """What crossing rows can take off the best objective, and with how much ID mass."""

    taken: _Floats
    id: _Floats
    penalty: float = 0.0
    """What a unit of other ID mass would add at least."""


@dataclass(slots=True)
class CellJudge:
    """Judges cells by the masses below their corners: ID, loss, OOD of each set, extra ones."""

    goal: Goal
    sets: int
    rows: int
    """How many have been added up: so large may rounding be."""
    gap: float = 0.0
    best: BestBox = field(default_factory=lambda: BestBox())

    @property
    def doubt(self) -> float:
        """How large rounding is at most, relative to the size of all terms."""
        return _EPS * (4096 + 2 * self.rows)

    def still_open(self, hope: _Floats, size: float) -> _Bools:
        """Return which cells may hold a box better than the best, which may be new.

        `size` is that of the objective's terms.
        """
        if self.best.ranks is None:
            return np.ones(len(hope), bool)
        total, per = self.best.value(self.goal)
        # Quotients are of sums without a sign; other objectives may cancel to next to nothing.
        size = abs(total / per) if self.goal.per_id else size
        return hope <= total / per - self.gap + self.doubt * size

    def offer(self, ranks: tuple[_Ints, _Ints], masses: _Ints) -> None:
        """Take those of some boxes that are feasible; `masses` has a column for each.

        `ranks` are the last ones that they accept.
        """
        goal, sets = self.goal, self.sets
        nI, L, nO = masses[0], masses[1], masses[2 : 2 + sets]
        met = goal.met(nI, nO, L, masses[2 + sets :])
        total = nO.sum(axis=0)
        # Two limits that no row meets are no box.
        met &= (nI > 0) if goal.per_id else (nI > 0) | (total > 0)
        found = np.flatnonzero(met)
        if len(found) == 0:
            return
        taken = np.column_stack([rank[found] for rank in ranks])
        self.best.offer(taken, nI[found], total[found], L[found], goal)

    def welcome(self, low: _Floats, high: _Floats) -> Welcome:
        """Return what crossing rows are worth if each has no loss, or as much as ID mass."""
        loss, id_, _ = self.weights()
        right, wrong = id_, loss + id_
        crossing_loss = high[1] - low[1]
        correct = high[0] - low[0] - crossing_loss
        return Welcome(
            min(right, 0.0) * correct + min(wrong, 0.0) * crossing_loss,
            correct * (right <= 0) + crossing_loss * (wrong <= 0),
            max(0.0, min(wrong, right) if right > 0 else wrong),
        )

    def weights(self) -> tuple[float, float, float]:
        """Return what a unit of loss and ID mass is worth, the best box being worth 0."""
        loss, id_, _ = (float(c) for c in self.goal.objective)
        if not self.goal.per_id or self.best.ranks is None:
            return loss, id_, 1.0
        total, per = self.best.value(self.goal)
        return loss * per, id_ * per - float(total), float(per)

    def judge(self, low: _Floats, high: _Floats, crossing: Welcome) -> tuple[_Floats, _Bools]:
        """Return the least objective a part may hold, and whether it may hold a better box."""
        goal, sets = self.goal, self.sets
        possible = self._possible(low, high)
        # Parts that no row crosses are known by their largest box.
        possible &= (high[: 2 + sets] > low[: 2 + sets]).any(axis=0)
        if self.best.ranks is None:
            return np.full(low.shape[1:], -np.inf), possible
        loss, id_, per = self.weights()
        taken, with_id, penalty = crossing
        ood = float(goal.objective[2]) * per
        certain_ood = low[2 : 2 + sets].sum(axis=0)
        least = loss * low[1] + id_ * low[0] + ood * certain_ood + taken
        reachable = low[0] + with_id
        if penalty:
            least += penalty * np.maximum(goal.min_id - reachable, 0.0)
            reachable = np.maximum(reachable, goal.min_id)
        total, denominator = self.best.value(goal)
        size = (
            abs(loss) * high[1].max()
            + abs(id_) * high[0].max()
            + ood * high[2 : 2 + sets].sum(0).max()
        )
        if not goal.per_id:
            least -= float(total)
            size += abs(float(total))
        doubt = 0.0 if size < 2.0**53 else self.doubt * size
        smallest = np.maximum(np.maximum(low[0], goal.min_id), 1.0)
        scale = per * smallest if goal.per_id else 1.0
        hope = total / denominator + np.minimum(least - doubt, 0.0) / scale
        if self.gap:
            return hope, possible & (hope < total / denominator - self.gap)
        kept = least < 0 if doubt == 0 else least <= doubt
        if doubt == 0:
            tied = least == 0
            more = reachable > self.best.id
            alike = (reachable >= self.best.id) & (certain_ood <= self.best.ood)
            kept |= tied & (more | alike)
        return hope, possible & kept

    def _possible(self, low: _Floats, high: _Floats) -> _Bools:
        """Return where a part may hold a box that is feasible."""
        goal, sets = self.goal, self.sets
        possible: _Bools = high[0] >= max(goal.min_id, int(goal.per_id))
        for accepted, most, (a, b) in zip(low[2 : 2 + sets], goal.max_ood, goal.ratio, strict=True):
            possible &= accepted <= most
            if b > 0:
                possible &= float(b) * accepted <= float(a) * high[0] * (1 + self.doubt)
        linear = goal.linear
        if linear is None:
            return possible
        total = low[2 : 2 + sets].sum(axis=0)
        certain = [low[0], low[1], total, *low[2 + sets :]]
        crossing = [high[k] - low[k] for k in (0, 1, *range(2 + sets, len(low)))]
        for terms, least, hope in zip(linear.coefficients, linear.least, linear.hope, strict=True):
            value, size = np.full(total.shape, -float(least)), abs(float(least))
            for weight, mass in (
                *zip(terms, certain, strict=True),
                *zip(hope, crossing, strict=True),
            ):
                if weight:
                    value += float(weight) * mass
                    size += abs(float(weight)) * mass.max(initial=0)
            possible &= value >= (0.0 if size < 2.0**53 else -self.doubt * size)
        return possible


def strip_edges(scores: _Floats) -> _Floats:
    """Return the last scores of strips with about as many rows each, the last being infinity.

    Shape (2, strips).
    """
    edges = np.full((scores.shape[1], STRIPS), np.inf)
    if len(scores) == 0:
        return edges
    seen = np.sort(scores[:: max(1, len(scores) // _LOOKED_AT)], axis=0)
    places = np.arange(1, STRIPS) * len(seen) // STRIPS
    for edge, column in zip(edges, seen.T, strict=True):
        distinct = np.unique(column[places])
        edge[: len(distinct)] = distinct
    return edges


def accumulate(tables: _Floats) -> None:
    """Make of masses at places, the last two axes, those at or below them."""
    np.cumsum(tables, axis=-2, out=tables)
    np.cumsum(tables, axis=-1, out=tables)


def open_cells(
    tables: _Ints, judge: CellJudge, welcome: Callable[[], Welcome] | None = None
) -> _Bools:
    """Return which cells of a grid may hold a box better than the best between cells.

    Or as good a one; the judge's best boxes become those between cells.

    `tables`, shape (columns, strips, strips), are the masses of the cells. `welcome` tells what
    rows that cross each are worth, where losses are not none or all of the ID mass.
    """
    columns, across, up = tables.shape
    below = np.zeros((columns, across + 1, up + 1))
    below[:, 1:, 1:] = tables
    accumulate(below)
    low, high = below[:, :-1, :-1], below[:, 1:, 1:]
    rank = np.indices((across, up)).reshape(2, -1)
    judge.offer((rank[0], rank[1]), high.reshape(columns, -1).astype(np.int64))
    crossing = judge.welcome(low, high) if welcome is None else welcome()
    return judge.judge(low, high, crossing)[1]
