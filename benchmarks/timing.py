"""Alternating repetitions of two sides, and a table of their ratios."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median seconds of a baseline and of ours, measured in turns."""

    what: str
    baseline: float
    ours: float

    @property
    def speedup(self) -> float:
        """How many times faster ours is."""
        return self.baseline / self.ours


def compare(
    what: str, baseline: Callable[[], Any], ours: Callable[[], Any], repetitions: int
) -> Ratio:
    """Time both sides `repetitions` times in turns, after one run of ours to warm up."""
    ours()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repetitions):
        for side, run in zip(times, (baseline, ours), strict=True):
            gc.collect()
            start = time.perf_counter()
            run()
            side.append(time.perf_counter() - start)
    ratio = Ratio(what, *(statistics.median(side) for side in times))
    print(f"  {what}: {ratio.speedup:.1f}x", file=sys.stderr, flush=True)
    return ratio


def table(title: str, ratios: list[Ratio], goal: str) -> str:
    """Return a Markdown table with the median ratio last."""
    rows = [f"| {r.what} | {r.baseline:.4g} | {r.ours:.4g} | {r.speedup:.1f}x |" for r in ratios]
    median = statistics.median(r.speedup for r in ratios)
    head = ["| data | baseline s | ours s | ratio |", "|---|--:|--:|--:|"]
    return "\n".join(
        [
            f"### {title}",
            "",
            *head,
            *rows,
            f"| **median** (goal {goal}) | | | **{median:.1f}x** |",
            "",
        ]
    )
