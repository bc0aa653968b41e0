"""`watch.json`: the state of a watch, and using it safely from several processes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demur._files import check_target, check_version, read_text, strict_json, write_atomically
from demur.core.fingerprint import Reference
from demur.core.models import Bound
from demur.core.rule import Rule, rule_data
from demur.core.wording import formula
from demur.errors import InvalidInputError
from demur.guarantees.intervals import Interval
from demur.watch.counts import LiveCounts, PendingRow, Queue
from demur.watch.setup import RuleOnMadeScores, WatchSetup, maker_mark
from demur.watch.status import Alarm
from demur.watch.timeline import Segment, Timeline

if TYPE_CHECKING:
    from demur.watch.monitor import Watch

FORMAT, VERSION = "demur.watch", 1
_LARGEST = 2**25
_USUAL = 95_000
"""So many signs a state should have at most; what waits for labels comes on top."""
_KEPT = ("model", "points", "ood", "ranges")
_HELD: set[tuple[str, int]] = set()
"""States that threads of this process hold."""
_EVENTS = 200
"""So many of the latest alarms and resets are kept."""


def save(watch: Watch, path: str | os.PathLike[str]) -> None:
    """Write the state of a watch; refuse to write over what another process wrote meanwhile."""
    text = to_json(watch)
    while len(text) > _USUAL and watch.timeline.shrink():
        text = to_json(watch)
    place = str(Path(path).absolute())
    known = watch._file is not None and watch._file[0] == place
    with locked(path) if known else nullcontext():
        if watch._file is not None and known and Path(path).exists():
            there = read_text(path, "the state", _LARGEST)
            if _digest(there) != watch._file[1]:
                raise InvalidInputError(
                    f"the state {str(path)!r} was written by someone else since it was read, and "
                    "would be lost: read it and update it within `with locked(path):`"
                )
        write_atomically(path, text + "\n")
        watch._file = place, _digest(text + "\n")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def to_json(watch: Watch) -> str:
    """Return the state as strict JSON."""
    setup, timeline = watch.setup, watch.timeline
    card = {} if setup.rule.card is None else setup.rule.card.to_data()
    reference = setup.reference
    data = {
        "format": FORMAT,
        "version": VERSION,
        "setup": setup.identity(),
        "card": {name: card[name] for name in _KEPT if name in card},
        "reference": None if reference is None else reference.to_data(),
        "timed": watch._timed,
        "waiting": watch.waiting,
        "epoch": timeline.epoch,
        "sets": timeline.sets,
        "marks": watch._marks,
        "segments": [_segment_data(segment) for segment in timeline.segments],
        "pending": [row.to_data() for row in watch._queue.rows],
        "alarms": [alarm.to_data() for alarm in watch._alarms],
        "history": watch._history[-_EVENTS:],
    }
    return _strict(data | {"digest": _digest(_strict(data))})


def _strict(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


def _segment_data(segment: Segment) -> list[Any]:
    parts = {name: counts.to_data() for name, counts in segment.parts.items()}
    data = [segment.first, segment.last, segment.epoch, int(segment.closed), parts]
    now, looked = segment.counts().to_data(), segment.looked
    if looked is None:
        return [*data, None]
    # Usually a look came last, and there is nothing to add.
    return data if looked.to_data() == now else [*data, looked.to_data()]


def load(path: str | os.PathLike[str], rule: Rule | RuleOnMadeScores | None = None) -> Watch:
    """Read the state of a watch; refuse what is damaged, newer, or of another rule."""
    name = str(path)
    text = read_text(path, "the state", _LARGEST)
    try:
        data = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"the state {name!r} is damaged, it is no JSON: {error}; restore it, or start a new one"
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(f'{name!r} is no state of a watch: "format" must be "{FORMAT}"')
    check_version(data, f"the state {name!r}", VERSION)
    try:
        watch = _watch(data)
        told = data.pop("digest")
        if told != _digest(_strict(data)):
            raise InvalidInputError("its digest is another; restore it, or start a new one")
    except InvalidInputError as error:
        raise InvalidInputError(f"the state {name!r} is damaged: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InvalidInputError(
            f"the state {name!r} is damaged: {type(error).__name__}: {error}; restore it, or start "
            "a new one"
        ) from None
    maker = None
    if rule is not None and not isinstance(rule, Rule):
        whole: RuleOnMadeScores = rule
        rule, maker = whole.rule, whole.learned
    if rule is not None and rule_data(rule) != rule_data(watch.rule):
        raise InvalidInputError(
            f"the state {name!r} is of another rule, {_words(watch.rule)}, not {_words(rule)}: "
            "start a new state for this one"
        )
    if rule is not None and watch.setup.made_by != (maker and maker_mark(maker)):
        raise InvalidInputError(
            f"the state {name!r} is of a rule on other learned scores: start a new state for this "
            "one"
        )
    watch._setup = replace(watch.setup, maker=maker)
    watch._file = str(Path(path).absolute()), _digest(text)
    return watch


def _words(rule: Rule) -> str:
    return "never" if rule.threshold == -math.inf else formula(rule)


def _watch(data: dict[str, Any]) -> Watch:
    from demur.watch.monitor import Watch

    setup = _setup(data)
    watch = Watch.__new__(Watch)
    watch._setup = setup
    segments = [_segment(setup, item) for item in data["segments"]]
    watch._timeline = Timeline(setup.layout, segments, int(data["epoch"]), _texts(data["sets"]))
    watch._marks = _texts(data["marks"])
    watch._file = None
    watch._queue = Queue(PendingRow.from_data(row) for row in data["pending"])
    watch._alarms = [Alarm(**alarm) for alarm in data["alarms"]]
    watch._timed = bool(data["timed"])
    watch._history = list(data["history"])
    if not isinstance(data["history"], list) or not all(
        isinstance(e, dict) for e in data["history"]
    ):
        raise InvalidInputError("its history cannot be read")
    watch.waiting = data["waiting"]
    return watch


def _setup(data: dict[str, Any]) -> WatchSetup:
    said = data["setup"]
    stored = said["rule"] | ({"card": data["card"]} if data["card"] else {})
    rule = Rule.from_json(json.dumps(stored))
    reference = None if data["reference"] is None else Reference.from_data(data["reference"])
    prior = said["ood_prior"]
    setup = WatchSetup(
        rule,
        tuple((Bound(**bound), str(origin)) for bound, origin in said["expect"]),
        float(said["alpha"]),
        None if said["mean_time"] is None else float(said["mean_time"]),
        (float(said["audit"][0]), float(said["audit"][1])),
        None if said["max_loss"] is None else float(said["max_loss"]),
        None if prior is None else Interval(float(prior[0]), float(prior[1])),
        reference,
        None if said["checks"] is None else tuple(said["checks"]),
        said.get("learned"),
    )
    _ = setup.hypotheses(())
    return setup


def _segment(setup: WatchSetup, item: Any) -> Segment:
    first, last, epoch, closed, parts, *more = item
    read = {str(n): LiveCounts.from_data(setup.layout, part) for n, part in parts.items()}
    if not read or type(first) is not type(last) or not isinstance(first, (str, float, int)):
        raise InvalidInputError("a period of it cannot be read")
    segment = Segment(first, last, read, int(epoch), bool(closed))
    segment.looked = segment.counts()
    if more:
        segment.looked = None if more[0] is None else LiveCounts.from_data(setup.layout, more[0])
    return segment


def _texts(data: Any) -> list[str]:
    if not isinstance(data, list) or not all(isinstance(text, str) for text in data):
        raise InvalidInputError("names in it cannot be read")
    return data


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the state for oneself; another process waits until it is done.

    The lock lies beside the file, which is replaced and not written to; a killed process leaves no
    lock behind. Within it, what locks the same state goes on at once.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from demur import Rule
    >>> from demur.watch import Watch, locked
    >>> state = Path(tempfile.mkdtemp()) / "state.json"
    >>> with locked(state):
    ...     watch = Watch(Rule([1.0], 2.0))
    ...     status = watch.update([0.5, 3.0])
    ...     watch.save(state)
    >>> Watch.load(state).status().rows
    2
    """
    check_target(path)
    place = Path(path)
    mine = str(place.absolute()), threading.get_ident()
    if mine in _HELD:
        yield
        return
    lock = place.with_name(f".{place.name}.lock")
    try:
        file = open(lock, "w", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise InvalidInputError(f"cannot lock {str(path)!r}: {error.strerror}") from None
    with file:
        _hold(file)
        _HELD.add(mine)
        try:
            yield
        finally:
            _HELD.discard(mine)


def _hold(file: Any) -> None:
    try:
        import fcntl
    except ImportError:
        import msvcrt  # Windows: waits ten seconds at a time

        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
                return
            except OSError:
                continue
    fcntl.flock(file, fcntl.LOCK_EX)
