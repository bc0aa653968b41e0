"""What models are made of: bounds on rates, and the expected cost."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

from demur.core.program import Number, exact
from demur.errors import InvalidInputError

Quantity = Literal["tpr", "fpr", "precision", "selective_risk"]
EACH_SET = "each"
"""The `ood_set` of a bound that every OOD set has to keep by itself."""


@dataclass(frozen=True, slots=True)
class Bound:
    """One requirement: a quantity, a sense, a value, and whose.

    Parameters
    ----------
    quantity
        ``"tpr"``, ``"fpr"``, ``"precision"`` or ``"selective_risk"``.
    at_least, at_most
        The value, under exactly one of the two names. A float means its shortest decimal, so
        0.07 of 100 rows is 7 rows.
    group
        Of the ID rows with this group label only.
    ood_set
        Of this OOD set only; ``"each"`` is every one of them by itself.

    Examples
    --------
    >>> Bound("fpr", at_most=0.1, ood_set="svhn")
    Bound('fpr', at_most=0.1, ood_set='svhn')
    """

    quantity: Quantity
    at_least: Number | None = None
    at_most: Number | None = None
    group: str | None = None
    ood_set: str | None = None

    def __post_init__(self) -> None:
        if self.quantity not in get_args(Quantity):
            raise InvalidInputError(
                f"quantity must be one of {list(get_args(Quantity))}, got {self.quantity!r}"
            )
        if (self.at_least is None) == (self.at_most is None):
            raise InvalidInputError(
                f"a bound on {self.quantity} needs either at_least or at_most, got "
                f"at_least={self.at_least!r}, at_most={self.at_most!r}"
            )
        if self.quantity == "selective_risk":
            _check_nonnegative(self.parameter, self.value)
        else:
            check_share(self.parameter, self.value)
        if self.group is not None and self.quantity not in ("tpr", "selective_risk"):
            raise InvalidInputError(
                f"group: a bound on {self.quantity} is not of ID rows alone; groups go with tpr "
                "and selective_risk"
            )
        if self.ood_set is not None and self.quantity not in ("fpr", "precision"):
            raise InvalidInputError(
                f"ood_set: a bound on {self.quantity} is not of OOD rows; sets go with fpr and "
                "precision"
            )

    @property
    def is_lower(self) -> bool:
        """Whether the quantity has to be at least the value."""
        return self.at_least is not None

    @property
    def value(self) -> Number:
        """The value as it was given."""
        return self.at_most if self.at_least is None else self.at_least  # type: ignore[return-value]

    @property
    def share(self) -> Fraction:
        """The value as the fraction its shortest decimal stands for."""
        return exact(self.parameter, self.value)

    @property
    def parameter(self) -> str:
        """The name under which models and options take such a bound, such as ``min_tpr``."""
        return f"{'min' if self.is_lower else 'max'}_{self.quantity}"

    @property
    def is_trivial(self) -> bool:
        """Whether every rule meets it."""
        if self.is_lower:
            return self.share <= 0
        return self.quantity != "selective_risk" and self.share >= 1

    def met_by(self, value: float | None) -> bool:
        """Return whether a value meets the bound; one that is undefined does not."""
        if value is None:
            return False
        return value >= float(self.value) if self.is_lower else value <= float(self.value)

    def moved_to(self, value: Number) -> Bound:
        """Return the same bound at another value."""
        ends = {"at_least": value} if self.is_lower else {"at_most": value}
        return Bound(self.quantity, group=self.group, ood_set=self.ood_set, **ends)

    def to_data(self) -> dict[str, Any]:
        """Return the bound as plain data: the arguments that make it."""
        sense = "at_least" if self.is_lower else "at_most"
        data: dict[str, Any] = {"quantity": self.quantity, sense: float(self.value)}
        whose = {"group": self.group, "ood_set": self.ood_set}
        return data | {name: value for name, value in whose.items() if value is not None}

    def __repr__(self) -> str:
        sense = "at_least" if self.is_lower else "at_most"
        whose = "".join(
            f", {name}={value!r}"
            for name, value in (("group", self.group), ("ood_set", self.ood_set))
            if value is not None
        )
        return f"Bound({self.quantity!r}, {sense}={self.value!r}{whose})"


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """The objective of the cost-based model.

    ``(1-pi) E_ID[l c + reject_id (1-c)] + pi E_OOD[accept_ood c + reject_ood (1-c)]``

    Parameters
    ----------
    reject_id, accept_ood, reject_ood
        Costs eps1, eps2, eps3 of rejecting an ID input, accepting an OOD input and rejecting
        an OOD input; at least 0, and `accept_ood` at least `reject_ood`.
    """

    reject_id: Number
    accept_ood: Number = 1
    reject_ood: Number = 0

    def __post_init__(self) -> None:
        for name in ("reject_id", "accept_ood", "reject_ood"):
            _check_nonnegative(name, getattr(self, name))
        if exact("accept_ood", self.accept_ood) < exact("reject_ood", self.reject_ood):
            raise InvalidInputError(
                f"accept_ood ({self.accept_ood}) must be at least reject_ood ({self.reject_ood}): "
                "accepting an OOD input cannot be cheaper than rejecting it"
            )

    def at(self, tpr: float, fpr: float, mean_loss: float, ood_prior: float) -> float:
        """Return the cost of a rule; `mean_loss` is the loss of accepted ID per ID input."""
        on_id = mean_loss + float(self.reject_id) * (1 - tpr)
        if ood_prior == 0:
            return on_id
        on_ood = float(self.accept_ood) * fpr + float(self.reject_ood) * (1 - fpr)
        return (1 - ood_prior) * on_id + ood_prior * on_ood


def check_share(name: str, value: Number) -> None:
    """Refuse what is not a share."""
    if not 0 <= exact(name, value) <= 1:
        raise InvalidInputError(f"{name} must be in [0, 1], got {value}")


def _check_nonnegative(name: str, value: Number) -> None:
    if exact(name, value) < 0:
        raise InvalidInputError(f"{name} must be at least 0, got {value}")
