"""Intervals that hold: exact ones for rates, and what follows from them.

Rates are binomial, and a level can be shared among several of them. Precision and expected cost
follow from the rates and the share of OOD inputs, over an interval of each.

Mean losses lie between 0 and a declared largest value; their bounds are here as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from demur import _arrays
from demur._arrays import NUMBER, WHOLE, FloatArray, check_kind, takes
from demur.core.models import RejectionModel
from demur.core.program import Number, exact
from demur.core.sample import Sample
from demur.errors import InvalidInputError

if TYPE_CHECKING:
    from demur.guarantees.splits import Seed


@dataclass(frozen=True, slots=True)
class Interval:
    """A closed interval of numbers.

    Examples
    --------
    >>> from demur.guarantees import Interval
    >>> interval = Interval(low=0.78, high=0.84)
    >>> interval.high
    0.84
    """

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


Prior = Number | tuple[Number, Number]
Rate = float | Interval


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


def refuse_weights(sample: Sample) -> None:
    """Raise when the rows carry weights: exact bounds count independent rows."""
    if sample.id_weight is not None or sample.ood_weight is not None:
        raise InvalidInputError(
            "the sample has weights, but exact bounds count independent rows, and a row of "
            "weight 2 is not two independent rows: give the rows without weights (--weight '' "
            "where a rule's card names them)"
        )


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


def _check_counts(successes: int, trials: int) -> None:
    if not 0 <= successes <= trials:
        raise InvalidInputError(
            f"successes must be between 0 and the {trials} trials, got {successes}"
        )


def precision_range(tpr: Rate, fpr: Rate, ood_prior: Prior | Interval) -> Interval:
    """Return the smallest and largest precision over intervals of TPR, FPR and prior.

    ``(1-pi) TPR / ((1-pi) TPR + pi FPR)`` rises with TPR and falls with FPR and pi, so the ends
    are reached at corners. NaN where nothing is accepted.

    Examples
    --------
    >>> precision_range(0.8, 0.1, (0.1, 0.5))
    Interval(low=0.888888888888889, high=0.9863013698630136)
    """
    t, f, pi = as_interval(tpr), as_interval(fpr), _prior_interval(ood_prior)
    if t.high == 0 and pi.high * f.high == 0:
        return Interval(math.nan, math.nan)
    return Interval(_precision(t.low, f.high, pi.high), _precision(t.high, f.low, pi.low))


@takes(model=RejectionModel)
def cost_range(
    model: RejectionModel, tpr: Rate, fpr: Rate, selective_risk: Rate, ood_prior: Prior | Interval
) -> Interval:
    """Return the smallest and largest expected cost over intervals of the rates and the prior.

    ``(1-pi) (reject_id + TPR (risk - reject_id)) + pi (reject_ood + FPR (accept_ood -
    reject_ood))`` is linear in each of them, so the ends are reached at corners. The prior of
    `model` is not used.

    Examples
    --------
    >>> from demur import CostModel
    >>> model = CostModel(reject_id=0.5, accept_ood=1, reject_ood=0, ood_prior=0.1)
    >>> cost_range(model, 0.5, 0.125, 0.25, (0, 0.5))
    Interval(low=0.25, high=0.375)
    """
    cost = model.cost
    if cost is None:
        raise InvalidInputError(f"cost_range needs a model with costs (CostModel), got {model!r}")
    t, f, risk = as_interval(tpr), as_interval(fpr), as_interval(selective_risk, math.inf)
    pi = _prior_interval(ood_prior)

    def at_corners(fpr: float, loss: float) -> list[float]:
        # What is not accepted has no loss, though the selective risk is NaN then.
        losses = [(share, share * loss if share > 0 else 0.0) for share in (t.low, t.high)]
        return [cost.at(s, fpr, lost, p) for s, lost in losses for p in (pi.low, pi.high)]

    return Interval(min(at_corners(f.low, risk.low)), max(at_corners(f.high, risk.high)))


def prior_range(model: RejectionModel | None, ood_prior: Prior | None) -> Interval | None:
    """Return the declared prior, of the argument before the model, as an interval."""
    if ood_prior is not None:
        return _prior_interval(ood_prior)
    if model is None or model.ood_prior is None:
        return None
    return _prior_interval(model.ood_prior)


def _precision(tpr: float, fpr: float, prior: float) -> float:
    # No OOD input is accepted: whatever is, is ID.
    if prior * fpr == 0:
        return 1.0
    return (1 - prior) * tpr / ((1 - prior) * tpr + prior * fpr)


def as_interval(rate: Rate, most: float = 1.0) -> Interval:
    """Return a rate as an interval, that of a number having equal ends."""
    if isinstance(rate, Interval):
        return rate
    check_kind("a rate", rate, NUMBER)
    if rate < 0 or rate > most:
        raise InvalidInputError(f"a rate must be between 0 and {most:g}, got {rate}")
    return Interval(float(rate), float(rate))


def _prior_interval(prior: Prior | Interval) -> Interval:
    if isinstance(prior, Interval):
        return prior
    ends = prior if isinstance(prior, tuple) else (prior, prior)
    if len(ends) != 2:
        raise InvalidInputError(f"ood_prior must be a number or a pair (low, high), got {prior!r}")
    low, high = (exact("ood_prior", end) for end in ends)
    if not 0 <= low <= high < 1:
        raise InvalidInputError(
            f"ood_prior must be in [0, 1), or such a pair (low, high) with the smaller first, got "
            f"{' and '.join(map(str, ends))}"
        )
    return Interval(float(low), float(high))


Method = Literal["betting", "hoeffding_bentkus"]

# Share of the largest safe bet. At 1 a single loss can ruin the gambler for good.
_TRUNCATION = 0.75
_HALVINGS = 60


def risk_upper(
    losses: FloatArray, level: float, *, max_loss: Number | None = None, rng: Seed = 0
) -> float:
    """Return the upper bound for selective risk from the losses of the accepted ID rows.

    No accepted row leaves the trivial bound.
    """
    if max_loss is None:
        return rate_upper(int(losses.sum()), len(losses), level)
    # The gambler needs an order that is independent of the losses; a file may be sorted.
    shuffled = np.random.default_rng(rng).permutation(losses)
    return mean_upper(shuffled, level, max_value=float(max_loss))


def declared_losses(sample: Sample, max_loss: Number | None) -> FloatArray:
    """Return the ID losses, checked against what was declared of them."""
    losses = sample.id_loss
    if max_loss is None:
        bad = np.flatnonzero((losses != 0) & (losses != 1))
        if len(bad):
            raise InvalidInputError(
                f"id_loss[{bad[0]}] is {losses[bad[0]]}: for a loss other than 0/1 declare "
                "max_loss, the largest loss that is possible, seen or not"
            )
        return losses
    if not 0 < float(max_loss) < math.inf:
        raise InvalidInputError(f"max_loss must be a positive number, got {max_loss}")
    bad = np.flatnonzero(losses > float(max_loss))
    if len(bad):
        raise InvalidInputError(
            f"id_loss[{bad[0]}] is {losses[bad[0]]}, above the declared max_loss {max_loss}"
        )
    return losses


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
    """Return a number that the mean of bounded values falls below with probability `delta`.

    Examples
    --------
    >>> from demur.guarantees import mean_lower
    >>> round(mean_lower([0.9] * 50 + [0.5] * 50, 0.05), 3)
    0.83
    """
    gains = float(max_value) - _arrays.real_vector("values", values)
    return float(max_value) - mean_upper(gains, delta, max_value=max_value, method=method)


def ratio_upper(
    parts: FloatArray, wholes: FloatArray, delta: float, *, max_value: float = 1.0
) -> float:
    """Return a number that a ratio of means exceeds with probability at most `delta`.

    Of E[part] / E[whole] with whole in [0, 1] and part in [0, max_value * whole]. If the ratio is
    at least m, ``m * whole - part`` has no positive mean, so a gambler who bets on it multiplies
    the stake by 1/delta with probability at most delta; the bound is the smallest m at which that
    happens. In the order of an independent sample.
    """
    scaled, wanted, n = parts / max_value, -math.log(delta), len(parts)
    if n == 0:
        return float(max_value)
    # The variance around the ratio of the rows before: a stake may not know its own row.
    before = (0.5 + np.concatenate([[0.0], np.cumsum(scaled)[:-1]])) / (
        1 + np.concatenate([[0.0], np.cumsum(wholes)[:-1]])
    )
    squares = np.concatenate([[0.0], np.cumsum((scaled - before * wholes) ** 2)[:-1]])
    bets = np.sqrt(2 * wanted / (n * (0.25 + squares) / np.arange(1, n + 1)))

    def capital(m: float) -> float:
        stakes = np.minimum(bets, _TRUNCATION / (1 - m)) if m < 1 else bets
        return float(np.cumsum(np.log1p(stakes * (m * wholes - scaled))).max())

    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if capital(middle) >= wanted else (middle, high)
    return high * float(max_value)


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
