"""What stays while a rule is watched: the rule, what is expected, how rows are counted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np

from demur import _arrays
from demur._arrays import NUMBER, BoolArray, FloatArray, IntArray, check_kind
from demur.core.columns import ScoreColumns, score_columns
from demur.core.fingerprint import Reference
from demur.core.models import EACH_SET, Bound
from demur.core.rule import Rule, rule_data
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.intervals import Interval, Prior, prior_range
from demur.watch.counts import CountLayout, LiveCounts
from demur.watch.evidence import (
    ACCEPTANCE,
    GAPS,
    Check,
    Expectation,
    KnownRates,
    expected_bounds,
    known_rates,
    reference_level,
    shared,
)
from demur.watch.hypotheses import (
    AcceptanceHolds,
    BoundHolds,
    Hypothesis,
    NoGaps,
    PriorSeen,
    ScoreDrift,
    ScoreStays,
    gap_share,
    seen_prior,
)


class ScoreMaker(Protocol):
    """What makes the scores that a rule is about of those of live rows: `demur.learn.Learned`."""

    @property
    def columns(self) -> ScoreColumns:
        """The live scores."""

    def doubts(self, scores: FloatArray) -> FloatArray:
        """Return the scores that the rule is about; +inf where a live one is not finite."""

    def sample_of(self, rows: Sample) -> Sample:
        """Return a sample with these scores in place of its own."""

    def to_data(self) -> dict[str, Any]:
        """Return what it is made of, as plain data."""


@runtime_checkable
class RuleOnMadeScores(Protocol):
    """A rule together with what makes its scores: `demur.learn.LearnedRule`."""

    @property
    def rule(self) -> Rule:
        """On the scores that are made."""

    @property
    def learned(self) -> ScoreMaker:
        """What makes them."""


@dataclass(frozen=True)
class WatchSetup:
    """A rule and how it is watched; `of` checks what users give."""

    rule: Rule
    bounds: tuple[tuple[Bound, str], ...]
    """What is expected, and where that comes from."""
    alpha: float
    mean_time: float | None
    audit: tuple[float, float]
    """Chances that an accepted and a rejected row is audited."""
    max_loss: float | None
    prior: Interval | None
    reference: Reference | None = field(compare=False)
    checks: tuple[str, ...] | None
    """Which checks without labels are made; None for all that are possible."""
    made_by: str | None = None
    """The mark of what makes the rule's scores, where they are learned."""
    maker: ScoreMaker | None = field(default=None, compare=False)
    """That itself; a state does not hold it, the file of the rule does."""

    @classmethod
    def of(
        cls,
        rule: Rule | RuleOnMadeScores,
        expect: Sequence[Bound] | None,
        alpha: float,
        mean_time: float | None,
        audit: tuple[float, float] | None,
        max_loss: float | None,
        ood_prior: Prior | Interval | None,
        reference: Sample | Reference | None,
        checks: Sequence[str] | None,
    ) -> WatchSetup:
        """Return the setup, with what the rule's card knows."""
        maker = None
        if not isinstance(rule, Rule) and isinstance(rule, RuleOnMadeScores):
            whole: RuleOnMadeScores = rule
            rule, maker = whole.rule, whole.learned
            if isinstance(reference, Sample) and reference.columns.names != rule.score_names:
                reference = maker.sample_of(reference)
        check_kind("rule", rule, Rule)
        check_kind("alpha", alpha, NUMBER)
        if not 0 < alpha < 1:
            raise InvalidInputError(f"alpha must be between 0 and 1, got {alpha}")
        if mean_time is not None and not mean_time > 1:
            raise InvalidInputError(f"mean_time must be more than 1 period, got {mean_time}")
        if max_loss is not None and not 0 < max_loss < np.inf:
            raise InvalidInputError(f"max_loss must be a positive number, got {max_loss}")
        setup = cls(
            rule,
            tuple(expected_bounds(rule, expect)),
            float(alpha),
            None if mean_time is None else float(mean_time),
            _audit(audit),
            None if max_loss is None else float(max_loss),
            ood_prior if isinstance(ood_prior, Interval) else prior_range(None, ood_prior),
            _reference(rule, reference),
            None if checks is None else tuple(checks),
            None if maker is None else maker_mark(maker),
            maker,
        )
        _ = setup.hypotheses(())
        return setup

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the scores."""
        return self.rule.columns.titles

    @property
    def live_names(self) -> tuple[str, ...]:
        """Names of the scores that live rows bring, of which the rule's may be made."""
        return self.names if self.maker is None else self.maker.columns.titles

    @cached_property
    def layout(self) -> CountLayout:
        """Where in the vector of counts which sum is."""
        risk = 1 if self.reference is None else len(self.reference.risk_rows)
        groups = tuple(dict.fromkeys(b.group for b, _ in self.bounds if b.group is not None))
        return CountLayout(tuple(len(cut) + 1 for cut in self.cuts), risk, groups)

    @cached_property
    def cuts(self) -> tuple[FloatArray, ...]:
        """Ends of the bins of each score: of the reference, or else the range that is known."""
        if self.reference is not None:
            return self.reference.cuts
        known = {} if self.rule.card is None else self.rule.card.ranges
        ends = [[v for side in sides.values() for v in side] for sides in known.values()]
        if len(ends) != len(self.names) or not all(ends):
            return tuple(np.zeros(0) for _ in self.names)
        return tuple(np.unique([np.nextafter(min(v), -np.inf), max(v)]) for v in ends)

    @cached_property
    def rates(self) -> KnownRates | None:
        """What is known of TPR, FPR and the prior."""
        return known_rates(self.rule, self.reference, self.prior, self._level / 2)

    @property
    def _level(self) -> float:
        return reference_level(self.alpha, bounds=bool(self.bounds))

    @cached_property
    def _shared(self) -> tuple[tuple[Expectation, ...], tuple[Check, ...]]:
        possible = []
        if self.rates is not None and self.rates.accepted not in (None, Interval(0.0, 1.0)):
            possible.append(ACCEPTANCE)
        if self.reference is not None:
            possible += [GAPS, *(f"drift of {name}" for name in self.names)]
        asked = possible if self.checks is None else list(self.checks)
        strange = [name for name in asked if name not in possible]
        if strange:
            raise InvalidInputError(
                f"checks: {strange[0]!r} cannot be checked; possible are {possible}"
            )
        return shared(self.bounds, asked)

    @cached_property
    def drifts(self) -> tuple[ScoreDrift, ...]:
        """Every score against the reference."""
        if self.reference is None or self.rates is None:
            return ()
        level = self._level / 2 / (len(self.names) + 1)
        return tuple(
            ScoreDrift(self.reference, self.layout, k, self.rates, level)
            for k in range(len(self.names))
        )

    @cached_property
    def _checks(self) -> tuple[Hypothesis, ...]:
        found: list[Hypothesis] = []
        for check in self._shared[1]:
            rates, reference = self.rates, self.reference
            if check.name == ACCEPTANCE and rates is not None and rates.accepted is not None:
                found.append(AcceptanceHolds(check.weight, rates.accepted, rates.origin))
            elif check.name == GAPS and reference is not None:
                level = self._level / 2 / (len(self.names) + 1)
                found.append(NoGaps(check.weight, gap_share(reference, level)))
            elif rates is not None:
                number = self.names.index(check.name.removeprefix("drift of "))
                origin = "scores of the reference"
                found.append(ScoreStays(check.name, check.weight, self.drifts[number], origin))
        return tuple(found)

    def hypotheses(self, sets: Sequence[str]) -> list[Hypothesis]:
        """Return what is tested, given the OOD sets in the order of their appearance."""
        bounds: list[Hypothesis] = []
        for expected in self._shared[0]:
            if expected.bound.ood_set != EACH_SET:
                bounds.append(BoundHolds(expected, self.audit, self.max_loss))
                continue
            each = [expected.of_set(name, k) for k, name in enumerate(sets, 1)]
            bounds += [BoundHolds(one, self.audit, self.max_loss) for one in each]
        return [*bounds, *self._checks]

    @property
    def expectations(self) -> tuple[Expectation, ...]:
        """The bounds with their parts of alpha."""
        return self._shared[0]

    def rows(self, scores: Any) -> DecidedRows:
        """Decide on rows, and find their bins."""
        needed = self._needed
        values, missing = self._values(scores)
        lacking, rejected = missing[:, 0], values[:, 0] == np.inf
        if values.shape[1] == 2:
            rejected = rejected | (values[:, 1] == np.inf)
            lacking = lacking | missing[:, 1] if all(needed) else missing[:, needed.index(True)]
        bins = [np.searchsorted(cut, values[:, k]) for k, cut in enumerate(self.cuts)]
        if missing.any():
            for k, cut in enumerate(self.cuts):
                bins[k][missing[:, k]] = len(cut) + 1
            rejected = rejected | lacking
        if not all(needed):
            # A column that is not needed may lack values, and 0 times NaN is NaN.
            values[:, needed.index(False)] = 0.0
        combined = self.rule.weigh(values)
        accepted = self.rule.within(combined) & ~rejected
        risk = np.searchsorted(self._risk_cuts, combined[accepted])
        return DecidedRows(bins, accepted, risk, lacking)

    def _values(self, scores: Any) -> tuple[FloatArray, BoolArray]:
        """Return the rule's scores of live rows, and which of them are missing."""
        if self.made_by is None:
            columns = self.rule.columns
            values = score_columns(scores, columns, needed=self._needed, refuse=False)
            return values, ~(values > -np.inf)
        if self.maker is None:
            raise InvalidInputError(
                "a state does not hold what makes learned scores: read it with "
                "Watch.load(path, rule=demur.learn.LearnedRule.load(...))"
            )
        columns = self.maker.columns
        raw = score_columns(scores, columns, needed=[True] * columns.count, refuse=False)
        values = self.maker.doubts(raw)
        lacking = np.asarray((~(raw > -np.inf)).any(axis=1, keepdims=True))
        return values, np.repeat(lacking, values.shape[1], axis=1)

    @cached_property
    def _needed(self) -> list[bool]:
        return self.rule.needed

    @cached_property
    def _risk_cuts(self) -> FloatArray:
        return np.zeros(0) if self.reference is None else self.reference.risk_cuts

    def identity(self) -> dict[str, Any]:
        """Return what two watches must have in common to be one."""
        return {
            "rule": rule_data(self.rule),
            "expect": [[bound.to_data(), origin] for bound, origin in self.bounds],
            "alpha": self.alpha,
            "mean_time": self.mean_time,
            "audit": list(self.audit),
            "max_loss": self.max_loss,
            "ood_prior": None if self.prior is None else [self.prior.low, self.prior.high],
            "checks": None if self.checks is None else list(self.checks),
        } | ({} if self.made_by is None else {"learned": self.made_by})

    def with_audit(self, audit: tuple[float, float] | None) -> WatchSetup:
        """Return the setup with other rates of audits."""
        return self if audit is None else replace(self, audit=_audit(audit))


@dataclass(frozen=True, slots=True)
class DecidedRows:
    """Rows with their bins and the rule's decision."""

    bins: list[IntArray]
    accepted: BoolArray
    risk_bin: IntArray
    lacking: BoolArray

    def counts(self, layout: CountLayout) -> LiveCounts:
        """Return the counts of all rows."""
        found = LiveCounts.none(layout)
        found.add_rows(self.bins, self.accepted, self.risk_bin, int(np.count_nonzero(self.lacking)))
        return found

    def take(self, rows: Any) -> DecidedRows:
        """Return some of the rows."""
        risk = np.full(len(self.accepted), -1)
        risk[self.accepted] = self.risk_bin
        taken = self.accepted[rows]
        return DecidedRows(
            [place[rows] for place in self.bins],
            taken,
            risk[rows][taken],
            self.lacking[rows],
        )


def _audit(audit: Any) -> tuple[float, float]:
    if audit is None:
        return 1.0, 1.0
    try:
        accepted, rejected = (float(rate) for rate in audit)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "audit must be two numbers, the chances that an accepted and a rejected row is "
            f"audited, got {audit!r}"
        ) from None
    if not (0 <= accepted <= 1 and 0 <= rejected <= 1) or accepted + rejected == 0:
        raise InvalidInputError(f"audit must be two chances in [0, 1], not both 0, got {audit!r}")
    return accepted, rejected


def _reference(rule: Rule, given: Sample | Reference | None) -> Reference | None:
    if isinstance(given, Sample):
        if given.n_scores != len(rule.direction):
            raise InvalidInputError(
                f"reference has {given.n_scores} scores, the rule is about {len(rule.direction)}"
            )
        return Reference.of(given, rule.on(given.columns))
    if given is not None:
        check_kind("reference", given, Reference)
        return given
    return None if rule.card is None else rule.card.reference


def maker_mark(maker: ScoreMaker) -> str:
    """Return a mark by which learned scores are known again, whatever their columns are called."""
    told = maker.to_data()
    text = json.dumps([told["functions"], told["count"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def usual_prior(setup: WatchSetup) -> float:
    """Return the share of OOD inputs at which PSI and KS compare.

    The middle of what was declared, or else the share in the reference.
    """
    rates, reference = setup.rates, setup.reference
    if rates is not None and rates.prior is not None:
        return (rates.prior.low + rates.prior.high) / 2
    if reference is None:
        return 0.0
    sizes = [reference.accepted(side)[1] for side in (0, 1)]
    return sizes[1] / max(sum(sizes), 1)


def prior_seen(setup: WatchSetup, counts: LiveCounts) -> PriorSeen | None:
    """Return the share of OOD inputs that acceptance tells, None if nothing is known of rates."""
    rates, point = setup.rates, seen_rates(setup)
    if rates is None or point is None:
        return None
    return seen_prior(counts.sums, rates, point, setup.alpha)


def seen_rates(setup: WatchSetup) -> tuple[float, float] | None:
    """Return TPR and FPR as they were seen, None where they were not."""
    if setup.reference is not None:
        pairs = [setup.reference.accepted(side) for side in (0, 1)]
        if all(rows for _, rows in pairs):
            return pairs[0][0] / pairs[0][1], pairs[1][0] / pairs[1][1]
    return _middle(setup.rates)


def _middle(rates: KnownRates | None) -> tuple[float, float] | None:
    if rates is None:
        return None
    return (rates.tpr.low + rates.tpr.high) / 2, (rates.fpr.low + rates.fpr.high) / 2


def row_names(ids: Any) -> list[str]:
    """Return ids of rows as text."""
    return [str(key) for key in np.atleast_1d(_arrays.plain_array("ids", ids)).tolist()]


def row_values(name: str, values: Any, rows: int) -> Any:
    """Return one value a row, None if none are given."""
    if values is None:
        return None
    array = np.atleast_1d(_arrays.plain_array(name, values))
    if array.shape != (rows,):
        raise InvalidInputError(f"{name} has shape {array.shape}, expected ({rows},)")
    return array


def row_flags(audited: Any, rows: int) -> Any:
    """Return which rows were audited, None if that was not said."""
    array = row_values("audited", audited, rows)
    if array is None:
        return None
    if array.dtype.kind not in "bi" or not np.isin(array, (0, 1)).all():
        raise InvalidInputError("audited must be True or False for each row")
    return array.astype(bool)
