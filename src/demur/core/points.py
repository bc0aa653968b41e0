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
        id_weight = np.ones(sample.n_id) if sample.id_weight is None else sample.id_weight
        ood_weight = np.ones(sample.n_ood) if sample.ood_weight is None else sample.ood_weight
        loss_weight = id_weight * sample.id_loss
        if not np.isfinite(loss_weight.sum()):
            raise InvalidInputError("id_loss adds up to more than a float can hold")
        id_mass, ood_mass = Masses.of(id_weight), Masses.of(ood_weight)
        loss_mass = Masses.of(loss_weight)
        groups = _groups(sample, ood)
        ood_columns = np.zeros((len(groups), sample.n_ood), np.int64)
        for row, rows in zip(ood_columns, groups, strict=True):
            row[rows] = ood_mass.values[rows]
        totals = Totals(
            id=id_mass.total,
            ood=tuple(int(total) for total in ood_columns.sum(axis=1)),
            loss=loss_mass.total,
            id_exponent=id_mass.exponent,
            ood_exponent=ood_mass.exponent,
            loss_exponent=loss_mass.exponent,
            id_rounding=id_mass.rounding,
            ood_rounding=ood_mass.rounding,
        )
        scores = np.concatenate([sample.id_scores, sample.ood_scores])
        kept = np.isfinite(scores).all(axis=1)
        kept &= np.concatenate([id_mass.values, ood_mass.values]) > 0
        no_id, no_ood = np.zeros(sample.n_ood, np.int64), np.zeros(sample.n_id, np.int64)
        return cls(
            # Adding zero turns -0.0 into 0.0, which must compare and merge as the same score.
            scores=scores[kept] + 0.0,
            id=np.concatenate([id_mass.values, no_id])[kept],
            ood=np.concatenate([np.tile(no_ood, (len(groups), 1)), ood_columns], axis=1)[:, kept],
            loss=np.concatenate([loss_mass.values, no_id])[kept],
            totals=totals,
        )


def _groups(sample: Sample, ood: str) -> list[slice]:
    if ood == "pooled":
        return [slice(0, sample.n_ood)]
    if ood == "worst":
        return list(sample.ood_sets.values())
    raise InvalidInputError(f'ood must be "pooled" or "worst", got {ood!r}')
