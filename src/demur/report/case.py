"""What a report is about: a tuned rule, its rows, how it was tuned, and how to repeat that."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

import numpy as np

from demur.core.models import RejectionModel
from demur.core.points import Points
from demur.core.program import Number
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.tuning.directions import Directions
from demur.tuning.result import Exact, Grid, Tuning
from demur.tuning.tune import tune


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A tuned rule, the rows it was tuned on, rows held out, and the options of the tuning."""

    sample: Sample
    tuning: Tuning
    held_out: Sample | None = None
    directions: Directions = "nonneg"
    search: Exact | Grid | None = None
    confidence: float = 0.95
    """Of all intervals."""
    max_loss: Number | None = None
    """The largest possible loss, where it is known and not 0/1."""

    def __post_init__(self) -> None:
        if Points.of(self.sample, self.ood).totals != self.tuning.totals:
            raise InvalidInputError("sample is not the one that was tuned on: its totals differ")
        expected = len(self.rule.direction)
        for name, rows in (("sample", self.sample), ("held_out", self.held_out)):
            if rows is not None and rows.n_scores != expected:
                raise InvalidInputError(
                    f"{name} has {rows.n_scores} scores a row, the rule {expected}"
                )

    @property
    def rule(self) -> Rule:
        """The tuned rule."""
        return self.tuning.rule

    @property
    def model(self) -> RejectionModel:
        """What was asked for."""
        return self.tuning.model

    @property
    def ood(self) -> Literal["pooled", "worst"]:
        """Whether bounds hold for all OOD rows together or for every set."""
        return "worst" if len(self.tuning.totals.ood) > 1 else "pooled"

    @property
    def worst(self) -> bool:
        """Whether bounds hold for every OOD set, not for all OOD rows together."""
        return self.ood == "worst"

    @property
    def judged(self) -> Sample:
        """The rows whose numbers count: the held-out ones where there are any."""
        return self.sample if self.held_out is None else self.held_out

    def knows_loss(self, rows: Sample) -> bool:
        """Return whether the largest possible loss is known, so that mean losses are bounded."""
        return is_zero_one(rows) or self.max_loss is not None

    def tune(self, sample: Sample) -> Tuning:
        """Tune other rows in the same way."""
        return tune(
            sample, self.model, directions=self.directions, search=self.search, ood=self.ood
        )

    def command_line(self, given: str | None) -> str:
        """Return the command up to the bounds; words in capitals are to be filled in."""
        words = [given or _placeholder(self.sample)]
        if self.worst:
            words.append("--fpr-of worst")
        if self._says_directions:
            words.append(f"--directions {self.directions}")
        if isinstance(self.search, Grid):
            words.append(f"--grid {self.search.angles}")
        return " ".join(words)

    def python_arguments(self) -> str:
        """Return the arguments of `demur.tune` behind the model."""
        text = f', directions="{self.directions}"' if self._says_directions else ""
        if self.search is not None:
            text += f", search=dm.{self.search!r}"
        return text + (', ood="worst"' if self.worst else "")

    @property
    def _says_directions(self) -> bool:
        # A grid has another default than the exact search.
        return self.directions != "nonneg" or isinstance(self.search, Grid)


def is_zero_one(sample: Sample) -> bool:
    """Return whether the losses say right or wrong."""
    return bool(np.isin(sample.id_loss, (0, 1)).all())


def is_weighted(sample: Sample) -> bool:
    """Return whether rows carry weights, so that there are no exact intervals."""
    return sample.id_weight is not None or sample.ood_weight is not None


def _placeholder(sample: Sample) -> str:
    names = ",".join(sample.score_names) if sample.score_names else "A,B"[: 2 * sample.n_scores - 1]
    ood = " --ood OOD" if sample.n_ood else ""
    return f"demur tune DATA --scores {shlex.quote(names)} --loss LOSS{ood}"
