"""Rates of rules when rows count several times, once or not at all, and their standard errors.

All rates are functions of three means: accepted ID (the TPR T), the loss of accepted ID
(L, over all ID), and accepted OOD (the FPR F). A row moves a rate by the gradient of that
function times what the row adds to the means; the root of the summed squares is the standard
error (the delta method). For two rules on the same rows, the moves are subtracted row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.models import RejectionModel
from demur.core.points import Masses
from demur.core.program import Totals
from demur.core.rates import OperatingPoint, accepted_rows, operating_point
from demur.core.rule import Rule
from demur.core.sample import Sample

Times = tuple[IntArray, IntArray]
"""How often each ID and OOD row counts."""
Decided = tuple[BoolArray, BoolArray]
"""Which ID and OOD rows are accepted."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedRows:
    """The masses of a sample's rows, ready to be counted under many rules."""

    sample: Sample
    id: Masses
    ood: Masses
    loss: Masses

    @classmethod
    def of(cls, sample: Sample) -> CountedRows:
        """Lower the weights and losses of `sample`."""
        id_weight, ood_weight = _weights(sample)
        return cls(
            sample,
            Masses.of(id_weight),
            Masses.of(ood_weight),
            Masses.of(id_weight * sample.id_loss),
        )

    def decide(self, rule: Rule) -> Decided:
        """Return which ID and which OOD rows `rule` accepts."""
        return accepted_rows(rule, self.sample)

    def point(
        self,
        accepted: Decided,
        times: Times,
        model: RejectionModel | None,
    ) -> OperatingPoint | None:
        """Return the rates when row i counts `times[i]` times; None if no ID row counts."""
        taken_id, taken_ood = times[0] * accepted[0], times[1] * accepted[1]
        totals = Totals(
            id=int(self.id.values @ times[0]),
            ood=(int(self.ood.values @ times[1]),),
            loss=0,
            id_exponent=self.id.exponent,
            ood_exponent=self.ood.exponent,
            loss_exponent=self.loss.exponent,
        )
        if totals.id == 0:
            return None
        return operating_point(
            id_mass=int(self.id.values @ taken_id),
            ood_masses=[int(self.ood.values @ taken_ood)],
            loss_mass=int(self.loss.values @ taken_id),
            totals=totals,
            model=model,
        )


def measures(model: RejectionModel) -> tuple[str, ...]:
    """Return the names of the rates that a model gives a meaning to."""
    names: tuple[str, ...] = ("tpr", "fpr", "selective_risk")
    if model.ood_prior is not None:
        names += ("precision",)
    if model.cost is not None:
        names += ("expected_cost",)
    return names


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """How much each row moves each rate."""

    id: FloatArray
    """Shape (ID rows, measures)."""
    ood: FloatArray
    """Shape (OOD rows, measures)."""
    one_more: FloatArray
    """Squared, by one more row of the typical weight and loss; one for each measure."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Weights and losses of a sample, ready for the standard errors of many rules."""

    model: RejectionModel
    id_weight: FloatArray
    ood_weight: FloatArray
    loss: FloatArray
    """Weight times loss."""

    @classmethod
    def of(cls, sample: Sample, model: RejectionModel) -> Spread:
        """Take the weights and losses of `sample`, and what the model says of priors and costs."""
        id_weight, ood_weight = _weights(sample)
        return cls(model, id_weight, ood_weight, id_weight * sample.id_loss)

    def moves(self, accepted: Decided, times: Times) -> Moves:
        """Return how rows that count `times` move the rates of a rule that accepts so."""
        id_total = float(times[0] @ self.id_weight)
        ood_total = float(times[1] @ self.ood_weight) or 1.0
        taken = times[0] * accepted[0]
        tpr, loss = float(taken @ self.id_weight) / id_total, float(taken @ self.loss) / id_total
        fpr = float((times[1] * accepted[1]) @ self.ood_weight) / ood_total
        by_tpr, by_loss, by_fpr = _gradients(self.model, tpr, loss, fpr)
        id_means = np.column_stack(
            [
                self.id_weight * (accepted[0] - tpr),
                self.loss * accepted[0] - self.id_weight * loss,
            ]
        )
        ood_mean = self.ood_weight * (accepted[1] - fpr)
        one_more = (
            (by_tpr * _typical(self.id_weight) / id_total) ** 2
            + (by_loss * _typical(self.loss) / id_total) ** 2
            + (by_fpr * _typical(self.ood_weight) / ood_total) ** 2
        )
        return Moves(
            id=id_means @ np.stack([by_tpr, by_loss]) / id_total,
            ood=np.outer(ood_mean, by_fpr) / ood_total,
            one_more=one_more,
        )


def standard_errors(moves: Sequence[Moves], times: Times) -> FloatArray:
    """Return the standard errors of a rule's rates, or of the differences of two rules' rates.

    One row more than there are is counted, moving one of the rules only: where no row is lost,
    or two rules decide all rows alike, the next one may still be. (Agresti and Min, 2005, add
    such rows to paired shares.)
    """
    id_moves, ood_moves = moves[0].id, moves[0].ood
    if len(moves) == 2:
        id_moves, ood_moves = id_moves - moves[1].id, ood_moves - moves[1].ood
    one_more = np.mean([m.one_more for m in moves], axis=0)
    return np.asarray(np.sqrt(times[0] @ id_moves**2 + times[1] @ ood_moves**2 + one_more))


def _gradients(
    model: RejectionModel, tpr: float, loss: float, fpr: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the derivatives of all measures by the TPR, the mean loss and the FPR."""
    rows = {
        "tpr": (1.0, 0.0, 0.0),
        "fpr": (0.0, 0.0, 1.0),
        "selective_risk": (-loss / tpr**2, 1 / tpr, 0.0) if tpr else (np.nan,) * 3,
    }
    prior = float(model.ood_prior or 0)
    if model.ood_prior is not None:
        both = (1 - prior) * tpr + prior * fpr
        slope = prior * (1 - prior) / both**2 if both else np.nan
        rows["precision"] = (slope * fpr, 0.0, -slope * tpr)
    if model.cost is not None:
        more = float(model.cost.accept_ood) - float(model.cost.reject_ood)
        reject_id = float(model.cost.reject_id)
        rows["expected_cost"] = ((prior - 1) * reject_id, 1 - prior, prior * more)
    by_tpr, by_loss, by_fpr = np.array([rows[name] for name in measures(model)]).T
    return by_tpr, by_loss, by_fpr


def _typical(masses: FloatArray) -> float:
    """Return the mean size of what a unit of mass belongs to: of losses that are 0 or 1, 1."""
    total = masses.sum()
    return float(masses @ masses / total) if total else 0.0


def _weights(sample: Sample) -> tuple[FloatArray, FloatArray]:
    """Return the weights of ID and OOD rows, ones where there are none."""
    weights = ((sample.id_weight, sample.n_id), (sample.ood_weight, sample.n_ood))
    id_, ood = (np.ones(rows) if given is None else given for given, rows in weights)
    return id_, ood
