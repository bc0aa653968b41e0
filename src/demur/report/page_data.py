"""What the page draws, and what its script needs: rows, rules and counts, and the sliders."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur import _arrays
from demur._arrays import FloatArray, IntArray
from demur.core.models import RejectionModel
from demur.core.program import Number
from demur.core.rule import Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.core.wording import score_titles, strict
from demur.errors import InvalidInputError
from demur.report.explorer import Counts
from demur.report.summary import is_zero_one

if TYPE_CHECKING:
    from demur.report.report import Report

SHOWN = 10
MOST_POINTS = 5000
GRID = 64
# Some scores have long tails; the few rows beyond these shares are drawn on the edge.
_VIEW = (0.002, 0.992)

Ids = tuple[Any, Any]
"""Identifiers of the ID rows and of the OOD rows, in the order of the sample."""

COST_STEPS = 100
"""Steps of the slider for the cost of rejecting ID; one step is the unit of all costs."""
MOST_COST_STEPS = 1000
MOST_PRIOR = 990
DEFAULT_RECALL = 80
DEFAULT_FPR = 10
# Inside a script element only "<" could end or comment it; the others cost little.
_INERT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


class Slider(NamedTuple):
    """A range input in whole steps."""

    name: str
    label: str
    most: int


_PRIOR = "Share of OOD inputs in use (prior)"
SLIDERS = {
    "tprfpr": (
        Slider("tpr", "Accept at least this share of ID (min TPR)", 100),
        Slider("fpr", "Accept at most this share of OOD (max FPR)", 100),
    ),
    "pr": (
        Slider("precision", "Least share of ID among accepted (min precision)", 1000),
        Slider("recall", "Accept at least this share of ID (min recall)", 100),
        Slider("prior", _PRIOR, MOST_PRIOR),
    ),
    "cost": (
        Slider("rejectId", "Cost of rejecting an ID input", COST_STEPS),
        Slider("acceptOod", "Cost of accepting an OOD input", MOST_COST_STEPS),
        Slider("rejectOod", "Cost of rejecting an OOD input", MOST_COST_STEPS),
        Slider("costPrior", _PRIOR, MOST_PRIOR),
    ),
}
MODES = {"tprfpr": "TPR, FPR", "pr": "Precision, recall", "cost": "Costs"}
_WITHOUT_OOD = {"tprfpr": "TPR", "cost": "Costs"}
_NEED_OOD = ("fpr", "acceptOod", "rejectOod", "costPrior")


def page_data(report: Report) -> dict[str, Any]:
    """Return plain data, arrays packed."""
    explorer = report.explorer
    return {
        "scores": list(score_titles(report.rule)),
        "named": report.rule.score_names is not None,
        "zeroOne": report.zero_one,
        "hasOod": explorer.has_ood,
        "exact": explorer.exact,
        "mode": first_mode(report),
        "start": start(report),
        "costUnit": explorer.max_reject_cost / COST_STEPS,
        "command": report.command,
        "arguments": report.arguments,
        "rules": {
            "lines": [packed(column) for column in explorer.lines.T],
            "tuned": _counts(explorer.tuned),
            "held": None if explorer.held_out is None else _counts(explorer.held_out),
            "cells": packed(explorer.cells),
            "start": explorer.start,
            "worst": explorer.worst,
            "whole": _whole(explorer.tuned),
        },
        "scatter": {
            "low": report.scatter.low.tolist(),
            "high": report.scatter.high.tolist(),
            "points": [packed(group, single=True) for group in report.scatter.points],
            "density": [packed(group) for group in report.scatter.density],
        },
    }


def modes(report: Report) -> dict[str, str]:
    """Return the kinds of bounds that the page offers, with their titles."""
    return MODES if report.explorer.has_ood else _WITHOUT_OOD


def sliders(mode: str, report: Report) -> list[Slider]:
    """Return the sliders of one kind of bounds."""
    has_ood = report.explorer.has_ood
    return [slider for slider in SLIDERS[mode] if has_ood or slider.name not in _NEED_OOD]


def first_mode(report: Report) -> str:
    """Return which sliders the page starts with."""
    if report.model.cost is not None:
        return "cost"
    precise = report.model.bound("precision") is not None
    return "pr" if precise and report.explorer.has_ood else "tprfpr"


def start(report: Report) -> dict[str, int]:
    """Return where the sliders start, each in its own whole steps: at what the model asks for."""
    recall = round(100 * report.tuned.point.tpr) or DEFAULT_RECALL
    places = {
        "tpr": recall,
        "fpr": DEFAULT_FPR,
        "recall": recall,
        "precision": 900,
        "prior": _share_of_ood(report),
        "rejectId": 10,
        "acceptOod": COST_STEPS,
        "rejectOod": 0,
    }
    places |= _asked_bounds(report.model) | _asked_costs(report)
    if report.model.ood_prior is not None:
        places["prior"] = _steps(report.model.ood_prior, 0.001, MOST_PRIOR)
    return places | {"costPrior": places["prior"]}


def _asked_bounds(model: RejectionModel) -> dict[str, int]:
    places = {}
    tpr, fpr, precision = (model.bound(name) for name in ("tpr", "fpr", "precision"))
    if tpr is not None:
        places["tpr"] = places["recall"] = _steps(tpr.value, 0.01, 100)
    if fpr is not None:
        places["fpr"] = _steps(fpr.value, 0.01, 100)
    if precision is not None:
        places["precision"] = _steps(precision.value, 0.001, 1000)
    return places


def _asked_costs(report: Report) -> dict[str, int]:
    cost, unit = report.model.cost, report.explorer.max_reject_cost / COST_STEPS
    if cost is None:
        return {}
    return {
        "rejectId": _steps(cost.reject_id, unit, COST_STEPS),
        "acceptOod": _steps(cost.accept_ood, unit, MOST_COST_STEPS),
        "rejectOod": _steps(cost.reject_ood, unit, MOST_COST_STEPS),
    }


def _share_of_ood(report: Report) -> int:
    totals = report.explorer.tuned.totals
    id_, ood = totals.id_weight(totals.id), totals.ood_weight(sum(totals.ood))
    return min(MOST_PRIOR, round(1000 * ood / (id_ + ood)))


def _steps(value: Number, unit: float, most: int) -> int:
    return min(most, round(float(value) / unit))


def _counts(counts: Counts) -> dict[str, Any]:
    totals = counts.totals
    return {
        "id": packed(_weights(counts.id, totals.id_exponent)),
        "loss": packed(_weights(counts.loss, totals.loss_exponent)),
        "sets": [packed(_weights(row, totals.ood_exponent)) for row in counts.ood_sets],
        "totals": {
            "id": totals.id_weight(totals.id),
            "sets": [totals.ood_weight(mass) for mass in totals.ood],
        },
    }


def _weights(masses: IntArray, exponent: int) -> FloatArray:
    return np.ldexp(masses.astype(np.float64), -exponent)


def _whole(counts: Counts) -> bool:
    """Return whether ID and OOD rows are counted in whole numbers."""
    return counts.totals.id_exponent == counts.totals.ood_exponent == 0


def page_json(data: dict[str, Any]) -> str:
    """Return JSON for a script element of type application/json."""
    text = json.dumps(strict(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _INERT.items():
        text = text.replace(character, escape)
    return text


def packed(array: npt.ArrayLike, *, single: bool = False) -> dict[str, str]:
    """Return an array as base64: whole numbers in 32 bits where they fit, else floats.

    `single` rounds floats to 32 bits, enough to draw.
    """
    values = np.asarray(array).ravel()
    with np.errstate(invalid="ignore"):
        whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    if whole and (len(values) == 0 or -(2**31) <= values.min() <= values.max() < 2**31):
        kind, stored = "i4", values.astype("<i4")
    elif single:
        kind, stored = "f4", values.astype("<f4")
    else:
        kind, stored = "f8", values.astype("<f8")
    return {"type": kind, "data": base64.b64encode(stored.tobytes()).decode("ascii")}


@dataclass(frozen=True, slots=True)
class BoundaryRow:
    """One row of the sample."""

    id: str
    kind: str
    """``"ID"``, or the name of the OOD set."""
    loss: float | None
    scores: tuple[float, ...]
    margin: float
    """Threshold minus combined score: positive for accepted rows."""


@dataclass(frozen=True, slots=True)
class Doubtful:
    """Rows on either side of the boundary, nearest first."""

    accepted: tuple[BoundaryRow, ...]
    """The most doubtful of the accepted rows."""
    rejected: tuple[BoundaryRow, ...]
    """The most trusted of the rejected rows."""


def doubtful_rows(rule: Rule, sample: Sample, ids: Ids) -> Doubtful:
    """Return the accepted rows with the largest doubt and the rejected ones with the smallest."""
    if not isinstance(ids, tuple) or len(ids) != 2:
        raise InvalidInputError("ids must be a pair: those of the ID rows and of the OOD rows")
    names = [*_texts("ids[0]", ids[0], sample.n_id), *_texts("ids[1]", ids[1], sample.n_ood)]
    scores = np.concatenate([sample.id_scores, sample.ood_scores])
    kinds = ["ID"] * sample.n_id
    for name, rows in sample.ood_sets.items():
        kinds += ["OOD" if name == POOLED_NAME else name] * (rows.stop - rows.start)
    matched = rule.on(sample.columns)
    doubt, accepted = matched.combine(scores), matched.accept(scores)
    # Rows with an infinite score are rejected whatever the rule: nothing to look at.
    order = [int(i) for i in np.argsort(doubt, kind="stable") if np.isfinite(doubt[i])]

    def row(i: int) -> BoundaryRow:
        loss = float(sample.id_loss[i]) if i < sample.n_id else None
        margin = float(rule.threshold - doubt[i])
        return BoundaryRow(names[i], kinds[i], loss, tuple(scores[i].tolist()), margin)

    return Doubtful(
        accepted=tuple(row(i) for i in reversed(order) if accepted[i])[:SHOWN],
        rejected=tuple(row(i) for i in order if not accepted[i])[:SHOWN],
    )


def _texts(name: str, values: Any, length: int) -> list[str]:
    array = _arrays.labels(name, np.asarray(values, dtype=object), length=length)
    return [str(value) for value in array]


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Rows as points of the (s_r, s_g) plane, or counts when they are many or have one score.

    Three groups: ID with little loss (right), ID with more (wrong), OOD.
    """

    low: FloatArray
    """Corner of the view, an entry per score."""
    high: FloatArray
    points: tuple[FloatArray, ...]
    """A (n, 2) array per group; rows outside the view lie on its edge. Empty with `density`."""
    density: tuple[IntArray, ...]
    """Counts per group in GRID steps of each score: of two scores, rows are s_g."""
    sizes: tuple[int, ...]
    """Rows of each group, those with infinite scores left out."""


def scatter(sample: Sample) -> Scatter:
    """Return what to draw of a sample."""
    wrong = sample.id_loss > (0 if is_zero_one(sample) else np.median(sample.id_loss))
    groups = [sample.id_scores[~wrong], sample.id_scores[wrong], sample.ood_scores]
    groups = [group[np.isfinite(group).all(axis=1)] for group in groups]
    sizes = tuple(map(len, groups))
    low, high = _view(np.concatenate(groups))
    inside = tuple(np.clip(group, low, high) for group in groups)
    if sample.n_scores == 2 and sum(sizes) <= MOST_POINTS:
        return Scatter(low, high, inside, (), sizes)
    return Scatter(low, high, (), tuple(_grid(group, low, high) for group in inside), sizes)


def _view(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    if len(scores) == 0:
        return np.zeros(scores.shape[1]), np.ones(scores.shape[1])
    low, high = np.quantile(scores, _VIEW, axis=0)
    flat = high <= low
    low[flat], high[flat] = scores.min(axis=0)[flat] - 0.5, scores.max(axis=0)[flat] + 0.5
    return low, high


def _grid(scores: FloatArray, low: FloatArray, high: FloatArray) -> IntArray:
    places = np.minimum((GRID * ((scores - low) / (high - low))).astype(np.int64), GRID - 1)
    place = places @ np.array([1, GRID][: scores.shape[1]])
    return np.bincount(place, minlength=GRID ** scores.shape[1]).astype(np.int64)
