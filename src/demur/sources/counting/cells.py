"""Finding the cells of very many rows: a table look-up and one comparison instead of a bisection.

A cheap monotone map sends scores to *slots*, many more than there are bins. A table knows how
many edges lie in the slots before; an edge in the same slot is compared with the score. The
result is that of `Axis.bin` to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.bins import Axis
from demur.core.source import Cells, Rows

_Ints = npt.NDArray[np.int32]
_Slots = Callable[[FloatArray], _Ints]

_SLOTS = 1 << 17
_SIZE = 0x7FFFFFFFFFFFFFFF
# Grids of more cells than this are searched and not looked up.
_MOST_CELLS = 1 << 26


class BinFinder:
    """The bins of one axis."""

    def __init__(self, axis: Axis) -> None:
        self.edges = axis.edges()
        self._padded = np.append(self.edges, np.inf)
        self._before, self._shared = np.zeros(1, np.int32), np.zeros(1, np.int64)
        if len(self.edges):
            self._slot = min((_even(self.edges), _leading(self.edges)), key=self._crowded)
            self._shared = np.bincount(self._slot(self.edges), minlength=_SLOTS)
            self._before = (np.cumsum(self._shared) - self._shared).astype(np.int32)
        self._crowds = self._shared > 1
        self._any_crowds = bool(self._crowds.any())

    def bin(self, scores: FloatArray) -> _Ints:
        """Return the bin of each score."""
        if len(self.edges) == 0:
            return np.zeros(len(scores), np.int32)
        slot = self._slot(scores)
        found = self._before.take(slot)
        found += scores >= self._padded.take(found)
        if self._any_crowds:
            rows = np.flatnonzero(self._crowds.take(slot))
            found[rows] = np.searchsorted(self.edges, scores[rows], side="right")
        return found

    def _crowded(self, slot: _Slots) -> int:
        """Return how many edges share their slot: scores there take longer to place."""
        count = np.bincount(slot(self.edges))
        return int(count[count > 1].sum())


class CellFinder:
    """Tells which rows are in some cells."""

    def __init__(self, cells: Cells) -> None:
        self._finders = [BinFinder(axis) for axis in cells.bins.axes]
        self._bins, self._key = cells.bins, cells.key
        self._table: BoolArray | None = None
        if cells.bins.cells <= _MOST_CELLS:
            self._table = np.zeros(cells.bins.cells, bool)
            self._table[cells.key] = True

    def rows(self, scores: FloatArray) -> IntArray:
        """Return the places of the rows that are in the cells; scores must be finite."""
        key = key_of(self._finders, self._bins.values(scores))
        if self._table is not None:
            return np.flatnonzero(self._table.take(key))
        place = np.searchsorted(self._key, key)
        return np.flatnonzero(np.append(self._key, -1).take(place) == key)


def key_of(finders: Sequence[BinFinder], values: FloatArray) -> IntArray:
    """Return the cell of each row, as `Bins.key` does, given `Bins.values`."""
    key = finders[0].bin(values[:, 0]).astype(np.int64)
    for finder, column in zip(finders[1:], values.T[1:], strict=True):
        key *= len(finder.edges) + 1
        key += finder.bin(column)
    return key


def take(rows: Rows, places: IntArray) -> Rows:
    """Return some of the rows."""
    return Rows(
        rows.scores.take(places, axis=0),
        rows.group.take(places),
        rows.loss.take(places),
        None if rows.weight is None else rows.weight.take(places),
    )


def joined_rows(parts: Sequence[Rows], scores: int) -> Rows:
    """Return the rows of all parts."""
    if not parts:
        return Rows(np.empty((0, scores)), np.empty(0, np.int64), np.empty(0), None)
    weights = [part.weight for part in parts if part.weight is not None]
    return Rows(
        np.vstack([part.scores for part in parts]),
        np.concatenate([part.group for part in parts]),
        np.concatenate([part.loss for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def _even(edges: FloatArray) -> _Slots:
    """Return slots of equal width between the edges."""
    start = float(edges[0])
    with np.errstate(over="ignore"):
        width = float(edges[-1] - edges[0])
        scale = (_SLOTS - 3) / width if width > 0 else 0.0
    if not 0 < scale < np.inf:
        scale = 0.0

    def slot(scores: FloatArray) -> _Ints:
        with np.errstate(over="ignore"):
            place = scores - start
            # Infinite differences must not meet a scale of 0.
            np.clip(place, -width, width, out=place)
            place *= scale
        place += 1.0
        np.clip(place, 0.0, _SLOTS - 1.0, out=place)
        return place.astype(np.int32)

    return slot if width < np.inf else lambda scores: np.zeros(len(scores), np.int32)


def _leading(edges: FloatArray) -> _Slots:
    """Return slots that get wider with the size of the scores, by the leading bits of these."""
    first, last = _ordinal(edges[[0, -1]]).tolist()
    shift = max(0, (last - first).bit_length() - _SLOTS.bit_length() + 2)
    start = (first >> shift) - 1

    def slot(scores: FloatArray) -> _Ints:
        place = _ordinal(scores)
        place >>= shift
        place -= start
        np.clip(place, 0, _SLOTS - 1, out=place)
        return place.astype(np.int32)

    return slot


def _ordinal(scores: FloatArray) -> IntArray:
    """Return the place of each float among all floats."""
    bits = np.ascontiguousarray(scores).view(np.int64)
    return np.where(bits < 0, -(bits & _SIZE), bits)
