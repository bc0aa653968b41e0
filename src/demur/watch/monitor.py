"""`Watch`: whether a rule in use still does what was promised."""

from __future__ import annotations

import hashlib
import os
import secrets
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from demur._arrays import check_kind
from demur.core.fingerprint import Reference
from demur.core.models import Bound
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError, LikelyMistakeWarning
from demur.guarantees.intervals import Prior
from demur.watch.counts import KnownRows, LabelledRows, LiveCounts, PendingRow, Queue, known_rows
from demur.watch.setup import (
    DecidedRows,
    RuleOnMadeScores,
    WatchSetup,
    row_flags,
    row_names,
    row_values,
)
from demur.watch.status import Alarm, LazyStatus, Status, look
from demur.watch.timeline import Period, Timeline, as_period, rows_by_period

if TYPE_CHECKING:
    from demur.watch.audit import AuditPlan

CHUNK = 1000.0
"""Rows of a period where no time is given; it is called by its first row."""

MEAN_TIME = 1000.0
"""Periods between two false alarms of the e-detector, at least and in the mean."""


class Watch:
    """Follows a rule in use: counts its rows, tests what was promised, and gives alarm.

    Parameters
    ----------
    rule
        The rule. Its card says what to expect: certified bounds, or else those asked for in
        tuning, and where the scores of its rows were. Of a `demur.learn.LearnedRule` live rows
        bring the k scores; drift is tested on the two that are made of them, which alone decide.
    expect
        Bounds to expect in place of those of the card.
    alpha
        Largest chance of any false alarm, however often one looks. Half of it goes to the bounds,
        half to the checks that need no labels, in equal parts; evidence is their weighted mean.
    mean_time
        Beside alpha, for a service that never ends: the mean number of periods until a false
        alarm of the e-detector is at least this. It counts periods only where `update` is given
        a time. None: no such alarms.
    audit
        The chances that an accepted and a rejected row is audited, if these differ; TPR and FPR
        need them.
    max_loss
        The largest possible loss, if losses are not just 0 and 1.
    ood_prior
        Share of OOD inputs to expect, a number or (low, high), for what is checked without labels;
        by default that of the rule's model.
    reference
        Fresh labelled rows to hold live ones against, in place of those on the card.
    checks
        Names of the checks to make without labels; all that are possible by default.

    Examples
    --------
    >>> watch = Watch(Rule((1.0,), 0.5), expect=[Bound("selective_risk", at_most=0.06)])
    >>> rng = np.random.default_rng(0)
    >>> status = watch.update(rng.random(1000), loss=rng.random(1000) < 0.12)
    >>> [alarm.expectation for alarm in status.alarms]
    ['selective_risk <= 0.06']
    >>> interval = status.intervals["selective_risk <= 0.06"]
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.099, 0.201)
    """

    def __init__(
        self,
        rule: Rule | RuleOnMadeScores,
        *,
        expect: Sequence[Bound] | None = None,
        alpha: float = 0.05,
        mean_time: float | None = MEAN_TIME,
        audit: tuple[float, float] | None = None,
        max_loss: float | None = None,
        ood_prior: Prior | None = None,
        reference: Sample | Reference | None = None,
        checks: Sequence[str] | None = None,
    ) -> None:
        self._setup = WatchSetup.of(
            rule, expect, alpha, mean_time, audit, max_loss, ood_prior, reference, checks
        )
        self._timeline = Timeline(self._setup.layout)
        self._queue = Queue()
        self._alarms: list[Alarm] = []
        self._timed = False
        self._history: list[dict[str, Any]] = []
        self._marks: list[str] = []
        self._file: tuple[str, str] | None = None
        self.waiting: Period | None = None
        """The first period of files with an audited row that has no label yet."""

    @property
    def rule(self) -> Rule:
        """The rule that is watched."""
        return self._setup.rule

    @property
    def setup(self) -> WatchSetup:
        """What is expected and how rows are counted."""
        return self._setup

    @property
    def timeline(self) -> Timeline:
        """Counts by period."""
        return self._timeline

    @property
    def history(self) -> tuple[dict[str, Any], ...]:
        """What happened: alarms and resets, in order."""
        return tuple(self._history)

    def update(
        self,
        scores: Any,
        loss: Any = None,
        is_ood: Any = None,
        audited: Any = None,
        time: Any = None,
        *,
        group: Any = None,
        ids: Any = None,
    ) -> LazyStatus:
        """Count rows, in their order, and return the status, which is worked out when it is read.

        Parameters
        ----------
        scores
            As `Rule.accept` takes them; rows that lack a score are rejected and counted.
        loss
            Losses; NaN or None where there is no label. A row with a loss is a labelled ID row.
        is_ood
            Whether rows are OOD, or the names of their OOD sets (``""`` or ``"id"`` for ID rows);
            NaN or None where that is not known.
        audited
            Which rows were chosen for a label, by chance and not by what they are. Labels of other
            rows are not counted; an audited row without one stops the labels behind it until
            `label` brings it.
        time
            The period, such as a day, of all rows or of each.
        group
            Labels of groups, where bounds are on groups.
        ids
            Names of the rows, by which late labels find them.
        """
        counted, labels = self._setup.rows(scores), None
        rows = len(counted.accepted)
        if loss is not None or is_ood is not None or audited is not None:
            labels = known_rows(loss, is_ood, rows, self._setup.max_loss)
        groups = row_values("group", group, rows)
        chosen = row_flags(audited, rows)
        keys = row_values("ids", ids, rows)
        periods = self._periods(time, rows)
        # All is checked before anything is counted: what was refused can be given again.
        self._timeline.check([period for period, _ in periods])
        if labels is not None and chosen is not None:
            late = chosen & ~labels.complete(counted.accepted)
            if keys is None and late.any():
                raise InvalidInputError("audited rows without a label need ids, to find them later")
            self._queue.check([] if keys is None else [str(key) for key in keys[late].tolist()])
        # By this mark, rows given by hand are never merged with themselves.
        self._marks = self._marks or [secrets.token_hex(4)]
        self._timed = time is not None
        for period, part in periods:
            whole = isinstance(part, slice)
            these = counted if whole else counted.take(part)
            counts = these.counts(self._setup.layout)
            if labels is not None:
                told = KnownRows(*(column[part] for column in labels))
                of_group = None if groups is None else groups[part]
                names = None if keys is None else keys[part]
                picked = None if chosen is None else chosen[part]
                self._add_labels(period, counts, these, told, picked, of_group, names)
            self._timeline.add(period, counts)
        return LazyStatus(self.status)

    def _periods(self, time: Any, rows: int) -> list[tuple[Period, Any]]:
        """Return the periods of some rows in order, and which rows are of each."""
        if time is None:
            if self._timed:
                raise InvalidInputError("time is missing, but earlier rows had one")
            seen = self._timeline.total.sums[0]
            return [(float(seen // CHUNK * CHUNK + 1), slice(None))]
        if not self._timed and self._timeline.segments:
            raise InvalidInputError("time is given, but earlier rows had none")
        return rows_by_period(time, rows)

    def _add_labels(
        self,
        period: Period,
        counts: LiveCounts,
        rows: DecidedRows,
        told: KnownRows,
        chosen: Any,
        group: Any,
        keys: Any,
    ) -> None:
        labelled = LabelledRows(rows.accepted, told.is_ood, told.loss, told.set_name, group)
        if chosen is None:
            counts.add_labelled(labelled.take(told.known))
            return
        if not self._queue.rows and told.complete(rows.accepted)[chosen].all():
            counts.add_labelled(labelled.take(chosen))
            return
        self._queue.add(
            PendingRow(
                "" if keys is None else str(keys[k]),
                period,
                bool(rows.accepted[k]),
                None if group is None else str(group[k]),
                bool(told.known[k]),
                bool(told.is_ood[k]),
                str(told.set_name[k]),
                float(told.loss[k]),
            )
            for k in np.flatnonzero(chosen)
        )
        self._count_ready()

    def label(self, ids: Any, loss: Any = None, is_ood: Any = None) -> LazyStatus:
        """Bring labels of audited rows that had none, found by their ids, in any order.

        Labels of rows that do not wait for one are not counted, so that one may come twice; a
        warning names them.
        """
        keys = row_names(ids)
        told = known_rows(loss, is_ood, len(keys), self._setup.max_loss)
        strange = self._queue.label(keys, told)
        if strange:
            warnings.warn(
                f"{len(strange)} of {len(keys)} labels are of no row that waits for one, such as "
                f"{strange[0]!r}: they are not counted",
                LikelyMistakeWarning,
                stacklevel=2,
            )
        self._count_ready()
        return LazyStatus(self.status)

    def give_up(self, ids: Any, reason: str) -> LazyStatus:
        """Leave out audited rows of which no label will ever come, so that others need not wait.

        This biases every rate if such rows are not like the others; the history says so.
        """
        check_kind("reason", reason, str)
        keys = row_names(ids)
        self._queue.remove(keys)
        self._history.append({"what": "left out", "rows": len(keys), **self._dated(reason)})
        self._count_ready()
        return LazyStatus(self.status)

    def _dated(self, reason: str) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {"reason": reason, "period": self._timeline.last, "at": now}

    def _count_ready(self) -> None:
        for period, rows in self._queue.ready():
            counts = LiveCounts.none(self._setup.layout)
            counts.add_labelled(rows)
            self._timeline.add(period, counts)

    def replace(self, period: Any, files: str, counts: LiveCounts) -> bool:
        """Count a period of which the rows are in files, in place of what these files gave before.

        Return whether it was counted; closed periods are not.
        """
        self._timed = True
        return self._timeline.replace(as_period(period), files, counts)

    def count(
        self,
        frame: Any,
        *,
        by: str,
        loss: str | None = None,
        ood: str | None = None,
        audited: str | None = None,
        group: str | None = None,
        part: str = "frame",
    ) -> LazyStatus:
        """Count a frame or an opened source where it is, in one pass.

        Parameters
        ----------
        frame
            A frame of DuckDB, Spark, Dask, Polars, pandas or pyarrow; or what `demur.open_source`
            returns for files or a table of a database. Rows are counted as they are, with
            labels or without: what the source was opened for does not matter, so
            ``labelled=False`` will do.
        by
            Column that names the period. A period that was counted before under the same `part` is
            counted anew; other parts add up.
        loss, ood, audited, group
            Columns that mean what the arguments of `update` do, as does that of `by`; the scores
            are found by the names that the rule has for them.
        part
            Names the rows of this frame among those of the same period.
        """
        from demur.watch.grouped import GroupedColumns, counts_by_period

        found = counts_by_period(self._setup, frame, GroupedColumns(by, loss, ood, audited, group))
        name = hashlib.sha256(part.encode()).hexdigest()[:12]
        # Nothing waits for labels of periods that are closed.
        before = self.waiting
        held = found.waiting + ([] if before is None or before in found.counts else [before])
        waiting = min((p for p in held if not self._timeline.is_closed(p)), default=None)
        for period, counts in found.counts.items():
            if waiting is not None and period >= waiting:  # type: ignore[operator]
                counts.drop_labels()
            self.replace(period, name, counts)
        self.waiting = waiting
        return LazyStatus(self.status)

    def status(self) -> Status:
        """Look at everything: evidence, intervals, alarms, drift."""
        pending = len(self._queue.rows)
        found = look(self._setup, self._timeline, self._alarms, pending=pending, timed=self._timed)
        for alarm in found.alarms[len(self._alarms) :]:
            self._history.append({"what": "alarm", **alarm.to_data()})
        self._alarms = list(found.alarms)
        self._timeline.mark_looked()
        return found

    def reset(self, reason: str, *, audit: tuple[float, float] | None = None) -> None:
        """Begin anew after an alarm or a change; what was counted is kept as history.

        Rows that wait for a label are of the time before, and are left out. `audit` are other
        rates of audits from now on.
        """
        check_kind("reason", reason, str)
        setup = self._setup.with_audit(audit)
        self.status()
        left = {"left_out": len(self._queue.rows)} if self._queue.rows else {}
        self._history.append({"what": "reset", **self._dated(reason), **left})
        self._setup, self._queue, self.waiting = setup, Queue(), None
        self._timeline.reset()
        self._alarms = []

    def plan(self, broken: Bound | None = None, **options: Any) -> AuditPlan:
        """Return how many audits a day find a break; see `demur.watch.audit.plan_audits`.

        `broken` is a bound that still just holds for the broken rule, such as
        ``Bound("selective_risk", at_most=0.12)`` where 0.06 is expected.
        """
        from demur.watch.audit import plan_for

        return plan_for(self._setup, broken, **options)

    def __or__(self, other: Watch) -> Watch:
        """Return the rows of both, counted as one; alarms are found anew, earlier ones history."""
        check_kind("other", other, Watch)
        mine, theirs = self._setup.identity(), other._setup.identity()
        for what, value in mine.items():
            if value != theirs[what]:
                raise InvalidInputError(
                    f"the watches differ in {what}: {value!r} and {theirs[what]!r} cannot be merged"
                )
        if set(self._marks) & set(other._marks):
            raise InvalidInputError(
                "both watches hold rows of the same watch, which would be counted twice: merge "
                "shards that began empty, each once"
            )
        both = [watch for watch in (self, other) if watch._timeline.segments]
        if len({watch._timed for watch in both}) > 1:
            raise InvalidInputError("one watch has periods and the other has none")
        merged = Watch.__new__(Watch)
        merged._setup = self._setup
        merged._timeline = self._timeline.merged(other._timeline)
        merged._queue = Queue([*self._queue.rows, *other._queue.rows])
        merged._alarms = []
        merged._timed = self._timed or other._timed
        merged._history = [*self._history, *other._history]
        merged._marks = [*self._marks, *other._marks]
        merged._file = None
        held = [watch.waiting for watch in (self, other) if watch.waiting is not None]
        merged.waiting = min(held, default=None)
        return merged

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to `path`; an interrupted write leaves the old file as it was."""
        from demur.watch.state import save

        save(self, path)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, rule: Rule | RuleOnMadeScores | None = None
    ) -> Watch:
        """Read a state written by `save`; with `rule`, refuse that of another rule.

        A state does not hold what makes learned scores: give the `LearnedRule` to count more rows.
        """
        from demur.watch.state import load

        return load(path, rule)

    def __repr__(self) -> str:
        rows = int(self._timeline.total.sums[0])
        return f"Watch({len(self._setup.bounds)} bounds, alpha={self._setup.alpha}, rows={rows})"
