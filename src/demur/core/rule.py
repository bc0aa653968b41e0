"""The accept/reject rule, and how it is stored and deployed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import BoolArray, FloatArray
from demur._files import write_atomically
from demur.core.scores import combine
from demur.core.sql import Dialect, predicate
from demur.errors import InvalidInputError

FORMAT = "demur.rule"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """Accept when ``direction . scores <= threshold``.

    Parameters
    ----------
    direction
        ``(1.0,)`` for one score, the unit vector ``(cos a, sin a)`` for the pair (s_r, s_g).
    threshold
        lambda, midway between the last accepted and the next score; -inf rejects everything.
    tau
        Acceptance probability of an input exactly on the threshold; 1 for empirical rules.
    score_names
        Names of the score columns, where known.

    Examples
    --------
    >>> rule = Rule(direction=(0.6, 0.8), threshold=0.5)
    >>> rule.accept([[0.1, 0.2], [0.9, 0.9], [0.0, np.inf]])
    array([ True, False, False])
    """

    direction: tuple[float, ...]
    threshold: float
    tau: float = 1.0
    score_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        direction = tuple(float(d) for d in _arrays.real_vector("direction", self.direction))
        if len(direction) not in (1, 2) or not all(map(math.isfinite, direction)):
            raise InvalidInputError(f"direction must be one or two finite numbers, got {direction}")
        if not any(direction):
            raise InvalidInputError("direction must not be zero")
        threshold, tau = float(self.threshold), float(self.tau)
        if math.isnan(threshold) or threshold == math.inf:
            raise InvalidInputError(f"threshold must be finite or -inf, got {threshold}")
        if not 0 <= tau <= 1:
            raise InvalidInputError(f"tau must be in [0, 1], got {tau}")
        names = None if self.score_names is None else tuple(map(str, self.score_names))
        if names is not None and len(names) != len(direction):
            raise InvalidInputError(
                f"score_names has {len(names)} names for {len(direction)} scores"
            )
        object.__setattr__(self, "direction", direction)
        object.__setattr__(self, "threshold", threshold)
        object.__setattr__(self, "tau", tau)
        object.__setattr__(self, "score_names", names)

    @property
    def mu(self) -> float:
        """Weight of s_g relative to s_r, ``tan a``; infinite when only s_g counts.

        0 for one score.
        """
        if len(self.direction) == 1:
            return 0.0
        cosine, sine = self.direction
        return sine / cosine if cosine else math.copysign(math.inf, sine)

    def combine(self, scores: Any) -> FloatArray:
        """Return the combined score ``direction . scores`` of each row; +inf stays +inf."""
        checked = _arrays.score_matrix("scores", scores, columns=len(self.direction))
        combined = combine(self.direction, checked)
        for column in checked.T:
            combined[column == np.inf] = np.inf
        return combined

    def accept(self, scores: Any) -> BoolArray:
        """Return True for the rows to accept; rows with a score of +inf are always rejected.

        A row exactly on the threshold is accepted, unless `tau` is 0.
        """
        combined = self.combine(scores)
        return np.asarray(combined <= self.threshold if self.tau else combined < self.threshold)

    def accept_probability(self, scores: Any) -> FloatArray:
        """Return c(x): 1 below the threshold, `tau` on it, 0 above."""
        combined = self.combine(scores)
        below = (combined < self.threshold).astype(np.float64)
        return np.where(combined == self.threshold, self.tau, below)

    def to_sql(self, columns: Sequence[str] | None = None, *, dialect: Dialect = "duckdb") -> str:
        """Return the rule as an SQL predicate: TRUE for the rows to accept, FALSE for all others.

        It decides exactly as `accept` does; NULL, NaN and infinite scores are not accepted.

        Parameters
        ----------
        columns
            Column names, quoted here; the rule's own `score_names` by default.
        dialect
            ``"duckdb"``, ``"spark"``, ``"postgres"`` or ``"bigquery"``.

        Examples
        --------
        >>> rule = Rule(direction=(1.0,), threshold=0.25)
        >>> rule.to_sql(["msp"], dialect="spark").split(" AND ")[-1]
        '1.0e+00D * CAST(`msp` AS DOUBLE) <= 2.5e-01D, FALSE)'
        """
        names = self.score_names if columns is None else tuple(columns)
        if names is None or isinstance(columns, str) or len(names) != len(self.direction):
            raise InvalidInputError(
                f"to_sql needs {len(self.direction)} column names, got {columns!r}"
            )
        if self.tau not in (0.0, 1.0):
            raise InvalidInputError("a rule that is random on its boundary has no SQL predicate")
        return predicate(
            names,
            self.direction,
            self.threshold,
            accept_boundary=self.tau == 1,
            dialect=dialect,
        )

    def to_json(self) -> str:
        """Return the rule as strict JSON; numbers round-trip exactly."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "direction": list(self.direction),
                # JSON has no infinities.
                "threshold": "-inf" if self.threshold == -math.inf else self.threshold,
                "tau": self.tau,
                "score_names": None if self.score_names is None else list(self.score_names),
            },
            indent=2,
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Rule:
        """Read a rule written by `to_json`."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InvalidInputError(f"the rule is not valid JSON: {error}") from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise InvalidInputError(f'the JSON is not a rule: "format" must be "{FORMAT}"')
        version = data.get("version")
        if version != VERSION:
            raise InvalidInputError(
                f"the rule has version {version!r}, this demur reads version {VERSION}; "
                "use the demur that wrote it, or a newer one"
            )
        try:
            return cls(
                direction=data["direction"],
                threshold=float(data["threshold"]),
                tau=data["tau"],
                score_names=data.get("score_names"),
            )
        except InvalidInputError:
            raise
        except KeyError as missing:
            raise InvalidInputError(f"the rule has no entry {missing}") from None
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"the rule has an entry of the wrong kind: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rule to `path`; an interrupted write leaves the old file as it was."""
        write_atomically(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Rule:
        """Read a rule written by `save`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"cannot read the rule {str(path)!r}: {error}") from None
        return cls.from_json(text)
