"""A closer look at marked cells of scores: their rows counted again, in cells of a cone.

Where all directions that may be the best are nearly the same, cells that are thin across them
(`Cone`) tell much more of the rows than as many cells of scores. The rows of marked cells are
counted in such cells, the search goes on in the zones that survived, and only the rows of cells
that it still marks are fetched; of the others, two points are enough. The proof in `tune` holds
for the directions of the cone, outside of which no half-plane is as good as the best one known.
So the answer counts if its direction is in the cone. Otherwise nothing is returned.

Where in a cone to look for a better half-plane: cells of scores, taken as if all their rows were
in the middle, tell about how good the best threshold of a direction is. That is smooth in the
direction where many rows are counted, so the lowest point of a parabola is a good guess. Strips
there are counted exactly.

*Cones.* All half-planes of a cone have weights (1, t), or (t, 1), with t from t[0] to t[1]. Let a
and b be the values of a row in the two directions at its ends. In each direction between, the value
of the row is between a and b, at the same place for all rows: half-planes of the cone are
half-planes of (a, b) with two non-negative weights. Cells of (a, b) are crossed by few of them.

In a cell with a0 <= a <= a1 and b0 <= b <= b1, the point of the plane with values (a0, b0) is
accepted before all rows in every direction of the cone, and that with (a1, b1) after them; in
other directions this need not be so.

Rounding: `_DOUBT` times |x| + t*|y| is many times what rounding may put off any of a, b, these
two points, and what rules add up. Cells are larger by that, and the points by a quarter of it: so
the points lie beyond all rows, and cells beyond their points.

The search (`ConeSearch`) is branch and bound over the directions of a cone, for all thresholds at
once. For directions from one to another, each cell is accepted for certain above some threshold
and rejected for certain below another. Between these it crosses. So one sort of the thresholds
tells which masses are accepted and which cross at each of them, and `BoxJudge` whether a
half-plane there may be as good as the best one known. Directions with such thresholds are cut in
two, until the cells are wider than their values differ between the directions. Cells that cross
then at any threshold that is left are marked. Directions are numbered from 0 to 1, and the
threshold of a line is what it has above ``lean * direction``, so that lines of the same place
have about the same threshold throughout.

Not every closer look pays. Where directions are many and tails wide, a search of them all takes
many times as long as fetching the rows as they are. So it may judge `BANDS` bands, or
`BANDS_A_ROW` for every row that it may still spare if these are more; what it has marked it does
not spare. When they are used up it ends, and the rows of marked cells of scores are fetched as if
there had been no closer look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels.numpy_engine.bounds import Best
from demur._kernels.numpy_engine.boxes import LINE_EPS, Zone
from demur.core.bins import Axis, Bins, axis_for
from demur.core.columns import combine
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.core.source import Cells, Histogram, Measure, Overview, Profile, ScoreSource, Strip
from demur.tuning.operating_points import Line
from demur.tuning.prepared import Prepared
from demur.tuning.result import DIRECTION_SETS, Exact, SearchCertificate
from demur.tuning.streamed.cells import (
    CellGrid,
    Layout,
    Signs,
    cloud,
    corners,
    first_and_last,
    joined,
    points_of,
    some_points,
    table_of,
    turned,
)
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.search import BoxJudge, Opened, best_known, best_of
from demur.tuning.tune import search_exact

_NONNEG = DIRECTION_SETS["nonneg"]
# Directions that are tried on cells, and thresholds that are counted in the best of them.
_DIRECTIONS = 13
_STEPS = 1024
_DOUBT = 2.0**-44
# Scores beyond this, whose sums may overflow, are left to cells of scores.
_LARGEST = 1e150
# Part of the width of a cone that is added on either side, and its least width relative to t.
_ROOM = 0.25
_THINNEST = 2.0**-16
# Part of what cells cross that may come from the width of an arc of directions.
_ENOUGH = 0.35
_DEEPEST = 40
# Bands that may be judged whatever that spares, and to spare a row. Some ten take as long as
# fetching it; a fetched row takes memory, too, and has to come from where it is.
BANDS, BANDS_A_ROW = 1_000_000, 24


@dataclass(frozen=True, slots=True, eq=False)
class CloseUp:
    """What a closer look needs to know of a source."""

    source: ScoreSource
    overview: Overview
    measure: Measure
    totals: Totals
    plan: StreamPlan
    drawn: FloatArray
    """Finite scores of a sample."""
    prepared: Callable[[Points], Prepared]

    def look(
        self, program: Program, best: Best | None, opened: Opened, bins: Bins, search: Exact
    ) -> tuple[Line | None, SearchCertificate] | None:
        """Return the best line in terms of scores times signs; None if that is not certain.

        `bins` are those of the cells of `opened`.
        """
        cone = cone_of(opened.zones, self.overview.low, self.overview.high)
        if cone is None:
            return None
        zones, coarse = opened.zones[cone.signs], opened.pyramid.grid
        marked, rest = coarse.take(opened.marked), coarse.take(~opened.marked)
        within = Cells(bins, np.sort(marked.key))
        drawn = self.drawn[np.isin(bins.key(self.drawn), within.key)]
        thin = cone_bins(cone, drawn, marked.low, marked.high, self.plan.thin)
        layout = Layout.of(self.measure)
        strips = _strips_in(cone, zones, marked, rest, program, layout)
        counted = self.source.histogram(thin, self.measure, strips=strips, within=within)
        counted_best = _best_on(strips, counted.profiles, rest, cone, program, layout)
        best = best_known(program, [best, counted_best])
        extents = extents_of_values(cone, counted.low, counted.high)
        within_cone = ConeSearch(_bands(cone, rest, counted, extents), zones, cone.t)
        paid = within_cone.run(
            BoxJudge(program, self.measure.price, best, layout),
            few=self.plan.few,
            budget=self.plan.boxes,
        )
        if not paid:
            return None
        # Cells of scores that are not marked are known not to be crossed.
        crossed = within_cone.marked[len(rest.key) :]
        if int(counted.rows[crossed].sum()) > self.plan.fetched:
            return None
        outer = first_and_last(*outer_points(cone, extents), table_of(counted), self.totals)
        parts = [self._rows(Cells(thin, counted.key[crossed]), within)]
        parts += [some_points(points, ~crossed) for points in outer]
        points = self._cloud(cone, opened, joined(parts, self.totals))
        line, certificate = search_exact(self.prepared(points), program, _NONNEG, search)
        certificate = replace(
            certificate, boxes=certificate.boxes + opened.boxes + within_cone.boxes
        )
        if line is None:
            return line, certificate
        line = turned(line, cone.signs)
        sure = line.threshold == -math.inf or cone.holds(line.direction)
        return (line, certificate) if sure and certificate.status == "optimal" else None

    def _cloud(self, cone: Cone, opened: Opened, inside: Points) -> Points:
        """Return all points, given those that stand for the rows of marked cells."""
        return cloud(opened.pyramid, opened.met, inside, cone.signs, self.totals)

    def _rows(self, cells: Cells, within: Cells) -> Points:
        """Return the rows of some cells of the cone that are in cells of scores, too."""
        rows = points_of(self.source.rows(cells), self.measure, self.totals)
        return some_points(rows, np.isin(within.bins.key(rows.scores), within.key))


def _bands(cone: Cone, rest: CellGrid, counted: Histogram, extents: Extents) -> Bands:
    """Return cells of scores that are not marked, and then those of the cone."""
    ends = [extents_of_scores(cone, rest.low, rest.high).widened, extents.widened]
    low, high = (np.vstack(end) for end in zip(*ends, strict=True))
    mass = np.hstack([rest.mass, table_of(counted)])
    return bands_of(low, high, mass, np.append(np.zeros_like(rest.rows), counted.rows))


def _strips_in(
    cone: Cone,
    zones: Sequence[Zone],
    marked: CellGrid,
    rest: CellGrid,
    program: Program,
    layout: Layout,
) -> list[Strip]:
    """Return strips in the directions that promise most."""
    ends = np.array([zone.t for zone in zones])
    directions = np.linspace(ends.min(), ends.max(), _DIRECTIONS)
    value = np.full(_DIRECTIONS, np.nan)
    for place, t in enumerate(directions):
        total = _about(cone, float(t), _reach(zones, float(t)), marked, rest)
        best = best_of(program, layout, total)
        if best is not None:
            value[place] = program.value(best.id, best.ood, best.loss)
    known = np.flatnonzero(np.isfinite(value))
    if len(known) == 0:
        return []
    promising = {float(directions[known[np.argmin(value[known])]])}
    promising.add(_lowest(directions[known], value[known]))
    return [Strip(cone.direction(t), *_reach(zones, t), _STEPS) for t in sorted(promising)]


def _reach(zones: Sequence[Zone], t: float) -> tuple[float, float]:
    """Return the least and the largest threshold of the zones in a direction, or near it."""
    apart = [max(zone.t[0] - t, t - zone.t[1], 0.0) for zone in zones]
    least = min(apart)
    near = [zone for zone, far in zip(zones, apart, strict=True) if far <= least]
    return min(min(zone.low) for zone in near), max(max(zone.high) for zone in near)


def _about(
    cone: Cone,
    t: float,
    reach: tuple[float, float],
    marked: CellGrid,
    rest: CellGrid,
) -> IntArray:
    """Return about what the thresholds of a direction accept."""
    weights = np.array(cone.direction(t))
    middle, others = ((grid.low + grid.high) / 2 @ weights for grid in (marked, rest))
    order = np.argsort(middle)
    below = rest.mass[:, others <= sum(reach) / 2].sum(axis=1, keepdims=True)
    return np.asarray(below + np.cumsum(marked.mass.take(order, axis=1), axis=1))


def _lowest(directions: FloatArray, value: FloatArray) -> float:
    """Return the lowest point of the parabola through the best values."""
    best = float(directions[np.argmin(value)])
    width, depth = float(np.ptp(directions)), float(np.ptp(value))
    if len(value) < 5 or not width > 0 or not depth > 0:
        return best
    place = (directions - directions[0]) / width
    square, linear, _ = np.polyfit(place, (value - value.min()) / depth, 2)
    if square <= 0:
        return best
    return float(directions[0] + width * np.clip(-linear / (2 * square), 0, 1))


def _best_on(
    strips: Sequence[Strip],
    profiles: Sequence[Profile],
    rest: CellGrid,
    cone: Cone,
    program: Program,
    layout: Layout,
) -> Best | None:
    """Return the best that is known along strips, of which rows of marked cells were counted.

    The rows of other cells count where they look worst, as in `cloud`.
    """
    first, last = corners(rest.low.T, rest.high.T, cone.signs)
    found = []
    for strip, profile in zip(strips, profiles, strict=True):
        # Products and sums as in rules, which round monotonically.
        weights = [sign * w for sign, w in zip(cone.signs, strip.weights, strict=True)]
        early, late = (combine(weights, corner.T) for corner in (first, last))
        mass = table_of(profile)
        for chosen, corner in ((layout.gains, late), (~layout.gains, early)):
            mass[chosen] += _below(rest.mass[chosen], corner, profile.threshold)
        found.append(best_of(program, layout, mass))
    return best_known(program, found)


def _below(mass: IntArray, value: FloatArray, thresholds: FloatArray) -> IntArray:
    """Return the masses with values at or below each threshold."""
    slot = np.searchsorted(thresholds, value)
    sums = np.zeros((len(mass), len(thresholds) + 1), np.int64)
    for total, column in zip(sums, mass, strict=True):
        np.add.at(total, slot, column)
    return np.asarray(np.cumsum(sums[:, :-1], axis=1))


class Cone(NamedTuple):
    """Directions between two."""

    signs: Signs
    """By which scores are multiplied before."""
    chart: int
    """The score with weight 1 or -1."""
    t: tuple[float, float]

    def direction(self, t: float) -> tuple[float, float]:
        """Return the weights of the scores for one of the directions."""
        x, y = self.signs
        p, q = (x, t * y) if self.chart == 0 else (t * x, y)
        return float(p), float(q)

    @property
    def weights(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The two directions, as weights of the scores."""
        return self.direction(self.t[0]), self.direction(self.t[1])

    def holds(self, direction: tuple[float, ...]) -> bool:
        """Return whether a direction is between the two."""
        p, q = (sign * weight for sign, weight in zip(self.signs, direction, strict=True))
        one, other = (p, q) if self.chart == 0 else (q, p)
        return one > 0 and self.t[0] <= other / one <= self.t[1]


def cone_of(
    zones: Mapping[Signs, Sequence[Zone]], low: FloatArray, high: FloatArray
) -> Cone | None:
    """Return a cone around all zones; None if they are of several charts.

    No score is below `low` or above `high`.
    """
    charts = {(signs, zone.chart) for signs, some in zones.items() for zone in some}
    if len(charts) != 1 or max(np.abs(low).max(), np.abs(high).max()) > _LARGEST:
        return None
    ((signs, chart),) = charts
    ends = [t for zone in zones[signs] for t in zone.t]
    room = max(_ROOM * (max(ends) - min(ends)), _THINNEST * max(ends), _THINNEST**2)
    return Cone(signs, chart, (max(0.0, min(ends) - room), min(1.0, max(ends) + room)))


def cone_bins(cone: Cone, rows: FloatArray, low: FloatArray, high: FloatArray, bins: int) -> Bins:
    """Return bins of (a, b) in which some rows spread evenly.

    `low` and `high` are corners of cells, shape (cells, 2). What is beyond all of them gets bins
    of its own.
    """
    plain = Bins((), cone.weights)
    first, last = corners(low.T, high.T, cone.signs)
    ends = np.array(cone.signs)
    reach = np.vstack(
        [plain.values(first.T * ends).min(axis=0), plain.values(last.T * ends).max(axis=0)]
    )
    values = plain.values(rows)
    inside = values[((values >= reach[0]) & (values <= reach[1])).all(axis=1)]
    axes = (axis_for(column, bins) for column in np.vstack([inside, reach]).T)
    guarded = (_guarded(axis, float(end)) for axis, end in zip(axes, reach[1], strict=True))
    return Bins(tuple(guarded), cone.weights)


def _guarded(axis: Axis, last: float) -> Axis:
    """Put a bin before the first and one after the last value."""
    start = np.concatenate([[-np.finfo(np.float64).max], axis.start, [np.nextafter(last, np.inf)]])
    first = np.concatenate([[0], axis.first + 1, [axis.bins + 2]])
    return Axis(start, np.concatenate([[0.0], axis.scale, [0.0]]), first)


class Extents(NamedTuple):
    """Values of a and b of cells, shape (cells, 2), and how far rounding may put them off."""

    low: FloatArray
    high: FloatArray
    doubt: FloatArray

    @property
    def widened(self) -> tuple[FloatArray, FloatArray]:
        """The extents with all doubts."""
        doubt = self.doubt[:, None]
        return self.low - doubt, self.high + doubt


def extents_of_scores(cone: Cone, low: FloatArray, high: FloatArray) -> Extents:
    """Return the extents of cells of scores, given their corners."""
    first, last = corners(low.T, high.T, cone.signs)
    plain, ends = Bins((), cone.weights), np.array(cone.signs)
    size = np.maximum(np.abs(low), np.abs(high)).sum(axis=1)
    return Extents(
        plain.values(first.T * ends), plain.values(last.T * ends), _DOUBT * size + 1e-300
    )


def extents_of_values(cone: Cone, low: FloatArray, high: FloatArray) -> Extents:
    """Return the extents of cells of (a, b), given the least and the largest values there."""
    apart = np.maximum(np.abs(high[:, 1] - low[:, 0]), np.abs(low[:, 1] - high[:, 0]))
    along = apart / (cone.t[1] - cone.t[0])
    size = np.maximum(np.abs(low[:, 0]), np.abs(high[:, 0])) + 2 * along
    return Extents(low, high, _DOUBT * size + 1e-300)


def outer_points(cone: Cone, extents: Extents) -> tuple[FloatArray, FloatArray]:
    """Return points, shape (cells, 2), that are accepted before and after the rows of cells."""
    return _point(cone, extents.low, -extents.doubt / 4), _point(
        cone, extents.high, extents.doubt / 4
    )


def _point(cone: Cone, values: FloatArray, outwards: FloatArray) -> FloatArray:
    """Return the point with the values a and b, but for a shift of both."""
    (t0, t1), (a, b) = cone.t, values.T
    other = (b - a) / (t1 - t0)
    one = a - t0 * other + outwards
    point = np.array([one, other] if cone.chart == 0 else [other, one])
    return np.asarray(point.T * np.array(cone.signs))


class Bands(NamedTuple):
    """Cells as bands of lines, from ``first`` to ``last``."""

    cell: IntArray
    first: FloatArray
    """Shape (2, n): threshold in direction 0, moved outwards as rounding asks for; and slope."""
    last: FloatArray
    mass: IntArray
    """Shape (5 + sets, n): the masses of a grid, and then rows that can be fetched."""

    def take(self, places: IntArray) -> Bands:
        """Return some of the cells."""
        return Bands(
            self.cell.take(places),
            self.first.take(places, axis=1),
            self.last.take(places, axis=1),
            self.mass.take(places, axis=1),
        )


def bands_of(low: FloatArray, high: FloatArray, mass: IntArray, rows: IntArray) -> Bands:
    """Return cells with values from `low` to `high`, shape (cells, 2), in the two directions."""
    doubt = 4 * LINE_EPS * np.maximum(np.abs(low), np.abs(high)).sum(axis=1)
    first, last = (np.array([end[:, 0], end[:, 1] - end[:, 0]]) for end in (low, high))
    first[0] -= doubt
    last[0] += doubt
    return Bands(np.arange(len(low)), first, last, np.vstack([mass, rows]))


class _Arc(NamedTuple):
    ends: tuple[float, float]
    window: tuple[float, float]
    bands: Bands
    accepted: IntArray
    depth: int


class ConeSearch:
    """A search of bands, and what it found."""

    def __init__(self, bands: Bands, zones: Sequence[Zone], t: tuple[float, float]) -> None:
        """Search `zones`, which are of one chart and have directions between those of `t`."""
        middle = (bands.first[1] + bands.last[1]) / 2
        rows = bands.mass[-1]
        self._lean = float((middle * rows).sum() / max(1, rows.sum()))
        lean, doubt = (
            np.array([[0.0], [self._lean]]),
            np.array([[4 * LINE_EPS * abs(self._lean)], [0]]),
        )
        self._bands = bands._replace(
            first=bands.first - lean - doubt, last=bands.last - lean + doubt
        )
        self._place = (np.array([zone.t for zone in zones]) - t[0]) / (t[1] - t[0])
        self._edges = np.array([(zone.low, zone.high) for zone in zones])
        self.marked = np.zeros(len(bands.cell), bool)
        """Cells that may be crossed by something as good as the best known."""
        self.boxes = 0
        """Intervals of directions looked at."""
        self.judged = 0
        """Bands looked at in all of these."""

    def run(self, bound: BoxJudge, *, few: int, budget: int) -> bool:
        """Look at all directions; return whether that paid, else it ended amid them.

        After `budget` of intervals all that is left counts as open.
        """
        bands = self._bands
        # Cells of single rows have no width that ends the cutting.
        few = max(few, int(bands.mass[-1].sum()) // 1000)
        start, stop = (
            float(self._place.min()) - 4 * LINE_EPS,
            float(self._place.max()) + 4 * LINE_EPS,
        )
        nothing = np.zeros(len(bands.mass) - 1, np.int64)
        stack = [_Arc((start, stop), (-np.inf, np.inf), bands, nothing, 0)]
        spared = int(bands.mass[-1].sum())
        while stack:
            arc = stack.pop()
            self.boxes += 1
            self.judged += len(arc.bands.cell)
            if self.judged > max(BANDS, BANDS_A_ROW * spared):
                return False
            window = self._window(arc)
            if window is None:
                continue
            arc, first, last = _sifted(arc._replace(window=window))
            levels, alive = _alive(arc, first, last, bound)
            if not alive.any():
                continue
            crossed = _crossed(first, last, levels, alive)
            if self.boxes >= budget or self._done(arc, first, last, crossed, few):
                spared -= self._mark(arc.bands.take(np.flatnonzero(crossed)))
                continue
            some = np.flatnonzero(alive)
            end = np.append(levels, window[1])[some[-1] + 1]
            left = arc._replace(window=(float(levels[some[0]]), float(end)))
            stack.extend(_halves(left))
        return True

    def _mark(self, bands: Bands) -> int:
        """Mark the cells of bands, and return how many rows are marked anew."""
        new = ~self.marked[bands.cell]
        self.marked[bands.cell] = True
        return int(bands.mass[-1][new].sum())

    def _window(self, arc: _Arc) -> tuple[float, float] | None:
        """Return the thresholds of all zones in the arc; None if there are none."""
        start, stop = self._place.T
        # The places of zones are rounded.
        begin = np.maximum(start - 4 * LINE_EPS, arc.ends[0])
        end = np.minimum(stop + 4 * LINE_EPS, arc.ends[1])
        met = np.flatnonzero(begin <= end)
        if len(met) == 0:
            return None
        part = np.array([begin - 16 * LINE_EPS, end + 16 * LINE_EPS])[:, met] - start[met]
        part = np.clip(part / np.maximum(stop[met] - start[met], 1e-300), 0, 1)
        low, high = (
            edge[:, 0] + part * (edge[:, 1] - edge[:, 0])
            for edge in (self._edges[met, 0], self._edges[met, 1])
        )
        lean = self._lean * np.array([begin, end])[:, met]
        room = 16 * LINE_EPS * (np.abs(self._edges).max() + abs(self._lean))
        window = (
            max(arc.window[0], float((low - lean).min()) - room),
            min(arc.window[1], float((high - lean).max()) + room),
        )
        return window if window[0] <= window[1] else None

    def _done(
        self,
        arc: _Arc,
        first: FloatArray,
        last: FloatArray,
        crossed: BoolArray,
        few: int,
    ) -> bool:
        """Return whether cutting the arc would hardly leave fewer rows to look at."""
        bands, (start, stop) = arc.bands, arc.ends
        rows = bands.mass[-1][crossed]
        if arc.depth >= _DEEPEST or int(rows.sum()) <= few:
            return True
        middle = start + (stop - start) / 2
        if not start < middle < stop:
            return True
        high, low = (end[0] + middle * end[1] for end in (bands.last, bands.first))
        there, whole = ((b - a)[crossed] @ rows for a, b in ((low, high), (first, last)))
        return bool(whole - there <= _ENOUGH * whole)


def _sifted(arc: _Arc) -> tuple[_Arc, FloatArray, FloatArray]:
    """Leave the bands that cross the window, and return where they begin and end."""
    start, stop = arc.ends
    bands, (low, high) = arc.bands, arc.window
    first, last = bands.first, bands.last
    begin = np.minimum(first[0] + start * first[1], first[0] + stop * first[1])
    end = np.maximum(last[0] + start * last[1], last[0] + stop * last[1])
    inside = end <= low
    kept = np.flatnonzero(~inside & (begin <= high))
    below = bands.mass[:-1].take(np.flatnonzero(inside), axis=1).sum(axis=1)
    arc = arc._replace(bands=bands.take(kept), accepted=arc.accepted + below)
    return arc, begin.take(kept), end.take(kept)


def _alive(
    arc: _Arc, first: FloatArray, last: FloatArray, bound: BoxJudge
) -> tuple[FloatArray, BoolArray]:
    """Return where masses change, and whether something good may be from there to the next."""
    low, high = arc.window
    mass = arc.bands.mass[:-1]
    levels = np.concatenate([[low], first[first > low], last[last <= high]])
    levels.sort()
    begun, ended = (_sums(mass, at, levels) for at in (first, last))
    return levels, bound.alive_each(arc.accepted[:, None] + ended, begun - ended)


def _sums(mass: IntArray, at: FloatArray, levels: FloatArray) -> IntArray:
    """Return the masses at or below each level."""
    order = np.argsort(at)
    total = np.zeros((len(mass), len(at) + 1), np.int64)
    np.cumsum(mass.take(order, axis=1), axis=1, out=total[:, 1:])
    return total.take(np.searchsorted(at.take(order), levels, side="right"), axis=1)


def _crossed(
    first: FloatArray, last: FloatArray, levels: FloatArray, alive: BoolArray
) -> BoolArray:
    """Return which bands cross some of the thresholds that are left."""
    before = np.concatenate([[0], np.cumsum(alive)])
    # From the piece in which a band begins up to the one that begins where it ends.
    begin = np.maximum(np.searchsorted(levels, first, side="right") - 1, 0)
    end = np.searchsorted(levels, last, side="left")
    return np.asarray(before[np.maximum(end, begin)] > before[begin])


def _halves(arc: _Arc) -> list[_Arc]:
    (start, stop), depth = arc.ends, arc.depth + 1
    middle = start + (stop - start) / 2
    return [arc._replace(ends=ends, depth=depth) for ends in ((start, middle), (middle, stop))]
