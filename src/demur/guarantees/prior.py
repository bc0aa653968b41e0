"""The share of OOD inputs in use, estimated from inputs without labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arrays import takes
from demur.core.rates import accepted_rows
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.intervals import (
    Interval,
    Rate,
    as_interval,
    miss,
    rate_interval,
    refuse_weights,
    sidak,
)


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
    share, t, f = as_interval(accepted_share), as_interval(tpr), as_interval(fpr)
    # Two half-lines in pi: the least share possible is not too large, the largest not too small.
    low, high = _where_positive(share.high - t.low, t.low - f.low)
    low2, high2 = _where_positive(t.high - share.low, f.high - t.high)
    low, high = max(low, low2), min(high, high2)
    return Interval(low, high) if low <= high else Interval(math.nan, math.nan)


def _where_positive(at_zero: float, slope: float) -> tuple[float, float]:
    """Return the part of [0, 1] where ``at_zero + slope * pi >= 0``; (1, 0) if none."""
    at_one = at_zero + slope
    if at_zero >= 0 and at_one >= 0:
        return 0.0, 1.0
    if at_zero < 0 and at_one < 0:
        return 1.0, 0.0
    root = -at_zero / slope
    return (0.0, root) if at_zero >= 0 else (root, 1.0)
