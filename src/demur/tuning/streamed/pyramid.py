"""Cells of a histogram under a tree of bounding boxes.

Cells are sorted along a Z-order curve; every `FAN` neighbours make a node, every `FAN` nodes a
node of the next level, up to a single root. Cells and nodes together are *items*: the cells
first, then the levels, the root last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.tuning.streamed.cells import Grid

FAN = 8


class Pyramid(NamedTuple):
    """Items: bounding boxes and sums."""

    grid: Grid
    """The cells, along the curve."""
    level: IntArray
    """First item of each level, cells being level 0, and the number of items."""
    low: FloatArray
    """Shape (2, items)."""
    high: FloatArray
    mass: IntArray
    """Shape (4 + sets, items)."""
    wanted: IntArray
    """Rows that would have to be fetched; none for a cell that holds a single point."""

    @property
    def cells(self) -> int:
        """Number of cells."""
        return int(self.level[1])

    @property
    def root(self) -> int:
        """The item that holds all others."""
        return int(self.level[-1]) - 1

    def children(self, items: IntArray) -> IntArray:
        """Return the children of nodes."""
        level = np.searchsorted(self.level, items, side="right") - 1
        first = self.level[level - 1] + (items - self.level[level]) * FAN
        stop = np.minimum(first + FAN, self.level[level])
        every = first[:, None] + np.arange(FAN)
        return np.asarray(every[every < stop[:, None]])

    def parents(self) -> IntArray:
        """Return the node that each item is part of; the root is part of itself."""
        size = np.diff(self.level)
        above = np.minimum(np.repeat(self.level[1:], size), self.root)
        within = np.arange(self.root + 1) - np.repeat(self.level[:-1], size)
        return np.asarray(np.where(above == self.root, self.root, above + within // FAN))


def build(grid: Grid) -> Pyramid:
    """Return the tree over the cells of a grid."""
    grid = grid.take(np.argsort(_curve(grid.place), kind="stable"))
    exact = (grid.low == grid.high).all(axis=1)
    low, high, mass = [grid.low.T], [grid.high.T], [grid.mass]
    wanted, size = [np.where(exact, 0, grid.rows)], [0, len(grid.key)]
    while low[-1].shape[1] > 1:
        groups = np.arange(0, low[-1].shape[1], FAN)
        low.append(np.minimum.reduceat(low[-1], groups, axis=1))
        high.append(np.maximum.reduceat(high[-1], groups, axis=1))
        mass.append(np.add.reduceat(mass[-1], groups, axis=1))
        wanted.append(np.add.reduceat(wanted[-1], groups))
        size.append(len(groups))
    return Pyramid(
        grid,
        np.cumsum(size),
        np.hstack(low),
        np.hstack(high),
        np.hstack(mass),
        np.concatenate(wanted),
    )


def _curve(place: IntArray) -> IntArray:
    """Return the place of each cell along a Z-order curve."""
    return (_spread(place[0]) << 1) | _spread(place[1])


def _spread(values: IntArray) -> IntArray:
    """Put a zero between any two bits of numbers below 2**31."""
    for shift, kept in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        values = (values | (values << shift)) & kept
    return values
