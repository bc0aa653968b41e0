"""A source of two scores of which one is the same in all rows, searched as one of a single score.

Where the second score is c on every row with finite scores, ``w1 s1 + w2 c <= t`` compares s1 with
a threshold, from below or from above by the sign of w1; with w1 = 0 it takes all rows or none, as
the thresholds of s1 at its ends do. So the best half-plane is the best threshold of the other
score, times 1 or, where negative weights are allowed, times -1. A search over directions would
have to look at every row: near the axis of the constant score all of them are tied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from demur._kernels.numpy_engine.boxes import SIGNS
from demur.core.bins import Axis, Bins
from demur.core.columns import ScoreColumns
from demur.core.models import RejectionModel
from demur.core.program import Program
from demur.core.rule import Rule
from demur.core.source import (
    Cells,
    Histogram,
    Measure,
    Overview,
    Rows,
    RuleCounts,
    ScoreSource,
    Sizes,
    Strip,
    Tally,
)
from demur.tuning.operating_points import Line
from demur.tuning.result import DirectionSet, Exact, SearchCertificate
from demur.tuning.streamed.plan import StreamPlan, as_sample
from demur.tuning.streamed.tune import Streamed
from demur.tuning.tune import preferred


def varying_score(overview: Overview) -> int | None:
    """Return the place of the only score that is not the same in all rows, if there is just one."""
    if len(overview.low) != 2:
        return None
    varies = np.flatnonzero(overview.low < overview.high)
    return int(varies[0]) if len(varies) == 1 else None


class OneScore:
    """One of two scores of a source, times a sign; the other is the same in all rows."""

    def __init__(self, source: ScoreSource, column: int, sign: int, drawn: Rows) -> None:
        self._source, self._column, self._sign, self._drawn = source, column, sign, drawn
        self._overview = source.overview()
        self.score_names: tuple[str, ...] = (source.score_names[column],)
        self.columns = ScoreColumns.of(self.score_names, count=1)

    @property
    def memory(self) -> int:
        """Bytes that a search may use here."""
        return self._source.memory

    def overview(self) -> Overview:
        """Return what is known of all rows."""
        ends = [self._sign * end[self._column] for end in (self._overview.low, self._overview.high)]
        low, high = sorted(ends)
        return replace(self._overview, low=np.array([low]), high=np.array([high]))

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return the rows that were drawn."""
        return self._turned(self._drawn)

    def glimpse(self, rows: int) -> Rows:
        """Return the rows that were drawn."""
        return self._turned(self._drawn)

    def sizes(self) -> Sizes:
        """Return how many rows there are."""
        return self._overview

    def rule_counts(self, rule: Rule, *, by: str | None = None) -> RuleCounts | None:
        """Return None: the rows have been looked at before."""
        return None

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell and along strips."""
        found = self._source.histogram(
            self._bins(bins),
            measure,
            strips=[replace(one, weights=self._weights(one.weights[0])) for one in strips],
            within=None if within is None else self._cells(within),
        )
        place = slice(self._column, self._column + 1)
        return replace(found, low=found.low[:, place], high=found.high[:, place])

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        return self._turned(self._source.rows(self._cells(cells)))

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what a rule on this score accepts."""
        both = Rule(self._weights(rule.direction[0]), rule.threshold, rule.tau)
        return self._source.tally(both, measure, by=by)

    def _weights(self, weight: float) -> tuple[float, ...]:
        own = self._sign * weight
        return (own, 0.0) if self._column == 0 else (0.0, own)

    def _bins(self, bins: Bins) -> Bins:
        """Return bins of both scores with the same keys: all of the other are in one bin."""
        whole = Axis(np.zeros(1), np.zeros(1), np.array([0, 1]))
        axes, other = [bins.axes[0], whole], (0.0, 1.0)
        if self._column == 1:
            axes.reverse()
            other = (1.0, 0.0)
        weights = [self._weights(1.0), other]
        if self._column == 1:
            weights.reverse()
        return Bins(tuple(axes), None if self._sign > 0 else tuple(weights))

    def _cells(self, cells: Cells) -> Cells:
        return Cells(self._bins(cells.bins), cells.key)

    def _turned(self, rows: Rows) -> Rows:
        infinite = ~np.isfinite(rows.scores).all(axis=1)
        score = self._sign * rows.scores[:, self._column]
        # Wherever one of both is infinite, no rule accepts.
        return replace(rows, scores=np.where(infinite, np.inf, score)[:, None] + 0.0)


class FlatStream:
    """What `Streamed` is for two scores, where one of them is the same in all rows."""

    def __init__(
        self,
        source: ScoreSource,
        models: Sequence[RejectionModel],
        allowed: DirectionSet,
        column: int,
        *,
        ood: Literal["pooled", "worst"] = "pooled",
        plan: StreamPlan | None = None,
    ) -> None:
        self.source, self.overview, self._column = source, source.overview(), column
        plan = plan or StreamPlan.of(self.overview.rows, 1, source.memory)
        drawn = source.sample(plan.sample, seed=0)
        signs = dict.fromkeys(SIGNS[quarter][column] for quarter in allowed.quarters)
        self._ways = {
            sign: Streamed(
                OneScore(source, column, sign, drawn), models, allowed, ood=ood, plan=plan
            )
            for sign in signs
        }
        self.totals = next(iter(self._ways.values())).totals
        self.sample = as_sample(drawn, self.overview)

    def find(
        self, program: Program, allowed: DirectionSet, search: Exact
    ) -> tuple[Line | None, SearchCertificate]:
        """Return the best line over all allowed directions; None if none meets the bounds."""
        lines, bounds = [], []
        for sign, stream in self._ways.items():
            line, certificate = stream.find(program, allowed, search)
            bounds.append(certificate.lower_bound)
            if line is not None:
                direction = (float(sign), 0.0) if self._column == 0 else (0.0, float(sign))
                lines.append(replace(line, direction=direction))
        known = [bound for bound in bounds if bound == bound]
        return preferred(lines, program), SearchCertificate(
            "optimal", min(known) if known else float("nan")
        )
