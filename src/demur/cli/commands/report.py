"""`demur report`: the page about a tuned rule, as `demur tune --report` writes it, and more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click
from click.core import ParameterSource

from demur._arrays import BoolArray
from demur.cli.inputs import (
    PAGE_ROW_BYTES,
    ROW_BYTES,
    DataOptions,
    EngineOptions,
    ScoreTable,
    data_options,
    engine_options,
    read_deployed,
    read_rows,
)
from demur.cli.options import (
    Chance,
    Command,
    Names,
    Number,
    SectionCommand,
    complete_column,
    confidence_option,
    gathered,
    option,
    scores_option,
)
from demur.cli.output import OutputOptions, note, output_options
from demur.cli.printing import (
    Methods,
    PageContents,
    Result,
    Section,
    command_line,
    infeasible_as_json,
    page_title,
    tune_or_nearest,
    write_page,
)
from demur.cli.resampling import (
    PerId,
    ResamplingOptions,
    folds_option,
    per_id_option,
    refuse_repeated_ids,
    resampling_options,
    tune_promised,
)
from demur.cli.saved import SavedRule, refuse_learned
from demur.cli.streamed import StreamTuning, added_work, page_rows, refuse_in_stream, tune_stream
from demur.cli.tuning_options import (
    HoldoutOptions,
    ModelOptions,
    SearchOptions,
    holdout_options,
    model_options,
    search_options,
)
from demur.core.program import Number as Bound
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.guarantees.prior import PriorEstimate, estimate_prior
from demur.guarantees.splits import Groups
from demur.report import Report
from demur.report.promises import PromiseEvidence
from demur.report.summary import WholeRows
from demur.tuning.result import Tuning


def methods(rows: ScoreTable, held: BoolArray | None) -> Methods | None:
    """Return the tuned score or pair, its parts, and what else is to be compared."""
    first = rows.scores[0]
    wanted = dict.fromkeys([*((name,) for name in first), first, *rows.scores[1:]])
    found: dict[str, Sample | tuple[Sample, Sample]] = {}
    for names in wanted:
        train, test = rows.split(names, held)
        found[" + ".join(names)] = train if test is None else (train, test)
    return found if len(found) > 1 else None


@dataclass(frozen=True, slots=True)
class PromiseOptions:
    """What is to be found out about a rule beyond looking at it."""

    folds: int
    guarantee: Bound | None
    prior_range: tuple[Bound, Bound] | None
    deployed: str | None

    def check(self, search: SearchOptions, resampling: ResamplingOptions, *, held: bool) -> None:
        """Refuse what does not go together, before the work begins."""
        if self.deployed is not None and not held:
            raise click.UsageError("--deployed needs --holdout: rows that tell the TPR and FPR")
        if search.fpr_of == "worst" and resampling.replicates:
            raise click.UsageError("--replicates is about all OOD rows together")

    def evidence(
        self,
        tuning: Tuning,
        train: Sample,
        test: Sample | None,
        *,
        resampling: ResamplingOptions,
        search: SearchOptions,
        seed: int,
        max_loss: Bound | None,
        names: Sequence[str],
        groups: Groups | None = None,
    ) -> PromiseEvidence:
        """Return what was asked for.

        `names` are the scores in a file, `groups` the ids of `train`.
        """
        # A bound on every OOD set cannot be cross-validated as one on all of them.
        folds = 0 if search.fpr_of == "worst" else self.folds
        source = click.get_current_context().get_parameter_source("folds")
        fewest = min(train.n_id, train.n_ood or train.n_id)
        if fewest < folds and source is ParameterSource.DEFAULT:
            folds = 0
        cross = resampling.cross(
            train, tuning.model, folds=folds, search=search, seed=seed, groups=groups
        )
        guaranteed = None
        if self.guarantee is not None:
            guaranteed = tune_promised(
                *(train, tuning.model, self.guarantee),
                search=search,
                seed=seed,
                max_loss=max_loss,
                groups=groups,
            )
        return PromiseEvidence(
            cross=cross,
            bootstrap=resampling.bootstrap(
                train, tuning.model, search=search, seed=seed, groups=groups
            ),
            guaranteed=guaranteed,
            prior_range=self.prior_range,
            prior_estimate=self._prior(tuning, test, names, float(resampling.level)),
        )

    def _prior(
        self,
        tuning: Tuning,
        test: Sample | None,
        names: Sequence[str],
        confidence: float,
    ) -> PriorEstimate | None:
        if self.deployed is None or test is None:
            return None
        scores = read_deployed(self.deployed, names)
        return estimate_prior(tuning.rule, scores, validation=test, confidence=confidence)


def promise_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the options as `promise`."""
    add = option("Honest numbers")
    return gathered(
        "promise",
        PromiseOptions,
        [
            folds_option,
            add(
                "--guarantee",
                type=Chance(),
                metavar="CONFIDENCE",
                help="Add a rule whose bounds hold in the population with this chance, such as "
                ".95, or how many rows that would take.",
            ),
            add(
                "--prior-range",
                type=Number(),
                nargs=2,
                metavar="LOW HIGH",
                help="State precision and cost over all shares of OOD inputs between these.",
            ),
            add(
                "--deployed",
                type=click.Path(),
                metavar="FILE",
                help="Scores of inputs in use, without labels: estimate the share of OOD among "
                "them; needs --holdout.",
            ),
        ],
    )


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
    title: str | None
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
@model_options("Rejection model (one of four)")
@search_options()
@holdout_options(
    "Name rows by this column and list those nearest to the boundary; rows with the same id stay "
    "on one side of the split and in one fold, and are drawn together. In what held-out rows "
    "promise, every id counts once."
)
@promise_options()
@per_id_option("Honest numbers", ["draw"])
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
        _shown("--title", help="Title of the page; by default it names DATA."),
        _shown("--max-loss", type=Number(), help="Largest possible loss, if it is not 0/1."),
    ],
)
@engine_options()
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
    per_id: PerId | None,
    resampling: ResamplingOptions,
    options: ReportOptions,
    engine: EngineOptions,
    out: OutputOptions,
) -> None:
    """Tune a rule for the rows of DATA and report on it.

    The page is one file that works offline: the decision, its numbers with intervals, what to
    beware of, what can be promised, and an explorer of all other bounds. Exit code 3: no rule
    meets the bounds; with -o the page shows what is attainable, and the rule that comes nearest.
    Of more rows than fit in --memory, the rule and its rates are of all, other rules are counted
    in a histogram of all, and what else there is rests on 100,000, drawn by a hash; it says so.
    """
    if like is not None:
        saved = SavedRule.load(like, scores, confidence)
        refuse_learned(saved.learned, "report --like")
        data, scores, confidence = saved.columns(data), saved.names, saved.rule.confidence
    asked = (None if like is None else saved.model(model, "report on")) or model.model_for(
        has_ood=data.has_ood
    )
    promise.check(search, resampling, held=split.holdout is not None)
    out.check(inputs=[*data.inputs, *([like] if like else [])])
    work: Mapping[str, Any] = {}
    found: StreamTuning | None = None
    out_of_reach: InfeasibleError | None = None
    whole: WholeRows | None = None
    # What needs all rows in memory takes what it takes.
    in_memory = options.compare or per_id is not None
    streams = engine.streams(
        data, folders=False, row_bytes=ROW_BYTES if in_memory else PAGE_ROW_BYTES
    )
    if streams:
        refuse_in_stream({"--compare": options.compare or None, "--per-id": per_id}, engine, data)
        # The search takes the most time, and its rule is that of all rows.
        try:
            found = tune_stream(engine, data, scores, confidence, asked, model, search, split)
        except InfeasibleError as error:
            out_of_reach = error
        brought, whole = page_rows(
            *(engine, data, scores, confidence, split, found),
            promised=promise.guarantee is not None,
        )
        rows, held = brought.rows, brought.held
        work = brought.work if found is None else added_work(found.work, brought.work)
        listed = None
    else:
        wanted = [scores, *options.compare] if scores else []
        rows = read_rows(data, wanted, confidence=confidence, group=split.group)
        if promise.guarantee is not None:
            refuse_repeated_ids(rows, split.group, per_id)
        held, listed = split.held(rows), split.group
    names = rows.tuned_scores
    train, test = rows.split(names, held)
    model.check_ood(train.n_ood, rows.options.ood)
    tuning, unmet = tune_or_nearest(train, asked, search, as_json=out.as_json)
    if streams:
        # Whether a rule meets the bounds is known of all rows.
        unmet = out_of_reach
    if unmet is not None and out.output is None:
        with infeasible_as_json(out.as_json):
            raise unmet
    ids = rows.ids(listed, held)
    contents = PageContents(
        title=options.title or page_title(data),
        level=float(resampling.level),
        max_loss=options.max_loss,
        evidence=None
        if unmet is not None
        else promise.evidence(
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
        held_out_ids=None if held is None else rows.ids(listed, ~held),
        command=command_line(data, names, confidence, split),
        unmet=unmet,
        rule=found.tuned.rule if found is not None and whole is not None else None,
        whole=whole,
    )
    report = write_page(train, test, tuning, search=search, contents=contents, path=out.path)
    if out.on_stdout:
        click.echo(report.to_html())
    if unmet is not None:
        # What is attainable is in the page; scripts learn of it by the exit code.
        if out.path is not None:
            note(f"the report, of what is attainable, is in {out.path}")
        with infeasible_as_json(out.as_json and not out.on_stdout):
            raise unmet
    result = _result(report, out)
    replace(result, data={**result.data, **work}).show(as_json=out.as_json, beside=out.on_stdout)


def _result(report: Report, out: OutputOptions) -> Result:
    if out.as_json:
        return Result([], report.to_dict() | {"output": out.output})
    if out.output is None:
        return Result([Section([report.to_text().removesuffix("\n")])], {})
    cautions = [f"{one.level.capitalize()}: {one.text}" for one in report.cautions]
    place = [] if out.path is None else [f"The report is in {out.path}."]
    rests = [report.resting] if report.resting else []
    return Result([Section([report.decision, *rests, *cautions, *place])], {})
