"""Candidate rules, tested on rows they were not learned on, and which of them is taken."""

from __future__ import annotations

import math
from dataclasses import dataclass

from demur.core.models import RejectionModel
from demur.core.program import Number
from demur.core.rates import OperatingPoint, accepted_rows, evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.guarantees.bound_tests import FreshCounts, Requirement
from demur.guarantees.intervals import (
    Interval,
    cost_range,
    precision_range,
    prior_range,
    rate_lower,
    rate_upper,
    risk_upper,
)
from demur.guarantees.learned_rules import RankLogistic, spread_rows
from demur.guarantees.tolerance_limits import LearnedDirections, judge_directions


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
    sign = -1 if model.objective in ("tpr", "precision") else 1
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
