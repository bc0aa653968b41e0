"""`demur tune`, and `demur retune` from counts that it saved."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from demur._arrays import BoolArray
from demur.cli.inputs import (
    PAGE_ROW_BYTES,
    ROW_BYTES,
    DataOptions,
    EngineOptions,
    ScoreTable,
    data_options,
    engine_options,
    read_rows,
)
from demur.cli.options import (
    Chance,
    Number,
    SectionCommand,
    confidence_option,
    option,
    scores_option,
)
from demur.cli.output import OutputOptions, Progress, note, output_options, save_file
from demur.cli.printing import (
    ONLY_THESE_OOD,
    PageContents,
    Points,
    Result,
    Section,
    cautions,
    command_line,
    decision,
    infeasible_as_json,
    page_title,
    point_table,
    seen_data,
    tune_or_nearest,
    write_page,
)
from demur.cli.resampling import PerId, per_id_option, refuse_repeated_ids, tune_promised
from demur.cli.streamed import (
    BroughtRows,
    StreamTuning,
    added_work,
    bring_rows,
    count_stream,
    page_rows,
    refuse_in_stream,
    tune_stream,
)
from demur.cli.tuning_options import (
    HoldoutOptions,
    ModelOptions,
    SearchOptions,
    TuningRows,
    holdout_options,
    learned_rows,
    model_options,
    search_options,
)
from demur.core.card import point_data
from demur.core.models import RejectionModel
from demur.core.program import Number as Bound
from demur.core.rates import evaluate
from demur.core.rule import BoxRule, Rule, rule_data
from demur.core.sample import Sample
from demur.core.source import FRONTIER_ROW_BYTES
from demur.errors import InfeasibleError
from demur.tuning.result import Tuning
from demur.tuning.tune import tune

if TYPE_CHECKING:
    from demur.guarantees.certified_tuning import CertifiedTuning
    from demur.guarantees.operating_tables import OperatingTable

_EXAMPLES = """\b
Examples:
  demur tune scores.parquet --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1 -o rule.json
  demur tune val.csv --scores energy_conf --confidence energy_conf \\
      --label y --prediction yhat --ood set --min-tpr .9 --max-fpr .05 --holdout .3
  demur tune --openood msp.pkl --openood knn.pkl --min-tpr .8 --max-fpr .1
  demur tune scores.csv --scores msp,mls,odin,react,knn,vim --learn auto --loss is_wrong \\
      --ood set --min-tpr .8 --max-fpr .1 --holdout .3 -o rule.json
  demur tune 'lake/day=*/*.parquet' --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1 --memory 2GB
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@scores_option()
@confidence_option()
@data_options()
@model_options("Rejection model (one of four)")
@search_options()
@option("Search")(
    "--shape",
    type=click.Choice(["half-plane", "box"]),
    default="half-plane",
    show_default=True,
    help="Weigh the scores, or give each a limit of its own.",
)
@option("Search")(
    "--learn",
    type=click.Choice(["auto", "logistic", "boosting", "mean"]),
    help="Learn from two or more --scores the risk and the OOD-to-ID ratio of an input, and tune "
    "on these; the file has both. auto: the best by cross-validation.",
)
@holdout_options("Rows with the same id stay on one side of the split.")
@engine_options()
@option("Guarantee")(
    "--guarantee",
    type=Chance(),
    metavar="CONFIDENCE",
    help="Return a rule whose bounds hold in the population with this chance, such as .95.",
)
@per_id_option("Guarantee", ["draw"])
@option("Guarantee")(
    "--max-loss", type=Number(), help="Largest possible loss, if losses are not 0 and 1."
)
@option("Output")(
    "--report",
    type=click.Path(),
    metavar="FILE",
    help="Write an HTML page about the rule that is saved, to explore and show; if no rule meets "
    "the bounds, about what is attainable.",
)
@option("Output")(
    "--counts",
    type=click.Path(),
    metavar="FILE",
    help="Write counts from which demur retune tunes for other bounds or priors without the rows.",
)
@output_options("Write the rule to this JSON file.")
def command(**options: Any) -> None:
    """Find the best accept/reject rule for the rows of DATA.

    DATA is a .csv, .parquet, .arrow, .feather or .npz file with one row per input; or many
    .parquet or .csv files: a folder, or a pattern in quotes; or, with --table, the URL of a
    database. More rows than fit in --memory are
    counted where they are, in a few passes, and the rule found is the same. The rule
    minimises the selective risk (mean loss of accepted ID rows) under the bounds, or the
    expected cost. Exit code 3: no rule meets the bounds; the message says what is possible.
    """
    request = _Request(**options)
    request.check()
    work: Mapping[str, Any] = {}
    if request.streams:
        brought = _from_stream(request)
        if brought is None:
            return
        # Rows that were brought have been held out already.
        request = replace(request, split=replace(request.split, group=None))
        given, work = _tuning_rows(request, brought.rows, brought.held), brought.work
    else:
        given = _tuning_rows(request, _rows(request), None)
        if request.counts is not None:
            with Progress("counting"):
                table = _counts(given.train, request.search)
            _save_counts(request, table)
    if request.guarantee is None:
        _tune(request, given, work)
    else:
        _promise_rule(request, given, request.guarantee, work)


@dataclass(frozen=True)
class _Request:
    """All that was asked for."""

    data: DataOptions
    scores: tuple[str, ...]
    confidence: tuple[str, ...]
    model: ModelOptions
    search: SearchOptions
    learn: str | None
    split: HoldoutOptions
    engine: EngineOptions
    guarantee: Bound | None
    per_id: PerId | None
    max_loss: Bound | None
    report: str | None
    counts: str | None
    out: OutputOptions

    @cached_property
    def asked(self) -> RejectionModel:
        """The model that the options stand for."""
        return self.model.model_for(has_ood=self.data.has_ood)

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes in memory, with what is made of it."""
        others = self.learn, self.per_id, self.counts, self.guarantee
        if self.report is not None and all(one is None for one in others):
            return PAGE_ROW_BYTES
        return FRONTIER_ROW_BYTES if self.counts else ROW_BYTES

    @property
    def streams(self) -> bool:
        """Whether the rows stay where they are; what needs all in memory reads folders, too."""
        folders = self.learn is None and self.per_id is None
        return self.engine.streams(self.data, folders=folders, row_bytes=self.row_bytes)

    def check(self) -> None:
        """Refuse options that do not go together, before anything is read."""
        _ = self.asked  # Bounds that make no model are told first.
        _check_shape(self.search, {"--counts": self.counts, "--learn": self.learn})
        written = {"--report": self.report, "--counts": self.counts}
        self.out.check(written, inputs=self.data.inputs)
        if self.learn is not None:
            if self.engine.streams(self.data, folders=False):
                refuse_in_stream({"--learn": self.learn}, self.engine, self.data)
            _check_learn(self.counts)
        if self.per_id is not None and self.guarantee is None:
            raise click.UsageError("--per-id is about --guarantee")


def _rows(request: _Request) -> ScoreTable:
    """Read the rows into memory."""
    rows = read_rows(
        request.data,
        [request.scores] if request.scores else [],
        confidence=request.confidence,
        group=request.split.group,
        many=request.learn is not None,
    )
    if request.guarantee is not None:
        refuse_repeated_ids(rows, request.split.group, request.per_id)
    return rows


def _from_stream(request: _Request) -> BroughtRows | None:
    """Tune where the rows are, and be done; or bring the rows that a promise needs."""
    refuse_in_stream({"--per-id": request.per_id}, request.engine, request.data)
    named = request.engine, request.data, request.scores, request.confidence
    counted: Mapping[str, Any] = {}
    if request.counts is not None:
        table, counted = count_stream(*named, request.search, request.split)
        _save_counts(request, table)
    if request.guarantee is not None:
        brought = bring_rows(*named, request.split, what="the promise", promised=True)
        return replace(brought, work=added_work(counted, brought.work))
    with infeasible_as_json(request.out.as_json):
        found = tune_stream(*named, request.asked, request.model, request.search, request.split)
    rule = _described(found.tuned.rule, request, found.points)
    if request.report is not None:
        _page_of_stream(request, found, request.report)
    work = added_work(counted, found.work)
    _finish(replace(found.tuned, rule=rule), found.points, request.out, rule.to_json, work)
    return None


def _tune(request: _Request, given: TuningRows, work: Mapping[str, Any]) -> None:
    """Tune on rows in memory, with a page if one is asked for."""
    if request.report is None:
        tuned, unmet = _tuned(request, given.train), None
    else:
        tuned, unmet = _tuned_with_page(request, given, None, request.report)
    if unmet is not None:
        with infeasible_as_json(request.out.as_json):
            raise unmet
    samples = {"tuned on": given.train} | ({} if given.test is None else {"held out": given.test})
    asked, prior = request.asked, request.model.prior
    points: Points = {
        title: (evaluate(tuned.rule, sample, model=asked, ood_prior=prior), sample)
        for title, sample in samples.items()
    }
    rule = _described(tuned.rule, request, points)
    _tell_learned(given)
    more = {**work, **given.described()}
    _finish(replace(tuned, rule=rule), points, request.out, lambda: given.file(rule), more)


def _tuned(request: _Request, train: Sample) -> Tuning:
    """Return the best rule for the rows to tune on."""
    search = request.search
    label = f"tuning on {train.n_id + train.n_ood:,} rows"
    with Progress(label), infeasible_as_json(request.out.as_json):
        return tune(
            train,
            request.asked,
            directions=search.directions,
            search=search.search,
            ood=search.fpr_of,
            shape=search.shape,
        )


def _tuned_with_page(
    request: _Request,
    given: TuningRows,
    promised: CertifiedTuning | InfeasibleError | None,
    path: str,
) -> tuple[Tuning, InfeasibleError | None]:
    """Write the page; return its rule and why that is only near the bounds, if it is."""
    from demur.report.promises import PromiseEvidence

    search, as_json = request.search, request.out.as_json
    tuned, unmet = tune_or_nearest(given.train, request.asked, search, as_json=as_json)
    proven = None if isinstance(promised, InfeasibleError) else promised
    contents = PageContents(
        title=page_title(request.data),
        max_loss=request.max_loss,
        evidence=PromiseEvidence(guaranteed=promised),
        command=command_line(
            request.data, given.names, request.confidence, request.split, request.learn
        ),
        ids=given.ids,
        held_out_ids=given.test_ids,
        rule=None if proven is None else proven.rule,
        unmet=unmet,
        learned=given.learned,
    )
    write_page(given.train, given.test, tuned, search=search, contents=contents, path=path)
    note(f"the report is in {path}")
    return tuned, unmet


def _promise_rule(
    request: _Request, given: TuningRows, guarantee: Bound, work: Mapping[str, Any]
) -> None:
    """Find a rule whose bounds are proven, with a page if one is asked for."""
    promised = tune_promised(
        *(given.train, request.asked, guarantee),
        search=request.search,
        seed=request.split.seed,
        max_loss=request.max_loss,
        groups=given.ids,
    )
    if request.report is not None:
        _tuned_with_page(request, given, promised, request.report)
    _finish_promised(promised, request, given, work)


def _page_of_stream(request: _Request, found: StreamTuning, path: str) -> None:
    """Write the page about a rule tuned on all rows, from those that memory holds."""
    named = request.data, request.scores, request.confidence, request.split
    brought, whole = page_rows(request.engine, *named, found)
    train, test = brought.rows.split(request.scores, brought.held)
    near, _ = tune_or_nearest(train, found.tuned.model, request.search, as_json=False)
    contents = PageContents(
        title=page_title(request.data),
        command=command_line(*named),
        rule=found.tuned.rule,
        whole=whole,
    )
    write_page(train, test, near, search=request.search, contents=contents, path=path)
    note(f"the report is in {path}")


def _check_shape(search: SearchOptions, beside: dict[str, object]) -> None:
    """Refuse beside a box what knows half-planes only."""
    beside = beside | {"--directions": search.directions, "--grid": search.grid}
    given = [name for name, value in beside.items() if value is not None]
    if search.is_box and given:
        raise click.UsageError(f"{given[0]} is about rules that weigh scores, --shape box is not")


def _check_learn(counts: str | None) -> None:
    """Refuse what learned scores do not go with."""
    if counts is not None:
        raise click.UsageError(
            "--counts does not go with --learn: demur retune has no rows to learn scores from"
        )


def _tuning_rows(request: _Request, rows: ScoreTable, held: BoolArray | None) -> TuningRows:
    """Return the rows to tune on and those held out; `held` tells which, if that is known."""
    split, learn = request.split, request.learn
    names = rows.tuned_scores if learn is None else rows.scores[0]
    with Progress("sorting out the rows"):
        whole = rows.raw_sample(names)
        request.model.check_ood(whole.n_ood, rows.options.ood)
        held = split.held(rows) if held is None else held
    if learn is not None:
        # What is proven is proven on rows that the scores are not learned on.
        apart = request.guarantee is not None
        return learned_rows(rows, held, split, learn, request.asked, apart=apart)
    train, test = (whole, None) if held is None else rows.split(names, held)
    ids = rows.ids(split.group, held)
    return TuningRows(
        names, train, test, ids, None if held is None else rows.ids(split.group, ~held)
    )


def _tell_learned(given: TuningRows, how: str = "tuned on out-of-fold values") -> None:
    if given.learned is not None:
        note(f"{given.learned.explanation[:-1]}; {how}")


def _counts(sample: Sample, search: SearchOptions) -> OperatingTable:
    """Return operating points to tune from."""
    from demur.guarantees.operating_tables import operating_table

    return operating_table(sample, directions=search.allowed, search=search.search)


def _save_counts(request: _Request, table: OperatingTable) -> None:
    """Save operating points, with rules for the columns as they are."""
    card = None if table.card is None else table.card.with_entries(**_read_columns(request))
    save_file(request.counts, replace(table, card=card).save, "the counts are")


def _finish(
    tuned: Tuning,
    points: Points,
    out: OutputOptions,
    file: Callable[[], str],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Save the rule and show what it does; `more` is what else is to be told, for --json."""
    rule = tuned.rule
    out.save(file)
    if rule.confidence:
        note(
            "the rule reads the raw columns: confidences "
            f"({', '.join(rule.confidence)}) have a "
            f"{'limit from below' if isinstance(rule, BoxRule) else 'negative weight'}"
        )
    result = _result(rule, tuned, points, out)
    result = replace(result, data={**result.data, **(more or {})})
    result.show(as_json=out.as_json, beside=out.on_stdout)


def _result(rule: Rule, tuned: Tuning, points: Points, out: OutputOptions) -> Result:
    advice = "The tuned numbers are optimistic; quote the held-out ones."
    if "held out" not in points:
        advice = (
            "The tuned numbers are optimistic: judge the rule on other rows, with --holdout "
            "or demur evaluate."
        )
    data: dict[str, Any] = {
        "rule": rule_data(rule),
        "model": tuned.model.to_data(),
        "tuned": seen_data(*points["tuned on"]),
        "held_out": seen_data(*points["held out"]) if "held out" in points else None,
        "certificate": {
            "status": tuned.certificate.status,
            "lower_bound": tuned.certificate.lower_bound,
            "boxes": tuned.certificate.boxes,
            "unresolved": tuned.certificate.unresolved,
        },
        "cautions": cautions(points),
        "output": out.output,
    }
    return Result(
        [
            Section([decision(rule, points["tuned on"][0])]),
            Section(table=point_table(points), notes=cautions(points)),
            Section([_weights(rule), advice, ONLY_THESE_OOD, *_place(out)]),
        ],
        data,
    )


def _weights(rule: Rule) -> str:
    if isinstance(rule, BoxRule):
        return f"limits {list(rule.limits)}"
    return f"direction {list(rule.direction)}, threshold {rule.threshold!r}"


def _place(out: OutputOptions) -> list[str]:
    return [] if out.path is None else [f"The rule is in {out.output}."]


def _finish_promised(
    promised: CertifiedTuning | InfeasibleError,
    request: _Request,
    given: TuningRows,
    work: Mapping[str, Any],
) -> None:
    """Save the rule for the columns as they are, and print its promise; raise if there is none."""
    out = request.out
    with infeasible_as_json(out.as_json):
        if isinstance(promised, InfeasibleError):
            raise promised
    points: Points = {}
    if given.test is not None:
        prior = request.model.prior
        fresh = evaluate(promised.rule, given.test, model=promised.model, ood_prior=prior)
        points = {"held out": (fresh, given.test)}
    rule = _described(promised.rule, request, points)
    out.save(lambda: given.file(rule))
    _tell_learned(given, "tuned and proven on the rows that these are not learned on")
    result = _promised_result(replace(promised, rule=rule), points, out)
    result = replace(result, data={**result.data, **work, **given.described()})
    result.show(as_json=out.as_json, beside=out.on_stdout)


def _promised_result(promised: CertifiedTuning, points: Points, out: OutputOptions) -> Result:
    from demur.report.promises import guarantee_data

    rule, sizes = promised.rule, promised.sizes
    rows = f"{sizes.test_id:,} ID and {sizes.test_ood:,} OOD rows"
    data = {
        "rule": rule_data(rule),
        "model": promised.model.to_data(),
        "guarantee": guarantee_data(promised),
        "tested": asdict(promised.point),
        "held_out": seen_data(*points["held out"]) if points else None,
        "output": out.output,
    }
    seen = f"That was seen on {rows} set aside to test it; promised is this:"
    promise = [
        f"With probability {promised.confidence:g} over the choice of rows, in the population",
        f"{_promise(promised)}.",
    ]
    return Result(
        [
            Section([decision(rule, promised.point), seen]),
            Section(promise, point_table(points) if points else None, cautions(points)),
            Section([_weights(rule), promised.caveat, *_place(out)]),
        ],
        data,
    )


def _promise(promised: CertifiedTuning) -> str:
    """Return what is promised; a rule that accepts nothing has no selective risk."""
    from demur.core.wording import at_most_text
    from demur.guarantees.bound_tests import asked_text

    said = []
    if promised.model.bounds:
        said.append(asked_text(promised.model))
    if promised.expected_cost is not None:
        said.append(f"the expected cost is at most {at_most_text(promised.expected_cost, 5)}")
    if not math.isnan(promised.selective_risk):
        said.append(f"the selective risk is at most {at_most_text(promised.selective_risk, 5)}")
    return ", and ".join(said)


def _read_columns(request: _Request) -> dict[str, Any]:
    """Return the entries of a card that tell how the rows were read."""
    data = request.data
    entries: dict[str, Any] = {"columns": data.roles(request.split.group)}
    if data.label and data.loss_function != "zero_one":
        entries["loss_function"] = data.loss_function
    return entries


def _described(rule: Rule, request: _Request, points: Points) -> Rule:
    """Return a rule whose card also says which columns were read, and what was held out."""
    if rule.card is None:
        return rule
    known = rule.card.with_entries(**_read_columns(request))
    if "held out" in points:
        known = known.with_point("held out", point_data(points["held out"][0]))
    return replace(rule, card=known)


_RETUNE_EXAMPLES = """\b
Examples:
  demur tune scores.parquet --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1 --counts counts.json
  demur retune counts.json --min-precision .95 --min-recall .7 --prior .08 -o rule.json
"""


@click.command(cls=SectionCommand, epilog=_RETUNE_EXAMPLES)
@click.argument("counts", type=click.Path(), metavar="COUNTS")
@model_options("Rejection model (one of four)")
@output_options("Write the rule to this JSON file.")
def retune_command(counts: str, model: ModelOptions, out: OutputOptions) -> None:
    """Tune for other bounds, costs or another prior from saved COUNTS, without the rows.

    COUNTS is what ``demur tune --counts`` wrote. From one score the rule is the one that the rows
    themselves give; from two scores it is the best of those saved, which were best at bounds on
    TPR and FPR in steps of one percent.
    """
    asked = model.one_model()
    out.check(inputs=[counts])
    table = _saved_counts(counts)
    with infeasible_as_json(out.as_json):
        tuned = table.tune(asked)
    out.save(tuned.rule.to_json)
    known = "all that can be optimal" if table.complete else "a selection, so it may not be optimal"
    notes = [
        f"The best of {len(table.thresholds):,} saved rules ({known}).",
        "The numbers are those of the rows it was tuned on, so they are optimistic.",
        ONLY_THESE_OOD,
    ]
    if out.path is not None:
        notes.append(f"The rule is in {out.output}.")
    data = {
        "rule": rule_data(tuned.rule),
        "model": asked.to_data(),
        "tuned": asdict(tuned.point),
        "complete": table.complete,
        "saved_rules": len(table.thresholds),
        "output": out.output,
    }
    section = Section([decision(tuned.rule, tuned.point)], notes=notes)
    Result([section], data).show(as_json=out.as_json, beside=out.on_stdout)


def _saved_counts(counts: str) -> OperatingTable:
    from demur.guarantees.operating_tables import OperatingTable
    from demur.sources.files import STANDARD_INPUT, input_text

    if counts == STANDARD_INPUT:
        return OperatingTable.from_json(input_text("the counts"))
    return OperatingTable.load(counts)
