"""One score on a source: which cells must be looked into, and the points that stand for all rows.

Cells of one score are intervals one after the other, so every end of a cell is an exact operating
point, and the optimum is at such an end or inside a cell that may hold something better.
"""

from __future__ import annotations

import numpy as np

from demur._arrays import BoolArray
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.tuning.streamed.cells import ID, LOSS, OOD, CellGrid, Layers, joined
from demur.tuning.streamed.search import BoxJudge, best_known, best_of, known

# How often cells are cut into finer ones at most.
REFINEMENTS = 3


def one_score_points(grid: CellGrid, layers: Layers, program: Program) -> Points:
    """Return points whose best threshold is the best of all rows, refining cells if need be."""
    price = layers.measure.price
    marked = _mark_one(grid, program, price)
    for _ in range(REFINEMENTS):
        if int(grid.rows[marked].sum()) <= layers.plan.fetched:
            break
        grid = layers.refine(grid, marked)
        marked = _mark_one(grid, program, price)
    layers.check_size(int(grid.rows[marked].sum()))
    return points_of_one(grid, marked, layers.fetch(grid, marked), layers.totals)


def _mark_one(grid: CellGrid, program: Program, price: float) -> BoolArray:
    """Return which cells may hold the optimum inside."""
    order = np.argsort(grid.low[:, 0], kind="stable")
    total = np.cumsum(grid.mass[:, order], axis=1)
    found = [best_of(program, total[ID], total[OOD:], total[LOSS])]
    found += [known(program, 0, 0, 0)] if program.reject_all else []
    return mark_cells(grid, BoxJudge(program, price, best_known(program, found)))


def mark_cells(grid: CellGrid, bound: BoxJudge) -> BoolArray:
    """Return which cells of one score may hold something as good as the best known inside."""
    order = np.argsort(grid.low[:, 0], kind="stable")
    mass = grid.mass[:, order]
    before = np.cumsum(mass, axis=1) - mass
    marked = np.zeros(len(order), bool)
    for place in np.flatnonzero((grid.low < grid.high)[order, 0]):
        marked[order[place]] = bound.alive(before[:, place], mass[:, place])
    return marked


def points_of_one(grid: CellGrid, marked: BoolArray, rows: Points, totals: Totals) -> Points:
    """Return the rows of marked cells, and both ends of every other cell.

    As with two scores, ID mass is put at the end accepted last, OOD and loss mass at the other.
    """
    rest = grid.take(~marked)
    none, nothing = np.zeros(len(rest.key), np.int64), np.zeros_like(rest.mass[OOD:])
    first = Points(rest.low, none, rest.mass[OOD:], rest.mass[LOSS], totals)
    last = Points(rest.high, rest.mass[ID], nothing, none, totals)
    return joined([rows, first, last], totals)
