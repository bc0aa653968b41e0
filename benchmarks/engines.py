"""Which engine runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Force an engine for a while."""
    before = os.environ.get("DEMUR_ENGINE")
    os.environ["DEMUR_ENGINE"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["DEMUR_ENGINE"]
        else:
            os.environ["DEMUR_ENGINE"] = before


def on_engine(name: str, run: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call a function on an engine."""
    with engine(name):
        return run(*arguments, **options)
