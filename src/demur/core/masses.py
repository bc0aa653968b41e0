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
    def of(cls, values: FloatArray, *, spare: int = 0) -> Masses:
        """Put non-negative finite `values` on the grid, with `spare` bits left for repetitions."""
        whole = bool((values == np.floor(values)).all())
        total = float(values.sum())
        fits = whole and total < LIMIT >> spare
        exponent = 0 if fits else exponent_of(total, whole=False) - spare
        if whole and exponent == 0:
            return cls(values.astype(np.int64), 0, 0)
        masses, inexact = on_grid(values, exponent)
        return cls(masses, exponent, len(values) if inexact else 0)

    @property
    def total(self) -> int:
        """Return the sum of all values."""
        return int(self.values.sum())


def exponent_of(total: float, whole: bool) -> int:
    """Return the exponent for values with this sum, all of them whole numbers or not.

    A sum just below a power of two counts as one, so that the order of summation, and with it
    the last bits of the sum, makes no difference.
    """
    if whole and total < LIMIT:
        return 0
    mantissa, exponent = np.frexp(total)
    return 51 - int(exponent) - bool(mantissa * (1 + 2.0**-30) >= 1)


def on_grid(values: FloatArray, exponent: int) -> tuple[IntArray, bool]:
    """Return the masses of values, and whether any of them had to be rounded."""
    scaled = np.ldexp(values, exponent)
    # Halves go up, not to even numbers: that is what every engine can compute.
    rounded = np.floor(scaled + 0.5)
    return rounded.astype(np.int64), bool((rounded != scaled).any())
