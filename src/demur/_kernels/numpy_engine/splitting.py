"""One step of the search: cut boxes, keep the strips worth it, and open their nodes.

Boxes are cut at some t into slabs, and slabs by chords into strips. Lines drift apart over a wide
box and crowd a high one, so boxes are cut so that the drift of the lines over a strip is about
its height. The chords of a slab lie, equally spaced at either end, around the median of a few of
its lines there, which values beyond all others do not move; where one would leave the slab it ends
in a corner instead, so that the strips together are the slab.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.bounds import Cheap
from demur._kernels.numpy_engine.boxes import EPS, Boxes, Chart, Edges, assemble
from demur._kernels.numpy_engine.strips import Places, Slabs, blurred, place, rounding_margin, whole
from demur._kernels.numpy_engine.tree import FAN, ID, Tree, ranges

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

Alive = Callable[[_Floats, _Floats], _Bools]
"""Which boxes may matter, from accepted and crossing masses as `Boxes` have them."""

# Upper limit of drift / height, and the number of slabs, and of parts of each, up to there.
_PLANS = ((1.4, 1, 8), (5.6, 2, 4), (24.0, 4, 2), (np.inf, 4, 1))
# Boxes up to so many items have so many strips to a part.
_SIZES = (64, 256)
_FINER = (1, 4, 8)
# Lines looked at to choose a cut.
_SURVEYED = 33
# Chords reach so many times the median distance of lines from their median to both sides, ...
_REACH = 2.4
# ... and this part of the height where that is nothing.
_RIM = 0.02
# They are moved by odd parts of their distance, at their left and at their right end.
_BESIDE = np.array([[0.031415926], [0.027182818]])
# Boxes whose lines stayed together for this many cuts are cut where two of them meet, exactly.
_STALE = 2
_TINY = float(np.finfo(np.float64).tiny)
# A node is opened when its lines spread over more than this part of the height of the box.
_COARSE = 0.7
# Boxes with fewer items than this have all their nodes opened.
_SPARSE = 32


def divide(
    tree: Tree, chart: Chart, cheap: Cheap, boxes: Boxes, alive: Alive, *, even: bool
) -> tuple[Boxes, _Bools]:
    """Return the parts of boxes that may matter, and which boxes could not be cut.

    Lines of a chart are `even` where none is decades beyond most others.
    """
    slabs, number = _cut(tree, chart, boxes, even)
    box = np.repeat(np.arange(len(boxes.stale)), number)
    slab, members = ranges(boxes.start.take(box), boxes.size.take(box))
    placed = place(chart, slabs, boxes.items.take(members), slab)
    width = int(slabs.strips.max())
    accepted, come, gone = _masses(tree, cheap, placed, len(box), width)
    accepted += boxes.accepted.take(box, axis=1)[:, :, None]
    there = np.arange(width) < slabs.strips[:, None]
    stuck = (number == 1) & (slabs.strips[np.cumsum(number) - number] == 1)
    there &= ~stuck.take(box)[:, None]
    slab, strip = np.nonzero(there)
    kept = np.flatnonzero(alive(accepted[:, slab, strip], (come - gone)[:, slab, strip]))
    slab, strip = slab.take(kept), strip.take(kept)
    part = strip * slabs.parts.take(slab) // slabs.strips.take(slab)
    most = int(slabs.parts.max())
    key = slab * most + part
    begin = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: len(key)])
    low, high = strip.take(begin), strip.take(np.append(begin[1:], len(key))[: len(begin)] - 1) + 1
    slab, key = slab.take(begin), key.take(begin)
    edges = Edges(slabs.edges.t.take(slab, axis=1), slabs.edge(slab, low), slabs.edge(slab, high))
    proper = np.flatnonzero((edges.low < edges.high).any(axis=0))
    edges = Edges(*(ends.take(proper, axis=1) for ends in edges))
    slab, low, high, key = (values.take(proper) for values in (slab, low, high, key))
    new = np.full(len(box) * most, -1)
    new[key] = np.arange(len(key))
    items, child = _members(placed, slabs, new, most, low, high)
    parent = box.take(slab)
    sizes = boxes.sizes.take(parent, axis=1)
    accepted, crossing = accepted[:, slab, low], come[:, slab, high - 1] - gone[:, slab, low]
    parts = gather(tree, chart, cheap, edges, sizes, accepted, items, child, crossing)
    stale = np.where(parts.size >= 0.8 * boxes.size.take(parent), boxes.stale.take(parent) + 1, 0)
    return parts._replace(stale=stale), stuck


def _masses(
    tree: Tree, cheap: Cheap, placed: Places, slabs: int, width: int
) -> tuple[_Floats, _Floats, _Floats]:
    """Return accepted and crossing masses of all strips, shape (rows, slabs, width)."""

    def add_up(values: _Floats, key: _Ints) -> _Floats:
        total = np.bincount(key, values, minlength=slabs * (width + 1))
        return np.cumsum(total.reshape(slabs, width + 1)[:, :width], axis=1, dtype=np.float64)

    start = placed.slab * (width + 1)
    stop, first = start + placed.stop, start + placed.first
    accepted = np.zeros((len(tree.mass), slabs, width))
    number = 3 + len(cheap.counted)
    come, gone = np.zeros((number, slabs, width)), np.zeros((number, slabs, width))
    known = {ID: 0} | {k: place for place, k in enumerate(cheap.counted, 3)}
    for k, row in enumerate(tree.mass):
        values = row.take(placed.items)
        accepted[k] = add_up(values, stop)
        if k in known:
            come[known[k]], gone[known[k]] = add_up(values, first), accepted[k]
    for k, row in ((1, cheap.id), (2, cheap.loss)):
        if k == 1 or cheap.prices.dearest > 0:
            values = row.take(placed.items)
            come[k], gone[k] = add_up(values, first), add_up(values, stop)
    return accepted, come, gone


def _members(
    placed: Places, slabs: Slabs, new: _Ints, most: int, low: _Ints, high: _Ints
) -> tuple[_Ints, _Ints]:
    """Return the items of the chosen strips, and the number of the strip of each."""
    wanted = (new.reshape(-1, most) >= 0).any(axis=1)
    some = np.flatnonzero((placed.first < placed.stop) & wanted.take(placed.slab))
    first, stop, slab = placed.first.take(some), placed.stop.take(some), placed.slab.take(some)
    parts, strips = slabs.parts.take(slab), slabs.strips.take(slab)
    first_part = first * parts // strips
    owner, part = ranges(first_part, (stop - 1) * parts // strips - first_part + 1)
    child = new.take(slab.take(owner) * most + part)
    kept = (
        np.flatnonzero(
            (child >= 0)
            & (first.take(owner) < high.take(child))
            & (stop.take(owner) > low.take(child))
        )
        if len(low)
        else np.zeros(0, np.int64)
    )
    return placed.items.take(some).take(owner.take(kept)), child.take(kept)


def gather(
    tree: Tree,
    chart: Chart,
    cheap: Cheap,
    edges: Edges,
    sizes: _Floats,
    accepted: _Floats,
    items: _Ints,
    box: _Ints,
    crossing: _Floats | None = None,
    *,
    coarse: float = _COARSE,
    sparse: int = _SPARSE,
) -> Boxes:
    """Return boxes, given the items that cross them; nodes too coarse for a box are opened.

    `sizes` are upper bounds on the sizes of u and w, shape (2, boxes). Boxes with fewer than
    `sparse` items have all their nodes opened.
    """
    count = accepted.shape[1]
    height = np.where(edges.flat(), -1.0, coarse * (edges.high - edges.low).mean(axis=0))
    t = edges.t.mean(axis=0)
    kept: list[tuple[_Ints, _Ints]] = []
    slabs = whole(edges, sizes)
    while True:
        nodes = np.flatnonzero(items >= tree.points)
        node, its_box = items.take(nodes), box.take(nodes)
        extent = chart.u1.take(node) - chart.u0.take(node)
        extent += t.take(its_box) * (chart.w1.take(node) - chart.w0.take(node))
        limit = np.where(np.bincount(box, minlength=count) < sparse, -1.0, height)
        opened = nodes[extent > limit.take(its_box)]
        if len(opened) == 0:
            kept.append((items, box))
            return assemble(tree, chart, cheap, edges, accepted, kept, crossing)
        crossing = None
        staying = np.ones(len(items), bool)
        staying[opened] = False
        staying = np.flatnonzero(staying)
        kept.append((items.take(staying), box.take(staying)))
        owner, items = ranges(
            tree.first.take(items.take(opened)), tree.children.take(items.take(opened))
        )
        living = np.flatnonzero(tree.alive.take(items))
        items, box = items.take(living), box.take(opened.take(owner.take(living)))
        placed = place(chart, slabs, items, box)
        inside = np.flatnonzero(placed.stop == 0)
        if len(inside):
            its_box, its_item = box.take(inside), items.take(inside)
            for row, values in zip(accepted, tree.mass, strict=True):
                row += np.bincount(its_box, values.take(its_item), minlength=count)
        crosses = np.flatnonzero(placed.first < placed.stop)
        items, box = items.take(crosses), box.take(crosses)


def _survey(tree: Tree, chart: Chart, boxes: Boxes) -> tuple[_Floats, _Floats]:
    """Return u and w of a few lines of each box, shape (surveyed, boxes).

    They are points of its items: the middle of a node may be decades from most of its points.
    """
    place = (np.arange(_SURVEYED)[:, None] + 0.5) / _SURVEYED * boxes.size
    number = place.astype(np.int64)
    items = boxes.items.take(boxes.start[:-1] + number, mode="clip")
    level = np.searchsorted(tree.level, items, side="right") - 1
    first = (items - tree.level.take(level)) * FAN**level
    count = np.minimum(FAN**level, tree.points - first)
    points = first + ((place - number) * count).astype(np.int64)
    return chart.u0.take(points), chart.w0.take(points)


def _cut(tree: Tree, chart: Chart, boxes: Boxes, even: bool) -> tuple[Slabs, _Ints]:
    """Return slabs, and how many each box is cut into.

    A box that float64 cannot cut becomes one slab of one strip.
    """
    edges = boxes.edges
    height = (edges.high - edges.low).mean(axis=0)
    width = edges.t[1] - edges.t[0]
    tilt = (edges.low[1] - edges.low[0] + edges.high[1] - edges.high[0]) / 2
    u, w = _survey(tree, chart, boxes)
    drift = width * np.ptp(w, axis=0) + 2 * np.abs(width * _median(w, 0) - tilt)
    limits, slabs, parts = (np.array(column) for column in zip(*_PLANS, strict=True))
    plan = np.searchsorted(limits[:-1], drift / np.where(height > 0, height, 1.0))
    # What float64 cannot cut in t is left to chords, however far lines drift.
    narrow = width <= 16 * EPS * edges.t[1]
    plan[narrow] = 0
    slabs, parts = slabs.take(plan), parts.take(plan)
    strips = parts * np.array(_FINER).take(np.searchsorted(_SIZES, boxes.size))
    strips[edges.flat()] = 1
    box = np.repeat(np.arange(len(boxes.stale)), slabs)
    edges = _slabs(edges, slabs, box, _cut_t(chart, boxes, drift, height))
    strips, parts = strips.take(box), parts.take(box)
    margin = rounding_margin(edges, boxes.sizes.take(box, axis=1))
    stale = boxes.stale.take(box)
    u, w = u.take(box, axis=1), w.take(box, axis=1)
    chords = _chords(u, w, edges, strips, even)
    _align(*chords, np.flatnonzero(narrow.take(box)), edges.t, w)
    slabs_ = Slabs(edges, strips, parts, *chords, margin, stale >= _STALE)
    uneven = np.flatnonzero((stale > 0) & (_largest(slabs_) > 0.9))
    if len(uneven):
        middle, step = (edges.low + edges.high) / 2, (edges.high - edges.low) / strips
        chords[0][:, uneven] = middle.take(uneven, axis=1)
        chords[1][:, uneven] = np.maximum(step.take(uneven, axis=1), _TINY)
    span = (strips / 2 - 1) * slabs_.step
    clipped = (slabs_.middle - span < edges.low - margin) | (
        slabs_.middle + span > edges.high + margin
    )
    clipped = clipped.any(axis=0) & (strips > 1)
    doubtful = blurred(margin, np.where(slabs_.step > _TINY, slabs_.step, np.inf))
    return slabs_._replace(exact=slabs_.exact | clipped | doubtful), slabs


def _largest(slabs: Slabs) -> _Floats:
    """Return the part of each slab that its largest strip takes up."""
    count = len(slabs.strips)
    most = int(slabs.strips.max(initial=1))
    slab, strip = np.divmod(np.arange(count * (most + 1)), most + 1)
    area = np.diff(slabs.edge(slab, strip).mean(axis=0).reshape(count, most + 1), axis=1)
    share: _Floats = area.max(axis=1) / np.maximum(area.sum(axis=1), np.finfo(np.float64).tiny)
    return share


def _slabs(edges: Edges, slabs: _Ints, box: _Ints, t: _Floats) -> Edges:
    """Cut boxes at t, shape (5, boxes), into 1, 2 or 4 slabs."""
    t0, t1 = edges.t
    part = (t - t0) / np.where(t1 > t0, t1 - t0, 1.0)
    ends = []
    for (left, right), outwards in ((edges.low, -1), (edges.high, 1)):
        # Rounded outwards, so that the slabs cover the box.
        reach = outwards * 4 * EPS * np.maximum(np.abs(left), np.abs(right))
        values = left + part * (right - left) + reach
        values[0], values[-1] = left, right
        ends.append(values)
    stride = 4 // slabs.take(box)
    column = (np.arange(len(box)) - (np.cumsum(slabs) - slabs).take(box)) * stride
    return Edges(*(np.stack([v[column, box], v[column + stride, box]]) for v in (t, *ends)))


def _cut_t(chart: Chart, boxes: Boxes, drift: _Floats, height: _Floats) -> _Floats:
    """Return five values of t from the left to the right end of each box."""
    t0, t1 = boxes.t
    with np.errstate(divide="ignore", invalid="ignore"):
        near_zero = np.clip(height / drift, 2.0**-10, 0.5)
    middle = _between(t0, t1, near_zero)
    # Lines that stay together may all meet in a point: cut through it.
    for k in np.flatnonzero((boxes.stale >= _STALE) & boxes.points & (boxes.size >= 2)):
        i, j = boxes.items[boxes.start[k]], boxes.items[boxes.start[k + 1] - 1]
        if chart.w0[i] != chart.w0[j]:
            meet = (chart.u0[j] - chart.u0[i]) / (chart.w0[i] - chart.w0[j])
            middle[k] = meet if t0[k] < meet < t1[k] else middle[k]
    return np.stack(
        [t0, _between(t0, middle, near_zero), middle, _between(middle, t1, near_zero), t1]
    )


def _between(t0: _Floats, t1: _Floats, near_zero: _Floats) -> _Floats:
    """Return the middle, on a logarithmic scale if t spans octaves."""
    middle = (t0 + t1) / 2
    wide = np.where(t0 > 0, np.sqrt(t0) * np.sqrt(t1), t1 * near_zero)
    return np.where(t1 > 4 * t0, wide, middle)


def _median(surveyed: _Floats, axis: int) -> _Floats:
    """Return the middle one of the lines looked at, an odd number."""
    half = _SURVEYED // 2
    return np.asarray(np.partition(surveyed, half, axis=axis).take(half, axis=axis))


def _align(middle: _Floats, step: _Floats, narrow: _Ints, t: _Floats, w: _Floats) -> None:
    """Let the chords of some slabs lean as the middle line does.

    Where slabs are too narrow to be cut in t, chords that lean otherwise, by as much as a few lines
    that cross the whole slab make of it, would lie across all others, and so would those after.
    """
    if len(narrow):
        lean = (t[1] - t[0]).take(narrow) * _median(w.take(narrow, axis=1), 0)
        middle[:, narrow] = middle.take(narrow, axis=1).mean(axis=0) + np.stack([-lean, lean]) / 2
        step[:, narrow] = step.take(narrow, axis=1).mean(axis=0)


def _chords(
    u: _Floats, w: _Floats, edges: Edges, strips: _Ints, even: bool
) -> tuple[_Floats, _Floats]:
    """Return both ends of the middle chord, and the distances of neighbouring chords there."""
    v = np.clip(u + edges.t[:, None] * w, edges.low[:, None], edges.high[:, None])
    middle = _median(v, 1)
    off = np.abs(v - middle[:, None])
    nearest = np.where(off > 0, off, np.inf).min(axis=1)
    nearest = np.where(np.isfinite(nearest), nearest, _RIM * (edges.high - edges.low))
    reach = _REACH * _median(off, 1)
    reach = np.where(reach > 0, reach, nearest)
    several = strips > 2
    if even:
        # Chords that stay inside need less care.
        first, last = np.maximum(edges.low, middle - reach), np.minimum(edges.high, middle + reach)
        step = np.where(several, (last - first) / np.maximum(strips - 1.9, 1), nearest)
        middle = np.where(several, first + (last - first) / 2, middle)
    else:
        # Moved inside at one end only, they would run across lines.
        step = np.where(several, 2 * reach / strips, nearest)
    # Beside the lines, so that none runs along a chord, or through its ends.
    upwards = middle < edges.low + (edges.high - edges.low) / 2
    middle += np.where(upwards if even else upwards[0], _BESIDE, -_BESIDE) * step
    return middle, np.maximum(step, _TINY)
