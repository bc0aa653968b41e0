"""What a watch knows of rows: of a period one vector of sums, which add up; and labels.

Labels count in the order of the rows. An audited row without a label stops what comes behind it
until its label arrives: to go on with those that are quick to label would bias every rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from demur import _arrays
from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.columns import ID_NAMES
from demur.core.sample import POOLED_NAME
from demur.errors import InvalidInputError

if TYPE_CHECKING:
    from demur.watch.timeline import Period

ROWS, ACCEPTED, MISSING = 0, 1, 2
"""Places of the rows, the accepted ones, and those that lack a score the rule weighs."""

_FIRST = 3
_MOST_SETS = 50
OTHER_SETS = "(other sets)"
"""Where rows of OOD sets are counted beyond the fiftieth."""

# Of labelled rows: ID, of these accepted, OOD, of these accepted, then accepted ID rows with a
# loss, the sum of their losses and of the squares.
_ID, _ID_ACCEPTED, _OOD, _OOD_ACCEPTED, _LOSS = range(5)
_SIZE = 7


@dataclass(frozen=True)
class CountLayout:
    """Where in the vector which sum is."""

    bins: tuple[int, ...]
    """Bins of each score; one more is for missing values."""
    risk_bins: int
    groups: tuple[str, ...]
    """Groups of ID rows that are told apart."""

    @cached_property
    def size(self) -> int:
        """Length of the vector."""
        return int(self.risk.stop)

    def labelled(self, group: str | None = None) -> slice:
        """Return the place of the labelled sums, of all rows or of a group."""
        start = _FIRST + _SIZE * (0 if group is None else 1 + self.groups.index(group))
        return slice(start, start + _SIZE)

    @cached_property
    def scores(self) -> tuple[slice, ...]:
        """The places of the bins of each score: rejected rows first, then accepted ones."""
        ends = np.cumsum([2 * (bins + 1) for bins in self.bins]).tolist()
        start = _FIRST + _SIZE * (1 + len(self.groups))
        return tuple(
            slice(start + first, start + last)
            for first, last in zip([0, *ends[:-1]], ends, strict=True)
        )

    @cached_property
    def risk(self) -> slice:
        """The place of the accepted rows by bins of their combined score."""
        start = self.scores[-1].stop
        return slice(start, start + self.risk_bins)


@dataclass(slots=True)
class LiveCounts:
    """Sums of some rows; the names of OOD sets are those that occurred."""

    layout: CountLayout
    sums: FloatArray
    sets: dict[str, FloatArray] = field(default_factory=dict)
    """Labelled rows of each OOD set, and the accepted ones of them."""

    @classmethod
    def none(cls, layout: CountLayout) -> LiveCounts:
        """Return the counts of no rows."""
        return cls(layout, np.zeros(layout.size))

    def add(self, other: LiveCounts) -> None:
        """Add the rows of others."""
        self.sums += other.sums
        for name, numbers in other.sets.items():
            known = self._set_of(name)
            self.sets[known] = self.sets.get(known, np.zeros(2)) + numbers

    def subtract(self, other: LiveCounts) -> None:
        """Take away the rows of others."""
        self.sums -= other.sums
        for name, numbers in other.sets.items():
            self.sets[name] = self.sets.get(name, np.zeros(2)) - numbers

    def add_rows(
        self, bins: list[IntArray], accepted: BoolArray, risk_bin: IntArray, missing: int
    ) -> None:
        """Count rows without labels, by their bins and the rule's decision.

        The bin of a missing value is the last one; `risk_bin` is of the accepted rows, `missing`
        the number of rows that lack a score the rule weighs.
        """
        self.sums[ROWS] += len(accepted)
        self.sums[MISSING] += missing
        taken = np.count_nonzero(accepted)
        self.sums[ACCEPTED] += taken
        for number, place in enumerate(bins):
            size = self.layout.bins[number] + 1
            counted = np.bincount(place + size * accepted, minlength=2 * size)
            self.sums[self.layout.scores[number]] += counted
        self.sums[self.layout.risk] += np.bincount(risk_bin, minlength=self.layout.risk_bins)

    def add_labelled(self, labels: LabelledRows) -> None:
        """Count what labels tell of rows."""
        self.sums[self.layout.labelled()] += labels.sums()
        if labels.group is not None:
            for name in self.layout.groups:
                self.sums[self.layout.labelled(name)] += labels.sums(labels.group == name)
        foreign = labels.is_ood
        for name in dict.fromkeys(labels.set_name[foreign].tolist()):
            rows = foreign & (labels.set_name == name)
            taken = np.array([rows.sum(), (rows & labels.accepted).sum()], np.float64)
            known = self._set_of(str(name))
            self.sets[known] = self.sets.get(known, np.zeros(2)) + taken

    def drop_labels(self) -> None:
        """Forget what labels told."""
        for group in (None, *self.layout.groups):
            self.sums[self.layout.labelled(group)] = 0
        self.sets.clear()

    def _set_of(self, name: str) -> str:
        return name if name in self.sets or len(self.sets) < _MOST_SETS else OTHER_SETS

    def labelled(self, group: str | None = None) -> Labelled:
        """Return the labelled sums."""
        return Labelled(self.sums[..., self.layout.labelled(group)])

    def score_bins(self, number: int) -> FloatArray:
        """Return rows by part (rejected, accepted) and bin, without missing values."""
        return split_bins(self.layout, self.sums, number)[..., :-1]

    def to_data(self) -> list[Any]:
        """Return plain data; whole numbers are written as such."""
        sums = [int(v) if v == int(v) else v for v in self.sums.tolist()]
        return [sums, {name: [int(v) for v in numbers] for name, numbers in self.sets.items()}]

    @classmethod
    def from_data(cls, layout: CountLayout, data: Any) -> LiveCounts:
        """Read what `to_data` returned."""
        sums = np.array(data[0], np.float64)
        sets = {str(name): np.array(numbers, np.float64) for name, numbers in data[1].items()}
        sound = sums.shape == (layout.size,) and np.isfinite(sums).all() and (sums >= 0).all()
        if not sound or any(v.shape != (2,) or not (v >= 0).all() for v in sets.values()):
            raise InvalidInputError("the counts of a period are damaged")
        return cls(layout, sums, sets)


def split_bins(layout: CountLayout, sums: FloatArray, number: int) -> FloatArray:
    """Return the bins of a score with shape (..., part, bins), missing values last."""
    found = sums[..., layout.scores[number]]
    return found.reshape(*found.shape[:-1], 2, layout.bins[number] + 1)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Labelled sums with names; each may be an array over periods."""

    sums: FloatArray

    @property
    def tpr(self) -> tuple[FloatArray, FloatArray]:
        """Accepted ID rows, and all ID rows."""
        return self.sums[..., _ID_ACCEPTED], self.sums[..., _ID]

    @property
    def fpr(self) -> tuple[FloatArray, FloatArray]:
        """Accepted OOD rows, and all OOD rows."""
        return self.sums[..., _OOD_ACCEPTED], self.sums[..., _OOD]

    @property
    def losses(self) -> FloatArray:
        """Number, sum and sum of squares of the losses of accepted ID rows; shape (..., 3)."""
        return self.sums[..., _LOSS : _LOSS + 3]


@dataclass(frozen=True, slots=True)
class LabelledRows:
    """Rows of which it is known whether they are ID, and perhaps the loss."""

    accepted: BoolArray
    is_ood: BoolArray
    loss: FloatArray
    """NaN where it is not known; read on accepted ID rows."""
    set_name: Any
    group: Any = None

    def sums(self, rows: Any = True) -> FloatArray:
        """Return the sums of some of the rows."""
        taken, foreign = self.accepted & rows, self.is_ood
        lost = self.loss[taken & ~foreign & ~np.isnan(self.loss)]
        counts = [(~foreign & rows), (~foreign & taken), (foreign & rows), (foreign & taken)]
        return np.array(
            [*(np.count_nonzero(c) for c in counts), len(lost), lost.sum(), (lost**2).sum()]
        )

    def take(self, rows: Any) -> LabelledRows:
        """Return some of the rows."""
        group = None if self.group is None else self.group[rows]
        return LabelledRows(
            self.accepted[rows], self.is_ood[rows], self.loss[rows], self.set_name[rows], group
        )


def total(layout: CountLayout, parts: Iterable[LiveCounts]) -> LiveCounts:
    """Return the sum of counts."""
    found = LiveCounts.none(layout)
    for part in parts:
        found.add(part)
    return found


class KnownRows(NamedTuple):
    """What is known of rows: some have no label."""

    known: BoolArray
    """Whether it is known if the row is ID."""
    is_ood: BoolArray
    loss: FloatArray
    set_name: Any

    def complete(self, accepted: BoolArray) -> BoolArray:
        """Return which labels are all that is needed: an accepted ID row needs its loss."""
        return self.known & (self.is_ood | ~accepted | ~np.isnan(self.loss))


def known_rows(loss: Any, is_ood: Any, rows: int, max_loss: float | None) -> KnownRows:
    """Read losses and marks of OOD rows, either of which may be missing, row by row."""
    losses = np.full(rows, np.nan) if loss is None else _losses(loss, rows, max_loss)
    if is_ood is None:
        none = np.zeros(rows, bool)
        return KnownRows(~np.isnan(losses), none, losses, np.full(rows, "", object))
    marked, foreign, names = _marks(is_ood, rows)
    return KnownRows(marked | ~np.isnan(losses), foreign, losses, names)


def _losses(loss: Any, rows: int, max_loss: float | None) -> FloatArray:
    array = np.atleast_1d(_arrays.plain_array("loss", loss))
    if array.dtype.kind == "O":
        array = np.array([np.nan if item is None else item for item in array.tolist()], object)
    losses = _arrays.real_array("loss", array)
    if losses.shape != (rows,):
        raise InvalidInputError(f"loss has shape {losses.shape}, expected ({rows},)")
    given = losses[~np.isnan(losses)]
    if max_loss is None:
        bad = given[(given != 0) & (given != 1)]
        hint = "for a loss other than 0/1 make the watch with max_loss, the largest possible one"
    else:
        bad = given[(given < 0) | (given > max_loss)]
        hint = f"it must be between 0 and the declared max_loss {max_loss:g}"
    if len(bad):
        raise InvalidInputError(f"loss holds {bad[0]}: {hint}")
    return losses


def _marks(is_ood: Any, rows: int) -> tuple[BoolArray, BoolArray, Any]:
    """Return which rows are marked, which are OOD, and of which set."""
    array = np.atleast_1d(_arrays.plain_array("is_ood", is_ood))
    if array.shape != (rows,):
        raise InvalidInputError(f"is_ood has shape {array.shape}, expected ({rows},)")
    if array.dtype.kind in "biuf":
        missing = np.isnan(array) if array.dtype.kind == "f" else np.zeros(rows, bool)
        foreign = ~missing & (array != 0)
        return ~missing, foreign, np.where(foreign, POOLED_NAME, "").astype(object)
    values = array.tolist()
    meaning = {value: mark_of(value) for value in dict.fromkeys(map(_hashable, values))}
    told = [meaning[_hashable(value)] for value in values]
    names = np.array([name for _, name in told], object)
    return np.array([known for known, _ in told], bool), names != "", names


def _hashable(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def mark_of(value: Any) -> tuple[bool, str]:
    """Return whether a mark tells anything, and the name of the OOD set, empty for ID rows."""
    if value is None:
        return False, ""
    if isinstance(value, (bool, int, float)):
        return True, POOLED_NAME if value else ""
    text = str(value)
    return True, "" if text.strip().casefold() in ID_NAMES else text


@dataclass(slots=True)
class PendingRow:
    """An audited row that is not counted yet."""

    key: str
    period: Period
    accepted: bool
    group: str | None
    known: bool
    is_ood: bool
    set_name: str
    loss: float

    @property
    def complete(self) -> bool:
        """Whether its label is all that is needed: an accepted ID row needs its loss."""
        return self.known and (self.is_ood or not self.accepted or not math.isnan(self.loss))

    def to_data(self) -> list[Any]:
        """Return plain data."""
        loss = None if math.isnan(self.loss) else self.loss
        flags = [int(self.accepted), int(self.known), int(self.is_ood)]
        return [self.key, self.period, *flags, self.group, self.set_name, loss]

    @classmethod
    def from_data(cls, data: Sequence[Any]) -> PendingRow:
        """Read what `to_data` returned."""
        key, period, accepted, known, is_ood, group, name, loss = data
        lost = math.nan if loss is None else float(loss)
        return cls(key, period, bool(accepted), group, bool(known), bool(is_ood), name, lost)


class Queue:
    """Audited rows in order, from the first one without a label."""

    def __init__(self, rows: Iterable[PendingRow] = ()) -> None:
        self.rows = list(rows)

    def add(self, rows: Iterable[PendingRow]) -> None:
        """Append audited rows, labelled or not."""
        self.rows.extend(rows)

    def check(self, keys: Sequence[str]) -> None:
        """Refuse names of rows without label by which these could not be told apart."""
        known = {row.key for row in self.rows if not row.complete}
        for key in keys:
            if key in known:
                raise InvalidInputError(
                    f"ids: {key!r} already waits for a label; its rows need different ids"
                )
            known.add(key)

    def label(self, keys: Sequence[str], labels: KnownRows) -> list[str]:
        """Fill in labels; return those of no row that waits."""
        waiting = {row.key: row for row in self.rows if not row.complete}
        strange = []
        for k, key in enumerate(keys):
            row = waiting.get(key)
            if row is None:
                strange.append(key)
            elif labels.known[k]:
                row.known, row.is_ood = True, bool(labels.is_ood[k])
                row.set_name, row.loss = str(labels.set_name[k]), float(labels.loss[k])
        return strange

    def remove(self, keys: Sequence[str]) -> None:
        """Take out rows that wait for a label."""
        waiting = {row.key for row in self.rows if not row.complete}
        strange = [key for key in keys if key not in waiting]
        if strange:
            raise InvalidInputError(f"ids: no row {strange[0]!r} waits for a label")
        gone = set(keys)
        self.rows = [row for row in self.rows if row.complete or row.key not in gone]

    def ready(self) -> list[tuple[Period, LabelledRows]]:
        """Take out the rows before the first one without a label, by period."""
        end = next((k for k, row in enumerate(self.rows) if not row.complete), len(self.rows))
        done, self.rows = self.rows[:end], self.rows[end:]
        periods = list(dict.fromkeys(row.period for row in done))
        return [(p, _labelled([row for row in done if row.period == p])) for p in periods]


def _labelled(rows: list[PendingRow]) -> LabelledRows:
    return LabelledRows(
        np.array([row.accepted for row in rows]),
        np.array([row.is_ood for row in rows]),
        np.array([row.loss for row in rows]),
        np.array([row.set_name for row in rows], object),
        np.array([row.group for row in rows], object),
    )
