"""A rule that comes with a promise: how `demur` finds and prints it."""

from __future__ import annotations

import math

import click
import numpy as np

from demur.cli.inputs import Rows
from demur.cli.output import OutputOptions
from demur.cli.progress import Progress
from demur.cli.raw_columns import promise_on_raw_columns
from demur.cli.search import SearchOptions
from demur.cli.texts import (
    decision,
    echo_json,
    model_data,
    point_data,
    point_table,
    rule_data,
    sample_data,
)
from demur.core.models import RejectionModel
from demur.core.paper_models import PrecisionRecallModel, TprFprModel
from demur.core.program import Number
from demur.core.rates import OperatingPoint, evaluate
from demur.core.sample import Sample
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.certified_tuning import CertifiedTuning, tune_certified
from demur.guarantees.intervals import at_most_text
from demur.guarantees.requirements import asked_text
from demur.report.plain_data import guarantee_data


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


def refuse_repeated_ids(rows: Rows, column: str | None) -> None:
    """Raise when several rows have one id: they are not independent, so no count is a proof."""
    if column is None:
        return
    ids = rows.columns[column].astype(str)
    different = len(np.unique(ids))
    if different < len(ids):
        raise InvalidInputError(
            f"--guarantee counts independent rows, but column {column!r} has {different:,} ids in "
            f"{len(ids):,} rows: keep one row of each id"
        )


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


def _seen(promised: CertifiedTuning) -> str:
    rows = f"{promised.sizes.test_id:,} ID and {promised.sizes.test_ood:,} OOD rows"
    return f"That was seen on {rows} set aside to test it; promised is this:"


def _promise(promised: CertifiedTuning) -> str:
    """Return what is promised; a rule that accepts nothing has no selective risk."""
    model = promised.model
    said = []
    if isinstance(model, (TprFprModel, PrecisionRecallModel)):
        said.append(asked_text(model))
    if promised.expected_cost is not None:
        said.append(f"the expected cost is at most {at_most_text(promised.expected_cost, 5)}")
    if not math.isnan(promised.selective_risk):
        said.append(f"the selective risk is at most {at_most_text(promised.selective_risk, 5)}")
    return ", and ".join(said)


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
    click.echo(_seen(promised))
    click.echo(
        f"\nWith probability {promised.confidence:g} over the choice of rows, in the population\n"
        f"{_promise(promised)}."
    )
    if fresh is not None:
        click.echo()
        click.echo(point_table({"held out": fresh}))
    click.echo()
    click.echo(f"direction {list(rule.direction)}, threshold {rule.threshold!r}")
    click.echo(promised.caveat)
    if out.output is not None:
        click.echo(f"The rule is in {out.output}.")
