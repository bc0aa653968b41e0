"""The data sets of Table 2: read from a folder in their official layouts, or fetched first.

Downloads are checked, go on after an interruption and never leave half a file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError, MissingExtraError
from demur.sources.archives import load_pickle

Pixels = npt.NDArray[np.uint8]
"""Shape (n, height, width) for grey images, (n, height, width, 3) for coloured ones."""
Labels = npt.NDArray[np.int64]
Notify = Callable[[str, int, int | None], None]
"""Called with what is going on, how much of it is done and how much there is."""

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


_DIGITS_TRAIN = _gz(
    _MNIST,
    "mnist",
    {
        "train-images-idx3": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1": "d53e105ee54ea40749a09fcbcd1e9432",
    },
)
_DIGITS_TEST = _gz(
    _MNIST,
    "mnist",
    {
        "t10k-images-idx3": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1": "ec29112dd5afa0611ce80d1b7f02629c",
    },
)
_CIFAR10_FILES = (
    Download(
        _TORONTO + "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        "cifar-10-python.tar.gz",
        unpack=True,
    ),
)
DOWNLOADS: dict[str, tuple[Download, ...]] = {
    "mnist-train": _DIGITS_TRAIN,
    "mnist-test": _DIGITS_TEST,
    "mnist-all": _DIGITS_TRAIN + _DIGITS_TEST,
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
    "cifar10-train": _CIFAR10_FILES,
    "cifar10-test": _CIFAR10_FILES,
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
"""What `SETS` are made of."""


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
