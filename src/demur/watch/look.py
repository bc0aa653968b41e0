"""A look at a watch: what all counts say now, which alarms that gives, what may have happened.

The course of a watch is what every expectation looked like at the end of each period.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import FloatArray
from demur.guarantees.intervals import Interval
from demur.watch.counts import ACCEPTED, ROWS, LiveCounts, total
from demur.watch.hypotheses import Familiar, Hypothesis, LiveSums, beyond, estimated_risk, spans
from demur.watch.setup import WatchSetup, prior_seen, usual_prior
from demur.watch.status import (
    ALPHA,
    MEAN_TIME,
    TOGETHER,
    Alarm,
    DriftSeen,
    Status,
    Watched,
    message,
)
from demur.watch.timeline import Period, Segment, Timeline, period_text


def look(
    setup: WatchSetup,
    timeline: Timeline,
    known: Sequence[Alarm],
    *,
    pending: int,
    timed: bool,
) -> Status:
    """Return the status; alarms that were given before stay.

    `timed` says whether periods are those of a clock, which the mean time counts.
    """
    counts = timeline.total
    tested = setup.hypotheses(timeline.sets)
    now = LiveSums(setup.layout, counts.sums, counts.sets)
    segments = timeline.current()
    parts = [segment.counts() for segment in segments]
    since = spans(parts, setup.layout, since=True)
    watched = []
    for one in tested:
        starts = one.evidence(since) + math.log(one.weight) if segments else np.array([-np.inf])
        watched.append(_watched(one, now, starts, segments, setup))
    weighted = [item.log_evidence + math.log(item.weight) for item in watched]
    together = float(np.logaddexp.reduce(weighted)) if weighted else -math.inf
    detector, alarms = -math.inf, list(known)
    if tested and segments:
        found = _Looks(setup, timeline, tested, parts)
        detector = float(np.logaddexp.reduce(found.detectors[:, -1]))
        alarms = found.alarms(known, -math.log(setup.alpha), _long(setup, timed))
    broken = {alarm.expectation for alarm in alarms}
    items = tuple(replace(item, alarm=item.name in broken) for item in watched)
    changed = [item.changed for item in items if item.alarm and item.changed is not None]
    recent = _since(timeline, min(changed, default=None))
    return Status(
        alpha=setup.alpha,
        mean_time=setup.mean_time if timed else None,
        rows=int(counts.sums[ROWS]),
        accepted=int(counts.sums[ACCEPTED]),
        pending=pending,
        watched=items,
        alarms=tuple(alarms),
        log_together=together,
        log_detector=detector,
        drift=drift_seen(setup, counts),
        prior=prior_seen(setup, counts),
        estimated_risk=math.nan
        if setup.reference is None
        else estimated_risk(counts.sums, setup.reference, setup.layout),
        message=message(setup, items, alarms, recent, "" if timed else "row "),
        period=timeline.last,
    )


def _capped(log: float) -> float:
    # JSON has no infinities.
    return float(min(log, 1e6))


def _long(setup: WatchSetup, timed: bool) -> float:
    """Return the line of the detector; without a clock there is no mean time."""
    return math.inf if setup.mean_time is None or not timed else math.log(setup.mean_time)


class _Looks:
    """Weighted evidence at all the looks that are due: the end of every period that is new."""

    def __init__(
        self,
        setup: WatchSetup,
        timeline: Timeline,
        tested: Sequence[Hypothesis],
        parts: list[LiveCounts],
    ) -> None:
        self._tested, self._segments = tested, timeline.current()
        shares = np.log([one.weight for one in tested])[:, None]
        came = spans(timeline.since_look(), setup.layout)
        self._evidence = np.stack([one.evidence(came) for one in tested]) + shares
        until = spans(parts, setup.layout)
        self._until = np.stack([one.evidence(until) for one in tested]) + shares
        self._rows = np.stack([one.counted(until)[1] for one in tested])
        ends = range(len(parts) - max(timeline.never_looked(), 1), len(parts))
        self._first = ends[0]
        self.detectors = np.stack(
            [detector_logs(setup, tested, parts[: k + 1]) for k in ends], axis=1
        )
        """Of each expectation, at the end of the periods that are new or latest."""

    def alarms(self, known: Sequence[Alarm], line: float, long: float) -> list[Alarm]:
        """Return the alarms that were given before and those that are new."""
        alarms = list(known)
        for kind, limit, logs in (
            (ALPHA, line, self._evidence),
            (MEAN_TIME, long, self.detectors),
        ):
            for number, one in enumerate(self._tested):
                if not any(a.expectation == one.name and a.kind == kind for a in alarms):
                    alarms += self._crossing(one.name, kind, logs[number], limit, number)
            if not any(alarm.kind == kind for alarm in alarms):
                together = np.logaddexp.reduce(logs, axis=0)
                alarms += self._crossing(TOGETHER, kind, together, limit, None)
        return alarms

    def _crossing(
        self, name: str, kind: str, logs: FloatArray, limit: float, number: int | None
    ) -> list[Alarm]:
        crossed = np.flatnonzero(logs >= limit)
        if not len(crossed):
            return []
        k = int(crossed[0]) + (self._first if kind == MEAN_TIME else 0)
        if kind == ALPHA:
            # Whether there is an alarm is told in the order in which rows came, when by periods.
            path = np.logaddexp.reduce(self._until) if number is None else self._until[number]
            dated = np.flatnonzero(path >= limit)
            k = int(dated[0]) if len(dated) else len(path) - 1
        rows = self._rows.max(axis=0) if number is None else self._rows[number]
        return [Alarm(name, kind, self._segments[k].last, int(rows[k]), _capped(logs[crossed[0]]))]


def detector_logs(
    setup: WatchSetup, tested: Sequence[Hypothesis], parts: list[LiveCounts]
) -> FloatArray:
    """Return the logarithm of every e-detector after some periods, weighted."""
    since = spans(parts, setup.layout, since=True)
    return np.array(
        [float(np.logaddexp.reduce(one.evidence(since))) + math.log(one.weight) for one in tested]
    )


def _watched(
    one: Hypothesis,
    now: LiveSums,
    starts: np.ndarray,
    segments: Sequence[object],
    setup: WatchSetup,
) -> Watched:
    low, high = one.interval(now, setup.alpha)
    best = int(np.argmax(starts)) if segments else 0
    # Without evidence there is no change to date.
    first = getattr(segments[best], "first", None) if segments and starts[best] > 0 else None
    return Watched(
        one.name,
        one.kind,
        one.origin,
        float(one.estimate(now)),
        Interval(float(low), float(high)),
        one.limit,
        int(one.counted(now)[1]),
        float(one.evidence(now)),
        one.weight,
        float(starts[best]),
        first,
        alarm=False,
    )


def _since(timeline: Timeline, period: Period | None) -> LiveCounts:
    """Return what was counted since a period, or all since the last reset."""
    if period is None:
        return timeline.total
    later = [s.counts() for s in timeline.current() if s.last >= period]  # type: ignore[operator]
    return total(timeline.layout, later)


def drift_seen(setup: WatchSetup, counts: LiveCounts) -> tuple[DriftSeen, ...]:
    """Return every score beside the reference, in familiar numbers."""
    found = []
    for number, name in enumerate(setup.names):
        gaps = beyond(counts, number) if len(setup.cuts[number]) else (0, 0, 0)
        if not setup.drifts:
            found.append(DriftSeen(name, math.nan, math.nan, {}, *gaps, None))
            continue
        drift, prior = setup.drifts[number], usual_prior(setup)
        whole = drift.familiar(counts.sums, prior)
        parts = {
            part: _pair(drift.familiar(counts.sums, prior, k))
            for k, part in enumerate(("rejected", "accepted"))
        }
        move = drift.largest(counts) if counts.sums[ROWS] else None
        found.append(DriftSeen(name, whole.psi, whole.ks, parts, *gaps, move))
    return tuple(found)


def _pair(numbers: Familiar) -> tuple[float, float]:
    return numbers.psi, numbers.ks


@dataclass(frozen=True, slots=True)
class Series:
    """One expectation over the periods since the last reset; lists of one length."""

    name: str
    kind: str
    share: list[float]
    """What the rows of the period alone show."""
    rows: list[int]
    low: list[float]
    """Confidence sequence, of all rows up to the period."""
    high: list[float]
    evidence: list[float]
    """Weighted, as a power of ten."""
    detector: list[float]
    """E-detector, weighted, as a power of ten."""


@dataclass(frozen=True, slots=True)
class DriftSeries:
    """PSI and KS of a score, of the rows of each period."""

    score: str
    psi: list[float]
    ks: list[float]


def period_names(timeline: Timeline) -> list[str]:
    """Return the names of the periods since the last reset."""
    return [_name(segment) for segment in timeline.current()]


def _name(segment: Segment) -> str:
    first, last = period_text(segment.first), period_text(segment.last)
    return first if first == last else f"{first} to {last}"


def watched_series(setup: WatchSetup, timeline: Timeline) -> list[Series]:
    """Return the course of every expectation."""
    parts = [segment.counts() for segment in timeline.current()]
    if not parts:
        return []
    until = spans(parts, setup.layout)
    alone = LiveSums(
        setup.layout,
        np.stack([part.sums for part in parts]),
        {n: np.array([p.sets.get(n, np.zeros(2)) for p in parts]) for n in until.sets},
    )
    tested = setup.hypotheses(timeline.sets)
    detectors = [detector_logs(setup, tested, parts[: k + 1]) for k in range(len(parts))]
    found = []
    for number, one in enumerate(tested):
        low, high = one.interval(until, setup.alpha)
        share = math.log(one.weight)
        found.append(
            Series(
                one.name,
                one.kind,
                one.estimate(alone).tolist(),
                [int(rows) for rows in one.counted(alone)[1]],
                low.tolist(),
                high.tolist(),
                ((one.evidence(until) + share) / math.log(10)).tolist(),
                [float(logs[number]) / math.log(10) for logs in detectors],
            )
        )
    return found


@dataclass(frozen=True, slots=True)
class PriorSeries:
    """The share of OOD inputs that acceptance tells."""

    estimate: list[float]
    """From the rows of each period alone."""
    low: list[float]
    """Of all rows up to the period; NaN where no share explains them."""
    high: list[float]


def prior_series(setup: WatchSetup, timeline: Timeline) -> PriorSeries | None:
    """Return the share of OOD inputs over time, None if nothing is known of TPR and FPR."""
    parts = [segment.counts() for segment in timeline.current()]
    alone = [prior_seen(setup, part) for part in parts]
    so_far, until = LiveCounts.none(setup.layout), []
    for part in parts:
        so_far.add(part)
        until.append(prior_seen(setup, so_far))
    seen = [(a, b) for a, b in zip(alone, until, strict=True) if a is not None and b is not None]
    if not seen:
        return None
    return PriorSeries(
        [a.estimate for a, _ in seen],
        [b.interval.low for _, b in seen],
        [b.interval.high for _, b in seen],
    )


def drift_series(setup: WatchSetup, timeline: Timeline) -> list[DriftSeries]:
    """Return PSI and KS of every score, period by period."""
    found = []
    prior = usual_prior(setup)
    for name, drift in zip(setup.names, setup.drifts, strict=False):
        numbers = [
            drift.familiar(segment.counts().sums, prior)
            if segment.counts().sums[ROWS]
            else Familiar(math.nan, math.nan)
            for segment in timeline.current()
        ]
        found.append(DriftSeries(name, [n.psi for n in numbers], [n.ks for n in numbers]))
    return found
