"""Every operating point of a sample, in batches, and the best of them as a staircase.

The operating points come as an iterable of batches, so that another enumeration can take the
place of the one here: what is done with them needs only the masses and, for the few points
that are kept, a line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._kernels import reference
from demur.core.points import Points
from demur.core.scores import combine, midway
from demur.errors import InvalidInputError
from demur.tuning.charts import Chart, Directions, direction_set
from demur.tuning.double import grid_directions
from demur.tuning.result import Exact, Grid
from demur.tuning.settle import Lines, Rules, settle, settled_lines

Search = Exact | Grid | None
Cost = Callable[[IntArray, IntArray, IntArray], FloatArray]
"""What must be small, from accepted ID, OOD and loss mass."""


class Batch(NamedTuple):
    """Accepted masses of some rules, and their lines on request."""

    id: IntArray
    ood: IntArray
    """Shape (sets, n)."""
    loss: IntArray
    lines: Lines


def operating_points(
    points: Points, directions: Directions, search: Search, *, settled: bool = False
) -> Iterator[Batch]:
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
            batch = Batch(cells.id, cells.ood, cells.loss, cell_lines(chart, merged, cells))
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


def cell_lines(chart: Chart, merged: reference.Merged, cells: reference.Cells) -> Lines:
    """Return the lines through the pivot, one amid the directions of each cell."""
    axes = np.array([chart.start, chart.stop], float)
    x, y = merged.x[cells.pivot], merged.y[cells.pivot]

    def lines(rows: IntArray) -> FloatArray:
        weights = reference.weights_between(cells.low[rows], cells.high[rows])
        return np.column_stack([weights @ axes, weights[:, 0] * x + weights[:, 1] * y])

    return lines


def staircase(points: Points, directions: Directions, search: Search, cost: Cost) -> Rules:
    """Return, for each bound from below on ID mass, the rule of least cost.

    Rules come by rising ID mass. Equal costs go to the larger ID mass, then the smaller OOD
    mass. An infinite cost bars a rule.
    """
    none = Rules.none(points.scores.shape[1])
    found = _pareto(operating_points(points, directions, search), cost, none)
    if is_swept(points, search):
        return found
    found, settled = settle(points, found, directions)
    if settled.all():
        return found
    batches = operating_points(points, directions, search, settled=True)
    return _pareto(batches, cost, found.take(settled))


def _swept(points: Points, direction: tuple[float, ...]) -> Batch:
    swept, thresholds = sweep_along(points, direction)

    def lines(rows: IntArray) -> FloatArray:
        return np.column_stack([np.tile(direction, (len(rows), 1)), thresholds[rows]])

    return Batch(swept.id, swept.ood, swept.loss, lines)


def _pareto(batches: Iterable[Batch], cost: Cost, known: Rules) -> Rules:
    """Return the rules, by rising ID mass, that no other beats in both ID mass and cost."""
    best, best_cost = known, cost(known.id, known.ood, known.loss)
    for batch in batches:
        nO, some = batch.ood.sum(axis=0), batch.id > 0
        price = np.full(len(nO), np.inf)
        price[some] = cost(batch.id[some], nO[some], batch.loss[some])
        # The cheapest known rule with at least as much ID mass comes next in the staircase.
        rival = np.searchsorted(best.id, batch.id)
        rival_cost = np.append(best_cost, np.inf)[rival]
        same = (price == rival_cost) & (batch.id == np.append(best.id, 0)[rival])
        fewer = same & (nO < np.append(best.ood, 0)[rival])
        rows = np.flatnonzero((price < rival_cost) | fewer)
        if len(rows) == 0:
            continue
        new = Rules(batch.id[rows], nO[rows], batch.loss[rows], batch.lines(rows))
        found = new.found()
        joint, price = Rules.joined(best, new.take(found)), np.append(best_cost, price[rows[found]])
        kept = undominated(joint.id, price, joint.ood)
        best, best_cost = joint.take(kept), price[kept]
    return best


def undominated(nI: IntArray, cost: FloatArray, nO: IntArray) -> IntArray:
    """Return the rows, by rising ID mass, that none beats in ID mass and cost."""
    order = np.lexsort((nO, cost, -nI))
    falling = cost[order]
    least_before = np.minimum.accumulate(np.append(np.inf, falling[:-1]))
    kept: IntArray = order[falling < least_before][::-1]
    return kept
