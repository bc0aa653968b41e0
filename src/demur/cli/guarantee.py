"""A rule that comes with a promise: how `demur` finds and prints it."""

from __future__ import annotations

import click

from demur.cli.output import OutputOptions
from demur.cli.progress import Progress
from demur.cli.raw_columns import promise_on_raw_columns
from demur.cli.search import SearchOptions
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
from demur.core.models import RejectionModel
from demur.core.program import Number
from demur.core.rates import OperatingPoint, evaluate
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.guarantees.certified_tuning import CertifiedTuning, tune_certified
from demur.report.evidence import guarantee_data


def tune_promised(
    sample: Sample,
    model: RejectionModel,
    confidence: Number,
    *,
    search: SearchOptions,
    seed: int,
    max_loss: Number | None,
) -> CertifiedTuning | InfeasibleError:
    """Return the rule with its promise, or the error that says why there is none."""
    with Progress("tuning with a guarantee"):
        try:
            return tune_certified(
                sample,
                model,
                confidence=float(confidence),
                max_loss=max_loss,
                directions=search.directions,
                search=search.search,
                rng=seed,
            )
        except InfeasibleError as error:
            return error


def finish_promised(
    promised: CertifiedTuning | InfeasibleError,
    test: Sample | None,
    prior: Number | None,
    confidence: tuple[str, ...],
    out: OutputOptions,
) -> None:
    """Save the rule for the columns as they are, and print its promise; raise if there is none."""
    with out.infeasible_as_json():
        if isinstance(promised, InfeasibleError):
            raise promised
    fresh = None
    if test is not None:
        fresh = (evaluate(promised.rule, test, model=promised.model, ood_prior=prior), test)
    promised = promise_on_raw_columns(promised, confidence)
    if out.output is not None:
        promised.rule.save(out.output)
    _print(promised, fresh, out)


def _print(
    promised: CertifiedTuning,
    fresh: tuple[OperatingPoint, Sample] | None,
    out: OutputOptions,
) -> None:
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
