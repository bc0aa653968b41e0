"""Box rules on a source: cells are counted, and the rows fetched among which the limits lie.

The bins of each score are *strips*. Boxes whose limits end strips are exact by counts alone, and
the best of them is the incumbent. Other boxes have both limits inside of strips; by the masses
below these two strips, and in them, most pairs of strips can hold nothing as good as the incumbent.
What is left are open pairs. A box with its limits in an open pair (i, j) passes through the cells
of strip i up to strip j, and of strip j up to strip i: the rows of these are fetched. All other
cells are on one side of it, and stand as two corners each, as with half-planes: what is said in
`demur.tuning.streamed.tune` holds for boxes word by word, which accept more the larger their limits
are. So the search in memory over the fetched rows and the corners finds the optimum of all rows.
"""

from __future__ import annotations

import numpy as np

from demur._arrays import BoolArray, IntArray
from demur.core.points import Points
from demur.core.program import Program
from demur.tuning.boxes import Box, BoxFinder
from demur.tuning.result import Exact, SearchCertificate
from demur.tuning.streamed.cells import ID as ID_MASS
from demur.tuning.streamed.cells import LOSS as LOSS_MASS
from demur.tuning.streamed.cells import CellGrid, first_and_last, joined, split_ood
from demur.tuning.streamed.search import BoxJudge, best_known, best_of, known
from demur.tuning.streamed.tune import Streamed

# Strips of a score that are told apart at most: pairs of them are judged all at once.
_MOST_STRIPS = 1024


def find_box(
    stream: Streamed, program: Program, search: Exact
) -> tuple[Box | None, SearchCertificate]:
    """Return the best box over all rows of a source; None if none meets the bounds."""
    stream.layers.forget_finer()
    grid = stream.grid
    crossed = _crossed(stream, program, _strips(grid))
    # A cell of a single pair of scores is as good as its rows.
    wide: BoolArray = np.any(grid.low < grid.high, axis=1)
    fetched = crossed & wide
    stream.layers.check_size(int(grid.rows[fetched].sum()))
    rows = stream.layers.fetch(grid, fetched)
    alone, rest = grid.take(~wide), grid.take(wide & ~crossed)
    totals = stream.totals
    points = joined(
        [rows, _points(alone, stream), *first_and_last(rest.low, rest.high, rest.mass, totals)],
        totals,
    )
    return BoxFinder(stream.prepared(points)).find(program, search)


def _strips(grid: CellGrid) -> tuple[IntArray, IntArray]:
    """Return the strips that each cell is in; those without rows are left out."""
    found = []
    for place in (*grid.place, np.zeros(len(grid.key), np.int64))[:2]:
        _, strip = np.unique(place, return_inverse=True)
        several = -(-(int(strip.max(initial=0)) + 1) // _MOST_STRIPS)
        found.append(strip.reshape(-1) // several)
    return found[0], found[1]


def _crossed(stream: Streamed, program: Program, strips: tuple[IntArray, IntArray]) -> BoolArray:
    """Return the cells that boxes pass through which may be as good as the best known."""
    x, y = strips
    if len(x) == 0:
        return np.zeros(0, bool)
    shape = int(x.max()) + 1, int(y.max()) + 1
    mass = stream.grid.mass
    below = np.zeros((len(mass), shape[0] + 1, shape[1] + 1), np.int64)
    for table, row in zip(below, mass, strict=True):
        np.add.at(table, (x + 1, y + 1), row)
    np.cumsum(below, axis=1, out=below)
    np.cumsum(below, axis=2, out=below)
    low, high = (part.reshape(len(mass), -1) for part in (below[:, :-1, :-1], below[:, 1:, 1:]))
    found = [best_of(program, stream.layout, high)]
    if program.reject_all:
        found.append(known(program, 0, 0, 0))
    judge = BoxJudge(program, stream.measure.price, best_known(program, found), stream.layout)
    is_open = judge.alive_each(low, high - low).reshape(shape)
    up_to = [
        np.where(is_open, np.arange(shape[1]), -1).max(axis=1),
        np.where(is_open, np.arange(shape[0])[:, None], -1).max(axis=0),
    ]
    crossed: BoolArray = (y <= up_to[0][x]) | (x <= up_to[1][y])
    return crossed


def _points(cells: CellGrid, stream: Streamed) -> Points:
    """Return cells of a single pair of scores as points."""
    ood, groups = split_ood(cells.mass, len(stream.totals.ood))
    masses = cells.mass[ID_MASS], ood, cells.mass[LOSS_MASS]
    return Points(cells.low, *masses, stream.totals, of_groups=groups)
