"""Bins of scores: a monotone map from floats to small integers that every engine can compute.

An axis is a few pieces, each cut into equal bins. The bin of a score is found by the operations

    piece  the last one whose start is not above the score (the first one if there is none)
    place  floor(min(max((score - start) * scale, 0), bins - 1))
    bin    first + place

in float64, every one of which rounds monotonically: a larger score never has a smaller bin. So
the scores of a bin are an interval, whose ends `Axis.edges` finds exactly. The cell of a row is
its bin, or with two scores ``bin of the first * bins of the second + bin of the second``.

Instead of the scores two weighted sums of them may be cut into bins: products and a sum in
float64, as in a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from demur._arrays import FloatArray, IntArray

# Differences of scores and their multiples stay finite below this.
_LARGEST = float(np.finfo(np.float64).max)
_STEEPEST = 2.0**1000
# All bits of a float but its sign.
_SIZE = 0x7FFFFFFFFFFFFFFF

_Ints = npt.NDArray[np.int32]
_Slots = Callable[[FloatArray], _Ints]
_SLOTS = 1 << 17


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """Pieces of one score, in ascending order."""

    start: FloatArray
    """Shape (pieces,): finite, strictly ascending."""
    scale: FloatArray
    """Bins per unit of score; 0 in a piece that stays a single bin when refined."""
    first: IntArray
    """Shape (pieces + 1,): the first bin of each piece, and the number of bins."""

    @property
    def bins(self) -> int:
        """Number of bins."""
        return int(self.first[-1])

    def bin(self, scores: FloatArray) -> IntArray:
        """Return the bin of each score, by the definition."""
        piece = np.maximum(np.searchsorted(self.start, scores, side="right") - 1, 0)
        last = (np.diff(self.first) - 1).astype(np.float64)
        with np.errstate(over="ignore"):
            apart = np.minimum(scores - self.start[piece], _LARGEST)
            place = np.clip(apart * self.scale[piece], 0.0, last[piece])
        return self.first[piece] + np.floor(place).astype(np.int64)

    def edges(self) -> FloatArray:
        """Return the smallest score of each bin but the first, by bisection over the floats."""
        wanted = np.arange(1, self.bins)
        low, high = (np.full(len(wanted), end) for end in _ordinal(np.array([-_LARGEST, _LARGEST])))
        for _ in range(64):
            # Half of each, since the sum may not fit.
            middle = (low >> 1) + (high >> 1) + (low & high & 1)
            reached = self.bin(_score(middle)) >= wanted
            high = np.where(reached, middle, high)
            low = np.where(reached, low, middle + 1)
            low = np.minimum(low, high)
        return _score(high)

    def refined(self, factor: int) -> Axis:
        """Return an axis with each bin cut into `factor`, a power of two, but for single ones.

        The bin of a score on this axis is `coarse` of that on the refined one.
        """
        size = np.diff(self.first)
        size = np.where(self.scale > 0, size * factor, size)
        return Axis(self.start, self.scale * factor, np.concatenate([[0], np.cumsum(size)]))

    def coarse(self, fine: Axis) -> IntArray:
        """Return the bin that each bin of an axis refined from this one is part of."""
        size, fine_size = np.diff(self.first), np.diff(fine.first)
        piece = np.repeat(np.arange(len(size)), fine_size)
        place = np.arange(fine.bins) - fine.first[piece]
        return np.asarray(self.first[piece] + place * size[piece] // fine_size[piece])


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """One or two axes and the cells they make."""

    axes: tuple[Axis, ...]
    weights: tuple[tuple[float, ...], ...] | None = None
    """For each axis the weights of the scores in what it cuts; None if it cuts the scores."""

    @property
    def cells(self) -> int:
        """Number of cells, empty ones included."""
        return int(np.prod([axis.bins for axis in self.axes], dtype=np.int64))

    def values(self, scores: FloatArray) -> FloatArray:
        """Return what the axes cut, shape (n, k)."""
        if self.weights is None:
            return scores
        columns = np.empty((len(self.weights), len(scores)))
        for column, weights in zip(columns, self.weights, strict=True):
            np.multiply(weights[0], scores[:, 0], out=column)
            for weight, score in zip(weights[1:], scores.T[1:], strict=True):
                column += weight * score
        return columns.T

    def key(self, scores: FloatArray) -> IntArray:
        """Return the cell of each row of finite `scores`, shape (n, k), by the definition."""
        values = self.values(scores)
        key = self.axes[0].bin(values[:, 0])
        for axis, column in zip(self.axes[1:], values.T[1:], strict=True):
            key = key * axis.bins + axis.bin(column)
        return key

    def places(self, key: IntArray) -> tuple[IntArray, ...]:
        """Return the bins on each axis that make the cells `key`."""
        if len(self.axes) == 1:
            return (key,)
        return tuple(np.divmod(key, self.axes[1].bins))

    def refined(self, factor: int) -> Bins:
        """Return bins `factor` times finer, a power of two."""
        return Bins(tuple(axis.refined(factor) for axis in self.axes), self.weights)

    def coarse(self, fine: Bins, key: IntArray) -> IntArray:
        """Return the cells that cells of bins refined from these are part of."""
        places = [
            axis.coarse(finer)[place]
            for axis, finer, place in zip(self.axes, fine.axes, fine.places(key), strict=True)
        ]
        coarse = places[0]
        for axis, place in zip(self.axes[1:], places[1:], strict=True):
            coarse = coarse * axis.bins + place
        return np.asarray(coarse)


def axis_for(sample: FloatArray, bins: int, *, pieces: int = 16, atoms: int = 16) -> Axis:
    """Return an axis on which a sample of finite scores spreads evenly.

    Pieces reach from quantile to quantile. Values that many rows share get a bin of their own,
    which then holds a single score.
    """
    values, count = np.unique(
        np.append(sample, 0.0) if len(sample) == 0 else sample, return_counts=True
    )
    heavy = np.flatnonzero(count * bins > 2 * max(len(sample), 1))
    heavy = heavy[np.argsort(-count[heavy], kind="stable")[:atoms]]
    alone = values[np.sort(heavy)]
    # Tails get more pieces than their rows would: they may reach very far.
    tail = 2.0 ** -np.arange(math.log2(pieces) + 1, 11)
    shares = np.sort(np.concatenate([np.linspace(0, 1, pieces + 1), tail, 1 - tail]))
    ranks = np.searchsorted(np.cumsum(count), shares * (len(sample) - 1) + 0.5)
    knots = values[np.minimum(ranks, len(values) - 1)]
    start = np.unique(np.concatenate([knots[:-1], alone, np.nextafter(alone, np.inf)]))
    start = start[np.isfinite(start)]
    return _cut(start, float(values[-1]), np.isin(start, alone), values, count, bins)


def _cut(
    start: FloatArray,
    last: float,
    single: np.ndarray[tuple[int], np.dtype[np.bool_]],
    values: FloatArray,
    count: IntArray,
    bins: int,
) -> Axis:
    """Share the bins among pieces by the rows of the sample in them."""
    stop = np.append(start[1:], max(last, float(np.nextafter(start[-1], np.inf))))
    piece = np.maximum(np.searchsorted(start, values, side="right") - 1, 0)
    held = np.bincount(piece, count, minlength=len(start))
    held[single] = 0
    share = np.maximum(np.rint(bins * held / max(held.sum(), 1)).astype(np.int64), 1)
    share[single] = 1
    with np.errstate(over="ignore", divide="ignore"):
        scale = np.minimum(share / np.minimum(stop - start, _LARGEST), _STEEPEST)
    scale[single] = 0.0
    return Axis(start, scale, np.concatenate([[0], np.cumsum(share)]))


class BinFinder:
    """The bins of one axis, for very many scores: those of `Axis.bin` to the last bit.

    A table look-up and one comparison instead of a bisection. A cheap monotone map sends scores to
    *slots*, many more than there are bins. A table knows how many edges lie in the slots before; an
    edge in the same slot is compared with the score.
    """

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


def key_of(finders: Sequence[BinFinder], values: FloatArray) -> IntArray:
    """Return the cell of each row, as `Bins.key` does, given `Bins.values`."""
    key = finders[0].bin(values[:, 0]).astype(np.int64)
    for finder, column in zip(finders[1:], values.T[1:], strict=True):
        key *= len(finder.edges) + 1
        key += finder.bin(column)
    return key


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
    """Return the place of each float among all floats; 0.0 is 0."""
    bits = np.ascontiguousarray(scores).view(np.int64)
    return np.where(bits < 0, -(bits & _SIZE), bits)


def _score(ordinal: IntArray) -> FloatArray:
    """Return the float at each place."""
    size = np.abs(ordinal).view(np.float64)
    return np.where(ordinal < 0, -size, size)
