"""What may be expected of a rule in use, and evidence against it, to be looked at at any time.

Evidence against a hypothesis, an e-process, is a number that starts at 1 and, while the hypothesis
holds, reaches 1/alpha at any time at all with probability at most alpha. All of it is computed from
sums, so that shards add up and rows may come in any order within a look.

- Counts: ``k`` of ``n`` against "the share is at most p0" is the mean, over all shares p above p0,
  of the likelihood ratio of p to p0. Shares are weighed by ``(1 - p)^(b - 1)`` with b = 1/p0 - 1,
  and not less than 1, so that the breaks looked for are about as large as the bound itself: a risk
  of .09 against .06 is found after 440 rows in the median, with equal weights after 780.
- Graded losses: the mean over bets lam of ``prod(1 + lam (x - m))``, each bounded below by means of
  the sum and the sum of squares (Fan, Grama and Liu: ``log(1 + l y) >= l y + y^2 (log(1 - l) + l)``
  for y >= -1), which is evidence as well.

Logarithms are natural.

*Expectations* come from the rule's card or are given.

Half of alpha goes to the bounds, in equal parts, and half to what can be checked without labels,
in equal parts; if there is only one kind, it gets all. Sets of a bound on each OOD set share its
part: the j-th that occurs gets 1/(j (j+1)) of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demur._arrays import FloatArray
from demur.core.card import Card
from demur.core.fingerprint import Reference
from demur.core.models import EACH_SET, Bound, RejectionModel
from demur.core.rule import Rule
from demur.core.wording import bound_text
from demur.errors import InvalidInputError
from demur.guarantees.intervals import (
    Interval,
    precision_range,
    rate_lower,
    rate_upper,
)

_HALVINGS = 28
_BETS = 12
LARGEST = 700.0
"""No larger logarithm is turned into a number."""


def above(successes: Any, trials: Any, share: Any, *, around: float | None = None) -> FloatArray:
    """Return log evidence that a share is above `share`; all arguments broadcast.

    Parameters
    ----------
    around
        The size of breaks that the weights are made for; `share` itself by default.

    Examples
    --------
    >>> round(float(np.exp(above(12, 100, 0.06))), 1)
    6.3
    >>> round(float(np.exp(above(30, 250, 0.06))), 1)
    175.1
    """
    from scipy.special import betaincc, betaln

    k, n, p = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (successes, trials, share)))
    inside = (p > 0) & (p < 1)
    at = np.where(inside, p, 0.5)
    size = at if around is None else np.clip(around, 1e-9, 1.0)
    b = np.maximum(1.0, 1 / size - 1)
    with np.errstate(divide="ignore"):
        # Far below the share the part of the mean is 0, and so is the evidence.
        part = np.log(betaincc(k + 1, n - k + b, at)) - b * np.log1p(-at) + np.log(b)
    ratio = betaln(k + 1, n - k + b) - k * np.log(at) - (n - k) * np.log1p(-at)
    # Nothing is above 1; of a share that must be 0 a single success is proof.
    at_zero = np.where(k > 0, np.inf, -np.log1p(n))
    return np.where(inside, ratio + part, np.where(p <= 0, at_zero, 0.0))


def below(successes: Any, trials: Any, share: Any, *, around: float | None = None) -> FloatArray:
    """Return log evidence that a share is below `share`."""
    n = np.asarray(trials, np.float64)
    size = None if around is None else 1 - around
    return above(n - np.asarray(successes), n, 1 - np.asarray(share, np.float64), around=size)


def outside(successes: Any, trials: Any, low: Any, high: Any) -> FloatArray:
    """Return log evidence that a share is outside [low, high]: the mean of both sides.

    A side on which nothing can lie gets no part of the mean.
    """
    k, n, lo, hi = np.broadcast_arrays(successes, trials, low, high)
    up, down = above(k, n, hi), below(k, n, lo)
    both = np.logaddexp(up, down) - math.log(2)
    return np.where(hi >= 1, np.where(lo <= 0, 0.0, down), np.where(lo <= 0, up, both))


def mean_above(moments: Any, mean: Any) -> FloatArray:
    """Return log evidence that values in [0, 1] have a mean above `mean`.

    Parameters
    ----------
    moments
        Shape (..., 3): number of values, their sum and the sum of their squares.
    mean
        Broadcasts against the rest of the shape.
    """
    n, first, second = np.moveaxis(np.asarray(moments, np.float64), -1, 0)
    m = np.asarray(mean, np.float64)
    n, first, second, m = np.broadcast_arrays(n, first, second, m)
    inside = (m > 0) & (m < 1)
    at = np.where(inside, m, 0.5)[..., None]
    # As shares of 1/m, the largest bet that cannot ruin the gambler: from one that is right for
    # losses of 0 and 1 up to one for losses that hardly differ.
    bets = 0.95 * (0.25 * at) ** np.linspace(1, 0, _BETS)
    gain = first[..., None] - n[..., None] * at
    spread = second[..., None] - 2 * at * first[..., None] + n[..., None] * at**2
    logs = bets / at * gain + (np.log1p(-bets) + bets) / at**2 * np.maximum(spread, 0)
    from scipy.special import logsumexp

    found = logsumexp(logs, axis=-1) - math.log(_BETS)
    return np.where(inside, found, np.where((m <= 0) & (first > 0), np.inf, 0.0))


def mean_below(moments: Any, mean: Any) -> FloatArray:
    """Return log evidence that values in [0, 1] have a mean below `mean`."""
    n, first, second = np.moveaxis(np.asarray(moments, np.float64), -1, 0)
    mirrored = np.stack([n, n - first, n - 2 * first + second], axis=-1)
    return mean_above(mirrored, 1 - np.asarray(mean, np.float64))


def share_sequence(
    successes: Any, trials: Any, alpha: float, *, around: float = 0.5
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the confidence sequence of a share, which holds at all times at once.

    It is narrowest for shares about as large as `around`, which must not depend on the counts.

    Examples
    --------
    >>> low, high = share_sequence(30, 250, 0.05, around=0.06)
    >>> round(float(low), 3), round(float(high), 3)
    (0.067, 0.195)
    """
    k, n = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (successes, trials)))
    with np.errstate(invalid="ignore", divide="ignore"):
        seen = np.where(n > 0, k / np.maximum(n, 1), 0.5)
    limit = math.log(2 / alpha)
    low = _cross(lambda p: above(k, n, p, around=around) >= limit, np.zeros_like(seen), seen)
    high = _cross(lambda p: below(k, n, p, around=around) >= limit, np.ones_like(seen), seen)
    return np.where(k > 0, low, 0.0), np.where(k < n, high, 1.0)


def mean_sequence(moments: Any, alpha: float) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the confidence sequence of a mean of values in [0, 1]."""
    sums = np.asarray(moments, np.float64)
    n, first = sums[..., 0], sums[..., 1]
    seen = np.where(n > 0, first / np.maximum(n, 1), 0.5)
    limit = math.log(2 / alpha)
    low = _cross(lambda m: mean_above(sums, m) >= limit, np.zeros_like(seen), seen)
    high = _cross(lambda m: mean_below(sums, m) >= limit, np.ones_like(seen), seen)
    return np.where(first > 0, low, 0.0), np.where(first < n, high, 1.0)


def _cross(excluded: Callable[[FloatArray], Any], end: FloatArray, seen: FloatArray) -> FloatArray:
    """Return where, between an end and what was seen, values stop being excluded."""
    out, inside = end.copy(), seen.copy()
    for _ in range(_HALVINGS):
        middle = (out + inside) / 2
        gone = excluded(middle)
        out, inside = np.where(gone, middle, out), np.where(gone, inside, middle)
    # The outer one, so that rounding makes the sequence wider.
    return out


def audited_share(share: Any, rates: tuple[float, float]) -> FloatArray:
    """Return the share of accepted ones among audited rows, from that among all rows.

    `rates` are the chances that an accepted and a rejected row is audited. With the rates swapped
    it is the way back.
    """
    p = np.asarray(share, np.float64)
    of_accepted, of_rejected = p * rates[0], (1 - p) * rates[1]
    total = of_accepted + of_rejected
    return np.where(total > 0, of_accepted / np.where(total > 0, total, 1), p)


def number(log_evidence: float) -> float:
    """Return evidence as a number, at most exp(700)."""
    return math.exp(min(log_evidence, LARGEST)) if log_evidence > -math.inf else 0.0


ACCEPTANCE, GAPS = "accepted share", "missing scores"
"""Names of two checks; the others are called by their score."""

_REFERENCE_PART = 0.1
"""So much of the checks' part of alpha pays for what the reference does not know exactly."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """A bound that is watched, and its part of alpha."""

    bound: Bound
    weight: float
    origin: str
    """Where it comes from, in words."""

    @property
    def name(self) -> str:
        """What it is called, such as ``"fpr <= 0.1"``."""
        return bound_name(self.bound)

    def of_set(self, name: str, number: int) -> Expectation:
        """Return the expectation for one OOD set, the number-th that occurs."""
        part = self.weight / (number * (number + 1))
        return replace(self, bound=replace(self.bound, ood_set=name), weight=part)


def bound_name(bound: Bound) -> str:
    """Return a bound in a few signs."""
    return bound_text(RejectionModel("selective_risk"), bound)


@dataclass(frozen=True, slots=True)
class Check:
    """Something that can be checked without labels, and its part of alpha."""

    name: str
    weight: float


@dataclass(frozen=True, slots=True)
class KnownRates:
    """What is known of TPR and FPR, and of the share of OOD inputs."""

    tpr: Interval
    fpr: Interval
    prior: Interval | None
    """None where nothing was said about it."""
    origin: str

    @property
    def accepted(self) -> Interval | None:
        """Which shares of accepted rows these allow; None without a prior."""
        if self.prior is None:
            return None
        t, f, pi = self.tpr, self.fpr, self.prior
        low = min((1 - p) * t.low + p * f.low for p in (pi.low, pi.high))
        high = max((1 - p) * t.high + p * f.high for p in (pi.low, pi.high))
        return Interval(low, high)

    def prior_of(self, accepted: bool) -> Interval:
        """Return the share of OOD inputs among accepted, or among rejected rows."""
        if self.prior is None:
            return Interval(0.0, 1.0)
        t, f = self.tpr, self.fpr
        if not accepted:
            t, f = Interval(1 - t.high, 1 - t.low), Interval(1 - f.high, 1 - f.low)
        of_id = precision_range(t, f, self.prior)
        if of_id.low != of_id.low:
            return Interval(0.0, 1.0)
        return Interval(1 - of_id.high, 1 - of_id.low)


def expected_bounds(rule: Rule, given: Sequence[Bound] | None) -> list[tuple[Bound, str]]:
    """Return the bounds to watch: those given, or certified, or else asked for in tuning."""
    if given is not None:
        if not all(isinstance(bound, Bound) for bound in given):
            raise InvalidInputError(f"expect must be a list of Bound(...), got {given!r}")
        return [(bound, "given") for bound in given]
    card = rule.card
    if card is None:
        return []
    certified = card.points.get("certified")
    if certified:
        return [(bound, "certified by the rule's card") for bound in _certified(card, certified)]
    return [(bound, "asked for in tuning, not certified") for bound in _asked(card)]


def _certified(card: Card, point: dict[str, Any]) -> list[Bound]:
    known = [b for b in _asked(card) if b.quantity in point]
    risk = point.get("selective_risk")
    if risk is not None and all(b.quantity != "selective_risk" for b in known):
        known.append(Bound("selective_risk", at_most=risk))
    return known


def _asked(card: Card) -> list[Bound]:
    if card.model is None:
        return []
    bounds = [bound for bound in card.model.bounds if not bound.is_trivial]
    if card.ood == "worst":
        return [replace(b, ood_set=EACH_SET) if b.quantity == "fpr" else b for b in bounds]
    return bounds


def shared(
    bounds: Iterable[tuple[Bound, str]], checks: Sequence[str]
) -> tuple[tuple[Expectation, ...], tuple[Check, ...]]:
    """Return expectations and checks with their parts of alpha, which add up to at most 1."""
    listed = list(bounds)
    half = 0.5 if listed and checks else 1.0
    expectations = tuple(Expectation(b, half / len(listed), origin) for b, origin in listed)
    if len({e.name for e in expectations}) < len(expectations):
        raise InvalidInputError("expect has a bound twice")
    part = half * (1 - _REFERENCE_PART) / len(checks) if checks else 0.0
    return expectations, tuple(Check(name, part) for name in checks)


def reference_level(alpha: float, *, bounds: bool) -> float:
    """Return the chance with which the reference may be wrong altogether."""
    return alpha * (0.5 if bounds else 1.0) * _REFERENCE_PART


def known_rates(
    rule: Rule, reference: Reference | None, prior: Interval | None, level: float
) -> KnownRates | None:
    """Return what is known of the rule's rates: certified ones, or those of the reference.

    The intervals of the reference fail with probability at most `level` together.
    """
    card = rule.card
    prior = prior if prior is not None else _model_prior(card)
    if prior is None and reference is not None and reference.accepted(1)[1] == 0:
        # The rule knows of ID inputs only, and so does what is expected.
        prior = Interval(0.0, 0.0)
    point = {} if card is None else card.points.get("certified", {})
    if "tpr" in point or "fpr" in point:
        return KnownRates(
            Interval(float(point.get("tpr", 0.0)), 1.0),
            Interval(0.0, float(point.get("fpr", 1.0))),
            prior,
            "certified by the rule's card",
        )
    if reference is None:
        return None
    tpr, fpr = (rate_ends(*reference.accepted(side), level / 4) for side in (0, 1))
    return KnownRates(tpr, fpr, prior, "seen on the rows of the reference, not certified")


def rate_ends(successes: int, trials: int, level: float) -> Interval:
    """Return what a rate lies between, each end at the level; of no trials nothing is known."""
    if trials == 0:
        return Interval(0.0, 1.0)
    return Interval(rate_lower(successes, trials, level), rate_upper(successes, trials, level))


def _model_prior(card: Card | None) -> Interval | None:
    model = None if card is None else card.model
    if model is None or model.ood_prior is None:
        return None
    return Interval(float(model.ood_prior), float(model.ood_prior))
