"""What the rule does on rows, as plain data: rates with intervals, and the bounds they keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from demur.core.models import Bound
from demur.core.program import Number
from demur.core.rates import OperatingPoint, accepted_rows, evaluate
from demur.core.sample import POOLED_NAME, Sample
from demur.core.wording import bound_sign, bound_text
from demur.guarantees.certified_rule import Certified, certify
from demur.guarantees.intervals import Interval, clopper_pearson
from demur.report.case import Case, is_weighted, is_zero_one

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
class StatedBound:
    """One bound of the model, as the report states it."""

    text: str
    """Such as ``"TPR ≥ 0.8"``."""
    rate: str
    """Name of the rate it is about."""
    certificate: str
    """What `demur.guarantees.certify` calls it."""
    bound: Bound

    @property
    def limit(self) -> float:
        """The value that is asked for."""
        return float(self.bound.value)


def see(case: Case, rows: Sample) -> Seen:
    """Return what the rule does on a sample, with exact intervals where there are any."""
    point = evaluate(case.rule, rows, model=case.model)
    return Seen(
        point=point,
        rates=_rates(case, rows, point),
        id_total=rows.n_id if rows.id_weight is None else float(rows.id_weight.sum()),
        ood_total=rows.n_ood if rows.ood_weight is None else float(rows.ood_weight.sum()),
        certified=_certified(case, rows),
    )


def stated_bounds(case: Case) -> tuple[StatedBound, ...]:
    """Return the bounds of the model that ask for anything."""
    model = case.model
    rates = {
        "tpr": "TPR",
        "fpr": WORST_FPR if case.worst else "FPR",
        "precision": _precision_at(float(model.ood_prior or 0)),
        "selective_risk": "selective risk",
    }
    asked = [b for b in model.bounds if not (b.quantity == "fpr" and b.is_trivial)]
    return tuple(
        StatedBound(bound_sign(model, b), rates[b.quantity], bound_text(model, b), b) for b in asked
    )


def certify_on(
    case: Case,
    rows: Sample,
    *,
    sides: Literal["one", "two"] = "one",
    ood_prior: tuple[Number, Number] | None = None,
) -> Certified | None:
    """Return bounds that hold together, or None for weighted rows and random rules."""
    if is_weighted(rows) or case.rule.tau != 1:
        return None
    if not case.knows_loss(rows):
        # Without a largest possible loss only the acceptance of rows can be bounded.
        rows = Sample(
            rows.id_scores,
            np.zeros(rows.n_id),
            rows.ood_scores,
            score_names=rows.score_names,
            confidence=rows.columns.confidence,
        )
    return certify(
        case.rule,
        rows,
        confidence=case.confidence,
        model=case.model,
        ood_prior=ood_prior,
        max_loss=case.max_loss,
        sides=sides,
    )


def _certified(case: Case, rows: Sample) -> dict[str, bool]:
    # Certificates are about all OOD rows together.
    promise = None if case.worst else certify_on(case, rows)
    if promise is None:
        return {}
    met = promise.met
    return {b.text: met[b.certificate] for b in stated_bounds(case) if b.certificate in met}


def _rates(case: Case, rows: Sample, point: OperatingPoint) -> dict[str, Rate]:
    found = certify_on(case, rows, sides="two")
    tpr, fpr = (None, None) if found is None else (found.tpr, found.fpr)
    rates = {"TPR": _share(point.accepted_id, rows.n_id, point.tpr, tpr)}
    if rows.n_ood:
        rates["FPR"] = _share(point.accepted_ood, rows.n_ood, point.fpr, fpr)
        if list(rows.ood_sets) != [POOLED_NAME]:
            rates |= _fpr_by_set(case, rows, point)
    if case.worst:
        rates[WORST_FPR] = Rate(max(point.fpr_by_set.values()))
    return rates | _rates_of_loss(case, rows, point, found)


def _rates_of_loss(
    case: Case, rows: Sample, point: OperatingPoint, found: Certified | None
) -> dict[str, Rate]:
    """Return selective risk, and precision and cost where the model has a prior for them."""
    bounded = found if case.knows_loss(rows) else None
    risk = bounded.selective_risk if bounded and point.accepted_id else None
    rates = {"selective risk": Rate(point.selective_risk, risk)}
    if is_zero_one(rows):
        rates["selective risk"] = _share(
            point.accepted_loss, point.accepted_id, point.selective_risk, risk
        )
    if point.precision is not None and point.ood_prior is not None:
        rates[_precision_at(point.ood_prior)] = Rate(
            point.precision, None if found is None else found.precision
        )
    if point.expected_cost is not None:
        rates["expected cost"] = Rate(
            point.expected_cost, None if bounded is None else bounded.expected_cost
        )
    return rates


def _precision_at(prior: float) -> str:
    return f"precision at prior {prior:g}"


def _share(hits: float, trials: float, value: float, interval: Interval | None) -> Rate:
    """Return a share of rows; rows with weights, which have no interval, are not counted."""
    return Rate(value, interval, None if interval is None else (int(hits), int(trials)))


def _fpr_by_set(case: Case, rows: Sample, point: OperatingPoint) -> dict[str, Rate]:
    rates = {}
    for name, part in rows.ood_sets.items():
        interval = None
        if not is_weighted(rows) and part.stop > part.start:
            accepted = int(accepted_rows(case.rule, rows)[1][part].sum())
            trials = part.stop - part.start
            interval = clopper_pearson(accepted, trials, confidence=case.confidence)
        rates[f"FPR of {name}"] = Rate(point.fpr_by_set.get(name, math.nan), interval)
    return rates
