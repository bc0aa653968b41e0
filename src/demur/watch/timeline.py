"""Periods in the order of time, and what was counted in each.

A period is counted in parts, each of certain files: counting the same files again replaces a part,
others add one. Only the latest periods are kept one by one; of older ones neighbours are joined, so
that the timeline stays small however long a service runs. What is joined, or lies before a reset,
is closed: rows of such a period are not counted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from demur._arrays import FloatArray, plain_array
from demur.errors import InvalidInputError
from demur.watch.counts import CountLayout, LiveCounts, total

Period = str | float
"""The name of a period: text or a number, by which periods are ordered."""

OPEN = 40
"""So many of the latest periods are kept one by one."""

_MOST = 80
LIVE = ""
"""The part of a period that rows given by hand are counted in."""

SET_OF_FILES = "set:"
"""How the name of a part begins that has many files; their marks are cut short."""
SHORT_MARK = 6


@dataclass(slots=True)
class Segment:
    """One period, or several that follow each other and were joined."""

    first: Period
    last: Period
    parts: dict[str, LiveCounts]
    """Counts by part; a name of a part is that of its files."""
    epoch: int = 0
    """How many resets came before."""
    closed: bool = False
    looked: LiveCounts | None = field(default=None, repr=False)
    """What of it was counted at the last look; None if it was never looked at."""
    cached: LiveCounts | None = field(default=None, repr=False)

    def counts(self) -> LiveCounts:
        """Return the sum of the parts."""
        if self.cached is None:
            parts = list(self.parts.values())
            self.cached = total(parts[0].layout, parts)
        return self.cached

    def joined(self, later: Segment) -> Segment:
        """Return this segment and a later one as one."""
        both = total(self.counts().layout, [self.counts(), later.counts()])
        ends = min(self.first, later.first), max(self.last, later.last)
        looked = [part.looked for part in (self, later) if part.looked is not None]
        known = total(both.layout, looked) if looked else None
        return Segment(*ends, {LIVE: both}, later.epoch, closed=True, looked=known)


class Timeline:
    """Counts by period, and their sum since the last reset."""

    def __init__(
        self,
        layout: CountLayout,
        segments: Iterable[Segment] = (),
        epoch: int = 0,
        sets: Iterable[str] = (),
    ) -> None:
        self.layout, self.epoch = layout, epoch
        self.segments = list(segments)
        self._sets = list(sets)
        self.total = LiveCounts.none(layout)
        self._sum()

    def _sum(self) -> None:
        self.total = total(self.layout, (s.counts() for s in self.current()))

    def current(self) -> list[Segment]:
        """Return the segments since the last reset."""
        return [segment for segment in self.segments if segment.epoch == self.epoch]

    @property
    def sets(self) -> list[str]:
        """OOD sets in the order in which looks found them, which no later row changes."""
        return list(dict.fromkeys([*self._sets, *self.total.sets]))

    def mark_looked(self) -> None:
        """Remember what a look saw."""
        self._sets = self.sets
        for segment in self.current():
            segment.looked = segment.counts()

    def since_look(self) -> list[LiveCounts]:
        """Return what to add up, segment by segment, to follow the rows in the order they came.

        The first has all that was looked at before. Rows that come late for an old period are new
        all the same: in any other order the looks would not be those of one growing sample, and
        the chance of a false alarm would not be what was promised.
        """
        steps = []
        for segment in self.current():
            step = total(self.layout, [segment.counts()])
            if segment.looked is not None:
                step.subtract(segment.looked)
            steps.append(step)
        for segment in self.current():
            if segment.looked is not None:
                steps[0].add(segment.looked)
        return steps

    def never_looked(self) -> int:
        """Return the number of latest segments that no look has seen."""
        found = 0
        for segment in reversed(self.current()):
            if segment.looked is not None:
                break
            found += 1
        return found

    def is_closed(self, period: Period) -> bool:
        """Return whether rows of a period are not counted any more."""
        segment, _ = self._find(period)
        return segment is None

    def parts(self, period: Period) -> set[str]:
        """Return the names of the parts that a period was counted in, those given by hand aside."""
        segment, _ = self._find(period)
        return set() if segment is None else set(segment.parts) - {LIVE}

    @property
    def last(self) -> Period | None:
        """The latest period."""
        return self.segments[-1].last if self.segments else None

    def add(self, period: Period, counts: LiveCounts) -> None:
        """Add rows to a period."""
        segment = self._open(period)
        if segment is None:
            segment = self._nearest(period)
        if LIVE not in segment.parts:
            segment.parts[LIVE] = LiveCounts.none(self.layout)
        segment.parts[LIVE].add(counts)
        segment.cached = None
        self.total.add(counts)

    def replace(self, period: Period, files: str, counts: LiveCounts) -> bool:
        """Count a part of a period, in place of what was counted of the same files.

        Return whether it was counted: not if the period is closed.
        """
        segment = self._open(period)
        if segment is None:
            return False
        for known in [p for p in segment.parts if p != LIVE]:
            overlap = _overlap(known, files)
            if overlap == "some":
                raise InvalidInputError(
                    f"period {period_text(period)} was counted from files of which only some are "
                    "among these: give all of them, or none"
                )
            if overlap == "all":
                del segment.parts[known]
        segment.parts[files] = counts
        segment.cached = None
        self._sum()
        return True

    def check(self, periods: Sequence[Period]) -> None:
        """Refuse periods that cannot be ordered with those that are known."""
        known = self.segments[-1:]
        for period in periods:
            if known and isinstance(known[0].first, str) != isinstance(period, str):
                raise InvalidInputError(
                    f"the period {period!r} cannot be ordered with {known[0].first!r}: use text "
                    "for all of them, or numbers"
                )

    def _find(self, period: Period) -> tuple[Segment | None, int | None]:
        """Return the segment of a period, or a new one and its place; None if it is closed."""
        self.check([period])
        place = len(self.segments)
        while place and self.segments[place - 1].first > period:  # type: ignore[operator]
            place -= 1
        before = self.segments[place - 1] if place else None
        if before is not None and period <= before.last:  # type: ignore[operator]
            closed = before.closed or before.epoch != self.epoch
            return (None if closed else before), None
        following = self.segments[place] if place < len(self.segments) else None
        if following is not None and (following.closed or following.epoch != self.epoch):
            # Before what is closed; its place in the evidence would be wrong.
            return None, None
        none = {LIVE: LiveCounts.none(self.layout)}
        return Segment(period, period, none, self.epoch), place

    def _open(self, period: Period) -> Segment | None:
        """Return the segment of a period, a new one if it has none; None if it is closed."""
        segment, place = self._find(period)
        if segment is None or place is None:
            return segment
        self.segments.insert(place, segment)
        if len(self.segments) > _MOST:
            self._thin()
            # One that is long ago was joined with its neighbours, and is closed.
            return segment if any(s is segment for s in self.segments) else None
        return segment

    def _nearest(self, period: Period) -> Segment:
        """Return where rows of a closed period go that are new all the same."""
        current = self.current()
        inside = [s for s in current if s.first <= period <= s.last]  # type: ignore[operator]
        if inside:
            return inside[0]
        if current:
            return current[0]
        self.segments.append(
            Segment(period, period, {LIVE: LiveCounts.none(self.layout)}, self.epoch)
        )
        return self.segments[-1]

    def shrink(self) -> bool:
        """Make the timeline smaller, at the cost of periods that can be counted anew.

        Return whether there is anything left to join.
        """
        for kept in (OPEN // 2, OPEN // 4, OPEN // 8):
            if len(self.segments) > kept + 1:
                self._thin(kept)
                return True
        joined = False
        for segment in self.segments:
            of_files = [name for name in segment.parts if name != LIVE]
            if len(of_files) > 1:
                counts = total(self.layout, [segment.parts.pop(name) for name in of_files])
                marks = sorted({m[:SHORT_MARK] for name in of_files for m in _marks(name)})
                segment.parts[SET_OF_FILES + " ".join(marks)] = counts
                joined = True
        return joined

    def _thin(self, kept_open: int = OPEN) -> None:
        """Join the periods that are not among the latest, two by two; each time the older again."""
        old, kept = self.segments[:-kept_open], self.segments[-kept_open:]
        joined: list[Segment] = []
        while old:
            segment = old.pop(0)
            # History may be joined across resets, evidence not.
            if old and (old[0].epoch == segment.epoch or old[0].epoch < self.epoch):
                segment = segment.joined(old.pop(0))
            segment.closed, segment.parts = True, {LIVE: segment.counts()}
            joined.append(segment)
        self.segments = joined + kept

    def reset(self) -> None:
        """Begin anew: what was counted so far is kept, and no longer evidence."""
        for segment in self.segments:
            segment.closed = True
        self.epoch += 1
        self._sets = []
        self.total = LiveCounts.none(self.layout)

    def sums(self) -> FloatArray:
        """Return the sums of every segment since the last reset, shape (segments, size)."""
        current = self.current()
        if not current:
            return np.zeros((0, self.layout.size))
        return np.stack([segment.counts().sums for segment in current])

    def merged(self, other: Timeline) -> Timeline:
        """Return the rows of both; periods that were joined on one side are on both.

        If either was looked at, the next look at the merged rows is at all of them, and not at the
        end of every period: shards that are merged again and again, one ahead of the other, would
        make these ends others each time.
        """
        epoch = max(self.epoch, other.epoch)
        segments = sorted(
            [*_copied(self.segments), *_copied(other.segments)],
            key=lambda s: (s.epoch, s.first),
        )
        merged: list[Segment] = []
        for segment in segments:
            last = merged[-1] if merged else None
            apart = last is None or last.epoch != segment.epoch or segment.first > last.last  # type: ignore[operator]
            if last is None or apart:
                merged.append(segment)
            elif (last.first, last.last) == (segment.first, segment.last):
                _add_parts(last, segment)
            else:
                merged[-1] = last.joined(segment)
        found = Timeline(self.layout, merged, epoch, [*self._sets, *other._sets])
        while len(found.segments) > _MOST:
            found._thin()
        found._sum()
        looked = any(s.looked is not None for s in (*self.segments, *other.segments))
        for segment in found.segments:
            segment.looked = segment.counts() if looked else None
        return found


def _copied(segments: Sequence[Segment]) -> list[Segment]:
    return [
        Segment(
            s.first,
            s.last,
            {p: total(c.layout, [c]) for p, c in s.parts.items()},
            s.epoch,
            s.closed,
        )
        for s in segments
    ]


def _add_parts(into: Segment, other: Segment) -> None:
    for part, counts in other.parts.items():
        known = into.parts.get(part)
        if known is None:
            into.parts[part] = counts
        elif part == LIVE:
            known.add(counts)
        elif not np.array_equal(known.sums, counts.sums):
            raise InvalidInputError(
                f"period {into.first!r} was counted from the same files on both sides, with "
                "different results: count it again on one side"
            )
    into.closed = into.closed or other.closed
    into.cached = None


def _marks(part: str) -> set[str]:
    return set(part.removeprefix(SET_OF_FILES).split())


def _overlap(known: str, files: str) -> str:
    """Return whether all, some or none of the known files are among others."""
    before, now = _marks(known), _marks(files)
    if known.startswith(SET_OF_FILES) or files.startswith(SET_OF_FILES):
        before, now = ({mark[:SHORT_MARK] for mark in marks} for marks in (before, now))
    if not before & now:
        return "none"
    return "all" if before <= now else "some"


def as_period(value: Any) -> Period:
    """Return a value of a column, or of an argument, as the name of a period."""
    if isinstance(value, (bool, np.bool_)) or value is None:
        raise InvalidInputError(f"time must be text, a date or a number, got {value!r}")
    if isinstance(value, (int, float, np.integer, np.floating)):
        if value != value:
            raise InvalidInputError("time is missing for some rows")
        return float(value)
    return str(value)


def in_order_of_time(periods: Iterable[Period]) -> list[Period]:
    """Return periods, each once, in their order; refuse text beside numbers, which has none."""
    each = list(dict.fromkeys(periods))
    words = [period for period in each if isinstance(period, str)]
    if words and len(words) < len(each):
        number = next(period for period in each if not isinstance(period, str))
        raise InvalidInputError(
            f"the period {words[0]!r} cannot be ordered with {period_text(number)}: use text for "
            "all of them, or numbers"
        )
    return sorted(each)


def rows_by_period(time: Any, rows: int) -> list[tuple[Period, Any]]:
    """Return the periods that `time` names, in order, and which rows are of each."""
    if isinstance(time, (str, bytes)) or np.ndim(time) == 0:
        return [(as_period(time), slice(None))]
    given = plain_array("time", time)
    if given.shape != (rows,):
        raise InvalidInputError(f"time has shape {given.shape}, expected ({rows},)")
    names, place = np.unique(given, return_inverse=True)
    return [(as_period(name), place == k) for k, name in enumerate(names.tolist())]


def period_text(period: Period | None) -> str:
    """Return a period as people write it."""
    if isinstance(period, float):
        return f"{period:g}" if period != int(period) else str(int(period))
    return "" if period is None else str(period)
