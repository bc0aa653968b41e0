"""One score: which cells must be looked into, and the points that stand for all rows.

Cells of one score are intervals one after the other, so every end of a cell is an exact operating
point, and the optimum is at such an end or inside a cell that may hold something better.
"""

from __future__ import annotations

import numpy as np

from demur._arrays import BoolArray
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.tuning.streamed.bound import Bound, Incumbent, best_of
from demur.tuning.streamed.cells import ID, LOSS, OOD, Grid
from demur.tuning.streamed.cloud import joined


def mark_one(grid: Grid, program: Program, price: float) -> BoolArray:
    """Return which cells may hold the optimum inside."""
    order = np.argsort(grid.low[:, 0], kind="stable")
    mass = grid.mass[:, order]
    total = np.cumsum(mass, axis=1)
    known = [best_of(program, total[ID], total[OOD:], total[LOSS])]
    known += [Incumbent(0, 0, 0)] if program.reject_all else []
    best = min(filter(None, known), key=lambda one: one.rank(program), default=None)
    bound = Bound(program, price, best)
    before = total - mass
    marked = np.zeros(len(order), bool)
    for place in np.flatnonzero((grid.low < grid.high)[order, 0]):
        marked[order[place]] = bound.alive(before[:, place], mass[:, place])
    return marked


def points_of_one(grid: Grid, marked: BoolArray, rows: Points, totals: Totals) -> Points:
    """Return the rows of marked cells, and both ends of every other cell.

    As with two scores, ID mass is put at the end accepted last, OOD and loss mass at the other.
    """
    rest = grid.take(~marked)
    none, nothing = np.zeros(len(rest.key), np.int64), np.zeros_like(rest.mass[OOD:])
    first = Points(rest.low, none, rest.mass[OOD:], rest.mass[LOSS], totals)
    last = Points(rest.high, rest.mass[ID], nothing, none, totals)
    return joined([rows, first, last], totals)
