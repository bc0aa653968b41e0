"""Numbers, rates, rules and the decision in words, the same in every rendering.

Sentences about rules, models and bounds as such are those of `demur.core.wording`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.core.wording import TYPOGRAPHIC, at_least_text, at_most_text, formula
from demur.core.wording import score_names as numbered_names

ONLY_THESE_OOD = (
    "Every FPR holds for OOD inputs like the OOD rows supplied, and only for them. "
    "Inputs that are foreign in another way may be accepted more often."
)

MINUS, DASH = TYPOGRAPHIC.minus, "\u2013"
# With a space that does not break.
PERCENT_SIGN = "\u00a0%"

RATE_NAMES = {
    "tpr": "TPR",
    "fpr": "FPR",
    "selective_risk": "selective risk",
    "precision": "precision",
    "expected_cost": "expected cost",
}
"""Attributes of an operating point, and what reports call them."""


@dataclass(frozen=True, slots=True)
class Range:
    """A rate: a value, an interval, or the one end that is promised."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float | None, ...]:
        """All that it states."""
        return self.value, self.low, self.high


def score_names(rule: Rule) -> tuple[str, ...]:
    """Return the names of the scores, made up where the rule has none; a single one is *score*."""
    if rule.score_names is None and len(rule.direction) == 1:
        return ("score",)
    return numbered_names(rule)


def rule_text(rule: Rule) -> str:
    """Return the rule as an inequality in rounded numbers."""
    if rule.threshold == -math.inf:
        return "never"
    named = replace(rule, score_names=score_names(rule))
    return formula(named, TYPOGRAPHIC).replace("-", MINUS)


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


def digits_of(name: str) -> int:
    """Return how many decimals a rate is shown with."""
    return 5 if name in ("selective risk", "expected cost") else 4


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
    digits = digits_of(name)
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
