"""The rules behind a metric or a curve, and what they accept on other data.

One score has its thresholds, in their order: nothing is searched. Two scores have the best rules
of a search, over the rows in memory or at some levels of a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import FloatArray, takes
from demur.core.points import Points
from demur.core.program import Number, Totals
from demur.core.sample import Sample
from demur.core.scores import combine
from demur.core.source import ScoreSource
from demur.errors import InvalidInputError
from demur.tuning.directions import DIRECTION_SETS
from demur.tuning.frontier import PERCENT, ascending
from demur.tuning.operating_points import Rules, Search, is_swept, sweep_along
from demur.tuning.prepared import Prepared, as_prepared
from demur.tuning.result import Exact
from demur.tuning.staircases import roc_stairs
from demur.tuning.streamed.frontier import Aim, rules_of_source


class SingleScore(NamedTuple):
    """A sample of one score: no search tree, for there is nothing to search."""

    sample: Sample
    points: Points


@takes(source=(Sample, Prepared))
def given(source: Sample | Prepared) -> SingleScore | Prepared:
    """Return a sample of one score as it is, one of two scores prepared."""
    if isinstance(source, Sample):
        if source.n_scores == 1:
            return SingleScore(source, Points.of(source))
        return as_prepared(source, None)
    single = source.sample.n_scores == 1
    return SingleScore(source.sample, source.points) if single else source


def with_ood(name: str, source: Sample | Prepared) -> SingleScore | Prepared:
    """Return what `given` does of a sample that must have OOD rows."""
    rows = given(source)
    if sum(rows.points.totals.ood) == 0:
        raise InvalidInputError(f"{name} has no OOD rows, so this curve is undefined")
    return rows


def comparable(sample: Sample, evaluate_on: Sample) -> Points:
    """Return the points of the sample that rules tuned on another are read on."""
    if evaluate_on.n_scores != sample.n_scores:
        raise InvalidInputError(
            f"evaluate_on has {evaluate_on.n_scores} scores a row, the sample {sample.n_scores}"
        )
    if sample.n_ood:
        return with_ood("evaluate_on", evaluate_on).points
    return Points.of(evaluate_on)


def all_thresholds(points: Points) -> Rules:
    """Return all thresholds of one score, ascending."""
    swept, thresholds = sweep_along(points, (1.0,))
    lines = np.column_stack([np.ones(len(thresholds)), thresholds])
    return Rules(swept.id, swept.ood.sum(axis=0), swept.loss, lines)


def roc_rules(rows: SingleScore | Prepared, search: Search) -> Rules:
    """Return rules, by rising masses, among which the best are for any bound on TPR or FPR."""
    if isinstance(rows, Prepared):
        return roc_stairs(rows, search)
    is_swept(rows.points, search)  # One score has no use for a search, but a wrong one is told.
    return all_thresholds(rows.points)


def from_nothing(path: Rules) -> Rules:
    """Put the rule that rejects everything in front."""
    nothing = np.zeros(path.lines.shape[1])
    nothing[0], nothing[-1] = 1, -np.inf
    zero = np.zeros(1, np.int64)
    return Rules.joined(Rules(zero, zero, zero, nothing[None]), path)


def accepted_by(points: Points, lines: FloatArray) -> Rules:
    """Return the masses that each line accepts."""
    masses = np.zeros((3, len(lines)), np.int64)
    directions, which = np.unique(lines[:, :-1], axis=0, return_inverse=True)
    for i, direction in enumerate(directions):
        rows = np.flatnonzero(which == i)
        rows = rows[np.argsort(lines[rows, -1])]
        # The first threshold that accepts each point.
        first = np.searchsorted(lines[rows, -1], combine(direction, points.scores))
        for row, mass in zip(masses, (points.id, points.ood.sum(axis=0), points.loss), strict=True):
            # Sums of masses are below 2**52, so floats hold them exactly.
            added = np.bincount(first, weights=mass, minlength=len(rows) + 1)
            row[rows] = np.cumsum(added[: len(rows)])
    return Rules(masses[0], masses[1], masses[2], lines)


def rules_at(
    source: ScoreSource,
    levels: Sequence[Number] | None,
    aim: Aim,
    *,
    max_fpr: Number = 1,
    evaluate_on: Any,
    search: Any,
) -> tuple[Totals, Rules]:
    """Return the best rules for bounds on the FPR (aim "tpr") or on the TPR, by rising masses."""
    if len(source.score_names) == 1:
        raise InvalidInputError(
            "a source of one score has all its levels in metrics.distinct_rows(source): "
            "draw the curve of that"
        )
    if evaluate_on is not None or not isinstance(search, Exact | None):
        raise InvalidInputError("evaluate_on and search=Grid(...) need a Sample, not a source")
    asked = list(PERCENT) if levels is None else ascending("levels", levels)
    tprs, fprs = ([0], asked) if aim == "tpr" else (asked, [max_fpr])
    totals, rules, cells = rules_of_source(source, tprs, fprs, DIRECTION_SETS["nonneg"], aim=aim)
    if sum(totals.ood) == 0 and aim != "risk":
        raise InvalidInputError("the source has no OOD rows, so this curve is undefined")
    path = rules.take(np.unique(cells[cells >= 0]))
    order = np.lexsort((path.ood, path.id))
    first = np.append(True, np.diff(path.id[order]) > 0)[: len(order)]
    return totals, path.take(order[first])


def refuse_levels(levels: Sequence[Number] | None) -> None:
    """Say that rows in memory need none."""
    if levels is not None:
        raise InvalidInputError("levels are for a source; the curve of a Sample has every level")
