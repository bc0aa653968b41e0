"""The shape shared by detectors that learn from training activations before they score."""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

from demur._arrays import FloatArray
from demur.detectors.activations import Activations
from demur.errors import NotTunedError

State = TypeVar("State")


class Detector(Protocol):
    """A detector to fit on ID activations; `fit` returns a fitted copy and changes nothing."""

    def fit(self, train: Activations) -> Self:
        """Return a copy of the detector that has learned from `train`."""

    def score(self, activations: Activations) -> FloatArray:
        """Return one doubt a row."""


def fitted(detector: object, state: State | None) -> State:
    """Return what `fit` learned, or say that it was not called."""
    if state is None:
        name = type(detector).__name__
        raise NotTunedError(
            f"{name} is not fitted: keep what fit returns, as in detector = {name}(...).fit(train)"
        )
    return state
