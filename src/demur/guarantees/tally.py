"""Operating points of rows counted several times, once or not at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur._arrays import BoolArray, IntArray
from demur.core.masses import Masses
from demur.core.models import CostModel, PrecisionRecallModel, RejectionModel
from demur.core.program import Totals
from demur.core.rates import OperatingPoint, operating_point
from demur.core.rule import Rule
from demur.core.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """The masses of a sample's rows, ready to be counted under many rules."""

    sample: Sample
    id: Masses
    ood: Masses
    loss: Masses

    @classmethod
    def of(cls, sample: Sample) -> Tally:
        """Lower the weights and losses of `sample`."""
        id_weight = np.ones(sample.n_id) if sample.id_weight is None else sample.id_weight
        ood_weight = np.ones(sample.n_ood) if sample.ood_weight is None else sample.ood_weight
        return cls(
            sample,
            Masses.of(id_weight),
            Masses.of(ood_weight),
            Masses.of(id_weight * sample.id_loss),
        )

    def decide(self, rule: Rule) -> tuple[BoolArray, BoolArray]:
        """Return which ID and which OOD rows `rule` accepts."""
        return rule.accept(self.sample.id_scores), rule.accept(self.sample.ood_scores)

    def point(
        self,
        accepted: tuple[BoolArray, BoolArray],
        times: tuple[IntArray, IntArray],
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
    if isinstance(model, (CostModel, PrecisionRecallModel)):
        names += ("precision",)
    if isinstance(model, CostModel):
        names += ("expected_cost",)
    return names
