"""Exact binomial bounds for rates, and how a level is shared among several bounds."""

from __future__ import annotations

from dataclasses import dataclass

from demur.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval of numbers."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def clopper_pearson(successes: int, trials: int, *, confidence: float = 0.95) -> Interval:
    """Return the exact two-sided interval for the rate behind a binomial count.

    Each end fails with probability at most ``(1 - confidence) / 2``, whatever the rate.

    Examples
    --------
    >>> interval = clopper_pearson(8, 10)
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.4439, 0.9748)
    """
    tail = miss(confidence) / 2
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


def miss(confidence: float) -> float:
    """Return delta = 1 - confidence, checked."""
    if not 0 < confidence < 1:
        raise InvalidInputError(f"confidence must be between 0 and 1, got {confidence}")
    # 1 - 0.95 is 0.050000000000000044 in floats.
    return round(1 - confidence, 15)


def _check_counts(successes: int, trials: int) -> None:
    if not 0 <= successes <= trials:
        raise InvalidInputError(
            f"successes must be between 0 and the {trials} trials, got {successes}"
        )
