"""What the options of several commands share: types, sections of the help, completion."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import fields
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from demur.errors import DemurError

Command = Callable[..., None]

# Larger exponents would keep exact arithmetic busy for ever.
_LARGEST_EXPONENT = 300


class Number(click.ParamType):  # type: ignore[type-arg]
    """A number kept as the decimal or fraction that was typed, so that .8 is 8/10."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal | Fraction:
        """Read ``.8``, ``1e-3`` or ``1/3``."""
        if isinstance(value, (Decimal, Fraction)):
            return value
        try:
            number = Fraction(value) if "/" in value else Decimal(value)
        except (InvalidOperation, ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number such as 0.8 or 1/3", param, ctx)
        if isinstance(number, Decimal) and (
            not number.is_finite() or abs(number.adjusted()) > _LARGEST_EXPONENT
        ):
            self.fail(f"{value!r} is not a finite number of reasonable size", param, ctx)
        return number


class Chance(Number):
    """A number between 0 and 1, neither included."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal | Fraction:
        """Read ``.95``."""
        number = super().convert(value, param, ctx)
        if not 0 < number < 1:
            self.fail(f"{value!r} is not between 0 and 1, as .95 is", param, ctx)
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
        names = tuple(name.strip() for name in value.split(","))
        if not all(names) or len(set(names)) < len(names):
            self.fail(f"{value!r} is not a list of different names, as in a,b", param, ctx)
        return names


class SectionOption(click.Option):
    """An option that is listed under a heading of its own in the help."""

    def __init__(self, *args: Any, section: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class SectionCommand(click.Command):
    """A command whose help groups the options by section."""

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
