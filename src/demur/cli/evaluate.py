"""`demur evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from demur.cli.inputs import DataOptions, data_options, read_rows, scores_option
from demur.cli.models import ModelOptions, model_options
from demur.cli.options import SectionCommand, complete_column, option
from demur.cli.progress import Progress
from demur.cli.streaming import EngineOptions, engine_options
from demur.cli.tables import Block, Cell, render
from demur.cli.texts import (
    ONLY_THESE_OOD,
    bounds_met,
    decision,
    echo_json,
    model_data,
    point_data,
    point_table,
    rate,
    rule_data,
    sample_data,
)
from demur.core.rates import OperatingPoint, evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import Overview
from demur.errors import InvalidInputError

_EXAMPLES = """\b
Examples:
  demur evaluate rule.json test.parquet --loss is_wrong --ood is_ood
  demur evaluate rule.json test.csv --label y --prediction yhat --ood set \\
      --min-tpr .8 --max-fpr .1 --prior .05
  demur evaluate rule.json 'lake/**/*.parquet' --loss is_wrong --ood is_ood --by day
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@scores_option(help="Columns to read in place of those that the rule names.")
@data_options()
@model_options("Bounds to check, or costs (optional)")
@option("Columns")(
    "--by",
    metavar="COLUMN",
    shell_complete=complete_column,
    help="Show the rates for each value of this column too, such as a day.",
)
@engine_options()
@option("Output")("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def command(
    rule: str,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    model: ModelOptions,
    by: str | None,
    engine: EngineOptions,
    as_json: bool,
) -> None:
    """Show what a saved RULE does on the rows of DATA.

    On rows the rule was not tuned on these are honest estimates. The columns of the scores are
    those that the rule names; confidences stay as they are. DATA may be many files, as for
    demur tune.
    """
    models = model.models()
    if len(models) > 1:
        raise click.UsageError("the options mix models: check one at a time")
    loaded = Rule.load(rule)
    names = score_columns(loaded, scores)
    asked = models[0] if models else None
    groups: dict[Any, OperatingPoint] = {}
    sizes: Sample | Overview
    # The rule reads raw columns, so nothing is flipped here.
    if by is not None or engine.streams(data):
        with (
            Progress("counting rows") as progress,
            engine.opened(data, names, (), progress) as source,
        ):
            point = evaluate(loaded, source, model=asked, ood_prior=model.prior)
            if by is not None:
                groups = evaluate(loaded, source, model=asked, ood_prior=model.prior, by=by)
            sizes = source.overview()
    else:
        rows = read_rows(data, [names], flip=False)
        with Progress("evaluating"):
            sizes = rows.sample(names)
            point = evaluate(loaded, sizes, model=asked, ood_prior=model.prior)
    met = {} if asked is None else bounds_met(asked, point)
    groups = dict(sorted(groups.items(), key=lambda item: (item[0] is None, item[0])))
    if as_json:
        echo_json(
            {
                "rule": rule_data(loaded),
                "model": None if asked is None else model_data(asked),
                "point": point_data(point) | {"rows": sample_data(sizes)},
                "bounds_met": met,
            }
            | ({} if by is None else {"by": by, "groups": _group_data(groups)})
        )
        return
    click.echo(decision(loaded, point))
    click.echo()
    click.echo(point_table({"these rows": (point, sizes)}))
    click.echo()
    if by is not None:
        click.echo(_group_table(by, groups))
        click.echo()
    for bound, fulfilled in met.items():
        click.echo(f"{bound}: {'met' if fulfilled else click.style('not met', fg='red')}")
    click.echo(ONLY_THESE_OOD)


def _group_data(groups: Mapping[Any, OperatingPoint]) -> list[dict[str, Any]]:
    # Days and the like have no form of their own in JSON.
    plain = (int, float, str, type(None))
    return [
        {"value": value if isinstance(value, plain) else str(value)} | point_data(point)
        for value, point in groups.items()
    ]


def _group_table(by: str, groups: Mapping[Any, OperatingPoint]) -> str:
    """Return one line for each group."""
    rows = [
        [
            Cell("missing" if value is None else str(value)),
            Cell(rate(point.tpr)),
            Cell(rate(point.fpr)),
            Cell(rate(point.selective_risk, 5)),
            Cell(f"{point.accepted_id:,.10g}"),
            Cell(f"{point.accepted_ood:,.10g}"),
        ]
        for value, point in groups.items()
    ]
    heads = [by, "TPR", "FPR", "selective risk", "accepted ID", "accepted OOD"]
    return render("text", heads, [Block("", rows)])


def score_columns(rule: Rule, given: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return the columns a rule reads: those given, or else those it names."""
    names = given or rule.score_names
    if names is None:
        raise InvalidInputError("the rule does not name its columns: name them with --scores")
    if len(names) != len(rule.direction):
        raise InvalidInputError(
            f"--scores: the rule takes {len(rule.direction)} columns, got {', '.join(names)}"
        )
    return names
