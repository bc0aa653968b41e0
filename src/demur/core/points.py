"""A sample as one cloud of weighted points, the form all searches work on.

A *mass* is an integer standing for ``mass * 2**-exponent``. Counts and integer weights are
their own masses (exponent 0). Other weights are put on a grid fine enough that the total is
just below 2**52: every partial sum is then exact both in int64 and in float64, whatever the
order of the rows or the number of partitions they are summed in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.program import Totals
from demur.core.sample import Sample
from demur.errors import InvalidInputError

LIMIT = 2**52


@dataclass(frozen=True, slots=True)
class Masses:
    """Integers standing for ``values * 2**exponent``."""

    values: IntArray
    exponent: int
    rounding: int
    """By how many units a partial sum may be off: 0 when every value was representable."""

    @classmethod
    def of(cls, values: FloatArray, *, spare: int = 0) -> Masses:
        """Put non-negative finite `values` on the grid, with `spare` bits left for repetitions."""
        whole = bool((values == np.floor(values)).all())
        total = float(values.sum())
        fits = whole and total < LIMIT >> spare
        exponent = 0 if fits else exponent_of(total, whole=False) - spare
        if whole and exponent == 0:
            return cls(values.astype(np.int64), 0, 0)
        masses, inexact = on_grid(values, exponent)
        return cls(masses, exponent, len(values) if inexact else 0)

    @property
    def total(self) -> int:
        """Return the sum of all values."""
        return int(self.values.sum())


def exponent_of(total: float, whole: bool) -> int:
    """Return the exponent for values with this sum, all of them whole numbers or not.

    A sum just below a power of two counts as one, so that the order of summation, and with it
    the last bits of the sum, makes no difference.
    """
    if whole and total < LIMIT:
        return 0
    mantissa, exponent = np.frexp(total)
    return 51 - int(exponent) - bool(mantissa * (1 + 2.0**-30) >= 1)


def on_grid(values: FloatArray, exponent: int) -> tuple[IntArray, bool]:
    """Return the masses of values, and whether any of them had to be rounded."""
    scaled = np.ldexp(values, exponent)
    # Halves go up, not to even numbers: that is what every engine can compute.
    rounded = np.floor(scaled + 0.5)
    return rounded.astype(np.int64), bool((rounded != scaled).any())


@dataclass(frozen=True, slots=True, eq=False)
class RowMasses:
    """Integer masses of all rows of a sample, ID rows first."""

    id: IntArray
    ood: IntArray
    """Shape (sets, n): OOD mass, a row per OOD set that is bounded by itself."""
    loss: IntArray
    totals: Totals

    @classmethod
    def of(cls, sample: Sample, ood: str = "pooled", *, spare: int = 0) -> RowMasses:
        """Lower weights and losses; `ood` is ``"pooled"`` or ``"worst"``.

        With `spare` bits all rows can count 2**spare times.
        """
        n_id, n_ood = len(sample.id_scores), len(sample.ood_scores)
        id_mass = _masses(sample.id_weight, n_id, spare)
        ood_mass = _masses(sample.ood_weight, n_ood, spare)
        loss = sample.id_loss if sample.id_weight is None else sample.id_weight * sample.id_loss
        if not np.isfinite(loss.sum()):
            raise InvalidInputError("id_loss adds up to more than a float can hold")
        loss_mass = Masses.of(loss, spare=spare)
        groups = _groups(sample, ood)
        masses = np.zeros((2 + len(groups), n_id + n_ood), np.int64)
        masses[0, :n_id], masses[1, :n_id] = id_mass.values, loss_mass.values
        for row, rows in zip(masses[2:, n_id:], groups, strict=True):
            row[rows] = ood_mass.values[rows]
        totals = Totals(
            id=id_mass.total,
            ood=tuple(int(total) for total in masses[2:].sum(axis=1)),
            loss=loss_mass.total,
            id_exponent=id_mass.exponent,
            ood_exponent=ood_mass.exponent,
            loss_exponent=loss_mass.exponent,
            id_rounding=id_mass.rounding,
            ood_rounding=ood_mass.rounding,
        )
        return cls(masses[0], masses[2:], masses[1], totals)

    def repeated(self, times: IntArray) -> RowMasses:
        """Return the masses when row i counts `times[i]` times, which must be spared for."""
        id_, ood, loss = self.id * times, self.ood * times, self.loss * times
        totals = replace(
            self.totals,
            id=int(id_.sum()),
            ood=tuple(int(total) for total in ood.sum(axis=1)),
            loss=int(loss.sum()),
        )
        return RowMasses(id_, ood, loss, totals)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Rows that some rule can accept, ID rows first, with integer masses.

    Rows with a score of +inf are left out (no rule accepts them) but stay in `totals`; so are
    rows without weight.
    """

    scores: FloatArray
    """Shape (n, k)."""
    id: IntArray
    ood: IntArray
    """Shape (sets, n): OOD mass, a row per OOD set that is bounded by itself."""
    loss: IntArray
    totals: Totals
    rows: IntArray | None = None
    """Which rows of the sample these are, ID rows first; None for all of them."""

    @classmethod
    def of(cls, sample: Sample, ood: str = "pooled") -> Points:
        """Lower `sample`; `ood` is ``"pooled"`` or ``"worst"`` (every set bounded by itself)."""
        masses = RowMasses.of(sample, ood)
        scores = np.empty(
            (len(sample.id_scores) + len(sample.ood_scores), sample.id_scores.shape[1])
        )
        # Adding zero turns -0.0 into 0.0, which must compare and merge as the same score.
        as_doubts = sample.columns.as_doubts
        np.add(as_doubts(sample.id_scores), 0.0, out=scores[: len(sample.id_scores)])
        np.add(as_doubts(sample.ood_scores), 0.0, out=scores[len(sample.id_scores) :])
        unweighted = sample.id_weight is None and sample.ood_weight is None
        if unweighted and np.isfinite(scores).all():
            return cls(scores, masses.id, masses.ood, masses.loss, masses.totals)
        kept = np.isfinite(scores).all(axis=1)
        kept &= (masses.id > 0) | (masses.ood > 0).any(axis=0)
        rows = np.flatnonzero(kept)
        return cls(scores[rows], *_of_rows(masses, rows), masses.totals, rows)

    def weighted(self, masses: RowMasses) -> Points:
        """Return the same points with other masses of the sample's rows."""
        taken = (masses.id, masses.ood, masses.loss)
        if self.rows is not None:
            taken = _of_rows(masses, self.rows)
        return Points(self.scores, *taken, masses.totals, self.rows)

    def present(self) -> Points:
        """Return the points that have any mass."""
        some = np.flatnonzero((self.id > 0) | (self.ood > 0).any(axis=0))
        if len(some) == len(self.id):
            return self
        rows = some if self.rows is None else self.rows[some]
        masses = self.id[some], self.ood[:, some], self.loss[some]
        return Points(self.scores[some], *masses, self.totals, rows)


def _of_rows(masses: RowMasses, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    return masses.id[rows], masses.ood[:, rows], masses.loss[rows]


def _masses(weight: FloatArray | None, rows: int, spare: int) -> Masses:
    if weight is None:
        return Masses(np.ones(rows, np.int64), 0, 0)
    return Masses.of(weight, spare=spare)


def _groups(sample: Sample, ood: str) -> list[slice]:
    if ood == "pooled":
        return [slice(0, len(sample.ood_scores))]
    if ood == "worst":
        return list(sample.ood_sets.values())
    raise InvalidInputError(f'ood must be "pooled" or "worst", got {ood!r}')
