"""The rejection model, from its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from demur.cli.options import Command, Number, gathered, option
from demur.core.models import RejectionModel
from demur.core.paper_models import CostModel, PrecisionRecallModel, TprFprModel
from demur.core.program import Number as Bound

CHOICES = """give one of
  --min-tpr [--max-fpr]
  --min-precision --min-recall --prior
  --cost-reject-id [--cost-accept-ood] [--cost-reject-ood] [--prior]"""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Bounds and costs as given; None where not given."""

    min_tpr: Bound | None
    max_fpr: Bound | None
    min_precision: Bound | None
    min_recall: Bound | None
    cost_reject_id: Bound | None
    cost_accept_ood: Bound | None
    cost_reject_ood: Bound | None
    prior: Bound | None

    def models(self) -> list[RejectionModel]:
        """Return the models that are fully given; a model given in part is an error."""
        found = [self._tpr_fpr(), self._precision_recall(), self._cost()]
        return [model for model in found if model is not None]

    def one_model(self) -> RejectionModel:
        """Return the model, of which there must be exactly one."""
        models = self.models()
        if len(models) != 1:
            what = "no rejection model is given" if not models else "the options mix models"
            raise click.UsageError(f"{what}: {CHOICES}")
        return models[0]

    @property
    def needs_ood(self) -> bool:
        """Whether OOD rows are needed for the bounds to mean anything."""
        return self.max_fpr is not None or bool(self.prior)

    def _tpr_fpr(self) -> RejectionModel | None:
        if self.min_tpr is None:
            _needs("--max-fpr", self.max_fpr, "--min-tpr")
            return None
        return TprFprModel(self.min_tpr, 1 if self.max_fpr is None else self.max_fpr)

    def _precision_recall(self) -> RejectionModel | None:
        if self.min_precision is None or self.min_recall is None:
            _needs("--min-precision", self.min_precision, "--min-recall")
            _needs("--min-recall", self.min_recall, "--min-precision")
            return None
        if self.prior is None:
            raise click.UsageError(
                "--min-precision needs --prior, the share of OOD inputs in deployment"
            )
        return PrecisionRecallModel(self.min_precision, self.min_recall, self.prior)

    def _cost(self) -> RejectionModel | None:
        costs = self.cost_accept_ood, self.cost_reject_ood
        if self.cost_reject_id is None:
            _needs("--cost-accept-ood", costs[0], "--cost-reject-id")
            _needs("--cost-reject-ood", costs[1], "--cost-reject-id")
            return None
        if self.prior is None and costs != (None, None):
            raise click.UsageError(
                "costs of OOD inputs need --prior, the share of OOD inputs in deployment"
            )
        return CostModel(
            reject_id=self.cost_reject_id,
            accept_ood=1 if costs[0] is None else costs[0],
            reject_ood=0 if costs[1] is None else costs[1],
            ood_prior=0 if self.prior is None else self.prior,
        )


def _needs(name: str, value: Bound | None, other: str) -> None:
    if value is not None:
        raise click.UsageError(f"{name} needs {other}: {CHOICES}")


def model_options(section: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the models as `model`."""
    add = option(section)
    number = Number()
    return gathered(
        "model",
        ModelOptions,
        [
            add("--min-tpr", type=number, help="Accept at least this share of ID inputs."),
            add("--max-fpr", type=number, help="Accept at most this share of OOD inputs."),
            add("--min-precision", type=number, help="Least share of ID among the accepted."),
            add("--min-recall", type=number, help="Same as --min-tpr, beside --min-precision."),
            add("--cost-reject-id", type=number, help="Cost of rejecting an ID input."),
            add(
                "--cost-accept-ood",
                type=number,
                help="Cost of accepting an OOD input; 1 if not given.",
            ),
            add(
                "--cost-reject-ood",
                type=number,
                help="Cost of rejecting an OOD input; 0 if not given.",
            ),
            add("--prior", type=number, help="Share of OOD inputs in deployment, never guessed."),
        ],
    )
