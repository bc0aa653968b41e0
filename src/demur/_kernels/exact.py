"""Objective and bounds decided on integers, and the tie policy.

The smaller objective is better, then the larger ID mass, then the smaller OOD mass, then the
smaller loss mass. Every search and every choice of a rule comes here for that order; only the page
of a report lists rules by their risk in float64. Masses are compared in float64 wherever that
provably gives the order of the integers; what it cannot decide is decided on Python's integers,
one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Differences below this, relative to the terms compared, are decided on integers.
DOUBT = 16 * np.finfo(np.float64).eps


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
        met &= terms.sum(axis=0) - float(least) >= -DOUBT * size
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
            for i in np.flatnonzero(np.abs(value) <= DOUBT * size):
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
        close = np.flatnonzero(np.abs(left - right) <= DOUBT * np.maximum(left, right))
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
    value, error = value / denominator, DOUBT * terms / denominator
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
    apart = np.flatnonzero(np.diff(ascending) > DOUBT * ascending[1:]) + 1
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
    doubt = np.where(certain, 0.0, DOUBT * value)
    tied_better = (nI > rival_id) | ((nI == rival_id) & (nO < rival_ood))
    different = (nI != rival_id) | (rival_loss != L)
    tied = np.abs(value - rival_value) <= doubt
    better: _Bools = tied & (tied_better | (different & ~certain))
    better |= value < rival_value - doubt
    return better


class Goal(NamedTuple):
    """What is best and what is feasible, as engines take it; see `demur.core.program`."""

    objective: _Ints
    """Coefficients of loss, ID and OOD mass."""
    per_id: bool
    min_id: int
    max_ood: _Ints
    ratio: _Ints
    linear: Linear | None = None

    def of_some_id(self) -> Goal:
        """Return the same for sets that accept some ID mass."""
        return self._replace(min_id=max(1, self.min_id))

    def met(self, nI: _Ints, nO: _Ints, L: _Ints, extra: Sequence[_Ints] | _Ints = ()) -> _Bools:
        """Return where all bounds hold; `nO` has shape (sets, n), `extra` (extra, n)."""
        met = feasible(nI, nO, self.min_id, self.max_ood, self.ratio)
        if self.linear is not None:
            masses = np.stack([nI, L, nO.sum(axis=0), *extra])
            met[met] = linear_met(self.linear, masses[:, met])
        return met

    def best(self, nI: _Ints, nO: _Ints, L: _Ints) -> _Ints:
        """Return the indices of rows that none beats; `nO` is the mass of all sets together."""
        return best(nI, nO, L, self.objective, self.per_id)

    def quotient(self, nI: int, nO: int, L: int) -> tuple[int, int]:
        """Return numerator and denominator of the objective."""
        loss, id_, ood = (int(c) for c in self.objective)
        return loss * L + id_ * nI + ood * nO, nI if self.per_id else 1
