"""Which columns of a table mean what, and what becomes of rows that lack a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from demur.core.scores import ScoreColumns
from demur.errors import InvalidInputError

LOSSES = ("zero_one", "absolute")
"""Losses of a label and a prediction."""

Missing = Literal["error", "drop"]
"""Rows that lack a value are refused, or left out."""

_SINGLE = ("loss", "label", "prediction", "ood", "weight")


@dataclass(frozen=True, slots=True)
class Roles:
    """Names of columns, with the meaning they have in `Sample.from_frame`."""

    scores: tuple[str, ...]
    loss: str | None = None
    label: str | None = None
    prediction: str | None = None
    loss_function: str = "zero_one"
    ood: str | None = None
    weight: str | None = None
    confidence: tuple[str, ...] = ()
    """Those of the scores in which higher means *less* doubt; their sign is flipped."""

    def __post_init__(self) -> None:
        if len(self.scores) not in (1, 2) or len(set(self.scores)) < len(self.scores):
            raise InvalidInputError(
                f"scores must be one or two different columns, got {list(self.scores)}"
            )
        pair = self.label is not None and self.prediction is not None
        if (self.loss is None) != pair or (
            self.loss is not None and (self.label or self.prediction)
        ):
            raise InvalidInputError("give either loss, or label and prediction")
        if self.loss_function not in LOSSES:
            raise InvalidInputError(
                f"loss_function must be one of {', '.join(LOSSES)}, got {self.loss_function!r}"
            )
        # Refuses a confidence that is none of the scores.
        _ = self.columns

    @property
    def columns(self) -> ScoreColumns:
        """The scores by name, and the sense of each."""
        return ScoreColumns.of(self.scores, confidence=self.confidence, count=len(self.scores))

    def used(self) -> list[tuple[str, str]]:
        """Return the columns with the arguments that name them."""
        named = [(role, getattr(self, role)) for role in _SINGLE]
        return [
            *(("scores", name) for name in self.scores),
            *((role, name) for role, name in named if name is not None),
        ]

    def numeric(self) -> list[tuple[str, str]]:
        """Return those columns that must hold numbers, with the arguments that name them."""
        kinds = {"scores", "loss", "weight"}
        if self.loss_function == "absolute":
            kinds |= {"label", "prediction"}
        return [(role, name) for role, name in self.used() if role in kinds]
