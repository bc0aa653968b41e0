"""Score columns: their names and senses, how they are combined, and where thresholds lie.

Every place that weighs scores calls `combine`, and every place that puts a threshold between two
values calls `midway`: decisions have to agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from demur._arrays import FloatArray


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
