"""Hard inputs: narrow slabs over all values of v, judged by many strips at once.

Where scores say little, boxes survive until so few lines cross them that a box costs more to
keep than to judge. Here one slab of the dual plane is judged at a time, for all v that still
matter: its lines are put into strips, masses are added up along them, and if some strips
survive both halves of the slab are judged next. What survives with few lines is left to the
search of boxes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.bounds import Cheap
from demur._kernels.numpy_engine.boxes import EPS, Boxes, Chart, Edges, Zone, cut_t
from demur._kernels.numpy_engine.splitting import Alive, gather
from demur._kernels.numpy_engine.tree import ID, TAG, Tree

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

# Slabs of a chart to begin with, and the narrowest that are cut in two.
_SLABS = 2
_NARROW = 2.0**-14
# Slabs with no more lines than this, or than that in a strip, are left to the search of boxes.
_FEW = 256
_THIN = 24
_STRIPS = 2048
# Strips to the mean distance that lines drift over a slab.
_FINE = 3.0


class _Slab(NamedTuple):
    """A narrow box over all v that still matter, and the points that may cross it."""

    zone: Zone
    points: _Ints
    accepted: _Floats
    """Masses that all its half-planes accept, besides those of `points`."""


class _Strips(NamedTuple):
    """Strips of equal height along the mean drift; a point crosses those from `first` to `stop`."""

    bottom: float
    step: float
    lean: float
    number: int
    flat: bool
    """Whether they are as low as float64 can tell apart."""
    first: _Ints
    stop: _Ints

    def crossed(self) -> _Ints:
        """Return how many points cross each strip."""
        come, gone = (np.bincount(at, minlength=self.number + 1) for at in (self.first, self.stop))
        return np.cumsum(come - gone)[: self.number]

    def edge(self, strip: int) -> tuple[float, float]:
        """Return both ends of the lower edge of a strip."""
        left = self.bottom + strip * self.step
        return left, left + self.lean


def surviving(tree: Tree, chart: Chart, cheap: Cheap, alive: Alive) -> Iterator[Boxes]:
    """Yield the boxes of a chart that `alive` cannot rule out."""
    slabs = _first_slabs(tree, chart)
    while slabs:
        slab = slabs.pop()
        strips = _cut(chart, slab)
        accepted, crossing = _masses(tree, cheap, slab, strips)
        survives = alive(accepted, crossing)
        if not survives.any():
            continue
        # A set that is accepted all over a strip is met where the next line crosses it.
        crossed = strips.crossed()
        left = np.flatnonzero(survives & (crossed > 0))
        if len(left) == 0:
            continue
        first, stop = int(left[0]), int(left[-1]) + 1
        crosses = np.flatnonzero((strips.stop > first) & (strips.first < stop))
        accepted[TAG, first] += tree.mass[TAG].take(slab.points[strips.stop <= first]).sum()
        zone = slab.zone._replace(low=strips.edge(first), high=strips.edge(stop))
        rest = _Slab(zone, slab.points.take(crosses), accepted[:, first])
        few = len(crosses) <= _FEW or crossed.take(left).max() <= _THIN
        if few or strips.flat or zone.t[1] - zone.t[0] < _NARROW:
            yield _box(tree, chart, cheap, rest)
        else:
            # The half with the smaller t comes first.
            slabs += [rest._replace(zone=half) for half in cut_t(zone, 0.5)[::-1]]


def _first_slabs(tree: Tree, chart: Chart) -> list[_Slab]:
    n = tree.points
    points = np.flatnonzero(tree.alive[:n])
    u, w = chart.u0.take(points), chart.w0.take(points)
    ends = []
    for t in np.linspace(0.0, 1.0, _SLABS + 1).tolist():
        v = u + t * w
        ends.append((t, float(v.min()), float(np.nextafter(v.max(), np.inf))))
    nothing = np.zeros(len(tree.mass))
    slabs = []
    for (t0, low0, high0), (t1, low1, high1) in pairwise(ends):
        zone = Zone(chart.unit, (t0, t1), (low0, low1), (high0, high1))
        slabs.append(_Slab(zone, points, nothing))
    return slabs[::-1]


def _cut(chart: Chart, slab: _Slab) -> _Strips:
    u, w = chart.u0.take(slab.points), chart.w0.take(slab.points)
    _, (t0, t1), (low0, low1), (high0, high1) = slab.zone
    lean = float(w.mean()) * (t1 - t0)
    left, right = u + t0 * w, u + t1 * w
    right -= lean
    bottom, top = min(low0, low1 - lean), max(high0, high1 - lean)
    drift = float(np.abs(right - left).mean())
    size = chart.sizes[0, 0] + t1 * chart.sizes[1, 0] + abs(lean) + max(abs(bottom), abs(top))
    least = 64 * EPS * size + float(np.finfo(np.float64).tiny)
    step = max(drift / _FINE, (top - bottom) / _STRIPS)
    flat, step = step < least, max(step, least)
    number = int(np.ceil((top - bottom) / step))
    # In doubt a point crosses, so that rounding does no harm.
    doubt = 16 * EPS * (size / step + number)
    first = np.floor((np.minimum(left, right) - bottom) / step - doubt)
    stop = np.floor((np.maximum(left, right) - bottom) / step + doubt) + 1
    places = (np.minimum(np.maximum(place, 0), number).astype(np.int64) for place in (first, stop))
    return _Strips(bottom, step, lean, number, flat, *places)


def _masses(tree: Tree, cheap: Cheap, slab: _Slab, strips: _Strips) -> tuple[_Floats, _Floats]:
    """Return accepted masses and crossing (ID, cheap ID, cheap loss) of all strips."""

    def add_up(row: _Floats, place: _Ints) -> _Floats:
        total = np.bincount(place, row.take(slab.points), minlength=strips.number + 1)
        return np.cumsum(total[: strips.number])

    accepted = np.zeros((len(tree.mass), strips.number))
    for k, row in enumerate(tree.mass):
        # Tags are of no use to the judge.
        if k != TAG:
            accepted[k] = add_up(row, strips.stop)
    crossing = np.zeros((3, strips.number))
    crossing[0] = add_up(tree.mass[ID], strips.first) - accepted[ID]
    crossing[1] = add_up(cheap.id, strips.first) - add_up(cheap.id, strips.stop)
    if cheap.prices.dearest > 0:
        crossing[2] = add_up(cheap.loss, strips.first) - add_up(cheap.loss, strips.stop)
    return accepted + slab.accepted[:, None], crossing


def _box(tree: Tree, chart: Chart, cheap: Cheap, slab: _Slab) -> Boxes:
    edges = Edges(*(np.array(ends)[:, None] for ends in slab.zone[1:]))
    box = np.zeros(len(slab.points), np.int64)
    accepted = slab.accepted[:, None].copy()
    return gather(tree, chart, cheap, edges, chart.sizes, accepted, slab.points, box)
