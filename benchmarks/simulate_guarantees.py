"""Do the promises hold? Simulations on populations whose truth is known.

    python -m benchmarks.simulate_guarantees                     # all, 1,000 repetitions
    python -m benchmarks.simulate_guarantees tuning --repetitions 200 --sizes 100 1000
    python -m benchmarks.simulate_guarantees tuning --only decades --runs runs/   # goes on later

With ``--runs`` every repetition of *tuning*, *priors* and *clusters* is kept in that folder as soon
as it is done: a call that was stopped, or asks for more repetitions, goes on where the last one
ended. Runs of other code (of ``demur.guarantees``, or of the populations) are not reused.

Seeds are fixed. A promise passes if its share of failures is at most delta plus three standard
errors of a share measured in that many repetitions. The exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.simulations.coverage import certificates, clusters, priors
from benchmarks.simulations.resampling import resampling
from benchmarks.simulations.table import Options, percent
from benchmarks.simulations.tuning import tuning

SECTIONS: dict[str, Callable[[Options], Iterator[list[str]]]] = {
    "tuning": tuning,
    "certificates": certificates,
    "priors": priors,
    "clusters": clusters,
    "resampling": resampling,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000, 3000, 10_000])
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--only", default="", help="part of a name, for 'tuning' and 'resampling'")
    parser.add_argument("--replicates", type=int, default=100, help="of each bootstrap")
    parser.add_argument("--runs", type=Path, help="keep single repetitions in this folder")
    given = parser.parse_args()
    options = Options(
        given.repetitions, given.sizes, given.delta, given.replicates, given.only, given.runs
    )
    failed = 0
    for name in given.section or SECTIONS:
        make = SECTIONS[name]
        print(f"\n## {name}: {inspect.getdoc(make)}\n")
        print(
            f"{options.repetitions} repetitions, delta {options.delta}, "
            f"limit {percent(options.limit)} = delta and three standard errors\n"
        )
        for number, row in enumerate(make(options)):
            print("| " + " | ".join(row) + " |", flush=True)
            if number == 0:
                print("|" + "---|" * len(row))
            failed += "NO" in row
    print(f"\n{failed} rows above their limit")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
