"""A share of OOD inputs that is unknown: the worst over an interval, and an estimate of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arguments import NUMBER, check_kind, takes
from demur.core.models import RejectionModel
from demur.core.program import Number, exact
from demur.core.rates import accepted_rows
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.intervals import Interval, miss, rate_interval, sidak
from demur.guarantees.splits import refuse_weights

Prior = Number | tuple[Number, Number]
Rate = float | Interval


def precision_range(tpr: Rate, fpr: Rate, ood_prior: Prior | Interval) -> Interval:
    """Return the smallest and largest precision over intervals of TPR, FPR and prior.

    ``(1-pi) TPR / ((1-pi) TPR + pi FPR)`` rises with TPR and falls with FPR and pi, so the ends
    are reached at corners. NaN where nothing is accepted.

    Examples
    --------
    >>> precision_range(0.8, 0.1, (0.1, 0.5))
    Interval(low=0.888888888888889, high=0.9863013698630136)
    """
    t, f, pi = _interval(tpr), _interval(fpr), _prior_interval(ood_prior)
    if t.high == 0 and pi.high * f.high == 0:
        return Interval(math.nan, math.nan)
    return Interval(_precision(t.low, f.high, pi.high), _precision(t.high, f.low, pi.low))


@takes(model=RejectionModel)
def cost_range(
    model: RejectionModel, tpr: Rate, fpr: Rate, selective_risk: Rate, ood_prior: Prior | Interval
) -> Interval:
    """Return the smallest and largest expected cost over intervals of the rates and the prior.

    ``(1-pi) (reject_id + TPR (risk - reject_id)) + pi (reject_ood + FPR (accept_ood -
    reject_ood))`` is linear in each of them, so the ends are reached at corners. The prior of
    `model` is not used.

    Examples
    --------
    >>> from demur import CostModel
    >>> model = CostModel(reject_id=0.5, accept_ood=1, reject_ood=0)
    >>> cost_range(model, 0.5, 0.125, 0.25, (0, 0.5))
    Interval(low=0.25, high=0.375)
    """
    cost = model.cost
    if cost is None:
        raise InvalidInputError(f"cost_range needs a model with costs (CostModel), got {model!r}")
    t, f, risk = _interval(tpr), _interval(fpr), _interval(selective_risk, math.inf)
    pi = _prior_interval(ood_prior)

    def at_corners(fpr: float, loss: float) -> list[float]:
        # What is not accepted has no loss, though the selective risk is NaN then.
        losses = [(share, share * loss if share > 0 else 0.0) for share in (t.low, t.high)]
        return [cost.at(s, fpr, lost, p) for s, lost in losses for p in (pi.low, pi.high)]

    return Interval(min(at_corners(f.low, risk.low)), max(at_corners(f.high, risk.high)))


@dataclass(frozen=True, slots=True)
class PriorEstimate:
    """The share of OOD inputs in deployment, as far as acceptance tells it."""

    estimate: float
    """``(TPR - accepted share) / (TPR - FPR)``, between 0 and 1; NaN if TPR equals FPR."""
    interval: Interval
    """NaN when no prior explains the accepted share: the inputs are unlike the validation data."""
    accepted_share: float
    confidence: float

    @property
    def consistent(self) -> bool:
        """Whether some prior explains the accepted share."""
        return not math.isnan(self.interval.low)


@takes(rule=Rule, validation=Sample)
def estimate_prior(
    rule: Rule, scores: Any, *, validation: Sample, confidence: float = 0.95
) -> PriorEstimate:
    """Estimate the OOD prior from unlabelled deployment scores, with an interval.

    The accepted share is ``(1-pi) TPR + pi FPR``. TPR and FPR of `rule` are taken from
    `validation`, data it was not tuned on; all three are bounded by exact binomials that hold
    together, and the interval holds every prior they allow. It is valid as long as ID and OOD
    inputs in deployment are like those of the validation data, in another proportion.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> fresh = Sample(rng.normal(0, 1, 2000), np.zeros(2000), ood_scores=rng.normal(3, 1, 2000))
    >>> deployed = np.concatenate([rng.normal(0, 1, 3500), rng.normal(3, 1, 1500)])
    >>> found = estimate_prior(Rule((1.0,), 1.5), deployed, validation=fresh)
    >>> round(found.estimate, 2), 0.3 in found.interval
    (0.3, True)
    """
    refuse_weights(validation)
    if validation.n_ood == 0:
        raise InvalidInputError("validation has no OOD rows, so the FPR of the rule is unknown")
    accepted_id, accepted_ood = accepted_rows(rule, validation)
    groups = {"tpr": accepted_id, "fpr": accepted_ood, "share": rule.accept(scores)}
    if len(groups["share"]) == 0:
        raise InvalidInputError("scores is empty: the prior cannot be estimated")
    tail = sidak(miss(confidence), 3) / 2
    bounds = {
        name: rate_interval(int(rows.sum()), len(rows), tail) for name, rows in groups.items()
    }
    tpr, fpr, share = (float(groups[name].mean()) for name in ("tpr", "fpr", "share"))
    estimate = math.nan if tpr == fpr else float(np.clip((tpr - share) / (tpr - fpr), 0, 1))
    return PriorEstimate(
        estimate=estimate,
        interval=explaining_priors(bounds["share"], tpr=bounds["tpr"], fpr=bounds["fpr"]),
        accepted_share=share,
        confidence=confidence,
    )


def explaining_priors(accepted_share: Rate, *, tpr: Rate, fpr: Rate) -> Interval:
    """Return the priors at which ``(1-pi) TPR + pi FPR`` can be the accepted share.

    Examples
    --------
    >>> explaining_priors(Interval(0.5, 0.625), tpr=0.875, fpr=0.125)
    Interval(low=0.3333333333333333, high=0.5)
    """
    share, t, f = _interval(accepted_share), _interval(tpr), _interval(fpr)
    # Two half-lines in pi: the least share possible is not too large, the largest not too small.
    low, high = _where_positive(share.high - t.low, t.low - f.low)
    low2, high2 = _where_positive(t.high - share.low, f.high - t.high)
    low, high = max(low, low2), min(high, high2)
    return Interval(low, high) if low <= high else Interval(math.nan, math.nan)


def prior_range(model: RejectionModel | None, ood_prior: Prior | None) -> Interval | None:
    """Return the declared prior, of the argument before the model, as an interval."""
    if ood_prior is not None:
        return _prior_interval(ood_prior)
    if model is None or model.ood_prior is None:
        return None
    return _prior_interval(model.ood_prior)


def _where_positive(at_zero: float, slope: float) -> tuple[float, float]:
    """Return the part of [0, 1] where ``at_zero + slope * pi >= 0``; (1, 0) if none."""
    at_one = at_zero + slope
    if at_zero >= 0 and at_one >= 0:
        return 0.0, 1.0
    if at_zero < 0 and at_one < 0:
        return 1.0, 0.0
    root = -at_zero / slope
    return (0.0, root) if at_zero >= 0 else (root, 1.0)


def _precision(tpr: float, fpr: float, prior: float) -> float:
    # No OOD input is accepted: whatever is, is ID.
    if prior * fpr == 0:
        return 1.0
    return (1 - prior) * tpr / ((1 - prior) * tpr + prior * fpr)


def _interval(rate: Rate, most: float = 1.0) -> Interval:
    if isinstance(rate, Interval):
        return rate
    check_kind("a rate", rate, NUMBER)
    if rate < 0 or rate > most:
        raise InvalidInputError(f"a rate must be between 0 and {most:g}, got {rate}")
    return Interval(float(rate), float(rate))


def _prior_interval(prior: Prior | Interval) -> Interval:
    if isinstance(prior, Interval):
        return prior
    ends = prior if isinstance(prior, tuple) else (prior, prior)
    if len(ends) != 2:
        raise InvalidInputError(f"ood_prior must be a number or a pair (low, high), got {prior!r}")
    low, high = (exact("ood_prior", end) for end in ends)
    if not 0 <= low <= high < 1:
        raise InvalidInputError(
            f"ood_prior must be in [0, 1), or such a pair (low, high) with the smaller first, got "
            f"{' and '.join(map(str, ends))}"
        )
    return Interval(float(low), float(high))
