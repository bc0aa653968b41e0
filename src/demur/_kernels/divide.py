"""One step of the search: cut boxes, keep the strips worth it, and open their nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from demur._kernels.bound import Cheap
from demur._kernels.boxes import Boxes, Edges, assemble
from demur._kernels.cuts import Slabs, cut, whole
from demur._kernels.lines import Chart
from demur._kernels.places import Places, place
from demur._kernels.tree import ID, Tree, ranges

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

Judge = Callable[[_Floats, _Floats], _Bools]

# A node is opened when its lines spread over more than this part of the height of the box.
_COARSE = 0.7
# Boxes with fewer items than this have all their nodes opened.
_SPARSE = 32


def divide(
    tree: Tree, chart: Chart, cheap: Cheap, boxes: Boxes, judge: Judge
) -> tuple[Boxes, _Bools]:
    """Return the parts of boxes that `judge` lets live, and which boxes could not be cut."""
    slabs, number = cut(chart, boxes)
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
    alive = np.flatnonzero(judge(accepted[:, slab, strip], (come - gone)[:, slab, strip]))
    slab, strip = slab.take(alive), strip.take(alive)
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
    sizes = boxes.lines[:2].take(parent, axis=1)
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
    come, gone = np.zeros((3, slabs, width)), np.zeros((3, slabs, width))
    for k, row in enumerate(tree.mass):
        values = row.take(placed.items)
        accepted[k] = add_up(values, stop)
        if k == ID:
            come[0], gone[0] = add_up(values, first), accepted[k]
    for k, row in ((1, cheap.id), (2, cheap.loss)):
        if k == 1 or cheap.dearest > 0:
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
) -> Boxes:
    """Return boxes, given the items that cross them; nodes too coarse for a box are opened.

    `sizes` are upper bounds on the sizes of u and w, shape (2, boxes).
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
        limit = np.where(np.bincount(box, minlength=count) < _SPARSE, -1.0, height)
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
            for row, values in zip(accepted, tree.mass, strict=True):
                row += np.bincount(
                    box.take(inside), values.take(items.take(inside)), minlength=count
                )
        crosses = np.flatnonzero(placed.first < placed.stop)
        items, box = items.take(crosses), box.take(crosses)
