"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from demur.errors import InvalidInputError


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write `content` to `path`; an interrupted write leaves an older file as it was."""
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` once the block has ended without an error."""
    try:
        target = Path(path)
        os.fsencode(target)
    except TypeError:
        raise InvalidInputError(f"the path must be text or a path, got {path!r}") from None
    if "\0" in str(target):
        raise InvalidInputError(f"{str(target)!r} is not the name of a file")
    check_target(target)
    try:
        handle, part = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=".part"
        )
    except OSError as error:
        raise InvalidInputError(f"cannot write {str(target)!r}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise


@contextmanager
def replacing_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new folder that becomes `path` once the block has ended without an error."""
    target = Path(path)
    check_parent(target)
    try:
        part = tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise InvalidInputError(f"cannot write {str(target)!r}: {error.strerror}") from None
    try:
        (fresh := Path(part, "new")).mkdir()
        yield fresh
        if target.exists():
            os.rename(target, Path(part, "old"))
        try:
            os.rename(fresh, target)
        except OSError:
            if Path(part, "old").exists():
                os.rename(Path(part, "old"), target)
            raise
    finally:
        shutil.rmtree(part)


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a path that no file can be written to, before the work and not after it."""
    target = Path(path)
    check_parent(target)
    if target.is_dir():
        raise InvalidInputError(f"{str(target)!r} is a folder, not a file")
    # Replacing a device or a pipe would destroy it.
    if target.exists() and not target.is_file():
        raise InvalidInputError(f"{str(target)!r} is not a regular file")


def check_parent(target: Path) -> None:
    """Refuse a path in a folder that does not exist."""
    if not target.parent.is_dir():
        raise InvalidInputError(f"the folder {str(target.parent)!r} does not exist")


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
