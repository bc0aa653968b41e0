"""Exact search over all half-planes: branch and bound in the dual plane, in NumPy.

A half-plane ``x + t*y <= v`` is a point (t, v); a point (x, y) of the sample is the line
``v = x + t*y`` there, and is accepted by all half-planes above it. A box of half-planes is a
trapezoid between two values of t. Points whose line passes below the box are accepted by all of
it, those above by none, and those that cross it decide what the box can still give. A box that
cannot beat the best half-plane known is dropped; the others are cut into smaller ones, many
boxes at a time; boxes crossed by few points are taken apart into all their cells.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from demur._kernels.engines import Doubt, Outcome, Status, Trail
from demur._kernels.exact import Goal
from demur._kernels.numpy_engine.bounds import Problem, Verdict, cheap_masses, judge
from demur._kernels.numpy_engine.boxes import (
    Boxes,
    Chart,
    Edges,
    Zone,
    box_masses,
    charts,
    join,
    take,
)
from demur._kernels.numpy_engine.incumbent import CloserLook, Incumbent, first_look
from demur._kernels.numpy_engine.ranked_slabs import RankedSlabs
from demur._kernels.numpy_engine.slabs import Kinds, SlabSearch, is_even
from demur._kernels.numpy_engine.splitting import divide, gather
from demur._kernels.numpy_engine.strips import cells_inside, cells_on_line
from demur._kernels.numpy_engine.tree import FAN, ID, TAG, Tree

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

# Boxes crossed by no more points than this are taken apart into cells.
_FEW = 6
# So are boxes whose points stay together whatever the cut, up to this many.
_MANY = 128
# Boxes are worked on together until they have this many crossing items.
_BATCH = 12_000
# An input is crowded if a box wider than this has more crossing items than that, or if it has more
# points and they span decades: it is judged slab by slab. So are narrower boxes with several times
# as many.
_WIDE = 0.5
_LARGE = 1000
_LARGER = 3
# Boxes that are cut for the first time have so many items or more: one to so many points.
_SPARSE = 32
_POINTS_TO_AN_ITEM = 80
# Boxes that survive of slabs are searched together, up to so many.
_TOGETHER = 16
# A vertical line through a box is searched for a better half-plane up to this many points.
_PROBE = 16384
# Taking boxes apart into cells costs about the cube of their points; up to this much in a batch.
_WORK = 100_000
# Boxes put aside to be looked at exactly, and points that cross one.
_DOUBTS = 4096
_DOUBTFUL_POINTS = 1024
# Relative distance that counts as none for where lines meet, and lines looked at for that.
_BESIDE = 1e-9
_MOST_OF_A_FAN = 1024


def search(
    tree: Tree,
    quarters: tuple[int, ...],
    goal: Goal,
    *,
    gap: float = 0.0,
    budget: int | None = None,
    start: _Floats | None = None,
    trail: Trail | None = None,
    certain: bool = False,
) -> Outcome:
    """Return the optimal half-planes with directions in `quarters`.

    A `trail` is not needed.
    """
    incumbent = Incumbent(tree, Problem.of(goal), certain=certain)
    run = _Search(tree, incumbent, gap, budget, start)
    return run.over([chart for quarter in quarters for chart in charts(tree, quarter)])


class _Search:
    def __init__(
        self,
        tree: Tree,
        incumbent: Incumbent,
        gap: float,
        budget: int | None,
        start: _Floats | None,
    ) -> None:
        self.tree = tree
        self.problem = incumbent.problem
        self.incumbent = incumbent
        self.probe = CloserLook(tree, incumbent.problem, incumbent)
        self.gap = gap
        self.start = start
        self.budget = np.inf if budget is None else budget
        self.boxes = 0
        self.unresolved = 0
        self.exhausted = False
        self.even = True  # whether no line of the chart is decades beyond most others
        self.crowded = False  # whether wide boxes have many crossing items
        self.together = 1  # survivors of slabs to be searched next
        self.lower = np.inf  # what the boxes left over by the budget cannot fall below
        self.aside: list[tuple[Chart, Boxes]] = []  # what float64 cannot take apart
        self.kinds: Kinds | None = None
        self.given_up = np.inf  # what boxes that were too large to put aside cannot fall below

    def over(self, all_charts: list[Chart]) -> Outcome:
        if self.tree.points == 0 or self.tree.mass[ID, -1] < self.problem.min_id:
            return self.outcome()
        first_look(self.tree, all_charts, self.problem, self.incumbent, self.start)
        best = self.incumbent.best
        self.cheap = cheap_masses(
            self.tree, self.problem, self.problem.gain(best.value) if best else np.inf
        )
        for chart in all_charts:
            self.chart(chart)
        return self.outcome()

    def chart(self, chart: Chart) -> None:
        self.even = is_even(self.tree, chart)
        root = self.root(chart)
        crowded = self.crowded or (not self.even and self.tree.points > _LARGE)
        if not crowded:
            self.crowded = crowded = not self.explore(chart, root, _LARGE)
        if crowded:
            self.slabs(chart, root)

    def explore(self, chart: Chart, boxes: Boxes, most: float = np.inf) -> bool:
        """Search boxes; return whether to the end: no wide one had more than so many items."""
        stack = [boxes]
        while stack and self.boxes < self.budget:
            boxes = self.next(stack)
            wide = boxes.t[1] - boxes.t[0] > _WIDE
            if (wide & (boxes.size > most)).any():
                return False
            large = boxes.size > _LARGER * most
            if large.any():
                for k in np.flatnonzero(large):
                    self.slabs(chart, take(boxes, np.array([k])))
                boxes = take(boxes, np.flatnonzero(~large))
            self.boxes += len(boxes.stale)
            few = self.few(boxes)
            if few.any():
                self.leaf(chart, take(boxes, np.flatnonzero(few)))
                boxes = take(boxes, np.flatnonzero(~few))
            boxes = self.without_fans(chart, boxes)
            if len(boxes.stale) == 0:
                continue
            # The most promising box comes first.
            if points_in_first(self.tree, boxes) <= _PROBE:
                limit = self.incumbent.limit
                probed = cells_on_line(self.tree, chart, boxes, self.problem, limit)
                self.incumbent.offer(chart, probed)
            halves, stuck = divide(self.tree, chart, self.cheap, boxes, self.alive, even=self.even)
            if stuck.any():
                self.stuck(chart, take(boxes, np.flatnonzero(stuck)))
            halves = self.prune(halves)
            if len(halves.stale):
                stack.append(halves)
        self.leave(stack)
        return True

    def slabs(self, chart: Chart, box: Boxes) -> None:
        """Search what survives of the slabs of a box, ever more of it at a time.

        The first may hold something better, and then less survives.
        """
        if self.kinds is None:
            self.kinds = Kinds.of(self.tree, self.cheap, self.problem)
        parts = self.tree, chart, self.kinds, self.judged
        ranked = RankedSlabs(*parts, self.probe)
        slabs = SlabSearch(*parts, box, even=self.even, ranked=ranked)
        waiting: list[Zone] = []
        while slabs and self.boxes < self.budget:
            number, zones = slabs.step(self.budget - self.boxes)
            self.boxes += number
            waiting += zones
            while len(waiting) >= self.together:
                some, waiting = waiting[: self.together], waiting[self.together :]
                self.explore(chart, self.boxes_of(chart, some))
                self.together = min(2 * self.together, _TOGETHER)
        if waiting:
            self.explore(chart, self.boxes_of(chart, waiting))
        self.exhausted |= bool(slabs)
        self.lower = min(self.lower, slabs.least())

    def leave(self, stack: list[Boxes]) -> None:
        """Note what boxes could have held that the budget did not reach."""
        for boxes in stack:
            verdict = self.judged(boxes.accepted, boxes.crossing)
            self.exhausted |= bool(verdict.alive.any())
            self.lower = min(self.lower, verdict.value[verdict.alive].min(initial=np.inf))

    def stuck(self, chart: Chart, boxes: Boxes) -> None:
        """Take apart the boxes that float64 cannot cut, as far as they are small."""
        small = np.flatnonzero(boxes.points & (boxes.size <= _MANY))
        self.leaf(chart, take(boxes, small))
        large = np.flatnonzero(~(boxes.points & (boxes.size <= _MANY)))
        self.set_aside(chart, take(boxes, large))

    def set_aside(self, chart: Chart, boxes: Boxes) -> None:
        """Keep boxes that float64 cannot take apart; what is not kept bounds the objective."""
        fan = [self.is_fan(chart, boxes, k) for k in range(len(boxes.stale))]
        boxes = take(boxes, np.flatnonzero(~np.array(fan, bool)))
        if len(boxes.stale) == 0:
            return
        room = _DOUBTS - sum(len(kept.stale) for _, kept in self.aside)
        fit = boxes.points & (boxes.size <= _DOUBTFUL_POINTS)
        fit &= np.cumsum(fit) <= room
        if fit.any():
            self.aside.append((chart, take(boxes, np.flatnonzero(fit))))
        verdict = self.judged(boxes.accepted, boxes.crossing)
        lost = verdict.alive & ~fit
        self.unresolved += int(lost.sum())
        self.given_up = min(self.given_up, verdict.value[lost].min(initial=np.inf))

    def without_fans(self, chart: Chart, boxes: Boxes) -> Boxes:
        """Leave out boxes in which no lines meet, where to cut them would only make more.

        That is where float64 cannot cut them from side to side, and where lines that stay together
        are parallel or all meet at t = 0.
        """
        flat = boxes.edges.flat()
        doubtful = np.flatnonzero(flat | (boxes.stale > 1)).tolist()
        fans = [k for k in doubtful if self.is_fan(chart, boxes, k, flat=bool(flat[k]))]
        return take(boxes, np.delete(np.arange(len(boxes.stale)), fans)) if fans else boxes

    def is_fan(self, chart: Chart, boxes: Boxes, k: int, *, flat: bool = True) -> bool:
        """Return whether all cells of a box can be left to others: no lines meet in it.

        A cell is found, or ruled out, in a box that holds an end of it, where lines meet. Cells
        that go on through both charts of a quarter, which meet at t = 1, have no such end: boxes
        of the first chart at t = 1 keep them. Where some lines are decades beyond the others these
        may be all in doubt there; then those at t = 0 do, where values are scores as they are.
        """
        first, last = boxes.t[0, k] * (1 - _BESIDE), boxes.t[1, k] * (1 + _BESIDE)
        items = boxes.items[boxes.start[k] : boxes.start[k + 1]]
        keeps = chart.unit == 0 and (last >= 1 if self.even else first == 0)
        if keeps:
            return False
        u, w = chart.u0.take(items), chart.w0.take(items)
        if (u == u[:1]).all() and (chart.u1.take(items) == u[:1]).all():
            return True
        if (w == w[:1]).all() and (chart.w1.take(items) == w[:1]).all():
            return True
        if not flat or not boxes.points[k] or len(items) > _MOST_OF_A_FAN:
            return False
        i, j = np.triu_indices(len(items), 1)
        du, dw = u[j] - u[i], w[i] - w[j]
        # Lines of equal scores meet at t = 0, which is no place inside.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            meet = np.where((du != 0) & (dw != 0), du / dw, np.inf)
        return not bool(((meet >= first) & (meet <= last)).any())

    def doubts(self) -> tuple[Doubt, ...]:
        """Return the boxes put aside that may still hold something better."""
        found: list[Doubt] = []
        kept = [k for k in range(len(self.tree.mass)) if k != TAG]
        for chart, boxes in self.aside:
            verdict = self.judged(boxes.accepted, boxes.crossing)
            for k in np.flatnonzero(verdict.alive):
                items = boxes.items[boxes.start[k] : boxes.start[k + 1]]
                t, low, high = ((float(ends[0, k]), float(ends[1, k])) for ends in boxes.edges)
                found.append(
                    Doubt(
                        chart.unit,
                        float(chart.signs[chart.unit]),
                        float(chart.signs[1 - chart.unit]),
                        *(t, low, high),
                        self.tree.corner[0::2, items].T,
                        self.tree.mass[kept][:, items].T.astype(np.int64),
                        boxes.accepted[kept, k].astype(np.int64),
                        float(verdict.value[k]),
                    )
                )
        return tuple(found)

    def few(self, boxes: Boxes) -> _Bools:
        """Return which boxes are to be taken apart into cells."""
        size = np.where(boxes.points, boxes.size, 1 << 20)
        small = size <= _FEW
        order = np.argsort(size, kind="stable")
        small[order[np.cumsum(size[order].astype(float) ** 3) <= _WORK]] = True
        return small | (size <= _MANY) & (boxes.edges.flat() | (boxes.stale * 16 >= size))

    def leaf(self, chart: Chart, boxes: Boxes) -> None:
        """Offer the best cells of boxes, those of similar size together."""
        size = boxes.size
        last = -1
        for most in (8, 16, 32, 64, 128):
            part = take(boxes, np.flatnonzero((size > last) & (size <= most)))
            last = most
            if len(part.stale):
                limit = self.incumbent.limit
                cells, close = cells_inside(self.tree, chart, part, self.problem, limit)
                close[self.incumbent.offer(chart, cells)] = True
                self.set_aside(chart, take(part, np.flatnonzero(close)))

    def next(self, stack: list[Boxes]) -> Boxes:
        """Take boxes off the stack, up to a batch."""
        parts = [stack.pop()]
        while stack and sum(len(p.items) for p in parts) < _BATCH // 2:
            parts.append(stack.pop())
        boxes = join(parts)
        fit = max(1, int(np.searchsorted(boxes.start, _BATCH, side="right")) - 1)
        count = len(boxes.stale)
        if fit < count:
            stack.append(take(boxes, np.arange(fit, count)))
            boxes = take(boxes, np.arange(fit))
        return self.prune(boxes)

    def alive(self, accepted: _Floats, crossing: _Floats) -> _Bools:
        """Return which boxes with these masses may hold something better."""
        return self.judged(accepted, crossing).alive

    def judged(self, accepted: _Floats, crossing: _Floats) -> Verdict:
        return judge(
            self.problem,
            self.cheap.prices,
            self.incumbent.best,
            box_masses(accepted, crossing, self.problem.sets),
            ties=not self.incumbent.full,
            slack=self.gap,
        )

    def prune(self, boxes: Boxes) -> Boxes:
        """Return the boxes that may hold something better, the most promising first."""
        verdict = self.judged(boxes.accepted, boxes.crossing)
        alive = np.flatnonzero(verdict.alive)
        return take(boxes, alive[np.argsort(verdict.value.take(alive), kind="stable")])

    def root(self, chart: Chart) -> Boxes:
        """Return the box of all half-planes of a chart."""
        n = self.tree.points
        v = [chart.u0[:n], chart.u0[:n] + chart.w0[:n]]
        low, high = ((float(pick(v[0])), float(pick(v[1]))) for pick in (np.min, np.max))
        # Values at t = 1 are rounded.
        low = low[0], float(np.nextafter(low[1], -np.inf))
        high = float(np.nextafter(high[0], np.inf)), float(np.nextafter(high[1], np.inf))
        return self.boxes_of(chart, [Zone(chart.unit, (0.0, 1.0), low, high)])

    def boxes_of(self, chart: Chart, zones: list[Zone]) -> Boxes:
        """Return boxes with what crosses them."""
        ends = [np.array([zone[k] for zone in zones]).T for k in (1, 2, 3)]
        count = len(zones)
        root = np.full(count, len(chart.u0) - 1), np.arange(count)
        nothing = np.zeros((len(self.tree.mass), count))
        sizes = np.repeat(chart.sizes, count, axis=1)
        edges, sparse = Edges(*ends), max(_SPARSE, self.tree.points // _POINTS_TO_AN_ITEM)
        return gather(self.tree, chart, self.cheap, edges, sizes, nothing, *root, sparse=sparse)

    def outcome(self) -> Outcome:
        """Return the best half-planes, and how sure it is that there are none better."""
        best, planes = self.incumbent.best, self.incumbent.proved()
        doubts = self.doubts()
        if best is None:
            status: Status = "budget" if self.exhausted else "infeasible"
            bound = self.least() if self.exhausted else np.inf
            nothing = np.empty((0, 2)), np.empty(0), 0, 0, 0
            bound = min(bound, self.given_up)
            return Outcome(*nothing, status, bound, self.boxes, self.unresolved, doubts)
        least = min(plane.mass[1] for plane in planes)
        planes = [plane for plane in planes if plane.mass[1] == least]
        status, bound = "optimal", best.value
        if self.exhausted:
            status, bound = "budget", max(self.least(), min(self.lower, best.value - self.gap))
        elif self.gap > 0:
            status, bound = "gap", best.value - self.gap
        return Outcome(
            np.array([plane.weights for plane in planes]),
            np.array([plane.v for plane in planes]),
            best.id,
            best.ood,
            int(least),
            status,
            min(bound, self.given_up),
            self.boxes,
            self.unresolved,
            doubts,
        )

    def least(self) -> float:
        """Return what no half-plane can fall below, without having looked at any."""
        id_ = self.problem.id
        return id_ if self.problem.per_id else id_ * float(self.tree.mass[ID, -1])


def points_in_first(tree: Tree, boxes: Boxes) -> int:
    """Return about how many points the crossing items of the first box hold."""
    level = np.searchsorted(tree.level, boxes.items[: boxes.start[1]], side="right") - 1
    return int((FAN**level).sum())
