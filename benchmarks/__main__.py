"""Measure demur against named alternatives: ``python -m benchmarks [SECTION ...]``."""

from __future__ import annotations

import argparse
import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["out-of-core"]:
        # Needs all cores, and options of its own.
        from benchmarks import out_of_core

        out_of_core.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["lake-commands"]:
        from benchmarks import lake_commands

        lake_commands.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["scale-plan"]:
        from benchmarks import scale_plan

        scale_plan.main(sys.argv[2:])
        return
    for library in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "DEMUR"):
        os.environ.setdefault(f"{library}_THREADS", "1")
    # NumPy reads these when it is imported.
    from benchmarks.sections import SECTIONS

    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("section", nargs="*", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--sizes", nargs="+", type=lambda text: int(float(text)))
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    unknown = set(options.section) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {sorted(unknown)}; there are {list(SECTIONS)}")
    print(
        f"one thread, median of {options.repetitions} repetitions in turns; "
        "seconds of processor time\n"
    )
    for name in options.section or SECTIONS:
        section = SECTIONS[name]
        for size in options.sizes or section.sizes:
            print(f"{name}, n = {size:,}", file=sys.stderr)
            print(section.run(size, options.repetitions), flush=True)


if __name__ == "__main__":
    main()
