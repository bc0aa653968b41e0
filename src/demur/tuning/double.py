"""All thresholds in all directions of two scores, and the paper's grid of angles."""

from __future__ import annotations

import numpy as np

from demur._arrays import FloatArray
from demur._kernels import reference
from demur.core.points import Points
from demur.core.program import Program
from demur.tuning.charts import DirectionSet
from demur.tuning.line import Line, midway, preferred, reject_all, tied_best
from demur.tuning.margin import spread, widest_line
from demur.tuning.single import best_of_sweep, masses_at

# How much wider a cell must be after its accepted set proved out of float64's reach.
_THICKER = 64.0
_THINNEST = 4 * float(np.finfo(np.float64).eps)


def search_exact(
    points: Points, program: Program, allowed: DirectionSet
) -> tuple[Line | None, int]:
    """Return the best line over all allowed directions and how many cells were unresolved.

    None means that no half-plane meets the bounds.
    """
    scale = spread(points.scores, points.id)
    thinnest, unresolved = 0.0, 0
    while True:
        candidates = _optimal_half_planes(points, program, allowed, thinnest)
        lines = [
            line
            for direction, threshold, masses in candidates
            if (line := _robust(points, direction, threshold, masses, scale, allowed)) is not None
        ]
        if lines or not candidates:
            break
        unresolved += len(candidates)
        thinnest = max(_THINNEST, thinnest * _THICKER)
    return preferred(lines + reject_all(program, 2), program), unresolved


def _optimal_half_planes(
    points: Points, program: Program, allowed: DirectionSet, thinnest: float
) -> list[tuple[tuple[float, float], float, tuple[int, int, int]]]:
    """Return direction, threshold and accepted masses of all half-planes tied for the optimum."""
    found: list[tuple[tuple[float, float], float, tuple[int, int, int]]] = []
    for chart in allowed.charts:
        x, y = chart.coordinates(points.scores)
        merged = reference.merge(x, y, points.id, points.ood, points.loss)
        cells = reference.search_chart(
            merged,
            *kernel_arguments(program),
            thinnest=thinnest,
        )
        if cells is not None:
            masses = (cells.id, cells.ood, cells.loss)
            found += [
                (chart.direction(p, q), float(v), masses)
                for (p, q), v in zip(cells.weights, cells.v, strict=True)
            ]
    return [found[i] for i in tied_best([masses for *_, masses in found], program)]


def search_grid(
    points: Points, program: Program, allowed: DirectionSet, angles: int
) -> Line | None:
    """Return the best line over equidistant angles, one sort each (the paper's algorithm)."""
    scale = spread(points.scores, points.id)
    lines: list[Line] = []
    for direction in grid_directions(allowed, angles):
        values = direction[0] * points.scores[:, 0] + direction[1] * points.scores[:, 1]
        swept = reference.sweep(values, points.id, points.ood, points.loss)
        row = best_of_sweep(swept, program)
        if row is not None:
            lines.append(_line_at(swept, row, direction, scale))
    return preferred(lines + reject_all(program, 2), program)


def grid_directions(allowed: DirectionSet, angles: int) -> list[tuple[float, float]]:
    """Return equidistant unit vectors over the arc, exact where they fall on an axis."""
    low, high = allowed.angles
    whole_turn = high - low == 2 * np.pi
    steps = np.linspace(low, high, angles, endpoint=not whole_turn)
    pairs = np.column_stack([np.cos(steps), np.sin(steps)])
    # cos(pi/2) is 6e-17 in floats, which would break the ties of the other score.
    pairs[np.abs(pairs) < 1e-15] = 0.0
    return [(float(c), float(s)) for c, s in pairs]


def kernel_arguments(program: Program) -> tuple[np.ndarray, bool, int, np.ndarray, np.ndarray]:
    """Return objective and bounds as the kernels take them."""
    return (
        np.array([program.loss, program.id, program.ood], np.int64),
        program.per_id,
        program.min_id,
        np.array(program.max_ood, np.int64),
        np.array(program.ratio, np.int64),
    )


def _robust(
    points: Points,
    direction: tuple[float, float],
    threshold: float,
    masses: tuple[int, int, int],
    scale: FloatArray,
    allowed: DirectionSet,
) -> Line | None:
    """Return the widest line with this accepted set that float64 evaluates to these masses."""
    accepted = _combined(points, direction) <= threshold
    if not accepted.any():
        return None
    wide = widest_line(points.scores, accepted, direction, scale, allowed)
    for tried in (wide.direction, direction):
        line = _line_between(points, accepted, tried, masses, wide.width)
        if line is not None:
            return line
    return None


def _line_between(
    points: Points,
    accepted: np.ndarray,
    direction: tuple[float, float],
    masses: tuple[int, int, int],
    width: float,
) -> Line | None:
    """Put the threshold midway between the sides, if the unit direction keeps them apart."""
    length = float(np.hypot(*direction))
    unit = (direction[0] / length, direction[1] / length)
    values = _combined(points, unit)
    last = float(values[accepted].max())
    threshold = midway(values, last)
    taken = values <= threshold
    counted = (
        int(points.id[taken].sum()),
        int(points.ood[:, taken].sum()),
        int(points.loss[taken].sum()),
    )
    return Line(unit, threshold, *counted, width) if counted == masses else None


def _line_at(
    swept: reference.Sweep, row: int, direction: tuple[float, float], scale: FloatArray
) -> Line:
    last = float(swept.value[row])
    threshold = midway(swept.value, last)
    gap = float(swept.value[row + 1]) - last if row + 1 < len(swept.value) else np.inf
    return Line(
        direction,
        threshold,
        *masses_at(swept, row),
        gap / float(np.hypot(*(np.array(direction) * scale))),
    )


def _combined(points: Points, direction: tuple[float, float]) -> FloatArray:
    # The same two products and one sum as Rule.combine, so that both agree to the last bit.
    return direction[0] * points.scores[:, 0] + direction[1] * points.scores[:, 1]
