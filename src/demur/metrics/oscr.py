"""OSCR, the area under the correct classification rate (CCR) over the FPR; the best CCR at an FPR.

In one direction the rate at an FPR is that of the largest threshold whose FPR is at most
this: a step function, constant from one OOD score to the next. With two scores the maximum of
these step functions over mu >= 0 is the upper envelope of horizontal segments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels import reference
from demur._kernels.engines import Frame
from demur.core.columns import combine
from demur.core.points import Points, frame_of
from demur.core.sample import Sample
from demur.metrics.areas import (
    CurveArea,
    Per,
    Rates,
    area_under_ccr,
    area_under_steps,
    check_correctness,
    error_of,
    tie_groups,
)
from demur.metrics.rules import SingleScore, from_nothing, given
from demur.tuning.operating_points import (
    Lines,
    Rules,
    Search,
    cell_lines,
    is_swept,
    quarters,
    settle,
    settled_lines,
    sweep_along,
    swept_directions,
)
from demur.tuning.prepared import FEW, Prepared
from demur.tuning.result import DIRECTION_SETS
from demur.tuning.staircases import LevelRate, best_at_levels, is_searched, roc_stairs

RateOf = Callable[[IntArray, IntArray], FloatArray]
"""What must be large, from accepted ID and loss mass; NaN where it is undefined."""


class Segments(NamedTuple):
    """Rules, and from which OOD mass on to below which they are their direction's choice."""

    start: IntArray
    stop: IntArray
    rules: Rules
    error: float = 0.0
    """What the area under them may lack."""


def oscr(
    sample: Sample | Prepared,
    *,
    per: Per = "accepted",
    exact: bool = False,
    search: Search = None,
) -> CurveArea:
    """Return the area under the correct classification rate over the FPR.

    The two definitions in use rank methods differently: name the one you report. Where no ID
    row is accepted yet, the rate per accepted row is taken to be the first one there is. NaN
    without OOD rows.

    Parameters
    ----------
    sample
        With losses of 0 and 1. Two scores: at each FPR the largest rate over mu >= 0, see
        `ccr_fpr_curve`.
    per
        ``"accepted"``: correct among the accepted ID rows, 1 - selective risk, as in the
        paper. ``"all"``: correct and accepted among all ID rows, as in Dhamija et al. and in
        OpenOOD.
    exact, search
        As in `auroc`.

    Examples
    --------
    >>> sample = Sample([0.1, 0.2, 0.7], [0, 1, 0], ood_scores=[0.15, 0.9])
    >>> round(oscr(sample), 4), round(oscr(sample, per="all"), 4)
    (0.8333, 0.5)
    """
    rows = given(sample)
    check_correctness(rows.sample, per)
    rates = Rates(rows.points.totals)
    if rates.ood == 0:
        return CurveArea(math.nan)
    if isinstance(rows, Prepared):
        best = best_ccr(rows, per, search, error_of(exact))
        if len(best.start) == 0:
            return CurveArea(math.nan)
        edges = np.r_[0, best.stop[:-1], rates.ood]
        ccr = rates.ccr(best.rules.id, best.rules.loss, per)
        return CurveArea(area_under_steps(edges, ccr, rates.ood), best.error)
    return CurveArea(area_under_ccr(tie_groups(rows.points), rates, per))


def best_ccr(
    rows: SingleScore | Prepared, per: Per, search: Search, error: float = 0.0
) -> Segments:
    """Return the rules that make up the envelope, by rising OOD mass.

    The last stops one above the total OOD mass, so that it includes an FPR of 1. Below the
    first, no rule has a rate. `error` is what the area may lack, where the sample is not small.
    """
    points, rates = rows.points, Rates(rows.points.totals)
    same_units = rates.totals.id_exponent == rates.totals.loss_exponent
    if isinstance(rows, Prepared) and not is_swept(points, search) and same_units:
        if per == "all":
            return _most_correct(rows, search, error)
        if is_searched(rows, search):
            return _searched(rows, error)
    if len(points.scores) > FEW and error and not is_swept(points, search):
        return _bracketed(points, per, error)
    return _best_at_equal_fpr(points, lambda nI, L: rates.ccr(nI, L, per), search)


def _most_correct(prepared: Prepared, search: Search, error: float) -> Segments:
    """Return the envelope per all ID: more correct rows cannot come with a smaller threshold.

    So it is a ROC curve of the correct rows. Its rules are given as accepting these alone.
    """
    points = prepared.points
    correct = replace(points, id=points.id - points.loss, loss=np.zeros_like(points.loss))
    found = roc_stairs(prepared.reweighted(correct), search, error)
    stairs = from_nothing(found.rules)
    # Of two rules with the same OOD mass the later has more ID.
    last = np.append(np.diff(stairs.ood) > 0, True)
    rules = stairs.take(last)
    # The TPR of the correct rows is more than their share of all ID.
    return _segments(rules.ood, rules, points, found.error)


def _segments(start: IntArray, rules: Rules, points: Points, error: float = 0.0) -> Segments:
    return Segments(start, np.append(start[1:], sum(points.totals.ood) + 1), rules, error)


def _searched(prepared: Prepared, error: float) -> Segments:
    """Return the envelope per accepted ID by one search for all OOD masses."""
    points = prepared.points
    best = prepared.equal_fpr(DIRECTION_SETS["nonneg"], gap=error)
    lines = np.column_stack([best.weights, best.v])
    masses = np.column_stack([best.ood, best.correct, best.wrong])
    change = np.append(True, (np.diff(masses, axis=0) != 0).any(axis=1))
    first = np.flatnonzero(change & (best.rate >= 0))
    stop = np.append(np.flatnonzero(change), len(change))
    stop = stop[np.searchsorted(stop, first, side="right")]
    known = _CandidateSegments(
        first,
        stop,
        (best.correct + best.wrong)[first],
        best.ood[first],
        best.wrong[first],
        lines[first].__getitem__,
    )
    axes = (_swept(points, direction) for direction in ((1.0, 0.0), (0.0, 1.0)))
    rates = Rates(points.totals)
    found = _envelope(chain([known], axes), lambda nI, L: rates.ccr(nI, L, "accepted"), points)
    return found._replace(error=error)


def _bracketed(points: Points, per: Per, error: float) -> Segments:
    """Return what sorting along some directions finds, with the error that leaves."""
    height = LevelRate.correct_of_all if per == "all" else LevelRate.correct_of_accepted
    found = best_at_levels(points, height, error)
    return _segments(found.start, found.rules, points, found.error)


def _best_at_equal_fpr(points: Points, height: RateOf, search: Search) -> Segments:
    found = _envelope(_all_rules(points, search), height, points)
    if is_swept(points, search):
        return found
    rules, settled = settle(points, found.rules, "nonneg")
    if settled.all():
        return found._replace(rules=rules)
    known = _settled_so_far(found, rules, settled)
    batches = chain([known], _all_rules(points, search, settled=True))
    return _envelope(batches, height, points)


class _CandidateSegments(NamedTuple):
    start: IntArray
    stop: IntArray
    id: IntArray
    ood: IntArray
    loss: IntArray
    lines: Lines


def _settled_so_far(found: Segments, rules: Rules, settled: BoolArray) -> _CandidateSegments:
    known = rules.take(settled)
    start, stop = found.start[settled], found.stop[settled]
    return _CandidateSegments(start, stop, known.id, known.ood, known.loss, known.lines.__getitem__)


def _all_rules(
    points: Points, search: Search, *, settled: bool = False
) -> Iterator[_CandidateSegments]:
    if is_swept(points, search):
        for direction in swept_directions(points, "nonneg", search):
            yield _swept(points, direction)
        return
    # Between the axes only equal points tie, on the axes others may.
    yield _swept(points, (1.0, 0.0))
    yield _swept(points, (0.0, 1.0))
    yield from _beside_ood(points, settled)


def _swept(points: Points, direction: tuple[float, ...]) -> _CandidateSegments:
    swept, thresholds = sweep_along(points, direction)
    ood = np.r_[0, swept.ood.sum(axis=0), sum(points.totals.ood) + 1]
    rows = np.flatnonzero(ood[1:] > ood[:-1])
    last = np.r_[-np.inf, thresholds][rows]

    def lines(asked: IntArray) -> FloatArray:
        return np.column_stack([np.tile(direction, (len(asked), 1)), last[asked]])

    nI, L = np.r_[0, swept.id][rows], np.r_[0, swept.loss][rows]
    return _CandidateSegments(ood[rows], ood[rows + 1], nI, ood[rows], L, lines)


def _beside_ood(points: Points, settled: bool) -> Iterator[_CandidateSegments]:
    """Yield the rules that stop just below an OOD point."""
    chart = quarters(DIRECTION_SETS["nonneg"])[0]
    frame = frame_of(points.scores)
    x, y = chart.coordinates(frame.points(points.scores))
    # Pivots are the points with mass in the first place: here OOD.
    merged = reference.merge(x, y, points.ood.sum(axis=0), points.id[None], points.loss)
    for cells in reference.pivot_cells(merged):
        pivot = cells.pivot
        start = cells.id - merged.id[pivot]
        nI, L = cells.ood[0] - merged.ood[0, pivot], cells.loss - merged.loss[pivot]
        lines = _below(cell_lines(chart, frame, merged, cells))
        if settled:
            lines = settled_lines(points, lines, nI, start, L, "nonneg")
        yield _CandidateSegments(start, cells.id, nI, start, L, lines)
    for met in reference.meetings(merged):
        lines = _below_meeting(frame, merged, met)
        lines = settled_lines(points, lines, met.ood, met.id, met.loss, "nonneg")
        yield _CandidateSegments(met.id, met.id + met.id_on, met.ood, met.id, met.loss, lines)


def _below_meeting(frame: Frame, merged: reference.Merged, met: reference.Meetings) -> Lines:
    """Return lines just below those that meet several OOD points."""
    scores = frame.scores(np.column_stack([merged.x, merged.y]))

    def below(row: int) -> FloatArray:
        first, last = met.pivot, int(met.other[row])
        side = reference.sides_of_line(merged, first, last)
        if int(merged.id[side == 0].sum()) != met.id_on[row]:
            # Only rounding made them meet.
            return np.full(3, np.nan)
        fall, step = merged.y[first] - merged.y[last], merged.x[last] - merged.x[first]
        weights = frame.weights(np.array([fall, step]))
        values = combine(weights, scores)
        return np.append(weights, values[side < 0].max(initial=-np.inf))

    return lambda rows: np.array([below(int(row)) for row in rows]).reshape(-1, 3)


def _below(lines: Lines) -> Lines:
    def below(rows: IntArray) -> FloatArray:
        moved = lines(rows)
        moved[:, -1] = np.nextafter(moved[:, -1], -np.inf)
        return moved

    return below


def _envelope(batches: Iterable[_CandidateSegments], height: RateOf, points: Points) -> Segments:
    # Start from one segment below all others, so that there are no gaps.
    start, stop = np.array([0]), np.array([sum(points.totals.ood) + 1])
    rules = Rules(start, start, start, np.zeros((1, points.scores.shape[1] + 1)))
    top = np.array([-np.inf])
    for batch in batches:
        value = height(batch.id, batch.loss)
        rows = np.flatnonzero(value > _lowest(start, top, batch.start, batch.stop))
        if len(rows) == 0:
            continue
        new = Rules(batch.id[rows], batch.ood[rows], batch.loss[rows], batch.lines(rows))
        found = new.found()
        rows = rows[found]
        rules, top = Rules.joined(rules, new.take(found)), np.append(top, value[rows])
        start, stop = np.append(start, batch.start[rows]), np.append(stop, batch.stop[rows])
        edges, winner = _skyline(start, stop, np.lexsort((rules.id, top)))
        rules, top, start, stop = rules.take(winner), top[winner], edges[:-1], edges[1:]
    some = top > -np.inf
    return Segments(start[some], stop[some], rules.take(some))


def _lowest(edges: IntArray, top: FloatArray, start: IntArray, stop: IntArray) -> FloatArray:
    """Return the lowest value of the envelope over each span."""
    first = np.searchsorted(edges, start, side="right") - 1
    spans = np.column_stack([first, np.searchsorted(edges, stop)]).ravel()
    lowest: FloatArray = np.minimum.reduceat(np.append(top, np.inf), spans)[::2]
    return lowest


def _skyline(start: IntArray, stop: IntArray, rising: IntArray) -> tuple[IntArray, IntArray]:
    """Return the edges of the upper envelope and the segment on top between each two.

    `rising` lists the segments from the lowest to the highest. Each is laid over two runs of
    2**k intervals that overlap to cover it; long runs are then handed down to their halves.
    """
    edges = np.unique(np.r_[start, stop])
    low, high = np.searchsorted(edges, start), np.searchsorted(edges, stop)
    power = np.frexp(high - low)[1] - 1
    rank = np.empty(len(start), np.int64)
    rank[rising] = np.arange(len(start))
    runs = np.full((int(power.max()) + 1, len(edges) - 1), -1)
    np.maximum.at(runs, (power, low), rank)
    np.maximum.at(runs, (power, high - 2**power), rank)
    for k in range(len(runs) - 1, 0, -1):
        half = 2 ** (k - 1)
        np.maximum(runs[k - 1], runs[k], out=runs[k - 1])
        np.maximum(runs[k - 1, half:], runs[k, :-half], out=runs[k - 1, half:])
    top = runs[0]
    change = np.flatnonzero(np.append(True, top[1:] != top[:-1]))
    return np.append(edges[change], edges[-1]), rising[top[change]]
