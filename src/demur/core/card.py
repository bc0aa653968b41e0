"""The rule's card: where a rule comes from, and what may be expected of it.

It is made when it is first asked for: most rules of a bootstrap or a frontier never are.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._arrays import FloatArray
from demur.core.models import RejectionModel
from demur.core.sample import Sample
from demur.core.scores import ScoreColumns
from demur.errors import InvalidInputError

Kind = Literal["tuned", "held out", "certified"]
"""Where the rates of a point come from: rows that made the rule, others, or a promise."""

SHARES = (0.0, 0.001, 0.01, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99, 0.999, 1.0)
"""Which quantiles of every score a card has; the first and the last are the range."""

_SETS = 200
"""So many OOD sets are counted by name; a card has to stay small."""

_NAMES = 40_000
"""So many bytes their names may have in all."""

if TYPE_CHECKING:
    from demur.core.source import Overview

_KEPT = 2048
"""So many marks of rows a card holds."""

_Hashes = npt.NDArray[np.uint64]


class Card:
    """Plain data about a rule: `to_data` has all of it, the properties what demur reads."""

    __slots__ = ("_data", "_make")

    def __init__(self, make: Callable[[], dict[str, Any]] | dict[str, Any]) -> None:
        self._data: dict[str, Any] | None = None if callable(make) else make
        self._make = make if callable(make) else None

    @classmethod
    def of_tuning(
        cls, sample: Sample, model: RejectionModel, point: Any, *, ood: str = "pooled"
    ) -> Card:
        """Return the card of a rule tuned on a sample, with that operating point."""
        return cls(lambda: _describe(sample, model, point, ood))

    @classmethod
    def of_source_tuning(
        cls,
        overview: Overview,
        columns: ScoreColumns,
        model: RejectionModel,
        point: Any,
        *,
        ood: str = "pooled",
    ) -> Card:
        """Return the card of a rule tuned on a source, which is known by its totals only."""
        return cls(lambda: _describe_source(overview, columns, model, point, ood))

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
        # Read once, so that a damaged card is refused where it is read.
        _ = card.model, card.fingerprint, card.columns, card.ranges, card.points
        return card

    def with_entries(self, **entries: Any) -> Card:
        """Return the card with more entries, or other ones."""
        return Card(lambda: self.to_data() | entries)

    def with_point(self, kind: Kind, point: Mapping[str, Any]) -> Card:
        """Return the card with one more operating point."""
        return Card(lambda: self.to_data() | {"points": self.points | {kind: dict(point)}})

    @property
    def model(self) -> RejectionModel | None:
        """The model that was tuned for."""
        data = self.to_data().get("model")
        return None if data is None else RejectionModel.from_data(_object("model", data))

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

    def __reduce__(self) -> tuple[Any, ...]:
        return Card, (self.to_data(),)

    def __repr__(self) -> str:
        return f"Card({sorted(self.to_data())})"


def _describe(sample: Sample, model: RejectionModel, point: Any, ood: str) -> dict[str, Any]:
    sets = {name: rows.stop - rows.start for name, rows in sample.ood_sets.items()}
    return _origin(model, point, ood, sample.n_id, sets) | {
        "ranges": {
            name: {
                "id": _quantiles(sample.id_scores[:, column]),
                "ood": _quantiles(sample.ood_scores[:, column]),
            }
            for column, name in enumerate(_names(sample.columns))
        },
        "fingerprint": Fingerprint.of(sample).to_data(),
    }


def _counted(sets: Mapping[str, int]) -> dict[str, Any]:
    """Return the rows of each OOD set, of so many sets as a small file can name."""
    shown: dict[str, int] = {}
    room = _NAMES
    for name, rows in sets.items():
        room -= len(json.dumps(name))
        if room < 0 or len(shown) == _SETS:
            break
        shown[name] = rows
    more = len(sets) - len(shown)
    return {"ood_sets": shown} | ({"more_ood_sets": more} if more else {})


def _describe_source(
    overview: Overview, columns: ScoreColumns, model: RejectionModel, point: Any, ood: str
) -> dict[str, Any]:
    sets = dict(zip(overview.sets, overview.ood_rows, strict=True))
    # The range of a confidence is that of its doubt with the other sign.
    ends = columns.as_doubts(np.vstack([overview.low, overview.high]))
    low, high = ends.min(axis=0).tolist(), ends.max(axis=0).tolist()
    return _origin(model, point, ood, overview.id_rows, sets) | {
        "ranges": {n: {"all": [low[k], high[k]]} for k, n in enumerate(_names(columns))}
    }


def _origin(
    model: RejectionModel, point: Any, ood: str, id_rows: int, sets: dict[str, int]
) -> dict[str, Any]:
    from importlib.metadata import version

    return {
        "model": model.to_data(),
        "ood": ood,
        "points": {"tuned": point_data(point)},
        "rows": {"id": id_rows, "ood": sum(sets.values())} | _counted(sets),
        "created": _now(),
        "demur": version("demur"),
    }


def _names(columns: ScoreColumns) -> tuple[str, ...]:
    return columns.names or tuple(f"score {k + 1}" for k in range(columns.count))


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


def _now() -> str:
    # Builds that must be the same twice say what time it is.
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = datetime.fromtimestamp(int(given), UTC) if given.isdigit() else datetime.now(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


class Overlap(NamedTuple):
    """How many of the rows looked at made the rule."""

    share: float
    rows: int
    """Rows that were looked at: those whose marks the card could hold."""
    same: bool
    """Whether these are just the rows that made the rule, all of them."""


class Fingerprint(NamedTuple):
    """Salted marks of the rows that made a rule, thinned to some thousands.

    A mark is 64 bits of a row's scores and side; its own low value decides whether a card keeps
    it, so that any sample can be compared without its neighbours.
    """

    salt: int
    below: int
    """Marks below this are kept."""
    distinct: float
    """Distinct marks per row: near 0 for rounded scores, whose rows cannot be told apart."""
    total: int
    """The sum of all marks, modulo 2**64."""
    marks: _Hashes

    @classmethod
    def of(cls, sample: Sample) -> Fingerprint:
        """Mark the rows of a sample."""
        # Salted by the data themselves: the same rows give the same card.
        plain = _marks(sample, 0)
        salt = int(plain.sum(dtype=np.uint64))
        marks = _marks(sample, salt)
        distinct = np.unique(marks)
        below = 2**64 - 1
        if len(distinct) > _KEPT:
            below = int(distinct[_KEPT])
        return cls(
            salt,
            below,
            len(distinct) / len(marks),
            int(marks.sum(dtype=np.uint64)),
            distinct[:_KEPT],
        )

    def overlap(self, sample: Sample) -> Overlap:
        """Return how many rows of a sample are among those that made the rule."""
        marks = _marks(sample, self.salt)
        same = int(marks.sum(dtype=np.uint64)) == self.total
        seen = marks[marks < np.uint64(self.below)]
        if len(seen) == 0:
            return Overlap(0.0, 0, same)
        return Overlap(float(np.isin(seen, self.marks).mean()), len(seen), same)

    def to_data(self) -> dict[str, Any]:
        """Return plain data; numbers of 64 bits as text, since JSON readers round them."""
        return {
            "salt": f"{self.salt:016x}",
            "below": f"{self.below:016x}",
            "distinct": self.distinct,
            "total": f"{self.total:016x}",
            "marks": base64.b64encode(self.marks.astype("<u8").tobytes()).decode(),
        }

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Fingerprint:
        """Read what `to_data` returned."""
        try:
            marks = np.frombuffer(base64.b64decode(data["marks"], validate=True), "<u8")
            salt, below, total = (int(data[name], 16) for name in ("salt", "below", "total"))
            return cls(salt, below, float(data["distinct"]), total, marks.astype(np.uint64))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the card's fingerprint is damaged: {error}") from None


def _marks(sample: Sample, salt: int) -> _Hashes:
    sides = ((sample.id_scores, 1), (sample.ood_scores, 2))
    return np.concatenate([_row_marks(scores, salt, side) for scores, side in sides])


def _row_marks(scores: FloatArray, salt: int, side: int) -> _Hashes:
    marks = np.full(len(scores), np.uint64((salt + side) % 2**64))
    for column in scores.T:
        # Adding zero turns -0.0 into 0.0.
        marks = _mixed(marks ^ (np.ascontiguousarray(column) + 0.0).view(np.uint64))
    return marks


def _mixed(bits: _Hashes) -> _Hashes:
    """Spread the bits of 64-bit words (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        bits = bits + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def _object(name: str, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InvalidInputError(f"the card's {name} must be an object, got {data!r}")
    return data
