"""What a report is about, a tuned rule and its rows, and what is seen: rates and bounds kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from demur.core.models import Bound, RejectionModel
from demur.core.points import Points
from demur.core.program import Number
from demur.core.rates import OperatingPoint, accepted_rows, evaluate, tally_point
from demur.core.rule import BoxRule, Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.core.source import RuleCounts, Sizes
from demur.core.wording import RATE_NAMES, bound_sign, bound_text, value_at, whose
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.certified_rule import Certified, certify
from demur.guarantees.intervals import Interval, clopper_pearson
from demur.guarantees.splits import Groups, in_several_groups
from demur.metrics.rules import CountedCells
from demur.tuning.result import Directions, Exact, Grid, SearchCertificate, Tuning
from demur.tuning.tune import tune


@dataclass(frozen=True, slots=True, eq=False)
class AllRows:
    """Rows that stay where they are, of which a sample was drawn."""

    sizes: Sizes
    counts: RuleCounts | None
    """What the rule accepts of them; None if that was not counted."""
    cells: CountedCells | None
    """What other rules accept of them, about; None where there are no others."""


@dataclass(frozen=True, slots=True, eq=False)
class WholeRows:
    """All rows, where those of a case are some that were drawn."""

    tuned: AllRows
    held_out: AllRows | None
    certificate: SearchCertificate | None
    """Of the rule, which was tuned on all rows; None if it was not."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A tuned rule, the rows it was tuned on, rows held out, and the options of the tuning."""

    sample: Sample
    tuning: Tuning
    held_out: Sample | None = None
    directions: Directions = "nonneg"
    search: Exact | Grid | None = None
    confidence: float = 0.95
    """Of all intervals."""
    max_loss: Number | None = None
    """The largest possible loss, where it is known and not 0/1."""
    about: Rule | None = None
    """The rule in question, where it is another than the tuned one: one with a guarantee."""
    unmet: InfeasibleError | None = None
    """What `tune` said of bounds that no rule meets; then the tuned rule is the nearest."""
    held_out_groups: Groups | None = None
    """What the ID and the OOD rows of `held_out` belong to, such as patients."""
    whole: WholeRows | None = None
    """All rows, if `sample` and `held_out` are some of them."""

    def __post_init__(self) -> None:
        if Points.of(self.sample, self.ood).totals != self.tuning.totals:
            raise InvalidInputError("sample is not the one that was tuned on: its totals differ")
        expected = len(self.rule.direction)
        for name, rows in (("sample", self.sample), ("held_out", self.held_out)):
            if rows is not None and rows.n_scores != expected:
                raise InvalidInputError(
                    f"{name} has {rows.n_scores} scores a row, the rule {expected}"
                )

    @property
    def rule(self) -> Rule:
        """The rule in question: the tuned one, if no other."""
        return self.about or self.tuning.rule

    @property
    def is_optimum(self) -> bool:
        """Whether the rule is what `tune` returns for the bounds asked for."""
        own = self.about is None or self._of_all is not None
        return own and self.unmet is None

    @property
    def _of_all(self) -> SearchCertificate | None:
        return None if self.whole is None else self.whole.certificate

    @property
    def certificate(self) -> SearchCertificate:
        """What was proven of the tuned rule."""
        return self._of_all or self.tuning.certificate

    @property
    def searched(self) -> Rule:
        """What the search found."""
        return self.tuning.rule if self._of_all is None else self.rule

    def all_of(self, rows: Sample) -> AllRows | None:
        """Return all rows of which these are some; None if these are all."""
        if self.whole is None:
            return None
        return self.whole.tuned if rows is self.sample else self.whole.held_out

    def counted(self, rows: Sample) -> RuleCounts | None:
        """Return what the rule accepts of all rows of which these are some, if that is known."""
        found = self.all_of(rows)
        return None if found is None else found.counts

    def sizes(self, rows: Sample) -> tuple[int, int]:
        """Return how many ID and OOD rows what is said of these rests on."""
        counts = self.counted(rows)
        if counts is None:
            return rows.n_id, rows.n_ood
        return counts.sizes.id_rows, sum(counts.sizes.ood_rows)

    def point(self, rows: Sample) -> OperatingPoint:
        """Return what the rule does on rows, or on all of which these are some."""
        counts = self.counted(rows)
        if counts is None:
            return evaluate(self.rule, rows, model=self.model)
        sets = counts.sizes.sets
        return tally_point(counts.whole, counts.measure, sets, model=self.model)

    @property
    def ood_sets(self) -> tuple[str, ...]:
        """Names of the OOD sets."""
        return tuple(self.sample.ood_sets) if self.whole is None else self.whole.tuned.sizes.sets

    @property
    def drawn(self) -> str:
        """What to add where something rests on drawn rows; nothing where these are all."""
        if self.whole is None:
            return ""
        return f" Of {self.sample.n_id + self.sample.n_ood:,} rows drawn by a hash."

    @property
    def is_choice(self) -> bool:
        """Whether of all rules with its counts `tune` would prefer it, as no bound is on parts."""
        return self.is_optimum and not any(bound.is_of_part for bound in self.model.bounds)

    @property
    def model(self) -> RejectionModel:
        """What was asked for."""
        return self.tuning.model if self.unmet is None else self.unmet.model

    @property
    def asked(self) -> RejectionModel:
        """The model, with bounds of every OOD set where they were tuned so."""
        return self.model.of_every_set() if self.worst else self.model

    def groups_of(self, rows: Sample) -> Groups | None:
        """Return what rows belong to, where that is known and anything is promised by them."""
        return self.held_out_groups if rows is self.held_out else None

    @property
    def ood(self) -> Literal["pooled", "worst"]:
        """Whether bounds hold for all OOD rows together or for every set."""
        return "worst" if len(self.tuning.totals.ood) > 1 else "pooled"

    @property
    def worst(self) -> bool:
        """Whether bounds hold for every OOD set, not for all OOD rows together."""
        return self.ood == "worst"

    @property
    def whose(self) -> str:
        """What a bound on OOD rows is about, in words, where there are several sets."""
        if self.worst:
            return " of every set"
        return " of all OOD sets together" if len(self.sample.ood_sets) > 1 else ""

    @property
    def judged(self) -> Sample:
        """The rows whose numbers count: the held-out ones where there are any."""
        return self.sample if self.held_out is None else self.held_out

    def knows_loss(self, rows: Sample) -> bool:
        """Return whether the largest possible loss is known, so that mean losses are bounded."""
        return is_zero_one(rows) or self.max_loss is not None

    @property
    def is_box(self) -> bool:
        """Whether the rule limits each score by itself."""
        return isinstance(self.rule, BoxRule)

    def tune(self, sample: Sample, model: RejectionModel | None = None) -> Tuning:
        """Tune other rows in the same way, for the same model if no other is given."""
        asked = self.model if model is None else model
        if self.is_box:
            return tune(sample, asked, search=self.search, ood=self.ood, shape="box")
        return tune(sample, asked, directions=self.directions, search=self.search, ood=self.ood)

    def command_line(self, given: str | None) -> str:
        """Return the command up to the bounds, nothing where it is not known what was read."""
        if given is None:
            return ""
        words = [given]
        if self.worst:
            words.append("--fpr-of worst")
        if self.is_box:
            words.append("--shape box")
        if self._says_directions:
            words.append(f"--directions {self.directions}")
        if isinstance(self.search, Grid):
            words.append(f"--grid {self.search.angles}")
        return " ".join(words)

    def python_arguments(self) -> str:
        """Return the arguments of `demur.tune` behind the model."""
        text = f', directions="{self.directions}"' if self._says_directions else ""
        if self.is_box:
            text = ', shape="box"'
        if self.search is not None:
            text += f", search=dm.{self.search!r}"
        return text + (', ood="worst"' if self.worst else "")

    @property
    def _says_directions(self) -> bool:
        # A grid has another default than the exact search.
        return not self.is_box and (self.directions != "nonneg" or isinstance(self.search, Grid))


def is_zero_one(sample: Sample) -> bool:
    """Return whether the losses say right or wrong."""
    return bool(np.isin(sample.id_loss, (0, 1)).all())


def is_weighted(sample: Sample) -> bool:
    """Return whether rows carry weights, so that there are no exact intervals."""
    return sample.id_weight is not None or sample.ood_weight is not None


WORST_FPR = "largest FPR of a set"


def rate_title(name: str, *, worst: bool) -> str:
    """Return the name of a rate; beside the worst set it is said what is of all of them."""
    return "FPR of all OOD together" if worst and name == "FPR" else name


@dataclass(frozen=True, slots=True)
class Rate:
    """A number that was seen, and where the true one lies."""

    value: float
    interval: Interval | None = None
    counts: tuple[int, int] | None = None
    """Hits and trials, if it is a share of rows that count alike."""

    def as_dict(self) -> dict[str, float | None]:
        """Return plain data."""
        ends = self.interval
        return {
            "value": self.value,
            "low": None if ends is None else ends.low,
            "high": None if ends is None else ends.high,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The rule on one sample."""

    point: OperatingPoint
    rates: Mapping[str, Rate]
    """By name, in the order to show them."""
    id_total: float
    ood_total: float
    certified: Mapping[str, bool]
    """By the text of a bound, whether these rows prove it, were they fresh."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "rates": {name: rate.as_dict() for name, rate in self.rates.items()},
            "accepted_id": self.point.accepted_id,
            "accepted_ood": self.point.accepted_ood,
            "accepted_loss": self.point.accepted_loss,
            "id": self.id_total,
            "ood": self.ood_total,
            "certified": dict(self.certified),
        }


@dataclass(frozen=True, slots=True)
class StatedBound:
    """One bound of the model, as the report states it."""

    text: str
    """Such as ``"TPR ≥ 0.8"``."""
    rate: str
    """Name of the rate it is about."""
    certificate: str
    """What `demur.guarantees.certify` calls it."""
    bound: Bound

    @property
    def limit(self) -> float:
        """The value that is asked for."""
        return float(self.bound.value)


def see(case: Case, rows: Sample) -> Seen:
    """Return what the rule does on a sample, with exact intervals where there are any."""
    point = case.point(rows)
    id_total, ood_total = _weights(case, rows)
    return Seen(
        point=point,
        rates=_rates(case, rows, point),
        id_total=id_total,
        ood_total=ood_total,
        certified=_certified(case, rows),
    )


def _weights(case: Case, rows: Sample) -> tuple[float, float]:
    """Return the weight of all ID and all OOD rows."""
    counts = case.counted(rows)
    if counts is None:
        given = (rows.n_id, rows.id_weight), (rows.n_ood, rows.ood_weight)
        own, ood = (n if weight is None else float(weight.sum()) for n, weight in given)
        return own, ood
    tally, measure = counts.whole, counts.measure
    own = math.ldexp(tally.total_id, -measure.id_exponent)
    return own, math.ldexp(sum(tally.total_ood), -measure.ood_exponent)


def part_name(bound: Bound) -> str:
    """Return the name of a rate of one group or one OOD set: ``TPR of rare``."""
    return RATE_NAMES[bound.quantity] + whose(bound)


def stated_bounds(case: Case) -> tuple[StatedBound, ...]:
    """Return the bounds of the model that ask for anything."""
    model = case.model
    rates = {
        "tpr": "TPR",
        "fpr": WORST_FPR if case.worst else "FPR",
        "precision": _precision_at(float(model.ood_prior or 0)),
        "selective_risk": "selective risk",
    }
    asked = zip(model.bounds, case.asked.bounds, strict=True)
    return tuple(
        StatedBound(
            bound_sign(model, b, case.whose),
            part_name(b) if b.is_of_part else rates[b.quantity],
            bound_text(case.asked, certified),
            b,
        )
        for b, certified in asked
        if not b.asks_nothing
    )


def certify_on(
    case: Case,
    rows: Sample,
    *,
    sides: Literal["one", "two"] = "one",
    ood_prior: tuple[Number, Number] | None = None,
) -> Certified | None:
    """Return bounds that hold together, or None for weighted rows and random rules."""
    if is_weighted(rows) or case.rule.tau != 1:
        return None
    groups, counts = case.groups_of(rows), case.counted(rows)
    if counts is not None and counts.measure.plain:
        return certify(
            case.rule,
            counts,
            confidence=case.confidence,
            model=_certifiable(case, rows, counts.sizes.groups),
            ood_prior=ood_prior,
            sides=sides,
            allow_tuning_rows=True,
        )
    known = () if groups is not None and in_several_groups(rows, groups) else rows.groups
    if not case.knows_loss(rows):
        # Without a largest possible loss only the acceptance of rows can be bounded.
        rows = Sample(
            rows.id_scores,
            np.zeros(rows.n_id),
            {name: rows.ood_scores[part] for name, part in rows.ood_sets.items()},
            score_names=rows.score_names,
            confidence=rows.columns.confidence,
            id_group=rows.id_group,
        )
    return certify(
        case.rule,
        rows,
        confidence=case.confidence,
        model=_certifiable(case, rows, known),
        ood_prior=ood_prior,
        max_loss=case.max_loss,
        sides=sides,
        groups=groups,
        per_id="mean",
        # Of a page's own samples it is known which made the rule.
        allow_tuning_rows=True,
    )


def _certifiable(case: Case, rows: Sample, known: tuple[str, ...]) -> RejectionModel:
    """Return the model without bounds on groups that these rows can prove nothing of.

    `known` are the groups they may prove something of.
    """
    model = case.asked
    for bound in model.bounds:
        unknown_loss = bound.quantity == "selective_risk" and not case.knows_loss(rows)
        if bound.group is not None and (bound.group not in known or unknown_loss):
            model = model.without(bound)
    return model


def _certified(case: Case, rows: Sample) -> dict[str, bool]:
    promise = certify_on(case, rows)
    if promise is None:
        return {}
    met = promise.met
    return {b.text: met[b.certificate] for b in stated_bounds(case) if b.certificate in met}


def _rates(case: Case, rows: Sample, point: OperatingPoint) -> dict[str, Rate]:
    found = certify_on(case, rows, sides="two")
    tpr, fpr = (None, None) if found is None else (found.tpr, found.fpr)
    n_id, n_ood = case.sizes(rows)
    rates = {"TPR": _share(point.accepted_id, n_id, point.tpr, tpr)}
    if n_ood:
        rates["FPR"] = _share(point.accepted_ood, n_ood, point.fpr, fpr)
        if case.worst:
            # What is certified then is the FPR of the worst set.
            rates["FPR"] = replace(rates["FPR"], interval=None)
        counts = case.counted(rows)
        if list(rows.ood_sets if counts is None else counts.sizes.sets) != [POOLED_NAME]:
            rates |= _fpr_by_set(case, rows, point)
    if case.worst:
        rates[WORST_FPR] = Rate(max(point.fpr_by_set.values()), fpr)
    return rates | _rates_of_loss(case, rows, point, found) | _rates_of_parts(case, point, found)


def _rates_of_parts(case: Case, point: OperatingPoint, found: Certified | None) -> dict[str, Rate]:
    """Return what groups have, and what else is bounded of single sets."""
    tprs = {} if found is None else found.tpr_by_group
    losses = {} if found is None else found.selective_risk_by_group
    rates = {
        f"TPR of {name}": Rate(value, tprs.get(name)) for name, value in point.tpr_by_group.items()
    }
    rates |= {
        f"selective risk of {name}": Rate(value, losses.get(name))
        for name, value in point.selective_risk_by_group.items()
    }
    for bound in case.model.bounds:
        if bound.quantity == "precision" and bound.is_of_part:
            rates[f"precision{whose(bound)}"] = Rate(value_at(point, bound))
    return rates


def _rates_of_loss(
    case: Case, rows: Sample, point: OperatingPoint, found: Certified | None
) -> dict[str, Rate]:
    """Return selective risk, and precision and cost where the model has a prior for them."""
    bounded = found if case.knows_loss(rows) else None
    risk = bounded.selective_risk if bounded and point.accepted_id else None
    rates = {"selective risk": Rate(point.selective_risk, risk)}
    if is_zero_one(rows):
        rates["selective risk"] = _share(
            point.accepted_loss, point.accepted_id, point.selective_risk, risk
        )
    if point.precision is not None and point.ood_prior is not None:
        rates[_precision_at(point.ood_prior)] = Rate(
            point.precision, None if found is None else found.precision
        )
    if point.expected_cost is not None:
        rates["expected cost"] = Rate(
            point.expected_cost, None if bounded is None else bounded.expected_cost
        )
    return rates


def _precision_at(prior: float) -> str:
    return f"precision at prior {prior:g}"


def _share(hits: float, trials: float, value: float, interval: Interval | None) -> Rate:
    """Return a share of rows; rows with weights, which have no interval, are not counted."""
    return Rate(value, interval, None if interval is None else (int(hits), int(trials)))


def _fpr_by_set(case: Case, rows: Sample, point: OperatingPoint) -> dict[str, Rate]:
    rates = {}
    for name, (accepted, trials) in _accepted_of_sets(case, rows).items():
        interval = None
        # Rows that share an id are no independent trials.
        if not is_weighted(rows) and trials and case.groups_of(rows) is None:
            interval = clopper_pearson(accepted, trials, confidence=case.confidence)
        rates[f"FPR of {name}"] = Rate(point.fpr_by_set.get(name, math.nan), interval)
    return rates


def _accepted_of_sets(case: Case, rows: Sample) -> dict[str, tuple[int, int]]:
    """Return how many rows of each OOD set are accepted, each counting once, and of how many."""
    counts = case.counted(rows)
    if counts is not None:
        accepted = zip(counts.whole.ood, counts.sizes.ood_rows, strict=True)
        return dict(zip(counts.sizes.sets, accepted, strict=True))
    taken = accepted_rows(case.rule, rows)[1]
    return {
        name: (int(taken[part].sum()), part.stop - part.start)
        for name, part in rows.ood_sets.items()
    }
