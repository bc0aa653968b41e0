"""Long computations done once: results on disk, in blocks, so that an interrupted run goes on.

`Cache` holds them, `Runner` the greater part of them: what a network gives for a data set.
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
from torch import Tensor, nn

from demur._arrays import FloatArray, IntArray
from demur._files import replacing
from demur.adapters.torch import Odin, extract
from demur.detectors import Activations
from demur.errors import InvalidInputError
from demur.reproduce.data_download import Notify
from demur.reproduce.data_sets import ImageSet, Labels, Pixels
from demur.reproduce.networks import Transform

Arrays = dict[str, npt.NDArray[Any]]

VERSION = 1
"""Part of every key: to be raised when the same inputs would give other numbers."""

# What a dense network computes for more images leaves the cache, and takes twice as long.
_BATCH = 32


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
        for start in range(0, len(pixels), _BATCH):
            images = self.transform.apply(pixels[start : start + _BATCH], augment=rng)
            yield torch.from_numpy(images).to(memory_format=torch.channels_last)
