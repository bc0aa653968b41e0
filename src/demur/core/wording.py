"""Rules, models, bounds and numbers in words: every sentence about them starts here.

Two alphabets: plain text for terminals and messages, typographic signs for pages. Promised numbers
are rounded against those who promise, never in their favour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from demur._arrays import data_frame
from demur.core.models import EACH_SET, ROUNDING, Bound, RejectionModel
from demur.core.program import Number
from demur.core.rates import OperatingPoint
from demur.core.rule import BoxRule, Rule


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Signs, and how many digits numbers get."""

    minus: str
    times: str
    at_most: str
    at_least: str
    weight: str
    threshold: str


PLAIN = Alphabet("-", "*", "<=", ">=", ".6g", ".6g")
TYPOGRAPHIC = Alphabet("\u2212", "\u00d7", "≤", "≥", ".4g", ".5g")

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

# 0.07 times 10,000 is 700.0000000000001 in floats.
_FUZZ = 1e-7
_UPPER = {"tpr": "TPR", "fpr": "FPR"}


def score_names(rule: Rule) -> tuple[str, ...]:
    """Return the names of the scores, made up where the rule has none."""
    return rule.columns.titles


def formula(rule: Rule, signs: Alphabet = PLAIN) -> str:
    """Return the rule as an inequality in rounded numbers.

    A single confidence is told to be at least something: *confidence >= 0.872*.
    """
    return "".join(part for part, _ in formula_parts(rule, signs))


def formula_parts(rule: Rule, signs: Alphabet = PLAIN) -> list[tuple[str, bool]]:
    """Return the parts of the inequality, and whether each is the name of a score."""
    if isinstance(rule, BoxRule):
        return _limits(rule, signs)
    parts: list[tuple[str, bool]] = []
    used = [weight for weight in rule.direction if weight != 0]
    sign = -1 if len(used) == 1 and used[0] < 0 else 1
    for weight, name in zip((sign * w for w in rule.direction), score_names(rule), strict=True):
        if weight == 0:
            continue
        mark = signs.minus if weight < 0 else "+" if parts else ""
        factor = "" if abs(weight) == 1 else f"{abs(weight):{signs.weight}} {signs.times} "
        factor = factor.replace("-", signs.minus)
        parts += [(f" {mark} {factor}" if parts else f"{mark}{factor}", False), (name, True)]
    # Adding zero turns -0.0 into 0.0.
    threshold = f"{sign * rule.threshold + 0.0:{signs.threshold}}".replace("-", signs.minus)
    limit = signs.at_most if sign > 0 else signs.at_least
    return [*parts, (f" {limit} {threshold}", False)]


def _limits(rule: BoxRule, signs: Alphabet) -> list[tuple[str, bool]]:
    """Return what a box asks of each score: *confidence >= 0.8 and knn <= 0.5*."""
    parts: list[tuple[str, bool]] = []
    for sign, limit, name in zip(rule.direction, rule.limits, score_names(rule), strict=True):
        if sign:
            value = f"{limit:{signs.threshold}}".replace("-", signs.minus)
            compare = signs.at_most if sign > 0 else signs.at_least
            parts += [(" and ", False)] if parts else []
            parts += [(name, True), (f" {compare} {value}", False)]
    return parts


def bound_text(model: RejectionModel, bound: Bound) -> str:
    """Return a bound as certificates name it: ``tpr >= 0.8``, ``recall >= 0.8``."""
    return f"{model.word(bound)} {'>=' if bound.is_lower else '<='} {bound.value}{whose(bound)}"


def bound_sign(model: RejectionModel, bound: Bound, about: str = "") -> str:
    """Return a bound for pages: ``TPR ≥ 0.8``.

    `about` says what a bound on OOD rows is about, where it does not say so itself.
    """
    name = model.word(bound)
    sign = "≥" if bound.is_lower else "≤"
    of = whose(bound) or (about if bound.quantity in ("fpr", "precision") else "")
    return f"{_UPPER.get(name, name).replace('_', ' ')} {sign} {_short(bound.value)}{of}"


def whose(bound: Bound) -> str:
    """Return of which group or set a bound is: `` of rare``; nothing for all rows."""
    if bound.group is not None:
        return f" of {bound.group}"
    if bound.ood_set is None:
        return ""
    return " of every set" if bound.ood_set == "each" else f" of {bound.ood_set}"


def value_at(point: OperatingPoint, bound: Bound) -> float:
    """Return what a point has of a bounded quantity; NaN where it has nothing."""
    if bound.ood_set is not None:
        return _value_of_sets(point, bound)
    if bound.group is not None:
        by_group = {"tpr": point.tpr_by_group, "selective_risk": point.selective_risk_by_group}
        return by_group[bound.quantity].get(bound.group, math.nan)
    value: float | None = getattr(point, bound.quantity)
    return math.nan if value is None else value


def _value_of_sets(point: OperatingPoint, bound: Bound) -> float:
    """Return the value for one OOD set, or the worst of all."""
    by_set = {"fpr": point.fpr_by_set, "precision": point.precision_by_set}[bound.quantity]
    rates = [v for name, v in by_set.items() if bound.ood_set in (EACH_SET, name)]
    return (min if bound.is_lower else max)(rates, default=math.nan)


def bounds_met(model: RejectionModel, point: OperatingPoint) -> dict[str, bool]:
    """Return each bound of a model as text, and whether the point meets it.

    Bounds on the FPR are left out where there are no OOD rows to have one.
    """
    return {
        bound_text(model, bound): bound.met_by(value_at(point, bound), within=ROUNDING)
        for bound in model.bounds
        if not (bound.quantity == "fpr" and math.isnan(point.fpr))
    }


_RATES = ("tpr", "fpr", "selective_risk", "precision", "expected_cost")


def point_text(point: OperatingPoint) -> str:
    """Return the rates of a point in a line, for the `repr` of results."""
    values = ((name, getattr(point, name)) for name in _RATES)
    return ", ".join(f"{name} {value:.4g}" for name, value in values if value is not None)


def point_frame(points: Mapping[str, OperatingPoint | None], backend: str | None) -> Any:
    """Return a data frame with a row per rate and a column per point."""
    names = [n for n in _RATES if any(getattr(p, n, None) is not None for p in points.values())]
    names += [f"fpr of {name}" for name in _set_names(points.values())]
    columns = {title: [_rate(point, name) for name in names] for title, point in points.items()}
    return data_frame({"rate": names} | columns, backend)


def _set_names(points: Iterable[OperatingPoint | None]) -> list[str]:
    sets = dict.fromkeys(name for p in points if p is not None for name in p.fpr_by_set)
    return list(sets) if len(sets) > 1 else []


def _rate(point: OperatingPoint | None, name: str) -> float:
    if point is None:
        return math.nan
    value = getattr(point, name, None)
    if value is None:
        value = point.fpr_by_set.get(name.removeprefix("fpr of "))
    return math.nan if value is None else float(value)


def objective_name(model: RejectionModel) -> str:
    """Return what the model optimises: ``selective risk``, ``expected cost``, ``TPR``."""
    if model.cost is not None:
        return "expected cost"
    name = str(model.objective)
    return _UPPER.get(name, name).replace("_", " ")


def sentence(model: RejectionModel, whose: str = "") -> str:
    """Return what a model asks for: *least selective risk with TPR ≥ 0.8, FPR ≤ 0.1*.

    `whose` says what bounds on OOD rows are about.
    """
    aim = f"{'most' if model.seeks_most else 'least'} {objective_name(model)}"
    if model.asked:
        aim += " with " + ", ".join(bound_sign(model, bound, whose) for bound in model.asked)
    cost, prior = model.cost, model.ood_prior
    if cost is not None:
        return (
            f"{aim}: rejecting ID {_short(cost.reject_id)}, accepting OOD "
            f"{_short(cost.accept_ood)}, rejecting OOD {_short(cost.reject_ood)}, OOD prior "
            f"{_short(prior or 0)}"
        )
    return aim if prior is None else f"{aim} at OOD prior {_short(prior)}"


def paper_text(model: RejectionModel) -> str:
    """Return the operating point a model asks for, as the paper writes it."""
    if not model.bounds:
        return objective_name(model)
    names = {"tpr": "TPR", "fpr": "FPR", "precision": "Prec", "recall": "Recall"}
    names["selective_risk"] = "risk"
    parts = [(names.get(model.word(b), b.quantity), b) for b in model.bounds]
    return ", ".join(f"{name}({bound.value}){whose(bound)}" for name, bound in parts)


def command_options(model: RejectionModel) -> list[str]:
    """Return the command-line options that state the model."""
    words = []
    own = _own_options(model)
    for bound in model.asked:
        least, name = "min" if bound.is_lower else "max", model.word(bound)
        option = f"--{least}-{name.removeprefix('selective_')}"
        if not bound.is_of_part and bound.quantity in own and option not in words:
            words += [option, str(bound.value)]
        else:
            sense = ">=" if bound.is_lower else "<="
            words += ["--bound", f"{bound.quantity}{whose(bound)} {sense} {bound.value}"]
    cost, prior = model.cost, model.ood_prior
    if cost is not None:
        words += ["--cost-reject-id", str(cost.reject_id)]
    if cost is not None and prior:
        words += ["--cost-accept-ood", str(cost.accept_ood)]
        words += ["--cost-reject-ood", str(cost.reject_ood)]
    if prior is None or (prior == 0 and model.bound("precision") is None):
        return words
    return [*words, "--prior", str(prior)]


def _own_options(model: RejectionModel) -> tuple[str, ...]:
    """Return the quantities whose bounds have options of their own beside the others asked for."""
    if model.objective == "tpr":
        return ("selective_risk", "fpr") if model.bound("selective_risk") else ()
    if model.objective != "selective_risk" or model.bound("tpr") is None:
        return ()
    return ("tpr", "fpr") if model.bound("precision") is None else ("tpr", "precision")


def _short(value: Number) -> str:
    return f"{float(value):g}"


def objective_key(model: RejectionModel) -> str:
    """Return the attribute of an operating point that the model optimises."""
    return "expected_cost" if model.cost is not None else str(model.objective)


def objective_at(model: RejectionModel) -> str:
    """Return what the model optimises, and where: *selective risk at TPR(0.8), FPR(0.1)*."""
    at = f" at {paper_text(model)}" if model.bounds else ""
    return objective_name(model) + at


def at_least_text(bound: float, digits: int) -> str:
    """Return a lower bound with so many decimals, rounded down.

    Examples
    --------
    >>> at_least_text(0.77687, 4), at_least_text(0.8, 4)
    ('0.7768', '0.8000')
    """
    return f"{math.floor(bound * 10**digits + _FUZZ) / 10**digits:.{digits}f}"


def at_most_text(bound: float, digits: int) -> str:
    """Return an upper bound with so many decimals, rounded up.

    Examples
    --------
    >>> at_most_text(0.194804, 5), at_most_text(0.1, 5)
    ('0.19481', '0.10000')
    """
    return f"{math.ceil(bound * 10**digits - _FUZZ) / 10**digits:.{digits}f}"


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


def score_titles(rule: Rule) -> tuple[str, ...]:
    """Return the names of the scores, made up where the rule has none; a single one is *score*."""
    if rule.score_names is None and len(rule.direction) == 1:
        return ("score",)
    return score_names(rule)


def rule_text(rule: Rule, digits: int | None = None) -> str:
    """Return the rule as an inequality in numbers rounded to so many digits, or to a few."""
    return "".join(part for part, _ in rule_parts(rule, digits))


def rule_parts(rule: Rule, digits: int | None = None) -> list[tuple[str, bool]]:
    """Return the parts of the inequality for pages, and whether each is the name of a score."""
    if rule.threshold == -math.inf:
        return [("never", False)]
    named = replace(rule, score_names=score_titles(rule), confidence=())
    signs = TYPOGRAPHIC
    if digits is not None:
        signs = replace(signs, weight=f".{digits}g", threshold=f".{digits}g")
    return formula_parts(named, signs)


def decision(
    point: OperatingPoint,
    *,
    zero_one: bool,
    risk_of_all: float,
    id_rows: int | None = None,
    ood_rows: int | None = None,
) -> str:
    """Return what the rule means in practice, in one sentence for people who decide.

    Of few rows, which a rate would make too much of, the very counts are told.
    """
    if point.accepted_id == 0:
        return "Answer no input: under the stated costs, rejecting everything is cheapest."
    familiar = f"it answers {_of_hundred(point.tpr, id_rows)} familiar inputs"
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
        slip = _of_hundred(point.fpr, ood_rows)
        foreign = f"; {slip} foreign inputs like those supplied slip through"
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
    if isinstance(item, Sequence) and not isinstance(item, str):
        return [strict(value) for value in item]
    return None if isinstance(item, float) and not math.isfinite(item) else item


_FEW = 100
"""Below so many rows, rates are told as counts of rows."""


def _of_hundred(share: float, rows: int | None) -> str:
    if rows is not None and rows < _FEW:
        return f"{round(share * rows)} of {rows}"
    count = 100 * share
    shown = f"{count:.0f}" if count >= 10 or count == round(count) else f"{count:.1f}"
    return f"{shown} of 100"
