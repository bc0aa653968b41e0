"""Sets of directions, as quarter turns that map each onto non-negative weights.

A chart swaps and flips the two scores so that its directions get two non-negative weights;
swaps and sign changes are exact in floating point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from demur._arrays import FloatArray
from demur.errors import InvalidInputError

Directions = Literal["nonneg", "real", "paper", "circle"]


@dataclass(frozen=True, slots=True)
class Chart:
    """Directions from one axis to the next: ``p*start + q*stop`` with p, q >= 0."""

    start: tuple[int, int]
    stop: tuple[int, int]

    def coordinates(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the scores along `start` and `stop`."""
        return _along(self.start, scores), _along(self.stop, scores)

    def direction(self, p: float, q: float) -> tuple[float, float]:
        """Return the weights of the two scores for weights p and q in the chart."""
        (a, b), (c, d) = self.start, self.stop
        return p * a + q * c, p * b + q * d


@dataclass(frozen=True, slots=True)
class DirectionSet:
    """Which weights (w_r, w_g) a rule may put on the two scores."""

    quarters: tuple[int, ...]
    """Which of the four quarter turns it covers, counted from the axis of s_r."""
    risk_nonneg: bool
    """Whether the weight of s_r must be at least zero."""
    ood_nonneg: bool
    """Whether the weight of s_g must be at least zero."""
    angles: tuple[float, float]
    """The arc, for a grid of angles."""

    @property
    def charts(self) -> tuple[Chart, ...]:
        """The quarters as charts."""
        return tuple(_CHARTS[quarter] for quarter in self.quarters)


_QUARTERS = [(1, 0), (0, 1), (-1, 0), (0, -1)]
_CHARTS = [Chart(_QUARTERS[i], _QUARTERS[(i + 1) % 4]) for i in range(4)]
_SETS = {
    "nonneg": DirectionSet((0,), True, True, (0.0, np.pi / 2)),
    "real": DirectionSet((0, 3), True, False, (-np.pi / 2, np.pi / 2)),
    "paper": DirectionSet((0, 1), False, True, (0.0, np.pi)),
    "circle": DirectionSet((0, 1, 2, 3), False, False, (0.0, 2 * np.pi)),
}


def direction_set(name: str) -> DirectionSet:
    """Return the set of directions called `name`."""
    if name not in _SETS:
        raise InvalidInputError(f"directions must be one of {sorted(_SETS)}, got {name!r}")
    return _SETS[name]


def _along(axis: tuple[int, int], scores: FloatArray) -> FloatArray:
    column = scores[:, 0] if axis[0] else scores[:, 1]
    return column if sum(axis) > 0 else -column
