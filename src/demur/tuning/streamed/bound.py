"""How good the half-planes of a box can be at best, from integer masses of cells.

With r the value of the best half-plane known, a half-plane is better when

    F = loss*L + ood*nO - h*nI - r*(not per_id) < 0,   h = r - id  (per_id)  or  -id.

Cells below the box are accepted, and of those that cross it the ID rows that lower F at most,
no OOD row, and other ID rows only as far as nI must grow to meet its bound. Of the crossing
cells it is known which ID and loss mass is *cheap*: rows whose loss is below `price` times ID.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import BoolArray, IntArray
from demur._kernels import exact
from demur.core.program import Program
from demur.tuning.streamed.cells import CHEAP_ID, CHEAP_LOSS, ID, LOSS, OOD

# Sums of a few float64 products are off by less than this, relative to their terms.
_ROUNDING = 2.0**-44


@dataclass(frozen=True, slots=True)
class Incumbent:
    """Masses of the best half-plane known."""

    id: int
    ood: int
    loss: int

    def rank(self, program: Program) -> tuple[Fraction, int, int]:
        """Return what is smaller for a better one."""
        value = program.loss * self.loss + program.id * self.id + program.ood * self.ood
        return Fraction(value, self.id if program.per_id else 1), -self.id, self.ood


class Bound:
    """Judges boxes under one program."""

    def __init__(self, program: Program, price: float, best: Incumbent | None) -> None:
        self._program, self._best = program, best
        self._dear = program.loss * price
        if best is not None:
            value = program.value(best.id, best.ood, best.loss)
            self._h = value - program.id if program.per_id else -float(program.id)
            self._fixed = 0.0 if program.per_id else -value
            # F is a multiple of this, so anything nearer to zero than half of it is no gain.
            self._step = 1 / best.id if program.per_id and best.id else 1.0

    def alive(self, accepted: IntArray, crossing: IntArray) -> bool:
        """Return whether a box with these masses may hold a better or an equal half-plane."""
        most, nO, best = int(accepted[ID] + crossing[ID]), accepted[OOD:].tolist(), self._best
        if not self._possible(most, nO):
            return False
        if best is None:
            return True
        terms = _Terms(*map(float, self._terms(accepted, crossing)))
        least, error = self._least(terms, self._program.min_id, max)
        if least <= (-self._step / 2 if error < self._step / 4 else error):
            return True
        if most < best.id or (most == best.id and sum(nO) > best.ood):
            return False
        least, error = self._least(terms, best.id, max)
        return bool(least <= error)

    def alive_each(self, accepted: IntArray, crossing: IntArray) -> BoolArray:
        """Return the same for many boxes; masses have shape (4 + sets, boxes)."""
        program, best = self._program, self._best
        most, nO = accepted[ID] + crossing[ID], accepted[OOD:]
        bounds = max(1, program.min_id), np.array(program.max_ood), np.array(program.ratio)
        possible: BoolArray = exact.feasible(most, nO, *bounds)
        if best is None:
            return possible
        terms = _Terms(*(term.astype(np.float64) for term in self._terms(accepted, crossing)))
        least, error = self._least(terms, program.min_id, np.maximum)
        better = least <= np.where(error < self._step / 4, -self._step / 2, error)
        equal = (most > best.id) | ((most == best.id) & (nO.sum(axis=0) <= best.ood))
        least, error = self._least(terms, best.id, np.maximum)
        return np.asarray(possible & (better | (equal & (least <= error))))

    def _possible(self, most: int, nO: list[int]) -> bool:
        program = self._program
        bounds = zip(nO, program.max_ood, program.ratio, strict=True)
        return most >= max(1, program.min_id) and all(
            accepted <= largest and a * most >= b * accepted for accepted, largest, (a, b) in bounds
        )

    def _terms(self, accepted: IntArray, crossing: IntArray) -> tuple[Any, ...]:
        return (
            *(accepted[ID], accepted[OOD:].sum(axis=0), accepted[LOSS]),
            *(crossing[ID], crossing[CHEAP_ID], crossing[CHEAP_LOSS]),
        )

    def _least(self, terms: _Terms, min_id: int, larger: Callable[..., Any]) -> tuple[Any, Any]:
        """Return a lower bound on F given nI >= min_id, and how far rounding may put it off."""
        program, h, dear = self._program, self._h, self._dear
        paid = float(program.loss) * terms.loss + float(program.ood) * terms.ood
        gained = h * terms.id
        cheap_id, cheap_loss = terms.cheap_id, float(program.loss) * terms.cheap_loss
        if h <= dear:
            missing = larger(0.0, min_id - terms.id - cheap_id)
            extra = larger(cheap_loss - dear * cheap_id, -h * cheap_id) + (dear - h) * missing
            size = dear * (cheap_id + missing)
        else:
            # Rows that are not cheap may also pay.
            rest = terms.crossing_id - cheap_id
            extra = cheap_loss - h * cheap_id - (h - dear) * rest
            size = h * (cheap_id + rest)
        size = size + paid + gained + abs(self._fixed) + cheap_loss
        return paid - gained + self._fixed + extra, _ROUNDING * size


class _Terms(NamedTuple):
    """Masses accepted by all half-planes, and those that cross; floats, or arrays of them."""

    id: Any
    ood: Any
    loss: Any
    crossing_id: Any
    cheap_id: Any
    cheap_loss: Any


def best_of(program: Program, nI: IntArray, nO: IntArray, L: IntArray) -> Incumbent | None:
    """Return the best of some operating points; `nO` has shape (sets, points)."""
    met = exact.feasible(
        nI, nO, max(1, program.min_id), np.array(program.max_ood), np.array(program.ratio)
    )
    rows = np.flatnonzero(met)
    objective = np.array([program.loss, program.id, program.ood])
    total = nO.sum(axis=0)
    kept = exact.best(nI[rows], total[rows], L[rows], objective, program.per_id)
    if len(kept) == 0:
        return None
    row = rows[kept[0]]
    return Incumbent(int(nI[row]), int(total[row]), int(L[row]))
