"""Detectors on features: distances to class means, to the training data's space, to neighbours.

Nearest neighbours among unit vectors are exact, and found in blocks of bounded memory.
"""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from demur._arrays import FloatArray, IntArray
from demur.detectors.activations import Activations, check_activations, finite_matrix, fitted, whole
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
            whole("dimension", self.dimension, least=0)

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


_BLOCK = 2**23  # entries of a temporary matrix
_FAISS_ROWS = 1_000_000  # below this the blocked product is faster than a flat faiss index
_FAISS_SPARE = 64


@dataclass(slots=True, eq=False)
class _Bank:
    """Unit rows to search among; what is derived from them for speed is derived once."""

    rows: FloatArray
    single: npt.NDArray[np.float32]
    half_norm: npt.NDArray[np.float32]
    _faiss: Any = None

    @classmethod
    def of(cls, rows: FloatArray) -> Self:
        half_norm = np.where(rows.any(axis=1), 0.5, 0.0).astype(np.float32)
        return cls(rows, rows.astype(np.float32), half_norm)

    def faiss_index(self) -> Any:
        """Return the flat faiss index over the rows, which is built when it is first needed."""
        if self._faiss is None:
            index = importlib.import_module("faiss").IndexFlatL2(self.rows.shape[1])
            index.add(self.single)
            self._faiss = index
        return self._faiss

    def __getstate__(self) -> FloatArray:
        return self.rows

    def __setstate__(self, rows: FloatArray) -> None:
        # An index belongs to its process: it is built anew, like all that follows from the rows.
        fresh = type(self).of(rows)
        self.rows, self.single, self.half_norm = fresh.rows, fresh.single, fresh.half_norm
        self._faiss = None


@dataclass(frozen=True, slots=True)
class Knn:
    """Distance to the k-th nearest training feature, both scaled to unit length.

    The distance is Euclidean, not squared: for one score that makes no difference, for a pair
    of scores it does. A zero feature stays zero, so it is at distance 1 from every other one.

    Parameters
    ----------
    k
        Which neighbour. Fit on training features computed with the transforms of test time.

    Examples
    --------
    >>> bank = Activations(features=[[1.0, 0.0], [0.0, 2.0]])
    >>> Knn(k=1).fit(bank).score(Activations(features=[[3.0, 0.0], [1.0, 1.0]])).round(4)
    array([0.    , 0.7654])
    """

    k: int = 50
    _state: _Bank | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        whole("k", self.k, least=1)

    def fit(self, train: Activations) -> Self:
        """Keep the training features as the bank."""
        check_activations("train", train)
        rows = unit_rows(train.part("features"))
        if self.k > len(rows):
            raise InvalidInputError(
                f"k={self.k} neighbours are asked for, but the bank has {len(rows)} rows"
            )
        return replace(self, _state=_Bank.of(rows))

    def score(self, activations: Activations) -> FloatArray:
        """Return the distance of each row to its k-th neighbour in the bank."""
        bank = fitted(self, self._state)
        queries = finite_matrix(
            "features", activations.part("features"), columns=bank.rows.shape[1]
        )
        return kth_distance(unit_rows(queries), bank, self.k)


def unit_rows(features: FloatArray) -> FloatArray:
    """Return the rows scaled to length one; zero rows stay zero."""
    # Dividing by the largest entry first keeps the squares from overflowing or vanishing.
    largest = np.abs(features).max(axis=1, keepdims=True)
    scaled = features / np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


def kth_distance(queries: FloatArray, bank: _Bank, k: int) -> FloatArray:
    """Return the Euclidean distance of each unit row to the k-th nearest row of the bank."""
    if len(bank.rows) > _FAISS_ROWS and importlib.util.find_spec("faiss") is not None:
        return _faiss_kth(queries, bank, k)
    result = np.empty(len(queries))
    step = max(1, _BLOCK // len(bank.rows))
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        result[start : start + step] = _block_kth(block, bank, k)
    return result


def _block_kth(queries: FloatArray, bank: _Bank, k: int) -> FloatArray:
    """Rank in float32, then settle every rank that rounding could have changed in float64."""
    keys = queries.astype(np.float32) @ bank.single.T
    np.subtract(bank.half_norm, keys, out=keys)  # half the squared distance, up to a constant
    smallest = np.partition(keys, k - 1, axis=1)[:, :k]
    kth = smallest[:, -1:]
    # Twice the rounding error of a float32 inner product of d terms between unit vectors: rows
    # farther than this from the k-th key are on the right side of it for certain.
    band = np.float32(2.2 * (queries.shape[1] + 8) * 2.0**-24)
    surely_nearer = np.count_nonzero(smallest < kth - band, axis=1)
    rows, columns = np.divmod(np.flatnonzero(keys <= kth + band), keys.shape[1])
    open_rank = keys[rows, columns] >= kth[rows, 0] - band
    rows, columns = rows[open_rank], columns[open_rank]
    squares = _squared_distances(queries, bank.rows, rows, columns)
    order = np.lexsort((squares, rows))
    first = np.searchsorted(rows, np.arange(len(queries)))
    wanted = first + (k - 1) - surely_nearer
    return np.asarray(np.sqrt(squares[order][wanted]))


def _squared_distances(
    queries: FloatArray, bank: FloatArray, rows: IntArray, columns: IntArray
) -> FloatArray:
    """Return squared distances of pairs, from differences: no cancellation, never negative."""
    squares = np.empty(len(rows))
    step = max(1, _BLOCK // bank.shape[1])
    for start in range(0, len(rows), step):
        pairs = slice(start, start + step)
        difference = queries[rows[pairs]] - bank[columns[pairs]]
        squares[pairs] = np.einsum("ij,ij->i", difference, difference)
    return squares


def _faiss_kth(queries: FloatArray, bank: _Bank, k: int) -> FloatArray:
    """Let faiss shortlist in float32 and measure the shortlist in float64."""
    count = min(k + _FAISS_SPARE, len(bank.rows))
    _, columns = bank.faiss_index().search(queries.astype(np.float32), count)
    rows = np.repeat(np.arange(len(queries)), count)
    squares = _squared_distances(queries, bank.rows, rows, columns.ravel())
    return np.asarray(np.sqrt(np.sort(squares.reshape(-1, count), axis=1)[:, k - 1]))
