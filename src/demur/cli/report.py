"""`demur report`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import click

from demur._arrays import BoolArray
from demur.cli.guarantee import refuse_repeated_ids
from demur.cli.holdout import HoldoutOptions, holdout_options, row_ids, samples
from demur.cli.inputs import (
    DataOptions,
    Rows,
    confidence_option,
    data_options,
    read_rows,
    scores_option,
)
from demur.cli.models import ModelOptions, model_options
from demur.cli.options import Names, Number, SectionCommand, complete_column, gathered, option
from demur.cli.output import OutputOptions, output_options
from demur.cli.progress import Progress
from demur.cli.promises import PromiseOptions, promise_options
from demur.cli.resampling import ResamplingOptions, resampling_options
from demur.cli.search import SearchOptions, search_options
from demur.cli.texts import echo_json
from demur.core.program import Number as Bound
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.report.report import Report
from demur.tuning.tune import tune

_EXAMPLES = """\b
Examples:
  demur report scores.parquet --scores msp,knn --loss is_wrong --ood set \\
      --min-tpr .8 --max-fpr .1 --holdout .3 --id image -o report.html
  demur report scores.csv --scores msp,knn --compare energy --loss is_wrong --ood set \\
      --min-precision .95 --min-recall .7 --prior .1 -o report.html
  demur report scores.parquet --scores msp,knn --loss is_wrong --ood set --holdout .5 \\
      --min-tpr .8 --max-fpr .1 --replicates 1000 --guarantee .95 --prior-range .01 .05 \\
      -o report.html
"""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What is shown beside the rule."""

    compare: tuple[tuple[str, ...], ...]
    title: str
    max_loss: Bound | None


_shown = option("Report")


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@scores_option()
@confidence_option()
@data_options()
@model_options("Rejection model (one of three)")
@search_options()
@holdout_options(
    "Name rows by this column and list those nearest to the boundary; rows with the same id stay "
    "on one side of the split and in one fold. Replicates draw single rows all the same."
)
@promise_options()
@resampling_options(0, "Bootstrap replicates, the rule tuned anew in each; 0: none.")
@gathered(
    "options",
    ReportOptions,
    [
        _shown(
            "--compare",
            multiple=True,
            type=Names(),
            metavar="A[,B]",
            shell_complete=complete_column,
            help="One more score or pair to compare with; repeat for several. The parts of a "
            "pair are always compared with it.",
        ),
        _shown("--title", default="When to answer", show_default=True, help="Title of the page."),
        _shown("--max-loss", type=Number(), help="Largest possible loss, if it is not 0/1."),
    ],
)
@output_options("Write the page to this HTML file; without it, print the report as text.")
def command(
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    model: ModelOptions,
    search: SearchOptions,
    split: HoldoutOptions,
    promise: PromiseOptions,
    resampling: ResamplingOptions,
    options: ReportOptions,
    out: OutputOptions,
) -> None:
    """Tune a rule for the rows of DATA and report on it.

    The page is one file that works offline: the decision, its numbers with intervals, what to
    beware of, what can be promised, and an explorer of all other bounds.
    """
    asked = model.one_model()
    if model.needs_ood and data.ood is None and not data.openood:
        raise click.UsageError("--max-fpr and --prior need OOD rows: name their column with --ood")
    promise.check(search, resampling, held=split.holdout is not None)
    out.check()
    wanted = [scores, *options.compare] if scores else []
    rows = read_rows(data, wanted, confidence=confidence, group=split.group)
    if promise.guarantee is not None:
        refuse_repeated_ids(rows, split.group)
    names = rows.scores[0]
    if len(names) > 2:
        raise click.UsageError("--scores is needed: choose one or two of the --openood scores")
    rows.sample(names)
    text = _command_line(data, names, confidence, split)
    columns = names, rows.confidence
    rows = rows.as_doubts()
    held = split.held(rows)
    train, test = samples(rows, rows.scores[0], held)
    if model.needs_ood and train.n_ood == 0:
        raise InvalidInputError(f"column {rows.options.ood!r} marks no row as OOD")
    with Progress(f"tuning on {train.n_id + train.n_ood:,} rows"), out.infeasible_as_json():
        tuning = tune(
            train, asked, directions=search.allowed, search=search.search, ood=search.fpr_of
        )
    ids = row_ids(rows, split.group, held)
    evidence = promise.evidence(
        tuning,
        train,
        test,
        resampling=resampling,
        search=search,
        seed=split.seed,
        max_loss=options.max_loss,
        columns=columns,
        groups=ids,
    )
    with Progress("writing the report"):
        report = Report.of(
            train,
            tuning,
            held_out=test,
            methods=_methods(rows, held),
            ids=ids,
            title=options.title,
            max_loss=options.max_loss,
            directions=search.allowed,
            search=search.search,
            command=text,
            confidence=float(resampling.level),
            cross=evidence.cross,
            bootstrap=evidence.bootstrap,
            guaranteed=evidence.guaranteed,
            prior_range=evidence.prior_range,
            prior_estimate=evidence.prior_estimate,
        )
        if out.output is not None:
            report.to_html(out.output)
    _print(report, out)


def _methods(rows: Rows, held: BoolArray | None) -> dict[str, Sample | tuple[Sample, Sample]]:
    """Return the tuned score or pair, its parts, and what else is to be compared."""
    first = rows.scores[0]
    wanted = dict.fromkeys([*((name,) for name in first), first, *rows.scores[1:]])
    methods: dict[str, Sample | tuple[Sample, Sample]] = {}
    for names in wanted:
        train, test = samples(rows, names, held)
        methods[" + ".join(names)] = train if test is None else (train, test)
    return methods if len(methods) > 1 else {}


def _command_line(
    data: DataOptions, names: Sequence[str], confidence: Sequence[str], split: HoldoutOptions
) -> str:
    """Return the command that tunes on the same rows, up to the bounds."""
    given = {
        "--scores": ",".join(names),
        "--confidence": ",".join(confidence),
        "--loss": data.loss,
        "--label": data.label,
        "--prediction": data.prediction,
        "--loss-function": None if data.loss_function == "zero_one" else data.loss_function,
        "--ood": data.ood,
        "--weight": data.weight,
        "--openood-id": data.openood_id,
        "--openood-ood": ",".join(data.openood_ood or ()),
        "--holdout": None if split.holdout is None else str(split.holdout),
        "--seed": str(split.seed) if split.holdout is not None and split.seed else None,
        "--id": split.group if split.holdout is not None else None,
    }
    words = ["demur", "tune", *([data.data] if data.data else [])]
    for path in data.openood:
        words += ["--openood", path]
    for name, value in given.items():
        words += [name, value] if value else []
    return shlex.join(words)


def _print(report: Report, out: OutputOptions) -> None:
    if out.as_json:
        echo_json(report.to_dict() | {"output": out.output})
    elif out.output is None:
        click.echo(report.to_text(), nl=False)
    else:
        click.echo(report.decision)
        for caution in report.cautions:
            click.echo(f"{caution.level.capitalize()}: {caution.text}")
        click.echo(f"The report is in {out.output}.")
