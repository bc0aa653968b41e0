"""All thresholds in all directions of two scores, and the paper's grid of angles."""

from __future__ import annotations

import math

import numpy as np

from demur._arrays import FloatArray
from demur._kernels import reference
from demur.core.program import Program
from demur.core.scores import combine, midway
from demur.errors import InvalidInputError
from demur.tuning.charts import DirectionSet
from demur.tuning.line import Line, preferred, reject_all, tied_best
from demur.tuning.prepared import Prepared
from demur.tuning.result import Certificate, Exact
from demur.tuning.single import best_of_sweep, masses_at

Direction = tuple[float, float]


def search_exact(
    prepared: Prepared,
    program: Program,
    allowed: DirectionSet,
    search: Exact,
    *,
    start: FloatArray | None = None,
) -> tuple[Line | None, Certificate]:
    """Return the best line over all allowed directions, and how sure that is.

    None means that no half-plane meets the bounds. `start` are directions to try first.
    """
    # A gap is stated in the model's objective, engines work in that of the program.
    gap = search.gap / program.scale
    outcome = prepared.search(program, allowed, gap=gap, budget=search.budget, start=start)
    if outcome.status == "budget" and len(outcome.v) == 0 and not program.reject_all:
        raise InvalidInputError(
            f"the budget of {search.budget} boxes ended before any rule that meets the bounds "
            "was found or their infeasibility proven; raise budget"
        )
    masses = (outcome.id, outcome.ood, outcome.loss)
    lines = [
        robust_line(prepared, (float(p), float(q)), float(v), masses, allowed)
        for (p, q), v in zip(outcome.weights, outcome.v, strict=True)
    ]
    best = preferred(lines + reject_all(program, 2), program)
    status = "optimal" if outcome.status == "infeasible" else outcome.status
    bound = min(outcome.lower_bound, 0.0) if program.reject_all else outcome.lower_bound
    lower_bound = program.scale * bound + program.offset
    return best, Certificate(status, lower_bound, outcome.boxes, outcome.unresolved)


def search_grid(
    prepared: Prepared, program: Program, allowed: DirectionSet, angles: int
) -> Line | None:
    """Return the best line over equidistant angles (the paper's algorithm).

    An engine that finds the optimum of many directions faster than by sorting says which are
    worth a sort.
    """
    points = prepared.points.present()
    lines: list[Line] = []
    directions = grid_directions(allowed, angles)
    optima = prepared.directions(program, np.array(directions))
    if optima is not None:
        attained = [k for k in range(len(directions)) if optima[k, 0] > 0]
        best = tied_best([tuple(optima[k].tolist()) for k in attained], program)
        directions = [directions[attained[k]] for k in best]
    for direction in directions:
        values = combine(direction, points.scores)
        swept = reference.sweep(values, points.id, points.ood, points.loss)
        row = best_of_sweep(swept, program)
        if row is not None:
            lines.append(_line_at(swept, row, direction, prepared.spread))
    return preferred(lines + reject_all(program, 2), program)


def grid_directions(allowed: DirectionSet, angles: int) -> list[Direction]:
    """Return equidistant unit vectors over the arc, exact where they fall on an axis."""
    low, high = allowed.angles
    whole_turn = high - low == 2 * np.pi
    steps = np.linspace(low, high, angles, endpoint=not whole_turn)
    pairs = np.column_stack([np.cos(steps), np.sin(steps)])
    # cos(pi/2) is 6e-17 in floats, which would break the ties of the other score.
    pairs[np.abs(pairs) < 1e-15] = 0.0
    return [(float(c), float(s)) for c, s in pairs]


def robust_line(
    prepared: Prepared,
    direction: Direction,
    threshold: float,
    masses: tuple[int, int, int],
    allowed: DirectionSet,
) -> Line:
    """Return the widest line with the accepted set of a half-plane.

    Where float64 cannot evaluate that one to the same masses, the unit vector along the
    half-plane's own direction is tried, and as a last resort the half-plane stays as it is.
    """
    wide = prepared.widest_line(direction, threshold, allowed)
    for tried in (wide.direction, direction):
        length = math.hypot(*tried)
        unit = (tried[0] / length, tried[1] / length)
        last, following = prepared.sides(direction, threshold, unit)
        if last < following:
            return Line(unit, float(midway(last, following)), *masses, wide.width)
    return Line(direction, threshold, *masses, wide.width)


def _line_at(swept: reference.Sweep, row: int, direction: Direction, scale: FloatArray) -> Line:
    last = float(swept.value[row])
    following = float(swept.value[row + 1]) if row + 1 < len(swept.value) else np.inf
    return Line(
        direction,
        float(midway(last, following)),
        *masses_at(swept, row),
        (following - last) / float(np.hypot(*(np.array(direction) * scale))),
    )
