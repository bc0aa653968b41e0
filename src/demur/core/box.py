"""Box rules: accept when each score is within its own limit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray
from demur.core.columns import ScoreColumns
from demur.core.rule import BOX_VERSION, Rule
from demur.core.sql import Dialect, within_limits
from demur.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class BoxRule(Rule):
    """Accept when every score is within its own limit, with the scores as they are in the data.

    A `Rule` like any other: its combined score is the largest excess over a limit, its threshold
    is 0, and `direction` has a sign for each score: 1 if the limit is from above, -1 if it is from
    below, 0 if there is none.

    Parameters
    ----------
    limits
        For each score the last value that is accepted: the largest, of a confidence the smallest.
        ``inf`` is no limit, ``-inf`` accepts nothing; of a confidence the other way round.
    direction
        Signs; from `confidence` by default.
    score_names, confidence, card
        As of `Rule`.

    Examples
    --------
    >>> rule = BoxRule(limits=(0.8, 0.5), score_names=("msp", "knn"), confidence=("msp",))
    >>> rule.accept([[0.9, 0.2], [0.8, 0.5], [0.7, 0.2]])
    array([ True,  True, False])
    """

    direction: tuple[float, ...] = ()
    threshold: float = field(default=0.0, init=False)
    tau: float = field(default=1.0, init=False)
    limits: tuple[float, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        limits = tuple(float(v) for v in _arrays.real_vector("limits", self.limits))
        columns = ScoreColumns.of(self.score_names, confidence=self.confidence, count=len(limits))
        direction = self.direction or columns.signs
        if len(direction) != len(limits) or not set(direction) <= {-1.0, 0.0, 1.0}:
            raise InvalidInputError(f"direction must be a sign for each limit, got {direction}")
        doubts = [s * v if s else math.inf for s, v in zip(direction, limits, strict=True)]
        limited = tuple(s * (v < math.inf) for s, v in zip(direction, doubts, strict=True))
        if not any(limited):
            raise InvalidInputError(f"limits: {limits} limit nothing")
        # Adding zero turns -0.0 into 0.0.
        object.__setattr__(self, "direction", tuple(float(sign) + 0.0 for sign in limited))
        object.__setattr__(self, "limits", tuple(limit + 0.0 for limit in limits))
        object.__setattr__(self, "threshold", -math.inf if -math.inf in doubts else 0.0)
        Rule.__post_init__(self)

    @classmethod
    def of_limits(cls, limits: Sequence[float], columns: ScoreColumns) -> BoxRule:
        """Return the rule for columns as they are, from limits of their doubts."""
        raw = tuple(sign * v for sign, v in zip(columns.signs, limits, strict=True))
        return cls(limits=raw, score_names=columns.names, confidence=columns.confidence)

    @property
    def mu(self) -> float:
        """NaN: a box does not weigh scores against each other."""
        return math.nan

    def weigh(self, values: FloatArray) -> FloatArray:
        """Return by how much each row exceeds a limit at most; negative within all of them."""
        excess = np.full(len(values), -np.inf)
        with np.errstate(over="ignore"):
            for column, (sign, limit) in enumerate(zip(self.direction, self.limits, strict=True)):
                if sign:
                    # The difference of two floats is 0 only if they are equal, and has the right
                    # sign: comparing it decides as comparing the two does.
                    np.maximum(excess, sign * values[:, column] - sign * limit, out=excess)
        return excess

    def on(self, columns: ScoreColumns) -> BoxRule:
        """Return the rule for data with these columns: names are matched, never mixed."""
        matched = Rule.on(self, columns)
        if matched is self or matched.score_names is None or self.score_names is None:
            return self
        limits = dict(zip(self.score_names, self.limits, strict=True))
        return BoxRule(
            matched.direction,
            matched.score_names,
            matched.confidence,
            limits=tuple(limits.get(name, math.inf) for name in matched.score_names),
        )

    def of_columns(self, kept: Sequence[int]) -> BoxRule:
        """Return the rule of some of its columns, the others being of no matter to it."""
        narrow = Rule(self.direction, 0.0, 1.0, self.score_names, self.confidence).of_columns(kept)
        return BoxRule(
            narrow.direction,
            narrow.score_names,
            narrow.confidence,
            self.card,
            limits=tuple(self.limits[k] for k in kept),
        )

    def for_doubts(self, columns: ScoreColumns) -> BoxRule:
        """Return the rule in terms of the doubts of these columns, by position."""
        matched = self.on(columns)
        limits = zip(columns.signs, matched.limits, strict=True)
        return BoxRule(
            columns.raw_direction(matched.direction), limits=tuple(s * limit for s, limit in limits)
        )

    def _sql(self, names: Sequence[str | None], dialect: Dialect) -> str:
        return within_limits(names, self.direction, self.limits, dialect=dialect)

    def _shape_data(self) -> dict[str, Any]:
        return {
            "version": BOX_VERSION,
            "shape": "box",
            "direction": list(self.direction),
            # JSON has no infinities.
            "limits": [v if math.isfinite(v) else str(v) for v in self.limits],
        }
