"""Downloads that are checked, go on after an interruption and never leave half a file."""

from __future__ import annotations

import hashlib
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demur.errors import InvalidInputError

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
"""What `demur.reproduce.data_sets.SETS` are made of."""


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
