"""Methods side by side: metrics, ranks, and where the metrics disagree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

from demur import metrics
from demur.core.rates import evaluate
from demur.core.sample import Sample
from demur.core.wording import objective_name
from demur.errors import InfeasibleError, InvalidInputError
from demur.report.summary import Case, is_zero_one

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
    disagreements: tuple[str, ...]
    """Where AUROC and OSCR order the methods differently."""


@dataclass(frozen=True, slots=True, eq=False)
class MethodComparison:
    """Values and ranks of all methods."""

    metrics: tuple[ComparedMetric, ...]
    blocks: tuple[ComparedSet, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "metrics": [metric._asdict() for metric in self.metrics],
            "ood_sets": [
                {
                    "ood": block.ood,
                    "values": {name: dict(row) for name, row in block.values.items()},
                    "ranks": {name: dict(row) for name, row in block.ranks.items()},
                    "disagreements": list(block.disagreements),
                }
                for block in self.blocks
            ],
        }


def compare(methods: Methods, case: Case) -> MethodComparison:
    """Measure every method on every OOD set; pairs of scores are tuned on the rows shown."""
    parts = {name: _parts(name, given) for name, given in methods.items()}
    blocks = []
    for ood in _common_sets([sample for sample, _ in parts.values()]):
        values = {
            name: _measure(_only(sample, ood), None if fresh is None else _only(fresh, ood), case)
            for name, (sample, fresh) in parts.items()
        }
        # A metric is shown only if every method has it.
        shared = [m for m in _METRICS.values() if all(m.name in row for row in values.values())]
        ranks = _ranks(shared, values)
        blocks.append(ComparedSet(ood, values, ranks, tuple(_disagreements(ranks))))
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


def _measure(sample: Sample, fresh: Sample | None, case: Case) -> dict[str, float]:
    objective = objective_name(case.model)
    attribute = "expected_cost" if case.model.cost is not None else str(case.model.objective)
    values = dict.fromkeys([objective], math.nan)
    if fresh is not None:
        values |= dict.fromkeys(
            [f"{name}, held out" for name in (objective, "TPR", "FPR")], math.nan
        )
    try:
        tuned = case.tune(sample)
        values[objective] = getattr(tuned.point, attribute)
        if fresh is not None:
            point = evaluate(tuned.rule, fresh, model=case.model)
            values[f"{objective}, held out"] = getattr(point, attribute)
            values["TPR, held out"], values["FPR, held out"] = point.tpr, point.fpr
    except InfeasibleError:
        pass
    return values | (_without_bounds(sample, case) if sample.n_ood else {})


def _without_bounds(sample: Sample, case: Case) -> dict[str, float]:
    """Return the metrics that look at all thresholds at once."""
    search, prior = case.search, case.model.ood_prior
    values = {
        "AUROC": metrics.auroc(sample, search=search),
        "AUPR": metrics.aupr(sample, method="average_precision", ood_prior=prior, search=search),
    }
    if is_zero_one(sample):
        values["OSCR/accepted"] = metrics.oscr(sample, per="accepted", search=search)
        values["OSCR/all"] = metrics.oscr(sample, per="all", search=search)
    values[f"FPR@TPR {_LEVEL}"] = metrics.fpr_at_tpr(sample, _LEVEL, search=search)
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
