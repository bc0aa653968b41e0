"""Scores of the logits, also of those that reshaped features give when sent through the head again.

The former, and that of the gradient which logits cause in the head (GradNorm), need no training.

Higher = more doubt; float64 throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.detectors.activations import (
    Activations,
    check_activations,
    finite_matrix,
    finite_vector,
    fitted,
    number,
    positive,
    whole,
)
from demur.detectors.activations import percentile as checked_percentile
from demur.errors import InvalidInputError


def msp(logits: Any) -> FloatArray:
    """Return ``1 - max_y softmax(z)_y``, the estimated conditional risk under the 0/1 loss.

    It is computed as the sum of the *other* softmax terms, so confident rows keep their order
    (down to about 1e-300) where ``1 - max`` in floating point would tie at zero.

    Parameters
    ----------
    logits
        Shape (n, K).

    Examples
    --------
    >>> msp([[0.0, 0.0], [100.0, 0.0]])
    array([5.00000000e-01, 3.72007598e-44])
    """
    _, others = _relative_to_top(finite_matrix("logits", logits))
    return others / (1 + others)


def mls(logits: Any) -> FloatArray:
    """Return the negated largest logit, ``-max_y z_y``.

    Examples
    --------
    >>> mls([[1.0, 3.0], [2.0, -1.0]])
    array([-3., -2.])
    """
    return np.asarray(-finite_matrix("logits", logits).max(axis=1))


def energy(logits: Any, temperature: float = 1.0) -> FloatArray:
    """Return the free energy ``-T log sum_y exp(z_y / T)``.

    Examples
    --------
    >>> energy([[0.0, 0.0]]).round(4)
    array([-0.6931])
    """
    t = positive("temperature", temperature)
    return -t * log_sum_exp(finite_matrix("logits", logits) / t)


def entropy(logits: Any) -> FloatArray:
    """Return the entropy of the softmax in nats, ``-sum_y p_y log p_y``.

    Examples
    --------
    >>> entropy([[0.0, 0.0], [50.0, 0.0]]).round(4)
    array([0.6931, 0.    ])
    """
    shifted, others = _relative_to_top(finite_matrix("logits", logits))
    weighted = np.einsum("ij,ij->i", np.exp(shifted), shifted)
    # Both terms are non-negative: no digits cancel however small the entropy is.
    return np.asarray(np.log1p(others) - weighted / (1 + others))


def gen(logits: Any, *, gamma: float = 0.1, top: int = 100) -> FloatArray:
    """Return the generalised entropy ``sum p^gamma (1 - p)^gamma`` of the largest probabilities.

    Parameters
    ----------
    logits
        Shape (n, K).
    gamma
        Exponent; the smaller, the more the small probabilities count.
    top
        How many of the largest probabilities enter; all of them when there are fewer.

    Examples
    --------
    >>> gen([[0.0, 0.0], [9.0, 0.0]]).round(4)
    array([1.7411, 0.8131])
    """
    z = finite_matrix("logits", logits)
    exponent = positive("gamma", gamma)
    keep = min(whole("top", top, least=1), z.shape[1])
    largest = -np.sort(-z, axis=1)[:, :keep]
    total = log_sum_exp(z)
    # In logarithms, because p ** 0.1 is far from zero where p itself has underflowed.
    log_p = largest - total[:, None]
    log_rest = np.empty_like(log_p)
    log_rest[:, 0] = _log_sum_exp_without_top(z) - total
    log_rest[:, 1:] = np.log1p(-np.exp(log_p[:, 1:]))
    return np.asarray(np.exp(exponent * (log_p + log_rest)).sum(axis=1))


def gradnorm(logits: Any, features: Any) -> FloatArray:
    """Return minus the L1 norm of the head's gradient of ``KL(uniform || softmax)``.

    The gradient with respect to the weight is the outer product of ``softmax(z) - 1/K`` and the
    feature h, so its L1 norm is ``||softmax(z) - 1/K||_1 ||h||_1`` and no automatic
    differentiation is needed. Implementations that add the K targets up instead of averaging
    them report K times this value.

    Parameters
    ----------
    logits
        Shape (n, K).
    features
        Shape (n, d): the input of the head.

    Examples
    --------
    >>> gradnorm([[0.0, 0.0], [50.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]])
    array([-0., -3.])
    """
    z = finite_matrix("logits", logits)
    h = finite_matrix("features", features, rows=len(z))
    uneven = np.abs(softmax(z) - 1 / z.shape[1]).sum(axis=1)
    return np.asarray(-uneven * np.abs(h).sum(axis=1))


def log_sum_exp(z: FloatArray) -> FloatArray:
    """Return ``log sum_j exp(z_ij)`` of each row without overflow."""
    _, others = _relative_to_top(z)
    return np.asarray(z.max(axis=1) + np.log1p(others))


def softmax(z: FloatArray) -> FloatArray:
    """Return the softmax of each row."""
    shifted, others = _relative_to_top(z)
    return np.exp(shifted) / (1 + others)[:, None]


def _relative_to_top(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the logits minus the largest, and the sum of exp of all but that one."""
    shifted = z - z.max(axis=1, keepdims=True)
    terms = np.exp(shifted)
    terms[np.arange(len(z)), z.argmax(axis=1)] = 0.0
    return shifted, terms.sum(axis=1)


def _log_sum_exp_without_top(z: FloatArray) -> FloatArray:
    if z.shape[1] == 1:
        return np.full(len(z), -np.inf)
    others = z.copy()
    rows = np.arange(len(z))
    others[rows, z.argmax(axis=1)] = -np.inf
    return log_sum_exp(others)


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
    limit = number("threshold", threshold, lambda _: True, "a finite number")
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
        checked_percentile("percentile", self.percentile)

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
    count = d - round(d * checked_percentile("percentile", percentile) / 100)
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
