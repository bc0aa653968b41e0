"""Where results go: files that are never replaced unasked, JSON, and notes beside the data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from demur._files import check_target
from demur.cli.options import Command, gathered, option
from demur.cli.texts import echo_json
from demur.errors import InfeasibleError, InvalidInputError


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The file to write, if any, and whether scripts read what is printed."""

    output: str | None
    force: bool
    as_json: bool

    def check(self) -> None:
        """Refuse an output that cannot or must not be written, before the work begins."""
        if self.output is None:
            return
        check_target(self.output)
        if Path(self.output).exists() and not self.force:
            raise InvalidInputError(f"{self.output!r} exists; add --force to replace it")

    @contextmanager
    def infeasible_as_json(self) -> Iterator[None]:
        """Tell scripts which bounds are attainable, beside the message."""
        try:
            yield
        except InfeasibleError as error:
            if self.as_json:
                attainable = {k: None if math.isnan(v) else v for k, v in error.attainable.items()}
                echo_json({"infeasible": str(error), "attainable": attainable})
            raise


def output_options(what: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the output as `out`."""
    add = option("Output")
    return gathered(
        "out",
        OutputOptions,
        [
            add("-o", "--output", type=click.Path(), metavar="FILE", help=what),
            add("--force", is_flag=True, help="Replace FILE if it exists."),
            add("--json", "as_json", is_flag=True, help="Print JSON for scripts."),
        ],
    )


def note(text: str) -> None:
    """Print a remark where it does not mix with the data."""
    click.echo(f"demur: {text}", err=True)
