"""A sample made ready for many searches: sorted once, for all models, bounds and weights.

Half-planes are searched by `Prepared.search`, boxes by `BoxFinder`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray, takes
from demur._kernels import reference
from demur._kernels.box_cells import AxisMasses
from demur._kernels.box_search import BoxOptima
from demur._kernels.engines import (
    EXACT,
    PLAIN,
    Chosen,
    Engine,
    Frame,
    Gap,
    Optima,
    Outcome,
    Ranges,
    Trail,
    engine,
)
from demur._kernels.exact import DOUBT, Goal, Linear
from demur._kernels.exact_walk import DoubtfulRows, is_confirmed, settled, settled_everywhere
from demur.core.points import Points, frame_of, ranges_of
from demur.core.program import ID, LOSS, OOD, Part, Program
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.tuning.result import Direction, DirectionSet, Exact, SearchCertificate, Status

FEW = 1500
"""Up to this many rows, looking at all pairs of them is faster than searching all bounds."""
LAZY = 5_000
"""From so many rows on, a tree that serves one search grows where it is looked at."""
MANY = 1_000_000
"""From so many on, most rows are merged before a search by engines whose trees do not grow so."""

# Lines times points that are counted without a tree.
_FEW_TO_COUNT = 100_000

_SMALLEST, _FARTHEST, _LARGEST = 1e-290, 1e290, 2.0**1022


@dataclass(slots=True, eq=False, repr=False)
class Prepared:
    """A sample with the search tree over its points; made by `prepare`.

    Examples
    --------
    >>> import demur as dm
    >>> sample = dm.Sample([[1, 3], [2, 1], [3, 2]], [0, 0, 1], [[3, 3]])
    >>> ready = dm.prepare(sample)  # sorted once, for many calls
    >>> [dm.tune(ready, dm.TprFprModel(tpr, 0.5)).point.selective_risk for tpr in (0.5, 1.0)]
    [0.0, 0.3333333333333333]
    """

    sample: Sample
    points: Points
    ood: str
    engine: Engine = field(repr=False)
    _trees: dict[tuple[Part, ...], Any] = field(default_factory=dict, repr=False)
    """By the parts of rows whose masses they have."""
    _spread: FloatArray | None = field(default=None, repr=False)
    _frame: Frame | None = field(default=None, repr=False)
    _ranges: Ranges | None = field(default=None, repr=False)
    """Of the scores, where they are known."""
    _for_one_call: bool = field(default=False, repr=False)
    """Whether one search has it for itself: then its tree grows where that search looks."""

    def __repr__(self) -> str:
        return f"Prepared({self.sample!r}, ood={self.ood!r})"

    @property
    def spread(self) -> FloatArray:
        """The 10-90 % range of each score over the ID rows, the unit of margins."""
        if self._spread is None:
            known = self.engine.tenths(self._any_tree()) if self._trees else None
            widths = [0.0] if known is None else [_width(*ends) for ends in known.tolist()]
            self._spread = np.array(widths)
            if not self._spread.all():
                self._spread = spread(self.points.scores, self.points.id)
        return self._spread

    @property
    def frame(self) -> Frame:
        """The coordinates that are searched."""
        if self._frame is None:
            self.check_sizes()
            self._frame = frame_of(self.points.scores, self._ranges)
        return self._frame

    def check_sizes(self) -> None:
        """Refuse two scores that no pair of float64 weights can bring to one scale."""
        ranges = self._ranges or ()
        sizes = sorted(size for low, high in ranges if (size := max(high, -low)) > 0)
        if len(ranges) < 2 or not sizes:
            return
        # Beyond half of what float64 holds, the range of a score, or a sum of two, is infinite.
        if sizes[0] < _SMALLEST or sizes[-1] > _LARGEST or sizes[-1] / sizes[0] > _FARTHEST:
            raise InvalidInputError(
                f"the largest scores are {sizes[0]:.3g} and {sizes[-1]:.3g} in size, which is "
                "beyond what weights in float64 can bring together; multiply the scores by powers "
                "of two first, which changes no accepted set"
            )

    def search(
        self,
        program: Program,
        allowed: DirectionSet,
        *,
        gap: float = 0.0,
        budget: int | None = None,
        start: FloatArray | None = None,
        trail: Trail | None = None,
    ) -> Outcome:
        """Return the optimal half-planes of two scores under `program`.

        `start` are directions to try first, shape (d, 2); a `trail` was recorded with other masses.
        """
        bounds = LinearParts.of(program, self.points)
        goal = goal_of(program, bounds.linear)

        def outcome_of(*, certain: bool) -> Outcome:
            return self.engine.search(
                self._grown(bounds.parts),
                allowed.quarters,
                goal,
                gap=gap,
                budget=budget,
                start=start,
                trail=trail,
                certain=certain,
            )

        outcome = outcome_of(certain=False)
        if not outcome.doubts and not outcome.unresolved and self._has_wide_gap(outcome):
            return outcome
        rows = self._doubtful_rows(bounds.parts)
        if not self.frame.whole and not is_confirmed(outcome, rows):
            outcome = outcome_of(certain=True)
        return settled(outcome, rows, goal)

    def _doubtful_rows(self, parts: tuple[Part, ...] = ()) -> DoubtfulRows:
        points = self.points
        masses = np.stack([points.id, points.loss, *points.ood, *map(points.part, parts)])
        present = masses.any(axis=0)
        return DoubtfulRows(points.scores[present], masses[:, present], self.frame)

    def _has_wide_gap(self, outcome: Outcome) -> bool:
        """Return whether rounding errors of no row reach across the gap of the first half-plane."""
        if len(outcome.v) == 0 or self.frame.whole:
            return True
        if self._ranges is None:
            self._ranges = ranges_of(self.points.scores)
        direction: Direction = (float(outcome.weights[0, 0]), float(outcome.weights[0, 1]))
        last, following = self.sides(direction, float(outcome.v[0]), direction)
        sizes = (max(high, -low) for low, high in self._ranges)
        largest = sum(abs(w) * size for w, size in zip(direction, sizes, strict=True))
        return bool(following - last > 2 * DOUBT * largest)

    def trail(
        self, program: Program, allowed: DirectionSet, start: FloatArray | None
    ) -> Trail | None:
        """Return what a search looks at, for `reweighted` ones; None where it is of no use."""
        bounds = LinearParts.of(program, self.points)
        return self.engine.trail(
            self._grown(bounds.parts),
            allowed.quarters,
            goal_of(program, bounds.linear),
            start=start,
        )

    def directions(self, program: Program, weights: FloatArray, *, each: bool = False) -> Optima:
        """Return the optimum of each direction, shape (d, 2), with scores weighed in float64.

        Unless `each`, only directions that attain the optimum of all are sure to have theirs; ID
        mass is 0 where there is none.
        """
        bounds = LinearParts.of(program, self.points)
        plain = self.frame.plain
        return self.engine.grid(
            self._grown(bounds.parts) if plain else self._tree_of(bounds.parts, PLAIN),
            weights,
            goal_of(program, bounds.linear),
            each=each,
        )

    @property
    def searches_all_bounds(self) -> bool:
        """Whether the engine can search for many pairs of bounds at once."""
        return self.engine.searches_all_bounds

    def all_bounds(
        self,
        allowed: DirectionSet,
        min_id: IntArray,
        max_ood: IntArray,
        *,
        gap: Gap = EXACT,
    ) -> Optima:
        """Return the half-planes with the least selective risk for every pair of bounds.

        `max_ood` bounds the OOD mass of all sets together. What float64 cannot take apart is left
        out, which `all_bounds_settled` looks at.
        """
        return self.engine.frontier(self._grown(), allowed.quarters, min_id, max_ood, gap=gap)

    def all_bounds_settled(
        self, allowed: DirectionSet, min_id: IntArray, max_ood: IntArray
    ) -> tuple[Optima, BoolArray]:
        """Return the same as `search` finds for each pair, and where that leaves something open."""
        found = self.engine.frontier(
            self._grown(), allowed.quarters, min_id, max_ood, with_doubts=True
        )
        if not found.doubts and (found.hope is None or np.isinf(found.hope).all()):
            return found, np.zeros(found.id.shape, bool)
        return settled_everywhere(found, self._doubtful_rows(), min_id, max_ood)

    def equal_fpr(self, allowed: DirectionSet, *, gap: float) -> Chosen:
        """Return the largest share of correct ID at every OOD mass; losses are 0 or 1 per mass."""
        points = self.points
        ood, correct = points.ood.sum(axis=0), points.id - points.loss
        wrong = points.loss[None]
        tree = self.engine.reweight(self._grown(), ood, wrong, correct, wrong)
        return self.engine.equal_fpr(tree, allowed.quarters, gap=gap)

    def equals(self, allowed: DirectionSet, masses: IntArray) -> tuple[IntArray, FloatArray] | None:
        """Return all half-planes that accept one of some masses (ID, OOD, loss), shape (n, 3).

        That is which, and their lines; None where they have to be searched for one by one.
        """
        return self.engine.equals(self._grown(), allowed.quarters, masses)

    def widest_line(
        self, direction: Direction, threshold: float, allowed: DirectionSet
    ) -> tuple[Direction, float]:
        """Return the direction of the widest gap, of those with the accepted set of a half-plane.

        And its width, in spreads.
        """
        half_plane = np.array(direction), threshold
        p, q, width = self.engine.widest(self._any_tree(), *half_plane, self.spread, allowed.nonneg)
        return (p, q), width

    def sides(
        self, direction: Direction, threshold: float, along: Direction
    ) -> tuple[float, float]:
        """Return the values `along` a direction next to the boundary of a half-plane.

        They are of the last accepted and the first rejected point.
        """
        half_plane = np.array(direction), threshold
        return self.engine.sides(self._any_tree(), *half_plane, np.array(along))

    def count(self, lines: FloatArray) -> IntArray:
        """Return the masses that lines (weights, threshold) accept, shape (lines, 2 + sets).

        These are ID, loss, and OOD of each set.
        """
        points = self.points
        few = points.scores.shape[1] == 1 or len(points.scores) * len(lines) <= _FEW_TO_COUNT
        if few and not self._trees:
            return counted_plainly(points, lines)
        return self.engine.count(self._grown(), lines)

    def settled(self, lines: FloatArray) -> FloatArray:
        """Return lines with unit weights and thresholds midway between the two sides.

        A line that float64 cannot bring to unit length without accepting other masses stays as
        it is.
        """
        settled, _ = self.engine.settle(self._grown(), lines)
        same = (self.count(settled) == self.count(lines)).all(axis=1)
        return np.where(same[:, None], settled, lines)

    def beside(self, lines: FloatArray) -> FloatArray:
        """Return the last accepted and the first rejected value of each line, shape (lines, 2)."""
        _, sides = self.engine.settle(self._grown(), lines)
        return sides

    def reweighted(self, points: Points, into: Prepared | None = None) -> Prepared:
        """Return the same rows with the masses of `points`, without sorting again.

        `into` is what this returned before and is of no use any more: its memory is taken.
        """
        masses = points.id, points.ood, points.loss
        room = None if into is None else into._trees.get(())
        tree = self.engine.reweight(self._any_tree(), *masses, into=room)
        return replace(self, points=points, _trees={(): tree}, _spread=self.spread)

    @property
    def is_grown(self) -> bool:
        """Whether there is a tree over all points already."""
        return bool(self._trees)

    def of_points(self, points: Points) -> Prepared:
        """Return other points, some of these or merged ones, in the coordinates of these."""
        return Prepared(
            self.sample, points, self.ood, self.engine, _spread=self.spread, _frame=self.frame
        )

    def _grown(self, parts: tuple[Part, ...] = ()) -> Any:
        """Return the tree, which is built when it is first needed, with the masses of parts."""
        if parts not in self._trees:
            if self._trees and not self._for_one_call:
                tree = self.engine.reweight(self._any_tree(), *self._masses(parts))
            else:
                tree = self._tree_of(parts, self.frame)
            # Many models may follow: only what any of them may ask for is kept.
            self._trees = {kept: t for kept, t in self._trees.items() if not kept} | {parts: tree}
        return self._trees[parts]

    def _tree_of(self, parts: tuple[Part, ...], frame: Frame) -> Any:
        masses = self._masses(parts)
        scores = self.points.scores
        lazily = self._for_one_call and len(scores) >= LAZY
        return self.engine.prepare(scores, *masses, frame=frame, lazily=lazily)

    def _masses(
        self, parts: tuple[Part, ...]
    ) -> tuple[IntArray, IntArray, IntArray, IntArray | None]:
        points = self.points
        return points.id, points.ood, points.loss, points.parts(parts)

    def _any_tree(self) -> Any:
        """Return a tree for what does not depend on masses."""
        return next(iter(self._trees.values())) if self._trees else self._grown()


class LinearParts(NamedTuple):
    """Linear bounds of a program as the kernels take them, and the parts they are about."""

    linear: Linear | None
    parts: tuple[Part, ...]

    @classmethod
    def of(cls, program: Program, points: Points) -> LinearParts:
        """Return the bounds; 0/1 losses need no masses apart to bound the risk."""
        if not program.linear:
            return cls(None, ())
        plain = points.is_zero_one()
        bounds = [
            (dict(bound.terms), _plain_hope(dict(bound.hope)) if plain else dict(bound.hope))
            for bound in program.linear
        ]
        named = {part for terms in bounds for part in (*terms[0], *terms[1])} - {ID, LOSS, OOD}
        parts = tuple(sorted(named, key=str))
        accepted, crossing = (ID, LOSS, OOD, *parts), (ID, LOSS, *parts)
        return cls(
            Linear(
                np.array([[terms.get(p, 0) for p in accepted] for terms, _ in bounds], np.int64),
                np.array([bound.least for bound in program.linear], np.int64),
                np.array([[hope.get(p, 0) for p in crossing] for _, hope in bounds], np.int64),
            ),
            parts,
        )


def _plain_hope(hope: dict[Part, int]) -> dict[Part, int]:
    """Return what crossing rows add at best if each has no loss, or as much as ID mass.

    Of these a bound on risk welcomes those without loss, unless it welcomes all.
    """
    found: dict[Part, int] = {}
    for part, coefficient in hope.items():
        if part.below is None or part.below[0] >= part.below[1]:
            found[Part(part.mass, part.of)] = coefficient
        elif part.mass == "id":
            found |= {Part("id", part.of): coefficient, Part("loss", part.of): -coefficient}
    return found


@takes(sample=Sample)
def prepare(sample: Sample, *, ood: Literal["pooled", "worst"] = "pooled") -> Prepared:
    """Sort `sample` once, for any number of calls of `tune` and `frontier`.

    Parameters
    ----------
    ood
        As in `tune`: whether the OOD sets are bounded together or each by itself.

    Examples
    --------
    >>> from demur import Sample, TprFprModel, prepare, tune
    >>> ready = prepare(Sample([[0, 1], [1, 0], [2, 2]], [0, 0, 1], [[3, 3]]))
    >>> [tune(ready, TprFprModel(share)).point.selective_risk for share in (0.6, 0.7)]
    [0.0, 0.3333333333333333]
    """
    return _prepared(sample, ood)


def _prepared(sample: Sample, ood: str) -> Prepared:
    _check_count(sample)
    points = Points.of(sample, ood)
    ranges = ranges_of(points.scores) if points.ranges is None else points.ranges
    return Prepared(sample, points, ood, engine(), _ranges=ranges)


def counted_plainly(points: Points, lines: FloatArray) -> IntArray:
    """Return what `Prepared.count` does, by one look at all rows for each line."""
    masses = np.vstack([points.id, points.loss, points.ood])
    return reference.count(points.scores, masses, lines)


def counted(sample: Sample, ood: str) -> Prepared:
    """Return a sample ready to be counted, on which nothing is searched for."""
    return Prepared(sample, Points.of(sample, ood), ood, engine())


def _check_count(sample: Sample) -> None:
    """Refuse more scores than a half-plane has, and say what makes two of them."""
    if sample.columns.count > 2:
        raise InvalidInputError(
            f"one or two scores are tuned, the sample has {sample.columns.count}: "
            "demur.learn.fit(sample) makes of them the two that decide (its result has .sample), "
            "demur.learn.tune_linear(sample, model) weighs all of them, sample.score(k) is one"
        )


def as_prepared(
    source: Sample | Prepared,
    ood: Literal["pooled", "worst"] | None,
    *,
    for_one_call: bool = False,
) -> Prepared:
    """Return `source` prepared, which it may be already, or else is `for_one_call`."""
    if isinstance(source, Sample):
        prepared = _prepared(source, ood or "pooled")
        prepared._for_one_call = for_one_call
        return prepared
    if ood is not None and ood != source.ood:
        raise InvalidInputError(f"the sample was prepared with ood={source.ood!r}, not {ood!r}")
    return source


def spread(scores: FloatArray, id_mass: IntArray) -> FloatArray:
    """Return the 10-90 % range of each score over the ID rows, falling back on the whole range."""
    rows = np.flatnonzero(id_mass)
    if len(rows) == 0:
        return np.ones(scores.shape[1])
    # ID rows come first, and mostly all have mass: then nothing needs to be copied.
    taken = slice(len(rows)) if rows[-1] == len(rows) - 1 else rows
    columns = zip(scores[taken].T, scores.T, strict=True)
    return np.array([_range(id_, id_mass[taken]) or _whole(all_) for id_, all_ in columns])


def _range(values: FloatArray, mass: IntArray) -> float:
    """Return the distance of the 10 % and the 90 % quantile; 0 if it is none or too large."""
    if mass.min() == mass.max():
        # Equal weights need a selection only: one rank after the other, which is several times
        # faster than both at once.
        ordered = values.copy()
        low, high = (max(0, -(-len(ordered) * tenths // 10) - 1) for tenths in (1, 9))
        ordered.partition(low)
        lower = float(ordered[low])
        ordered[low:].partition(high - low)
        upper = float(ordered[high])
    else:
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(mass[order])
        # Whole numbers, since masses are below 2**52.
        shares = np.array([1, 9]) * reached[-1]
        lower, upper = values[order[np.searchsorted(10 * reached, shares)]].tolist()
    return _width(lower, upper)


def _width(low: float, high: float) -> float:
    return high - low if math.isfinite(high - low) else 0.0


def _whole(values: FloatArray) -> float:
    width = float(values.max()) - float(values.min())
    return width if 0 < width < math.inf else 1.0


def goal_of(program: Program, linear: Linear | None = None) -> Goal:
    """Return objective and bounds as the kernels take them."""
    return Goal(
        np.array([program.loss, program.id, program.ood], np.int64),
        program.per_id,
        program.min_id,
        np.array(program.max_ood, np.int64),
        np.array(program.ratio, np.int64),
        linear,
    )


class Box(NamedTuple):
    """A box: accept doubts that are at most their limits; and what it accepts."""

    limits: tuple[float, ...]
    id: int
    ood: int
    loss: int
    width: float
    """By how much all limits can grow, in spreads, before the box accepts more."""


class BoxFinder:
    """Finds boxes among points, for any number of programs."""

    def __init__(self, prepared: Prepared) -> None:
        self._engine = prepared.engine
        self._points = prepared.points.present()
        self._prepared = prepared
        scores = self._points.scores
        if scores.shape[1] > 2:
            raise InvalidInputError(
                f'shape="box" takes one or two scores, got {scores.shape[1]}: choose two of them'
            )
        # Beside a score that is always 0 there is one limit to be found.
        self._pairs = (
            scores if scores.shape[1] == 2 else np.column_stack([scores, np.zeros(len(scores))])
        )

    def find(self, program: Program, search: Exact) -> tuple[Box | None, SearchCertificate]:
        """Return the best box, None if none meets the bounds, and how sure that is.

        Among boxes with the same masses the one wins whose limits can grow the most.
        """
        found = self._search(program, search)
        if not found.complete and len(found.limits) == 0 and not program.reject_all:
            raise InvalidInputError(
                f"the budget of {search.budget} boxes ended before any rule that meets the bounds "
                "was found or their infeasibility proven; raise budget"
            )
        boxes = self._distinct(found)
        bound = found.lower_bound
        if program.reject_all:
            bound = min(bound, 0.0)
            nothing = Box((-math.inf,) * self._points.scores.shape[1], 0, 0, 0, math.inf)
            if not boxes or self._is_worse(boxes[0], nothing, program):
                boxes = [nothing]
        best = min(boxes, key=lambda box: (-box.width, box.limits), default=None)
        lower = program.scale * bound + program.offset
        status: Status = "budget" if not found.complete else "gap" if search.gap else "optimal"
        return best, SearchCertificate(status, lower, found.cells)

    def _is_worse(self, box: Box, other: Box, program: Program) -> bool:
        nI, nO, L = (np.array([getattr(b, m) for b in (box, other)]) for m in ("id", "ood", "loss"))
        return 0 not in goal_of(program).best(nI, nO, L)

    def masses(self, program: Program, search: Exact) -> tuple[int, int, int] | None:
        """Return the ID, OOD and loss mass that the best box accepts; None if there is none."""
        found = self._search(program, search)
        if len(found.limits):
            return found.id, found.ood, found.loss
        return (0, 0, 0) if program.reject_all else None

    def _search(self, program: Program, search: Exact) -> BoxOptima:
        goal, masses = self._asked(program)
        gap = search.gap / program.scale
        return self._engine.limits(self._pairs, masses, goal, gap=gap, budget=search.budget)

    def _asked(self, program: Program) -> tuple[Goal, AxisMasses]:
        points = self._points
        bounds = LinearParts.of(program, points)
        zero_one = points.is_zero_one()
        return goal_of(program, bounds.linear), AxisMasses(
            points.id, points.ood, points.loss, points.parts(bounds.parts), zero_one
        )

    def _distinct(self, found: BoxOptima) -> list[Box]:
        """Return the boxes found, one for each accepted set, with limits in the middle."""
        left, scores = found.limits, self._points.scores.shape[1]
        unit = np.append(self._prepared.spread, 1.0)[:2]
        boxes: list[Box] = []
        while len(left):
            tight, wide, width = self._engine.box_margin(self._pairs, left[0], unit)
            limits = tuple(wide[:scores].tolist())
            boxes.append(Box(limits, found.id, found.ood, found.loss, width))
            # A box with the same masses that holds this one accepts the same rows.
            left = left[~(left >= tight).all(axis=1)]
        return boxes
