"""Certified against plain tuning."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

import demur as dm
from benchmarks.simulations.populations import (
    CLOUDS,
    DECADES,
    GRADED,
    GROUPS,
    PAPER_G,
    PAPER_TWO,
    SATURATED,
    SETS,
    TIES,
    Population,
    Truth,
)
from benchmarks.simulations.table import (
    Options,
    decimal,
    generator,
    kept_runs,
    mean,
    numbers,
    percent,
    plain,
    verdict,
)
from demur import guarantees
from demur._arrays import FloatArray

TPR_FPR = dm.TprFprModel(0.7, 0.2)
PRECISION = dm.PrecisionRecallModel(0.9, 0.7, ood_prior=0.25)
COST = dm.CostModel(reject_id=0.25, accept_ood=1, reject_ood=0, ood_prior=0.25)
OF_PARTS = dm.RejectionModel(
    "selective_risk",
    [
        dm.Bound("tpr", at_least=0.6),
        dm.Bound("tpr", at_least=0.5, group="rare"),
        dm.Bound("selective_risk", at_most=0.2, group="rare"),
        dm.Bound("fpr", at_most=0.2, ood_set="near"),
    ],
)

CASES: list[tuple[Population, dm.RejectionModel, str]] = [
    (PAPER_G, TPR_FPR, "TprFpr"),
    (PAPER_G, PRECISION, "PrecisionRecall"),
    (PAPER_G, COST, "Cost"),
    (TIES, TPR_FPR, "TprFpr"),
    (GRADED, TPR_FPR, "TprFpr"),
    (PAPER_TWO, TPR_FPR, "TprFpr"),
    (PAPER_TWO, PRECISION, "PrecisionRecall"),
    (PAPER_TWO, COST, "Cost"),
    (CLOUDS, TPR_FPR, "TprFpr"),
    (SATURATED, TPR_FPR, "TprFpr"),
    (DECADES, TPR_FPR, "TprFpr"),
    (SETS, TPR_FPR.of_every_set(), "TprFpr, every set"),
    (CLOUDS, PRECISION, "PrecisionRecall"),
    (GROUPS, OF_PARTS, "group and set"),
]


def breaks(model: dm.RejectionModel, truth: Truth) -> bool:
    """Whether the population breaks a bound of the model."""
    prior = float(model.ood_prior or 0)

    def value(bound: dm.Bound) -> float:
        if bound.is_of_part:
            return truth.parts[bound.quantity, str(bound.group or bound.ood_set)]
        if bound.quantity == "precision":
            # Of a rule that accepts nothing there is no precision, nor is it bounded.
            return truth.precision(prior)
        return getattr(truth, bound.quantity)

    return not all(bound.met_by(value(bound)) for bound in model.bounds)


def objective(model: dm.RejectionModel, truth: Truth) -> float:
    """Return what the model minimises: the expected cost, or else the selective risk."""
    return truth.selective_risk if model.cost is None else truth.cost(model)


def tuning(options: Options) -> Iterator[list[str]]:
    """Certified tuning against plain tuning; under the cost model "risk" is the expected cost.

    A repetition in which no rule is proven makes no promise and breaks none: the guarantee is for
    all attempts. The share of failures among the proven is shown beside it.
    """
    yield [
        "population", "model", "n", "runs", "plain: breaks a bound", "plain: true risk", "proven",
        "a promise fails", "limit", "ok", "fails, of the proven", "promised risk", "true risk",
        "cost in risk", "by tolerance limits",
    ]  # fmt: skip
    for number, (population, model, title) in enumerate(CASES):
        if options.only not in f"{population.name}, {title}":
            continue
        for n in options.sizes:
            runs = kept_runs(
                options,
                f"tuning {population.name} {title} {n} {options.delta}",
                partial(_run, population, model, n, options.delta, number),
            )
            yield [population.name, title, f"{n:,}", *_cells(numbers(runs), options)]


def _run(
    population: Population, model: dm.RejectionModel, n: int, delta: float, number: int, i: int
) -> list[float | None]:
    """Return plain risk, whether it broke a bound, certified risk, failure, promise, method."""
    seed = (1, number, n, i)
    sample = population.draw(n, generator(*seed))
    plainly = broke = risk = promised = by_limits = math.nan
    failed = False
    try:
        truth = population.truth(dm.tune(sample, model).rule)
        plainly, broke = objective(model, truth), float(breaks(model, truth))
    except dm.InfeasibleError:
        pass
    try:
        found = guarantees.tune_certified(
            sample,
            model,
            confidence=1 - delta,
            max_loss=population.max_loss,
            rng=generator(*seed, 1),
        )
    except dm.InfeasibleError:
        return plain([plainly, broke, risk, failed, promised, by_limits])
    truth = population.truth(found.rule)
    failed = breaks(model, truth) or truth.selective_risk > found.selective_risk
    failed |= objective(model, truth) > found.objective
    by_limits = float(found.method == "tolerance limits")
    return plain([plainly, broke, objective(model, truth), failed, found.objective, by_limits])


def _cells(runs: FloatArray, options: Options) -> list[str]:
    plainly, broke, risk, failed, promised, by_limits = runs.T
    proven, failures = ~np.isnan(risk), float(failed.mean())
    return [
        f"{len(runs):,}",
        percent(mean(broke)),
        decimal(mean(plainly)),
        percent(float(proven.mean())),
        percent(failures),
        percent(options.limit),
        verdict(failures <= options.limit),
        percent(mean(failed[proven])),
        decimal(mean(promised)),
        decimal(mean(risk)),
        decimal(mean(risk - plainly)),
        percent(mean(by_limits)),
    ]
