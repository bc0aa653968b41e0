"""Tuning the same rows again and again with other weights, as a bootstrap does."""

from __future__ import annotations

import math

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.models import RejectionModel
from demur.core.points import RowMasses
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.tuning.directions import DIRECTION_SETS, Directions
from demur.tuning.prepared import prepare
from demur.tuning.result import Exact, Grid
from demur.tuning.tune import search_exact, search_grid, search_one_score

# No row is drawn 2**_SPARE times when rows are drawn at random.
_SPARE = 6
# Directions tried first lie this far, in radians, on either side of the one given.
_NEAR = 0.1


class Retuner:
    """Rows that were sorted once, ready to be tuned with any number of weights.

    Parameters
    ----------
    near
        A rule that the rules looked for will resemble, so that the search knows where to begin;
        it finds the same optimum without.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> sample = Sample([[0, 1], [1, 0], [2, 2]], [0, 0, 1], [[3, 3]])
    >>> again = Retuner(sample, TprFprModel(0.6))
    >>> again.rule(np.array([0, 1, 2, 1])).accept(sample.id_scores)
    array([ True,  True,  True])
    """

    def __init__(
        self,
        sample: Sample,
        model: RejectionModel,
        *,
        directions: Directions | None = None,
        search: Exact | Grid | None = None,
        near: Rule | None = None,
    ) -> None:
        self._model, self._search = model, search or Exact()
        default = "paper" if isinstance(search, Grid) else "nonneg"
        self._allowed = DIRECTION_SETS[str(directions or default)]
        self._masses, self._prepared = RowMasses.of(sample, spare=_SPARE), prepare(sample)
        self._start = None if near is None else self._around(near)

    def rule(self, times: IntArray) -> Rule | None:
        """Return the rule tuned with row i counted `times[i]` times, ID rows first.

        None if no rule meets the bounds.
        """
        masses = self._masses.repeated(times)
        if masses.totals.id == 0:
            return None
        points = self._prepared.points.weighted(masses)
        program = self._model.program(masses.totals)
        if points.scores.shape[1] == 1:
            line = search_one_score(points.present(), program)
        elif isinstance(self._search, Grid):
            prepared = self._prepared.reweighted(points)
            line = search_grid(prepared, program, self._allowed, self._search.angles)
        else:
            prepared = self._prepared.reweighted(points)
            line, _ = search_exact(
                prepared, program, self._allowed, self._search, start=self._start
            )
        columns = self._prepared.sample.columns
        return None if line is None else Rule.of_doubts(line.direction, line.threshold, columns)

    def _around(self, rule: Rule) -> FloatArray | None:
        """Return the direction of a rule and one on either side, within those allowed."""
        if len(rule.direction) == 1:
            return None
        direction = rule.for_doubts(self._prepared.sample.columns).direction
        spread = self._prepared.spread
        risk, ood = np.array(direction) * spread
        angle = math.atan2(ood, risk) + np.array([-_NEAR, 0.0, _NEAR])
        weights = np.column_stack([np.cos(angle), np.sin(angle)])
        for column, is_nonneg in enumerate(self._allowed.nonneg):
            if is_nonneg:
                weights[:, column] = weights[:, column].clip(0)
        around: FloatArray = weights / spread
        around[1] = direction
        return around
