"""`demur prior`: the share of OOD inputs in use."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from demur.cli import ALARM
from demur.cli.inputs import DataOptions, EngineOptions, data_options, engine_options
from demur.cli.options import (
    LevelOption,
    SectionCommand,
    complete_column,
    level_option,
    names_or_level_option,
    option,
    scores_option,
)
from demur.cli.output import Progress, json_option, note
from demur.cli.printing import Result, Section, rows_data
from demur.cli.saved import SavedRule, opened, work_data
from demur.cli.streamed import added_work, refuse_in_stream
from demur.core.fingerprint import share_of_tuning_rows, warn_of_share
from demur.core.program import Number as Bound
from demur.core.rule import rule_data
from demur.core.sample import Sample
from demur.core.source import ScoreSource
from demur.core.wording import at_least_text, at_most_text, formula
from demur.guarantees.splits import one_of_each

if TYPE_CHECKING:
    from demur.guarantees.prior import PriorEstimate

_EXAMPLES = """\b
Examples:
  demur prior rule.json fresh.parquet --ood is_ood --deployed today.parquet
  demur certify rule.json fresh.parquet --loss is_wrong --ood is_ood --prior-range .02 .08
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@scores_option(help="Columns to read in place of those that the rule names.")
@data_options()
@option("Columns")(
    "--deployed",
    type=click.Path(),
    required=True,
    metavar="FILE",
    help="Scores of inputs in use, in the same columns; no labels are needed.",
)
@option("Columns")(
    "--id",
    "group",
    metavar="COLUMN",
    shell_complete=complete_column,
    help="Rows of DATA with the same id, such as those of one patient, are not independent: one of "
    "each id is drawn at random.",
)
@level_option("Estimate", "Confidence of the interval.")
@names_or_level_option()
@engine_options()
@json_option()
def command(
    rule: str,
    data: DataOptions,
    scores: tuple[str, ...],
    deployed: str,
    group: str | None,
    level: Bound | None,
    confidence: tuple[Any, ...],
    engine: EngineOptions,
    as_json: bool,
) -> None:
    """Estimate the share of OOD inputs in use, from the scores that a saved RULE weighs.

    DATA are labelled rows that the rule was not tuned on: they tell what scores ID and OOD inputs
    have. The first interval is a promise, for any number of independent rows, as long as ID and
    OOD inputs in use are like those of DATA, in another proportion; the likely one is shorter and
    approximate. Exit code 4: no proportion explains the scores in use, so they are not.

    More rows than --memory holds, of either kind, are counted where they are.
    """
    from demur.guarantees.prior import estimate_prior
    from demur.report.promises import prior_data, prior_text

    told = LevelOption.of(level, confidence, note)
    saved = SavedRule.load(rule, scores, told.confidence).for_rows_of(data.data, deployed)
    loaded = saved.rule
    there = saved.streams(engine, data, folders=False)
    if there:
        refuse_in_stream({"--id": group}, engine, data)
    with ExitStack() as stack:
        progress = stack.enter_context(Progress("counting rows"))
        known: Sample | ScoreSource
        if there:
            told_data = saved.columns(data, need_loss=False)
            columns = saved.names, saved.confidence
            known = stack.enter_context(
                opened(engine, told_data, *columns, progress, about=6, need_loss=False)
            )
        else:
            known = _labelled_rows(saved, data, group)
        live = stack.enter_context(saved.in_use(engine, deployed, progress))
        found = estimate_prior(loaded, live, validation=known, confidence=float(told.level))
        if isinstance(known, ScoreSource) and (share := share_of_tuning_rows(loaded, known)):
            warn_of_share(share)
        rows_of = known if isinstance(known, Sample) else known.overview()
        count = live.overview().rows if isinstance(live, ScoreSource) else len(live)
        used = [work_data(one) for one in (live, known) if isinstance(one, ScoreSource)]
        work = added_work(*used) if used else {}
    facts = [f"Rule: accept when {formula(loaded)}. {count:,} inputs in use."]
    described = {
        "rule": rule_data(loaded),
        "rows": rows_data(rows_of),
        "deployed": count,
        **work,
    }
    section = Section(facts, notes=[prior_text(found), *_advice(found)])
    Result([section], prior_data(found) | described).show(as_json=as_json)
    if not found.consistent:
        raise SystemExit(ALARM)


def _labelled_rows(saved: SavedRule, data: DataOptions, group: str | None) -> Sample:
    """Return labelled rows in memory, one of each id."""
    rows = saved.read(data, need_loss=False, group=group)
    sample, ids = rows.sample(saved.names), rows.ids(group)
    if share := saved.share_of_tuning_rows(rows):
        warn_of_share(share)
    return sample if ids is None else one_of_each(sample, ids, 0)


def _advice(found: PriorEstimate) -> list[str]:
    if not found.consistent:
        return []
    low, high = at_least_text(found.interval.low, 4), at_most_text(found.interval.high, 4)
    # At a share of 1 no precision can be promised.
    if float(high) >= 1:
        return []
    both, each = 2 * found.confidence - 1, (1 + found.confidence) / 2
    return [
        f"To be safe over all of it: demur certify --prior-range {low} {high}",
        f"Both then hold together with confidence {both:.4g}; for {found.confidence:g}, give "
        f"--level {each:.4g} to each.",
    ]
