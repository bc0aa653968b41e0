"""What all simulations share: options, seeds and the cells of a table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Options(NamedTuple):
    """What was asked on the command line."""

    repetitions: int
    sizes: list[int]
    delta: float
    replicates: int
    only: str

    @property
    def limit(self) -> float:
        """Delta and three standard errors of a share measured in so many repetitions."""
        return self.delta + 3 * math.sqrt(self.delta * (1 - self.delta) / self.repetitions)


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
