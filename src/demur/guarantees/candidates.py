"""Candidate rules, tested on rows they were not learned on, and which of them is taken.

**Tuning with a guarantee by tolerance limits: learn directions, let test rows set thresholds.**

Why it holds. Condition on the learning rows: the directions, their order and all levels are then
fixed, and the test rows are independent draws. The levels of TPR, FPR and risk add up to delta.

*TPR.* Along a direction let t be the k-th smallest combined score of the n ID test rows. The rule
accepts what lies below t, or up to t if several rows lie on it. Let q be the smallest value with
P(score <= q) >= phi. The TPR is below phi only (a) if t < q, or (b) if t = q, one row lies on it,
and q alone has a positive probability. Spread the rows on q evenly over its probability: then
ranks are uniform numbers, and (a) has probability at most P(Bin(n, phi) >= k), the chance that the
k-th is below phi. In (b), with the k-th beyond phi, k - 1 rows lie below q, one in the rest
x = P(score <= q) - phi and m = n - k beyond. This is most likely with x = (1 - phi) / (m + 1), and
the chance is then f = (m / (m + 1))**m times P(Bin(n, phi) = k - 1). So k is enough with
``(1 - f) P(Bin(n, phi) >= k) + f P(Bin(n, phi) >= k - 1)`` at most the level, whatever the
distribution. The levels of the directions add up to that of the TPR.

*FPR.* Given the ID test rows all thresholds are fixed, and the OOD test rows are independent of
them. Directions are tested in a fixed order up to the first failure: a false claim needs the
first false one to be claimed, which is one fixed rule. Every OOD set is tested at the same level.

*Selective risk.* Given t, and that one row lies on it, the k - 1 rows below are independent draws
from what lies below t, which is what the rule accepts: their losses bound its risk, whatever the
distribution. If several rows lie on t, no risk is promised. If only accepting all n rows is enough
(then that has probability phi**n to be wrong), the rule accepts up to the last of them, and its
risk is at most that of all inputs divided by its TPR, so by phi. The levels of the directions add
up. Nothing is assumed of the scores; directions along which the learning rows are tied near the
threshold are left out because their ties would promise no risk.

*Precision.* Fix tau, at least the recall asked for, while learning. TPR >= tau and
FPR <= slope * tau give the precision, with slope from the precision and the prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.core.models import Bound, RejectionModel
from demur.core.program import Number
from demur.core.rates import OperatingPoint, accepted_rows, evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.guarantees.bound_tests import FreshCounts, Requirement, SplitSizes, fpr_slope
from demur.guarantees.intervals import (
    Interval,
    cost_range,
    fewest_for,
    precision_range,
    prior_range,
    rate_lower,
    rate_upper,
    risk_upper,
)
from demur.guarantees.learned_rules import (
    SMALLEST_MARGIN,
    Learner,
    RankLogistic,
    combined_doubt,
    spread_rows,
)
from demur.guarantees.splits import Seed


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule learned on one part of the rows and tested on the other.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> sample = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> found = dm.guarantees.tune_certified(sample, dm.TprFprModel(0.6, 0.3), rng=0)
    >>> [candidate.proven for candidate in found.candidates][:2]
    [True]
    """

    rule: Rule
    margin: float
    """Standard errors by which it was to be better than needed, on the learning rows."""
    learned: OperatingPoint
    tested: OperatingPoint
    proven: bool
    """Whether it and every candidate before it passed the test of the model's bounds."""
    selective_risk: float
    """Upper bound, valid for all candidates together."""
    objective: float
    """Bound on what the model optimises, valid for all candidates together."""


def best_promised(candidates: list[Candidate], model: RejectionModel) -> Candidate | None:
    """Return the proven candidate with the best promise about the objective."""
    proven = [candidate for candidate in candidates if candidate.proven]
    sign = -1 if model.seeks_most else 1
    return min(proven, key=lambda one: sign * one.objective, default=None)


def least_smoothed(
    candidates: list[Candidate], sample: Sample, test: Sample, max_loss: Number | None
) -> Candidate | None:
    """Return the proven candidate whose selective risk looks least when losses are smoothed.

    All bounds on the risk hold together, so any candidate may be taken, and the smoothed risk of
    all rows tells neighbours apart better than bounds do. One without a bound comes last.
    """
    proven = [candidate for candidate in candidates if candidate.proven]
    if len(proven) < 2:
        return proven[0] if proven else None
    largest = 1.0 if max_loss is None else float(max_loss)
    smooth = RankLogistic.fit(sample.id_doubts, sample.id_loss / largest)
    rows = test.subset(spread_rows(test.n_id), [])
    risk = smooth.predict(rows.id_doubts)

    def smoothed(candidate: Candidate) -> tuple[bool, float]:
        accepted = accepted_rows(candidate.rule, rows)[0]
        mean = float(risk[accepted].mean()) if accepted.any() else math.inf
        return candidate.selective_risk >= largest, mean

    return min(proven, key=smoothed)


@dataclass(frozen=True, slots=True)
class Tester:
    """Everything that may look at the test rows."""

    rows: Sample
    model: RejectionModel
    max_loss: Number | None
    seed: int

    def by_tolerance_limits(self, learned: LearnedDirections, learn: Sample) -> list[Candidate]:
        """Return learned directions with thresholds of the test rows, tested."""
        judged = judge_directions(learned, self.rows, self.max_loss, self.seed)
        return [
            self._candidate(one.rule, one.margin, learn, one.proven, one.selective_risk)
            for one in judged
        ]

    def along_path(
        self,
        rules: list[tuple[float, Rule]],
        learn: Sample,
        requirement: Requirement,
        delta: float,
    ) -> list[Candidate]:
        """Test in order; after the first failure nothing is claimed."""
        candidates: list[Candidate] = []
        proven = True
        # Where the objective is another, the selective risk is bounded beside it.
        statements = len(rules) * (1 if self.model.objective == "selective_risk" else 2)
        for margin, rule in rules:
            accepted = accepted_rows(rule, self.rows)
            counts = FreshCounts.of(accepted, self.rows, requirement.groups)
            proven = proven and requirement.proven(counts)
            level = delta / statements
            losses = self.rows.id_loss[accepted[0]]
            risk = risk_upper(losses, level, max_loss=self.max_loss, rng=self.seed)
            objective = self._objective(counts, level, risk)
            candidates.append(self._candidate(rule, margin, learn, proven, risk, objective))
        return candidates

    def _candidate(
        self,
        rule: Rule,
        margin: float,
        learn: Sample,
        proven: bool,
        risk: float,
        objective: float | None = None,
    ) -> Candidate:
        learned = evaluate(rule, learn, model=self.model)
        tested = evaluate(rule, self.rows, model=self.model)
        stated = risk if objective is None else objective
        return Candidate(rule, margin, learned, tested, proven, risk, stated)

    def _objective(self, counts: FreshCounts, level: float, risk: float) -> float:
        """Return the bound on the model's objective; `level` is its own, the risk has another."""
        n_id, n_ood = self.rows.n_id, self.rows.n_ood
        if self.model.objective == "selective_risk":
            return risk
        if self.model.objective == "tpr":
            return rate_lower(counts.id, n_id, level)
        if self.model.objective == "fpr":
            return rate_upper(counts.ood, n_ood, level)
        prior = prior_range(self.model, None) or Interval(0.0, 0.0)
        most = rate_upper(counts.ood, n_ood, level / 2) if n_ood else 1.0
        if self.model.cost is None:
            least = Interval(rate_lower(counts.id, n_id, level / 2), 1.0)
            return precision_range(least, Interval(0.0, most), prior).low
        tpr = Interval(
            rate_lower(counts.id, n_id, level / 4), rate_upper(counts.id, n_id, level / 4)
        )
        return cost_range(self.model, tpr, Interval(0.0, most), Interval(0.0, risk), prior).high


# Shares of delta for TPR, FPR and risk; simulations are flat around these.
_WITH_FPR, _WITHOUT_FPR = (0.55, 0.30, 0.15), (0.8, 0.0, 0.2)
_MARGINS = (5.0, 4.0, 3.2, 2.5, 1.9, 1.4, 1.0, 0.6, 0.2, -0.3)
# Margins near the centre are most often the ones that are taken.
_CENTRE, _WIDTH, _LEAST = 0.5, 1.2, 0.04
_TYPICAL_SHARE = 0.35
"""Of the TPR's level, that one direction of several gets; to learn under."""
_TRIED_RECALLS = 6
# The threshold lies within so many standard errors of where learning rows put it.
_WINDOW = 4.0
# Ties may add up to this many rows at a test threshold.
_TIED_ROWS = 0.1


def takes_tolerance_limits(model: RejectionModel) -> bool:
    """Return whether a model bounds the TPR and asks for the least selective risk.

    Not with bounds on groups: their rows are among those that set the thresholds.
    """
    quantities = {bound.quantity for bound in model.bounds}
    asked = max((float(b.value) for b in model.bounds if b.quantity == "tpr"), default=0.0)
    return (
        model.objective == "selective_risk"
        and quantities <= {"tpr", "fpr", "precision"}
        and all(bound.group is None for bound in model.bounds)
        and 0 < asked < 1
    )


@dataclass(frozen=True, slots=True)
class LearnedDirections:
    """Directions to test, safest first, and the shares of the levels that each gets."""

    requirement: Requirement
    """The model as bounds on TPR and FPR alone."""
    rules: tuple[tuple[float, Rule], ...]
    """Margins and rules; their thresholds are not used."""
    shares: tuple[float, ...]
    tpr_level: float
    risk_level: float

    @property
    def tpr(self) -> float:
        """The TPR to be kept."""
        asked = self.requirement.model.bounds
        return max(float(bound.value) for bound in asked if bound.quantity == "tpr")


def learn_directions(
    learner: Learner,
    model: RejectionModel,
    plain: Rule,
    sizes: SplitSizes,
    delta: float,
    set_names: Sequence[str],
) -> LearnedDirections | None:
    """Return what the learning rows propose; None where they are tied in every direction."""
    chosen = _as_rates(learner, model, sizes, delta, set_names)
    made = _requirement(chosen, sizes, delta, set_names, learner.rows.n_scores)
    if made.tightened(SMALLEST_MARGIN) is None:
        return LearnedDirections(made, (), (), *_levels(made.model, delta)[::2])
    different: dict[tuple[float, ...], tuple[float, Rule]] = {}
    for margin, rule in learner.ladder(made.tightened, plain, _MARGINS):
        different.setdefault(rule.direction, (margin, rule))
    tpr = max(float(bound.value) for bound in chosen.bounds if bound.quantity == "tpr")
    smooth = [one for one in different.values() if not _tied(learner, one[1], tpr, sizes)]
    if not smooth:
        return None
    weights = np.array([_LEAST + math.exp(-(((m - _CENTRE) / _WIDTH) ** 2) / 2) for m, _ in smooth])
    shares = tuple((weights / weights.sum()).tolist())
    return LearnedDirections(made, tuple(smooth), shares, *_levels(made.model, delta)[::2])


def _levels(model: RejectionModel, delta: float) -> tuple[float, float, float]:
    asked = any(bound.quantity == "fpr" for bound in model.asked)
    tpr, fpr, risk = _WITH_FPR if asked else _WITHOUT_FPR
    return tpr * delta, fpr * delta, risk * delta


def _requirement(
    model: RejectionModel, sizes: SplitSizes, delta: float, set_names: Sequence[str], scores: int
) -> Requirement:
    tpr, fpr, _ = _levels(model, delta)
    typical = 1.0 if scores == 1 else _TYPICAL_SHARE
    made = Requirement.of(model, sizes, delta, set_names=set_names)
    return replace(made, levels={"tpr": typical * tpr, "fpr": fpr})


def _as_rates(
    learner: Learner,
    model: RejectionModel,
    sizes: SplitSizes,
    delta: float,
    set_names: Sequence[str],
) -> RejectionModel:
    """Return bounds on TPR and FPR that imply the model's, the best ones on the learning rows."""
    recall = max(float(bound.value) for bound in model.bounds if bound.quantity == "tpr")
    if model.bound("precision") is None and not any(
        bound.quantity == "precision" for bound in model.bounds
    ):
        return model
    prior = float(model.ood_prior or 0)
    tried: list[tuple[float, RejectionModel]] = []
    for recall_there in np.linspace(recall, 1, _TRIED_RECALLS, endpoint=False).tolist():
        rates = RejectionModel(
            "selective_risk", [_as_rate(bound, recall_there, prior) for bound in model.bounds]
        )
        safer = _requirement(rates, sizes, delta, set_names, learner.rows.n_scores)
        rule = learner.at(safer.tightened(_CENTRE))
        if rule is not None:
            tried.append((evaluate(rule, learner.ready.sample).selective_risk, rates))
    if tried:
        return min(tried, key=lambda one: one[0])[1]
    return RejectionModel(
        "selective_risk", [_as_rate(bound, recall, prior) for bound in model.bounds]
    )


def _as_rate(bound: Bound, tpr: float, prior: float) -> Bound:
    if bound.quantity == "tpr":
        return Bound("tpr", at_least=max(tpr, float(bound.value)))
    if bound.quantity == "precision":
        most = min(1.0, fpr_slope(bound, prior) * tpr)
        return Bound("fpr", at_most=most, ood_set=bound.ood_set)
    return bound


def _tied(learner: Learner, rule: Rule, tpr: float, sizes: SplitSizes) -> bool:
    """Return whether ties near the threshold may hold more than a fraction of a test row each."""
    combined = learner.combined(rule)
    n = len(combined)
    error = math.sqrt(tpr * (1 - tpr) * (1 / n + 1 / sizes.test_id))
    # The threshold lies above the bound by about two standard errors of the test rows.
    low, high = tpr - _WINDOW * error, tpr + (_WINDOW + 2) * error
    near = combined[max(0, math.floor(low * n)) : max(2, math.ceil(high * n))]
    # Infinite doubts are alike, but no threshold.
    pairs = int(((near[1:] == near[:-1]) & np.isfinite(near[1:])).sum())
    return pairs > len(near) * _TIED_ROWS / 2 * n / sizes.test_id


@dataclass(frozen=True, slots=True)
class JudgedDirection:
    """A direction with the threshold that the test rows gave it."""

    margin: float
    rule: Rule
    proven: bool
    selective_risk: float
    """Upper bound, valid for all directions together."""


def judge_directions(
    learned: LearnedDirections, rows: Sample, max_loss: Number | None, rng: Seed
) -> list[JudgedDirection]:
    """Give every direction its threshold, and test in order up to the first failure."""
    found: list[JudgedDirection] = []
    failed = False
    for (margin, rule), share in zip(learned.rules, learned.shares, strict=True):
        count = rows_below(learned.tpr, rows.n_id, learned.tpr_level * share)
        if count is None:
            continue
        combined, foreign = combined_doubt(rule, rows)
        cut = _cut(combined, count)
        # A row with an infinite doubt is never accepted.
        if not math.isfinite(cut.threshold):
            continue
        counts = FreshCounts.of((combined <= cut.threshold, foreign <= cut.threshold), rows)
        failed = failed or not learned.requirement.foreign_proven(counts)
        risk = risk_upper(
            rows.id_loss[cut.below], learned.risk_level * share, max_loss=max_loss, rng=rng
        )
        if cut.all_rows:
            risk = min(risk / learned.tpr, 1.0 if max_loss is None else float(max_loss))
        # The rule is a new one: what its card said of thresholds is not so.
        made = replace(rule, threshold=cut.threshold, card=None)
        found.append(JudgedDirection(margin, made, not failed, risk))
    return found


def rows_below(tpr: float, trials: int, level: float) -> int | None:
    """Return how many ID rows lie below a threshold that keeps a TPR; None if all are too few.

    All rows, or k - 1 where the threshold is just below the k-th smallest.

    Examples
    --------
    >>> rows_below(0.8, 1000, 0.05), rows_below(0.8, 14, 0.05), rows_below(0.8, 13, 0.05)
    (821, 14, None)
    """
    from scipy.special import bdtrc

    fewest = fewest_for(tpr, trials, level)
    if fewest is None:
        return None
    beyond = trials - fewest
    part = (beyond / (beyond + 1)) ** beyond
    # bdtrc(k - 1) is P(Bin >= k).
    wrong = (1 - part) * bdtrc(fewest - 1, trials, tpr) + part * bdtrc(fewest - 2, trials, tpr)
    below = fewest - 1 if fewest > 1 and wrong <= level else fewest
    return below


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """A threshold along a direction, and the ID rows whose losses tell of what it accepts."""

    threshold: float
    below: BoolArray
    all_rows: bool = False
    """Whether these are all rows, not only those that the threshold accepts."""


def _cut(combined: FloatArray, count: int) -> _Cut:
    """Return the largest threshold with so many rows below it; on it, if more than one is there."""
    if count == len(combined):
        return _Cut(float(combined.max()), np.ones(count, np.bool_), all_rows=True)
    limit = float(np.partition(combined, count)[count])
    if (combined == limit).sum() > 1:
        return _Cut(limit, np.zeros(len(combined), np.bool_))
    return _Cut(math.nextafter(limit, -math.inf), combined < limit)
