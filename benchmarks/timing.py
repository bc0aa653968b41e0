"""Alternating repetitions of a baseline and its contenders, and a table of their ratios.

Processor time is measured: other programs on the machine then count little.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Run = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median seconds of processor time of a baseline and of ours, measured in turns."""

    what: str
    baseline: float
    ours: float

    @property
    def speedup(self) -> float:
        """How many times faster ours is."""
        return self.baseline / self.ours


def compare(what: str, baseline: Run, ours: Run, repetitions: int) -> Ratio:
    """Time both sides `repetitions` times in turns, after one run of ours to warm up."""
    return compare_all(what, baseline, {"": ours}, repetitions)[""]


def compare_all(
    what: str, baseline: Run, contenders: Mapping[str, Run], repetitions: int
) -> dict[str, Ratio]:
    """Time a baseline and its contenders in turns, after one run of each contender."""
    for run in contenders.values():
        run()
    sides = {None: baseline, **contenders}
    times: dict[str | None, list[float]] = {name: [] for name in sides}
    for _ in range(repetitions):
        for name, run in sides.items():
            gc.collect()
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    found = {name: Ratio(what, medians[None], medians[name]) for name in contenders}
    for name, ratio in found.items():
        print(f"  {what} {name}: {ratio.speedup:.1f}x", file=sys.stderr, flush=True)
    return found


def table(title: str, ratios: list[Ratio], goal: str) -> str:
    """Return a Markdown table with the median ratio last."""
    rows = [f"| {r.what} | {r.baseline:.3g} | {r.ours:.3g} | {r.speedup:.3g}x |" for r in ratios]
    median = statistics.median(r.speedup for r in ratios)
    head = ["| data | baseline s | ours s | ratio |", "|---|--:|--:|--:|"]
    last = f"| **median** (goal {goal}) | | | **{median:.3g}x** |"
    return "\n".join([f"### {title}", "", *head, *rows, last, ""])
