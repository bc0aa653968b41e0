"""Intervals from replicates, on scales on which the spread does not depend on the rate."""

from __future__ import annotations

import numpy as np

from demur._arrays import FloatArray
from demur.guarantees.intervals import Interval


def angle_interval(
    apparent: float, in_bag: FloatArray, on_sample: FloatArray, tail: float
) -> Interval:
    """Return the interval of a share, formed of angles (the arcsine of the root).

    The spread of shares shrinks towards 0 and 1, that of the angles does not, so what was seen
    around one share can be put on another.
    """
    low, high = _quantiles(_angle(on_sample) - _angle(in_bag), tail)
    ends = _share(_angle(np.array(apparent)) + np.array([low, high]))
    return Interval(*ends.tolist())


def student_interval(
    apparent: float,
    error: float,
    in_bag: FloatArray,
    on_sample: FloatArray,
    errors: FloatArray,
    tail: float,
    *,
    least: float = -np.inf,
) -> Interval:
    """Return the interval of a mean or difference, formed of multiples of the standard error.

    Where losses are few, or two rules differ in few rows, a rate that came out low also looks
    more certain than it is. Each replicate is measured by its own standard error, and what was
    seen is put on that of the sample (the bootstrap-t of Efron): so intervals reach further on
    the side on which the truth is further away.
    """
    shift = on_sample - in_bag
    # Without losses, or for one rule twice, both are zero.
    ratio = np.divide(shift, errors, out=np.zeros_like(shift), where=shift != 0)
    low, high = _quantiles(ratio, tail)
    return Interval(max(least, apparent + error * low), max(least, apparent + error * high))


def _quantiles(shift: FloatArray, tail: float) -> tuple[float, float]:
    shift = shift[~np.isnan(shift)]
    if not len(shift):
        return np.nan, np.nan
    # Of so many replicates and the truth, each is equally likely to be beyond these.
    low, high = np.quantile(shift, [tail, 1 - tail], method="weibull").tolist()
    return low, high


def _angle(share: FloatArray) -> FloatArray:
    return np.arcsin(np.sqrt(share))


def _share(angle: FloatArray) -> FloatArray:
    return np.asarray(np.sin(np.clip(angle, 0, np.pi / 2)) ** 2)
