"""`demur tune`."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from demur._arrays import BoolArray
from demur.cli.inputs import (
    DataOptions,
    EngineOptions,
    ScoreTable,
    confidence_option,
    data_options,
    engine_options,
    read_rows,
    scores_option,
)
from demur.cli.options import (
    Chance,
    ModelOptions,
    Number,
    SearchOptions,
    SectionCommand,
    model_options,
    option,
    search_options,
)
from demur.cli.output import OutputOptions, Progress, note, output_options, save_file
from demur.cli.printing import (
    ONLY_THESE_OOD,
    Points,
    Result,
    Section,
    cautions,
    decision,
    infeasible_as_json,
    point_table,
    seen_data,
)
from demur.cli.resampling import (
    HoldoutOptions,
    holdout_options,
    refuse_repeated_ids,
    tune_promised,
)
from demur.cli.streaming import refuse_in_stream, tune_stream
from demur.core.card import Card, point_data
from demur.core.program import Number as Bound
from demur.core.rates import OperatingPoint, evaluate
from demur.core.rule import Rule, rule_data
from demur.core.sample import Sample
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
    scores: tuple[str, ...],
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
    asked = model.model_for(has_ood=data.has_ood)
    if guarantee is not None and search.fpr_of != "pooled":
        raise click.UsageError("--guarantee bounds the FPR of all OOD rows together")
    out.check({"--report": report, "--counts": counts}, inputs=data.inputs)
    if engine.streams(data):
        needs = {"--holdout": split.holdout, "--guarantee": guarantee, "--report": report}
        refuse_in_stream(needs | {"--counts": counts, "--id": split.group, "--grid": search.grid})
        with infeasible_as_json(out.as_json):
            found = tune_stream(engine, data, scores, confidence, model, search)
        seen: Points = {"tuned on": (found.point, found.sizes)}
        rule = _described(found.tuned.rule, data, None, {})
        _finish(replace(found.tuned, rule=rule), seen, out)
        return
    rows = read_rows(data, [scores] if scores else [], confidence=confidence, group=split.group)
    if guarantee is not None:
        refuse_repeated_ids(rows, split.group)
    held, train, test = _samples(rows, model, split)
    if counts is not None:
        save_file(counts, _counts(train, search).save, "the counts are")
    promised = None
    if guarantee is not None:
        promised = tune_promised(
            train, asked, guarantee, search=search, seed=split.seed, max_loss=max_loss
        )
        if report is None:
            _finish_promised(promised, rows, split.group, (train, test), model.prior, out)
            return
    label = f"tuning on {train.n_id + train.n_ood:,} rows"
    with Progress(label), infeasible_as_json(out.as_json):
        tuned = tune(
            train, asked, directions=search.directions, search=search.search, ood=search.fpr_of
        )
    if report is not None:
        from demur.cli.page import PageContents, write_page
        from demur.report.promises import PromiseEvidence

        contents = PageContents(max_loss=max_loss, evidence=PromiseEvidence(guaranteed=promised))
        write_page(rows, held, tuned, search=search, contents=contents, path=report)
        note(f"the report is in {report}")
    if promised is not None:
        _finish_promised(promised, rows, split.group, (train, test), model.prior, out)
        return
    samples = {"tuned on": train} | ({} if test is None else {"held out": test})
    points: Points = {
        title: (evaluate(tuned.rule, sample, model=asked, ood_prior=model.prior), sample)
        for title, sample in samples.items()
    }
    fresh = {kind: point for kind, (point, _) in points.items() if kind == "held out"}
    rule = _described(tuned.rule, data, split.group, fresh)
    _finish(replace(tuned, rule=rule), points, out)


def _samples(
    rows: ScoreTable, model: ModelOptions, split: HoldoutOptions
) -> tuple[BoolArray | None, Sample, Sample | None]:
    """Return which rows are held out, the rows to tune on, and those held out if any are."""
    names = rows.tuned_scores
    with Progress("sorting out the rows"):
        whole = rows.sample(names)
        model.check_ood(whole.n_ood, rows.options.ood)
        if split.holdout is None:
            return None, whole, None
        held = split.held(rows)
        return held, *rows.split(names, held)


def _counts(sample: Sample, search: SearchOptions) -> OperatingTable:
    """Return operating points to tune from, with rules for the columns as they are."""
    from demur.guarantees.operating_tables import operating_table

    with Progress("counting"):
        return operating_table(sample, directions=search.allowed, search=search.search)


def _finish(tuned: Tuning, points: Points, out: OutputOptions) -> None:
    """Save the rule and show what it does."""
    rule = tuned.rule
    out.save(rule.to_json)
    if rule.confidence:
        note(
            "the rule reads the raw columns: confidences "
            f"({', '.join(rule.confidence)}) have a negative weight"
        )
    _result(rule, tuned, points, out).show(as_json=out.as_json, beside=out.on_stdout)


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
    return f"direction {list(rule.direction)}, threshold {rule.threshold!r}"


def _place(out: OutputOptions) -> list[str]:
    return [] if out.path is None else [f"The rule is in {out.output}."]


def _finish_promised(
    promised: CertifiedTuning | InfeasibleError,
    rows: ScoreTable,
    group: str | None,
    samples: tuple[Sample, Sample | None],
    prior: Bound | None,
    out: OutputOptions,
) -> None:
    """Save the rule for the columns as they are, and print its promise; raise if there is none."""
    with infeasible_as_json(out.as_json):
        if isinstance(promised, InfeasibleError):
            raise promised
    train, test = samples
    points: Points = {}
    if test is not None:
        fresh = evaluate(promised.rule, test, model=promised.model, ood_prior=prior)
        points = {"held out": (fresh, test)}
    # All rows that learned and tested it made the rule, and the bounds are those asked for.
    card = Card.of_tuning(train, promised.model, promised.point)
    card = card.with_entries(points={"certified": _promise_data(promised)})
    seen = {kind: point for kind, (point, _) in points.items()}
    rule = _described(promised.rule, rows.options, group, seen, card=card)
    out.save(rule.to_json)
    result = _promised_result(replace(promised, rule=rule), points, out)
    result.show(as_json=out.as_json, beside=out.on_stdout)


def _promise_data(promised: CertifiedTuning) -> dict[str, float]:
    """Return what is promised, under the names of the rates."""
    data: dict[str, float] = {bound.quantity: float(bound.value) for bound in promised.model.bounds}
    data |= {"selective_risk": promised.selective_risk, "confidence": promised.confidence}
    if promised.expected_cost is not None:
        data["expected_cost"] = promised.expected_cost
    return {name: value for name, value in data.items() if not math.isnan(value)}


def _promised_result(promised: CertifiedTuning, points: Points, out: OutputOptions) -> Result:
    from demur.report.plain import guarantee_data

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
    from demur.guarantees.requirements import asked_text

    said = []
    if promised.model.bounds:
        said.append(asked_text(promised.model))
    if promised.expected_cost is not None:
        said.append(f"the expected cost is at most {at_most_text(promised.expected_cost, 5)}")
    if not math.isnan(promised.selective_risk):
        said.append(f"the selective risk is at most {at_most_text(promised.selective_risk, 5)}")
    return ", and ".join(said)


def _described(
    rule: Rule,
    data: DataOptions,
    group: str | None,
    points: dict[str, OperatingPoint],
    *,
    card: Card | None = None,
) -> Rule:
    """Return a rule whose card also says which columns were read, and what was seen."""
    known = card or rule.card
    if known is None:
        return rule
    entries: dict[str, Any] = {"columns": data.roles(group)}
    if data.label and data.loss_function != "zero_one":
        entries["loss_function"] = data.loss_function
    known = known.with_entries(**entries)
    for kind, point in points.items():
        known = known.with_point(kind, point_data(point))  # type: ignore[arg-type]
    return replace(rule, card=known)
