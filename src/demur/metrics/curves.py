"""Curves over all rules: ROC, precision-recall, correct classification rate, risk-coverage.

One score: every distinct operating point. Two scores: the exact envelope of all rules with
mu >= 0, as a staircase. An envelope is tuned on the sample it is drawn on and so optimistic;
``evaluate_on=`` reads the same rules on other data. On a source of two scores the envelope is
drawn at the levels asked for; there it is what it is on the rows in memory. Rows with a score of
+inf are never accepted, so with such rows the curves end early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from demur._arrays import FloatArray, data_frame, takes
from demur.core.columns import ScoreColumns
from demur.core.models import check_share
from demur.core.program import Number, Totals, at_most
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import ScoreSource
from demur.metrics.areas import Per, Rates, check_correctness, error_of, prior
from demur.metrics.oscr import best_ccr
from demur.metrics.rules import (
    SingleScore,
    accepted_by,
    all_thresholds,
    comparable,
    from_nothing,
    given,
    refuse_levels,
    rules_at,
    with_ood,
)
from demur.tuning.operating_points import Rules, Search
from demur.tuning.prepared import Prepared
from demur.tuning.staircases import (
    Stairs,
    precision_stairs,
    risk_stairs,
    roc_stairs,
    settled_stairs,
)

Interpolation = Literal["linear", "previous", "next", "none"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Curve:
    """Points of a curve, each with the rule that attains it.

    Examples
    --------
    >>> import demur as dm
    >>> curve = dm.metrics.roc_curve(dm.Sample([1, 2, 3], [0, 0, 1], [2.5, 4]))
    >>> curve.x.tolist(), curve.y.round(2).tolist()
    ([0.0, 0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.33, 0.67, 0.67, 1.0, 1.0])
    """

    x: FloatArray
    y: FloatArray
    x_label: str
    y_label: str
    directions: FloatArray
    """Shape (points, k): direction of each point's rule."""
    thresholds: FloatArray
    """Threshold of each point's rule; -inf rejects everything."""
    interpolation: Interpolation
    """How to read the curve between its points.

    ``"linear"``: all operating points of one score. ``"previous"`` and ``"next"``: the
    staircase of two scores, whose value at x is that of the last point at or below x, or of
    the first at or above. ``"none"``: rules tuned on one sample and read on another, in the
    order of tuning.
    """
    ood_prior: float | None = None
    """The prior behind a precision."""
    columns: ScoreColumns | None = None
    """Names and senses of the score columns."""
    error: float = 0.0
    """How far rules may lie beyond the curve of two scores: no more than this in y, and in x.

    0 for samples of up to some thousand rows, and with ``exact=True``.
    """

    @property
    def attainable(self) -> tuple[float, float]:
        """Smallest and largest x that a rule attains; NaN if there is no rule."""
        if len(self.x) == 0:
            return np.nan, np.nan
        return float(self.x.min()), float(self.x.max())

    def rule(self, index: int) -> Rule:
        """Return the rule behind one point."""
        direction = self.directions[index].tolist()
        columns = self.columns or ScoreColumns(len(direction))
        return Rule.of_doubts(direction, float(self.thresholds[index]), columns)

    def plot(self, ax: Any = None, *, label: str | None = None, color: str | None = None) -> Any:
        """Draw the curve with matplotlib, on `ax` or on new axes; return the axes."""
        from demur import plots

        names = (self.x_label, self.y_label)
        return plots.curve(
            self.x, self.y, names, between=self.interpolation, ax=ax, label=label, color=color
        )

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas or Polars with a row per point and its rule."""
        weights = {f"weight_{k + 1}": column for k, column in enumerate(self.directions.T)}
        values = {self.x_label: self.x, self.y_label: self.y}
        return data_frame(values | weights | {"threshold": self.thresholds}, backend)

    def __len__(self) -> int:
        return len(self.x)

    def __repr__(self) -> str:
        return f"Curve({self.y_label} over {self.x_label}, {len(self)} points)"


@takes(sample=(Sample, Prepared, ScoreSource), evaluate_on=Sample)
def roc_curve(
    sample: Sample | Prepared | ScoreSource,
    *,
    levels: Sequence[Number] | None = None,
    evaluate_on: Sample | None = None,
    exact: bool = False,
    search: Search = None,
) -> Curve:
    """Return TPR over FPR, starting with the rule that rejects everything.

    Parameters
    ----------
    sample
        With OOD rows; or what `prepare` made of one, which is sorted once for many curves. Two
        scores: for each bound on the FPR the largest TPR; also a `ScoreSource` of two scores.
    levels
        For a source: ascending bounds on the FPR; 0, 0.01, ..., 1 by default. The curve has the
        rules that are best at these, and read there it is that of all rules.
    evaluate_on
        Read the rules tuned on `sample` on this sample instead.
    exact
        For two scores and more than some thousand rows: whether every rule on the curve must be
        the best there is, not the best but for 5e-5 of each rate; see `Curve.error`, and `auroc`
        for what it costs.
    search
        For two scores: `Exact()` (default) or `Grid(d)`, a grid of d angles.

    Examples
    --------
    >>> curve = roc_curve(Sample([0.1, 0.4], [0, 1], ood_scores=[0.2, 0.4]))
    >>> curve.x, curve.y
    (array([0. , 0. , 0.5, 1. ]), array([0. , 0.5, 0.5, 1. ]))
    >>> curve.rule(1).threshold
    0.15000000000000002
    """
    axes = (_CurveAxis("FPR", _fpr), _CurveAxis("TPR", _tpr))
    if not isinstance(sample, (Sample, Prepared)):
        found = rules_at(sample, levels, "tpr", evaluate_on=evaluate_on, search=search)
        return _drawn(found[0], from_nothing(found[1]), axes, "previous", sample.columns)
    refuse_levels(levels)
    rows = with_ood("sample", sample)
    if isinstance(rows, SingleScore):
        path, error = all_thresholds(rows.points), 0.0
    else:
        path, error = _settled(rows, roc_stairs(rows, search, error_of(exact)), search)
    return replace(_curve(rows, from_nothing(path), axes, "previous", evaluate_on), error=error)


@takes(sample=(Sample, Prepared, ScoreSource), evaluate_on=Sample)
def precision_recall_curve(
    sample: Sample | Prepared | ScoreSource,
    *,
    levels: Sequence[Number] | None = None,
    ood_prior: Number | None = None,
    evaluate_on: Sample | None = None,
    exact: bool = False,
    search: Search = None,
) -> Curve:
    """Return precision over recall, with ID as the positive class.

    Parameters
    ----------
    sample
        With OOD rows. Two scores: for each bound on the recall the largest precision; also a
        `ScoreSource` of two scores.
    levels
        For a source: ascending bounds on the recall, as in `roc_curve`.
    ood_prior
        Share of OOD inputs behind the precision; the share in `sample` by default. The curve
        carries it as `Curve.ood_prior`.
    evaluate_on, exact, search
        As in `roc_curve`.

    Examples
    --------
    >>> curve = precision_recall_curve(Sample([0.1, 0.4], [0, 1], ood_scores=[0.2, 0.4]))
    >>> curve.x, curve.y, curve.ood_prior
    (array([0.5, 0.5, 1. ]), array([1. , 0.5, 0.5]), 0.5)
    """
    precision = _CurveAxis("precision", lambda rates, m: rates.precision(m.id, m.ood, pi))
    axes = (_CurveAxis("recall", _tpr), precision)
    if not isinstance(sample, (Sample, Prepared)):
        totals, path = rules_at(sample, levels, "precision", evaluate_on=evaluate_on, search=search)
        pi = prior(Rates(totals), ood_prior)
        return replace(_drawn(totals, path, axes, "next", sample.columns), ood_prior=pi)
    refuse_levels(levels)
    rows = with_ood("sample", sample)
    pi = prior(Rates(rows.points.totals), ood_prior)
    if isinstance(rows, SingleScore):
        path, error = all_thresholds(rows.points), 0.0
    else:
        path, error = _settled(rows, precision_stairs(rows, search, error_of(exact)), search)
    curve = _curve(rows, path, axes, "next", evaluate_on)
    return replace(curve, ood_prior=pi, error=error)


@takes(sample=(Sample, Prepared), evaluate_on=Sample)
def ccr_fpr_curve(
    sample: Sample | Prepared,
    *,
    per: Per = "accepted",
    evaluate_on: Sample | None = None,
    exact: bool = False,
    search: Search = None,
) -> Curve:
    """Return the correct classification rate over the FPR.

    Parameters
    ----------
    sample
        With OOD rows and losses of 0 and 1. Two scores: the maximum over mu >= 0 at equal
        FPR, where each mu has the rate of its largest threshold with at most that FPR.
        (The best of all rules with at most that FPR would be near 1 without merit: it
        accepts a single ID row.)
    per
        ``"accepted"``: correct among the accepted ID rows, 1 - selective risk, as in the
        paper; the curve starts with the first ID row accepted. ``"all"``: correct and
        accepted among all ID rows.
    evaluate_on, exact, search
        As in `roc_curve`.

    Examples
    --------
    >>> curve = ccr_fpr_curve(Sample([0.1, 0.3], [0, 1], ood_scores=[0.2, 0.4]))
    >>> curve.x, curve.y
    (array([0. , 0.5, 0.5, 1. ]), array([1. , 1. , 0.5, 0.5]))
    """
    rows = with_ood("sample", sample)
    for checked in (rows.sample, evaluate_on):
        if checked is not None:
            check_correctness(checked, per)
    if isinstance(rows, SingleScore):
        path = all_thresholds(rows.points)
        path, error = from_nothing(path) if per == "all" else path.take(path.id > 0), 0.0
    else:
        best = best_ccr(rows, per, search, error_of(exact))
        path = settled_stairs(rows, best.rules, search)._replace(ood=best.start)
        error = best.error
    ccr = _CurveAxis(f"CCR per {per} ID", lambda rates, m: rates.ccr(m.id, m.loss, per))
    curve = _curve(rows, path, (_CurveAxis("FPR", _fpr), ccr), "previous", evaluate_on)
    return replace(curve, error=error)


@takes(sample=(Sample, Prepared, ScoreSource), evaluate_on=Sample)
def risk_coverage_curve(
    sample: Sample | Prepared | ScoreSource,
    *,
    levels: Sequence[Number] | None = None,
    max_fpr: Number = 1,
    evaluate_on: Sample | None = None,
    exact: bool = False,
    search: Search = None,
) -> Curve:
    """Return the selective risk over the coverage (TPR) of rules with FPR <= `max_fpr`.

    `Curve.attainable` is the range of coverage such rules attain; it is NaN if none accepts
    any ID row.

    Parameters
    ----------
    sample
        Two scores: for each bound on the coverage the smallest selective risk; also a
        `ScoreSource` of two scores.
    levels
        For a source: ascending bounds on the coverage, as in `roc_curve`.
    max_fpr
        In [0, 1]; a float means its shortest decimal. 1 is the curve known without OOD.
    evaluate_on, exact, search
        As in `roc_curve`.

    Examples
    --------
    >>> sample = Sample([0.1, 0.3, 0.6], [0, 1, 0], ood_scores=[0.4])
    >>> curve = risk_coverage_curve(sample, max_fpr=0.5)
    >>> curve.x.round(3), curve.y, curve.attainable[1] < 0.7
    (array([0.333, 0.667]), array([0. , 0.5]), True)
    """
    asked = check_share("max_fpr", max_fpr)
    risk = _CurveAxis("selective risk", lambda rates, m: rates.selective_risk(m.id, m.loss))
    axes = (_CurveAxis("coverage", _tpr), risk)
    if not isinstance(sample, (Sample, Prepared)):
        how = {"evaluate_on": evaluate_on, "search": search}
        found = rules_at(sample, levels, "risk", max_fpr=asked, **how)
        return _drawn(*found, axes, "next", sample.columns)
    refuse_levels(levels)
    rows = given(sample)
    totals = rows.points.totals
    max_ood = at_most(asked, sum(totals.ood), totals.ood_rounding)
    if isinstance(rows, SingleScore):
        path = all_thresholds(rows.points)
        path, error = path.take((np.diff(path.id, prepend=0) > 0) & (path.ood <= max_ood)), 0.0
    else:
        stairs = risk_stairs(rows, search, max_ood, error_of(exact))
        path, error = _settled(rows, stairs, search)
    return replace(_curve(rows, path, axes, "next", evaluate_on), error=error)


def _settled(prepared: Prepared, stairs: Stairs, search: Search) -> tuple[Rules, float]:
    """Return the rules of a staircase with their final lines, and the larger of its gaps."""
    return settled_stairs(prepared, stairs.rules, search), max(stairs.x_gap, stairs.y_gap)


class _CurveAxis(NamedTuple):
    label: str
    value: Callable[[Rates, Rules], FloatArray]


def _tpr(rates: Rates, masses: Rules) -> FloatArray:
    return rates.tpr(masses.id)


def _fpr(rates: Rates, masses: Rules) -> FloatArray:
    return rates.fpr(masses.ood)


def _curve(
    rows: SingleScore | Prepared,
    path: Rules,
    axes: tuple[_CurveAxis, _CurveAxis],
    staircase_reading: Interpolation,
    evaluate_on: Sample | None,
) -> Curve:
    """Return the rates along the path, on the sample itself or on another one."""
    sample, points = rows.sample, rows.points
    interpolation: Interpolation = "linear" if sample.n_scores == 1 else staircase_reading
    if evaluate_on is not None:
        points = comparable(sample, evaluate_on)
        path, interpolation = accepted_by(evaluate_on, path.lines), "none"
    return _drawn(points.totals, path, axes, interpolation, sample.columns)


def _drawn(
    totals: Totals,
    path: Rules,
    axes: tuple[_CurveAxis, _CurveAxis],
    interpolation: Interpolation,
    columns: ScoreColumns,
) -> Curve:
    rates, (x, y) = Rates(totals), axes
    return Curve(
        x=x.value(rates, path),
        y=y.value(rates, path),
        x_label=x.label,
        y_label=y.label,
        directions=path.lines[:, :-1],
        thresholds=path.lines[:, -1],
        interpolation=interpolation,
        columns=columns,
    )
