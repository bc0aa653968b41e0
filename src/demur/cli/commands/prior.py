"""`demur prior`."""

from __future__ import annotations

import click

from demur.cli.inputs import (
    DataOptions,
    data_options,
    read_deployed,
    read_rows,
    rule_on,
    scores_option,
)
from demur.cli.options import Chance, SectionCommand, option
from demur.cli.output import json_option
from demur.cli.printing import Result, Section, rows_data
from demur.core.program import Number as Bound
from demur.core.rule import Rule, rule_data
from demur.core.wording import at_least_text, at_most_text, formula
from demur.guarantees.prior import PriorEstimate, estimate_prior
from demur.report.plain import prior_data, prior_text

_EXAMPLES = """\b
Examples:
  demur prior rule.json fresh.parquet --ood is_ood --deployed today.parquet
  demur certify rule.json fresh.parquet --loss is_wrong --ood is_ood --prior-range .02 .08
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@scores_option(help="Columns to read in place of those that the rule names.")
@data_options()
@option("Columns")(
    "--deployed",
    type=click.Path(),
    required=True,
    metavar="FILE",
    help="Scores of inputs in use, in the same columns; no labels are needed.",
)
@option("Estimate")(
    "--confidence", type=Chance(), default="0.95", show_default=True, help="Of the interval."
)
@json_option()
def command(
    rule: str,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    deployed: str,
    confidence: Bound,
    as_json: bool,
) -> None:
    """Estimate the share of OOD inputs in use, from what a saved RULE accepts of them.

    DATA are labelled rows that the rule was not tuned on: they tell its TPR and FPR. The more
    OOD inputs there are in use, the fewer inputs it accepts. The interval holds as long as ID
    and OOD inputs in use are like those of DATA, in another proportion.
    """
    loaded = Rule.load(rule)
    loaded, names = rule_on(loaded, scores)
    sample = read_rows(data, [names], confidence=loaded.confidence, need_loss=False).sample(names)
    in_use = read_deployed(deployed, names)
    found = estimate_prior(loaded, in_use, validation=sample, confidence=float(confidence))
    facts = [f"Rule: accept when {formula(loaded)}. {len(in_use):,} inputs in use."]
    described = {
        "rule": rule_data(loaded),
        "rows": rows_data(sample),
        "deployed": len(in_use),
    }
    section = Section(facts, notes=[prior_text(found), *_advice(found)])
    Result([section], prior_data(found) | described).show(as_json=as_json)


def _advice(found: PriorEstimate) -> list[str]:
    if not found.consistent:
        return []
    low, high = at_least_text(found.interval.low, 4), at_most_text(found.interval.high, 4)
    # At a share of 1 no precision can be promised.
    if float(high) >= 1:
        return []
    both, each = 2 * found.confidence - 1, (1 + found.confidence) / 2
    return [
        f"To be safe over all of it: demur certify --prior-range {low} {high}",
        f"Both then hold together with confidence {both:.4g}; for {found.confidence:g}, give "
        f"--confidence {each:.4g} to each.",
    ]
