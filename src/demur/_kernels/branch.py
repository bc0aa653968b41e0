"""Exact search over all half-planes: branch and bound in the dual plane."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.bound import Cheap, Problem, cheap_masses, judge
from demur._kernels.boxes import Boxes, Edges, crossing_masses, join, take
from demur._kernels.divide import divide, gather
from demur._kernels.incumbent import Incumbent, Program
from demur._kernels.leaf import cells_inside, cells_on_line
from demur._kernels.lines import EPS, Chart, charts
from demur._kernels.start import first_look
from demur._kernels.tree import ID, Tree, prepare, reweight

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

Status = Literal["optimal", "gap", "budget", "infeasible"]

# Boxes crossed by no more points than this are taken apart into cells.
_FEW = 6
# So are boxes whose points stay together whatever the cut, up to this many.
_MANY = 128
# Boxes are worked on together until they have this many crossing items.
_BATCH = 1 << 15


class Outcome(NamedTuple):
    """All half-planes found to be optimal."""

    weights: _Floats
    v: _Floats
    id: int
    ood: int
    loss: int
    status: Status
    lower_bound: float
    boxes: int
    unresolved: int


def search(
    tree: Tree,
    quarters: tuple[int, ...],
    objective: _Ints,
    per_id: bool,
    min_id: int,
    max_ood: _Ints,
    ratio: _Ints,
    *,
    gap: float = 0.0,
    budget: int | None = None,
) -> Outcome:
    run = _Search(tree, Program(objective, per_id, max(1, min_id), max_ood, ratio), gap, budget)
    return run.over([chart for quarter in quarters for chart in charts(tree, quarter)])


class _Search:
    def __init__(self, tree: Tree, program: Program, gap: float, budget: int | None) -> None:
        self.tree = tree
        self.problem = program.problem()
        self.incumbent = Incumbent(tree, program)
        self.gap = gap
        self.budget = np.inf if budget is None else budget
        self.boxes = 0
        self.unresolved = 0
        self.lower_bound = np.inf

    def over(self, all_charts: list[Chart]) -> Outcome:
        if self.tree.points == 0 or self.tree.mass[ID, -1] < self.problem.min_id:
            return self.outcome()
        first_look(self.tree, all_charts, self.problem, self.incumbent)
        best = self.incumbent.best
        self.cheap = cheap_masses(self.tree, self.problem, self.problem.gain(best.value) if best else np.inf)
        for chart in all_charts:
            self.chart(chart)
        return self.outcome()

    def chart(self, chart: Chart) -> None:
        stack = [self.root(chart)]
        while stack and self.boxes < self.budget:
            boxes = self.next(stack)
            self.boxes += len(boxes.stale)
            few = boxes.points & ((boxes.size <= _FEW) | (((boxes.stale >= 3) | boxes.edges.flat()) & (boxes.size <= _MANY)))
            if few.any():
                self.leaf(chart, take(boxes, np.flatnonzero(few)))
                boxes = take(boxes, np.flatnonzero(~few))
            if len(boxes.stale) == 0:
                continue
            for k in range(min(2,len(boxes.stale))):
                if boxes.size[k]>300: continue
                _probe = cells_on_line(self.tree, chart, boxes, k, self.problem, self.incumbent.limit)
                self.incumbent.offer(chart, _probe)
            halves, stuck = divide(self.tree, chart, self.cheap, boxes, self.alive)
            if stuck.any(): self.stuck(chart, take(boxes, np.flatnonzero(stuck)))
            halves = self.prune(halves)
            if len(halves.stale): stack.append(halves)

    def stuck(self, chart, boxes):
        small=np.flatnonzero(boxes.points & (boxes.size<=_MANY))
        self.leaf(chart, take(boxes, small))
        self.unresolved += len(boxes.stale)-len(small)

    def leaf(self, chart, boxes):
        for part in ([boxes] if boxes.size.max(initial=0)<=_FEW else [take(boxes,np.array([k])) for k in range(len(boxes.stale))]):
            self.incumbent.offer(chart, cells_inside(self.tree, chart, part, self.problem, self.incumbent.limit))

    def next(self, stack: list[Boxes]) -> Boxes:
        """Take boxes off the stack, up to a batch."""
        parts = [stack.pop()]
        while stack and sum(len(p.items) for p in parts) < _BATCH // 2:
            parts.append(stack.pop())
        boxes = join(parts)
        fit = max(1, int(np.searchsorted(boxes.start, _BATCH, side='right')) - 1)
        count=len(boxes.stale)
        if fit < count:
            stack.append(take(boxes, np.arange(fit, count)))
            boxes = take(boxes, np.arange(fit))
        return self.prune(boxes)

    def alive(self, accepted, crossing):
        return judge(self.problem, self.cheap, self.incumbent.best, accepted, crossing,
            ties=not self.incumbent.full, slack=self.gap).alive

    def prune(self, boxes: Boxes) -> Boxes:
        verdict = judge(
            self.problem, self.cheap, self.incumbent.best, boxes.accepted, boxes.crossing,
            ties=not self.incumbent.full, slack=self.gap,
        )
        alive = np.flatnonzero(verdict.alive)
        return take(boxes, alive[np.argsort(verdict.value.take(alive), kind="stable")])

    def root(self, chart: Chart) -> Boxes:
        t = np.array([[0.0], [1.0]])
        n = self.tree.points
        v = [chart.u0[:n], chart.u0[:n] + chart.w0[:n]]
        low = np.array([[values.min()] for values in v])
        high = np.array([[np.nextafter(values.max(), np.inf)] for values in v])
        item = np.array([len(chart.u0) - 1]), np.zeros(1, np.int64)
        nothing = np.zeros((len(self.tree.mass), 1))
        return gather(self.tree, chart, self.cheap, Edges(t, low, high), chart.sizes, nothing, *item)

    def outcome(self) -> Outcome:
        best = self.incumbent.best
        planes = self.incumbent.proved()
        least=min((p.mass[1] for p in planes),default=0); planes=[p for p in planes if p.mass[1]==least]
        if best is None:
            return Outcome(np.empty((0, 2)), np.empty(0), 0, 0, 0, "infeasible", np.inf, self.boxes, self.unresolved)
        return Outcome(
            np.array([p.weights for p in planes]), np.array([p.v for p in planes]), best.id, best.ood, int(least),
            "optimal", best.value, self.boxes, self.unresolved + self.incumbent.unresolved)
