"""The bounds of a model as tests on fresh counts, and as safer bounds to learn under.

Every quantity that can be proven has a test of its own, of level delta. No level is shared among
them: the claim is made only if all reject, and when a bound fails its own test rejects with
probability at most delta (an intersection-union test).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from demur.core.models import Bound, RejectionModel
from demur.core.program import Number
from demur.core.wording import bound_text
from demur.errors import InvalidInputError
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


class BoundTest(Protocol):
    """How fresh counts prove one bound."""

    @property
    def bound(self) -> Bound:
        """What is to be proven."""

    def proven(self, accepted_id: int, accepted_ood: int, sizes: Sizes, delta: float) -> bool:
        """Return whether counts prove the bound; false by at most delta if it fails."""

    def safer(self, margin: float, tpr: float, sizes: Sizes, delta: float) -> Number | None:
        """Return the value to learn under so that the test is passed with margin.

        The margin is in standard errors, `tpr` is what is asked of the TPR. None when no counts
        are that good.
        """


@dataclass(frozen=True, slots=True)
class TprTest:
    """TPR at least a bound: the one-sided exact test."""

    bound: Bound

    def proven(self, accepted_id: int, accepted_ood: int, sizes: Sizes, delta: float) -> bool:
        """Look at the ID rows."""
        return rate_lower(accepted_id, sizes.test_id, delta) >= float(self.bound.value)

    def safer(self, margin: float, tpr: float, sizes: Sizes, delta: float) -> float | None:
        """Ask for what the test needs, and the margin."""
        bound = float(self.bound.value)
        if bound == 0:
            return 0.0
        needed = fewest_for(bound, sizes.test_id, delta)
        if needed is None:
            return None
        safe = needed / sizes.test_id + margin * _spread(bound, sizes.learn_id, sizes.test_id)
        return max(safe, bound) if safe <= 1 else None


@dataclass(frozen=True, slots=True)
class FprTest:
    """FPR at most a bound: the one-sided exact test."""

    bound: Bound

    def proven(self, accepted_id: int, accepted_ood: int, sizes: Sizes, delta: float) -> bool:
        """Look at the OOD rows."""
        return rate_upper(accepted_ood, sizes.test_ood, delta) <= float(self.bound.value)

    def safer(self, margin: float, tpr: float, sizes: Sizes, delta: float) -> float | None:
        """Ask for what the test needs, and the margin."""
        bound = float(self.bound.value)
        if bound == 1:
            return 1.0
        most = most_for(bound, sizes.test_ood, delta) if sizes.test_ood else None
        if most is None:
            return None
        safe = most / sizes.test_ood - margin * _spread(bound, sizes.learn_ood, sizes.test_ood)
        return min(safe, bound) if safe >= 0 else None


@dataclass(frozen=True, slots=True)
class PrecisionTest:
    """``FPR <= slope * TPR``, which is the bound on precision.

    TPR is bounded from below and FPR from above on two independent samples, at levels that
    multiply up to delta; `allotment` is the share of the TPR side and must not depend on the rows
    tested.
    """

    bound: Bound
    prior: float
    slope: float
    allotment: float
    expected_tpr: float
    """Where along the ray the rule is expected to lie; a guess."""

    @classmethod
    def of(
        cls, bound: Bound, prior: float, sizes: Sizes, delta: float, tpr: float
    ) -> PrecisionTest:
        """Choose the allotment that asks for the least where the TPR is near `tpr`."""
        slope, precision = math.inf, float(bound.value)
        if prior > 0 and precision > 0:
            slope = (1 - prior) * (1 - precision) / (prior * precision)
        made = [cls(bound, prior, slope, allotment, tpr) for allotment in _ALLOTMENTS]
        near = round(tpr * sizes.test_id)
        return max(made, key=lambda one: one._accepted_ood_allowed(near, sizes, delta))

    def proven(self, accepted_id: int, accepted_ood: int, sizes: Sizes, delta: float) -> bool:
        """Look at both sides."""
        return accepted_ood <= self._accepted_ood_allowed(accepted_id, sizes, delta)

    def safer(self, margin: float, tpr: float, sizes: Sizes, delta: float) -> Number | None:
        """Shift the slope by standard errors of ``FPR - slope * TPR``."""
        if math.isinf(self.slope):
            return self.bound.value
        if self._accepted_ood_allowed(sizes.test_id, sizes, delta) < 0:
            return None
        tpr = max(tpr, self.expected_tpr)
        allowed = max(0, self._accepted_ood_allowed(round(tpr * sizes.test_id), sizes, delta))
        spread = math.hypot(
            _spread(min(1.0, self.slope * tpr), sizes.learn_ood, sizes.test_ood),
            self.slope * _spread(tpr, sizes.learn_id, sizes.test_id),
        )
        safe = (allowed / sizes.test_ood - margin * spread) / tpr
        if safe < 0:
            return None
        precision = (1 - self.prior) / (1 - self.prior + self.prior * safe)
        return max(precision, float(self.bound.value))

    def _accepted_ood_allowed(self, accepted_id: int, sizes: Sizes, delta: float) -> int:
        """Return the most accepted OOD rows that still prove the precision, -1 for none."""
        if math.isinf(self.slope):
            return sizes.test_ood
        id_level = self.allotment * delta
        ood_level = 1 - (1 - delta) / (1 - id_level)
        largest = self.slope * rate_lower(accepted_id, sizes.test_id, id_level)
        if largest >= 1:
            return sizes.test_ood
        most = most_for(largest, sizes.test_ood, ood_level)
        return -1 if most is None else most


Maker = Callable[[Bound, float, Sizes, float, float], BoundTest]
"""Of the bound, the prior, the sizes, delta and the TPR that is expected."""

_TESTS: Mapping[tuple[str, bool], Maker] = {
    ("tpr", True): lambda bound, *_: TprTest(bound),
    ("fpr", False): lambda bound, *_: FprTest(bound),
    ("precision", True): PrecisionTest.of,
}
"""By quantity, and whether it is bounded from below."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """The bounds of a model, that fresh counts prove, or not."""

    model: RejectionModel
    sizes: Sizes
    delta: float
    tests: tuple[BoundTest, ...]
    """In the order of the model's bounds."""

    @classmethod
    def of(
        cls, model: RejectionModel, sizes: Sizes, delta: float, expected_tpr: float = 1.0
    ) -> Requirement:
        """Find the tests of a model's bounds, best where the TPR is near `expected_tpr`."""
        prior = float(model.ood_prior or 0)
        tests = (
            _TESTS[bound.quantity, bound.is_lower](bound, prior, sizes, delta, expected_tpr)
            for bound in model.bounds
        )
        return cls(model, sizes, delta, tuple(tests))

    def proven(self, accepted_id: int, accepted_ood: int) -> bool:
        """Return whether fresh counts prove all bounds; false by at most delta if one fails."""
        counts = accepted_id, accepted_ood
        return all(test.proven(*counts, self.sizes, self.delta) for test in self.tests)

    def tightened(self, margin: float) -> RejectionModel | None:
        """Return bounds that, met when learning, are proven with `margin` standard errors to spare.

        None when no counts are that good.
        """
        safe: dict[Bound, Number] = {}
        tpr = 0.0
        # What a precision needs depends on the TPR asked for, so that one comes first.
        for test in sorted(self.tests, key=lambda test: test.bound.quantity != "tpr"):
            value = test.safer(margin, tpr, self.sizes, self.delta)
            if value is None:
                return None
            safe[test.bound] = value
            tpr = max(tpr, float(value)) if test.bound.quantity == "tpr" else tpr
        bounds = (bound.moved_to(safe[bound]) for bound in self.model.bounds)
        return RejectionModel(self.model.objective, bounds, self.model.ood_prior)


def is_provable(bound: Bound) -> bool:
    """Return whether there is a test of a bound."""
    whole = bound.group is None and bound.ood_set is None
    return whole and (bound.quantity, bound.is_lower) in _TESTS


def refuse_unprovable(model: RejectionModel) -> None:
    """Raise unless the model is an expected cost, or a selective risk with bounds to prove."""
    if model.cost is not None and not model.bounds:
        return
    if model.objective == "selective_risk" and all(map(is_provable, model.bounds)):
        return
    raise InvalidInputError(
        "tune_certified knows TprFprModel, PrecisionRecallModel and CostModel, and what is like "
        "them: the least selective risk with tpr and precision at least and fpr at most a bound, "
        f"each of all rows, or the least expected cost without bounds; got {model!r}"
    )


def rate_bounds(model: RejectionModel) -> tuple[float, float]:
    """Return the TPR and the FPR that a model asks for; 0 and 1 where it asks for nothing."""
    asked = [(bound.quantity, float(bound.value)) for bound in model.bounds]
    return (
        max((value for name, value in asked if name == "tpr"), default=0.0),
        min((value for name, value in asked if name == "fpr"), default=1.0),
    )


def asked_text(model: RejectionModel) -> str:
    """Return the bounds of a model in one phrase.

    Examples
    --------
    >>> from demur import PrecisionRecallModel, TprFprModel
    >>> asked_text(TprFprModel(0.8, 0.1)), asked_text(PrecisionRecallModel(0.9, 0.8, 0.25))
    ('tpr >= 0.8 and fpr <= 0.1', 'precision >= 0.9 and recall >= 0.8 at OOD prior 0.25')
    """
    bounds = [b for b in model.bounds if not (b.quantity == "fpr" and b.is_trivial)]
    text = " and ".join(bound_text(model, bound) for bound in bounds)
    precision = any(bound.quantity == "precision" for bound in bounds)
    return f"{text} at OOD prior {model.ood_prior}" if precision else text


def _spread(rate: float, learned: int, tested: int) -> float:
    """Return the standard error of a rate seen on `learned` rows and again on `tested` rows."""
    return math.sqrt(rate * (1 - rate) * (1 / max(learned, 1) + 1 / tested))
