"""`demur tune`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
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
from demur.core.rates import OperatingPoint, evaluate
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
def command(
    data: DataOptions,
    scores: tuple[str, ...],
    confidence: tuple[str, ...],
    model: ModelOptions,
    search: SearchOptions,
    learn: str | None,
    split: HoldoutOptions,
    engine: EngineOptions,
    guarantee: Bound | None,
    per_id: PerId | None,
    max_loss: Bound | None,
    report: str | None,
    counts: str | None,
    out: OutputOptions,
) -> None:
    """Find the best accept/reject rule for the rows of DATA.

    DATA is a .csv, .parquet, .arrow, .feather or .npz file with one row per input; or many
    .parquet or .csv files: a folder, or a pattern in quotes; or, with --table, the URL of a
    database. More rows than fit in --memory are
    counted where they are, in a few passes, and the rule found is the same. The rule
    minimises the selective risk (mean loss of accepted ID rows) under the bounds, or the
    expected cost. Exit code 3: no rule meets the bounds; the message says what is possible.
    """
    asked = model.model_for(has_ood=data.has_ood)
    _check_shape(search, {"--counts": counts, "--learn": learn})
    out.check({"--report": report, "--counts": counts}, inputs=data.inputs)
    if learn is not None:
        if engine.streams(data, folders=False):
            refuse_in_stream({"--learn": learn}, engine, data)
        _check_learn(counts)
    if per_id is not None and guarantee is None:
        raise click.UsageError("--per-id is about --guarantee")
    work: Mapping[str, Any] = {}
    brought = None
    paged = report is not None and all(one is None for one in (learn, per_id, counts, guarantee))
    row_bytes = PAGE_ROW_BYTES if paged else FRONTIER_ROW_BYTES if counts else ROW_BYTES
    # What needs all rows in memory reads folders, too.
    if engine.streams(data, folders=learn is None and per_id is None, row_bytes=row_bytes):
        refuse_in_stream({"--per-id": per_id}, engine, data)
        counted: Mapping[str, Any] = {}
        if counts is not None:
            table, counted = count_stream(engine, data, scores, confidence, search, split)
            _save_counts(table, data, split.group, counts)
        if guarantee is None:
            with infeasible_as_json(out.as_json):
                found = tune_stream(engine, data, scores, confidence, asked, model, search, split)
            fresh = {kind: point for kind, (point, _) in found.points.items() if kind == "held out"}
            rule = _described(found.tuned.rule, data, split.group, fresh)
            if report is not None:
                _page_of_stream(engine, data, scores, confidence, search, split, found, report)
            work = added_work(counted, found.work)
            _finish(replace(found.tuned, rule=rule), found.points, out, rule.to_json, work)
            return
        brought = bring_rows(
            *(engine, data, scores, confidence, split), what="the promise", promised=True
        )
        rows, work = brought.rows, added_work(counted, brought.work)
        split = replace(split, group=None)
    else:
        rows = read_rows(
            data,
            [scores] if scores else [],
            confidence=confidence,
            group=split.group,
            many=learn is not None,
        )
        if guarantee is not None:
            refuse_repeated_ids(rows, split.group, per_id)
    held = None if brought is None else brought.held
    given = _tuning_rows(rows, held, asked, model, split, learn, apart=guarantee is not None)
    train, test = given.train, given.test
    if counts is not None and brought is None:
        with Progress("counting"):
            table = _counts(train, search)
        _save_counts(table, data, split.group, counts)
    promised = None
    if guarantee is not None:
        promised = tune_promised(
            *(train, asked, guarantee),
            search=search,
            seed=split.seed,
            max_loss=max_loss,
            groups=given.ids,
        )
        if report is None:
            _finish_promised(promised, data, split.group, given, model.prior, out, work)
            return
    unmet = None
    if report is None:
        label = f"tuning on {train.n_id + train.n_ood:,} rows"
        with Progress(label), infeasible_as_json(out.as_json):
            tuned = tune(
                train,
                asked,
                directions=search.directions,
                search=search.search,
                ood=search.fpr_of,
                shape=search.shape,
            )
    else:
        from demur.report.promises import PromiseEvidence

        tuned, unmet = tune_or_nearest(train, asked, search, as_json=out.as_json)
        contents = PageContents(
            title=page_title(data),
            max_loss=max_loss,
            evidence=PromiseEvidence(guaranteed=promised),
            command=command_line(data, given.names, confidence, split, learn),
            ids=given.ids,
            held_out_ids=given.test_ids,
            rule=None
            if promised is None or isinstance(promised, InfeasibleError)
            else promised.rule,
            unmet=unmet,
            learned=given.learned,
        )
        write_page(train, test, tuned, search=search, contents=contents, path=report)
        note(f"the report is in {report}")
    if promised is not None:
        _finish_promised(promised, data, split.group, given, model.prior, out, work)
        return
    if unmet is not None:
        with infeasible_as_json(out.as_json):
            raise unmet
    samples = {"tuned on": train} | ({} if test is None else {"held out": test})
    points: Points = {
        title: (evaluate(tuned.rule, sample, model=asked, ood_prior=model.prior), sample)
        for title, sample in samples.items()
    }
    fresh = {kind: point for kind, (point, _) in points.items() if kind == "held out"}
    rule = _described(tuned.rule, data, split.group, fresh)
    _tell_learned(given)
    _finish(replace(tuned, rule=rule), points, out, lambda: given.file(rule), given.described())


def _page_of_stream(
    engine: EngineOptions,
    data: DataOptions,
    scores: tuple[str, ...],
    confidence: tuple[str, ...],
    search: SearchOptions,
    split: HoldoutOptions,
    found: StreamTuning,
    path: str,
) -> None:
    """Write the page about a rule tuned on all rows, from those that memory holds."""
    brought, whole = page_rows(engine, data, scores, confidence, split, found)
    rows, held = brought.rows, brought.held
    train, test = rows.split(scores, held)
    near, _ = tune_or_nearest(train, found.tuned.model, search, as_json=False)
    contents = PageContents(
        title=page_title(data),
        command=command_line(data, scores, confidence, split),
        rule=found.tuned.rule,
        whole=whole,
    )
    write_page(train, test, near, search=search, contents=contents, path=path)
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


def _tuning_rows(
    rows: ScoreTable,
    held: BoolArray | None,
    asked: RejectionModel,
    model: ModelOptions,
    split: HoldoutOptions,
    learn: str | None,
    *,
    apart: bool,
) -> TuningRows:
    """Return the rows to tune on and those held out; with `apart` for scores learned on others."""
    names = rows.tuned_scores if learn is None else rows.scores[0]
    with Progress("sorting out the rows"):
        whole = rows.raw_sample(names)
        model.check_ood(whole.n_ood, rows.options.ood)
        held = split.held(rows) if held is None else held
    if learn is not None:
        return learned_rows(rows, held, split, learn, asked, apart=apart)
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


def _save_counts(table: OperatingTable, data: DataOptions, group: str | None, path: str) -> None:
    """Save operating points, with rules for the columns as they are."""
    card = None if table.card is None else table.card.with_entries(**_read_columns(data, group))
    save_file(path, replace(table, card=card).save, "the counts are")


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
    data: DataOptions,
    group: str | None,
    given: TuningRows,
    prior: Bound | None,
    out: OutputOptions,
    work: Mapping[str, Any],
) -> None:
    """Save the rule for the columns as they are, and print its promise; raise if there is none."""
    with infeasible_as_json(out.as_json):
        if isinstance(promised, InfeasibleError):
            raise promised
    points: Points = {}
    if given.test is not None:
        fresh = evaluate(promised.rule, given.test, model=promised.model, ood_prior=prior)
        points = {"held out": (fresh, given.test)}
    seen = {kind: point for kind, (point, _) in points.items()}
    rule = _described(promised.rule, data, group, seen)
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


def _read_columns(data: DataOptions, group: str | None) -> dict[str, Any]:
    """Return the entries of a card that tell how the rows were read."""
    entries: dict[str, Any] = {"columns": data.roles(group)}
    if data.label and data.loss_function != "zero_one":
        entries["loss_function"] = data.loss_function
    return entries


def _described(
    rule: Rule,
    data: DataOptions,
    group: str | None,
    points: dict[str, OperatingPoint],
) -> Rule:
    """Return a rule whose card also says which columns were read, and what was seen."""
    known = rule.card
    if known is None:
        return rule
    known = known.with_entries(**_read_columns(data, group))
    for kind, point in points.items():
        known = known.with_point(kind, point_data(point))  # type: ignore[arg-type]
    return replace(rule, card=known)
