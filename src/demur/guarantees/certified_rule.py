"""What can be promised of a fixed rule, from fresh data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from demur._arrays import NUMBER, BoolArray, seeded, takes
from demur.core.fingerprint import share_of_tuning_rows, share_text
from demur.core.models import EACH_SET, Bound, RejectionModel
from demur.core.program import Number, refuse_unknown_parts
from demur.core.rates import OperatingPoint, accepted_rows, count_rule, evaluate, tally_point
from demur.core.rule import Rule
from demur.core.sample import Sample, members
from demur.core.source import RuleCounts, ScoreSource
from demur.core.wording import bound_text
from demur.errors import InvalidInputError
from demur.guarantees.intervals import (
    Interval,
    Prior,
    cost_range,
    declared_losses,
    mean_lower,
    miss,
    precision_range,
    prior_range,
    rate_lower,
    rate_upper,
    refuse_weights,
    risk_upper,
    sidak,
)
from demur.guarantees.splits import (
    EVERY_ID_ONCE,
    Groups,
    IdMeans,
    Seed,
    in_several_groups,
    on_both_sides,
    one_of_each,
    refuse_repeated,
    repeated,
)

OOD_CAVEAT = (
    "FPR, precision and cost hold for OOD inputs like the OOD rows supplied, and only for them."
)
PARTS_CAVEAT = (
    "Bounds on groups and on single OOD sets have the level of one: that all of them hold is "
    "proven together with the rest; where one is not proven, the others are proven one at a time."
)


PerId = Literal["refuse", "draw", "mean"]


@dataclass(frozen=True, slots=True, repr=False)
class Certified:
    """Bounds that hold all together, with probability at least `confidence` over the data.

    An end that is not promised is the trivial one (0 or 1, 0 or `max_loss`).

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> sample = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> promise = dm.guarantees.certify(dm.Rule([1.0], 3.0), sample, model=dm.TprFprModel(0.8, 0.3))
    >>> promise.met, round(promise.tpr.low, 3), round(promise.fpr.high, 3)
    ({'tpr >= 0.8': True, 'fpr <= 0.3': True}, 0.858, 0.218)
    """

    confidence: float
    tpr: Interval
    fpr: Interval
    """Of all OOD rows; of the worst OOD set where `worst` says so."""
    selective_risk: Interval
    """NaN for a rule that accepts nothing by construction."""
    precision: Interval | None
    """At the declared prior, the worst over an interval of priors; None without a prior."""
    expected_cost: Interval | None
    """None unless the model has costs."""
    point: OperatingPoint
    """What was seen on the data; not a promise."""
    met: Mapping[str, bool]
    """For each bound of the model, such as ``"tpr >= 0.8"``, whether it is certified."""
    worst: bool = False
    """Whether FPR and precision are those of the worst OOD set."""
    fpr_by_set: Mapping[str, Interval] = field(default_factory=dict)
    """Where the model bounds sets: each at the level of one, so that the worst is known."""
    tpr_by_group: Mapping[str, Interval] = field(default_factory=dict)
    """Of the groups that the model bounds: each at the level of one, as sets are."""
    selective_risk_by_group: Mapping[str, Interval] = field(default_factory=dict)
    """Of the groups that the model bounds."""
    caveat: str = OOD_CAVEAT

    @property
    def holds(self) -> bool:
        """Whether every bound of the model is certified."""
        return all(self.met.values())

    def __repr__(self) -> str:
        named = ("tpr", "fpr", "selective_risk", "precision", "expected_cost")
        found = [(name, getattr(self, name)) for name in named]
        stated = [f"{name} [{e.low:.4g}, {e.high:.4g}]" for name, e in found if e is not None]
        judged = [f"{text}: {'yes' if met else 'no'}" for text, met in self.met.items()]
        return f"Certified({'; '.join([', '.join(stated), *judged])}; {self.confidence:.4g})"


@takes(rule=Rule, sample=(Sample, ScoreSource, RuleCounts), model=RejectionModel, max_loss=NUMBER)
def certify(
    rule: Rule,
    sample: Sample | ScoreSource | RuleCounts,
    *,
    confidence: float = 0.95,
    model: RejectionModel | None = None,
    ood_prior: Prior | None = None,
    max_loss: Number | None = None,
    sides: Literal["one", "two"] = "one",
    groups: Groups | None = None,
    per_id: PerId = "refuse",
    rng: Seed = 0,
    allow_tuning_rows: bool = False,
) -> Certified:
    """Return simultaneous bounds for all rates of `rule` from data it was not tuned on.

    TPR and FPR are bounded by exact binomials. Given how many ID rows were accepted, their
    losses are independent draws, so selective risk gets an exact binomial under 0/1 loss and a
    betting bound under other losses. ID and OOD rows are independent samples, and the risk
    bound holds given the accepted count: the chances that the bounds hold multiply, so each of
    the k bounds gets the level ``1 - confidence**(1/k)``. Precision and cost follow from these
    bounds by their formulas and cost nothing more.

    Where the model bounds every OOD set, each is tested at the level of one: the largest upper
    bound is below the largest FPR only if that of the worst set is. Bounds on groups of ID rows
    and on single sets share the level of one likewise: if any of them is false, all are proven
    only if that one is (an intersection-union test).

    Parameters
    ----------
    sample
        Fresh, unweighted, independent rows. Of a source, whose losses must be 0 or 1, the rows
        are counted where they are, in one pass where all their scores are finite, and else two.
        What `demur.core.rates.count_rule` counted of one will do.
    model
        Whose bounds are to be checked; may declare the prior.
    ood_prior
        Share of OOD inputs in deployment, or a (low, high) pair to be safe over.
    max_loss
        The largest possible loss, seen or not; None declares the 0/1 loss.
    sides
        ``"one"`` promises what users ask for (TPR at least, FPR and selective risk at most);
        ``"two"`` bounds every rate from both sides, which is wider.
    groups
        What the ID rows and the OOD rows belong to, such as (patients of the ID rows, patients of
        the OOD rows). Rows of one are not independent.
    per_id
        What to do where rows share one of `groups`: ``"refuse"``; ``"draw"`` one row of each at
        random; or bound the ``"mean"`` over them by betting on the average of each. Both certify
        the rates of a row drawn at random from an id drawn at random.
    rng
        Shuffles the losses for the betting bound, and draws rows.
    allow_tuning_rows
        Go on with rows that made the rule, whose numbers promise nothing; else they are refused
        where the rule's card knows them.

    Examples
    --------
    >>> import numpy as np
    >>> from demur import TprFprModel
    >>> sample = Sample(np.linspace(0, 1, 200), np.zeros(200), ood_scores=np.linspace(0.7, 2, 100))
    >>> promise = certify(Rule((1.0,), 0.9), sample, model=TprFprModel(0.8, 0.25))
    >>> round(promise.tpr.low, 3), round(promise.fpr.high, 3), round(promise.selective_risk.high, 4)
    (0.845, 0.254, 0.0224)
    >>> promise.met
    {'tpr >= 0.8': True, 'fpr <= 0.25': False}
    """
    if rule.tau != 1:
        raise InvalidInputError("only a rule that is not random on its boundary can be certified")
    if sides not in ("one", "two"):
        raise InvalidInputError(f'sides must be "one" or "two", got {sides!r}')
    seeded(rng)  # refused here, for not every sample needs it
    if not allow_tuning_rows and isinstance(sample, Sample):
        _refuse_tuning_rows(rule, sample)
    priors = prior_range(model, ood_prior)
    declared = None if isinstance(ood_prior, tuple) else ood_prior
    judged = _judge(rule, sample, _JudgedRows(model, declared, max_loss, groups, per_id, rng))
    if not allow_tuning_rows and not isinstance(sample, Sample | RuleCounts):
        _refuse_tuning_rows(rule, sample, judged.point)
    asked = () if model is None else model.bounds
    refuse_unknown_parts(asked, judged.ood_sets, judged.groups)
    scopes, grouped = _scopes(asked), judged.grouped
    parts = tuple(bound for bound in asked if bound.is_of_part)
    if priors is not None and priors.high > 0 and judged.n_ood == 0:
        raise InvalidInputError("ood_prior is positive but the sample has no OOD rows")
    costs = model is not None and model.cost is not None
    point = judged.point
    ends = _Ends(both=sides == "two", both_tpr=sides == "two" or costs)
    # Bounds from the same rows or ids are not independent: their levels add up.
    count = 2 + (len(scopes) if judged.n_ood else 0) + bool(parts)
    delta = miss(confidence)
    apart = not (grouped or judged.shared or len(scopes) > 1 or parts)
    level = sidak(delta, count) if apart else delta / count
    rates = _bound_rates(rule, judged, scopes, parts, level, ends)
    main = rates.fpr[scopes[0]]
    cost = None
    if model is not None and costs and priors:
        cost = cost_range(model, rates.tpr, main, rates.risk, priors)
    return Certified(
        confidence=confidence,
        tpr=rates.tpr,
        fpr=main,
        selective_risk=rates.risk,
        precision=None if priors is None else precision_range(rates.tpr, main, priors),
        expected_cost=cost,
        point=point,
        met={} if model is None else _met(model, rates, priors),
        worst=scopes[0] == EACH_SET,
        fpr_by_set=rates.by_set,
        tpr_by_group=rates.tpr_by_group,
        selective_risk_by_group=rates.risk_by_group,
        caveat=" ".join(
            [EVERY_ID_ONCE] * grouped + [PARTS_CAVEAT] * (len(parts) > 1) + [OOD_CAVEAT]
        ),
    )


class _JudgedRows(NamedTuple):
    """What is said of the rows."""

    model: RejectionModel | None
    ood_prior: Number | None
    max_loss: Number | None
    groups: Groups | None
    per_id: PerId
    rng: Seed


class _Judged(NamedTuple):
    """What the rows say of a rule."""

    point: OperatingPoint
    evidence: RateEvidence
    n_ood: int
    ood_sets: Mapping[str, slice]
    groups: tuple[str, ...] = ()
    """Groups of ID rows."""
    grouped: bool = False
    """Whether rows share an id."""
    shared: bool = False
    """Whether ID and OOD rows do."""


def _judge(rule: Rule, sample: Sample | ScoreSource | RuleCounts, told: _JudgedRows) -> _Judged:
    if not isinstance(sample, Sample):
        return _count(rule, sample, told)
    refuse_weights(sample)
    declared_losses(sample, told.max_loss)
    point = evaluate(rule, sample, model=told.model, ood_prior=told.ood_prior)
    groups = told.groups
    grouped = groups is not None and _has_repeats(sample, groups, told.per_id)
    shared = groups is not None and on_both_sides(sample, groups)
    bounded = told.model is not None and any(bound.group for bound in told.model.bounds)
    if groups is not None and grouped and told.per_id == "draw":
        sample, groups = one_of_each(sample, groups, told.rng), None
    elif groups is not None and grouped and bounded and in_several_groups(sample, groups):
        raise InvalidInputError(
            "some ids have rows of several groups, so that their means stand for none of them: "
            'keep each id in one group, or ask for per_id="draw"'
        )
    evidence = _evidence(rule, sample, told.max_loss, told.rng, groups if grouped else None)
    return _Judged(point, evidence, sample.n_ood, sample.ood_sets, sample.groups, grouped, shared)


def _count(rule: Rule, source: ScoreSource | RuleCounts, told: _JudgedRows) -> _Judged:
    """Count the rows of a source where they are."""
    if told.groups is not None:
        raise InvalidInputError("rows that share an id need memory: give a Sample and its groups")
    counts = source if isinstance(source, RuleCounts) else count_rule(rule, source)
    measure, sizes, tally = counts.measure, counts.sizes, counts.whole
    if not measure.plain:
        raise InvalidInputError(
            "a source is certified by counts, which need rows without weights and losses of 0 and "
            "1: other losses are bounded one by one, with --max-loss (in Python with a Sample and "
            "max_loss)"
        )
    point = tally_point(tally, measure, sizes.sets, model=told.model, ood_prior=told.ood_prior)
    ends = list(accumulate(sizes.ood_rows, initial=0))
    sets = {name: slice(*pair) for name, pair in zip(sizes.sets, pairwise(ends), strict=True)}
    accepted = list(zip(sets.values(), tally.ood, strict=True))
    half = len(measure.groups)
    of_groups = zip(tally.groups[:half], tally.total_groups, tally.groups[half:], strict=False)
    groups = dict(zip(measure.groups, of_groups, strict=False))
    evidence = TalliedRows(tally.id, tally.total_id, tally.loss, tuple(accepted), groups)
    return _Judged(point, evidence, ends[-1], sets, tuple(groups))


def _refuse_tuning_rows(
    rule: Rule, sample: Sample | ScoreSource, point: OperatingPoint | None = None
) -> None:
    share = share_of_tuning_rows(rule, sample, point)
    if share:
        raise InvalidInputError(
            f"{share_text(share)} made the rule, and a promise needs rows that did not: give fresh "
            "rows, or tune with a guarantee; allow_tuning_rows=True goes on all the same"
        )


def _has_repeats(sample: Sample, groups: Groups, per_id: PerId) -> bool:
    if per_id not in get_args(PerId):
        raise InvalidInputError(f"per_id must be one of {list(get_args(PerId))}, got {per_id!r}")
    rows, ids = repeated(sample, groups)
    if ids < rows and per_id == "refuse":
        refuse_repeated(
            sample,
            groups,
            'keep one row of each id, or ask for per_id="draw" (one row of each id, at random) or '
            'per_id="mean" (bounds on the mean over ids)',
        )
    return ids < rows


@dataclass(frozen=True, slots=True)
class _Ends:
    both: bool
    both_tpr: bool


def _evidence(
    rule: Rule, sample: Sample, max_loss: Number | None, rng: Seed, groups: Groups | None
) -> RateEvidence:
    accepted = accepted_rows(rule, sample)
    if groups is None:
        return IndependentRows(sample, accepted, max_loss, rng)
    return IdMeans.of(sample, accepted, groups, 1.0 if max_loss is None else float(max_loss), rng)


@dataclass(frozen=True, slots=True)
class _BoundRates:
    """Bounds that hold together."""

    tpr: Interval
    fpr: Mapping[str | None, Interval]
    """By what bounds are about: None for all OOD rows, a set, or the worst of them."""
    risk: Interval
    by_set: Mapping[str, Interval]
    tpr_by_group: Mapping[str, Interval]
    risk_by_group: Mapping[str, Interval]

    def of(self, bound: Bound, priors: Interval | None) -> Interval:
        """Return what is certified of a bounded quantity."""
        if bound.quantity == "precision" and priors is not None:
            return precision_range(self.tpr, self.fpr[bound.ood_set], priors)
        if bound.quantity == "fpr":
            return self.fpr[bound.ood_set]
        if bound.group is not None:
            of_groups = self.tpr_by_group if bound.quantity == "tpr" else self.risk_by_group
            return of_groups[bound.group]
        return self.tpr if bound.quantity == "tpr" else self.risk


def _bound_rates(
    rule: Rule,
    judged: _Judged,
    scopes: tuple[str | None, ...],
    parts: tuple[Bound, ...],
    level: float,
    ends: _Ends,
) -> _BoundRates:
    own = {
        quantity: sorted({str(b.group) for b in parts if b.group and b.quantity == quantity})
        for quantity in ("tpr", "selective_risk")
    }
    names = {bound.ood_set for bound in parts if bound.ood_set is not None}
    if rule.threshold == -math.inf:
        nothing, unknown = Interval(0.0, 0.0), Interval(math.nan, math.nan)
        fprs = dict.fromkeys([*scopes, *names], nothing)
        of_groups = (
            dict.fromkeys(own["tpr"], nothing),
            dict.fromkeys(own["selective_risk"], unknown),
        )
        return _BoundRates(nothing, fprs, unknown, {}, *of_groups)
    evidence = judged.evidence
    by_set = {
        name: evidence.fpr(judged.ood_sets[name], level, low=ends.both, high=True)
        for name in sorted(names)
    }
    found: dict[str | None, Interval] = {}
    found.update(by_set)
    # Of the worst set, two ends are two statements.
    end = level / 2 if ends.both else level
    for scope in scopes:
        pooled = Interval(0.0, 1.0)
        if judged.n_ood:
            whole = slice(0, judged.n_ood)
            one = level if scope is None else end
            pooled = evidence.fpr(whole, one, low=ends.both, high=scope is None)
        if scope is None:
            found[scope] = pooled
            continue
        worst = 0.0
        for name, rows in judged.ood_sets.items():
            one_set = evidence.fpr(rows, end, low=False, high=True)
            worst = max(worst, one_set.high)
            by_set.setdefault(name, one_set)
        # The worst set accepts at least what all of them do.
        found[scope] = Interval(pooled.low, worst)
    return _BoundRates(
        tpr=evidence.tpr(level, low=True, high=ends.both_tpr),
        fpr=found,
        risk=evidence.risk(level, both=ends.both),
        by_set=by_set,
        tpr_by_group={
            name: evidence.tpr(level, low=True, high=ends.both, group=name) for name in own["tpr"]
        },
        risk_by_group={
            name: evidence.risk(level, both=ends.both, group=name) for name in own["selective_risk"]
        },
    )


def _scopes(bounds: Sequence[Bound]) -> tuple[str | None, ...]:
    """Return what is said of OOD rows beside single sets: of all of them, and of every set."""
    asked = [
        bound.ood_set
        for bound in bounds
        if bound.quantity in ("fpr", "precision") and not bound.is_of_one_set
    ]
    main = EACH_SET if EACH_SET in asked and None not in asked else None
    return tuple(dict.fromkeys([main, *asked]))


def _met(model: RejectionModel, rates: _BoundRates, priors: Interval | None) -> dict[str, bool]:
    """Return which bounds of the model the certified intervals keep, the TPR's first."""
    return {
        bound_text(model, bound): _keeps(rates.of(bound, priors), bound)
        for bound in sorted(model.bounds, key=lambda bound: bound.quantity != "tpr")
    }


def _keeps(rate: Interval, bound: Bound) -> bool:
    return bound.met_by(rate.low if bound.is_lower else rate.high)


class RateEvidence(Protocol):
    """What bounds rates: counts of rows, or means of ids."""

    def tpr(self, level: float, *, low: bool, high: bool, group: str | None = None) -> Interval:
        """Bound the TPR, of all ID rows or of a group of them."""

    def fpr(self, part: slice, level: float, *, low: bool, high: bool) -> Interval:
        """Bound the FPR of some OOD rows."""

    def risk(self, level: float, *, both: bool, group: str | None = None) -> Interval:
        """Bound the selective risk, of all ID rows or of a group of them."""


@dataclass(frozen=True, slots=True, eq=False)
class IndependentRows:
    """Independent rows: exact binomials, and betting for graded losses."""

    sample: Sample
    accepted: tuple[BoolArray, BoolArray]
    max_loss: Number | None
    rng: Seed

    def tpr(self, level: float, *, low: bool, high: bool, group: str | None = None) -> Interval:
        """Bound the TPR."""
        return _rate(self.accepted[0][members(self.sample, group)], level, low=low, high=high)

    def fpr(self, part: slice, level: float, *, low: bool, high: bool) -> Interval:
        """Bound the FPR of some OOD rows."""
        return _rate(self.accepted[1][part], level, low=low, high=high)

    def risk(self, level: float, *, both: bool, group: str | None = None) -> Interval:
        """Bound the selective risk."""
        level = level / 2 if both else level
        losses = self.sample.id_loss[self.accepted[0] & members(self.sample, group)]
        upper = risk_upper(losses, level, max_loss=self.max_loss, rng=self.rng)
        if not both:
            return Interval(0.0, upper)
        if self.max_loss is None:
            return Interval(rate_lower(int(losses.sum()), len(losses), level), upper)
        shuffled = np.random.default_rng(self.rng).permutation(losses)
        return Interval(mean_lower(shuffled, level, max_value=float(self.max_loss)), upper)


@dataclass(frozen=True, slots=True)
class TalliedRows:
    """Independent rows that were counted elsewhere, with losses of 0 and 1."""

    id: int
    """Accepted ID rows."""
    total_id: int
    loss: int
    """Errors among the accepted."""
    sets: tuple[tuple[slice, int], ...]
    """Which OOD rows are those of each set, and how many of them were accepted."""
    groups: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """ID rows accepted, all, and errors among the accepted, of each group."""

    def tpr(self, level: float, *, low: bool, high: bool, group: str | None = None) -> Interval:
        """Bound the TPR."""
        accepted, total, _ = self._own(group)
        return _rate_of(accepted, total, level, low=low, high=high)

    def fpr(self, part: slice, level: float, *, low: bool, high: bool) -> Interval:
        """Bound the FPR of one set, or of several together."""
        within = [k for rows, k in self.sets if part.start <= rows.start and rows.stop <= part.stop]
        return _rate_of(sum(within), part.stop - part.start, level, low=low, high=high)

    def risk(self, level: float, *, both: bool, group: str | None = None) -> Interval:
        """Bound the selective risk."""
        accepted, _, wrong = self._own(group)
        return _rate_of(wrong, accepted, level, low=both, high=True)

    def _own(self, group: str | None) -> tuple[int, int, int]:
        return (self.id, self.total_id, self.loss) if group is None else self.groups[group]


def _rate(accepted: BoolArray, level: float, *, low: bool, high: bool) -> Interval:
    return _rate_of(int(accepted.sum()), len(accepted), level, low=low, high=high)


def _rate_of(count: int, total: int, level: float, *, low: bool, high: bool) -> Interval:
    level = level / 2 if low and high else level
    return Interval(
        rate_lower(count, total, level) if low else 0.0,
        rate_upper(count, total, level) if high else 1.0,
    )
