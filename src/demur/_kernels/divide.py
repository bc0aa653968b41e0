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
_SPARSE = 24


def divide(
    tree: Tree, chart: Chart, cheap: Cheap, boxes: Boxes, judge: Judge
) -> tuple[Boxes, _Bools]:
    """Return the parts of boxes that `judge` lets live, and which boxes could not be cut."""
    slabs, number = cut(chart, boxes)
    box = np.repeat(np.arange(boxes.count), number)
    slab, members = ranges(boxes.start.take(box), boxes.size.take(box))
    placed = place(chart, slabs, boxes.items.take(members), slab)
    width = int(slabs.strips.max())
    accepted, crossing = _masses(tree, cheap, placed, len(box), width)
    accepted += boxes.accepted.take(box, axis=1)[:, :, None]
    there = np.arange(width) < slabs.strips[:, None]
    stuck = (number == 1) & (slabs.strips[np.cumsum(number) - number] == 1)
    there &= ~stuck.take(box)[:, None]
    slab, strip = np.nonzero(there)
    edges = Edges(slabs.edges.t.take(slab, axis=1), slabs.edge(slab, strip), slabs.edge(slab, strip + 1))
    alive = judge(accepted[:, slab, strip], crossing[:, slab, strip])
    alive &= (edges.low < edges.high).any(axis=0)
    chosen = np.flatnonzero(alive)
    slab, strip = slab.take(chosen), strip.take(chosen)
    new = np.full((len(box), width), -1)
    new[slab, strip] = np.arange(len(chosen))
    items, child = _members(placed, new)
    edges = Edges(*(ends.take(chosen, axis=1) for ends in edges))
    parent = box.take(slab)
    sizes = boxes.lines[:2].take(parent, axis=1)
    halves = gather(tree, chart, cheap, edges, sizes, accepted[:, slab, strip], items, child)
    stale = np.where(halves.size >= 0.8 * boxes.size.take(parent), boxes.stale.take(parent) + 1, 0)
    return halves._replace(stale=stale), stuck


def _masses(
    tree: Tree, cheap: Cheap, placed: Places, slabs: int, width: int
) -> tuple[_Floats, _Floats]:
    """Return accepted and crossing masses of all strips, shape (rows, slabs, width)."""
    def add_up(values: _Floats, rows: _Ints, key: _Ints) -> _Floats:
        total = np.bincount(key, values.take(rows), minlength=slabs * (width + 1)).astype(np.float64)
        return np.cumsum(total.reshape(slabs, width + 1)[:, :width], axis=1)

    start = placed.slab * (width + 1)
    inside = np.flatnonzero(placed.stop < width)
    rows, key = placed.items.take(inside), (start + placed.stop).take(inside)
    accepted = np.stack([add_up(values, rows, key) for values in tree.mass])
    gone = np.stack([accepted[ID], *(add_up(v, rows, key) for v in (cheap.id, cheap.loss))])
    inside = np.flatnonzero(placed.first < width)
    rows, key = placed.items.take(inside), (start + placed.first).take(inside)
    come = np.stack([add_up(v, rows, key) for v in (tree.mass[ID], cheap.id, cheap.loss)])
    return accepted, come - gone


def _members(placed: Places, new: _Ints) -> tuple[_Ints, _Ints]:
    """Return the items of the chosen strips, and the number of the strip of each."""
    some = np.flatnonzero(placed.first < placed.stop)
    first = placed.first.take(some)
    owner, strip = ranges(first, placed.stop.take(some) - first)
    child = new.ravel().take(placed.slab.take(some).take(owner) * new.shape[1] + strip)
    kept = np.flatnonzero(child >= 0)
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
            return assemble(tree, chart, cheap, edges, accepted, kept)
        staying = np.ones(len(items), bool)
        staying[opened] = False
        staying = np.flatnonzero(staying)
        kept.append((items.take(staying), box.take(staying)))
        owner, items = ranges(tree.first.take(items.take(opened)), tree.children.take(items.take(opened)))
        living = np.flatnonzero(tree.alive.take(items))
        items, box = items.take(living), box.take(opened.take(owner.take(living)))
        placed = place(chart, slabs, items, box)
        inside = np.flatnonzero(placed.stop == 0)
        if len(inside):
            for row, values in zip(accepted, tree.mass, strict=True):
                row += np.bincount(box.take(inside), values.take(items.take(inside)), minlength=count)
        crossing = np.flatnonzero(placed.first < placed.stop)
        items, box = items.take(crossing), box.take(crossing)
