"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from demur.errors import InvalidInputError


def write_atomically(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write `content` to `path`; an interrupted write leaves an older file as it was."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InvalidInputError(f"the folder {str(target.parent)!r} does not exist")
    if target.is_dir():
        raise InvalidInputError(f"{str(target)!r} is a folder, not a file")
    try:
        handle, part = tempfile.mkstemp(
            dir=target.parent, prefix=f".{target.name}.", suffix=".part"
        )
    except OSError as error:
        raise InvalidInputError(f"cannot write {str(target)!r}: {error}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, target)
    except BaseException:
        os.unlink(part)
        raise


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
