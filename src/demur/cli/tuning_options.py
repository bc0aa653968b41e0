"""What a tuning is given: options of the model, the search and the rows held out; and its rows.

Each group of options is handed to a command as one value. `TuningRows` are those to tune on and
those held out, with their scores learned if that was asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import click
import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, IntArray
from demur.cli.inputs import ScoreTable
from demur.cli.options import (
    Command,
    Number,
    Share,
    complete_column,
    gathered,
    option,
    seed_option,
)
from demur.cli.output import Progress, caution
from demur.core.columns import ood_rows
from demur.core.models import Bound as ModelBound
from demur.core.models import (
    CostModel,
    PrecisionRecallModel,
    RejectionModel,
    RiskFprModel,
    TprFprModel,
)
from demur.core.program import Number as Bound
from demur.core.program import exact
from demur.core.row_draws import RowDraw, share_drawn_together, split
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import ScoreSource
from demur.errors import InvalidInputError
from demur.tuning.result import Directions, Grid, Shape

if TYPE_CHECKING:
    from demur.guarantees.splits import Groups
    from demur.learn import Learned

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


# Share of rows with the scores of others from which on a hash of scores makes a poor split.
_MANY_ALIKE = 0.1


@dataclass(frozen=True, slots=True)
class HoldoutOptions:
    """Which rows are kept for an honest estimate."""

    holdout: Bound | None
    seed: int
    group: str | None
    holdout_by: Literal["chance", "hash"] | None = None

    @property
    def share(self) -> Fraction | None:
        """The share to hold out; None when none is."""
        if self.holdout is None:
            if self.holdout_by is not None:
                raise click.UsageError("--holdout-by is about --holdout")
            return None
        share = exact("--holdout", self.holdout)
        if not 0 < share < 1:
            raise InvalidInputError(f"--holdout must be between 0 and 1, got {self.holdout}")
        return share

    def held(self, rows: ScoreTable) -> BoolArray | None:
        """Return which rows are held out; None when none are."""
        share = self.share
        if share is None:
            return None
        self._check_share(share, rows)
        if self.holdout_by == "hash":
            draw = RowDraw.holdout(share, self.seed)
            length = len(rows.columns[rows.scores[0][0]])
            is_ood = ood_rows(rows.columns, rows.options.ood, length)[0]
            return _not_one_sided(draw.keeps(rows.hashed(self.group), is_ood))
        groups = None if self.group is None else rows.columns[self.group]
        return _not_one_sided(held_out(_strata(rows), share, seed=self.seed, groups=groups))

    def parts(self, source: ScoreSource) -> tuple[ScoreSource, ScoreSource | None]:
        """Return the rows of a source to tune on, and those held out if any are."""
        share = self.share
        if share is None:
            return source, None
        if self.holdout_by == "chance":
            raise click.UsageError(
                "--holdout-by chance deals rows in memory: leave it out, or add --engine memory"
            )
        alike = 0.0 if self.group is not None else share_drawn_together(source)
        if alike > _MANY_ALIKE:
            caution(
                f"about {alike:.0%} of the rows have the scores of another one and stay on its "
                "side of the split: give --id, a column of ids"
            )
        return split(source, share, seed=self.seed)

    def half(self, rows: ScoreTable, among: BoolArray) -> BoolArray:
        """Return a random half of some rows, ID and OOD alike; rows of one id stay together."""
        groups = None if self.group is None else rows.columns[self.group][among]
        chosen = np.zeros(len(among), np.bool_)
        chosen[among] = held_out(
            _strata(rows)[among], Fraction(1, 2), seed=self.seed, groups=groups
        )
        return chosen

    def _check_share(self, share: Fraction, rows: ScoreTable) -> None:
        """Refuse a share that leaves less than one row, or id, on a side."""
        whole = rows.columns[rows.scores[0][0] if self.group is None else self.group]
        count = len(whole) if self.group is None else len(np.unique(whole.astype(str)))
        what = "rows" if self.group is None else "ids"
        for part, verb in ((share, "holds out"), (1 - share, "tunes on")):
            if part * count < 1:
                raise InvalidInputError(
                    f"--holdout {self.holdout} of {count:,} {what} {verb} less than one: give a "
                    "share such as .3"
                )


def _not_one_sided(held: BoolArray) -> BoolArray:
    if held.all() or not held.any():
        raise InvalidInputError("--holdout leaves one side without rows: too few rows or ids")
    return held


def _strata(rows: ScoreTable) -> IntArray:
    """Return 0 for every ID row, and the number of its set for every OOD row."""
    length = len(rows.columns[rows.scores[0][0]])
    strata = np.zeros(length, np.int64)
    for number, members in enumerate(ood_rows(rows.columns, rows.options.ood, length)[1].values()):
        strata[members] = 1 + number
    return strata


def holdout_options(group_help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the split as `split`."""
    add = option("Held-out rows")
    column: dict[str, Any] = {"metavar": "COLUMN", "shell_complete": complete_column}
    return gathered(
        "split",
        HoldoutOptions,
        [
            add("--holdout", type=Number(), help="Tune on the rest, evaluate on this share."),
            seed_option("Held-out rows", "Seed of the split."),
            add("--id", "group", **column, help=group_help),
            add(
                "--holdout-by",
                type=click.Choice(["chance", "hash"]),
                help="chance: this very share of ID rows and of every OOD set; in memory the "
                "default. hash, of --id or else of the scores: the same rows on every --engine.",
            ),
        ],
    )


def held_out(
    strata: IntArray, share: Fraction, *, seed: int, groups: npt.NDArray[Any] | None = None
) -> BoolArray:
    """Return which rows are held out: `share` of the groups of every stratum, at random.

    Stratum 0 are the ID rows, others are OOD sets; both sides are sampled by themselves, so that
    each has rows in both parts where it can. Rows of a group stay together; without groups every
    row is its own. Sets of a few rows keep their share of all OOD rows together.
    """
    from demur.guarantees.splits import systematic_part

    # Not the stream of the seed itself: what else takes the seed shuffles with that.
    rng = np.random.default_rng((seed, 1))
    if groups is None:
        first = codes = np.arange(len(strata))
    else:
        _, first, codes = np.unique(groups.astype(str), return_index=True, return_inverse=True)
    stratum = strata[first]
    held = np.zeros(len(first), np.bool_)
    for members in (np.flatnonzero(stratum == 0), np.flatnonzero(stratum > 0)):
        held[members] = systematic_part(stratum[members], float(share), rng)
    return np.asarray(held[codes])


@dataclass(frozen=True, slots=True)
class TuningRows:
    """Rows to tune on and rows held out, with the scores that the rule will be about."""

    names: tuple[str, ...]
    """Columns of the scores in the file."""
    train: Sample
    test: Sample | None
    ids: Groups | None
    """Of the rows to tune on."""
    test_ids: Groups | None
    learned: Learned | None = None
    """What made the scores of these rows, if they are learned."""

    def file(self, rule: Rule) -> str:
        """Return the text of the file that holds the rule, with its scores if they are learned."""
        if self.learned is None:
            return rule.to_json()
        return self.learned.rule(rule, fresh=self.test).to_json()

    def described(self) -> dict[str, Any]:
        """Return, for --json, how the scores were learned."""
        if self.learned is None:
            return {}
        return {"learned": {"method": self.learned.method, "scores": list(self.names)}}


def learned_rows(
    rows: ScoreTable,
    held: BoolArray | None,
    split: HoldoutOptions,
    method: str,
    model: RejectionModel,
    *,
    apart: bool,
) -> TuningRows:
    """Learn two scores from many.

    Rows are tuned on with out-of-fold scores; with `apart`, scores are learned on a half of the
    rows, and the other half, which is as new to them as any later row, is there to tune and prove.
    """
    from demur.learn import fit

    names = rows.scores[0]
    if len(names) < 2:
        raise click.UsageError("--learn makes one rule of several scores: name them with --scores")
    every = np.ones(len(rows.columns[names[0]]), np.bool_)
    seen = every if held is None else ~held
    taught = split.half(rows, seen) if apart else seen
    raw = rows.raw_sample(names, taught)
    with Progress(f"learning from {len(names)} scores of {raw.n_id + raw.n_ood:,} rows"):
        learned = fit(
            raw,
            method,  # type: ignore[arg-type]
            model=model,
            groups=rows.ids(split.group, ~taught),
            rng=split.seed,
        )
    tuned = seen & ~taught if apart else seen
    return TuningRows(
        names,
        learned.sample_of(rows.raw_sample(names, tuned)) if apart else learned.sample,
        None if held is None else learned.sample_of(rows.raw_sample(names, held)),
        rows.ids(split.group, ~tuned),
        None if held is None else rows.ids(split.group, ~held),
        learned,
    )
