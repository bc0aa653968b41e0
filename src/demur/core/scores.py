"""Score columns: their names and senses, how they are combined, and where thresholds lie.

Every place that weighs scores calls `combine`, and every place that puts a threshold between two
values calls `midway`: decisions have to agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arrays import FloatArray
from demur.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class ScoreColumns:
    """The score columns of a sample, a source or a rule: their names, and the sense of each.

    A *doubt* is higher where more speaks for rejecting, a *confidence* lower. Searches know doubts
    only; rules are about the columns as they are, in which a confidence has the other sign.

    Examples
    --------
    >>> columns = ScoreColumns.of(["msp", "knn"], confidence=["msp"], count=2)
    >>> columns.signs, columns.raw_direction((0.6, 0.8))
    ((-1.0, 1.0), (-0.6, 0.8))
    """

    count: int
    names: tuple[str, ...] | None = None
    """None where the columns are known by their position only."""
    confidence: tuple[str, ...] = ()
    """Names of the columns that are confidences."""

    @classmethod
    def of(
        cls, names: Sequence[str] | None, *, confidence: Sequence[str] = (), count: int
    ) -> ScoreColumns:
        """Check names and senses of `count` columns."""
        if names is None:
            if confidence:
                raise InvalidInputError("confidence: columns need score_names to be told by name")
            return cls(count)
        if not _are_names(names) or len(names) != count or len(set(names)) != count:
            raise InvalidInputError(f"score_names must be {count} different names, got {names!r}")
        known = tuple(str(name) for name in names)
        if not _are_names(confidence):
            raise InvalidInputError(f"confidence must be a list of names, got {confidence!r}")
        strange = [name for name in confidence if name not in known]
        if strange:
            raise InvalidInputError(f"confidence: {strange[0]!r} is not one of the scores {known}")
        return cls(count, known, tuple(name for name in known if name in confidence))

    @property
    def signs(self) -> tuple[float, ...]:
        """1 for a doubt, -1 for a confidence."""
        if self.names is None:
            return (1.0,) * self.count
        return tuple(-1.0 if name in self.confidence else 1.0 for name in self.names)

    def as_doubts(self, scores: FloatArray) -> FloatArray:
        """Return columns as doubts; sign changes are exact, and undo themselves."""
        return scores * np.array(self.signs) if self.confidence else scores

    def raw_direction(self, direction: Sequence[float]) -> tuple[float, ...]:
        """Return weights of doubts as weights of the columns as they are."""
        # Adding zero turns -0.0 into 0.0.
        return tuple(sign * w + 0.0 for sign, w in zip(self.signs, direction, strict=True))


def _are_names(names: Any) -> bool:
    listed = isinstance(names, Sequence) and not isinstance(names, (str, bytes))
    return listed and all(isinstance(name, str) for name in names)


def combine(direction: Sequence[float] | FloatArray, scores: FloatArray) -> FloatArray:
    """Weigh scores (n, k) in float64: products and sums rounded one by one, as SQL and C would.

    `direction` has shape (k,), or (k, rules, 1) for a row of results per rule.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        combined: FloatArray = direction[0] * scores[:, 0]
        for column in range(1, len(direction)):
            combined = combined + direction[column] * scores[:, column]
    return combined


def midway(last: Any, following: Any) -> Any:
    """Return thresholds midway between two values each, the first where there is no other.

    A second value of +inf, or one so close that float64 has nothing between, gives the first.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        middle = last + (following - last) / 2
    return np.where((last <= middle) & (middle < following), middle, last)[()]
