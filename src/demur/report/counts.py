"""What each of many rules accepts on a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.points import Points
from demur.core.program import Totals
from demur.core.scores import combine


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Accepted masses, an entry per rule, in the units of `totals`."""

    id: IntArray
    loss: IntArray
    ood_sets: IntArray
    """Shape (sets, rules)."""
    totals: Totals

    @property
    def ood(self) -> IntArray:
        """Accepted OOD mass of all sets together."""
        return np.asarray(self.ood_sets.sum(axis=0))

    def take(self, rows: IntArray) -> Counts:
        """Return the counts of some rules."""
        return Counts(self.id[rows], self.loss[rows], self.ood_sets[:, rows], self.totals)


def count(points: Points, lines: FloatArray) -> Counts:
    """Return the masses that each line (direction and threshold) accepts.

    `points` keeps the OOD sets apart.
    """
    masses = np.vstack([points.id, points.loss, points.ood])
    accepted = np.zeros((len(masses), len(lines)), np.int64)
    directions, which = np.unique(lines[:, :-1], axis=0, return_inverse=True)
    by_direction = np.argsort(which, kind="stable")
    ends = np.searchsorted(which[by_direction], np.arange(len(directions) + 1))
    for direction, start, stop in zip(directions, ends[:-1], ends[1:], strict=True):
        rows = by_direction[start:stop]
        rows = rows[np.argsort(lines[rows, -1])]
        # The first threshold that accepts each point.
        first = np.searchsorted(lines[rows, -1], combine(direction, points.scores))
        for total, mass in zip(accepted, masses, strict=True):
            # Masses add up to less than 2**52, so floats hold the sums exactly.
            added = np.bincount(first, weights=mass, minlength=len(rows) + 1)
            total[rows] = np.cumsum(added[: len(rows)])
    return Counts(accepted[0], accepted[1], accepted[2:], points.totals)
