"""`demur report`."""

from __future__ import annotations

from dataclasses import dataclass

import click

from demur.cli.inputs import (
    DataOptions,
    confidence_option,
    data_options,
    read_rows,
    scores_option,
)
from demur.cli.options import (
    ModelOptions,
    Names,
    Number,
    SearchOptions,
    SectionCommand,
    complete_column,
    gathered,
    model_options,
    option,
    search_options,
)
from demur.cli.output import OutputOptions, Progress, output_options
from demur.cli.page import (
    PageContents,
    PromiseOptions,
    command_line,
    methods,
    promise_options,
    write_page,
)
from demur.cli.printing import Result, Section, infeasible_as_json
from demur.cli.resampling import (
    HoldoutOptions,
    ResamplingOptions,
    holdout_options,
    refuse_repeated_ids,
    resampling_options,
)
from demur.cli.saved import SavedRule
from demur.core.program import Number as Bound
from demur.report import Report
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
@option("Columns")(
    "--like",
    type=click.Path(),
    metavar="RULE",
    help="Take scores, columns and bounds from this saved rule, unless other options give them.",
)
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
    scores: tuple[str, ...],
    confidence: tuple[str, ...],
    like: str | None,
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
    if like is not None:
        saved = SavedRule.load(like, scores, confidence)
        data, scores, confidence = saved.columns(data), saved.names, saved.rule.confidence
    asked = (None if like is None else saved.model(model, "report on")) or model.model_for(
        has_ood=data.has_ood
    )
    promise.check(search, resampling, held=split.holdout is not None)
    out.check(inputs=[*data.inputs, *([like] if like else [])])
    wanted = [scores, *options.compare] if scores else []
    rows = read_rows(data, wanted, confidence=confidence, group=split.group)
    if promise.guarantee is not None:
        refuse_repeated_ids(rows, split.group)
    names = rows.tuned_scores
    held = split.held(rows)
    train, test = rows.split(names, held)
    model.check_ood(train.n_ood, rows.options.ood)
    with Progress(f"tuning on {train.n_id + train.n_ood:,} rows"), infeasible_as_json(out.as_json):
        tuning = tune(
            train, asked, directions=search.allowed, search=search.search, ood=search.fpr_of
        )
    ids = rows.ids(split.group, held)
    contents = PageContents(
        title=options.title,
        level=float(resampling.level),
        max_loss=options.max_loss,
        evidence=promise.evidence(
            tuning,
            train,
            test,
            resampling=resampling,
            search=search,
            seed=split.seed,
            max_loss=options.max_loss,
            names=names,
            groups=ids,
        ),
        methods=methods(rows, held),
        ids=ids,
        command=command_line(data, names, confidence, split),
    )
    report = write_page(rows, held, tuning, search=search, contents=contents, path=out.path)
    if out.on_stdout:
        click.echo(report.to_html())
    _result(report, out).show(as_json=out.as_json, beside=out.on_stdout)


def _result(report: Report, out: OutputOptions) -> Result:
    if out.as_json:
        return Result([], report.to_dict() | {"output": out.output})
    if out.output is None:
        return Result([Section([report.to_text().removesuffix("\n")])], {})
    cautions = [f"{one.level.capitalize()}: {one.text}" for one in report.cautions]
    place = [] if out.path is None else [f"The report is in {out.path}."]
    return Result([Section([report.decision, *cautions, *place])], {})
