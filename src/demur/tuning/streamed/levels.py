"""Bounds on a grid of levels, and boxes of half-planes judged by all of them at once.

A half-plane that is best under some bounds is also best under the tightest of the grid that it
meets: tightening only takes rivals away. So it is as good as the *incumbent* there, anything
known to meet those bounds. Of the half-planes in a box it is known between which levels their
masses lie; the box is judged by the incumbent of the tightest bounds that any of them may meet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import BoolArray, IntArray
from demur.core.program import Program
from demur.tuning.settle import Rules
from demur.tuning.streamed.bound import Bound, Incumbent
from demur.tuning.streamed.cells import ID, OOD


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """All pairs of a bound on ID mass from below and bounds on OOD masses from above."""

    min_id: IntArray
    """Ascending, shape (rows,)."""
    max_ood: IntArray
    """Ascending, shape (sets, columns)."""

    @property
    def shape(self) -> tuple[int, int]:
        """How many bounds there are."""
        return len(self.min_id), self.max_ood.shape[1]

    def program(self, program: Program, row: int, column: int) -> Program:
        """Return the program with one pair of bounds."""
        bounds = tuple(int(level) for level in self.max_ood[:, column])
        return replace(program, min_id=int(self.min_id[row]), max_ood=bounds)


class LevelsBound(Bound):
    """Judges boxes under all pairs of bounds; `best` and `cells` are the incumbents."""

    def __init__(
        self, program: Program, price: float, levels: Levels, best: Rules, cells: IntArray
    ) -> None:
        self._asked, self._price, self._levels = program, price, levels
        self._known = [Incumbent(*masses) for masses in np.stack(best[:3]).T.tolist()]
        self._cells = cells
        self._bounds: dict[tuple[int, int], Bound] = {}

    def alive(self, accepted: IntArray, crossing: IntArray) -> bool:
        """Return whether a box with these masses may hold what is best under some bounds."""
        min_id, max_ood = self._levels.min_id, self._levels.max_ood
        row = int(np.searchsorted(min_id, accepted[ID] + crossing[ID], side="right")) - 1
        column = max(
            int(np.searchsorted(levels, mass))
            for levels, mass in zip(max_ood, accepted[OOD:], strict=True)
        )
        if row < 0 or column == max_ood.shape[1]:
            return False
        sure = max(0, int(np.searchsorted(min_id, accepted[ID], side="right")) - 1)
        return self._bound(sure, int(self._cells[row, column])).alive(accepted, crossing)

    def alive_each(self, accepted: IntArray, crossing: IntArray) -> BoolArray:
        """Return the same for many boxes; masses have shape (4 + sets, boxes)."""
        pairs = zip(accepted.T, crossing.T, strict=True)
        return np.array([self.alive(below, across) for below, across in pairs], bool)

    def _bound(self, row: int, known: int) -> Bound:
        """Return what judges by an incumbent, with the bounds that all in a box must meet."""
        if (row, known) not in self._bounds:
            program = self._levels.program(self._asked, row, -1)
            best = self._known[known] if known >= 0 else None
            self._bounds[row, known] = Bound(program, self._price, best)
        return self._bounds[row, known]
