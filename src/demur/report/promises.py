"""What can be promised of a rule: statements side by side, from the weakest to the strongest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from demur.core.models import Bound, Quantity, RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule, rule_data
from demur.core.wording import (
    PERCENT_SIGN,
    RATE_NAMES,
    Range,
    outwards,
    percent,
    rule_text,
    value_at,
)
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.bootstrapping import Bootstrap, ResampledRate
from demur.guarantees.certified_rule import PARTS_CAVEAT, Certified
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.cross_tuning import CrossTuning
from demur.guarantees.intervals import Interval, Prior, cost_range, precision_range, prior_range
from demur.guarantees.prior import PriorEstimate
from demur.guarantees.splits import EVERY_ID_ONCE
from demur.report.summary import WORST_FPR, Case, Seen, certify_on, part_name

_HOW_TO_ASK = {
    "cross": "cross-validation (--folds 5, cross=)",
    "bootstrap": "bootstrap intervals (--replicates 1000, bootstrap=)",
    "held_out": "held-out rows (--holdout .3, held_out=)",
    "guaranteed": "a rule with a guarantee (--guarantee .95, guaranteed=)",
}


@dataclass(frozen=True, slots=True)
class PromiseEvidence:
    """What was computed about the rule beyond looking at it."""

    cross: CrossTuning | None = None
    bootstrap: Bootstrap | None = None
    guaranteed: CertifiedTuning | InfeasibleError | None = None
    prior_range: Prior | None = None
    prior_estimate: PriorEstimate | None = None


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


@dataclass(frozen=True, slots=True, eq=False)
class Promises:
    """What may be said, the weakest statement first."""

    statements: tuple[Statement, ...]
    priors: Interval | None
    """Shares of OOD inputs over which precision and cost are stated."""
    prior: PriorEstimate | None
    missing: tuple[str, ...]
    """What was not asked for, and how to ask."""
    worst: bool
    """Whether FPR and precision are those of the worst OOD set."""

    @property
    def columns(self) -> list[str]:
        """Names of the rates that some statement has."""
        found = dict.fromkeys(name for s in self.statements for name in s.rates)
        names = [name for name in RATE_NAMES.values() if name in found]
        return [*names, *(name for name in found if name not in names)]

    def column_title(self, name: str) -> str:
        """Return the name of a rate, whose it is, and the prior it depends on."""
        if self.worst and name == "FPR":
            return "FPR of the worst set"
        if name not in ("precision", "expected cost") or self.priors is None:
            return name
        low, high = self.priors.low, self.priors.high
        return f"{name} at prior {low:g}" + ("" if low == high else f" to {high:g}")

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "statements": [statement.as_dict() for statement in self.statements],
            "ood_prior": None if self.priors is None else asdict(self.priors),
            "prior_estimate": None if self.prior is None else prior_data(self.prior),
            "missing": list(self.missing),
        }


def promises(case: Case, evidence: PromiseEvidence, held_out: Seen | None) -> Promises:
    """Put together what may be said of a tuned rule."""
    model = case.model
    _check(case, evidence)
    priors = prior_range(model, evidence.prior_range)
    point = case.point(case.sample)
    found: list[Statement | None] = [_seen_when_tuned(case, point, priors)]
    if evidence.cross is not None:
        found.append(_cross_validated(case, evidence.cross, priors))
    if evidence.bootstrap is not None:
        found.append(_resampled(case, evidence.bootstrap))
    if held_out is not None:
        found += [_seen_held_out(case, held_out, priors), _certified(case, priors)]
    if evidence.guaranteed is not None:
        found.append(_guaranteed(evidence.guaranteed, case.rule))
    statements = tuple(statement for statement in found if statement is not None)
    keys = [statement.key for statement in statements]
    how = dict(_HOW_TO_ASK)
    if case.worst:
        how["cross"] = "cross-validation, which there is none of for bounds on every OOD set"
    missing = tuple(text for key, text in how.items() if key not in keys)
    return Promises(statements, priors, evidence.prior_estimate, missing, case.worst)


def _check(case: Case, evidence: PromiseEvidence) -> None:
    """Refuse results about another model or other rows: they would be shown as this rule's."""
    tuning = case.tuning
    for name in ("cross", "bootstrap"):
        result = getattr(evidence, name)
        if result is not None and (result.tuned.model, result.tuned.totals) != (
            tuning.model,
            tuning.totals,
        ):
            raise InvalidInputError(f"{name} is about another model or other rows than tuning")
    promised = evidence.guaranteed
    same = (case.model, case.model.of_every_set())
    if promised is not None and promised.model not in same:
        raise InvalidInputError("guaranteed is about another model than tuning")


def _seen_when_tuned(case: Case, point: OperatingPoint, priors: Interval | None) -> Statement:
    """Return what was seen on the rows the rule was chosen on."""
    return Statement(
        key="tuned",
        title="Seen on the tuning rows",
        source="Flattering: the rule was chosen to suit these rows. Not for quoting.",
        kind="seen",
        rates=_point_rates(point, case.model, priors, worst=case.worst),
    )


def _cross_validated(case: Case, cross: CrossTuning, priors: Interval | None) -> Statement:
    """Return what rules tuned on other rows do."""
    count = len(cross.folds)
    left_out = f" {cross.unable} folds had no rule and are left out." if cross.unable else ""
    held_out = cross.held_out
    return Statement(
        key="cross",
        title="Expect about this on new inputs",
        source=f"{count}-fold cross-validation: every row judged by a rule tuned without it."
        + left_out
        + case.drawn,
        kind="estimate",
        rates={} if held_out is None else _point_rates(held_out, cross.tuned.model, priors),
        details=cross_data(cross),
    )


def _resampled(case: Case, found: Bootstrap) -> Statement:
    """Return the estimates and intervals of the bootstrap."""
    risk = found.measures["selective_risk"].optimism
    return Statement(
        key="bootstrap",
        title="… give or take this",
        source=f"{found.replicates:,} bootstrap replicates, the rule tuned anew in each; "
        f"{100 * found.confidence:g}{PERCENT_SIGN} for one rate at a time. Tuning flatters the "
        f"selective risk by {max(risk, 0.0):.4f}.{case.drawn}",
        kind="estimate",
        rates={
            RATE_NAMES[name]: Range(measure.estimate, measure.interval.low, measure.interval.high)
            for name, measure in found.measures.items()
            if not math.isnan(measure.interval.low)
        },
        details=bootstrap_data(found),
    )


def _seen_held_out(case: Case, seen: Seen, priors: Interval | None) -> Statement:
    """Return what was seen on rows the rule has not seen."""
    rates = _point_rates(seen.point, case.model, priors, worst=case.worst)
    parts = [part_name(bound) for bound in case.model.bounds if bound.is_of_part]
    for name in ("TPR", "FPR", "selective risk", *parts):
        rate = seen.rates.get(WORST_FPR if case.worst and name == "FPR" else name)
        if rate is not None and rate.interval is not None:
            rates[name] = Range(rate.value, rate.interval.low, rate.interval.high)
    return Statement(
        key="held_out",
        title="Seen on held-out rows",
        source="Honest: the rule has not seen these rows. The intervals hold together"
        + (", those of groups and single sets one at a time." if parts else "."),
        kind="estimate",
        rates=rates,
    )


def _certified(case: Case, priors: Interval | None) -> Statement | None:
    """Return what the held-out rows prove; None for weighted rows and random rules."""
    rows = case.judged
    promise = certify_on(
        case, rows, ood_prior=None if priors is None else (priors.low, priors.high)
    )
    if promise is None:
        return None
    return Statement(
        key="certified",
        title=f"Promised of this rule, with {100 * promise.confidence:g}{PERCENT_SIGN} confidence",
        source=f"Proven by the held-out rows; {_together(promise)}.{_about(promise)}",
        kind="promise",
        rates=_proven_rates(promise, knows_loss=case.knows_loss(rows))
        | _proven_parts(promise, case.model),
        details={"met": dict(promise.met)},
    )


def _together(promise: Certified) -> str:
    parts = PARTS_CAVEAT in promise.caveat
    return "what is of all rows holds together" if parts else "all of it holds together"


def _about(promise: Certified) -> str:
    """Return what a certificate is about, where it is not all rows alike."""
    worst = " FPR and precision are those of the worst OOD set." if promise.worst else ""
    said = (text for text in (EVERY_ID_ONCE, PARTS_CAVEAT) if text in promise.caveat)
    return worst + "".join(f" {text}" for text in said)


def _proven_rates(promise: Certified, *, knows_loss: bool) -> dict[str, Range]:
    rates = {"TPR": Range(low=promise.tpr.low)}
    if not math.isnan(promise.point.fpr):
        rates["FPR"] = Range(high=promise.fpr.high)
    if knows_loss and not math.isnan(promise.selective_risk.high):
        rates["selective risk"] = Range(high=promise.selective_risk.high)
    if promise.precision is not None and not math.isnan(promise.precision.low):
        rates["precision"] = Range(low=promise.precision.low)
    if knows_loss and promise.expected_cost is not None:
        rates["expected cost"] = Range(high=promise.expected_cost.high)
    return rates


def _proven_parts(promise: Certified, model: RejectionModel) -> dict[str, Range]:
    """Return what is proven of the groups and single sets that the model bounds."""
    found: Mapping[str, Mapping[str, Interval]] = {
        "tpr": promise.tpr_by_group,
        "selective_risk": promise.selective_risk_by_group,
        "fpr": promise.fpr_by_set,
    }
    rates = {}
    for bound in model.bounds:
        known = found.get(bound.quantity, {})
        ends = known.get(str(bound.group or bound.ood_set)) if bound.is_of_part else None
        if ends is not None and not math.isnan(ends.high):
            rates[part_name(bound)] = (
                Range(low=ends.low) if bound.is_lower else Range(high=ends.high)
            )
    return rates


def _guaranteed(found: CertifiedTuning | InfeasibleError, rule: Rule) -> Statement:
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
    own = found.rule == rule
    rates = _bounded_rates(found.model)
    if not math.isnan(found.selective_risk):
        rates["selective risk"] = Range(high=found.selective_risk)
    if found.expected_cost is not None:
        rates["expected cost"] = Range(high=found.expected_cost)
    return Statement(
        key="guaranteed",
        title=f"Promised of {'this' if own else 'another'} rule, with "
        f"{100 * found.confidence:g}{PERCENT_SIGN} confidence",
        source=("" if own else f"Accept when {rule_text(found.rule)}. ")
        + "Learned on a part of the tuning rows, proven on the others; all of it holds together.",
        kind="promise",
        rates=rates,
        details=guarantee_data(found),
    )


def _bounded_rates(model: RejectionModel) -> dict[str, Range]:
    """Return the bounds of a model as what is promised."""
    rates = {}
    for quantity in get_args(Quantity):
        bound = model.bound(quantity)
        if bound is None or (quantity == "fpr" and bound.is_trivial):
            continue
        rates[RATE_NAMES[quantity]] = _limit(bound)
    return rates | {part_name(b): _limit(b) for b in model.bounds if b.is_of_part}


def _limit(bound: Bound) -> Range:
    limit = float(bound.value)
    return Range(low=limit) if bound.is_lower else Range(high=limit)


def _point_rates(
    point: OperatingPoint, model: RejectionModel, priors: Interval | None, *, worst: bool = False
) -> dict[str, Range]:
    """Return the rates of a point; precision and cost as an interval over a range of priors."""
    rates = {"TPR": Range(point.tpr)}
    seen = max(point.fpr_by_set.values()) if worst else point.fpr
    if not math.isnan(seen):
        rates["FPR"] = Range(seen)
    rates["selective risk"] = Range(point.selective_risk)
    for bound in model.bounds:
        if bound.is_of_part and not math.isnan(value_at(point, bound)):
            rates[part_name(bound)] = Range(value_at(point, bound))
    if priors is None:
        return rates
    fpr = 0.0 if math.isnan(seen) else seen
    rates["precision"] = _over(precision_range(point.tpr, fpr, priors))
    if model.cost is not None:
        cost = cost_range(model, point.tpr, fpr, point.selective_risk, priors)
        rates["expected cost"] = _over(cost)
    return rates


def _over(interval: Interval) -> Range:
    if interval.low == interval.high or math.isnan(interval.low):
        return Range(interval.low)
    return Range(low=interval.low, high=interval.high)


def cross_data(cross: CrossTuning) -> dict[str, Any]:
    """Return a cross-validated tuning as plain data."""
    return {
        "folds": [
            {
                "rule": None if fold.rule is None else rule_data(fold.rule),
                "tuned": None if fold.tuned is None else asdict(fold.tuned),
                "held_out": None if fold.held_out is None else asdict(fold.held_out),
            }
            for fold in cross.folds
        ],
        "held_out": None if cross.held_out is None else asdict(cross.held_out),
        "unable": cross.unable,
    }


def bootstrap_data(found: Bootstrap) -> dict[str, Any]:
    """Return a bootstrap as plain data, without the single replicates."""
    return {
        "replicates": found.replicates,
        "unable": found.unable,
        "confidence": found.confidence,
        "measures": {name: measure_data(measure) for name, measure in found.measures.items()},
    }


def measure_data(measure: ResampledRate) -> dict[str, float]:
    """Return one rate of a bootstrap as plain data."""
    return {
        "apparent": measure.apparent,
        "estimate": measure.estimate,
        "optimism": measure.optimism,
        "out_of_bag": measure.held_out,
        "low": measure.interval.low,
        "high": measure.interval.high,
    }


def guarantee_data(found: CertifiedTuning) -> dict[str, Any]:
    """Return a tuning with a guarantee as plain data."""
    return {
        "confidence": found.confidence,
        "selective_risk": found.selective_risk,
        "expected_cost": found.expected_cost,
        "objective": found.objective,
        "method": found.method,
        "rule": rule_data(found.rule),
        "rows": asdict(found.sizes),
        "tested": asdict(found.point),
        "candidates": [
            asdict(candidate) | {"rule": rule_data(candidate.rule)}
            for candidate in found.candidates
        ],
        "caveat": found.caveat,
    }


def prior_data(found: PriorEstimate) -> dict[str, Any]:
    """Return an estimate of the prior as plain data."""
    return {
        "estimate": found.estimate,
        "low": found.interval.low,
        "high": found.interval.high,
        "likely": None if found.likely is None else asdict(found.likely),
        "accepted_share": found.accepted_share,
        "confidence": found.confidence,
        "consistent": found.consistent,
    }


def prior_text(found: PriorEstimate) -> str:
    """Return what unlabelled inputs say about the share of OOD among them."""
    seen = f"Of the unlabelled inputs in use the rule accepted {percent(found.accepted_share)}."
    if not found.consistent:
        return (
            f"{seen} No share of OOD inputs explains that: the inputs are unlike the rows here, "
            "so nothing in this report is sure to hold for them."
        )
    low, high = outwards(100 * found.interval.low, 100 * found.interval.high, 1)
    likely = found.likely
    about = ""
    if likely is not None:
        about = f", approximately {percent(likely.low)} to {percent(likely.high)}"
    return (
        f"{seen} By their scores, between {low}{PERCENT_SIGN} and "
        f"{high}{PERCENT_SIGN} of them are OOD ({100 * found.confidence:g} % "
        f"confidence; best guess {percent(found.estimate)}{about})."
    )
