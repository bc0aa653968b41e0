"""Rates of a rule as functions of accepted masses, at any prior, and `evaluate` on new data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, Self, overload

import numpy as np

from demur._arrays import BoolArray, check_kind
from demur._kernels.engines import engine
from demur.core.columns import ScoreColumns
from demur.core.fingerprint import warn_of_tuning_rows
from demur.core.models import RejectionModel, check_model
from demur.core.points import Points
from demur.core.program import Number, Totals, exact
from demur.core.rule import BoxRule, Rule
from demur.core.sample import Sample
from demur.core.source import Measure, RuleCounts, ScoreSource, Tally
from demur.errors import InvalidInputError

# Rows that are decided at a time.
_BLOCK = 1 << 15


@dataclass(frozen=True, slots=True, repr=False)
class OperatingPoint:
    """What a rule does on a sample. Rates without a denominator are NaN.

    Examples
    --------
    >>> import demur as dm
    >>> sample = dm.Sample([1, 2, 3, 4], [0, 0, 0, 1], {"svhn": [3, 5], "noise": [6]})
    >>> point = dm.evaluate(dm.Rule([1.0], 3.5), sample, ood_prior=0.2)
    >>> point.tpr, point.selective_risk, point.fpr_by_set
    (0.75, 0.0, {'svhn': 0.5, 'noise': 0.0})
    >>> round(point.precision, 4)
    0.9
    """

    tpr: float
    """Share of ID accepted; also called recall and coverage."""
    fpr: float
    """Share of OOD accepted, all OOD rows pooled."""
    selective_risk: float
    """Mean loss of the accepted ID."""
    accepted_id: float
    """Number (weight) of ID accepted."""
    accepted_ood: float
    """Number (weight) of OOD accepted."""
    accepted_loss: float
    """Summed loss of the accepted ID."""
    ood_prior: float | None = None
    precision: float | None = None
    """Share of ID among the accepted, at `ood_prior`; None without a declared prior."""
    expected_cost: float | None = None
    """Objective of the `CostModel`; None under the other models."""
    fpr_by_set: Mapping[str, float] = field(default_factory=dict)
    """FPR of each named OOD set."""
    precision_by_set: Mapping[str, float] = field(default_factory=dict)
    """Precision if all OOD inputs were like each named set; empty without a declared prior."""
    tpr_by_group: Mapping[str, float] = field(default_factory=dict)
    """TPR of each group of ID rows."""
    selective_risk_by_group: Mapping[str, float] = field(default_factory=dict)
    """Mean loss of the accepted ID of each group."""

    def __repr__(self) -> str:
        names = ("tpr", "fpr", "selective_risk", "precision", "expected_cost")
        rates = [(name, getattr(self, name)) for name in names]
        known = [f"{name}={rate:.6g}" for name, rate in rates if rate is not None]
        accepted = f"{self.accepted_id:g} ID and {self.accepted_ood:g} OOD accepted"
        return f"OperatingPoint({', '.join(known)}; {accepted})"


@overload
def evaluate(
    rule: Rule,
    sample: Sample | ScoreSource,
    *,
    model: RejectionModel | None = None,
    ood_prior: Number | None = None,
    by: None = None,
) -> OperatingPoint: ...


@overload
def evaluate(
    rule: Rule,
    sample: ScoreSource,
    *,
    model: RejectionModel | None = None,
    ood_prior: Number | None = None,
    by: str,
) -> dict[Any, OperatingPoint]: ...


def evaluate(
    rule: Rule,
    sample: Sample | ScoreSource,
    *,
    model: RejectionModel | None = None,
    ood_prior: Number | None = None,
    by: str | None = None,
) -> OperatingPoint | dict[Any, OperatingPoint]:
    """Return every rate of `rule` on a sample, or on a source in a single pass.

    Warns if a saved rule is judged on rows of a sample that made it.

    Parameters
    ----------
    model
        A model that declares a prior (and costs) adds precision (and the expected cost).
    ood_prior
        Declares the prior for precision directly.
    by
        Column of a source; returns the operating point of each of its values.

    Examples
    --------
    >>> sample = Sample(id_scores=[0.1, 0.2, 0.9], id_loss=[0, 1, 1], ood_scores=[0.2, 0.8])
    >>> point = evaluate(Rule(direction=(1.0,), threshold=0.5), sample, ood_prior=0.25)
    >>> round(point.tpr, 3), point.fpr, point.selective_risk, point.precision
    (0.667, 0.5, 0.5, 0.8)
    """
    if isinstance(rule, (Sample, ScoreSource)) and isinstance(sample, Rule):
        raise InvalidInputError("the arguments are swapped: evaluate(rule, sample)")
    check_kind("rule", rule, Rule)
    check_kind("sample", sample, (Sample, ScoreSource))
    if model is not None:
        check_model(model)
    if not isinstance(sample, Sample):
        return _evaluate_source(rule, sample, model, ood_prior, by)
    if by is not None:
        raise InvalidInputError("by needs a source with columns, not a Sample")
    if rule.card is not None and rule.card.loaded:
        warn_of_tuning_rows(rule, sample)
    points = Points.of(sample, "worst")
    accepted = AcceptedMasses.of(rule, points, sample.columns)
    return operating_point(
        id_mass=accepted.id,
        ood_masses=accepted.ood,
        loss_mass=accepted.loss,
        totals=points.totals,
        model=model,
        ood_prior=ood_prior,
        set_names=tuple(sample.ood_sets),
        groups=accepted.groups,
    )


class AcceptedMasses(NamedTuple):
    """Masses that a rule accepts; of OOD one for every set that is bounded by itself."""

    id: int
    ood: list[int]
    loss: int
    groups: list[tuple[int, int]]
    """ID and loss mass of each group of ID rows."""

    @classmethod
    def of(cls, rule: Rule, points: Points, columns: ScoreColumns) -> Self:
        """Decide all points, which are doubts made of these columns."""
        decides = rule.for_doubts(columns)
        group, names = points.group_code(), points.totals.groups
        passes = engine().passes
        weighs = not isinstance(decides, BoxRule) and points.scores.shape[1] == 2
        if passes is not None and weighs and group is None:
            half_plane = decides.direction, decides.threshold
            weighed = points.id, points.loss, points.ood
            found = passes.tally(points.scores, *half_plane, weighed, closed=bool(decides.tau))
            return cls(found[0], found[2:], found[1], [(0, 0)] * len(names))
        id_mass = loss_mass = 0
        ood_masses = [0] * len(points.ood)
        by_group = np.zeros((2, len(names)))
        # A block at a time, since what lies between fits the cache then.
        for start in range(0, len(points.scores), _BLOCK):
            part = slice(start, start + _BLOCK)
            accepted = decides.within(decides.weigh(points.scores[part])).nonzero()[0]
            id_mass += int(points.id[part].take(accepted).sum())
            loss_mass += int(points.loss[part].take(accepted).sum())
            for k, masses in enumerate(points.ood):
                ood_masses[k] += int(masses[part].take(accepted).sum())
            if group is not None:
                own = accepted[accepted < len(group) - start]
                for sums, masses in zip(by_group, (points.id, points.loss), strict=True):
                    # Sums of integers below 2**52 are exact in float64.
                    sums += np.bincount(group[part][own], masses[part][own], len(names))
        groups = [(int(id_), int(loss)) for id_, loss in by_group.T]
        return cls(id_mass, ood_masses, loss_mass, groups)


def accepted_rows(rule: Rule, sample: Sample) -> tuple[BoolArray, BoolArray]:
    """Return which ID and which OOD rows of a sample a rule accepts."""
    matched = rule.on(sample.columns)
    return matched.accept(sample.id_scores), matched.accept(sample.ood_scores)


def _evaluate_source(
    rule: Rule,
    source: ScoreSource,
    model: RejectionModel | None,
    ood_prior: Number | None,
    by: str | None,
) -> OperatingPoint | dict[Any, OperatingPoint]:
    points = counted_points(count_rule(rule, source, by=by), model=model, ood_prior=ood_prior)
    return points[None] if by is None else points


def counted_points(
    counts: RuleCounts,
    *,
    model: RejectionModel | None = None,
    ood_prior: Number | None = None,
) -> dict[Any, OperatingPoint]:
    """Return the rates of a rule that was counted, for each value that was told apart."""
    return {
        group: tally_point(
            tally, counts.measure, counts.sizes.sets, model=model, ood_prior=ood_prior
        )
        for group, tally in counts.tallies.items()
    }


def count_rule(rule: Rule, source: ScoreSource, *, by: str | None = None) -> RuleCounts:
    """Count what a rule accepts of a source, in one pass where its rows allow that."""
    decides = rule.for_doubts(source.columns)
    counts = source.rule_counts(decides, by=by)
    if counts is not None:
        return counts
    overview = source.overview()
    measure = Measure.of(overview, apart=True, grouped=True)
    return RuleCounts(overview, measure, source.tally(decides, measure, by=by))


def tally_point(
    tally: Tally,
    measure: Measure,
    sets: tuple[str, ...],
    *,
    model: RejectionModel | None = None,
    ood_prior: Number | None = None,
) -> OperatingPoint:
    """Return the rates that go with a tally of OOD sets told apart."""
    half = len(measure.groups)
    return operating_point(
        id_mass=tally.id,
        ood_masses=list(tally.ood),
        loss_mass=tally.loss,
        totals=Totals(
            tally.total_id,
            tally.total_ood,
            tally.total_loss,
            measure.id_exponent,
            measure.ood_exponent,
            measure.loss_exponent,
            groups=tuple(zip(measure.groups, tally.total_groups, strict=False)),
        ),
        model=model,
        ood_prior=ood_prior,
        set_names=sets,
        groups=list(zip(tally.groups[:half], tally.groups[half:], strict=True)),
    )


def operating_point(
    *,
    id_mass: int,
    ood_masses: list[int],
    loss_mass: int,
    totals: Totals,
    model: RejectionModel | None = None,
    ood_prior: Number | None = None,
    set_names: tuple[str, ...] = (),
    groups: Sequence[tuple[int, int]] = (),
) -> OperatingPoint:
    """Return the rates that go with accepted masses; `groups` are ID and loss mass of each."""
    prior = _declared_prior(model, ood_prior)
    tpr = _ratio(id_mass, totals.id)
    fpr = _ratio(sum(ood_masses), sum(totals.ood))
    loss = totals.loss_sum(loss_mass)
    accepted_id = totals.id_weight(id_mass)
    return OperatingPoint(
        tpr=tpr,
        fpr=fpr,
        selective_risk=_ratio(loss, accepted_id),
        accepted_id=accepted_id,
        accepted_ood=totals.ood_weight(sum(ood_masses)),
        accepted_loss=loss,
        ood_prior=None if prior is None else float(prior),
        precision=None if prior is None else precision(id_mass, sum(ood_masses), totals, prior),
        expected_cost=None
        if model is None or model.cost is None
        else model.cost.at(
            tpr, fpr, _ratio(loss, totals.id_weight(totals.id)), float(model.ood_prior or 0)
        ),
        fpr_by_set={
            name: _ratio(mass, total)
            for name, mass, total in zip(set_names, ood_masses, totals.ood, strict=True)
        }
        if set_names
        else {},
        precision_by_set={
            name: precision(id_mass, mass, replace(totals, ood=(total,)), prior)
            for name, mass, total in zip(set_names, ood_masses, totals.ood, strict=True)
        }
        if set_names and prior is not None
        else {},
        tpr_by_group={
            name: _ratio(mass, total)
            for (name, total), (mass, _) in zip(totals.groups, groups, strict=False)
        },
        selective_risk_by_group={
            name: _ratio(totals.loss_sum(loss), totals.id_weight(mass))
            for (name, _), (mass, loss) in zip(totals.groups, groups, strict=False)
        },
    )


def precision(id_mass: int, ood_mass: int, totals: Totals, ood_prior: Number) -> float:
    """Return ``(1-pi) TPR / ((1-pi) TPR + pi FPR)`` of accepted masses, rounded only once.

    So a precision that meets a bound exactly also compares so. NaN when nothing is accepted,
    or when the prior needs an OOD side that is empty.
    """
    prior = exact("ood_prior", ood_prior)
    if totals.id == 0 or (prior > 0 and sum(totals.ood) == 0):
        return math.nan
    accepted_id = (1 - prior) * Fraction(id_mass, totals.id)
    accepted_ood = prior * Fraction(ood_mass, sum(totals.ood)) if prior else Fraction(0)
    if accepted_id + accepted_ood == 0:
        return math.nan
    return float(accepted_id / (accepted_id + accepted_ood))


def _declared_prior(model: RejectionModel | None, ood_prior: Number | None) -> Number | None:
    if ood_prior is not None:
        if not 0 <= exact("ood_prior", ood_prior) < 1:
            raise InvalidInputError(f"ood_prior must be in [0, 1), got {ood_prior}")
        return ood_prior
    return None if model is None else model.ood_prior


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else math.nan
