"""`demur compare`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from typing import Any, get_args

import click
import numpy as np

from demur.cli.inputs import (
    DataOptions,
    EngineOptions,
    check_confidence,
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
from demur.cli.saved import opened, work_data
from demur.cli.streamed import PROMISE_ROW_BYTES, added_work
from demur.cli.tuning_options import ModelOptions, grid_option, model_options
from demur.core.models import Bound as ModelBound
from demur.core.models import RejectionModel
from demur.core.program import Number as Bound
from demur.core.row_draws import bring, repeats_key
from demur.core.sample import POOLED_NAME, Sample
from demur.core.source import DividedSource, ScoreSource
from demur.core.wording import objective_at, objective_key
from demur.errors import InfeasibleError
from demur.guarantees.bootstrapping import Comparison
from demur.guarantees.intervals import Interval
from demur.guarantees.splits import Groups, repeats_ids
from demur.guarantees.standard_errors import AurocComparison, compare_auroc
from demur.metrics.areas import Per
from demur.metrics.rules import counted_rows
from demur.report.promises import measure_data
from demur.tuning.prepared import Prepared, prepare
from demur.tuning.result import Grid
from demur.tuning.tune import tune

_FPR_AT = "0.95"
# More rows take minutes; the standard error of an area of so many is below 0.001.
_AREA_ROWS = 200_000
_HIGHER_IS_BETTER = ("tpr", "precision")
_NO_WIDTH = (
    "An interval without width does not mean that the difference is known exactly: the rows at "
    "hand show no variation, as when a score separates them all (AUROC 1)."
)
Samples = Mapping[tuple[str, ...], Sample]


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """The rows of a score or pair on one OOD set."""

    ready: Prepared
    """All of them in memory; or, of a source, what its areas are computed from."""
    source: ScoreSource | None = None

    @property
    def tuned_on(self) -> Prepared | ScoreSource:
        """What rules are tuned on."""
        return self.ready if self.source is None else self.source


@dataclass(frozen=True, slots=True)
class MetricColumn:
    """A column of the table."""

    heading: Heading
    digits: int
    value: Callable[[ComparedRows], float]


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
    score on the same rows, where a mark means that the interval excludes zero. More rows than
    fit in --memory stay where they are: rules are those of all rows, areas of single scores are
    counted in bins, and areas of pairs are of rows drawn by a hash; replicates then need --id.
    """
    models = model.models()
    out.check(inputs=data.inputs)
    search = None if grid is None else Grid(grid)
    if engine.streams(data, folders=False):
        lines = SourceLines(engine, data, confidence, group)
        if resampling.replicates and (group is None or search is not None):
            raise click.UsageError(
                "--replicates of rows that stay where they are draws both methods by a hash of "
                "--id, a column that tells rows apart, and takes no --grid; or "
                f"{engine.into_memory(data.data)}"
            )
        found = lines.compared(scores, models, model.prior, search)
        differences = lines.differences(scores, models, resampling, seed)
        work = lines.work
    else:
        rows = read_rows(data, scores, confidence=confidence, group=group)
        asked = rows.scores if scores else tuple((name,) for pair in rows.scores for name in pair)
        samples = {names: rows.sample(names) for names in asked}
        found = _compared(samples, models, model.prior, search)
        differences, work = [], {}
        if resampling.replicates:
            groups = rows.ids(group)
            differences = _differences(samples, models, resampling, search, seed, groups)
    sections = [Section(table=_table(found), notes=_remarks(found, model.prior))]
    if differences:
        sections.append(_difference_section(differences, float(resampling.level)))
    result = Result(sections, {**_data(found, differences), **work})
    out.write(result.render("json" if out.as_json else kind))


@dataclass(frozen=True, slots=True)
class TableOfScores:
    """What is shown, and what is said of it."""

    columns: Sequence[MetricColumn]
    rows: Sequence[ComparedScores]
    has_ood: bool
    notes: Sequence[str] = ()


# Stands for rows where no area is asked for.
_NOTHING = Sample([0.0], [0.0])


class SourceLines:
    """Scores and pairs of rows that stay where they are, each a source of its own."""

    def __init__(
        self,
        engine: EngineOptions,
        data: DataOptions,
        confidence: tuple[str, ...],
        group: str | None,
    ) -> None:
        self._engine, self._data = engine, data
        self._confidence, self._group = confidence, group
        self.work: dict[str, Any] = {}

    @contextmanager
    def opened(self, names: tuple[str, ...], progress: Progress, about: int) -> Iterator[Any]:
        """Open the rows with some scores, and note what was done with them."""
        own = tuple(name for name in names if name in self._confidence)
        with opened(
            *(self._engine, self._data, names, own, progress), about=about, key=self._group
        ) as source:
            yield source
            self.work = added_work(self.work, work_data(source))

    def compared(
        self,
        scores: Sequence[tuple[str, ...]],
        models: Sequence[RejectionModel],
        prior: Bound | None,
        search: Grid | None,
    ) -> TableOfScores:
        """Return the values of every score or pair on every OOD set."""
        if not scores:
            raise click.UsageError("--scores is needed: the columns of the scores")
        check_confidence(self._confidence, {name for names in scores for name in names})
        shown = dict[str, list[ComparedScores]]()
        columns: list[MetricColumn] = []
        notes: list[str] = []
        with Progress("comparing") as progress:
            for place, names in enumerate(scores):
                progress.stage(" + ".join(names), place / len(scores))
                with self.opened(names, progress, 3 + 5 * (len(models) + 1)) as source:
                    seen = source.overview()
                    has_ood, sets = sum(seen.ood_rows) > 0, _sets(seen.sets)
                    if not columns:
                        columns = _columns(has_ood, not seen.graded, models, prior, search)
                    areas, note = self._areas(source, has_ood)
                    notes += [note] if note and note not in notes else []
                    for ood in sets:
                        rows, note = _on_set(source, areas, ood)
                        notes += [note] if note and note not in notes else []
                        values = tuple(column.value(rows) for column in columns)
                        shown.setdefault(ood, []).append(ComparedScores(names, ood, values))
        return TableOfScores(columns, list(chain(*shown.values())), has_ood, notes)

    def _areas(self, source: ScoreSource, has_ood: bool) -> tuple[Sample | None, str]:
        """Return rows that areas of all sets are computed from, if these are the same, and words.

        None: counted for each set by itself.
        """
        if not has_ood:
            return _NOTHING, ""
        if len(source.score_names) == 1:
            return None, ""
        most = min(_AREA_ROWS, self._engine.memory // PROMISE_ROW_BYTES)
        drawn, total = bring(source, most), source.overview().rows
        if drawn.n_id + drawn.n_ood == total:
            return drawn, ""
        return drawn, (
            f"AUROC, AUPR and OSCR of pairs are those of {drawn.n_id:,} ID and {drawn.n_ood:,} OOD "
            f"rows, drawn by a hash of {total:,}."
        )

    def differences(
        self,
        scores: Sequence[tuple[str, ...]],
        models: Sequence[RejectionModel],
        resampling: ResamplingOptions,
        seed: int,
    ) -> list[PairedDifference]:
        """Compare every method with the first, each tuned anew in every replicate."""
        found = list[PairedDifference]()
        if not resampling.replicates:
            return found
        first = scores[0]
        for second in scores[1:]:
            label = f"{' + '.join(first)} against {' + '.join(second)}"
            passes = 14 * resampling.replicates * len(models)
            with (
                Progress(label) as progress,
                self.opened(second, progress, passes) as other,
                self.opened(first, progress, passes) as source,
            ):
                for model in models:
                    compared = resampling.compare(
                        source, other, model, label=label, search=None, seed=seed
                    )
                    found.append(_tuned(first, second, model, compared))
            if len(first) == len(second) == 1:
                with (
                    Progress(label) as progress,
                    self.opened((first[0], second[0]), progress, 3) as both,
                ):
                    seen = both.overview()
                    few = min(seen.id_rows, sum(seen.ood_rows)) < 2
                    if not (seen.weighted or few or repeats_key(both, str(self._group))):
                        area = compare_auroc(both, confidence=float(resampling.level))
                        found.append(_area(first, second, area))
        return found


def _on_set(source: DividedSource, areas: Sample | None, ood: str) -> tuple[ComparedRows, str]:
    """Return the rows of one OOD set, or of all for the empty name, and words on them."""
    whole = ood == "" or source.overview().sets == (ood,)
    part = source if whole else source.for_ood(ood)
    if areas is not None:
        return ComparedRows(prepare(areas if whole else areas.for_ood(ood)), part), ""
    rows = counted_rows(part)
    note = "" if rows.error == 0 else _IN_BINS
    return ComparedRows(prepare(rows.sample), part), note


_IN_BINS = (
    "AUROC, AUPR and OSCR of single scores are counted in 65,536 bins, in which rows count as ties."
)


def _columns(
    has_ood: bool,
    right_or_wrong: bool,
    models: Sequence[RejectionModel],
    prior: Bound | None,
    search: Grid | None,
) -> list[MetricColumn]:
    """Return the columns that the data allow."""
    from demur import metrics

    found = [_objective_column(model, search) for model in models]
    if has_ood:
        ranking = _RankingAreas(prior, search)
        areas: dict[str, Callable[[ComparedRows], float]] = {
            "AUROC": lambda rows: ranking.of(rows.ready)[0],
            "AUPR": lambda rows: ranking.of(rows.ready)[1],
        }
        if right_or_wrong:
            for per in get_args(Per):
                areas[f"OSCR/{per}"] = partial(_oscr, per=per, search=search)
        found += [MetricColumn(Heading(name, "higher"), 4, of) for name, of in areas.items()]

        def fpr(rows: ComparedRows) -> float:
            if rows.source is None:
                return metrics.fpr_at_tpr(rows.ready, float(_FPR_AT), search=search)
            asked = RejectionModel("fpr", [ModelBound("tpr", at_least=float(_FPR_AT))])
            return _tuned_value(rows, asked, "fpr", search)

        found.append(MetricColumn(Heading(f"FPR@TPR({_FPR_AT})", "lower"), 4, fpr))
    if not found:
        raise click.UsageError("nothing to compare: give bounds such as --min-tpr, or --ood")
    return found


def _oscr(rows: ComparedRows, per: Per, search: Grid | None) -> float:
    from demur import metrics

    return metrics.oscr(rows.ready, per=per, search=search)


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

    name = objective_at(model).replace("selective", "sel.")
    return MetricColumn(
        Heading(name, "higher" if key in _HIGHER_IS_BETTER else "lower"),
        5,
        lambda rows: _tuned_value(rows, model, key, search),
    )


def _tuned_value(rows: ComparedRows, model: RejectionModel, key: str, search: Grid | None) -> float:
    """Return a rate of the best rule, NaN if none meets the bounds."""
    try:
        tuned = tune(rows.tuned_on, model, directions="nonneg", search=search)
    except InfeasibleError:
        return math.nan
    found: float | None = getattr(tuned.point, key)
    return math.nan if found is None else found


def _compared(
    samples: Samples, models: Sequence[RejectionModel], prior: Bound | None, search: Grid | None
) -> TableOfScores:
    """Return the values of every score or pair on every OOD set."""
    some = next(iter(samples.values()))
    plain = bool(np.isin(some.id_loss, (0, 1)).all())
    columns = _columns(some.n_ood > 0, plain, models, prior, search)
    sets = _sets(tuple(some.ood_sets))
    found = []
    with Progress("comparing", len(samples) * len(sets), unit="results") as progress:
        for ood in sets:
            for names, sample in samples.items():
                part = sample if ood == "" else sample.for_ood(ood)
                rows = ComparedRows(prepare(part))
                values = tuple(column.value(rows) for column in columns)
                found.append(ComparedScores(names, ood, values))
                progress.advance(1)
    return TableOfScores(columns, found, some.n_ood > 0)


def _sets(names: Sequence[str]) -> list[str]:
    """Return the OOD sets to show; the empty name is all rows together."""
    if list(names) == [POOLED_NAME]:
        return [""]
    return list(names) if len(names) == 1 else [*names, ""]


def _table(found: TableOfScores) -> ResultTable:
    columns, compared, groups = found.columns, found.rows, []
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


def _remarks(found: TableOfScores, prior: Bound | None) -> list[str]:
    names = [column.heading.name for column in found.columns]
    lines = ["ID is the positive class. Lower is better for risk, cost and FPR."]
    if any(len(row.scores) == 2 for row in found.rows):
        lines.append("Pairs are tuned on the rows they are shown for, so they are optimistic.")
    if "AUPR" in names:
        share = "the OOD share of the rows shown" if prior is None else f"prior {prior}"
        lines.append(f"AUPR is the average precision at {share}.")
    if "OSCR/all" in names:
        lines.append("OSCR/accepted: correct among accepted ID; OSCR/all: among all ID.")
    lines += found.notes
    return [*lines, ONLY_THESE_OOD] if found.has_ood else lines


def _data(found: TableOfScores, differences: Sequence[PairedDifference]) -> dict[str, Any]:
    names = [column.heading.name for column in found.columns]
    return {
        "results": [
            {
                "scores": list(row.scores),
                "ood": row.ood or "pooled",
                "metrics": dict(zip(names, row.values, strict=True)),
            }
            for row in found.rows
        ],
        "notes": list(found.notes),
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
