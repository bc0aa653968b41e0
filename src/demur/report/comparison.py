"""Methods side by side: metrics, ranks, and where the metrics disagree.

Also how sure the numbers are, and which method is best beyond chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

from demur import metrics
from demur._arrays import data_frame
from demur.core.models import ROUNDING, RejectionModel
from demur.core.rates import evaluate
from demur.core.sample import Sample
from demur.core.wording import objective_key, objective_name
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.intervals import Interval, clopper_pearson, miss, sidak
from demur.metrics.areas import auroc_and_aupr
from demur.report.summary import WORST_FPR, Case, is_weighted, is_zero_one
from demur.tuning.prepared import prepare

Values = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """What can be said of methods on one OOD set, beyond their numbers."""

    intervals: Mapping[str, Mapping[str, Interval]]
    """By method and metric; those of all methods together hold at the level of the report."""
    missed: Mapping[str, tuple[str, ...]]
    """By method, the held-out columns that miss a bound of the model."""
    best: Mapping[str, str]
    """By metric, the method whose interval lies beyond those of all others, bounds kept."""


def standing(
    values: Values,
    rows: Mapping[str, tuple[Sample, Sample | None]],
    model: RejectionModel,
    *,
    confidence: float,
    better: Mapping[str, str],
    independent: bool = True,
) -> Standing:
    """Judge methods by their values and the rows that these were seen on.

    `better` is whether a metric is to be ``"lower"`` or ``"higher"``. Rows that are not independent
    give no intervals.
    """
    level = 1 - sidak(miss(confidence), max(1, len(values)))
    intervals = {
        name: _intervals(row, *rows[name], confidence=level) if independent else {}
        for name, row in values.items()
    }
    missed = {name: _missed(row, model) for name, row in values.items()}
    best = {}
    for metric, sense in better.items():
        found = _beyond(metric, sense, values, intervals)
        about_rule = metric.endswith(", held out")
        if found is not None and not (about_rule and missed[found]):
            best[metric] = found
    return Standing(intervals, missed, best)


def _intervals(
    row: Mapping[str, float], sample: Sample, fresh: Sample | None, *, confidence: float
) -> dict[str, Interval]:
    found = {}
    if "AUROC" in row and not is_weighted(sample):
        found["AUROC"] = _auroc_interval(row["AUROC"], sample.n_id, sample.n_ood, confidence)
    if fresh is None or is_weighted(fresh):
        return found
    tpr = row.get("TPR, held out", math.nan)
    if math.isnan(tpr):
        return found
    accepted = round(tpr * fresh.n_id)
    shares = {
        "TPR, held out": (accepted, fresh.n_id),
        "FPR, held out": (_hits(row.get("FPR, held out", math.nan), fresh.n_ood), fresh.n_ood),
    }
    if is_zero_one(fresh):
        risk = row.get("selective risk, held out", math.nan)
        shares["selective risk, held out"] = (_hits(risk, accepted), accepted)
    for name, (hits, trials) in shares.items():
        if name in row and trials and hits is not None:
            found[name] = clopper_pearson(hits, trials, confidence=confidence)
    return found


def _hits(share: float, trials: int) -> int | None:
    return None if math.isnan(share) else round(share * trials)


def _auroc_interval(area: float, n_id: int, n_ood: int, confidence: float) -> Interval:
    """Return the interval of Hanley and McNeil, which is an approximation."""
    from scipy.stats import norm

    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    spread = (n_ood - 1) * (q1 - area**2) + (n_id - 1) * (q2 - area**2)
    variance = (area * (1 - area) + spread) / (n_id * n_ood)
    reach = float(norm.ppf(0.5 + confidence / 2)) * math.sqrt(max(0.0, variance))
    # Where all is perfect, no variance is seen: at least the rule of three is left open.
    reach = max(reach, 3 / min(n_id, n_ood) if area in (0.0, 1.0) else 0.0)
    return Interval(max(0.0, area - reach), min(1.0, area + reach))


def _missed(row: Mapping[str, float], model: RejectionModel) -> tuple[str, ...]:
    columns = {
        "tpr": ["TPR, held out"],
        "fpr": ["FPR, held out", f"{WORST_FPR}, held out"],
        "precision": ["precision, held out"],
        "selective_risk": ["selective risk, held out"],
    }
    asked = [bound for bound in model.bounds if not bound.is_of_part]
    return tuple(
        name
        for bound in asked
        for name in columns[bound.quantity]
        if name in row
        and not math.isnan(row[name])
        and not bound.met_by(row[name], within=ROUNDING)
    )


def _beyond(
    metric: str,
    sense: str,
    values: Values,
    intervals: Mapping[str, Mapping[str, Interval]],
) -> str | None:
    """Return the method whose interval does not meet any other's, on the better side."""
    able: Sequence[str] = [name for name in values if not math.isnan(values[name][metric])]
    if len(able) < 2 or any(metric not in intervals[name] for name in able):
        return None
    sign = 1 if sense == "lower" else -1
    first = min(able, key=lambda name: sign * values[name][metric])
    own = intervals[first][metric]
    for name in able:
        other = intervals[name][metric]
        apart = own.high < other.low if sense == "lower" else own.low > other.high
        if name != first and not apart:
            return None
    return first


Methods = Mapping[str, Sample | tuple[Sample, Sample]]
"""By name, the sample of a method, or the one to tune on and the one held out."""

ALL_OOD = "all OOD rows"
_LEVEL = 0.95


class ComparedMetric(NamedTuple):
    """A column of the table."""

    name: str
    better: Literal["lower", "higher", "neither"]
    digits: int


_METRICS = {
    metric.name: metric
    for metric in (
        ComparedMetric("selective risk", "lower", 5),
        ComparedMetric("selective risk, held out", "lower", 5),
        ComparedMetric("expected cost", "lower", 5),
        ComparedMetric("expected cost, held out", "lower", 5),
        ComparedMetric("TPR", "higher", 4),
        ComparedMetric("FPR", "lower", 4),
        ComparedMetric("precision", "higher", 4),
        ComparedMetric("precision, held out", "higher", 4),
        ComparedMetric("TPR, held out", "neither", 4),
        ComparedMetric("FPR, held out", "neither", 4),
        ComparedMetric(f"{WORST_FPR}, held out", "neither", 4),
        ComparedMetric("AUROC", "higher", 4),
        ComparedMetric("AUPR", "higher", 4),
        ComparedMetric("OSCR/accepted", "higher", 4),
        ComparedMetric("OSCR/all", "higher", 4),
        ComparedMetric(f"FPR@TPR {_LEVEL}", "lower", 4),
    )
}


@dataclass(frozen=True, slots=True, eq=False)
class ComparedSet:
    """All methods on one OOD set, or on all OOD rows together."""

    ood: str
    values: Mapping[str, Mapping[str, float]]
    """By method and metric; NaN is "unable"."""
    ranks: Mapping[str, Mapping[str, int | None]]
    """By method and metric: 1 is best, equals share a rank, unable has none."""
    standing: Standing
    """Which numbers are sure, and which method is best beyond chance."""
    disagreements: tuple[str, ...]
    """Where AUROC and OSCR order the methods differently."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MethodComparison:
    """Values and ranks of all methods."""

    metrics: tuple[ComparedMetric, ...]
    blocks: tuple[ComparedSet, ...]

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a row per OOD set, method and metric, with intervals where there are any.

        A pandas or Polars frame, the one that is installed; `backend` chooses.
        """
        rows = [
            (block.ood, method, metric.name, values[metric.name])
            for block in self.blocks
            for method, values in block.values.items()
            for metric in self.metrics
        ]
        judged = {block.ood: block.standing for block in self.blocks}
        ends = [judged[ood].intervals[method].get(name) for ood, method, name, _ in rows]
        names = ("ood", "method", "metric", "value")
        columns: dict[str, Any] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        columns["low"] = [math.nan if found is None else found.low for found in ends]
        columns["high"] = [math.nan if found is None else found.high for found in ends]
        columns["best"] = [judged[ood].best.get(name) == method for ood, method, name, _ in rows]
        return data_frame(columns, backend)

    def plot(self, ax: Any = None, *, metric: str = "AUROC", ood: str | None = None) -> Any:
        """Draw one metric of all methods, with intervals where there are any.

        `ood` is an OOD set; by default all of them together. Needs matplotlib.
        """
        from demur import plots

        block = next((one for one in self.blocks if ood in (None, one.ood)), None)
        known = [one.name for one in self.metrics]
        if block is None or metric not in known:
            sets = [one.ood for one in self.blocks]
            raise InvalidInputError(f"metric is one of {known} and ood one of {sets}")
        unknown = Interval(math.nan, math.nan)
        found = block.standing.intervals
        named = {
            method: (ends.low, values[metric], ends.high)
            for method, values in block.values.items()
            for ends in (found[method].get(metric, unknown),)
        }
        return plots.intervals(named, f"{metric}, {block.ood}", zero=False, ax=ax)

    def __repr__(self) -> str:
        methods = ", ".join(self.blocks[0].values)
        return f"MethodComparison({methods}: {len(self.metrics)} metrics, {len(self.blocks)} OOD)"

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "metrics": [metric._asdict() for metric in self.metrics],
            "ood_sets": [
                {
                    "ood": block.ood,
                    "values": {name: dict(row) for name, row in block.values.items()},
                    "ranks": {name: dict(row) for name, row in block.ranks.items()},
                    "intervals": {
                        name: {metric: [ends.low, ends.high] for metric, ends in row.items()}
                        for name, row in block.standing.intervals.items()
                    },
                    "best": dict(block.standing.best),
                    "disagreements": list(block.disagreements),
                }
                for block in self.blocks
            ],
        }


def compare(methods: Methods, case: Case, *, independent: bool = True) -> MethodComparison:
    """Measure every method on every OOD set; pairs of scores are tuned on the rows shown.

    Rows that are not independent, because they share ids, say nothing about who is best beyond
    chance.
    """
    parts = {name: _parts(name, given) for name, given in methods.items()}
    blocks = []
    for ood in _common_sets([sample for sample, _ in parts.values()]):
        model = case.model if ood == ALL_OOD else case.model.of_set(ood)
        rows = {
            name: (_only(sample, ood), None if fresh is None else _only(fresh, ood))
            for name, (sample, fresh) in parts.items()
        }
        values = {name: _measure(*given, case, model) for name, given in rows.items()}
        # A metric is shown only if every method has it.
        shared = [m for m in _METRICS.values() if all(m.name in row for row in values.values())]
        ranks = _ranks(shared, values)
        judged = standing(
            values,
            rows,
            model,
            confidence=case.confidence,
            better={m.name: m.better for m in shared if m.better != "neither"},
            independent=independent,
        )
        blocks.append(ComparedSet(ood, values, ranks, judged, tuple(_disagreements(ranks))))
    return MethodComparison(tuple(shared), tuple(blocks))


def _parts(name: str, given: Any) -> tuple[Sample, Sample | None]:
    parts = given if isinstance(given, tuple) else (given, None)
    if len(parts) != 2 or not isinstance(parts[0], Sample):
        raise InvalidInputError(
            f"methods[{name!r}] must be a Sample, or one to tune on and one held out"
        )
    return parts[0], parts[1]


def _common_sets(samples: list[Sample]) -> list[str]:
    """Return the OOD sets that all methods have, when there are several, and all together."""
    names = [n for n in samples[0].ood_sets if all(n in sample.ood_sets for sample in samples)]
    return [ALL_OOD] if len(names) < 2 else [ALL_OOD, *names]


def _only(sample: Sample, ood: str) -> Sample:
    return sample.for_ood(ood) if ood in sample.ood_sets and ood != ALL_OOD else sample


def _measure(
    sample: Sample, fresh: Sample | None, case: Case, model: RejectionModel
) -> dict[str, float]:
    objective = objective_name(model)
    attribute = objective_key(model)
    values = dict.fromkeys([objective], math.nan)
    fpr = WORST_FPR if case.worst else "FPR"
    shown = dict.fromkeys([objective, "TPR", fpr])
    if case.model.bound("selective_risk") is not None:
        shown["selective risk"] = None
    if fresh is not None:
        values |= dict.fromkeys([f"{name}, held out" for name in shown], math.nan)
    try:
        tuned = case.tune(sample, model)
        values[objective] = getattr(tuned.point, attribute)
        if fresh is not None:
            point = evaluate(tuned.rule, fresh, model=model)
            largest = max(point.fpr_by_set.values()) if case.worst else point.fpr
            seen = {"TPR": point.tpr, fpr: largest, "selective risk": point.selective_risk}
            seen[objective] = getattr(point, attribute)
            values |= {f"{name}, held out": seen[name] for name in shown}
    except InfeasibleError:
        pass
    return values | (_without_bounds(sample, case) if sample.n_ood else {})


def _without_bounds(sample: Sample, case: Case) -> dict[str, float]:
    """Return the metrics that look at all thresholds at once."""
    search, prior, rows = case.search, case.model.ood_prior, prepare(sample)
    areas = auroc_and_aupr(rows, ood_prior=prior, search=search)
    values: dict[str, float] = dict(zip(("AUROC", "AUPR"), areas, strict=True))
    if is_zero_one(sample):
        values["OSCR/accepted"] = metrics.oscr(rows, per="accepted", search=search)
        values["OSCR/all"] = metrics.oscr(rows, per="all", search=search)
    values[f"FPR@TPR {_LEVEL}"] = metrics.fpr_at_tpr(rows, _LEVEL, search=search)
    return values


def _ranks(
    shown: list[ComparedMetric], values: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, int | None]]:
    ranks: dict[str, dict[str, int | None]] = {name: {} for name in values}
    for metric in shown:
        if metric.better == "neither":
            continue
        sign = 1 if metric.better == "lower" else -1
        # Values that print alike are equally good.
        keys = {name: sign * round(row[metric.name], metric.digits) for name, row in values.items()}
        for name, key in keys.items():
            better = sum(other < key for other in keys.values())
            ranks[name][metric.name] = None if math.isnan(key) else 1 + better
    return ranks


def _disagreements(ranks: Mapping[str, Mapping[str, int | None]]) -> list[str]:
    texts = []
    for other in ("OSCR/accepted", "OSCR/all"):
        if not all("AUROC" in row and other in row for row in ranks.values()):
            continue
        places = {name: (row["AUROC"] or 0, row[other] or 0) for name, row in ranks.items()}
        pairs = list(combinations(places.values(), 2))
        swapped = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in pairs)
        if swapped:
            first = [" and ".join(n for n, p in places.items() if p[i] == 1) for i in (0, 1)]
            which = (
                f"both put {first[0]} first"
                if first[0] == first[1]
                else f"AUROC puts {first[0]} first, {other} {first[1]}"
            )
            texts.append(
                f"AUROC and {other} order {swapped} of {len(pairs)} pairs of methods "
                f"differently: {which}."
            )
    return texts
