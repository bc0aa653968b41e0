"""Small random data sets in the official layouts, and checkpoints by which a run can be stopped."""

from __future__ import annotations

import gzip
import pickle
import struct

import numpy as np
from PIL import Image


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0))


def digits(n, rng):
    """Grey images whose class shows as the place of a bright square."""
    labels = rng.integers(0, 10, n)
    images = rng.integers(0, 60, (n, 28, 28))
    for image, label in zip(images, labels, strict=True):
        row, column = 2 + 12 * (label // 5), 1 + 5 * (label % 5)
        image[row : row + 10, column : column + 5] += 180
    return images.astype(np.uint8), labels


def python2_batch(rows, labels):
    """A pickle as Python 2 wrote it: every text, and the pixels, are byte strings."""

    def text(raw):
        return b"T" + struct.pack("<i", len(raw)) + raw

    def number(value):
        return b"J" + struct.pack("<i", value)

    shape = number(rows.shape[0]) + number(rows.shape[1]) + b"\x86"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n"
    array += number(0) + b"\x85" + text(b"b") + b"\x87R"
    array += b"(" + number(1) + shape + dtype + b"\x89" + text(rows.tobytes()) + b"tb"
    labels = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def write_mnist_setup(folder, *, train=400, test=120, ood=60, seed=0):
    """Write all sets that ``--id mnist`` reads."""
    rng = np.random.default_rng(seed)
    for part, n in (("train", train), ("t10k", test)):
        images, labels = digits(n, rng)
        write_idx(folder / "mnist" / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / "mnist" / f"{part}-labels-idx1-ubyte.gz", labels)
    noise = rng.integers(0, 256, (ood, 28, 28))
    write_idx(folder / "fashion-mnist" / "t10k-images-idx3-ubyte.gz", noise)
    write_idx(folder / "fashion-mnist" / "t10k-labels-idx1-ubyte.gz", np.zeros(ood))
    for i in range(ood):
        path = folder / "notMNIST_small" / "ABCDEFGHIJ"[i % 10] / f"{i:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (28, 28), dtype=np.uint8)).save(path)
    batch = folder / "cifar-10-batches-py" / "test_batch"
    batch.parent.mkdir(parents=True, exist_ok=True)
    rows = rng.integers(0, 256, (ood, 3072), dtype=np.uint8)
    content = {b"data": rows, b"labels": rng.integers(0, 10, ood).tolist()}
    batch.write_bytes(pickle.dumps(content, protocol=2))
