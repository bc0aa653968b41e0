"""How fresh counts prove the bounds of a model: a test for every quantity.

Every quantity that can be proven has a test of its own, of level delta. No level is shared among
them: the claim is made only if all reject, and when a bound fails its own test rejects with
probability at most delta (an intersection-union test). A bound that every OOD set has to keep is
one test for each set, all at the same level for the same reason. Bounds on a group of ID rows are
tested on the rows of that group: given how many these are, they are independent draws of it.

Tests also make bounds safer to learn under.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.core.models import EACH_SET, Bound, RejectionModel
from demur.core.program import Number, refuse_unknown_parts
from demur.core.sample import Sample, members
from demur.core.wording import bound_text
from demur.errors import InvalidInputError
from demur.guarantees.intervals import fewest_for, most_for, rate_lower, rate_upper, risk_upper
from demur.guarantees.splits import Seed

# Shares of the level that the TPR side of a precision test may get.
_ALLOTMENTS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)


@dataclass(frozen=True, slots=True)
class SplitSizes:
    """Numbers of ID and OOD rows to learn on and to test on."""

    learn_id: int
    learn_ood: int
    test_id: int
    test_ood: int
    learn_sets: tuple[int, ...] = ()
    test_sets: tuple[int, ...] = ()
    """Of every OOD set, where bounds are about sets."""
    learn_groups: tuple[int, ...] = ()
    test_groups: tuple[int, ...] = ()
    """Of every group of ID rows, where bounds are about groups."""

    @classmethod
    def of(
        cls, model: RejectionModel, learn: Sample, test: Sample, groups: Sequence[str] = ()
    ) -> SplitSizes:
        """Count rows, of every set and of every group where the model has bounds of such."""
        sizes = cls(learn.n_id, learn.n_ood, test.n_id, test.n_ood)
        if any(bound.ood_set is not None for bound in model.bounds):
            sizes = replace(sizes, learn_sets=_set_sizes(learn), test_sets=_set_sizes(test))
        if any(bound.group is not None for bound in model.bounds):
            own, tested = (_group_sizes(rows, groups) for rows in (learn, test))
            sizes = replace(sizes, learn_groups=own, test_groups=tested)
        return sizes

    def own(self, which: int | None) -> tuple[int, int]:
        """Return the ID rows to learn and to test on, of one group or of all."""
        if which is None:
            return self.learn_id, self.test_id
        return self.learn_groups[which], self.test_groups[which]

    def ood(self, which: int | None) -> tuple[int, int]:
        """Return the OOD rows to learn and to test on, of one set or of all."""
        if which is None:
            return self.learn_ood, self.test_ood
        return self.learn_sets[which], self.test_sets[which]


def _set_sizes(sample: Sample) -> tuple[int, ...]:
    return tuple(rows.stop - rows.start for rows in sample.ood_sets.values())


def _group_sizes(sample: Sample, groups: Sequence[str]) -> tuple[int, ...]:
    return tuple(int(members(sample, name).sum()) for name in groups)


@dataclass(frozen=True, slots=True, eq=False)
class FreshCounts:
    """What a rule does on test rows, as far as tests look at it."""

    id: int
    ood: int
    sets: tuple[int, ...] = ()
    """Accepted of every OOD set, in the order of the sets."""
    losses: FloatArray | None = None
    """Of the accepted ID rows."""
    groups: tuple[FloatArray, ...] = ()
    """Losses of the accepted ID rows of every group, in the order of the groups."""

    @classmethod
    def of(
        cls, accepted: tuple[BoolArray, BoolArray], rows: Sample, groups: Sequence[str] = ()
    ) -> FreshCounts:
        """Count the accepted ID and OOD rows, also of sets and groups."""
        own, foreign = accepted
        return cls(
            int(own.sum()),
            int(foreign.sum()),
            tuple(int(foreign[part].sum()) for part in rows.ood_sets.values()),
            rows.id_loss[own],
            tuple(rows.id_loss[own & members(rows, name)] for name in groups),
        )

    def own(self, which: int | None) -> int:
        """Return how many ID rows are accepted, of one group or of all."""
        return self.id if which is None else len(self.groups[which])

    def foreign(self, which: int | None) -> int:
        """Return how many OOD rows are accepted, of one set or of all."""
        return self.ood if which is None else self.sets[which]


class BoundTest(Protocol):
    """How fresh counts prove one bound."""

    @property
    def bound(self) -> Bound:
        """What is to be proven."""

    def proven(self, counts: FreshCounts, sizes: SplitSizes, delta: float) -> bool:
        """Return whether counts prove the bound; false by at most delta if it fails."""

    def safer(self, margin: float, tpr: float, sizes: SplitSizes, delta: float) -> Number | None:
        """Return the value to learn under so that the test is passed with margin.

        The margin is in standard errors, `tpr` is what is asked of the TPR. None when no counts
        are that good.
        """


@dataclass(frozen=True, slots=True)
class TprTest:
    """TPR at least a bound: the one-sided exact test."""

    bound: Bound
    which: int | None = None
    """The group of ID rows, None for all of them."""

    def proven(self, counts: FreshCounts, sizes: SplitSizes, delta: float) -> bool:
        """Look at the ID rows."""
        _, tested = sizes.own(self.which)
        return rate_lower(counts.own(self.which), tested, delta) >= float(self.bound.value)

    def safer(self, margin: float, tpr: float, sizes: SplitSizes, delta: float) -> float | None:
        """Ask for what the test needs, and the margin."""
        bound = float(self.bound.value)
        if bound == 0:
            return 0.0
        learned, tested = sizes.own(self.which)
        needed = fewest_for(bound, tested, delta) if tested else None
        if needed is None:
            return None
        safe = needed / tested + margin * _spread(bound, learned, tested)
        return max(safe, bound) if safe <= 1 else None


@dataclass(frozen=True, slots=True)
class FprTest:
    """FPR at most a bound: the one-sided exact test."""

    bound: Bound
    which: int | None = None
    """The OOD set, None for all of them."""

    def proven(self, counts: FreshCounts, sizes: SplitSizes, delta: float) -> bool:
        """Look at the OOD rows."""
        bound = float(self.bound.value)
        # A set without rows has shown nothing.
        _, tested = sizes.ood(self.which)
        return bound == 1 or rate_upper(counts.foreign(self.which), tested, delta) <= bound

    def safer(self, margin: float, tpr: float, sizes: SplitSizes, delta: float) -> float | None:
        """Ask for what the test needs, and the margin."""
        bound = float(self.bound.value)
        if bound == 1:
            return 1.0
        learned, tested = sizes.ood(self.which)
        most = most_for(bound, tested, delta) if tested else None
        if most is None:
            return None
        safe = most / tested - margin * _spread(bound, learned, tested)
        return min(safe, bound) if safe >= 0 else None


@dataclass(frozen=True, slots=True)
class RiskTest:
    """Selective risk at most a bound: that of the losses given how many rows are accepted."""

    bound: Bound
    max_loss: Number | None = None
    rng: Seed = 0
    expected_tpr: float = 1.0
    """What share of the rows is expected to be accepted; a guess."""
    which: int | None = None
    """The group of ID rows, None for all of them."""

    def proven(self, counts: FreshCounts, sizes: SplitSizes, delta: float) -> bool:
        """Look at the losses of the accepted ID rows."""
        losses = counts.losses if self.which is None else counts.groups[self.which]
        if losses is None:
            raise InvalidInputError("a bound on the selective risk is proven by losses")
        most = risk_upper(losses, delta, max_loss=self.max_loss, rng=self.rng)
        return most <= float(self.bound.value)

    def safer(self, margin: float, tpr: float, sizes: SplitSizes, delta: float) -> float | None:
        """Ask for what the test of a share of errors needs, and the margin."""
        scale = 1.0 if self.max_loss is None else float(self.max_loss)
        bound = float(self.bound.value) / scale
        if bound >= 1:
            return float(self.bound.value)
        share = max(tpr, self.expected_tpr, 1e-9)
        learned, tested = sizes.own(self.which)
        accepted = max(1, round(share * tested))
        most = most_for(bound, accepted, delta)
        if most is None:
            return None
        spread = _spread(bound, round(share * learned), accepted)
        safe = most / accepted - margin * spread
        return min(safe, bound) * scale if safe >= 0 else None


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
    which: int | None = None
    """The OOD set, None for all of them."""

    @classmethod
    def of(cls, bound: Bound, which: int | None, given: Setting) -> PrecisionTest:
        """Choose the allotment that asks for the least where the TPR is as expected."""
        slope, tpr, sizes = fpr_slope(bound, given.prior), given.expected_tpr, given.sizes
        made = [cls(bound, given.prior, slope, part, tpr, which) for part in _ALLOTMENTS]
        near = round(tpr * sizes.test_id)
        return max(made, key=lambda one: one._accepted_ood_allowed(near, sizes, given.delta))

    def proven(self, counts: FreshCounts, sizes: SplitSizes, delta: float) -> bool:
        """Look at both sides."""
        return counts.foreign(self.which) <= self._accepted_ood_allowed(counts.id, sizes, delta)

    def safer(self, margin: float, tpr: float, sizes: SplitSizes, delta: float) -> Number | None:
        """Shift the slope by standard errors of ``FPR - slope * TPR``."""
        if math.isinf(self.slope):
            return self.bound.value
        if self._accepted_ood_allowed(sizes.test_id, sizes, delta) < 0:
            return None
        tpr = max(tpr, self.expected_tpr)
        learned, tested = sizes.ood(self.which)
        allowed = max(0, self._accepted_ood_allowed(round(tpr * sizes.test_id), sizes, delta))
        spread = math.hypot(
            _spread(min(1.0, self.slope * tpr), learned, tested),
            self.slope * _spread(tpr, sizes.learn_id, sizes.test_id),
        )
        safe = (allowed / tested - margin * spread) / tpr
        if safe < 0:
            return None
        precision = (1 - self.prior) / (1 - self.prior + self.prior * safe)
        return max(precision, float(self.bound.value))

    def _accepted_ood_allowed(self, accepted_id: int, sizes: SplitSizes, delta: float) -> int:
        """Return the most accepted OOD rows that still prove the precision, -1 for none."""
        _, tested = sizes.ood(self.which)
        if math.isinf(self.slope):
            return tested
        id_level = self.allotment * delta
        ood_level = 1 - (1 - delta) / (1 - id_level)
        largest = self.slope * rate_lower(accepted_id, sizes.test_id, id_level)
        if largest >= 1:
            return tested
        most = most_for(largest, tested, ood_level)
        return -1 if most is None else most


def fpr_slope(bound: Bound, prior: float) -> float:
    """Return the FPR per TPR that a precision allows; infinite where it asks for nothing."""
    precision = float(bound.value)
    if prior == 0 or precision == 0:
        return math.inf
    return (1 - prior) * (1 - precision) / (prior * precision)


@dataclass(frozen=True, slots=True)
class Setting:
    """What tests are made for."""

    sizes: SplitSizes
    delta: float
    prior: float = 0.0
    expected_tpr: float = 1.0
    set_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    max_loss: Number | None = None
    rng: Seed = 0


def _spread(rate: float, learned: int, tested: int) -> float:
    """Return the standard error of a rate seen on `learned` rows and again on `tested` rows."""
    return math.sqrt(rate * (1 - rate) * (1 / max(learned, 1) + 1 / tested))


Maker = Callable[[Bound, int | None, Setting], BoundTest]
"""Of the bound, the group or OOD set it is about (None: all), and what the test is for."""

_TESTS: Mapping[tuple[str, bool], Maker] = {
    ("tpr", True): lambda bound, which, _: TprTest(bound, which),
    ("fpr", False): lambda bound, which, _: FprTest(bound, which),
    ("precision", True): PrecisionTest.of,
    ("selective_risk", False): lambda bound, which, given: RiskTest(
        bound, given.max_loss, given.rng, given.expected_tpr, which
    ),
}
"""By quantity, and whether it is bounded from below."""


def tests_of(bound: Bound, given: Setting) -> list[BoundTest]:
    """Return the tests of a bound: one, or one for every OOD set."""
    make = _TESTS[bound.quantity, bound.is_lower]
    refuse_unknown_parts([bound], given.set_names, given.group_names)
    if bound.ood_set == EACH_SET:
        return [make(bound, which, given) for which in range(len(given.set_names))]
    if bound.group is not None:
        return [make(bound, given.group_names.index(bound.group), given)]
    which = None if bound.ood_set is None else given.set_names.index(bound.ood_set)
    return [make(bound, which, given)]


@dataclass(frozen=True, slots=True)
class Requirement:
    """The bounds of a model, that fresh counts prove, or not."""

    model: RejectionModel
    sizes: SplitSizes
    delta: float
    tests: tuple[BoundTest, ...]
    """In the order of the model's bounds."""
    levels: Mapping[str, float] = field(default_factory=dict)
    """Of quantities that do not get the whole delta."""
    groups: tuple[str, ...] = ()
    """Names of the groups of ID rows, where bounds are about groups."""

    @classmethod
    def of(
        cls,
        model: RejectionModel,
        sizes: SplitSizes,
        delta: float,
        expected_tpr: float = 1.0,
        *,
        set_names: Sequence[str] = (),
        group_names: Sequence[str] = (),
        max_loss: Number | None = None,
        rng: Seed = 0,
    ) -> Requirement:
        """Find the tests of a model's bounds, best where the TPR is near `expected_tpr`."""
        names = tuple(set_names), tuple(group_names)
        prior = float(model.ood_prior or 0)
        given = Setting(sizes, delta, prior, expected_tpr, *names, max_loss, rng)
        tests = [test for bound in model.bounds for test in tests_of(bound, given)]
        groups = names[1] if any(bound.group is not None for bound in model.bounds) else ()
        return cls(model, sizes, delta, tuple(tests), groups=groups)

    def proven(self, counts: FreshCounts) -> bool:
        """Return whether fresh counts prove all bounds; false by at most delta if one fails."""
        return all(self._proven(test, counts) for test in self.tests)

    def foreign_proven(self, counts: FreshCounts) -> bool:
        """Return whether fresh counts prove what is asked of the OOD rows."""
        return all(
            self._proven(test, counts) for test in self.tests if test.bound.quantity == "fpr"
        )

    def level(self, quantity: str) -> float:
        """Return the level of the tests of a quantity."""
        return self.levels.get(quantity, self.delta)

    def _proven(self, test: BoundTest, counts: FreshCounts) -> bool:
        return test.proven(counts, self.sizes, self.level(test.bound.quantity))

    def provable(self) -> bool:
        """Return whether a perfect result would be a proof."""
        perfect = FreshCounts(
            self.sizes.test_id,
            0,
            tuple(0 for _ in self.sizes.test_sets),
            np.zeros(self.sizes.test_id),
            tuple(np.zeros(rows) for rows in self.sizes.test_groups),
        )
        return self.proven(perfect)

    def tightened(self, margin: float) -> RejectionModel | None:
        """Return bounds that, met when learning, are proven with `margin` standard errors to spare.

        None when no counts are that good.
        """
        safe: dict[Bound, float] = {}
        tpr = 0.0
        # What others need depends on the TPR asked for, so that one comes first.
        for test in sorted(self.tests, key=lambda test: test.bound.quantity != "tpr"):
            bound = test.bound
            value = test.safer(margin, tpr, self.sizes, self.level(bound.quantity))
            if value is None:
                return None
            strictest = max if bound.is_lower else min
            safe[bound] = strictest(safe.get(bound, float(value)), float(value))
            if bound.quantity == "tpr" and bound.group is None:
                tpr = max(tpr, float(value))
        bounds = (bound.moved_to(safe[bound]) for bound in self.model.bounds)
        return RejectionModel(self.model.objective, bounds, self.model.ood_prior)


def is_provable(bound: Bound) -> bool:
    """Return whether there is a test of a bound."""
    return (bound.quantity, bound.is_lower) in _TESTS


def refuse_unprovable(model: RejectionModel) -> None:
    """Raise unless every bound has a test, and the objective is not a cost of several sets."""
    if all(map(is_provable, model.bounds)):
        return
    raise InvalidInputError(
        "a guarantee is given for bounds that have a test: tpr and precision at least, fpr and "
        "selective_risk at most a bound, of all ID rows or one group of them, and of all OOD rows, "
        f"one OOD set or each of them; got {model!r}"
    )


def rate_bounds(model: RejectionModel) -> tuple[float, float]:
    """Return the TPR and the FPR that a model asks for; 0 and 1 where it asks for nothing."""
    asked = [(b.quantity, float(b.value)) for b in model.bounds if b.group is None]
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
    text = " and ".join(bound_text(model, bound) for bound in model.asked)
    precision = any(bound.quantity == "precision" for bound in model.asked)
    return f"{text} at OOD prior {model.ood_prior}" if precision else text
