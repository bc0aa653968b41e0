"""A closer look at marked cells of scores: their rows counted again, in cells of a cone.

Where all directions that may be the best are nearly the same, cells that are thin across them
(`cone`) tell much more of the rows than as many cells of scores. The rows of marked cells are
counted in such cells, the search goes on in the zones that survived, and only the rows of cells
that it still marks are fetched; of the others, two points are enough. The proof in `solve` holds
for the directions of the cone, outside of which no half-plane is as good as the best one known.
So the answer counts if its direction is in the cone. Otherwise nothing is returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.core.bins import Bins
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.core.source import Cells, Histogram, Measure, Overview, ScoreSource
from demur.tuning import double
from demur.tuning.charts import direction_set
from demur.tuning.line import Line
from demur.tuning.prepared import Prepared
from demur.tuning.result import Certificate, Exact
from demur.tuning.streamed.bound import Bound, Incumbent
from demur.tuning.streamed.cells import Grid
from demur.tuning.streamed.cloud import Signs, cloud, joined, points_of, turned
from demur.tuning.streamed.cone import (
    Cone,
    Extents,
    cone_bins,
    cone_of,
    extents_of_scores,
    extents_of_values,
    outer_points,
)
from demur.tuning.streamed.fan import best_on, strips_in
from demur.tuning.streamed.opened import Opened
from demur.tuning.streamed.plan import Plan
from demur.tuning.streamed.sweep import Bands, Sweep, bands_of

_NONNEG = direction_set("nonneg")


@dataclass(frozen=True, slots=True, eq=False)
class Closer:
    """What a closer look needs to know of a source."""

    source: ScoreSource
    overview: Overview
    measure: Measure
    totals: Totals
    plan: Plan
    drawn: FloatArray
    """Finite scores of a sample."""
    prepared: Callable[[Points, Signs], Prepared]

    def look(
        self, program: Program, best: Incumbent | None, opened: Opened, bins: Bins, search: Exact
    ) -> tuple[Line | None, Certificate] | None:
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
        strips = strips_in(cone, zones, marked, rest, program)
        counted = self.source.histogram(thin, self.measure, strips=strips, within=within)
        known = [best, best_on(strips, counted.profiles, rest, cone, program)]
        best = min(filter(None, known), key=lambda one: one.rank(program), default=None)
        extents = extents_of_values(cone, counted.low, counted.high)
        sweep = Sweep(_bands(cone, rest, counted, extents), zones, cone.t)
        sweep.run(
            Bound(program, self.measure.price, best), few=self.plan.few, budget=self.plan.boxes
        )
        # Cells of scores that are not marked are known not to be crossed.
        crossed = sweep.marked[len(rest.key) :]
        if int(counted.rows[crossed].sum()) > self.plan.fetched:
            return None
        outer = _outer(counted, outer_points(cone, extents), self.totals)
        parts = [self._rows(Cells(thin, counted.key[crossed]), within)]
        parts += [_some(points, ~crossed) for points in outer]
        points = self._cloud(cone, opened, joined(parts, self.totals))
        line, certificate = double.search_exact(
            self.prepared(points, cone.signs), program, _NONNEG, search
        )
        certificate = replace(certificate, boxes=certificate.boxes + opened.boxes + sweep.boxes)
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
        return _some(rows, np.isin(within.bins.key(rows.scores), within.key))


def _outer(
    counted: Histogram, points: tuple[FloatArray, FloatArray], totals: Totals
) -> list[Points]:
    """Return OOD and loss masses of cells where they are accepted first, ID masses last."""
    none, nothing = np.zeros_like(counted.id), np.zeros_like(counted.ood)
    return [
        Points(points[0], none, counted.ood, counted.loss, totals),
        Points(points[1], counted.id, nothing, none, totals),
    ]


def _some(points: Points, kept: BoolArray) -> Points:
    return replace(
        points,
        scores=points.scores[kept],
        id=points.id[kept],
        ood=points.ood[:, kept],
        loss=points.loss[kept],
    )


def _bands(cone: Cone, rest: Grid, counted: Histogram, extents: Extents) -> Bands:
    """Return cells of scores that are not marked, and then those of the cone."""
    ends = [extents_of_scores(cone, rest.low, rest.high).widened, extents.widened]
    low, high = (np.vstack(end) for end in zip(*ends, strict=True))
    columns = (counted.id, counted.loss, counted.cheap_id, counted.cheap_loss)
    mass = np.hstack([rest.mass, np.vstack([*columns, counted.ood])])
    return bands_of(low, high, mass, np.append(np.zeros_like(rest.rows), counted.rows))
