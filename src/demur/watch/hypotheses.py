"""What is tested, all in one form: evidence, an estimate and an interval from sums of rows.

What live rows tell without labels: scores that moved, gaps, the share of OOD inputs. For every cut
of a score, and accepted and rejected rows apart, the share of rows above it must lie between what
ID and OOD rows of the reference had, in a proportion that the prior allows. The evidence against a
score is the mean of that against all its cuts: a Kolmogorov-Smirnov test that may be looked at at
any time, from counts alone. PSI and KS are shown beside it, as people know them; they have no error
control.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import FloatArray
from demur.core.fingerprint import ACCEPTED as ACCEPTED_PART
from demur.core.fingerprint import Reference
from demur.core.models import EACH_SET, Bound
from demur.guarantees.intervals import Interval, rate_lower, rate_upper
from demur.guarantees.prior import explaining_priors
from demur.watch.counts import (
    ACCEPTED,
    MISSING,
    ROWS,
    CountLayout,
    Labelled,
    LiveCounts,
    split_bins,
)
from demur.watch.evidence import (
    ACCEPTANCE,
    GAPS,
    Expectation,
    KnownRates,
    above,
    audited_share,
    below,
    mean_above,
    mean_below,
    mean_sequence,
    outside,
    rate_ends,
    share_sequence,
)

AuditRates = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LiveSums:
    """Sums of rows, of all or of many spans of periods at once."""

    layout: CountLayout
    sums: FloatArray
    """Shape (..., size)."""
    sets: Mapping[str, FloatArray]
    """Labelled rows of each OOD set and accepted ones, shape (..., 2)."""

    def labelled(self, group: str | None = None) -> Labelled:
        """Return the labelled sums, of all rows or of a group."""
        return Labelled(self.sums[..., self.layout.labelled(group)])

    def of_set(self, name: str) -> FloatArray:
        """Return the rows of an OOD set, zeros if none occurred."""
        found = self.sets.get(name)
        return np.zeros((*self.sums.shape[:-1], 2)) if found is None else found


class Hypothesis(ABC):
    """Something that should hold, and what speaks against it."""

    kind: str
    """``"bound"`` or ``"check"``."""

    def __init__(self, name: str, weight: float, origin: str) -> None:
        self.name, self.weight, self.origin = name, weight, origin

    @abstractmethod
    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it, not yet weighted."""

    @abstractmethod
    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes (or a sum of losses) and the rows they are of."""

    def interval(self, seen: LiveSums, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of a confidence sequence of what is bounded."""
        return share_sequence(*self.counted(seen), alpha)

    @property
    @abstractmethod
    def limit(self) -> Interval:
        """Where it should lie."""

    def estimate(self, seen: LiveSums) -> FloatArray:
        """Return what was seen, NaN where nothing was."""
        k, n = self.counted(seen)
        return np.where(n > 0, k / np.maximum(n, 1), np.nan)


class BoundHolds(Hypothesis):
    """A bound on selective risk, TPR, FPR or precision, from labelled rows."""

    kind = "bound"

    def __init__(self, expected: Expectation, audit: AuditRates, max_loss: float | None) -> None:
        super().__init__(expected.name, expected.weight, expected.origin)
        self.bound: Bound = expected.bound
        self._graded = expected.bound.quantity == "selective_risk" and max_loss is not None
        self._scale = float(max_loss) if self._graded and max_loss else 1.0
        # What is known of all accepted rows needs no rates; TPR and FPR compare the two kinds.
        self._rates = audit if expected.bound.quantity in ("tpr", "fpr") else (1.0, 1.0)

    @property
    def limit(self) -> Interval:
        """Where it should lie."""
        value = float(self.bound.value)
        return Interval(value, math.inf) if self.bound.is_lower else Interval(0.0, value)

    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes, or a sum of losses, and the rows."""
        bound = self.bound
        if bound.quantity == "selective_risk":
            losses = seen.labelled(bound.group).losses
            return losses[..., 1], losses[..., 0]
        if bound.quantity == "tpr":
            return seen.labelled(bound.group).tpr
        foreign = np.stack(seen.labelled().fpr[::-1], axis=-1)
        if bound.ood_set not in (None, EACH_SET):
            foreign = seen.of_set(str(bound.ood_set))
        if bound.quantity == "fpr":
            return foreign[..., 1], foreign[..., 0]
        taken = seen.labelled().tpr[0]
        return taken, taken + foreign[..., 1]

    def _moments(self, seen: LiveSums) -> FloatArray:
        scale = np.array([1.0, self._scale, self._scale**2])
        moments: FloatArray = seen.labelled(self.bound.group).losses / scale
        return moments

    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it."""
        value = float(self.bound.value)
        if self._graded:
            test = mean_below if self.bound.is_lower else mean_above
            return test(self._moments(seen), value / self._scale)
        share = audited_share(min(value, 1.0), self._rates)
        counts = self.counted(seen)
        return below(*counts, share) if self.bound.is_lower else above(*counts, share)

    def interval(self, seen: LiveSums, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of a confidence sequence."""
        if self._graded:
            low, high = mean_sequence(self._moments(seen), alpha)
            return low * self._scale, high * self._scale
        around = float(np.clip(audited_share(min(float(self.bound.value), 1), self._rates), 0, 1))
        low, high = share_sequence(*self.counted(seen), alpha, around=around)
        back = self._rates[1], self._rates[0]
        return audited_share(low, back), audited_share(high, back)

    def estimate(self, seen: LiveSums) -> FloatArray:
        """Return what was seen among all rows, audited or not."""
        if 0 in self._rates:
            # Where one kind is never audited, the share of the other tells nothing.
            return np.full(np.shape(seen.sums)[:-1], np.nan)
        return audited_share(super().estimate(seen), (self._rates[1], self._rates[0]))


class AcceptanceHolds(Hypothesis):
    """The share of accepted rows lies where TPR, FPR and the prior allow."""

    kind = "check"

    def __init__(self, weight: float, allowed: Interval, origin: str) -> None:
        super().__init__(ACCEPTANCE, weight, origin)
        self._allowed = allowed

    @property
    def limit(self) -> Interval:
        """Where it should lie."""
        return self._allowed

    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes, or a sum of losses, and the rows."""
        return seen.sums[..., ACCEPTED], seen.sums[..., ROWS]

    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it."""
        return acceptance_evidence(seen.sums, self._allowed)


class NoGaps(Hypothesis):
    """No more rows lack a score than the reference allows."""

    kind = "check"

    def __init__(self, weight: float, allowed: float) -> None:
        super().__init__(GAPS, weight, "rows of the reference, none of which lacked a score")
        self._allowed = allowed

    @property
    def limit(self) -> Interval:
        """Where it should lie."""
        return Interval(0.0, self._allowed)

    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes, or a sum of losses, and the rows."""
        return seen.sums[..., MISSING], seen.sums[..., ROWS]

    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it."""
        return gap_evidence(seen.sums, self._allowed)


class ScoreStays(Hypothesis):
    """A score of accepted and of rejected rows is as in the reference."""

    kind = "check"

    def __init__(self, name: str, weight: float, drift: ScoreDrift, origin: str) -> None:
        super().__init__(name, weight, origin)
        self.drift = drift

    @property
    def limit(self) -> Interval:
        """Where it should lie."""
        return Interval(0.0, math.inf)

    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes, or a sum of losses, and the rows."""
        rows = seen.sums[..., ROWS]
        return np.full(rows.shape, np.nan), rows

    def interval(self, seen: LiveSums, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of a confidence sequence."""
        nothing = np.full(seen.sums.shape[:-1], np.nan)
        return nothing, nothing

    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it."""
        return self.drift.evidence(seen.sums)


def spans(parts: Any, layout: CountLayout, *, since: bool = False) -> LiveSums:
    """Return the sums of the segments up to each one, or `since` each one to the end."""
    names = list(dict.fromkeys(name for part in parts for name in part.sets))
    sums = np.stack([part.sums for part in parts]) if parts else np.zeros((0, layout.size))
    none = np.zeros(2)
    sets = {name: np.array([part.sets.get(name, none) for part in parts]) for name in names}

    def along(values: FloatArray) -> FloatArray:
        if since:
            return np.cumsum(values[::-1], axis=0)[::-1]
        return np.cumsum(values, axis=0)

    return LiveSums(layout, along(sums), {name: along(values) for name, values in sets.items()})


PARTS = ("rejected", "accepted")


class Familiar(NamedTuple):
    """Numbers people know; they say how far, not how surely."""

    psi: float
    ks: float


@dataclass(frozen=True, slots=True)
class LargestMove:
    """The cut of a score against which most evidence speaks."""

    part: str
    cut: float
    seen: float
    """Share of the live rows of that part above the cut."""
    allowed: Interval


class ScoreDrift:
    """One score against the reference.

    Parameters
    ----------
    number
        Which score.
    rates
        What is known of TPR, FPR and the prior.
    level
        Chance with which the intervals of this score's reference may be wrong altogether.
    """

    def __init__(
        self,
        reference: Reference,
        layout: CountLayout,
        number: int,
        rates: KnownRates,
        level: float,
    ) -> None:
        self._layout, self._number = layout, number
        self.cuts = reference.cuts[number]
        self._rows = reference.rows[number]
        over = _over(self._rows)[..., : len(self.cuts)]
        each = level / (2 * over.size)
        low, high = np.empty(over.shape), np.empty(over.shape)
        for place, count in np.ndenumerate(over):
            size = int(self._rows[place[0], place[1]].sum())
            low[place] = rate_lower(int(count), size, each) if size else 0.0
            high[place] = rate_upper(int(count), size, each) if size else 1.0
        self.sides = low, high
        """Ends of the share above each cut, of ID and OOD rows; shape (side, part, cuts)."""
        ends = [self._mixed(rates.prior_of(part == ACCEPTED_PART), part) for part in (0, 1)]
        self.low, self.high = (np.array([end[k] for end in ends]) for k in (0, 1))

    def _mixed(self, prior: Interval, part: int) -> tuple[FloatArray, FloatArray]:
        low, high = (end[:, part] for end in self.sides)
        least = [(1 - p) * low[0] + p * low[1] for p in (prior.low, prior.high)]
        most = [(1 - p) * high[0] + p * high[1] for p in (prior.low, prior.high)]
        return np.min(least, axis=0), np.max(most, axis=0)

    def evidence(self, sums: FloatArray) -> FloatArray:
        """Return the log evidence that the score moved, from sums of shape (..., size)."""
        from scipy.special import logsumexp

        logs = self._by_cut(sums)
        flat = logs.reshape(*logs.shape[:-2], -1)
        found: FloatArray = logsumexp(flat, axis=-1) - math.log(flat.shape[-1])
        return found

    def _by_cut(self, sums: FloatArray) -> FloatArray:
        bins = split_bins(self._layout, sums, self._number)[..., :-1]
        over, size = _over(bins)[..., : len(self.cuts)], bins.sum(axis=-1)[..., None]
        return outside(over, size, self.low, self.high)

    def largest(self, counts: LiveCounts) -> LargestMove:
        """Return the cut that moved most surely."""
        logs = self._by_cut(counts.sums)
        part, cut = np.unravel_index(int(np.argmax(logs)), logs.shape)
        bins = counts.score_bins(self._number)[part]
        share = _over(bins)[cut] / bins.sum() if bins.sum() else math.nan
        allowed = Interval(float(self.low[part, cut]), float(self.high[part, cut]))
        return LargestMove(PARTS[part], float(self.cuts[cut]), float(share), allowed)

    def familiar(self, sums: FloatArray, prior: float, part: int | None = None) -> Familiar:
        """Return PSI and KS of live rows against the reference at a prior, of a part or of all."""
        live = split_bins(self._layout, sums, self._number)[:, :-1]
        totals = np.maximum(self._rows.sum(axis=(1, 2)), 1)
        wanted = (1 - prior) * self._rows[0] / totals[0] + prior * self._rows[1] / totals[1]
        if part is not None:
            live, wanted = live[part : part + 1], wanted[part : part + 1]
        p, q = live.sum(axis=0), wanted.sum(axis=0)
        if p.sum() == 0 or q.sum() == 0:
            return Familiar(math.nan, math.nan)
        # Half a row where none is: the logarithm of an empty bin is infinite.
        size = totals.sum()
        p = np.maximum(p, 0.5) / np.maximum(p, 0.5).sum()
        q = np.maximum(q / q.sum(), 0.5 / size)
        q = q / q.sum()
        psi = float(((p - q) * np.log(p / q)).sum())
        return Familiar(psi, float(np.abs(np.cumsum(p) - np.cumsum(q)).max()))

    def explaining(self, sums: FloatArray, alpha: float) -> Interval:
        """Return the shares of OOD inputs that explain all scores, accepted or not."""
        bins = split_bins(self._layout, sums, self._number)[:, :-1].sum(axis=0)
        over = _over(bins)[: len(self.cuts)]
        each = alpha / len(self.cuts)
        seen = share_sequence(over, np.full(len(over), bins.sum()), each)
        rows = self._rows.sum(axis=1)
        level = alpha / (4 * len(self.cuts))
        found = Interval(0.0, 1.0)
        for j, ends in enumerate(zip(*seen, strict=True)):
            sides = [rate_ends(int(_over(rows[k])[j]), int(rows[k].sum()), level) for k in (0, 1)]
            allowed = explaining_priors(Interval(*map(float, ends)), tpr=sides[0], fpr=sides[1])
            found = common(found, allowed)
        return found


def _over(bins: Any) -> FloatArray:
    """Return the rows above the end of each bin."""
    return np.asarray(bins.sum(axis=-1)[..., None] - np.cumsum(bins, axis=-1), np.float64)


def common(one: Interval, other: Interval) -> Interval:
    """Return what two intervals share; NaN if nothing."""
    low, high = max(one.low, other.low), min(one.high, other.high)
    defined = one.low == one.low and other.low == other.low
    if defined and low <= high:
        return Interval(low, high)
    return Interval(math.nan, math.nan)


def acceptance_evidence(sums: FloatArray, allowed: Interval) -> FloatArray:
    """Return the log evidence that the share of accepted rows is not allowed."""
    return outside(sums[..., ACCEPTED], sums[..., ROWS], allowed.low, allowed.high)


def gap_share(reference: Reference, level: float) -> float:
    """Return the share of rows with gaps that a reference without any allows."""
    rows = reference.accepted(0)[1] + reference.accepted(1)[1]
    return rate_upper(0, rows, level) if rows else 1.0


def gap_evidence(sums: FloatArray, allowed: float) -> FloatArray:
    """Return the log evidence that more rows lack a score than may."""
    return above(sums[..., MISSING], sums[..., ROWS], allowed)


class PriorSeen(NamedTuple):
    """The share of OOD inputs, as far as acceptance tells it."""

    estimate: float
    interval: Interval


def seen_prior(
    sums: FloatArray, rates: KnownRates, point: tuple[float, float], alpha: float
) -> PriorSeen:
    """Return the share of OOD inputs that the accepted share tells.

    `point` is TPR and FPR as they were seen; the interval holds at all times, as far as the rates
    of `rates` do.
    """
    taken, rows = float(sums[ACCEPTED]), float(sums[ROWS])
    if rows == 0:
        return PriorSeen(math.nan, Interval(0.0, 1.0))
    ends = Interval(*(float(end) for end in share_sequence(taken, rows, alpha)))
    interval = explaining_priors(ends, tpr=rates.tpr, fpr=rates.fpr)
    tpr, fpr = point
    estimate = math.nan if tpr == fpr else float(np.clip((tpr - taken / rows) / (tpr - fpr), 0, 1))
    return PriorSeen(estimate, interval)


def estimated_risk(sums: FloatArray, reference: Reference, layout: CountLayout) -> float:
    """Return the selective risk that accepted rows would have, had each the risk of its bin.

    An estimate, never a promise: it knows nothing of a classifier that got worse.
    """
    live = sums[layout.risk]
    known = reference.risk_rows > 0
    if not (live * known).sum():
        return math.nan
    risk = reference.risk_loss / np.maximum(reference.risk_rows, 1)
    return float((live * risk)[known].sum() / live[known].sum())


def beyond(counts: LiveCounts, number: int) -> tuple[int, int, int]:
    """Return how many rows lack a score, are below, and above all rows of the reference."""
    bins = split_bins(counts.layout, counts.sums, number).sum(axis=0)
    return int(bins[-1]), int(bins[0]), int(bins[-2])
