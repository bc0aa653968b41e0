"""Counting what rules accept of a sample, to be saved in place of its rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._kernels import reference
from demur.core.points import Points
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.guarantees.saved import OperatingTable
from demur.tuning.charts import Directions
from demur.tuning.frontier import frontier
from demur.tuning.result import Exact, Grid


def operating_table(
    sample: Sample,
    *,
    rules: Iterable[Rule] | None = None,
    directions: Directions = "nonneg",
    search: Exact | Grid | None = None,
) -> OperatingTable:
    """Return operating points of `sample` from which any model can be tuned later.

    One score: every threshold that is optimal under some model. Two scores: the rules of
    `frontier`, best at bounds on TPR and FPR in steps of one percent, or the `rules` given.

    Examples
    --------
    >>> from demur import PrecisionRecallModel
    >>> sample = Sample([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], ood_scores=[0.25, 0.8])
    >>> table = OperatingTable.from_json(operating_table(sample).to_json())
    >>> for prior in (0.1, 0.5):
    ...     table.tune(PrecisionRecallModel(0.9, 0.5, ood_prior=prior)).rule.threshold
    0.225
    0.225
    """
    points = Points.of(sample)
    if rules is None and sample.n_scores == 1:
        return _swept(points, sample.score_names)
    if rules is None:
        surface = frontier(sample, directions=directions, search=search)
        found = np.concatenate([surface.directions, surface.thresholds[..., None]], axis=2)
        lines = found[~np.isnan(surface.thresholds)]
    else:
        lines = np.array([[*rule.direction, rule.threshold] for rule in rules])
    lines = np.unique(lines.reshape(-1, sample.n_scores + 1), axis=0)
    masses = np.array([_accepted(points, line) for line in lines], np.int64).reshape(-1, 3)
    return _table(lines, masses, points, complete=False, names=sample.score_names)


def _swept(points: Points, names: tuple[str, ...] | None) -> OperatingTable:
    swept = reference.sweep(points.scores[:, 0], points.id, points.ood, points.loss)
    ood = swept.ood[0]
    # A threshold is never optimal if the next one accepts more ID at no more loss and OOD,
    # or if the one before accepts as much ID and less OOD.
    following = np.append((np.diff(swept.loss) > 0) | (np.diff(ood) > 0), True)[: len(ood)]
    before = np.append(True, np.diff(swept.id) > 0)[: len(ood)]
    kept = np.flatnonzero(following & before)
    upper = np.append(swept.value[1:], np.inf)[: len(ood)]
    with np.errstate(invalid="ignore"):
        middle = swept.value + (upper - swept.value) / 2
    # Rounding may put the middle on the next score, which must stay rejected.
    threshold = np.where((swept.value <= middle) & (middle < upper), middle, swept.value)
    lines = np.column_stack([np.ones(len(ood)), threshold])[kept]
    masses = np.column_stack([swept.id, ood, swept.loss])[kept]
    return _table(lines, masses, points, complete=True, names=names)


def _table(
    lines: FloatArray,
    masses: IntArray,
    points: Points,
    *,
    complete: bool,
    names: tuple[str, ...] | None,
) -> OperatingTable:
    """Put the rule that rejects everything in front: it competes under a `CostModel`."""
    nothing = np.zeros(points.scores.shape[1] + 1)
    nothing[0], nothing[-1] = 1.0, -np.inf
    lines = np.vstack([nothing, lines])
    accepted = np.vstack([np.zeros(3, np.int64), masses])
    return OperatingTable(
        directions=lines[:, :-1],
        thresholds=lines[:, -1],
        accepted_id=accepted[:, 0],
        accepted_ood=accepted[:, 1],
        accepted_loss=accepted[:, 2],
        totals=points.totals,
        complete=complete,
        score_names=names,
    )


def _accepted(points: Points, line: FloatArray) -> tuple[int, int, int]:
    taken = Rule(tuple(line[:-1]), float(line[-1])).accept(points.scores)
    return (
        int(points.id[taken].sum()),
        int(points.ood[0, taken].sum()),
        int(points.loss[taken].sum()),
    )
