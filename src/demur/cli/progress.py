"""A line on the terminal while something takes longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

PATIENCE = 2.0
"""Seconds before anything is shown."""

_EVERY = 0.5


class Progress:
    """Shows, on a terminal only, what is going on, how far it is and since when."""

    def __init__(self, label: str, total: int | None = None, *, unit: str = "rows") -> None:
        self._label, self._total, self._unit = label, total, unit
        self._done = 0
        self._start = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def advance(self, count: int) -> None:
        """Count so many more as done."""
        self._done += count

    def at(self, done: int, total: int) -> None:
        """Say how far it is now."""
        self._done, self._total = done, total

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _show(self) -> None:
        wait = PATIENCE
        while not self._ended.wait(wait):
            sys.stderr.write(f"\r\x1b[K{self._text()}")
            sys.stderr.flush()
            wait = _EVERY
        if wait == _EVERY:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _text(self) -> str:
        seconds = f"{time.monotonic() - self._start:.0f} s"
        if not self._done:
            return f"{self._label}, {seconds}"
        of = f" of {self._total:,} ({self._done / self._total:.0%})" if self._total else ""
        return f"{self._label}: {self._done:,}{of} {self._unit}, {seconds}"
