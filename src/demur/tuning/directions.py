"""Which directions a rule may have: named sets of them, and grids of angles."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np

from demur._arrays import FloatArray
from demur.errors import InvalidInputError, ScoreUnitsWarning

Directions = Literal["nonneg", "real", "paper", "circle"]
Direction = tuple[float, float]

# Beyond this ratio of the spreads of two scores a grid loses some ten percent of the risk.
_COMPARABLE = 10.0


@dataclass(frozen=True, slots=True)
class DirectionSet:
    """Which weights (w_r, w_g) a rule may put on the two scores."""

    quarters: tuple[int, ...]
    """Which of the four quarter turns it covers, counted from the axis of s_r."""
    nonneg: tuple[bool, bool]
    """Which of the two weights must be at least zero."""
    angles: tuple[float, float]
    """The arc, for a grid of angles."""


class NamedSets(dict[str, DirectionSet]):
    """Sets of directions by their names."""

    def __missing__(self, name: str) -> DirectionSet:
        raise InvalidInputError(f"directions must be one of {sorted(self)}, got {name!r}")


DIRECTION_SETS = NamedSets(
    nonneg=DirectionSet((0,), (True, True), (0.0, np.pi / 2)),
    real=DirectionSet((0, 3), (True, False), (-np.pi / 2, np.pi / 2)),
    paper=DirectionSet((0, 1), (False, True), (0.0, np.pi)),
    circle=DirectionSet((0, 1, 2, 3), (False, False), (0.0, 2 * np.pi)),
)
"""What `directions` may be; see `demur.tune`."""


def grid_directions(allowed: DirectionSet, angles: int) -> list[Direction]:
    """Return equidistant unit vectors over the arc, exact where they fall on an axis."""
    low, high = allowed.angles
    whole_turn = high - low == 2 * np.pi
    steps = np.linspace(low, high, angles, endpoint=not whole_turn)
    pairs = np.column_stack([np.cos(steps), np.sin(steps)])
    # cos(pi/2) is 6e-17 in floats, which would break the ties of the other score.
    pairs[np.abs(pairs) < 1e-15] = 0.0
    return [(float(c), float(s)) for c, s in pairs]


def warn_of_units(
    scores: FloatArray, spread: FloatArray, directions: list[Direction], *, stacklevel: int
) -> None:
    """Warn if one score varies so much more than the other that few angles weigh both."""
    if len(scores) == 0 or (scores == scores[0]).all(axis=0).any():
        # A score that never changes has no say at any angle.
        return
    spread_r, spread_g = spread.tolist()
    ratio = max(spread_r, spread_g) / min(spread_r, spread_g)
    if ratio <= _COMPARABLE:
        return
    weights = np.abs(np.array(directions)) * spread
    both = int((weights.min(axis=1) >= weights.max(axis=1) / 10).sum())
    warnings.warn(
        f"the units of the two scores differ by a factor of {ratio:.3g}: their 10-90 % ranges "
        f"over the ID rows are {spread_r:.3g} and {spread_g:.3g}. Only {both} of the "
        f"{len(directions)} angles give both scores a say (their shares within a factor of 10), "
        "so the grid may miss good rules; rescale a score, or search exactly, which does not "
        "depend on units",
        ScoreUnitsWarning,
        stacklevel=stacklevel + 1,
    )
