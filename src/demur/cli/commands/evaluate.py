"""`demur evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from demur.cli.inputs import (
    DataOptions,
    EngineOptions,
    data_options,
    engine_options,
    read_rows,
    rule_on,
    scores_option,
)
from demur.cli.options import ModelOptions, SectionCommand, complete_column, model_options, option
from demur.cli.output import Progress, json_option
from demur.cli.printing import (
    ONLY_THESE_OOD,
    Result,
    ResultTable,
    Section,
    decision,
    point_table,
    rate,
    seen_data,
    verdict,
)
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
    scores: tuple[str, ...] | None,
    model: ModelOptions,
    by: str | None,
    engine: EngineOptions,
    as_json: bool,
) -> None:
    """Show what a saved RULE does on the rows of DATA.

    On rows the rule was not tuned on these are honest estimates. The columns of the scores are
    those that the rule names; confidences stay as they are. DATA may be many files, as for
    demur tune.
    """
    asked = model.at_most_one("check")
    loaded = Rule.load(rule)
    loaded, names = rule_on(loaded, scores)
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
    groups = dict(sorted(groups.items(), key=lambda item: (item[0] is None, item[0])))
    _result(loaded, asked, (point, sizes), by, groups).show(as_json=as_json)


def _result(
    rule: Rule,
    asked: RejectionModel | None,
    seen: tuple[OperatingPoint, Sample | Overview],
    by: str | None,
    groups: Mapping[Any, OperatingPoint],
) -> Result:
    met = {} if asked is None else bounds_met(asked, seen[0])
    sections = [
        Section([decision(rule, seen[0])]),
        Section(table=point_table({"these rows": seen})),
    ]
    data: dict[str, Any] = {
        "rule": rule_data(rule),
        "model": None if asked is None else asked.to_data(),
        "point": seen_data(*seen),
        "bounds_met": met,
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
