"""Tuning at the command line on rows that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray
from demur.cli.inputs import PAGE_ROW_BYTES, DataOptions, EngineOptions, ScoreTable
from demur.cli.output import Progress, caution
from demur.cli.printing import Points
from demur.cli.saved import opened, work_data
from demur.cli.tuning_options import HoldoutOptions, ModelOptions, SearchOptions
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint, count_rule, evaluate
from demur.core.row_draws import bring, drawn_together, repeats_key
from demur.core.sample import POOLED_NAME, Sample
from demur.core.source import FRONTIER_ROW_BYTES, ScoreSource, Sizes
from demur.errors import InvalidInputError

if TYPE_CHECKING:
    from demur.guarantees.operating_tables import OperatingTable
    from demur.report.summary import WholeRows
    from demur.tuning.result import Tuning

PROMISE_ROW_BYTES = 600
"""What a row that is brought here takes until a promise is made."""
_TOGETHER = 0.05
"""Other rows with the scores of one, in the mean, beyond which rows drawn by them prove nothing."""
_LOOKED_AT = 100_000
PAGE_ROWS = 100_000
"""A page of more rows takes minutes, and none of its curves would look different."""

# Columns of brought rows; no file has such names.
_LOSS, _OOD, _WEIGHT, _GROUP = " loss", " ood", " weight", " group"


_NO_SPLIT = HoldoutOptions(None, 0, None)


@dataclass(frozen=True, slots=True)
class StreamTuning:
    """A rule tuned on a source, what it does there, and how much there is."""

    tuned: Tuning
    points: Points
    """What it does on the rows it was tuned on, and on those held out if any are."""
    work: Mapping[str, Any]
    """What the engine did, for --json."""


def refuse_in_stream(given: Mapping[str, object], engine: EngineOptions, data: DataOptions) -> None:
    """Refuse options that need all rows in memory, and say how much that is."""
    for name, value in given.items():
        if value is not None:
            raise click.UsageError(
                f"{name} needs the rows in memory: leave it out, or {engine.into_memory(data.data)}"
            )


def tune_stream(
    engine: EngineOptions,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    model: RejectionModel,
    options: ModelOptions,
    search: SearchOptions,
    split: HoldoutOptions,
) -> StreamTuning:
    """Tune on rows that stay where they are; those held out are counted there, too."""
    from demur.tuning.tune import tune

    about = 5 if split.share is None else 8
    with (
        Progress("counting rows") as progress,
        opened(engine, data, scores, confidence, progress, about=about, key=split.group) as source,
    ):
        train, held = split.parts(source)
        options.check_ood(sum(train.overview().ood_rows), data.ood)
        tuned = tune(
            train,
            model,
            directions=search.directions,
            search=search.search,
            ood=search.fpr_of,
            shape=search.shape,
        )
        point = tuned.point
        if options.prior is not None:
            point = evaluate(tuned.rule, train, model=model, ood_prior=options.prior)
        points: dict[str, tuple[OperatingPoint, Sample | Sizes]] = {}
        points["tuned on"] = (point, train.overview())
        if held is not None:
            fresh = evaluate(tuned.rule, held, model=model, ood_prior=options.prior)
            points["held out"] = (fresh, held.overview())
        return StreamTuning(tuned, points, work_data(source))


def count_stream(
    engine: EngineOptions,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    search: SearchOptions,
    split: HoldoutOptions,
) -> tuple[OperatingTable, Mapping[str, Any]]:
    """Return counts to tune from, of rows that stay where they are, and what the engine did."""
    from demur.guarantees.operating_tables import DRAWN_ROWS, operating_table

    with (
        Progress("counting rows") as progress,
        opened(engine, data, scores, confidence, progress, about=5, key=split.group) as source,
    ):
        train, _ = split.parts(source)
        table = operating_table(train, directions=search.allowed, search=search.search)
        work, rows, pair = work_data(source), train.overview().rows, len(train.score_names) == 2
    directions = np.unique(table.directions[np.isfinite(table.thresholds)], axis=0)
    most = engine.memory // FRONTIER_ROW_BYTES
    if pair and rows > most:
        caution(
            f"the counts are of all {rows:,} rows, along {len(directions)} "
            f"directions that {min(DRAWN_ROWS, most):,} of them drawn by a hash suggest; rules "
            f"best for any bounds need more --memory, about {FRONTIER_ROW_BYTES} bytes a row"
        )
    elif not pair and not table.complete:
        caution(
            f"the counts are of all {rows:,} rows, at the ends of bins: all thresholds need more "
            "--memory, or scores that are rounded"
        )
    return table, work


@dataclass(frozen=True, slots=True)
class BroughtRows:
    """Rows of a source that were brought here, and which of them are held out."""

    rows: ScoreTable
    held: BoolArray | None
    work: Mapping[str, Any]
    whole: WholeRows | None = None
    """What was counted of all rows, where these are some of them."""


def bring_rows(
    engine: EngineOptions,
    data: DataOptions,
    scores: tuple[str, ...],
    confidence: tuple[str, ...],
    split: HoldoutOptions = _NO_SPLIT,
    *,
    what: str,
    promised: bool = False,
    row_bytes: int = PROMISE_ROW_BYTES,
    most: int | None = None,
    count: Callable[[Sequence[ScoreSource]], WholeRows] | None = None,
) -> BroughtRows:
    """Return the rows of DATA, or as many as memory holds and at most `most`, drawn by a hash.

    The same rows in the same order whatever the engine. `what` rests on them, and that is said;
    what is `promised` takes rows that a hash draws one by one. Where they are not all rows,
    `count` is given all: those to tune on, and those held out if there are any.
    """
    from demur.guarantees.splits import sorted_rows

    with (
        Progress("counting rows") as progress,
        opened(engine, data, scores, confidence, progress, about=4, key=split.group) as source,
    ):
        if promised and split.group is not None:
            refuse_shared_ids(source, split.group)
        parts = [part for part in split.parts(source) if part is not None]
        fitting = engine.memory // row_bytes
        most = fitting if most is None else min(most, fitting)
        total = source.overview().rows
        by_scores = promised and split.group is None and (total > most or len(parts) == 2)
        if by_scores:
            # Of a few values, a hash may draw none: told by rows drawn by chance first.
            some = source.sample(_LOOKED_AT, seed=0).scores
            _refuse_ties(drawn_together(some) * total / max(len(some), 1), beyond=1.0)
        # Splits and bets that follow go by places, and engines bring rows in any order.
        samples = [sorted_rows(bring(part, most * part.overview().rows // total)) for part in parts]
        whole = count(parts) if count is not None and total > most else None
        work = work_data(source)
        if by_scores:
            _refuse_ties(drawn_together(np.vstack([samples[0].id_scores, samples[0].ood_scores])))
    if total > most:
        brought = [sum(part.n_id for part in samples), sum(part.n_ood for part in samples)]
        more = f": more rows need more --memory, about {row_bytes} bytes each"
        caution(
            f"{what} rests on {brought[0]:,} ID and {brought[1]:,} OOD rows, drawn by a hash of "
            f"{total:,}{more if most == fitting else ''}"
        )
    tables = [_columns(sample) for sample in samples]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    options = replace(
        data,
        loss=_LOSS,
        correct=None,
        label=None,
        prediction=None,
        ood=_OOD,
        weight=_WEIGHT if _WEIGHT in columns else None,
        id_group=_GROUP if _GROUP in columns else None,
    )
    held = np.repeat(
        [False, True], [len(table[_LOSS]) for table in tables] + [0] * (2 - len(parts))
    )
    rows = ScoreTable(columns, options, (scores,), confidence)
    return BroughtRows(rows, held if len(parts) == 2 else None, work, whole)


def refuse_shared_ids(source: ScoreSource, column: str) -> None:
    """Refuse a promise from rows that stay where they are if some share an id."""
    if repeats_key(source, column):
        raise InvalidInputError(
            f"a promise counts independent rows, and rows share ids in column {column!r}: keep one "
            "row of each id, or add --engine memory (about 300 bytes a row) and --per-id, which "
            "says what to promise"
        )


def _refuse_ties(together: float, *, beyond: float = _TOGETHER) -> None:
    """Refuse a promise from rows that are drawn by their scores, where many share them.

    Drawn are all rows of a score or none, so that they are no independent rows of the population.
    """
    if together > beyond:
        raise InvalidInputError(
            "a promise counts independent rows, but a hash of the scores draws these, and about "
            f"{together + 1:,.3g} rows share the scores of one: give --id, a column that tells "
            "rows apart, or enough --memory for all rows and no --holdout"
        )


def added_work(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return, for --json, what an engine did in several goes."""
    work: dict[str, Any] = {}
    for part in parts:
        for key, value in part.get("work", {}).items():
            work[key] = value if isinstance(value, str) else value + work.get(key, 0)
    return {"work": work}


def page_rows(
    engine: EngineOptions,
    data: DataOptions,
    scores: tuple[str, ...],
    confidence: tuple[str, ...],
    split: HoldoutOptions,
    found: StreamTuning | None,
    *,
    promised: bool = False,
) -> tuple[BroughtRows, WholeRows | None]:
    """Return the rows that a page is drawn from and, if these are not all, what is known of all.

    `found` is the rule that was tuned on all rows, if there is one; `promised` as in `bring_rows`.
    """
    brought = bring_rows(
        *(engine, data, scores, confidence, split),
        what="the choice of rules that the page offers",
        promised=promised,
        row_bytes=PAGE_ROW_BYTES,
        most=PAGE_ROWS,
        count=lambda parts: _counted(parts, found),
    )
    return brought, brought.whole


def _counted(parts: Sequence[ScoreSource], found: StreamTuning | None) -> WholeRows:
    """Count what rules accept: that of the page exactly, others in cells."""
    from demur.core.rule import BoxRule
    from demur.metrics.rules import CountedCells
    from demur.report.summary import AllRows, WholeRows

    rule = None if found is None else found.tuned.rule
    rows = [
        AllRows(
            part.overview(),
            None if rule is None else count_rule(rule, part),
            None if isinstance(rule, BoxRule) else CountedCells(part),
        )
        for part in parts
    ]
    certificate = None if found is None else found.tuned.certificate
    return WholeRows(rows[0], rows[1] if len(rows) == 2 else None, certificate)


def _columns(sample: Sample) -> dict[str, npt.NDArray[Any]]:
    """Return a sample as columns."""
    names = sample.columns.names or ()
    scores = np.vstack([sample.id_scores, sample.ood_scores])
    columns: dict[str, npt.NDArray[Any]] = dict(zip(names, scores.T, strict=True))
    columns[_LOSS] = np.concatenate([sample.id_loss, np.zeros(sample.n_ood)])
    side = np.full(sample.n_id + sample.n_ood, "id", object)
    for name, rows in sample.ood_sets.items():
        side[sample.n_id :][rows] = name
    columns[_OOD] = side
    if list(sample.ood_sets) == [POOLED_NAME]:
        columns[_OOD] = side != "id"
    if sample.id_weight is not None and sample.ood_weight is not None:
        columns[_WEIGHT] = np.concatenate([sample.id_weight, sample.ood_weight])
    if sample.id_group is not None:
        groups = [sample.id_group.astype(object), np.full(sample.n_ood, None)]
        columns[_GROUP] = np.concatenate(groups)
    return columns
