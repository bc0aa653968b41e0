"""`demur estimate`."""

from __future__ import annotations

import math
from dataclasses import asdict

import click
import numpy as np

from demur.cli.inputs import (
    DataOptions,
    confidence_option,
    data_options,
    read_rows,
    scores_option,
)
from demur.cli.options import (
    ModelOptions,
    SearchOptions,
    SectionCommand,
    complete_column,
    model_options,
    option,
    search_options,
)
from demur.cli.output import Progress, json_option
from demur.cli.printing import (
    ONLY_THESE_OOD,
    Result,
    ResultTable,
    Section,
    infeasible_as_json,
    rate,
    rows_data,
)
from demur.cli.resampling import ResamplingOptions, folds_option, resampling_options
from demur.core.rates import OperatingPoint
from demur.core.rule import rule_data
from demur.core.wording import RATE_NAMES, formula, outwards, paper_text
from demur.guarantees.resampling.bootstrap import Bootstrap
from demur.guarantees.resampling.cross import CrossTuning
from demur.guarantees.splits import Groups
from demur.report.plain import bootstrap_data, cross_data
from demur.tuning.tune import tune

_EXAMPLES = """\b
Examples:
  demur estimate scores.parquet --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1
  demur estimate scores.csv --scores knn --loss is_wrong --ood set --folds 10 --replicates 0 \\
      --min-precision .95 --min-recall .7 --prior .1 --json
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@scores_option()
@confidence_option()
@data_options()
@model_options("Rejection model (one of three)")
@search_options()
@folds_option
@resampling_options(1000, "Bootstrap replicates, the rule tuned anew in each; 0: none.")
@option("Honest numbers")(
    "--seed", type=int, default=0, show_default=True, help="Seed of folds and replicates."
)
@option("Honest numbers")(
    "--id",
    "group",
    metavar="COLUMN",
    shell_complete=complete_column,
    help="Rows with the same id, such as those of one patient, stay in one fold. Replicates draw "
    "single rows all the same.",
)
@json_option()
def command(
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    model: ModelOptions,
    search: SearchOptions,
    folds: int,
    resampling: ResamplingOptions,
    seed: int,
    group: str | None,
    as_json: bool,
) -> None:
    """Estimate what rules tuned on DATA do on new inputs.

    A tuned rule looks better on its own rows than it is. Cross-validation judges every row by a
    rule tuned without it; the bootstrap tunes anew on rows drawn anew and says how far the truth
    may lie. ID rows and every OOD set are drawn by themselves.
    """
    asked = model.model_for(has_ood=data.has_ood)
    if not folds and not resampling.replicates:
        raise click.UsageError("nothing is left to estimate: give --folds or --replicates")
    if search.fpr_of != "pooled":
        raise click.UsageError("estimates are about the FPR of all OOD rows together")
    rows = read_rows(data, [scores] if scores else [], confidence=confidence, group=group)
    sample = rows.sample(rows.tuned_scores)
    with Progress("tuning"), infeasible_as_json(as_json):
        tuned = tune(sample, asked, directions=search.directions, search=search.search)
    ids = rows.ids(group)
    cross = resampling.cross(sample, asked, folds=folds, search=search, seed=seed, groups=ids)
    found = resampling.bootstrap(sample, asked, search=search, seed=seed)
    rule = tuned.rule
    facts = [f"Rules tuned for {paper_text(asked)}, such as: accept when {formula(rule)}"]
    table = _table(tuned.point, cross, found)
    data_out = {
        "rule": rule_data(rule),
        "model": asked.to_data(),
        "rows": rows_data(sample),
        "tuned": asdict(tuned.point),
        "cross": None if cross is None else cross_data(cross),
        "bootstrap": None if found is None else bootstrap_data(found),
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
        lines.append("Replicates drew single rows: the intervals are too narrow if ids matter.")
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
        cells = [title, rate(value, digits)]
        if cross is not None:
            held_out = cross.held_out
            cells.append("-" if held_out is None else rate(getattr(held_out, name), digits))
        if found is not None:
            measure = found.measures[name]
            low, high = outwards(measure.interval.low, measure.interval.high, digits)
            optimism = "undefined" if math.isnan(measure.optimism) else f"{measure.optimism:+.5f}"
            cells += [rate(measure.estimate, digits), f"{low} to {high}", optimism]
        rows.append(cells)
    return ResultTable.of(header, rows)
