"""What can be promised of a fixed rule, from fresh data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from demur._arrays import NUMBER, BoolArray, FloatArray, seeded, takes
from demur.core.models import EACH_SET, Bound, RejectionModel
from demur.core.program import Number
from demur.core.rates import OperatingPoint, accepted_rows, evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.wording import bound_text
from demur.errors import InvalidInputError
from demur.guarantees.intervals import (
    Interval,
    Prior,
    cost_range,
    mean_lower,
    mean_upper,
    miss,
    precision_range,
    prior_range,
    rate_lower,
    rate_upper,
    refuse_weights,
    sidak,
)
from demur.guarantees.splits import Seed

OOD_CAVEAT = (
    "FPR, precision and cost hold for OOD inputs like the OOD rows supplied, and only for them."
)


@dataclass(frozen=True, slots=True)
class Certified:
    """Bounds that hold all together, with probability at least `confidence` over the data.

    An end that is not promised is the trivial one (0 or 1, 0 or `max_loss`).
    """

    confidence: float
    tpr: Interval
    fpr: Interval
    selective_risk: Interval
    """NaN for a rule that accepts nothing by construction."""
    precision: Interval | None
    """At the declared prior, the worst over an interval of priors; None without a prior."""
    expected_cost: Interval | None
    """None unless the model has costs."""
    point: OperatingPoint
    """What was seen on the data; not a promise."""
    met: Mapping[str, bool]
    """For each bound of the model, such as ``"tpr >= 0.8"``, whether it is certified."""
    caveat: str = OOD_CAVEAT

    @property
    def holds(self) -> bool:
        """Whether every bound of the model is certified."""
        return all(self.met.values())


@takes(rule=Rule, sample=Sample, model=RejectionModel, max_loss=NUMBER)
def certify(
    rule: Rule,
    sample: Sample,
    *,
    confidence: float = 0.95,
    model: RejectionModel | None = None,
    ood_prior: Prior | None = None,
    max_loss: Number | None = None,
    sides: Literal["one", "two"] = "one",
    rng: Seed = 0,
) -> Certified:
    """Return simultaneous bounds for all rates of `rule` from data it was not tuned on.

    TPR and FPR are bounded by exact binomials. Given how many ID rows were accepted, their
    losses are independent draws, so selective risk gets an exact binomial under 0/1 loss and a
    betting bound under other losses. ID and OOD rows are independent samples, and the risk
    bound holds given the accepted count: the chances that the bounds hold multiply, so each of
    the k bounds gets the level ``1 - confidence**(1/k)``. Precision and cost follow from these
    bounds by their formulas and cost nothing more.

    Parameters
    ----------
    sample
        Fresh, unweighted, independent rows.
    model
        Whose bounds are to be checked; may declare the prior.
    ood_prior
        Share of OOD inputs in deployment, or a (low, high) pair to be safe over.
    max_loss
        The largest possible loss, seen or not; None declares the 0/1 loss.
    sides
        ``"one"`` promises what users ask for (TPR at least, FPR and selective risk at most);
        ``"two"`` bounds every rate from both sides, which is wider.
    rng
        Shuffles the losses for the betting bound.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> sample = Sample(np.linspace(0, 1, 200), np.zeros(200), ood_scores=np.linspace(0.7, 2, 100))
    >>> promise = certify(Rule((1.0,), 0.9), sample, model=TprFprModel(0.8, 0.25))
    >>> round(promise.tpr.low, 3), round(promise.fpr.high, 3), round(promise.selective_risk.high, 4)
    (0.845, 0.254, 0.0224)
    >>> promise.met
    {'tpr >= 0.8': True, 'fpr <= 0.25': False}
    """
    refuse_weights(sample)
    if rule.tau != 1:
        raise InvalidInputError("only a rule that is not random on its boundary can be certified")
    if sides not in ("one", "two"):
        raise InvalidInputError(f'sides must be "one" or "two", got {sides!r}')
    seeded(rng)  # refused here, for not every sample needs it
    _refuse_parts(model, sample)
    priors = prior_range(model, ood_prior)
    if priors is not None and priors.high > 0 and sample.n_ood == 0:
        raise InvalidInputError("ood_prior is positive but the sample has no OOD rows")
    costs = model is not None and model.cost is not None
    ends = _Ends(both=sides == "two", both_tpr=sides == "two" or costs)
    rates = _bound_rates(rule, sample, miss(confidence), ends, max_loss, rng)
    cost = cost_range(model, *rates, priors) if model is not None and costs and priors else None
    precision = None if priors is None else precision_range(rates[0], rates[1], priors)
    return Certified(
        confidence=confidence,
        tpr=rates[0],
        fpr=rates[1],
        selective_risk=rates[2],
        precision=precision,
        expected_cost=cost,
        point=evaluate(
            rule,
            sample,
            model=model,
            ood_prior=None if isinstance(ood_prior, tuple) else ood_prior,
        ),
        met={} if model is None else _met(model, rates, precision),
    )


@dataclass(frozen=True, slots=True)
class _Ends:
    both: bool
    both_tpr: bool


def _bound_rates(
    rule: Rule, sample: Sample, delta: float, ends: _Ends, max_loss: Number | None, rng: Seed
) -> tuple[Interval, Interval, Interval]:
    """Return bounds for TPR, FPR and selective risk that hold together."""
    losses = declared_losses(sample, max_loss)
    if rule.threshold == -math.inf:
        return Interval(0.0, 0.0), Interval(0.0, 0.0), Interval(math.nan, math.nan)
    level = sidak(delta, 3 if sample.n_ood else 2)
    accepted, foreign = accepted_rows(rule, sample)
    tpr = _rate(accepted, level, low=True, high=ends.both_tpr)
    fpr = Interval(0.0, 1.0)
    if sample.n_ood:
        fpr = _rate(foreign, level, low=ends.both, high=True)
    return tpr, fpr, _risk(losses[accepted], level, ends.both, max_loss, rng)


def _rate(accepted: BoolArray, level: float, *, low: bool, high: bool) -> Interval:
    count, total = int(accepted.sum()), len(accepted)
    level = level / 2 if low and high else level
    return Interval(
        rate_lower(count, total, level) if low else 0.0,
        rate_upper(count, total, level) if high else 1.0,
    )


def _risk(
    losses: FloatArray, level: float, both: bool, max_loss: Number | None, rng: Seed
) -> Interval:
    level = level / 2 if both else level
    upper = risk_upper(losses, level, max_loss=max_loss, rng=rng)
    if not both:
        return Interval(0.0, upper)
    if max_loss is None:
        return Interval(rate_lower(int(losses.sum()), len(losses), level), upper)
    shuffled = np.random.default_rng(rng).permutation(losses)
    return Interval(mean_lower(shuffled, level, max_value=float(max_loss)), upper)


def risk_upper(
    losses: FloatArray, level: float, *, max_loss: Number | None = None, rng: Seed = 0
) -> float:
    """Return the upper bound for selective risk from the losses of the accepted ID rows.

    No accepted row leaves the trivial bound.
    """
    if max_loss is None:
        return rate_upper(int(losses.sum()), len(losses), level)
    # The gambler needs an order that is independent of the losses; a file may be sorted.
    shuffled = np.random.default_rng(rng).permutation(losses)
    return mean_upper(shuffled, level, max_value=float(max_loss))


def declared_losses(sample: Sample, max_loss: Number | None) -> FloatArray:
    """Return the ID losses, checked against what was declared of them."""
    losses = sample.id_loss
    if max_loss is None:
        bad = np.flatnonzero((losses != 0) & (losses != 1))
        if len(bad):
            raise InvalidInputError(
                f"id_loss[{bad[0]}] is {losses[bad[0]]}: for a loss other than 0/1 declare "
                "max_loss, the largest loss that is possible, seen or not"
            )
        return losses
    if not 0 < float(max_loss) < math.inf:
        raise InvalidInputError(f"max_loss must be a positive number, got {max_loss}")
    bad = np.flatnonzero(losses > float(max_loss))
    if len(bad):
        raise InvalidInputError(
            f"id_loss[{bad[0]}] is {losses[bad[0]]}, above the declared max_loss {max_loss}"
        )
    return losses


def _met(
    model: RejectionModel, rates: tuple[Interval, Interval, Interval], precision: Interval | None
) -> dict[str, bool]:
    """Return which bounds of the model the certified intervals keep, the TPR's first."""
    certified = dict(zip(("tpr", "fpr", "selective_risk"), rates, strict=True))
    if precision is not None:
        certified["precision"] = precision
    return {
        bound_text(model, bound): _keeps(certified[bound.quantity], bound)
        for bound in sorted(model.bounds, key=lambda bound: bound.quantity != "tpr")
    }


def _keeps(rate: Interval, bound: Bound) -> bool:
    return bound.met_by(rate.low if bound.is_lower else rate.high)


def _refuse_parts(model: RejectionModel | None, sample: Sample) -> None:
    """Raise when a bound is of some rows only: rates are certified of all ID and all OOD rows."""
    for bound in () if model is None else model.bounds:
        only_set = bound.ood_set == EACH_SET and len(sample.ood_sets) <= 1
        if bound.group is not None or not (bound.ood_set is None or only_set):
            raise InvalidInputError(
                f"certify bounds the rates of all ID and of all OOD rows, not {bound!r}: give the "
                "rows of that group or set alone, and a model whose bounds are of all rows"
            )
