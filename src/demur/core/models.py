"""Rejection models: an objective and bounds.

A `RejectionModel` is data. The paper's models are subclasses that only name their parameters; what
any model means (its words, its JSON, what certifies it, what to say when it is out of reach) is
derived from `objective` and `bounds`, never from the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

from demur._arrays import check_kind
from demur.core.program import COEFFICIENTS, Number, Program, Totals, exact, lower
from demur.errors import InvalidInputError

Quantity = Literal["tpr", "fpr", "precision", "selective_risk"]
EACH_SET = "each"
"""The `ood_set` of a bound that every OOD set has to keep by itself."""
ROUNDING = 1e-12
"""What a rate seen on rows may lack for a bound: weights such as 0.1 are no binary fractions, so
that 80 % of their sum is seldom 0.8 to the last bit. No share of a billion rows comes so near to a
bound of two decimals without meeting it."""


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
    share: Fraction = field(init=False, repr=False, compare=False)
    """The value as the fraction its shortest decimal stands for."""

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
        check = _check_nonnegative if self.quantity == "selective_risk" else check_share
        object.__setattr__(self, "share", check(self.parameter, self.value))
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
    def parameter(self) -> str:
        """The name under which models and options take such a bound, such as ``min_tpr``."""
        return f"{'min' if self.is_lower else 'max'}_{self.quantity}"

    @property
    def is_trivial(self) -> bool:
        """Whether every rule meets it."""
        if self.is_lower:
            return self.share <= 0
        return self.quantity != "selective_risk" and self.share >= 1

    @property
    def asks_nothing(self) -> bool:
        """Whether it is a largest FPR of 1: how models that leave OOD rows alone are stated."""
        return self.quantity == "fpr" and self.is_trivial

    @property
    def is_of_one_set(self) -> bool:
        """Whether it is about a single OOD set, called by its name."""
        return self.ood_set not in (None, EACH_SET)

    @property
    def is_of_part(self) -> bool:
        """Whether it is about one group of ID rows, or one OOD set."""
        return self.group is not None or self.is_of_one_set

    def met_by(self, value: float | None, *, within: float = 0.0) -> bool:
        """Return whether a value meets the bound, or lacks at most `within` for it.

        One that is undefined does not.
        """
        if value is None:
            return False
        limit = float(self.value)
        return value >= limit - within if self.is_lower else value <= limit + within

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

    Examples
    --------
    >>> import demur as dm
    >>> model = dm.RejectionModel(dm.ExpectedCost(reject_id=0.2, accept_ood=0.5), ood_prior=0.1)
    >>> sample = dm.Sample([1, 2, 3], [0, 0, 1], [2.5, 4])
    >>> round(dm.tune(sample, model).point.expected_cost, 4)
    0.06
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


Objective = Literal["selective_risk", "tpr", "fpr", "precision"] | ExpectedCost


_NAMED: dict[str, type[RejectionModel]] = {}
"""Models whose class names their parameters."""


class RejectionModel:
    """What a good rule is: the best objective among the rules that keep all bounds.

    Parameters
    ----------
    objective
        ``"selective_risk"`` (the least), ``"tpr"`` (the most), ``"fpr"`` (the least),
        ``"precision"`` (the most) or an `ExpectedCost` (the least).
    bounds
        `Bound` after `Bound`; together they must be met.
    ood_prior
        Share pi of OOD inputs in deployment, in [0, 1). Precision and costs need it; it is never
        guessed.

    Examples
    --------
    >>> model = RejectionModel("selective_risk", [Bound("tpr", at_least=0.8)])
    >>> model
    RejectionModel('selective_risk', [Bound('tpr', at_least=0.8)])
    >>> model.bound("tpr").value, model.cost
    (0.8, None)
    """

    objective: Objective
    bounds: tuple[Bound, ...]
    ood_prior: Number | None

    def __init_subclass__(cls) -> None:
        _NAMED[cls.__name__] = cls

    def __init__(
        self,
        objective: Objective = "selective_risk",
        bounds: Iterable[Bound] = (),
        ood_prior: Number | None = None,
    ) -> None:
        check_kind("bounds", bounds, Iterable)
        asked = tuple(bounds)
        if not (isinstance(objective, ExpectedCost) or objective in COEFFICIENTS):
            raise InvalidInputError(
                f"objective must be one of {list(COEFFICIENTS)} or an ExpectedCost, "
                f"got {objective!r}"
            )
        if not all(isinstance(bound, Bound) for bound in asked):
            raise InvalidInputError(f"bounds must be Bound(...) values, got {asked!r}")
        if ood_prior is not None and not 0 <= exact("ood_prior", ood_prior) < 1:
            raise InvalidInputError(f"ood_prior must be in [0, 1), got {ood_prior}")
        needs = isinstance(objective, ExpectedCost) or any(
            bound.quantity == "precision" for bound in asked
        )
        if needs and ood_prior is None:
            raise InvalidInputError(
                "ood_prior is needed: precision and costs depend on the share of OOD inputs in "
                "deployment, which is never guessed"
            )
        # Past __setattr__, which keeps models from being changed.
        self.__dict__.update(objective=objective, bounds=asked, ood_prior=ood_prior)

    @cached_property
    def cost(self) -> ExpectedCost | None:
        """The costs, if the expected cost is the objective."""
        return self.objective if isinstance(self.objective, ExpectedCost) else None

    @cached_property
    def seeks_most(self) -> bool:
        """Whether the most of the objective is sought, as of the TPR, not the least."""
        return self.objective in ("tpr", "precision")

    @property
    def asked(self) -> tuple[Bound, ...]:
        """The bounds that are worth words."""
        return tuple(bound for bound in self.bounds if not bound.asks_nothing)

    @cached_property
    def every_set(self) -> bool:
        """Whether OOD sets are bounded one by one."""
        return any(bound.ood_set == EACH_SET for bound in self.bounds)

    @property
    def names_sets(self) -> bool:
        """Whether any bound is about an OOD set called by its name."""
        return any(bound.is_of_one_set for bound in self.bounds)

    @property
    def of_all_rows(self) -> RejectionModel:
        """The model without bounds on single groups and sets."""
        if not any(bound.is_of_part for bound in self.bounds):
            return self
        whole = (bound for bound in self.bounds if not bound.is_of_part)
        return RejectionModel(self.objective, whole, self.ood_prior)

    def bound(self, quantity: Quantity) -> Bound | None:
        """Return the bound on a quantity of all rows, None if there is none."""
        found = (b for b in self.bounds if b.quantity == quantity and b.group is None)
        return next((b for b in found if b.ood_set in (None, EACH_SET)), None)

    def word(self, bound: Bound) -> str:
        """Return what the model calls a bounded quantity: beside precision, TPR is recall."""
        beside_precision = bound.quantity == "tpr" and self.bound("precision") is not None
        return "recall" if beside_precision else bound.quantity

    def of_every_set(self) -> RejectionModel:
        """Return the model with what it asks of OOD rows asked of every set of them."""
        bounds = (
            replace(b, ood_set=EACH_SET)
            if b.quantity in ("fpr", "precision") and b.ood_set is None
            else b
            for b in self.bounds
        )
        return RejectionModel(self.objective, bounds, self.ood_prior)

    def of_set(self, name: str) -> RejectionModel:
        """Return the model for the rows of one OOD set, without what it asks of others."""
        if all(bound.ood_set == name or not bound.is_of_one_set for bound in self.bounds):
            return self
        kept = (b for b in self.bounds if b.ood_set == name or not b.is_of_one_set)
        return RejectionModel(self.objective, kept, self.ood_prior)

    def moved(self, bound: Bound, value: Number) -> RejectionModel:
        """Return the model with one of its bounds at another value."""
        bounds = (b.moved_to(value) if b == bound else b for b in self.bounds)
        return RejectionModel(self.objective, bounds, self.ood_prior)

    def without(self, bound: Bound) -> RejectionModel:
        """Return the model without one of its bounds."""
        bounds = (b for b in self.bounds if b != bound)
        return RejectionModel(self.objective, bounds, self.ood_prior)

    def program(self, totals: Totals) -> Program:
        """Lower objective and bounds to integers on a sample with these totals."""
        return lower(self, totals)

    def check_rows(self, totals: Totals) -> None:
        """Refuse bounds that these rows can say nothing about."""
        fpr = self.bound("fpr")
        if fpr is not None and not fpr.is_trivial and sum(totals.ood) == 0:
            raise InvalidInputError(
                f"max_fpr is {fpr.value} but there are no OOD rows to have an FPR: give OOD "
                "scores, or max_fpr=1 for a rule that knows ID inputs only"
            )

    def to_data(self) -> dict[str, Any]:
        """Return the model as plain data, which `from_data` reads."""
        named = getattr(type(self), "__dataclass_fields__", {})
        if named:
            return {"name": type(self).__name__} | {n: float(getattr(self, n)) for n in named}
        cost, prior = self.cost, self.ood_prior
        return {
            "name": "RejectionModel",
            "objective": self.objective
            if cost is None
            else {f.name: float(getattr(cost, f.name)) for f in fields(cost)},
            "bounds": [bound.to_data() for bound in self.bounds],
            "ood_prior": None if prior is None else float(prior),
        }

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> RejectionModel:
        """Read what `to_data` returned."""
        given = dict(data)
        name = given.pop("name", None)
        try:
            if name in _NAMED:
                return _NAMED[name](**given)
            if name != "RejectionModel":
                raise InvalidInputError(f"there is no rejection model called {name!r}")
            objective = given["objective"]
            if isinstance(objective, Mapping):
                objective = ExpectedCost(**objective)
            bounds = [Bound(**bound) for bound in given["bounds"]]
            return RejectionModel(objective, bounds, given["ood_prior"])
        except (TypeError, KeyError) as error:
            raise InvalidInputError(f"the model {name} has a wrong entry: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RejectionModel) and self._meaning() == other._meaning()

    def __hash__(self) -> int:
        return hash(self._meaning())

    def _meaning(self) -> tuple[Objective, frozenset[Bound], Number | None]:
        return self.objective, frozenset(self.bounds), self.ood_prior

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"models do not change: {name} cannot be set")

    def __repr__(self) -> str:
        prior = "" if self.ood_prior is None else f", ood_prior={self.ood_prior!r}"
        return f"RejectionModel({self.objective!r}, {list(self.bounds)!r}{prior})"


def check_model(model: object) -> None:
    """Refuse what is no rejection model."""
    if not isinstance(model, RejectionModel):
        raise InvalidInputError(
            f"model must be a rejection model such as TprFprModel(0.8, 0.1), got {model!r}"
        )


def check_share(name: str, value: Number) -> Fraction:
    """Return a share as the fraction its shortest decimal stands for; refuse what is none."""
    share = exact(name, value)
    if not 0 <= share <= 1:
        raise InvalidInputError(f"{name} must be in [0, 1], got {value}")
    return share


def _check_nonnegative(name: str, value: Number) -> Fraction:
    share = exact(name, value)
    if share < 0:
        raise InvalidInputError(f"{name} must be at least 0, got {value}")
    return share


@dataclass(frozen=True, eq=False)
class CostModel(RejectionModel):
    """Minimise the expected cost (Definition 1 of the paper).

    ``(1-pi) E_ID[l c + reject_id (1-c)] + pi E_OOD[accept_ood c + reject_ood (1-c)]``

    With ``ood_prior=0`` this is Chow's rule, whose only parameter is `reject_id`.

    Parameters
    ----------
    reject_id, accept_ood, reject_ood
        Costs eps1, eps2, eps3 of rejecting an ID input, accepting an OOD input and rejecting
        an OOD input; at least 0, and `accept_ood` at least `reject_ood`. By default 1 and 0.
    ood_prior
        Share pi of OOD inputs in deployment, in [0, 1); 0 by default, unless there are costs of
        OOD inputs, which mean nothing without it.

    Examples
    --------
    >>> CostModel(reject_id=0.1, accept_ood=2, ood_prior=0.25).cost
    ExpectedCost(reject_id=0.1, accept_ood=2, reject_ood=0)
    """

    reject_id: Number
    accept_ood: Number = None  # type: ignore[assignment]
    reject_ood: Number = None  # type: ignore[assignment]
    ood_prior: Number = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        given: tuple[Number | None, ...] = (self.accept_ood, self.reject_ood, self.ood_prior)
        if given[2] is None and given[:2] != (None, None):
            raise InvalidInputError(
                "costs of OOD inputs need ood_prior, the share of OOD inputs in deployment; with "
                "ood_prior=0 they do not count"
            )
        for name, value in (("accept_ood", 1), ("reject_ood", 0), ("ood_prior", 0)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        cost = ExpectedCost(self.reject_id, self.accept_ood, self.reject_ood)
        super().__init__(cost, (), self.ood_prior)


@dataclass(frozen=True, eq=False)
class TprFprModel(RejectionModel):
    """Minimise the selective risk with TPR >= `min_tpr` and FPR <= `max_fpr` (Definition 2).

    ``max_fpr=1`` is the bounded-abstention model; a smaller bound needs OOD rows.

    Parameters
    ----------
    min_tpr, max_fpr
        phi_min and rho_max in [0, 1]. A float means its shortest decimal, so 0.07 of 100 rows
        is 7 rows.

    Examples
    --------
    >>> TprFprModel(min_tpr=0.8, max_fpr=0.1).bounds
    (Bound('tpr', at_least=0.8), Bound('fpr', at_most=0.1))
    """

    min_tpr: Number
    max_fpr: Number = 1

    def __post_init__(self) -> None:
        check_share("min_tpr", self.min_tpr)
        check_share("max_fpr", self.max_fpr)
        bounds = Bound("tpr", at_least=self.min_tpr), Bound("fpr", at_most=self.max_fpr)
        super().__init__("selective_risk", bounds)


@dataclass(frozen=True, eq=False)
class PrecisionRecallModel(RejectionModel):
    """Minimise the selective risk with bounded precision and recall (Definition 3).

    Precision is ``(1-pi) TPR / ((1-pi) TPR + pi FPR)`` at the declared prior pi; recall is the
    TPR.

    Parameters
    ----------
    min_precision, min_recall
        kappa_min and phi_min in [0, 1].
    ood_prior
        Share pi of OOD inputs in deployment, in [0, 1).

    Examples
    --------
    >>> PrecisionRecallModel(min_precision=0.95, min_recall=0.8, ood_prior=0.1).bounds
    (Bound('precision', at_least=0.95), Bound('tpr', at_least=0.8))
    """

    min_precision: Number
    min_recall: Number
    ood_prior: Number

    def __post_init__(self) -> None:
        check_share("min_precision", self.min_precision)
        check_share("min_recall", self.min_recall)
        bounds = (
            Bound("precision", at_least=self.min_precision),
            Bound("tpr", at_least=self.min_recall),
        )
        super().__init__("selective_risk", bounds, self.ood_prior)


@dataclass(frozen=True, eq=False)
class RiskFprModel(RejectionModel):
    """Accept as much ID as possible with bounded selective risk and FPR.

    The bounded-improvement model with OOD inputs: *at most 1 % wrong answers, answer as many as
    you can*. ``max_fpr=1`` bounds the risk alone; a smaller bound needs OOD rows.

    Parameters
    ----------
    max_selective_risk
        The largest mean loss of the accepted ID, at least 0.
    max_fpr
        rho_max in [0, 1].

    Examples
    --------
    >>> RiskFprModel(max_selective_risk=0.01, max_fpr=0.1).bounds
    (Bound('selective_risk', at_most=0.01), Bound('fpr', at_most=0.1))
    """

    max_selective_risk: Number
    max_fpr: Number = 1

    def __post_init__(self) -> None:
        check_share("max_fpr", self.max_fpr)
        bounds = (
            Bound("selective_risk", at_most=self.max_selective_risk),
            Bound("fpr", at_most=self.max_fpr),
        )
        super().__init__("tpr", bounds)
