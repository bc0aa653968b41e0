"""Whether the units of two scores suit a grid of angles."""

from __future__ import annotations

import warnings

import numpy as np

from demur.errors import ScoreUnitsWarning
from demur.tuning.prepared import Prepared

# Beyond this ratio of the spreads of two scores a grid loses some ten percent of the risk.
_COMPARABLE = 10.0


def warn_of_units(
    prepared: Prepared, directions: list[tuple[float, float]], *, stacklevel: int
) -> None:
    """Warn if one score varies so much more than the other that few angles weigh both."""
    scores = prepared.points.scores
    if len(scores) == 0 or (scores == scores[0]).all(axis=0).any():
        # A score that never changes has no say at any angle.
        return
    spread_r, spread_g = prepared.spread.tolist()
    ratio = max(spread_r, spread_g) / min(spread_r, spread_g)
    if ratio <= _COMPARABLE:
        return
    weights = np.abs(np.array(directions)) * prepared.spread
    both = int((weights.min(axis=1) >= weights.max(axis=1) / 10).sum())
    warnings.warn(
        f"the units of the two scores differ by a factor of {ratio:.3g}: their 10-90 % ranges "
        f"over the ID rows are {spread_r:.3g} and {spread_g:.3g}. Only {both} of the "
        f"{len(directions)} angles give both scores a say (their shares within a factor of 10), "
        "so the grid may miss good rules; rescale a score, or search exactly, which does not "
        "depend on units",
        ScoreUnitsWarning,
        stacklevel=stacklevel + 1,
    )
