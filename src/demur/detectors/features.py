"""Detectors on features: distances to class means, and to the space of the training data."""

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


class _Gaussians(NamedTuple):
    centre: FloatArray
    whitening: FloatArray
    means: FloatArray  # class means, centred and whitened


@dataclass(frozen=True, slots=True)
class Mahalanobis:
    """Squared Mahalanobis distance to the nearest class mean, with one shared covariance.

    ``min_c (h - m_c)' S^+ (h - m_c)`` where S is the covariance within classes. Directions in
    which the training features do not vary are left out (S^+ is the pseudo-inverse).

    Examples
    --------
    >>> train = Activations(features=[[0.0], [2.0], [10.0], [12.0]], labels=["a", "a", "b", "b"])
    >>> Mahalanobis().fit(train).score(Activations(features=[[1.0], [8.0], [-4.0]]))
    array([ 0.,  9., 25.])
    """

    _state: _Gaussians | None = field(default=None, repr=False, compare=False, kw_only=True)

    def fit(self, train: Activations) -> Self:
        """Learn class means and shared covariance from labelled training features."""
        check_activations("train", train)
        return replace(self, _state=_class_gaussians(train, type(self).__name__))

    def score(self, activations: Activations) -> FloatArray:
        """Return the squared distance of each row to its nearest class mean."""
        return _nearest(fitted(self, self._state), activations)


@dataclass(frozen=True, slots=True)
class RelativeMahalanobis:
    """Squared Mahalanobis distance to the nearest class minus that to the data as a whole.

    The second distance uses mean and covariance of all training features without regard to
    class; subtracting it removes what all ID inputs have in common.

    Examples
    --------
    >>> train = Activations(features=[[0.0], [2.0], [10.0], [12.0]], labels=["a", "a", "b", "b"])
    >>> scores = RelativeMahalanobis().fit(train).score(Activations(features=[[1.0], [6.0]]))
    >>> scores.round(4)
    array([-0.9615, 25.    ])
    """

    _state: tuple[_Gaussians, _Gaussians] | None = field(
        default=None, repr=False, compare=False, kw_only=True
    )

    def fit(self, train: Activations) -> Self:
        """Learn class-wise and overall Gaussians from labelled training features."""
        check_activations("train", train)
        classes = _class_gaussians(train, type(self).__name__)
        features = train.part("features")
        mean = features.mean(axis=0, keepdims=True)
        return replace(self, _state=(classes, _gaussians(features, mean, features - mean)))

    def score(self, activations: Activations) -> FloatArray:
        """Return the difference of the two squared distances."""
        classes, overall = fitted(self, self._state)
        return _nearest(classes, activations) - _nearest(overall, activations)


def _class_gaussians(train: Activations, name: str) -> _Gaussians:
    features, labels = train.part("features"), train.part("labels")
    if len(features) == 0:
        raise InvalidInputError(f"{name} needs at least one row of features to fit")
    _, numbers = np.unique(labels, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(numbers.max() + 1))
    sums = np.add.reduceat(features[order], starts, axis=0)
    means = sums / np.bincount(numbers)[:, None]
    return _gaussians(features, means, features - means[numbers])


def _gaussians(features: FloatArray, means: FloatArray, deviations: FloatArray) -> _Gaussians:
    """Whiten by the covariance of the deviations of the features from their means."""
    values, vectors = np.linalg.eigh(deviations.T @ deviations / len(deviations))
    # The usual rank cut-off: smaller eigenvalues are rounding noise of the largest.
    kept = values > values[-1] * len(values) * np.finfo(np.float64).eps
    if not kept.any():
        raise InvalidInputError(
            "the training features do not vary within classes: no covariance to measure with"
        )
    whitening = vectors[:, kept] / np.sqrt(values[kept])
    # Measured from the overall mean, products below lose fewer digits.
    centre = features.mean(axis=0)
    return _Gaussians(centre, whitening, (means - centre) @ whitening)


def _nearest(gaussians: _Gaussians, activations: Activations) -> FloatArray:
    """Return squared distances to the nearest mean, measured from differences."""
    centre, whitening, means = gaussians
    features = finite_matrix("features", activations.part("features"), columns=len(centre))
    white = (features - centre) @ whitening
    half_squares = np.einsum("ij,ij->i", means, means) / 2
    nearest = (half_squares - white @ means.T).argmin(axis=1)
    difference = white - means[nearest]
    return np.asarray(np.einsum("ij,ij->i", difference, difference))


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
