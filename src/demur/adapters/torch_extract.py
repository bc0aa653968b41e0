"""One pass of a network over a loader: logits, features, labels and the head, as arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from demur.adapters.stored_activations import ActivationsWriter, FeatureType, StoredActivations
from demur.adapters.torch_forward import LoaderBatch, Tap, device_of, evaluating, watched
from demur.detectors.activations import Activations
from demur.errors import InvalidInputError

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
