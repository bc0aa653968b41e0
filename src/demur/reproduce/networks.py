"""The networks of Table 2: the benchmark's LeNet, CIFAR ResNets and DenseNet-BC-100-12.

With how images enter them: resized, normalised, for augmented ones also mirrored and cut. Names
of the parts are those of the published weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, cat, nn
from torch.nn import functional

from demur.reproduce.data_sets import Pixels, pillow

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
