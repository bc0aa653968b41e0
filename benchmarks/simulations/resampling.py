"""Bootstrap and cross-validation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import demur as dm
from benchmarks.simulations.populations import GRADED, PAPER_G, PAPER_TWO, TIES, Population
from benchmarks.simulations.table import Options, decimal, generator, percent
from demur import guarantees

TPR_FPR = dm.TprFprModel(0.7, 0.2)
RATES = ("tpr", "fpr", "selective_risk")


def resampling(options: Options) -> Iterator[list[str]]:
    """Bootstrap intervals (approximate: no verdict) and what the estimates of risk average."""
    yield [
        "population", "n", "misses: tpr", "misses: fpr", "misses: risk",
        "misses: difference to g alone", "width: tpr", "width: fpr", "width: risk",
        "width: difference", "apparent risk", "bootstrap", "5 folds", "true risk",
    ]  # fmt: skip
    for number, population in enumerate((PAPER_G, TIES, GRADED, PAPER_TWO)):
        for n in options.sizes if options.only in population.name else []:
            runs = [
                run
                for i in range(options.repetitions)
                if (run := _run(population, n, options, seed=(4, number, n, i))) is not None
            ]
            missed, widths, risks = (np.array(c, float) for c in zip(*runs, strict=True))
            yield [
                population.name,
                f"{n:,}",
                *(percent(v) for v in missed.mean(axis=0)),
                *(decimal(v) for v in widths.mean(axis=0)),
                *(decimal(v) for v in np.nanmean(risks, axis=0)),
            ]


def _run(
    population: Population, n: int, options: Options, *, seed: tuple[int, ...]
) -> tuple[list[float], list[float], list[float]] | None:
    """Return misses and widths of intervals, and estimates of risk; None if no rule is found."""
    sample = population.draw(n, generator(*seed))
    try:
        found = guarantees.bootstrap(
            sample,
            TPR_FPR,
            replicates=options.replicates,
            confidence=1 - options.delta,
            rng=generator(*seed, 1),
        )
        folds = guarantees.cross_tune(sample, TPR_FPR)
        difference = _difference(population, sample, options, generator(*seed, 2))
    except dm.InfeasibleError:
        return None
    truth = population.truth(found.tuned.rule)
    intervals = [found.measures[rate].interval for rate in RATES]
    missed = [float(getattr(truth, r) not in i) for r, i in zip(RATES, intervals, strict=True)]
    widths = [interval.high - interval.low for interval in intervals]
    risk = found.measures["selective_risk"]
    held_out = math.nan if folds.held_out is None else folds.held_out.selective_risk
    estimates = [risk.apparent, risk.estimate, held_out, truth.selective_risk]
    return [*missed, difference[0]], [*widths, difference[1]], estimates


def _difference(
    population: Population, sample: dm.Sample, options: Options, rng: np.random.Generator
) -> tuple[float, float]:
    """Compare two scores with the second alone: missed or not, and width; NaN for one score."""
    if sample.n_scores == 1:
        return math.nan, math.nan
    compared = guarantees.compare(
        sample,
        sample.score(1),
        TPR_FPR,
        replicates=options.replicates,
        confidence=1 - options.delta,
        rng=rng,
    )
    alone = dm.Rule((0.0, 1.0), compared.second.rule.threshold)
    first, second = population.truth(compared.first.rule), population.truth(alone)
    interval = compared.differences["selective_risk"].interval
    missed = (first.selective_risk - second.selective_risk) not in interval
    return float(missed), interval.high - interval.low
