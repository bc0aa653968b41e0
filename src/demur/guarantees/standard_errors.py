"""Standard errors of rates of rules, and DeLong's of AUROC, of one method or of two compared.

Rows count several times, once or not at all.

All rates are functions of three means: accepted ID (the TPR T), the loss of accepted ID
(L, over all ID), and accepted OOD (the FPR F). A row moves a rate by the gradient of that
function times what the row adds to the means; the root of the summed squares is the standard
error (the delta method). For two rules on the same rows, the moves are subtracted row by row.

DeLong's standard error is for one score, and for two scores on the same rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray, takes
from demur._kernels.engines import engine
from demur.core.bins import Bins, axis_for
from demur.core.models import RejectionModel
from demur.core.points import Masses
from demur.core.program import Totals
from demur.core.rates import OperatingPoint, operating_point
from demur.core.rule import BoxRule, Rule
from demur.core.sample import Sample
from demur.core.source import Measure, ScoreSource
from demur.errors import InvalidInputError
from demur.guarantees.intervals import Interval, miss, refuse_weights

Times = tuple[IntArray, IntArray]
"""How often each ID and OOD row counts."""
Decided = tuple[BoolArray, BoolArray]
"""Which ID and OOD rows are accepted."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedRows:
    """The masses of a sample's rows, ready to be counted under many rules."""

    sample: Sample
    id: Masses
    ood: Masses
    loss: Masses
    infinite: tuple[IntArray, IntArray]
    """ID and OOD rows with a score of +inf, which no rule accepts."""
    masses: tuple[FloatArray, FloatArray, FloatArray]
    """Values of `id`, `ood` and `loss`, whole numbers that float64 holds exactly."""

    @classmethod
    def of(cls, sample: Sample) -> CountedRows:
        """Lower the weights and losses of `sample`."""
        id_weight, ood_weight = _weights(sample)
        id_, ood = (
            np.flatnonzero(np.isposinf(scores).any(axis=1))
            for scores in (sample.id_scores, sample.ood_scores)
        )
        masses = [Masses.of(w) for w in (id_weight, ood_weight, id_weight * sample.id_loss)]
        floats = [part.values.astype(np.float64) for part in masses]
        rows = (floats[0], floats[1], floats[2])
        return cls(sample, masses[0], masses[1], masses[2], (id_, ood), rows)

    def decide(self, rule: Rule) -> Decided:
        """Return which ID and which OOD rows `rule` accepts.

        As `Rule.accept` does, without looking again for what a sample may not hold.
        """
        matched = rule.on(self.sample.columns)
        decided = []
        scores = self.sample.id_scores, self.sample.ood_scores
        for values, infinite in zip(scores, self.infinite, strict=True):
            combined = matched.weigh(values)
            combined[infinite] = np.inf
            decided.append(matched.within(combined))
        return decided[0], decided[1]

    def point(
        self,
        accepted: Decided,
        times: Times,
        model: RejectionModel | None,
    ) -> OperatingPoint | None:
        """Return the rates when row i counts `times[i]` times; None if no ID row counts."""
        return self.points(accepted, [times], model)[0]

    def points(
        self, accepted: Decided, views: Sequence[Times | None], model: RejectionModel | None
    ) -> list[OperatingPoint | None]:
        """Return what `point` does for several ways to count the rows; None counts each once."""
        id_, ood, loss = self.masses
        sides = _with_accepted(accepted[0], id_, loss), _with_accepted(accepted[1], ood)
        points: list[OperatingPoint | None] = []
        for view in views:
            sums = [n for rows in map(_counted, sides, view or (None, None)) for n in rows]
            points.append(self._point(sums, model) if sums[0] else None)
        return points

    def points_of(
        self, rule: Rule, views: Sequence[Times | None], model: RejectionModel | None
    ) -> list[OperatingPoint | None]:
        """Return `points` of what a rule accepts, from one pass over the rows if it can be."""
        passes, matched = engine().passes, rule.on(self.sample.columns)
        weighs = not isinstance(matched, BoxRule) and len(matched.direction) == 2
        if passes is None or not weighs or any(map(len, self.infinite)) or len(views) < 2:
            return self.points(self.decide(rule), views, model)

        def accepted(scores: FloatArray, columns: IntArray) -> list[int]:
            masses = columns[0], columns[1], columns[2:]
            half_plane = matched.direction, matched.threshold
            return passes.tally(scores, *half_plane, masses, closed=bool(matched.tau))

        of_id, of_ood = zip(*(view or (None, None) for view in views), strict=True)
        own, foreign = _repeated((self.id, self.loss), of_id), _repeated((self.ood,), of_ood)
        of_rule = accepted(self.sample.id_scores, own)
        ood = accepted(self.sample.ood_scores, foreign)
        totals = own[: len(views)].sum(axis=1).tolist(), foreign.sum(axis=1).tolist()
        parts = of_rule[: len(views)], of_rule[len(views) :]
        sums = zip(totals[0], *parts, totals[1], ood, strict=True)
        return [self._point(list(each), model) if each[0] else None for each in sums]

    def _point(self, sums: list[int], model: RejectionModel | None) -> OperatingPoint:
        total_id, id_, loss, total_ood, ood = sums
        totals = Totals(
            id=total_id,
            ood=(total_ood,),
            loss=0,
            id_exponent=self.id.exponent,
            ood_exponent=self.ood.exponent,
            loss_exponent=self.loss.exponent,
        )
        return operating_point(
            id_mass=id_, ood_masses=[ood], loss_mass=loss, totals=totals, model=model
        )


def _repeated(masses: Sequence[Masses], times: Sequence[IntArray | None]) -> IntArray:
    """Return each of masses when row i counts `times[k][i]` times, or once.

    Shape (masses * times, rows).
    """
    rows = np.empty((len(masses) * len(times), len(masses[0].values)), np.int64)
    for row, (mass, how_often) in zip(rows, itertools.product(masses, times), strict=True):
        if how_often is None:
            row[:] = mass.values
        else:
            np.multiply(mass.values, how_often, out=row)
    return rows


def _with_accepted(accepted: BoolArray, *masses: FloatArray) -> FloatArray:
    """Return the first masses of all rows, then each of those that are accepted."""
    rows = np.empty((1 + len(masses), len(accepted)))
    rows[0] = masses[0]
    taken = accepted.astype(np.float64)
    for row, mass in zip(rows[1:], masses, strict=True):
        np.multiply(mass, taken, out=row)
    return rows


def _counted(masses: FloatArray, times: IntArray | None) -> list[int]:
    """Return the sums of rows of whole masses when column i counts `times[i]` times, or once."""
    if times is None:
        return [int(total) for total in masses.sum(axis=1).tolist()]
    # Not by `@`: sums this small are not worth the threads of a BLAS.
    totals: list[float] = np.einsum("kn,n->k", masses, times.astype(np.float64)).tolist()
    # Below 2**53 float64 adds whole numbers exactly, in any order.
    if max(totals) < 2.0**52:
        return [int(total) for total in totals]
    return [int(mass.astype(np.int64) @ times) for mass in masses]


def measures(model: RejectionModel) -> tuple[str, ...]:
    """Return the names of the rates that a model gives a meaning to."""
    names: tuple[str, ...] = ("tpr", "fpr", "selective_risk")
    if model.ood_prior is not None:
        names += ("precision",)
    if model.cost is not None:
        names += ("expected_cost",)
    return names


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """How much each row moves each rate."""

    id: FloatArray
    """Shape (ID rows, measures)."""
    ood: FloatArray
    """Shape (OOD rows, measures)."""
    one_more: FloatArray
    """Squared, by one more row of the typical weight and loss; one for each measure."""


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Weights and losses of a sample, ready for the standard errors of many rules."""

    model: RejectionModel
    id_weight: FloatArray
    ood_weight: FloatArray
    loss: FloatArray
    """Weight times loss."""

    @classmethod
    def of(cls, sample: Sample, model: RejectionModel) -> Spread:
        """Take the weights and losses of `sample`, and what the model says of priors and costs."""
        id_weight, ood_weight = _weights(sample)
        return cls(model, id_weight, ood_weight, id_weight * sample.id_loss)

    def moves(self, accepted: Decided, times: Times) -> Moves:
        """Return how rows that count `times` move the rates of a rule that accepts so."""
        id_total = float(times[0] @ self.id_weight)
        ood_total = float(times[1] @ self.ood_weight) or 1.0
        taken = times[0] * accepted[0]
        tpr, loss = float(taken @ self.id_weight) / id_total, float(taken @ self.loss) / id_total
        fpr = float((times[1] * accepted[1]) @ self.ood_weight) / ood_total
        by_tpr, by_loss, by_fpr = _gradients(self.model, tpr, loss, fpr)
        id_means = np.column_stack(
            [
                self.id_weight * (accepted[0] - tpr),
                self.loss * accepted[0] - self.id_weight * loss,
            ]
        )
        ood_mean = self.ood_weight * (accepted[1] - fpr)
        one_more = (
            (by_tpr * _typical(self.id_weight) / id_total) ** 2
            + (by_loss * _typical(self.loss) / id_total) ** 2
            + (by_fpr * _typical(self.ood_weight) / ood_total) ** 2
        )
        return Moves(
            id=id_means @ np.stack([by_tpr, by_loss]) / id_total,
            ood=np.outer(ood_mean, by_fpr) / ood_total,
            one_more=one_more,
        )


def standard_errors(moves: Sequence[Moves], times: Times) -> FloatArray:
    """Return the standard errors of a rule's rates, or of the differences of two rules' rates.

    One row more than there are is counted, moving one of the rules only: where no row is lost,
    or two rules decide all rows alike, the next one may still be. (Agresti and Min, 2005, add
    such rows to paired shares.)
    """
    id_moves, ood_moves = moves[0].id, moves[0].ood
    if len(moves) == 2:
        id_moves, ood_moves = id_moves - moves[1].id, ood_moves - moves[1].ood
    one_more = np.mean([m.one_more for m in moves], axis=0)
    return np.asarray(np.sqrt(times[0] @ id_moves**2 + times[1] @ ood_moves**2 + one_more))


def _gradients(
    model: RejectionModel, tpr: float, loss: float, fpr: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the derivatives of all measures by the TPR, the mean loss and the FPR."""
    rows = {
        "tpr": (1.0, 0.0, 0.0),
        "fpr": (0.0, 0.0, 1.0),
        "selective_risk": (-loss / tpr**2, 1 / tpr, 0.0) if tpr else (np.nan,) * 3,
    }
    prior = float(model.ood_prior or 0)
    if model.ood_prior is not None:
        both = (1 - prior) * tpr + prior * fpr
        slope = prior * (1 - prior) / both**2 if both else np.nan
        rows["precision"] = (slope * fpr, 0.0, -slope * tpr)
    if model.cost is not None:
        more = float(model.cost.accept_ood) - float(model.cost.reject_ood)
        reject_id = float(model.cost.reject_id)
        rows["expected_cost"] = ((prior - 1) * reject_id, 1 - prior, prior * more)
    by_tpr, by_loss, by_fpr = np.array([rows[name] for name in measures(model)]).T
    return by_tpr, by_loss, by_fpr


def _typical(masses: FloatArray) -> float:
    """Return the mean size of what a unit of mass belongs to: of losses that are 0 or 1, 1."""
    total = masses.sum()
    return float(masses @ masses / total) if total else 0.0


def _weights(sample: Sample) -> tuple[FloatArray, FloatArray]:
    """Return the weights of ID and OOD rows, ones where there are none."""
    weights = ((sample.id_weight, sample.n_id), (sample.ood_weight, sample.n_ood))
    id_, ood = (np.ones(rows) if given is None else given for given, rows in weights)
    return id_, ood


_DRAWN = 200_000
"""Rows by which bins are cut."""

_Placed = tuple[FloatArray, FloatArray]
"""Of ID rows, and of OOD rows."""


@dataclass(frozen=True, slots=True)
class AurocEstimate:
    """AUROC of one score.

    Examples
    --------
    >>> import demur as dm
    >>> found = dm.guarantees.auroc_interval(dm.Sample([1, 2, 3, 4], [0, 0, 0, 1], [2.5, 4.5, 5]))
    >>> round(found.auroc, 3), round(found.standard_error, 3)
    (0.833, 0.192)
    """

    auroc: float
    standard_error: float
    interval: Interval


@dataclass(frozen=True, slots=True, repr=False)
class AurocComparison:
    """AUROC of two scores on the same rows.

    Examples
    --------
    >>> import demur as dm
    >>> first = dm.Sample([1, 2, 3], [0, 0, 1], [2.5, 4, 5])
    >>> second = dm.Sample([1, 4, 3], [0, 0, 1], [2.5, 2, 5])
    >>> found = dm.guarantees.compare_auroc(first, second)
    >>> round(found.difference, 3), found.p_value < 0.05
    (0.333, False)
    """

    first: AurocEstimate
    second: AurocEstimate
    difference: float
    """First minus second."""
    standard_error: float
    interval: Interval
    p_value: float
    """Two-sided, of "both have the same AUROC"."""

    def __repr__(self) -> str:
        areas = f"{self.first.auroc:.4f} - {self.second.auroc:.4f} = {self.difference:+.4f}"
        low, high = self.interval.low, self.interval.high
        return f"AurocComparison({areas} [{low:+.4f}, {high:+.4f}], p = {self.p_value:.3g})"


@takes(sample=Sample)
def auroc_interval(sample: Sample, *, confidence: float = 0.95) -> AurocEstimate:
    """Return the AUROC of a single-score sample with DeLong's interval.

    The probability that an ID row has a smaller score than an OOD row, ties counting half. At an
    AUROC of exactly 1 or 0 the standard error is 0 and the interval has no width, though the true
    AUROC is not known exactly: the rows at hand just show no overlap.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sample = Sample(rng.normal(0, 1, 100), np.zeros(100), ood_scores=rng.normal(1, 1, 80))
    >>> found = auroc_interval(sample)
    >>> round(found.auroc, 3), round(found.standard_error, 3)
    (0.744, 0.037)
    """
    ranks, rows = _placements("sample", sample), (np.ones(sample.n_id), np.ones(sample.n_ood))
    return _estimate(ranks, rows, _variance(ranks, ranks, rows), confidence)


@takes(first=(Sample, ScoreSource), second=Sample)
def compare_auroc(
    first: Sample | ScoreSource, second: Sample | None = None, *, confidence: float = 0.95
) -> AurocComparison:
    """Return the difference of two single-score AUROCs on the same rows (DeLong et al., 1988).

    Given a source of two scores, and nothing else, it compares these from one histogram: rows that
    share a bin of a score count as ties, which is exact where bins hold a single score. A million
    rows and more have up to 1024 bins of each score: an AUROC is then off by 0.0005 or so at most,
    mostly by 0.00001 and less, and standard errors by about a thousandth of themselves.

    An AUROC of exactly 1 or 0 adds no uncertainty to the interval of the difference, which is
    then too narrow, and has no width if both are such; `p_value` is too small alike.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(0, 1, (100, 1)), rng.normal(1, 1, (80, 1))
    >>> noise = rng.normal(0, 1, 180)
    >>> one = Sample(x, np.zeros(100), ood_scores=y)
    >>> two = Sample(x[:, 0] + noise[:100], np.zeros(100), ood_scores=y[:, 0] + noise[100:])
    >>> found = compare_auroc(one, two)
    >>> found.difference > 0, found.p_value < 0.05
    (True, True)
    """
    if isinstance(first, ScoreSource):
        if second is not None:
            raise InvalidInputError("second: a source of two scores is compared by itself")
        return _compared(*_counted_placements(first), confidence)
    if second is None:
        raise InvalidInputError("second is missing: the same rows with the other score")
    if (first.n_id, first.n_ood) != (second.n_id, second.n_ood):
        raise InvalidInputError(
            f"first and second must have the same rows, got {first} and {second}"
        )
    a, b = _placements("first", first), _placements("second", second)
    return _compared(a, b, (np.ones(first.n_id), np.ones(first.n_ood)), confidence)


def _compared(
    a: _Placed, b: _Placed, rows: tuple[FloatArray, FloatArray], confidence: float
) -> AurocComparison:
    """Return the comparison of placements of so many rows each."""
    from scipy.special import ndtr

    var_a, var_b = _variance(a, a, rows), _variance(b, b, rows)
    variance = max(0.0, var_a + var_b - 2 * _variance(a, b, rows))
    error = float(np.sqrt(variance))
    one, two = _estimate(a, rows, var_a, confidence), _estimate(b, rows, var_b, confidence)
    difference = one.auroc - two.auroc
    if error > 0:
        p_value = float(2 * ndtr(-abs(difference) / error))
    else:
        p_value = 1.0 if difference == 0 else 0.0
    reach = _normal_quantile(confidence) * error
    interval = Interval(difference - reach, difference + reach)
    return AurocComparison(one, two, difference, error, interval, p_value)


def _placements(name: str, sample: Sample) -> tuple[FloatArray, FloatArray]:
    """Return, for each ID row, the share of OOD above it, and for each OOD row of ID below."""
    refuse_weights(sample)
    if sample.n_scores != 1:
        raise InvalidInputError(
            f"{name} has two scores, whose AUROC is tuned on the rows; compare single scores, or "
            "the combined score of a fixed rule"
        )
    if sample.n_id < 2 or sample.n_ood < 2:
        raise InvalidInputError(f"{name} needs at least two ID and two OOD rows, got {sample}")
    id_, ood = np.sort(sample.id_doubts[:, 0]), np.sort(sample.ood_doubts[:, 0])
    below = _share_below(sample.id_doubts[:, 0], ood)
    return 1 - below, _share_below(sample.ood_doubts[:, 0], id_)


def _share_below(values: FloatArray, ordered: FloatArray) -> FloatArray:
    """Return the share of `ordered` below each value, ties counting half."""
    left = np.searchsorted(ordered, values, "left")
    right = np.searchsorted(ordered, values, "right")
    return (left + right) / (2 * len(ordered))


def _counted_placements(source: ScoreSource) -> tuple[_Placed, _Placed, _Placed]:
    """Return placements of cells of two scores, by either score, and the rows in the cells."""
    seen = source.overview()
    ood = sum(seen.ood_rows)
    if len(source.score_names) != 2 or seen.weighted or min(seen.id_rows, ood) < 2:
        raise InvalidInputError(
            "first: a source needs two scores to compare, no weights, and at "
            f"least two ID and two OOD rows; it has the scores {source.score_names}, "
            f"{seen.id_rows} ID and {ood} OOD rows"
        )
    bins = 2 ** round(math.log2(max(min(seen.rows, 2**20), 2**16)) / 2)
    drawn = source.sample(_DRAWN, seed=0).scores
    drawn = drawn[np.isfinite(drawn).all(axis=1)] + 0.0
    cut = Bins(tuple(axis_for(column, bins, atoms=bins // 4) for column in drawn.T))
    counted = source.histogram(cut, Measure.of(seen, apart=False))
    if any(counted.infinite):
        raise InvalidInputError("first: scores of a source must be finite to be compared here")
    rows = counted.id.astype(np.float64), counted.ood[0].astype(np.float64)
    a, b = (_ranked(place, rows) for place in cut.places(counted.key))
    return a, b, rows


def _ranked(place: IntArray, rows: _Placed) -> _Placed:
    """Return the placements of cells by the bins they are in."""
    own, foreign = (np.bincount(place, side) for side in rows)
    own_below = (np.cumsum(own) - own / 2) / own.sum()
    foreign_below = (np.cumsum(foreign) - foreign / 2) / foreign.sum()
    return 1 - foreign_below[place], own_below[place]


def _variance(a: _Placed, b: _Placed, rows: _Placed) -> float:
    """Return the covariance of two AUROCs from the covariances of their placements."""
    found = 0.0
    for p, q, count in zip(a, b, rows, strict=True):
        n = count.sum()
        apart = (p - count @ p / n) * (q - count @ q / n)
        found += float(count @ apart / (n - 1) / n)
    return found


def _estimate(ranks: _Placed, rows: _Placed, variance: float, confidence: float) -> AurocEstimate:
    auroc, error = float(rows[0] @ ranks[0] / rows[0].sum()), math.sqrt(max(0.0, variance))
    reach = _normal_quantile(confidence) * error
    return AurocEstimate(auroc, error, Interval(max(0.0, auroc - reach), min(1.0, auroc + reach)))


def _normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(-ndtri(miss(confidence) / 2))
