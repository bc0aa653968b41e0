"""`demur plan`."""

from __future__ import annotations

from dataclasses import asdict

import click

from demur.cli.options import Chance, Number, SectionCommand, option
from demur.cli.tables import Block, Cell, render
from demur.cli.texts import echo_json, model_data
from demur.core.paper_models import TprFprModel
from demur.core.program import Number as Bound
from demur.guarantees.planning import Plan, plan
from demur.guarantees.requirements import asked_text

_EXAMPLES = """\b
Examples:
  demur plan --min-tpr .8 --max-fpr .1 --confidence .95
  demur plan --min-tpr .9 --max-fpr .05 --margin .01 --margin .03 --power .8
"""
_bound, _add = option("Bounds to certify"), option("Certificate")


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@_bound("--min-tpr", type=Number(), required=True, help="Accept at least this share of ID inputs.")
@_bound("--max-fpr", type=Number(), help="Accept at most this share of OOD inputs.")
@_add("--confidence", type=Chance(), default="0.95", show_default=True, help="Chance it holds.")
@_add("--power", type=Chance(), default="0.9", show_default=True, help="Chance to get it.")
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
    min_tpr: Bound,
    max_fpr: Bound | None,
    confidence: Bound,
    power: Bound,
    margins: tuple[Bound, ...],
    as_json: bool,
) -> None:
    """Show how many fresh ID and OOD rows it takes to certify bounds on TPR and FPR."""
    asked = TprFprModel(min_tpr, 1 if max_fpr is None else max_fpr)
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
        f"To certify {asked_text(asked)} with confidence {planned.confidence:g}\n"
        f"and a chance of {planned.power:g} to succeed:\n"
    )
    click.echo(_sizes(planned))
    click.echo("\nChance that a number of rows certifies a bound:\n")
    click.echo(_power(planned))
    click.echo(f"\n{_fewest(planned)}")


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


def _fewest(planned: Plan) -> str:
    if planned.fewest_id is None or planned.fewest_ood is None:
        return "No number of rows certifies a bound of exactly 0 or 1: relax it."
    ood = f" or {planned.fewest_ood:,} OOD" if planned.fewest_ood else ""
    return f"Fewer than {planned.fewest_id:,} ID{ood} rows never certify these bounds."


def _rows(count: int | None) -> str:
    return "no number" if count is None else f"{count:,}"
