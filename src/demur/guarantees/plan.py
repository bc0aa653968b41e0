"""How many rows it takes to certify bounds, and with what chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.models import TprFprModel
from demur.errors import InvalidInputError
from demur.guarantees.intervals import miss, sidak

_MOST_ROWS = 10**8
_CURVE_POINTS = 12


@dataclass(frozen=True, slots=True)
class PlanRow:
    """Rows needed when the true rates are better than the bounds by `margin`."""

    margin: float
    tpr: float
    fpr: float
    n_id: int | None
    """None when no number of rows is enough: the margin is zero."""
    n_ood: int | None


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """The chance that `rows` ID rows certify the TPR, and as many OOD rows the FPR."""

    margin: float
    rows: int
    tpr_power: float
    fpr_power: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How much fresh data certifies a rule; made by `plan`."""

    model: TprFprModel
    confidence: float
    power: float
    fewest_id: int | None
    """Below this many ID rows not even accepting all of them is enough; None if never."""
    fewest_ood: int | None
    """Below this many OOD rows not even rejecting all of them is enough; None if never."""
    rows: tuple[PlanRow, ...]
    curve: tuple[PowerPoint, ...]


def plan(
    model: TprFprModel,
    *,
    margins: Sequence[float] = (0.01, 0.02, 0.05),
    confidence: float = 0.95,
    power: float = 0.9,
) -> Plan:
    """Return how many fresh ID and OOD rows `certify` needs to prove the bounds of `model`.

    A rule that only just meets its bounds cannot be certified by any number of rows: how many
    are needed depends on the margin by which its true TPR and FPR are better. With the sizes
    returned, both bounds are certified together with probability at least `power`, here and
    for every larger sample. The level is the one `certify` uses, which bounds the selective
    risk as well.

    Parameters
    ----------
    margins
        By how much the true TPR is above and the true FPR below its bound.

    Examples
    --------
    >>> planned = plan(TprFprModel(min_tpr=0.8, max_fpr=0.1), margins=[0.05])
    >>> planned.fewest_id, planned.fewest_ood
    (19, 39)
    >>> planned.rows
    (PlanRow(margin=0.05, tpr=0.85, fpr=0.05, n_id=850, n_ood=421),)
    """
    if not isinstance(model, TprFprModel):
        raise InvalidInputError(f"plan needs a TprFprModel, got {model!r}")
    if not 0 < power < 1:
        raise InvalidInputError(f"power must be between 0 and 1, got {power}")
    bounded = float(model.max_fpr) < 1
    level = sidak(miss(confidence), 3 if bounded else 2)
    # Two independent samples must both succeed.
    each = math.sqrt(power) if bounded else power
    tpr_bound, tnr_bound = float(model.min_tpr), 1 - float(model.max_fpr)
    rows, curve = [], []
    for margin in margins:
        if not 0 <= margin <= 1:
            raise InvalidInputError(f"margins must be between 0 and 1, got {margin}")
        tpr, tnr = (min(1.0, round(b + margin, 12)) for b in (tpr_bound, tnr_bound))
        n_id = rows_to_prove(tpr_bound, tpr, level, each)
        n_ood = rows_to_prove(tnr_bound, tnr, level, each)
        rows.append(PlanRow(float(margin), tpr, round(1 - tnr, 12), n_id, n_ood))
        for n in _sizes(n_id, n_ood):
            powers = [
                float(_power(np.array([n]), *q, level)[0])
                for q in ((tpr_bound, tpr), (tnr_bound, tnr))
            ]
            curve.append(PowerPoint(float(margin), n, *powers))
    return Plan(
        model=model,
        confidence=confidence,
        power=power,
        fewest_id=fewest_rows(tpr_bound, level),
        fewest_ood=fewest_rows(tnr_bound, level),
        rows=tuple(rows),
        curve=tuple(curve),
    )


def fewest_rows(bound: float, level: float) -> int | None:
    """Return how many rows, all accepted, prove that a rate is at least `bound`."""
    if bound <= 0:
        return 0
    if bound >= 1:
        return None
    # bound**n <= level, with a step back where the logarithms rounded up.
    n = math.ceil(math.log(level) / math.log(bound))
    return n - 1 if bound ** (n - 1) <= level else n


def rows_to_prove(bound: float, rate: float, level: float, power: float) -> int | None:
    """Return the number of rows from which on a true `rate` proves to be at least `bound`.

    Proved at `level` with probability at least `power` for this and every larger number of
    rows: the power of an exact test goes up and down like a saw, so one tooth is looked over.
    None when the margin is zero, or so small that more than 10**8 rows would be needed.
    """
    if bound <= 0:
        return 0
    if rate <= bound:
        return None
    tooth = np.arange(math.ceil(2 / min(bound, 1 - bound)) if bound < 1 else 1)

    def enough(n: int) -> bool:
        return bool((_power(n + tooth, bound, rate, level) >= power).all())

    high = fewest_rows(bound, level) or 1
    while not enough(high):
        high *= 2
        if high > _MOST_ROWS:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _power(n: IntArray, bound: float, rate: float, level: float) -> FloatArray:
    """Return the probability that n rows of a true `rate` prove that it is at least `bound`."""
    from scipy.special import bdtrc, bdtrik

    if bound <= 0:
        return np.ones(len(n))
    if bound >= 1:
        return np.zeros(len(n))
    # The fewest successes k with P(Bin(n, bound) >= k) <= level; bdtrc(k - 1) is that tail.
    k = np.ceil(bdtrik(1 - level, n, bound)) + 1
    k = np.where(bdtrc(np.maximum(k - 2, 0), n, bound) <= level, k - 1, k)
    k = np.where(bdtrc(np.minimum(k - 1, n), n, bound) > level, k + 1, k)
    # bdtrc takes no rate of one.
    reached = bdtrc(np.minimum(k - 1, n), n, min(rate, 1 - 1e-16))
    return np.asarray(np.where(k <= n, reached, 0.0))


def _sizes(n_id: int | None, n_ood: int | None) -> list[int]:
    """Return rows from 20 to twice what is needed, in even ratios."""
    largest = 2 * max(n_id or 0, n_ood or 0, 50)
    return sorted({round(n) for n in np.geomspace(20, largest, _CURVE_POINTS)})
