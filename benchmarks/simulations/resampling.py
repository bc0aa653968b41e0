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
LARGEST_PAIRED = 1000


def resampling(options: Options) -> Iterator[list[str]]:
    """Bootstrap intervals (approximate: no verdict) and what the estimates of risk average."""
    yield [
        "population", "n", "misses: tpr", "misses: fpr", "misses: risk",
        "misses: difference to g alone", "apparent risk", "bootstrap", "5 folds", "true risk",
    ]  # fmt: skip
    for number, population in enumerate((PAPER_G, TIES, GRADED, PAPER_TWO)):
        for n in options.sizes:
            runs = [
                run
                for i in range(options.repetitions)
                if (run := _run(population, n, options, seed=(4, number, n, i))) is not None
            ]
            missed, risks = (np.array(column, float) for column in zip(*runs, strict=True))
            yield [
                population.name,
                f"{n:,}",
                *(percent(v) for v in missed.mean(axis=0)),
                *(decimal(v) for v in np.nanmean(risks, axis=0)),
            ]


def _run(
    population: Population, n: int, options: Options, *, seed: tuple[int, ...]
) -> tuple[list[float], list[float]] | None:
    """Return which intervals miss, and the estimates of risk; None if no rule is found."""
    sample = population.draw(n, generator(*seed))
    try:
        found = guarantees.bootstrap(
            sample, TPR_FPR, replicates=options.replicates, confidence=1 - options.delta
        )
        folds = guarantees.cross_tune(sample, TPR_FPR)
        missed_difference = _misses_difference(population, sample, options)
    except dm.InfeasibleError:
        return None
    truth = population.truth(found.tuned.rule)
    missed = [float(getattr(truth, r) not in found.measures[r].interval) for r in RATES]
    risk = found.measures["selective_risk"]
    held_out = math.nan if folds.held_out is None else folds.held_out.selective_risk
    estimates = [risk.apparent, risk.estimate, held_out, truth.selective_risk]
    return [*missed, missed_difference], estimates


def _misses_difference(population: Population, sample: dm.Sample, options: Options) -> float:
    """Compare two scores with the second alone; NaN for one score, and for many rows."""
    if sample.n_scores == 1 or sample.n_id > LARGEST_PAIRED:
        return math.nan
    compared = guarantees.compare(
        sample,
        sample.score(1),
        TPR_FPR,
        replicates=options.replicates,
        confidence=1 - options.delta,
    )
    alone = dm.Rule((0.0, 1.0), compared.second.rule.threshold)
    first, second = population.truth(compared.first.rule), population.truth(alone)
    difference = first.selective_risk - second.selective_risk
    return float(difference not in compared.differences["selective_risk"].interval)
