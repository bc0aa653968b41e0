"""A rejection model lowered to integers: what the searches minimise, and under which bounds.

With nI, nO, L the accepted ID mass, OOD mass (one per OOD set) and loss mass, a program is

    minimise   (loss*L + id*nI + ood*sum(nO)) / (nI if per_id else 1)
    subject to nI >= min_id,  nO[s] <= max_ood[s],  a[s]*nI >= b[s]*nO[s]
    and        any number of linear bounds on these and on parts of them

A *part* is the mass of a group of ID rows or of one OOD set. Among equal objectives the larger
nI wins, then the smaller sum(nO), then the smaller L.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, gcd, lcm
from typing import TYPE_CHECKING, Any, Literal

from demur.errors import InvalidInputError

if TYPE_CHECKING:
    from demur.core.models import Bound, ExpectedCost, RejectionModel

Number = int | float | Decimal | Fraction

# Coefficients and masses below these keep every product inside 128-bit integers.
_COEFFICIENT_LIMIT = 2**62


@dataclass(frozen=True, slots=True)
class Totals:
    """Masses of a whole sample, accepted or not, and what one unit of mass stands for."""

    id: int
    ood: tuple[int, ...]
    loss: int
    id_exponent: int = 0
    ood_exponent: int = 0
    loss_exponent: int = 0
    id_rounding: int = 0
    ood_rounding: int = 0
    loss_rounding: int = 0
    groups: tuple[tuple[str, int], ...] = ()
    """Names and masses of the groups of ID rows."""
    sets: tuple[tuple[str, int], ...] = ()
    """Names and masses of the OOD sets."""
    pooled: bool = False
    """Whether bounds of no set in particular are on all sets together, although these are apart."""

    def id_weight(self, mass: int) -> float:
        """Return ID `mass` in the units the weights were given in."""
        return mass * 2.0**-self.id_exponent

    def ood_weight(self, mass: int) -> float:
        """Return OOD `mass` in the units the weights were given in."""
        return mass * 2.0**-self.ood_exponent

    def loss_sum(self, mass: int) -> float:
        """Return loss `mass` in the units the losses were given in."""
        return mass * 2.0**-self.loss_exponent


@dataclass(frozen=True, slots=True)
class Part:
    """The mass of some rows, told apart because a bound is about it."""

    mass: Literal["id", "loss", "ood"]
    of: str | None = None
    """A group of ID rows, or an OOD set; None for all rows."""
    below: tuple[int, int] | None = None
    """(a, b): only of ID rows with ``b * loss <= a * id``, those that a bound on risk welcomes."""


ID, LOSS, OOD = Part("id"), Part("loss"), Part("ood")


@dataclass(frozen=True, slots=True)
class LinearBound:
    """A bound ``sum of coefficient * accepted part >= least``."""

    terms: tuple[tuple[Part, int], ...]
    hope: tuple[tuple[Part, int], ...]
    """What rows that may or may not be accepted can add at best."""
    least: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """Integer objective and bounds of one rejection model on one sample."""

    loss: int
    id: int
    ood: int
    per_id: bool
    min_id: int
    max_ood: tuple[int, ...]
    ratio: tuple[tuple[int, int], ...]
    """(a, b) per OOD set, meaning a*nI >= b*nO; (0, 0) is no bound."""
    linear: tuple[LinearBound, ...] = ()
    reject_all: bool = False
    """Whether accepting nothing competes."""
    scale: float = 1.0
    offset: float = 0.0
    """The model's own objective is ``scale * value + offset``."""

    def value(self, id_mass: int, ood_mass: int, loss_mass: int) -> float:
        """Return the integer objective of accepted masses."""
        total = self.loss * loss_mass + self.id * id_mass + self.ood * ood_mass
        return total / id_mass if self.per_id else float(total)


def exact(name: str, value: Any) -> Fraction:
    """Return a number as the fraction its shortest decimal stands for: 0.07 is 7/100."""
    if isinstance(value, bool) or value is None:
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    if isinstance(value, (int, Fraction, Decimal)):
        text: Any = value
    elif hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        text = str(value)
    elif isinstance(value, float):
        text = repr(value)
    else:
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    try:
        return Fraction(text)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"{name} must be a finite number, got {value!r}") from None


def at_least(share: Fraction, total: int, rounding: int) -> int:
    """Return the smallest mass that is at least `share` of `total`."""
    return max(0, ceil(share * total) - rounding)


def at_most(share: Fraction, total: int, rounding: int) -> int:
    """Return the largest mass that is at most `share` of `total`."""
    return min(total, floor(share * total) + rounding)


def quotient_bound(bound: Fraction, max_numerator: int, max_denominator: int) -> tuple[int, int]:
    """Return small (a, b) such that nO / nI <= bound exactly when b*nO <= a*nI.

    a/b is the largest fraction at most `bound` with numerator and denominator within the
    totals, the last left turn of the walk down the Stern-Brocot tree. No count in range can
    fall between the two, so nothing is lost, and products stay small.
    """
    if max_numerator == 0 or bound >= max_numerator:
        return 0, 0
    p0, q0, p1, q1 = 0, 1, 1, 0
    n, d = bound.numerator, bound.denominator
    while d:
        step = n // d
        p2, q2 = p0 + step * p1, q0 + step * q1
        if p2 > max_numerator or q2 > max_denominator:
            break
        p0, q0, p1, q1 = p1, q1, p2, q2
        n, d = d, n - step * d
    if d == 0 or Fraction(p1, q1) <= bound:
        return p1, q1
    # The last convergent lies above: its lower neighbour is a semiconvergent.
    steps = min((max_numerator - p0) // p1, (max_denominator - q0) // q1)
    return p0 + steps * p1, q0 + steps * q1


def integer_coefficients(*coefficients: Fraction) -> tuple[tuple[int, ...], float]:
    """Return integers in the same proportion and the number they are multiples of.

    They are rounded only when they would not fit 62 bits.
    """
    unit = Fraction(1, lcm(*(c.denominator for c in coefficients)))
    unit *= gcd(*(int(c / unit) for c in coefficients)) or 1
    largest = max(abs(c) for c in coefficients)
    unit = max(unit, largest / (_COEFFICIENT_LIMIT - 1))
    return tuple(round(c / unit) for c in coefficients), float(unit)


COEFFICIENTS: dict[str, tuple[int, int, int, bool]] = {
    "selective_risk": (1, 0, 0, True),
    "tpr": (0, -1, 0, False),
    "fpr": (0, 0, 1, False),
    # The most ID among the accepted is the least OOD per ID, at any prior.
    "precision": (0, 0, 1, True),
}
"""What an objective minimises, as coefficients (loss, id, ood, per_id) of the program."""


def lower(model: RejectionModel, totals: Totals) -> Program:
    """Return the objective and the bounds of a model in integers, for rows with these totals."""
    _check_searchable(model, totals)
    loss, id_, ood, per_id, scale, offset = _objective(model, totals)
    linear = [part for bound in model.bounds for part in _linear(model, bound, totals)]
    return Program(
        *(loss, id_, ood, per_id),
        min_id=_min_id(model, totals),
        max_ood=tuple(_max_ood(model, total, totals) for total in totals.ood),
        ratio=tuple(_ratio(model, total, totals) for total in totals.ood),
        linear=tuple(linear),
        reject_all=model.cost is not None and not any(_asks_for_id(b) for b in model.bounds),
        scale=scale,
        offset=offset,
    )


def _asks_for_id(bound: Bound) -> bool:
    """Return whether a rule that accepts nothing does not meet a bound."""
    return bound.is_lower or bound.quantity == "selective_risk"


def _check_searchable(model: RejectionModel, totals: Totals) -> None:
    """Refuse what the rows cannot answer, and what no search can do."""
    for bound in model.bounds:
        _check_bound(bound, totals)
    together = model.every_set or totals.pooled
    if model.cost is not None and len(totals.ood) > 1 and not together:
        raise InvalidInputError(
            'CostModel has no FPR bound for ood="worst" to apply to; use ood="pooled" '
            "or tune for one OOD set"
        )
    if sum(totals.ood) or not exact("ood_prior", model.ood_prior or 0):
        return
    about = "" if model.bound("precision") is None else ", so precision cannot be estimated"
    raise InvalidInputError(
        f"ood_prior is {model.ood_prior} but the sample has no OOD rows{about}: "
        "give OOD scores, or ood_prior=0"
    )


def _check_bound(bound: Bound, totals: Totals) -> None:
    if bound.is_lower == (bound.quantity in ("fpr", "selective_risk")):
        raise InvalidInputError(f"no search keeps {bound!r}: it asks for a worse rule")
    if bound.group is not None:
        _check_name("group", "group of ID rows", bound.group, totals.groups)
    if bound.is_of_one_set:
        _check_name("ood_set", "OOD set", str(bound.ood_set), totals.sets)


def _check_name(role: str, kind: str, name: str, known: tuple[tuple[str, int], ...]) -> None:
    """Refuse a bound of rows that are not there."""
    masses = dict(known)
    if masses.get(name):
        return
    there = ", ".join(repr(other) for other, mass in known if mass)
    if not there:
        given = "id_group= or --group COLUMN" if role == "group" else "named OOD sets or --ood"
        raise InvalidInputError(f"{role}: no row belongs to any {kind}; tell which by {given}")
    wrong = "has no weight" if name in masses else "is not among the rows"
    raise InvalidInputError(f"{role}: the {kind} {name!r} {wrong}; there are {there}")


def _linear(model: RejectionModel, bound: Bound, totals: Totals) -> list[LinearBound]:
    """Return what a bound is in integers, if it is more than a bound on all ID or all OOD."""
    if bound.quantity == "selective_risk":
        return _risk(bound, totals)
    if bound.quantity == "tpr":
        if bound.group is None:
            return []
        total = dict(totals.groups)[bound.group]
        members = ((Part("id", bound.group), 1),)
        return [LinearBound(members, members, at_least(bound.share, total, totals.id_rounding))]
    if not bound.is_of_one_set and not _is_pooled(model, bound, totals):
        return []
    of_set = Part("ood", bound.ood_set)
    total = dict(totals.sets)[str(bound.ood_set)] if bound.is_of_one_set else sum(totals.ood)
    if bound.quantity == "fpr":
        most = at_most(bound.share, total, totals.ood_rounding)
        return [LinearBound(((of_set, -1),), (), -most)]
    a, b = _quotient(bound, exact("ood_prior", model.ood_prior or 0), total, totals)
    return [LinearBound(((ID, a), (of_set, -b)), ((ID, a),))] if b else []


def _is_pooled(model: RejectionModel, bound: Bound, totals: Totals) -> bool:
    """Return whether a bound is on all OOD together although sets are bounded one by one."""
    together = model.every_set or totals.pooled
    return together and bound.ood_set is None and len(totals.ood) > 1


def _risk(bound: Bound, totals: Totals) -> list[LinearBound]:
    """Lower a selective risk to a bound on the quotient of accepted loss and ID mass.

    What decimals meet exactly must be met, however their sums were rounded to masses.
    """
    share = bound.share * Fraction(2) ** (totals.loss_exponent - totals.id_exponent)
    spare_id = spare_loss = 0
    if share:
        spare_id = _spare(totals.id_exponent, totals.id_rounding)
        spare_loss = _spare(totals.loss_exponent, totals.loss_rounding)
    group = bound.group
    # Accepting none of them leaves the risk of a group undefined.
    some = ((Part("id", group), 1),)
    linear = [] if group is None else [LinearBound(some, some, 1)]
    # Coefficients times what is spared have to fit, too.
    most_a, most_b = (_COEFFICIENT_LIMIT // max(1, 4 * spare) for spare in (spare_id, spare_loss))
    a, b = quotient_bound(
        share, min(totals.loss + spare_loss, most_a), min(totals.id + spare_id, most_b)
    )
    if b:
        terms = (Part("id", group), a), (Part("loss", group), -b)
        hope = (Part("id", group, (a, b)), a), (Part("loss", group, (a, b)), -b)
        spared = a * spare_id + b * spare_loss
        if spare_id or spare_loss:
            # What coefficients of fewer digits fall short by.
            spared += ceil(totals.id * (share * b - a))
        linear.append(LinearBound(terms, hope, -spared))
    return linear


def _spare(exponent: int, rounding: int) -> int:
    """Return by how many units a partial sum may differ from that of the decimals meant.

    Each row adds half a unit, and the last bits of all rows together less than two.
    """
    return rounding // 2 + 3 if exponent else 0


def _objective(model: RejectionModel, totals: Totals) -> tuple[int, int, int, bool, float, float]:
    """Return loss, id, ood, per_id, scale and offset of the program."""
    if model.cost is not None:
        return _expected_cost(model.cost, exact("ood_prior", model.ood_prior), totals)
    name = str(model.objective)
    units = {
        "selective_risk": 2.0 ** (totals.id_exponent - totals.loss_exponent),
        "tpr": 1 / totals.id,
        "fpr": 1 / max(1, sum(totals.ood)),
        "precision": 1.0,
    }
    return *COEFFICIENTS[name], units[name], 0.0


def _expected_cost(
    cost: ExpectedCost, prior: Fraction, totals: Totals
) -> tuple[int, int, int, bool, float, float]:
    reject_id = exact("reject_id", cost.reject_id)
    reject_ood = exact("reject_ood", cost.reject_ood)
    ood_step = exact("accept_ood", cost.accept_ood) - reject_ood
    (loss, id_, ood), unit = integer_coefficients(
        (1 - prior) * Fraction(2) ** (totals.id_exponent - totals.loss_exponent) / totals.id,
        -(1 - prior) * reject_id / totals.id,
        prior * ood_step / sum(totals.ood) if prior else Fraction(0),
    )
    return loss, id_, ood, False, unit, float((1 - prior) * reject_id + prior * reject_ood)


def _min_id(model: RejectionModel, totals: Totals) -> int:
    asked = [
        at_least(bound.share, totals.id, totals.id_rounding)
        for bound in model.bounds
        if bound.quantity == "tpr" and bound.group is None
    ]
    # Rates of accepting nothing are undefined, so some ID mass is always asked for.
    undefined = model.cost is None or any(b.quantity == "selective_risk" for b in model.bounds)
    return max([int(undefined), *asked])


def _of_each(model: RejectionModel, quantity: str, totals: Totals) -> list[Bound]:
    """Return the bounds on a quantity that hold for each of the OOD masses there are."""
    return [
        bound
        for bound in model.bounds
        if bound.quantity == quantity
        and not bound.is_of_one_set
        and not _is_pooled(model, bound, totals)
    ]


def _max_ood(model: RejectionModel, total: int, totals: Totals) -> int:
    asked = [bound.share for bound in _of_each(model, "fpr", totals)]
    return min([total, *(at_most(share, total, totals.ood_rounding) for share in asked)])


def _ratio(model: RejectionModel, total: int, totals: Totals) -> tuple[int, int]:
    """Lower precision to a bound on the quotient of accepted OOD and ID mass."""
    prior = exact("ood_prior", model.ood_prior or 0)
    asked = _of_each(model, "precision", totals)
    strictest = max(asked, key=lambda bound: bound.share, default=None)
    return (0, 0) if strictest is None else _quotient(strictest, prior, total, totals)


def _quotient(bound: Bound, prior: Fraction, total: int, totals: Totals) -> tuple[int, int]:
    if prior == 0 or bound.share == 0:
        return 0, 0
    most = (1 - prior) * (1 - bound.share) * total / (prior * bound.share * totals.id)
    slack = Fraction(4 * max(totals.id_rounding, totals.ood_rounding), 2**52)
    return quotient_bound(most * (1 + slack), total, totals.id)


def refuse_unknown_parts(
    bounds: Iterable[Bound], set_names: Collection[str], group_names: Collection[str]
) -> None:
    """Raise for a bound on a set or a group that is not there."""
    for bound in bounds:
        if bound.is_of_one_set and bound.ood_set not in set_names:
            raise InvalidInputError(
                f"no OOD set is called {bound.ood_set!r}; there are {sorted(set_names)}"
            )
        if bound.group is None or bound.group in group_names:
            continue
        there = f"there are {sorted(group_names)}"
        if not group_names:
            there = "the rows have no groups: tell which by id_group= or --group COLUMN"
        raise InvalidInputError(f"no group of ID rows is called {bound.group!r}; {there}")
