"""A sample made ready for many searches: sorted once, for all models, bounds and weights."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels.engines import Engine, Outcome, engine
from demur.core.points import Points
from demur.core.program import Program
from demur.core.sample import Sample
from demur.core.scores import combine
from demur.errors import InvalidInputError
from demur.tuning.charts import DirectionSet
from demur.tuning.margin import Line, sides, spread, widest_line
from demur.tuning.settle import Rules

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

    def directions(self, program: Program, weights: FloatArray) -> IntArray | None:
        """Return ID, OOD and loss mass of the optimum of each direction, shape (d, 3).

        Only directions that attain the optimum of all are sure to have theirs. None where the
        engine has nothing better than sorting along each direction.
        """
        grid = getattr(self._engine, "grid", None)
        if grid is None:
            return None
        best = grid(self._grown(), weights, *kernel_arguments(program))
        return np.column_stack([best.id, best.ood, best.loss])

    @property
    def searches_all_bounds(self) -> bool:
        """Whether the engine can search for many pairs of bounds at once."""
        return hasattr(self._engine, "frontier")

    def all_bounds(
        self, allowed: DirectionSet, min_id: IntArray, max_ood: IntArray
    ) -> tuple[Rules, IntArray] | None:
        """Return the rules that are best for some pair of bounds, and which one for each.

        None where the engine has no search over all bounds at once, or cannot bound several
        OOD sets.
        """
        frontier = getattr(self._engine, "frontier", None)
        if frontier is None or len(max_ood) > 1:
            return None
        best = frontier(self._grown(), allowed.quarters, min_id, max_ood[0])
        able = np.flatnonzero(best.id > 0)
        lines = np.column_stack([best.weights.reshape(-1, 2), best.v.ravel()])[able]
        # A half-plane was found for one accepted set, so that its line tells rules apart.
        keys = np.ascontiguousarray(lines).view(np.dtype((np.void, lines.strides[0]))).ravel()
        _, first, rules = np.unique(keys, return_index=True, return_inverse=True)
        index = np.full(best.id.shape, -1)
        index.flat[able] = rules
        masses = (mass.ravel()[able[first]] for mass in (best.id, best.ood, best.loss))
        return Rules(next(masses), next(masses), next(masses), lines[first]), index

    def widest_line(
        self, direction: tuple[float, float], threshold: float, allowed: DirectionSet
    ) -> Line:
        """Return the line with the widest gap, of those with the accepted set of a half-plane."""
        if not hasattr(self._engine, "widest"):
            scores, accepted = self._sides_of(direction, threshold)
            return widest_line(scores, accepted, direction, self.spread, allowed)
        nonneg = allowed.risk_nonneg, allowed.ood_nonneg
        half_plane = np.array(direction), threshold
        *wide, width = self._engine.widest(self._grown(), *half_plane, self.spread, nonneg)
        return Line((wide[0], wide[1]), width)

    def sides(
        self, direction: tuple[float, float], threshold: float, along: tuple[float, float]
    ) -> tuple[float, float]:
        """Return the values `along` a direction next to the boundary of a half-plane.

        They are of the last accepted and the first rejected point.
        """
        if not hasattr(self._engine, "sides"):
            return sides(*self._sides_of(direction, threshold), along)
        half_plane = np.array(direction), threshold
        last, following = self._engine.sides(self._grown(), *half_plane, np.array(along))
        return float(last), float(following)

    def _sides_of(
        self, direction: tuple[float, float], threshold: float
    ) -> tuple[FloatArray, BoolArray]:
        """Return the points with mass and which of them a half-plane accepts."""
        scores = self.points.present().scores
        return scores, combine(direction, scores) <= threshold

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
        return prepare(source, ood=ood or "pooled")
    if ood is not None and ood != source.ood:
        raise InvalidInputError(f"the sample was prepared with ood={source.ood!r}, not {ood!r}")
    return source


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
