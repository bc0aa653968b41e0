"""What an engine offers, and which one searches: the compiled one when it was built, else NumPy.

The environment variable ``DEMUR_ENGINE`` (``compiled`` or ``numpy``) forces one.
"""

from __future__ import annotations

import os
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError

VARIABLE = "DEMUR_ENGINE"
NAMES = ("compiled", "numpy")

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

Status = Literal["optimal", "gap", "budget", "infeasible"]


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
    """How many boxes or cells float64 could not take apart."""


class Optima(NamedTuple):
    """Masses and thresholds of optimal half-planes; `id` is 0 where there is none."""

    id: _Ints
    ood: _Ints
    loss: _Ints
    weights: _Floats
    v: _Floats


class ScalarMetrics(Protocol):
    """All scalar metrics of one score in one pass."""

    def __call__(
        self, correct: _Floats, wrong: _Floats, ood: _Floats, *, prior: float, min_id: int
    ) -> dict[str, float]:
        """Return the metrics, given the ascending scores of three kinds of rows."""


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
    def metrics(self) -> ScalarMetrics | None:
        """Scalar metrics of one score; None where the formulas of `demur.metrics` are as fast."""

    def prepare(self, scores: _Floats, id: _Ints, ood: _Ints, loss: _Ints) -> Any:
        """Build the tree over scores (n, 2) with masses id (n,), ood (sets, n) and loss (n,)."""

    def reweight(self, tree: Any, id: _Ints, ood: _Ints, loss: _Ints) -> Any:
        """Give the same rows other masses, some of which may be zero, without sorting again."""

    def search(
        self,
        tree: Any,
        quarters: tuple[int, ...],
        objective: _Ints,
        per_id: bool,
        min_id: int,
        max_ood: _Ints,
        ratio: _Ints,
        *,
        gap: float = 0.0,
        budget: int | None = None,
        start: _Floats | None = None,
    ) -> Outcome:
        """Return the optimal half-planes with directions in `quarters`; see `demur.core.program`.

        Quarter q holds the directions from q to q + 1 right angles. The search stops when
        nothing can be better by more than `gap`, or after `budget` boxes. `start` are directions
        to try first, shape (k, 2), where the engine does not look for its own.
        """

    def grid(
        self,
        tree: Any,
        directions: _Floats,
        objective: _Ints,
        per_id: bool,
        min_id: int,
        max_ood: _Ints,
        ratio: _Ints,
        *,
        each: bool = False,
    ) -> Optima:
        """Return the optimal threshold of given directions, shape (d, 2), values as computed.

        Unless `each`, directions that are not among the best of all may be cut short: their
        entries are missing, or not the best they could be.
        """

    def frontier(
        self, tree: Any, quarters: tuple[int, ...], id_levels: _Ints, ood_levels: _Ints
    ) -> Optima:
        """Return the least selective risk for every pair of bounds, exact over all directions.

        Entry (j, k) has at least ``id_levels[j]`` ID and at most ``ood_levels[k]`` OOD mass of
        all sets together, both ascending; ties go to the larger ID, then to the smaller OOD mass.
        Losses must be those of points with ID mass.
        """

    def sides(self, tree: Any, weight: _Floats, v: float, along: _Floats) -> tuple[float, float]:
        """Return the last accepted and the first rejected value along a direction."""

    def widest(
        self, tree: Any, weight: _Floats, v: float, scale: _Floats, nonneg: tuple[bool, bool]
    ) -> tuple[float, float, float]:
        """Return the direction of the widest gap, of those with the accepted set of a half-plane.

        Also the width of the gap, in units of `scale`. `nonneg` tells which weights may not be
        negative.
        """


def engine_name() -> str:
    """Return the name of the engine in use."""
    from demur._kernels import compiled

    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", *NAMES):
        raise InvalidInputError(f"{VARIABLE} must be one of {NAMES} or unset, got {asked!r}")
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
