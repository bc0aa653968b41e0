"""What an engine takes and offers, and which one searches: the compiled one when it was built.

The environment variable ``DEMUR_ENGINE`` (``compiled`` or ``numpy``) forces one.
"""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from demur._kernels.box_cells import AxisMasses
from demur._kernels.box_search import BoxMargin, BoxOptima
from demur._kernels.exact import Goal
from demur.errors import InvalidInputError

VARIABLE = "DEMUR_ENGINE"
NAMES = ("compiled", "numpy")

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

BLOCK = 8192
"""Rows that are looked at together: what lies between stays in the cache."""

Status = Literal["optimal", "gap", "budget", "unresolved", "infeasible"]


Ranges = list[tuple[float, float]]
"""The smallest and the largest value of each column."""


def midway(last: Any, following: Any) -> Any:
    """Return thresholds midway between two values each, the first where there is no other.

    A second value of +inf, or one so close that float64 has nothing between, gives the first.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        middle = last + (following - last) / 2
    return np.where((last <= middle) & (middle < following), middle, last)[()]


class Frame(NamedTuple):
    """In which coordinates two scores are searched: without offsets, decimals as whole numbers.

    Scores are ``(point + shift) / divisor``, correctly rounded, of the points searched.

    Scores in steps of 0.1 are not what float64 holds: three of them on a line are not on a line in
    float64, and a search would find accepted sets that hang on the last bit. Where the values of
    both columns are decimals (or dyadic fractions) with not too many digits, what is searched are
    the whole numbers they stand for. All accepted sets then have gaps much wider than rounding
    errors: on a lattice of R steps a point keeps a distance of at least 1/(R*sqrt(2)) from any
    line through two others.

    Elsewhere an offset that is large compared to the spread of a column is taken out, which is
    exact and leaves the digits for what varies.
    """

    shift: tuple[float, float] = (0.0, 0.0)
    divisor: tuple[float, float] = (1.0, 1.0)
    whole: bool = False
    """Whether all points are whole numbers, few enough that every accepted set has a wide gap."""

    @property
    def plain(self) -> bool:
        """Whether points are the scores."""
        return self.shift == (0.0, 0.0) and self.divisor == (1.0, 1.0)

    @property
    def numbers(self) -> _Floats:
        """The frame as the compiled engine takes it."""
        return np.array([*self.shift, *self.divisor, self.whole])

    def points(self, scores: _Floats) -> _Floats:
        """Return the points of scores, shape (n, 2)."""
        if self.plain:
            return scores
        points = np.empty(scores.shape)
        # Column by column, as NumPy is slow with rows of two.
        for column, shift, divisor in zip(range(2), self.shift, self.divisor, strict=True):
            for start in range(0, len(scores), BLOCK):
                moved = scores[start : start + BLOCK, column] * divisor
                moved -= shift
                if self.whole:
                    # Last, since a column that never changes may be shifted by any number.
                    np.rint(moved, out=moved)
                points[start : start + BLOCK, column] = moved
        return points

    def scores(self, points: _Floats) -> _Floats:
        """Return the scores of points, shape (..., 2)."""
        return np.asarray((points + np.array(self.shift)) / np.array(self.divisor))

    def weights(self, weights: _Floats) -> _Floats:
        """Return weights of points as weights of scores, the larger of them 1 in size."""
        scaled = weights * np.array(self.divisor)
        return np.asarray(scaled / np.abs(scaled).max(axis=-1, keepdims=True))


PLAIN = Frame()


class Doubt(NamedTuple):
    """A box of half-planes that float64 cannot take apart, in the engine's coordinates.

    A point is the line ``unit*p + t*step*q``, p being its coordinate `still` and q the other, and
    a half-plane (t, v) accepts the lines at or below it.
    """

    still: int
    unit: float
    step: float
    t: tuple[float, float]
    low: tuple[float, float]
    high: tuple[float, float]
    points: _Floats
    """Those whose lines cross the box, shape (k, 2)."""
    masses: _Ints
    """ID, loss, OOD of each set and extra mass of these, shape (k, 2 + sets + extra)."""
    below: _Ints
    """The same of all points whose lines pass below the box."""
    merit: float
    """What the objective cannot fall below in the box."""


class Outcome(NamedTuple):
    """All half-planes found to be optimal: accept when ``weights . scores <= v``."""

    weights: _Floats
    """Weights of the two scores, shape (m, 2); the larger is 1 in size."""
    v: _Floats
    id: int
    ood: int
    loss: int
    status: Status
    lower_bound: float
    """No half-plane has a smaller objective."""
    boxes: int
    unresolved: int
    """How many boxes nothing could take apart; `lower_bound` covers them."""
    doubts: tuple[Doubt, ...] = ()
    """Boxes that may hold something better, to be looked at exactly; nothing else covers them."""
    lost: tuple[tuple[int, int, int], ...] = ()
    """Better masses (ID, OOD, loss) that half-planes accept, but no float64 rule that was tried;
    `lower_bound` covers them."""


class Optima(NamedTuple):
    """Masses and thresholds of optimal half-planes; `id` is 0 where there is none."""

    id: _Ints
    ood: _Ints
    loss: _Ints
    weights: _Floats
    v: _Floats
    doubts: tuple[Doubt, ...] = ()
    """Of all pairs of bounds: boxes that may hold something better, to be looked at exactly."""
    hope: _Floats | None = None
    """What the risk cannot fall below in boxes that were given up, at the tightest bounds that one
    of their sets may meet."""


class Gap(NamedTuple):
    """By how much the best may be better than what is returned."""

    risk: float = 0.0
    """In units of loss mass per ID mass."""
    id: float = 0.0
    """ID mass, where nothing has a loss: it is that of the best, but for `id`, ..."""
    ood: int = 0
    """... at bounds that are smaller by this OOD mass."""


EXACT = Gap()


class Chosen(NamedTuple):
    """Half-planes chosen at each OOD mass, an entry each; `rate` is -1 where there is none."""

    rate: _Floats
    ood: _Ints
    correct: _Ints
    wrong: _Ints
    weights: _Floats
    v: _Floats


class ScalarMetrics(Protocol):
    """All scalar metrics of one score in one pass."""

    def __call__(
        self, correct: _Floats, wrong: _Floats, ood: _Floats, *, prior: float, min_id: int
    ) -> dict[str, float]:
        """Return the metrics, given the ascending scores of three kinds of rows."""


class RowPasses(Protocol):
    """Passes over all rows of two scores, in which several things are done at once."""

    def copy_scores(
        self, scores: _Floats, signs: tuple[float, ...], into: _Floats
    ) -> Ranges | None:
        """Copy columns, each multiplied by its sign, with 0 for -0, and return their ranges.

        None if some scores are not finite.
        """

    def tally(
        self,
        scores: _Floats,
        direction: tuple[float, ...],
        threshold: float,
        masses: tuple[_Ints, _Ints, _Ints],
        *,
        closed: bool,
    ) -> list[int]:
        """Return the ID mass, the loss and the OOD mass of each set that a half-plane accepts.

        Rows on the threshold are accepted if it is `closed`, none if it is -inf.
        """


class Trail(NamedTuple):
    """The boxes of one search, as the engine that recorded them has them."""

    steps: _Ints
    items: npt.NDArray[np.int32]
    points: int
    """Of the tree, and its nodes."""
    nodes: int


NO_TRAIL = Trail(np.empty(0, np.int64), np.empty(0, np.int32), 0, 0)


class Engine(Protocol):
    """What every engine offers; a tree belongs to the engine that built it.

    Masses are int64 with totals below 2**52. Engines check nothing.
    """

    @property
    def searches_all_bounds(self) -> bool:
        """Whether `frontier` is a single search, however many bounds it is asked for.

        Where it is not, many bounds are better served by looking at all operating points.
        """

    @property
    def grows_lazily(self) -> bool:
        """Whether a tree that is prepared `lazily` costs less, where much of it never matters."""

    @property
    def metrics(self) -> ScalarMetrics | None:
        """Scalar metrics of one score; None where the formulas of `demur.metrics` are as fast."""

    @property
    def passes(self) -> RowPasses | None:
        """Passes over all rows; None where what `demur.core` does in NumPy is as fast."""

    def prepare(
        self,
        scores: _Floats,
        id: _Ints,
        ood: _Ints,
        loss: _Ints,
        extra: _Ints | None = None,
        *,
        frame: Frame = PLAIN,
        lazily: bool = False,
    ) -> Any:
        """Build the tree over scores (n, 2) with masses id (n,), ood (sets, n) and loss (n,).

        `extra`, shape (extra, n), are parts of these masses that linear bounds are about. What is
        searched are the points of a frame; half-planes that come in or go out are about scores.
        A tree that is built `lazily`, which engines may ignore, belongs to one caller at a time
        and is good for everything but `frontier` and `reweight`.
        """

    def tenths(self, tree: Any) -> _Floats | None:
        """Return where a tenth and nine tenths of the ID mass are reached along each score.

        These are the smallest scores up to which there is so much, shape (scores, 2); None where
        the tree does not know.
        """

    def reweight(
        self,
        tree: Any,
        id: _Ints,
        ood: _Ints,
        loss: _Ints,
        extra: _Ints | None = None,
        *,
        into: Any = None,
    ) -> Any:
        """Give the same rows other masses, some of which may be zero, without sorting again.

        An engine may overwrite what `into` has, a tree of these rows that was reweighted before.
        """

    def search(
        self,
        tree: Any,
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

        Quarter q holds the directions from q to q + 1 right angles. The search stops when
        nothing can be better by more than `gap`, or after `budget` boxes. `start` are directions
        to try first, shape (k, 2), where the engine does not look for its own, and a `trail`, of
        the same rows and quarters, tells which boxes to begin with. Linear bounds
        of the goal are on the masses of the tree, the extra ones included. If it has to be
        `certain`, what is found are half-planes from which all points are farther away than
        rounding errors reach.
        """

    def trail(
        self,
        tree: Any,
        quarters: tuple[int, ...],
        goal: Goal,
        *,
        start: _Floats | None = None,
    ) -> Trail | None:
        """Return what `search` looks at, for searches of the same rows with other masses.

        None where nothing is feasible, or the engine has no use for it.
        """

    def grid(
        self,
        tree: Any,
        directions: _Floats,
        goal: Goal,
        *,
        each: bool = False,
    ) -> Optima:
        """Return the optimal threshold of given directions, shape (d, 2), values as computed.

        Unless `each`, directions that are not among the best of all may be cut short: their
        entries are missing, or not the best they could be. The tree must have no frame.
        """

    def frontier(
        self,
        tree: Any,
        quarters: tuple[int, ...],
        id_levels: _Ints,
        ood_levels: _Ints,
        *,
        gap: Gap = EXACT,
        with_doubts: bool = False,
    ) -> Optima:
        """Return the least selective risk for every pair of bounds, exact over all directions.

        Entry (j, k) has at least ``id_levels[j]`` ID and at most ``ood_levels[k]`` OOD mass of
        all sets together, both ascending; ties go to the larger ID, then to the smaller OOD mass.
        Losses must be those of points with ID mass. An engine may leave alone what is no better
        than `gap`. Boxes that float64 cannot take apart are told `with_doubts`; then rounding
        errors of no point reach a half-plane that is found. Only for engines with
        `searches_all_bounds`.
        """

    def equal_fpr(self, tree: Any, quarters: tuple[int, ...], *, gap: float = 0.0) -> Chosen:
        """Return the largest share of correct ID at every OOD mass, from 0 to all of it.

        In each direction the half-plane of an OOD mass is the largest that accepts no more. Those
        whose boundary several points share count for the axes only. `tree` has OOD mass for ID,
        correct ID mass for losses and wrong ID mass for its one set. No share is larger than the
        one returned by more than `gap`. Only for engines with `searches_all_bounds`.
        """

    def equals(
        self, tree: Any, quarters: tuple[int, ...], masses: _Ints
    ) -> tuple[_Ints, _Floats] | None:
        """Return all half-planes that accept one of some masses: which, and weights and v.

        `masses` are (ID, OOD of all sets, loss), shape (n, 3). None where the engine does not
        look for all of them at once, or there are too many.
        """

    def sides(self, tree: Any, weight: _Floats, v: float, along: _Floats) -> tuple[float, float]:
        """Return the last accepted and the first rejected value along a direction."""

    def count(self, tree: Any, lines: _Floats) -> _Ints:
        """Return the masses that lines (weights and threshold) accept, shape (lines, 2 + sets).

        These are ID, loss, and OOD of each set.
        """

    def settle(self, tree: Any, lines: _Floats) -> tuple[_Floats, _Floats]:
        """Return lines with unit weights and thresholds midway between the two sides.

        Also the last accepted and the first rejected value along the weights given, shape
        (lines, 2).
        """

    def widest(
        self, tree: Any, weight: _Floats, v: float, scale: _Floats, nonneg: tuple[bool, bool]
    ) -> tuple[float, float, float]:
        """Return the direction of the widest gap, of those with the accepted set of a half-plane.

        Also the width of the gap, in units of `scale`. `nonneg` tells which weights may not be
        negative.
        """

    def limits(
        self,
        scores: _Floats,
        masses: AxisMasses,
        goal: Goal,
        *,
        gap: float = 0.0,
        budget: int | None = None,
    ) -> BoxOptima:
        """Return all boxes that are optimal on rows with two scores, shape (n, 2).

        The search stops when no box can be better by more than `gap`, or after `budget` cells.
        """

    def box_margin(self, scores: _Floats, box: _Floats, unit: _Floats) -> BoxMargin:
        """Return how far a box may grow before it accepts more rows, in units of each score."""


def engine_name() -> str:
    """Return the name of the engine in use."""
    from demur._kernels import compiled

    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", *NAMES):
        raise InvalidInputError(f"{VARIABLE} must be one of {NAMES} or unset, got {asked!r}")
    if compiled.IS_OF_OTHERS and asked != "numpy":
        raise InvalidInputError(
            "the compiled engine was built of other sources than these: build it again (pip "
            f"install -e . in a checkout), or set {VARIABLE}=numpy"
        )
    if asked == "compiled" and not compiled.AVAILABLE:
        raise InvalidInputError(
            f"{VARIABLE} asks for the compiled engine, but it was not built: install demur "
            "where a C compiler is available, or unset the variable"
        )
    return asked or ("compiled" if compiled.AVAILABLE else "numpy")


def engine() -> Engine:
    """Return the engine in use."""
    if engine_name() == "compiled":
        from demur._kernels import compiled

        return compiled
    from demur._kernels import numpy_engine

    return numpy_engine
