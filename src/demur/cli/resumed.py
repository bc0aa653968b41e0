"""A folder of results that a later run goes on with, if this one is killed.

Results wait in a hidden folder beside the target. Each is written under another name, synced,
renamed, and then noted in a log, so that what the log says is done was done, whatever happened
next. The first line of the log tells what was asked; another question does not go on with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from demur.errors import InvalidInputError

_LOG, _RESULTS = "done.jsonl", "results"


class ResumedFolder:
    """Results that become the folder `target` when all of them are there."""

    def __init__(self, target: Path, asked: Mapping[str, Any]) -> None:
        self._target = target
        self._place = target.parent / f".{target.name}.resume"
        self._question = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        self.done: dict[str, dict[str, int]] = {}
        """What was noted of the results that are there already."""

    def open(self) -> None:
        """Begin, or find out what an earlier run has done."""
        log = self._place / _LOG
        if not log.exists():
            (self._place / _RESULTS).mkdir(parents=True, exist_ok=True)
            self._note({"question": self._question})
            return
        lines = [_entry(line) for line in log.read_text(encoding="utf-8").splitlines()]
        if not lines or lines[0].get("question") != self._question:
            raise InvalidInputError(
                f"{str(self._place)!r} was begun with another rule, other options or files that "
                "have changed since: remove it to begin anew"
            )
        for line in lines[1:]:
            result = self._place / _RESULTS / str(line.get("name"))
            # A line that was cut off, or a result that is not what was noted, does not count.
            if "size" in line and result.is_file() and result.stat().st_size == line["size"]:
                self.done[str(line["name"])] = line["counts"]
        # A line cut off by a kill must not run into the next one.
        with open(log, "a", encoding="utf-8") as file:
            file.write("\n")

    def write(
        self, name: str, write: Callable[[BinaryIO], None], counts: Callable[[], dict[str, int]]
    ) -> None:
        """Write one result; it counts once it is complete and noted."""
        result = self._place / _RESULTS / name
        result.parent.mkdir(parents=True, exist_ok=True)
        part = result.with_name(f".{result.name}.part")
        with open(part, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, result)
        self._note({"name": name, "size": result.stat().st_size, "counts": counts()})

    def finish(self, names: Sequence[str]) -> None:
        """Make the results the target, in the place of an older one."""
        results, old = self._place / _RESULTS, self._place / "old"
        for part in results.rglob(".*.part"):
            part.unlink()
        found = {str(file.relative_to(results)) for file in results.rglob("*") if file.is_file()}
        if found != set(names):
            raise InvalidInputError(f"{str(self._place)!r} holds other files than this run writes")
        if self._target.exists():
            os.rename(self._target, old)
        try:
            os.rename(results, self._target)
        except OSError:
            if old.exists():
                os.rename(old, self._target)
            raise
        shutil.rmtree(self._place)

    def _note(self, entry: Mapping[str, Any]) -> None:
        with open(self._place / _LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _entry(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
