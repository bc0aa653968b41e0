"""NPZ archives and pickles: numbers out of them, without running what they hold.

An archive has one array a column and is read through NumPy alone.

Unpickling calls whatever the file names. Here a name is looked up in a short table of
stand-ins; they know just enough of NumPy's pickle format to rebuild numeric arrays from raw
bytes, and any other name ends the reading. Not even NumPy's own functions are called by the
file: a forged dtype could make them read memory that is not theirs.

A file of a few hundred bytes can also hold a container that is its own part in very many ways,
say 60 tuples of which each holds the one before twice. Nothing here visits a container twice.
"""

from __future__ import annotations

import copy
import os
import pickle
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, ClassVar

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.files import check_input

# An array that takes more than the first and so many times its packed size is taken for a trap.
_UNPACKED, _RATIO = 2**30, 200
_ZSTD = 93


def npz_names(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the arrays."""
    with _archive(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    if not names:
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as NPZ: it holds no array")
    return names


def npz_columns(path: str | os.PathLike[str], names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the named arrays, which must be one-dimensional and of one length."""
    with _archive(path) as archive:
        columns = {name: _array(archive, name) for name in names}
    for name, column in columns.items():
        if column.ndim != 1:
            raise InvalidInputError(
                f"{os.fspath(path)!r}: array {name!r} has shape {column.shape}; "
                "a column has one dimension"
            )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(
            f"{os.fspath(path)!r}: the arrays are of different lengths: "
            + ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        )
    return columns


def _array(archive: zipfile.ZipFile, name: str) -> npt.NDArray[Any]:
    """Read an array, if the archive holds as many bytes as its header speaks of."""
    info = archive.getinfo(f"{name}.npy")
    if _is_trap(info):
        raise ValueError(
            f"array {name!r} unpacks to {info.file_size} bytes, more than 1 GiB and than "
            f"{_RATIO} times its packed size: save it with numpy.savez, unpacked"
        )
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in read:
            raise ValueError(f"array {name!r} is of version {version}, which holds no numbers")
        shape, _, dtype = read[version](member)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, and reading those could run code")
        size = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if size != info.file_size - member.tell():
            raise ValueError(
                f"array {name!r} is damaged: its header speaks of {size} bytes, "
                f"there are {info.file_size - member.tell()}"
            )
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _is_trap(info: zipfile.ZipInfo) -> bool:
    return info.file_size > max(_UNPACKED, _RATIO * info.compress_size)


def read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a member of a zip archive; also one packed by Zstandard, new to Python in 3.14."""
    info = archive.getinfo(name)
    if _is_trap(info):
        raise ValueError(f"{name!r} unpacks to {info.file_size} bytes, far more than it holds")
    try:
        return archive.read(info)
    except NotImplementedError:
        if info.compress_type != _ZSTD:
            raise
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("pyarrow", "files") from None
    packed = copy.copy(info)
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, info.compress_size
    # The check sum is that of the unpacked bytes.
    packed.CRC = None  # type: ignore[assignment]
    stream = pa.CompressedInputStream(pa.BufferReader(archive.read(packed)), "zstd")
    content: bytes = stream.read(info.file_size + 1)
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise ValueError(f"{name!r} is damaged")
    return content


def write_npz(file: BinaryIO, columns: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an archive; unlike `numpy.savez` under any names."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, column, allow_pickle=False)


@contextmanager
def _archive(path: str | os.PathLike[str]) -> Iterator[zipfile.ZipFile]:
    check_input(path)
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except InvalidInputError:
        raise
    except zipfile.BadZipFile as error:
        raise InvalidInputError(
            f"cannot read {os.fspath(path)!r} as NPZ: it is no such archive ({error})"
        ) from None
    # An encrypted member is a RuntimeError, an unknown way of packing NotImplementedError.
    except (
        *(OSError, EOFError, ValueError, KeyError, zlib.error, RuntimeError, SyntaxError),
        *(TypeError, MemoryError, OverflowError, UnicodeError),
    ) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(f"cannot read {os.fspath(path)!r} as NPZ: {reason}") from None


_NUMBERS = "biuf"


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """Return the containers, text, numbers and numeric arrays of a pickle; tuples become lists.

    Raises
    ------
    InvalidInputError
        The pickle needs anything else, or is damaged.
    """
    try:
        with open(path, "rb") as file:
            return load_pickle(file)
    except InvalidInputError as error:
        raise InvalidInputError(f"{os.fspath(path)!r} is refused: {error}") from None
    except Exception as error:
        # A damaged pickle can fail in any way at all.
        raise InvalidInputError(
            f"cannot read {os.fspath(path)!r} as a pickle: {type(error).__name__}: {error}"
        ) from None


def load_pickle(file: BinaryIO, *, encoding: str = "ASCII") -> Any:
    """Return what `read_pickle` does, for callers who say themselves what went wrong.

    Parameters
    ----------
    encoding
        Of the texts that Python 2 wrote; ``"bytes"`` leaves them bytes.
    """
    return _plain(_Unpickler(file, encoding=encoding).load(), {})


class _Dtype:
    """Stands in for `numpy.dtype`."""

    def __init__(self, code: Any, align: Any = False, copy: Any = True) -> None:
        if not isinstance(code, (str, bytes)):
            raise InvalidInputError("it holds an array of a type that is not read")
        self.dtype: np.dtype[Any] = np.dtype(code.decode() if isinstance(code, bytes) else code)
        if self.dtype.kind not in _NUMBERS:
            raise InvalidInputError(f"it holds an array of {self.dtype}, not of numbers")

    def __setstate__(self, state: Any) -> None:
        self.dtype = self.dtype.newbyteorder(">" if state[1] in (">", b">") else "<")


class _Array:
    """Stands in for `numpy.core.multiarray._reconstruct` and the array it makes."""

    array: npt.NDArray[Any]

    def __init__(self, *ignored: Any) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: Any) -> None:
        _version, shape, dtype, fortran, raw = state
        self.array = _rebuilt(raw, dtype, shape, "F" if fortran else "C")


class _FromBuffer(_Array):
    """Stands in for `numpy.core.numeric._frombuffer`, which protocol 5 uses."""

    def __init__(self, raw: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> None:
        if order not in ("C", "F"):
            raise InvalidInputError("it holds an array in an unusual memory order")
        self.array = _rebuilt(raw, dtype, shape, order)


class _Scalar(_Array):
    """Stands in for `numpy.core.multiarray.scalar`."""

    def __init__(self, dtype: Any, raw: Any) -> None:
        self.array = _rebuilt(raw, dtype, (), "C")


class _Latin1(bytes):
    """Stands in for `_codecs.encode`, by which protocols 0 to 2 store bytes."""

    def __new__(cls, text: str, encoding: str = "latin1") -> _Latin1:
        if encoding != "latin1":
            raise InvalidInputError("it encodes bytes in another way than latin1")
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: Any) -> None:
        pass


class _NoBytes(bytes):
    """Stands in for `bytes`, by which protocols 0 to 2 store no bytes at all."""

    def __new__(cls) -> _NoBytes:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass


class _Skipped:
    """Stands in for what is left unread: tensors, which OpenOOD and lm-polygraph store beside."""

    def __new__(cls, *ignored: Any) -> _Skipped:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        pass


def _texts_or_list(items: list[Any]) -> Any:
    """Keep a tuple of texts: it may be a key, and its hash is quick. Of any other make a list."""
    return tuple(items) if items and all(type(item) is str for item in items) else items


def _since_mark(unpickler: Any) -> None:
    """Take the step of the opcode TUPLE."""
    items = unpickler.pop_mark()
    unpickler.append(_texts_or_list(items))


def _of_length(length: int) -> Callable[[Any], None]:
    """Return the step of an opcode for tuples of this length."""

    def step(unpickler: Any) -> None:
        start = len(unpickler.stack) - length
        unpickler.stack[start:] = [_texts_or_list(unpickler.stack[start:])]

    return step


class _DefaultDict(dict[Any, Any]):
    """Stands in for `collections.defaultdict`, without what it would make."""

    def __init__(self, *_factory: Any) -> None:
        super().__init__()


class _Unpickler(pickle._Unpickler):
    """An unpickler that knows a handful of names, imports nothing and makes tuples of texts only.

    It is the one written in Python, whose steps can be replaced: in place of another tuple it makes
    a list, which no dict or set takes for a key. The hash of a tuple visits all of its parts.
    """

    # Classes all of them: a pickle can change the attributes of a function, not of these.
    stand_ins: ClassVar[dict[tuple[str, str], type]] = {
        ("numpy", "dtype"): _Dtype,
        ("numpy", "ndarray"): _Skipped,
        ("_codecs", "encode"): _Latin1,
        ("builtins", "bytes"): _NoBytes,
        ("builtins", "set"): set,
        ("builtins", "frozenset"): frozenset,
        ("collections", "OrderedDict"): dict,
        ("collections", "defaultdict"): _DefaultDict,
        ("builtins", "list"): list,
        ("torch._utils", "_rebuild_tensor_v2"): _Skipped,
        ("torch.storage", "_load_from_bytes"): _Skipped,
    } | {
        (f"numpy.{core}.{module}", name): stand_in
        for core in ("core", "_core")
        for module, name, stand_in in (
            ("multiarray", "_reconstruct", _Array),
            ("multiarray", "scalar", _Scalar),
            ("numeric", "_frombuffer", _FromBuffer),
        )
    }

    dispatch: ClassVar[dict[int, Callable[..., None]]] = pickle._Unpickler.dispatch | {
        pickle.TUPLE[0]: _since_mark,
        pickle.EMPTY_TUPLE[0]: _of_length(0),
        pickle.TUPLE1[0]: _of_length(1),
        pickle.TUPLE2[0]: _of_length(2),
        pickle.TUPLE3[0]: _of_length(3),
    }

    def persistent_load(self, pid: Any) -> _Skipped:
        """Leave out the numbers of a tensor, which torch.save keeps beside the pickle."""
        return _Skipped()

    def find_class(self, module: str, name: str) -> type:
        """Return the stand-in for a name; nothing is imported."""
        # The name of the module in the protocols of Python 2.
        module = "builtins" if module == "__builtin__" else module
        if module == "torch" and name.endswith("Storage"):
            return _Skipped
        if (module, name) not in self.stand_ins:
            raise InvalidInputError(
                f"it asks to load {module}.{name}; only NumPy arrays of numbers and plain "
                "containers are read, since a pickle can run any code"
            )
        return self.stand_ins[module, name]


def _rebuilt(raw: Any, dtype: Any, shape: Any, order: Any) -> npt.NDArray[Any]:
    if not isinstance(raw, (bytes, bytearray)) or not isinstance(dtype, _Dtype):
        raise InvalidInputError("it holds an array in a form that is not read")
    return np.frombuffer(bytes(raw), dtype.dtype).reshape(shape, order=order)


def _plain(item: Any, known: dict[int, Any]) -> Any:
    """Replace the stand-ins by the arrays they have read, each container once."""
    if isinstance(item, _Array):
        return item.array
    if not isinstance(item, (dict, list)):
        return item
    if id(item) not in known:
        # Known before its parts are, since it may be a part of itself.
        if isinstance(item, dict):
            table = known[id(item)] = {}
            table.update((key, _plain(value, known)) for key, value in item.items())
        else:
            row = known[id(item)] = []
            row.extend(_plain(value, known) for value in item)
    return known[id(item)]
