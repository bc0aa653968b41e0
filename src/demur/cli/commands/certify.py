"""`demur certify`: what can be promised of a saved rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import click

from demur._arrays import FloatArray
from demur.cli import UNMET
from demur.cli.inputs import DataOptions, EngineOptions, data_options, engine_options
from demur.cli.options import (
    LevelOption,
    Number,
    SectionCommand,
    complete_column,
    level_option,
    names_or_level_option,
    option,
    scores_option,
)
from demur.cli.output import Progress, json_option, note
from demur.cli.printing import Result, ResultTable, Section, rows_data, verdict
from demur.cli.resampling import PerId, per_id_option, refuse_repeated_ids
from demur.cli.saved import SavedRule, opened, refuse_share, work_data
from demur.cli.streamed import bring_rows, refuse_in_stream, refuse_shared_ids
from demur.cli.tuning_options import HoldoutOptions, ModelOptions, model_options
from demur.core.fingerprint import share_of_tuning_rows
from demur.core.models import RejectionModel, TprFprModel
from demur.core.program import Number as Bound
from demur.core.rule import Rule, rule_data
from demur.core.sample import Sample
from demur.core.source import ScoreSource, Sizes
from demur.core.wording import at_least_text, at_most_text, formula, number
from demur.errors import InvalidInputError
from demur.guarantees.certified_rule import PARTS_CAVEAT, Certified, certify
from demur.guarantees.intervals import Interval
from demur.guarantees.splits import EVERY_ID_ONCE, one_of_each

_EXAMPLES = """\b
Examples:
  demur certify rule.json fresh.parquet --loss is_wrong --ood is_ood --level .95
  demur certify rule.json fresh.csv --label y --prediction yhat --ood set \\
      --min-tpr .8 --max-fpr .1
  demur certify rule.json fresh.csv --loss is_wrong --ood set --prior-range .01 .05
  demur certify rule.json fresh.csv --loss is_wrong --ood set --deployed today.csv
  demur certify rule.json fresh.csv --loss is_wrong --ood set --id patient --per-id mean
"""
_promise = option("Promise")


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@scores_option(help="Columns to read in place of those that the rule names.")
@data_options()
@model_options("Bounds to certify, or costs (optional)")
@level_option("Promise", "Chance that all hold.")
@names_or_level_option()
@_promise(
    "--prior-range",
    type=Number(),
    nargs=2,
    metavar="LOW HIGH",
    help="Bound precision and cost over all shares of OOD inputs between these; what was seen is "
    "stated at --prior, or else at HIGH.",
)
@_promise(
    "--deployed",
    type=click.Path(),
    metavar="FILE",
    help="Bound precision and cost over the shares of OOD inputs that these inputs in use allow; "
    "no labels are needed. The level is shared with their estimate.",
)
@_promise(
    "--fpr-of",
    type=click.Choice(["pooled", "worst"]),
    help="Bound the FPR of all OOD rows together, or of every OOD set; by default as the rule was "
    "tuned.",
)
@_promise(
    "--id",
    "group",
    metavar="COLUMN",
    shell_complete=complete_column,
    help="Rows with the same id, such as those of one patient, are not independent.",
)
@per_id_option("Promise", ["draw", "mean"])
@_promise("--max-loss", type=Number(), help="Largest possible loss, if losses are not 0 and 1.")
@_promise("--two-sided", is_flag=True, help="Bound every rate from both sides.")
@_promise(
    "--allow-tuning-rows",
    is_flag=True,
    help="Go on with rows that made the rule, whose numbers promise nothing.",
)
@engine_options()
@json_option()
def command(
    rule: str,
    data: DataOptions,
    scores: tuple[str, ...],
    model: ModelOptions,
    engine: EngineOptions,
    level: Bound | None,
    confidence: tuple[Any, ...],
    prior_range: tuple[Bound, Bound] | None,
    deployed: str | None,
    fpr_of: str | None,
    group: str | None,
    per_id: PerId | None,
    max_loss: Bound | None,
    two_sided: bool,
    allow_tuning_rows: bool,
    as_json: bool,
) -> None:
    """State what can be promised of a saved RULE, from fresh rows.

    DATA must be rows that the rule was not tuned or chosen on. All bounds hold together with
    the chance --level. Columns and bounds are those of the rule's card, unless options say
    otherwise. DATA may be many files, as for demur tune: losses of 0 and 1 are counted where the
    rows are. Exit code 3: a bound that was asked for is not certified.
    """
    told = LevelOption.of(level, confidence, note)
    saved = SavedRule.load(rule, scores, told.confidence).for_rows_of(data.data)
    given = model.prior
    if prior_range is not None and given is None:
        # What was seen is shown at the worse end.
        model = replace(model, prior=prior_range[1])
    asked = saved.model(model, "certify")
    if fpr_of == "worst":
        # Without bounds, too, FPR and precision are those of the worst set.
        asked = (asked or TprFprModel(0, 1)).of_every_set()
    if prior_range is not None and deployed is not None:
        raise click.UsageError("--prior-range and --deployed both say the prior: leave out one")
    if None not in (given, prior_range) and (asked is None or asked.ood_prior is None):
        raise click.UsageError(
            "beside --prior-range, --prior says where precision or cost was seen, and neither "
            "--min-precision nor --cost-reject-id is given: leave out one of the two"
        )
    loaded, names = saved.rule, saved.names
    level_each, priors = float(told.level), prior_range
    notes: list[str] = []
    asking: dict[str, Any] = {
        "model": asked,
        "max_loss": max_loss,
        "sides": "two" if two_sided else "one",
    }
    sizes: Sample | Sizes
    work: Mapping[str, Any] = {}
    there = saved.streams(engine, data, folders=per_id is None)
    if there:
        refuse_in_stream({"--per-id": per_id}, engine, data)
    # Counts of cells say nothing of losses that are not 0 and 1.
    if there and max_loss is None:
        with ExitStack() as stack:
            progress = stack.enter_context(Progress("counting rows"))
            columns = saved.columns(data), names, loaded.confidence
            source = stack.enter_context(opened(engine, *columns, progress, key=group))
            if group is not None:
                refuse_shared_ids(source, group)
            if deployed is not None:
                level_each = (1 + level_each) / 2
                in_use = stack.enter_context(saved.in_use(engine, deployed, progress))
                priors, notes = _deployed_priors(saved, deployed, in_use, source, level_each)
            asking["ood_prior"] = priors or model.prior
            promise = certify(
                loaded, source, confidence=level_each, allow_tuning_rows=True, **asking
            )
            tuning_rows = share_of_tuning_rows(loaded, source, promise.point)
            refuse_share(tuning_rows, allow=allow_tuning_rows)
            sizes, work = source.sizes(), work_data(source)
    else:
        if there:
            one_by_one = HoldoutOptions(None, 0, group)
            columns = saved.columns(data), names, loaded.confidence
            brought = bring_rows(*(engine, *columns, one_by_one), what="the promise", promised=True)
            rows, work, group = brought.rows, brought.work, None
        else:
            rows = saved.read(data, group=group)
        refuse_repeated_ids(rows, group, per_id)
        sizes = sample = rows.sample(names)
        tuning_rows = saved.refuse_tuning_rows(rows, allow=allow_tuning_rows)
        if deployed is not None:
            # Two statements that hold together: each may fail half as often.
            level_each = (1 + level_each) / 2
            ids = rows.ids(group)
            # Labelled rows of one id are not independent, here as little as below.
            labelled = sample if ids is None else one_of_each(sample, ids, 0)
            with (
                Progress("counting rows") as progress,
                saved.in_use(engine, deployed, progress) as in_use,
            ):
                priors, notes = _deployed_priors(saved, deployed, in_use, labelled, level_each)
        with Progress("certifying"):
            promise = certify(
                loaded,
                sample,
                confidence=level_each,
                ood_prior=priors or model.prior,
                groups=rows.ids(group),
                per_id=per_id or "refuse",
                # Refused above, where it is said how to go on from here.
                allow_tuning_rows=True,
                **asking,
            )
    described = {
        "rule": rule_data(loaded),
        "model": None if asked is None else asked.to_data(),
        "rows": rows_data(sizes),
        "holds": promise.holds,
        "tuning_rows": tuning_rows,
        "ood_prior": [float(prior) for prior in priors or (model.prior,) if prior is not None],
        **work,
    }
    promise = replace(promise, confidence=float(told.level))
    _result(loaded, promise, asked, described, notes).show(as_json=as_json)
    if not promise.holds:
        raise SystemExit(UNMET)


def _deployed_priors(
    saved: SavedRule,
    path: str,
    in_use: FloatArray | ScoreSource,
    labelled: Sample | ScoreSource,
    level: float,
) -> tuple[tuple[Bound, Bound], list[str]]:
    """Return the shares of OOD inputs that inputs in use allow, and what to say of them."""
    from demur.guarantees.prior import estimate_prior

    found = estimate_prior(saved.rule, in_use, validation=labelled, confidence=level)
    if not found.consistent:
        raise InvalidInputError(
            f"{path}: no share of OOD inputs explains these scores, so the rows here say nothing "
            "about precision and cost in use"
        )
    count = in_use.overview().rows if isinstance(in_use, ScoreSource) else len(in_use)
    # At a share of 1 no precision can be promised.
    low, high = found.interval.low, min(found.interval.high, 1 - 1e-9)
    said = f"between {at_least_text(low, 4)} and {at_most_text(high, 4)}"
    return (low, high), [f"The share of OOD among {count:,} inputs in use is {said}."]


def _result(
    rule: Rule,
    promise: Certified,
    asked: RejectionModel | None,
    described: dict[str, Any],
    notes: list[str],
) -> Result:
    apart = " but those on groups and single sets" if PARTS_CAVEAT in promise.caveat else ""
    meaning = [
        f"All of these bounds{apart} hold together with probability {promise.confidence:g} over "
        "the choice of rows,",
        f"if the {'ids' if EVERY_ID_ONCE in promise.caveat else 'rows'} are fresh and independent.",
    ]
    verdicts = [verdict(bound, good, "certified") for bound, good in promise.met.items()]
    return Result(
        [
            Section(
                [f"Rule: accept when {formula(rule)}."],
                table=_promise_table(promise, asked),
                notes=[*meaning, *notes, *verdicts, promise.caveat],
            )
        ],
        asdict(promise) | described,
    )


def _promise_table(promise: Certified, asked: RejectionModel | None) -> ResultTable:
    """Return the certified bounds beside what was seen."""
    point = promise.point
    # Of sets that are not bounded by name the worst is stated.
    named = [bound.ood_set for bound in asked.bounds] if asked is not None else []
    of_sets = {name: ends for name, ends in promise.fpr_by_set.items() if name in named}
    seen = {
        "TPR": (promise.tpr, point.tpr),
        "largest FPR of a set" if promise.worst else "FPR": (
            promise.fpr,
            max(point.fpr_by_set.values()) if promise.worst else point.fpr,
        ),
        "selective risk": (promise.selective_risk, point.selective_risk),
        "precision": (promise.precision, point.precision),
        "expected cost": (promise.expected_cost, point.expected_cost),
    }
    parts = (
        ("TPR", promise.tpr_by_group, point.tpr_by_group),
        ("selective risk", promise.selective_risk_by_group, point.selective_risk_by_group),
        ("FPR", of_sets, point.fpr_by_set),
    )
    for rate_name, certified, values in parts:
        for name, interval in certified.items():
            seen[f"{rate_name} of {name}"] = interval, values[name]
    rows = [
        [name, "" if value is None else number(value, 5), *_ends(interval)]
        for name, (interval, value) in seen.items()
        if interval is not None
    ]
    return ResultTable.of(["", "seen", "at least", "at most"], rows)


def _ends(interval: Interval) -> list[str]:
    # An end that is not promised is the trivial one.
    low = "" if interval.low == 0 else _end(interval.low, at_least_text)
    return [low, "" if interval.high == 1 else _end(interval.high, at_most_text)]


def _end(bound: float, text: Callable[[float, int], str]) -> str:
    return "undefined" if math.isnan(bound) else text(bound, 5)
