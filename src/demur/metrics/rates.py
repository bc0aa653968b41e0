"""Rates as functions of accepted masses, and the checks that metrics share."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._kernels import reference
from demur.core.points import Points
from demur.core.program import Number, Totals, exact
from demur.core.sample import Sample
from demur.errors import InvalidInputError

Per = Literal["accepted", "all"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates on a sample with these totals. Without a denominator they are NaN."""

    totals: Totals

    @property
    def ood(self) -> int:
        """Total OOD mass."""
        return sum(self.totals.ood)

    @property
    def ood_share(self) -> float:
        """Share of OOD in the sample, by weight."""
        id_, ood = self.totals.id_weight(self.totals.id), self.totals.ood_weight(self.ood)
        return ood / (id_ + ood)

    def tpr(self, nI: IntArray) -> FloatArray:
        """Return the share of ID accepted."""
        return nI / self.totals.id

    def fpr(self, nO: IntArray) -> FloatArray:
        """Return the share of OOD accepted."""
        return nO / self.ood if self.ood else np.full(len(nO), np.nan)

    def mean_loss(self, L: IntArray) -> FloatArray:
        """Return the summed loss of the accepted ID divided by all ID."""
        return self._loss(L) / self.totals.id_weight(self.totals.id)

    def selective_risk(self, nI: IntArray, L: IntArray) -> FloatArray:
        """Return the mean loss of the accepted ID."""
        with np.errstate(invalid="ignore"):
            return self._loss(L) / (nI * 2.0**-self.totals.id_exponent)

    def ccr(self, nI: IntArray, L: IntArray, per: Per) -> FloatArray:
        """Return the share of accepted ID, or the accepted share of all ID, that is correct."""
        if per == "accepted":
            return 1 - self.selective_risk(nI, L)
        if self.totals.id_exponent == self.totals.loss_exponent:
            return (nI - L) / self.totals.id
        return self.tpr(nI) - self.mean_loss(L)

    def precision(self, nI: IntArray, nO: IntArray, prior: float) -> FloatArray:
        """Return the share of ID among the accepted; 1 by convention where that is 0/0."""
        id_ = (1 - prior) * self.tpr(nI)
        ood = prior * self.fpr(nO) if prior else np.zeros(len(nO))
        return share_of(id_, ood)

    def _loss(self, L: IntArray) -> FloatArray:
        loss: FloatArray = L.astype(np.float64) * 2.0**-self.totals.loss_exponent
        return loss


def share_of(part: FloatArray, rest: FloatArray) -> FloatArray:
    """Return part / (part + rest); 1 by convention where that is 0/0."""
    whole = part + rest
    with np.errstate(invalid="ignore"):
        shares: FloatArray = part / whole
    shares[whole == 0] = 1.0
    return shares


class Groups(NamedTuple):
    """Masses accepted after each group of equal scores, from nothing to everything."""

    id: IntArray
    ood: IntArray
    loss: IntArray


def tie_groups(points: Points) -> Groups:
    """Return the masses of one score; rows with a score of +inf are the last group."""
    swept = reference.sweep(points.scores[:, 0], points.id, points.ood, points.loss)
    totals = points.totals
    ends = (totals.id, sum(totals.ood), totals.loss)
    columns = (swept.id, swept.ood.sum(axis=0), swept.loss)
    return Groups(*(np.r_[0, c, end] for c, end in zip(columns, ends, strict=True)))


def unit_groups(sample: Sample) -> Groups:
    """Return the masses of one score of rows that count once and have a loss of 0 or 1.

    ID rows come first, so their places tell them from OOD rows; only losses have to be looked up.
    """
    scores = np.concatenate([sample.id_doubts[:, 0], sample.ood_doubts[:, 0]])
    order = np.argsort(scores)
    ordered = scores.take(order)
    # No threshold accepts a score of +inf.
    finite = int(np.searchsorted(ordered, np.inf))
    last = np.flatnonzero(ordered[1 : finite + 1] != ordered[:finite][: len(ordered) - 1])
    if finite == len(ordered):
        last = np.append(last, finite - 1)
    is_wrong = np.zeros(len(scores), np.int8)
    is_wrong[: sample.n_id] = sample.id_loss
    nI = np.cumsum(order < sample.n_id).take(last)
    L = np.cumsum(is_wrong.take(order), dtype=np.int64).take(last)
    ends = sample.n_id, sample.n_ood, int(is_wrong.sum())
    return Groups(*(np.r_[0, c, end] for c, end in zip((nI, last + 1 - nI, L), ends, strict=True)))


def share(name: str, value: Number) -> Fraction:
    """Return a bound in [0, 1] as the fraction its shortest decimal stands for."""
    fraction = exact(name, value)
    if not 0 <= fraction <= 1:
        raise InvalidInputError(f"{name} must be in [0, 1], got {value}")
    return fraction


def prior(rates: Rates, ood_prior: Number | None) -> float:
    """Return the declared prior, or the sample's own share of OOD."""
    if ood_prior is None:
        return rates.ood_share
    if not 0 <= exact("ood_prior", ood_prior) < 1:
        raise InvalidInputError(f"ood_prior must be in [0, 1), got {ood_prior}")
    return float(ood_prior)


def check_correctness(sample: Sample, per: Per = "accepted") -> None:
    """Refuse losses that do not say what is correct."""
    if per not in ("accepted", "all"):
        raise InvalidInputError(f'per must be "accepted" or "all", got {per!r}')
    other = np.flatnonzero((sample.id_loss != 0) & (sample.id_loss != 1))
    if len(other):
        raise InvalidInputError(
            f"id_loss[{other[0]}] is {sample.id_loss[other[0]]:.6g}: accuracy needs losses of 0 "
            "(correct) and 1 (wrong); use the selective risk for other losses"
        )
