"""Boxes cut into strips, and the cells inside a box, one by one.

Slabs cut by chords into strips, and where lines cross them.

The strips of a slab are numbered upwards. An item crosses the strips from `first` up to, but
not including, `stop`; it is accepted in those from `stop` on and rejected in those before
`first`. In doubt it crosses, so that rounding does no harm.

*Cells.* Between two t where lines, or lines and edges of the box, meet, the order of the lines
does not change: a vertical line through each such strip visits all cells of the box. At a t the
lines are sorted; a cell lies between two neighbours and accepts all lines up to the lower one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels import exact
from demur._kernels.numpy_engine.bounds import Problem
from demur._kernels.numpy_engine.boxes import EPS, Boxes, Chart, Edges, at_most
from demur._kernels.numpy_engine.tree import TAG, Tree, points_below

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]
_Lines = tuple[_Floats, _Floats]
# Arithmetic is several times faster than choosing by a mask: distances beyond a slab, in units of
# its rounding margin, are multiplied by this.
_HUGE = 2.0**32
# Rows worked on together; their arrays stay in the cache.
_CHUNK = 1 << 12
# More chords than any slab has.
_MANY = 2.0**20
# Doubt that is larger than this part of a distance is not left to the size of the largest line.
_BLURRED = 2.0**-10
# What is farther apart than this, relatively, is in the order it seems to be.
_CLOSE = 64 * EPS


class Slabs(NamedTuple):
    """Slabs and the chords that cut them into strips."""

    edges: Edges
    strips: _Ints
    """Number of strips of each slab."""
    parts: _Ints
    """Number of new boxes that the strips of each slab may form."""
    middle: _Floats
    """Shape (2, slabs): where the middle of the strips begins and ends."""
    step: _Floats
    """Shape (2, slabs): distance of neighbouring chords at both ends."""
    margin: _Floats
    """How far rounding may put a line off."""
    exact: _Bools
    """Whether places within the margin are to be found exactly."""

    def edge(self, slab: _Ints, strip: _Ints) -> _Floats:
        """Return both ends of the lower edge of a strip; the strip after the last has the upper."""
        low, high = self.edges.low.take(slab, axis=1), self.edges.high.take(slab, axis=1)
        strips = self.strips.take(slab)
        chord = self.middle.take(slab, axis=1) + (strip - strips / 2) * self.step.take(slab, axis=1)
        chord = np.minimum(np.maximum(chord, low), high)
        return np.where(strip <= 0, low, np.where(strip >= strips, high, chord))


def whole(edges: Edges, sizes: _Floats) -> Slabs:
    """Return boxes as slabs of one strip."""
    count = edges.t.shape[1]
    margin = rounding_margin(edges, sizes)
    return Slabs(
        edges,
        np.ones(count, np.int64),
        np.ones(count, np.int64),
        edges.low,
        np.full((2, count), np.inf),
        margin,
        blurred(margin, np.where(edges.high > edges.low, edges.high - edges.low, np.inf)),
    )


def blurred(margin: _Floats, distance: _Floats) -> _Bools:
    """Return where rounding of the largest line blurs a distance, shape (2, slabs), at an end.

    It may be decades beyond the others there, which would all be in doubt.
    """
    return np.asarray((margin > _BLURRED * distance).any(axis=0))


def rounding_margin(edges: Edges, sizes: _Floats) -> _Floats:
    """Return how far rounding may put lines off, given upper bounds on their u and w."""
    size = (
        sizes[0]
        + edges.t[1] * sizes[1]
        + np.abs(edges.low).max(axis=0)
        + np.abs(edges.high).max(axis=0)
    )
    return np.asarray(4 * EPS * size + float(np.finfo(np.float64).tiny))


class Places(NamedTuple):
    """Items in slabs and the strips they cross."""

    items: _Ints
    slab: _Ints
    first: _Ints
    stop: _Ints


def place(chart: Chart, slabs: Slabs, items: _Ints, slab: _Ints) -> Places:
    """Find the strips that items cross in the slab of each."""
    if slabs.exact.all() and (slabs.strips == 1).all():
        first, stop = _place_exactly(chart, slabs, items, slab)
        return Places(items, slab, np.minimum(first, stop), stop)
    first, stop = _place(chart, slabs, items, slab, 1.0)
    if slabs.exact.any():
        rows = np.flatnonzero(slabs.exact.take(slab))
        some, its_slab = items.take(rows), slab.take(rows)
        first_, stop_ = _place(chart, slabs, some, its_slab, -1.0)
        unsure = np.flatnonzero((first_ != first.take(rows)) | (stop_ != stop.take(rows)))
        rows, some, its_slab = rows.take(unsure), some.take(unsure), its_slab.take(unsure)
        first[rows], stop[rows] = _place_exactly(chart, slabs, some, its_slab)
    return Places(items, slab, np.minimum(first, stop), stop)


def _place(
    chart: Chart, slabs: Slabs, items: _Ints, slab: _Ints, doubt: float
) -> tuple[_Ints, _Ints]:
    """Place items, rounding errors being `doubt` times the margin."""
    first, stop = np.empty(len(items), np.int64), np.empty(len(items), np.int64)
    is_node = items >= chart.points
    nodes = np.flatnonzero(is_node)
    if 0 < len(nodes) < len(items):
        for rows in (np.flatnonzero(~is_node), nodes):
            places = _place(chart, slabs, items.take(rows), slab.take(rows), doubt)
            first[rows], stop[rows] = places
        return first, stop
    scale = _ChordScale.of(slabs, doubt)
    for start in range(0, len(items), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        some = items[chunk]
        bottom = chart.u0.take(some), chart.w0.take(some)
        top = (chart.u1.take(some), chart.w1.take(some)) if len(nodes) else None
        with np.errstate(over="ignore"):
            first[chunk], stop[chunk] = _strips(scale, slab[chunk], bottom, top)
    return first, stop


class _ChordScale(NamedTuple):
    """How to turn v into a number of chords, at both ends of slabs."""

    t: _Floats
    middle: _Floats
    low: _Floats
    high: _Floats
    rise: _Floats
    fuzz: _Floats
    strips: _Floats
    beyond: _Floats
    """Times the distance from a slab is more than it has strips."""

    @classmethod
    def of(cls, slabs: Slabs, doubt: float) -> _ChordScale:
        rise = 1 / slabs.step
        # Where chords meet in a corner, all of them are in doubt.
        with np.errstate(over="ignore"):
            fuzz = np.minimum(slabs.margin * rise, _MANY) + 16 * EPS * slabs.strips
        return cls(
            slabs.edges.t,
            slabs.middle,
            slabs.edges.low - doubt * slabs.margin,
            slabs.edges.high + doubt * slabs.margin,
            rise,
            doubt * fuzz,
            slabs.strips.astype(np.float64),
            np.minimum(_HUGE / slabs.margin, 2.0**996),
        )


def _strips(
    scale: _ChordScale, slab: _Ints, bottom: _Lines, top: _Lines | None
) -> tuple[_Floats, _Floats]:
    """Place ranges of lines, or single lines if there is no `top`."""
    strips, beyond = scale.strips.take(slab), scale.beyond.take(slab)
    half, last = strips / 2, strips - 0.5
    ends = [[values[k].take(slab) for values in scale[:6]] for k in (0, 1)]

    def chords(line: _Lines, end: list[_Floats]) -> _Floats:
        """Return how many chords are below, plus a half; huge numbers are outside the slab."""
        t, middle, low, high, rise, _ = end
        v = line[0] + t * line[1]
        count = np.minimum(np.maximum((v - middle) * rise + half, 0.5), last)
        return np.maximum(np.minimum(count, (v - low) * beyond), (v - high) * beyond)

    below = [chords(bottom, end) for end in ends]
    above = below if top is None else [chords(top, end) for end in ends]
    fuzz = [end[-1] for end in ends]
    first = np.floor(np.minimum(below[0] - fuzz[0], below[1] - fuzz[1]))
    stop = np.ceil(np.maximum(above[0] + fuzz[0], above[1] + fuzz[1]))
    return np.minimum(np.maximum(first, 0), strips), np.maximum(np.minimum(stop, strips), 0)


def _place_exactly(chart: Chart, slabs: Slabs, items: _Ints, slab: _Ints) -> tuple[_Ints, _Ints]:
    u0, u1, w0, w1 = (corner.take(items) for corner in chart.corners)
    t = slabs.edges.t.take(slab, axis=1)
    strips = slabs.strips.take(slab)
    first, stop = np.zeros(len(slab), np.int64), np.zeros(len(slab), np.int64)
    for k in range(int(strips.max(initial=0)) + 1):
        edge = slabs.edge(slab, np.full(len(slab), k))
        below = at_most(u1, w1, t[0], edge[0]) & at_most(u1, w1, t[1], edge[1])
        above = at_most(-u0, -w0, t[0], -edge[0]) & at_most(-u0, -w0, t[1], -edge[1])
        stop += ~below & (k < strips)
        first += above & (k > 0) & (k <= strips)
    return first, stop


class LeafCells(NamedTuple):
    """Cells of one chart, each with a point (t, v) inside it and half its height there."""

    mass: _Floats
    """Shape (rows of Tree.mass, cells)."""
    t: _Floats
    v: _Floats
    room: _Floats
    box: _Ints
    """Which of the boxes each is from."""


def cells_inside(
    tree: Tree, chart: Chart, boxes: Boxes, problem: Problem, limit: float
) -> tuple[LeafCells, _Bools]:
    """Return the feasible cells of boxes crossed by few points, with values up to `limit`.

    And in which boxes lines come so close that float64 may have missed a cell.
    """
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
    box, t, close = _strips_between(u, w, boxes)
    cells, closer = _cells_at(tree, boxes, (u, w, point), (box, t), problem, limit)
    # Whole points are far apart, and so are the places where their lines meet.
    return cells, (close | closer) & (not tree.frame.whole)


def _strips_between(u: _Floats, w: _Floats, boxes: Boxes) -> tuple[_Ints, _Floats, _Bools]:
    """Return a t in every strip, the box it belongs to, and which boxes have too narrow ones."""
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
        slivers = _at_an_end(meet, t0, t1)
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
    narrow = (stop - start <= _CLOSE * stop) & (start > t0) & (stop < t1)
    box, strip = np.nonzero((start < middle) & (middle < stop))
    # Where t spans octaves, float64 may tell lines apart only at the lower end.
    wide, wide_strip = np.nonzero(stop > 4 * start)
    near = start[wide, wide_strip] * (1 + 1 / 16)
    # One score alone may do where the other has an offset that swallows it.
    alone = np.flatnonzero(boxes.t[0] == 0)
    return (
        np.concatenate([box, wide, alone]),
        np.concatenate([middle[box, strip], near, np.zeros(len(alone))]),
        narrow.any(axis=1) | slivers,
    )


def _at_an_end(meet: _Floats, t0: _Floats, t1: _Floats) -> _Bools:
    """Return the boxes at an end of which a cell may be too narrow for float64.

    Such a cell lies between two meetings of lines, on whichever side of the end they are, or
    between one and t = 1, where the other chart begins and has the rest of it.
    """
    at_start, at_stop = (np.abs(meet - t) <= _CLOSE * t for t in (t0, t1))
    several = (at_start.sum(axis=1) > 1) | (at_stop.sum(axis=1) > 1)
    last = t1[:, 0] >= 1
    return np.asarray((several & (t0[:, 0] > 0)) | (last & at_stop.any(axis=1)))


def _cells_at(
    tree: Tree,
    boxes: Boxes,
    lines: tuple[_Floats, _Floats, _Ints],
    verticals: tuple[_Ints, _Floats],
    problem: Problem,
    limit: float,
) -> tuple[LeafCells, _Bools]:
    """Return the cells on vertical lines at t through boxes, and boxes with lines too close."""
    box, t = verticals
    u, w, point = lines
    values = u.take(box, axis=0) + t[:, None] * w.take(box, axis=0)
    order = np.argsort(values, axis=1)
    low, high = _edges_at(boxes, box, t)
    values = np.take_along_axis(values, order, axis=1)
    close = _too_close(values, low, high, box, t, len(boxes.stale))
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
    return LeafCells(mass, t.take(line), bottom + room, room, box.take(line)), close


def _too_close(
    values: _Floats, low: _Floats, high: _Floats, box: _Ints, t: _Floats, boxes: int
) -> _Bools:
    """Return the boxes in which neighbours on a vertical line, t > 0, may be in wrong order."""
    size = np.abs(low) + np.abs(high) + np.abs(np.where(np.isfinite(values), values, 0)).max(axis=1)
    with np.errstate(invalid="ignore"):
        near = (np.diff(values, axis=1) <= (_CLOSE * size)[:, None]).any(axis=1) & (t > 0)
    return np.bincount(box, near, minlength=boxes) > 0


def _edges_at(boxes: Boxes, box: _Ints, t: _Floats) -> tuple[_Floats, _Floats]:
    t0, t1 = boxes.t[0].take(box), boxes.t[1].take(box)
    part = (t - t0) / np.where(t1 > t0, t1 - t0, 1.0)
    low0, low1, high0, high1 = (side.take(box) for edge in (boxes.low, boxes.high) for side in edge)
    return low0 + part * (low1 - low0), high0 + part * (high1 - high0)


def worth(problem: Problem, mass: _Floats, limit: float) -> _Bools:
    """Return which masses meet the bounds, up to rounding, with a value of at most `limit`."""
    met = problem.allows(mass[0], mass[problem.sets])
    met &= mass[0] >= 1
    if problem.linear is not None:
        met &= exact.linear_close(problem.linear, problem.linear_masses(mass))
    value = problem.value(np.maximum(mass[0], 1), mass[1], mass[problem.sets].sum(axis=0))
    met &= value <= limit
    return met


def cells_on_line(
    tree: Tree, chart: Chart, boxes: Boxes, problem: Problem, limit: float
) -> LeafCells:
    """Return the feasible cells on the vertical line through the middle of the first box.

    All points below its crossing items are sorted, however many they are.
    """
    _, points = points_below(tree, boxes.items[: boxes.start[1]])
    t, low, high = (float(ends[:, 0].mean()) for ends in boxes.edges)
    return cells_along(tree, chart, points, boxes.accepted[:, 0], (t, low, high), problem, limit)


def cells_along(
    tree: Tree,
    chart: Chart,
    points: _Ints,
    accepted: _Floats,
    line: tuple[float, float, float],
    problem: Problem,
    limit: float,
) -> LeafCells:
    """Return the feasible cells on a vertical line (t, low, high) that points cross."""
    t, low, high = line
    values = chart.u0.take(points) + t * chart.w0.take(points)
    order = np.argsort(values)
    values = values.take(order)
    bottom = np.maximum(np.concatenate([[-np.inf], values]), low)
    top = np.minimum(np.append(values, np.inf), high)
    cell = np.flatnonzero(bottom < top)
    mass = np.stack(
        [
            before + np.concatenate([[0.0], np.cumsum(row.take(points.take(order)))]).take(cell)
            for row, before in zip(tree.mass, accepted, strict=True)
        ]
    )
    chosen = np.flatnonzero(worth(problem, mass, limit))
    bottom, top = bottom.take(cell.take(chosen)), top.take(cell.take(chosen))
    room = (top - bottom) / 2
    first = np.zeros(len(chosen), np.int64)
    return LeafCells(mass.take(chosen, axis=1), np.full(len(chosen), t), bottom + room, room, first)
