"""What tuning hands back, and the searches a user can choose."""

from __future__ import annotations

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
    """Search all thresholds and all directions."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Search `angles` equidistant angles, the paper's algorithm: 360 over [0, pi].

    An angle grid depends on the units of the scores and can miss the optimum; it is here to
    reproduce the paper.
    """

    angles: int = 360

    def __post_init__(self) -> None:
        if isinstance(self.angles, bool) or not isinstance(self.angles, int) or self.angles < 1:
            raise InvalidInputError(f"angles must be a positive whole number, got {self.angles!r}")


@dataclass(frozen=True, slots=True)
class Certificate:
    """How sure it is that no better rule exists among those searched."""

    status: Status
    """``"optimal"``, or ``"grid"`` when only a grid of angles was searched."""
    unresolved: int = 0
    """Accepted sets that looked better but that no float64 rule separates."""


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
