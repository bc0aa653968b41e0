"""Rates as functions of accepted masses, and the areas under curves of them.

Areas are AUROC, AUPR, AURC and AUGRC; the formulas of all areas are here, and the checks that
metrics share.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray, takes
from demur._kernels import reference
from demur.core.points import Points
from demur.core.program import Number, Totals, exact
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.metrics.rules import given
from demur.tuning.operating_points import Rules, Search
from demur.tuning.prepared import Prepared
from demur.tuning.staircases import ERROR, Stairs, most_precise, roc_stairs

Per = Literal["accepted", "all"]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates on a sample with these totals. Without a denominator they are NaN."""

    totals: Totals

    @property
    def ood(self) -> int:
        """Total OOD mass."""
        return sum(self.totals.ood)

    @property
    def ood_share(self) -> float:
        """Share of OOD in the sample, by weight."""
        id_, ood = self.totals.id_weight(self.totals.id), self.totals.ood_weight(self.ood)
        return ood / (id_ + ood)

    def tpr(self, nI: IntArray) -> FloatArray:
        """Return the share of ID accepted."""
        return nI / self.totals.id

    def fpr(self, nO: IntArray) -> FloatArray:
        """Return the share of OOD accepted."""
        return nO / self.ood if self.ood else np.full(len(nO), np.nan)

    def mean_loss(self, L: IntArray) -> FloatArray:
        """Return the summed loss of the accepted ID divided by all ID."""
        return self._loss(L) / self.totals.id_weight(self.totals.id)

    def selective_risk(self, nI: IntArray, L: IntArray) -> FloatArray:
        """Return the mean loss of the accepted ID."""
        with np.errstate(invalid="ignore"):
            return self._loss(L) / (nI * 2.0**-self.totals.id_exponent)

    def ccr(self, nI: IntArray, L: IntArray, per: Per) -> FloatArray:
        """Return the share of accepted ID, or the accepted share of all ID, that is correct."""
        if per == "accepted":
            return 1 - self.selective_risk(nI, L)
        if self.totals.id_exponent == self.totals.loss_exponent:
            return (nI - L) / self.totals.id
        return self.tpr(nI) - self.mean_loss(L)

    def precision(self, nI: IntArray, nO: IntArray, prior: float) -> FloatArray:
        """Return the share of ID among the accepted; 1 by convention where that is 0/0."""
        id_ = (1 - prior) * self.tpr(nI)
        ood = prior * self.fpr(nO) if prior else np.zeros(len(nO))
        return share_of(id_, ood)

    def _loss(self, L: IntArray) -> FloatArray:
        loss: FloatArray = L.astype(np.float64) * 2.0**-self.totals.loss_exponent
        return loss


def share_of(part: FloatArray, rest: FloatArray) -> FloatArray:
    """Return part / (part + rest); 1 by convention where that is 0/0."""
    whole = part + rest
    with np.errstate(invalid="ignore"):
        shares: FloatArray = part / whole
    shares[whole == 0] = 1.0
    return shares


class Groups(NamedTuple):
    """Masses accepted after each group of equal scores, from nothing to everything."""

    id: IntArray
    ood: IntArray
    loss: IntArray


def tie_groups(points: Points) -> Groups:
    """Return the masses of one score; rows with a score of +inf are the last group."""
    swept = reference.sweep(points.scores[:, 0], points.id, points.ood, points.loss)
    totals = points.totals
    ends = (totals.id, sum(totals.ood), totals.loss)
    columns = (swept.id, swept.ood.sum(axis=0), swept.loss)
    return Groups(*(np.r_[0, c, end] for c, end in zip(columns, ends, strict=True)))


def unit_groups(sample: Sample) -> Groups:
    """Return the masses of one score of rows that count once and have a loss of 0 or 1.

    ID rows come first, so their places tell them from OOD rows; only losses have to be looked up.
    """
    scores = np.concatenate([sample.id_doubts[:, 0], sample.ood_doubts[:, 0]])
    order = np.argsort(scores)
    ordered = scores.take(order)
    # No threshold accepts a score of +inf.
    finite = int(np.searchsorted(ordered, np.inf))
    last = np.flatnonzero(ordered[1 : finite + 1] != ordered[:finite][: len(ordered) - 1])
    if finite == len(ordered):
        last = np.append(last, finite - 1)
    is_wrong = np.zeros(len(scores), np.int8)
    is_wrong[: sample.n_id] = sample.id_loss
    nI = np.cumsum(order < sample.n_id).take(last)
    L = np.cumsum(is_wrong.take(order), dtype=np.int64).take(last)
    ends = sample.n_id, sample.n_ood, int(is_wrong.sum())
    return Groups(*(np.r_[0, c, end] for c, end in zip((nI, last + 1 - nI, L), ends, strict=True)))


def prior(rates: Rates, ood_prior: Number | None) -> float:
    """Return the declared prior, or the sample's own share of OOD."""
    if ood_prior is None:
        return rates.ood_share
    if not 0 <= exact("ood_prior", ood_prior) < 1:
        raise InvalidInputError(f"ood_prior must be in [0, 1), got {ood_prior}")
    return float(ood_prior)


def check_correctness(sample: Sample, per: Per = "accepted") -> None:
    """Refuse losses that do not say what is correct."""
    if per not in ("accepted", "all"):
        raise InvalidInputError(f'per must be "accepted" or "all", got {per!r}')
    other = np.flatnonzero((sample.id_loss != 0) & (sample.id_loss != 1))
    if len(other):
        raise InvalidInputError(
            f"id_loss[{other[0]}] is {sample.id_loss[other[0]]:.6g}: accuracy needs losses of 0 "
            "(correct) and 1 (wrong); use the selective risk for other losses"
        )


class CurveArea(float):
    """An area, and by how much the true one may be larger.

    A float like any other, with `error`; the true area is from `lower` to `upper`.

    Examples
    --------
    >>> area = CurveArea(0.9, error=1e-4)
    >>> area, area.lower, round(area.upper, 6)
    (0.9, 0.9, 0.9001)
    """

    error: float

    def __new__(cls, value: float, error: float = 0.0) -> CurveArea:
        """Make an area that is exact unless an error is given."""
        area = super().__new__(cls, value)
        area.error = error
        return area

    def __getnewargs__(self) -> tuple[float, float]:  # type: ignore[override]
        return float(self), self.error

    @property
    def lower(self) -> float:
        """The value itself: rules that attain it are known."""
        return float(self)

    @property
    def upper(self) -> float:
        """The largest area that is not ruled out."""
        return min(1.0, float(self) + self.error)


def auroc(sample: Sample | Prepared, *, exact: bool = False, search: Search = None) -> CurveArea:
    """Return the area under the ROC curve, TPR over FPR.

    One score: ``P(s_id < s_ood) + P(s_id = s_ood) / 2``. NaN without OOD rows.

    Parameters
    ----------
    sample
        Or what `prepare` made of one. Two scores: the area under the largest TPR attainable at
        each bound on the FPR with mu >= 0, tuned on the sample itself and so optimistic.
    exact
        Two scores of more than some thousand rows: by default the area may be too small by
        1e-4, or by what the result states as `CurveArea.error`; True finds all of it, which takes a
        few times as long, and without the compiled engine, or with weights that are no counts,
        a time quadratic in the number of rows.
    search
        For two scores: `Exact()` (default) or `Grid(d)`, a grid of d angles.

    Examples
    --------
    >>> auroc(Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.2, 0.9]))
    0.75
    """
    rows = given(sample)
    rates = Rates(rows.points.totals)
    if rates.ood == 0:
        return CurveArea(math.nan)
    if isinstance(rows, Prepared):
        return area_under_stairs(roc_stairs(rows, search, error_of(exact)), rates)
    return CurveArea(area_under_roc(tie_groups(rows.points), rates.totals))


def auroc_and_aupr(
    sample: Sample | Prepared, *, ood_prior: Number | None = None, search: Search = None
) -> tuple[CurveArea, CurveArea]:
    """Return `auroc` and `aupr` by steps, of two scores from one staircase.

    So found, the area under precision has a somewhat larger error.
    """
    rows = given(sample)
    rates = Rates(rows.points.totals)
    if not isinstance(rows, Prepared) or rates.ood == 0:
        average = aupr(sample, method="average_precision", ood_prior=ood_prior)
        return auroc(sample), average
    stairs, pi = roc_stairs(rows, search, ERROR), prior(rates, ood_prior)
    return area_under_stairs(stairs, rates), area_of_precision(stairs, rates, pi)


def error_of(exact: bool) -> float:
    """Return the error that a call allows."""
    return 0.0 if exact else ERROR


def area_under_stairs(stairs: Stairs, rates: Rates) -> CurveArea:
    """Return the area under the TPR over the FPR of rules that no other beats in both."""
    edges = np.append(stairs.rules.ood, rates.ood)
    return CurveArea(area_under_steps(edges, rates.tpr(stairs.rules.id), rates.ood), stairs.error)


def area_of_precision(stairs: Stairs, rates: Rates, pi: float) -> CurveArea:
    """Return the area under precision over recall, of the rules of a ROC curve."""
    area = _precise_area(stairs.rules, rates, pi)
    if stairs.error == 0:
        return CurveArea(area)
    # A better rule has its recall at an FPR less by x_gap, or more recall by y_gap; more recall
    # at the same FPR is more precision, by less than as much again on average.
    fewer = np.maximum(stairs.rules.ood - stairs.x_gap * rates.ood, 0.0)
    most = _precise_area(stairs.rules._replace(ood=fewer), rates, pi)
    return CurveArea(area, most - area + 2 * stairs.y_gap)


def _precise_area(rules: Rules, rates: Rates, pi: float) -> float:
    rules = most_precise(rules)
    # Rows with a score of +inf come last, whatever the rule.
    nI, nO = np.r_[0, rules.id, rates.totals.id], np.r_[0, rules.ood, rates.ood]
    return area_under_precision(rates.precision(nI, nO, pi), rates.tpr(nI), trapezoid=False)


def aupr(
    sample: Sample | Prepared,
    *,
    method: Literal["trapezoid", "average_precision"] = "trapezoid",
    ood_prior: Number | None = None,
    exact: bool = False,
    search: Search = None,
) -> CurveArea:
    """Return the area under the precision-recall curve, with ID as the positive class.

    NaN without OOD rows.

    Parameters
    ----------
    sample
        Two scores: the area under the largest precision attainable at each bound on the
        recall with mu >= 0, a staircase that leaves no choice of `method`.
    method
        How the operating points of one score are joined: ``"trapezoid"`` by straight lines
        starting from precision 1 at recall 0, ``"average_precision"`` by steps.
    ood_prior
        Share of OOD inputs behind the precision; the sample's own, `ood_share`, by default.
    exact, search
        As in `auroc`.

    Examples
    --------
    >>> sample = Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.3])
    >>> round(aupr(sample), 4), round(aupr(sample, method="average_precision"), 4)
    (0.9028, 0.9167)
    """
    if method not in ("trapezoid", "average_precision"):
        raise InvalidInputError(
            f'method must be "trapezoid" or "average_precision", got {method!r}'
        )
    rows = given(sample)
    rates = Rates(rows.points.totals)
    pi = prior(rates, ood_prior)
    if rates.ood == 0:
        return CurveArea(math.nan)
    if isinstance(rows, Prepared):
        # An FPR that is wrong by little makes precision wrong by more.
        return area_of_precision(roc_stairs(rows, search, 0.4 * error_of(exact)), rates, pi)
    nI, nO, _ = tie_groups(rows.points)
    precision, trapezoid = rates.precision(nI, nO, pi), method == "trapezoid"
    return CurveArea(area_under_precision(precision, rates.tpr(nI), trapezoid=trapezoid))


@takes(sample=Sample)
def aurc(sample: Sample) -> float:
    """Return the area under the risk-coverage curve of the ID rows.

    The mean, over the ID rows, of the selective risk when all rows with the same score or a
    smaller one are accepted. It weighs the losses of the least doubtful rows most; `augrc`
    does not. OOD rows play no part.

    Examples
    --------
    >>> round(aurc(Sample([0.1, 0.2, 0.7], [0, 1, 0])), 4)
    0.2778
    """
    return area_under_risk(*groups_of_one_score(sample, "aurc"))


@takes(sample=Sample)
def augrc(sample: Sample) -> float:
    """Return the area under the generalised risk-coverage curve of the ID rows.

    The generalised risk is the summed loss of the accepted ID rows divided by all ID rows.
    The curve runs straight through groups of equal scores. OOD rows play no part.

    Examples
    --------
    >>> round(augrc(Sample([0.1, 0.2, 0.7], [0, 1, 0])), 4)
    0.1667
    """
    return area_under_generalised_risk(*groups_of_one_score(sample, "augrc"))


def groups_of_one_score(sample: Sample, name: str) -> tuple[Groups, Rates]:
    """Return what the thresholds of the only score accept, and what turns it into rates."""
    if sample.n_scores != 1:
        raise InvalidInputError(
            f"{name} needs one score, the sample has {sample.n_scores}: "
            "choose one with sample.score(column)"
        )
    points = Points.of(sample)
    return tie_groups(points), Rates(points.totals)


def area_under_roc(groups: Groups, totals: Totals) -> float:
    """Return ``P(s_id < s_ood) + P(s_id = s_ood) / 2``; NaN without OOD."""
    total_id, total_ood = totals.id, sum(totals.ood)
    if total_ood == 0:
        return math.nan
    steps, heights = np.diff(groups.ood), groups.id
    if total_id * total_ood < 2**62:
        twice = int(steps @ heights[1:]) + int(steps @ heights[:-1])
        return twice / (2 * total_id * total_ood)
    return _joined(steps / total_ood, heights / total_id)


def area_under_precision(precision: FloatArray, recall: FloatArray, *, trapezoid: bool) -> float:
    """Return the area under operating points of rising recall, joined by lines or by steps."""
    steps = np.diff(recall)
    return _joined(steps, precision) if trapezoid else float(steps @ precision[1:])


def area_under_ccr(groups: Groups, rates: Rates, per: Per) -> float:
    """Return the area under the correct classification rate over the FPR; NaN without OOD."""
    if rates.ood == 0:
        return math.nan
    ccr = rates.ccr(groups.id, groups.loss, per)
    # Before any ID is accepted, the first known rate stands in.
    first = int(np.searchsorted(groups.id, 1))
    if per == "accepted":
        ccr[:first] = ccr[first]
    return _joined(np.diff(rates.fpr(groups.ood)), ccr)


def area_under_risk(groups: Groups, rates: Rates) -> float:
    """Return the mean, over the ID rows, of the selective risk up to their score."""
    first = int(np.searchsorted(groups.id, 1))
    nI, L = groups.id[first - 1 :], groups.loss[first:]
    return float(np.diff(rates.tpr(nI)) @ rates.selective_risk(nI[1:], L))


def area_under_generalised_risk(groups: Groups, rates: Rates) -> float:
    """Return the area under accepted loss / all ID over the TPR."""
    return _joined(np.diff(rates.tpr(groups.id)), rates.mean_loss(groups.loss))


def area_under_steps(edges: IntArray, heights: FloatArray, total: int) -> float:
    """Return the area under steps between these masses out of `total`."""
    return float((np.diff(edges) / total) @ heights)


def _joined(steps: FloatArray, heights: FloatArray) -> float:
    """Return the area under points so many steps apart, joined by straight lines."""
    return (float(steps @ heights[1:]) + float(steps @ heights[:-1])) / 2
