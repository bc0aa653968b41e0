"""`demur evaluate` and `demur estimate`: what a saved rule, or tuned ones, do on new rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import click
import numpy as np
from click.core import ParameterSource

from demur.cli import UNMET
from demur.cli.inputs import DataOptions, EngineOptions, data_options, engine_options, read_rows
from demur.cli.options import (
    SectionCommand,
    complete_column,
    confidence_option,
    option,
    scores_option,
    seed_option,
)
from demur.cli.output import Progress, caution, json_option, note
from demur.cli.printing import (
    ONLY_THESE_OOD,
    Result,
    ResultTable,
    Section,
    cautions,
    decision,
    infeasible_as_json,
    point_table,
    rows_data,
    seen_data,
    verdict,
)
from demur.cli.resampling import ResamplingOptions, folds_option, resampling_options
from demur.cli.saved import SavedRule, opened, work_data
from demur.cli.tuning_options import ModelOptions, SearchOptions, model_options, search_options
from demur.core.fingerprint import share_text, warn_of_tuning_rows
from demur.core.models import RejectionModel
from demur.core.rates import (
    OperatingPoint,
    count_rule,
    counted_points,
    evaluate,
    tally_point,
)
from demur.core.rule import Rule, rule_data
from demur.core.sample import Sample
from demur.core.source import ScoreSource, Sizes
from demur.core.wording import RATE_NAMES, bounds_met, formula, number, outwards, paper_text
from demur.guarantees.bootstrapping import Bootstrap
from demur.guarantees.cross_tuning import CrossTuning
from demur.guarantees.splits import Groups
from demur.tuning.tune import tune

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
    saved = SavedRule.load(rule, scores, confidence).for_rows_of(data.data)
    asked = saved.model(model, "check")
    loaded, names = saved.rule, saved.names
    if saved.learned is not None and by is not None:
        raise click.UsageError(
            "--by counts rows where they are, and learned scores are computed in memory: leave out "
            "--by"
        )
    there = saved.streams(engine, data) or by is not None
    groups: dict[Any, OperatingPoint] = {}
    sizes: Sample | Sizes
    work: dict[str, Any] = {}
    # The rule reads raw columns, so nothing is flipped here.
    if there:
        data = saved.columns(data)
        with (
            Progress("counting rows") as progress,
            opened(engine, data, names, loaded.confidence, progress) as source,
        ):
            counts = count_rule(loaded, source, by=by)
            sizes = counts.sizes
            point = tally_point(
                counts.whole, counts.measure, sizes.sets, model=asked, ood_prior=model.prior
            )
            if by is not None:
                groups = counted_points(counts, model=asked, ood_prior=model.prior)
            tuning_rows = warn_of_tuning_rows(loaded, source, point)
            work = work_data(source)
    else:
        rows = saved.read(data)
        with Progress("evaluating"):
            sizes = rows.sample(names)
            point = evaluate(loaded, sizes, model=asked, ood_prior=model.prior)
        # It is warned of them by evaluate, unless they made learned scores.
        tuning_rows = saved.share_of_tuning_rows(rows)
        if tuning_rows and saved.learned is not None:
            caution(f"{share_text(tuning_rows)} made the learned scores: judge them on other rows")
    groups = dict(sorted(groups.items(), key=lambda item: (item[0] is None, item[0])))
    met = {} if asked is None else bounds_met(asked, point)
    result = _result(loaded, asked, met, (point, sizes), by, groups)
    replace(result, data={**result.data, "tuning_rows": tuning_rows, **work}).show(as_json=as_json)
    if not all(met.values()):
        raise SystemExit(UNMET)


def _result(
    rule: Rule,
    asked: RejectionModel | None,
    met: Mapping[str, bool],
    seen: tuple[OperatingPoint, Sample | Sizes],
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
            number(point.tpr),
            number(point.fpr),
            number(point.selective_risk, 5),
            f"{point.accepted_id:,.10g}",
            f"{point.accepted_ood:,.10g}",
        ]
        for value, point in groups.items()
    ]
    heads = [by, "TPR", "FPR", "selective risk", "accepted ID", "accepted OOD"]
    return ResultTable.of(heads, rows)


_FEW_ERRORS = 10
_ESTIMATE_EXAMPLES = """\b
Examples:
  demur estimate scores.parquet --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1
  demur estimate scores.csv --scores knn --loss is_wrong --ood set --folds 10 --replicates 0 \\
      --min-precision .95 --min-recall .7 --prior .1 --json
"""


@click.command(cls=SectionCommand, epilog=_ESTIMATE_EXAMPLES)
@scores_option()
@confidence_option()
@data_options()
@model_options("Rejection model (one of four)")
@search_options()
@folds_option
@resampling_options(1000, "Bootstrap replicates, the rule tuned anew in each; 0: none.")
@seed_option("Honest numbers", "Seed of folds and replicates.")
@option("Honest numbers")(
    "--id",
    "group",
    metavar="COLUMN",
    shell_complete=complete_column,
    help="Rows with the same id, such as those of one patient, stay in one fold and are drawn "
    "together.",
)
@engine_options()
@json_option()
def estimate_command(
    data: DataOptions,
    scores: tuple[str, ...],
    confidence: tuple[str, ...],
    model: ModelOptions,
    search: SearchOptions,
    folds: int,
    resampling: ResamplingOptions,
    seed: int,
    group: str | None,
    engine: EngineOptions,
    as_json: bool,
) -> None:
    """Estimate what rules tuned on DATA do on new inputs.

    A tuned rule looks better on its own rows than it is. Cross-validation judges every row by a
    rule tuned without it; the bootstrap tunes anew on rows drawn anew and says how far the truth
    may lie. ID rows and every OOD set are drawn by themselves. Rows that memory does not hold are
    drawn by a hash, of --id or of the scores, and counted where they are; each replicate takes
    about seven passes, and none are made unless --replicates asks for them.
    """
    from demur.report.promises import bootstrap_data, cross_data

    asked = model.model_for(has_ood=data.has_ood)
    if not folds and not resampling.replicates:
        raise click.UsageError("nothing is left to estimate: give --folds or --replicates")
    if folds < 2:
        raise click.UsageError(
            f"--folds {folds}: every row is judged by a rule tuned without it, which takes at "
            "least 2 folds; --replicates 0 leaves out the bootstrap"
        )
    if search.fpr_of != "pooled":
        raise click.UsageError("estimates are about the FPR of all OOD rows together")
    with ExitStack() as stack:
        ids: Groups | None = None
        rows: Sample | ScoreSource
        if engine.streams(data, folders=False):
            asked_for = click.get_current_context().get_parameter_source("replicates")
            if asked_for is ParameterSource.DEFAULT:
                resampling = replace(resampling, replicates=0)
                note("no bootstrap: every replicate takes about seven passes; give --replicates")
            progress = stack.enter_context(Progress("counting rows"))
            source = opened(engine, data, scores, confidence, progress, about=8 * folds, key=group)
            rows = stack.enter_context(source)
            sizes: Sample | Sizes = rows.overview()
        else:
            read = read_rows(data, [scores] if scores else [], confidence=confidence, group=group)
            rows = sizes = read.sample(read.tuned_scores)
            ids = read.ids(group)
        with Progress("tuning"), infeasible_as_json(as_json):
            tuned = tune(rows, asked, directions=search.directions, search=search.search)
        cross = resampling.cross(rows, asked, folds=folds, search=search, seed=seed, groups=ids)
        found = resampling.bootstrap(rows, asked, search=search, seed=seed, groups=ids)
        work = {} if isinstance(rows, Sample) else work_data(rows)
    rule = tuned.rule
    facts = [f"Rules tuned for {paper_text(asked)}, such as: accept when {formula(rule)}"]
    table = _table(tuned.point, cross, found)
    data_out = {
        "rule": rule_data(rule),
        "model": asked.to_data(),
        "rows": rows_data(sizes),
        "tuned": asdict(tuned.point),
        "cross": None if cross is None else cross_data(cross),
        "bootstrap": None if found is None else bootstrap_data(found),
        **work,
    }
    section = Section(facts, table=table, notes=_notes(cross, found, ids))
    Result([section], data_out).show(as_json=as_json)


def _notes(cross: CrossTuning | None, found: Bootstrap | None, ids: Groups | None) -> list[str]:
    lines = ["The tuned numbers are optimistic: quote the others."]
    if found is not None and found.unable:
        lines.append(f"{found.unable} replicates had no rule; the tuned one stayed.")
    if cross is not None and cross.unable:
        lines.append(f"{cross.unable} folds had no rule and are left out.")
    if found is not None and ids is not None and _repeated(ids):
        lines.append("Replicates drew ids, each with all its rows.")
    few = None if found is None else found.tuned.point.accepted_loss
    if few is not None and few < _FEW_ERRORS:
        lines.append(
            f"With {few:g} errors among the accepted rows the interval of the risk may be too "
            f"short: it needs about {_FEW_ERRORS}. demur certify needs none."
        )
    return [*lines, ONLY_THESE_OOD]


def _repeated(ids: Groups) -> bool:
    names = np.concatenate(ids).astype(str)
    return len(np.unique(names)) < len(names)


def _table(
    point: OperatingPoint, cross: CrossTuning | None, found: Bootstrap | None
) -> ResultTable:
    """Return a column for each way to look at the rule."""
    header = ["", "tuned on"]
    if cross is not None:
        header.append(f"{len(cross.folds)} folds")
    if found is not None:
        header += ["bootstrap", f"{100 * found.confidence:g} % interval", "optimism"]
    rows = []
    for name, title in RATE_NAMES.items():
        value = getattr(point, name)
        if value is None or (name == "fpr" and math.isnan(value)):
            continue
        digits = 5 if name in ("selective_risk", "expected_cost") else 4
        cells = [title, number(value, digits)]
        if cross is not None:
            held_out = cross.held_out
            cells.append("-" if held_out is None else number(getattr(held_out, name), digits))
        if found is not None:
            measure = found.measures[name]
            low, high = outwards(measure.interval.low, measure.interval.high, digits)
            optimism = "undefined" if math.isnan(measure.optimism) else f"{measure.optimism:+.5f}"
            cells += [number(measure.estimate, digits), f"{low} to {high}", optimism]
        rows.append(cells)
    return ResultTable.of(header, rows)
