"""The options of the rejection model and of the search, each handed to a command as one value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import click

from demur.cli.options import Command, Number, Share, gathered, option
from demur.core.models import Bound as ModelBound
from demur.core.models import (
    CostModel,
    PrecisionRecallModel,
    RejectionModel,
    RiskFprModel,
    TprFprModel,
)
from demur.core.program import Number as Bound
from demur.errors import InvalidInputError
from demur.tuning.result import Directions, Grid, Shape

_MODELS = """give one of
  --min-tpr [--max-fpr]
  --max-risk [--max-fpr]
  --min-precision --min-recall --prior
  --cost-reject-id [--cost-accept-ood] [--cost-reject-ood] [--prior]
  --bound ... alone, for the least selective risk"""

_QUANTITIES = {"risk": "selective_risk", "recall": "tpr"}
_BOUND = re.compile(r"\s*(\w+)(?:\s+of\s+(.+?))?\s*(>=|<=|≥|≤)\s*([^<>=≥≤]+)")


class BoundText(click.ParamType):  # type: ignore[type-arg]
    """A bound in words: ``tpr of rare >= .6``."""

    name = "bound"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> ModelBound:
        """Read a quantity, perhaps the group or OOD set it is of, a sense and a number."""
        if isinstance(value, ModelBound):
            return value
        found = _BOUND.fullmatch(str(value))
        if found is None:
            self.fail(
                f"{value!r} is not a bound such as 'tpr of rare >= .6' or 'fpr of svhn <= 2%'",
                param,
                ctx,
            )
        quantity = _QUANTITIES.get(found[1].lower(), found[1].lower())
        sense = "at_least" if found[3] in (">=", "≥") else "at_most"
        whose = "ood_set" if quantity in ("fpr", "precision") else "group"
        kind = Number() if quantity == "selective_risk" else Share()
        number = kind.convert(found[4].strip(), param, ctx)
        try:
            return ModelBound(quantity, **{sense: number, whose: found[2]})  # type: ignore[arg-type]
        except InvalidInputError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


LARGEST_GRID = 10**6
"""Angles that a grid may have; its directions have to fit into memory."""


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
    max_risk: Bound | None = None
    bound: tuple[ModelBound, ...] = ()

    def models(self) -> list[RejectionModel]:
        """Return the models that are fully given; a model given in part is an error."""
        found = [self._tpr_fpr(), self._risk_fpr(), self._precision_recall(), self._cost()]
        models = [model for model in found if model is not None]
        if not self.bound:
            return models
        if not models:
            return [self._of_bounds()]
        return [
            RejectionModel(
                model.objective,
                (*model.bounds, *self.bound),
                self.prior if model.ood_prior is None else model.ood_prior,
            )
            for model in models
        ]

    def _of_bounds(self) -> RejectionModel:
        """Return the model of bounds alone; with the risk of all rows bounded, the most TPR."""
        risky = any(b.quantity == "selective_risk" and b.group is None for b in self.bound)
        return RejectionModel("tpr" if risky else "selective_risk", self.bound, self.prior)

    def one_model(self) -> RejectionModel:
        """Return the model, of which there must be exactly one."""
        models = self.models()
        if len(models) != 1:
            what = "no rejection model is given" if not models else "the options mix models"
            raise click.UsageError(f"{what}: {_MODELS}")
        return models[0]

    def at_most_one(self, what: str) -> RejectionModel | None:
        """Return the model if one is given; `what` is what can be done with one at a time."""
        models = self.models()
        if len(models) > 1:
            raise click.UsageError(f"the options mix models: {what} one at a time")
        return models[0] if models else None

    def model_for(self, *, has_ood: bool) -> RejectionModel:
        """Return the one model; it may need DATA to have OOD rows."""
        model = self.one_model()
        if self._needs_ood and not has_ood:
            raise click.UsageError(
                "bounds on FPR and --prior need OOD rows: name their column with --ood"
            )
        return model

    def check_ood(self, rows: int, column: str | None) -> None:
        """Refuse to go on without OOD rows where bounds or costs are about them."""
        if self._needs_ood and not rows:
            raise InvalidInputError(f"column {column!r} marks no row as OOD")

    @property
    def _needs_ood(self) -> bool:
        of_ood = any(bound.quantity in ("fpr", "precision") for bound in self.bound)
        return self.max_fpr is not None or bool(self.prior) or of_ood

    def _tpr_fpr(self) -> RejectionModel | None:
        if self.min_tpr is None:
            if self.max_risk is None:
                _needs("--max-fpr", self.max_fpr, "--min-tpr or --max-risk")
            return None
        return TprFprModel(self.min_tpr, 1 if self.max_fpr is None else self.max_fpr)

    def _risk_fpr(self) -> RejectionModel | None:
        if self.max_risk is None:
            return None
        return RiskFprModel(self.max_risk, 1 if self.max_fpr is None else self.max_fpr)

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
        raise click.UsageError(f"{name} needs {other}: {_MODELS}")


def model_options(section: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the models as `model`."""
    add = option(section)
    number, share = Number(), Share()
    return gathered(
        "model",
        ModelOptions,
        [
            add("--min-tpr", type=share, help="Accept at least this share of ID inputs."),
            add("--max-fpr", type=share, help="Accept at most this share of OOD inputs."),
            add(
                "--max-risk",
                type=number,
                help="Accept as many ID inputs as a selective risk of at most this allows.",
            ),
            add("--min-precision", type=share, help="Least share of ID among the accepted."),
            add("--min-recall", type=share, help="Same as --min-tpr, beside --min-precision."),
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
            add("--prior", type=share, help="Share of OOD inputs in deployment, never guessed."),
            add(
                "--bound",
                type=BoundText(),
                multiple=True,
                metavar="'Q of NAME >= X'",
                help="One more bound, on tpr, fpr, selective_risk or precision, of all rows, of "
                "one --group or one OOD set; repeat for more.",
            ),
        ],
    )


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Which rules compete."""

    fpr_of: Literal["pooled", "worst"]
    directions: Directions | None
    grid: int | None
    shape: Shape = "half-plane"
    """Of `tune` alone: what tunes again and again weighs scores."""

    @property
    def is_box(self) -> bool:
        """Whether each score is limited by itself."""
        return self.shape == "box"

    @property
    def allowed(self) -> Directions:
        """The directions, as `tune` would choose them."""
        return self.directions or ("nonneg" if self.grid is None else "paper")

    @property
    def search(self) -> Grid | None:
        """The grid asked for; None for the exact search."""
        return None if self.grid is None else Grid(self.grid)


def grid_option(what: str) -> Callable[[Command], Command]:
    """Return the option that asks for a grid of angles."""
    return option("Search")("--grid", type=click.IntRange(1, LARGEST_GRID), help=what)


def search_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the search as `search`."""
    add = option("Search")
    return gathered(
        "search",
        SearchOptions,
        [
            add(
                "--fpr-of",
                type=click.Choice(["pooled", "worst"]),
                default="pooled",
                show_default=True,
                help="Bound the FPR of all OOD rows together, or of every OOD set.",
            ),
            add(
                "--directions",
                type=click.Choice(["nonneg", "real", "paper", "circle"]),
                help="Weights a pair may get; nonneg: more doubt never helps (default).",
            ),
            grid_option("Try this many angles, not all of them."),
        ],
    )
