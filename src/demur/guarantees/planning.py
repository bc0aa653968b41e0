"""How many rows it takes to prove bounds: planned ahead, and told when they were too few."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from demur._arrays import NUMBER, FloatArray, IntArray, check_kind, takes
from demur.core.models import Bound, RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.wording import bound_text, value_at, whose
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.bound_tests import (
    FreshCounts,
    Requirement,
    SplitSizes,
    asked_text,
    is_provable,
    rate_bounds,
)
from demur.guarantees.intervals import miss, sidak

_MOST_ROWS = 10**8
_CURVE_POINTS = 12
# Of certified tuning: the chance to succeed with the rows it asks for, and its limit on them.
_POWER = 0.9
_MOST_TIMES = 10_000.0
# Where the rows there are should have done, so many times as many are asked for.
_MORE = 1.25


@dataclass(frozen=True, slots=True)
class PlanRow:
    """Rows needed when the true rates are better than the bounds by `margin`.

    Examples
    --------
    >>> import demur as dm
    >>> row = dm.guarantees.plan(dm.TprFprModel(min_tpr=0.8, max_fpr=0.1)).rows[0]
    >>> row.margin, row.n_id, row.n_ood
    (0.01, 22310, 12317)
    """

    margin: float
    tpr: float
    fpr: float
    n_id: int | None
    """None when no number of rows is enough: the margin is zero."""
    n_ood: int | None
    parts: Mapping[str, int | None] = field(default_factory=dict)
    """For bounds on a group or an OOD set the rows needed of it, such as ``tpr >= 0.6 of rare``;
    for bounds on a selective risk the accepted rows."""


@dataclass(frozen=True, slots=True)
class PowerPoint:
    """The chance that `rows` ID rows certify the TPR, and as many OOD rows the FPR.

    Examples
    --------
    >>> import demur as dm
    >>> point = dm.guarantees.plan(dm.TprFprModel(min_tpr=0.8, max_fpr=0.1)).curve[-1]
    >>> 0 <= point.tpr_power <= 1
    True
    """

    margin: float
    rows: int
    tpr_power: float
    fpr_power: float


@dataclass(frozen=True, slots=True)
class Plan:
    """How much fresh data certifies a rule; made by `plan`.

    Examples
    --------
    >>> import demur as dm
    >>> plan = dm.guarantees.plan(dm.TprFprModel(min_tpr=0.8, max_fpr=0.1))
    >>> plan.fewest_id, plan.fewest_ood
    (19, 39)
    """

    model: RejectionModel
    confidence: float
    power: float
    fewest_id: int | None
    """Below this many ID rows not even accepting all of them is enough; None if never."""
    fewest_ood: int | None
    """Below this many OOD rows not even rejecting all of them is enough; None if never."""
    rows: tuple[PlanRow, ...]
    curve: tuple[PowerPoint, ...]


@takes(model=RejectionModel, power=NUMBER, margins=Sequence)
def plan(
    model: RejectionModel,
    *,
    margins: Sequence[float] = (0.01, 0.02, 0.05),
    confidence: float = 0.95,
    power: float = 0.9,
    sets: int = 1,
) -> Plan:
    """Return how many fresh ID and OOD rows `certify` needs to prove the bounds of `model`.

    A rule that only just meets its bounds cannot be certified by any number of rows: how many
    are needed depends on the margin by which its true TPR and FPR are better. With the sizes
    returned, the bounds are certified together with probability at least `power`; larger
    samples may fall short of it by some 1e-4, since the power of exact tests is not monotone. The
    level is the one `certify` uses, which bounds the selective risk as well. Bounds on a group, on
    a single OOD set and on a selective risk need rows of their own kind: see `PlanRow.parts`.

    Parameters
    ----------
    model
        With bounds on TPR, FPR and selective risk, such as a `TprFprModel`; precision depends on
        both sides, which `plan_tuning` plans from a pilot sample.
    margins
        By how much the true TPR is above and the true FPR below its bound.
    sets
        How many OOD sets have to keep the bound on the FPR, each by itself; the OOD rows are then
        those of each set.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> planned = plan(TprFprModel(min_tpr=0.8, max_fpr=0.1), margins=[0.05])
    >>> planned.fewest_id, planned.fewest_ood
    (19, 39)
    >>> planned.rows
    (PlanRow(margin=0.05, tpr=0.85, fpr=0.05, n_id=850, n_ood=421, parts={}),)
    """
    min_tpr, max_fpr = _planned_bounds(model)
    others = [bound for bound in model.bounds if _is_apart(bound)]
    of_parts = any(bound.is_of_part for bound in others)
    if not 0 < power < 1:
        raise InvalidInputError(f"power must be between 0 and 1, got {power}")
    bounded = max_fpr < 1
    delta, count = miss(confidence), 3 if bounded or _of_sets(others) else 2
    level = delta / (count + 1) if of_parts else sidak(delta, count)
    if isinstance(sets, bool) or not isinstance(sets, int) or sets < 1:
        raise InvalidInputError(f"sets must be a positive whole number, got {sets!r}")
    # Independent samples must all succeed: that of the ID rows, and one for every set.
    each = power ** (1 / (1 + sets)) if bounded else power
    if others:
        # Rows of a group are among all rows, so that failures add up.
        each = 1 - (1 - power) / (len(others) + 1 + (sets if bounded else 0))
    tpr_bound, tnr_bound = min_tpr, 1 - max_fpr
    rows, curve = [], []
    for margin in margins:
        check_kind("margins", margin, NUMBER)
        if not 0 <= margin <= 1:
            raise InvalidInputError(f"margins must be between 0 and 1, got {margin}")
        tpr, tnr = (min(1.0, round(b + margin, 12)) for b in (tpr_bound, tnr_bound))
        n_id = rows_to_prove(tpr_bound, tpr, level, each)
        n_ood = rows_to_prove(tnr_bound, tnr, level, each)
        parts = {
            bound_text(model, bound): rows_to_prove(*_as_share(bound, float(margin)), level, each)
            for bound in others
        }
        rows.append(PlanRow(float(margin), tpr, round(1 - tnr, 12), n_id, n_ood, parts))
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


def _planned_bounds(model: RejectionModel) -> tuple[float, float]:
    known = all(is_provable(b) and b.quantity != "precision" for b in model.bounds)
    if not (model.bounds and known):
        raise InvalidInputError(
            "plan needs a TprFprModel, or other bounds on tpr, fpr and selective_risk only, got "
            f"{model!r}"
        )
    return rate_bounds(model.of_all_rows)


def _is_apart(bound: Bound) -> bool:
    """Return whether a bound is neither on the TPR of all ID rows nor on the FPR of all OOD."""
    return bound.is_of_part or bound.quantity == "selective_risk"


def _of_sets(bounds: Sequence[Bound]) -> bool:
    return any(bound.quantity == "fpr" for bound in bounds)


def _as_share(bound: Bound, margin: float) -> tuple[float, float]:
    """Return a bound and the true value as shares to be at least: one less what is at most."""
    asked = float(bound.value) if bound.is_lower else max(0.0, 1 - float(bound.value))
    return asked, min(1.0, round(asked + margin, 12))


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

    Proved at `level` with probability at least `power`. The power of an exact test goes up and
    down like a saw, so one tooth is looked over; later ones may fall short by some 1e-4.
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


def shortage(
    requirement: Requirement,
    asked: RejectionModel,
    safest: OperatingPoint | None,
    hoped: OperatingPoint | None,
    confidence: float,
) -> InfeasibleError:
    """Return the error that says how many rows would be needed, more than there are.

    `requirement` is what was to be proven of the model that was `asked`. `safest` is what the
    first candidate did on the test rows; None when there is none. `hoped` is what the safest rule
    does when it learns on all rows: the rates to plan with, unless no counts on so few test rows
    could prove the bounds.
    """
    sizes = requirement.sizes
    rows = f"{sizes.test_id} ID and {sizes.test_ood} OOD test rows"
    impossible = not requirement.provable()
    if impossible:
        seen = f"not even a perfect result on {rows} would be a proof"
    elif safest is None:
        learned = f"{sizes.learn_id} ID and {sizes.learn_ood} OOD rows to learn on"
        seen = f"no rule meets them on the {learned}"
    else:
        seen = f"on {rows} the safest candidate has {_rates_text(safest, sizes, asked)}"
    needed = (math.nan, math.nan)
    if impossible:
        needed = _fewest(requirement)
    elif hoped is not None:
        needed = _needed(requirement, hoped)
        seen += f" (at best {hoped.tpr:.4g} and {_worst_fpr(hoped, sizes):.4g} on all rows)"
    id_rows, ood_rows = _more(
        _all_rows(needed[0], sizes.learn_id, sizes.test_id),
        _all_rows(needed[1], sizes.learn_ood, sizes.test_ood),
        sizes,
    )
    return InfeasibleError(
        f"no rule is proven to meet {asked_text(asked)} with confidence {confidence}: {seen}; "
        f"{_advice(id_rows, ood_rows, at_least=impossible)}"
        f"{', of groups in the same proportions' if sizes.test_groups else ''}",
        model=asked,
        attainable={"needed_id": id_rows, "needed_ood": ood_rows},
    )


def _rates_text(point: OperatingPoint, sizes: SplitSizes, asked: RejectionModel) -> str:
    of = " in the worst set" if sizes.test_sets else ""
    groups = (
        f", {b.quantity.replace('_', ' ')}{whose(b)} {value_at(point, b):.4g}"
        for b in asked.bounds
        if b.group is not None
    )
    return f"tpr {point.tpr:.4g} and fpr {_worst_fpr(point, sizes):.4g}{of}{''.join(groups)}"


def _worst_fpr(point: OperatingPoint, sizes: SplitSizes) -> float:
    """Return the FPR that counts: where bounds are of sets, the largest."""
    return max(point.fpr_by_set.values()) if sizes.test_sets else point.fpr


def _advice(id_rows: float, ood_rows: float, *, at_least: bool) -> str:
    if math.isnan(id_rows) or math.isnan(ood_rows):
        if at_least:
            return "no finite sample proves a bound of exactly 0 or 1: relax it"
        return "these rates leave no margin, so more rows alone will not help: relax a bound"
    about = "at least" if at_least else "about"
    return f"{about} {id_rows:.0f} ID and {ood_rows:.0f} OOD rows are needed in all"


def _fewest(requirement: Requirement) -> tuple[float, float]:
    """Return the test rows below which not even a perfect result is a proof."""
    if not _apart(requirement):
        return _scaled(requirement, _PlannedRates(1.0, 0.0, {}, 0.0))
    min_tpr, max_fpr = rate_bounds(requirement.model)
    id_rows = fewest_rows(min_tpr, requirement.level("tpr"))
    ood_rows = fewest_rows(1 - max_fpr, requirement.level("fpr"))
    return _or_nan(id_rows), _or_nan(ood_rows)


def _needed(requirement: Requirement, hoped: OperatingPoint) -> tuple[float, float]:
    """Return the test rows that prove the bounds nine times out of ten at these rates."""
    sizes = requirement.sizes
    # One row more on the wrong side: all of few rows accepted is not a rate of one.
    rates = _PlannedRates(
        tpr=hoped.accepted_id / (sizes.learn_id + sizes.test_id + 1),
        fpr=(hoped.accepted_ood + 1) / (sizes.learn_ood + sizes.test_ood + 1),
        by_set=hoped.fpr_by_set,
        risk=hoped.selective_risk,
        groups=[
            (hoped.tpr_by_group.get(name, 0.0), hoped.selective_risk_by_group.get(name, 0.0))
            for name in requirement.groups
        ],
    )
    if not _apart(requirement):
        return _scaled(requirement, rates)
    each = math.sqrt(_POWER)
    min_tpr, max_fpr = rate_bounds(requirement.model)
    tnr = 1.0 if max_fpr == 1 else 1 - rates.fpr
    return (
        _or_nan(rows_to_prove(min_tpr, rates.tpr, requirement.level("tpr"), each)),
        _or_nan(rows_to_prove(1 - max_fpr, tnr, requirement.level("fpr"), each)),
    )


@dataclass(frozen=True, slots=True)
class _PlannedRates:
    """True rates to plan with."""

    tpr: float
    fpr: float
    by_set: Mapping[str, float]
    risk: float
    groups: Sequence[tuple[float, float]] = ()
    """TPR and selective risk of each group of ID rows."""


def _apart(requirement: Requirement) -> bool:
    """Return whether ID and OOD rows can be planned apart: one TPR and one FPR of all rows."""
    bounds = requirement.model.bounds
    return all(b.quantity in ("tpr", "fpr") and b.ood_set is b.group is None for b in bounds)


def _scaled(requirement: Requirement, rates: _PlannedRates) -> tuple[float, float]:
    """Return how many times the test rows it takes when the rates come out a little worse.

    A little worse is 1.6 standard errors each, as happens in one sample out of twenty.
    """
    sizes = requirement.sizes

    def enough(times: float) -> bool:
        larger = enlarged(sizes, times)
        return replace(requirement, sizes=larger).proven(_a_little_worse(rates, larger))

    high = 1.0
    while not enough(high):
        high *= 2
        if high > _MOST_TIMES:
            return math.nan, math.nan
    low = high / 2
    while high / low > 1.02:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.ceil(high * sizes.test_id), math.ceil(high * sizes.test_ood)


def enlarged(sizes: SplitSizes, times: float) -> SplitSizes:
    """Return so many times the rows to test on."""
    return replace(
        sizes,
        test_id=math.ceil(times * sizes.test_id),
        test_ood=math.ceil(times * sizes.test_ood),
        test_sets=tuple(math.ceil(times * rows) for rows in sizes.test_sets),
        test_groups=tuple(math.ceil(times * rows) for rows in sizes.test_groups),
    )


def _a_little_worse(rates: _PlannedRates, sizes: SplitSizes) -> FreshCounts:
    def count(rate: float, rows: int, sign: int) -> int:
        worse = rate + sign * 1.6 * math.sqrt(rate * (1 - rate) / max(rows, 1))
        rounded = math.floor(worse * rows) if sign < 0 else math.ceil(worse * rows)
        return min(max(rounded, 0), rows)

    def lost(tpr: float, risk: float, rows: int) -> FloatArray:
        # Where nothing is accepted there is no risk.
        known = 0.0 if math.isnan(risk) else risk
        losses = np.zeros(count(tpr, rows, -1))
        losses[: count(min(known, 1.0), len(losses), 1)] = max(known, 1.0)
        return losses

    losses = lost(rates.tpr, rates.risk, sizes.test_id)
    of_sets = [*rates.by_set.values()] or [rates.fpr] * len(sizes.test_sets)
    sets = tuple(count(rate, rows, 1) for rate, rows in zip(of_sets, sizes.test_sets, strict=False))
    of_groups = rates.groups or [(rates.tpr, rates.risk)] * len(sizes.test_groups)
    groups = tuple(
        lost(*both, rows) for both, rows in zip(of_groups, sizes.test_groups, strict=False)
    )
    return FreshCounts(len(losses), count(rates.fpr, sizes.test_ood, 1), sets, losses, groups)


def _all_rows(needed_test: float, learned: int, tested: int) -> float:
    """Return the rows in all that leave so many for testing; never fewer than there are."""
    if math.isnan(needed_test) or tested == 0:
        return needed_test
    return float(max(math.ceil(needed_test * (learned + tested) / tested), learned + tested))


def _more(id_rows: float, ood_rows: float, sizes: SplitSizes) -> tuple[float, float]:
    """Return numbers of rows, larger than those that did not suffice on one side at least."""
    there = sizes.learn_id + sizes.test_id, sizes.learn_ood + sizes.test_ood
    if id_rows > there[0] or ood_rows > there[1] or math.isnan(id_rows + ood_rows):
        return id_rows, ood_rows
    return math.ceil(_MORE * id_rows), math.ceil(_MORE * ood_rows)


def _or_nan(rows: int | None) -> float:
    return math.nan if rows is None else float(rows)
