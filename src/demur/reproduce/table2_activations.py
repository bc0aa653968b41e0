"""What a network gives for a data set: activations and ODIN scores, computed once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from demur._arrays import FloatArray, IntArray
from demur.adapters.torch import Odin, extract
from demur.detectors import Activations
from demur.reproduce.data_images import Pixels, Transform
from demur.reproduce.data_sets import ImageSet, Labels
from demur.reproduce.table2_cache import Arrays, Cache

# What a dense network computes for more images leaves the cache, and takes twice as long.
_BATCH = 32


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
        for start in range(0, len(pixels), _BATCH):
            images = self.transform.apply(pixels[start : start + _BATCH], augment=rng)
            yield torch.from_numpy(images).to(memory_format=torch.channels_last)
