"""Weights: published ones, read from .npz files or fetched, and those of a LeNet trained here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from demur._files import replacing
from demur.errors import InvalidInputError
from demur.reproduce.cache import Arrays, Cache, Notify, fetch
from demur.reproduce.networks import ImageSet, Labels, Pixels, Transform

Tensors = Mapping[str, npt.NDArray[Any]]

BATCH = 128
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.05, 0.9, 5e-4


@dataclass(frozen=True, slots=True)
class Published:
    """Where weights are, and the digest of their tensors by which they are known."""

    file: str
    url: str
    digest: str


_RAW = "https://github.com/{}/raw/{}/{}"
PUBLISHED: dict[str, Published] = {
    "lenet": Published(
        "mnist_lenet_openood.npz",
        _RAW.format(
            "hungdv1107/OpenOOD",
            "d5b379ff4230eaa9d51f9fb1a56c60407f9ee017",
            "results/checkpoints/mnist_lenet_acc99.60.ckpt",
        ),
        "b47f0ef8d8a1390ddb24bdfd3813a1c4d61c8b5dd15585b8a0d51550c3b326cd",
    ),
    "resnet20": Published(
        "cifar10_resnet20.npz",
        _RAW.format(
            "akamaster/pytorch_resnet_cifar10",
            "66514ca38d5679354766dee91e912d8766bdd227",
            "pretrained_models/resnet20-12fca82f.th",
        ),
        "ce853affe34660fb4de339cd8423137dd11cc0bc9ee95fbc8aee17513b81df29",
    ),
    "resnet56": Published(
        "cifar10_resnet56.npz",
        _RAW.format(
            "akamaster/pytorch_resnet_cifar10",
            "master",
            "pretrained_models/resnet56-4bfd9763.th",
        ),
        "3046110bc316c9657d4fc4706059e56167498ba3396c29a078bcd71a666cf190",
    ),
    "densenet100": Published(
        "cifar10_densenet100.npz",
        _RAW.format(
            "deeplearning-wisc/dice",
            "ca6c275c5e1948858a911ea40924d6d5c412aac2",
            "checkpoints/CIFAR-10/densenet/checkpoint_100.pth.tar",
        ),
        "d9be04cddc6e48ef23649ac14bb7a11fe2743863b4d8673fe2911d2a792cb721",
    ),
}


def load_weights(
    name: str,
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    download: bool = False,
    notify: Notify | None = None,
) -> str:
    """Put published weights into a model and return the digest of their tensors.

    Parameters
    ----------
    name
        A key of `PUBLISHED`.
    folder
        Where its .npz file is, or is to be once downloaded.
    """
    known = PUBLISHED[name]
    path = Path(folder) / known.file
    if not path.is_file():
        if not download:
            raise InvalidInputError(
                f"the weights {str(path)!r} are missing: give --weights FOLDER, or add --download"
                + (" or --train EPOCHS" if name == "lenet" else "")
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".download")
        fetch(known.url, part, notify=notify)
        save_tensors(path, _known(read_checkpoint(part), known, part))
        part.unlink()
    tensors = _known(read_tensors(path), known, path)
    put_tensors(model, tensors)
    return known.digest


def tensor_digest(tensors: Tensors) -> str:
    """Return the SHA-256 of names, shapes and values, whatever file they came in."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name], "<f4")
        digest.update(f"{name} {values.shape}\n".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def read_tensors(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError) as error:
        raise InvalidInputError(f"cannot read {os.fspath(path)!r}: {error}") from None


def save_tensors(path: str | os.PathLike[str], tensors: Tensors) -> None:
    """Write arrays to an .npz file, whole or not at all."""
    with replacing(path) as file:
        np.savez(file, **dict(tensors))  # type: ignore[arg-type]


def put_tensors(model: nn.Module, tensors: Tensors) -> None:
    """Set all parameters and buffers of a model, but for counters of training steps."""
    state = {name: torch.from_numpy(np.array(values)) for name, values in tensors.items()}
    counters = {
        name: value
        for name, value in model.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    try:
        model.load_state_dict({**counters, **state})
    except RuntimeError as error:
        raise InvalidInputError(f"the weights are of another network: {error}") from None


def model_tensors(model: nn.Module) -> dict[str, npt.NDArray[Any]]:
    """Return what `put_tensors` sets."""
    return {
        name: value.detach().cpu().numpy()
        for name, value in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def read_checkpoint(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the tensors of a PyTorch checkpoint without running what else is in it."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # A damaged or foreign pickle can fail in any way at all.
        raise InvalidInputError(f"cannot read {os.fspath(path)!r}: {error}") from None
    state = content.get("state_dict", content)
    return {
        name.removeprefix("module."): value.numpy()
        for name, value in state.items()
        if isinstance(value, torch.Tensor) and not name.endswith("num_batches_tracked")
    }


def _known(
    tensors: dict[str, npt.NDArray[Any]], known: Published, path: Path
) -> dict[str, npt.NDArray[Any]]:
    found = tensor_digest(tensors)
    if found != known.digest:
        raise InvalidInputError(
            f"{str(path)!r} does not hold the published weights: the SHA-256 of its tensors is "
            f"{found}, expected {known.digest}"
        )
    return tensors


def trained_lenet(
    model: nn.Module,
    images: ImageSet,
    transform: Transform,
    cache: Cache,
    *,
    epochs: int,
    seed: int = 0,
) -> str:
    """Train a model on a data set, or read the weights of an earlier run; return their digest."""
    inputs = {
        "images": images.fingerprint(),
        "transform": asdict(transform),
        "epochs": epochs,
        "seed": seed,
    }

    def compute() -> Arrays:
        pixels, labels = images.load()
        fit(model, pixels, labels, transform, epochs=epochs, seed=seed, cache=cache)
        return model_tensors(model)

    tensors = cache.whole("lenet-trained", inputs, compute)
    put_tensors(model, tensors)
    model.eval()
    return tensor_digest(tensors)


def fit(
    model: nn.Module,
    pixels: Pixels,
    labels: Labels,
    transform: Transform,
    *,
    epochs: int,
    seed: int,
    cache: Cache,
) -> None:
    """Train by SGD with momentum and a rate that falls along a half cosine."""
    generator = torch.Generator().manual_seed(seed)
    _start(model, generator)
    optimiser = torch.optim.SGD(
        model.parameters(), LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
    )
    steps = epochs * -(-len(labels) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps))
    model.train()
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=generator).numpy()
        for start in range(0, len(order), BATCH):
            rows = np.sort(order[start : start + BATCH])
            logits = model(torch.from_numpy(transform.apply(pixels[rows])))
            loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels[rows]))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
        if cache.notify is not None:
            cache.notify("train: epoch", epoch + 1, epochs)


def _start(model: nn.Module, generator: torch.Generator) -> None:
    """Draw starting weights, the same for the same seed whatever ran before."""
    for part in model.modules():
        if isinstance(part, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_uniform_(part.weight, nonlinearity="relu", generator=generator)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
