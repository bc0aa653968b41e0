"""CIFAR's batch files, which are pickles, without running what is in them.

They were written by Python 2, so that every text in them is bytes.
"""

from __future__ import annotations

import os
import pickle
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError


def read_batch(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the entries of a batch file: ``data`` as a uint8 array, labels as lists."""
    try:
        with open(path, "rb") as file:
            content = _Unpickler(file, encoding="bytes").load()
        data = content[b"data"]
        array = data.array if isinstance(data, _Array) else None
        if array is None or array.ndim != 2 or array.shape[1] != 3072:
            raise InvalidInputError("its data are not rows of 3 x 32 x 32 bytes")
    except Exception as error:
        # A damaged pickle can fail in any way at all.
        raise InvalidInputError(f"{os.fspath(path)!r} is no CIFAR batch: {error}") from None
    entries = {bytes(key).decode(): value for key, value in content.items()}
    return {**entries, "data": array}


class _Dtype:
    """Stands in for `numpy.dtype`; bytes are the only kind there is in a batch."""

    def __init__(self, code: Any, *ignored: Any) -> None:
        if code not in (b"u1", "u1"):
            raise InvalidInputError(f"it holds an array of {code!r}, not of bytes")

    def __setstate__(self, state: Any) -> None:
        pass


class _Array:
    """Stands in for `numpy.core.multiarray._reconstruct` and the array it makes."""

    array: npt.NDArray[np.uint8] | None = None

    def __init__(self, *ignored: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes):
            raise InvalidInputError("it holds an array in a form that is not read")
        flat = np.frombuffer(bytes(raw), np.uint8)
        self.array = flat.reshape(shape, order="F" if fortran else "C")


class _Ignored:
    """Stands in for `numpy.ndarray`, which is only named."""


class _Latin1(bytes):
    """Stands in for `_codecs.encode`, by which Python 3 stores bytes in old protocols."""

    def __new__(cls, text: str, encoding: str = "latin1") -> _Latin1:
        return super().__new__(cls, text.encode("latin1"))


class _Unpickler(pickle.Unpickler):
    stand_ins: ClassVar[dict[tuple[str, str], type]] = {
        ("numpy", "dtype"): _Dtype,
        ("numpy", "ndarray"): _Ignored,
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("_codecs", "encode"): _Latin1,
    }

    def find_class(self, module: str, name: str) -> type:
        """Return the stand-in for a name; nothing is imported."""
        if (module, name) not in self.stand_ins:
            raise InvalidInputError(f"it asks to load {module}.{name}")
        return self.stand_ins[module, name]
