"""Weights and losses as integers, so that sums are exact and do not depend on row order.

A *mass* is an integer standing for ``mass * 2**-exponent``. Counts and integer weights are
their own masses (exponent 0). Other weights are put on a grid fine enough that the total is
just below 2**52: every partial sum is then exact both in int64 and in float64, whatever the
order of the rows or the number of partitions they are summed in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur._arrays import FloatArray, IntArray

LIMIT = 2**52


@dataclass(frozen=True, slots=True)
class Masses:
    """Integers standing for ``values * 2**exponent``."""

    values: IntArray
    exponent: int
    rounding: int
    """By how many units a partial sum may be off: 0 when every value was representable."""

    @classmethod
    def of(cls, values: FloatArray) -> Masses:
        """Put non-negative finite `values` on the grid."""
        total = float(values.sum())
        if total < LIMIT and bool((values == np.floor(values)).all()):
            return cls(values.astype(np.int64), 0, 0)
        exponent = 52 - int(np.frexp(total)[1]) - 1
        scaled = np.ldexp(values, exponent)
        rounded = np.rint(scaled)
        inexact = bool((rounded != scaled).any())
        return cls(rounded.astype(np.int64), exponent, len(values) if inexact else 0)

    @property
    def total(self) -> int:
        """Return the sum of all values."""
        return int(self.values.sum())
