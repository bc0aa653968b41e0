"""The options that commands share: their types and sections of the help, and the groups of them.

Every group (here the rejection model and the search) reaches a command as one value.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import click
from click.shell_completion import CompletionItem

from demur.core.models import RejectionModel
from demur.core.paper_models import CostModel, PrecisionRecallModel, TprFprModel
from demur.core.program import Number as Bound
from demur.errors import DemurError, InvalidInputError
from demur.tuning.directions import Directions
from demur.tuning.result import Grid

Command = Callable[..., None]

_MODELS = """give one of
  --min-tpr [--max-fpr]
  --min-precision --min-recall --prior
  --cost-reject-id [--cost-accept-ood] [--cost-reject-ood] [--prior]"""

_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_LEAST_SIZE, _MOST_SIZE = 50 * 10**6, 2**50

# Larger exponents and more digits would keep exact arithmetic busy for ever.
_LARGEST_EXPONENT = 300
_MOST_DIGITS = 100

LARGEST_GRID = 10**6
"""Angles that a grid may have; its directions have to fit into memory."""


class Number(click.ParamType):  # type: ignore[type-arg]
    """A number kept as the decimal or fraction that was typed, so that .8 and 80% are 8/10."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal | Fraction:
        """Read ``.8``, ``80%``, ``1e-3`` or ``1/3``."""
        if isinstance(value, (Decimal, Fraction)):
            return value
        text = str(value).strip()
        if len(text) > _MOST_DIGITS:
            self.fail(f"{text[:20]}... has more than {_MOST_DIGITS} digits", param, ctx)
        try:
            number = _read_number(text)
        except (InvalidOperation, ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number such as 0.8, 80% or 1/3", param, ctx)
        if isinstance(number, Decimal) and (
            not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT
        ):
            self.fail(f"{value!r} is not a finite number of reasonable size", param, ctx)
        return number


def _read_number(text: str) -> Decimal | Fraction:
    plain = text.removesuffix("%")
    if "/" in plain:
        return Fraction(plain) / (100 if text != plain else 1)
    # Normalised, since 80% is to be shown as 0.8; no rounding, which Decimal does at 28 digits.
    if text == plain:
        return Decimal(plain)
    number = Decimal(f"{plain}e-2")
    return number.normalize() if len(number.as_tuple().digits) < 28 else number


class Share(Number):
    """A number from 0 to 1; what looks like per cent is asked about."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal | Fraction:
        """Read ``.8`` or ``80%``."""
        number = super().convert(value, param, ctx)
        if not 0 <= number <= 1:
            hint = (
                f"; did you mean {float(number) / 100:g} or {value}%?" if 1 < number <= 100 else ""
            )
            self.fail(f"{value!r} is not a share from 0 to 1{hint}", param, ctx)
        return number


class Chance(Number):
    """A number between 0 and 1, neither included."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal | Fraction:
        """Read ``.95``."""
        number = super().convert(value, param, ctx)
        if not 0 < number < 1:
            hint = (
                f"; did you mean {float(number) / 100:g} or {value}%?" if 1 < number < 100 else ""
            )
            self.fail(f"{value!r} is not between 0 and 1, as .95 is{hint}", param, ctx)
        return number


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names with commas between them."""

    name = "names"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Split at commas; every name may be given once."""
        if isinstance(value, tuple):
            return value
        if isinstance(value, list):
            value = ",".join(map(str, value))
        names = tuple(name.strip() for name in value.split(","))
        if not all(names) or len(set(names)) < len(names):
            self.fail(f"{value!r} is not a list of different names, as in a,b", param, ctx)
        return names


def one_list(
    ctx: click.Context, param: click.Parameter, given: Sequence[tuple[str, ...]]
) -> tuple[str, ...]:
    """Join the lists of an option that was repeated: ``--scores a --scores b`` is ``a,b``."""
    names = tuple(name for part in given for name in part)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise click.BadParameter(f"{twice[0]!r} is given twice", ctx, param)
    return names


class NamesOrLevel(Names):
    """Names with commas; a number is a level, as it was called before ``--level``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read a number between 0 and 1, or names."""
        try:
            _read_number(str(value).strip()[:_MOST_DIGITS])
        except (InvalidOperation, ValueError, ZeroDivisionError):
            return super().convert(value, param, ctx)
        return Chance().convert(value, param, ctx)


class LevelOption(NamedTuple):
    """The level as it was given, and the columns that are confidences if any were named."""

    level: Bound
    confidence: tuple[str, ...]

    @classmethod
    def of(cls, level: Bound | None, given: Sequence[Any], remark: Callable[[str], None]) -> Self:
        """Sort out what ``--level`` and ``--confidence`` say; `remark` tells of old spelling."""
        numbers = [one for one in given if not isinstance(one, tuple)]
        names = tuple(name for one in given if isinstance(one, tuple) for name in one)
        if numbers and (level is not None or len(numbers) > 1):
            raise click.UsageError("the level is given twice: it is --level alone")
        if numbers:
            remark(
                f"--confidence {numbers[0]} is taken for --level {numbers[0]}: --confidence names "
                "columns everywhere"
            )
            level = numbers[0]
        return cls(Decimal("0.95") if level is None else level, names)


def level_option(section: str, what: str) -> Callable[[Command], Command]:
    """Return the option of the level of a promise or an interval."""
    return option(section)("--level", type=Chance(), show_default="0.95", help=what)


def names_or_level_option() -> Callable[[Command], Command]:
    """Return ``--confidence`` of commands where it was the level once."""
    return option("Columns")(
        "--confidence",
        type=NamesOrLevel(),
        multiple=True,
        metavar="COLUMNS",
        shell_complete=complete_column,
        help="Those scores that are confidences, if the rule does not tell.",
    )


class Size(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes, such as 2GB or 512MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the number and its unit."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", value.strip())
        units = {unit.lower(): size for unit, size in _UNITS.items()}
        if found is None or found[2].lower() not in units:
            self.fail(f"{value!r} is not a size such as 2GB or 512MiB", param, ctx)
        amount = float(found[1]) * units[found[2].lower()]
        if amount > _MOST_SIZE:
            most = f"{_MOST_SIZE // 2**40}TiB"
            self.fail(f"{value!r} is more than any machine has, {most}", param, ctx)
        size = int(amount)
        if size < _LEAST_SIZE:
            self.fail(f"{value!r} is too little: the least is {_LEAST_SIZE // 10**6}MB", param, ctx)
        return size


class SectionOption(click.Option):
    """An option that is listed under a heading of its own in the help."""

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


PROJECT_FILE = "demur.toml"
"""Read from the working directory, if it is there."""


class SectionCommand(click.Command):
    """A command whose help groups the options by section, and that a project file may fill in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(
            click.Option(
                ["--project"],
                type=click.Path(),
                metavar="FILE",
                expose_value=False,
                help="Take options not given from here; by default from demur.toml.",
            )
        )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let a project file stand for the options that are not given."""
        asked = any(arg.startswith("--project") for arg in args)
        if not ctx.resilient_parsing and (asked or os.path.isfile(PROJECT_FILE)):
            from demur.cli.project import project_values

            try:
                given, _, _ = self.make_parser(ctx).parse_args(list(args))
            except click.UsageError:
                # Told by the parsing below, with all that belongs to it.
                given = {"help": True}
            if not given.get("help"):
                ctx.default_map = project_values(self, str(ctx.info_name), given)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options for every section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections.setdefault(getattr(param, "section", "Help"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def option(section: str) -> Callable[..., Callable[[Command], Command]]:
    """Return a `click.option` whose options are listed under `section`."""
    return functools.partial(click.option, cls=SectionOption, section=section)


def gathered(
    name: str, kind: type, options: Sequence[Callable[[Command], Command]]
) -> Callable[[Command], Command]:
    """Return a decorator that adds options and hands them over as one value `name`."""

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def with_value(**given: Any) -> None:
            value = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            function(**{name: value}, **given)

        command: Command = with_value
        for add in reversed(options):
            command = add(command)
        return command

    return decorate


def complete_column(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last name of a comma list from the columns of the file named before."""
    from demur.sources.files import FORMATS, column_names

    # While an option lacks its value, click leaves the arguments unassigned.
    words = [word for word in (ctx.params.get("data"), *ctx.args) if word is not None]
    paths = [word for word in words if Path(word).suffix.lower() in FORMATS]
    try:
        names = column_names(paths[-1]) if paths else []
    except DemurError:
        return []
    before, comma, start = incomplete.rpartition(",")
    return [CompletionItem(before + comma + name) for name in names if name.startswith(start)]


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
                "--max-fpr and --prior need OOD rows: name their column with --ood"
            )
        return model

    def check_ood(self, rows: int, column: str | None) -> None:
        """Refuse to go on without OOD rows where bounds or costs are about them."""
        if self._needs_ood and not rows:
            raise InvalidInputError(f"column {column!r} marks no row as OOD")

    @property
    def _needs_ood(self) -> bool:
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
        ],
    )


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Which rules compete."""

    fpr_of: Literal["pooled", "worst"]
    directions: Directions | None
    grid: int | None

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


def seed_option(section: str, what: str) -> Callable[[Command], Command]:
    """Return the option of a seed, which is no negative number."""
    return option(section)(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help=what
    )


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
