"""Bootstrap replicates: rows drawn anew, the rule tuned anew, the outcome judged three ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.parallel import Progress, in_order
from demur.guarantees.splits import Seed
from demur.guarantees.tally import Tally, measures
from demur.tuning.charts import Directions
from demur.tuning.result import Exact, Grid
from demur.tuning.retune import Retuner

VIEWS = ("in_bag", "on_sample", "out_of_bag")


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


def replicate(
    tuned: Sequence[tuple[Sample, Rule]],
    retuning: Retuning,
    *,
    replicates: int,
    rng: Seed,
    workers: int | None,
    progress: Progress | None,
) -> FloatArray:
    """Return the rates of every replicate, shape (replicates, samples, views, measures).

    All samples, given with the rules tuned on them, have the same rows and are drawn alike, ID
    and every OOD set by itself. Each replicate has a random generator of its own, so the result
    does not depend on `workers`. A replicate in which no rule meets the bounds is NaN throughout.
    """
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise InvalidInputError(f"replicates must be a positive whole number, got {replicates!r}")
    generators = np.random.default_rng(rng).spawn(replicates)
    tallies = [(Tally.of(sample), retuning.of(sample, rule)) for sample, rule in tuned]

    def run(generator: np.random.Generator) -> list[list[list[float]]]:
        times = draw(tuned[0][0], generator)
        return [_judge(tally, retuner, retuning.model, times) for tally, retuner in tallies]

    return np.array(in_order(run, generators, workers=workers, progress=progress))


def draw(sample: Sample, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return how often each row is drawn, with replacement, as many rows as there are."""
    ood = np.zeros(sample.n_ood, np.int64)
    for rows in sample.ood_sets.values():
        ood[rows] = _multinomial(rows.stop - rows.start, generator)
    return _multinomial(sample.n_id, generator), ood


def _multinomial(rows: int, generator: np.random.Generator) -> IntArray:
    return np.bincount(generator.integers(0, max(rows, 1), rows), minlength=rows)


def _judge(
    tally: Tally, retuner: Retuner, model: RejectionModel, times: tuple[IntArray, IntArray]
) -> list[list[float]]:
    """Return the measures on the rows drawn, on the whole sample and on the rows not drawn."""
    names = measures(model)
    rule = retuner.rule(np.concatenate(times))
    if rule is None:
        return [[math.nan] * len(names)] * len(VIEWS)
    accepted = tally.decide(rule)
    views = (
        times,
        (np.ones_like(times[0]), np.ones_like(times[1])),
        ((times[0] == 0).astype(np.int64), (times[1] == 0).astype(np.int64)),
    )
    return [values(tally.point(accepted, view, model), names) for view in views]


def values(point: OperatingPoint | None, names: tuple[str, ...]) -> list[float]:
    """Return the named rates of a point; NaN without one."""
    return [math.nan if point is None else float(getattr(point, name)) for name in names]
