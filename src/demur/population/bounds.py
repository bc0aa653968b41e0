"""Bounds of a rejection model on (TPR, FPR), for known distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from demur._arrays import FloatArray
from demur.core.models import PrecisionRecallModel, RejectionModel, TprFprModel
from demur.core.program import exact
from demur.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Bounds:
    """tpr >= min_tpr, fpr <= max_fpr and fpr <= max_ratio * tpr."""

    min_tpr: float
    max_fpr: float
    max_ratio: float

    @classmethod
    def of(cls, model: RejectionModel) -> Bounds:
        """Lower a bounded model; precision >= kappa is FPR <= (1-pi)(1-kappa)/(pi kappa) TPR."""
        if isinstance(model, TprFprModel):
            return cls(float(model.min_tpr), float(model.max_fpr), math.inf)
        if isinstance(model, PrecisionRecallModel):
            prior = exact("ood_prior", model.ood_prior)
            kappa = exact("min_precision", model.min_precision)
            if prior == 0 or kappa == 0:
                return cls(float(model.min_recall), 1.0, math.inf)
            ratio = (1 - prior) * (1 - kappa) / (prior * kappa)
            return cls(float(model.min_recall), 1.0, float(ratio))
        raise InvalidInputError(
            "model must be CostModel, TprFprModel or PrecisionRecallModel, "
            f"got {type(model).__name__}"
        )

    @property
    def ratio(self) -> float:
        """The largest FPR / TPR when TPR is as small as allowed (in the limit, if that is 0)."""
        if self.max_fpr == 0:
            return 0.0
        quotient = self.max_fpr / self.min_tpr if self.min_tpr > 0 else math.inf
        return min(self.max_ratio, quotient)


def quotient(part: FloatArray, whole: FloatArray) -> FloatArray:
    """Return part / whole, NaN where the whole is nothing."""
    undefined = np.full(np.shape(whole), np.nan)
    return np.asarray(np.divide(part, whole, out=undefined, where=np.asarray(whole) > 0))


def precision(tpr: FloatArray, fpr: FloatArray, ood_prior: float) -> FloatArray:
    """Return ``(1-pi) TPR / ((1-pi) TPR + pi FPR)``, NaN where nothing is accepted."""
    accepted_id = (1 - ood_prior) * tpr
    return quotient(accepted_id, accepted_id + ood_prior * fpr)
