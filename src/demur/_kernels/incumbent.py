"""The best cells found so far: compared on integers, proved on all points."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels import exact
from demur._kernels.bound import Best, Problem
from demur._kernels.leaf import Cells
from demur._kernels.lines import Chart
from demur._kernels.tree import ID, LOSS, OOD, TAG, Tree

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

# Equally good cells kept; fewer when each takes long to prove.
_MOST = 256
_WORK = 50_000_000


class Program(NamedTuple):
    """The integer program; see `demur.core.program`."""

    objective: _Ints
    per_id: bool
    min_id: int
    max_ood: _Ints
    ratio: _Ints

    def problem(self) -> Problem:
        """Return it in float64."""
        loss, id_, ood = (float(c) for c in self.objective)
        bounds = self.max_ood.astype(np.float64), self.ratio.astype(np.float64)
        return Problem(loss, id_, ood, self.per_id, self.min_id, *bounds)


class HalfPlane(NamedTuple):
    """A half-plane with a point (t, v) well inside its cell."""

    weights: _Floats
    v: float
    room: float
    mass: _Floats


class Incumbent:
    """The best cells so far, equal in value, nI and nO; `best` is None until one is feasible."""

    def __init__(self, tree: Tree, program: Program) -> None:
        self.best: Best | None = None
        self._tree = tree
        self._program = program
        self._most = int(np.clip(_WORK // max(tree.points, 1), 8, _MOST))
        # By tag, which identifies the accepted set.
        self._cells: dict[float, HalfPlane] = {}
        self._failed: dict[float, float] = {}

    @property
    def full(self) -> bool:
        """Return whether enough equally good cells are known."""
        return len(self._cells) >= self._most

    @property
    def unresolved(self) -> int:
        """Return the number of cells that float64 does not reproduce."""
        return len(self._failed)

    @property
    def limit(self) -> float:
        """Return a value that no cell worth a closer look exceeds."""
        return np.inf if self.best is None else self.best.value + 1e-12 * abs(self.best.value)

    def offer(self, chart: Chart, cells: Cells) -> None:
        """Take in the cells that are better than, or as good as, those known."""
        nI, L = (cells.mass[k].astype(np.int64) for k in (ID, LOSS))
        nO = cells.mass[OOD:].astype(np.int64)
        program = self._program
        met = exact.feasible(nI, nO, program.min_id, program.max_ood, program.ratio)
        if self._failed:
            met &= cells.room > [self._failed.get(tag, -1.0) for tag in cells.mass[TAG]]
        rows, total = np.flatnonzero(met), nO.sum(axis=0)
        while len(rows):
            masses = [column[rows] for column in (nI, total, L)]
            if self.best is not None:
                masses = [np.append(*pair) for pair in zip(masses, self.best[1:], strict=True)]
            id_, ood, loss = masses
            winners = exact.best(id_, ood, loss, program.objective, program.per_id)
            beaten = self.best is None or winners[-1] < len(rows)
            winners = rows[winners[winners < len(rows)]]
            planes = [_half_plane(chart, cells, int(row)) for row in winners]
            if beaten and not self._start_over(max(planes, key=lambda plane: plane.room)):
                rows = rows[rows != winners[np.argmax(cells.room[winners])]]
                continue
            for plane in planes:
                self._add(plane)
            return

    def _start_over(self, plane: HalfPlane) -> bool:
        """Make a cell the best one known, if it stands the proof."""
        if not self._proves(plane):
            return False
        nI, L, nO = plane.mass[ID], plane.mass[LOSS], plane.mass[OOD:].sum()
        value = self._program.problem().value(nI, L, nO)
        self.best = Best(float(value), int(nI), int(nO), int(L))
        self._cells = {}
        return True

    def _add(self, plane: HalfPlane) -> None:
        tag = float(plane.mass[TAG])
        known = self._cells.get(tag)
        if (known is None and not self.full) or (known is not None and plane.room > known.room):
            self._cells[tag] = plane

    def _proves(self, plane: HalfPlane) -> bool:
        """Return whether float64 accepts just these masses, looking at every point."""
        n = self._tree.points
        x, y = self._tree.corner[0, :n], self._tree.corner[2, :n]
        accepted = plane.weights[0] * x + plane.weights[1] * y <= plane.v
        proved = bool((self._tree.mass[:, :n] @ accepted == plane.mass).all())
        tag = float(plane.mass[TAG])
        if proved:
            self._failed.pop(tag, None)
        else:
            self._failed[tag] = max(plane.room, self._failed.get(tag, 0.0))
        return proved

    def proved(self) -> list[HalfPlane]:
        """Return the best cells that stand the proof."""
        return [plane for plane in self._cells.values() if self._proves(plane)]


def _half_plane(chart: Chart, cells: Cells, row: int) -> HalfPlane:
    weights = chart.weights(cells.t[row])
    return HalfPlane(weights, float(cells.v[row]), float(cells.room[row]), cells.mass[:, row])
