"""Images as the benchmark feeds them to a network: coded, resized, normalised, augmented."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.errors import MissingExtraError

Pixels = npt.NDArray[np.uint8]
"""Shape (n, height, width) for grey images, (n, height, width, 3) for coloured ones."""

JPEG_QUALITY = 75
PADDING = 4


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


def jpeg_coded(pixels: Pixels) -> Pixels:
    """Return the images as they come back from JPEG files of quality 75."""
    image = pillow()
    rows = []
    for row in pixels:
        file = io.BytesIO()
        image.fromarray(row).save(file, format="JPEG", quality=JPEG_QUALITY)
        rows.append(np.asarray(image.open(file)))
    return np.stack(rows) if rows else pixels


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


def pillow() -> Any:
    """Return the module ``PIL.Image``."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("Pillow", "reproduce") from None
    return Image
