"""Rules, models and operating points, for people and for scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import click

from demur.cli.tables import Block, Cell, render
from demur.core.models import RejectionModel
from demur.core.paper_models import CostModel, PrecisionRecallModel, TprFprModel
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.core.source import Overview

ONLY_THESE_OOD = "FPR holds for the OOD data supplied, and only for them."


def rule_text(rule: Rule) -> str:
    """Return the rule as an inequality in rounded numbers."""
    names = rule.score_names or tuple(f"score {i + 1}" for i in range(len(rule.direction)))
    terms = [
        (weight, name) for weight, name in zip(rule.direction, names, strict=True) if weight != 0
    ]
    text = ""
    for weight, name in terms:
        sign = "-" if weight < 0 else "+" if text else ""
        factor = "" if abs(weight) == 1 else f"{abs(weight):.6g} * "
        text += f" {sign} {factor}{name}" if text else f"{sign}{factor}{name}"
    return f"{text} <= {rule.threshold:.6g}"


def decision(rule: Rule, point: OperatingPoint) -> str:
    """Return what the rule does, in one sentence."""
    if rule.threshold == -math.inf:
        return "Reject every input: accepting any would cost more."
    ood = "" if math.isnan(point.fpr) else f" and {point.fpr:.2%} of OOD"
    return (
        f"Accept an input when {rule_text(rule)}: that accepts {point.tpr:.2%} of ID{ood} inputs, "
        f"with selective risk {rate(point.selective_risk, 5)}."
    )


class Sizes(NamedTuple):
    """Rows and weights that rates are shares of."""

    id: int
    sets: dict[str, int]
    """Rows of each OOD set."""
    id_weight: float
    ood_weight: float

    @property
    def ood(self) -> int:
        """OOD rows of all sets."""
        return sum(self.sets.values())


def sizes_of(data: Sample | Overview) -> Sizes:
    """Return the sizes of a sample, or of a source."""
    if not isinstance(data, Sample):
        sets = dict(zip(data.sets, data.ood_rows, strict=True))
        return Sizes(data.id_rows, sets, data.id.total, data.ood.total)
    return Sizes(
        data.n_id,
        {name: rows.stop - rows.start for name, rows in data.ood_sets.items()},
        data.n_id if data.id_weight is None else float(data.id_weight.sum()),
        data.n_ood if data.ood_weight is None else float(data.ood_weight.sum()),
    )


def rate(value: float | None, digits: int = 4) -> str:
    """Return a rate, or why there is none."""
    return "undefined" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def point_table(points: Mapping[str, tuple[OperatingPoint, Sample | Overview]]) -> str:
    """Return operating points side by side, under the headings that are their keys."""
    columns = [_point_rows(point, sizes_of(data)) for point, data in points.values()]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [[Cell(name), *(Cell(column.get(name, "")) for column in columns)] for name in names]
    return render("text", ["", *points], [Block("", rows)])


def _point_rows(point: OperatingPoint, sizes: Sizes) -> dict[str, str]:
    rows = {
        "TPR": rate(point.tpr),
        "FPR": rate(point.fpr) if sizes.ood else "no OOD rows",
        "selective risk": rate(point.selective_risk, 5),
    }
    if list(sizes.sets) != [POOLED_NAME]:
        rows |= {f"FPR of {name}": rate(value) for name, value in point.fpr_by_set.items()}
    if point.precision is not None:
        rows[f"precision at prior {point.ood_prior:g}"] = rate(point.precision)
    if point.expected_cost is not None:
        rows["expected cost"] = rate(point.expected_cost, 5)
    rows["accepted ID"] = f"{_count(point.accepted_id)} of {_count(sizes.id_weight)}"
    if sizes.ood:
        rows["accepted OOD"] = f"{_count(point.accepted_ood)} of {_count(sizes.ood_weight)}"
    return rows


def _count(weight: float) -> str:
    return f"{int(weight):,}" if float(weight).is_integer() else f"{weight:,.4f}"


def bounds_met(model: RejectionModel, point: OperatingPoint) -> dict[str, bool]:
    """Return each bound of a model as text, and whether the point meets it."""
    if isinstance(model, TprFprModel):
        met = {f"tpr >= {model.min_tpr}": point.tpr >= float(model.min_tpr)}
        if not math.isnan(point.fpr):
            met[f"fpr <= {model.max_fpr}"] = point.fpr <= float(model.max_fpr)
        return met
    if isinstance(model, PrecisionRecallModel):
        precision = math.nan if point.precision is None else point.precision
        return {
            f"precision >= {model.min_precision}": precision >= float(model.min_precision),
            f"recall >= {model.min_recall}": point.tpr >= float(model.min_recall),
        }
    return {}


def model_text(model: RejectionModel) -> str:
    """Return the operating point a model asks for, as the paper writes it."""
    if isinstance(model, TprFprModel):
        return f"TPR({model.min_tpr}), FPR({model.max_fpr})"
    if isinstance(model, PrecisionRecallModel):
        return f"Prec({model.min_precision}), Recall({model.min_recall})"
    return "expected cost" if isinstance(model, CostModel) else str(model)


def model_data(model: RejectionModel) -> dict[str, Any]:
    """Return a model for JSON."""
    names = getattr(type(model), "__dataclass_fields__", {})
    return {"name": type(model).__name__} | {n: float(getattr(model, n)) for n in names}


def point_data(point: OperatingPoint) -> dict[str, Any]:
    """Return an operating point for JSON."""
    return asdict(point)


def rule_data(rule: Rule) -> dict[str, Any]:
    """Return a rule for JSON, as `Rule.save` writes it."""
    data: dict[str, Any] = json.loads(rule.to_json())
    return data


def sample_data(data: Sample | Overview) -> dict[str, Any]:
    """Return the sizes of a sample or a source for JSON."""
    sizes = sizes_of(data)
    return {"id": sizes.id, "ood": sizes.ood, "ood_sets": sizes.sets}


def json_text(data: Mapping[str, Any]) -> str:
    """Return strict JSON: what is undefined is null."""
    return json.dumps(_strict(data), indent=2, allow_nan=False)


def echo_json(data: Mapping[str, Any]) -> None:
    """Print strict JSON."""
    click.echo(json_text(data))


def _strict(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {str(key): _strict(value) for key, value in item.items()}
    if isinstance(item, Sequence) and not isinstance(item, str):
        return [_strict(value) for value in item]
    return None if isinstance(item, float) and not math.isfinite(item) else item
