"""The data sets and the networks of Table 2.

Data sets are read from a folder in their official layouts. Networks are the benchmark's LeNet,
CIFAR ResNets and DenseNet-BC-100-12.

With how images enter them: resized, normalised, for augmented ones also mirrored and cut. Names
of the parts are those of the published weights.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, cat, nn
from torch.nn import functional

from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.archives import load_pickle

Pixels = npt.NDArray[np.uint8]
"""Shape (n, height, width) for grey images, (n, height, width, 3) for coloured ones."""
Labels = npt.NDArray[np.int64]

JPEG_QUALITY = 75

LETTERS = "ABCDEFGHIJ"
UNREADABLE = {
    "A/RGVtb2NyYXRpY2FCb2xkT2xkc3R5bGUgQm9sZC50dGY=.png",
    "F/Q3Jvc3NvdmVyIEJvbGRPYmxpcXVlLnR0Zg==.png",
}
"""Two files of the official archive of notMNIST are not images."""


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Images of one data set, in the order to which split files refer."""

    name: str
    files: tuple[Path, ...]
    """All files the images are read from."""
    read: Callable[[tuple[Path, ...]], tuple[Pixels, Labels]]

    def load(self) -> tuple[Pixels, Labels]:
        """Return the images and their classes; the last two sets are kept in memory."""
        return _load(self)

    def fingerprint(self) -> str:
        """Return a digest that changes when a file is replaced."""
        digest = hashlib.sha256(self.name.encode())
        for path in self.files:
            status = path.stat()
            digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()


@lru_cache(maxsize=2)
def _load(images: ImageSet) -> tuple[Pixels, Labels]:
    return images.read(images.files)


def image_set(name: str, folder: str | os.PathLike[str]) -> ImageSet:
    """Return a data set of `SETS` in `folder`, or say which of its files is missing."""
    find, read = SETS[name]
    base = Path(folder)
    files = tuple(find(base))
    missing = [path for path in files if not path.is_file()]
    if missing or not files:
        what = str(missing[0]) if missing else f"{base} (no images in it)"
        raise InvalidInputError(
            f"the images of {name!r} are missing: {what}. Put the official files there, or add "
            "--download"
        )
    return ImageSet(name, files, read)


def _read_idx(path: Path) -> npt.NDArray[np.uint8]:
    with gzip.open(path, "rb") as file:
        raw = file.read()
    axes = raw[3]
    shape = np.frombuffer(raw, ">i4", axes, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def jpeg_coded(pixels: Pixels) -> Pixels:
    """Return the images as they come back from JPEG files of quality 75."""
    image = pillow()
    rows = []
    for row in pixels:
        file = io.BytesIO()
        image.fromarray(row).save(file, format="JPEG", quality=JPEG_QUALITY)
        rows.append(np.asarray(image.open(file)))
    return np.stack(rows) if rows else pixels


def _read_mnist(files: tuple[Path, ...]) -> tuple[Pixels, Labels]:
    images = [jpeg_coded(_read_idx(path)) for path in files[::2]]
    labels = [_read_idx(path) for path in files[1::2]]
    return np.concatenate(images), np.concatenate(labels).astype(np.int64)


def _find_mnist(folder: str, parts: tuple[str, ...], base: Path) -> list[Path]:
    kinds = ("images-idx3", "labels-idx1")
    return [base / folder / f"{part}-{kind}-ubyte.gz" for part in parts for kind in kinds]


def _find_notmnist(base: Path) -> list[Path]:
    root = base / "notMNIST_small"
    names = [
        f"{letter}/{path.name}" for letter in LETTERS for path in (root / letter).glob("*.png")
    ]
    return [root / name for name in sorted(set(names) - UNREADABLE)]


def pillow() -> Any:
    """Return the module ``PIL.Image``."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Pillow", "reproduce") from None
    return Image


def _read_pictures(files: tuple[Path, ...], mode: str) -> Pixels:
    image = pillow()
    rows = []
    for path in files:
        with image.open(path) as picture:
            rows.append(np.asarray(picture.convert(mode)))
    return np.stack(rows)


def _read_notmnist(files: tuple[Path, ...]) -> tuple[Pixels, Labels]:
    letters = [LETTERS.index(path.parent.name) for path in files]
    return _read_pictures(files, "L"), np.array(letters, np.int64)


def read_batch(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the entries of a CIFAR batch: ``data`` as a uint8 array, labels as lists.

    Batches are pickles of Python 2, in which every text is bytes; nothing in them is run.
    """
    try:
        with open(path, "rb") as file:
            content = load_pickle(file, encoding="bytes")
        data = content[b"data"]
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (3072,):
            raise InvalidInputError("its data are not rows of 3 x 32 x 32 bytes")
        return {bytes(key).decode(): value for key, value in content.items()}
    except Exception as error:
        # A damaged pickle can fail in any way at all.
        raise InvalidInputError(f"{os.fspath(path)!r} is no CIFAR batch: {error}") from None


def _classes(labels: Any) -> Labels:
    """Return the classes of a batch; lists in lists may have no end."""
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise InvalidInputError("the labels of a CIFAR batch are not a list of numbers")
    return np.array(labels, np.int64)


def _find_batches(folder: str, names: tuple[str, ...], base: Path) -> list[Path]:
    return [base / folder / name for name in names]


def _read_batches(labels: str, files: tuple[Path, ...]) -> tuple[Pixels, Labels]:
    batches = [read_batch(path) for path in files]
    planes = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    classes = np.concatenate([_classes(batch[labels]) for batch in batches])
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), classes


def _find_tiny(base: Path) -> list[Path]:
    folder = base / "tiny-imagenet-200" / "val" / "images"
    return [folder / f"val_{i}.JPEG" for i in range(10_000)]


def _read_tiny(files: tuple[Path, ...]) -> tuple[Pixels, Labels]:
    # The classes play no part: the set is only ever used as OOD.
    return _read_pictures(files, "RGB"), np.full(len(files), -1, np.int64)


_CIFAR10 = "cifar-10-batches-py"
_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))
SETS: dict[str, tuple[Callable[[Path], list[Path]], Any]] = {
    "mnist-train": (partial(_find_mnist, "mnist", ("train",)), _read_mnist),
    "mnist-test": (partial(_find_mnist, "mnist", ("t10k",)), _read_mnist),
    "mnist-all": (partial(_find_mnist, "mnist", ("train", "t10k")), _read_mnist),
    "fashionmnist-test": (partial(_find_mnist, "fashion-mnist", ("t10k",)), _read_mnist),
    "notmnist": (_find_notmnist, _read_notmnist),
    "cifar10-train": (partial(_find_batches, _CIFAR10, _TRAIN), partial(_read_batches, "labels")),
    "cifar10-test": (
        partial(_find_batches, _CIFAR10, ("test_batch",)),
        partial(_read_batches, "labels"),
    ),
    "cifar100-test": (
        partial(_find_batches, "cifar-100-python", ("test",)),
        partial(_read_batches, "fine_labels"),
    ),
    "tin-val": (_find_tiny, _read_tiny),
}
"""How to find and read each set."""


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
