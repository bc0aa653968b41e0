"""Crowded inputs, judged slab by slab.

Where many lines cross whatever box may matter, as in clouds of points or noise, one slab of the
dual plane is judged at a time, for all v that still matter: its lines are put into strips, masses
are added up along them, and if some strips survive both halves of the slab are judged next. Nodes
of the tree are opened when lines drift over the slab by less than their size. Strips are of equal
height. Where scores span decades they hold equally many lines instead: a chord from the middle of
the lines at one end of a slab to the middle of those at the other parts most of them, on whatever
scale they lie and meet. There slabs that no nodes cross are judged many at a time, see
`RankedSlabs`.
What survives with few lines is left to the search of boxes. Points on a curve are not crowded: few
of them are where a box is, which has chords that lean as its own lines do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

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
# The same where many slabs are judged at a time, which costs less.
_FEW_RANKED = 32
_THIN_RANKED = 8
# Lines of the slabs that are judged at a time; their arrays stay in the cache.
_TOGETHER = 16_000
# One to so many lines tells how far lines drift, and one to so many cells on a line is looked at in
# passing; the best is looked at closely with so many lines on either side.
_SPARSELY = 4
_PROBED = 3
_BESIDE = 5
# Ranks of the lines that tell how far rounding puts those of a slab off.
_QUANTILES = (np.arange(9) + 0.5) / 9
_STRIPS = 2048
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
_FINE = 4.0
# Slabs no higher than so many times what rounding may put lines off are not cut.
_FLAT = 8.0


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
        probe: Probe,
        box: Boxes,
        *,
        even: bool,
    ) -> None:
        self._tree = tree
        self._chart = chart
        self._kinds = kinds
        self._judged = judged
        self._even = even
        self._ranked = RankedSlabs(tree, chart, kinds, judged, probe)
        ends = (tuple(edge[:, 0].tolist()) for edge in box.edges)
        below = np.zeros(len(kinds.rows))
        below[: len(kinds.counted)] = box.accepted[list(kinds.counted), 0]
        groups = kinds.groups(tree, chart, box.items)
        value = float(judged(box.accepted, box.crossing).value[0])
        slab = _Slab(Zone(chart.unit, *ends), groups, below, value)
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
        if not self._slabs or self._ranked.lines >= _TOGETHER:
            return self._ranked.step(most)
        slab = self._slabs.pop()
        if not self._even and slab.groups[0].nodes is None:
            self._ranked.add(slab)
            return 0, []
        zone = self._judge(slab)
        return 1, [] if zone is None else [zone]

    def _judge(self, slab: _Slab) -> Zone | None:
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


class _Level(NamedTuple):
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


def _level(u: _Floats, w: _Floats, t: float | _Floats) -> _Level:
    """Return lines ``u + t*w``; at t = 0 nothing is rounded."""
    drift = t * w
    v = u + drift
    doubt = np.abs(u)
    doubt += np.abs(drift, out=drift)
    doubt *= LINE_EPS
    doubt += _TINY
    doubt *= t != 0
    return _Level(v, doubt)


class _End(NamedTuple):
    """Lines at one end of a slab, in order of their values, which lie between these."""

    order: _Ints
    least: _Floats
    most: _Floats

    @classmethod
    def of(cls, line: tuple[_Floats, _Floats], t: float) -> _End:
        """Return lines ``u + t*w`` with what rounding may put them off."""
        level = _level(*line, t)
        order = level.v.argsort()
        return cls(order, level.least.take(order), level.most.take(order))


_Ends = Sequence[_End]
_Chords = tuple[_Floats, _Floats]


def _cut_by_rank(tree: Tree, chart: Chart, slab: _Slab) -> _Strips:
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
        low = [_level(*group.low, t) for t in zone.t]
        high = low if group.high is None else [_level(*group.high, t) for t in zone.t]
        begins = [
            c[1:].searchsorted(v.least, side="right") for c, v in zip(chords, low, strict=True)
        ]
        ends = [c[:-1].searchsorted(v.most, side="left") for c, v in zip(chords, high, strict=True)]
        places.append((np.minimum(*begins), np.maximum(*ends)))
        if group is groups[0]:
            extent = float((ends[0] - begins[0]).mean())
    doubt = np.partition(drawn[1].most - drawn[1].least, len(drawn[1].order) // 2)
    typical = float(doubt[len(doubt) // 2])
    flat = max(zone.high[0] - zone.low[0], zone.high[1] - zone.low[1]) <= _FLAT * typical

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
    count = int(min(max(_FINE / max(drift, 1e-9), 1), _STRIPS))
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


class _Block(NamedTuple):
    """Slabs of a chart that no nodes cross, with their lines one slab after the other."""

    t: _Floats
    low: _Floats
    high: _Floats
    """Shape (2, slabs), like t: left end and right end."""
    below: _Floats
    """Shape (rows of `Kinds`, slabs): masses of what is below."""
    value: _Floats
    crowd: _Floats
    stale: _Ints
    start: _Ints
    """Shape (slabs + 1,): where the lines of a slab begin."""
    points: _Ints
    """In order of their values at the left end."""
    right: _Ints
    """Places in `points`, in order of their values at the right end."""

    @property
    def size(self) -> _Ints:
        """The number of lines of each slab."""
        return self.start[1:] - self.start[:-1]

    def part(self, chosen: slice) -> _Block:
        """Return slabs that follow each other."""
        start = self.start[chosen.start : chosen.stop + 1]
        lines = slice(int(start[0]), int(start[-1]))
        fields: list[Any] = [field[..., chosen] for field in self[:-3]]
        lists = self.points[lines], self.right[lines] - start[0]
        return _Block(*[*fields, start - start[0], *lists])

    def chosen(self, slabs: _Bools) -> _Block:
        """Return some slabs."""
        if slabs.all():
            return self
        fields: list[Any] = [field[..., slabs] for field in self[:-3]]
        kept = np.repeat(slabs, self.size)
        points, right = self.points.compress(kept), _kept_order(self.right, kept)
        return _Block(*[*fields, _starts(self.size[slabs]), points, right])

    @classmethod
    def join(cls, parts: Sequence[_Block]) -> _Block:
        """Return the slabs of all blocks."""
        if len(parts) == 1:
            return parts[0]
        fields: list[Any] = [
            np.concatenate(column, axis=-1)
            for column in zip(*(part[:-3] for part in parts), strict=True)
        ]
        size = np.concatenate([part.size for part in parts])
        points = np.concatenate([part.points for part in parts])
        begin = np.cumsum([0, *(len(part.points) for part in parts[:-1])])
        right = np.concatenate([p.right + at for p, at in zip(parts, begin, strict=True)])
        return cls(*[*fields, _starts(size), points, right])


def _middle(t: _Floats) -> _Floats:
    """Return where to cut slabs, on a logarithmic scale where t spans octaves."""
    t0, t1 = t
    wide = np.where(t0 > 0, np.sqrt(t0) * np.sqrt(t1), t1 * 2.0**-10)
    return np.asarray(np.where(t1 > 4 * t0, wide, (t0 + t1) / 2))


class _CutBlock(NamedTuple):
    """The slabs of a block, each cut into as many strips along chords."""

    slab: _Ints
    """Of each line."""
    chords: _Floats
    """Shape (2, slabs, strips + 1)."""
    first: _Ints
    stop: _Ints
    """For each line, the strips of its slab that it crosses: from the first up to the second."""
    doubt: _Floats
    """Of each line at the right end."""


def _kept_order(order: _Ints, kept: _Bools) -> _Ints:
    """Return the order of what is kept."""
    place = np.cumsum(kept) - 1
    return place.take(order.compress(kept.take(order)))


def _starts(size: _Ints) -> _Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])


def _cut_block(chart: Chart, block: _Block) -> _CutBlock:
    """Cut slabs from lines of some rank at one end to those of the same rank at the other.

    Ranks are counted between the lower and the upper edge of a slab. However far lines lie apart,
    few cross such chords.
    """
    slab = np.repeat(np.arange(len(block.value)), block.size)
    u, w = chart.u0.take(block.points), chart.w0.take(block.points)
    levels = [_level(u, w, t.take(slab)) for t in block.t]
    rank = np.empty_like(block.right)
    rank[block.right] = np.arange(len(slab))
    values = levels[0].v, levels[1].v.take(block.right)
    edges = zip(values, block.low, block.high, strict=True)
    inside = [_inside(*ends, block.start) for ends in edges]
    count = _strips_of(inside, slab, rank)
    chords = np.empty((2, len(block.value), count + 1))
    places = []
    for k, (chord, level, v) in enumerate(zip(chords, levels, values, strict=True)):
        chord[:, 0], chord[:, -1] = block.low[k], block.high[k]
        at = _lines_between(inside[k], block.start, count)
        after = np.minimum(at, len(v) - 1)
        between = 0.5 * v.take(at - 1) + 0.5 * v.take(after)
        np.clip(between, chord[:, :1], chord[:, -1:], out=chord[:, 1:-1])
        guess = np.cumsum(np.bincount(at.ravel(), minlength=len(v) + 1)[: len(v)])
        guess -= slab * (count - 1)
        places.append(_strips_at(level, chord, slab, guess if k == 0 else guess.take(rank)))
    (first, stop), (first_, stop_) = places
    first, stop = np.minimum(first, first_), np.maximum(stop, stop_)
    return _CutBlock(slab, chords, np.minimum(first, stop), stop, levels[1].doubt)


def _inside(v: _Floats, low: _Floats, high: _Floats, start: _Ints) -> tuple[_Ints, _Ints]:
    """Return where the values of slabs, in order, begin and end to be between edges."""
    found = np.empty((2, len(low)), np.int64)
    edges = zip(low.tolist(), high.tolist(), strict=True)
    for k, ((begin, end), ends) in enumerate(zip(pairwise(start.tolist()), edges, strict=True)):
        found[:, k] = v[begin:end].searchsorted(ends)
    found += start[:-1]
    return found[0], found[1]


def _strips_of(inside: list[tuple[_Ints, _Ints]], slab: _Ints, rank: _Ints) -> int:
    """Return how many strips slabs are cut into, judging by how far some lines drift in ranks."""
    some = np.arange(0, len(slab), _SPARSELY)
    its = slab.take(some)
    parts: list[_Floats] = []
    for (begin, end), places in zip(inside, (some, rank.take(some)), strict=True):
        width = np.maximum(end - begin, 1)
        parts.append(((places - begin.take(its)) / width.take(its)).clip(0, 1))
    slabs = len(inside[0][0])
    total = np.bincount(its, np.abs(parts[1] - parts[0]), slabs)
    drift = float(np.median(total / np.maximum(np.bincount(its, minlength=slabs), 1)))
    most = min(_STRIPS, int(np.bincount(slab).max()))
    return min(int(np.ceil(_FINE / max(drift, 1e-9))), most)


def _lines_between(inside: tuple[_Ints, _Ints], start: _Ints, count: int) -> _Ints:
    """Return the lines that chords are just below, shape (slabs, strips - 1)."""
    begin, end = (ends[:, None] for ends in inside)
    at = begin + ((end - begin) * (np.arange(1, count) / count)).astype(np.int64)
    # Each has a line of its slab below it.
    first, last = start[:-1, None] + 1, start[1:, None] - 1
    return at.clip(first, np.maximum(first, last))


def _strips_at(level: _Level, chord: _Floats, slab: _Ints, guess: _Ints) -> tuple[_Ints, _Ints]:
    """Return the first strip that each line is not above, and the first that it is below.

    The guess is the strip it is in by its rank, unless that is outside of its slab.
    """
    count, base = chord.shape[1] - 1, slab * chord.shape[1]
    flat = chord.ravel()
    key = base + guess
    least, most = level.least, level.most
    lower, upper = flat.take(key), flat.take(key + 1)
    first, stop = guess + (least >= upper), guess + (most > lower)
    bad = np.flatnonzero((least < lower) & (guess > 0))
    while len(bad):
        first[bad] -= 1
        here = first.take(bad)
        bad = bad[(here > 0) & (least.take(bad) < flat.take(base.take(bad) + here))]
    bad = np.flatnonzero((most > upper) & (guess < count - 1))
    while len(bad):
        stop[bad] += 1
        here = stop.take(bad)
        bad = bad[(here < count) & (most.take(bad) > flat.take(base.take(bad) + here))]
    same = chord[:, 1:] == chord[:, :-1]
    if same.any():
        # What touches the end of several chords is above or below all of them there.
        begins, ends = _runs(same)
        at = base + first
        first = np.where(least >= flat.take(at), ends.take(at), first)
        at = base + stop
        stop = np.where(most <= flat.take(at), begins.take(at), stop)
    return first, stop


def _runs(same: _Bools) -> tuple[_Ints, _Ints]:
    """Return the first and the last of all chords that are where each is, slab by slab."""
    count = same.shape[1]
    begins = np.tile(np.arange(count + 1), (len(same), 1))
    ends = begins.copy()
    begins[:, 1:][same] = 0
    ends[:, :-1][same] = count
    np.maximum.accumulate(begins, axis=1, out=begins)
    ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    return begins.ravel(), ends.ravel()


class Probe(Protocol):
    """What takes notice of masses that may be better than the best known."""

    def best(self, mass: _Floats) -> int | None:
        """Return which of some masses, by rows of the tree, is better by most, if any is."""

    def look(self, chart: Chart, window: tuple[float, float, float]) -> None:
        """Offer the cells of one direction between two thresholds."""


class RankedSlabs:
    """Slabs that no nodes cross, judged many at a time: most have few lines.

    The lines of a slab stay in order at both ends, so that they are only put in order where it is
    cut in two. What the cells there are worth is known then, too.
    """

    def __init__(
        self, tree: Tree, chart: Chart, kinds: Kinds, judged: Judged, probe: Probe
    ) -> None:
        self._tree = tree
        self._chart = chart
        self._kinds = kinds
        self._judged = judged
        self._probe = probe
        self._blocks: list[_Block] = []
        self.lines = 0

    def __len__(self) -> int:
        """Return how many slabs wait."""
        return sum(len(block.value) for block in self._blocks)

    def least(self) -> float:
        """Return what the slabs that wait cannot fall below."""
        return min((float(block.value.min()) for block in self._blocks), default=np.inf)

    def add(self, slab: _Slab) -> None:
        """Take in a slab that no nodes cross."""
        points = np.concatenate([group.items for group in slab.groups])
        u, w = self._chart.u0.take(points), self._chart.w0.take(points)
        t0, t1 = slab.zone.t
        order = (u + t0 * w).argsort()
        right = (u + t1 * w).take(order).argsort()
        t, low, high = (np.array(pair)[:, None] for pair in slab.zone[1:])
        one = np.array([slab.value]), np.array([slab.crowd]), np.array([slab.stale])
        start = np.array([0, len(points)])
        ordered = points.take(order), right
        self._push(_Block(t, low, high, slab.below[:, None], *one, start, *ordered))

    def _push(self, block: _Block) -> None:
        self._blocks.append(block)
        self.lines += len(block.points)

    def _pop(self, most: float) -> _Block:
        """Take slabs off the stack, no more than can be worked on together."""
        parts: list[_Block] = []
        lines = number = 0
        while self._blocks and (not parts or (lines < _TOGETHER // 2 and number < most)):
            parts.append(self._blocks.pop())
            lines += len(parts[-1].points)
            number += len(parts[-1].value)
        block = _Block.join(parts)
        self.lines -= lines
        fit = max(1, int(block.start.searchsorted(_TOGETHER, side="right")) - 1)
        fit = int(min(fit, most))
        if fit < number:
            self._push(block.part(slice(fit, number)))
            block = block.part(slice(0, fit))
        return block

    def step(self, most: float) -> tuple[int, list[Zone]]:
        """Judge up to so many slabs: return how many, and what is to be searched by boxes."""
        block = self._pop(most)
        cut = _cut_block(self._chart, block)
        number, count = len(block.value), cut.chords.shape[2] - 1
        below, accepted, crossing = self._masses(block, cut)
        verdict = self._judged(accepted, crossing)
        crossed = self._counted(cut.first, cut, count) - self._counted(cut.stop, cut, count)
        left = verdict.alive.reshape(number, count) & (crossed > 0)
        left &= (cut.chords[:, :, 1:] > cut.chords[:, :, :-1]).any(axis=0)
        hit = np.flatnonzero(left.any(axis=1))
        if len(hit) == 0:
            return number, []
        first, stop = left.argmax(axis=1), count - left[:, ::-1].argmax(axis=1)
        rest = self._narrowed(block, cut, (first, stop, hit), below)
        value = np.where(left, verdict.value.reshape(number, count), np.inf).min(axis=1)
        crowd = np.where(left, crossed, 0).max(axis=1)[hit].astype(float)
        stale = np.where(crowd > 0.8 * block.crowd[hit], block.stale[hit] + 1, 0)
        rest = rest._replace(value=value[hit], crowd=crowd, stale=stale)
        done = self._is_done(block, cut, hit, rest)
        zones = [
            Zone(self._chart.unit, *((float(a[0, k]), float(a[1, k])) for a in rest[:3]))
            for k in np.flatnonzero(done)
        ]
        if not done.all():
            for half in self._halves(rest.chosen(~done)):
                self._push(half)
        return number, zones

    def _masses(self, block: _Block, cut: _CutBlock) -> tuple[_Floats, _Floats, _Floats]:
        """Return masses below all strips by rows of `Kinds`, and as `Boxes` have them."""
        kinds, (number, ends) = self._kinds, cut.chords.shape[1:]
        base = cut.slab * ends
        done = self._added_up(block, base + cut.stop, number * ends, range(len(kinds.rows)))
        begun = self._added_up(block, base + cut.first, number * ends, kinds.begun)
        shape = -1, number, ends
        done = np.cumsum(done.reshape(shape)[:, :, :-1], axis=2)
        begun = np.cumsum(begun.reshape(shape)[:, :, :-1], axis=2)
        crosses = (begun - done[list(kinds.begun)]).reshape(len(kinds.begun), -1)
        below = done + block.below[:, :, None]
        accepted = np.zeros((len(self._tree.mass), number * (ends - 1)))
        accepted[list(kinds.counted)] = below[: len(kinds.counted)].reshape(len(kinds.counted), -1)
        return below, accepted, np.concatenate([crosses[:1], crosses[-2:], crosses[1:-2]])

    def _added_up(self, block: _Block, key: _Ints, size: int, rows: Sequence[int]) -> _Floats:
        """Return sums of some rows of `Kinds` by a key of each line."""
        kinds = self._kinds
        if all(mass is not None for alike in kinds.alike for mass in alike):
            number = len(kinds.alike)
            key = key * number
            key += kinds.kind.take(block.points)
            counts = np.bincount(key, minlength=size * number).reshape(size, number)
            alike = np.array(kinds.alike, float)[:, list(rows)]
            found = np.zeros((len(rows), size))
            for k in range(number):
                for total, mass in zip(found, alike[k], strict=True):
                    if mass:
                        total += mass * counts[:, k]
            return found
        return np.stack(
            [np.bincount(key, kinds.rows[k].take(block.points), minlength=size) for k in rows]
        )

    def _counted(self, place: _Ints, cut: _CutBlock, count: int) -> _Ints:
        """Return how many lines have at most each place, slab by slab."""
        size = cut.chords.shape[1] * (count + 1)
        total = np.bincount(cut.slab * (count + 1) + place, minlength=size)
        return np.asarray(np.cumsum(total.reshape(-1, count + 1)[:, :-1], axis=1))

    def _narrowed(
        self, block: _Block, cut: _CutBlock, strips: tuple[_Ints, _Ints, _Ints], below: _Floats
    ) -> _Block:
        """Return some slabs from one strip up to another, with the lines that cross these."""
        first, stop, some = strips
        inside = np.zeros(len(block.value), bool)
        inside[some] = True
        kept = (cut.stop > first.take(cut.slab)) & (cut.first < stop.take(cut.slab))
        kept &= inside.take(cut.slab)
        size = np.bincount(cut.slab, kept, len(block.value)).astype(np.int64)[some]
        low, high = (cut.chords[:, some, ends[some]] for ends in (first, stop))
        return _Block(
            *(block.t[:, some], low, high, below[:, some, first[some]]),
            *(block.value[some], block.crowd[some], block.stale[some]),
            *(_starts(size), block.points.compress(kept), _kept_order(block.right, kept)),
        )

    def _is_done(self, block: _Block, cut: _CutBlock, some: _Ints, rest: _Block) -> _Bools:
        """Return which of the rest of some slabs are not to be cut."""
        t0, t1 = rest.t
        lasting, middle = rest.stale >= _STALE, _middle(rest.t)
        done: _Bools = (rest.size <= _FEW_RANKED) | (rest.crowd <= _THIN_RANKED)
        done |= lasting & ((rest.size <= _MEETING) | (t1 < _CLOSEST))
        done |= (t1 - t0 < _NARROW * t1) | ~((t0 < middle) & (middle < t1))
        at = (block.start[:-1, None] + block.size[:, None] * _QUANTILES).astype(np.int64)
        typical = 2 * np.sort(cut.doubt.take(at), axis=1)[:, len(_QUANTILES) // 2]
        done |= ((block.high - block.low).max(axis=0) <= _FLAT * typical)[some]
        return done

    def _halves(self, block: _Block) -> Sequence[_Block]:
        """Cut slabs between two directions, the half with the larger t first."""
        slab = np.repeat(np.arange(len(block.value)), block.size)
        middle = _middle(block.t)
        u, w = self._chart.u0.take(block.points), self._chart.w0.take(block.points)
        v = u + middle.take(slab) * w
        order = np.empty_like(block.right)
        for begin, end in pairwise(block.start.tolist()):
            np.add(v[begin:end].argsort(), begin, out=order[begin:end])
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        self._probe_at(block, slab, order, middle, v)
        t0, t1 = block.t
        part = (middle - t0) / (t1 - t0)
        # Rounded outwards, so that the halves cover the slab.
        low, high = (
            a + part * (b - a) + outwards * 4 * LINE_EPS * np.maximum(np.abs(a), np.abs(b))
            for (a, b), outwards in ((block.low, -1), (block.high, 1))
        )
        left = block._replace(
            t=np.stack([t0, middle]),
            low=np.stack([block.low[0], low]),
            high=np.stack([block.high[0], high]),
            right=order,
        )
        right = block._replace(
            t=np.stack([middle, t1]),
            low=np.stack([low, block.low[1]]),
            high=np.stack([high, block.high[1]]),
            points=block.points.take(order),
            right=place.take(block.right),
        )
        return right, left

    def _probe_at(
        self, block: _Block, slab: _Ints, order: _Ints, middle: _Floats, v: _Floats
    ) -> None:
        """Look at some cells between the halves of slabs, and closely at the best."""
        points = block.points.take(order)
        some = np.arange(0, len(points), _PROBED)
        its, first = slab.take(some), block.start[:-1]
        mass = np.zeros((len(self._tree.mass), len(some)))
        rows = zip(self._kinds.counted, self._kinds.rows, block.below, strict=False)
        for row, values, below in rows:
            total = np.cumsum(values.take(points))
            before = np.append(0.0, total).take(first)
            mass[row] = total.take(some) + (below - before).take(its)
        best = self._probe.best(mass)
        if best is not None:
            begin, end = block.start[its[best] : its[best] + 2]
            beside = slice(max(begin, some[best] - _BESIDE), min(end, some[best] + _BESIDE + 1))
            values = v.take(order[beside])
            window = float(middle[its[best]]), float(values[0]), float(values[-1])
            self._probe.look(self._chart, window)
