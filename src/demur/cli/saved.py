"""A saved rule in use: its card gives columns and bounds, and knows the rows that made it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from demur._arrays import FloatArray
from demur.cli.inputs import DataOptions, rule_on
from demur.cli.options import ModelOptions
from demur.cli.output import caution, note
from demur.core.card import SHARES
from demur.core.models import EACH_SET, RejectionModel
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.wording import bound_text, sentence
from demur.errors import InvalidInputError

_LOSSES = ("loss", "correct", "label", "prediction")

# Rows in common that may be chance, beside the rows that rounding makes alike.
_CHANCE = 0.02
_FEWEST = 20


@dataclass(frozen=True, slots=True)
class SavedRule:
    """A rule from a file, on the columns it is to read."""

    path: str
    rule: Rule
    names: tuple[str, ...]
    """Columns of the scores."""

    @classmethod
    def load(
        cls, path: str, scores: tuple[str, ...] = (), confidence: tuple[str, ...] = ()
    ) -> SavedRule:
        """Read a rule; `scores` are columns in place of those it names."""
        return cls(path, *rule_on(Rule.load(path), scores, confidence))

    def columns(self, data: DataOptions, *, need_loss: bool = True) -> DataOptions:
        """Return the options with the columns that the card knows and they do not name."""
        roles = {} if self.rule.card is None or data.openood else self.rule.card.columns
        taken: dict[str, Any] = {}
        if need_loss and not data.names_losses:
            taken = {role: roles[role] for role in _LOSSES if role in roles}
        for role in ("ood", "weight"):
            if getattr(data, role) is None and role in roles:
                if _has_column(data.data, roles[role]):
                    taken[role] = roles[role]
                else:
                    note(f"DATA has no column {roles[role]!r}, which was --{role} in tuning")
        if taken:
            said = ", ".join(f"--{role} {name}" for role, name in taken.items())
            note(f"from the card of {self.path}: {said}")
        if "label" in taken and data.loss_function == "zero_one":
            taken["loss_function"] = self._loss_function
        return replace(data, **taken)

    @property
    def _loss_function(self) -> str:
        known = {} if self.rule.card is None else self.rule.card.to_data()
        return "absolute" if known.get("loss_function") == "absolute" else "zero_one"

    def model(self, options: ModelOptions, what: str) -> RejectionModel | None:
        """Return the model asked for: that of the options, or else that of the card."""
        asked = options.at_most_one(what)
        card = self.rule.card
        model = None if card is None else card.model
        if asked is not None or card is None or model is None:
            return asked
        if options.prior is not None and model.ood_prior is not None:
            model = RejectionModel.from_data(model.to_data() | {"ood_prior": options.prior})
        if card.ood == "worst":
            model = _of_every_set(model)
        bounds = [bound_text(model, bound) for bound in model.bounds if not bound.is_trivial]
        note(f"from the card of {self.path}: {' and '.join(bounds) or sentence(model)}")
        return model

    def share_of_tuning_rows(self, sample: Sample) -> float:
        """Return which share of a sample made the rule, 0 where that may be chance.

        Rows of rounded scores are alike by chance: about as often as rows that made the rule are
        alike among themselves. Only what goes beyond that counts, or the very same rows.
        """
        mark = None if self.rule.card is None else self.rule.card.fingerprint
        if mark is None or len(self.names) != sample.n_scores:
            return 0.0
        seen = mark.overlap(sample)
        if seen.same:
            return 1.0
        alike = min(1.0, 2 * (1 - mark.distinct))
        if seen.rows < _FEWEST or alike >= 1:
            return 0.0
        noise = max(alike, 1 / seen.rows)
        limit = alike + max(_CHANCE, 4 * math.sqrt(noise * (1 - noise) / seen.rows))
        return seen.share if seen.share > limit else 0.0

    def warn_of_tuning_rows(self, sample: Sample) -> float:
        """Warn if rows that made the rule judge it; return their share."""
        share = self.share_of_tuning_rows(sample)
        if share:
            caution(
                f"{_share_text(share)} made the rule, so the numbers are optimistic: judge it on "
                "other rows"
            )
        return share

    def refuse_tuning_rows(self, sample: Sample, *, allow: bool) -> float:
        """Refuse a promise that rests on rows that made the rule, unless it is allowed."""
        share = self.share_of_tuning_rows(sample)
        if share and not allow:
            raise InvalidInputError(
                f"{_share_text(share)} made the rule, and a promise needs rows that did not: give "
                "fresh rows, or tune with --guarantee; --allow-tuning-rows goes on all the same"
            )
        return self.warn_of_tuning_rows(sample) if share else share

    def ranges(self) -> SeenRanges:
        """Return the ranges of the scores that the card knows, to hold live scores against."""
        card, rule = self.rule.card, self.rule
        known = {} if card is None else card.ranges
        # Columns may be called by other names here; their order is the rule's.
        ends = [_ends(sides) for sides in known.values()]
        if len(ends) != len(rule.direction):
            ends = [None] * len(rule.direction)
        return SeenRanges(self.names, ends)


def _share_text(share: float) -> str:
    return "these rows" if share > 0.999 else f"about {share:.0%} of these rows"


def _has_column(path: str | None, name: str) -> bool:
    from demur.sources.files import find_partitions, hive_columns, is_partitioned, table_columns

    if path is None:
        return False
    if is_partitioned(path) and name in hive_columns(find_partitions(path).files[0]):
        return True
    return name in table_columns(path)


def _of_every_set(model: RejectionModel) -> RejectionModel:
    bounds = [
        replace(b, ood_set=EACH_SET) if b.quantity in ("fpr", "precision") else b
        for b in model.bounds
    ]
    return RejectionModel(model.objective, bounds, model.ood_prior)


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

    def __init__(self, names: tuple[str, ...], ends: list[_ScoreRange | None]) -> None:
        self._names, self._ends = names, ends
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
