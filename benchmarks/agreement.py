"""Whether both engines find the same optimum, and the very same rule."""

from __future__ import annotations

import sys

import demur as dm
from benchmarks.datasets import HARD, REALISTIC
from benchmarks.engines import on_engine


def agreement(n: int, samples: int) -> str:
    """Compare the engines on every data set and direction set."""
    lines = [
        f"### NumPy and compiled engine, n = {n:,}, {samples} samples each",
        "",
        "| data | directions | same masses | same rule |",
        "|---|---|--:|--:|",
    ]
    for make in REALISTIC + HARD:
        cases = [make(n, seed) for seed in range(samples)]
        for directions in ("nonneg", "real", "paper", "circle"):
            print(f"  {make.__name__} {directions}", file=sys.stderr)
            pairs = [
                [
                    on_engine(name, dm.tune, case.sample, case.model, directions=directions)
                    for name in ("numpy", "compiled")
                ]
                for case in cases
            ]
            points = sum(one.point == other.point for one, other in pairs)
            rules = sum(one.rule == other.rule for one, other in pairs)
            lines.append(f"| {make.__name__} | {directions} | {points} | {rules} |")
    return "\n".join([*lines, ""])
