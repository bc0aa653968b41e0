"""What options are made of: their types, the sections of the help, and groups of them.

Every group reaches a command as one value (`gathered`). Single options that several commands have
are here as well.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Self

import click
from click.shell_completion import CompletionItem

from demur.core.program import Number as Bound
from demur.errors import DemurError

Command = Callable[..., None]


_UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_LEAST_SIZE, _MOST_SIZE = 50 * 10**6, 2**50

# Larger exponents and more digits would keep exact arithmetic busy for ever.
_LARGEST_EXPONENT = 300
_MOST_DIGITS = 100


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


def size_text(size: int) -> str:
    """Return about so many bytes, and not fewer, as `Size` reads them.

    Examples
    --------
    >>> size_text(310_500_000), size_text(2_000_000_000)
    ('320MB', '2GB')
    """
    unit = next(u for u in ("TB", "GB", "MB") if size >= _UNITS[u] or u == "MB")
    amount = size / _UNITS[unit]
    # Two digits say enough.
    step = 10 ** max(0, len(str(int(amount))) - 2) if amount >= 10 else 0.1
    return f"{math.ceil(amount / step - 1e-9) * step:.3g}{unit}"


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
            # A field with a default need not be an option of every command.
            named = [field.name for field in fields(kind) if field.name in given]
            value = kind(**{name: given.pop(name) for name in named})
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
    from demur.sources.files import FORMATS
    from demur.sources.tables import column_names

    # While an option lacks its value, click leaves the arguments unassigned.
    words = [word for word in (ctx.params.get("data"), *ctx.args) if word is not None]
    paths = [word for word in words if Path(word).suffix.lower() in FORMATS]
    try:
        names = column_names(paths[-1]) if paths else []
    except DemurError:
        return []
    before, comma, start = incomplete.rpartition(",")
    return [CompletionItem(before + comma + name) for name in names if name.startswith(start)]


def seed_option(section: str, what: str) -> Callable[[Command], Command]:
    """Return the option of a seed, which is no negative number."""
    return option(section)(
        "--seed", type=click.IntRange(0), default=0, show_default=True, help=what
    )


def scores_option(**changes: Any) -> Callable[[Command], Command]:
    """Return the option that names the scores; given twice, it names a pair."""
    given: dict[str, Any] = {
        "type": Names(),
        "multiple": True,
        "callback": one_list,
        "metavar": "A[,B]",
        "shell_complete": complete_column,
        "help": "One score, or the pair (risk score, OOD score). Higher = more doubt.",
    }
    return option("Columns")("--scores", **(given | changes))


def confidence_option() -> Callable[[Command], Command]:
    """Return the option that names the scores to be flipped."""
    return option("Columns")(
        "--confidence",
        type=Names(),
        multiple=True,
        callback=one_list,
        metavar="COLUMNS",
        shell_complete=complete_column,
        help="Those scores that are confidences (higher = less doubt).",
    )
