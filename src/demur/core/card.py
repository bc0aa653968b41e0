"""The rule's card: where a rule comes from, and what may be expected of it.

It is made when it is first asked for: most rules of a bootstrap or a frontier never are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from demur._arrays import FloatArray
from demur.core.columns import ScoreColumns
from demur.core.fingerprint import Fingerprint, Reference, Sides
from demur.core.models import RejectionModel
from demur.core.sample import Sample
from demur.errors import InvalidInputError

Kind = Literal["tuned", "held out", "certified"]
"""Where the rates of a point come from: rows that made the rule, others, or a promise."""

SHARES = (0.0, 0.001, 0.01, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99, 0.999, 1.0)
"""Which quantiles of every score a card has; the first and the last are the range."""

LARGEST = 200_000
"""No card has more bytes than this in a file."""

# What its file has around the entries of a card.
_BESIDE = 1000

_SETS = 200
"""So many OOD sets are counted by name; a card has to stay small."""

_NAMES = 40_000
"""So many bytes their names may have in all."""

# Of fewer rows nothing is said that a few of them could make so.
_FEWEST = 20

if TYPE_CHECKING:
    from demur.core.rule import Rule
    from demur.core.source import Overview, Sizes


class Card:
    """Plain data about a rule: `to_data` has all of it, the properties what demur reads."""

    __slots__ = ("_data", "_make", "loaded")

    def __init__(self, make: Callable[[], dict[str, Any]] | dict[str, Any]) -> None:
        self.loaded = False
        """Whether it was read: the rows that made the rule may be forgotten by then."""
        self._data: dict[str, Any] | None = None if callable(make) else make
        self._make = make if callable(make) else None

    @classmethod
    def of_tuning(
        cls, sample: Sample, model: RejectionModel, point: Any, *, ood: str = "pooled"
    ) -> Card:
        """Return the card of a rule tuned on a sample, with that operating point."""
        return cls.of_rows(sample).tuned_for(model, point, ood=ood)

    @classmethod
    def of_rows(cls, sample: Sample) -> Card:
        """Return the card of the rows that rules are made of, before any is."""
        return cls(lambda: _describe_rows(sample))

    def tuned_for(self, model: RejectionModel, point: Any, *, ood: str = "pooled") -> Card:
        """Return the card of a rule that was tuned on the rows of this card."""
        return Card(lambda: _tuned_for(model, point, ood) | self.to_data())

    @classmethod
    def of_source(
        cls, overview: Overview, columns: ScoreColumns, *, drawn: Sides | None = None
    ) -> Card:
        """Return the card of the rows of a source, known by its totals and some doubts."""
        return cls(lambda: _describe_source(overview, columns, drawn))

    def to_data(self) -> dict[str, Any]:
        """Return everything as data that JSON can hold."""
        if self._data is None and self._make is not None:
            self._data = self._make()
            self._make = None
        return dict(self._data or {})

    @classmethod
    def from_data(cls, data: Any) -> Card:
        """Read what `to_data` returned; entries that are not known are kept."""
        if not isinstance(data, dict):
            raise InvalidInputError(f"the card must be an object, got {type(data).__name__}")
        card = cls(dict(data))
        card.loaded = True
        # Read once, so that a damaged card is refused where it is read.
        _ = card.model, card.fingerprint, card.columns, card.ranges, card.points, card.reference
        return card

    def saved_data(self) -> dict[str, Any]:
        """Return what a file holds: without the largest entries if these are beyond `LARGEST`."""
        data = self.to_data()
        sizes = {name: _size({name: entry}) for name, entry in data.items()}
        left_out: list[str] = []
        while sum(sizes.values()) > LARGEST - _BESIDE:
            largest = max(sizes, key=lambda name: sizes[name])
            left_out.append(largest)
            del data[largest], sizes[largest]
        return data | ({"left_out": left_out} if left_out else {})

    def with_entries(self, **entries: Any) -> Card:
        """Return the card with more entries, or other ones."""
        return Card(lambda: self.to_data() | entries)

    def with_reference(self, sample: Sample, rule: Rule) -> Card:
        """Return the card with where the rows of a sample lie, what live rows are held against."""
        # Rows of different weight are no sample of anything whose rows could be counted.
        if sample.id_weight is not None or sample.ood_weight is not None:
            return self
        return Card(lambda: self.to_data() | {"reference": Reference.of(sample, rule).to_data()})

    def with_point(self, kind: Kind, point: Mapping[str, Any]) -> Card:
        """Return the card with one more operating point."""
        return Card(lambda: self.to_data() | {"points": self.points | {kind: dict(point)}})

    @property
    def model(self) -> RejectionModel | None:
        """The model that was tuned for."""
        data = self.to_data().get("model")
        return None if data is None else RejectionModel.from_data(_object("model", data))

    def counts(self, sizes: Sizes, point: Any) -> bool:
        """Return whether rows have the very numbers and rates of those tuned on."""
        sets = dict(zip(sizes.sets, sizes.ood_rows, strict=True))
        rows = {"id": sizes.id_rows, "ood": sum(sets.values())} | _counted(sets)
        told_rows = self.to_data().get("rows")
        if not isinstance(told_rows, dict) or "tuned" not in self.points:
            return False
        if {name: told_rows.get(name) for name in rows} != rows:
            return False
        rates = ("tpr", "fpr", "selective_risk")
        told, seen = self.points["tuned"], point_data(point)
        return all(told.get(name) == seen.get(name) for name in rates)

    def ends_as(self, overview: Overview, columns: ScoreColumns) -> bool:
        """Return whether rows have the very ranges of those tuned on."""
        ends = [_all_ends(sides) for sides in self.ranges.values()]
        return ends == [_all_ends(sides) for sides in _source_ranges(overview, columns).values()]

    @property
    def left_out(self) -> tuple[str, ...]:
        """Entries that were too large for the file it was read from."""
        names = self.to_data().get("left_out", [])
        return tuple(map(str, names)) if isinstance(names, list) else ()

    @property
    def ood(self) -> str:
        """Whether OOD sets were bounded ``"pooled"`` or each by itself, ``"worst"``."""
        return "worst" if self.to_data().get("ood") == "worst" else "pooled"

    @property
    def points(self) -> dict[str, Any]:
        """Operating points by their kind."""
        return _object("points", self.to_data().get("points", {}))

    @property
    def columns(self) -> dict[str, str]:
        """Which column of the data had which role: loss, label, prediction, ood, weight, id."""
        roles = _object("columns", self.to_data().get("columns", {}))
        return {str(role): str(name) for role, name in roles.items() if name is not None}

    @property
    def ranges(self) -> dict[str, dict[str, list[float]]]:
        """Quantiles of each score, ``SHARES`` of them, of ``"id"`` and ``"ood"`` rows.

        Of a source only the smallest and the largest value are known, of ``"all"`` rows.
        """
        ranges = _object("ranges", self.to_data().get("ranges", {}))
        return {
            name: {
                side: [float(v) for v in values] for side, values in _object(name, sides).items()
            }
            for name, sides in ranges.items()
        }

    @property
    def fingerprint(self) -> Fingerprint | None:
        """What tells whether rows are those that made the rule."""
        data = self.to_data().get("fingerprint")
        return None if data is None else Fingerprint.from_data(_object("fingerprint", data))

    @property
    def reference(self) -> Reference | None:
        """Where the rows lie that made the rule; None of a source, or of an older demur."""
        data = self.to_data().get("reference")
        return None if data is None else Reference.from_data(_object("reference", data))

    def __reduce__(self) -> tuple[Any, ...]:
        return Card, (self.to_data(),)

    def __repr__(self) -> str:
        return f"Card({sorted(self.to_data())})"


def _tuned_for(model: RejectionModel, point: Any, ood: str) -> dict[str, Any]:
    return {"model": model.to_data(), "ood": ood, "points": {"tuned": point_data(point)}}


def _describe_rows(sample: Sample) -> dict[str, Any]:
    sets = {name: rows.stop - rows.start for name, rows in sample.ood_sets.items()}
    members = (
        ()
        if sample.group_code is None
        else np.bincount(sample.group_code, minlength=len(sample.groups))
    )
    groups = dict(zip(sample.groups, map(int, members), strict=True))
    return _origin(sample.n_id, sets, groups) | {
        "ranges": {
            name: {
                "id": _quantiles(sample.id_scores[:, column]),
                "ood": _quantiles(sample.ood_scores[:, column]),
            }
            for column, name in enumerate(sample.columns.titles)
        },
        "fingerprint": Fingerprint.of(sample).to_data(),
    }


def _counted(sets: Mapping[str, int], kind: str = "ood_sets") -> dict[str, Any]:
    """Return the rows of each OOD set or group, of so many as a small file can name."""
    shown: dict[str, int] = {}
    room = _NAMES
    for name, rows in sets.items():
        room -= len(json.dumps(name))
        if room < 0 or len(shown) == _SETS:
            break
        shown[name] = rows
    more = len(sets) - len(shown)
    return {kind: shown} | ({f"more_{kind}": more} if more else {})


def _describe_source(
    overview: Overview, columns: ScoreColumns, drawn: Sides | None
) -> dict[str, Any]:
    sets = dict(zip(overview.sets, overview.ood_rows, strict=True))
    data = _origin(overview.id_rows, sets)
    data["ranges"] = _source_ranges(overview, columns)
    if drawn is not None:
        raw = columns.as_doubts(drawn[0]), columns.as_doubts(drawn[1])
        data["fingerprint"] = Fingerprint.of_part(raw, overview.rows).to_data()
    return data


def _source_ranges(overview: Overview, columns: ScoreColumns) -> dict[str, dict[str, list[float]]]:
    # The range of a confidence is that of its doubt with the other sign.
    ends = columns.as_doubts(np.vstack([overview.low, overview.high]))
    low, high = ends.min(axis=0).tolist(), ends.max(axis=0).tolist()
    return {n: {"all": [low[k], high[k]]} for k, n in enumerate(columns.titles)}


def _all_ends(sides: dict[str, list[float]]) -> tuple[float, float] | None:
    """Return the smallest and the largest value of all sides."""
    known = [values for values in sides.values() if values]
    return (min(v[0] for v in known), max(v[-1] for v in known)) if known else None


def _size(entry: dict[str, Any]) -> int:
    """Return the bytes of an entry in a rule's file."""
    return len(json.dumps({"card": entry}, indent=2))


def _origin(
    id_rows: int, sets: dict[str, int], groups: Mapping[str, int] | None = None
) -> dict[str, Any]:
    from importlib.metadata import version

    members = _counted(groups, "id_groups") if groups else {}
    return {
        "rows": {"id": id_rows, "ood": sum(sets.values())} | _counted(sets) | members,
        "created": now(),
        "demur": version("demur"),
    }


def point_data(point: Any) -> dict[str, Any]:
    """Return the rates of an operating point that are numbers."""
    names = ("tpr", "fpr", "selective_risk", "precision", "expected_cost", "ood_prior")
    rates = {name: getattr(point, name) for name in names}
    return {name: value for name, value in rates.items() if value is not None and value == value}


def _quantiles(values: FloatArray) -> list[float]:
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return []
    # Values that occur, so that a bound of the range is a score and not between two.
    found: list[float] = np.quantile(finite, SHARES, method="inverted_cdf").tolist()
    return found


def now() -> str:
    """Return the present moment as text."""
    # Builds that must be the same twice say what time it is.
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(given), UTC) if given.isdigit() else datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _object(name: str, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidInputError(f"the card's {name} must be an object, got {data!r}")
    return data


@dataclass(frozen=True, slots=True)
class _ScoreRange:
    """Where the scores of a column were in tuning."""

    low: float
    high: float
    usual_low: float
    usual_high: float

    @property
    def far(self) -> tuple[float, float]:
        """Beyond these no score was, by as much as all of them spread."""
        width = self.high - self.low or abs(self.high) or 1.0
        return self.low - width, self.high + width


def _ends(sides: dict[str, list[float]]) -> _ScoreRange | None:
    known = [values for values in sides.values() if len(values) in (2, len(SHARES))]
    if not known:
        return None
    # Of a source the ends alone are known.
    few = min(map(len, known)) == 2
    one, many = (0, -1) if few else (SHARES.index(0.01), SHARES.index(0.99))
    return _ScoreRange(
        min(v[0] for v in known),
        max(v[-1] for v in known),
        min(v[one] for v in known),
        max(v[many] for v in known),
    )


class SeenRanges:
    """Counts live scores that are where none were in tuning."""

    def __init__(self, names: tuple[str, ...], known: list[dict[str, list[float]]]) -> None:
        self._names: tuple[str, ...] = names
        # Without a range for each nothing can be told.
        told = known if len(known) == len(names) else [{} for _ in names]
        self._ends = [_ends(sides) for sides in told]
        self._far = np.zeros(len(names), np.int64)
        self._unusual = np.zeros(len(names), np.int64)
        self._rows = np.zeros(len(names), np.int64)
        self._largest = np.zeros(len(names))

    def add(self, scores: FloatArray) -> None:
        """Count rows, as many columns as there are names."""
        for k, ends in enumerate(self._ends):
            values = scores[:, k][np.isfinite(scores[:, k])]
            if ends is None or len(values) == 0:
                continue
            low, high = ends.far
            self._far[k] += ((values < low) | (values > high)).sum()
            self._unusual[k] += ((values < ends.usual_low) | (values > ends.usual_high)).sum()
            self._rows[k] += len(values)
            self._largest[k] = max(self._largest[k], np.abs(values).max())

    @property
    def limits(self) -> list[tuple[float, float, float, float] | None]:
        """For each column what is far away, below and above, and what is unusual."""
        return [
            None if ends is None else (*ends.far, ends.usual_low, ends.usual_high)
            for ends in self._ends
        ]

    def count(self, k: int, *, far: int, unusual: int, rows: int, largest: float) -> None:
        """Add what others counted of column k, by `limits`: finite scores, and their largest."""
        self._far[k] += far
        self._unusual[k] += unusual
        self._rows[k] += rows
        self._largest[k] = max(self._largest[k], largest)

    def merge(self, other: SeenRanges) -> None:
        """Add what was counted elsewhere."""
        for k in range(len(self._names)):
            self.count(
                k,
                far=int(other._far[k]),
                unusual=int(other._unusual[k]),
                rows=int(other._rows[k]),
                largest=float(other._largest[k]),
            )

    def warnings(self) -> list[str]:
        """Return a sentence for each column that looks like another one."""
        found = []
        for k, ends in enumerate(self._ends):
            rows = int(self._rows[k])
            if ends is None or rows == 0:
                continue
            far = self._far[k] / rows
            # A range that most scores leave, or its far outside: a hundredth of the rows will do.
            unusual = self._unusual[k] / rows if rows >= _FEWEST else 0.0
            if far <= 0.01 and unusual <= 0.5:
                continue
            share = max(far, unusual)
            found.append(
                f"{share:.0%} of the rows have {self._names[k]!r} outside what tuning saw, "
                f"{ends.low:.4g} to {ends.high:.4g}{self._scale(k, ends)}"
            )
        return found

    def _scale(self, k: int, ends: _ScoreRange) -> str:
        before = max(abs(ends.low), abs(ends.high))
        if before == 0 or self._largest[k] == 0:
            return ": is it the same score?"
        factor = self._largest[k] / before
        if 40 <= factor <= 250:
            return ": is it in per cent now?"
        return ": was it in per cent?" if 40 <= 1 / factor <= 250 else ": is it the same score?"
