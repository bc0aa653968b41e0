"""AUROC with DeLong's standard error, of one score and of two scores on the same rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur._arrays import FloatArray, takes
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.intervals import Interval, miss, refuse_weights


@dataclass(frozen=True, slots=True)
class AurocEstimate:
    """AUROC of one score."""

    auroc: float
    standard_error: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class AurocComparison:
    """AUROC of two scores on the same rows."""

    first: AurocEstimate
    second: AurocEstimate
    difference: float
    """First minus second."""
    standard_error: float
    interval: Interval
    p_value: float
    """Two-sided, of "both have the same AUROC"."""


@takes(sample=Sample)
def auroc_interval(sample: Sample, *, confidence: float = 0.95) -> AurocEstimate:
    """Return the AUROC of a single-score sample with DeLong's interval.

    The probability that an ID row has a smaller score than an OOD row, ties counting half. At an
    AUROC of exactly 1 or 0 the standard error is 0 and the interval has no width, though the true
    AUROC is not known exactly: the rows at hand just show no overlap.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sample = Sample(rng.normal(0, 1, 100), np.zeros(100), ood_scores=rng.normal(1, 1, 80))
    >>> found = auroc_interval(sample)
    >>> round(found.auroc, 3), round(found.standard_error, 3)
    (0.744, 0.037)
    """
    ranks = _placements("sample", sample)
    return _estimate(ranks, float(_variance(ranks, ranks)), confidence)


@takes(first=Sample, second=Sample)
def compare_auroc(first: Sample, second: Sample, *, confidence: float = 0.95) -> AurocComparison:
    """Return the difference of two single-score AUROCs on the same rows (DeLong et al., 1988).

    An AUROC of exactly 1 or 0 adds no uncertainty to the interval of the difference, which is
    then too narrow, and has no width if both are such; `p_value` is too small alike.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(0, 1, (100, 1)), rng.normal(1, 1, (80, 1))
    >>> noise = rng.normal(0, 1, 180)
    >>> one = Sample(x, np.zeros(100), ood_scores=y)
    >>> two = Sample(x[:, 0] + noise[:100], np.zeros(100), ood_scores=y[:, 0] + noise[100:])
    >>> found = compare_auroc(one, two)
    >>> found.difference > 0, found.p_value < 0.05
    (True, True)
    """
    from scipy.special import ndtr

    if (first.n_id, first.n_ood) != (second.n_id, second.n_ood):
        raise InvalidInputError(
            f"first and second must have the same rows, got {first} and {second}"
        )
    a, b = _placements("first", first), _placements("second", second)
    var_a, var_b = float(_variance(a, a)), float(_variance(b, b))
    variance = max(0.0, var_a + var_b - 2 * float(_variance(a, b)))
    error = float(np.sqrt(variance))
    one, two = _estimate(a, var_a, confidence), _estimate(b, var_b, confidence)
    difference = one.auroc - two.auroc
    if error > 0:
        p_value = float(2 * ndtr(-abs(difference) / error))
    else:
        p_value = 1.0 if difference == 0 else 0.0
    reach = _normal_quantile(confidence) * error
    interval = Interval(difference - reach, difference + reach)
    return AurocComparison(one, two, difference, error, interval, p_value)


def _placements(name: str, sample: Sample) -> tuple[FloatArray, FloatArray]:
    """Return, for each ID row, the share of OOD above it, and for each OOD row of ID below."""
    refuse_weights(sample)
    if sample.n_scores != 1:
        raise InvalidInputError(
            f"{name} has two scores, whose AUROC is tuned on the rows; compare single scores, or "
            "the combined score of a fixed rule"
        )
    if sample.n_id < 2 or sample.n_ood < 2:
        raise InvalidInputError(f"{name} needs at least two ID and two OOD rows, got {sample}")
    id_, ood = np.sort(sample.id_doubts[:, 0]), np.sort(sample.ood_doubts[:, 0])
    below = _share_below(sample.id_doubts[:, 0], ood)
    return 1 - below, _share_below(sample.ood_doubts[:, 0], id_)


def _share_below(values: FloatArray, ordered: FloatArray) -> FloatArray:
    """Return the share of `ordered` below each value, ties counting half."""
    left = np.searchsorted(ordered, values, "left")
    right = np.searchsorted(ordered, values, "right")
    return (left + right) / (2 * len(ordered))


def _variance(a: tuple[FloatArray, FloatArray], b: tuple[FloatArray, FloatArray]) -> np.float64:
    """Return the covariance of two AUROCs from the covariances of their placements."""
    return np.float64(sum(np.cov(p, q, ddof=1)[0, 1] / len(p) for p, q in zip(a, b, strict=True)))


def _estimate(
    ranks: tuple[FloatArray, FloatArray], variance: float, confidence: float
) -> AurocEstimate:
    auroc, error = float(ranks[0].mean()), float(np.sqrt(variance))
    reach = _normal_quantile(confidence) * error
    return AurocEstimate(auroc, error, Interval(max(0.0, auroc - reach), min(1.0, auroc + reach)))


def _normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(-ndtri(miss(confidence) / 2))
