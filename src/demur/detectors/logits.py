"""Training-free scores of the logits, and of the gradient they cause in the head (GradNorm).

Higher = more doubt; float64 throughout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from demur._arrays import FloatArray
from demur.detectors.arrays import finite_matrix, positive, whole


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
