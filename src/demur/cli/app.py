"""The command `demur`: its subcommands, imported when asked for, its exit codes and complaints."""

from __future__ import annotations

import difflib
import io
import os
import signal
import sys
import warnings
from importlib import import_module
from typing import Any

import click

from demur.errors import DemurError, InfeasibleError, LikelyMistakeWarning, ScoreUnitsWarning

WRONG_INPUT = 2
UNMET = 3
"""No rule meets the bounds, or bounds asked of a rule are not met."""

# What shells give for a program that ends because its output is not read.
_PIPE_CLOSED = 128 + 13

COMMANDS = {
    "apply": "Add a column that tells the rows a saved rule accepts.",
    "certify": "State what can be promised of a saved rule, from fresh rows.",
    "compare": "Compare scores and pairs of scores in a table.",
    "completion": "Print a completion script for the shell.",
    "demo": "Train, tune and report on a small built-in example.",
    "estimate": "Estimate what tuned rules do on new inputs.",
    "evaluate": "Show what a saved rule does on new rows.",
    "info": "Show versions and the engine in use.",
    "plan": "Show how many rows it takes to certify bounds.",
    "prior": "Estimate the share of OOD inputs in use.",
    "report": "Tune a rule and write a page about it.",
    "reproduce": "Repeat the experiments of the paper.",
    "retune": "Tune for other bounds or another prior from saved counts.",
    "tune": "Find the best accept/reject rule.",
}
"""Command names, also the modules they live in, and their one-line help."""


class _LazyGroup(click.Group):
    """Keeps start-up fast: listing commands imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"demur.cli.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = difflib.get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and close and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Who reads the output has seen enough, as with | head; click would exit with 1.
            _discard_output()
            raise SystemExit(_PIPE_CLOSED) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="demur")
def app() -> None:
    """Decide when a classifier should not answer.

    demur finds the accept/reject rule with the smallest error on what it accepts, under bounds
    you state on accepted in-distribution and out-of-distribution inputs.

    Exit codes: 0 done, 2 wrong input, 3 the bounds cannot be met, or a rule does not meet them.
    """


def main() -> None:
    """Run the command line; errors of demur are printed without a traceback."""
    # So that a file half written is removed on the way out, and a search in C ends.
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, _stop)
    color = False if os.environ.get("NO_COLOR") else None
    _check_output(color)
    _show_warnings(color)
    try:
        app(prog_name="demur", color=color)
    except _Stopped as stopped:
        _complain(stopped, color)
        raise
    except DemurError as error:
        _complain(error, color)
        sys.exit(UNMET if isinstance(error, InfeasibleError) else WRONG_INPUT)
    except MemoryError:
        _complain(MemoryError("there is not enough memory for this"), color)
        sys.exit(WRONG_INPUT)
    except OSError as error:
        _complain(error, color)
        _discard_output()
        sys.exit(WRONG_INPUT)


def _check_output(color: bool | None) -> None:
    """Refuse a closed standard output; have what a terminal cannot show written another way."""
    if sys.stdout is None:
        _complain(OSError("standard output is closed: give it a place, such as > /dev/null"), color)
        sys.exit(WRONG_INPUT)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    # Python would try once more to write what is left for a full or closed standard output.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Stopped(SystemExit):
    """A signal asks the command to end, with the exit code that shells give such an end."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)

    def __str__(self) -> str:
        return f"stopped by {self.signal.name}"


def _stop(number: int, frame: object) -> None:
    raise _Stopped(number)


def _complain(error: BaseException, color: bool | None) -> None:
    click.echo(f"{click.style('demur:', fg='red')} {error}", err=True, color=color)


def _show_warnings(color: bool | None) -> None:
    """Print demur's own warnings without the place in the source."""
    show = warnings.showwarning

    def warn(message: Any, category: type[Warning], *args: Any, **options: Any) -> None:
        if issubclass(category, (ScoreUnitsWarning, LikelyMistakeWarning)):
            words = f"{click.style('demur: warning:', fg='yellow')} {message}"
            click.echo(words, err=True, color=color)
        else:
            show(message, category, *args, **options)

    warnings.showwarning = warn
