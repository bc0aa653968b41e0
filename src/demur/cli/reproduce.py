"""`demur reproduce`."""

from __future__ import annotations

import json
from pathlib import Path

import click

_SIZE = click.option(
    "--n", default=2000, show_default=True, type=click.IntRange(min=20), help="Size of the sample."
)
_SEED = click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of the sample."
)


@click.group()
def command() -> None:
    """Repeat the experiments of the paper, printed values beside ours."""


@command.command("table1")
@_SIZE
@_SEED
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def table1_command(n: int, seed: int, as_json: bool) -> None:
    """Table 1: methods A to D on synthetic data, under both models."""
    from demur.reproduce.table1 import table1

    table = table1(n=n, seed=seed)
    click.echo(json.dumps(table.as_dict(), indent=2) if as_json else str(table))


@command.command("figures")
@click.option(
    "-o",
    "--output",
    default="figures",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to.",
)
@_SIZE
@_SEED
def figures_command(output: Path, n: int, seed: int) -> None:
    """Risk-coverage at FPR 0.2, ROC and precision-recall curves of methods A to D."""
    from demur.reproduce.figures import write_figures

    for path in write_figures(output, n=n, seed=seed):
        click.echo(path)
