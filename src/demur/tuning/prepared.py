"""A sample made ready for many searches: sorted once, for all models, bounds and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from demur._arrays import FloatArray, IntArray, takes
from demur._kernels.engines import Engine, Optima, Outcome, engine
from demur.core.points import Points
from demur.core.program import Program
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.tuning.directions import Direction, DirectionSet

FEW = 1500
"""Up to this many rows, looking at all pairs of them is faster than searching all bounds."""

_SMALLEST, _FARTHEST = 1e-290, 1e290


@dataclass(slots=True, eq=False)
class Prepared:
    """A sample with the search tree over its points; made by `prepare`."""

    sample: Sample
    points: Points
    ood: str
    _engine: Engine = field(repr=False)
    _tree: Any = field(default=None, repr=False)
    _spread: FloatArray | None = field(default=None, repr=False)

    @property
    def spread(self) -> FloatArray:
        """The 10-90 % range of each score over the ID rows, the unit of margins."""
        if self._spread is None:
            self._spread = spread(self.points.scores, self.points.id)
        return self._spread

    def search(
        self,
        program: Program,
        allowed: DirectionSet,
        *,
        gap: float = 0.0,
        budget: int | None = None,
        start: FloatArray | None = None,
    ) -> Outcome:
        """Return the optimal half-planes of two scores under `program`.

        `start` are directions to try first, shape (d, 2).
        """
        return self._engine.search(
            self._grown(),
            allowed.quarters,
            *kernel_arguments(program),
            gap=gap,
            budget=budget,
            start=start,
        )

    def directions(self, program: Program, weights: FloatArray) -> IntArray:
        """Return ID, OOD and loss mass of the optimum of each direction, shape (d, 3).

        Only directions that attain the optimum of all are sure to have theirs; ID mass is 0
        where there is none.
        """
        best = self._engine.grid(self._grown(), weights, *kernel_arguments(program))
        return np.column_stack([best.id, best.ood, best.loss])

    @property
    def searches_all_bounds(self) -> bool:
        """Whether the engine can search for many pairs of bounds at once."""
        return self._engine.searches_all_bounds

    def all_bounds(self, allowed: DirectionSet, min_id: IntArray, max_ood: IntArray) -> Optima:
        """Return the half-planes with the least selective risk for every pair of bounds.

        `max_ood` bounds the OOD mass of all sets together.
        """
        return self._engine.frontier(self._grown(), allowed.quarters, min_id, max_ood)

    def widest_line(
        self, direction: Direction, threshold: float, allowed: DirectionSet
    ) -> tuple[Direction, float]:
        """Return the direction of the widest gap, of those with the accepted set of a half-plane.

        And its width, in spreads.
        """
        half_plane = np.array(direction), threshold
        p, q, width = self._engine.widest(self._grown(), *half_plane, self.spread, allowed.nonneg)
        return (p, q), width

    def sides(
        self, direction: Direction, threshold: float, along: Direction
    ) -> tuple[float, float]:
        """Return the values `along` a direction next to the boundary of a half-plane.

        They are of the last accepted and the first rejected point.
        """
        half_plane = np.array(direction), threshold
        return self._engine.sides(self._grown(), *half_plane, np.array(along))

    def reweighted(self, points: Points) -> Prepared:
        """Return the same rows with the masses of `points`, without sorting again."""
        tree = self._engine.reweight(self._grown(), points.id, points.ood, points.loss)
        return replace(self, points=points, _tree=tree, _spread=self.spread)

    def _grown(self) -> Any:
        """Return the tree, which is built when it is first needed."""
        points = self.points
        if self._tree is None:
            self._tree = self._engine.prepare(points.scores, points.id, points.ood, points.loss)
        return self._tree


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
    points = Points.of(sample, ood)
    _check_sizes(points.scores)
    return Prepared(sample, points, ood, engine())


def _check_sizes(scores: FloatArray) -> None:
    """Refuse two scores that no pair of float64 weights can bring to one scale."""
    if scores.shape[1] == 1 or len(scores) == 0:
        return
    # Column by column: reductions over the short axis of pairs are slow.
    sizes = np.array([max(column.max(), -column.min()) for column in scores.T])
    sizes = sizes[sizes > 0]
    if len(sizes) and (sizes.min() < _SMALLEST or sizes.max() / sizes.min() > _FARTHEST):
        raise InvalidInputError(
            f"the largest scores are {sizes.min():.3g} and {sizes.max():.3g} in size, which is "
            "beyond what weights in float64 can bring together; multiply the scores by powers of "
            "two first, which changes no accepted set"
        )


def as_prepared(source: Sample | Prepared, ood: Literal["pooled", "worst"] | None) -> Prepared:
    """Return `source` prepared, which it may be already."""
    if isinstance(source, Sample):
        return _prepared(source, ood or "pooled")
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
        # Equal weights need a selection only.
        low, high = (max(0, -(-len(values) * tenths // 10) - 1) for tenths in (1, 9))
        # One at a time: NumPy selects two at once much more slowly.
        values = values.copy()
        values.partition(low)
        values[low:].partition(high - low)
        lower, upper = float(values[low]), float(values[high])
    else:
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(mass[order])
        shares = np.array([1, 9]) * (int(reached[-1]) / 10)
        lower, upper = values[order[np.searchsorted(reached, shares)]].tolist()
    return upper - lower if math.isfinite(upper - lower) else 0.0


def _whole(values: FloatArray) -> float:
    width = float(values.max()) - float(values.min())
    return width if 0 < width < math.inf else 1.0


def kernel_arguments(
    program: Program,
) -> tuple[np.ndarray[Any, Any], bool, int, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return objective and bounds as the kernels take them."""
    return (
        np.array([program.loss, program.id, program.ood], np.int64),
        program.per_id,
        program.min_id,
        np.array(program.max_ood, np.int64),
        np.array(program.ratio, np.int64),
    )
