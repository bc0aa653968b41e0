"""Bounds for the mean of losses that lie between 0 and a declared largest value."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from demur import _arrays
from demur._arguments import NUMBER, takes
from demur._arrays import FloatArray
from demur.errors import InvalidInputError

Method = Literal["betting", "hoeffding_bentkus"]

# Share of the largest safe bet. At 1 a single loss can ruin the gambler for good.
_TRUNCATION = 0.75
_HALVINGS = 60


@takes(delta=NUMBER, max_value=NUMBER)
def mean_upper(
    values: Any, delta: float, *, max_value: float = 1.0, method: Method = "betting"
) -> float:
    """Return a number that the mean of bounded values exceeds with probability at most `delta`.

    Parameters
    ----------
    values
        Shape (n,), each between 0 and `max_value`. In the order of an independent sample: the
        betting bound reads them one by one.
    delta
        Largest probability that the true mean is above the bound.
    method
        ``"betting"`` (Waudby-Smith and Ramdas, 2024): a gambler who bets that the mean is
        below m multiplies the stake by 1/delta with probability at most delta if it is not; the
        bound is the smallest m at which this happens. It adapts to the variance.
        ``"hoeffding_bentkus"`` (Angelopoulos et al., Learn then Test): needs only the mean and
        does not depend on the order.

    Examples
    --------
    >>> values = np.tile([0.1, 0.2, 0.0, 0.3], 50)
    >>> round(mean_upper(values, 0.05), 3)
    0.172
    >>> round(mean_upper(values, 0.05, method="hoeffding_bentkus"), 3)
    0.211
    """
    scaled = _scaled(values, max_value)
    if method not in ("betting", "hoeffding_bentkus"):
        raise InvalidInputError(f'method must be "betting" or "hoeffding_bentkus", got {method!r}')
    if not 0 < delta < 1:
        raise InvalidInputError(f"delta must be between 0 and 1, got {delta}")
    if len(scaled) == 0:
        return float(max_value)
    bets = _bets(scaled, -math.log(delta))
    mean = float(scaled.mean())

    def proven(m: float) -> bool:
        if method == "betting":
            return _log_capital(scaled, bets, m) >= -math.log(delta)
        return hoeffding_bentkus(mean, len(scaled), m) <= delta

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if proven(middle) else (middle, high)
    return high * float(max_value)


def mean_lower(
    values: Any, delta: float, *, max_value: float = 1.0, method: Method = "betting"
) -> float:
    """Return a number that the mean of bounded values falls below with probability `delta`."""
    gains = float(max_value) - _arrays.real_vector("values", values)
    return float(max_value) - mean_upper(gains, delta, max_value=max_value, method=method)


def hoeffding_bentkus(mean: float, n: int, bound: float) -> float:
    """Return the p-value of "the true mean is at least `bound`", values in [0, 1].

    ``min(exp(-n h(mean, bound)), e P(Bin(n, bound) <= ceil(n mean)))`` with h the divergence of
    two coins.

    Examples
    --------
    >>> round(hoeffding_bentkus(0.1, 100, 0.2), 5)
    0.01548
    """
    from scipy.special import bdtr, rel_entr

    mean = min(mean, bound)
    divergence = rel_entr(mean, bound) + rel_entr(1 - mean, 1 - bound)
    # n * mean of float losses can miss a whole number by its rounding.
    count = math.ceil(n * mean - 1e-9)
    return float(min(np.exp(-n * divergence), math.e * bdtr(count, n, bound), 1.0))


def _bets(values: FloatArray, log_wanted: float) -> FloatArray:
    """Return the stake at each value, from the variance of the values before it."""
    seen = np.arange(1, len(values) + 1)
    mean = (0.5 + np.cumsum(values)) / (seen + 1)
    variance = (0.25 + np.cumsum((values - mean) ** 2)) / (seen + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    return np.sqrt(2 * log_wanted / (len(values) * before))


def _log_capital(values: FloatArray, bets: FloatArray, m: float) -> float:
    """Return the largest logarithm of the capital on the way, betting that the mean is below m.

    Increasing in m, so that bisection finds where it passes a level.
    """
    stakes = np.minimum(bets, _TRUNCATION / (1 - m)) if m < 1 else bets
    return float(np.cumsum(np.log1p(stakes * (m - values))).max())


def _scaled(values: Any, max_value: float) -> FloatArray:
    if not (max_value > 0 and math.isfinite(max_value)):
        raise InvalidInputError(f"max_value must be a positive number, got {max_value}")
    array = _arrays.nonnegative_vector("values", values)
    above = np.flatnonzero(array > max_value)
    if len(above):
        raise InvalidInputError(
            f"values[{above[0]}] is {array[above[0]]}, above the declared largest {max_value}"
        )
    return array / float(max_value)
