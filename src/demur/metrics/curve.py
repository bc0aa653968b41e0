"""A curve and the rules behind its points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from demur._arrays import FloatArray
from demur.core.rule import Rule

Interpolation = Literal["linear", "previous", "next", "none"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Curve:
    """Points of a curve, each with the rule that attains it."""

    x: FloatArray
    y: FloatArray
    x_label: str
    y_label: str
    directions: FloatArray
    """Shape (points, k): direction of each point's rule."""
    thresholds: FloatArray
    """Threshold of each point's rule; -inf rejects everything."""
    interpolation: Interpolation
    """How to read the curve between its points.

    ``"linear"``: all operating points of one score. ``"previous"`` and ``"next"``: the
    staircase of two scores, whose value at x is that of the last point at or below x, or of
    the first at or above. ``"none"``: rules tuned on one sample and read on another, in the
    order of tuning.
    """
    ood_prior: float | None = None
    """The prior behind a precision."""
    score_names: tuple[str, ...] | None = None

    @property
    def attainable(self) -> tuple[float, float]:
        """Smallest and largest x that a rule attains; NaN if there is no rule."""
        if len(self.x) == 0:
            return np.nan, np.nan
        return float(self.x.min()), float(self.x.max())

    def rule(self, index: int) -> Rule:
        """Return the rule behind one point."""
        return Rule(
            tuple(self.directions[index]),
            float(self.thresholds[index]),
            score_names=self.score_names,
        )

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"Curve({self.y_label} over {self.x_label}, {len(self)} points)"
