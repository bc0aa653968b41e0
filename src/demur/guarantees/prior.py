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

*Sources* of more rows than memory holds are counted. h is then the same function, evaluated at one
score of each bin that the rows to learn from are cut into: how many rows of each side, and in use,
there are in a cell tells all its values, and a random order of the rows can be drawn from these
numbers. The rows to learn from are drawn by a hash of the key, or of the scores. Without a key that
is refused where many rows share scores: all rows of one score would then be learned from or none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arrays import FloatArray, IntArray, seeded, takes
from demur.core.bins import Bins, axis_for
from demur.core.rates import evaluate
from demur.core.row_draws import PRIME, RowDraw, bring, drawable, drawn_together
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import Measure, Overview, ScoreSource
from demur.errors import InvalidInputError
from demur.guarantees.intervals import Interval, Rate, as_interval, miss, refuse_weights
from demur.guarantees.learned_rules import RankLogistic
from demur.guarantees.splits import Seed, sorted_rows, split

_LEARN_SHARE = 0.2
_PAIRINGS = 5
_GRID = 100
_HALVINGS = 8
_LIKELY_GRID = 400
_LARGEST_BET = 0.75
_FEWEST_BLOCKS = 2000
_BINS = 10
_STEPS = 200
# Rows of a side to learn from, where they are counted; values that are put in a random order.
_LEARN_ROWS = 50_000
_MOST_ROWS = 20_000_000
_VALUE_BYTES = 32
_ROW_BYTES = 600
_CHUNK = 1 << 16
# Share of the rows learned from times rows of one score, above which these are too many.
_TOGETHER = 0.05


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


@takes(rule=Rule, validation=(Sample, ScoreSource))
def estimate_prior(
    rule: Rule,
    scores: Any,
    *,
    validation: Sample | ScoreSource,
    confidence: float = 0.95,
    rng: Seed = 0,
) -> PriorEstimate:
    """Estimate the OOD prior from unlabelled deployment scores, with an interval.

    All scores of the rule count, not only what it accepts. The interval is valid for every number
    of rows as long as ID and OOD inputs in deployment are like those of `validation`, in another
    proportion; the module's docstring has the argument.

    Parameters
    ----------
    scores
        Of inputs in use, in the columns of the rule; or a source of them, opened with
        ``labelled=False``.
    validation
        Labelled rows that the rule was not tuned on, or a source of them. What memory holds of
        sources is read; more rows are counted where they are.
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
    if isinstance(validation, ScoreSource) or isinstance(scores, ScoreSource):
        return _of_sources(rule, scores, validation, confidence, rng)
    refuse_weights(validation)
    _check_sides(validation.n_id, validation.n_ood)
    accepted = rule.accept(scores)
    if len(accepted) == 0:
        raise InvalidInputError("scores is empty: the prior cannot be estimated")
    delta = miss(confidence)
    splitting, pairing = seeded(rng).spawn(2)
    # What is drawn must not depend on the order of the rows, which engines choose.
    learn, rest = split(sorted_rows(validation), _LEARN_SHARE, splitting)
    both = np.concatenate([_doubts(rule, learn, 0), _doubts(rule, learn, 1)])
    is_ood = np.repeat([0.0, 1.0], [learn.n_id, learn.n_ood])
    fitted = RankLogistic.fit(both, is_ood)
    parts = _columns(rule, scores), _doubts(rule, rest, 0), _doubts(rule, rest, 1)
    on_live, on_id, on_ood = (np.sort(fitted.predict(part)) for part in parts)
    kept = _unrefuted(on_live, on_id, on_ood, delta, pairing)
    estimate, likely = _likelihood(on_live, on_id, on_ood, delta)
    return PriorEstimate(
        estimate=estimate,
        interval=kept,
        accepted_share=float(accepted.mean()),
        confidence=confidence,
        likely=likely,
    )


def _check_sides(n_id: int, n_ood: int) -> None:
    if min(n_id, n_ood) < 2:
        what = "no OOD rows" if n_ood == 0 else "fewer than two rows of a side"
        raise InvalidInputError(f"validation has {what}, so what they look like is unknown")


def _of_sources(
    rule: Rule, scores: Any, validation: Sample | ScoreSource, confidence: float, rng: Seed
) -> PriorEstimate:
    """Return the estimate of rows of which some, or all, stay where they are."""
    if isinstance(rng, bool) or not isinstance(rng, int) or rng < 0:
        raise InvalidInputError(f"rng of a source must be a whole number, a seed, got {rng!r}")
    from demur.sources.engines.frames import ArraySource

    live = scores if isinstance(scores, ScoreSource) else ArraySource(_unlabelled(rule, scores))
    known = ArraySource(validation) if isinstance(validation, Sample) else validation
    seen, in_use = known.overview(), live.overview()
    _check_sides(seen.id_rows, sum(seen.ood_rows))
    if in_use.rows == 0:
        raise InvalidInputError("scores is empty: the prior cannot be estimated")
    for name, rows in (("validation", known), ("scores", live)):
        if rows.sample(1000, seed=0).weight is not None:
            raise InvalidInputError(f"{name}: a promise counts rows, and these have weights")
    if seen.rows <= known.memory // _ROW_BYTES and in_use.rows <= live.memory // _ROW_BYTES:
        used = bring(live, in_use.rows)
        return estimate_prior(
            rule.on(used.columns),
            used.id_scores,
            validation=bring(known, seen.rows),
            confidence=confidence,
            rng=rng,
        )
    return _counted(rule, live, known, seen, confidence, rng)


def _unlabelled(rule: Rule, scores: Any) -> Sample:
    """Return rows of scores, in the columns of a rule, that have no labels."""
    count = len(rule.direction)
    alone = [
        Rule(tuple(1.0 * (k == column) for k in range(count)), 0.0, 1.0, rule.score_names)
        for column in range(count)
    ]
    raw = np.column_stack([one.combine(scores) for one in alone])
    named = {"score_names": rule.score_names, "confidence": rule.confidence}
    return Sample(raw, np.zeros(len(raw)), **named)  # type: ignore[arg-type]


def _counted(
    rule: Rule,
    live: ScoreSource,
    known: ScoreSource,
    seen: Overview,
    confidence: float,
    seed: int,
) -> PriorEstimate:
    """Return the estimate from numbers of rows in cells."""
    delta = miss(confidence)
    shares = [min(_LEARN_SHARE, _LEARN_ROWS / rows) for rows in (seen.id_rows, sum(seen.ood_rows))]
    draw = RowDraw("prior", seed, tuple((0, math.floor(share * PRIME)) for share in shares))  # type: ignore[arg-type]
    rows = drawable(known)
    learn = bring(rows.drawn(draw), seen.rows)
    _refuse_ties(known, learn, max(shares), seen.rows, seed)
    weighed = [k for k, weight in enumerate(rule.for_doubts(known.columns).direction) if weight]
    cells = _LearnedCells.of(sorted_rows(learn), weighed)
    rest = cells.counts(rows.drawn(draw.others))
    in_use = cells.counts(_same_columns(live, known))
    parts = (in_use[0], rest[0], rest[1])
    rng = np.random.default_rng([seed, 1])
    most = min(_MOST_ROWS, min(known.memory, live.memory) // _VALUE_BYTES)
    values = [cells.values(part, most, rng) for part in parts]
    kept = _unrefuted(values[0], values[1], values[2], delta, rng)
    estimate, likely = _likelihood(values[0], values[1], values[2], delta)
    return PriorEstimate(
        estimate=estimate,
        interval=kept,
        accepted_share=evaluate(rule, live).tpr,
        confidence=confidence,
        likely=likely,
    )


def _same_columns(live: ScoreSource, known: ScoreSource) -> ScoreSource:
    if live.columns != known.columns:
        raise InvalidInputError(
            f"scores has the columns {live.score_names}, validation {known.score_names}: open both "
            "with the same scores, in the same order and sense"
        )
    return live


def _refuse_ties(known: ScoreSource, learn: Sample, share: float, rows: int, seed: int) -> None:
    """Refuse rows that are drawn by their scores, where many share them.

    How far that moves the mean of h, compared with what chance does anyway, goes with the share of
    rows learned from times the rows that share the scores of one.
    """
    if getattr(known, "drawn_by_key", False):
        return
    together = drawn_together(np.vstack([learn.id_scores, learn.ood_scores]))
    # Learned from were all rows of a score, or none.
    if together * share > _TOGETHER:
        raise InvalidInputError(
            "rows to learn from are drawn by a hash of their scores, and about "
            f"{together + 1:,.0f} rows share the scores of one: open the source with key=, a "
            "column that tells rows apart, or allow more memory"
        )


@dataclass(frozen=True, slots=True, eq=False)
class _LearnedCells:
    """P(OOD | scores), one value for each cell; rows with an infinite score have the value 1."""

    bins: Bins
    value: FloatArray
    """Of each cell, and of rows in none."""

    @classmethod
    def of(cls, learn: Sample, weighed: list[int]) -> _LearnedCells:
        """Fit on rows to learn from; other columns than those weighed are not told apart."""
        both = np.vstack([learn.id_doubts, learn.ood_doubts]) + 0.0
        both = both[np.isfinite(both).all(axis=1)]
        count = 512 if len(weighed) == 2 else 1 << 16
        axes = [
            axis_for(column if k in weighed else column[:0], count if k in weighed else 1)
            for k, column in enumerate(both.T)
        ]
        # A score of each bin: its smallest one, of the first bin the smallest learned from.
        ends = [np.append(both[:, k].min(), axes[k].edges())[: axes[k].bins] for k in weighed]
        sides = learn.id_doubts[:, weighed], learn.ood_doubts[:, weighed]
        is_ood = np.repeat([0.0, 1.0], [learn.n_id, learn.n_ood])
        fitted = RankLogistic.fit(np.vstack(sides), is_ood)
        grid = np.stack([end.ravel() for end in np.meshgrid(*ends, indexing="ij")], axis=1)
        value = np.concatenate(
            [fitted.predict(grid[start : start + _CHUNK]) for start in range(0, len(grid), _CHUNK)]
        )
        # A bin of a column that is not weighed is the only one of it.
        return cls(Bins(tuple(axes)), np.append(np.round(value, 4), 1.0))

    def counts(self, source: ScoreSource) -> tuple[IntArray, IntArray]:
        """Return how many ID rows and how many OOD rows there are of each value."""
        counted = source.histogram(self.bins, Measure.of(source.overview(), apart=False))
        found = np.zeros((2, len(self.value)), np.int64)
        found[0, counted.key], found[1, counted.key] = counted.id, counted.ood[0]
        found[:, -1] = counted.infinite[0], counted.infinite[2]
        return found[0], found[1]

    def values(self, rows: IntArray, most: int, rng: np.random.Generator) -> FloatArray:
        """Return the value of each row, or of as many as memory holds, drawn by chance."""
        levels, place = np.unique(self.value, return_inverse=True)
        of_level = np.bincount(place.ravel(), rows, minlength=len(levels)).astype(np.int64)
        if of_level.sum() > most:
            of_level = rng.multivariate_hypergeometric(of_level, most)
        return np.repeat(levels, of_level)


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
