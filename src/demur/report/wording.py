"""Rules, models and numbers in words, the same in every rendering."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from demur.core.models import CostModel, PrecisionRecallModel, RejectionModel, TprFprModel
from demur.core.program import Number
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.guarantees.intervals import at_least_text, at_most_text

ONLY_THESE_OOD = (
    "Every FPR holds for OOD inputs like the OOD rows supplied, and only for them. "
    "Inputs that are foreign in another way may be accepted more often."
)

MINUS, DASH, TIMES = "\u2212", "\u2013", "\u00d7"
# With a space that does not break.
PERCENT_SIGN = "\u00a0%"


@dataclass(frozen=True, slots=True)
class Range:
    """A rate: a value, an interval, or the one end that is promised."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


def score_names(rule: Rule) -> tuple[str, ...]:
    """Return the names of the scores, made up where the rule has none."""
    count = len(rule.direction)
    return rule.score_names or (("score",) if count == 1 else ("score 1", "score 2"))


def rule_text(rule: Rule) -> str:
    """Return the rule as an inequality in rounded numbers."""
    if rule.threshold == -math.inf:
        return "never"
    text = ""
    for weight, name in zip(rule.direction, score_names(rule), strict=True):
        if weight == 0:
            continue
        sign = MINUS if weight < 0 else "+" if text else ""
        factor = "" if abs(weight) == 1 else f"{abs(weight):.4g} {TIMES} "
        text += f" {sign} {factor}{name}" if text else f"{sign}{factor}{name}"
    return f"{text} ≤ {rule.threshold:.5g}".replace("-", MINUS)


def model_text(model: RejectionModel) -> str:
    """Return what a model asks for."""
    if isinstance(model, TprFprModel):
        fpr = "" if float(model.max_fpr) == 1 else f", FPR ≤ {_plain(model.max_fpr)}"
        return f"least selective risk with TPR ≥ {_plain(model.min_tpr)}{fpr}"
    if isinstance(model, PrecisionRecallModel):
        return (
            f"least selective risk with precision ≥ {_plain(model.min_precision)}, recall ≥ "
            f"{_plain(model.min_recall)} at OOD prior {_plain(model.ood_prior)}"
        )
    if isinstance(model, CostModel):
        return (
            f"least expected cost: rejecting ID {_plain(model.reject_id)}, accepting OOD "
            f"{_plain(model.accept_ood)}, rejecting OOD {_plain(model.reject_ood)}, OOD prior "
            f"{_plain(model.ood_prior)}"
        )
    return str(model)


def model_data(model: RejectionModel) -> dict[str, Any]:
    """Return a model as plain data."""
    names = getattr(type(model), "__dataclass_fields__", {})
    return {"name": type(model).__name__} | {n: float(getattr(model, n)) for n in names}


def decision(point: OperatingPoint, *, zero_one: bool, risk_of_all: float) -> str:
    """Return what the rule means in practice, in one sentence for people who decide."""
    if point.accepted_id == 0:
        return "Answer no input: under the stated costs, rejecting everything is cheapest."
    familiar = f"it answers {_of_hundred(point.tpr)} familiar inputs"
    if zero_one:
        risk = (
            f"{percent(point.selective_risk)} of these answers are wrong "
            f"({percent(risk_of_all)} if it answered all)"
        )
    else:
        risk = (
            f"the mean loss of these answers is {point.selective_risk:.4g} "
            f"({risk_of_all:.4g} if it answered all)"
        )
    foreign = ""
    if not math.isnan(point.fpr):
        foreign = f"; {_of_hundred(point.fpr)} foreign inputs like those supplied slip through"
    return f"If the classifier answers only when the rule accepts, {familiar}, and {risk}{foreign}."


def percent(value: float, digits: int = 1) -> str:
    """Return a share as per cent, never rounded to a bare 0 or 100 when it is neither."""
    if math.isnan(value):
        return "undefined"
    shown = f"{100 * value:.{digits}f}"
    smallest = 10.0**-digits
    if value > 0 and float(shown) == 0:
        return f"below {smallest:.{digits}f}{PERCENT_SIGN}"
    if value < 1 and float(shown) == 100:
        return f"above {100 - smallest:.{digits}f}{PERCENT_SIGN}"
    return shown + PERCENT_SIGN


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with a fixed count of decimals, or that there is none."""
    return "undefined" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def outwards(low: float, high: float, digits: int = 4) -> tuple[str, str]:
    """Return the ends of an interval, rounded so that no part of it is cut off."""
    if math.isnan(low) or math.isnan(high):
        return "undefined", "undefined"
    return at_least_text(low, digits), at_most_text(high, digits)


def range_text(rate: Range, name: str) -> str:
    """Return a rate with its interval, or the end that is promised."""
    main, ends = range_parts(rate, name)
    return f"{main} ({ends})" if ends else main


def range_parts(rate: Range, name: str) -> tuple[str, str]:
    """Return a rate and its interval; a promised end is never rounded in our favour."""
    digits = 5 if name in ("selective risk", "expected cost") else 4
    if rate.value is None and rate.high is None and rate.low is not None:
        return f"≥ {at_least_text(rate.low, digits)}", ""
    if rate.value is None and rate.low is None and rate.high is not None:
        return f"≤ {at_most_text(rate.high, digits)}", ""
    ends = ""
    if rate.low is not None and rate.high is not None:
        ends = f" {DASH} ".join(outwards(rate.low, rate.high, digits - 1))
    if rate.value is None:
        return ends, ""
    return number(rate.value, digits), ends


def amount(weight: float) -> str:
    """Return a count, or a weight that need not be whole."""
    return f"{int(weight):,}" if float(weight).is_integer() else f"{weight:,.2f}"


def strict(item: Any) -> Any:
    """Return nested data that JSON can hold: what is not finite becomes None."""
    if isinstance(item, Mapping):
        return {str(key): strict(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [strict(value) for value in item]
    return None if isinstance(item, float) and not math.isfinite(item) else item


def _of_hundred(share: float) -> str:
    count = 100 * share
    shown = f"{count:.0f}" if count >= 10 or count == round(count) else f"{count:.1f}"
    return f"{shown} of 100"


def _plain(value: Number) -> str:
    return f"{float(value):g}"
