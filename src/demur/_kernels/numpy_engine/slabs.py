"""Crowded inputs, judged slab by slab.

Where many lines cross whatever box may matter, as in clouds of points or noise, one slab of the
dual plane is judged at a time, for all v that still matter: its lines are put into strips, masses
are added up along them, and if some strips survive both halves of the slab are judged next. Nodes
of the tree are opened when lines drift over the slab by less than their size. Strips are of equal
height. Where scores span decades they hold equally many lines instead: a chord from the middle of
the lines at one end of a slab to the middle of those at the other parts most of them, on whatever
scale they lie and meet. There slabs that no nodes cross are judged many at a time, see
`ranked_slabs`.
What survives with few lines is left to the search of boxes. Points on a curve are not crowded: few
of them are where a box is, which has chords that lean as its own lines do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.bounds import Cheap, Problem, Verdict
from demur._kernels.numpy_engine.boxes import EPS, LINE_EPS, Boxes, Chart, Zone, cut_t
from demur._kernels.numpy_engine.tree import FAN, ID, TAG, Tree, ranges

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

Judged = Callable[[_Floats, _Floats], Verdict]
"""Which strips may matter, from accepted and crossing masses as `Boxes` have them."""

# The narrowest slabs, relative to t, that are cut in two.
NARROW = 2.0**-20
# Lines that stay together for so many cuts may meet in a point, and are left to the search of boxes
# if they are no more than this.
STALE = 3
MEETING = 4096
# They may also do so at t = 0: t below which that is believed.
CLOSEST = 2.0**-40
# Slabs with no more lines than this, or than that in a strip, are left to the search of boxes.
_FEW = 128
_THIN = 24
STRIPS = 2048
# Nodes are opened when lines drift over a slab by no more than this part of their size.
_DRIFT = 1.0
# Strips of equal height are of use where lines span at most so many times the middle 80 % of some.
_EVEN = 1000.0
_SAMPLED = 1000
# Lines drawn to choose chords where nodes are not opened.
_DRAWN = 500
_NONE = np.empty(0)
_TINY = float(np.finfo(np.float64).tiny)
# Strips to the mean distance that lines drift over a slab.
FINE = 4.0
# Slabs no higher than so many times what rounding may put lines off are not cut.
FLAT = 8.0


@dataclass(frozen=True, slots=True)
class _Group:
    """Items alike: points of one kind, or nodes."""

    low: tuple[_Floats, _Floats]
    """u and w of lines, ..."""
    high: tuple[_Floats, _Floats] | None
    """... up to these where they are nodes."""
    masses: tuple[float | _Floats, ...]
    """Rows of `_Kinds`; one number where all items have the same."""
    items: _Ints

    @property
    def nodes(self) -> _Ints | None:
        """The items, where they are nodes."""
        return None if self.high is None else self.items

    @property
    def size(self) -> int:
        return len(self.low[0])

    @property
    def top(self) -> tuple[_Floats, _Floats]:
        """The highest lines of all."""
        return self.low if self.high is None else self.high

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
        return _Group(_taken(self.low, chosen), high, tuple(masses), self.items.take(chosen))

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
                groups.append(_Group(_taken(chart.low, some), None, tuple(kept), some))
        return groups


def _same(row: _Floats, chosen: _Ints) -> float | None:
    """Return what all have, if they do."""
    if len(chosen) == 0:
        return 0.0
    values = row.take(chosen)
    return float(values[0]) if (values == values[0]).all() else None


class Slab(NamedTuple):
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


def is_even(tree: Tree, chart: Chart) -> bool:
    """Return whether no line of a chart is decades beyond most others, at both of its ends."""
    u, w = chart.u0[: tree.points], chart.w0[: tree.points]
    with np.errstate(over="ignore"):
        return all(_spans(v) <= _EVEN for v in (u, u + w))


def _spans(v: _Floats) -> float:
    """Return how many times the middle 80 % all values span."""
    if len(v) == 0:
        return np.inf
    low, high = np.quantile(v[:: max(1, len(v) // _SAMPLED)], (0.1, 0.9))
    return float(np.ptp(v) / (high - low)) if high > low else np.inf


class ManySlabs(Protocol):
    """What judges slabs that no nodes cross, many at a time; see `ranked_slabs`."""

    @property
    def full(self) -> bool:
        """Whether enough wait to be judged together."""

    def __len__(self) -> int:
        """Return how many slabs wait."""

    def least(self) -> float:
        """Return what the slabs that wait cannot fall below."""

    def add(self, slab: Slab) -> None:
        """Take in a slab that no nodes cross."""

    def step(self, most: float) -> tuple[int, list[Zone]]:
        """Judge up to so many slabs: return how many, and what is to be searched by boxes."""


class SlabSearch:
    """Slabs of a chart, judged one after the other, or many at a time once no nodes cross them.

    The latter where scores span decades: there lines are put in order, which takes longest.
    """

    def __init__(
        self,
        tree: Tree,
        chart: Chart,
        kinds: Kinds,
        judged: Judged,
        box: Boxes,
        *,
        even: bool,
        ranked: ManySlabs,
    ) -> None:
        self._tree = tree
        self._chart = chart
        self._kinds = kinds
        self._judged = judged
        self._even = even
        self._ranked = ranked
        ends = (tuple(edge[:, 0].tolist()) for edge in box.edges)
        below = np.zeros(len(kinds.rows))
        below[: len(kinds.counted)] = box.accepted[list(kinds.counted), 0]
        groups = kinds.groups(tree, chart, box.items)
        value = float(judged(box.accepted, box.crossing).value[0])
        slab = Slab(Zone(chart.unit, *ends), groups, below, value)
        self._slabs = [slab] if groups else []

    def __bool__(self) -> bool:
        """Return whether any are left."""
        return bool(self._slabs or self._ranked)

    def least(self) -> float:
        """Return what the slabs that are left cannot fall below."""
        least = min((slab.value for slab in self._slabs), default=np.inf)
        return min(least, self._ranked.least())

    def step(self, most: float) -> tuple[int, list[Zone]]:
        """Judge some slabs, at most so many.

        Return how many, and what is to be searched by boxes because it is small enough.
        """
        if not self._slabs or self._ranked.full:
            return self._ranked.step(most)
        slab = self._slabs.pop()
        if not self._even and slab.groups[0].nodes is None:
            self._ranked.add(slab)
            return 0, []
        zone = self._judge(slab)
        return 1, [] if zone is None else [zone]

    def _judge(self, slab: Slab) -> Zone | None:
        strips = (
            _cut(self._chart, slab) if self._even else _cut_by_rank(self._tree, self._chart, slab)
        )
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
        rest = Slab(zone, groups, below[:, first], value, crowd, stale)
        number = sum(group.size for group in groups)
        few = number <= _FEW or crowd <= _THIN
        nodes = groups[0].nodes
        if nodes is not None and (few or strips.coarse):
            rest = rest._replace(groups=[*self._opened(nodes), *groups[1:]], crowd=np.inf)
            if not rest.groups:
                return None
        elif nodes is None and (few or (stale >= STALE and number <= MEETING)):
            return zone
        # The half with the smaller t comes first.
        halves = cut_t(zone, 0.5 if self._even else 0.0)[::-1]
        lasting = stale >= STALE and zone.t[1] < CLOSEST
        if strips.flat or lasting or zone.t[1] - zone.t[0] < NARROW * zone.t[1] or not halves:
            return zone
        self._slabs += [rest._replace(zone=half) for half in halves]
        return None

    def _opened(self, nodes: _Ints) -> list[_Group]:
        tree = self._tree
        _, items = ranges(tree.first.take(nodes), tree.children.take(nodes))
        items = items.take(np.flatnonzero(tree.alive.take(items)))
        return self._kinds.groups(tree, self._chart, items)

    def _masses(self, slab: Slab, strips: _Strips) -> tuple[_Floats, _Floats, _Floats]:
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


def _cut(chart: Chart, slab: Slab) -> _Strips:
    """Cut into strips of equal height along the mean drift."""
    (t0, t1), groups = slab.zone.t, slab.groups
    number = sum(group.size for group in groups)
    mean = sum(group.slope for group in groups) / number
    off = sum(float(np.abs(group.low[1] - mean).sum()) for group in groups)
    size = chart.sizes[0, 0] + t1 * chart.sizes[1, 0]
    return _even_strips(slab, mean, off / number * (t1 - t0), size)


def _even_strips(slab: Slab, slope: float, drift: float, size: float) -> _Strips:
    _, (t0, t1), (low0, low1), (high0, high1) = slab.zone
    lean = slope * (t1 - t0)
    bottom, top = min(low0, low1 - lean), max(high0, high1 - lean)
    size += abs(lean) + max(abs(bottom), abs(top))
    least = 64 * EPS * size + float(np.finfo(np.float64).tiny)
    step = max(drift / FINE, (top - bottom) / STRIPS)
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


def _extent(slab: Slab) -> float:
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


class Level(NamedTuple):
    """Lines at one end of slabs, with what rounding may put them off."""

    v: _Floats
    doubt: _Floats

    @property
    def least(self) -> _Floats:
        """What the values are no less than."""
        return self.v - self.doubt

    @property
    def most(self) -> _Floats:
        """What the values are no more than."""
        return self.v + self.doubt


def level_of(u: _Floats, w: _Floats, t: float | _Floats) -> Level:
    """Return lines ``u + t*w``; at t = 0 nothing is rounded."""
    drift = t * w
    v = u + drift
    doubt = np.abs(u)
    doubt += np.abs(drift, out=drift)
    doubt *= LINE_EPS
    doubt += _TINY
    doubt *= t != 0
    return Level(v, doubt)


class _End(NamedTuple):
    """Lines at one end of a slab, in order of their values, which lie between these."""

    order: _Ints
    least: _Floats
    most: _Floats

    @classmethod
    def of(cls, line: tuple[_Floats, _Floats], t: float) -> _End:
        """Return lines ``u + t*w`` with what rounding may put them off."""
        level = level_of(*line, t)
        order = level.v.argsort()
        return cls(order, level.least.take(order), level.most.take(order))


_Ends = Sequence[_End]
_Chords = tuple[_Floats, _Floats]


def _cut_by_rank(tree: Tree, chart: Chart, slab: Slab) -> _Strips:
    """Cut from lines of some rank at one end to those of the same rank at the other.

    However far lines lie apart, few cross such chords. Some items are nodes.
    """
    zone, groups = slab.zone, slab.groups
    u, w = (np.concatenate([_NONE, *(group.low[k] for group in groups[1:])]) for k in (0, 1))
    lines = _drawn(tree, chart, groups[0], (u, w))
    drawn = [_End.of(lines, t) for t in zone.t]
    chords, drift = _rank_chords(zone, drawn)
    places: list[tuple[_Ints, _Ints]] = []
    extent = 0.0
    for group in groups:
        low = [level_of(*group.low, t) for t in zone.t]
        high = low if group.high is None else [level_of(*group.high, t) for t in zone.t]
        begins = [
            c[1:].searchsorted(v.least, side="right") for c, v in zip(chords, low, strict=True)
        ]
        ends = [c[:-1].searchsorted(v.most, side="left") for c, v in zip(chords, high, strict=True)]
        places.append((np.minimum(*begins), np.maximum(*ends)))
        if group is groups[0]:
            extent = float((ends[0] - begins[0]).mean())
    doubt = np.partition(drawn[1].most - drawn[1].least, len(drawn[1].order) // 2)
    typical = float(doubt[len(doubt) // 2])
    flat = max(zone.high[0] - zone.low[0], zone.high[1] - zone.low[1]) <= FLAT * typical

    def edge(strip: int) -> tuple[float, float]:
        return float(chords[0][strip]), float(chords[1][strip])

    number = len(chords[0]) - 1
    return _Strips(number, edge, flat, places, drift * number <= _DRIFT * extent)


def _rank_chords(zone: Zone, ends: _Ends) -> tuple[_Chords, float]:
    """Return chords by their values at both ends, and how far lines drift in ranks.

    That is a mean, as a part of all ranks.
    """
    number = len(ends[0].order)
    places = np.arange(number)
    rank = np.empty(number, np.int64)
    rank[ends[1].order] = places
    edges = zip(ends, zone.low, zone.high, strict=True)
    left, right = (end.least.searchsorted([low, high]) for end, low, high in edges)
    moved = rank.take(ends[0].order).clip(*right) - places.clip(*left)
    drift = float(np.abs(moved).sum()) / number**2
    count = int(min(max(FINE / max(drift, 1e-9), 1), STRIPS))
    # Halfway between lines of neighbouring ranks.
    at = (np.arange(1, count) * (number / count) - 0.5).clip(0, number - 1)
    before = at.astype(np.int64)
    part, after = at - before, np.minimum(before + 1, number - 1)
    chords = np.empty((2, count + 1))
    for chord, end, low, high in zip(chords, ends, zone.low, zone.high, strict=True):
        v = end.least
        chord[1:-1] = (1 - part) * v.take(before) + part * v.take(after)
        chord[0], chord[-1] = low, high
        np.maximum.accumulate(chord.clip(low, high, out=chord), out=chord)
    # Strips have some height at one of their ends.
    apart = np.append((chords[:, 1:] > chords[:, :-1]).any(axis=0), True)
    kept = chords.compress(apart, axis=1)
    return (kept[0], kept[1]), drift


def _drawn(
    tree: Tree, chart: Chart, group: _Group, lines: tuple[_Floats, _Floats]
) -> tuple[_Floats, _Floats]:
    """Return u and w of some of all lines below nodes and of others, one as often as any other.

    The middle of a node may be decades from most of its points.
    """
    nodes = group.nodes
    assert nodes is not None
    level = np.searchsorted(tree.level, nodes, side="right") - 1
    first = (nodes - tree.level.take(level)) * FAN**level
    count = np.minimum(FAN**level, tree.points - first)
    last = np.cumsum(count)
    stride = -(-(int(last[-1]) + len(lines[0])) // _DRAWN)
    at = np.arange(0, int(last[-1]), stride)
    node = np.searchsorted(last, at, side="right")
    points = at + (first + count - last).take(node)
    below = chart.u0.take(points), chart.w0.take(points)
    u, w = (np.append(a, b[::stride]) for a, b in zip(below, lines, strict=True))
    return u, w
