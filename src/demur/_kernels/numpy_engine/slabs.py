"""Crowded inputs, judged slab by slab.

Where many lines cross whatever box may matter, as in clouds of points or noise, one slab of the
dual plane is judged at a time, for all v that still matter: its lines are put into strips, masses
are added up along them, and if some strips survive both halves of the slab are judged next. Nodes
of the tree are opened when lines drift over the slab by less than their size. Strips are of equal
height, or of equal ratio where scores span decades.
What survives with few lines is left to the search of boxes. Points on a curve are not crowded: few
of them are where a box is, which has chords that lean as its own lines do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.bounds import Cheap, Problem, Verdict
from demur._kernels.numpy_engine.boxes import EPS, Boxes, Chart, Zone, cut_t
from demur._kernels.numpy_engine.tree import ID, TAG, Tree, ranges

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

Judged = Callable[[_Floats, _Floats], Verdict]
"""Which strips may matter, from accepted and crossing masses as `Boxes` have them."""

# The narrowest slabs, relative to t, that are cut in two.
_NARROW = 2.0**-20
# Lines that stay together for so many cuts may meet in a point, and are left to the search of boxes
# if they are no more than this.
_STALE = 3
_MEETING = 4096
# They may also do so at t = 0: t below which that is believed.
_CLOSEST = 2.0**-40
# Slabs with no more lines than this, or than that in a strip, are left to the search of boxes.
_FEW = 128
_THIN = 24
_STRIPS = 2048
# Nodes are opened when lines drift over a slab by no more than this part of their size.
_DRIFT = 1.0
# Strips of equal height are of use where lines span at most so many times the middle 80 % of some.
_EVEN = 1000.0
_SMOOTH = 6.0
_SAMPLED = 1000
# Strips to the mean distance that lines drift over a slab.
_FINE = 4.0
# Strips of equal ratio end where numbers are so many times what rounding may put lines off.
_BLUR = 2.0**16


@dataclass(frozen=True, slots=True)
class _Group:
    """Items alike: points of one kind, or nodes."""

    low: tuple[_Floats, _Floats]
    """u and w of lines, ..."""
    high: tuple[_Floats, _Floats] | None
    """... up to these where they are nodes."""
    masses: tuple[float | _Floats, ...]
    """Rows of `_Kinds`; one number where all items have the same."""
    nodes: _Ints | None

    @property
    def size(self) -> int:
        return len(self.low[0])

    @property
    def slope(self) -> float:
        """The sum of all w."""
        total = float(self.low[1].sum())
        return total if self.high is None else (total + float(self.high[1].sum())) / 2

    def take(self, chosen: _Ints) -> _Group:
        if len(chosen) == self.size:
            return self
        high = None if self.high is None else _taken(self.high, chosen)
        masses = (m.take(chosen) if isinstance(m, np.ndarray) else m for m in self.masses)
        nodes = None if self.nodes is None else self.nodes.take(chosen)
        return _Group(_taken(self.low, chosen), high, tuple(masses), nodes)

    def at(self, t: float) -> list[_Floats]:
        """Return v at some t: of lines, or of the lowest and the highest of ranges."""
        lines = [self.low] if self.high is None else [self.low, self.high]
        found = []
        for u, w in lines:
            v = t * w
            v += u
            found.append(v)
        return found

    def largest(self, t: float) -> float:
        """Return the size of the largest terms of v up to some t."""
        lines = [self.low] if self.high is None else [self.low, self.high]
        return max(float(np.abs(u).max() + t * np.abs(w).max()) for u, w in lines)


def _taken(line: tuple[_Floats, _Floats], chosen: _Ints) -> tuple[_Floats, _Floats]:
    return line[0].take(chosen), line[1].take(chosen)


class Kinds(NamedTuple):
    """What slabs are judged by: masses of items, and points of kinds that are alike."""

    rows: tuple[_Floats, ...]
    """Masses of all items: some rows of the tree, cheap ID and cheap loss."""
    counted: tuple[int, ...]
    """Which rows of the tree."""
    begun: tuple[int, ...]
    """Of which rows it also matters what crosses a strip."""
    kind: npt.NDArray[np.int8]
    """Of each point; those of no kind do not matter."""
    alike: tuple[tuple[float | None, ...], ...]
    """The mass that all points of a kind have, by kind and row."""

    @classmethod
    def of(cls, tree: Tree, cheap: Cheap, problem: Problem) -> Kinds:
        """Tell cheap ID points, other ID points and OOD points apart.

        OOD masses that no bound and no cost is about only decide between equals, which is left to
        the search of boxes.
        """
        n, void = tree.points, problem.ignores_ood(tree.mass[:, -1])
        left_out = {TAG, *(range(problem.sets.start, problem.sets.stop) if void else ())}
        counted = tuple(k for k in range(len(tree.mass)) if k not in left_out)
        rows = (*(tree.mass[k] for k in counted), cheap.id, cheap.loss)
        begun = *(counted.index(k) for k in (ID, *cheap.counted)), len(rows) - 2, len(rows) - 1
        kind = np.where(tree.mass[ID, :n] > 0, 1, 3 if void else 2).astype(np.int8)
        kind[cheap.id[:n] > 0] = 0
        kind[~tree.alive[:n]] = 3
        alike = []
        for number in range(3):
            here = np.flatnonzero(kind == number)
            alike.append(tuple(_same(row, here) for row in rows))
        return cls(rows, counted, begun, kind, tuple(alike))

    def groups(self, tree: Tree, chart: Chart, items: _Ints) -> list[_Group]:
        """Return items in groups, nodes first."""
        nodes = items.take(np.flatnonzero(items >= tree.points))
        groups = []
        if len(nodes):
            masses = tuple(row.take(nodes) for row in self.rows)
            low, high = (_taken(line, nodes) for line in (chart.low, chart.high))
            groups.append(_Group(low, high, masses, nodes))
        items = items.take(np.flatnonzero(items < tree.points))
        kind = self.kind.take(items)
        for number, alike in enumerate(self.alike):
            some = items.take(np.flatnonzero(kind == number))
            if len(some):
                kept = (
                    row.take(some) if same is None else same
                    for row, same in zip(self.rows, alike, strict=True)
                )
                groups.append(_Group(_taken(chart.low, some), None, tuple(kept), None))
        return groups


def _same(row: _Floats, chosen: _Ints) -> float | None:
    """Return what all have, if they do."""
    if len(chosen) == 0:
        return 0.0
    values = row.take(chosen)
    return float(values[0]) if (values == values[0]).all() else None


class _Slab(NamedTuple):
    """A narrow box over all v that still matter, and what may cross it."""

    zone: Zone
    groups: list[_Group]
    below: _Floats
    """Masses of what is below it, by rows of `Kinds`."""
    value: float
    """What its half-planes cannot fall below."""
    crowd: float = np.inf
    """How many items crossed a strip before the last cut, at most."""
    stale: int = 0
    """How many cuts in a row did not change that much."""


class _Strips(NamedTuple):
    """Strips of a slab."""

    number: int
    edge: Callable[[int], tuple[float, float]]
    """Both ends of the lower edge of a strip."""
    flat: bool
    """Whether they are as low as float64 can tell apart."""
    places: list[tuple[_Ints, _Ints]]
    """For each group, the strips that its items cross: from the first up to the second."""
    coarse: bool
    """Whether nodes are higher than lines drift."""

    def crossed(self) -> _Ints:
        """Return how many items cross each strip."""
        total = np.zeros(self.number + 1, np.int64)
        for first, stop in self.places:
            total += np.bincount(first, minlength=self.number + 1)
            total -= np.bincount(stop, minlength=self.number + 1)
        return np.cumsum(total)[: self.number]


Spread = Literal["even", "in octaves", "wild"]
"""Whether strips of equal height, or of equal ratio, or neither, part the lines of a chart."""


def spread_of(tree: Tree, chart: Chart) -> Spread:
    """Tell how the lines of a chart lie at both of its ends."""
    u, w = chart.u0[: tree.points], chart.w0[: tree.points]
    with np.errstate(over="ignore"):
        ends = u, u + w
    if all(_spans(v) <= _EVEN for v in ends):
        return "even"
    logs = [np.log2(np.abs(v[v != 0])) for v in ends]
    return "in octaves" if all(_spans(v) <= _SMOOTH for v in logs) else "wild"


def _spans(v: _Floats) -> float:
    """Return how many times the middle 80 % all values span."""
    if len(v) == 0:
        return np.inf
    low, high = np.quantile(v[:: max(1, len(v) // _SAMPLED)], (0.1, 0.9))
    return float(np.ptp(v) / (high - low)) if high > low else np.inf


class SlabSearch:
    """Slabs of a chart, judged one after the other."""

    def __init__(
        self, tree: Tree, chart: Chart, kinds: Kinds, judged: Judged, box: Boxes, *, even: bool
    ) -> None:
        self._tree = tree
        self._chart = chart
        self._kinds = kinds
        self._judged = judged
        self._even = even
        ends = (tuple(edge[:, 0].tolist()) for edge in box.edges)
        below = np.zeros(len(kinds.rows))
        below[: len(kinds.counted)] = box.accepted[list(kinds.counted), 0]
        groups = kinds.groups(tree, chart, box.items)
        value = float(judged(box.accepted, box.crossing).value[0])
        slab = _Slab(Zone(chart.unit, *ends), groups, below, value)
        self._slabs = [slab] if groups else []

    def __bool__(self) -> bool:
        """Return whether any are left."""
        return bool(self._slabs)

    def least(self) -> float:
        """Return what the slabs that are left cannot fall below."""
        return min((slab.value for slab in self._slabs), default=np.inf)

    def step(self) -> Zone | None:
        """Judge a slab; return what is to be searched by boxes, if it is small enough."""
        slab = self._slabs.pop()
        strips = _cut(self._chart, slab) if self._even else _cut_unevenly(slab)
        below, accepted, crossing = self._masses(slab, strips)
        verdict = self._judged(accepted, crossing)
        if not verdict.alive.any():
            return None
        # A set that is accepted all over a strip is met where the next line crosses it.
        crossed = strips.crossed()
        left = np.flatnonzero(verdict.alive & (crossed > 0))
        if len(left) == 0:
            return None
        first, stop = int(left[0]), int(left[-1]) + 1
        zone = slab.zone._replace(low=strips.edge(first), high=strips.edge(stop))
        value = float(verdict.value.take(left).min())
        groups = []
        for group, (begins, ends) in zip(slab.groups, strips.places, strict=True):
            some = np.flatnonzero((ends > first) & (begins < stop))
            if len(some):
                groups.append(group.take(some))
        crowd = float(crossed.take(left).max())
        stale = slab.stale + 1 if crowd > 0.8 * slab.crowd else 0
        rest = _Slab(zone, groups, below[:, first], value, crowd, stale)
        number = sum(group.size for group in groups)
        few = number <= _FEW or crowd <= _THIN
        nodes = groups[0].nodes
        if nodes is not None and (few or strips.coarse):
            rest = rest._replace(groups=[*self._opened(nodes), *groups[1:]], crowd=np.inf)
            if not rest.groups:
                return None
        elif nodes is None and (few or (stale >= _STALE and number <= _MEETING)):
            return zone
        # The half with the smaller t comes first.
        halves = cut_t(zone, 0.5 if self._even else 0.0)[::-1]
        lasting = stale >= _STALE and zone.t[1] < _CLOSEST
        if strips.flat or lasting or zone.t[1] - zone.t[0] < _NARROW * zone.t[1] or not halves:
            return zone
        self._slabs += [rest._replace(zone=half) for half in halves]
        return None

    def _opened(self, nodes: _Ints) -> list[_Group]:
        tree = self._tree
        _, items = ranges(tree.first.take(nodes), tree.children.take(nodes))
        items = items.take(np.flatnonzero(tree.alive.take(items)))
        return self._kinds.groups(tree, self._chart, items)

    def _masses(self, slab: _Slab, strips: _Strips) -> tuple[_Floats, _Floats, _Floats]:
        """Return masses below all strips by rows of `Kinds`, and as `Boxes` have them."""
        kinds, number = self._kinds, strips.number
        done = np.zeros((len(kinds.rows), number + 1))
        begun = np.zeros((len(kinds.rows), number + 1))
        every = range(len(kinds.rows))
        for group, (first, stop) in zip(slab.groups, strips.places, strict=True):
            _add_up(done, group, stop, every)
            _add_up(begun, group, first, kinds.begun)
        done = np.cumsum(done[:, :number], axis=1)
        begun = np.cumsum(begun[list(kinds.begun), :number], axis=1)
        crosses = begun - done[list(kinds.begun)]
        below = done + slab.below[:, None]
        accepted = np.zeros((len(self._tree.mass), number))
        accepted[list(kinds.counted)] = below[: len(kinds.counted)]
        crossing = np.concatenate([crosses[:1], crosses[-2:], crosses[1:-2]])
        return below, accepted, crossing


def _add_up(total: _Floats, group: _Group, place: _Ints, rows: Iterable[int]) -> None:
    """Add the masses of a group at their places."""
    counts: _Ints | None = None
    for k in rows:
        mass = group.masses[k]
        if isinstance(mass, np.ndarray):
            total[k] += np.bincount(place, mass, minlength=total.shape[1])
        elif mass:
            if counts is None:
                counts = np.bincount(place, minlength=total.shape[1])
            total[k] += mass * counts


def _cut(chart: Chart, slab: _Slab) -> _Strips:
    """Cut into strips of equal height along the mean drift."""
    (t0, t1), groups = slab.zone.t, slab.groups
    number = sum(group.size for group in groups)
    mean = sum(group.slope for group in groups) / number
    off = sum(float(np.abs(group.low[1] - mean).sum()) for group in groups)
    size = chart.sizes[0, 0] + t1 * chart.sizes[1, 0]
    return _even_strips(slab, mean, off / number * (t1 - t0), size)


def _even_strips(slab: _Slab, slope: float, drift: float, size: float) -> _Strips:
    _, (t0, t1), (low0, low1), (high0, high1) = slab.zone
    lean = slope * (t1 - t0)
    bottom, top = min(low0, low1 - lean), max(high0, high1 - lean)
    size += abs(lean) + max(abs(bottom), abs(top))
    least = 64 * EPS * size + float(np.finfo(np.float64).tiny)
    step = max(drift / _FINE, (top - bottom) / _STRIPS)
    flat, step = step < least, max(step, least)
    count = int(np.ceil((top - bottom) / step))
    # In doubt a point crosses, so that rounding does no harm.
    doubt = 16 * EPS * (size / step + count)
    places = []
    for group in slab.groups:
        left, right = (group.at(t) for t in (t0, t1))
        for v in right:
            v -= lean
        ends = np.minimum(left[0], right[0]), np.maximum(left[-1], right[-1])
        for v in ends:
            v -= bottom
            v /= step
        places.append(_places(*ends, doubt, count))

    def edge(strip: int) -> tuple[float, float]:
        left = bottom + strip * step
        return left, left + lean

    return _Strips(count, edge, flat, places, drift <= _DRIFT * _extent(slab))


def _extent(slab: _Slab) -> float:
    """Return the mean height of nodes in the middle of a slab."""
    group = slab.groups[0]
    if group.high is None:
        return 0.0
    low, high = group.at(sum(slab.zone.t) / 2)
    return float((high - low).mean())


def _places(low: _Floats, high: _Floats, doubt: float, number: int) -> tuple[_Ints, _Ints]:
    """Return the strips that are crossed, given places in units of strips."""
    low -= doubt
    high += doubt + 1
    for ends in (low, high):
        np.clip(ends, 0, number, out=ends)
    # What is not negative is rounded downwards.
    return low.astype(np.int64), high.astype(np.int64)


def _cut_unevenly(slab: _Slab) -> _Strips:
    """Cut lines that span decades into strips of equal ratio, but where they span few octaves."""
    _, (t0, t1), low, high = slab.zone
    size = max(group.largest(t1) for group in slab.groups)
    octaves = 16 * min(map(abs, (*low, *high)))
    if max(high[0] - low[0], high[1] - low[1]) <= octaves:
        w = np.concatenate([g.low[1][:: max(1, g.size // _SAMPLED)] for g in slab.groups])
        slope = float(np.median(w))
        drift = 1.2 * float(np.median(np.abs(w - slope))) * (t1 - t0)
        return _even_strips(slab, slope, drift, size)
    return _log_strips(slab, size + max(map(abs, (*low, *high))))


class _LogScale(NamedTuple):
    """A scale that is linear up to about `least` and logarithmic beyond, as bits of numbers are."""

    least: float

    def __call__(self, v: _Floats) -> _Floats:
        bits = (np.abs(v) + self.least).view(np.int64) - self._zero
        return np.copysign(bits.astype(np.float64), v)

    @property
    def _zero(self) -> int:
        return int(np.float64(self.least).view(np.int64))

    def inverse(self, place: float) -> float:
        """Return what has a place."""
        v = float(np.int64(self._zero + int(abs(place))).view(np.float64)) - self.least
        return float(np.copysign(v, place))


def _log_strips(slab: _Slab, size: float) -> _Strips:
    _, t, low, high = slab.zone
    error = 4 * EPS * size
    scale = _LogScale(max(error * _BLUR, float(np.finfo(np.float64).tiny) * _BLUR))
    ends = [scale(np.array(pair)) for pair in zip(low, high, strict=True)]
    start = [float(pair[0]) for pair in ends]
    span = [max(float(pair[1] - pair[0]), 1.0) for pair in ends]
    found = []
    for group in slab.groups:
        sides = []
        for k in (0, 1):
            sides.append([np.clip((scale(v) - start[k]) / span[k], -1, 2) for v in group.at(t[k])])
        found.append(sides)
    number = sum(group.size for group in slab.groups)
    drift = sum(float(np.abs(left[0] - right[0]).sum()) for left, right in found) / number
    # Rounding moves a line by so many bits where they are densest.
    blurred = (2.0**53 / _BLUR + 2.0**12) / min(span)
    most = min(_STRIPS, 0.25 / blurred)
    count = int(np.clip(_FINE / max(drift, 1e-9), 1, max(most, 1)))
    doubt = blurred * count + 1e-9
    places = [
        _places(
            np.minimum(left[0], right[0]) * count,
            np.maximum(left[-1], right[-1]) * count,
            doubt,
            count,
        )
        for left, right in found
    ]
    nodes = found[0][0]
    coarse = drift <= _DRIFT * float((nodes[-1] - nodes[0]).mean())

    def edge(strip: int) -> tuple[float, float]:
        if strip <= 0:
            return low
        if strip >= count:
            return high
        left, right = (
            scale.inverse(a + strip / count * b) for a, b in zip(start, span, strict=True)
        )
        return left, right

    return _Strips(count, edge, most < 1, places, coarse)
