"""Array aliases, and the only place that coerces and checks what users hand in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


P = ParamSpec("P")
R = TypeVar("R")
Kinds = type | tuple[type, ...]

# Decimals are what the command line reads, and no Real to Python.
NUMBER: Kinds = (Real, Decimal)
WHOLE: Kinds = Integral

_NAMES: dict[type, str] = {
    Real: "a number",
    Decimal: "a number",
    Integral: "a whole number",
}
_HINTS = {
    "Rule": "a tuning has its rule in tuning.rule",
    "Sample": "make one with Sample(id_scores, id_loss, ood_scores) or Sample.from_frame",
    "Activations": "make one with Activations(logits=..., features=...)",
}

_HINT_OF_A_SOURCE = (
    ", whose rows stay where they are: demur.core.row_draws.bring(source, 100_000) makes a Sample "
    "of them, or of so many of them, drawn by a hash"
)


def takes(**kinds: Kinds) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse arguments of another kind than these; None is taken where it is the default."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = list(signature(function).parameters.values())
        names = [p.name for p in parameters]
        optional = {p.name for p in parameters if p.default is None}

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            given = dict(zip(names, args, strict=False)) | kwargs
            for name, kind in kinds.items():
                if name in given and not (given[name] is None and name in optional):
                    check_kind(name, given[name], kind)
            return function(*args, **kwargs)

        return checked

    return decorate


def check_kind(name: str, value: Any, kinds: Kinds) -> None:
    """Refuse a value of another kind."""
    if isinstance(value, kinds) and not (isinstance(value, bool) and kinds in (NUMBER, WHOLE)):
        return
    every = kinds if isinstance(kinds, tuple) else (kinds,)
    wanted = " or ".join(dict.fromkeys(_NAMES.get(kind, f"a {kind.__name__}") for kind in every))
    hint = next((f": {_HINTS[k.__name__]}" for k in every if k.__name__ in _HINTS), "")
    if hint and callable(getattr(value, "overview", None)):
        hint = _HINT_OF_A_SOURCE
    shown = repr(value) if isinstance(value, str) else type(value).__name__
    raise InvalidInputError(f"{name} must be {wanted}, got {shown}{hint}")


def seeded(rng: Any) -> np.random.Generator:
    """Return the generator that a seed stands for."""
    try:
        return np.random.default_rng(rng)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"rng must be a whole number >= 0, a numpy Generator or None, got {rng!r}: {error}"
        ) from None


def real_vector(name: str, values: Any, *, length: int | None = None) -> FloatArray:
    """Return `values` as a fresh float64 vector without NaN."""
    array = real_array(name, values)
    if array.ndim != 1:
        raise InvalidInputError(f"{name} must be one-dimensional, got shape {array.shape}")
    if length is not None and len(array) != length:
        raise InvalidInputError(f"{name} has {len(array)} rows, expected {length}")
    refuse(name, array, np.isnan(array), "is NaN")
    return array


def nonnegative_vector(name: str, values: Any, *, length: int | None = None) -> FloatArray:
    """Return `values` as a vector of finite numbers that are at least zero."""
    array = real_vector(name, values, length=length)
    refuse(name, array, np.isinf(array), "is infinite")
    refuse(name, array, array < 0, "is negative")
    return array


def score_matrix(
    name: str, values: Any, *, columns: int | None = None, strict: bool = True
) -> FloatArray:
    """Return scores as an (n, k) float64 matrix, k >= 1; +inf is a legal score.

    Unless `strict`, values that are no scores (NaN, -inf) stay.
    """
    array = real_array(name, values)
    if array.ndim == 1:
        array = array.reshape(-1, columns or 1) if array.size == 0 else array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise InvalidInputError(
            f"{name} must hold the scores of a row, shape (n,) or (n, k); got shape {array.shape}"
        )
    if columns is not None and array.shape[1] != columns:
        raise InvalidInputError(
            f"{name} has {_scores(array.shape[1])} a row, expected {_scores(columns)}"
        )
    if strict:
        refuse_scores(name, array, range(array.shape[1]))
    return array


def refuse_scores(name: str, array: FloatArray, columns: Sequence[int] | range) -> None:
    """Refuse rows that lack a score in one of the columns."""
    looked = array[:, list(columns)]
    refuse(name, array, np.isnan(looked).any(axis=1), "is NaN")
    infinite = np.isneginf(looked).any(axis=1)
    refuse(name, array, infinite, "is -inf (only +inf is a legal score)")


def labels(name: str, values: Any, *, length: int | None = None) -> npt.NDArray[Any]:
    """Return class labels (of any comparable kind) as a vector without missing values."""
    array = plain_array(name, values)
    if array.ndim != 1:
        raise InvalidInputError(f"{name} must be one-dimensional, got shape {array.shape}")
    if length is not None and len(array) != length:
        raise InvalidInputError(f"{name} has {len(array)} rows, expected {length}")
    if array.dtype.kind == "f":
        refuse(name, array, np.isnan(array), "is NaN")
    if array.dtype.kind == "O":
        refuse(name, array, np.array([item is None for item in array], bool), "is missing")
    return array


def probability_matrix(name: str, values: Any) -> FloatArray:
    """Return class probabilities as an (n, classes) matrix whose rows add up to one."""
    array = real_array(name, values)
    if array.ndim != 2 or array.shape[1] == 0:
        raise InvalidInputError(f"{name} must have shape (n, classes), got {array.shape}")
    refuse(name, array, ~np.isfinite(array).all(axis=1), "is not finite")
    refuse(name, array, (array < 0).any(axis=1), "is negative")
    # Softmax rows in float32 add up to one only to about 1e-6.
    refuse(name, array, np.abs(array.sum(axis=1) - 1) > 1e-4, "does not add up to one")
    return array


def cost_matrix(name: str, values: Any) -> FloatArray:
    """Return a square matrix of losses, rows = true class, columns = predicted class."""
    array = real_array(name, values)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise InvalidInputError(
            f"{name} must be square (true class x predicted class), got shape {array.shape}"
        )
    refuse(name, array, ~np.isfinite(array).all(axis=1), "is not finite")
    refuse(name, array, (array < 0).any(axis=1), "is negative")
    return array


def real_array(name: str, values: Any) -> FloatArray:
    """Coerce to float64, refusing text, complex numbers and ragged lists."""
    array = plain_array(name, values)
    if array.dtype.kind not in "biufO":
        raise InvalidInputError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.dtype.kind == "O":
        return _from_objects(name, array)
    return np.array(array, dtype=np.float64, order="C")


def plain_array(name: str, values: Any) -> npt.NDArray[Any]:
    """Return an array of any kind; what a mask hides is missing, not the value below it."""
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        # A tensor that takes part in training, or lives on a device.
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidInputError(f"{name} cannot be read as an array: {error}") from None
    # Asking NumPy for its masked arrays imports them, for plain arrays needlessly.
    if type(values) is np.ndarray or not isinstance(values, np.ndarray):
        return array
    if not np.ma.isMaskedArray(values) or not np.ma.getmaskarray(values).any():
        return array
    if array.dtype.kind in "biuf":
        return np.where(np.ma.getmaskarray(values), np.nan, array.astype(np.float64))
    objects = array.astype(object)
    objects[np.ma.getmaskarray(values)] = None
    return objects


def _from_objects(name: str, array: npt.NDArray[Any]) -> FloatArray:
    """Coerce an object array, which may hide text or None, row by row in the message."""
    flat = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
    for row, items in enumerate(flat):
        for item in items:
            if isinstance(item, (str, bytes)) or not _is_number(item):
                raise InvalidInputError(f"{name}[{row}] is {item!r}, not a number")
    return array.astype(np.float64)


def _is_number(item: Any) -> bool:
    try:
        float(item)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def refuse(name: str, array: npt.NDArray[Any], bad: Any, what: str) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        row, count = int(rows[0]), len(rows)
        more = f" (and {count - 1} more rows)" if count > 1 else ""
        shown = np.array2string(array[row]) if array.ndim > 1 else repr(array.tolist()[row])
        raise InvalidInputError(f"{name}[{row}] {what}: {shown}{more}")


def data_frame(columns: Mapping[str, Any], backend: str | None) -> Any:
    """Return columns as a frame of pandas or Polars; by default of whichever is installed."""
    from importlib.util import find_spec

    import narwhals as nw

    if backend is None:
        found = [name for name in ("pandas", "polars") if find_spec(name)]
        if not found:
            raise InvalidInputError("to_frame needs pandas or polars, and neither is installed")
        backend = found[0]
    if backend not in ("pandas", "polars", "pyarrow"):
        raise InvalidInputError(f"backend must be 'pandas', 'polars' or 'pyarrow', got {backend!r}")
    if not find_spec(backend):
        raise InvalidInputError(f"backend={backend!r}: that package is not installed")
    return nw.from_dict(dict(columns), backend=backend).to_native()  # type: ignore[arg-type]


def _scores(count: int) -> str:
    return f"{count} score" if count == 1 else f"{count} scores"
