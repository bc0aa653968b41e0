"""How `demur tune --guarantee` prints a rule that comes with a promise."""

from __future__ import annotations

import click

from demur.cli.output import OutputOptions
from demur.cli.texts import (
    decision,
    echo_json,
    model_data,
    model_text,
    point_data,
    point_table,
    rate,
    rule_data,
    sample_data,
)
from demur.core.rates import OperatingPoint
from demur.core.sample import Sample
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.report.evidence import guarantee_data


def print_guarantee(
    promised: CertifiedTuning,
    fresh: tuple[OperatingPoint, Sample] | None,
    out: OutputOptions,
) -> None:
    """Print the rule, the promise, and what was seen on held-out rows if there are any."""
    rule = promised.rule
    if out.as_json:
        held_out = None if fresh is None else point_data(fresh[0]) | {"rows": sample_data(fresh[1])}
        echo_json(
            {
                "rule": rule_data(rule),
                "model": model_data(promised.model),
                "guarantee": guarantee_data(promised),
                "tested": point_data(promised.point),
                "held_out": held_out,
                "output": out.output,
            }
        )
        return
    click.echo(decision(rule, promised.point))
    kept = f"{model_text(promised.model)} is kept"
    if promised.expected_cost is not None:
        kept = f"the expected cost is at most {rate(promised.expected_cost, 5)}"
    click.echo(
        f"\nWith probability {promised.confidence:g} over the rows, in the population {kept},\n"
        f"and the selective risk is at most {rate(promised.selective_risk, 5)}."
    )
    if fresh is not None:
        click.echo()
        click.echo(point_table({"held out": fresh}))
    click.echo()
    click.echo(f"direction {list(rule.direction)}, threshold {rule.threshold!r}")
    click.echo(promised.caveat)
    if out.output is not None:
        click.echo(f"The rule is in {out.output}.")
