"""Rejection models: an objective and bounds, and how they become an integer `Program`.

A `RejectionModel` is data. The paper's models are subclasses that only name their parameters; what
any model means (its words, its JSON, what certifies it, what to say when it is out of reach) is
derived from `objective` and `bounds`, never from the class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Literal

from demur.core.bounds import EACH_SET, Bound, ExpectedCost, Quantity, check_share
from demur.core.program import (
    Number,
    Program,
    Totals,
    at_least,
    at_most,
    exact,
    integer_coefficients,
    quotient_bound,
)
from demur.errors import InvalidInputError

Objective = Literal["selective_risk", "tpr", "fpr", "precision"] | ExpectedCost


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
    >>> model == TprFprModel(min_tpr=0.8), model.bound("tpr").value
    (False, 0.8)
    """

    objective: Objective
    bounds: tuple[Bound, ...]
    ood_prior: Number | None

    def __init__(
        self,
        objective: Objective = "selective_risk",
        bounds: Iterable[Bound] = (),
        ood_prior: Number | None = None,
    ) -> None:
        asked = tuple(bounds)
        if not (isinstance(objective, ExpectedCost) or objective in _COEFFICIENTS):
            raise InvalidInputError(
                f"objective must be one of {list(_COEFFICIENTS)} or an ExpectedCost, "
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

    @property
    def cost(self) -> ExpectedCost | None:
        """The costs, if the expected cost is the objective."""
        return self.objective if isinstance(self.objective, ExpectedCost) else None

    @property
    def every_set(self) -> bool:
        """Whether OOD sets are bounded one by one."""
        return any(bound.ood_set == EACH_SET for bound in self.bounds)

    def bound(self, quantity: Quantity) -> Bound | None:
        """Return the bound on a quantity of all rows, None if there is none."""
        found = (b for b in self.bounds if b.quantity == quantity and b.group is None)
        return next((b for b in found if b.ood_set in (None, EACH_SET)), None)

    def word(self, bound: Bound) -> str:
        """Return what the model calls a bounded quantity: beside precision, TPR is recall."""
        beside_precision = bound.quantity == "tpr" and self.bound("precision") is not None
        return "recall" if beside_precision else bound.quantity

    def moved(self, bound: Bound, value: Number) -> RejectionModel:
        """Return the model with one of its bounds at another value."""
        bounds = (b.moved_to(value) if b == bound else b for b in self.bounds)
        return RejectionModel(self.objective, bounds, self.ood_prior)

    def program(self, totals: Totals) -> Program:
        """Lower objective and bounds to integers on a sample with these totals."""
        self._check_searchable(totals)
        loss, id_, ood, per_id, scale, offset = self._coefficients(totals)
        return Program(
            *(loss, id_, ood, per_id),
            min_id=self._min_id(totals),
            max_ood=tuple(self._max_ood(total, totals) for total in totals.ood),
            ratio=tuple(self._ratio(total, totals) for total in totals.ood),
            reject_all=self.cost is not None and not any(b.is_lower for b in self.bounds),
            scale=scale,
            offset=offset,
        )

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

    def _check_searchable(self, totals: Totals) -> None:
        """Refuse what the rows cannot answer, and what no search can do."""
        for bound in self.bounds:
            named_set = bound.ood_set not in (None, EACH_SET)
            if bound.quantity == "selective_risk" or bound.group is not None or named_set:
                raise InvalidInputError(f"no search keeps {bound!r} yet; it can only be stated")
            if bound.is_lower == (bound.quantity == "fpr"):
                raise InvalidInputError(f"no search keeps {bound!r}: it asks for a worse rule")
        if self.cost is not None and len(totals.ood) > 1:
            raise InvalidInputError(
                'CostModel has no FPR bound for ood="worst" to apply to; use ood="pooled" '
                "or tune for one OOD set"
            )
        if sum(totals.ood) or not exact("ood_prior", self.ood_prior or 0):
            return
        about = "" if self.bound("precision") is None else ", so precision cannot be estimated"
        raise InvalidInputError(
            f"ood_prior is {self.ood_prior} but the sample has no OOD rows{about}: "
            "give OOD scores, or ood_prior=0"
        )

    def _coefficients(self, totals: Totals) -> tuple[int, int, int, bool, float, float]:
        """Return loss, id, ood, per_id, scale and offset of the program."""
        if self.cost is not None:
            return _cost_coefficients(self.cost, exact("ood_prior", self.ood_prior), totals)
        risk_unit = 2.0 ** (totals.id_exponent - totals.loss_exponent)
        units = {
            "selective_risk": risk_unit,
            "tpr": 1 / totals.id,
            "fpr": 1 / max(1, sum(totals.ood)),
            "precision": 1.0,
        }
        name = str(self.objective)
        return *_COEFFICIENTS[name], units[name], 0.0

    def _min_id(self, totals: Totals) -> int:
        asked = [
            at_least(bound.share, totals.id, totals.id_rounding)
            for bound in self.bounds
            if bound.quantity == "tpr"
        ]
        # Rates of accepting nothing are undefined, so some ID mass is always asked for.
        return max([0 if self.cost is not None else 1, *asked])

    def _max_ood(self, total: int, totals: Totals) -> int:
        asked = [b.share for b in self.bounds if b.quantity == "fpr"]
        return min([total, *(at_most(share, total, totals.ood_rounding) for share in asked)])

    def _ratio(self, total: int, totals: Totals) -> tuple[int, int]:
        """Lower precision to a bound on the quotient of accepted OOD and ID mass."""
        bound = self.bound("precision")
        prior = exact("ood_prior", self.ood_prior or 0)
        if bound is None or prior == 0 or bound.share == 0:
            return 0, 0
        most = (1 - prior) * (1 - bound.share) * total / (prior * bound.share * totals.id)
        slack = Fraction(4 * max(totals.id_rounding, totals.ood_rounding), 2**52)
        return quotient_bound(most * (1 + slack), total, totals.id)

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


_NAMED: dict[str, type[RejectionModel]] = {
    model.__name__: model for model in (CostModel, TprFprModel, PrecisionRecallModel)
}

# What is minimised, as coefficients (loss, id, ood, per_id) of the program.
_COEFFICIENTS: dict[str, tuple[int, int, int, bool]] = {
    "selective_risk": (1, 0, 0, True),
    "tpr": (0, -1, 0, False),
    "fpr": (0, 0, 1, False),
    # The most ID among the accepted is the least OOD per ID, at any prior.
    "precision": (0, 0, 1, True),
}


def _cost_coefficients(
    cost: ExpectedCost, prior: Fraction, totals: Totals
) -> tuple[int, int, int, bool, float, float]:
    reject_id, reject_ood = (
        exact("reject_id", cost.reject_id),
        exact("reject_ood", cost.reject_ood),
    )
    ood_step = exact("accept_ood", cost.accept_ood) - reject_ood
    (loss, id_, ood), unit = integer_coefficients(
        (1 - prior) * Fraction(2) ** (totals.id_exponent - totals.loss_exponent) / totals.id,
        -(1 - prior) * reject_id / totals.id,
        prior * ood_step / totals.ood[0] if prior else Fraction(0),
    )
    return loss, id_, ood, False, unit, float((1 - prior) * reject_id + prior * reject_ood)
