"""Tuning with a guarantee: learn candidate rules on one part, test them on the other.

Why the guarantee holds. Condition on the learning rows and on the split: the candidates
c_1, ..., c_K, their order and all levels are then fixed, and the test rows are independent
draws of the population. Split delta into two halves.

*Bounds.* Candidate c_k is false if the population breaks one of the model's bounds under it.
Its test claims all bounds and does so for a false candidate with probability at most delta/2
(`demur.guarantees.requirements`). Candidates are tested in order and testing stops at the first
failure. A false candidate can only be claimed if the first false one is, which is one fixed
candidate: the probability is at most delta/2, however many candidates there are.

*Selective risk.* Given how many ID test rows c_k accepts, their losses are independent draws
with mean equal to its selective risk; the upper bound at level delta/(2K) fails with
probability at most delta/(2K). By the union bound all K bounds hold with 1 - delta/2, so the
claimed candidate with the smallest bound may be chosen after the fact.

Both hold with probability at least 1 - delta. Nothing was assumed of the scores, of nested
acceptance, or of how candidates are learned; that only decides how good they are.

*Order.* Candidates are tuned on the learning rows under the model's bounds made safer by a
margin, counted in standard errors. The first has the largest margin that any rule reaches (at
most 3.5): where TPR and FPR pull in opposite directions, this is the rule that balances them.
The next ones give up margin for a smaller selective risk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from demur._arrays import NUMBER, takes
from demur.core.models import RejectionModel
from demur.core.program import Number
from demur.core.rates import OperatingPoint, accepted_rows, evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.guarantees.certified_rule import OOD_CAVEAT, certify, declared_losses, risk_upper
from demur.guarantees.intervals import miss, refuse_weights
from demur.guarantees.planning import shortage
from demur.guarantees.requirements import Requirement, Sizes, refuse_unprovable
from demur.guarantees.splits import Seed, split
from demur.tuning.directions import Directions
from demur.tuning.prepared import Prepared, prepare
from demur.tuning.result import Exact, Grid
from demur.tuning.tune import tune

LEARN_SHARE = 0.3
"""Share of the rows to learn on: testing needs more rows than choosing a line."""

_LARGEST_MARGIN, _SMALLEST_MARGIN = 3.5, -3.0
_STEPS = (1.0, 1.75, 2.5, 3.25)
_BISECTIONS = 5


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule learned on one part of the rows and tested on the other."""

    rule: Rule
    margin: float
    """Standard errors by which it was to be better than needed, on the learning rows."""
    learned: OperatingPoint
    tested: OperatingPoint
    proven: bool
    """Whether it and every candidate before it passed the test of the model's bounds."""
    selective_risk: float
    """Upper bound, valid for all candidates together."""


@dataclass(frozen=True, slots=True)
class CertifiedTuning:
    """A rule with promises that hold together with probability at least `confidence`.

    The population meets every bound of `model`, and the selective risk (and the expected cost)
    is at most as stated.
    """

    rule: Rule
    model: RejectionModel
    confidence: float
    selective_risk: float
    """Certified upper bound; NaN for a rule that accepts nothing."""
    expected_cost: float | None
    """Certified upper bound where the model has costs, else None."""
    point: OperatingPoint
    """What the rule did on the test rows; not a promise."""
    candidates: tuple[Candidate, ...]
    """In the order tested; empty where the model has costs, and one rule is learned."""
    sizes: Sizes
    caveat: str = OOD_CAVEAT


@takes(sample=Sample, model=RejectionModel, learn_share=NUMBER, max_loss=NUMBER)
def tune_certified(
    sample: Sample,
    model: RejectionModel,
    *,
    confidence: float = 0.95,
    max_loss: Number | None = None,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    learn_share: float = LEARN_SHARE,
    rng: Seed = 0,
) -> CertifiedTuning:
    """Return a rule that keeps the bounds of `model` in the population, and what it costs.

    With probability at least `confidence` over the data, all bounds of `model` and the stated
    bound on selective risk hold together; the module's docstring has the argument. Under a
    `CostModel` there are no bounds to keep, and the expected cost is bounded. Other models need
    the selective risk as objective, and bounds on TPR, FPR and precision of all rows.

    Parameters
    ----------
    sample
        Unweighted, independent rows, ID and OOD.
    max_loss
        The largest possible loss; None declares the 0/1 loss.
    directions, search
        As in `tune`.
    learn_share
        Share of the rows to learn candidates on; the others test them.
    rng
        Draws the split. Choose it before looking at results: trying seeds voids the promise.

    Raises
    ------
    InfeasibleError
        No candidate could be proven. The message says how many rows would be needed;
        ``attainable`` holds them as ``needed_id`` and ``needed_ood`` (NaN if no number is
        enough).

    Examples
    --------
    >>> import numpy as np
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(0, 1, 2000)
    >>> sample = Sample(scores, rng.random(2000) < 0.05, ood_scores=rng.normal(3, 1, 2000))
    >>> promised = tune_certified(sample, TprFprModel(min_tpr=0.8, max_fpr=0.1))
    >>> round(promised.rule.threshold, 2), round(promised.selective_risk, 3)
    (1.04, 0.071)
    """
    refuse_weights(sample)
    refuse_unprovable(model)
    declared_losses(sample, max_loss)
    delta = miss(confidence)
    learn, test = split(sample, learn_share, rng)
    learner = _Learner.of(learn, directions, search)
    tester = _Tester(test, model, max_loss, rng)
    sizes = Sizes(learn.n_id, learn.n_ood, test.n_id, test.n_ood)
    if model.cost is not None:
        return _bounded_cost(learner, tester, model, confidence, sizes)
    try:
        plain = learner.rule(model)
    except InfeasibleError as error:
        requirement = Requirement.of(model, sizes, delta / 2, 1.0)
        hoped = _with_all_rows(_Learner.of(sample, directions, search), requirement)
        # With all rows there is a rule: the rows to learn on were too few.
        raise error if hoped is None else shortage(requirement, None, hoped, confidence) from None
    requirement = Requirement.of(model, sizes, delta / 2, evaluate(plain, learn).tpr)
    rules = learner.candidates(requirement, plain)
    candidates = tester.tested(rules, learn, requirement, delta / 2)
    proven = [candidate for candidate in candidates if candidate.proven]
    if not proven:
        safest = candidates[0].tested if candidates else None
        hoped = _with_all_rows(_Learner.of(sample, directions, search), requirement)
        raise shortage(requirement, safest, hoped, confidence)
    best = min(proven, key=lambda candidate: candidate.selective_risk)
    return CertifiedTuning(
        rule=best.rule,
        model=model,
        confidence=confidence,
        selective_risk=best.selective_risk,
        expected_cost=None,
        point=best.tested,
        candidates=tuple(candidates),
        sizes=sizes,
    )


def _with_all_rows(learner: _Learner, requirement: Requirement) -> OperatingPoint | None:
    """Return what the safest rule does when it may learn on all rows; None if there is none."""
    try:
        plain = learner.rule(requirement.model)
    except InfeasibleError:
        return None
    return evaluate(learner.safest(requirement, plain)[1], learner.rows)


@dataclass(frozen=True, slots=True)
class _Learner:
    """Everything that may look at the learning rows."""

    rows: Sample
    ready: Prepared
    """The same rows, sorted once for all candidates."""
    directions: Directions | None
    search: Exact | Grid | None

    @classmethod
    def of(
        cls, rows: Sample, directions: Directions | None, search: Exact | Grid | None
    ) -> _Learner:
        """Prepare the learning rows."""
        return cls(rows, prepare(rows), directions, search)

    def rule(self, model: RejectionModel) -> Rule:
        """Return the rule tuned on the learning rows."""
        try:
            return tune(self.ready, model, directions=self.directions, search=self.search).rule
        except InfeasibleError as error:
            raise InfeasibleError(
                f"{error} (on the {self.rows.n_id} ID and {self.rows.n_ood} OOD rows set aside "
                "for learning)",
                model=error.model,
                attainable=error.attainable,
            ) from None

    def candidates(self, requirement: Requirement, plain: Rule) -> list[tuple[float, Rule]]:
        """Return margins and rules, safest first; empty when no counts could prove the bounds.

        The first has the largest margin that a rule reaches on the learning rows, found by
        bisection since less margin is easier; `plain` stands in where none is reached.
        """
        if requirement.tightened(_SMALLEST_MARGIN) is None:
            return []
        margin, rule = self.safest(requirement, plain)
        found = [(margin, rule)]
        for step in _STEPS:
            # Below no margin at all a test fails more often than not.
            if found[-1][0] <= 0:
                break
            bolder = self._at(requirement, margin - step)
            if bolder is not None and all(bolder != known for _, known in found):
                found.append((margin - step, bolder))
        return found

    def safest(self, requirement: Requirement, plain: Rule) -> tuple[float, Rule]:
        """Return the rule with the largest margin that any reaches, or else `plain`."""
        rule = self._at(requirement, _LARGEST_MARGIN)
        if rule is not None:
            return _LARGEST_MARGIN, rule
        low, high, best = _SMALLEST_MARGIN, _LARGEST_MARGIN, plain
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            rule = self._at(requirement, middle)
            if rule is None:
                high = middle
            else:
                low, best = middle, rule
        return low, best

    def _at(self, requirement: Requirement, margin: float) -> Rule | None:
        safer = requirement.tightened(margin)
        if safer is None:
            return None
        try:
            return self.rule(safer)
        except InfeasibleError:
            return None


@dataclass(frozen=True, slots=True)
class _Tester:
    """Everything that may look at the test rows."""

    rows: Sample
    model: RejectionModel
    max_loss: Number | None
    rng: Seed

    def tested(
        self,
        rules: list[tuple[float, Rule]],
        learn: Sample,
        requirement: Requirement,
        delta: float,
    ) -> list[Candidate]:
        """Test in order; after the first failure nothing is claimed."""
        candidates: list[Candidate] = []
        proven = True
        for margin, rule in rules:
            accepted, foreign = accepted_rows(rule, self.rows)
            accepted_ood = int(foreign.sum())
            proven = proven and requirement.proven(int(accepted.sum()), accepted_ood)
            bound = risk_upper(
                self.rows.id_loss[accepted],
                delta / len(rules),
                max_loss=self.max_loss,
                rng=self.rng,
            )
            learned = evaluate(rule, learn, model=self.model)
            tested = evaluate(rule, self.rows, model=self.model)
            candidates.append(Candidate(rule, margin, learned, tested, proven, bound))
        return candidates


def _bounded_cost(
    learner: _Learner, tester: _Tester, model: RejectionModel, confidence: float, sizes: Sizes
) -> CertifiedTuning:
    """Tune on the learning rows; one fixed rule then keeps the whole level for its bounds."""
    rule = learner.rule(model)
    promise = certify(
        rule,
        tester.rows,
        confidence=confidence,
        model=model,
        max_loss=tester.max_loss,
        rng=tester.rng,
    )
    return CertifiedTuning(
        rule=rule,
        model=model,
        confidence=confidence,
        selective_risk=promise.selective_risk.high,
        expected_cost=math.nan if promise.expected_cost is None else promise.expected_cost.high,
        point=promise.point,
        candidates=(),
        sizes=sizes,
    )
