"""Gradient scores that have a closed form in the last layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from demur._arrays import FloatArray
from demur.detectors.arrays import finite_matrix
from demur.detectors.logits import softmax


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
