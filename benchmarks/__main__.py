"""Measure demur against named alternatives: ``python -m benchmarks SECTION ...``."""

from __future__ import annotations

import argparse
import os
import sys

from benchmarks import sections


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("section", nargs="+", choices=sorted(sections.SECTIONS))
    parser.add_argument("--sizes", nargs="+", type=lambda text: int(float(text)), default=[20_000])
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    print(f"one thread, median of {options.repetitions} repetitions in turns; seconds\n")
    for name in options.section:
        for size in options.sizes:
            print(f"{name}, n = {size:,}", file=sys.stderr)
            print(sections.SECTIONS[name](size, options.repetitions), flush=True)


if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    main()
