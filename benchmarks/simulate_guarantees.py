"""Do the promises hold? Simulations on populations whose truth is known.

    python -m benchmarks.simulate_guarantees                     # all, 1,000 repetitions
    python -m benchmarks.simulate_guarantees tuning --repetitions 200 --sizes 100 1000

Seeds are fixed. A promise passes if its share of failures is at most delta plus three standard
errors of a share measured in that many repetitions. The exit status is 1 if one does not.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

import demur as dm
from benchmarks.guarantee_populations import Population, Truth, clouds, graded, paper, ties
from demur import guarantees

TPR_FPR = dm.TprFprModel(0.7, 0.2)
PRECISION = dm.PrecisionRecallModel(0.9, 0.7, ood_prior=0.25)
COST = dm.CostModel(reject_id=0.25, accept_ood=1, reject_ood=0, ood_prior=0.25)

PAPER_G = paper("paper, score g", [[0.0, 1.0]])
PAPER_MIX = paper("paper, score r + 0.2 g", [[1.0, 0.2]])
PAPER_TWO = paper("paper, scores (r, g)", [[1.0, 0.0], [0.0, 1.0]])
TIES, GRADED, CLOUDS = ties(), graded(), clouds()

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
    """Certified tuning against plain tuning; under the cost model "risk" is the expected cost."""
    yield [
        "population", "model", "n", "plain: unable", "plain: breaks a bound",
        "plain: true risk", "proven", "a promise fails", "limit", "ok", "promised risk",
        "true risk", "cost in risk",
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
    both = [run for run in runs if run.plain is not None and run.certified is not None]
    extra = [objective(model, r.certified) - objective(model, r.plain) for r in both]
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
        decimal(mean(run.promised for run in runs)),
        decimal(mean(objective(model, run.certified) for run in runs if run.certified)),
        decimal(mean(extra)),
    ]


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


def resampling(options: Options) -> Iterator[list[str]]:
    """Bootstrap intervals (approximate: no verdict) and what the estimates of risk average."""
    yield [
        "population", "n", "misses: tpr", "misses: fpr", "misses: risk", "misses: difference",
        "apparent risk", "bootstrap", "5 folds", "true risk",
    ]  # fmt: skip
    for number, population in enumerate((PAPER_G, TIES, GRADED, PAPER_TWO)):
        for n in [size for size in options.sizes if size <= 1000]:
            runs = [
                run
                for i in range(options.repetitions)
                if (run := _resampling_run(population, n, options, seed=(4, number, n, i)))
            ]
            missed = np.array([run[0] for run in runs])
            risks = np.array([run[1] for run in runs])
            yield [
                population.name, f"{n:,}", *(percent(v) for v in missed.mean(axis=0)),
                *(decimal(v) for v in np.nanmean(risks, axis=0)),
            ]  # fmt: skip


def _resampling_run(
    population: Population, n: int, options: Options, *, seed: tuple[int, ...]
) -> tuple[list[bool], list[float]] | None:
    sample = population.draw(n, generator(*seed))
    worse = dm.Sample(sample.id_scores[:, :1], sample.id_loss, ood_scores=sample.ood_scores[:, :1])
    try:
        found = guarantees.bootstrap(
            sample, TPR_FPR, replicates=options.replicates, confidence=1 - options.delta
        )
        folds = guarantees.cross_tune(sample, TPR_FPR)
    except dm.InfeasibleError:
        return None
    truth = population.truth(found.tuned.rule)
    missed = [
        getattr(truth, name) not in found.measures[name].interval
        for name in ("tpr", "fpr", "selective_risk")
    ]
    missed.append(_difference_missed(population, sample, worse, truth, options))
    risk = found.measures["selective_risk"]
    held_out = math.nan if folds.held_out is None else folds.held_out.selective_risk
    return missed, [risk.apparent, risk.estimate, held_out, truth.selective_risk]


def _difference_missed(
    population: Population, sample: dm.Sample, worse: dm.Sample, truth: Truth, options: Options
) -> bool:
    """Compare with an abstention-only rule on the first score, at the TPR bound alone."""
    compared = guarantees.compare(
        sample,
        worse,
        dm.TprFprModel(0.7),
        replicates=options.replicates,
        confidence=1 - options.delta,
    )
    first = population.truth(compared.first.rule)
    direction = (1.0,) if sample.n_scores == 1 else (1.0, 0.0)
    second = population.truth(dm.Rule(direction, compared.second.rule.threshold))
    difference = first.selective_risk - second.selective_risk
    return difference not in compared.differences["selective_risk"].interval


def share(flags: object) -> float:
    return float(np.mean([bool(flag) for flag in flags]))  # type: ignore[attr-defined]


def mean(values: object) -> float:
    known = [v for v in values if not math.isnan(v)]  # type: ignore[attr-defined]
    return float(np.mean(known)) if known else math.nan


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def decimal(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def verdict(met: bool) -> str:
    return "yes" if met else "NO"


SECTIONS: dict[str, Callable[[Options], Iterator[list[str]]]] = {
    "tuning": tuning,
    "certificates": certificates,
    "priors": priors,
    "resampling": resampling,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000, 3000, 10_000])
    parser.add_argument("--delta", type=float, default=0.05)
    parser.add_argument("--only", default="", help="part of the name of a case of 'tuning'")
    parser.add_argument("--replicates", type=int, default=200, help="of each bootstrap")
    given = parser.parse_args()
    options = Options(given.repetitions, given.sizes, given.delta, given.replicates, given.only)
    failed = 0
    for name in given.section or SECTIONS:
        make = SECTIONS[name]
        print(f"\n## {name}: {make.__doc__}\n")
        print(
            f"{options.repetitions} repetitions, delta {options.delta}, "
            f"limit {percent(options.limit)} = delta and three standard errors\n"
        )
        for number, row in enumerate(make(options)):
            print("| " + " | ".join(row) + " |", flush=True)
            if number == 0:
                print("|" + "---|" * len(row))
            failed += "NO" in row
    print(f"\n{failed} rows above their limit")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
