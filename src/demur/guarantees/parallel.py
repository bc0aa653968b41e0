"""The same work on many items, in threads if asked, with progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from demur.errors import InvalidInputError

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with how many items are done and how many there are, in the caller's thread."""


def in_order(
    run: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int | None,
    progress: Progress | None,
) -> list[Result]:
    """Return ``run(item)`` of all items, in their order whatever the number of threads."""
    if workers is not None and (isinstance(workers, bool) or workers < 1):
        raise InvalidInputError(f"workers must be a positive whole number or None, got {workers}")
    found: list[Result] = []
    with ThreadPoolExecutor(workers or 1) as pool:
        for result in pool.map(run, items) if workers else map(run, items):
            found.append(result)
            if progress is not None:
                progress(len(found), len(items))
    return found
