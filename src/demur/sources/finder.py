"""Finding the bin of very many scores: a table look-up and one comparison instead of a bisection.

A cheap monotone map sends scores to *slots*, many more than there are bins. A table knows how
many edges lie in the slots before; an edge in the same slot is compared with the score. The
result is that of `Axis.bin` to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from demur._arrays import FloatArray, IntArray
from demur.core.bins import Axis

_Ints = npt.NDArray[np.int32]
_Slots = Callable[[FloatArray], _Ints]

_SLOTS = 1 << 17
_SIZE = 0x7FFFFFFFFFFFFFFF


class Finder:
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
