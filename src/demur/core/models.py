"""The paper's three rejection models, as immutable values that lower themselves to a Program."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

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


class RejectionModel(Protocol):
    """What a good rule is: anything that lowers itself to a `Program`."""

    def program(self, totals: Totals) -> Program:
        """Return the integer objective and bounds on a sample with these totals."""
        ...


@dataclass(frozen=True, slots=True)
class CostModel:
    """Minimise the expected cost (Definition 1 of the paper).

    ``(1-pi) E_ID[l c + reject_id (1-c)] + pi E_OOD[accept_ood c + reject_ood (1-c)]``

    With ``ood_prior=0`` this is Chow's rule, whose only parameter is `reject_id`.

    Parameters
    ----------
    reject_id, accept_ood, reject_ood
        Costs eps1, eps2, eps3 of rejecting an ID input, accepting an OOD input and rejecting
        an OOD input; at least 0, and `accept_ood` at least `reject_ood`.
    ood_prior
        Share pi of OOD inputs in deployment, in [0, 1).
    """

    reject_id: Number
    accept_ood: Number = 1
    reject_ood: Number = 0
    ood_prior: Number = 0

    def __post_init__(self) -> None:
        for name in ("reject_id", "accept_ood", "reject_ood"):
            if exact(name, getattr(self, name)) < 0:
                raise InvalidInputError(f"{name} must be at least 0, got {getattr(self, name)}")
        if exact("accept_ood", self.accept_ood) < exact("reject_ood", self.reject_ood):
            raise InvalidInputError(
                f"accept_ood ({self.accept_ood}) must be at least reject_ood ({self.reject_ood}): "
                "accepting an OOD input cannot be cheaper than rejecting it"
            )
        _check_prior(self.ood_prior)

    def program(self, totals: Totals) -> Program:
        """Lower to integers; several OOD sets have no common cost and are refused."""
        if len(totals.ood) > 1:
            raise InvalidInputError(
                'CostModel has no FPR bound for ood="worst" to apply to; use ood="pooled" '
                "or tune for one OOD set"
            )
        prior = exact("ood_prior", self.ood_prior)
        if prior > 0 and totals.ood[0] == 0:
            raise InvalidInputError(
                f"ood_prior is {self.ood_prior} but the sample has no OOD rows: "
                "give OOD scores, or ood_prior=0"
            )
        ood_step = exact("accept_ood", self.accept_ood) - exact("reject_ood", self.reject_ood)
        reject_id = exact("reject_id", self.reject_id)
        (loss, id_, ood), unit = integer_coefficients(
            (1 - prior) * Fraction(2) ** (totals.id_exponent - totals.loss_exponent) / totals.id,
            -(1 - prior) * reject_id / totals.id,
            prior * ood_step / totals.ood[0] if prior else Fraction(0),
        )
        return Program(
            loss,
            id_,
            ood,
            per_id=False,
            min_id=0,
            max_ood=totals.ood,
            ratio=((0, 0),),
            reject_all=True,
            scale=unit,
            offset=float((1 - prior) * reject_id + prior * exact("reject_ood", self.reject_ood)),
        )


@dataclass(frozen=True, slots=True)
class TprFprModel:
    """Minimise the selective risk with TPR >= `min_tpr` and FPR <= `max_fpr` (Definition 2).

    ``max_fpr=1`` (or a sample without OOD rows) is the bounded-abstention model.

    Parameters
    ----------
    min_tpr, max_fpr
        phi_min and rho_max in [0, 1]. A float means its shortest decimal, so 0.07 of 100 rows
        is 7 rows.
    """

    min_tpr: Number
    max_fpr: Number = 1

    def __post_init__(self) -> None:
        _check_share("min_tpr", self.min_tpr)
        _check_share("max_fpr", self.max_fpr)

    def program(self, totals: Totals) -> Program:
        """Lower the bounds to "at least ceil" ID and "at most floor" OOD rows."""
        max_fpr = exact("max_fpr", self.max_fpr)
        return Program(
            *_SELECTIVE_RISK,
            min_id=_required_id("min_tpr", self.min_tpr, totals),
            max_ood=tuple(at_most(max_fpr, ood, totals.ood_rounding) for ood in totals.ood),
            ratio=((0, 0),) * len(totals.ood),
            scale=_risk_unit(totals),
        )


@dataclass(frozen=True, slots=True)
class PrecisionRecallModel:
    """Minimise the selective risk with bounded precision and recall (Definition 3).

    Precision is ``(1-pi) TPR / ((1-pi) TPR + pi FPR)`` at the declared prior pi; recall is the
    TPR.

    Parameters
    ----------
    min_precision, min_recall
        kappa_min and phi_min in [0, 1].
    ood_prior
        Share pi of OOD inputs in deployment, in [0, 1).
    """

    min_precision: Number
    min_recall: Number
    ood_prior: Number

    def __post_init__(self) -> None:
        _check_share("min_precision", self.min_precision)
        _check_share("min_recall", self.min_recall)
        _check_prior(self.ood_prior)

    def program(self, totals: Totals) -> Program:
        """Lower precision to a bound on the quotient of accepted OOD and ID rows."""
        if exact("ood_prior", self.ood_prior) > 0 and sum(totals.ood) == 0:
            raise InvalidInputError(
                f"ood_prior is {self.ood_prior} but the sample has no OOD rows, so precision "
                "cannot be estimated: give OOD scores, or ood_prior=0"
            )
        return Program(
            *_SELECTIVE_RISK,
            min_id=_required_id("min_recall", self.min_recall, totals),
            max_ood=totals.ood,
            ratio=tuple(self._ratio(totals, ood) for ood in totals.ood),
            scale=_risk_unit(totals),
        )

    def _ratio(self, totals: Totals, ood: int) -> tuple[int, int]:
        prior = exact("ood_prior", self.ood_prior)
        precision = exact("min_precision", self.min_precision)
        if prior == 0 or precision == 0:
            return 0, 0
        bound = (1 - prior) * (1 - precision) * ood / (prior * precision * totals.id)
        slack = Fraction(4 * max(totals.id_rounding, totals.ood_rounding), 2**52)
        return quotient_bound(bound * (1 + slack), ood, totals.id)


# Objective L / nI as (loss, id, ood, per_id).
_SELECTIVE_RISK = (1, 0, 0, True)


def _risk_unit(totals: Totals) -> float:
    return 2.0 ** (totals.id_exponent - totals.loss_exponent)


def _required_id(name: str, share: Number, totals: Totals) -> int:
    # The selective risk of accepting nothing is undefined, so some ID mass is always asked for.
    return max(1, at_least(exact(name, share), totals.id, totals.id_rounding))


def _check_share(name: str, value: Number) -> None:
    if not 0 <= exact(name, value) <= 1:
        raise InvalidInputError(f"{name} must be in [0, 1], got {value}")


def _check_prior(value: Number) -> None:
    if not 0 <= exact("ood_prior", value) < 1:
        raise InvalidInputError(f"ood_prior must be in [0, 1), got {value}")
