"""Certificates of fixed rules, intervals of priors and of areas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import demur as dm
from benchmarks.simulations.populations import (
    CLOUDS,
    GRADED,
    PAPER_G,
    PAPER_MIX,
    PAPER_TWO,
    TIES,
    Population,
    Truth,
)
from benchmarks.simulations.table import Options, generator, percent, share, verdict
from demur import guarantees

COST = dm.CostModel(reject_id=0.25, accept_ood=1, reject_ood=0, ood_prior=0.25)


def certificates(options: Options) -> Iterator[list[str]]:
    """Certificates of rules fixed beforehand: all bounds of one certificate together."""
    yield ["population", "rule", "n", "sides", "a promise fails", "limit", "ok"]
    fixed = [
        (PAPER_G, dm.Rule((1.0,), 0.9)),
        (TIES, dm.Rule((1.0,), 4.0)),
        (GRADED, dm.Rule((1.0,), 0.45)),
        (CLOUDS, dm.Rule((0.6, 0.8), 0.7)),
    ]
    for number, (population, rule) in enumerate(fixed):
        truth = population.truth(rule)
        for n in options.sizes:
            for sides in ("one", "two"):
                failures = share(
                    not _certificate_holds(
                        population, rule, truth, n, sides, options.delta, seed=(2, number, n, i)
                    )
                    for i in range(options.repetitions)
                )
                yield [
                    population.name, f"{rule.direction} <= {rule.threshold}", f"{n:,}", sides,
                    percent(failures), percent(options.limit), verdict(failures <= options.limit),
                ]  # fmt: skip


def _certificate_holds(
    population: Population,
    rule: dm.Rule,
    truth: Truth,
    n: int,
    sides: str,
    delta: float,
    *,
    seed: tuple[int, ...],
) -> bool:
    rng = generator(*seed)
    promise = guarantees.certify(
        rule,
        population.draw(n, rng),
        confidence=1 - delta,
        model=COST,
        max_loss=population.max_loss,
        sides=sides,
        rng=rng,
    )
    assert promise.precision is not None and promise.expected_cost is not None
    return (
        truth.tpr in promise.tpr
        and truth.fpr in promise.fpr
        and truth.selective_risk in promise.selective_risk
        and truth.precision(0.25) in promise.precision
        and truth.cost(COST) in promise.expected_cost
    )


def priors(options: Options) -> Iterator[list[str]]:
    """Prior intervals, exact, and DeLong's intervals, asymptotic: shares that miss the truth."""
    yield ["quantity", "n", "misses", "limit", "ok"]
    rule = dm.Rule((1.0,), 0.9)
    area, other = _auroc(PAPER_G), _auroc(PAPER_MIX)
    for n in options.sizes:
        prior, one, two = [], [], []
        for i in range(options.repetitions):
            rng = generator(3, n, i)
            sample, deployed = PAPER_G.draw(n, rng), PAPER_G.draw(n, rng)
            # Each deployed input is OOD with probability 0.2, so their number varies.
            is_ood = rng.random(n) < 0.2
            mixed = np.where(is_ood[:, None], deployed.ood_scores, deployed.id_scores)
            found = guarantees.estimate_prior(
                rule, mixed, validation=sample, confidence=1 - options.delta
            )
            prior.append(0.2 not in found.interval)
            both = PAPER_TWO.draw(n, rng)
            g = both.score(1)
            mix = dm.Sample(_mix(both.id_scores), both.id_loss, ood_scores=_mix(both.ood_scores))
            compared = guarantees.compare_auroc(g, mix, confidence=1 - options.delta)
            one.append(area not in compared.first.interval)
            two.append(area - other not in compared.interval)
        for name, missed in (
            ("OOD prior from deployment scores", prior),
            ("AUROC of g, DeLong", one),
            ("difference of two AUROCs, DeLong", two),
        ):
            ok = verdict(share(missed) <= options.limit)
            yield [name, f"{n:,}", percent(share(missed)), percent(options.limit), ok]


def _mix(scores: np.ndarray) -> np.ndarray:
    return scores @ np.array([1.0, 0.2])


def _auroc(population: Population) -> float:
    """AUROC from the truth along all thresholds."""
    thresholds = np.quantile(
        population.draw(200_000, generator(0)).id_scores, np.linspace(0, 1, 4001)
    )
    rates = [population.truth(dm.Rule((1.0,), t)) for t in thresholds]
    fpr = np.array([0.0, *(rate.fpr for rate in rates), 1.0])
    tpr = np.array([0.0, *(rate.tpr for rate in rates), 1.0])
    return float(np.trapezoid(tpr, fpr))
