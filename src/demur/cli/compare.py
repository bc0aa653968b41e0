"""`demur compare`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
import numpy as np

from demur._files import write_atomically
from demur.cli.differences import Difference, difference_table, differences
from demur.cli.inputs import (
    DataOptions,
    confidence_option,
    data_options,
    read_rows,
    scores_option,
)
from demur.cli.models import ModelOptions, model_options
from demur.cli.options import SectionCommand, option
from demur.cli.output import OutputOptions, output_options
from demur.cli.progress import Progress
from demur.cli.resampling import ResamplingOptions, resampling_options
from demur.cli.tables import FORMATS, Block, Cell, render
from demur.cli.texts import ONLY_THESE_OOD, json_text, model_text
from demur.core.models import RejectionModel
from demur.core.paper_models import CostModel
from demur.core.program import Number as Bound
from demur.core.sample import POOLED_NAME, Sample
from demur.tuning.result import Grid

_FPR_AT = "0.95"


class Metric(NamedTuple):
    """A column of the table."""

    name: str
    lower_is_better: bool
    digits: int
    model: RejectionModel | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One row: a score or pair on one OOD set."""

    scores: tuple[str, ...]
    ood: str
    values: tuple[float, ...]


_EXAMPLES = """\b
Examples:
  demur compare scores.parquet --scores msp --scores knn --scores msp,knn \\
      --loss is_wrong --ood set --min-tpr .8 --max-fpr .1 --format latex
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@scores_option(multiple=True, help="A score, or a pair a,b. Repeat for every row of the table.")
@confidence_option()
@data_options()
@model_options("Rejection models: a column of selective risks for each")
@option("Search")("--grid", type=click.IntRange(1), help="Try this many angles, not all.")
@resampling_options(
    0,
    "Add differences of the first score to the others on the same rows, with intervals: of AUROC "
    "(DeLong), and of the risk at the bounds from so many bootstrap replicates in which both are "
    "tuned anew; 0: none.",
)
@option("Honest numbers")(
    "--seed", type=int, default=0, show_default=True, help="Seed of the replicates."
)
@option("Output")(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Kind of table.",
)
@output_options("Write the table to this file.")
def command(
    data: DataOptions,
    scores: tuple[tuple[str, ...], ...],
    confidence: tuple[str, ...],
    model: ModelOptions,
    grid: int | None,
    resampling: ResamplingOptions,
    seed: int,
    kind: str,
    out: OutputOptions,
) -> None:
    """Compare scores and pairs of scores on the rows of DATA.

    A table as in the paper: selective risk at the bounds ("unable" where no rule meets them),
    AUROC, AUPR, OSCR in both definitions and FPR at TPR 0.95, for each OOD set and for all
    together. The best of every column is marked. With --replicates, differences to the first
    score on the same rows, where a mark means that the interval excludes zero.
    """
    models = model.models()
    out.check()
    rows = read_rows(data, scores, confidence=confidence)
    asked = rows.scores if scores else tuple((name,) for pair in rows.scores for name in pair)
    samples = {names: rows.sample(names) for names in asked}
    some = next(iter(samples.values()))
    metrics = _metrics(some, models)
    sets = _sets(some)
    search = None if grid is None else Grid(grid)
    with Progress("comparing", len(asked) * len(sets), unit="results") as progress:
        results = []
        for ood in sets:
            for names, sample in samples.items():
                part = sample if ood == "" else sample.for_ood(ood)
                values = tuple(_value(m, part, model.prior, search) for m in metrics)
                results.append(Result(names, ood, values))
                progress.advance(1)
    paired: list[Difference] = []
    if resampling.replicates:
        paired = differences(samples, models, resampling=resampling, search=search, seed=seed)
    if out.as_json:
        compared = {"differences": [one.as_dict() for one in paired]}
        text = json_text(_data(metrics, results) | compared)
    else:
        pairs = any(len(names) == 2 for names in asked)
        text = _table(kind, metrics, results, some, model.prior, pairs=pairs)
        if paired:
            text += "\n\n" + difference_table(kind, paired, float(resampling.level))
    if out.output is not None:
        write_atomically(out.output, click.unstyle(text) + "\n")
    else:
        click.echo(text)


def _sets(sample: Sample) -> list[str]:
    """Return the OOD sets to show; the empty name is all rows together."""
    names = list(sample.ood_sets)
    if names == [POOLED_NAME]:
        return [""]
    return names if len(names) == 1 else [*names, ""]


def _metrics(sample: Sample, models: Sequence[RejectionModel]) -> list[Metric]:
    """Return the columns that the data allow."""
    found = [
        Metric(
            model_text(m) if isinstance(m, CostModel) else f"sel. risk at {model_text(m)}",
            True,
            5,
            m,
        )
        for m in models
    ]
    if sample.n_ood:
        found += [Metric("AUROC", False, 4), Metric("AUPR", False, 4)]
        if np.isin(sample.id_loss, (0, 1)).all():
            found += [Metric("OSCR/accepted", False, 4), Metric("OSCR/all", False, 4)]
        found.append(Metric(f"FPR@TPR({_FPR_AT})", True, 4))
    if not found:
        raise click.UsageError("nothing to compare: give bounds such as --min-tpr, or --ood")
    return found


def _value(metric: Metric, sample: Sample, prior: Bound | None, search: Grid | None) -> float:
    from demur import metrics
    from demur.tuning.tune import tune

    if isinstance(metric.model, CostModel):
        tuned = tune(sample, metric.model, directions="nonneg", search=search)
        return math.nan if tuned.point.expected_cost is None else tuned.point.expected_cost
    if metric.model is not None:
        return metrics.selective_risk_at(sample, metric.model, directions="nonneg", search=search)
    if metric.name == "AUROC":
        return metrics.auroc(sample, search=search)
    if metric.name == "AUPR":
        return metrics.aupr(sample, method="average_precision", ood_prior=prior, search=search)
    if metric.name.startswith("OSCR"):
        accepted = metric.name.endswith("accepted")
        return metrics.oscr(sample, per="accepted" if accepted else "all", search=search)
    return metrics.fpr_at_tpr(sample, float(_FPR_AT), search=search)


def _table(
    kind: str,
    metrics: Sequence[Metric],
    results: Sequence[Result],
    sample: Sample,
    prior: Bound | None,
    *,
    pairs: bool,
) -> str:
    blocks = []
    for ood in dict.fromkeys(result.ood for result in results):
        rows = [result for result in results if result.ood == ood]
        several = len({result.ood for result in results}) > 1 or ood
        title = f"OOD: {ood or 'all sets pooled'}" if several else ""
        blocks.append(Block(title, _cells(metrics, rows)))
    arrows = {"text": ("", ""), "markdown": ("↓ ", "↑ "), "latex": ("↓ ", "↑ ")}[kind]
    header = ["score", *(arrows[not m.lower_is_better] + m.name for m in metrics)]
    remarks = _remarks(metrics, sample, prior, pairs=pairs)
    if kind == "latex":
        return render(kind, header, blocks) + "".join(f"\n% {line}" for line in remarks)
    return render(kind, header, blocks) + "\n\n" + "\n".join(remarks)


def _cells(metrics: Sequence[Metric], rows: Sequence[Result]) -> list[list[Cell]]:
    drawn = [[Cell(" + ".join(row.scores))] for row in rows]
    for i, metric in enumerate(metrics):
        # Values that print alike are equally good.
        shown = [round(row.values[i], metric.digits) for row in rows]
        known = [value for value in shown if not math.isnan(value)]
        pick = min if metric.lower_is_better else max
        best = pick(known) if known and len(rows) > 1 else None
        for cells, value in zip(drawn, shown, strict=True):
            text = "unable" if math.isnan(value) else f"{value:.{metric.digits}f}"
            cells.append(Cell(text, best=value == best))
    return drawn


def _remarks(
    metrics: Sequence[Metric], sample: Sample, prior: Bound | None, *, pairs: bool
) -> list[str]:
    lines = ["ID is the positive class. Lower is better for risk, cost and FPR."]
    if pairs:
        lines.append("Pairs are tuned on the rows they are shown for, so they are optimistic.")
    if any(metric.name == "AUPR" for metric in metrics):
        share = "the OOD share of the rows shown" if prior is None else f"prior {prior}"
        lines.append(f"AUPR is the average precision at {share}.")
    if any(metric.name.startswith("OSCR") for metric in metrics):
        lines.append("OSCR/accepted: correct among accepted ID; OSCR/all: among all ID.")
    return [*lines, ONLY_THESE_OOD] if sample.n_ood else lines


def _data(metrics: Sequence[Metric], results: Sequence[Result]) -> dict[str, Any]:
    names = [metric.name for metric in metrics]
    return {
        "results": [
            {
                "scores": list(result.scores),
                "ood": result.ood or "pooled",
                "metrics": dict(zip(names, result.values, strict=True)),
            }
            for result in results
        ]
    }
