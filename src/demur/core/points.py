"""A sample as one cloud of weighted points, the form all searches work on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.masses import Masses
from demur.core.program import Totals
from demur.core.sample import Sample
from demur.errors import InvalidInputError


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
        id_mass, ood_mass = (
            _masses(sample.id_weight, sample.n_id, spare),
            _masses(sample.ood_weight, sample.n_ood, spare),
        )
        loss = sample.id_loss if sample.id_weight is None else sample.id_weight * sample.id_loss
        if not np.isfinite(loss.sum()):
            raise InvalidInputError("id_loss adds up to more than a float can hold")
        loss_mass = Masses.of(loss, spare=spare)
        groups = _groups(sample, ood)
        masses = np.zeros((2 + len(groups), sample.n_id + sample.n_ood), np.int64)
        masses[0, : sample.n_id], masses[1, : sample.n_id] = id_mass.values, loss_mass.values
        for row, rows in zip(masses[2:, sample.n_id :], groups, strict=True):
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
        scores = np.empty((sample.n_id + sample.n_ood, sample.n_scores))
        # Adding zero turns -0.0 into 0.0, which must compare and merge as the same score.
        as_doubts = sample.columns.as_doubts
        np.add(as_doubts(sample.id_scores), 0.0, out=scores[: sample.n_id])
        np.add(as_doubts(sample.ood_scores), 0.0, out=scores[sample.n_id :])
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
        return [slice(0, sample.n_ood)]
    if ood == "worst":
        return list(sample.ood_sets.values())
    raise InvalidInputError(f'ood must be "pooled" or "worst", got {ood!r}')
