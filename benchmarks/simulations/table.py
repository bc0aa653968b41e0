"""What all simulations share: options, seeds and the cells of a table."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from demur._arrays import FloatArray


class Options(NamedTuple):
    """What was asked on the command line."""

    repetitions: int
    sizes: list[int]
    delta: float
    replicates: int
    only: str
    runs: Path | None = None
    """Where the runs are kept, to go on later; None keeps none."""

    @property
    def limit(self) -> float:
        """Delta and three standard errors of a share measured in so many repetitions."""
        return self.delta + 3 * math.sqrt(self.delta * (1 - self.delta) / self.repetitions)


def code_digest() -> str:
    """Return a digest of the code that makes promises: runs of other code are not reused."""
    import demur.guarantees

    folder = Path(demur.guarantees.__file__).parent
    sources = [*sorted(folder.rglob("*.py")), Path(__file__).parent / "populations.py"]
    trees = [ast.dump(ast.parse(path.read_text(encoding="utf-8"))) for path in sources]
    return hashlib.sha256("".join(trees).encode()).hexdigest()[:12]


def kept_runs(
    options: Options, name: str, run: Callable[[int], list[float | None]]
) -> list[list[float | None]]:
    """Return the results of all repetitions; those of earlier calls are read, not run again.

    A result is a list of numbers, None for NaN, and written as soon as it is known.
    """
    if options.runs is None:
        return [run(i) for i in range(options.repetitions)]
    path = options.runs / f"{_slug(name)}.{code_digest()}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    with path.open("a", encoding="utf-8") as file:
        for i in range(len(done), options.repetitions):
            done.append(run(i))
            file.write(json.dumps(done[-1]) + "\n")
            file.flush()
    return done[: options.repetitions]


def run_files(folder: Path, name: str) -> list[list[float | None]]:
    """Return the kept runs of a name, of the code that ran last."""
    files = sorted(folder.glob(f"{_slug(name)}.*.jsonl"), key=lambda path: path.stat().st_mtime)
    return [json.loads(line) for line in files[-1].read_text().splitlines()] if files else []


def _slug(name: str) -> str:
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")


def numbers(runs: list[list[float | None]]) -> FloatArray:
    """Return runs as rows of an array, NaN where there was nothing."""
    return np.array([[np.nan if v is None else v for v in run] for run in runs], float)


def plain(values: Iterable[float]) -> list[float | None]:
    """Return numbers as they are kept."""
    return [None if math.isnan(value) else float(value) for value in values]


def generator(*key: int) -> np.random.Generator:
    return np.random.default_rng(key)


def share(flags: Iterable[bool]) -> float:
    return float(np.mean([bool(flag) for flag in flags]))


def mean(values: Iterable[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return float(np.mean(known)) if known else math.nan


def percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.1f} %"


def decimal(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def verdict(met: bool) -> str:
    return "yes" if met else "NO"
