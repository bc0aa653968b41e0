"""`demur tune`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from demur.cli.guarantee import finish_promised, refuse_repeated_ids, tune_promised
from demur.cli.holdout import HoldoutOptions, holdout_options, samples
from demur.cli.inputs import (
    DataOptions,
    confidence_option,
    data_options,
    read_rows,
    scores_option,
)
from demur.cli.models import ModelOptions, model_options
from demur.cli.options import Chance, Number, SectionCommand, option
from demur.cli.output import OutputOptions, note, output_options
from demur.cli.page import page_of
from demur.cli.progress import Progress
from demur.cli.raw_columns import counts_on_raw_columns, on_raw_columns
from demur.cli.search import SearchOptions, search_options
from demur.cli.streaming import EngineOptions, engine_options, refuse_in_stream, tune_stream
from demur.cli.texts import (
    ONLY_THESE_OOD,
    decision,
    echo_json,
    model_data,
    point_data,
    point_table,
    rule_data,
    sample_data,
)
from demur.core.models import RejectionModel
from demur.core.program import Number as Bound
from demur.core.rates import OperatingPoint, evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import Overview
from demur.errors import InvalidInputError
from demur.tuning.result import Tuning
from demur.tuning.tune import tune

Points = dict[str, tuple[OperatingPoint, Sample | Overview]]

_EXAMPLES = """\b
Examples:
  demur tune scores.parquet --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1 -o rule.json
  demur tune val.csv --scores energy_conf --confidence energy_conf \\
      --label y --prediction yhat --ood set --min-tpr .9 --max-fpr .05 --holdout .3
  demur tune --openood msp.pkl --openood knn.pkl --min-tpr .8 --max-fpr .1
  demur tune 'lake/day=*/*.parquet' --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1 --memory 2GB
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@scores_option()
@confidence_option()
@data_options()
@model_options("Rejection model (one of three)")
@search_options()
@holdout_options("Rows with the same id stay on one side of the split.")
@engine_options()
@option("Guarantee")(
    "--guarantee",
    type=Chance(),
    metavar="CONFIDENCE",
    help="Return a rule whose bounds hold in the population with this chance, such as .95.",
)
@option("Guarantee")(
    "--max-loss", type=Number(), help="Largest possible loss, if losses are not 0 and 1."
)
@option("Output")(
    "--report",
    type=click.Path(),
    metavar="FILE",
    help="Write an HTML page to explore and show; with --guarantee, it is about the rule "
    "without one, and states the promise of the other beside it.",
)
@option("Output")(
    "--counts",
    type=click.Path(),
    metavar="FILE",
    help="Write counts from which demur retune tunes for other bounds or priors without the rows.",
)
@output_options("Write the rule to this JSON file.")
def command(
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    model: ModelOptions,
    search: SearchOptions,
    split: HoldoutOptions,
    engine: EngineOptions,
    guarantee: Bound | None,
    max_loss: Bound | None,
    report: str | None,
    counts: str | None,
    out: OutputOptions,
) -> None:
    """Find the best accept/reject rule for the rows of DATA.

    DATA is a .csv, .parquet, .arrow, .feather or .npz file with one row per input; or many
    .parquet or .csv files: a folder, or a pattern in quotes. More rows than fit in --memory are
    counted where they are, in a few passes, and the rule found is the same. The rule
    minimises the selective risk (mean loss of accepted ID rows) under the bounds, or the
    expected cost. Exit code 3: no rule meets the bounds; the message says what is possible.
    """
    asked = model.one_model()
    if model.needs_ood and data.ood is None and not data.openood:
        raise click.UsageError("--max-fpr and --prior need OOD rows: name their column with --ood")
    if guarantee is not None and search.fpr_of != "pooled":
        raise click.UsageError("--guarantee bounds the FPR of all OOD rows together")
    out.check()
    if report is not None:
        replace(out, output=report).check()
    if counts is not None:
        replace(out, output=counts).check()
    if engine.streams(data):
        needs = {"--holdout": split.holdout, "--guarantee": guarantee, "--report": report}
        refuse_in_stream(needs | {"--counts": counts, "--id": split.group, "--grid": search.grid})
        with out.infeasible_as_json():
            found = tune_stream(engine, data, scores, confidence, model, search)
        _finish(found.tuned, {"tuned on": (found.point, found.sizes)}, confidence, out)
        return
    rows = read_rows(data, [scores] if scores else [], confidence=confidence, group=split.group)
    if guarantee is not None:
        refuse_repeated_ids(rows, split.group)
    names = rows.scores[0]
    if len(names) > 2:
        raise click.UsageError("--scores is needed: choose one or two of the --openood scores")
    with Progress("sorting out the rows"):
        whole = rows.sample(names)
        if model.needs_ood and whole.n_ood == 0:
            raise InvalidInputError(f"column {rows.options.ood!r} marks no row as OOD")
        held = split.held(rows)
        train, test = (whole, None) if held is None else samples(rows, names, held)
    if counts is not None:
        with Progress("counting"):
            counts_on_raw_columns(train, rows.confidence, search).save(counts)
        note(f"the counts are in {counts}")
    promised = None
    if guarantee is not None:
        promised = tune_promised(
            train, asked, guarantee, search=search, seed=split.seed, max_loss=max_loss
        )
        if report is None:
            finish_promised(promised, test, model.prior, rows.confidence, out)
            return
    label = f"tuning on {train.n_id + train.n_ood:,} rows"
    with Progress(label), out.infeasible_as_json():
        tuned = tune(
            train,
            asked,
            directions=search.directions,
            search=search.search,
            ood=search.fpr_of,
        )
    if report is not None:
        page = page_of(rows, held, tuned, promised=promised, max_loss=max_loss, search=search)
        page.to_html(report)
        note(f"the report is in {report}")
    if promised is not None:
        finish_promised(promised, test, model.prior, rows.confidence, out)
        return
    points: Points = {"tuned on": (_point(tuned.rule, train, asked, model.prior), train)}
    if test is not None:
        points["held out"] = (_point(tuned.rule, test, asked, model.prior), test)
    _finish(tuned, points, rows.confidence, out)


def _finish(tuned: Tuning, points: Points, confidence: tuple[str, ...], out: OutputOptions) -> None:
    """Save the rule and show what it does."""
    rule = on_raw_columns(tuned.rule, confidence)
    if out.output is not None:
        rule.save(out.output)
    flipped = [name for name in rule.score_names or () if name in confidence]
    if flipped:
        note(
            "the rule reads the raw columns: confidences "
            f"({', '.join(flipped)}) have a negative weight"
        )
    _print(rule, tuned, points, out)


def _point(
    rule: Rule, sample: Sample, model: RejectionModel, prior: Bound | None
) -> OperatingPoint:
    return evaluate(rule, sample, model=model, ood_prior=prior)


def _print(
    rule: Rule,
    tuned: Tuning,
    points: Points,
    out: OutputOptions,
) -> None:
    point, sample = points["tuned on"]
    if out.as_json:
        data: dict[str, Any] = {
            "rule": rule_data(rule),
            "model": model_data(tuned.model),
            "tuned": point_data(point) | {"rows": sample_data(sample)},
            "held_out": None,
            "certificate": {
                "status": tuned.certificate.status,
                "lower_bound": tuned.certificate.lower_bound,
                "boxes": tuned.certificate.boxes,
                "unresolved": tuned.certificate.unresolved,
            },
            "output": out.output,
        }
        if "held out" in points:
            fresh, test = points["held out"]
            data["held_out"] = point_data(fresh) | {"rows": sample_data(test)}
        echo_json(data)
        return
    click.echo(decision(rule, point))
    click.echo()
    click.echo(point_table(points))
    click.echo()
    click.echo(f"direction {list(rule.direction)}, threshold {rule.threshold!r}")
    if "held out" in points:
        click.echo("The tuned numbers are optimistic; quote the held-out ones.")
    else:
        click.echo(
            "The tuned numbers are optimistic: judge the rule on other rows, with --holdout "
            "or demur evaluate."
        )
    click.echo(ONLY_THESE_OOD)
    if out.output is not None:
        click.echo(f"The rule is in {out.output}.")
