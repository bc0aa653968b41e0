"""A closer look at marked cells of scores: their rows counted again, in cells of a cone.

Where all directions that may be the best are nearly the same, cells that are thin across them
(`cone`) tell much more of the rows than as many cells of scores. The rows of marked cells are
counted in such cells, the search goes on in the zones that survived, and only the rows of cells
that it still marks are fetched; of the others, two points are enough. The proof in `tune` holds
for the directions of the cone, outside of which no half-plane is as good as the best one known.
So the answer counts if its direction is in the cone. Otherwise nothing is returned.

Where in a cone to look for a better half-plane: cells of scores, taken as if all their rows were
in the middle, tell about how good the best threshold of a direction is. That is smooth in the
direction where many rows are counted, so the lowest point of a parabola is a good guess. Strips
there are counted exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._kernels.numpy_engine.bounds import Best
from demur._kernels.numpy_engine.boxes import Zone
from demur.core.bins import Bins
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
    cloud,
    corners,
    first_and_last,
    joined,
    points_of,
    some_points,
    table_of,
    turned,
)
from demur.tuning.streamed.cone import (
    Bands,
    Cone,
    ConeSearch,
    Extents,
    bands_of,
    cone_bins,
    cone_of,
    extents_of_scores,
    extents_of_values,
    outer_points,
)
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.search import BoxJudge, Opened, best_known, best_of
from demur.tuning.tune import search_exact

_NONNEG = DIRECTION_SETS["nonneg"]
# Directions that are tried on cells, and thresholds that are counted in the best of them.
_DIRECTIONS = 13
_STEPS = 1024


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
        within_cone.run(
            BoxJudge(program, self.measure.price, best, layout),
            few=self.plan.few,
            budget=self.plan.boxes,
        )
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
