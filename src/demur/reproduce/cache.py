"""What is fetched or computed once and kept on disk, so that an interrupted run goes on.

Downloads are checked, go on after an interruption and never leave half a file. Long computations
are kept in blocks.

`Cache` holds them, `Runner` the greater part of them: what a network gives for a data set.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
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
from demur.reproduce.networks import ImageSet, Labels, Pixels, Transform

Notify = Callable[[str, int, int | None], None]
"""Called with what is going on, how much of it is done and how much there is."""

_BLOCK = 2**20
_PATIENCE = 30.0  # seconds without a byte


@dataclass(frozen=True, slots=True)
class Download:
    """A file at its public home, the MD5 its home states, and where it is unpacked."""

    url: str
    md5: str
    target: str
    unpack: bool = False


_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_TORONTO = "https://www.cs.toronto.edu/~kriz/"


def _gz(base: str, folder: str, sums: dict[str, str]) -> tuple[Download, ...]:
    return tuple(
        Download(f"{base}{name}-ubyte.gz", md5, f"{folder}/{name}-ubyte.gz")
        for name, md5 in sums.items()
    )


_MNIST_TRAIN = _gz(
    _MNIST,
    "mnist",
    {
        "train-images-idx3": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1": "d53e105ee54ea40749a09fcbcd1e9432",
    },
)
_MNIST_TEST = _gz(
    _MNIST,
    "mnist",
    {
        "t10k-images-idx3": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)
_CIFAR10 = (
    Download(
        _TORONTO + "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        "cifar-10-python.tar.gz",
        unpack=True,
    ),
)
DOWNLOADS: dict[str, tuple[Download, ...]] = {
    "mnist-train": _MNIST_TRAIN,
    "mnist-test": _MNIST_TEST,
    "mnist-all": _MNIST_TRAIN + _MNIST_TEST,
    "fashionmnist-test": _gz(
        _FASHION,
        "fashion-mnist",
        {
            "t10k-images-idx3": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "notmnist": (
        Download(
            "http://yaroslavvb.com/upload/notMNIST/notMNIST_small.tar.gz",
            "c9890a473a9769fda4bdf314aaf500dd",
            "notMNIST_small.tar.gz",
            unpack=True,
        ),
    ),
    "cifar10-train": _CIFAR10,
    "cifar10-test": _CIFAR10,
    "cifar100-test": (
        Download(
            _TORONTO + "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            "cifar-100-python.tar.gz",
            unpack=True,
        ),
    ),
    "tin-val": (
        Download(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
            "tiny-imagenet-200.zip",
            unpack=True,
        ),
    ),
}
"""What `demur.reproduce.networks.SETS` are made of."""


def download_set(
    name: str, folder: str | os.PathLike[str], *, notify: Notify | None = None
) -> None:
    """Fetch the files of a data set into `folder`, in their official layout."""
    for part in DOWNLOADS[name]:
        target = Path(folder) / part.target
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.is_file():
            fetch(part.url, target, md5=part.md5, notify=notify)
        if part.unpack:
            unpack(target, Path(folder))


def fetch(
    url: str,
    target: str | os.PathLike[str],
    *,
    md5: str | None = None,
    notify: Notify | None = None,
) -> None:
    """Download `url` to `target`, going on with what an interrupted try has left.

    Parameters
    ----------
    md5
        Of the whole file. A file with another one is deleted.
    notify
        Called after every megabyte.
    """
    path = Path(target)
    part = path.with_name(path.name + ".part")
    try:
        _receive(url, part, notify)
    except (OSError, urllib.error.URLError) as error:
        raise InvalidInputError(
            f"cannot download {url}: {error}; run again to go on with it"
        ) from None
    found = file_md5(part)
    if md5 is not None and found != md5:
        part.unlink()
        raise InvalidInputError(f"{url} has MD5 {found}, expected {md5}: the file was deleted")
    os.replace(part, path)


def _receive(url: str, part: Path, notify: Notify | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer: Any = urllib.request.urlopen(request, timeout=_PATIENCE)
    except urllib.error.HTTPError as error:
        # The server has no bytes beyond those we have: the checksum decides.
        if error.code == 416:
            error.close()
            return
        raise
    with answer:
        # A server that ignores the range begins anew, and so do we.
        have = have if answer.status == 206 else 0
        length = answer.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with part.open("ab" if have else "wb") as file:
            while block := answer.read(_BLOCK):
                file.write(block)
                have += len(block)
                if notify is not None:
                    notify(f"download {url.rsplit('/', 1)[-1]}", have, total)
    if total is not None and have < total:
        raise OSError(f"only {have:,} of {total:,} bytes came")


def unpack(archive: str | os.PathLike[str], folder: str | os.PathLike[str]) -> None:
    """Unpack a .tar.gz or .zip archive; members outside of `folder` are refused."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                file.extractall(folder)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"cannot unpack {os.fspath(archive)!r}: {error}") from None


def file_md5(path: str | os.PathLike[str]) -> str:
    """Return the MD5 by which the homes of the data sets name their files."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


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
