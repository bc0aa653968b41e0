"""What the report says, as plain data: the rule, its rates with intervals, the bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from demur.core.models import PrecisionRecallModel, RejectionModel, TprFprModel
from demur.core.program import Number, exact
from demur.core.rates import OperatingPoint, evaluate
from demur.core.rule import Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.guarantees.certified_rule import Certified, certify
from demur.guarantees.intervals import Interval, clopper_pearson
from demur.report.how import How

WORST_FPR = "largest FPR of a set"


@dataclass(frozen=True, slots=True)
class Rate:
    """A number that was seen, and where the true one lies."""

    value: float
    interval: Interval | None = None
    counts: tuple[int, int] | None = None
    """Hits and trials, if it is a share of rows that count alike."""

    def as_dict(self) -> dict[str, float | None]:
        """Return plain data."""
        ends = self.interval
        return {
            "value": self.value,
            "low": None if ends is None else ends.low,
            "high": None if ends is None else ends.high,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The rule on one sample."""

    point: OperatingPoint
    rates: Mapping[str, Rate]
    """By name, in the order to show them."""
    id_total: float
    ood_total: float
    certified: Mapping[str, bool]
    """By the text of a bound, whether these rows prove it, were they fresh."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "rates": {name: rate.as_dict() for name, rate in self.rates.items()},
            "accepted_id": self.point.accepted_id,
            "accepted_ood": self.point.accepted_ood,
            "accepted_loss": self.point.accepted_loss,
            "id": self.id_total,
            "ood": self.ood_total,
            "certified": dict(self.certified),
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound of the model."""

    text: str
    """Such as ``"TPR ≥ 0.8"``."""
    rate: str
    """Name of the rate it is about."""
    limit: float
    at_least: bool
    certificate: str
    """What `demur.guarantees.certify` calls it."""

    def met(self, value: float) -> bool:
        """Return whether a rate is within the bound; a rate that is undefined is not."""
        return value >= self.limit if self.at_least else value <= self.limit


def see(
    rule: Rule,
    sample: Sample,
    how: How,
    *,
    confidence: float,
    max_loss: Number | None,
) -> Seen:
    """Return what a rule does on a sample, with exact intervals where there are any."""
    model = how.model
    point = evaluate(rule, sample, model=model)
    found = _intervals(rule, sample, model, confidence, max_loss, "two")
    promise = _intervals(rule, sample, model, confidence, max_loss, "one")
    tpr, fpr = (None, None) if found is None else (found.tpr, found.fpr)
    rates = {"TPR": _share(point.accepted_id, sample.n_id, point.tpr, tpr)}
    if sample.n_ood:
        rates["FPR"] = _share(point.accepted_ood, sample.n_ood, point.fpr, fpr)
        if list(sample.ood_sets) != [POOLED_NAME]:
            rates |= _fpr_by_set(rule, sample, point, confidence)
    if how.worst:
        rates[WORST_FPR] = Rate(max(point.fpr_by_set.values()))
    knows_loss = is_zero_one(sample) or max_loss is not None
    risk = found.selective_risk if found and knows_loss and point.accepted_id else None
    rates["selective risk"] = (
        _share(point.accepted_loss, point.accepted_id, point.selective_risk, risk)
        if is_zero_one(sample)
        else Rate(point.selective_risk, risk)
    )
    if point.precision is not None:
        rates[f"precision at prior {point.ood_prior:g}"] = Rate(
            point.precision, None if found is None else found.precision
        )
    if point.expected_cost is not None:
        cost = found.expected_cost if found and knows_loss else None
        rates["expected cost"] = Rate(point.expected_cost, cost)
    return Seen(
        point=point,
        rates=rates,
        id_total=sample.n_id if sample.id_weight is None else float(sample.id_weight.sum()),
        ood_total=sample.n_ood if sample.ood_weight is None else float(sample.ood_weight.sum()),
        certified=_certified(promise, how),
    )


def bounds(how: How) -> list[Bound]:
    """Return the bounds of a model."""
    model = how.model
    if isinstance(model, TprFprModel):
        found = [_at_least("TPR", model.min_tpr, certificate="tpr")]
        if exact("max_fpr", model.max_fpr) < 1:
            rate = WORST_FPR if how.worst else "FPR"
            limit = float(model.max_fpr)
            name = f"fpr <= {model.max_fpr}"
            found.append(Bound(f"FPR ≤ {limit:g}", rate, limit, False, name))
        return found
    if isinstance(model, PrecisionRecallModel):
        rate = f"precision at prior {float(model.ood_prior):g}"
        return [
            replace(_at_least("precision", model.min_precision), rate=rate),
            replace(_at_least("recall", model.min_recall), rate="TPR"),
        ]
    return []


def _at_least(rate: str, limit: Number, *, certificate: str | None = None) -> Bound:
    name = f"{certificate or rate} >= {limit}"
    return Bound(f"{rate} ≥ {float(limit):g}", rate, float(limit), True, name)


def _certified(promise: Certified | None, how: How) -> dict[str, bool]:
    # Certificates are about all OOD rows together.
    if promise is None or how.worst:
        return {}
    return {b.text: promise.met[b.certificate] for b in bounds(how) if b.certificate in promise.met}


def is_zero_one(sample: Sample) -> bool:
    """Return whether the losses say right or wrong."""
    return bool(np.isin(sample.id_loss, (0, 1)).all())


def is_weighted(sample: Sample) -> bool:
    """Return whether rows carry weights, so that there are no exact intervals."""
    return sample.id_weight is not None or sample.ood_weight is not None


def _intervals(
    rule: Rule,
    sample: Sample,
    model: RejectionModel,
    confidence: float,
    max_loss: Number | None,
    sides: Literal["one", "two"],
) -> Certified | None:
    """Return bounds that hold together, or None for weighted rows and random rules."""
    if is_weighted(sample) or rule.tau != 1:
        return None
    if max_loss is None and not is_zero_one(sample):
        # Without a largest possible loss only the acceptance of rows can be bounded.
        sample = without_loss(sample)
    return certify(
        rule,
        sample,
        confidence=confidence,
        model=model,
        max_loss=max_loss,
        sides=sides,
    )


def without_loss(sample: Sample) -> Sample:
    """Return the same rows, of which only the acceptance is looked at."""
    return Sample(sample.id_scores, np.zeros(sample.n_id), sample.ood_scores)


def _share(hits: float, trials: float, value: float, interval: Interval | None) -> Rate:
    """Return a share of rows; rows with weights, which have no interval, are not counted."""
    return Rate(value, interval, None if interval is None else (int(hits), int(trials)))


def _fpr_by_set(
    rule: Rule, sample: Sample, point: OperatingPoint, confidence: float
) -> dict[str, Rate]:
    rates = {}
    for name, rows in sample.ood_sets.items():
        interval = None
        if not is_weighted(sample) and rows.stop > rows.start:
            accepted = int(rule.accept(sample.ood_scores[rows]).sum())
            interval = clopper_pearson(accepted, rows.stop - rows.start, confidence=confidence)
        value = point.fpr_by_set.get(name, math.nan)
        rates[f"FPR of {name}"] = Rate(value, interval)
    return rates
