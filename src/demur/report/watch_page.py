"""The page of a watch: one HTML file without scripts that needs nothing else.

Charts are drawn here as SVG; markup is in the template, which escapes all that it shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.core.wording import DASH, MINUS, formula
from demur.guarantees.intervals import Interval
from demur.report.html import asset, environment, policy
from demur.watch.counts import ROWS, LiveCounts
from demur.watch.files import ExampleRow
from demur.watch.hypotheses import Familiar, LiveSums, spans
from demur.watch.monitor import Watch
from demur.watch.setup import WatchSetup, prior_seen, usual_prior
from demur.watch.status import Status, Watched, detector_logs, in_order
from demur.watch.timeline import Segment, Timeline, period_text

_WIDTH, _HEIGHT = 560, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 10, 26
_HIGHEST = 12.0
"""Powers of ten that the chart of evidence shows at most."""


def watch_page(
    watch: Watch,
    status: Status,
    *,
    title: str = "rule",
    rows: Sequence[ExampleRow] = (),
    of: int | None = None,
) -> str:
    """Return the page of a watch at one look.

    Parameters
    ----------
    rows
        Rows to look at.
    of
        How many rows they are among, where these are not all.
    """
    from importlib.metadata import version

    css = asset("page.css") + asset("watch.css")
    periods = period_names(watch.timeline)
    courses = watched_series(watch.setup, watch.timeline)
    panels = [
        Panel.of(item, course, periods, status)
        for item, course in zip(status.watched, courses, strict=False)
    ]
    page: str = (
        environment()
        .get_template("watch.html")
        .render(
            title=title,
            css=css,
            policy=policy(css),
            version=version("demur"),
            status=status,
            watch=watch,
            rule=formula(watch.rule),
            panels=panels,
            figures=_figures(status),
            first=_order(status),
            scores=_drift(watch, periods),
            live_names=watch.setup.live_names,
            prior=_prior(watch, periods),
            rows=list(reversed(rows)),
            rows_of=of,
            periods=periods,
            history=list(reversed(watch.history)),
            resets=watch.timeline.epoch,
            period_text=period_text,
            signed=_signed,
            share=_share,
            power=_power,
            line=-math.log10(status.alpha),
        )
    )
    return page


def _signed(text: str) -> str:
    return text.replace("<=", "≤").replace(">=", "≥").replace("_", " ").replace("-", "\u2011")


def _share(value: float) -> str:
    return DASH if math.isnan(value) else f"{value:.4f}"


def _power(log: float) -> str:
    """Return evidence from its natural logarithm, as people read it."""
    ten = log / math.log(10)
    if -3 <= ten < 4:
        return f"{10**ten:.3g}"
    return f"10^{ten:.0f}".replace("-", MINUS)


def _figures(status: Status) -> list[tuple[str, str, str]]:
    """Return title, value and remark of the numbers on top."""
    share = status.accepted / status.rows if status.rows else math.nan
    found = [("rows", f"{status.rows:,}", f"up to {period_text(status.period)}")]
    found.append(("accepted", _share(share), f"{status.accepted:,} rows"))
    prior = status.prior
    if prior is not None and not math.isnan(prior.estimate):
        ends = f"{_share(prior.interval.low)} to {_share(prior.interval.high)}"
        found.append(("share of OOD inputs", _share(prior.estimate), ends))
    if not math.isnan(status.estimated_risk):
        risk = (
            "estimated selective risk",
            _share(status.estimated_risk),
            "an estimate, no promise",
        )
        found.append(risk)
    if status.pending:
        found.append(("audits without label", f"{status.pending:,}", "labels behind them wait"))
    return found


def _order(status: Status) -> list[tuple[Watched, list[Any]]]:
    """Return what broke, that which changed first on top, and its alarms."""
    broken = [item for item in status.watched if item.alarm]
    return [
        (item, [a for a in status.alarms if a.expectation == item.name])
        for item in in_order(broken)
    ]


def _drift(watch: Watch, periods: list[str]) -> list[tuple[str, TimeChart]]:
    charts = []
    for course in drift_series(watch.setup, watch.timeline):
        top = max([0.3, *(v for v in (*course.psi, *course.ks) if not math.isnan(v))])
        chart = TimeChart(periods, (0.0, top * 1.05))
        chart.line(course.psi, "curve")
        chart.line(course.ks, "curve held")
        charts.append((course.score, chart))
    return charts


def _prior(watch: Watch, periods: list[str]) -> TimeChart | None:
    """Draw the share of OOD inputs over time."""
    course = prior_series(watch.setup, watch.timeline)
    if course is None:
        return None
    rows = [int(segment.counts().sums[0]) for segment in watch.timeline.current()]
    tops = [v for v in (*course.estimate, *course.high[len(rows) // 4 :]) if not math.isnan(v)]
    chart = TimeChart(periods, (0.0, min(1.0, 1.05 * max([0.1, *tops]))))
    if not any(math.isnan(v) for v in course.low):
        chart.band(course.low, course.high)
    rates = watch.setup.rates
    declared = None if rates is None else rates.prior
    for end in () if declared is None else (declared.low, declared.high):
        chart.level(end, "limit")
    chart.dots(course.estimate, rows)
    return chart


@dataclass(frozen=True, slots=True)
class Panel:
    """One expectation: as it stands, and its charts."""

    item: Watched
    share: TimeChart | None
    evidence: TimeChart
    kinds: str
    """How its alarms were found."""

    @classmethod
    def of(cls, item: Watched, course: Series, periods: list[str], status: Status) -> Panel:
        """Draw the charts of an expectation."""
        chart = None
        if not math.isnan(item.interval.low):
            chart = TimeChart(periods, _span(item.limit, course))
            chart.band(course.low, course.high)
            for end in (item.limit.low, item.limit.high):
                if 0 < end < math.inf and not (item.kind == "check" and end >= 1):
                    chart.level(end, "limit")
            chart.dots(course.share, course.rows)
        line = -math.log10(status.alpha)
        detect = None if status.mean_time is None else math.log10(status.mean_time)
        peaks = [line + 0.5, *course.evidence]
        peaks += [] if detect is None else [detect + 0.5, *course.detector]
        top = min(_HIGHEST, max(peaks))
        lowest = max(-4.0, min([-1.0, *course.evidence]))
        evidence = TimeChart(periods, (lowest, top))
        evidence.level(line, "limit")
        evidence.line(course.evidence, "curve")
        if detect is not None:
            evidence.level(detect, "limit long")
            evidence.line(course.detector, "curve held")
        kinds = dict.fromkeys(a.kind for a in status.alarms if a.expectation == item.name)
        return cls(item, chart, evidence, " and ".join(kinds))


def _span(limit: Interval, course: Series) -> tuple[float, float]:
    """Return a range that shows the limit and most of the sequence."""
    ends = [end for end in (limit.low, limit.high) if 0 < end < 1]
    late = len(course.low) // 4
    values = ends + course.low[late:] + course.high[late:]
    values += [v for v, n in zip(course.share, course.rows, strict=True) if n >= 5 and v == v]
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.05
    return max(0.0, low - room), high + room


class TimeChart:
    """A chart over periods, in pixels of its own."""

    def __init__(self, periods: list[str], span: tuple[float, float]) -> None:
        self.periods, self.low, self.high = periods, *span
        self.shapes: list[dict[str, Any]] = []
        self.width, self.height = _WIDTH, _HEIGHT

    def x(self, place: int) -> float:
        """Return where a period is."""
        room = _WIDTH - _LEFT - _RIGHT
        return round(_LEFT + room * (place + 0.5) / max(len(self.periods), 1), 1)

    def y(self, value: float) -> float:
        """Return where a value is, at the edge if it is beyond."""
        inside = min(max(value, self.low), self.high)
        room = _HEIGHT - _TOP - _BOTTOM
        return round(_TOP + room * (1 - (inside - self.low) / (self.high - self.low)), 1)

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Edges of the chart."""
        return _LEFT, _TOP, _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and texts on the left."""
        raw = (self.high - self.low) / 4
        power = 10 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        values = [k * step for k in range(first, int(self.high / step + 1e-9) + 1)]
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        return [(self.y(v), f"{v:.{digits}f}".replace("-", MINUS)) for v in values]

    def names(self) -> list[tuple[float, str]]:
        """Return places and names of some periods."""
        count = len(self.periods)
        every = max(1, math.ceil(count / 5))
        return [(self.x(k), self.periods[k]) for k in range(0, count, every)]

    def line(self, values: Sequence[float], kind: str) -> None:
        """Draw a line through values; where there is none, it is broken."""
        path, pen = "", "M"
        for k, value in enumerate(values):
            if math.isnan(value):
                pen = "M"
                continue
            path += f"{pen}{self.x(k)} {self.y(value)}"
            pen = "L"
        self.shapes.append({"shape": "path", "kind": kind, "d": path or "M0 0"})

    def level(self, value: float, kind: str) -> None:
        """Draw a level line, if it is in the chart."""
        if self.low <= value <= self.high:
            self.shapes.append({"shape": "level", "kind": kind, "y": self.y(value)})

    def band(self, low: Sequence[float], high: Sequence[float]) -> None:
        """Draw what lies between two lines."""
        there = [f"{self.x(k)} {self.y(v)}" for k, v in enumerate(high)]
        back = [f"{self.x(k)} {self.y(v)}" for k, v in reversed(list(enumerate(low)))]
        self.shapes.append({"shape": "path", "kind": "band", "d": f"M{'L'.join(there + back)}Z"})

    def dots(self, values: Sequence[float], rows: Sequence[int]) -> None:
        """Draw a dot for each period that has rows."""
        for k, (value, count) in enumerate(zip(values, rows, strict=True)):
            if count and not math.isnan(value):
                words = f"{self.periods[k]}: {value:.4f} of {count:,} rows"
                dot = {"shape": "dot", "x": self.x(k), "y": self.y(value), "words": words}
                self.shapes.append(dot)


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
