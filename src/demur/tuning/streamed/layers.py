"""Layers of ever finer cells, and the rows fetched from them."""

from __future__ import annotations

import math

import numpy as np

from demur._arrays import BoolArray, IntArray
from demur.core.bins import Bins
from demur.core.points import Points
from demur.core.program import Totals
from demur.core.source import Cells, Measure, ScoreSource
from demur.errors import InvalidInputError
from demur.tuning.streamed.cells import Grid, grid_of, refined
from demur.tuning.streamed.cloud import joined, no_points, points_of
from demur.tuning.streamed.plan import Plan


class Layers:
    """Bins of all layers, the coarsest first; a cell of a grid knows its layer as `level`."""

    def __init__(
        self, source: ScoreSource, measure: Measure, totals: Totals, plan: Plan, bins: Bins
    ) -> None:
        self.source, self.measure, self.totals, self.plan = source, measure, totals, plan
        self.bins: list[Bins] = [bins]
        self._held: dict[int, tuple[IntArray, Points]] = {}

    def forget_finer(self) -> None:
        """Keep the first layer only: the others are cut where one search needed it."""
        del self.bins[1:]
        self._held = {level: held for level, held in self._held.items() if level == 0}

    def refine(self, grid: Grid, marked: BoolArray) -> Grid:
        """Look closer into marked cells, by another histogram."""
        level, bins = len(self.bins) - 1, self.bins[-1]
        marked = marked & (grid.level == level)
        # Cells of a few rows are as good as the rows.
        crowd = grid.rows[marked].sum() / max(1, marked.sum())
        finer = bins.refined(2 ** int(np.clip(math.log2(max(crowd, 1) / 4) / 2, 1, 3)))
        within = Cells(bins, np.sort(grid.key[marked]))
        counted = self.source.histogram(finer, self.measure, within=within)
        self.bins.append(finer)
        return refined(grid.take(~marked), bins, grid_of(counted, finer, level + 1), finer)

    def check_size(self, rows: int) -> None:
        """Raise unless so many rows can be held."""
        if rows > self.plan.fetched:
            raise InvalidInputError(
                f"{rows:,} rows would have to be held to tell the optimum from its rivals, and "
                f"the memory of {self.source.memory:,} bytes allows {self.plan.fetched:,}: "
                "allow more memory, or tune on a sample"
            )

    def fetch(self, grid: Grid, marked: BoolArray) -> Points:
        """Return the rows of marked cells; those of the last search may serve again."""
        parts = [no_points(len(self.source.score_names), self.measure.columns, self.totals)]
        for level, bins in enumerate(self.bins):
            keys = np.sort(grid.key[marked & (grid.level == level)])
            if len(keys):
                parts.append(self._rows(level, bins, keys))
        return joined(parts, self.totals)

    def _rows(self, level: int, bins: Bins, keys: IntArray) -> Points:
        held, points = self._held.get(level, (keys[:0], None))
        new = np.setdiff1d(keys, held, assume_unique=True)
        if points is None or len(new):
            points = points_of(self.source.rows(Cells(bins, keys)), self.measure, self.totals)
            self._held[level] = (keys, points)
            return points
        inside = np.isin(bins.key(points.scores), keys)
        return Points(
            points.scores[inside],
            points.id[inside],
            points.ood[:, inside],
            points.loss[inside],
            self.totals,
        )
