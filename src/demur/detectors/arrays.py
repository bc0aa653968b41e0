"""Reading logits, features, scores and options: arrays, tensors of other libraries, numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray
from demur.errors import InvalidInputError


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
