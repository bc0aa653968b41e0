"""Which engine searches: the compiled one when it was built, NumPy otherwise.

The environment variable ``DEMUR_ENGINE`` (``compiled`` or ``numpy``) forces one.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol, cast

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


class Engine(Protocol):
    """What an engine offers; a tree belongs to the engine that built it."""

    def prepare(self, scores: _Floats, id: _Ints, ood: _Ints, loss: _Ints) -> Any:
        """Build the tree over scores (n, 2) with masses id (n,), ood (sets, n) and loss (n,)."""

    def reweight(self, tree: Any, id: _Ints, ood: _Ints, loss: _Ints) -> Any:
        """Give the same rows other masses, without sorting again."""

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
        """Return the optimal half-planes with directions in `quarters`.

        `start` are directions to try first, where the engine does not look for its own.
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
    from demur._kernels import branch, compiled

    module: ModuleType = compiled if engine_name() == "compiled" else branch
    return cast(Engine, module)
