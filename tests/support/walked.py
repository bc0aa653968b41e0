"""What a search has to say, by walking through all cells of all directions in whole numbers.

No box is cut and nothing is ruled out: only the walks of `demur._kernels.exact_walk`, which are
tested by themselves, and how a set is given a float64 rule are taken from the package.
"""

from __future__ import annotations

import numpy as np

import demur as dm
from demur._kernels.engines import Doubt, Outcome
from demur._kernels.exact_walk import DoubtfulRows, settled
from demur.tuning.prepared import LinearParts, goal_of
from demur.tuning.result import DIRECTION_SETS, Exact
from demur.tuning.tune import Line, _find, how_sure, preferred, reject_all

SIGNS = ((1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0), (1.0, -1.0))


def walked(sample, model, directions):
    """Return status, lower bound, unresolved and masses of all cells together."""
    ready = dm.prepare(sample)
    program = model.program(ready.points.totals)
    bounds = LinearParts.of(program, ready.points)
    parts = map(ready.points.part, bounds.parts)
    masses = np.stack([ready.points.id, ready.points.loss, *ready.points.ood, *parts])
    rows = DoubtfulRows(ready.points.scores, masses, ready.frame)
    points, which = np.unique(ready.frame.points(rows.scores), axis=0, return_inverse=True)
    sums = np.zeros((len(points), len(masses)), np.int64)
    np.add.at(sums, which.ravel(), masses.T)
    endless, nothing = (-np.inf, -np.inf), np.zeros(len(masses), np.int64)
    charts = [
        (unit, SIGNS[quarter][unit], SIGNS[quarter][1 - unit])
        for quarter in DIRECTION_SETS[directions].quarters
        for unit in (0, 1)
    ]
    edges = (0.0, 1.0), endless, (np.inf, np.inf)
    doubts = tuple(Doubt(*chart, *edges, points, sums, nothing, -np.inf) for chart in charts)
    unknown = np.empty((0, 2)), np.empty(0), 0, 0, 0, "infeasible", np.inf, 0, 0
    outcome = settled(Outcome(*unknown, doubts), rows, goal_of(program, bounds.linear))
    assert outcome.unresolved == 0  # or there are too many cells to walk through
    lines = [Line((1.0, 0.0), 0.0, outcome.id, outcome.ood, outcome.loss, 1.0)]
    best = preferred((lines if len(outcome.v) else []) + reject_all(program, 2), program)
    return _told(best, how_sure(program, best, [outcome]))


def searched(sample, model, directions):
    """Return the same of the engine in use."""
    ready = dm.prepare(sample)
    program = model.program(ready.points.totals)
    return _told(*_find(ready, program, DIRECTION_SETS[directions], Exact()))


def _told(best, sure):
    if best is None:
        return "infeasible", sure.unresolved
    return sure.status, sure.lower_bound, sure.unresolved, (best.id, best.ood, best.loss)
