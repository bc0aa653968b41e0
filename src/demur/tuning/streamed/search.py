"""Branch and bound over half-planes on cells: which of them must be looked into.

A box of half-planes (`zones`) that cannot beat the best half-plane known is dropped, others are
cut in two, until cutting no longer helps because the cells are coarser than the box. Those boxes
survive: every half-plane that is better than the best one known, or as good, is in one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from demur._arrays import IntArray
from demur.tuning.streamed.bound import Bound
from demur.tuning.streamed.lines import Lines, Part, joined_parts, sift
from demur.tuning.streamed.zones import Zone, cut_t, cut_v

# Crossing rows of a box, relative to those of a half-plane in its middle, that end its cutting;
# from one round of the search to the next.
ROUNDS = (5.0, 2.0)
# The same for a box that would survive in part only.
TIGHT = 1.15
_DEEPEST = 64
# Nodes whose lines spread over more than this part of the height of a box are opened.
_COARSE = 0.5


class _Box(NamedTuple):
    zone: Zone
    part: Part
    accepted: IntArray
    depth: int


class Survey:
    """A search of one pyramid, and what it found."""

    def __init__(self, lines: Lines, bound: Bound, *, enough: float, few: int, budget: int) -> None:
        self._lines, self._bound = lines, bound
        self.pyramid = lines.pyramid
        self._enough, self._few, self._budget = enough, few, budget
        self.zones: list[Zone] = []
        """Boxes that may hold the best half-plane."""
        self.met = np.zeros(lines.pyramid.root + 1, bool)
        """Cells that these boxes may cross, and all nodes that were looked into."""
        self.boxes = 0

    def run(self, zones: Iterable[Zone]) -> None:
        """Look at `zones` and leave the parts that may hold something better or equal."""
        nothing = np.zeros(len(self.pyramid.mass), np.int64)
        roots = [self._lines.part(chart, np.array([self.pyramid.root])) for chart in (0, 1)]
        stack = [_Box(zone, roots[zone.chart], nothing, 0) for zone in zones]
        while stack:
            box = self._opened(stack.pop(), _COARSE)
            self.boxes += 1
            *crossing, rows = box.part.mass.sum(axis=1)
            if not self._bound.alive(box.accepted, np.array(crossing)):
                continue
            parts: Sequence[Zone] = ()
            if self.boxes < self._budget and not self._done(box, int(rows)):
                parts = self._halves(box)
            stack.extend(box._replace(zone=zone, depth=box.depth + 1) for zone in parts)
            if not parts:
                self.zones.append(box.zone)
                self.met[self._opened(box, -1.0).part.items] = True

    def _opened(self, box: _Box, coarse: float) -> _Box:
        """Sort out the items of a box, and open the nodes that are too coarse for it."""
        pyramid, zone = self.pyramid, box.zone
        height = coarse * zone.height
        middle = sum(zone.t) / 2
        accepted, part = box.accepted.copy(), box.part
        kept: list[Part] = []
        while True:
            inside, crossing = sift(zone, part)
            accepted += part.mass[:-1].take(np.flatnonzero(inside), axis=1).sum(axis=1)
            part = part.take(np.flatnonzero(crossing))
            first, last, first_w, last_w, _ = part.line
            wide = (part.items >= pyramid.cells) & (
                (last - first) + middle * (last_w - first_w) > height
            )
            if not wide.any():
                return box._replace(part=joined_parts([*kept, part]), accepted=accepted)
            kept.append(part.take(np.flatnonzero(~wide)))
            nodes = part.items[wide]
            self.met[nodes] = True
            part = self._lines.part(zone.chart, pyramid.children(nodes))

    def _done(self, box: _Box, rows: int) -> bool:
        """Return whether cutting the box would hardly leave fewer rows to look at."""
        part = box.part
        if rows <= self._few or box.depth >= _DEEPEST:
            return True
        if (part.items >= self.pyramid.cells).any():
            return False
        inside, crossing = sift(box.zone.middle, part)
        *there, least = part.mass.take(np.flatnonzero(crossing), axis=1).sum(axis=1)
        if rows <= TIGHT * least:
            return True
        if rows > self._enough * least:
            return False
        below = part.mass[:-1].take(np.flatnonzero(inside), axis=1).sum(axis=1)
        return self._bound.alive(box.accepted + below, np.array(there))

    def _halves(self, box: _Box) -> Sequence[Zone]:
        """Cut a box in t where its lines drift apart, otherwise along them."""
        zone = box.zone
        first, last, first_w, last_w, _ = box.part.line
        slope = (first_w + last_w) / 2
        width = zone.t[1] - zone.t[0]
        mean = float(slope.mean())
        drift = width * float(slope.max() - slope.min()) + abs(width * mean - zone.tilt)
        if drift > zone.height:
            return cut_t(zone, zone.height / drift)
        value = (first + last) / 2 + sum(zone.t) / 2 * slope
        inside = np.clip(value, sum(zone.low) / 2, sum(zone.high) / 2)
        return cut_v(zone, mean * width, float(inside.mean()))


def survey(lines: Lines, bound: Bound, zones: list[Zone], *, few: int, budget: int) -> Survey:
    """Search finer and finer until no more than `budget` boxes can be expected to do.

    Between the rounds only zones are kept, so that many of them take little memory.
    """
    boxes = 0
    for enough in ROUNDS:
        found = Survey(lines, bound, enough=enough, few=few, budget=budget)
        # Where scores overflow their sums a cut is worse, never wrong.
        with np.errstate(over="ignore", invalid="ignore"):
            found.run(zones)
        boxes += found.boxes
        zones = found.zones
        if boxes + 3 * found.boxes > budget:
            break
    found.boxes = boxes
    return found
