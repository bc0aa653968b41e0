"""`demur compare`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import click
import numpy as np

from demur.cli.inputs import (
    DataOptions,
    EngineOptions,
    data_options,
    engine_options,
    read_rows,
)
from demur.cli.options import (
    SectionCommand,
    complete_column,
    confidence_option,
    option,
    scores_option,
    seed_option,
)
from demur.cli.output import OutputOptions, Progress, output_options
from demur.cli.printing import (
    FORMATS,
    ONLY_THESE_OOD,
    Cell,
    Heading,
    Result,
    ResultTable,
    RowGroup,
    Section,
)
from demur.cli.resampling import ResamplingOptions, resampling_options
from demur.cli.streamed import bring_rows, refuse_in_stream
from demur.cli.tuning_options import ModelOptions, grid_option, model_options
from demur.core.models import RejectionModel
from demur.core.program import Number as Bound
from demur.core.sample import POOLED_NAME, Sample
from demur.core.wording import objective_at, objective_key
from demur.errors import InfeasibleError
from demur.guarantees.bootstrapping import Comparison
from demur.guarantees.intervals import Interval
from demur.guarantees.splits import Groups, repeats_ids
from demur.guarantees.standard_errors import AurocComparison, compare_auroc
from demur.report.promises import measure_data
from demur.tuning.prepared import Prepared, prepare
from demur.tuning.result import Grid
from demur.tuning.tune import tune

_FPR_AT = "0.95"
_HIGHER_IS_BETTER = ("tpr", "precision")
_NO_WIDTH = (
    "An interval without width does not mean that the difference is known exactly: the rows at "
    "hand show no variation, as when a score separates them all (AUROC 1)."
)
Samples = Mapping[tuple[str, ...], Sample]


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """A column of the table."""

    heading: Heading
    digits: int
    value: Callable[[Prepared], float]


@dataclass(frozen=True, slots=True)
class ComparedScores:
    """One row: a score or pair on one OOD set."""

    scores: tuple[str, ...]
    ood: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The first method minus another in one quantity."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    quantity: str
    value: float
    interval: Interval
    how: str
    details: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self) | {"interval": asdict(self.interval), "details": dict(self.details)}


_EXAMPLES = """\b
Examples:
  demur compare scores.parquet --scores msp --scores knn --scores msp,knn \\
      --loss is_wrong --ood set --min-tpr .8 --max-fpr .1 --format latex
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@scores_option(callback=None, help="A score, or a pair a,b. Repeat for every row of the table.")
@confidence_option()
@data_options()
@model_options("Rejection models: a column of selective risks for each")
@grid_option("Try this many angles, not all.")
@resampling_options(
    0,
    "Add differences of the first score to the others on the same rows, with intervals: of AUROC "
    "(DeLong), and of the risk at the bounds from so many bootstrap replicates in which both are "
    "tuned anew; 0: none.",
)
@seed_option("Honest numbers", "Seed of the replicates.")
@option("Honest numbers")(
    "--id",
    "group",
    metavar="COLUMN",
    shell_complete=complete_column,
    help="Rows with the same id, such as those of one patient, are drawn together; differences of "
    "AUROC, which count independent rows, are then left out if ids are repeated.",
)
@option("Output")(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="Kind of table.",
)
@engine_options()
@output_options("Write the table to this file.")
def command(
    data: DataOptions,
    scores: tuple[tuple[str, ...], ...],
    confidence: tuple[str, ...],
    model: ModelOptions,
    grid: int | None,
    resampling: ResamplingOptions,
    seed: int,
    group: str | None,
    kind: str,
    engine: EngineOptions,
    out: OutputOptions,
) -> None:
    """Compare scores and pairs of scores on the rows of DATA.

    A table as in the paper: selective risk at the bounds ("unable" where no rule meets them),
    AUROC, AUPR, OSCR in both definitions and FPR at TPR 0.95, for each OOD set and for all
    together. The best of every column is marked. With --replicates, differences to the first
    score on the same rows, where a mark means that the interval excludes zero. Of more rows than
    fit in --memory, as many as do are drawn by a hash of the scores of each line.
    """
    models = model.models()
    out.check(inputs=data.inputs)
    work: Mapping[str, Any] = {}
    if engine.streams(data, folders=False):
        refuse_in_stream({"--replicates": resampling.replicates or None, "--id": group})
        samples, work = _brought(engine, data, scores, confidence)
        asked = tuple(samples)
    else:
        rows = read_rows(data, scores, confidence=confidence, group=group)
        asked = rows.scores if scores else tuple((name,) for pair in rows.scores for name in pair)
        samples = {names: rows.sample(names) for names in asked}
    some = next(iter(samples.values()))
    search = None if grid is None else Grid(grid)
    columns = _columns(some, models, model.prior, search)
    compared = _compared(samples, columns)
    differences: list[PairedDifference] = []
    if resampling.replicates:
        groups = rows.ids(group)
        differences = _differences(samples, models, resampling, search, seed, groups)
    remarks = _remarks(columns, some, model.prior, pairs=any(len(names) == 2 for names in asked))
    sections = [Section(table=_table(columns, compared), notes=remarks)]
    if differences:
        sections.append(_difference_section(differences, float(resampling.level)))
    result = Result(sections, {**_data(columns, compared, differences), **work})
    out.write(result.render("json" if out.as_json else kind))


def _brought(
    engine: EngineOptions,
    data: DataOptions,
    scores: Sequence[tuple[str, ...]],
    confidence: tuple[str, ...],
) -> tuple[dict[tuple[str, ...], Sample], dict[str, Any]]:
    """Return rows for each score or pair, as many as memory holds, and what engines did."""
    found, work = {}, dict[str, Any]()
    for names in scores:
        own = tuple(name for name in names if name in confidence)
        what = f"the line of {' + '.join(names)}"
        brought = bring_rows(engine, data, names, own, what=what)
        found[names] = brought.rows.sample(names)
        for key, value in brought.work.get("work", {}).items():
            known = work.get(key, 0)
            work[key] = value if isinstance(value, str) else value + known
    return found, {"work": work}


def _columns(
    sample: Sample, models: Sequence[RejectionModel], prior: Bound | None, search: Grid | None
) -> list[MetricColumn]:
    """Return the columns that the data allow."""
    from demur import metrics

    found = [_objective_column(model, search) for model in models]
    if sample.n_ood:
        ranking = _RankingAreas(prior, search)
        areas: dict[str, Callable[[Prepared], float]] = {
            "AUROC": lambda rows: ranking.of(rows)[0],
            "AUPR": lambda rows: ranking.of(rows)[1],
        }
        if np.isin(sample.id_loss, (0, 1)).all():
            areas["OSCR/accepted"] = partial(metrics.oscr, per="accepted", search=search)
            areas["OSCR/all"] = partial(metrics.oscr, per="all", search=search)
        found += [MetricColumn(Heading(name, "higher"), 4, of) for name, of in areas.items()]
        fpr = partial(metrics.fpr_at_tpr, min_tpr=float(_FPR_AT), search=search)
        found.append(MetricColumn(Heading(f"FPR@TPR({_FPR_AT})", "lower"), 4, fpr))
    if not found:
        raise click.UsageError("nothing to compare: give bounds such as --min-tpr, or --ood")
    return found


class _RankingAreas:
    """AUROC and AUPR of the rows at hand, which two columns share."""

    def __init__(self, prior: Bound | None, search: Grid | None) -> None:
        self._prior, self._search = prior, search
        self._rows: Prepared | None = None
        self._areas: tuple[float, float] = (math.nan, math.nan)

    def of(self, rows: Prepared) -> tuple[float, float]:
        """Return both."""
        from demur.metrics.areas import auroc_and_aupr

        if rows is not self._rows:
            self._areas = auroc_and_aupr(rows, ood_prior=self._prior, search=self._search)
            self._rows = rows
        return self._areas


def _objective_column(model: RejectionModel, search: Grid | None) -> MetricColumn:
    key = objective_key(model)

    def value(sample: Prepared) -> float:
        try:
            tuned = tune(sample, model, directions="nonneg", search=search)
        except InfeasibleError:
            return math.nan
        found: float | None = getattr(tuned.point, key)
        return math.nan if found is None else found

    name = objective_at(model).replace("selective", "sel.")
    return MetricColumn(Heading(name, "higher" if key in _HIGHER_IS_BETTER else "lower"), 5, value)


def _compared(samples: Samples, columns: Sequence[MetricColumn]) -> list[ComparedScores]:
    """Return the values of every score or pair on every OOD set."""
    sets = _sets(next(iter(samples.values())))
    found = []
    with Progress("comparing", len(samples) * len(sets), unit="results") as progress:
        for ood in sets:
            for names, sample in samples.items():
                part = sample if ood == "" else sample.for_ood(ood)
                rows = prepare(part)
                values = tuple(column.value(rows) for column in columns)
                found.append(ComparedScores(names, ood, values))
                progress.advance(1)
    return found


def _sets(sample: Sample) -> list[str]:
    """Return the OOD sets to show; the empty name is all rows together."""
    names = list(sample.ood_sets)
    if names == [POOLED_NAME]:
        return [""]
    return names if len(names) == 1 else [*names, ""]


def _table(columns: Sequence[MetricColumn], compared: Sequence[ComparedScores]) -> ResultTable:
    groups = []
    sets = dict.fromkeys(row.ood for row in compared)
    for ood in sets:
        title = f"OOD: {ood or 'all sets pooled'}" if len(sets) > 1 or ood else ""
        groups.append(RowGroup(title, _cells(columns, [r for r in compared if r.ood == ood])))
    return ResultTable([Heading("score"), *(column.heading for column in columns)], groups)


def _cells(columns: Sequence[MetricColumn], rows: Sequence[ComparedScores]) -> list[list[Cell]]:
    drawn = [[Cell(" + ".join(row.scores))] for row in rows]
    for i, column in enumerate(columns):
        # Values that print alike are equally good.
        shown = [round(row.values[i], column.digits) for row in rows]
        known = [value for value in shown if not math.isnan(value)]
        pick = min if column.heading.better == "lower" else max
        best = pick(known) if known and len(rows) > 1 else None
        for cells, value in zip(drawn, shown, strict=True):
            text = "unable" if math.isnan(value) else f"{value:.{column.digits}f}"
            cells.append(Cell(text, best=value == best))
    return drawn


def _remarks(
    columns: Sequence[MetricColumn], sample: Sample, prior: Bound | None, *, pairs: bool
) -> list[str]:
    names = [column.heading.name for column in columns]
    lines = ["ID is the positive class. Lower is better for risk, cost and FPR."]
    if pairs:
        lines.append("Pairs are tuned on the rows they are shown for, so they are optimistic.")
    if "AUPR" in names:
        share = "the OOD share of the rows shown" if prior is None else f"prior {prior}"
        lines.append(f"AUPR is the average precision at {share}.")
    if "OSCR/all" in names:
        lines.append("OSCR/accepted: correct among accepted ID; OSCR/all: among all ID.")
    return [*lines, ONLY_THESE_OOD] if sample.n_ood else lines


def _data(
    columns: Sequence[MetricColumn],
    compared: Sequence[ComparedScores],
    differences: Sequence[PairedDifference],
) -> dict[str, Any]:
    names = [column.heading.name for column in columns]
    return {
        "results": [
            {
                "scores": list(row.scores),
                "ood": row.ood or "pooled",
                "metrics": dict(zip(names, row.values, strict=True)),
            }
            for row in compared
        ],
        "differences": [one.as_dict() for one in differences],
    }


def _differences(
    samples: Samples,
    models: Sequence[RejectionModel],
    resampling: ResamplingOptions,
    search: Grid | None,
    seed: int,
    groups: Groups | None,
) -> list[PairedDifference]:
    """Compare every method with the first, each tuned anew in every replicate."""
    (first, sample), *others = samples.items()
    independent = groups is None or not repeats_ids(sample, groups)
    found = []
    for second, other in others:
        for model in models:
            label = f"{' + '.join(first)} against {' + '.join(second)}"
            compared = resampling.compare(
                sample, other, model, label=label, search=search, seed=seed, groups=groups
            )
            found.append(_tuned(first, second, model, compared))
        if independent and _can_delong(sample) and _can_delong(other):
            area = compare_auroc(sample, other, confidence=float(resampling.level))
            found.append(_area(first, second, area))
    return found


def _can_delong(sample: Sample) -> bool:
    plain = sample.id_weight is None and sample.ood_weight is None
    return sample.n_scores == 1 and plain and min(sample.n_id, sample.n_ood) >= 2


def _tuned(
    first: tuple[str, ...], second: tuple[str, ...], model: RejectionModel, found: Comparison | None
) -> PairedDifference:
    of = objective_at(model)
    if found is None:
        nothing = Interval(math.nan, math.nan)
        return PairedDifference(first, second, of, math.nan, nothing, "unable", {})
    measure = found.differences[objective_key(model)]
    details = {
        "replicates": found.replicates,
        "unable": found.unable,
        "measures": {n: measure_data(m) for n, m in found.differences.items()},
    }
    how = f"{found.replicates:,} replicates"
    return PairedDifference(first, second, of, measure.estimate, measure.interval, how, details)


def _area(
    first: tuple[str, ...], second: tuple[str, ...], found: AurocComparison
) -> PairedDifference:
    details = {"standard_error": found.standard_error, "p_value": found.p_value}
    how = f"DeLong, p = {found.p_value:.2g}"
    return PairedDifference(first, second, "AUROC", found.difference, found.interval, how, details)


def _difference_section(found: Sequence[PairedDifference], level: float) -> Section:
    rows = []
    for one in found:
        digits = 4 if one.quantity == "AUROC" else 5
        texts = ["unable", ""]
        if not math.isnan(one.value):
            ends = (one.interval.low, one.interval.high)
            texts = [f"{one.value:+.{digits}f}", " to ".join(f"{e:+.{digits}f}" for e in ends)]
        # An interval on one side of zero decides.
        sure = one.interval.low > 0 or one.interval.high < 0
        methods = f"{' + '.join(one.first)} minus {' + '.join(one.second)}"
        cells = [Cell(methods), Cell(one.quantity), Cell(texts[0], best=sure)]
        rows.append([*cells, Cell(texts[1]), Cell(one.how)])
    header = ["difference on the same rows", "of", "estimate", f"{100 * level:g} % interval", "by"]
    table = ResultTable([Heading(name) for name in header], [RowGroup("", rows)])
    known = all(one.interval.low != one.interval.high for one in found)
    return Section(table=table, notes=() if known else [_NO_WIDTH])
