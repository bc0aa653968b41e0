"""Certificates of fixed rules, intervals of priors and of areas."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy.special import ndtr
from scipy.stats import multivariate_normal

import demur as dm
from benchmarks.simulations.populations import (
    CLOUDS,
    GRADED,
    GROUPS,
    PAPER_G,
    PAPER_MIX,
    PAPER_TWO,
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
    share,
    verdict,
)
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
        (GROUPS, dm.Rule((0.6, 0.8), 0.7)),
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
        model=_asked(truth),
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
        # One bound of a group is broken by a hair: it and the others are not to be proven.
        and not (truth.parts and promise.holds)
    )


def _asked(truth: Truth) -> dm.RejectionModel:
    """Return costs, and bounds of parts that the rule keeps easily, but one by no means."""
    if not truth.parts:
        return COST
    bounds = [
        dm.Bound("tpr", at_least=truth.parts["tpr", "rare"] + 1e-9, group="rare"),
        dm.Bound("tpr", at_least=0.1, group="usual"),
        dm.Bound("selective_risk", at_most=0.8, group="rare"),
        dm.Bound("fpr", at_most=0.9, ood_set="near"),
    ]
    return dm.RejectionModel(COST.objective, bounds, COST.ood_prior)


def priors(options: Options) -> Iterator[list[str]]:
    """Prior intervals, promised and likely, and DeLong's, asymptotic: misses and mean widths."""
    yield ["quantity", "n", "runs", "misses", "limit", "ok", "mean width"]
    area, other = _auroc(PAPER_G), _auroc(PAPER_MIX)
    names = {
        "OOD prior, paper g": True,
        "OOD prior, paper g, likelihood (approximate)": False,
        "OOD prior, two normal scores": True,
        "OOD prior, two normal scores, likelihood (approximate)": False,
        "AUROC of g, DeLong (approximate)": False,
        "difference of two AUROCs, DeLong (approximate)": False,
    }
    for n in options.sizes:
        run = partial(_intervals, n, options.delta, area, other)
        runs = numbers(kept_runs(options, f"priors {n} {options.delta}", run))
        for column, (name, promised) in enumerate(names.items()):
            missed, width = runs[:, 2 * column].mean(), runs[:, 2 * column + 1]
            ok = verdict(missed <= options.limit) if promised else "-"
            cells = f"{n:,}", f"{len(runs):,}", percent(missed), percent(options.limit), ok
            yield [name, *cells, decimal(mean(width))]


def _intervals(n: int, delta: float, area: float, other: float, i: int) -> list[float | None]:
    """Return whether each interval misses, and its width."""
    rng = generator(3, n, i)
    found: list[float] = []
    for population, rule in ((PAPER_G, dm.Rule((1.0,), 0.9)), (CLOUDS, dm.Rule((0.6, 0.8), 0.7))):
        sample, deployed = population.draw(n, rng), population.draw(n, rng)
        # Each deployed input is OOD with probability 0.2, so their number varies.
        is_ood = rng.random(n) < 0.2
        mixed = np.where(is_ood[:, None], deployed.ood_scores, deployed.id_scores)
        prior = guarantees.estimate_prior(
            rule, mixed, validation=sample, confidence=1 - delta, rng=generator(3, n, i, 1)
        )
        for interval in (prior.interval, prior.likely):
            found += [0.2 not in interval, interval.high - interval.low]
    both = PAPER_TWO.draw(n, rng)
    mix = dm.Sample(_mix(both.id_scores), both.id_loss, ood_scores=_mix(both.ood_scores))
    compared = guarantees.compare_auroc(both.score(1), mix, confidence=1 - delta)
    for interval, value in ((compared.first.interval, area), (compared.interval, area - other)):
        found += [value not in interval, interval.high - interval.low]
    return plain(found)


def clusters(options: Options) -> Iterator[list[str]]:
    """Certificates of a fixed rule from clustered rows: 30 ids of 50 rows each, ID and OOD.

    Rows of an id are alike, or vary around it by half as much as ids do. "single rows" is what a
    certificate would say that takes them for independent: it promises nothing.
    """
    yield ["rows of an id", "certified by", "runs", "a promise fails", "limit", "ok", "TPR", "FPR"]
    for spread in (0.0, 0.5):
        run = partial(_clustered, spread, options.delta)
        runs = numbers(kept_runs(options, f"clusters {spread} {options.delta}", run))
        for column, (name, promised) in enumerate(
            {"single rows": False, "one row of each id": True, "mean over ids": True}.items()
        ):
            failed, tpr, fpr = runs[:, 3 * column : 3 * column + 3].T
            ok = verdict(failed.mean() <= options.limit) if promised else "-"
            alike = "alike" if spread == 0 else "vary"
            cells = f"{len(runs):,}", percent(failed.mean()), percent(options.limit), ok
            yield [alike, name, *cells, f">= {decimal(mean(tpr))}", f"<= {decimal(mean(fpr))}"]


def _clustered(spread: float, delta: float, i: int) -> list[float | None]:
    rng = generator(5, round(10 * spread), i)
    ids, rows, cut = 30, 50, 0.9
    own = rng.normal(size=ids).repeat(rows)
    foreign = rng.normal(2, 1, ids).repeat(rows)
    wrong = rng.random(ids * rows) < ndtr(-1.5 + own)
    scores, others = (one + spread * rng.normal(size=len(one)) for one in (own, foreign))
    sample = dm.Sample(scores, wrong, ood_scores=others)
    groups = np.arange(ids).repeat(rows), np.arange(ids, 2 * ids).repeat(rows)
    rule, deviation = dm.Rule((1.0,), cut), np.sqrt(1 + spread**2)
    tpr, fpr = float(ndtr(cut / deviation)), float(ndtr((cut - 2) / deviation))
    # P(Z <= -1.5 + id and id + noise <= cut) for a standard normal Z.
    corr = -1 / np.sqrt(2) / deviation
    both = multivariate_normal.cdf([-1.5 / np.sqrt(2), cut / deviation], cov=[[1, corr], [corr, 1]])
    found: list[float] = []
    for given, per_id in ((None, "refuse"), (groups, "draw"), (groups, "mean")):
        promise = guarantees.certify(
            rule, sample, confidence=1 - delta, groups=given, per_id=per_id, rng=i
        )
        kept = tpr in promise.tpr and fpr in promise.fpr
        kept = kept and float(both) / tpr in promise.selective_risk
        found += [not kept, promise.tpr.low, promise.fpr.high]
    return plain(found)


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
