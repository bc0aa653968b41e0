"""What a search of cells in several quarters leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from demur._arrays import BoolArray
from demur.tuning.streamed.bound import Bound
from demur.tuning.streamed.cloud import Signs
from demur.tuning.streamed.lines import Lines
from demur.tuning.streamed.plan import Plan
from demur.tuning.streamed.pyramid import Pyramid
from demur.tuning.streamed.search import survey
from demur.tuning.streamed.zones import Zone


class Opened(NamedTuple):
    """Cells, and which of them may be crossed by something as good as the best known."""

    pyramid: Pyramid
    met: BoolArray
    """These cells, and all nodes that were looked into."""
    zones: Mapping[Signs, list[Zone]]
    """The boxes that survived, by the signs of the scores."""
    boxes: int

    @property
    def marked(self) -> BoolArray:
        """Which cells must be looked into."""
        cells = self.pyramid.cells
        return self.met[:cells] & (self.pyramid.wanted[:cells] > 0)

    @property
    def rows(self) -> int:
        """How many rows these have."""
        return int(self.pyramid.wanted[: self.pyramid.cells][self.marked].sum())


def open_cells(
    pyramid: Pyramid, bound: Bound, plan: Plan, zones: Mapping[Signs, Sequence[Zone] | None]
) -> Opened:
    """Search some zones for each change of signs; None means all half-planes."""
    met, boxes = np.zeros(pyramid.root + 1, bool), 0
    left: dict[Signs, list[Zone]] = {}
    for signs, some in zones.items():
        lines = Lines(pyramid, signs)
        start = [lines.root(0), lines.root(1)] if some is None else list(some)
        found = survey(lines, bound, start, few=plan.few, budget=plan.boxes)
        left[signs] = found.zones
        boxes += found.boxes
        met |= found.met
    return Opened(pyramid, met, left, boxes)
