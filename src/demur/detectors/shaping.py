"""Scores that reshape the features, send them through the head again and take the energy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.detectors import arrays
from demur.detectors.activations import Activations, check_activations, fitted
from demur.detectors.arrays import finite_matrix, finite_vector
from demur.detectors.logits import log_sum_exp
from demur.errors import InvalidInputError

# exp of this times any sensible feature and weight still fits a float64.
_LARGEST_EXPONENT = 500.0


def react(features: Any, weight: Any, bias: Any, threshold: float) -> FloatArray:
    """Return the energy after clipping the features: ``-logsumexp(W min(h, threshold) + b)``.

    Clipping changes the logits and so the predictions; keep the classifier of the unclipped
    network and use this only as a score.

    Parameters
    ----------
    features
        Shape (n, d).
    weight, bias
        The linear head, shapes (K, d) and (K,).
    threshold
        Largest value a feature keeps; `React` learns it.

    Examples
    --------
    >>> react([[1.0, 9.0]], [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], threshold=1.0).round(4)
    array([-1.6931])
    """
    h = finite_matrix("features", features)
    limit = arrays.number("threshold", threshold, lambda _: True, "a finite number")
    return _energy(np.minimum(h, limit), weight, bias)


@dataclass(frozen=True, slots=True)
class React:
    """ReAct with its threshold learned: one percentile over all units of all ID features.

    Parameters
    ----------
    percentile
        In per cent. Fit on ID data, best on data the network was not trained on.

    Examples
    --------
    >>> ones = Activations(features=[[0.0, 1.0], [2.0, 3.0]], weight=[[1.0, 1.0]])
    >>> React(percentile=50).fit(ones).threshold
    1.5
    """

    percentile: float = 90.0
    _state: float | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        arrays.percentile("percentile", self.percentile)

    @property
    def threshold(self) -> float:
        """The learned clipping threshold."""
        return fitted(self, self._state)

    def fit(self, train: Activations) -> Self:
        """Learn the threshold from ID features."""
        check_activations("train", train)
        features = train.part("features")
        if len(features) == 0:
            raise InvalidInputError("React needs at least one row of features to fit")
        return replace(self, _state=float(np.percentile(features, self.percentile)))

    def score(self, activations: Activations) -> FloatArray:
        """Return `react` of the features at the learned threshold."""
        return react(
            activations.part("features"),
            activations.part("weight"),
            activations.part("bias"),
            self.threshold,
        )


def ash(
    features: Any,
    weight: Any,
    bias: Any,
    *,
    percentile: float = 90.0,
    variant: Literal["s", "b", "p"] = "s",
) -> FloatArray:
    """Return the energy after activation shaping: only the largest features of a row survive.

    Parameters
    ----------
    features
        Shape (n, d), non-negative: activations after a ReLU.
    weight, bias
        The linear head, shapes (K, d) and (K,).
    percentile
        Share of each row's features set to zero, in per cent.
    variant
        What happens to the survivors: ``"s"`` multiplies them by exp(sum before / sum after),
        ``"b"`` gives all of them the same value and keeps the sum (OpenOOD's choice),
        ``"p"`` leaves them alone.

    Examples
    --------
    >>> ash([[1.0, 3.0]], [[1.0, 1.0]], [0.0], percentile=50, variant="b")
    array([-4.])
    """
    h, kept = _keep_largest(features, percentile)
    if variant == "s":
        shaped = np.where(kept, h, 0.0) * _sharpening(h, kept)
    elif variant == "b":
        shaped = kept * (h.sum(axis=1) / kept.sum(axis=1))[:, None]
    elif variant == "p":
        shaped = np.where(kept, h, 0.0)
    else:
        raise InvalidInputError(f"variant must be 's', 'b' or 'p', got {variant!r}")
    return _energy(shaped, weight, bias)


def scale(features: Any, weight: Any, bias: Any, *, percentile: float = 85.0) -> FloatArray:
    """Return the energy after SCALE: all features times exp(sum / sum of the largest).

    Parameters
    ----------
    features
        Shape (n, d), non-negative: activations after a ReLU.
    weight, bias
        The linear head, shapes (K, d) and (K,).
    percentile
        Share of each row's features left out of the second sum, in per cent.

    Examples
    --------
    >>> scale([[1.0, 1.0]], [[1.0, 1.0]], [0.0], percentile=50).round(4)
    array([-14.7781])
    """
    h, kept = _keep_largest(features, percentile)
    return _energy(h * _sharpening(h, kept), weight, bias)


def _keep_largest(features: Any, percentile: float) -> tuple[FloatArray, BoolArray]:
    """Return the features and a mask of each row's largest; of equals the first is kept."""
    h = finite_matrix("features", features)
    if (h < 0).any():
        row = int(np.flatnonzero((h < 0).any(axis=1))[0])
        raise InvalidInputError(
            f"features[{row}] has a negative entry: ASH and SCALE compare sums of activations "
            "and are defined after a ReLU only"
        )
    d = h.shape[1]
    count = d - round(d * arrays.percentile("percentile", percentile) / 100)
    if count == 0:
        raise InvalidInputError(f"percentile={percentile} keeps none of the {d} features")
    kept = np.zeros(h.shape, dtype=np.bool_)
    largest = np.argsort(-h, axis=1, kind="stable")[:, :count]
    np.put_along_axis(kept, largest, True, axis=1)
    return h, kept


def _sharpening(h: FloatArray, kept: BoolArray) -> FloatArray:
    """Return exp(sum of all / sum of the kept) of each row, a column."""
    whole, part = h.sum(axis=1), h.sum(axis=1, where=kept)
    # A row of zeros stays zero whatever it is multiplied by.
    ratio = np.divide(whole, part, out=np.ones_like(whole), where=part > 0)
    return np.asarray(np.exp(np.minimum(ratio, _LARGEST_EXPONENT))[:, None])


def _energy(features: FloatArray, weight: Any, bias: Any) -> FloatArray:
    w = finite_matrix("weight", weight, columns=features.shape[1])
    return -log_sum_exp(features @ w.T + finite_vector("bias", bias, length=len(w)))
