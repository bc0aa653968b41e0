"""The share of OOD inputs in use, from inputs without labels.

What is promised. Let h be any function of the scores with values in [0, 1], fixed beforehand: here
P(OOD | scores), fitted on a part of the labelled rows that is used for nothing else. If the inputs
in use are a mixture of (1 - pi) ID and pi OOD inputs like the labelled ones, then
``X(pi) = h(in use) - (1 - pi) h(ID row) - pi h(OOD row)`` has mean 0 and lies in [-1, 1]. A gambler
who bets on X(pi), up and down with half the stake each, multiplies the stake by 1/delta with
probability at most delta. So does the average of several gamblers who see the rows in different
orders. The interval holds every pi against which no such fortune was made; it misses the true one
with probability at most delta, for every number of rows.

Beside it, the likelihood interval of ten bins of h is shorter and approximate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arrays import FloatArray, IntArray, seeded, takes
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.intervals import Interval, Rate, as_interval, miss, refuse_weights
from demur.guarantees.learned_rules import RankLogistic
from demur.guarantees.splits import Seed, split

_LEARN_SHARE = 0.2
_PAIRINGS = 5
_GRID = 100
_HALVINGS = 8
_LIKELY_GRID = 400
_LARGEST_BET = 0.75
_FEWEST_BLOCKS = 2000
_BINS = 10
_STEPS = 200


@dataclass(frozen=True, slots=True)
class PriorEstimate:
    """The share of OOD inputs in deployment, as far as scores tell it.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> fresh = dm.Sample(rng.normal(0, 1, 500), np.zeros(500), rng.normal(3, 1, 500))
    >>> live = np.concatenate([rng.normal(0, 1, 800), rng.normal(3, 1, 200)])
    >>> found = dm.guarantees.estimate_prior(dm.Rule([1.0], 1.5), live, validation=fresh, rng=0)
    >>> 0.2 in found.interval, found.confidence
    (True, 0.95)
    """

    estimate: float
    """The most likely share, between 0 and 1."""
    interval: Interval
    """Promised. NaN when no prior explains the scores: the inputs are unlike the labelled rows."""
    accepted_share: float
    confidence: float
    likely: Interval | None = None
    """The likelihood interval: shorter, and approximate."""

    @property
    def consistent(self) -> bool:
        """Whether some prior explains the scores."""
        return not math.isnan(self.interval.low)


@takes(rule=Rule, validation=Sample)
def estimate_prior(
    rule: Rule, scores: Any, *, validation: Sample, confidence: float = 0.95, rng: Seed = 0
) -> PriorEstimate:
    """Estimate the OOD prior from unlabelled deployment scores, with an interval.

    All scores of the rule count, not only what it accepts. The interval is valid for every number
    of rows as long as ID and OOD inputs in deployment are like those of `validation`, in another
    proportion; the module's docstring has the argument.

    Parameters
    ----------
    scores
        Of inputs in use, in the columns of the rule.
    validation
        Labelled rows that the rule was not tuned on.
    rng
        Draws the rows to learn from and the pairings. Choose it before looking at results.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fresh = Sample(rng.normal(0, 1, 2000), np.zeros(2000), ood_scores=rng.normal(3, 1, 2000))
    >>> deployed = np.concatenate([rng.normal(0, 1, 3500), rng.normal(3, 1, 1500)])
    >>> found = estimate_prior(Rule((1.0,), 1.5), deployed, validation=fresh)
    >>> round(found.estimate, 2), 0.3 in found.interval
    (0.31, True)
    """
    refuse_weights(validation)
    if validation.n_ood < 2 or validation.n_id < 2:
        what = "no OOD rows" if validation.n_ood == 0 else "fewer than two rows of a side"
        raise InvalidInputError(f"validation has {what}, so what they look like is unknown")
    accepted = rule.accept(scores)
    if len(accepted) == 0:
        raise InvalidInputError("scores is empty: the prior cannot be estimated")
    delta = miss(confidence)
    splitting, pairing = seeded(rng).spawn(2)
    learn, rest = split(validation, _LEARN_SHARE, splitting)
    both = np.concatenate([_doubts(rule, learn, 0), _doubts(rule, learn, 1)])
    is_ood = np.repeat([0.0, 1.0], [learn.n_id, learn.n_ood])
    fitted = RankLogistic.fit(both, is_ood)
    parts = _columns(rule, scores), _doubts(rule, rest, 0), _doubts(rule, rest, 1)
    on_live, on_id, on_ood = (fitted.predict(part) for part in parts)
    kept = _unrefuted(on_live, on_id, on_ood, delta, pairing)
    estimate, likely = _likelihood(on_live, on_id, on_ood, delta)
    return PriorEstimate(
        estimate=estimate,
        interval=kept,
        accepted_share=float(accepted.mean()),
        confidence=confidence,
        likely=likely,
    )


def _doubts(rule: Rule, sample: Sample, side: int) -> FloatArray:
    """Return the scores that the rule weighs, of the ID rows (0) or the OOD rows (1)."""
    scores = (sample.id_scores, sample.ood_scores)[side]
    # In the order of the rule, whatever that of the sample.
    return np.column_stack([one.on(sample.columns).combine(scores) for one in _single(rule)])


def _columns(rule: Rule, scores: Any) -> FloatArray:
    """Return the scores that the rule weighs, read as the rule reads them."""
    return np.column_stack([one.combine(scores) for one in _single(rule)])


def _single(rule: Rule) -> list[Rule]:
    """Return rules of one score each, as doubt, for the scores that the rule weighs."""
    found = []
    for column, weight in enumerate(rule.direction):
        if weight:
            alone = [0.0] * len(rule.direction)
            alone[column] = math.copysign(1.0, weight)
            found.append(Rule(tuple(alone), 0.0, 1.0, rule.score_names, rule.confidence))
    return found


def _unrefuted(
    live: FloatArray, own: FloatArray, foreign: FloatArray, delta: float, rng: np.random.Generator
) -> Interval:
    """Return the hull of the priors against which betting made no fortune."""
    parts = live, own, foreign
    fewest = min(map(len, parts))
    # Long samples in blocks: enough of them that bets stay below their largest.
    blocks = min(fewest, max(_FEWEST_BLOCKS, round(15 * math.sqrt(fewest))))
    pairings = [tuple(_block_means(part, blocks, rng) for part in parts) for _ in range(_PAIRINGS)]
    limit = math.log(2 * _PAIRINGS / delta)

    def fortune(prior: float) -> float:
        stakes = [_log_stakes(a, b, c, prior, delta) for a, b, c in pairings]
        return float(np.logaddexp.reduce(np.concatenate(stakes)))

    priors = np.linspace(0, 1, _GRID + 1)
    found = np.array([fortune(prior) for prior in priors.tolist()])
    # Many rows may leave less than a step of the grid.
    around = np.clip(priors[found.argmin()] + np.linspace(-1, 1, 41) / _GRID, 0, 1)
    priors = np.concatenate([priors, around])
    found = np.concatenate([found, [fortune(prior) for prior in around.tolist()]])
    kept, refuted = priors[found < limit], priors[found >= limit]
    if len(kept) == 0:
        return Interval(math.nan, math.nan)

    def end(inside: float, outside: FloatArray) -> float:
        if len(outside) == 0:
            return inside
        beyond = float(outside[np.abs(outside - inside).argmin()])
        for _ in range(_HALVINGS):
            middle = (inside + beyond) / 2
            inside, beyond = (middle, beyond) if fortune(middle) < limit else (inside, middle)
        return beyond

    low, high = float(kept.min()), float(kept.max())
    return Interval(end(low, refuted[refuted < low]), end(high, refuted[refuted > high]))


def _block_means(values: FloatArray, blocks: int, rng: np.random.Generator) -> FloatArray:
    order = rng.permutation(values)
    starts = np.arange(blocks) * len(values) // blocks
    return np.add.reduceat(order, starts) / np.diff(np.append(starts, len(values)))


def _log_stakes(
    live: FloatArray, own: FloatArray, foreign: FloatArray, prior: float, delta: float
) -> FloatArray:
    """Return the logarithms of the final stakes against a prior, betting up and betting down."""
    n = len(live)
    x = live - (1 - prior) * own - prior * foreign
    # The variance of what came before, so that no bet knows its own row.
    squares = np.concatenate([[0.0], np.cumsum(x * x)[:-1]])
    variance = (0.05 + squares) / np.arange(1, n + 1)
    bets = x * np.minimum(_LARGEST_BET, np.sqrt(2 * math.log(2 / delta) / n / variance))
    return np.array([np.log1p(bets).sum(), np.log1p(-bets).sum()])


def _likelihood(
    live: FloatArray, own: FloatArray, foreign: FloatArray, delta: float
) -> tuple[float, Interval]:
    """Return the most likely prior and the profile likelihood interval, of counts in bins."""
    from scipy.special import chdtri

    edges = np.unique(np.quantile(np.concatenate([own, foreign]), np.linspace(0, 1, _BINS + 1)))
    of_live, of_id, of_ood = (_counts(part, edges[1:-1]) for part in (live, own, foreign))
    priors = np.linspace(0, 1, _LIKELY_GRID + 1)
    values = _profile(of_live, of_id, of_ood, priors)
    best = int(values.argmax())
    # Where the likelihood falls below its limit, between the values looked at.
    above = values - values[best] + float(chdtri(1, delta)) / 2
    low = float(np.interp(0, above[: best + 1], priors[: best + 1])) if above[0] < 0 else 0.0
    high = float(np.interp(0, -above[best:], priors[best:])) if above[-1] < 0 else 1.0
    return float(priors[best]), Interval(low, high)


def _counts(values: FloatArray, edges: FloatArray) -> IntArray:
    return np.bincount(np.searchsorted(edges, values, "right"), minlength=len(edges) + 1)


def _profile(live: IntArray, own: IntArray, foreign: IntArray, priors: FloatArray) -> FloatArray:
    """Return the largest log likelihood at each prior, over the bins' shares of ID and OOD."""
    # Half a row in each bin keeps shares positive.
    pi = priors[:, None]
    p = np.broadcast_to((own + 0.5) / (own + 0.5).sum(), (len(priors), len(own)))
    q = np.broadcast_to((foreign + 0.5) / (foreign + 0.5).sum(), p.shape)
    for _ in range(_STEPS):
        mixed = (1 - pi) * p + pi * q
        share = pi * q / mixed
        p, q = own + 1e-9 + live * (1 - share), foreign + 1e-9 + live * share
        p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    mixed = (1 - pi) * p + pi * q
    return np.asarray((live * np.log(mixed) + own * np.log(p) + foreign * np.log(q)).sum(axis=1))


def explaining_priors(accepted_share: Rate, *, tpr: Rate, fpr: Rate) -> Interval:
    """Return the priors at which ``(1-pi) TPR + pi FPR`` can be the accepted share.

    Examples
    --------
    >>> explaining_priors(Interval(0.5, 0.625), tpr=0.875, fpr=0.125)
    Interval(low=0.3333333333333333, high=0.5)
    """
    share, t, f = as_interval(accepted_share), as_interval(tpr), as_interval(fpr)
    # Two half-lines in pi: the least share possible is not too large, the largest not too small.
    low, high = _where_positive(share.high - t.low, t.low - f.low)
    low2, high2 = _where_positive(t.high - share.low, f.high - t.high)
    low, high = max(low, low2), min(high, high2)
    return Interval(low, high) if low <= high else Interval(math.nan, math.nan)


def _where_positive(at_zero: float, slope: float) -> tuple[float, float]:
    """Return the part of [0, 1] where ``at_zero + slope * pi >= 0``; (1, 0) if none."""
    at_one = at_zero + slope
    if at_zero >= 0 and at_one >= 0:
        return 0.0, 1.0
    if at_zero < 0 and at_one < 0:
        return 1.0, 0.0
    root = -at_zero / slope
    return (0.0, root) if at_zero >= 0 else (root, 1.0)
