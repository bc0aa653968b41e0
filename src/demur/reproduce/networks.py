"""The networks of Table 2, their weights, and what they give, computed once and kept on disk.

Networks are the benchmark's LeNet, CIFAR ResNets and DenseNet-BC-100-12, with how images enter
them: resized, normalised, for augmented ones also mirrored and cut. Names of the parts are those of
the published weights, which are read from .npz files or fetched; a LeNet can be trained here.

Long computations are kept in blocks, so that an interrupted run goes on.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, cat, nn
from torch.nn import functional

from demur._arrays import FloatArray, IntArray
from demur._files import replacing
from demur.adapters.torch import Odin, extract
from demur.detectors import Activations
from demur.errors import InvalidInputError
from demur.reproduce.image_sets import ImageSet, Labels, Notify, Pixels, fetch, pillow

PADDING = 4


class LeNet(nn.Module):
    """LeNet-5 with ReLU and max-pooling: 3 x 28 x 28 in, 84 features."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.block1 = nn.Sequential(nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
        self.block2 = nn.Sequential(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.block3 = nn.Sequential(nn.Conv2d(16, 120, 5), nn.ReLU())
        self.classifier1 = nn.Linear(120, 84)
        self.fc = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        h = self.block3(self.block2(self.block1(x))).flatten(1)
        logits: Tensor = self.fc(functional.relu(self.classifier1(h)))
        return logits


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.added = stride, (outputs - inputs) // 2

    def forward(self, x: Tensor) -> Tensor:
        h = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        # The shortcut has no weights: it drops pixels and adds empty channels on both sides.
        short = x[:, :, :: self.stride, :: self.stride]
        return functional.relu(h + functional.pad(short, (0, 0, 0, 0, self.added, self.added)))


class ResNet(nn.Module):
    """ResNet of 6n + 2 layers for 32 x 32 images, 64 features."""

    def __init__(self, n: int, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, n)
        self.layer2 = _stage(16, 32, n)
        self.layer3 = _stage(32, 64, n)
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        h = functional.relu(self.bn1(self.conv1(x)))
        h = self.layer3(self.layer2(self.layer1(h)))
        logits: Tensor = self.linear(h.mean((2, 3)))
        return logits


def _stage(inputs: int, outputs: int, n: int) -> nn.Sequential:
    first = _Residual(inputs, outputs, 1 if inputs == outputs else 2)
    return nn.Sequential(first, *(_Residual(outputs, outputs, 1) for _ in range(n - 1)))


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(functional.relu(self.bn1(x)))
        return cat([x, self.conv2(functional.relu(self.bn2(h)))], 1)


class _DenseBlock(nn.Module):
    def __init__(self, inputs: int, layers: int, growth: int) -> None:
        super().__init__()
        parts = [_Bottleneck(inputs + i * growth, growth) for i in range(layers)]
        self.layer = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.layer(x)
        return h


class _Transition(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.avg_pool2d(self.conv1(functional.relu(self.bn1(x))), 2)


class DenseNet(nn.Module):
    """DenseNet-BC of 100 layers and growth 12 for 32 x 32 images, 342 features."""

    def __init__(self, layers: int = 16, growth: int = 12, classes: int = 10) -> None:
        super().__init__()
        width = 2 * growth
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.block1 = _DenseBlock(width, layers, growth)
        width += layers * growth
        self.trans1 = _Transition(width)
        self.block2 = _DenseBlock(width // 2, layers, growth)
        width = width // 2 + layers * growth
        self.trans2 = _Transition(width)
        self.block3 = _DenseBlock(width // 2, layers, growth)
        width = width // 2 + layers * growth
        self.bn1 = nn.BatchNorm2d(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        h = self.trans2(self.block2(self.trans1(self.block1(self.conv1(x)))))
        h = functional.relu(self.bn1(self.block3(h)))
        logits: Tensor = self.fc(h.mean((2, 3)))
        return logits


@dataclass(frozen=True, slots=True)
class Transform:
    """What is done to 8-bit images before the network sees them."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def apply(self, pixels: Pixels, *, augment: np.random.Generator | None = None) -> Any:
        """Return normalised float32 images, shape (n, 3, size, size)."""
        coloured = resized(pixels, self.size)
        if coloured.ndim == 3:
            coloured = np.repeat(coloured[..., None], 3, axis=3)
        if augment is not None:
            coloured = augmented(coloured, augment)
        scaled = coloured.transpose(0, 3, 1, 2).astype(np.float32) / np.float32(255)
        mean, std = (np.array(x, np.float32).reshape(1, 3, 1, 1) for x in (self.mean, self.std))
        return np.ascontiguousarray((scaled - mean) / std)


def resized(pixels: Pixels, size: int) -> Pixels:
    """Return square images of another size, by Pillow's bilinear filter."""
    if pixels.shape[1:3] == (size, size):
        return pixels
    image, bilinear = pillow(), pillow().Resampling.BILINEAR
    rows = [np.asarray(image.fromarray(row).resize((size, size), bilinear)) for row in pixels]
    return np.stack(rows)


def augmented(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Return the images mirrored by chance and cut at random out of a black border of 4."""
    n, height, width, _ = pixels.shape
    mirrored = np.where(rng.random((n, 1, 1, 1)) < 0.5, pixels[:, :, ::-1], pixels)
    border = [(0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0)]
    padded = np.pad(mirrored, border)
    top, left = rng.integers(0, 2 * PADDING + 1, (2, n))
    rows = top[:, None, None] + np.arange(height)[None, :, None]
    columns = left[:, None, None] + np.arange(width)[None, None, :]
    cut: Pixels = padded[np.arange(n)[:, None, None], rows, columns]
    return cut


@dataclass(frozen=True, slots=True)
class Network:
    """A network of the table and how images enter it."""

    title: str
    build: Callable[[], nn.Module]
    transform: Transform
    accuracy: float
    """Published share of correct test images."""


_IMAGENET = Transform(32, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
NETWORKS: dict[str, Network] = {
    "lenet": Network(
        "LeNet (the benchmark's own)", LeNet, Transform(28, (0.5,) * 3, (0.5,) * 3), 0.9889
    ),
    "resnet20": Network("ResNet-20", lambda: ResNet(3), _IMAGENET, 0.9173),
    "resnet56": Network("ResNet-56", lambda: ResNet(9), _IMAGENET, 0.9339),
    "densenet100": Network(
        "DenseNet-BC-100-12",
        DenseNet,
        Transform(32, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
        0.9454,
    ),
}


Arrays = dict[str, npt.NDArray[Any]]

VERSION = 1
"""Part of every key: to be raised when the same inputs would give other numbers."""

# What a dense network computes for more images leaves the cache, and takes twice as long.
_RUN_BATCH = 32


class Cache:
    """A folder of .npz files named after what they were computed from.

    Parameters
    ----------
    folder
        Made if it is not there.
    block
        Rows that are computed and saved together: what an interruption costs at most.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        block: int = 5000,
        notify: Notify | None = None,
    ) -> None:
        self.folder, self.block, self.notify = Path(folder), block, notify
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(f"cannot make the folder {str(folder)!r}: {error}") from None

    def rows(
        self,
        label: str,
        inputs: Mapping[str, Any],
        count: int,
        compute: Callable[[int, int], Arrays],
    ) -> Arrays:
        """Return arrays of `count` rows, computed as ``compute(start, stop)`` where not stored.

        Parameters
        ----------
        label
            For people: the beginning of the file names, and what progress says.
        inputs
            Everything the result depends on.
        """
        key = _digest({**inputs, "block": self.block})
        parts = []
        for start in range(0, count, self.block):
            stop = min(start + self.block, count)
            path = self.folder / f"{label}-{key}-{start:06d}.npz"
            parts.append(self._one(path, lambda a=start, b=stop: compute(a, b)))  # type: ignore[misc]
            if self.notify is not None:
                self.notify(label, stop, count)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def whole(self, label: str, inputs: Mapping[str, Any], compute: Callable[[], Arrays]) -> Arrays:
        """Return arrays that are computed in one go where not stored."""
        if self.notify is not None:
            self.notify(label, 0, None)
        return self._one(self.folder / f"{label}-{_digest(inputs)}.npz", compute)

    def _one(self, path: Path, compute: Callable[[], Arrays]) -> Arrays:
        if path.exists():
            try:
                with np.load(path, allow_pickle=False) as file:
                    return {name: file[name] for name in file.files}
            except (OSError, ValueError, EOFError, KeyError) as error:
                raise InvalidInputError(
                    f"cannot read {str(path)!r} ({error}): delete it and run again"
                ) from None
        arrays = compute()
        with replacing(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        return arrays


def _digest(inputs: Mapping[str, Any]) -> str:
    text = json.dumps({"version": VERSION, **inputs}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Runner:
    """A network with weights, and the cache of what it gives."""

    model: nn.Module
    digest: str
    """Of the weights."""
    transform: Transform
    cache: Cache

    def activations(self, images: ImageSet, *, augment_seed: int | None = None) -> Activations:
        """Return logits, features, labels and the head for all images of a set.

        Parameters
        ----------
        augment_seed
            For images mirrored and cut at random, as in training; None for images as they are.
        """
        inputs = {**self._inputs(images), "augment_seed": augment_seed}
        head = [part for part in self.model.modules() if isinstance(part, nn.Linear)][-1]

        def compute(start: int, stop: int) -> Arrays:
            pixels = images.load()[0][start:stop]
            rng = None if augment_seed is None else np.random.default_rng([augment_seed, start])
            found = extract(self.model, self._batches(pixels, rng), layer=head, progress=False)
            # The network computes in single precision: nothing is lost.
            names = ("logits", "features")
            return {name: found.part(name).astype(np.float32) for name in names}

        suffix = "" if augment_seed is None else "-augmented"
        labels = self.labels(images)
        arrays = self.cache.rows(f"{images.name}{suffix}", inputs, len(labels), compute)
        return Activations(
            logits=arrays["logits"],
            features=arrays["features"],
            weight=head.weight.detach().numpy(),
            bias=head.bias.detach().numpy(),
            labels=labels,
        )

    def labels(self, images: ImageSet) -> Labels:
        """Return the classes of all images of a set."""
        inputs = {"images": images.fingerprint()}
        label = f"{images.name}-labels"
        return self.cache.whole(label, inputs, lambda: {"labels": images.load()[1]})["labels"]

    def odin(self, images: ImageSet, odin: Odin) -> FloatArray:
        """Return the ODIN scores of all images of a set."""

        def compute(start: int, stop: int) -> Arrays:
            batches = self._batches(images.load()[0][start:stop], None)
            return {"odin": odin.score(self.model, batches, progress=False)}

        inputs = {**self._inputs(images), "odin": [odin.temperature, odin.eps]}
        count = len(self.labels(images))
        return self.cache.rows(f"{images.name}-odin", inputs, count, compute)["odin"]

    def odin_options(
        self, own: tuple[ImageSet, IntArray], foreign: tuple[ImageSet, IntArray]
    ) -> Odin:
        """Return ODIN with the options that tell the given rows of two sets apart best."""
        std = self.transform.std

        def compute() -> Arrays:
            sides = [self._batches(images.load()[0][rows], None) for images, rows in (own, foreign)]
            found = Odin.search(self.model, *sides, std=std, progress=False)
            return {"options": np.array([found.temperature, found.eps])}

        inputs = [(self._inputs(images), rows.tolist()) for images, rows in (own, foreign)]
        options = self.cache.whole("odin-options", {"sides": inputs}, compute)["options"]
        return Odin(float(options[0]), float(options[1]), std)

    def _inputs(self, images: ImageSet) -> dict[str, Any]:
        return {
            "weights": self.digest,
            "transform": asdict(self.transform),
            "images": images.fingerprint(),
        }

    def _batches(self, pixels: Pixels, rng: np.random.Generator | None) -> Iterator[Tensor]:
        for start in range(0, len(pixels), _RUN_BATCH):
            images = self.transform.apply(pixels[start : start + _RUN_BATCH], augment=rng)
            yield torch.from_numpy(images).to(memory_format=torch.channels_last)


Tensors = Mapping[str, npt.NDArray[Any]]

TRAINING_BATCH = 128
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
    steps = epochs * -(-len(labels) // TRAINING_BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(1, steps))
    model.train()
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=generator).numpy()
        for start in range(0, len(order), TRAINING_BATCH):
            rows = np.sort(order[start : start + TRAINING_BATCH])
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
