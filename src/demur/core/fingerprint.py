"""What is kept of the rows that made a rule: a fingerprint, and a reference of where they lie.

The fingerprint tells whether other rows are among them. The reference has counts in bins of every
score, what live rows are held to.

Accepted and rejected rows are counted apart, ID and OOD rows as well. A bin ends with its cut: the
rows above a cut, and those above the last one or below the first, can be counted anywhere.
"""

from __future__ import annotations

import base64
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._arrays import FloatArray, IntArray
from demur.core.columns import ScoreColumns
from demur.core.sample import Sample
from demur.errors import InvalidInputError, LikelyMistakeWarning

if TYPE_CHECKING:
    from demur.core.rates import OperatingPoint
    from demur.core.rule import Rule
    from demur.core.source import ScoreSource

_KEPT = 2048
"""So many marks of rows a card holds, and twice as many if they are of a part of the rows."""

LOOKED_AT = 200_000
"""So many rows of a source are drawn to look for rows that made a rule."""

# Rows in common that may be chance, beside the rows that rounding makes alike.
_CHANCE = 0.02
_FEWEST = 20
_FEWEST_OF_A_PART = 5

_Hashes = npt.NDArray[np.uint64]
Sides = tuple[FloatArray, FloatArray]
"""Scores of ID rows and of OOD rows, as they are in the data, in the order of the rule."""


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
    part: float = 1.0
    """Share of the rows that was marked: of a source, that of a drawn part."""
    alike: float = 0.0
    """How often a row that is not marked has a mark by chance, at most; where `part` is not 1."""

    @classmethod
    def of(cls, sample: Sample) -> Fingerprint:
        """Mark the rows of a sample."""
        return cls._of(sides_of(sample), _KEPT)

    @classmethod
    def of_part(cls, drawn: Sides, rows: int) -> Fingerprint:
        """Mark rows that were drawn from so many."""
        count = len(drawn[0]) + len(drawn[1])
        if count >= rows:
            return cls._of(drawn, _KEPT)
        # Every other row is marked; the others tell how often rows are alike by chance.
        first, second = ((drawn[0][k::2], drawn[1][k::2]) for k in (0, 1))
        found = cls._of(first, 2 * _KEPT)
        seen = found.overlap(second)
        hits = seen.share * seen.rows
        alike = min(1.0, (hits + 3 + 2 * math.sqrt(hits)) / max(seen.rows, 1))
        marked = len(first[0]) + len(first[1])
        return found._replace(part=marked / rows, alike=alike)

    @classmethod
    def _of(cls, sides: Sides, kept: int) -> Fingerprint:
        # Salted by the data themselves: the same rows give the same card.
        salt = int(_marks(sides, 0).sum(dtype=np.uint64))
        marks = _marks(sides, salt)
        distinct = np.unique(marks)
        below = int(distinct[kept]) if len(distinct) > kept else 2**64 - 1
        total = int(marks.sum(dtype=np.uint64))
        return cls(salt, below, len(distinct) / max(len(marks), 1), total, distinct[:kept])

    def overlap(self, rows: Sample | Sides) -> Overlap:
        """Return how many of these rows are among those that were marked."""
        marks = _marks(sides_of(rows) if isinstance(rows, Sample) else rows, self.salt)
        same = int(marks.sum(dtype=np.uint64)) == self.total and self.part == 1
        seen = marks[marks < np.uint64(self.below)]
        if len(seen) == 0:
            return Overlap(0.0, 0, same)
        return Overlap(float(np.isin(seen, self.marks).mean()), len(seen), same)

    def share_of(self, rows: Sample | Sides) -> float:
        """Return which share of these rows made the rule, 0 where that may be chance.

        Rows of rounded scores are alike by chance: about as often as rows that made the rule are
        alike among themselves. Only what goes beyond that counts, or the very same rows.
        """
        seen = self.overlap(rows)
        if seen.same:
            return 1.0
        if self.part < 1:
            return self._share_by_part(seen)
        alike = min(1.0, 2 * (1 - self.distinct))
        if seen.rows < _FEWEST or alike >= 1:
            return 0.0
        noise = max(alike, 1 / seen.rows)
        limit = alike + max(_CHANCE, 4 * math.sqrt(noise * (1 - noise) / seen.rows))
        return seen.share if seen.share > limit else 0.0

    def _share_by_part(self, seen: Overlap) -> float:
        """Return the share where a row that made the rule need not be marked."""
        if seen.share * seen.rows < _FEWEST_OF_A_PART:
            return 0.0
        limit = self.alike + 4 * math.sqrt(self.alike * (1 - self.alike) / seen.rows)
        share = min(1.0, (seen.share - self.alike) / self.part)
        return share if seen.share > limit and share > _CHANCE else 0.0

    def to_data(self) -> dict[str, Any]:
        """Return plain data; numbers of 64 bits as text, since JSON readers round them."""
        data = {
            "salt": f"{self.salt:016x}",
            "below": f"{self.below:016x}",
            "distinct": self.distinct,
            "total": f"{self.total:016x}",
            "marks": base64.b64encode(self.marks.astype("<u8").tobytes()).decode(),
        }
        return data | ({} if self.part == 1 else {"part": self.part, "alike": self.alike})

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Fingerprint:
        """Read what `to_data` returned."""
        try:
            marks = np.frombuffer(base64.b64decode(data["marks"], validate=True), "<u8")
            words = [int(data[name], 16) for name in ("salt", "below", "total")]
            salt, below, total = words
            shares = [float(data["distinct"]), float(data.get("part", 1)), data.get("alike", 0)]
            distinct, part, alike = (float(share) for share in shares)
            if not all(0 <= word < 2**64 for word in words) or not 0 < part <= 1:
                raise ValueError("a number is out of its range")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"the card's fingerprint is damaged: {error}") from None
        return cls(salt, below, distinct, total, marks.astype(np.uint64), part, alike)


def sides_of(sample: Sample, order: IntArray | None = None) -> Sides:
    """Return the scores of a sample, all columns or these."""
    kept: Any = slice(None) if order is None else order
    return sample.id_scores[:, kept], sample.ood_scores[:, kept]


def share_of_tuning_rows(
    rule: Rule, data: Sample | ScoreSource, point: OperatingPoint | None = None
) -> float:
    """Return which share of the data made the rule, as far as its card can tell.

    Parameters
    ----------
    point
        What the rule does on a source, if known: rows without marks are then recognised by their
        numbers, ranges and rates.
    """
    card, order = rule.card, _order(rule.columns, data.columns)
    if card is None or order is None:
        return 0.0
    if isinstance(data, Sample):
        mark = card.fingerprint
        return 0.0 if mark is None else mark.share_of(sides_of(data, order))
    # Ranges take a pass more, so they come last.
    same = point is not None and card.counts(data.sizes(), point)
    if same and card.ends_as(data.overview(), data.columns):
        return 1.0
    mark = card.fingerprint
    if mark is None:
        return 0.0
    drawn = data.glimpse(LOOKED_AT)
    scores = data.columns.as_doubts(drawn.scores)[:, order]
    return mark.share_of((scores[drawn.group < 0], scores[drawn.group >= 0]))


def share_of_live_rows(rule: Rule, scores: FloatArray) -> float:
    """Return which share of rows in use made the rule; of these it is not known which are OOD."""
    mark = None if rule.card is None else rule.card.fingerprint
    if mark is None:
        return 0.0
    nothing = scores[:0]
    return min(1.0, mark.share_of((scores, nothing)) + mark.share_of((nothing, scores)))


def warn_of_tuning_rows(
    rule: Rule, data: Sample | ScoreSource, point: OperatingPoint | None = None
) -> float:
    """Warn if rows that made a rule judge it; return their share."""
    share = share_of_tuning_rows(rule, data, point)
    if share:
        warn_of_share(share, stacklevel=4)
    return share


def warn_of_share(share: float, *, stacklevel: int = 3) -> None:
    """Warn that this share of the rows made the rule."""
    warnings.warn(
        f"{share_text(share)} made the rule, so the numbers are optimistic: judge it on other rows",
        LikelyMistakeWarning,
        stacklevel=stacklevel,
    )


def share_text(share: float) -> str:
    """Return the rows that made a rule, as the subject of a sentence."""
    return "these rows" if share > 0.999 else f"about {share:.0%} of these rows"


def _order(own: ScoreColumns, given: ScoreColumns) -> IntArray | None:
    """Return the place of each score of a rule in the data; None where one is not there."""
    if own.names is None or given.names is None:
        return np.arange(own.count) if own.count == given.count else None
    if not set(own.names) <= set(given.names):
        return None
    return np.array([given.names.index(name) for name in own.names], np.int64)


def _marks(sides: Sides, salt: int) -> _Hashes:
    return np.concatenate([_row_marks(scores, salt, k) for k, scores in enumerate(sides, 1)])


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


_ID_SHARES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_OOD_SHARES = (0.25, 0.5, 0.75, 1.0)
_RISK_SHARES = (0.2, 0.4, 0.6, 0.8)

REJECTED, ACCEPTED = 0, 1
"""Parts of the rows, by what the rule decides."""


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """Counts of ID and OOD rows by bin of each score, rejected and accepted ones apart.

    Examples
    --------
    >>> from demur import Rule
    >>> sample = Sample([0.1, 0.2, 0.9], [0, 0, 1], ood_scores=[0.8])
    >>> reference = Reference.of(sample, Rule((1.0,), 0.5))
    >>> reference.accepted(0), reference.accepted(1)
    ((2, 3), (0, 1))
    """

    cuts: tuple[FloatArray, ...]
    """For each score the last value of every bin but one; below the first lay no row."""
    rows: tuple[IntArray, ...]
    """For each score counts of shape (side, part, bins): ID and OOD, rejected and accepted."""
    risk_cuts: FloatArray
    """Bins of the combined score of accepted rows."""
    risk_rows: IntArray
    """Accepted ID rows in them."""
    risk_loss: FloatArray
    """And the sum of their losses."""

    @classmethod
    def of(cls, sample: Sample, rule: Rule) -> Reference:
        """Count the rows of a sample, each as one, whatever its weight."""
        sides = (sample.id_scores, sample.ood_scores)
        cuts = tuple(_cuts(*(side[:, k] for side in sides)) for k in range(sample.n_scores))
        combined = [rule.combine(side) for side in sides]
        taken = [rule.within(values) for values in combined]
        rows = tuple(
            np.array(
                [
                    [bin_counts(cut, side[:, k][yes == part]) for part in (False, True)]
                    for side, yes in zip(sides, taken, strict=True)
                ]
            )
            for k, cut in enumerate(cuts)
        )
        values, loss = combined[0][taken[0]], sample.id_loss[taken[0]]
        ends = np.unique(np.quantile(values, _RISK_SHARES)) if len(values) else np.empty(0)
        place = np.searchsorted(ends, values)
        size = len(ends) + 1
        return cls(
            cuts,
            rows,
            ends,
            np.bincount(place, minlength=size),
            np.asarray(np.bincount(place, loss, minlength=size), np.float64),
        )

    def accepted(self, side: int) -> tuple[int, int]:
        """Return how many of the ID (0) or OOD (1) rows are accepted, and of how many."""
        parts = self.rows[0][side].sum(axis=1)
        return int(parts[ACCEPTED]), int(parts.sum())

    def to_data(self) -> dict[str, Any]:
        """Return plain data for the card."""
        return {
            "cuts": [cut.tolist() for cut in self.cuts],
            "rows": [counts.tolist() for counts in self.rows],
            "risk": [self.risk_cuts.tolist(), self.risk_rows.tolist(), self.risk_loss.tolist()],
        }

    @classmethod
    def from_data(cls, data: Any) -> Reference:
        """Read what `to_data` returned."""
        try:
            cuts = tuple(np.array(cut, np.float64) for cut in data["cuts"])
            rows = tuple(np.array(counts, np.int64) for counts in data["rows"])
            risk = [np.array(item, np.float64) for item in data["risk"]]
            shapes = [counts.shape == (2, 2, len(cut) + 1) for cut, counts in zip(cuts, rows)]  # noqa: B905
            if not shapes or not all(shapes) or len(cuts) != len(rows):
                raise ValueError("its lists do not fit together")
            if not len(risk[0]) + 1 == len(risk[1]) == len(risk[2]):
                raise ValueError("its risks do not fit together")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InvalidInputError(f"the card's reference is damaged: {error}") from None
        return cls(cuts, rows, risk[0], risk[1].astype(np.int64), risk[2])


def bin_counts(cuts: FloatArray, values: FloatArray) -> IntArray:
    """Return how many values lie in each bin; a value equal to a cut is in the bin it ends."""
    return np.bincount(np.searchsorted(cuts, values), minlength=len(cuts) + 1)


def _cuts(id_values: FloatArray, ood_values: FloatArray) -> FloatArray:
    """Return the ends of bins, from quantiles of both sides."""
    finite = [values[np.isfinite(values)] for values in (id_values, ood_values)]
    shares = (_ID_SHARES, _OOD_SHARES)
    found = [
        np.quantile(values, of, method="inverted_cdf")
        for values, of in zip(finite, shares, strict=True)
        if len(values)
    ]
    if not found:
        return np.zeros(1)
    least = min(values.min() for values in finite if len(values))
    # The first bin is below all rows, the last above them.
    inner = np.concatenate(found)
    return np.unique(np.append(inner[inner > least], np.nextafter(least, -np.inf)))
