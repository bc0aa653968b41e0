"""Samples tuned one after another, and by several threads: ``python -m benchmarks.threads``.

Wall-clock times, so nothing else should run. A search gives up CPython's lock, so threads help with
it and without it (3.13t and later).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import demur as dm

MODEL = dm.TprFprModel(min_tpr=0.6, max_fpr=0.6)


def drawn(seed: int, rows: int) -> dm.Sample:
    rng = np.random.default_rng(seed)
    scores, foreign = rng.normal(size=(rows, 2)), rng.normal(0.7, 1, (rows, 2))
    return dm.Sample(scores, rng.random(rows) < 0.3, foreign)


def tuned(sample: dm.Sample) -> str:
    found = dm.tune(sample, MODEL, directions="circle")
    return f"{found.rule.direction} {found.rule.threshold!r} {found.point}"


def seconds(work: Callable[[], list[str]]) -> tuple[float, list[str]]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    samples = [drawn(seed, options.rows) for seed in range(options.samples)]
    tuned(samples[0])
    ratios = []
    for _ in range(5):
        alone, expected = seconds(lambda: [tuned(sample) for sample in samples])
        with ThreadPoolExecutor(options.threads) as pool:
            together, found = seconds(lambda: list(pool.map(tuned, samples)))
        assert found == expected, "threads found other rules"
        ratios.append(alone / together)
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(
        f"Python {sys.version.split()[0]}, {'with' if locked else 'without'} the lock: "
        f"{options.threads} threads tune {options.samples} samples of {options.rows} + "
        f"{options.rows} rows {statistics.median(ratios):.2f} times as fast as one thread"
    )


if __name__ == "__main__":
    main()
