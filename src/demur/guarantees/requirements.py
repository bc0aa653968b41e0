"""The bounds of a model as tests on fresh counts, and as safer bounds to learn under."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from demur.core.models import PrecisionRecallModel, TprFprModel
from demur.guarantees.intervals import fewest_for, most_for, rate_lower, rate_upper

# Shares of the level that the TPR side of a precision test may get.
_ALLOTMENTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of ID and OOD rows to learn on and to test on."""

    learn_id: int
    learn_ood: int
    test_id: int
    test_ood: int


@dataclass(frozen=True, slots=True)
class TprFprRequirement:
    """TPR at least and FPR at most a bound: both one-sided exact tests, each at delta.

    No level is shared between the two: the claim is made only if both reject, and when a bound
    fails its own test rejects with probability at most delta (an intersection-union test).
    """

    model: TprFprModel
    sizes: Sizes
    delta: float

    def proven(self, accepted_id: int, accepted_ood: int) -> bool:
        """Return whether fresh counts prove both bounds; false by at most delta if one fails."""
        min_tpr, max_fpr = float(self.model.min_tpr), float(self.model.max_fpr)
        return rate_lower(accepted_id, self.sizes.test_id, self.delta) >= min_tpr and (
            rate_upper(accepted_ood, self.sizes.test_ood, self.delta) <= max_fpr
        )

    def tightened(self, margin: float) -> TprFprModel | None:
        """Return bounds that, met when learning, are proven with `margin` standard errors to spare.

        None when no counts are that good.
        """
        tpr = safe_tpr(float(self.model.min_tpr), self.sizes, self.delta, margin)
        fpr = safe_fpr(float(self.model.max_fpr), self.sizes, self.delta, margin)
        if tpr is None or fpr is None:
            return None
        return TprFprModel(min_tpr=tpr, max_fpr=fpr)


@dataclass(frozen=True, slots=True)
class PrecisionRecallRequirement:
    """Recall at least a bound, and ``FPR <= slope * TPR``, which is the bound on precision.

    The recall test has level delta. The precision test bounds TPR from below and FPR from
    above on two independent samples, at levels that multiply up to delta; `allotment` is the
    share of the TPR side and must not depend on the rows tested.
    """

    model: PrecisionRecallModel
    sizes: Sizes
    delta: float
    slope: float
    allotment: float
    expected_tpr: float
    """Where along the ray the rule is expected to lie; a guess."""

    @classmethod
    def of(
        cls, model: PrecisionRecallModel, sizes: Sizes, delta: float, tpr: float
    ) -> PrecisionRecallRequirement:
        """Choose the allotment that asks for the least where the TPR is near `tpr`."""
        prior, precision = float(model.ood_prior), float(model.min_precision)
        slope = math.inf
        if prior > 0 and precision > 0:
            slope = (1 - prior) * (1 - precision) / (prior * precision)
        made = [cls(model, sizes, delta, slope, allotment, tpr) for allotment in _ALLOTMENTS]
        return max(made, key=lambda one: one._accepted_ood_allowed(round(tpr * sizes.test_id)))

    def proven(self, accepted_id: int, accepted_ood: int) -> bool:
        """Return whether fresh counts prove both bounds; false by at most delta if one fails."""
        recall = rate_lower(accepted_id, self.sizes.test_id, self.delta)
        return recall >= float(self.model.min_recall) and (
            accepted_ood <= self._accepted_ood_allowed(accepted_id)
        )

    def tightened(self, margin: float) -> PrecisionRecallModel | None:
        """Return bounds that, met when learning, are proven with `margin` standard errors to spare.

        The slope is shifted by standard errors of ``FPR - slope * TPR``. None when no counts are
        that good.
        """
        recall = safe_tpr(float(self.model.min_recall), self.sizes, self.delta, margin)
        if recall is None:
            return None
        if math.isinf(self.slope):
            return replace(self.model, min_recall=recall)
        if self._accepted_ood_allowed(self.sizes.test_id) < 0:
            return None
        tpr = max(recall, self.expected_tpr)
        allowed = max(0, self._accepted_ood_allowed(round(tpr * self.sizes.test_id)))
        fpr = min(1.0, self.slope * tpr)
        spread = math.hypot(
            _spread(fpr, self.sizes.learn_ood, self.sizes.test_ood),
            self.slope * _spread(tpr, self.sizes.learn_id, self.sizes.test_id),
        )
        safe = (allowed / self.sizes.test_ood - margin * spread) / tpr
        if safe < 0:
            return None
        prior = float(self.model.ood_prior)
        precision = (1 - prior) / (1 - prior + prior * safe)
        return replace(
            self.model,
            min_recall=recall,
            min_precision=max(precision, float(self.model.min_precision)),
        )

    def _accepted_ood_allowed(self, accepted_id: int) -> int:
        """Return the most accepted OOD rows that still prove the precision, -1 for none."""
        if math.isinf(self.slope):
            return self.sizes.test_ood
        id_level = self.allotment * self.delta
        ood_level = 1 - (1 - self.delta) / (1 - id_level)
        largest = self.slope * rate_lower(accepted_id, self.sizes.test_id, id_level)
        if largest >= 1:
            return self.sizes.test_ood
        most = most_for(largest, self.sizes.test_ood, ood_level)
        return -1 if most is None else most


Requirement = TprFprRequirement | PrecisionRecallRequirement
"""Bounds that fresh counts prove, or not, by a test of level delta."""


def safe_tpr(bound: float, sizes: Sizes, delta: float, margin: float) -> float | None:
    """Return the TPR to ask for when learning, so that `bound` is proven with margin."""
    if bound == 0:
        return 0.0
    needed = fewest_for(bound, sizes.test_id, delta)
    if needed is None:
        return None
    safe = needed / sizes.test_id + margin * _spread(bound, sizes.learn_id, sizes.test_id)
    return max(safe, bound) if safe <= 1 else None


def safe_fpr(bound: float, sizes: Sizes, delta: float, margin: float) -> float | None:
    """Return the FPR to ask for when learning, so that `bound` is proven with margin."""
    if bound == 1:
        return 1.0
    most = most_for(bound, sizes.test_ood, delta) if sizes.test_ood else None
    if most is None:
        return None
    safe = most / sizes.test_ood - margin * _spread(bound, sizes.learn_ood, sizes.test_ood)
    return min(safe, bound) if safe >= 0 else None


def _spread(rate: float, learned: int, tested: int) -> float:
    """Return the standard error of a rate seen on `learned` rows and again on `tested` rows."""
    return math.sqrt(rate * (1 - rate) * (1 / max(learned, 1) + 1 / tested))
