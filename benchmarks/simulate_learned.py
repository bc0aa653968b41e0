"""Do promises hold for learned scores? Five simulated scores, learned, tuned and certified anew.

    python -m benchmarks.simulate_learned --repetitions 1000
    python -m benchmarks.simulate_learned --truth 5    # beside rules that know r and g

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
MIXED = np.array([[1, 0], [0, 1], [0.7, 0.7], [1, -0.3], [0.3, 1]])
"""What the scores show of the two hidden doubts, and through how much noise."""
NOISE = np.array([0.8, 0.8, 1.0, 1.2, 1.2])
FOREIGN = (0.5, 1.5)
"""Mean of the hidden doubts of OOD rows."""


def five_scores(rng: np.random.Generator, own: int, foreign: int) -> dm.Sample:
    """Draw rows: two hidden doubts, five scores of them, errors by the first."""
    hidden = rng.normal(size=(own, 2))
    wrong = rng.random(own) < 1 / (1 + np.exp(2.6 - 1.7 * hidden[:, 0]))
    other = rng.normal(FOREIGN, 1, size=(foreign, 2))
    sides = [side @ MIXED.T + NOISE * rng.normal(size=(len(side), 5)) for side in (hidden, other)]
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


def true_doubts(rows: dm.Sample) -> dm.Sample:
    """Return the rows with what a perfect learner would make of their scores.

    The mean of the first hidden doubt given the scores is linear in them, and so is the log of the
    ratio; the risk is its mean over what is left of the first hidden doubt.
    """
    from scipy.special import expit

    seen = MIXED @ MIXED.T + np.diag(NOISE**2)
    mean = np.linalg.solve(seen, MIXED)[:, 0]
    spread = np.sqrt(1 - MIXED[:, 0] @ mean)
    shift = MIXED @ np.array(FOREIGN)
    slope = np.linalg.solve(seen, shift)
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)

    def doubts(scores: np.ndarray) -> np.ndarray:
        hidden = (scores @ mean)[:, None] + spread * nodes
        risk = expit(1.7 * hidden - 2.6) @ weights / weights.sum()
        return np.column_stack([risk, np.exp(scores @ slope - slope @ shift / 2)])

    return dm.Sample(doubts(rows.id_scores), rows.id_loss, doubts(rows.ood_scores))


def against_truth(draws: int) -> None:
    """Print the risk on fresh rows of learned rules, and of rules that know r and g."""
    model = dm.TprFprModel(0.7, 0.25)
    print("risk on 40,000 + 40,000 fresh rows, FPR, TPR: learned; r and g known")
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        rows, fresh = five_scores(rng, 4000, 2000), five_scores(rng, 40_000, 40_000)
        learned = dm.learn.fit(rows, "logistic")
        pairs = (learned.sample, learned.sample_of(fresh)), (true_doubts(rows), true_doubts(fresh))
        seen = [dm.evaluate(dm.tune(own, model).rule, other) for own, other in pairs]
        print(
            f"{seed}: " + "; ".join(f"{e.selective_risk:.4f} {e.fpr:.3f} {e.tpr:.3f}" for e in seen)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--truth", type=int, metavar="DRAWS", help="against known r and g instead")
    asked = parser.parse_args()
    if asked.truth:
        against_truth(asked.truth)
        return
    repetitions = asked.repetitions
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
