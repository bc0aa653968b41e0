"""Reading small files strictly; writing files so that a reader never sees half of one."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from demur.errors import InvalidInputError


def read_text(path: str | os.PathLike[str], what: str, largest: int) -> str:
    """Return the text of a regular file, of which no more than `largest` bytes and one are read."""
    try:
        target = Path(path)
        # A pipe without a writer would wait for ever, a device never end.
        if target.exists() and not target.is_file():
            raise OSError("it is not a regular file")
        with target.open("rb") as file:
            return file.read(largest + 1).decode("utf-8")
    except (OSError, TypeError, ValueError) as error:
        raise InvalidInputError(f"cannot read {what} {str(path)!r}: {error}") from None


def strict_json(text: str) -> Any:
    """Return the data of JSON text; refuse what readers of JSON take differently.

    NaN and infinities are no numbers of JSON. Of two entries with one name most readers keep the
    last, some the first.

    Raises
    ------
    ValueError, RecursionError
    """
    return json.loads(text, parse_constant=_no_number, object_pairs_hook=single_entries)


def check_version(data: dict[str, Any], what: str, newest: int) -> None:
    """Refuse data that a newer demur wrote."""
    version = data.get("version")
    if isinstance(version, bool) or version not in range(1, newest + 1):
        raise InvalidInputError(
            f"{what} has version {version!r}, this demur reads versions 1 to {newest}; use the "
            "demur that wrote it, or a newer one"
        )


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def single_entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, all of whose names must differ."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the same key twice: {twice!r}")
    return found


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes, *, new: bool = False
) -> None:
    """Write `content` to `path`; an interrupted write leaves an older file as it was.

    With `new` there must not be an older file, not even one written meanwhile.
    """
    with replacing(path, new=new) as file:
        file.write(content.encode() if isinstance(content, str) else content)


_unfinished: set[str] = set()


def unfinished(path: str) -> str:
    """Remember a file or folder that is to be gone in the end, however a command ends."""
    _unfinished.add(path)
    return path


def finished(path: str) -> None:
    """Forget a path that is gone, or whole."""
    _unfinished.discard(path)


def remove_unfinished() -> None:
    """Remove all that is half written."""
    for path in tuple(_unfinished):
        with suppress(OSError):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


@contextmanager
def replacing(path: str | os.PathLike[str], *, new: bool = False) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` once the block has ended without an error.

    With `new` there must not be a file of that name, neither now nor in the end: of two writers
    at a time one is refused.
    """
    check_target(path)
    target = Path(path)
    if new and target.exists():
        raise _exists(target)
    # Known before it exists, so that no moment is left at which it would stay behind.
    part = unfinished(str(target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")))
    try:
        handle = _new_file(part, target)
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(part, 0o666 & ~_umask())
        if new:
            _place_new(part, target)
        else:
            os.replace(part, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(part)
        raise
    finally:
        finished(part)


def _new_file(part: str, target: Path) -> int:
    try:
        return os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except OSError as error:
        raise InvalidInputError(f"cannot write {str(target)!r}: {error.strerror}") from None


def _place_new(part: str, target: Path) -> None:
    """Give a whole file its name, unless another has it by now."""
    try:
        os.link(part, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:
        # Not every file system has links. The name is taken first, by whoever comes first.
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            raise _exists(target) from None
        os.replace(part, target)
    else:
        os.unlink(part)


def _exists(target: Path) -> InvalidInputError:
    return InvalidInputError(f"{str(target)!r} exists; add --force to replace it")


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
        unfinished(part)
        (fresh := Path(part, "new")).mkdir()
        yield fresh
        # From here on it may hold the only copy of an older folder.
        finished(part)
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
        finished(part)


def check_target(path: str | os.PathLike[str]) -> None:
    """Refuse a path that no file can be written to, before the work and not after it."""
    try:
        text = os.fspath(path)
    except TypeError:
        raise InvalidInputError(f"a file must be named by text or a Path, got {path!r}") from None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInputError(f"{text!r} is not a path")
    target = Path(text)
    check_parent(target)
    if target.is_dir():
        raise InvalidInputError(f"{text!r} is a folder, not a file")
    # Path would drop the slash, and a file appear where a folder was meant.
    if text.endswith(("/", os.sep)):
        raise InvalidInputError(f"{text!r} ends in a slash, so it names a folder and not a file")
    if target.is_symlink() and not target.exists():
        raise InvalidInputError(f"{text!r} is a link that leads to no file")
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
