"""`tune` on a source: passes that count, and one that fetches a few rows.

1. An overview, and a sample. The sample's quantiles make bins, its optimum makes a few strips.
2. A histogram of cells, and exact operating points along the strips, the best of which is the
   *incumbent*: a feasible half-plane whose masses are known.
3. Branch and bound on the cells leaves boxes of half-planes that may be as good as the
   incumbent (`search`). The rows of the cells that these boxes cross are fetched. Where they are
   many, one more pass counts them in cells that fit these boxes better (`close_up`).
4. The engine that searches samples in memory searches the fetched rows and the corners of all
   other cells (`cells.cloud`), and one more pass counts what the rule it finds accepts.

Why the answer is the optimum over all rows. Take directions with two non-negative weights;
scores with changed signs serve the others. Call nI, nO, L what a half-plane H accepts of all
rows, and nI', nO', L' what it accepts of the cloud. A cell that is not fetched has its ID mass
at the corner accepted last, so nI' <= nI, and its OOD and loss mass at the corner accepted
first, so nO' >= nO and L' >= L, of all rows and of every group and set. Objective and bounds of
every `Program` get no better when nI falls or nO or L grow, and neither do the ties (larger nI,
smaller nO, smaller L). Hence

    (a)  no H is better on the cloud than on the rows.

Let H* be an optimal half-plane on the rows. It is at least as good as the incumbent, so it is in
a surviving box, and every cell it passes through was fetched. Other cells, and nodes of cells
that no box crosses, have both corners on the same side of H*. Hence

    (b)  H* is on the cloud what it is on the rows,

and by (a) nothing on the cloud is better: the engine finds the optimum of all rows. By (a) again
each half-plane it returns, being as good on the cloud as H*, is as good on the rows, and so has
the same nI and nO, and the same L if the objective counts it. That holds for every half-plane
with the same accepted points of the cloud, so also for the one with the widest margin. If the
engine finds no feasible half-plane on the cloud there is none on the rows.

What is accepted is decided on float64 values of the scores. Products and sums round
monotonically, so the side of both corners is the side of all rows between them in floats, too.

Cells of one score are intervals one after the other: every end of a cell is an exact operating
point, and the optimum is at such an end or inside a cell that may hold something better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from demur._arrays import BoolArray
from demur._kernels.engines import engine
from demur._kernels.numpy_engine.bounds import Best
from demur._kernels.numpy_engine.boxes import SIGNS
from demur.core.card import Card
from demur.core.fingerprint import sides_of
from demur.core.models import RejectionModel
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.core.rates import OperatingPoint, tally_point
from demur.core.rule import BoxRule, Rule
from demur.core.sample import Sample, likely_mistakes, warn_of_mistakes
from demur.core.source import Histogram, Measure, Overview, ScoreSource
from demur.errors import InfeasibleError, InvalidInputError
from demur.tuning.operating_points import Line
from demur.tuning.prepared import Box, Prepared, prepare, spread
from demur.tuning.result import (
    DIRECTION_SETS,
    Direction,
    DirectionSet,
    Exact,
    Grid,
    SearchCertificate,
    Shape,
    Tuning,
    grid_directions,
    infeasible_error,
    relaxed_programs,
    warn_of_units,
)
from demur.tuning.streamed.cells import (
    CellGrid,
    Layers,
    Layout,
    Pyramid,
    Signs,
    build,
    cloud,
    first_and_last,
    grid_of,
    joined,
    met_along,
    middle_points,
    no_points,
    table_of,
    turned,
)
from demur.tuning.streamed.close_up import CloseUp
from demur.tuning.streamed.plan import StreamPlan, as_sample, bins_for, guess
from demur.tuning.streamed.search import (
    BoxJudge,
    Lines,
    Opened,
    best_known,
    best_of,
    find_box,
    known,
    open_cells,
)
from demur.tuning.tune import (
    as_exact,
    best_line,
    how_sure,
    preferred,
    search_directions,
    search_one_score,
)

if TYPE_CHECKING:
    from demur.tuning.streamed.constant_score import FlatStream

# How often cells are cut into finer ones at most.
REFINEMENTS = 3

_NONNEG = DIRECTION_SETS["nonneg"]
# Nodes whose corners stand for all cells when a first incumbent is looked for, cells or nodes whose
# middles do, and boxes that are looked at for these.
_FIRST_LOOK = 100_000
_MIDDLES = 300_000
_NEAR_BOXES = 20_000


def tune_source(
    source: ScoreSource,
    model: RejectionModel,
    allowed: DirectionSet,
    search: Exact | Grid,
    *,
    ood: Literal["pooled", "worst"] = "pooled",
    plan: StreamPlan | None = None,
    shape: Shape = "half-plane",
) -> Tuning:
    """Return what `demur.tune` returns for the same rows in memory."""
    if model.every_set:
        ood = "worst"
    stream = _streamed(source, model, allowed, search, ood, plan, shape)
    model.check_rows(stream.totals)
    look = _looking(stream, allowed, shape)
    line, certificate = look(model.program(stream.totals), search)
    if line is None:
        raise _infeasible(stream, model, allowed, search, shape, look)
    for part in _told_apart(stream):
        warn_of_mistakes(part, model, stacklevel=4)
        if isinstance(search, Grid):
            drawn_part = prepare(part)
            swept = grid_directions(allowed, search.angles)
            warn_of_units(drawn_part.points.scores, drawn_part.spread, swept, stacklevel=4)
    rule = (
        BoxRule.of_limits(line.limits, source.columns)
        if isinstance(line, Box)
        else Rule.of_doubts(line.direction, line.threshold, source.columns)
    )
    point = _point(stream, rule, line, model)
    drawn = None if stream.sample is None else sides_of(stream.sample)
    card = Card.of_source(stream.overview, source.columns, drawn=drawn)
    return Tuning(
        replace(rule, card=card.tuned_for(model, point, ood=ood)),
        point,
        model,
        stream.totals,
        certificate,
    )


_Look = Callable[[Program, Exact | Grid], tuple[Line | Box | None, SearchCertificate]]


def _infeasible(
    stream: Streamed | FlatStream,
    model: RejectionModel,
    allowed: DirectionSet,
    search: Exact | Grid,
    shape: Shape,
    look: _Look,
) -> InfeasibleError:
    """Return the error that says what is attainable instead.

    That no rule meets the bounds is proven. What is attainable is searched for in one fetch of a
    few rows; where these would be many, the best that was counted is told instead.
    """
    near: dict[Program, Best] = {}
    if isinstance(stream, Streamed) and shape == "half-plane":
        near = stream.fetch_for(relaxed_programs(model, stream.totals), allowed)

    def find(program: Program) -> tuple[int, int, int] | None:
        if program in near:
            return near[program].id, near[program].ood, near[program].loss
        other, _ = look(program, Exact() if isinstance(search, Exact) else search)
        return None if other is None else (other.id, other.ood, other.loss)

    nothing = no_points(len(stream.source.score_names), stream.totals)
    causes = [mistake.text for part in _told_apart(stream) for mistake in likely_mistakes(part)]
    kind = "rule" if shape == "half-plane" else "box"
    return infeasible_error(model, nothing, find, causes=causes, kind=kind, about=bool(near))


def _looking(stream: Streamed | FlatStream, allowed: DirectionSet, shape: Shape) -> _Look:
    """Return what finds the best rule of a shape for a program."""
    if isinstance(stream, Streamed) and stream.directions is not None:
        return lambda program, _: stream.find_on_grid(program)
    if shape == "box" and isinstance(stream, Streamed):
        return lambda program, search: find_box(stream, program, as_exact(search))
    return lambda program, search: stream.find(program, allowed, as_exact(search))


def _streamed(
    source: ScoreSource,
    model: RejectionModel,
    allowed: DirectionSet,
    search: Exact | Grid,
    ood: Literal["pooled", "worst"],
    plan: StreamPlan | None,
    shape: Shape,
) -> Streamed | FlatStream:
    # What searches a single score instead makes use of what is below.
    from demur.tuning.streamed.constant_score import FlatStream, varying_score

    column = varying_score(source.overview())
    if isinstance(search, Grid):
        swept = grid_directions(allowed, search.angles)
        # Beside a score that never changes, that score alone takes all rows or none.
        if column is not None:
            swept = [one for one in swept if one[column]] or swept
        return Streamed(source, [model], allowed, ood=ood, plan=plan, directions=swept)
    if column is None or shape == "box":
        return Streamed(source, [model], allowed, ood=ood, plan=plan)
    return FlatStream(source, [model], allowed, column, ood=ood, plan=plan)


def _told_apart(stream: Streamed | FlatStream) -> list[Sample]:
    """Return drawn rows under the names and senses of their columns, if there are any."""
    rows, columns = stream.sample, stream.source.columns
    if rows is None:
        return []
    own, foreign = (np.isfinite(side).all(axis=1) for side in sides_of(rows))
    if not own.any():
        return []
    scores = columns.as_doubts(rows.id_scores[own]), columns.as_doubts(rows.ood_scores[foreign])
    named = {"score_names": columns.names, "confidence": columns.confidence}
    return [Sample(scores[0], rows.id_loss[own], scores[1], **named)]  # type: ignore[arg-type]


def _point(
    stream: Streamed | FlatStream, rule: Rule, line: Line | Box, model: RejectionModel
) -> OperatingPoint:
    """Return the rates of `rule`, counted once more over all rows."""
    measure = Measure.of(stream.overview, apart=True, grouped=True)
    tally = stream.source.tally(rule.for_doubts(stream.source.columns), measure)[None]
    counted, known = (tally.id, sum(tally.ood), tally.loss), (line.id, line.ood, line.loss)
    if counted[:2] != known[:2] or (model.program(stream.totals).loss and counted != known):
        raise InvalidInputError(
            "source: the rule found accepts (ID, OOD, loss) masses of "
            f"{known} by the rows seen first and {counted} by a last count: the data changed "
            "while they were read; tune on data that stay as they are"
        )
    return tally_point(tally, measure, stream.overview.sets, model=model)


class Streamed:
    """A source that was counted once, and can be searched for several programs."""

    def __init__(
        self,
        source: ScoreSource,
        models: Sequence[RejectionModel],
        allowed: DirectionSet,
        *,
        ood: Literal["pooled", "worst"] = "pooled",
        plan: StreamPlan | None = None,
        directions: Sequence[Direction] | None = None,
    ) -> None:
        self.source, self.ood, self.directions = source, ood, directions
        self.overview: Overview = source.overview()
        self.plan = plan or StreamPlan.of(
            self.overview.rows, len(source.score_names), source.memory
        )
        drawn = source.sample(self.plan.sample, seed=0)
        self.sample: Sample | None = as_sample(drawn, self.overview)
        measure = Measure.of(
            self.overview,
            # One set can only be told from the others if all are.
            apart=ood == "worst" or any(model.names_sets for model in models),
            grouped=any(bound.group for model in models for bound in model.bounds),
        )
        self.layout = Layout.of(measure)
        hints = [guess(self.sample, model, allowed, measure, ood, directions) for model in models]
        self.measure = replace(measure, price=max(hint.price for hint in hints))
        strips = [strip for hint in hints for strip in hint.strips]
        bins = bins_for(drawn, self.plan.bins)
        counted = source.histogram(bins, self.measure, strips=strips)
        totals = counted_totals(counted, self.overview, self.measure)
        self.totals = replace(totals, pooled=ood == "pooled" and len(totals.ood) > 1)
        self._profiles = counted.profiles
        self.grid = grid_of(counted, bins, 0)
        self.layers = Layers(source, self.measure, self.totals, self.plan, bins)
        self._scale = _spread(self.sample, len(source.score_names))
        # Cells that one of several searches counts are of no use to the others.
        self._alone = len(models) == 1
        plenty = self.plan.plenty if self._alone else None
        self._plenty = self.plan.fetched if plenty is None else plenty
        self._ahead: dict[Program, tuple[Best | None, BoxJudge, Opened]] = {}

    def find(
        self, program: Program, allowed: DirectionSet, search: Exact
    ) -> tuple[Line | None, SearchCertificate]:
        """Return the best line over all allowed directions; None if none meets the bounds."""
        self.layers.forget_finer()
        if len(self.source.score_names) == 1:
            return self._find_single(program)
        ahead = self._ahead.pop(program, None)
        best, bound, opened = ahead or self._opened(program, allowed, near=self._alone)
        if opened.rows > self._plenty:
            found = self._close_up().look(program, best, opened, self.layers.bins[0], search)
            if found is not None:
                return found
        return self._search(program, self._refined(opened, bound), search)

    def fetch_for(self, programs: Sequence[Program], allowed: DirectionSet) -> dict[Program, Best]:
        """Fetch in one pass what `find` will need for all of these.

        Where that would be more rows than `StreamPlan.rough`, nothing is fetched, and the best
        known of each is returned: strips, which were counted, passed by the optimum of a sample.
        """
        if len(self.source.score_names) == 1 or self.directions is not None:
            return {}
        self.layers.forget_finer()
        ahead = {program: self._opened(program, allowed, near=False) for program in programs}
        if not ahead:
            return {}
        all_opened = [opened for _, _, opened in ahead.values()]
        pyramid, marked = all_opened[0].pyramid, np.any([one.marked for one in all_opened], axis=0)
        rows = int(pyramid.wanted[: pyramid.cells][marked].sum())
        if self.plan.rough is not None and rows > self.plan.rough:
            return {program: best for program, (best, _, _) in ahead.items() if best is not None}
        self._ahead = ahead
        if rows <= min(self._plenty, self.plan.fetched):
            self.layers.fetch(pyramid.grid, marked)
        return {}

    def _opened(
        self, program: Program, allowed: DirectionSet, *, near: bool
    ) -> tuple[Best | None, BoxJudge, Opened]:
        """Return the best that is known, how it judges others, and the cells these may cross."""
        best = self._incumbent(program, allowed, near=near)
        bound = BoxJudge(program, self.measure.price, best, self.layout)
        opened = open_cells(
            build(self.grid), bound, self.plan, {SIGNS[q]: None for q in allowed.quarters}
        )
        return best, bound, opened

    def find_on_grid(self, program: Program) -> tuple[Line | None, SearchCertificate]:
        """Return the best line over the directions of a grid; None if none meets the bounds.

        As `find`, but a box of half-planes is one direction, and the best known is of one of them.
        """
        self.layers.forget_finer()
        by_signs = _by_signs(self.directions or ())
        found = [best_of(program, self.layout, table_of(profile)) for profile in self._profiles]
        if not any(found):
            found = [self._corners(program, *one) for one in by_signs.items()]
        found += [known(program, 0, 0, 0)] if program.reject_all else []
        bound = BoxJudge(program, self.measure.price, best_known(program, found), self.layout)
        pyramid = build(self.grid)
        zones = {
            signs: [Lines(pyramid, signs).along(direction) for direction in turned_]
            for signs, turned_ in by_signs.items()
        }
        opened = self._refined(open_cells(pyramid, bound, self.plan, zones), bound)
        rows = self.layers.fetch(opened.pyramid.grid, opened.marked)
        lines = []
        for signs, turned_ in by_signs.items():
            points = cloud(opened.pyramid, opened.met, rows, signs, self.totals)
            line = search_directions(self.prepared(points), program, turned_)
            if line is not None:
                lines.append(turned(line, signs))
        return preferred(lines, program), SearchCertificate("grid")

    def _search(
        self, program: Program, opened: Opened, search: Exact
    ) -> tuple[Line | None, SearchCertificate]:
        """Fetch the rows of marked cells, and search them."""
        rows = self.layers.fetch(opened.pyramid.grid, opened.marked)
        lines, outcomes = [], []
        for signs in opened.zones:
            points = cloud(opened.pyramid, opened.met, rows, signs, self.totals)
            line, outcome = best_line(self.prepared(points), program, _NONNEG, search)
            outcomes.append(outcome)
            if line is not None:
                lines.append(turned(line, signs))
        best = preferred(lines, program)
        certificate = how_sure(program, best, outcomes)
        return best, replace(certificate, boxes=certificate.boxes + opened.boxes)

    def _find_single(self, program: Program) -> tuple[Line | None, SearchCertificate]:
        points = one_score_points(self.grid, self.layers, program)
        line = search_one_score(points, program)
        value = math.nan
        if line is not None:
            value = program.scale * program.value(line.id, line.ood, line.loss) + program.offset
        return line, SearchCertificate("optimal", value)

    def _refined(self, opened: Opened, bound: BoxJudge) -> Opened:
        """Cut marked cells into finer ones until their rows can be held."""
        for _ in range(REFINEMENTS):
            if opened.rows <= self.plan.fetched:
                break
            pyramid = build(self.layers.refine(opened.pyramid.grid, opened.marked))
            again = open_cells(pyramid, bound, self.plan, opened.zones)
            opened = again._replace(boxes=opened.boxes + again.boxes)
        self.layers.check_size(opened.rows)
        return opened

    def _incumbent(self, program: Program, allowed: DirectionSet, *, near: bool) -> Best | None:
        """Return the best operating point known; it is feasible, and no better than it says."""
        found = [best_of(program, self.layout, table_of(profile)) for profile in self._profiles]
        if not any(found) and near:
            found = [self._near_look(program, allowed)]
        if not any(found):
            found = [self._corner_look(program, quarter) for quarter in allowed.quarters]
        if program.reject_all:
            found.append(known(program, 0, 0, 0))
        return best_known(program, found)

    def _corner_look(self, program: Program, quarter: int) -> Best | None:
        """Return the best half-plane on the corners of cells, which look no better than rows."""
        found = self._coarse(SIGNS[quarter]).search(program, _NONNEG)
        return known(program, found.id, found.ood, found.loss) if len(found.v) else None

    def _near_look(self, program: Program, allowed: DirectionSet) -> Best | None:
        """Return the best near the half-plane that is best if all rows are amid their cells.

        The rows there are fetched. Where several bounds bind, what is best on a sample seldom
        meets them on all rows, and corners are far from the best: a poor incumbent costs many
        times these rows.
        """
        pyramid = build(self.grid)
        middles = middle_points(pyramid, _level(pyramid, _MIDDLES), self.totals)
        likely = self.prepared(middles).search(program, allowed, budget=_NEAR_BOXES)
        if len(likely.v) == 0 or math.isinf(likely.v[0]):
            return None
        x, y = likely.weights[0].tolist()
        signs = (-1 if x < 0 else 1, -1 if y < 0 else 1)
        met = met_along(pyramid, signs, (abs(x), abs(y)), float(likely.v[0]))
        marked = met[: pyramid.cells] & (pyramid.wanted[: pyramid.cells] > 0)
        if int(pyramid.wanted[: pyramid.cells][marked].sum()) > min(
            self._plenty, self.plan.fetched
        ):
            return None
        rows = self.layers.fetch(pyramid.grid, marked)
        points = cloud(pyramid, met, rows, signs, self.totals)
        found = self.prepared(points).search(program, _NONNEG)
        return known(program, found.id, found.ood, found.loss) if len(found.v) else None

    def _corners(
        self, program: Program, signs: Signs, directions: Sequence[Direction]
    ) -> Best | None:
        """Return the same for some directions."""
        line = search_directions(self._coarse(signs), program, directions)
        return None if line is None else known(program, line.id, line.ood, line.loss)

    def _coarse(self, signs: Signs) -> Prepared:
        """Return corners of cells that stand for all rows."""
        pyramid = build(self.grid)
        level = _level(pyramid, _FIRST_LOOK)
        met = np.arange(pyramid.root + 1) >= pyramid.level[level + 1]
        if level == len(pyramid.level) - 2:
            met[:] = False
        nothing = no_points(2, self.totals)
        return self.prepared(cloud(pyramid, met, nothing, signs, self.totals))

    def _close_up(self) -> CloseUp:
        sample = self.sample
        drawn = (
            np.empty((0, 2)) if sample is None else np.vstack([sample.id_doubts, sample.ood_doubts])
        )
        return CloseUp(
            *(self.source, self.overview, self.measure, self.totals, self.plan),
            drawn[np.isfinite(drawn).all(axis=1)] + 0.0,
            self.prepared,
        )

    def prepared(self, points: Points) -> Prepared:
        """Return points ready to be searched."""
        sample = self.sample or Sample(np.zeros((1, 2)), np.zeros(1))
        return Prepared(sample, points, self.ood, engine(), _spread=self._scale)


def _level(pyramid: Pyramid, most: int) -> int:
    """Return the finest level that has no more items."""
    return int(np.argmax(np.diff(pyramid.level) <= most))


def _by_signs(directions: Sequence[Direction]) -> dict[Signs, list[Direction]]:
    """Return directions by their signs, and without them."""
    found: dict[Signs, list[Direction]] = {}
    for direction in directions:
        signs = tuple(-1 if weight < 0 else 1 for weight in direction)
        found.setdefault((signs[0], signs[1]), []).append((abs(direction[0]), abs(direction[1])))
    return found


def counted_totals(counted: Histogram, overview: Overview, measure: Measure) -> Totals:
    """Return the masses of all rows, those with infinite scores included."""
    ood_rows, columns = sum(overview.ood_rows), 2 + measure.columns
    parts = [counted.id, counted.loss, *counted.ood]
    parts += [] if counted.groups is None else list(counted.groups)
    whole = [int(part.sum()) + extra for part, extra in zip(parts, counted.infinite, strict=True)]
    return Totals(
        id=whole[0],
        ood=tuple(whole[2:columns]),
        loss=whole[1],
        id_exponent=measure.id_exponent,
        ood_exponent=measure.ood_exponent,
        loss_exponent=measure.loss_exponent,
        id_rounding=overview.id_rows if counted.inexact[0] else 0,
        ood_rounding=ood_rows if counted.inexact[1] else 0,
        loss_rounding=overview.id_rows if measure.loss_exponent else 0,
        groups=tuple(zip(measure.groups, whole[columns:], strict=False)),
        sets=tuple(zip(measure.sets, whole[2:columns], strict=False)),
    )


def _spread(sample: Sample | None, scores: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if sample is None:
        return np.ones(scores)
    points = Points.of(sample)
    return spread(points.scores, points.id)


def one_score_points(grid: CellGrid, layers: Layers, program: Program) -> Points:
    """Return points whose best threshold is the best of all rows, refining cells if need be."""
    price = layers.measure.price
    layout = Layout.of(layers.measure)
    marked = _mark_one(grid, program, price, layout)
    for _ in range(REFINEMENTS):
        if int(grid.rows[marked].sum()) <= layers.plan.fetched:
            break
        grid = layers.refine(grid, marked)
        marked = _mark_one(grid, program, price, layout)
    layers.check_size(int(grid.rows[marked].sum()))
    return points_of_one(grid, marked, layers.fetch(grid, marked), layers.totals)


def _mark_one(grid: CellGrid, program: Program, price: float, layout: Layout) -> BoolArray:
    """Return which cells may hold the optimum inside."""
    order = np.argsort(grid.low[:, 0], kind="stable")
    total = np.cumsum(grid.mass[:, order], axis=1)
    found = [best_of(program, layout, total)]
    found += [known(program, 0, 0, 0)] if program.reject_all else []
    return mark_cells(grid, BoxJudge(program, price, best_known(program, found), layout))


def mark_cells(grid: CellGrid, bound: BoxJudge) -> BoolArray:
    """Return which cells of one score may hold something as good as the best known inside."""
    order = np.argsort(grid.low[:, 0], kind="stable")
    mass = grid.mass[:, order]
    before = np.cumsum(mass, axis=1) - mass
    marked = np.zeros(len(order), bool)
    for place in np.flatnonzero((grid.low < grid.high)[order, 0]):
        marked[order[place]] = bound.alive(before[:, place], mass[:, place])
    return marked


def points_of_one(grid: CellGrid, marked: BoolArray, rows: Points, totals: Totals) -> Points:
    """Return the rows of marked cells, and both ends of every other cell.

    As with two scores, ID mass is put at the end accepted last, OOD and loss mass at the other.
    """
    rest = grid.take(~marked)
    return joined([rows, *first_and_last(rest.low, rest.high, rest.mass, totals)], totals)
