"""Results of long computations on disk, in blocks, so that an interrupted run goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demur._files import replacing
from demur.errors import InvalidInputError
from demur.reproduce.data_download import Notify

Arrays = dict[str, npt.NDArray[Any]]

VERSION = 1
"""Part of every key: to be raised when the same inputs would give other numbers."""


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
