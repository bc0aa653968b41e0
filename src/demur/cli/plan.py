"""`demur plan`."""

from __future__ import annotations

from dataclasses import asdict

import click

from demur.cli.models import ModelOptions, model_options
from demur.cli.options import Number, SectionCommand, option
from demur.cli.tables import Block, Cell, render
from demur.cli.texts import echo_json, model_data
from demur.core.models import TprFprModel
from demur.core.program import Number as Bound
from demur.guarantees.plan import Plan, plan

_EXAMPLES = """\b
Examples:
  demur plan --min-tpr .8 --max-fpr .1 --confidence .95
  demur plan --min-tpr .9 --max-fpr .05 --margin .01 --margin .03 --power .8
"""
_add = option("Certificate")


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@model_options("Bounds to certify")
@_add("--confidence", type=Number(), default="0.95", show_default=True, help="Chance it holds.")
@_add("--power", type=Number(), default="0.9", show_default=True, help="Chance to get it.")
@_add(
    "--margin",
    "margins",
    type=Number(),
    multiple=True,
    default=["0.01", "0.02", "0.05"],
    show_default=True,
    help="By how much the rule is truly better than the bounds; may be repeated.",
)
@option("Output")("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def command(
    model: ModelOptions,
    confidence: Bound,
    power: Bound,
    margins: tuple[Bound, ...],
    as_json: bool,
) -> None:
    """Show how many fresh ID and OOD rows it takes to certify bounds on TPR and FPR."""
    asked = model.one_model()
    if not isinstance(asked, TprFprModel):
        raise click.UsageError("a plan needs --min-tpr, with --max-fpr if FPR is to be bounded")
    planned = plan(
        asked,
        margins=[float(margin) for margin in margins],
        confidence=float(confidence),
        power=float(power),
    )
    if as_json:
        echo_json(asdict(planned) | {"model": model_data(asked)})
        return
    click.echo(
        f"To certify TPR >= {asked.min_tpr} and FPR <= {asked.max_fpr} with confidence "
        f"{planned.confidence:g}\nand a chance of {planned.power:g} to succeed:\n"
    )
    click.echo(_sizes(planned))
    click.echo("\nChance that a number of rows certifies a bound:\n")
    click.echo(_power(planned))
    click.echo(
        f"\nFewer than {_rows(planned.fewest_id)} ID or {_rows(planned.fewest_ood)} OOD rows "
        "never certify these bounds."
    )


def _sizes(planned: Plan) -> str:
    rows = [
        [
            Cell(f"{row.margin:g}"),
            Cell(f"{row.tpr:g}"),
            Cell(f"{row.fpr:g}"),
            Cell(_rows(row.n_id)),
            Cell(_rows(row.n_ood)),
        ]
        for row in planned.rows
    ]
    return render(
        "text", ["margin", "true TPR", "true FPR", "ID rows", "OOD rows"], [Block("", rows)]
    )


def _power(planned: Plan) -> str:
    rows = [
        [
            Cell(f"{point.margin:g}"),
            Cell(f"{point.rows:,}"),
            Cell(f"{point.tpr_power:.3f}"),
            Cell(f"{point.fpr_power:.3f}"),
        ]
        for point in planned.curve
    ]
    return render("text", ["margin", "rows", "TPR (ID rows)", "FPR (OOD rows)"], [Block("", rows)])


def _rows(count: int | None) -> str:
    return "no number" if count is None else f"{count:,}"
