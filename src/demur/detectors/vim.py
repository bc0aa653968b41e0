"""Virtual-logit matching: what a feature has outside the principal space of the training data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import numpy as np

from demur._arrays import FloatArray
from demur.detectors import arrays
from demur.detectors.activations import Activations, check_activations, fitted
from demur.detectors.arrays import finite_matrix
from demur.detectors.logits import log_sum_exp
from demur.errors import InvalidInputError

# Relative to the feature's length; below it the residual is rounding noise.
_NO_RESIDUAL = 1e-10


class _Space(NamedTuple):
    origin: FloatArray
    residual: FloatArray
    alpha: float


@dataclass(frozen=True, slots=True)
class Vim:
    """ViM: ``alpha ||R (h - u)|| - logsumexp(z)``.

    u = -pinv(W) b is the point that the head maps to zero logits (as nearly as possible), R
    projects on the complement of the leading principal directions about u, and alpha = mean
    largest logit / mean residual norm, both on training data.

    Parameters
    ----------
    dimension
        Number of principal directions to drop. None means 1000 for features of 2048 or more
        dimensions, 512 for 768 or more, otherwise half of them.

    Examples
    --------
    >>> head = [[1.0, 0.0], [0.0, 1.0]]
    >>> train = Activations(features=[[2.0, 0.1], [3.0, -0.1]], weight=head)
    >>> rows = Activations(features=[[2.0, 0.0], [2.0, 2.0]], weight=head)
    >>> Vim(dimension=1).fit(train).score(rows) > 0
    array([False,  True])
    """

    dimension: int | None = None
    _state: _Space | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.dimension is not None:
            arrays.whole("dimension", self.dimension, least=0)

    @property
    def alpha(self) -> float:
        """The learned factor that brings residual norms to the scale of the logits."""
        return fitted(self, self._state).alpha

    def fit(self, train: Activations) -> Self:
        """Learn origin, residual space and alpha from training activations with their head."""
        check_activations("train", train)
        features, weight = train.part("features"), train.part("weight")
        if len(features) == 0:
            raise InvalidInputError("Vim needs at least one row of features to fit")
        dropped = self._dropped(features.shape[1])
        origin = -np.linalg.pinv(weight) @ train.part("bias")
        centred = features - origin
        _, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
        residual = vectors[:, : features.shape[1] - dropped]  # eigenvalues come ascending
        norm = float(_norms(centred @ residual).mean())
        if norm <= _NO_RESIDUAL * float(_norms(centred).mean()):
            raise InvalidInputError(
                f"the training features have no residual outside their {dropped} principal "
                "directions; choose a smaller dimension"
            )
        largest = float(train.part("logits").max(axis=1).mean())
        if largest <= 0:
            raise InvalidInputError(
                f"the mean largest training logit is {largest:.3g}: ViM scales the residual by "
                "it and needs it positive"
            )
        return replace(self, _state=_Space(origin, residual, largest / norm))

    def _dropped(self, d: int) -> int:
        default = 1000 if d >= 2048 else 512 if d >= 768 else d // 2
        dropped = default if self.dimension is None else self.dimension
        if dropped >= d:
            raise InvalidInputError(
                f"dimension={dropped} principal directions cannot be dropped from features of "
                f"{d} dimensions: nothing would remain"
            )
        return dropped

    def score(self, activations: Activations) -> FloatArray:
        """Return the scaled residual norm minus the log-sum-exp of the logits."""
        space = fitted(self, self._state)
        features = finite_matrix(
            "features", activations.part("features"), columns=len(space.origin)
        )
        residual = (features - space.origin) @ space.residual
        return space.alpha * _norms(residual) - log_sum_exp(activations.part("logits"))


def _norms(rows: FloatArray) -> FloatArray:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))
