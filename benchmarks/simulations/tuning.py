"""Certified against plain tuning."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import demur as dm
from benchmarks.simulations.populations import (
    CLOUDS,
    GRADED,
    PAPER_G,
    PAPER_TWO,
    TIES,
    Population,
    Truth,
)
from benchmarks.simulations.table import Options, decimal, generator, mean, percent, share, verdict
from demur import guarantees

TPR_FPR = dm.TprFprModel(0.7, 0.2)
PRECISION = dm.PrecisionRecallModel(0.9, 0.7, ood_prior=0.25)
COST = dm.CostModel(reject_id=0.25, accept_ood=1, reject_ood=0, ood_prior=0.25)

CASES: list[tuple[Population, dm.TprFprModel | dm.PrecisionRecallModel | dm.CostModel]] = [
    (PAPER_G, TPR_FPR),
    (PAPER_G, PRECISION),
    (PAPER_G, COST),
    (TIES, TPR_FPR),
    (GRADED, TPR_FPR),
    (PAPER_TWO, TPR_FPR),
    (PAPER_TWO, PRECISION),
    (PAPER_TWO, COST),
    (CLOUDS, TPR_FPR),
]


def breaks(model: object, truth: Truth) -> bool:
    """Whether the population breaks a bound of the model."""
    if isinstance(model, dm.TprFprModel):
        return truth.tpr < float(model.min_tpr) or truth.fpr > float(model.max_fpr)
    if isinstance(model, dm.PrecisionRecallModel):
        precise = truth.precision(float(model.ood_prior)) >= float(model.min_precision)
        return truth.tpr < float(model.min_recall) or not precise
    return False


def objective(model: object, truth: Truth) -> float:
    """Return what the model minimises: the expected cost, or else the selective risk."""
    return truth.cost(model) if isinstance(model, dm.CostModel) else truth.selective_risk


def tuning(options: Options) -> Iterator[list[str]]:
    """Certified tuning against plain tuning; under the cost model "risk" is the expected cost.

    A repetition in which no rule is proven makes no promise and breaks none: the guarantee is for
    all attempts. The share of failures among the proven is shown beside it.
    """
    yield [
        "population", "model", "n", "plain: unable", "plain: breaks a bound",
        "plain: true risk", "proven", "a promise fails", "limit", "ok", "fails, of the proven",
        "promised risk", "true risk", "cost in risk",
    ]  # fmt: skip
    for number, (population, model) in enumerate(CASES):
        if options.only not in f"{population.name}, {type(model).__name__}":
            continue
        for n in options.sizes:
            runs = [
                _tuning_run(population, model, n, options.delta, seed=(1, number, n, i))
                for i in range(options.repetitions)
            ]
            yield _tuning_row(population, model, n, runs, options)


class TuningRun(NamedTuple):
    """Plain and certified tuning on the same sample; None where no rule was found."""

    plain: Truth | None
    plain_broke: bool
    certified: Truth | None
    failed: bool
    promised: float


def _tuning_run(
    population: Population, model: dm.TprFprModel, n: int, delta: float, *, seed: tuple[int, ...]
) -> TuningRun:
    sample = population.draw(n, generator(*seed))
    try:
        plain = population.truth(dm.tune(sample, model).rule)
    except dm.InfeasibleError:
        plain = None
    broke = plain is not None and breaks(model, plain)
    try:
        found = guarantees.tune_certified(
            sample,
            model,
            confidence=1 - delta,
            max_loss=population.max_loss,
            rng=generator(*seed, 1),
        )
    except dm.InfeasibleError:
        return TuningRun(plain, broke, None, False, math.nan)
    truth = population.truth(found.rule)
    failed = breaks(model, truth) or truth.selective_risk > found.selective_risk
    promised = found.selective_risk
    if found.expected_cost is not None:
        promised = found.expected_cost
        failed |= truth.cost(model) > promised
    return TuningRun(plain, broke, truth, failed, promised)


def _tuning_row(
    population: Population, model: object, n: int, runs: list[TuningRun], options: Options
) -> list[str]:
    failures = share(run.failed for run in runs)
    extra = [
        objective(model, run.certified) - objective(model, run.plain)
        for run in runs
        if run.plain is not None and run.certified is not None
    ]
    return [
        population.name,
        type(model).__name__.removesuffix("Model"),
        f"{n:,}",
        percent(share(run.plain is None for run in runs)),
        percent(share(run.plain_broke for run in runs)),
        decimal(mean(objective(model, run.plain) for run in runs if run.plain)),
        percent(share(run.certified is not None for run in runs)),
        percent(failures),
        percent(options.limit),
        verdict(failures <= options.limit),
        percent(mean(float(run.failed) for run in runs if run.certified)),
        decimal(mean(run.promised for run in runs)),
        decimal(mean(objective(model, run.certified) for run in runs if run.certified)),
        decimal(mean(extra)),
    ]
