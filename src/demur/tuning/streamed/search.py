"""Which cells must be looked into, by branch and bound over half-planes, or by strips for boxes.

A box of half-planes that cannot beat the best half-plane known is dropped, others are cut in two,
until cutting no longer helps because the cells are coarser than the box. Those boxes survive:
every half-plane that is better than the best one known, or as good, is in one of them.

Items of a pyramid are ranges of lines in (t, v), between the lines of the corner accepted first
and of the one accepted last. In doubt an item crosses a box, so that rounding does no harm.

Rules with a limit for each score: the bins of each score are *strips*. Boxes of scores whose limits
end strips are exact by counts alone, and the best of them is the incumbent. Others have both limits
inside of strips; by the masses below these two strips, and in them, most pairs of strips can hold
nothing as good as the incumbent. What is left are open pairs. A box with its limits in an open pair
(i, j) passes through the cells of strip i up to strip j, and of strip j up to strip i: the rows of
these are fetched. All other cells are on one side of it, and stand as two corners each, as with
half-planes: what is said in `demur.tuning.streamed.tune` holds word by word for boxes, which accept
more the larger their limits are. So the search in memory over the fetched rows and the corners
finds the optimum of all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels.numpy_engine.bounds import (
    Best,
    BoxMasses,
    Prices,
    Problem,
    judge,
    lower_bound,
)
from demur._kernels.numpy_engine.boxes import LINE_EPS, Zone, cut_t, cut_v
from demur.core.points import Points
from demur.core.program import Program
from demur.tuning.prepared import Box, BoxFinder, goal_of
from demur.tuning.result import Exact, SearchCertificate
from demur.tuning.streamed.cells import (
    CHEAP_ID,
    CHEAP_LOSS,
    ID,
    LOSS,
    CellGrid,
    Layout,
    LinearJudge,
    Pyramid,
    Signs,
    first_and_last,
    joined,
    split_ood,
)
from demur.tuning.streamed.plan import StreamPlan

if TYPE_CHECKING:
    from demur.tuning.streamed.tune import Streamed

# Crossing rows of a box, relative to those of a half-plane in its middle, that end its cutting;
# from one round of the search to the next. What a round leaves uncut is all that the next looks at:
# a budget that ends amid a round costs what it might have left out, not what others did.
ROUNDS = (400.0, 200.0, 80.0, 20.0, 5.0, 2.0)
# Shares of all rows that it is not worth to avoid fetching, for a single box, in these rounds.
FEW = (1 / 16, 1 / 64, 1 / 250, 1 / 1000, 0.0, 0.0)
# How often the budget of boxes a search may take as long as plenty of rows would be fetched.
LONGER = 10
# Fetching so many rows takes about as long as looking at a box. Where no more than a few per cent
# of all rows are left, a round that looked at more boxes than these rows are worth is the last.
ROWS_A_BOX = 100
A_FEW_PER_CENT = 0.04
# The same for a box that would survive in part only.
TIGHT = 1.15
_DEEPEST = 64
# Nodes whose lines spread over more than this part of the height of a box are opened.
_COARSE = 0.5
# Items of boxes that a round leaves to the next, so that it need not look for them again.
_LEFT = 4_000_000
# Items of a box by which it is cut.
_LOOKED_AT = 500
# Part of what crosses a box above which a single point is heavy, and how many of them are tried.
_HEAVY = 0.05
_TRIED = 3


class BoxJudge:
    """Judges boxes under one program, from integer masses of cells.

    Of the cells that cross a box it is known which ID and loss mass is *cheap*: rows whose loss
    is below `price` times ID; see `demur._kernels.numpy_engine.bounds`.
    """

    def __init__(
        self, program: Program, price: float, best: Best | None, layout: Layout | None = None
    ) -> None:
        self._program, self._best = program, best
        self._problem = Problem.of(goal_of(program))
        self._prices = Prices(program.loss * price, program.loss * price)
        self._linear: LinearJudge | None = None
        if program.linear:
            self._linear = LinearJudge(program, price, layout or Layout((), (), False))

    def alive(self, accepted: IntArray, crossing: IntArray) -> bool:
        """Return whether a box with these masses may hold a better or an equal half-plane.

        It is `judge` for a single box, many times as fast.
        """
        most, best = int(accepted[ID] + crossing[ID]), self._best
        nO = split_ood(accepted, len(self._program.max_ood))[0].tolist()
        if not self._possible(most, nO):
            return False
        if self._linear is not None and not self._linear.hopeful(accepted, crossing):
            return False
        if best is None:
            return True
        masses = self._box_masses(accepted, crossing, int)
        bound = lower_bound(self._problem, best.value, self._prices, masses, max)
        min_id, step = self._problem.min_id, self._problem.step(best)
        least, error = bound.least(min_id), bound.error(min_id)
        if least <= (-step / 2 if error < step / 4 else error):
            return True
        if most > best.id and bound.least(best.id + 1) <= error:
            return True
        tied = most >= best.id and sum(nO) <= best.ood
        return bool(tied and bound.least(best.id) <= error)

    def alive_each(self, accepted: IntArray, crossing: IntArray) -> BoolArray:
        """Return the same for many boxes; masses have shape (4 + sets, boxes)."""
        masses = self._box_masses(accepted, crossing, np.asarray)
        alive = judge(self._problem, self._prices, self._best, masses, ties=True, slack=0.0).alive
        if self._linear is not None:
            alive &= self._linear.hopeful(accepted, crossing)
        return alive

    def _possible(self, most: int, nO: list[int]) -> bool:
        program = self._program
        bounds = zip(nO, program.max_ood, program.ratio, strict=True)
        return most >= self._problem.min_id and all(
            accepted <= largest and a * most >= b * accepted for accepted, largest, (a, b) in bounds
        )

    def _box_masses(
        self, accepted: IntArray, crossing: IntArray, number: Callable[[Any], Any]
    ) -> BoxMasses:
        return BoxMasses(
            id=number(accepted[ID]),
            loss=number(accepted[LOSS]),
            ood=split_ood(accepted, len(self._program.max_ood))[0],
            crossing_id=number(crossing[ID]),
            cheap_id=number(crossing[CHEAP_ID]),
            cheap_loss=number(crossing[CHEAP_LOSS]),
        )


def best_of(program: Program, layout: Layout, mass: IntArray) -> Best | None:
    """Return the best of some operating points; `mass` has the rows of a grid's masses."""
    goal = goal_of(program).of_some_id()
    nI, L, nO = mass[ID], mass[LOSS], split_ood(mass, len(program.max_ood))[0]
    met = goal.met(nI, nO, L)
    if program.linear:
        met &= layout.met(program, mass)
    rows, total = np.flatnonzero(met), nO.sum(axis=0)
    kept = goal.best(nI[rows], total[rows], L[rows])
    if len(kept) == 0:
        return None
    row = rows[kept[0]]
    return known(program, int(nI[row]), int(total[row]), int(L[row]))


def known(program: Program, id_mass: int, ood_mass: int, loss_mass: int) -> Best:
    """Return an operating point with its value."""
    return Best(program.value(id_mass, ood_mass, loss_mass), id_mass, ood_mass, loss_mass)


def best_known(program: Program, found: Iterable[Best | None]) -> Best | None:
    """Return the best of some that were found, None if there are none."""
    some = [best for best in found if best is not None]
    if not some:
        return None
    nI, nO, L = np.array([best[1:] for best in some], np.int64).T
    return some[int(goal_of(program).best(nI, nO, L)[0])]


class Items(NamedTuple):
    """Some items, with all that is known of them side by side."""

    items: IntArray
    line: FloatArray
    """Shape (5, n): u of the first and of the last line, moved apart by how much rounding may
    put them off; w of both; how much rounding may put off w."""
    mass: IntArray
    """Shape (5 + sets, n): as in the pyramid, and then the rows wanted."""

    def take(self, places: IntArray) -> Items:
        """Return some of the items."""
        return Items(
            self.items.take(places), self.line.take(places, axis=1), self.mass.take(places, axis=1)
        )


def joined_items(parts: list[Items]) -> Items:
    """Return the items of all parts."""
    if len(parts) == 1:
        return parts[0]
    items, lines, masses = zip(*parts, strict=True)
    return Items(np.concatenate(items), np.hstack(lines), np.hstack(masses))


class Lines:
    """The items of a pyramid over cells of the two scores, times `signs`, in both charts."""

    def __init__(self, pyramid: Pyramid, signs: tuple[int, ...]) -> None:
        self.pyramid = pyramid
        self._ranges = [
            (low, high) if sign > 0 else (-high, -low)
            for low, high, sign in zip(pyramid.low, pyramid.high, signs, strict=True)
        ]
        self.typical = [self._middle(low) for low, _ in self._ranges]
        """A score in the middle of all rows, times the sign."""

    def _middle(self, scores: FloatArray) -> float:
        cells = slice(0, self.pyramid.cells, 1 + self.pyramid.cells // _LOOKED_AT**2)
        return _ranked(scores[cells], self.pyramid.wanted[cells], (0.5,))[0]

    def root(self, chart: int) -> Zone:
        """Return the zone of all half-planes of a chart."""
        (u0, u1), (w0, w1) = self._ranges[chart], self._ranges[1 - chart]
        root = self.pyramid.root
        low = (float(u0[root]), float(u0[root] + w0[root]))
        high = (float(u1[root]), float(u1[root] + w1[root]))
        reach = [
            4 * LINE_EPS * max(abs(a), abs(b)) + 1e-300 for a, b in zip(low, high, strict=True)
        ]
        return Zone(
            chart,
            (0.0, 1.0),
            (low[0] - reach[0], low[1] - reach[1]),
            (high[0] + reach[0], high[1] + reach[1]),
        )

    def along(self, direction: Sequence[float]) -> Zone:
        """Return the zone of all half-planes of one direction, whose weights are not negative."""
        chart = 0 if direction[0] >= direction[1] else 1
        t = direction[1 - chart] / direction[chart]
        around = (t * (1 - LINE_EPS), min(1.0, t * (1 + LINE_EPS)))
        whole = self.root(chart)
        # No half-plane of the direction reaches beyond the ends at t = 0 and t = 1.
        low, high = min(whole.low), max(whole.high)
        return Zone(chart, around, (low, low), (high, high))

    def part(self, chart: int, items: IntArray) -> Items:
        """Return some items as lines of a chart."""
        u0, u1 = (end.take(items) for end in self._ranges[chart])
        w0, w1 = (end.take(items) for end in self._ranges[1 - chart])
        doubt = LINE_EPS * np.maximum(np.abs(u0), np.abs(u1))
        line = np.array(
            [u0 - doubt, u1 + doubt, w0, w1, LINE_EPS * np.maximum(np.abs(w0), np.abs(w1))]
        )
        return Items(items, line, _mass(self.pyramid, items))


def sift(zone: Zone, part: Items) -> tuple[BoolArray, BoolArray]:
    """Return which items every half-plane of the zone accepts, and which cross it."""
    t0, t1 = zone.t
    first, last, first_w, last_w, doubt = part.line
    doubt = t1 * doubt
    last = last + doubt
    first = first - doubt
    inside = last + t0 * last_w <= zone.low[0]
    inside &= last + t1 * last_w <= zone.low[1]
    outside = first + t0 * first_w > zone.high[0]
    outside &= first + t1 * first_w > zone.high[1]
    return inside, ~(inside | outside)


def _mass(pyramid: Pyramid, items: IntArray) -> IntArray:
    mass = np.empty((len(pyramid.mass) + 1, len(items)), np.int64)
    mass[:-1] = pyramid.mass.take(items, axis=1)
    mass[-1] = pyramid.wanted.take(items)
    return mass


class _DualBox(NamedTuple):
    zone: Zone
    part: Items
    accepted: IntArray
    depth: int


class Left(NamedTuple):
    """A box that a round leaves to the next: what crosses it, if that is kept, and is accepted."""

    zone: Zone
    items: npt.NDArray[np.int32] | None
    accepted: IntArray


class Survey:
    """A search of one pyramid, and what it found."""

    def __init__(
        self,
        lines: Lines,
        bound: BoxJudge,
        *,
        enough: float,
        few: int,
        budget: int,
        before: Survey | None = None,
    ) -> None:
        """Search `lines`; what `before`, a coarser search, left can be searched on."""
        self._lines, self._bound = lines, bound
        self.pyramid = lines.pyramid
        self._enough, self.few, self._budget = enough, few, budget
        self.left: list[Left] = []
        """Boxes that may hold the best half-plane."""
        self.met = np.zeros(lines.pyramid.root + 1, bool)
        """Cells that these boxes may cross, and all nodes that were looked into."""
        if before is not None:
            self.met[self.pyramid.cells :] = before.met[self.pyramid.cells :]
        self.boxes = self._kept = 0
        self.loosest = 0.0
        """The most rows that a box left is crossed by, relative to its middle, and could be cut."""

    @property
    def rows(self) -> int:
        """How many rows the cells have that the boxes left may cross."""
        cells = self.pyramid.cells
        return int(self.pyramid.wanted[:cells][self.met[:cells]].sum())

    @property
    def zones(self) -> list[Zone]:
        """The boxes that are left."""
        return [box.zone for box in self.left]

    def run(self, boxes: Iterable[Zone | Left]) -> None:
        """Look at some boxes and leave the parts that may hold something better or equal."""
        stack = [self._begun(box) for box in boxes]
        while stack:
            box = self._opened(stack.pop(), _COARSE)
            self.boxes += 1
            *crossing, rows = box.part.mass.sum(axis=1)
            if not self._hopeful(box.accepted, np.array(crossing), box.part):
                continue
            parts: Sequence[Zone] = ()
            if self.boxes < self._budget and not self._done(box, int(rows)):
                parts = self._halves(box)
            stack.extend(box._replace(zone=zone, depth=box.depth + 1) for zone in parts)
            if not parts:
                self._leave(box)

    def _begun(self, box: Zone | Left) -> _DualBox:
        root = np.array([self.pyramid.root])
        nothing = np.zeros(len(self.pyramid.mass), np.int64)
        left = Left(box, None, nothing) if isinstance(box, Zone) else box
        items, accepted = root, nothing
        if left.items is not None:
            items, accepted = left.items.astype(np.int64), left.accepted
        return _DualBox(left.zone, self._lines.part(left.zone.chart, items), accepted, 0)

    def _leave(self, box: _DualBox) -> None:
        """Keep a box, and mark the cells that cross it."""
        items = box.part.items
        self._kept += len(items)
        kept = items.astype(np.int32) if self._kept <= _LEFT else None
        self.left.append(Left(box.zone, kept, box.accepted))
        self.met[self._opened(box, -1.0).part.items] = True

    def _opened(self, box: _DualBox, coarse: float) -> _DualBox:
        """Sort out the items of a box, and open the nodes that are too coarse for it."""
        pyramid, zone = self.pyramid, box.zone
        height = coarse * zone.height
        middle = sum(zone.t) / 2
        accepted, part = box.accepted.copy(), box.part
        kept: list[Items] = []
        while True:
            inside, crossing = sift(zone, part)
            accepted += part.mass[:-1].take(np.flatnonzero(inside), axis=1).sum(axis=1)
            part = part.take(np.flatnonzero(crossing))
            first, last, first_w, last_w, _ = part.line
            wide = (part.items >= pyramid.cells) & (
                (last - first) + middle * (last_w - first_w) > height
            )
            if not wide.any():
                return box._replace(part=joined_items([*kept, part]), accepted=accepted)
            kept.append(part.take(np.flatnonzero(~wide)))
            nodes = part.items[wide]
            self.met[nodes] = True
            part = self._lines.part(zone.chart, pyramid.children(nodes))

    def _done(self, box: _DualBox, rows: int) -> bool:
        """Return whether cutting the box would hardly leave fewer rows to look at."""
        part = box.part
        if rows <= self.few or box.depth >= _DEEPEST:
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
        if not self._hopeful(
            box.accepted + below, np.array(there), part.take(np.flatnonzero(crossing))
        ):
            return False
        self.loosest = max(self.loosest, rows / int(least))
        return True

    def _hopeful(self, accepted: IntArray, crossing: IntArray, part: Items) -> bool:
        """Return whether something in a box with these masses may be as good as the best known.

        What is a single point is accepted or not: heavy ones are tried either way.
        """
        if not self._bound.alive(accepted, crossing):
            return False
        points = np.flatnonzero((part.items < self.pyramid.cells) & (part.mass[-1] == 0))
        if len(points) == 0:
            return True
        mass = part.mass[:-1].take(points, axis=1)
        share = (mass / np.maximum(crossing, 1)[:, None]).max(axis=0)
        heavy = np.argsort(-share)[:_TRIED]
        return self._either_way(accepted, crossing, mass[:, heavy[share[heavy] > _HEAVY]].T)

    def _either_way(self, accepted: IntArray, crossing: IntArray, points: IntArray) -> bool:
        if len(points) == 0:
            return True
        rest = crossing - points[0]
        return any(
            self._bound.alive(start, rest) and self._either_way(start, rest, points[1:])
            for start in (accepted, accepted + points[0])
        )

    def _halves(self, box: _DualBox) -> Sequence[Zone]:
        """Cut a box in t where its lines drift apart, otherwise between edges of its items.

        Ranks decide, not means: a few rows far out must not tell where all others are cut. Items
        that reach beyond the box on both sides cross whatever is cut off, and do not count.
        """
        zone = box.zone
        first, last, first_w, last_w, _ = box.part.line
        # Some hundred items tell enough.
        some = slice(None, None, 1 + len(first) // _LOOKED_AT)
        rows = box.part.mass[-1, some]
        # Most rows of an item are at its inner end where tails are long.
        slope = np.clip(self._lines.typical[1 - zone.chart], first_w[some], last_w[some])
        width = zone.t[1] - zone.t[0]
        least, lean, most = _ranked(slope, rows, (0.02, 0.5, 0.98))
        drift = width * (most - least) + abs(width * lean - zone.tilt)
        if drift > zone.height:
            return cut_t(zone, zone.height / drift)
        t, ends = sum(zone.t) / 2, (sum(zone.low) / 2, sum(zone.high) / 2)
        edges = np.concatenate([first[some] + t * first_w[some], last[some] + t * last_w[some]])
        within = (edges > ends[0]) & (edges < ends[1])
        middle = _between(edges[within], np.tile(rows, 2)[within], ends)
        return cut_v(zone, lean * width, middle)


def _ranked(values: FloatArray, rows: IntArray, shares: Sequence[float]) -> list[float]:
    """Return the values below which these shares of the rows are."""
    order = np.argsort(values)
    total = np.cumsum(rows[order] + 1)
    places = np.searchsorted(total, np.array(shares) * total[-1])
    return [float(value) for value in values[order[np.minimum(places, len(order) - 1)]]]


def _between(edges: FloatArray, rows: IntArray, ends: tuple[float, float]) -> float:
    """Return a place between the edges of half of the rows and the next ones."""
    if len(edges) == 0:
        return sum(ends) / 2
    (half,) = _ranked(edges, rows, (0.5,))
    after = edges[edges > half]
    return (half + float(after.min() if len(after) else ends[1])) / 2


def survey(lines: Lines, bound: BoxJudge, zones: list[Zone], plan: StreamPlan) -> Survey:
    """Search finer and finer until no more boxes than planned can be expected to do."""
    boxes, most = 0, LONGER * plan.boxes
    everything = int(lines.pyramid.wanted[lines.pyramid.root])
    found: Survey | None = None
    begin: Sequence[Zone | Left] = zones
    for enough, share in zip(ROUNDS, FEW, strict=True):
        few = max(plan.few, int(share * everything))
        if found is not None and few == found.few and enough >= found.loosest:
            # This round would leave all boxes as they are.
            continue
        found = Survey(lines, bound, enough=enough, few=few, budget=most, before=found)
        # Where scores overflow their sums a cut is worse, never wrong.
        with np.errstate(over="ignore", invalid="ignore"):
            found.run(begin)
        boxes += found.boxes
        begin, rows = found.left, found.rows
        many = plan.plenty is not None and rows > plan.plenty
        most = LONGER * plan.boxes - boxes if many else plan.boxes
        dear = rows <= A_FEW_PER_CENT * everything and found.boxes * ROWS_A_BOX > rows
        if 3 * found.boxes > most or dear:
            break
    assert found is not None
    found.boxes = boxes
    return found


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
    pyramid: Pyramid,
    bound: BoxJudge,
    plan: StreamPlan,
    zones: Mapping[Signs, Sequence[Zone] | None],
) -> Opened:
    """Search some zones for each change of signs; None means all half-planes."""
    met, boxes = np.zeros(pyramid.root + 1, bool), 0
    left: dict[Signs, list[Zone]] = {}
    for signs, some in zones.items():
        lines = Lines(pyramid, signs)
        start = [lines.root(0), lines.root(1)] if some is None else list(some)
        found = survey(lines, bound, start, plan)
        left[signs] = found.zones
        boxes += found.boxes
        met |= found.met
    return Opened(pyramid, met, left, boxes)


# Strips of a score that are told apart at most: pairs of them are judged all at once.
_MOST_STRIPS = 1024


def find_box(
    stream: Streamed, program: Program, search: Exact
) -> tuple[Box | None, SearchCertificate]:
    """Return the best box over all rows of a source; None if none meets the bounds."""
    stream.layers.forget_finer()
    grid = stream.grid
    crossed = _crossed(stream, program, _strips(grid))
    # A cell of a single pair of scores is as good as its rows.
    wide: BoolArray = np.any(grid.low < grid.high, axis=1)
    fetched = crossed & wide
    stream.layers.check_size(int(grid.rows[fetched].sum()))
    rows = stream.layers.fetch(grid, fetched)
    alone, rest = grid.take(~wide), grid.take(wide & ~crossed)
    totals = stream.totals
    points = joined(
        [rows, _points(alone, stream), *first_and_last(rest.low, rest.high, rest.mass, totals)],
        totals,
    )
    return BoxFinder(stream.prepared(points)).find(program, search)


def _strips(grid: CellGrid) -> tuple[IntArray, IntArray]:
    """Return the strips that each cell is in; those without rows are left out."""
    found = []
    for place in (*grid.place, np.zeros(len(grid.key), np.int64))[:2]:
        _, strip = np.unique(place, return_inverse=True)
        several = -(-(int(strip.max(initial=0)) + 1) // _MOST_STRIPS)
        found.append(strip.reshape(-1) // several)
    return found[0], found[1]


def _crossed(stream: Streamed, program: Program, strips: tuple[IntArray, IntArray]) -> BoolArray:
    """Return the cells that boxes pass through which may be as good as the best known."""
    x, y = strips
    if len(x) == 0:
        return np.zeros(0, bool)
    shape = int(x.max()) + 1, int(y.max()) + 1
    mass = stream.grid.mass
    below = np.zeros((len(mass), shape[0] + 1, shape[1] + 1), np.int64)
    for table, row in zip(below, mass, strict=True):
        np.add.at(table, (x + 1, y + 1), row)
    np.cumsum(below, axis=1, out=below)
    np.cumsum(below, axis=2, out=below)
    low, high = (part.reshape(len(mass), -1) for part in (below[:, :-1, :-1], below[:, 1:, 1:]))
    found = [best_of(program, stream.layout, high)]
    if program.reject_all:
        found.append(known(program, 0, 0, 0))
    judge = BoxJudge(program, stream.measure.price, best_known(program, found), stream.layout)
    is_open = judge.alive_each(low, high - low).reshape(shape)
    up_to = [
        np.where(is_open, np.arange(shape[1]), -1).max(axis=1),
        np.where(is_open, np.arange(shape[0])[:, None], -1).max(axis=0),
    ]
    crossed: BoolArray = (y <= up_to[0][x]) | (x <= up_to[1][y])
    return crossed


def _points(cells: CellGrid, stream: Streamed) -> Points:
    """Return cells of a single pair of scores as points."""
    ood, groups = split_ood(cells.mass, len(stream.totals.ood))
    masses = cells.mass[ID], ood, cells.mass[LOSS]
    return Points(cells.low, *masses, stream.totals, of_groups=groups)
