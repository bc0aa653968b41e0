"""A look at a watch: what all counts say now, which alarms that gives, what may have happened.

It is told as data, in words and as metrics.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from demur._arrays import FloatArray
from demur.guarantees.intervals import Interval
from demur.watch.counts import ACCEPTED, ROWS, LiveCounts, total
from demur.watch.evidence import number
from demur.watch.hypotheses import (
    Familiar,
    Hypothesis,
    LargestMove,
    LiveSums,
    PriorSeen,
    beyond,
    common,
    estimated_risk,
    spans,
)
from demur.watch.setup import WatchSetup, prior_seen, usual_prior
from demur.watch.timeline import Period, Timeline, period_text

ALPHA, MEAN_TIME = "alpha", "mean time"
"""Kinds of alarms, by how false ones are controlled."""
TOGETHER = "all together"
"""What an alarm is about when no expectation by itself reaches the line, but their mean does."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """An expectation that no longer holds, and when that was found.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> expected = dm.Bound("selective_risk", at_most=0.05)
    >>> watch = dm.watch.Watch(dm.Rule([1.0], 2.0), expect=[expected])
    >>> status = watch.update(np.ones(200), loss=rng.random(200) < 0.3)
    >>> [alarm.expectation for alarm in status.alarms]
    ['selective_risk <= 0.05']
    """

    expectation: str
    kind: str
    """``"alpha"``: by evidence since the start or a reset; ``"mean time"``: since any period."""
    period: Period
    rows: int
    """Rows that the expectation had at that time."""
    log_evidence: float
    """Weighted; the line is the logarithm of 1/alpha, or of the mean time."""

    def to_data(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Watched:
    """One expectation as it stands.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> expected = dm.Bound("selective_risk", at_most=0.05)
    >>> watch = dm.watch.Watch(dm.Rule([1.0], 2.0), expect=[expected])
    >>> watched = watch.update(np.ones(200), loss=np.zeros(200)).watched[0]
    >>> watched.name, watched.rows, watched.estimate, watched.alarm
    ('selective_risk <= 0.05', 200, 0.0, False)
    """

    name: str
    kind: str
    """``"bound"``, from labelled rows, or ``"check"``, without labels."""
    origin: str
    estimate: float
    interval: Interval
    """Holds at all times at once with probability 1 - alpha, by itself."""
    limit: Interval
    rows: int
    log_evidence: float
    weight: float
    """Its part of alpha."""
    since: float
    """Logarithm of the largest evidence since any period, weighted."""
    changed: Period | None
    """The period since which the evidence is largest."""
    alarm: bool

    @property
    def evidence(self) -> float:
        """Evidence against it; it gives alarm at 1 / (alpha * weight)."""
        return number(self.log_evidence)


@dataclass(frozen=True, slots=True)
class DriftSeen:
    """One score of the live rows beside the reference."""

    score: str
    psi: float
    ks: float
    by_part: Mapping[str, tuple[float, float]]
    """PSI and KS of rejected and of accepted rows."""
    missing: int
    below: int
    """Rows below all of the reference."""
    above: int
    move: LargestMove | None


@dataclass(frozen=True, slots=True)
class Status:
    """What is known of the rule in use, valid however often one looks.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> expected = dm.Bound("selective_risk", at_most=0.05)
    >>> watch = dm.watch.Watch(dm.Rule([1.0], 2.0), expect=[expected])
    >>> status = watch.update(np.ones(200), loss=np.zeros(200))
    >>> status.rows, status.accepted, status.alarms
    (200, 200, ())
    """

    alpha: float
    mean_time: float | None
    rows: int
    accepted: int
    pending: int
    """Audited rows that wait for a label, or behind one that does."""
    watched: tuple[Watched, ...]
    alarms: tuple[Alarm, ...]
    log_together: float
    """Logarithm of the weighted mean of all evidence."""
    log_detector: float
    """Logarithm of the e-detector, which gives alarm at the mean time."""
    drift: tuple[DriftSeen, ...]
    prior: PriorSeen | None
    estimated_risk: float
    """Of the accepted rows, an estimate; NaN where the card has nothing to estimate it from."""
    message: str
    period: Period | None
    """The latest."""

    @property
    def evidence(self) -> dict[str, float]:
        """Evidence against each expectation."""
        return {item.name: item.evidence for item in self.watched}

    @property
    def intervals(self) -> dict[str, Interval]:
        """Confidence sequence of each expectation that is about a share or a mean."""
        return {i.name: i.interval for i in self.watched if not math.isnan(i.interval.low)}

    @property
    def ok(self) -> bool:
        """Whether there is no alarm."""
        return not self.alarms

    def to_data(self) -> dict[str, Any]:
        """Return plain data; numbers that are not finite are None."""
        data = asdict(self) | {"ok": self.ok}
        plain: dict[str, Any] = _plain(data)
        return plain

    def to_prometheus(self, labels: Mapping[str, str] | None = None) -> str:
        """Return metrics in the text format of Prometheus, which Grafana shows."""
        return "\n".join(_metrics(self, dict(labels or {}))) + "\n"

    def __str__(self) -> str:
        lines = [f"{self.rows:,} rows, {self.accepted:,} accepted. {self.message}"]
        for item in self.watched:
            seen = "no rows yet" if not item.rows else f"{item.rows:,} rows"
            if not math.isnan(item.estimate):
                ends = f"{item.interval.low:.4f} to {item.interval.high:.4f}"
                seen = f"{item.estimate:.4f} ({ends}) of {item.rows:,} rows"
            mark = "ALARM  " if item.alarm else ""
            lines.append(f"  {mark}{item.name}: {seen}, evidence {item.evidence:.3g}")
        return "\n".join(lines)


class LazyStatus:
    """The status of a watch, worked out when something of it is read; it has all of `Status`."""

    __slots__ = ("_found", "_look")

    def __init__(self, look: Callable[[], Status]) -> None:
        self._look = look
        self._found: Status | None = None

    def __getattr__(self, name: str) -> Any:
        found = self._found
        if found is None:
            found = self._found = self._look()
        return getattr(found, name)

    def __str__(self) -> str:
        return str(self.__getattr__("__str__")())


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _metrics(status: Status, labels: dict[str, str]) -> list[str]:
    found: list[str] = []

    def metric(name: str, words: str, kind: str, rows: list[tuple[dict[str, str], float]]) -> None:
        found.append(f"# HELP demur_watch_{name} {words}")
        found.append(f"# TYPE demur_watch_{name} {kind}")
        for more, value in rows:
            text = ",".join(f'{k}="{_escaped(v)}"' for k, v in (labels | more).items())
            braced = f"{{{text}}}" if text else ""
            found.append(f"demur_watch_{name}{braced} {_number(value)}")

    # Gauges: counting a day again may make any of them smaller.
    metric("rows", "Rows seen.", "gauge", [({}, status.rows)])
    metric("accepted_rows", "Rows accepted.", "gauge", [({}, status.accepted)])
    metric("pending_audits", "Audited rows without a label.", "gauge", [({}, status.pending)])
    each = [({"expectation": item.name, "kind": item.kind}, item) for item in status.watched]
    metric("alarm", "1 if the expectation gave alarm.", "gauge", [(m, i.alarm) for m, i in each])
    metric("alarms", "Alarms since the last reset.", "gauge", [({}, len(status.alarms))])
    metric(
        "log10_evidence",
        "Evidence against the expectation, weighted; alarm at demur_watch_log10_line.",
        "gauge",
        [(m, (i.log_evidence + math.log(i.weight)) / math.log(10)) for m, i in each],
    )
    metric("log10_line", "Where evidence is an alarm.", "gauge", [({}, -math.log10(status.alpha))])
    shares = [(m, i) for m, i in each if not math.isnan(i.interval.low)]
    metric("estimate", "What was seen.", "gauge", [(m, i.estimate) for m, i in shares])
    metric("low", "Lower end of the sequence.", "gauge", [(m, i.interval.low) for m, i in shares])
    metric("high", "Upper end of the sequence.", "gauge", [(m, i.interval.high) for m, i in shares])
    metric("psi", "PSI of a score.", "gauge", [({"score": d.score}, d.psi) for d in status.drift])
    metric("ks", "KS of a score.", "gauge", [({"score": d.score}, d.ks) for d in status.drift])
    gaps: list[tuple[dict[str, str], float]] = []
    for d in status.drift:
        for what in ("missing", "below", "above"):
            gaps.append(({"score": d.score, "what": what}, getattr(d, what)))
    metric("odd_rows", "Rows without the score, or beyond its range.", "gauge", gaps)
    if status.prior is not None:
        metric("ood_prior", "Estimated share of OOD.", "gauge", [({}, status.prior.estimate)])
    metric("estimated_risk", "Estimated, not promised.", "gauge", [({}, status.estimated_risk)])
    return found


def _escaped(text: str) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value))


def message(
    setup: WatchSetup,
    items: Sequence[Watched],
    alarms: Sequence[Alarm],
    recent: LiveCounts,
    period: str = "",
) -> str:
    """Return in words what happened, as far as the data can tell; `period` goes before one."""
    if not alarms:
        return _calm(items)
    broken = [item for item in items if item.alarm]
    first = in_order(broken)
    words = [f"Alarm: {', '.join(dict.fromkeys(alarm.expectation for alarm in alarms))}."]
    dated = [item for item in first if item.changed is not None]
    if dated:
        date = period + period_text(dated[0].changed)
        words.append(f"{dated[0].name} changed first, about {date}.")
    if any(item.kind == "check" for item in broken):
        words.append(cause(setup, recent))
        if any(item.name.startswith("fpr") for item in broken):
            # Scores alone cannot tell a new kind of OOD inputs from more of the known ones.
            words.append(
                "Labels tell more: OOD inputs are accepted too often, so some are of a kind that "
                "tuning did not know."
            )
    elif any(_is_risk(item) for item in broken) and setup.drifts:
        words.append(
            "The scores are as before, so the classifier errs more often than they tell: they no "
            "longer rank its errors, or the labels changed."
        )
    return " ".join(words)


def _calm(items: Sequence[Watched]) -> str:
    """Return that there is no alarm, and what that does not mean."""
    if not items:
        return "Nothing is tested: no bounds are expected, and the rule's card has no rows."
    bare = [item.name for item in items if item.kind == "bound" and not item.rows]
    return f"No alarm. Not tested, for lack of labels: {', '.join(bare)}." if bare else "No alarm."


def in_order(items: Sequence[Watched]) -> list[Watched]:
    """Return expectations in the order in which they changed, those without a date last."""
    dated = [item for item in items if item.changed is not None]
    # Periods are all numbers or all text.
    ordered = sorted(dated, key=lambda item: item.changed)  # type: ignore[arg-type,return-value]
    return [*ordered, *(item for item in items if item.changed is None)]


def _is_risk(item: Watched) -> bool:
    return item.name.startswith("selective_risk")


def cause(setup: WatchSetup, recent: LiveCounts) -> str:
    """Return whether another share of OOD inputs explains the scores of late."""
    if not setup.drifts:
        return "Whether more OOD inputs or other scores are the cause cannot be told: no reference."
    found = Interval(0.0, 1.0)
    for drift in setup.drifts:
        found = common(found, drift.explaining(recent.sums, setup.alpha / len(setup.drifts)))
    rates, known = setup.rates, prior_seen(setup, recent)
    if rates is not None and known is not None:
        found = common(found, known.interval)
    if math.isnan(found.low):
        return (
            "The scores changed: no share of OOD inputs like those of tuning explains them. Inputs "
            "of a new kind, another model or a broken input would look like this."
        )
    usual = "" if rates is None or rates.prior is None else _usual(rates.prior)
    return (
        f"A share of {found.low:.1%} to {found.high:.1%} OOD inputs explains the scores{usual}: "
        "the mix of inputs changed, and each kind looks as before, as far as scores tell."
    )


def _usual(prior: Interval) -> str:
    same = prior.low == prior.high
    return (
        f" (expected {prior.low:.1%})"
        if same
        else f" (expected {prior.low:.1%} to {prior.high:.1%})"
    )


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
            for place, one in enumerate(self._tested):
                if not any(a.expectation == one.name and a.kind == kind for a in alarms):
                    alarms += self._crossing(one.name, kind, logs[place], limit, place)
            if not any(alarm.kind == kind for alarm in alarms):
                together = np.logaddexp.reduce(logs, axis=0)
                alarms += self._crossing(TOGETHER, kind, together, limit, None)
        return alarms

    def _crossing(
        self, name: str, kind: str, logs: FloatArray, limit: float, place: int | None
    ) -> list[Alarm]:
        crossed = np.flatnonzero(logs >= limit)
        if not len(crossed):
            return []
        k = int(crossed[0]) + (self._first if kind == MEAN_TIME else 0)
        if kind == ALPHA:
            # Whether there is an alarm is told in the order in which rows came, when by periods.
            path = np.logaddexp.reduce(self._until) if place is None else self._until[place]
            dated = np.flatnonzero(path >= limit)
            k = int(dated[0]) if len(dated) else len(path) - 1
        rows = self._rows.max(axis=0) if place is None else self._rows[place]
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
    """Return every score beside the reference, in familiar places."""
    found = []
    for place, name in enumerate(setup.names):
        gaps = beyond(counts, place) if len(setup.cuts[place]) else (0, 0, 0)
        if not setup.drifts:
            found.append(DriftSeen(name, math.nan, math.nan, {}, *gaps, None))
            continue
        drift, prior = setup.drifts[place], usual_prior(setup)
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
