"""Promised numbers as text: rounded against those who promise, never in their favour."""

from __future__ import annotations

import math

# 0.07 times 10,000 is 700.0000000000001 in floats.
_FUZZ = 1e-7


def at_least_text(bound: float, digits: int) -> str:
    """Return a lower bound with so many decimals, rounded down.

    Examples
    --------
    >>> at_least_text(0.77687, 4), at_least_text(0.8, 4)
    ('0.7768', '0.8000')
    """
    return f"{math.floor(bound * 10**digits + _FUZZ) / 10**digits:.{digits}f}"


def at_most_text(bound: float, digits: int) -> str:
    """Return an upper bound with so many decimals, rounded up.

    Examples
    --------
    >>> at_most_text(0.194804, 5), at_most_text(0.1, 5)
    ('0.19481', '0.10000')
    """
    return f"{math.ceil(bound * 10**digits - _FUZZ) / 10**digits:.{digits}f}"
