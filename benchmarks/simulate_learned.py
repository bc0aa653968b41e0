"""Do promises hold for learned scores? Five simulated scores, learned, tuned and certified anew.

    python -m benchmarks.simulate_learned --repetitions 1000

In each repetition scores are learned on 600 ID and 400 OOD rows and a rule is tuned on their
out-of-fold values; `certify` states intervals from 300 + 200 fresh rows, `tune_certified` promises
bounds from 800 + 500 other fresh rows. Both are held against 40,000 + 40,000 rows of the same
population. Counted is how often any interval or bound was wrong; at most `1 - confidence` may be.
"""

from __future__ import annotations

import argparse

import numpy as np

import demur as dm

CONFIDENCE = 0.9
MODEL = dm.TprFprModel(0.6, 0.3)


def five_scores(rng: np.random.Generator, own: int, foreign: int) -> dm.Sample:
    """Draw rows: two hidden doubts, five scores of them, errors by the first."""
    mixed = np.array([[1, 0], [0, 1], [0.7, 0.7], [1, -0.3], [0.3, 1]])
    noise = np.array([0.8, 0.8, 1.0, 1.2, 1.2])
    hidden = rng.normal(size=(own, 2))
    wrong = rng.random(own) < 1 / (1 + np.exp(2.6 - 1.7 * hidden[:, 0]))
    other = rng.normal([0.5, 1.5], 1, size=(foreign, 2))
    sides = [side @ mixed.T + noise * rng.normal(size=(len(side), 5)) for side in (hidden, other)]
    return dm.Sample(sides[0], wrong, sides[1])


def broken(rng: np.random.Generator) -> tuple[bool, bool | None]:
    """Return whether an interval was wrong, and whether a promise was; None if there was none."""
    learned = dm.learn.fit(five_scores(rng, 600, 400), "logistic")
    population = learned.sample_of(five_scores(rng, 40_000, 40_000))
    rule = dm.tune(learned.sample, MODEL).rule
    truth = dm.evaluate(rule, population)
    fresh = learned.sample_of(five_scores(rng, 300, 200))
    told = dm.guarantees.certify(rule, fresh, confidence=CONFIDENCE)
    missed = (
        told.tpr.low > truth.tpr
        or told.fpr.high < truth.fpr
        or told.selective_risk.high < truth.selective_risk
    )
    try:
        promised = dm.guarantees.tune_certified(
            learned.sample_of(five_scores(rng, 800, 500)), MODEL, confidence=CONFIDENCE, rng=0
        )
    except dm.InfeasibleError:
        return missed, None
    seen = dm.evaluate(promised.rule, population)
    failed = (
        seen.tpr < MODEL.min_tpr
        or seen.fpr > MODEL.max_fpr
        or seen.selective_risk > promised.selective_risk
    )
    return missed, failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000)
    repetitions = parser.parse_args().repetitions
    found: list[tuple[bool, bool | None]] = []
    for number, rng in enumerate(np.random.default_rng(0).spawn(repetitions), 1):
        found.append(broken(rng))
        if number % 50 == 0 or number == repetitions:
            made = [promise for _, promise in found if promise is not None]
            print(
                f"{number:,} repetitions: an interval of certify was wrong in "
                f"{np.mean([missed for missed, _ in found]):.3f}, {len(made):,} promises, broken "
                f"{np.mean(made):.3f}; allowed: {1 - CONFIDENCE:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
