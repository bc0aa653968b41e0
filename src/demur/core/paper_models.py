"""The paper's three models and one more: classes that only name objective and bounds."""

from __future__ import annotations

from dataclasses import dataclass

from demur.core.models import Bound, ExpectedCost, RejectionModel, check_share
from demur.core.program import Number
from demur.errors import InvalidInputError


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
