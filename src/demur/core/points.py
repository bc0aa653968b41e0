"""A sample as one cloud of weighted points, the form all searches work on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.masses import Masses
from demur.core.program import Totals
from demur.core.sample import Sample
from demur.errors import InvalidInputError


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

    @classmethod
    def of(cls, sample: Sample, ood: str = "pooled") -> Points:
        """Lower `sample`; `ood` is ``"pooled"`` or ``"worst"`` (every set bounded by itself)."""
        id_mass, ood_mass = (
            _masses(sample.id_weight, sample.n_id),
            _masses(sample.ood_weight, sample.n_ood),
        )
        loss = sample.id_loss if sample.id_weight is None else sample.id_weight * sample.id_loss
        if not np.isfinite(loss.sum()):
            raise InvalidInputError("id_loss adds up to more than a float can hold")
        loss_mass = Masses.of(loss)
        groups = _groups(sample, ood)
        n = sample.n_id + sample.n_ood
        scores, masses = np.empty((n, sample.n_scores)), np.zeros((2 + len(groups), n), np.int64)
        # Adding zero turns -0.0 into 0.0, which must compare and merge as the same score.
        np.add(sample.id_scores, 0.0, out=scores[: sample.n_id])
        np.add(sample.ood_scores, 0.0, out=scores[sample.n_id :])
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
        unweighted = sample.id_weight is None and sample.ood_weight is None
        if not unweighted or not np.isfinite(scores).all():
            kept = np.isfinite(scores).all(axis=1)
            kept &= (masses[0] > 0) | (masses[2:] > 0).any(axis=0)
            scores, masses = scores[kept], masses[:, kept]
        return cls(scores, id=masses[0], ood=masses[2:], loss=masses[1], totals=totals)


def _masses(weight: FloatArray | None, rows: int) -> Masses:
    return Masses(np.ones(rows, np.int64), 0, 0) if weight is None else Masses.of(weight)


def _groups(sample: Sample, ood: str) -> list[slice]:
    if ood == "pooled":
        return [slice(0, sample.n_ood)]
    if ood == "worst":
        return list(sample.ood_sets.values())
    raise InvalidInputError(f'ood must be "pooled" or "worst", got {ood!r}')
