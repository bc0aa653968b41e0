"""How often `demur.watch` gives alarm by chance, and how soon it finds a break.

    python -m benchmarks.simulate_watch                  # 1,000 streams a row
    python -m benchmarks.simulate_watch --streams 200 --without-mapie

Every stream is looked at after every 10 rows up to 10,000 (drift and whole watches: after every
100, or as --every says). Seeds are fixed. A row passes if its share of false alarms is at most
alpha plus three standard errors. What a watch costs is measured in CPU time. The exit status is 1
if a row fails, a break is found later than it must be, or a cost is too high.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator

import numpy as np

from benchmarks.simulations.watched import (
    ALPHA,
    FALSE_ALARMS,
    costs,
    drift_alarms,
    everything,
    mapie_delays,
    mean_time,
    our_delays,
)

LATEST = {0.12: 260, 0.09: 600}
"""Rows after which a risk against .06 must be found in the median."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--every", type=int, default=100, help="rows between looks at drift")
    parser.add_argument("--without-mapie", action="store_true")
    given = parser.parse_args()
    failed = 0
    for row in rows(given.streams, given.every, mapie=not given.without_mapie):
        print("| " + " | ".join(row) + " |", flush=True)
        failed += "NO" in row
    print(f"\n{failed} rows fail")
    return 1 if failed else 0


def rows(streams: int, every: int, *, mapie: bool) -> Iterator[list[str]]:
    limit = ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / streams)
    print(f"{streams} streams, alpha {ALPHA}, limit {limit:.3f}\n")
    yield ["expectation that holds just so", "false alarms", "kept"]
    yield ["---"] * 3
    for number, (name, alarms) in enumerate(FALSE_ALARMS.items()):
        share = float(np.mean(alarms(streams, np.random.default_rng([1, number]))))
        yield [name, f"{share:.3f}", "yes" if share <= limit else "NO"]
    for name, alarms_of in (
        (
            "drift of two scores and gaps, a new reference each time",
            lambda: drift_alarms(streams, every),
        ),
        (
            "a whole watch: three bounds, all checks",
            lambda: everything(streams, every, 1000, 500),
        ),
        (
            "the same, tuned on 100 ID and 50 OOD rows only",
            lambda: everything(streams, every, 100, 50),
        ),
    ):
        share = alarms_of()
        yield [name, f"{share:.3f}", "yes" if share <= limit else "NO"]
    wanted, seen = mean_time(streams)
    words = f"e-detector: mean periods to a false alarm, at least {wanted:g}"
    yield [words, f"{seen:.0f}", "yes" if seen >= wanted else "NO"]
    print()
    yield ["risk against a bound of .06", "found after, median", "MAPIE 1.6 RiskMonitoring", "kept"]
    yield ["---"] * 4
    for risk, latest in LATEST.items():
        ours, shared = our_delays(risk, streams)
        theirs = f"{mapie_delays(risk, min(streams, 40)):.0f}" if mapie else "-"
        yield [f"{risk}", f"{ours:.0f}", theirs, "yes" if ours <= latest else "NO"]
        yield [f"{risk}, half of alpha for checks", f"{shared:.0f}", "", ""]
    print()
    yield ["cost, CPU time", "", "goal", "kept"]
    yield ["---"] * 4
    for name, value, goal, kept in costs(mapie=mapie):
        yield [name, value, goal, "" if kept is None else "yes" if kept else "NO"]


if __name__ == "__main__":
    sys.exit(main())
