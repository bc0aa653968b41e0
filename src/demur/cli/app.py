"""The command group, which imports a command only when it is asked for."""

from __future__ import annotations

import difflib
from importlib import import_module

import click

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
        command: click.Command = import_module(f"demur.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        close = difflib.get_close_matches(args[0], COMMANDS, n=1)
        if args[0] not in COMMANDS and close and not ctx.resilient_parsing:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="demur")
def app() -> None:
    """Decide when a classifier should not answer.

    demur finds the accept/reject rule with the smallest error on what it accepts, under bounds
    you state on accepted in-distribution and out-of-distribution inputs.

    Exit codes: 0 done, 2 wrong input, 3 the bounds cannot be met.
    """
