"""Every operating point of a sample, in batches.

The operating points come as an iterable of batches, so that another enumeration can take the
place of the one here: what is done with them needs only the masses and, for the few points
that are kept, a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._kernels import reference
from demur.core.points import Points
from demur.core.scores import combine, midway
from demur.errors import InvalidInputError
from demur.tuning.boundary import Lines, settled_lines
from demur.tuning.directions import Directions, Quarter, direction_set, grid_directions
from demur.tuning.result import Exact, Grid

Search = Exact | Grid | None


class RuleBatch(NamedTuple):
    """Accepted masses of some rules, and their lines on request."""

    id: IntArray
    ood: IntArray
    """Shape (sets, n)."""
    loss: IntArray
    lines: Lines


def operating_points(
    points: Points, directions: Directions, search: Search, *, settled: bool = False
) -> Iterator[RuleBatch]:
    """Yield the operating points of all rules with the allowed directions.

    Left out are rules whose last accepted point has no ID mass: giving it up costs nothing.
    Where directions are not swept the lines are not settled yet. With `settled` they are, at
    the price of a pass over the points for each line asked for.
    """
    if is_swept(points, search):
        for direction in swept_directions(points, directions, search):
            yield _swept(points, direction)
        return
    for chart in direction_set(directions).charts:
        x, y = chart.coordinates(points.scores)
        merged = reference.merge(x, y, points.id, points.ood, points.loss)
        for cells in reference.pivot_cells(merged):
            batch = RuleBatch(cells.id, cells.ood, cells.loss, cell_lines(chart, merged, cells))
            if settled:
                total = cells.ood.sum(axis=0)
                lines = settled_lines(points, batch.lines, batch.id, total, batch.loss, directions)
                batch = batch._replace(lines=lines)
            yield batch


def is_swept(points: Points, search: Search) -> bool:
    """Return whether directions are swept one by one, which gives final thresholds."""
    if search is not None and not isinstance(search, (Exact, Grid)):
        raise InvalidInputError(f"search must be Exact() or Grid(angles), got {search!r}")
    return points.scores.shape[1] == 1 or isinstance(search, Grid)


def swept_directions(
    points: Points, directions: Directions, search: Search
) -> list[tuple[float, ...]]:
    """Return the directions to sweep: the only one of one score, or the grid."""
    allowed = direction_set(directions)
    if isinstance(search, Grid) and points.scores.shape[1] == 2:
        return [*grid_directions(allowed, search.angles)]
    return [(1.0,)]


def sweep_along(points: Points, direction: tuple[float, ...]) -> tuple[reference.Sweep, FloatArray]:
    """Return the sweep in one direction and the thresholds midway to the next value."""
    values = combine(direction, points.scores)
    swept = reference.sweep(values, points.id, points.ood, points.loss)
    return swept, midway(swept.value, np.append(swept.value[1:], np.inf)[: len(swept.value)])


def cell_lines(chart: Quarter, merged: reference.Merged, cells: reference.PivotCells) -> Lines:
    """Return the lines through the pivot, one amid the directions of each cell."""
    axes = np.array([chart.start, chart.stop], float)
    x, y = merged.x[cells.pivot], merged.y[cells.pivot]

    def lines(rows: IntArray) -> FloatArray:
        weights = reference.weights_between(cells.low[rows], cells.high[rows])
        return np.column_stack([weights @ axes, reference.along(weights.T, x, y)])

    return lines


def _swept(points: Points, direction: tuple[float, ...]) -> RuleBatch:
    swept, thresholds = sweep_along(points, direction)

    def lines(rows: IntArray) -> FloatArray:
        return np.column_stack([np.tile(direction, (len(rows), 1)), thresholds[rows]])

    return RuleBatch(swept.id, swept.ood, swept.loss, lines)
