"""The exact optimum against the paper's grid, on the sample and on fresh data."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import numpy as np

import demur as dm
from benchmarks.datasets import Case, clouds, clouds_slack_fpr, synthetic

_FRESH = 300_000
_SAMPLES = 60


def exact_against_grid(n: int, repetitions: int) -> str:
    """Mean selective risk of both searches over many samples, and on fresh data."""
    head = (
        "| data | samples where exact <= grid | exact, sample | grid, sample | exact, fresh "
        "| grid, fresh | exact - grid, fresh |"
    )
    rows = [head, "|---|--:|--:|--:|--:|--:|--:|"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dm.ScoreUnitsWarning)
        rows += [_row(make, n) for make in (synthetic, clouds, clouds_slack_fpr)]
    return "\n".join([f"### Exact against grid-360, {_SAMPLES} samples, n = {n:,}", "", *rows, ""])


def _row(make: Callable[[int, int], Case], n: int) -> str:
    fresh = make(_FRESH, 10_000).sample
    risks = []
    for seed in range(_SAMPLES):
        case = make(n, seed)
        tuned = [dm.tune(case.sample, case.model, search=s) for s in (dm.Exact(), dm.Grid(360))]
        risks.append(
            [t.point.selective_risk for t in tuned]
            + [dm.evaluate(t.rule, fresh).selective_risk for t in tuned]
        )
    table = np.array(risks)
    print(f"  {make.__name__}, n = {n:,}", file=sys.stderr, flush=True)
    means = table.mean(axis=0)
    gain = table[:, 2] - table[:, 3]
    error = gain.std(ddof=1) / np.sqrt(_SAMPLES)
    never_worse = int((table[:, 0] <= table[:, 1]).sum())
    numbers = " | ".join(f"{mean:.5f}" for mean in means)
    return (
        f"| {make.__name__} | {never_worse} of {_SAMPLES} | {numbers} "
        f"| {gain.mean():+.5f} ± {error:.5f} |"
    )
