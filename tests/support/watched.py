"""A rule with a card, and live rows, for tests of the watch."""

import numpy as np

import demur as dm

NAMES = ("msp", "knn")


def wrong_of(rng, scores):
    return (rng.random(len(scores)) < 1 / (1 + np.exp(3 - scores[:, 0]))).astype(float)


def tuned_rule(seed=0, n=1500):
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 1, (n, 2))
    foreign = rng.normal([1, 2.5], 1, (n, 2))
    sample = dm.Sample(scores, wrong_of(rng, scores), foreign, score_names=NAMES)
    return dm.tune(sample, dm.TprFprModel(0.8, 0.1)).rule


def live_rows(rng, n, prior=0.1, shift=0.0):
    """Return scores, losses (NaN of OOD rows) and whether rows are OOD."""
    foreign = rng.random(n) < prior
    scores = rng.normal(0, 1, (n, 2)) + np.where(foreign[:, None], [1, 2.5], 0) + shift
    return scores, np.where(foreign, np.nan, wrong_of(rng, scores)), foreign
