"""What only fresh interpreters show: imports, first calls, peak memory."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from functools import partial

from benchmarks.timing import compare, table

FIRST_CALL = """
import json, time
from benchmarks.datasets import clouds
import demur as dm
case = clouds({n}, 0)
seconds = []
for _ in range(6):
    start = time.perf_counter()
    dm.tune(case.sample, case.model)
    seconds.append(time.perf_counter() - start)
print(json.dumps([seconds[0], min(seconds[1:])]))
"""
MEMORY = """
import json, os, sys
os.environ["DEMUR_ENGINE"] = "{engine}"
from benchmarks.datasets import clouds, {data}
import demur as dm
dm.tune(clouds(2000, 0).sample, dm.TprFprModel(0.8, 0.2))
case = {data}({n}, 0)
sample = case.sample
inputs = sum(a.nbytes for a in (sample.id_scores, sample.id_loss, sample.ood_scores))

def peak():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if "VmHWM" in l)

def resident():
    return next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if "VmRSS" in l)

before = resident()
open("/proc/self/clear_refs", "w").write("5")
dm.tune(sample, case.model, directions="{directions}")
print(json.dumps([inputs, peak() - before]))
"""


def imports(n: int, repetitions: int) -> str:
    """``import demur`` against ``import numpy``, in fresh interpreters."""

    def run(module: str) -> None:
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True)

    ratio = compare("import", partial(run, "numpy"), partial(run, "demur"), max(repetitions, 15))
    return table("Import of demur against numpy", [ratio], "0.67x")


def first_call(n: int, repetitions: int) -> str:
    """How much longer the first call of tune takes than the best of the next."""
    runs = [_run(FIRST_CALL.format(n=n)) for _ in range(repetitions)]
    first, later = (statistics.median(run[k] for run in runs) * 1e3 for k in (0, 1))
    words = f"first {first:.0f} ms, later {later:.0f} ms, difference {first - later:.0f} ms"
    return f"### First call of tune, n = {n:,} (goal: at most 100 ms slower)\n\n{words}\n"


def memory(n: int, repetitions: int) -> str:
    """Peak memory of exact tuning beyond its inputs, in units of the inputs (Linux)."""
    rows = ["| data | engine | inputs MB | peak MB | ratio |", "|---|---|--:|--:|--:|"]
    # Where nothing but the narrowest boxes can be ruled out, most of them wait at once.
    for data, directions in (("clouds", "nonneg"), ("noise_many_errors", "circle")):
        for engine in ("compiled", "numpy"):
            made = MEMORY.format(n=n, engine=engine, data=data, directions=directions)
            inputs, peak = _run(made)
            sizes = f"{inputs / 1e6:.0f} | {peak / 1e6:.0f} | {peak / inputs:.1f}x"
            rows.append(f"| {data}, {directions} | {engine} | {sizes} |")
    return "\n".join([f"### Peak memory, n = {n:,} (goal: at most 3x the inputs)", "", *rows, ""])


def _run(program: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    numbers: list[float] = json.loads(done.stdout)
    return numbers
