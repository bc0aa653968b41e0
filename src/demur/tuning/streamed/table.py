"""Which rule is best for which pair of bounds, as far as that is known.

A rule that is best under loose bounds stays best under all tighter ones that it meets, so each
rule that is found settles a rectangle of bounds.
"""

from __future__ import annotations

import numpy as np

from demur._arrays import IntArray
from demur.tuning.line import Line
from demur.tuning.settle import Rules
from demur.tuning.streamed.levels import Levels

_OPEN, _UNABLE = -2, -1


class Table:
    """Filled in from loose bounds to tight ones."""

    def __init__(self, levels: Levels) -> None:
        self._levels = levels
        self.cells: IntArray = np.full(levels.shape, _OPEN)
        self.found: list[Line] = []

    def is_open(self, row: int, column: int) -> bool:
        """Return whether the rule for a pair of bounds is still to be found."""
        return bool(self.cells[row, column] == _OPEN)

    def settle(self, row: int, column: int, line: Line | None) -> None:
        """Hand the best line of a pair of bounds, or that there is none, to all it holds for."""
        if line is None:
            self._set(self.cells[row:, : column + 1], _UNABLE)
            return
        max_ood = self._levels.max_ood
        last = int(np.searchsorted(self._levels.min_id, line.id, side="right"))
        # Several sets are not told apart in what a line accepts.
        first = column if len(max_ood) > 1 else int(np.searchsorted(max_ood[0], line.ood))
        self._set(self.cells[row:last, first : column + 1], len(self.found))
        self.found.append(line)

    @staticmethod
    def _set(cells: IntArray, value: int) -> None:
        cells[cells == _OPEN] = value


def rules_of(lines: list[Line], scores: int) -> Rules:
    """Return lines as rules."""
    if not lines:
        return Rules.none(scores)
    masses = np.array([(line.id, line.ood, line.loss) for line in lines], np.int64).T
    weights = np.array([(*line.direction, line.threshold) for line in lines])
    return Rules(masses[0], masses[1], masses[2], weights)
