"""Cells of histograms of several levels, the finer in place of the coarse ones they refine."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.bins import Bins
from demur.core.source import Histogram

# Rows of `Grid.mass`; the OOD masses follow.
ID, LOSS, CHEAP_ID, CHEAP_LOSS, OOD = 0, 1, 2, 3, 4


class Grid(NamedTuple):
    """Disjoint cells, some perhaps finer than others."""

    key: IntArray
    """The key in the bins of its level."""
    level: IntArray
    """How many times the bins were refined."""
    place: IntArray
    """Shape (k, cells): where the cell begins, in the finest bins."""
    low: FloatArray
    """Shape (cells, k)."""
    high: FloatArray
    rows: IntArray
    mass: IntArray
    """Shape (4 + sets, cells): ID, loss, cheap ID, cheap loss and OOD masses."""

    def take(self, cells: IntArray | BoolArray) -> Grid:
        """Return some of the cells."""
        return Grid(
            self.key[cells],
            self.level[cells],
            self.place[:, cells],
            self.low[cells],
            self.high[cells],
            self.rows[cells],
            self.mass[:, cells],
        )

    def joined(self, other: Grid) -> Grid:
        """Return the cells of both."""
        axes = (0, 0, 1, 0, 0, 0, 1)
        pairs = zip(self, other, axes, strict=True)
        return Grid(*(np.concatenate([a, b], axis=axis) for a, b, axis in pairs))


def grid_of(counted: Histogram, bins: Bins, level: int) -> Grid:
    """Return the cells of a histogram."""
    columns = (counted.id, counted.loss, counted.cheap_id, counted.cheap_loss)
    return Grid(
        counted.key,
        np.full(len(counted.key), level),
        np.array(bins.places(counted.key)),
        counted.low,
        counted.high,
        counted.rows,
        np.vstack([*columns, counted.ood]),
    )


def refined(rest: Grid, bins: Bins, found: Grid, finer: Bins) -> Grid:
    """Return cells found in finer bins together with those that stayed as they were."""
    place = [
        np.searchsorted(axis.coarse(fine), at)
        for axis, fine, at in zip(bins.axes, finer.axes, rest.place, strict=True)
    ]
    return rest._replace(place=np.array(place)).joined(found)
