"""In which coordinates two scores are searched: without offsets, and decimals as whole numbers.

Scores in steps of 0.1 are not what float64 holds: three of them on a line are not on a line in
float64, and a search would find accepted sets that hang on the last bit. Where the values of both
columns are decimals (or dyadic fractions) with not too many digits, what is searched are the
whole numbers they stand for. All accepted sets then have gaps much wider than rounding errors:
on a lattice of R steps a point keeps a distance of at least 1/(R*sqrt(2)) from any line through
two others.

Elsewhere an offset that is large compared to the spread of a column is taken out, which is exact
and leaves the digits for what varies.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]

# Steps that a column of whole numbers may span, and how far from zero it may be. The gap of any
# accepted set, in steps, is then several times the rounding errors of rules about the scores.
_STEPS, _FARTHEST = 2.0**22, 2.0**25
_MOST_DIGITS = 12
# Rows looked at before all of them are.
_SAMPLE = 256
# An offset is taken out from this many times the spread on; x - offset is then exact.
_OFFSET = 4.0


class Frame(NamedTuple):
    """Scores are ``(point + shift) / divisor``, correctly rounded, of the points searched."""

    shift: tuple[float, float] = (0.0, 0.0)
    divisor: tuple[float, float] = (1.0, 1.0)
    whole: bool = False
    """Whether all points are whole numbers, few enough that every accepted set has a wide gap."""

    @classmethod
    def of(cls, scores: _Floats) -> Frame:
        """Return the frame for scores, finite, of shape (n, 2)."""
        if len(scores) == 0:
            return cls()
        # Column by column: reductions over the short axis of pairs are slow.
        ranges = [(float(column.min()), float(column.max())) for column in scores.T]
        lattices = [_lattice(x, *ends) for x, ends in zip(scores.T, ranges, strict=True)]
        first, second = lattices
        if first is not None and second is not None:
            return cls((first[0], second[0]), (first[1], second[1]), True)
        shifts = [_offset(*ends) for ends in ranges]
        return cls((shifts[0], shifts[1]))

    @property
    def plain(self) -> bool:
        """Whether points are the scores."""
        return self.shift == (0.0, 0.0) and self.divisor == (1.0, 1.0)

    @property
    def numbers(self) -> _Floats:
        """The frame as the compiled engine takes it."""
        return np.array([*self.shift, *self.divisor, self.whole])

    def points(self, scores: _Floats) -> _Floats:
        """Return the points of scores, shape (n, 2)."""
        if self.plain:
            return scores
        points = scores * np.array(self.divisor)
        points -= np.array(self.shift)
        if self.whole:
            # Last, since a column that never changes may be shifted by any number.
            np.rint(points, out=points)
        return np.asarray(points)

    def weights(self, weights: _Floats) -> _Floats:
        """Return weights of points as weights of scores, the larger of them 1 in size."""
        scaled = weights * np.array(self.divisor)
        return np.asarray(scaled / np.abs(scaled).max(axis=-1, keepdims=True))


def _lattice(values: _Floats, low: float, high: float) -> tuple[float, float] | None:
    """Return shift and divisor that make all values whole numbers, of not too many steps."""
    if low == high:
        # A column that never changes is a single step, wherever it is.
        return low, 1.0
    if not (high - low <= _STEPS and max(-low, high) <= _FARTHEST):
        return None
    sample = values[:: max(1, len(values) // _SAMPLE)]
    reach, size = high - low, max(-low, high)
    decimals = [10.0**k for k in range(_MOST_DIGITS + 1) if _fits(reach, size, 10.0**k)]
    for divisors in (decimals, [_finest_dyadic(reach, size)]):
        # What is no multiple of the finest step is none of any other.
        if divisors and _are_steps(sample, divisors[-1]):
            for divisor in divisors:
                if _are_steps(sample, divisor) and _are_steps(values, divisor):
                    return float(np.rint((low + high) / 2 * divisor)), divisor
    return None


def _fits(reach: float, size: float, divisor: float) -> bool:
    return reach * divisor <= _STEPS and size * divisor <= _FARTHEST


def _are_steps(values: _Floats, divisor: float) -> bool:
    # Division rounds correctly, as reading a decimal does.
    return bool((np.rint(values * divisor) / divisor == values).all())


def _finest_dyadic(reach: float, size: float) -> float:
    """Return the largest power of two that leaves a column within its limits."""
    most = min(_STEPS / reach, _FARTHEST / size)
    return float(2.0 ** np.clip(np.floor(np.log2(most)), 0, 1000))


def _offset(low: float, high: float) -> float:
    middle = low / 2 + high / 2
    return middle if abs(middle) >= _OFFSET * (high - low) else 0.0
