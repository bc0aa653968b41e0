"""Data sets the tuner is measured on; each is a sample and the bounds asked of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import demur as dm
from demur.population.paper_example import AS_PRINTED, CORRECTED


class Case(NamedTuple):
    """A sample and the bounds asked of it."""

    sample: dm.Sample
    model: dm.TprFprModel


def clouds(n: int, seed: int) -> Case:
    """Two informative scores: errors at high s_r, OOD at high s_g."""
    return Case(_clouds(n, seed), dm.TprFprModel(0.8, 0.2))


def clouds_slack_fpr(n: int, seed: int) -> Case:
    """Return the same clouds with an FPR bound that does not bind."""
    return Case(_clouds(n, seed), dm.TprFprModel(0.8, 0.5))


def clouds_general_loss(n: int, seed: int) -> Case:
    """Continuous losses, as of a mean absolute error."""
    rng = np.random.default_rng(seed + 1)
    sample = _clouds(n, seed)
    loss = rng.exponential(0.02 + 0.3 * sample.id_loss)
    return Case(dm.Sample(sample.id_scores, loss, sample.ood_scores), dm.TprFprModel(0.8, 0.3))


def heavy_ties(n: int, seed: int) -> Case:
    """Scores rounded to two decimals."""
    sample = _clouds(n, seed)
    rounded = [np.round(scores, 2) for scores in (sample.id_scores, sample.ood_scores)]
    return Case(dm.Sample(rounded[0], sample.id_loss, rounded[1]), dm.TprFprModel(0.8, 0.2))


def synthetic(n: int, seed: int) -> Case:
    """Return the paper's one-dimensional example with OOD mean 2."""
    return Case(CORRECTED.sample(n, seed), dm.TprFprModel(0.7, 0.2))


def synthetic_as_printed(n: int, seed: int) -> Case:
    """Return the same with the printed OOD mean 3, which is harder to tune."""
    return Case(AS_PRINTED.sample(n, seed), dm.TprFprModel(0.7, 0.2))


def noise_few_errors(n: int, seed: int) -> Case:
    """Scores that say nothing, 5 % errors, no bound on FPR: made to be hard."""
    return Case(_noise(n, seed, 0.05), dm.TprFprModel(0.8, 1))


def noise_many_errors(n: int, seed: int) -> Case:
    """Scores that say nothing, 50 % errors."""
    return Case(_noise(n, seed, 0.5), dm.TprFprModel(0.8, 1))


def noise_exp_4z(n: int, seed: int) -> Case:
    """Noise over decades, exp(4z) of normal z, 5 % errors."""
    return Case(_decades(n, seed, 4, 0.05), dm.TprFprModel(0.8, 1))


def noise_exp_6z(n: int, seed: int) -> Case:
    """Noise over more decades, exp(6z) of normal z, 5 % errors."""
    return Case(_decades(n, seed, 6, 0.05), dm.TprFprModel(0.8, 1))


def noise_exp_10z(n: int, seed: int) -> Case:
    """Noise over still more decades, exp(10z) of normal z, 5 % errors."""
    return Case(_decades(n, seed, 10, 0.05), dm.TprFprModel(0.8, 1))


def noise_exp_10z_many_errors(n: int, seed: int) -> Case:
    """Return the same with 50 % errors."""
    return Case(_decades(n, seed, 10, 0.5), dm.TprFprModel(0.8, 1))


def noise_cauchy(n: int, seed: int) -> Case:
    """Noise of both signs with heavy tails, 5 % errors."""
    rng = np.random.default_rng(seed)
    half = n // 2
    id_scores, ood_scores = (rng.standard_cauchy((k, 2)) for k in (half, n - half))
    return Case(dm.Sample(id_scores, rng.random(half) < 0.05, ood_scores), dm.TprFprModel(0.8, 1))


def noise_ratios(n: int, seed: int) -> Case:
    """Ratios of lognormal numbers beside one of these, 5 % errors."""
    sample = _decades(n, seed, 3, 0.05)
    id_scores, ood_scores = (
        np.column_stack([scores[:, 0] / scores[:, 1], scores[:, 1]])
        for scores in (sample.id_scores, sample.ood_scores)
    )
    return Case(dm.Sample(id_scores, sample.id_loss, ood_scores), dm.TprFprModel(0.8, 1))


REALISTIC: list[Callable[[int, int], Case]] = [
    clouds,
    clouds_slack_fpr,
    heavy_ties,
    clouds_general_loss,
    synthetic,
    synthetic_as_printed,
]
HARD: list[Callable[[int, int], Case]] = [noise_few_errors, noise_many_errors]
MANY_DECADES: list[Callable[[int, int], Case]] = [
    noise_exp_4z,
    noise_exp_6z,
    noise_exp_10z,
    noise_exp_10z_many_errors,
    noise_cauchy,
    noise_ratios,
]


def _clouds(n: int, seed: int) -> dm.Sample:
    rng = np.random.default_rng(seed)
    half = n // 2
    difficulty = rng.gamma(2.0, 0.15, half)
    wrong = rng.random(half) < np.clip(0.02 + 0.5 * (difficulty - 0.3), 0.002, 0.9)
    id_scores = np.column_stack([difficulty, rng.normal(1.0, 0.25, half) + 0.1 * difficulty])
    ood_scores = np.column_stack([rng.gamma(3.0, 0.2, n - half), rng.normal(1.7, 0.4, n - half)])
    return dm.Sample(id_scores, wrong, ood_scores)


def _noise(n: int, seed: int, errors: float) -> dm.Sample:
    rng = np.random.default_rng(seed)
    half = n // 2
    return dm.Sample(
        rng.normal(size=(half, 2)), rng.random(half) < errors, rng.normal(size=(n - half, 2))
    )


def _decades(n: int, seed: int, spread: float, errors: float) -> dm.Sample:
    noise = _noise(n, seed, errors)
    scores = [np.exp(spread * normal) for normal in (noise.id_scores, noise.ood_scores)]
    return dm.Sample(scores[0], noise.id_loss, scores[1])
