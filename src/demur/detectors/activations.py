"""What detectors work on: what a network leaves behind for a batch, checked once.

Also the shape that detectors share which learn from such activations before they score.

Logits, features, scores and options are read from arrays, tensors of other libraries, numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from demur import _arrays
from demur._arrays import FloatArray, check_kind
from demur.errors import InvalidInputError, NotTunedError


def as_scores(
    values: Any, activations: Any = None, *, name: str = "scores", length: int | None = None
) -> FloatArray:
    """Return any library's scores as a float64 vector in which higher means more doubt.

    Parameters
    ----------
    values
        Anything array-like of shape (n,) or (n, 1), a tensor on any device, or a callable that
        returns one of these for `activations`. The order is taken as it is: negate a confidence
        before handing it in. +inf is legal ("always reject"); NaN and -inf are refused.
    activations
        What a callable is called with.
    name
        How error messages call the scores.
    length
        Expected number of rows.

    Examples
    --------
    >>> as_scores([1, 2.5])
    array([1. , 2.5])
    >>> as_scores(lambda rows: [row[0] for row in rows], [(3, 4), (5, 6)])
    array([3., 5.])
    """
    if callable(values):
        values = values(activations)
    array = _arrays.real_array(name, to_cpu(values))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    scores = _arrays.real_vector(name, array, length=length)
    _arrays.refuse(name, scores, np.isneginf(scores), "is -inf (only +inf is a legal score)")
    return scores


def to_cpu(values: Any) -> Any:
    """Bring a tensor to where NumPy can read it; leave everything else alone."""
    if not hasattr(values, "detach"):
        return values
    tensor = values.detach().cpu()
    # NumPy has no bfloat16; float32 holds all of its values.
    return tensor.float() if "bfloat16" in str(tensor.dtype) else tensor


def finite_matrix(
    name: str, values: Any, *, rows: int | None = None, columns: int | None = None
) -> FloatArray:
    """Return a finite (rows, columns) float64 matrix, not copied when it already is one."""
    source = to_cpu(values)
    if isinstance(source, np.ndarray) and source.dtype == np.float64:
        array = np.ascontiguousarray(source)
    else:
        array = _arrays.real_array(name, source)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InvalidInputError(f"{name} must be a matrix, one row each; got shape {array.shape}")
    for axis, (expected, what) in enumerate([(rows, "rows"), (columns, "columns")]):
        if expected is not None and array.shape[axis] != expected:
            raise InvalidInputError(
                f"{name} has {array.shape[axis]} {what}, expected {expected} (shape {array.shape})"
            )
    _arrays.refuse(name, array, ~np.isfinite(array).all(axis=1), "is not finite")
    return array


def finite_vector(name: str, values: Any, *, length: int | None = None) -> FloatArray:
    """Return a finite float64 vector."""
    array = _arrays.real_vector(name, to_cpu(values), length=length)
    _arrays.refuse(name, array, np.isinf(array), "is infinite")
    return array


def number(name: str, value: Any, allowed: Callable[[float], bool], what: str) -> float:
    """Return a finite real option that is `allowed`; `what` says which are."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not math.isfinite(value)
        or not allowed(float(value))
    ):
        raise InvalidInputError(f"{name} must be {what}, got {value!r}")
    return float(value)


def positive(name: str, value: Any) -> float:
    """Return an option that must be a positive number."""
    return number(name, value, lambda x: x > 0, "a positive number")


def percentile(name: str, value: Any) -> float:
    """Return an option that must lie between 0 and 100."""
    return number(name, value, lambda x: 0 <= x <= 100, "between 0 and 100")


def whole(name: str, value: Any, *, least: int) -> int:
    """Return an option that must be a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


State = TypeVar("State")


@dataclass(frozen=True, slots=True, eq=False)
class Activations:
    """The arrays from which every detector of the catalog can score, checked once.

    Parameters
    ----------
    logits
        Shape (n, K). Computed as ``features @ weight.T + bias`` when left out and possible.
    features
        Shape (n, d), optional: the input of the head (penultimate activations).
    weight, bias
        The linear head, shapes (K, d) and (K,), optional; a head without `bias` has bias zero.
    labels
        Shape (n,), optional: true classes of any kind, needed to fit class-wise detectors.

    Examples
    --------
    >>> Activations(features=[[1, 0], [2, 1]], weight=[[1, 0], [0, 1], [1, 1]]).logits
    array([[1., 0., 1.],
           [2., 1., 3.]])
    """

    logits: FloatArray | None = None
    features: FloatArray | None = None
    weight: FloatArray | None = None
    bias: FloatArray | None = None
    labels: npt.NDArray[Any] | None = None

    def __post_init__(self) -> None:
        logits, features, weight, bias = self.logits, self.features, self.weight, self.bias
        if features is not None:
            features = finite_matrix("features", features)
        if weight is not None:
            columns = None if features is None else features.shape[1]
            weight = finite_matrix("weight", weight, columns=columns)
            zero = np.zeros(len(weight))
            bias = zero if bias is None else finite_vector("bias", bias, length=len(weight))
        elif bias is not None:
            raise InvalidInputError("bias is given without weight: the head needs both")
        if logits is not None:
            rows = None if features is None else len(features)
            columns = None if weight is None else len(weight)
            logits = finite_matrix("logits", logits, rows=rows, columns=columns)
        elif features is not None and weight is not None and bias is not None:
            logits = features @ weight.T + bias
        if logits is None and features is None:
            raise InvalidInputError("Activations needs logits, features or both")
        self._store(logits=logits, features=features, weight=weight, bias=bias)
        if self.labels is not None:
            labels = _arrays.labels("labels", to_cpu(self.labels), length=len(self))
            self._store(labels=labels)

    def _store(self, **arrays: npt.NDArray[Any] | None) -> None:
        for name, array in arrays.items():
            given = getattr(self, name)
            if array is not None:
                # Locking a caller's own array would not keep it from changing: copy it first.
                shared = isinstance(given, np.ndarray) and np.may_share_memory(array, given)
                array = array.copy() if shared else array
                array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        for array in (self.logits, self.features):
            if array is not None:
                return len(array)
        return 0

    def part(self, name: str) -> npt.NDArray[Any]:
        """Return the named array, or say that it is missing.

        Examples
        --------
        >>> Activations(logits=[[1, 2]]).part("logits")
        array([[1., 2.]])
        """
        array: npt.NDArray[Any] | None = getattr(self, name)
        if array is None:
            raise InvalidInputError(
                f"{name} missing: this detector needs Activations(..., {name}=...)"
            )
        return array

    def take(self, rows: Any) -> Activations:
        """Return the activations of some rows (a slice, a mask or row numbers).

        Examples
        --------
        >>> Activations(logits=[[1, 2], [3, 4], [5, 6]]).take(slice(1, 3)).logits
        array([[3., 4.],
               [5., 6.]])
        """
        return Activations(
            logits=None if self.logits is None else self.logits[rows],
            features=None if self.features is None else self.features[rows],
            weight=self.weight,
            bias=self.bias,
            labels=None if self.labels is None else self.labels[rows],
        )

    def __repr__(self) -> str:
        parts = [
            f"{name}={array.shape}"
            for name in ("logits", "features", "weight", "labels")
            if (array := getattr(self, name)) is not None
        ]
        return f"Activations({', '.join(parts)})"


class Detector(Protocol):
    """A detector to fit on ID activations; `fit` returns a fitted copy and changes nothing.

    Examples
    --------
    >>> from demur.detectors import Activations, Knn
    >>> train = Activations(features=[[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> Knn(k=1).fit(train).score(Activations(features=[[1.0, 0.0]]))
    array([0.])
    """

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


def check_activations(name: str, value: Any) -> None:
    """Refuse what has no logits or features to ask for."""
    if not callable(getattr(value, "part", None)):
        check_kind(name, value, Activations)
