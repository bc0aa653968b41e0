"""Accept/reject rules, half-planes and boxes: how they decide, and `rule.json`, their file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from demur import _arrays
from demur._arrays import NUMBER, BoolArray, FloatArray, check_kind
from demur._files import check_version, read_text, strict_json, write_atomically
from demur.core.card import Card
from demur.core.columns import ScoreColumns, combine, has_columns, score_columns
from demur.core.sql import Dialect, predicate, within_limits
from demur.errors import InvalidInputError

Missing = Literal["raise", "reject"]

FORMAT = "demur.rule"
VERSION = 2
BOX_VERSION = 3
"""Of rules that are boxes: who knows half-planes only must not take them for one."""

LARGEST = 2**20
"""No rule file has more bytes than this; what has is something else."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Accept when the weighted scores, as they are in the data, are at most `threshold`.

    Parameters
    ----------
    direction
        ``(1.0,)`` for one score, the unit vector ``(cos a, sin a)`` for the pair (s_r, s_g); a
        weight for each of more scores. A confidence, of which less means more doubt, has a
        negative weight.
    threshold
        lambda, midway between the last accepted and the next score; -inf rejects everything.
    tau
        Acceptance probability of an input exactly on the threshold; 1 for empirical rules.
    score_names
        Names of the score columns, where known.
    confidence
        Which of them are confidences.
    card
        Where the rule comes from and what is known of it.

    Examples
    --------
    >>> rule = Rule(direction=(0.6, 0.8), threshold=0.5, score_names=("msp", "knn"))
    >>> rule.accept([[0.1, 0.2], [0.9, 0.9], [0.0, np.inf]])
    array([ True, False, False])
    >>> rule.accept_one({"knn": 0.2, "msp": 0.1, "image": 17})
    True
    """

    direction: tuple[float, ...]
    threshold: float
    tau: float = 1.0
    score_names: tuple[str, ...] | None = None
    confidence: tuple[str, ...] = ()
    card: Card | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        direction = _direction(self.direction)
        if not direction or not all(map(math.isfinite, direction)):
            raise InvalidInputError(f"direction must be finite numbers, got {direction}")
        if not any(direction):
            raise InvalidInputError("direction must not be zero")
        for name, value in (("threshold", self.threshold), ("tau", self.tau)):
            if type(value) is not float:
                check_kind(name, value, NUMBER)
        threshold, tau = float(self.threshold), float(self.tau)
        if math.isnan(threshold) or threshold == math.inf:
            raise InvalidInputError(f"threshold must be finite or -inf, got {threshold}")
        if not 0 <= tau <= 1:
            raise InvalidInputError(f"tau must be in [0, 1], got {tau}")
        columns = ScoreColumns.of(
            self.score_names, confidence=self.confidence, count=len(direction)
        )
        object.__setattr__(self, "direction", direction)
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "tau", tau)
        object.__setattr__(self, "score_names", columns.names)
        object.__setattr__(self, "confidence", columns.confidence)

    @classmethod
    def of_doubts(cls, direction: Sequence[float], threshold: float, columns: ScoreColumns) -> Rule:
        """Return the rule for columns as they are, from weights of their doubts."""
        return cls(
            columns.raw_direction(direction),
            threshold,
            score_names=columns.names,
            confidence=columns.confidence,
        )

    @property
    def columns(self) -> ScoreColumns:
        """Names and senses of the score columns."""
        return ScoreColumns(len(self.direction), self.score_names, self.confidence)

    @property
    def mu(self) -> float:
        """Weight of s_g relative to s_r, ``tan a``; infinite when only s_g counts.

        0 for one score.
        """
        if len(self.direction) == 1:
            return 0.0
        if len(self.direction) > 2:
            raise InvalidInputError("mu is about two scores, the rule weighs more")
        cosine, sine = self.direction
        return sine / cosine if cosine else math.copysign(math.inf, sine)

    def combine(self, scores: Any, *, missing: Missing = "raise") -> FloatArray:
        """Return the combined score ``direction . scores`` of each row; +inf is always rejected.

        `scores` and `missing` are those of `accept`; rows that it rejects for what they lack
        come out as +inf.
        """
        check_missing(missing)
        needed = self.needed
        values = score_columns(scores, self.columns, needed=needed, refuse=missing == "raise")
        rejected = (values == np.inf).any(axis=1)
        if missing == "reject":
            rejected |= ~np.isfinite(values[:, needed]).all(axis=1)
        # A column that is not needed may lack values, and 0 times NaN is NaN.
        values[:, [not used for used in needed]] = 0.0
        combined = self.weigh(values)
        combined[rejected] = np.inf
        return combined

    @property
    def needed(self) -> list[bool]:
        """Which scores the rule looks at."""
        return [weight != 0 for weight in self.direction]

    def weigh(self, values: FloatArray) -> FloatArray:
        """Return the combined score of rows of numbers, shape (n, k), none of them missing."""
        return combine(self.direction, values)

    def within(self, combined: FloatArray) -> BoolArray:
        """Return which combined scores are accepted."""
        if self.threshold == -math.inf:  # a sum beyond float64 may be -inf, too
            return np.zeros(len(combined), np.bool_)
        return np.asarray(combined <= self.threshold if self.tau else combined < self.threshold)

    def accept(self, scores: Any, *, missing: Missing = "raise") -> BoolArray:
        """Return True for the rows to accept; rows with a score of +inf are always rejected.

        A row exactly on the threshold is accepted, unless `tau` is 0.

        Parameters
        ----------
        scores
            A data frame or a mapping of columns, read by `score_names` (other columns are no
            matter, in any order); or an array of shape (n, k), read by position.
        missing
            What to do with a row that lacks a score the rule weighs, or has -inf: ``"raise"`` or
            ``"reject"`` it.
        """
        return self.within(self.combine(scores, missing=missing))

    def accept_one(
        self, scores: Mapping[str, float] | Sequence[float], *, missing: Missing = "raise"
    ) -> bool:
        """Return whether to accept one input, given its scores by name or in order."""
        if has_columns(scores):
            rows: Any = scores
        else:
            rows = np.atleast_1d(_arrays.plain_array("scores", scores))[None]
        accepted = self.accept(rows, missing=missing)
        if len(accepted) != 1:
            raise InvalidInputError(f"scores has {len(accepted)} rows: for several, call accept")
        return bool(accepted[0])

    def accept_probability(self, scores: Any, *, missing: Missing = "raise") -> FloatArray:
        """Return c(x): 1 below the threshold, `tau` on it, 0 above."""
        combined = self.combine(scores, missing=missing)
        below = (combined < self.threshold).astype(np.float64)
        if self.threshold == -math.inf:
            return below
        return np.where(combined == self.threshold, self.tau, below)

    def on(self, columns: ScoreColumns) -> Rule:
        """Return the rule for data with these columns: names are matched, never mixed.

        Where one side has no names, columns are matched by position.
        """
        own = self.columns
        if own == columns:
            return self
        if own.names is None or columns.names is None:
            if columns.count != own.count:
                raise InvalidInputError(
                    f"the rule is about {own.count} scores, the data have {columns.count}; "
                    "give both score_names, so that they can be matched"
                )
            return self
        weights = dict(zip(own.names, self.direction, strict=True))
        strange = [
            n for n in columns.confidence if weights.get(n, 0) > 0 and n not in own.confidence
        ]
        if strange:
            raise InvalidInputError(
                f"the rule takes more of {strange[0]!r} for more doubt, the data call it a "
                "confidence: is it the same column?"
            )
        lacking = [n for n, w in weights.items() if w != 0 and n not in columns.names]
        if lacking:
            raise InvalidInputError(
                f"the rule is about the scores {list(own.names)}, the data have "
                f"{list(columns.names)}: {lacking[0]!r} is missing"
            )
        direction = tuple(weights.get(name, 0.0) for name in columns.names)
        return Rule(direction, self.threshold, self.tau, columns.names, columns.confidence)

    def of_columns(self, kept: Sequence[int]) -> Rule:
        """Return the rule of some of its columns, the others being of no matter to it."""
        names = None if self.score_names is None else tuple(self.score_names[k] for k in kept)
        return replace(
            self,
            direction=tuple(self.direction[k] for k in kept),
            score_names=names,
            confidence=tuple(name for name in self.confidence if name in (names or ())),
        )

    def for_doubts(self, columns: ScoreColumns) -> Rule:
        """Return the rule in terms of the doubts of these columns, by position."""
        matched = self.on(columns)
        if not columns.confidence:
            return matched
        return Rule(columns.raw_direction(matched.direction), self.threshold, self.tau)

    def to_sql(
        self, columns: Sequence[str | None] | None = None, *, dialect: Dialect = "duckdb"
    ) -> str:
        """Return the rule as an SQL predicate: TRUE for the rows to accept, FALSE for all others.

        It decides exactly as `accept` with ``missing="reject"`` does.

        Parameters
        ----------
        columns
            Column names, quoted here; the rule's own `score_names` by default. None for a score
            of weight 0 that the table does not have.
        dialect
            ``"duckdb"``, ``"spark"``, ``"postgres"``, ``"bigquery"``, ``"snowflake"`` or
            ``"trino"``, which SQLite and Polars understand, too.

        Examples
        --------
        >>> rule = Rule(direction=(1.0,), threshold=0.25)
        >>> rule.to_sql(["msp"], dialect="spark").split(" AND ")[-1]
        '1.0e+00D * CAST(`msp` AS DOUBLE) <= 2.5e-01D, FALSE)'
        """
        if columns is not None and not isinstance(columns, Iterable):
            raise InvalidInputError(f"columns must be a list of names, got {columns!r}")
        names = self.score_names if columns is None else tuple(columns)
        if names is None or isinstance(columns, str) or len(names) != len(self.direction):
            raise InvalidInputError(
                f"to_sql needs {len(self.direction)} column names, got {columns!r}"
            )
        if self.tau not in (0.0, 1.0):
            raise InvalidInputError("a rule that is random on its boundary has no SQL predicate")
        return self._sql(names, dialect)

    def _sql(self, names: Sequence[str | None], dialect: Dialect) -> str:
        boundary = self.tau == 1
        weights = self.direction, self.threshold
        return predicate(names, *weights, accept_boundary=boundary, dialect=dialect)

    def _shape_data(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "direction": list(self.direction),
            # JSON has no infinities.
            "threshold": "-inf" if self.threshold == -math.inf else self.threshold,
            "tau": self.tau,
        }

    def to_json(self) -> str:
        """Return the rule and its card as strict JSON; numbers round-trip exactly."""
        data = rule_data(self)
        if self.card is not None:
            data["card"] = self.card.saved_data()
        text = json.dumps(data, indent=2, allow_nan=False)
        if len(text) > LARGEST:
            raise InvalidInputError(
                f"the rule has {len(text)} bytes, and no rule file more than {LARGEST}: give the "
                "scores shorter names"
            )
        return text

    @classmethod
    def from_json(cls, text: str) -> Rule:
        """Read a rule written by `to_json`, of this version of the format or an older one."""
        return _from_json(text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rule to `path`; an interrupted write leaves the old file as it was."""
        write_atomically(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Rule:
        """Read a rule written by `save`."""
        return cls.from_json(read_text(path, "the rule", LARGEST))


def check_missing(missing: Any) -> None:
    """Refuse what is no way to treat missing scores."""
    if missing not in ("raise", "reject"):
        raise InvalidInputError(f'missing must be "raise" or "reject", got {missing!r}')


def _direction(weights: Any) -> tuple[float, ...]:
    if isinstance(weights, tuple) and all(type(weight) is float for weight in weights):
        return weights
    return tuple(float(weight) for weight in _arrays.real_vector("direction", weights))


def rule_data(rule: Rule) -> dict[str, Any]:
    """Return a rule as plain data, as its file has it, without the card."""
    return {
        "format": FORMAT,
        **rule._shape_data(),
        "score_names": None if rule.score_names is None else list(rule.score_names),
        "confidence": list(rule.confidence),
    }


def _from_json(text: str) -> Rule:
    """Read a rule of any version there is."""
    if not isinstance(text, str):
        raise InvalidInputError(f"the rule must be JSON text, got {type(text).__name__}")
    if len(text) > LARGEST:
        raise InvalidInputError(f"the rule is larger than {LARGEST} bytes: this is no rule file")
    try:
        data = strict_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"the rule is not valid JSON: {error}") from None
    if isinstance(data, dict) and data.get("format") == "demur.learned_rule":
        raise InvalidInputError(
            "the rule is about learned scores, which are in the same file: read both with "
            "demur.learn.LearnedRule.load"
        )
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InvalidInputError(f'the JSON is not a rule: "format" must be "{FORMAT}"')
    check_version(data, "the rule", BOX_VERSION)
    try:
        return _read_shape(
            data,
            tuple(_number("direction", item) for item in data["direction"]),
            score_names=_names(data.get("score_names")),
            confidence=_names(data.get("confidence")) or (),
            card=None if data.get("card") is None else Card.from_data(data["card"]),
        )
    except InvalidInputError:
        raise
    except KeyError as missing:
        raise InvalidInputError(f"the rule has no entry {missing}") from None
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidInputError(f"the rule has an entry of the wrong kind: {error}") from None


def _read_shape(data: dict[str, Any], direction: tuple[float, ...], **known: Any) -> Rule:
    """Return the half-plane or the box of a rule's file."""
    if data["version"] < BOX_VERSION:
        threshold, tau = _number("threshold", data["threshold"]), _number("tau", data["tau"])
        return Rule(direction, threshold, tau, **known)
    if data["shape"] != "box":
        raise InvalidInputError(
            f"the rule is a {data['shape']!r}, this demur knows boxes and half-planes; use the "
            "demur that wrote it, or a newer one"
        )
    limits = tuple(_number("limits", item) for item in data["limits"])
    return BoxRule(direction, limits=limits, **known)


def _number(name: str, item: Any) -> float:
    infinite = {"threshold": ("-inf",), "limits": ("-inf", "inf")}.get(name, ())
    if isinstance(item, str) and item in infinite:
        return float(item)
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        raise TypeError(f"{name} {item!r} is not a number")
    return float(item)


def _names(item: Any) -> tuple[str, ...] | None:
    if item is None:
        return None
    if not isinstance(item, list) or not all(isinstance(name, str) for name in item):
        raise TypeError(f"{item!r} is not a list of names")
    return tuple(item)


@dataclass(frozen=True, slots=True)
class BoxRule(Rule):
    """Accept when every score is within its own limit, with the scores as they are in the data.

    A `Rule` like any other: its combined score is the largest excess over a limit, its threshold
    is 0, and `direction` has a sign for each score: 1 if the limit is from above, -1 if it is from
    below, 0 if there is none.

    Parameters
    ----------
    limits
        For each score the last value that is accepted: the largest, of a confidence the smallest.
        ``inf`` is no limit, ``-inf`` accepts nothing; of a confidence the other way round.
    direction
        Signs; from `confidence` by default.
    score_names, confidence, card
        As of `Rule`.

    Examples
    --------
    >>> rule = BoxRule(limits=(0.8, 0.5), score_names=("msp", "knn"), confidence=("msp",))
    >>> rule.accept([[0.9, 0.2], [0.8, 0.5], [0.7, 0.2]])
    array([ True,  True, False])
    """

    direction: tuple[float, ...] = ()
    threshold: float = field(default=0.0, init=False)
    tau: float = field(default=1.0, init=False)
    limits: tuple[float, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        limits = tuple(float(v) for v in _arrays.real_vector("limits", self.limits))
        columns = ScoreColumns.of(self.score_names, confidence=self.confidence, count=len(limits))
        direction = self.direction or columns.signs
        if len(direction) != len(limits) or not set(direction) <= {-1.0, 0.0, 1.0}:
            raise InvalidInputError(f"direction must be a sign for each limit, got {direction}")
        doubts = [s * v if s else math.inf for s, v in zip(direction, limits, strict=True)]
        limited = tuple(s * (v < math.inf) for s, v in zip(direction, doubts, strict=True))
        if not any(limited):
            raise InvalidInputError(f"limits: {limits} limit nothing")
        # Adding zero turns -0.0 into 0.0.
        object.__setattr__(self, "direction", tuple(float(sign) + 0.0 for sign in limited))
        object.__setattr__(self, "limits", tuple(limit + 0.0 for limit in limits))
        object.__setattr__(self, "threshold", -math.inf if -math.inf in doubts else 0.0)
        Rule.__post_init__(self)

    @classmethod
    def of_limits(cls, limits: Sequence[float], columns: ScoreColumns) -> BoxRule:
        """Return the rule for columns as they are, from limits of their doubts."""
        raw = tuple(sign * v for sign, v in zip(columns.signs, limits, strict=True))
        return cls(limits=raw, score_names=columns.names, confidence=columns.confidence)

    @property
    def mu(self) -> float:
        """NaN: a box does not weigh scores against each other."""
        return math.nan

    def weigh(self, values: FloatArray) -> FloatArray:
        """Return by how much each row exceeds a limit at most; negative within all of them."""
        excess = np.full(len(values), -np.inf)
        with np.errstate(over="ignore"):
            for column, (sign, limit) in enumerate(zip(self.direction, self.limits, strict=True)):
                if sign:
                    # The difference of two floats is 0 only if they are equal, and has the right
                    # sign: comparing it decides as comparing the two does.
                    np.maximum(excess, sign * values[:, column] - sign * limit, out=excess)
        return excess

    def on(self, columns: ScoreColumns) -> BoxRule:
        """Return the rule for data with these columns: names are matched, never mixed."""
        matched = Rule.on(self, columns)
        if matched is self or matched.score_names is None or self.score_names is None:
            return self
        limits = dict(zip(self.score_names, self.limits, strict=True))
        return BoxRule(
            matched.direction,
            matched.score_names,
            matched.confidence,
            limits=tuple(limits.get(name, math.inf) for name in matched.score_names),
        )

    def of_columns(self, kept: Sequence[int]) -> BoxRule:
        """Return the rule of some of its columns, the others being of no matter to it."""
        narrow = Rule(self.direction, 0.0, 1.0, self.score_names, self.confidence).of_columns(kept)
        return BoxRule(
            narrow.direction,
            narrow.score_names,
            narrow.confidence,
            self.card,
            limits=tuple(self.limits[k] for k in kept),
        )

    def for_doubts(self, columns: ScoreColumns) -> BoxRule:
        """Return the rule in terms of the doubts of these columns, by position."""
        matched = self.on(columns)
        limits = zip(columns.signs, matched.limits, strict=True)
        return BoxRule(
            columns.raw_direction(matched.direction), limits=tuple(s * limit for s, limit in limits)
        )

    def _sql(self, names: Sequence[str | None], dialect: Dialect) -> str:
        return within_limits(names, self.direction, self.limits, dialect=dialect)

    def _shape_data(self) -> dict[str, Any]:
        return {
            "version": BOX_VERSION,
            "shape": "box",
            "direction": list(self.direction),
            # JSON has no infinities.
            "limits": [v if math.isfinite(v) else str(v) for v in self.limits],
        }
