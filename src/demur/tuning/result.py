"""What tuning hands back, and the searches a user can choose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from demur.core.models import RejectionModel
from demur.core.program import Totals
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.errors import InvalidInputError

Status = Literal["optimal", "gap", "budget", "grid"]


@dataclass(frozen=True, slots=True)
class Exact:
    """Search all thresholds and all directions.

    Parameters
    ----------
    gap
        Stop when no rule can have an objective smaller by more than this; 0 proves optimality.
    budget
        Stop after this many boxes of the search tree, None for never. It bounds the time on
        inputs made to be hard; ordinary data need some thousands.
    """

    gap: float = 0.0
    budget: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.gap, (int, float)) and 0 <= self.gap < math.inf):
            raise InvalidInputError(f"gap must be a finite number >= 0, got {self.gap!r}")
        if self.budget is not None and not _positive_whole(self.budget):
            raise InvalidInputError(
                f"budget must be a positive whole number or None, got {self.budget!r}"
            )


@dataclass(frozen=True, slots=True)
class Grid:
    """Search `angles` equidistant angles, the paper's algorithm: 360 over [0, pi].

    An angle grid depends on the units of the scores and can miss the optimum; it is here to
    reproduce the paper.
    """

    angles: int = 360

    def __post_init__(self) -> None:
        if not _positive_whole(self.angles):
            raise InvalidInputError(f"angles must be a positive whole number, got {self.angles!r}")


@dataclass(frozen=True, slots=True)
class Certificate:
    """How sure it is that no better rule exists among those searched."""

    status: Status
    """``"optimal"``; ``"gap"`` or ``"budget"`` when `Exact` stopped early for that reason;
    ``"grid"`` when only a grid of angles was searched."""
    lower_bound: float = math.nan
    """No rule of the searched directions has a smaller objective; NaN for a grid."""
    boxes: int = 0
    """Boxes of directions and thresholds that were looked at."""
    unresolved: int = 0
    """Boxes or accepted sets so thin that no float64 rule separates them."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """A tuned rule and its operating point on the sample it was tuned on.

    The operating point is optimistic: judge the rule on fresh data with `demur.evaluate`.
    """

    rule: Rule
    point: OperatingPoint
    model: RejectionModel
    totals: Totals
    certificate: Certificate


def _positive_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
