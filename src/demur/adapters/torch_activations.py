"""Passes of a network over a loader: its activations as arrays, and ODIN's scores.

Activations too large for memory go to a folder of NumPy files, read through the memory map. ODIN is
the softmax at a high temperature, of inputs moved a step towards their own class.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from demur import _arrays, metrics
from demur._arrays import FloatArray
from demur.adapters.torch_forward import LoaderBatch, Tap, device_of, evaluating, watched
from demur.core.sample import Sample
from demur.detectors import msp
from demur.detectors.activations import Activations, number, positive
from demur.errors import InvalidInputError

FeatureType = Literal["float32", "float16"]

_PARTS = ("logits", "features", "labels", "weight", "bias")


@dataclass(frozen=True, slots=True, eq=False)
class StoredActivations:
    """Activations on disk; rows are read when they are asked for.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp()) / "cats"
    >>> with ActivationsWriter(folder) as writer:
    ...     writer.append(logits=np.eye(2), features=np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> stored = StoredActivations.open(folder)
    >>> len(stored), stored.take(slice(1, 2)).features
    (2, array([[3., 4.]]))
    """

    folder: Path
    logits: npt.NDArray[Any]
    features: npt.NDArray[Any] | None = None
    labels: npt.NDArray[Any] | None = None
    weight: npt.NDArray[Any] | None = None
    bias: npt.NDArray[Any] | None = None

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a folder that `extract` has written."""
        path = Path(folder)
        files = {name: path / f"{name}.npy" for name in _PARTS}
        try:
            parts = {
                name: np.load(file, mmap_mode="r", allow_pickle=False)
                for name, file in files.items()
                if name == "logits" or file.exists()
            }
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"cannot read activations in {str(path)!r}: {error}") from None
        return cls(path, **parts)

    def __len__(self) -> int:
        return len(self.logits)

    def take(self, rows: Any = slice(None)) -> Activations:
        """Return some rows (a slice, a mask or row numbers) in memory; all by default."""
        return Activations(
            logits=self.logits[rows],
            features=None if self.features is None else self.features[rows],
            weight=self.weight,
            bias=self.bias,
            labels=None if self.labels is None else self.labels[rows],
        )

    def blocks(self, size: int = 4096) -> Iterator[Activations]:
        """Return all rows, `size` at a time."""
        return (self.take(slice(start, start + size)) for start in range(0, len(self), size))

    def __repr__(self) -> str:
        return f"StoredActivations({str(self.folder)!r}, rows={len(self)})"


class ActivationsWriter:
    """Writes activations block by block; the folder appears when all of them are in."""

    def __init__(self, folder: str | os.PathLike[str], *, dtype: FeatureType = "float32") -> None:
        if dtype not in ("float32", "float16"):
            raise InvalidInputError(f"dtype must be 'float32' or 'float16', got {dtype!r}")
        self._folder = Path(folder)
        if not self._folder.parent.is_dir():
            raise InvalidInputError(f"the folder {str(self._folder.parent)!r} does not exist")
        if self._folder.exists():
            raise InvalidInputError(f"{str(self._folder)!r} exists already: give a new folder")
        self._dtype = np.dtype(dtype)
        self._matrices: dict[str, _GrowingMatrix] = {}
        self._vectors: dict[str, npt.NDArray[Any]] = {}

    def __enter__(self) -> Self:
        self._part = Path(tempfile.mkdtemp(dir=self._folder.parent, prefix=".activations"))
        return self

    def append(self, *, logits: npt.NDArray[Any], features: npt.NDArray[Any] | None = None) -> None:
        """Add rows. Logits keep their type, for rounding them would change predictions."""
        self._matrix("logits", logits.dtype).append(logits)
        if features is not None:
            self._matrix("features", self._dtype).append(features)

    def put(self, **arrays: npt.NDArray[Any] | None) -> None:
        """Set labels, weight and bias, whole."""
        self._vectors |= {name: array for name, array in arrays.items() if array is not None}

    def _matrix(self, name: str, dtype: np.dtype[Any]) -> _GrowingMatrix:
        if name not in self._matrices:
            self._matrices[name] = _GrowingMatrix(name, self._part / f"{name}.npy", dtype)
        return self._matrices[name]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for matrix in self._matrices.values():
                matrix.close()
            if error is None:
                for name, array in self._vectors.items():
                    np.save(self._part / f"{name}.npy", array, allow_pickle=False)
                os.chmod(self._part, 0o755)
                os.rename(self._part, self._folder)
        finally:
            shutil.rmtree(self._part, ignore_errors=True)


class _GrowingMatrix:
    """A .npy file whose header is completed when the number of rows is known."""

    def __init__(self, name: str, path: Path, dtype: np.dtype[Any]) -> None:
        self._name, self._dtype = name, dtype
        self._file: BinaryIO = path.open("wb")
        self._rows = 0
        self._columns: int | None = None

    def append(self, block: npt.NDArray[Any]) -> None:
        if self._columns is None:
            self._columns = block.shape[1]
            self._write_header()
        if block.shape[1] != self._columns:
            raise InvalidInputError(
                f"{self._name} has {block.shape[1]} columns in one batch and {self._columns} "
                "in another"
            )
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(block, self._dtype)
        bad = ~np.isfinite(stored).all(axis=1)
        _arrays.refuse(self._name, block, bad, f"is not finite as {self._dtype}")
        self._file.write(stored.tobytes())
        self._rows += len(block)

    def close(self) -> None:
        if self._columns is not None:
            self._file.seek(0)
            self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        # NumPy pads the header for any number of rows, so it can be written again in place.
        shape = (self._rows, self._columns)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


Array = npt.NDArray[Any]


@overload
def extract(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    layer: str | nn.Module | None = None,
    folder: None = None,
    progress: bool | None = None,
) -> Activations: ...


@overload
def extract(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    layer: str | nn.Module | None = None,
    folder: str | os.PathLike[str],
    dtype: FeatureType = "float32",
    progress: bool | None = None,
) -> StoredActivations: ...


def extract(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    layer: str | nn.Module | None = None,
    folder: str | os.PathLike[str] | None = None,
    dtype: FeatureType = "float32",
    progress: bool | None = None,
) -> Activations | StoredActivations:
    """Return logits, features, labels and the linear head of a model on all batches.

    The model runs once over the batches, on the device it is on and in evaluation mode; its
    modes and hooks are afterwards as they were, also after an error.

    Parameters
    ----------
    model
        Returns logits, a tuple that begins with them, or something with ``logits`` in it.
    batches
        A `DataLoader` or any other iterable. A batch is a tensor of inputs; ``(inputs,
        labels)``, where inputs may be a tuple or a dict of arguments and further entries are
        ignored; or a dict with ``"labels"`` or ``"label"``, whose other entries are keyword
        arguments of the model (a single one is passed by position).
    layer
        Name or module. A `Linear` is taken as the head: the features are its input, the logits
        its output. Of any other layer the features are the output, flattened, and there is no
        head. By default the last `Linear`, if it gives the output of the model; without any
        `Linear` there are only logits.
    folder
        A new folder to write to while the model runs, for sets that do not fit in memory.
    dtype
        Of the features in `folder`: ``"float32"`` or ``"float16"``.
    progress
        Whether to show a line on standard error; by default if that is a terminal.

    Examples
    --------
    >>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> extract(network, [(torch.ones(5, 4), torch.zeros(5)), (torch.ones(2, 4), torch.ones(2))])
    Activations(logits=(7, 2), features=(7, 3), weight=(2, 3), labels=(7,))
    """
    tap = Tap(model, layer)
    if folder is None:
        if dtype != "float32":
            raise InvalidInputError("dtype is for files: give folder=, or leave dtype out")
        blocks: list[tuple[Array, Array | None]] = []
        labels = _run(model, batches, tap, lambda z, h: blocks.append((z, h)), progress)
        features = [h for _, h in blocks if h is not None]
        return Activations(
            logits=np.concatenate([z for z, _ in blocks]),
            features=np.concatenate(features) if features else None,
            labels=labels,
            **_head(tap.head(model)),
        )
    with ActivationsWriter(folder, dtype=dtype) as writer:
        labels = _run(
            model, batches, tap, lambda z, h: writer.append(logits=z, features=h), progress
        )
        writer.put(labels=labels, **_head(tap.head(model)))
    return StoredActivations.open(folder)


def _run(
    model: nn.Module,
    batches: Iterable[Any],
    tap: Tap,
    keep: Callable[[Array, Array | None], None],
    progress: bool | None,
) -> Array | None:
    """Hand logits and features of every batch to `keep`; return all labels."""
    labels: list[Array | None] = []
    device = device_of(model)
    with evaluating(model), torch.no_grad():
        for given in watched(batches, "extract", show=progress):
            batch = LoaderBatch.read(given)
            logits, features = tap.read(model, batch.to(device))
            keep(to_array(logits), None if features is None else to_array(features))
            labels.append(_labels(batch.labels, len(logits)))
    if not labels:
        raise InvalidInputError("batches is empty: there is nothing to extract")
    known = [block for block in labels if block is not None]
    if known and len(known) < len(labels):
        raise InvalidInputError("some batches have labels and some have none")
    return np.concatenate(known) if known else None


def to_array(tensor: Tensor) -> Array:
    """Return a copy of a tensor in main memory, of at least single precision."""
    single = tensor.dtype in (torch.float16, torch.bfloat16)
    array: Array = (tensor.float() if single else tensor).detach().cpu().numpy()
    return array.copy()


def _labels(labels: Any, rows: int) -> Array | None:
    if labels is None:
        return None
    array = np.asarray(labels.detach().cpu() if isinstance(labels, Tensor) else labels)
    if array.shape not in ((rows,), (rows, 1)):
        raise InvalidInputError(
            f"the labels of a batch have shape {array.shape}, expected one a row, ({rows},)"
        )
    return array.reshape(rows)


def _head(head: nn.Linear | None) -> dict[str, Array | None]:
    if head is None:
        return {}
    return {
        "weight": to_array(head.weight),
        "bias": None if head.bias is None else to_array(head.bias),
    }


TEMPERATURES = (1.0, 10.0, 100.0, 1000.0)
STEPS = (0.0014, 0.0028)


@dataclass(frozen=True, slots=True)
class Odin:
    """ODIN, ``1 - max_y softmax(z(x') / T)_y`` with x' = x - eps sign(dL/dx) / std.

    L is the cross-entropy of ``softmax(z(x) / T)`` at the predicted class of the unmoved input;
    sign(0) counts as +1. The score needs gradients with respect to the input, so it takes the
    network and its inputs instead of activations.

    Parameters
    ----------
    temperature
        T, in the loss and in the final softmax.
    eps
        Length of the step.
    std
        Standard deviation by which the inputs were normalised, one number or one a channel (the
        second axis of the inputs).

    Examples
    --------
    >>> network = nn.Linear(2, 2)
    >>> _ = network.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    >>> Odin(temperature=1.0, eps=0.0).score(network, [torch.tensor([[0.0, 4.0]])]).round(4)
    array([0.018])
    """

    temperature: float = 1000.0
    eps: float = 0.0014
    std: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        positive("temperature", self.temperature)
        number("eps", self.eps, lambda x: x >= 0, "a non-negative number")
        for value in [self.std] if isinstance(self.std, (int, float)) else self.std:
            positive("std", value)

    def score(
        self, model: nn.Module, batches: Iterable[Any], *, progress: bool | None = None
    ) -> FloatArray:
        """Return one doubt a row; batches are as for `extract`, with a single input tensor."""
        return _scores([self], model, batches, progress)[:, 0]

    @classmethod
    def search(
        cls,
        model: nn.Module,
        id_batches: Iterable[Any],
        ood_batches: Iterable[Any],
        *,
        temperatures: Sequence[float] = TEMPERATURES,
        steps: Sequence[float] = STEPS,
        std: float | Sequence[float] = 1.0,
        progress: bool | None = None,
    ) -> Self:
        """Return the options with the largest AUROC; among equals the first.

        The defaults are those of OpenOOD. Use OOD data that share no class with those on which
        results are reported.

        Parameters
        ----------
        temperatures, steps
            The values of T and eps to try, all pairs of them.

        Examples
        --------
        >>> network = nn.Linear(2, 2)
        >>> near, far = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.1, 0.0]])
        >>> Odin.search(network, [near], [far], temperatures=[10.0], steps=[0.0])
        Odin(temperature=10.0, eps=0.0, std=1.0)
        """
        options = [cls(t, eps, std) for t, eps in product(temperatures, steps)]
        if not options:
            raise InvalidInputError("temperatures and steps must not be empty")
        id_scores = _scores(options, model, id_batches, progress)
        ood_scores = _scores(options, model, ood_batches, progress)
        areas = [
            metrics.auroc(Sample(own, np.zeros(len(own)), ood_scores=foreign))
            for own, foreign in zip(id_scores.T, ood_scores.T, strict=True)
        ]
        return options[int(np.argmax(areas))]


def _scores(
    options: Sequence[Odin], model: nn.Module, batches: Iterable[Any], progress: bool | None
) -> FloatArray:
    """Return scores of shape (n, options), in one pass over the batches."""
    device = device_of(model)
    rows: list[FloatArray] = []
    with evaluating(model):
        for given in watched(batches, "odin", show=progress):
            batch = LoaderBatch.read(given).to(device)
            if batch.kwargs or len(batch.args) != 1 or not _is_real(batch.args[0]):
                raise InvalidInputError("ODIN needs batches with a single real input tensor")
            inputs = batch.args[0].detach()
            rows.append(_batch_scores(options, model, inputs))
    if not rows:
        raise InvalidInputError("batches is empty: there is nothing to score")
    return np.concatenate(rows)


def _batch_scores(options: Sequence[Odin], model: nn.Module, inputs: Tensor) -> FloatArray:
    tap = Tap(model, None, features=False)
    start = inputs.clone().requires_grad_()
    with torch.enable_grad():
        logits = tap.read(model, LoaderBatch((start,), {})).logits.double()
        label = logits.detach().argmax(1)
        uphill: dict[float, Tensor] = {}
        for temperature in dict.fromkeys(option.temperature for option in options):
            loss = nn.functional.cross_entropy(logits / temperature, label, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, start, retain_graph=True)
            uphill[temperature] = torch.where(gradient >= 0, 1.0, -1.0).to(inputs.dtype)
    columns = []
    with torch.no_grad():
        for option in options:
            step = option.eps * uphill[option.temperature] / _per_channel(option.std, inputs)
            moved = tap.read(model, LoaderBatch((inputs - step,), {})).logits.double()
            columns.append(msp(to_array(moved / option.temperature)))
    return np.column_stack(columns)


def _per_channel(std: float | Sequence[float], inputs: Tensor) -> Tensor:
    values = inputs.new_tensor(std)
    if values.ndim == 0:
        return values
    if inputs.ndim < 2 or len(values) != inputs.shape[1]:
        raise InvalidInputError(
            f"std has {len(values)} channels, but the inputs have shape {tuple(inputs.shape)}"
        )
    return values.reshape(1, -1, *[1] * (inputs.ndim - 2))


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
