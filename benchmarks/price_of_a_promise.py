"""The price of a promise against the number of rows, old and new, as a figure.

    python -m benchmarks.simulate_guarantees tuning --runs runs/
    python -m benchmarks.price_of_a_promise runs/ docs/price-of-a-promise.svg

Reads the kept runs of the tuning simulations. The old numbers are those of the path of five margins
that `tune_certified` took before, from 1,000 repetitions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.simulations.table import numbers, run_files

SIZES = (100, 300, 1000, 3000, 10_000)
OLD = {
    "paper, scores (r, g)": ((0.0391, 0.0336, 0.0274, 0.0160, 0.0085), (3.3, 26, 88.4, 99.9, 100)),
    "two normal scores": ((0.0430, 0.0425, 0.0245, 0.0124, 0.0061), (10.1, 57.6, 99.5, 100, 100)),
}
"""By population: cost in risk, and percent of cases in which a rule was proven."""


def new(folder: Path, population: str) -> tuple[list[int], list[float], list[float]]:
    """Return sizes, mean costs in risk and percent proven, of the runs there are."""
    sizes, costs, proven = [], [], []
    for n in SIZES:
        runs = run_files(folder, f"tuning {population} TprFpr {n} 0.05")
        if not runs:
            continue
        found = numbers(runs)
        sizes.append(n)
        costs.append(float(np.nanmean(found[:, 2] - found[:, 0])))
        proven.append(100 * float(np.mean(~np.isnan(found[:, 2]))))
    return sizes, costs, proven


def main() -> int:
    """Draw the figure."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "demur", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    folder, target = Path(sys.argv[1]), Path(sys.argv[2])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for (population, (costs, proven)), colour in zip(OLD.items(), ("C0", "C1"), strict=True):
        sizes, new_costs, new_proven = new(folder, population)
        for axes, before, after in ((left, costs, new_costs), (right, proven, new_proven)):
            axes.plot(SIZES, before, "o--", color=colour, alpha=0.5, label=f"{population}: path")
            axes.plot(sizes, after, "o-", color=colour, label=f"{population}: tolerance limits")
            print(population, dict(zip(sizes, after, strict=True)))
    left.set(xscale="log", xlabel="n", ylabel="true risk above plain tuning", ylim=(0, None))
    right.set(xscale="log", xlabel="n", ylabel="a rule is found, %", ylim=(0, 103))
    left.legend(fontsize=7, frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, metadata={"Date": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
