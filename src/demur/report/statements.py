"""What may be said of a rule, from what was seen to what can be promised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from demur.core.models import CostModel, PrecisionRecallModel, RejectionModel, TprFprModel
from demur.core.rates import OperatingPoint
from demur.errors import InfeasibleError
from demur.guarantees.certified_rule import Certified
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.intervals import Interval
from demur.guarantees.prior import cost_range, precision_range
from demur.guarantees.resampling.bootstrap import Bootstrap
from demur.guarantees.resampling.cross import CrossTuning
from demur.report.evidence import bootstrap_data, cross_data, guarantee_data
from demur.report.summary import Seen
from demur.report.wording import PERCENT_SIGN, Range, rule_text

NAMES = {
    "tpr": "TPR",
    "fpr": "FPR",
    "selective_risk": "selective risk",
    "precision": "precision",
    "expected_cost": "expected cost",
}
"""Attributes of an operating point, and what the report calls them."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """One thing that may be said, and what it rests on."""

    key: str
    title: str
    source: str
    kind: Literal["seen", "estimate", "promise"]
    rates: Mapping[str, Range]
    """By name, empty if nothing can be said; then `source` says why."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else was computed, as plain data."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "key": self.key,
            "title": self.title,
            "source": self.source,
            "kind": self.kind,
            "rates": {name: asdict(rate) for name, rate in self.rates.items()},
            "details": dict(self.details),
        }


def seen_when_tuned(
    point: OperatingPoint, model: RejectionModel, priors: Interval | None
) -> Statement:
    """Return what was seen on the rows the rule was chosen on."""
    return Statement(
        key="tuned",
        title="Seen on the tuning rows",
        source="Flattering: the rule was chosen to suit these rows. Not for quoting.",
        kind="seen",
        rates=point_rates(point, model, priors),
    )


def cross_validated(cross: CrossTuning, priors: Interval | None) -> Statement:
    """Return what rules tuned on other rows do."""
    count = len(cross.folds)
    left_out = f" {cross.unable} folds had no rule and are left out." if cross.unable else ""
    held_out = cross.held_out
    return Statement(
        key="cross",
        title="Expect about this on new inputs",
        source=f"{count}-fold cross-validation: every row judged by a rule tuned without it."
        + left_out,
        kind="estimate",
        rates={} if held_out is None else point_rates(held_out, cross.tuned.model, priors),
        details=cross_data(cross),
    )


def resampled(found: Bootstrap) -> Statement:
    """Return the estimates and intervals of the bootstrap."""
    risk = found.measures["selective_risk"].optimism
    return Statement(
        key="bootstrap",
        title="… give or take this",
        source=f"{found.replicates:,} bootstrap replicates, the rule tuned anew in each; "
        f"{100 * found.confidence:g}{PERCENT_SIGN} for one rate at a time. Tuning flatters the "
        f"selective risk by {max(risk, 0.0):.4f}.",
        kind="estimate",
        rates={
            NAMES[name]: Range(measure.estimate, measure.interval.low, measure.interval.high)
            for name, measure in found.measures.items()
            if not math.isnan(measure.interval.low)
        },
        details=bootstrap_data(found),
    )


def seen_held_out(seen: Seen, model: RejectionModel, priors: Interval | None) -> Statement:
    """Return what was seen on rows the rule has not seen."""
    rates = point_rates(seen.point, model, priors)
    for name in ("TPR", "FPR", "selective risk"):
        rate = seen.rates.get(name)
        if rate is not None and rate.interval is not None:
            rates[name] = Range(rate.value, rate.interval.low, rate.interval.high)
    return Statement(
        key="held_out",
        title="Seen on held-out rows",
        source="Honest: the rule has not seen these rows. The intervals hold together.",
        kind="estimate",
        rates=rates,
    )


def certified(promise: Certified, *, knows_loss: bool) -> Statement:
    """Return what the held-out rows prove of the rule."""
    rates = {"TPR": Range(low=promise.tpr.low)}
    if not math.isnan(promise.point.fpr):
        rates["FPR"] = Range(high=promise.fpr.high)
    if knows_loss and not math.isnan(promise.selective_risk.high):
        rates["selective risk"] = Range(high=promise.selective_risk.high)
    if promise.precision is not None and not math.isnan(promise.precision.low):
        rates["precision"] = Range(low=promise.precision.low)
    if knows_loss and promise.expected_cost is not None:
        rates["expected cost"] = Range(high=promise.expected_cost.high)
    return Statement(
        key="certified",
        title=f"Promised of this rule, with {100 * promise.confidence:g}{PERCENT_SIGN} confidence",
        source="Proven by the held-out rows; all of it holds together.",
        kind="promise",
        rates=rates,
        details={"met": dict(promise.met)},
    )


def guaranteed(found: CertifiedTuning | InfeasibleError) -> Statement:
    """Return what a rule tuned with a guarantee keeps, or why there is none."""
    if isinstance(found, InfeasibleError):
        return Statement(
            key="guaranteed",
            title="No rule can be promised to keep the bounds",
            source=str(found),
            kind="promise",
            rates={},
            details={"attainable": dict(found.attainable)},
        )
    rates, model = {}, found.model
    if isinstance(model, TprFprModel):
        rates["TPR"] = Range(low=float(model.min_tpr))
        if float(model.max_fpr) < 1:
            rates["FPR"] = Range(high=float(model.max_fpr))
    if isinstance(model, PrecisionRecallModel):
        rates["TPR"] = Range(low=float(model.min_recall))
        rates["precision"] = Range(low=float(model.min_precision))
    if not math.isnan(found.selective_risk):
        rates["selective risk"] = Range(high=found.selective_risk)
    if found.expected_cost is not None:
        rates["expected cost"] = Range(high=found.expected_cost)
    return Statement(
        key="guaranteed",
        title=f"Promised of another rule, with {100 * found.confidence:g}{PERCENT_SIGN} confidence",
        source=f"Accept when {rule_text(found.rule)}. Learned on a part of the tuning rows, "
        "proven on the others; all of it holds together.",
        kind="promise",
        rates=rates,
        details=guarantee_data(found),
    )


def point_rates(
    point: OperatingPoint, model: RejectionModel, priors: Interval | None
) -> dict[str, Range]:
    """Return the rates of a point; precision and cost as an interval over a range of priors."""
    rates = {"TPR": Range(point.tpr)}
    if not math.isnan(point.fpr):
        rates["FPR"] = Range(point.fpr)
    rates["selective risk"] = Range(point.selective_risk)
    if priors is None:
        return rates
    fpr = 0.0 if math.isnan(point.fpr) else point.fpr
    rates["precision"] = _over(precision_range(point.tpr, fpr, priors))
    if isinstance(model, CostModel):
        cost = cost_range(model, point.tpr, fpr, point.selective_risk, priors)
        rates["expected cost"] = _over(cost)
    return rates


def _over(interval: Interval) -> Range:
    if interval.low == interval.high or math.isnan(interval.low):
        return Range(interval.low)
    return Range(low=interval.low, high=interval.high)
