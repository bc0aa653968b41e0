"""`demur evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import click

from demur.cli.app import UNMET
from demur.cli.inputs import (
    DataOptions,
    EngineOptions,
    confidence_option,
    data_options,
    engine_options,
    read_rows,
    scores_option,
)
from demur.cli.options import ModelOptions, SectionCommand, complete_column, model_options, option
from demur.cli.output import Progress, json_option
from demur.cli.printing import (
    ONLY_THESE_OOD,
    Result,
    ResultTable,
    Section,
    cautions,
    decision,
    point_table,
    rate,
    seen_data,
    verdict,
)
from demur.cli.saved import SavedRule
from demur.cli.streaming import opened
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint, evaluate
from demur.core.rule import Rule, rule_data
from demur.core.sample import Sample
from demur.core.source import Overview
from demur.core.wording import bounds_met

_EXAMPLES = """\b
Examples:
  demur evaluate rule.json test.parquet --loss is_wrong --ood is_ood
  demur evaluate rule.json test.csv --label y --prediction yhat --ood set \\
      --min-tpr .8 --max-fpr .1 --prior .05
  demur evaluate rule.json 'lake/**/*.parquet' --loss is_wrong --ood is_ood --by day
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@scores_option(help="Columns to read in place of those that the rule names.")
@confidence_option()
@data_options()
@model_options("Bounds to check, or costs (optional)")
@option("Columns")(
    "--by",
    metavar="COLUMN",
    shell_complete=complete_column,
    help="Show the rates for each value of this column too, such as a day.",
)
@engine_options()
@json_option()
def command(
    rule: str,
    data: DataOptions,
    scores: tuple[str, ...],
    confidence: tuple[str, ...],
    model: ModelOptions,
    by: str | None,
    engine: EngineOptions,
    as_json: bool,
) -> None:
    """Show what a saved RULE does on the rows of DATA.

    On rows the rule was not tuned on these are honest estimates. The columns of the scores are
    those that the rule names; confidences stay as they are. Other columns and the bounds are
    those of the rule's card, unless options say otherwise. DATA may be many files, as for demur
    tune. Exit code 3: a bound is not met.
    """
    saved = SavedRule.load(rule, scores, confidence)
    asked = saved.model(model, "check")
    loaded, names = saved.rule, saved.names
    data = saved.columns(data)
    tuning_rows = None
    groups: dict[Any, OperatingPoint] = {}
    sizes: Sample | Overview
    # The rule reads raw columns, so nothing is flipped here.
    if by is not None or engine.streams(data):
        with (
            Progress("counting rows") as progress,
            opened(engine, data, names, loaded.confidence, progress) as source,
        ):
            point = evaluate(loaded, source, model=asked, ood_prior=model.prior)
            if by is not None:
                groups = evaluate(loaded, source, model=asked, ood_prior=model.prior, by=by)
            sizes = source.overview()
    else:
        rows = read_rows(data, [names], confidence=loaded.confidence)
        with Progress("evaluating"):
            sizes = rows.sample(names)
            point = evaluate(loaded, sizes, model=asked, ood_prior=model.prior)
        tuning_rows = saved.warn_of_tuning_rows(sizes)
    groups = dict(sorted(groups.items(), key=lambda item: (item[0] is None, item[0])))
    met = {} if asked is None else bounds_met(asked, point)
    result = _result(loaded, asked, met, (point, sizes), by, groups)
    replace(result, data={**result.data, "tuning_rows": tuning_rows}).show(as_json=as_json)
    if not all(met.values()):
        raise SystemExit(UNMET)


def _result(
    rule: Rule,
    asked: RejectionModel | None,
    met: Mapping[str, bool],
    seen: tuple[OperatingPoint, Sample | Overview],
    by: str | None,
    groups: Mapping[Any, OperatingPoint],
) -> Result:
    points = {"these rows": seen}
    sections = [
        Section([decision(rule, seen[0])]),
        Section(table=point_table(points), notes=cautions(points)),
    ]
    data: dict[str, Any] = {
        "rule": rule_data(rule),
        "model": None if asked is None else asked.to_data(),
        "point": seen_data(*seen),
        "bounds_met": dict(met),
        "cautions": cautions(points),
    }
    if by is not None:
        sections.append(Section(table=_group_table(by, groups)))
        data |= {"by": by, "groups": _group_data(groups)}
    facts = [verdict(bound, good, "met") for bound, good in met.items()]
    return Result([*sections, Section([*facts, ONLY_THESE_OOD])], data)


def _group_data(groups: Mapping[Any, OperatingPoint]) -> list[dict[str, Any]]:
    # Days and the like have no form of their own in JSON.
    plain = (int, float, str, type(None))
    return [
        {"value": value if isinstance(value, plain) else str(value)} | asdict(point)
        for value, point in groups.items()
    ]


def _group_table(by: str, groups: Mapping[Any, OperatingPoint]) -> ResultTable:
    """Return one line for each group."""
    rows = [
        [
            "missing" if value is None else str(value),
            rate(point.tpr),
            rate(point.fpr),
            rate(point.selective_risk, 5),
            f"{point.accepted_id:,.10g}",
            f"{point.accepted_ood:,.10g}",
        ]
        for value, point in groups.items()
    ]
    heads = [by, "TPR", "FPR", "selective risk", "accepted ID", "accepted OOD"]
    return ResultTable.of(heads, rows)
