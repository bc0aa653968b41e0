"""Losses l(y, h(x)) as vectors, and the Bayes prediction from class probabilities."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from demur import _arrays
from demur._arrays import FloatArray, IntArray
from demur.errors import InvalidInputError

__all__ = [
    "absolute",
    "bayes_prediction",
    "evaluate_loss",
    "from_matrix",
    "zero_one",
]

Loss = str | Callable[[Any, Any], Any] | npt.ArrayLike


def zero_one(y_true: Any, y_pred: Any) -> FloatArray:
    """Return 1 where the prediction is wrong and 0 where it is right.

    Examples
    --------
    >>> zero_one(["cat", "dog"], ["cat", "cat"])
    array([0., 1.])
    """
    true, predicted = _pair(y_true, y_pred)
    return np.asarray(true != predicted, dtype=np.float64)


def absolute(y_true: Any, y_pred: Any) -> FloatArray:
    """Return ``|y_true - y_pred|``, the loss behind the mean absolute error.

    Examples
    --------
    >>> absolute([30, 41], [32, 41])
    array([2., 0.])
    """
    true = _arrays.real_vector("y_true", y_true)
    return np.abs(true - _arrays.real_vector("y_pred", y_pred, length=len(true)))


def from_matrix(matrix: npt.ArrayLike, y_true: Any, y_pred: Any) -> FloatArray:
    """Return ``matrix[y_true, y_pred]``; labels are the row and column numbers.

    Examples
    --------
    >>> from_matrix([[0, 5], [1, 0]], [0, 1], [1, 0])
    array([5., 1.])
    """
    costs = _arrays.cost_matrix("loss", matrix)
    true, predicted = _pair(y_true, y_pred)
    rows = _class_numbers("y_true", true, len(costs))
    return np.asarray(costs[rows, _class_numbers("y_pred", predicted, len(costs))])


def evaluate_loss(loss: Loss, y_true: Any, y_pred: Any) -> FloatArray:
    """Return the losses of `y_pred` under a named, tabulated or callable loss.

    Parameters
    ----------
    loss
        ``"zero_one"``, ``"absolute"``, a square cost matrix (true class x predicted class)
        or a callable ``loss(y_true, y_pred)`` returning one loss a row.

    Examples
    --------
    >>> evaluate_loss("zero_one", [0, 1, 2], [0, 2, 2])
    array([0., 1., 0.])
    >>> evaluate_loss([[0, 5], [1, 0]], [0, 1], [1, 1])
    array([5., 0.])
    """
    if isinstance(loss, str):
        if loss not in _NAMED:
            raise InvalidInputError(
                f"loss {loss!r} is unknown; use one of {sorted(_NAMED)}, a cost matrix "
                "or a callable"
            )
        return _NAMED[loss](y_true, y_pred)
    if callable(loss):
        true, predicted = _pair(y_true, y_pred)
        return _arrays.nonnegative_vector(
            "loss(y_true, y_pred)", loss(true, predicted), length=len(true)
        )
    return from_matrix(loss, y_true, y_pred)


def bayes_prediction(
    probabilities: Any, loss: npt.ArrayLike | None = None
) -> tuple[IntArray, FloatArray]:
    """Return the Bayes prediction and its expected loss from class probabilities.

    The prediction minimises ``sum_y p(y|x) l(y, y')``; the minimum is the plug-in conditional
    risk r(x) and so the natural risk score. Only under the 0/1 loss (`loss` None) it is one
    minus the largest probability.

    Parameters
    ----------
    probabilities
        Shape (n, classes), rows adding up to one.
    loss
        Cost matrix, true class x predicted class; None means the 0/1 loss.

    Examples
    --------
    >>> prediction, risk = bayes_prediction([[0.6, 0.4]], [[0, 1], [3, 0]])
    >>> prediction, risk
    (array([1]), array([0.6]))
    """
    p = _arrays.probability_matrix("probabilities", probabilities)
    if loss is None:
        prediction = p.argmax(axis=1)
        # Adding up the other classes keeps the digits that 1 - max would round away.
        others = p.copy()
        others[np.arange(len(p)), prediction] = 0.0
        return prediction.astype(np.int64), others.sum(axis=1)
    costs = _arrays.cost_matrix("loss", loss)
    if len(costs) != p.shape[1]:
        raise InvalidInputError(
            f"loss is for {len(costs)} classes, probabilities have {p.shape[1]} columns"
        )
    expected = p @ costs
    prediction = expected.argmin(axis=1)
    return prediction.astype(np.int64), expected[np.arange(len(p)), prediction]


def _pair(y_true: Any, y_pred: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    true = _arrays.labels("y_true", y_true)
    predicted = _arrays.labels("y_pred", y_pred, length=len(true))
    if len(true):
        check_kinds("y_true", label_kinds(true), "y_pred", label_kinds(predicted))
    return true, predicted


def label_kinds(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Return of which kinds labels are (numbers, text, ...), with an example of each."""
    if values.dtype.kind == "O":
        examples: dict[str, Any] = {}
        for item in values.tolist():
            examples.setdefault(_kind_of(item), item)
        return examples
    first = values[:1].tolist()
    return {_kind_of(first[0]): first[0]} if first else {}


def check_kinds(
    label: str, label_kinds: dict[str, Any], prediction: str, prediction_kinds: dict[str, Any]
) -> None:
    """Refuse labels and predictions of different kinds, of which no two are ever equal.

    The rule for all engines: classes are compared as values, numbers with numbers and text with
    text. The number 1 is not the text "1"; whoever means the same has to say so by a cast.
    """
    if len({*label_kinds, *prediction_kinds}) <= 1:
        return
    said = [
        f"{name} holds " + " and ".join(f"{kind} such as {item!r}" for kind, item in kinds.items())
        for name, kinds in ((label, label_kinds), (prediction, prediction_kinds))
    ]
    raise InvalidInputError(
        f"{', '.join(said)}: labels of different kinds are never equal; make both numbers or both "
        "text"
    )


def _kind_of(item: Any) -> str:
    if isinstance(item, (str, bytes)):
        return "text"
    if isinstance(item, (bool, int, float, np.number, np.bool_, Decimal, Fraction)):
        return "numbers"
    return type(item).__name__


def _class_numbers(name: str, values: npt.NDArray[Any], classes: int) -> IntArray:
    numbers = _arrays.real_vector(name, values)
    bad = (numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= classes)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidInputError(
            f"{name}[{row}] is {values[row]!r}, but the cost matrix has classes 0 to {classes - 1}"
        )
    return numbers.astype(np.int64)


_NAMED: dict[str, Callable[[Any, Any], FloatArray]] = {"zero_one": zero_one, "absolute": absolute}


def __dir__() -> list[str]:
    return __all__
