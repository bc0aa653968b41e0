"""Comparisons of integer masses that float64 rounding cannot upset.

Vectors of masses are compared in float64 wherever that provably gives the order of the
integers; what it cannot decide is decided on Python's integers, one by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Differences below this, relative to the terms compared, are decided on integers.
_DOUBT = 16 * np.finfo(np.float64).eps


def feasible(nI: _Ints, nO: _Ints, min_id: int, max_ood: _Ints, ratio: _Ints) -> _Bools:
    """Return where all bounds hold: nI >= min_id, nO <= max_ood and a*nI >= b*nO per set.

    `nI` has shape (n,), `nO` (sets, n), `max_ood` (sets,), `ratio` (sets, 2).
    """
    met = nI >= min_id
    for accepted, largest, (a, b) in zip(nO, max_ood, ratio, strict=True):
        met &= accepted <= largest
        if b > 0:
            met &= _at_least(int(a), nI, int(b), accepted)
    return met


def _at_least(a: int, p: _Ints, b: int, q: _Ints) -> _Bools:
    """Return where a*p >= b*q."""
    left, right = float(a) * p, float(b) * q
    met: _Bools = left >= right
    if max(left.max(initial=0), right.max(initial=0)) >= 2.0**53:
        close = np.flatnonzero(np.abs(left - right) <= _DOUBT * np.maximum(left, right))
        for i in close:
            met[i] = a * int(p[i]) >= b * int(q[i])
    return met


def best(nI: _Ints, nO: _Ints, L: _Ints, objective: _Ints, per_id: bool) -> _Ints:
    """Return the indices of all rows equal in (objective, nI, nO) that no row beats.

    The objective is ``(objective . (L, nI, nO)) / (nI if per_id else 1)``, smaller is better,
    then the larger nI, then the smaller nO. `nO` is the OOD mass of all sets together.
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
    tied: _Ints = kept[nO[kept] == nO[kept].min()]
    return tied


def _float_is_exact(terms: _Floats, nI: _Ints, per_id: bool) -> bool:
    # Integers below 2**53 are floats. Two different quotients a/b, c/d are at least 1/(b*d)
    # apart, relative to a/b at least 1/(a*d): below 2**52 they round to different floats.
    largest = float(terms.max())
    return largest * float(nI.max()) < 2.0**52 if per_id else largest < 2.0**53


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
