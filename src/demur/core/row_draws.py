"""Rows drawn by a hash of what they hold: the same rows on every engine, whatever their order.

A row has a number below the prime ``P = 2**31 - 1``: of its key if there is one, else of its
scores. A double is taken apart into three whole numbers w below 2**26 by comparisons, products
with powers of two and ``floor``, which no engine rounds; with factors c that the seed and the
purpose of the draw decide, the number is ``((c0 + sum of c * w) mod P)**5 mod P``. Nothing exceeds
2**62, so no engine overflows. As 5 does not divide P - 1, the fifth power takes no two numbers to
one, and it leaves nothing linear: neighbouring scores have unrelated numbers.

Keys that are text count as the first 48 bits of their MD5, an integer that a double holds. A
missing key is a key like any other. -0.0 is 0.0.

Rows that agree in what is hashed are drawn together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import Measure, NoRowsError, ScoreSource
from demur.errors import InvalidInputError

PRIME = 2**31 - 1

SMALL = 2.0**1022
"""What numbers below 1 are multiplied by first."""
STEPS = (512, 256, 128, 64, 32, 16)
"""Powers of two by which larger numbers are divided, down to less than 2**16."""
BITS = 26
"""Of the whole numbers that a double is taken apart into."""

# Rows of a side that are brought here whatever its share.
_FEWEST = 20_000
_LOOKED_AT = 100_000

KEY_DIGITS = 12
"""Hexadecimal digits of the MD5 that stand for a key of text."""


def _poisson_limits() -> tuple[int, ...]:
    """Return the numbers from which on a row is drawn once, twice, …: Poisson of mean 1."""
    limits, below = [], 0.0
    for times in range(12):
        below += math.exp(-1) / math.factorial(times)
        limits.append(round(below * PRIME))
    return tuple(limit for limit in limits if limit < PRIME)


POISSON = _poisson_limits()


class Factors(NamedTuple):
    """What the whole numbers of a row are multiplied by."""

    first: int
    columns: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class RowDraw:
    """A draw of rows: part of them, or each a number of times.

    Draws of different purposes, or seeds, are independent of each other.
    """

    purpose: str
    seed: int
    kept: tuple[tuple[int, int], tuple[int, int]] | None = None
    """Numbers from, and below, which ID rows and OOD rows are kept; None: Poisson of mean 1."""
    outside: bool = False
    """Keep the other rows instead; of a Poisson draw, those that are never drawn."""

    @classmethod
    def holdout(cls, share: Fraction | float, seed: int) -> RowDraw:
        """Return the draw of rows to be held out."""
        end = math.floor(Fraction(share) * PRIME)
        return cls("holdout", seed, ((0, end), (0, end)))

    @classmethod
    def fold(cls, number: int, folds: int, seed: int) -> RowDraw:
        """Return the draw of one of so many folds."""
        ends = number * PRIME // folds, (number + 1) * PRIME // folds
        return cls("folds", seed, (ends, ends))

    @classmethod
    def thinned(cls, id_share: float, ood_share: float, seed: int) -> RowDraw:
        """Return the draw of these shares of the ID rows and of the OOD rows."""
        ends = [(0, math.floor(min(share, 1.0) * PRIME)) for share in (id_share, ood_share)]
        return cls("rows brought here", seed, (ends[0], ends[1]))

    @classmethod
    def replicate(cls, number: int, seed: int) -> RowDraw:
        """Return one bootstrap draw: every row a number of times, which becomes its weight."""
        return cls(f"replicate {number}", seed)

    @property
    def others(self) -> RowDraw:
        """The rows that this draw leaves out."""
        return RowDraw(self.purpose, self.seed, self.kept, outside=not self.outside)

    @property
    def repeats(self) -> bool:
        """Whether rows are drawn several times."""
        return self.kept is None and not self.outside

    def factors(self, columns: int) -> Factors:
        """Return the factors for rows of so many columns."""

        def factor(*place: int) -> int:
            text = f"demur {self.purpose} {self.seed} {place}".encode()
            return 1 + int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) % (PRIME - 1)

        each = [(factor(k, 0), factor(k, 1), factor(k, 2)) for k in range(columns)]
        return Factors(factor(columns), tuple(each))

    def numbers(self, columns: Sequence[FloatArray]) -> IntArray:
        """Return the numbers of rows, given the columns that are hashed."""
        first, factors = self.factors(len(columns))
        total = np.full(len(columns[0]), first, np.int64)
        for column, own in zip(columns, factors, strict=True):
            for factor, word in zip(own, words(column), strict=True):
                total += factor * word
            total %= PRIME
        square = total * total % PRIME
        return np.asarray(square * square % PRIME * total % PRIME)

    def keeps(self, columns: Sequence[FloatArray], is_ood: BoolArray) -> BoolArray:
        """Return which rows are drawn."""
        number = self.numbers(columns)
        if self.kept is None:
            drawn = number >= POISSON[0]
        else:
            low, high = (np.where(is_ood, *ends[::-1]) for ends in zip(*self.kept, strict=True))
            drawn = (number >= low) & (number < high)
        return np.asarray(drawn != self.outside)

    def times(self, columns: Sequence[FloatArray]) -> IntArray:
        """Return how often rows are drawn."""
        return np.searchsorted(np.array(POISSON), self.numbers(columns), side="right")


def hashed_order(names: Sequence[str]) -> list[str]:
    """Return the scores in the order in which they are hashed, whatever that of the columns."""
    return sorted(names, key=lambda name: (name.strip(), name))


def words(values: FloatArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return three whole numbers below 2**26 that tell a double apart from all others."""
    missing, infinite = np.isnan(values), np.isinf(values)
    size = np.where(missing | infinite, 0.0, np.abs(values))
    small = size < 1.0
    # Factors, so that nothing overflows.
    size = size * np.where(small, SMALL, 1.0)
    code = 64 * small + 128 * (values < 0) + 256 * missing + 512 * infinite
    for step in STEPS:
        large = size >= 2.0**step
        size = size * np.where(large, 2.0**-step, 1.0)
        code = code + large * (step // 16)
    head = np.floor(size)
    rest = (size - head) * 2.0**BITS
    middle = np.floor(rest)
    last = np.floor((rest - middle) * 2.0**BITS)
    return code * 2**16 + head.astype(np.int64), middle.astype(np.int64), last.astype(np.int64)


def key_numbers(values: npt.NDArray[Any], name: str) -> FloatArray:
    """Return keys as doubles: numbers as they are, text as a part of its MD5, NaN where missing."""
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    if values.dtype.kind == "U":
        values = values.astype(object)
    known: dict[Any, float] = {}
    found = np.empty(len(values))
    for place, value in enumerate(values.tolist()):
        if value not in known:
            known[value] = _key_number(value, name)
        found[place] = known[value]
    return found


def text_number(text: str) -> float:
    """Return the number that stands for a key of text."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    return float(int(digest.hexdigest()[:KEY_DIGITS], 16))


def _key_number(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, str):
        return text_number(value)
    if isinstance(value, (Real, Decimal, np.bool_)):
        return float(value)
    raise InvalidInputError(
        f"key: column {name!r} holds {type(value).__name__}: ids must be numbers or text"
    )


@runtime_checkable
class DrawableSource(ScoreSource, Protocol):
    """A source that can be drawn from by a hash."""

    def drawn(self, draw: RowDraw) -> DrawableSource:
        """Return the rows that a draw keeps as a source of their own."""
        ...


def drawable(source: ScoreSource) -> DrawableSource:
    """Return a source that can be drawn from; refuse others."""
    if not isinstance(source, DrawableSource):
        raise InvalidInputError(
            f"rows of a {type(source).__name__} cannot be drawn by a hash: read them into "
            "memory (a Sample, or --engine memory)"
        )
    return source


def split(
    source: ScoreSource, share: float | Fraction, *, seed: int = 0
) -> tuple[DrawableSource, DrawableSource]:
    """Return the rows to tune on and the rows held out, about `share` of all.

    Examples
    --------
    >>> from demur.sources.engines.frames import ArraySource
    >>> rows = Sample(np.linspace(0, 1, 1000), np.zeros(1000), ood_scores=np.linspace(1, 2, 500))
    >>> train, held = split(ArraySource(rows), 0.3)
    >>> train.overview().rows, held.overview().rows
    (1055, 445)
    """
    if not 0 < share < 1:
        raise InvalidInputError(f"share must be between 0 and 1, got {share}")
    draw, known = RowDraw.holdout(share, seed), drawable(source)
    return known.drawn(draw.others), known.drawn(draw)


def bring(source: ScoreSource, most: int, *, seed: int = 0) -> Sample:
    """Return the rows of a source as a sample: all of them, or about `most` drawn by a hash.

    Either side keeps its share, unless that would leave fewer than some thousand rows of it.
    """
    seen = source.overview()
    if seen.rows > most:
        shares = [
            min(1.0, max(most / seen.rows, min(_FEWEST, most // 2) / max(rows, 1)))
            for rows in (seen.id_rows, sum(seen.ood_rows))
        ]
        source = drawable(source).drawn(RowDraw.thinned(shares[0], shares[1], seed))
        seen = source.overview()
    rows, columns = source.sample(2 * seen.rows, seed=seed), source.columns
    if (work := getattr(source, "work", None)) is not None:
        work.fetched += len(rows.loss)
    is_id, weight = rows.group < 0, rows.weight
    scores = columns.as_doubts(rows.scores)
    sets = {name: np.flatnonzero(rows.group == k) for k, name in enumerate(seen.sets)}
    return Sample(
        id_scores=scores[is_id],
        id_loss=rows.loss[is_id],
        ood_scores={name: scores[places] for name, places in sets.items()},
        id_weight=None if weight is None else weight[is_id],
        ood_weight=None if weight is None else {n: weight[places] for n, places in sets.items()},
        id_group=np.array(seen.groups)[-1 - rows.group[is_id]] if seen.groups else None,
        score_names=columns.names,
        confidence=columns.confidence,
    )


def repeats_key(source: ScoreSource, key: str, *, seed: int = 0) -> bool:
    """Return whether rows of a side, without weights, share a key.

    Of many rows those of some keys are looked at.

    Examples
    --------
    >>> import demur, pyarrow
    >>> table = pyarrow.table({"s": [0.1, 0.2, 0.3], "wrong": [0, 1, 0], "id": [7, 8, 7]})
    >>> repeats_key(demur.open_source(table, "s", loss="wrong", key="id"), "id")
    True
    """
    seen = source.overview()
    if seen.rows > _FEWEST:
        share = _FEWEST / seen.rows
        source = drawable(source).drawn(RowDraw.thinned(share, share, seed))
        try:
            seen = source.overview()
        except NoRowsError:
            # Rows of one key are drawn together, so there are far fewer keys than rows.
            return True
    everything = Rule((1.0, *(0.0 for _ in source.score_names[1:])), 0.0)
    tallies = source.tally(everything, Measure.of(seen, apart=False), by=key).values()
    return any(max(tally.total_id, tally.total_ood[0]) > 1 for tally in tallies)


def drawn_together(scores: FloatArray) -> float:
    """Return how many other rows have the scores of one in the mean, of rows drawn by these.

    Of drawn rows all that share scores are there, so that this is how many there are among all.

    Examples
    --------
    >>> drawn_together(np.array([[0.1], [0.1], [0.2], [0.3]]))
    0.5
    """
    _, counts = np.unique(scores, axis=0, return_counts=True)
    return float((counts.astype(float) ** 2).sum() / max(len(scores), 1)) - 1


def share_drawn_together(source: ScoreSource, seed: int = 0) -> float:
    """Return about which share of the rows have the scores of another one."""
    scores = source.sample(_LOOKED_AT, seed=seed).scores
    _, counts = np.unique(scores, axis=0, return_counts=True)
    return float(counts[counts > 1].sum() / max(len(scores), 1))
