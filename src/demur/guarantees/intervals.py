"""Exact binomial bounds for rates: how a level is shared among several, and how they are printed.

Promised numbers are rounded against those who promise, never in their favour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from demur._arguments import NUMBER, WHOLE, takes
from demur.errors import InvalidInputError

# 0.07 times 10,000 is 700.0000000000001 in floats.
_FUZZ = 1e-7


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval of numbers."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


@takes(successes=WHOLE, trials=WHOLE)
def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """Return the exact two-sided interval for the rate behind a binomial count.

    Each end fails with probability at most ``(1 - confidence) / 2``, whatever the rate.

    Examples
    --------
    >>> interval = clopper_pearson(8, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4439, 0.9748)
    """
    return rate_interval(successes, trials, miss(confidence) / 2)


def rate_interval(successes: int, trials: int, tail: float) -> Interval:
    """Return the interval whose ends fail with probability at most `tail` each."""
    return Interval(rate_lower(successes, trials, tail), rate_upper(successes, trials, tail))


def rate_lower(successes: int, trials: int, delta: float) -> float:
    """Return the rate p at which `successes` or more have probability `delta`.

    The true rate is smaller with probability at most `delta`.
    """
    from scipy.special import betaincinv

    _check_counts(successes, trials)
    if successes == 0:
        return 0.0
    return float(betaincinv(successes, trials - successes + 1, delta))


def rate_upper(successes: int, trials: int, delta: float) -> float:
    """Return the rate p at which `successes` or fewer have probability `delta`.

    The true rate is larger with probability at most `delta`.
    """
    from scipy.special import betainccinv

    _check_counts(successes, trials)
    if successes == trials:
        return 1.0
    return float(betainccinv(successes + 1, trials - successes, delta))


def fewest_for(share: float, trials: int, delta: float) -> int | None:
    """Return the smallest count whose `rate_lower` is at least `share`, None if there is none."""
    low, high = -1, trials + 1
    while high - low > 1:
        middle = (low + high) // 2
        met = rate_lower(middle, trials, delta) >= share
        low, high = (low, middle) if met else (middle, high)
    return high if high <= trials else None


def most_for(share: float, trials: int, delta: float) -> int | None:
    """Return the largest count whose `rate_upper` is at most `share`, None if there is none."""
    rejected = fewest_for(1 - share, trials, delta)
    return None if rejected is None else trials - rejected


def sidak(delta: float, bounds: int) -> float:
    """Return the level of each of several bounds so that all hold with ``1 - delta``.

    Exact for independent bounds, and for bounds that each hold with the stated probability
    *given* the data behind the earlier ones.
    """
    return float(1 - (1 - delta) ** (1 / bounds))


@takes(confidence=NUMBER)
def miss(confidence: float) -> float:
    """Return delta = 1 - confidence, checked."""
    if not 0 < confidence < 1:
        raise InvalidInputError(f"confidence must be between 0 and 1, got {confidence}")
    # 1 - 0.95 is 0.050000000000000044 in floats.
    return round(1 - confidence, 15)


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


def _check_counts(successes: int, trials: int) -> None:
    if not 0 <= successes <= trials:
        raise InvalidInputError(
            f"successes must be between 0 and the {trials} trials, got {successes}"
        )
