"""The cells inside a box, one by one.

Between two t where lines, or lines and edges of the box, meet, the order of the lines does not
change: a vertical line through each such strip visits all cells of the box. At a t the lines
are sorted; a cell lies between two neighbours and accepts all lines up to the lower one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.bounds import Problem
from demur._kernels.numpy_engine.boxes import EPS, Boxes, Chart
from demur._kernels.numpy_engine.tree import OOD, TAG, Tree, points_below

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]


class LeafCells(NamedTuple):
    """Cells of one chart, each with a point (t, v) inside it and half its height there."""

    mass: _Floats
    """Shape (rows of Tree.mass, cells)."""
    t: _Floats
    v: _Floats
    room: _Floats


def cells_inside(
    tree: Tree, chart: Chart, boxes: Boxes, problem: Problem, limit: float
) -> LeafCells:
    """Return the feasible cells of boxes crossed by few points, with values up to `limit`."""
    size = boxes.size
    place = np.arange(max(1, int(size.max(initial=0))))
    there = place < size[:, None]
    point = (
        boxes.items.take(np.where(there, boxes.start[:-1, None] + place, 0), mode="clip")
        if len(boxes.items)
        else np.zeros(there.shape, np.int64)
    )
    u = np.where(there, chart.u0.take(point), np.inf)
    w = np.where(there, chart.w0.take(point), 0.0)
    box, t = _strips(u, w, boxes)
    return _cells_at(tree, boxes, (u, w, point), (box, t), problem, limit)


def _strips(u: _Floats, w: _Floats, boxes: Boxes) -> tuple[_Ints, _Floats]:
    """Return a t in every strip, and the box it belongs to."""
    t0, t1 = boxes.t[0][:, None], boxes.t[1][:, None]
    i, j = np.triu_indices(u.shape[1], 1)
    with np.errstate(all="ignore"):
        meet = (u[:, j] - u[:, i]) / (w[:, i] - w[:, j])
        v, part = u[:, i] + meet * w[:, i], (meet - t0) / (t1 - t0)
        margin = (
            16 * EPS * (np.abs(u) + t1 * np.abs(w)).max(axis=1, initial=0, where=np.isfinite(u))
        )
        low, high = (
            edge[0][:, None] + part * (edge[1] - edge[0])[:, None]
            for edge in (boxes.low, boxes.high)
        )
        # Lines that meet outside of the box stay in order inside.
        meet[(v < low - margin[:, None]) | (v > high + margin[:, None])] = np.inf
        meetings = [meet]
        for edge in (boxes.low, boxes.high):
            from0, from1 = u + t0 * w - edge[0][:, None], u + t1 * w - edge[1][:, None]
            meetings.append(t0 + (t1 - t0) * (from0 / (from0 - from1)))
        ends = np.concatenate(meetings, axis=1)
    ends[~((ends > t0) & (ends < t1))] = np.inf
    ends = np.minimum(np.sort(ends, axis=1), t1)
    ends = np.concatenate([t0, ends, t1], axis=1)
    start, stop = ends[:, :-1], ends[:, 1:]
    middle = start + (stop - start) / 2
    box, strip = np.nonzero((start < middle) & (middle < stop))
    # Where t spans octaves, float64 may tell lines apart only at the lower end.
    wide, wide_strip = np.nonzero(stop > 4 * start)
    near = start[wide, wide_strip] * (1 + 1 / 16)
    return np.append(box, wide), np.append(middle[box, strip], near)


def _cells_at(
    tree: Tree,
    boxes: Boxes,
    lines: tuple[_Floats, _Floats, _Ints],
    verticals: tuple[_Ints, _Floats],
    problem: Problem,
    limit: float,
) -> LeafCells:
    """Return the cells on vertical lines at t through boxes."""
    box, t = verticals
    u, w, point = lines
    values = u.take(box, axis=0) + t[:, None] * w.take(box, axis=0)
    order = np.argsort(values, axis=1)
    low, high = _edges_at(boxes, box, t)
    values = np.take_along_axis(values, order, axis=1)
    bottom = np.maximum(
        np.concatenate([np.full((len(t), 1), -np.inf), values], axis=1), low[:, None]
    )
    top = np.minimum(np.concatenate([values, np.full((len(t), 1), np.inf)], axis=1), high[:, None])
    line, cell = np.nonzero(bottom < top)
    order = np.take_along_axis(point.take(box, axis=0), order, axis=1)
    finite = np.isfinite(values)
    mass = np.zeros((len(tree.mass), len(line)))
    chosen = np.arange(len(line))
    sums = np.zeros(bottom.shape)
    for k in (*(k for k in range(len(mass)) if k != TAG), TAG):
        if k == TAG:
            chosen = np.flatnonzero(worth(problem, mass, limit))
            line, cell = line.take(chosen), cell.take(chosen)
            mass = mass.take(chosen, axis=1)
        np.cumsum(tree.mass[k].take(order) * finite, axis=1, out=sums[:, 1:])
        mass[k] = boxes.accepted[k].take(box.take(line)) + sums[line, cell]
    bottom, top = bottom[line, cell], top[line, cell]
    room = (top - bottom) / 2
    return LeafCells(mass, t.take(line), bottom + room, room)


def _edges_at(boxes: Boxes, box: _Ints, t: _Floats) -> tuple[_Floats, _Floats]:
    t0, t1 = boxes.t[0].take(box), boxes.t[1].take(box)
    part = (t - t0) / np.where(t1 > t0, t1 - t0, 1.0)
    low0, low1, high0, high1 = (side.take(box) for edge in (boxes.low, boxes.high) for side in edge)
    return low0 + part * (low1 - low0), high0 + part * (high1 - high0)


def worth(problem: Problem, mass: _Floats, limit: float) -> _Bools:
    """Return which masses meet the bounds, up to rounding, with a value of at most `limit`."""
    met = problem.allows(mass[0], mass[OOD:])
    met &= mass[0] >= 1
    value = problem.value(np.maximum(mass[0], 1), mass[1], mass[OOD:].sum(axis=0))
    met &= value <= limit
    return met


def cells_on_line(
    tree: Tree, chart: Chart, boxes: Boxes, problem: Problem, limit: float
) -> LeafCells:
    """Return the feasible cells on the vertical line through the middle of the first box.

    All points below its crossing items are sorted, however many they are.
    """
    _, points = points_below(tree, boxes.items[: boxes.start[1]])
    t = boxes.t[:, 0].mean()
    values = chart.u0.take(points) + t * chart.w0.take(points)
    order = np.argsort(values)
    low, high = boxes.low[:, 0].mean(), boxes.high[:, 0].mean()
    values = values.take(order)
    bottom = np.maximum(np.concatenate([[-np.inf], values]), low)
    top = np.minimum(np.append(values, np.inf), high)
    cell = np.flatnonzero(bottom < top)
    mass = np.stack(
        [
            accepted + np.concatenate([[0.0], np.cumsum(row.take(points.take(order)))]).take(cell)
            for row, accepted in zip(tree.mass, boxes.accepted[:, 0], strict=True)
        ]
    )
    chosen = np.flatnonzero(worth(problem, mass, limit))
    bottom, top = bottom.take(cell.take(chosen)), top.take(cell.take(chosen))
    room = (top - bottom) / 2
    return LeafCells(mass.take(chosen, axis=1), np.full(len(chosen), t), bottom + room, room)
