"""`demur plan`."""

from __future__ import annotations

from dataclasses import asdict

import click

from demur.cli.options import (
    Chance,
    LevelOption,
    Number,
    SectionCommand,
    Share,
    level_option,
    option,
)
from demur.cli.output import json_option, note
from demur.cli.printing import Result, ResultTable, Section
from demur.core.paper_models import TprFprModel
from demur.core.program import Number as Bound
from demur.guarantees.planning import Plan, plan
from demur.guarantees.requirements import asked_text

_EXAMPLES = """\b
Examples:
  demur plan --min-tpr .8 --max-fpr .1 --level .95
  demur plan --min-tpr .9 --max-fpr .05 --margin .01 --margin .03 --power .8
"""
_bound, _add = option("Bounds to certify"), option("Certificate")


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@_bound("--min-tpr", type=Share(), required=True, help="Accept at least this share of ID inputs.")
@_bound("--max-fpr", type=Share(), help="Accept at most this share of OOD inputs.")
@level_option("Certificate", "Chance it holds.")
@_add("--confidence", "old_level", type=Chance(), multiple=True, hidden=True)
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
@json_option()
def command(
    min_tpr: Bound,
    max_fpr: Bound | None,
    level: Bound | None,
    old_level: tuple[Bound, ...],
    power: Bound,
    margins: tuple[Bound, ...],
    as_json: bool,
) -> None:
    """Show how many fresh ID and OOD rows it takes to certify bounds on TPR and FPR."""
    told = LevelOption.of(level, old_level, note)
    asked = TprFprModel(min_tpr, 1 if max_fpr is None else max_fpr)
    planned = plan(
        asked,
        margins=[float(margin) for margin in margins],
        confidence=float(told.level),
        power=float(power),
    )
    asks = [
        f"To certify {asked_text(asked)} with confidence {planned.confidence:g}",
        f"and a chance of {planned.power:g} to succeed:",
    ]
    sections = [
        Section(asks, table=_sizes(planned)),
        Section(["Chance that a number of rows certifies a bound:"], table=_power(planned)),
        Section([_fewest(planned)]),
    ]
    Result(sections, asdict(planned) | {"model": asked.to_data()}).show(as_json=as_json)


def _sizes(planned: Plan) -> ResultTable:
    rows = [
        [
            f"{row.margin:g}",
            f"{row.tpr:g}",
            f"{row.fpr:g}",
            _rows(row.n_id),
            _rows(row.n_ood),
        ]
        for row in planned.rows
    ]
    return ResultTable.of(["margin", "true TPR", "true FPR", "ID rows", "OOD rows"], rows)


def _power(planned: Plan) -> ResultTable:
    rows = [
        [
            f"{point.margin:g}",
            f"{point.rows:,}",
            f"{point.tpr_power:.3f}",
            f"{point.fpr_power:.3f}",
        ]
        for point in planned.curve
    ]
    return ResultTable.of(["margin", "rows", "TPR (ID rows)", "FPR (OOD rows)"], rows)


def _fewest(planned: Plan) -> str:
    if planned.fewest_id is None or planned.fewest_ood is None:
        return "No number of rows certifies a bound of exactly 0 or 1: relax it."
    ood = f" or {planned.fewest_ood:,} OOD" if planned.fewest_ood else ""
    return f"Fewer than {planned.fewest_id:,} ID{ood} rows never certify these bounds."


def _rows(count: int | None) -> str:
    return "no number" if count is None else f"{count:,}"
