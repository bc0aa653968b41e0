"""`demur evaluate`."""

from __future__ import annotations

import click

from demur.cli.inputs import DataOptions, data_options, read_rows, scores_option
from demur.cli.models import ModelOptions, model_options
from demur.cli.options import SectionCommand, option
from demur.cli.progress import Progress
from demur.cli.texts import (
    ONLY_THESE_OOD,
    bounds_met,
    decision,
    echo_json,
    model_data,
    point_data,
    point_table,
    rule_data,
    sample_data,
)
from demur.core.rates import evaluate
from demur.core.rule import Rule
from demur.errors import InvalidInputError

_EXAMPLES = """\b
Examples:
  demur evaluate rule.json test.parquet --loss is_wrong --ood is_ood
  demur evaluate rule.json test.csv --label y --prediction yhat --ood set \\
      --min-tpr .8 --max-fpr .1 --prior .05
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@scores_option(help="Columns to read in place of those that the rule names.")
@data_options()
@model_options("Bounds to check, or costs (optional)")
@option("Output")("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def command(
    rule: str,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    model: ModelOptions,
    as_json: bool,
) -> None:
    """Show what a saved RULE does on the rows of DATA.

    On rows the rule was not tuned on these are honest estimates. The columns of the scores are
    those that the rule names; confidences stay as they are.
    """
    models = model.models()
    if len(models) > 1:
        raise click.UsageError("the options mix models: check one at a time")
    loaded = Rule.load(rule)
    names = score_columns(loaded, scores)
    # The rule reads raw columns, so nothing is flipped here.
    rows = read_rows(data, [names], flip=False)
    asked = models[0] if models else None
    with Progress("evaluating"):
        sample = rows.sample(names)
        point = evaluate(loaded, sample, model=asked, ood_prior=model.prior)
    met = {} if asked is None else bounds_met(asked, point)
    if as_json:
        echo_json(
            {
                "rule": rule_data(loaded),
                "model": None if asked is None else model_data(asked),
                "point": point_data(point) | {"rows": sample_data(sample)},
                "bounds_met": met,
            }
        )
        return
    click.echo(decision(loaded, point))
    click.echo()
    click.echo(point_table({"these rows": (point, sample)}))
    click.echo()
    for bound, fulfilled in met.items():
        click.echo(f"{bound}: {'met' if fulfilled else click.style('not met', fg='red')}")
    click.echo(ONLY_THESE_OOD)


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
