"""Slabs over scores that span decades, judged many at a time.

Most slabs that no nodes of the tree cross have few lines, so that a call for each would cost more
than its lines do. Strips hold equally many lines: a chord from the middle of the lines at one end
of a slab to the middle of those at the other parts most of them, on whatever scale they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from demur._kernels.numpy_engine.boxes import LINE_EPS, Chart, Zone
from demur._kernels.numpy_engine.slabs import (
    CLOSEST,
    FINE,
    FLAT,
    MEETING,
    NARROW,
    STALE,
    STRIPS,
    Judged,
    Kinds,
    Level,
    Slab,
    level_of,
)
from demur._kernels.numpy_engine.tree import Tree

_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

# Slabs with no more lines than this, or than that in a strip, are left to the search of boxes.
_FEW = 32
_THIN = 8
# Lines of the slabs that are judged at a time; their arrays stay in the cache.
_TOGETHER = 16_000
# One to so many lines tells how far lines drift, and one to so many cells on a line is looked at in
# passing; the best is looked at closely with so many lines on either side.
_SPARSELY = 4
_PROBED = 3
_BESIDE = 5
# Ranks of the lines that tell how far rounding puts those of a slab off.
_QUANTILES = (np.arange(9) + 0.5) / 9


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
    levels = [level_of(u, w, t.take(slab)) for t in block.t]
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
    most = min(STRIPS, int(np.bincount(slab).max()))
    return min(int(np.ceil(FINE / max(drift, 1e-9))), most)


def _lines_between(inside: tuple[_Ints, _Ints], start: _Ints, count: int) -> _Ints:
    """Return the lines that chords are just below, shape (slabs, strips - 1)."""
    begin, end = (ends[:, None] for ends in inside)
    at = begin + ((end - begin) * (np.arange(1, count) / count)).astype(np.int64)
    # Each has a line of its slab below it.
    first, last = start[:-1, None] + 1, start[1:, None] - 1
    return at.clip(first, np.maximum(first, last))


def _strips_at(level: Level, chord: _Floats, slab: _Ints, guess: _Ints) -> tuple[_Ints, _Ints]:
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
        self._lines = 0

    @property
    def full(self) -> bool:
        """Whether enough wait to be judged together."""
        return self._lines >= _TOGETHER

    def __len__(self) -> int:
        """Return how many slabs wait."""
        return sum(len(block.value) for block in self._blocks)

    def least(self) -> float:
        """Return what the slabs that wait cannot fall below."""
        return min((float(block.value.min()) for block in self._blocks), default=np.inf)

    def add(self, slab: Slab) -> None:
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
        self._lines += len(block.points)

    def _pop(self, most: float) -> _Block:
        """Take slabs off the stack, no more than can be worked on together."""
        parts: list[_Block] = []
        lines = number = 0
        while self._blocks and (not parts or (lines < _TOGETHER // 2 and number < most)):
            parts.append(self._blocks.pop())
            lines += len(parts[-1].points)
            number += len(parts[-1].value)
        block = _Block.join(parts)
        self._lines -= lines
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
        lasting, middle = rest.stale >= STALE, _middle(rest.t)
        done: _Bools = (rest.size <= _FEW) | (rest.crowd <= _THIN)
        done |= lasting & ((rest.size <= MEETING) | (t1 < CLOSEST))
        done |= (t1 - t0 < NARROW * t1) | ~((t0 < middle) & (middle < t1))
        at = (block.start[:-1, None] + block.size[:, None] * _QUANTILES).astype(np.int64)
        typical = 2 * np.sort(cut.doubt.take(at), axis=1)[:, len(_QUANTILES) // 2]
        done |= ((block.high - block.low).max(axis=0) <= FLAT * typical)[some]
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
