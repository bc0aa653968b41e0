"""The rules behind a metric or a curve, and rank metrics of one score on a source.

One score has its thresholds, in their order: nothing is searched. Two scores have the best rules
of a search, over the rows in memory or at some levels of a source.

*Sources of one score.* Every metric and curve of one score needs only the distinct scores and how
many right, wrong and OOD rows share each. Scores that are stored in 32 bits, or are rounded, have
far fewer of these than there are rows.

*Rows in cells.* What lines accept of one or two scores is counted in the cells of a histogram:
cells on one side of a line exactly, those that it crosses as if rows were spread evenly in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray, takes
from demur._kernels.engines import midway
from demur.core.bins import Bins, axis_for
from demur.core.columns import ScoreColumns
from demur.core.points import Points
from demur.core.program import Number, Totals
from demur.core.sample import Sample
from demur.core.source import Cells, Histogram, Measure, Overview, Rows, ScoreSource
from demur.errors import InvalidInputError
from demur.tuning.frontier import PERCENT, ascending
from demur.tuning.operating_points import Rules, Search, is_swept, sweep_along
from demur.tuning.prepared import Prepared, as_prepared, counted, counted_plainly
from demur.tuning.result import DIRECTION_SETS, Exact
from demur.tuning.staircases import roc_stairs
from demur.tuning.streamed.frontier import Aim, rules_of_source
from demur.tuning.streamed.plan import StreamPlan, bins_for
from demur.tuning.streamed.tune import counted_totals


class SingleScore(NamedTuple):
    """A sample of one score: no search tree, for there is nothing to search."""

    sample: Sample
    points: Points


@takes(source=(Sample, Prepared))
def given(source: Sample | Prepared) -> SingleScore | Prepared:
    """Return a sample of one score as it is, one of two scores prepared."""
    if isinstance(source, Sample):
        if source.n_scores == 1:
            return SingleScore(source, Points.of(source))
        return as_prepared(source, None)
    single = source.sample.n_scores == 1
    return SingleScore(source.sample, source.points) if single else source


def with_ood(name: str, source: Sample | Prepared) -> SingleScore | Prepared:
    """Return what `given` does of a sample that must have OOD rows."""
    rows = given(source)
    if sum(rows.points.totals.ood) == 0:
        raise InvalidInputError(f"{name} has no OOD rows, so this curve is undefined")
    return rows


def comparable(sample: Sample, evaluate_on: Sample) -> Points:
    """Return the points of the sample that rules tuned on another are read on."""
    if evaluate_on.n_scores != sample.n_scores:
        raise InvalidInputError(
            f"evaluate_on has {evaluate_on.n_scores} scores a row, the sample {sample.n_scores}"
        )
    if sample.n_ood:
        return with_ood("evaluate_on", evaluate_on).points
    return Points.of(evaluate_on)


def all_thresholds(points: Points) -> Rules:
    """Return all thresholds of one score, ascending."""
    swept, thresholds = sweep_along(points, (1.0,))
    lines = np.column_stack([np.ones(len(thresholds)), thresholds])
    return Rules(swept.id, swept.ood.sum(axis=0), swept.loss, lines)


def roc_rules(rows: SingleScore | Prepared, search: Search, error: float) -> Rules:
    """Return rules, by rising masses, among which the best are for any bound on TPR or FPR."""
    if isinstance(rows, Prepared):
        return roc_stairs(rows, search, error).rules
    is_swept(rows.points, search)  # One score has no use for a search, but a wrong one is told.
    return all_thresholds(rows.points)


def from_nothing(path: Rules) -> Rules:
    """Put the rule that rejects everything in front."""
    nothing = np.zeros(path.lines.shape[1])
    nothing[0], nothing[-1] = 1, -np.inf
    zero = np.zeros(1, np.int64)
    return Rules.joined(Rules(zero, zero, zero, nothing[None]), path)


def accepted_by(sample: Sample, lines: FloatArray) -> Rules:
    """Return the masses of all OOD sets together, and the others, that each line accepts."""
    if sample.n_scores == 1:
        masses = counted_plainly(Points.of(sample), lines)
    else:
        masses = counted(sample, "pooled").count(lines)
    nI, L, nO = masses.T
    return Rules(nI, nO, L, lines)


def rules_at(
    source: ScoreSource,
    levels: Sequence[Number] | None,
    aim: Aim,
    *,
    max_fpr: Number = 1,
    evaluate_on: Any,
    search: Any,
) -> tuple[Totals, Rules]:
    """Return the best rules for bounds on the FPR (aim "tpr") or on the TPR, by rising masses."""
    if len(source.score_names) == 1:
        raise InvalidInputError(
            "a source of one score has all its levels in metrics.distinct_rows(source): "
            "draw the curve of that"
        )
    if evaluate_on is not None or not isinstance(search, Exact | None):
        raise InvalidInputError("evaluate_on and search=Grid(...) need a Sample, not a source")
    asked = list(PERCENT) if levels is None else ascending("levels", levels)
    tprs, fprs = ([0], asked) if aim == "tpr" else (asked, [max_fpr])
    totals, best = rules_of_source(source, tprs, fprs, DIRECTION_SETS["nonneg"], aim=aim)
    rules, cells = best.rules, best.cells
    if sum(totals.ood) == 0 and aim != "risk":
        raise InvalidInputError("the source has no OOD rows, so this curve is undefined")
    path = rules.take(np.unique(cells[cells >= 0]))
    order = np.lexsort((path.ood, path.id))
    first = np.append(True, np.diff(path.id[order]) > 0)[: len(order)]
    return totals, path.take(order[first])


def refuse_levels(levels: Sequence[Number] | None) -> None:
    """Say that rows in memory need none."""
    if levels is not None:
        raise InvalidInputError("levels are for a source; the curve of a Sample has every level")


_BINS = 1 << 16
_DRAWN = 200_000
# Scores that have a bin of their own because many rows share them; each makes queries longer.
_ATOMS = 1 << 9
# Bytes that a fetched row and a distinct one take.
_ROW_BYTES = 200


class Within(NamedTuple):
    """A number that is at most `error` away from the one that was asked for.

    Examples
    --------
    >>> from demur.metrics import Within
    >>> Within(value=0.93, error=0.0001)
    Within(value=0.93, error=0.0001)
    """

    value: float
    error: float


@takes(source=ScoreSource)
def distinct_rows(source: ScoreSource) -> Sample:
    """Return the distinct rows of a source of one score as a weighted sample.

    `auroc`, `summary`, `roc_curve` and all other metrics and curves of one score give on it
    exactly what they would give on all rows. The source is read in pieces of consecutive scores
    that fit into its memory, one pass for each piece.

    Raises
    ------
    InvalidInputError
        There are more distinct rows than the memory of the source allows.

    Examples
    --------
    >>> from demur.metrics import auroc
    >>> from demur.sources.engines.frames import ArraySource
    >>> rows = Sample([0.1, 0.2, 0.2, 0.7], [0, 0, 0, 1], ood_scores=[0.2, 0.9])
    >>> few = distinct_rows(ArraySource(rows))
    >>> few.n_id, auroc(few) == auroc(rows)
    (3, True)
    """
    overview = _overview(source)
    most = _most(source)
    bins = _bins(source)
    counted = source.histogram(bins, Measure.of(overview, apart=False))
    # A cell of a single score tells all about its rows if they are right, wrong or OOD.
    known = (counted.low == counted.high).all(axis=1) & overview.plain
    parts = [_known(counted, known), _infinite(Measure.of(overview, apart=False), counted)]
    pieces = _pieces(counted.key[~known], counted.rows[~known], most)
    while sum(len(part.loss) for part in parts) <= most:
        if not pieces:
            return _sample(parts, source.columns)
        parts.append(_merged(source.rows(Cells(bins, pieces.pop()))))
    raise InvalidInputError(
        f"the source has more than {most:,} distinct rows, which is what its memory of "
        f"{source.memory:,} bytes allows: allow more, round the scores, or use auroc_within"
    )


@takes(source=ScoreSource)
def auroc_within(source: ScoreSource, *, bins: int = _BINS) -> Within:
    """Return the AUROC of one score from a single histogram, and how far off it can be.

    Pairs of an ID and an OOD row in different bins are counted exactly; a pair within a bin
    counts one half and is off by at most as much.

    Examples
    --------
    >>> from demur.sources.engines.frames import ArraySource
    >>> rows = Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.2, 0.9])
    >>> auroc_within(ArraySource(rows))
    Within(value=0.75, error=0.0)
    """
    overview = _overview(source)
    counted = source.histogram(_bins(source, bins), Measure.of(overview, apart=False))
    nI, nO = counted.id.astype(float), counted.ood[0].astype(float)
    infinite = float(counted.infinite[0]), float(counted.infinite[2])
    total_id, total_ood = float(nI.sum()) + infinite[0], float(nO.sum()) + infinite[1]
    if total_ood == 0:
        return Within(math.nan, math.nan)
    # Rows with +inf come last, all at the same place.
    nI, nO = np.append(nI, infinite[0]), np.append(nO, infinite[1])
    unsure = np.append((counted.low < counted.high).any(axis=1), False)
    before = np.cumsum(nI) - nI
    value = float(nO @ (before + nI / 2)) / (total_id * total_ood)
    error = float((nO * nI)[unsure].sum()) / (2 * total_id * total_ood)
    return Within(value, error)


class BinnedRows(NamedTuple):
    """Rows of one score as a weighted sample, and what is left open by the bins they are in."""

    sample: Sample
    error: float
    """By how much the AUROC of the sample may be off; 0 if it tells all there is to tell."""


def binned_rows(source: ScoreSource) -> BinnedRows:
    """Return the rows of a source of one score with ties where they share one of 65,536 bins.

    A single histogram, whatever the number of rows, where `distinct_rows` may not fit. Losses of
    the rows of a bin are known together: beside 0 and 1, only sums of them mean what they did.

    Examples
    --------
    >>> from demur.metrics import auroc
    >>> from demur.sources.engines.frames import ArraySource
    >>> rows = Sample([0.1, 0.2, 0.2, 0.7], [0, 0, 0, 1], ood_scores=[0.2, 0.9])
    >>> few = binned_rows(ArraySource(rows))
    >>> auroc(few.sample) == auroc(rows), few.error
    (True, 0.0)
    """
    overview = _overview(source)
    measure = Measure.of(overview, apart=False)
    counted = source.histogram(_bins(source), measure)
    masses = np.vstack([counted.id, counted.loss, counted.ood])
    cells = _of_masses(counted.low[:, 0], masses, measure)
    rows = _sample([cells, _infinite(measure, counted)], source.columns)
    crowded = (counted.low < counted.high).any(axis=1)
    own, _, foreign = masses.sum(axis=1, dtype=float) + counted.infinite
    pairs = float(own * foreign)
    unsure = float((counted.id.astype(float) * counted.ood[0])[crowded].sum())
    return BinnedRows(rows, unsure / (2 * pairs) if pairs else 0.0)


def counted_rows(source: ScoreSource) -> BinnedRows:
    """Return all distinct rows of a source of one score if they fit, or else rows in bins."""
    if _overview(source).rows <= _most(source):
        return BinnedRows(distinct_rows(source), 0.0)
    return binned_rows(source)


def _most(source: ScoreSource) -> int:
    """Return how many distinct rows the memory of a source allows."""
    return max(1000, source.memory // (4 * _ROW_BYTES))


def _overview(source: ScoreSource) -> Overview:
    if len(source.score_names) != 1:
        raise InvalidInputError(
            f"source has the scores {source.score_names}: make one with a single score"
        )
    return source.overview()


def _bins(source: ScoreSource, bins: int = _BINS) -> Bins:
    scores = source.sample(_DRAWN, seed=0).scores[:, 0]
    return Bins((axis_for(scores[np.isfinite(scores)] + 0.0, bins, atoms=min(bins // 4, _ATOMS)),))


def _pieces(key: IntArray, rows: IntArray, most: int) -> list[IntArray]:
    """Return consecutive cells whose rows fit, of each piece; a larger cell is a piece itself."""
    pieces: list[IntArray] = []
    start, held = 0, 0
    for place, number in enumerate(rows.tolist()):
        if held and held + number > most:
            pieces.append(key[start:place])
            start, held = place, 0
        held += number
    return [*pieces, key[start:]] if held else pieces


def _merged(rows: Rows) -> Rows:
    """Return rows without repetitions, which count in the weight."""
    weight = np.ones(len(rows.loss)) if rows.weight is None else rows.weight
    side = np.minimum(rows.group, 0)
    table = np.column_stack([rows.scores, side, rows.loss])
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    total = np.zeros(len(distinct))
    np.add.at(total, place.ravel(), weight)
    return Rows(distinct[:, :1], distinct[:, 1].astype(np.int64), distinct[:, 2], total)


def _known(counted: Histogram, known: BoolArray) -> Rows:
    """Return the rows of cells with a single score, all of them right, wrong or OOD."""
    scores, wrong = counted.low[known, 0], counted.loss[known]
    return _grouped(scores, counted.id[known] - wrong, wrong, counted.ood[0, known])


def _infinite(measure: Measure, counted: Histogram) -> Rows:
    """Return the rows with an infinite score, of which only the total loss matters."""
    return _of_masses([np.inf], np.array(counted.infinite, np.int64)[:, None], measure)


def _of_masses(scores: Any, masses: IntArray, measure: Measure) -> Rows:
    """Return rows of some scores that have these ID, loss and OOD masses."""
    exponents = (measure.id_exponent, measure.loss_exponent, measure.ood_exponent)
    id_, loss, ood = (
        np.ldexp(mass.astype(float), -exponent)
        for mass, exponent in zip(masses, exponents, strict=True)
    )
    # Losses beyond 1 are those of all ID rows together.
    large = loss > id_
    each = np.divide(loss, id_, out=np.ones(len(id_)), where=large & (id_ > 0))
    wrong = np.where(large, id_, loss)
    return _grouped(scores, id_ - wrong, wrong, ood, each)


def _grouped(scores: Any, right: Any, wrong: Any, ood: Any, lost: Any = 1.0) -> Rows:
    """Return rows right, wrong (with so much lost) and OOD of each score, numbers as weights."""
    n, weight = len(scores), np.concatenate([right, wrong, ood]).astype(np.float64)
    held = weight > 0
    return Rows(
        np.tile(np.asarray(scores, float), 3)[held, None],
        np.repeat(np.array([-1, -1, 0]), n)[held],
        np.concatenate([np.zeros(n), np.broadcast_to(lost, n), np.zeros(n)])[held],
        weight[held],
    )


def _sample(parts: list[Rows], columns: ScoreColumns) -> Sample:
    weight = np.concatenate([np.asarray(part.weight) for part in parts])
    held = weight > 0
    scores, group, loss = (
        np.concatenate([getattr(part, name) for part in parts])[held]
        for name in ("scores", "group", "loss")
    )
    is_id, scores = group < 0, columns.as_doubts(scores)
    return Sample(
        id_scores=scores[is_id],
        id_loss=loss[is_id],
        ood_scores=scores[~is_id],
        id_weight=weight[held][is_id],
        ood_weight=weight[held][~is_id],
        score_names=columns.names,
        confidence=columns.confidence,
    )


class AboutAccepted(NamedTuple):
    """What each of some lines accepts of rows in cells: ID, loss, then OOD of each set."""

    masses: IntArray
    """Shape (masses, lines)."""
    least: IntArray
    """What it accepts at least."""
    most: IntArray
    """And at most."""


class CellTable(NamedTuple):
    """Cells by columns of the first score and rows of the second, of which none is empty.

    One score is the second; the first is 0 everywhere.
    """

    mass: IntArray
    """Shape (masses, columns, rows)."""
    below: IntArray
    """Shape (masses, columns, rows + 1): what lies in the rows before."""
    low: FloatArray
    """Shape (2, columns, rows): no row of the cell has smaller scores."""
    high: FloatArray
    column_ends: FloatArray
    """Shape (2, columns): least and largest first score."""
    row_ends: FloatArray
    """Shape (2, rows): least and largest second score, ascending."""

    @classmethod
    def of(cls, counted: Histogram, bins: Bins) -> CellTable:
        """Arrange the cells of a histogram."""
        cells = len(counted.key)
        own = np.arange(cells) if len(bins.axes) == 1 else bins.places(counted.key)[1]
        first = np.zeros(cells, np.int64) if len(bins.axes) == 1 else bins.places(counted.key)[0]
        place = tuple(np.unique(one, return_inverse=True)[1].ravel() for one in (first, own))
        shape = tuple(int(one.max(initial=-1)) + 1 for one in place)
        masses = np.vstack([counted.id, counted.loss, counted.ood])
        mass = np.zeros((len(masses), *shape), np.int64)
        mass[:, place[0], place[1]] = masses
        low, high = np.zeros((2, *shape)), np.zeros((2, *shape))
        ends = [np.full((2, size), np.inf) for size in shape]
        for axis, (least, most) in enumerate(zip(counted.low.T, counted.high.T, strict=True)):
            at = axis + 2 - len(bins.axes)
            low[at][place], high[at][place] = least, most
            np.minimum.at(ends[at][0], place[at], least)
            np.minimum.at(ends[at][1], place[at], -most)
        if len(bins.axes) == 1:
            ends[0][:] = 0.0
        for one in ends:
            one[1] *= -1
        return cls(mass, _before(mass), low, high, ends[0], ends[1])

    def upside_down(self) -> CellTable:
        """Return the cells of the same rows with the second score negated."""
        mass = self.mass[:, :, ::-1]
        low, high = self.low[:, :, ::-1].copy(), self.high[:, :, ::-1].copy()
        low[1], high[1] = -high[1], -low[1]
        return CellTable(
            mass, _before(mass), low, high, self.column_ends, -self.row_ends[::-1, ::-1]
        )

    def accepted(self, first: float, second: float, limit: float) -> tuple[FloatArray, ...]:
        """Return masses of ``first * x + second * y <= limit``: about, at least and at most.

        `second` is not negative.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            across = np.sort(first * self.column_ends, axis=0)
            sure, possible = (
                np.searchsorted(second * self.row_ends[k], limit - across[k], side="right")
                if second
                else np.where(across[k] <= limit, len(self.row_ends[k]), 0)
                for k in (1, 0)
            )
        possible = np.maximum(possible, sure)
        whole = self.below[:, np.arange(len(sure)), sure].sum(axis=1)
        column = np.repeat(np.arange(len(sure)), possible - sure)
        start = np.cumsum(possible - sure) - (possible - sure)
        row = np.arange(len(column)) - np.repeat(start - sure, possible - sure)
        share = self._shares(column, row, first, second, limit)
        mass = self.mass[:, column, row]
        least, most = ((mass * taken).sum(axis=1) for taken in (share >= 1, share > 0))
        return whole + mass @ share, whole + least, whole + most

    def _shares(
        self, column: IntArray, row: IntArray, first: float, second: float, limit: float
    ) -> FloatArray:
        """Return which share of each cell's box is accepted."""
        (x0, y0), (x1, y1) = self.low[:, column, row], self.high[:, column, row]
        room = limit - np.minimum(first * x0, first * x1) - second * y0
        wide, tall = abs(first) * (x1 - x0), second * (y1 - y0)
        small, large = np.minimum(wide, tall), np.maximum(wide, tall)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # The part of a rectangle below a line: a triangle less the corners that stick out.
            corners = [np.maximum(room - side, 0.0) for side in (0.0, small, large, small + large)]
            area = corners[0] ** 2 - corners[1] ** 2 - corners[2] ** 2 + corners[3] ** 2
            thin = small <= 1e-6 * large
            share = np.where(thin, room / large, area / (2 * small * large))
        share = np.where(large > 0, share, 1.0)
        inside = (room >= 0) & (room < small + large)
        return np.where(inside, np.clip(share, 0.0, 1.0), (room >= 0).astype(float))


def _before(mass: IntArray) -> IntArray:
    return np.concatenate([np.zeros_like(mass[:, :, :1]), np.cumsum(mass, axis=2)], axis=2)


class CountedCells:
    """All rows of a source in cells: what lines accept of them, from one histogram.

    Examples
    --------
    >>> from demur.sources.engines.frames import ArraySource
    >>> rows = Sample([[0.1, 0.3], [0.2, 0.8]], [0, 1], ood_scores=[[0.5, 0.5]])
    >>> cells = CountedCells(ArraySource(rows))
    >>> cells.accepted(np.array([[1.0, 1.0, 0.7], [1.0, 1.0, 1.0]])).masses.tolist()
    [[1, 2], [0, 1], [0, 1]]
    """

    def __init__(self, source: ScoreSource) -> None:
        overview = source.overview()
        scores = len(source.score_names)
        plan = StreamPlan.of(overview.rows, scores, source.memory)
        bins = bins_for(source.sample(plan.sample, seed=0), plan.bins)
        measure = Measure.of(overview, apart=True)
        counted = source.histogram(bins, measure)
        self.totals = counted_totals(counted, overview, measure)
        overview.check_counted(measure, self.totals.id, sum(self.totals.ood), self.totals.loss)
        self.sets = overview.sets
        self.bins = tuple(axis.bins for axis in bins.axes)
        self.single = bool((counted.low == counted.high).all())
        """Whether all rows of each cell have the same scores."""
        self._table = CellTable.of(counted, bins)
        self._upside_down: CellTable | None = None

    def thresholds(self) -> FloatArray:
        """Return the thresholds of one score between cells, at which counts are exact."""
        low, high = self._table.row_ends
        return np.append(midway(high[:-1], low[1:]), high[-1:])

    def accepted(self, lines: FloatArray) -> AboutAccepted:
        """Return what lines (weights and threshold) accept."""
        found = np.zeros((3, len(self._table.mass), len(lines)))
        for place, line in enumerate(lines.tolist()):
            *weights, limit = line
            first, second = weights if len(weights) == 2 else (0.0, *weights)
            table = self._table if second >= 0 else self._flipped()
            found[:, :, place] = table.accepted(first, abs(second), limit)
        return AboutAccepted(*np.rint(found).astype(np.int64))

    def _flipped(self) -> CellTable:
        if self._upside_down is None:
            self._upside_down = self._table.upside_down()
        return self._upside_down
