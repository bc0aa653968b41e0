"""Bootstrap replicates: rows drawn anew, the rule tuned anew, the outcome judged three ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray, seeded
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.resampling.rates import (
    CountedRows,
    Decided,
    Spread,
    Times,
    measures,
    standard_errors,
)
from demur.guarantees.splits import Seed
from demur.tuning.directions import Directions
from demur.tuning.result import Exact, Grid
from demur.tuning.retune import Retuner

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with how many items are done and how many there are, in the caller's thread."""


@dataclass(frozen=True, slots=True)
class Retuning:
    """How the rule is tuned in every replicate."""

    model: RejectionModel
    directions: Directions | None = None
    search: Exact | Grid | None = None

    def of(self, sample: Sample, near: Rule) -> Retuner:
        """Return what tunes `sample` with other weights, to rules not far from `near`."""
        return Retuner(
            sample, self.model, directions=self.directions, search=self.search, near=near
        )


@dataclass(frozen=True, slots=True, eq=False)
class Replicates:
    """What the replicates say of one sample, or of two with the same rows."""

    rates: FloatArray
    """Shape (replicates, samples, views, measures)."""
    unable: BoolArray
    """Replicates in which no rule met the bounds, on one of the samples at least."""
    errors: FloatArray
    """In-bag standard errors of the rates, or of the differences of two samples' rates: shape
    (replicates, measures). Empty unless asked for."""
    error: FloatArray
    """The same for the rules tuned on the samples."""


def replicate(
    tuned: Sequence[tuple[Sample, Rule]],
    retuning: Retuning,
    *,
    with_errors: bool,
    replicates: int,
    rng: Seed,
    workers: int | None,
    progress: Progress | None,
) -> Replicates:
    """Draw rows and tune rules anew.

    All samples, given with the rules tuned on them, have the same rows and are drawn alike, ID
    and every OOD set by itself. Each replicate has a random generator of its own, so the result
    does not depend on `workers`.

    Where no rule meets the bounds on the rows drawn, the rule tuned on the sample stays. Leaving
    such draws out would leave out the unluckiest: those in which the rates fall furthest below
    what they are. Out of bag they say nothing, NaN: that rule has seen all rows.
    """
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise InvalidInputError(f"replicates must be a positive whole number, got {replicates!r}")
    generators = seeded(rng).spawn(replicates)
    judges = [_Judge.of(sample, rule, retuning) for sample, rule in tuned]

    def errors(decided: Sequence[Decided], times: Times) -> FloatArray:
        if not with_errors:
            return np.empty(0)
        pairs = zip(judges, decided, strict=True)
        return standard_errors([judge.spread.moves(rows, times) for judge, rows in pairs], times)

    def run(generator: np.random.Generator) -> tuple[list[list[list[float]]], bool, FloatArray]:
        times = draw(tuned[0][0], generator)
        rules = [judge.retuner.rule(np.concatenate(times)) for judge in judges]
        decided = [judge.decide(rule) for judge, rule in zip(judges, rules, strict=True)]
        rates = [
            judge.rates(rows, times, anew=rule is not None)
            for judge, rows, rule in zip(judges, decided, rules, strict=True)
        ]
        return rates, None in rules, errors(decided, times)

    found = in_order(run, generators, workers=workers, progress=progress)
    rates, unable, in_bag_errors = zip(*found, strict=True)
    return Replicates(
        rates=np.array(rates),
        unable=np.array(unable),
        errors=np.array(in_bag_errors),
        error=errors([judge.decide(None) for judge in judges], _once(tuned[0][0])),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    """One sample, and what it takes to tune and judge on it."""

    tuned: Rule
    counted: CountedRows
    spread: Spread
    retuner: Retuner

    @classmethod
    def of(cls, sample: Sample, rule: Rule, retuning: Retuning) -> _Judge:
        spread = Spread.of(sample, retuning.model)
        return cls(rule, CountedRows.of(sample), spread, retuning.of(sample, rule))

    def decide(self, rule: Rule | None) -> Decided:
        """Return the rows that `rule` accepts, or for None the rule tuned on the sample."""
        return self.counted.decide(self.tuned if rule is None else rule)

    def rates(self, accepted: Decided, times: Times, *, anew: bool) -> list[list[float]]:
        """Return the measures on the rows drawn, on the whole sample and on the rows not drawn."""
        names = measures(self.spread.model)
        views = (times, _once(self.counted.sample), _never(times))
        points = [self.counted.point(accepted, view, self.spread.model) for view in views]
        return [
            values(point if anew or view < 2 else None, names) for view, point in enumerate(points)
        ]


def _once(sample: Sample) -> Times:
    return np.ones(sample.n_id, np.int64), np.ones(sample.n_ood, np.int64)


def _never(times: Times) -> Times:
    return (times[0] == 0).astype(np.int64), (times[1] == 0).astype(np.int64)


def draw(sample: Sample, generator: np.random.Generator) -> Times:
    """Return how often each row is drawn, with replacement, as many rows as there are."""
    ood = np.zeros(sample.n_ood, np.int64)
    for rows in sample.ood_sets.values():
        ood[rows] = _multinomial(rows.stop - rows.start, generator)
    return _multinomial(sample.n_id, generator), ood


def _multinomial(rows: int, generator: np.random.Generator) -> IntArray:
    return np.bincount(generator.integers(0, max(rows, 1), rows), minlength=rows)


def values(point: OperatingPoint | None, names: tuple[str, ...]) -> list[float]:
    """Return the named rates of a point; NaN without one."""
    return [math.nan if point is None else float(getattr(point, name)) for name in names]


def in_order(
    run: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int | None,
    progress: Progress | None,
) -> list[Result]:
    """Return ``run(item)`` of all items, in their order whatever the number of threads."""
    if workers is not None and (type(workers) is not int or workers < 1):
        raise InvalidInputError(f"workers must be a positive whole number or None, got {workers!r}")
    found: list[Result] = []
    with ThreadPoolExecutor(workers or 1) as pool:
        for result in pool.map(run, items) if workers else map(run, items):
            found.append(result)
            if progress is not None:
                progress(len(found), len(items))
    return found
