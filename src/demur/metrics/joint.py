"""Metrics of errors and OOD inputs together: DS-F1, DS-AURC, the SCOD risk-TPR area, and PRR.

The first two are of a *shape* of rules, the best of which they tell on the sample itself:
half-planes that weigh two doubts with mu >= 0, or boxes that limit each. They are quotients of
masses, found by Dinkelbach's method: a search for the best difference, the quotient known so far
being its price, until nothing is better. Every step is exact, and so is the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from demur._arrays import takes
from demur.core.models import RejectionModel, check_share
from demur.core.points import Points
from demur.core.program import (
    ID,
    LinearBound,
    Number,
    Program,
    Totals,
    integer_coefficients,
)
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.metrics.areas import (
    area_under_risk,
    check_correctness,
    groups_of_one_score,
    tie_groups,
)
from demur.tuning.prepared import BoxFinder, Prepared, as_prepared
from demur.tuning.result import DIRECTION_SETS, Exact, Shape
from demur.tuning.tune import search_exact, search_one_score

Masses = tuple[int, int, int]
"""ID, OOD and loss mass that a rule accepts."""
Find = Callable[[Program], Masses | None]

_EXACT = Exact()


@takes(sample=(Sample, Prepared))
def ds_f1(sample: Sample | Prepared, *, shape: Shape = "half-plane") -> float:
    """Return the largest F1 of accepting the ID rows that are right, and nothing else.

    That is 2 TP / (accepted + all ID), TP being the accepted ID rows that are right; wrong ID rows
    and OOD rows are mistakes alike. Losses must be 0 or 1.

    Parameters
    ----------
    shape
        Of the rules among which the best is found: ``"half-plane"``, or ``"box"`` as in SURE+,
        which proposed this metric and looks for it on a grid of limits.

    Examples
    --------
    >>> sample = Sample([[0, 0], [1, 2], [2, 1]], [0, 0, 1], ood_scores=[[0, 3], [3, 0]])
    >>> ds_f1(sample, shape="box"), ds_f1(sample)
    (0.8, 0.6666666666666666)
    """
    rows, find = _searched(sample, shape)
    totals = rows.points.totals
    all_id = Fraction(totals.id) / Fraction(2) ** totals.id_exponent

    def quotient(masses: Masses) -> Fraction:
        nI, nO, L = _weights(masses, totals)
        return (nI - L) * 2 / (nI + nO + all_id)

    def price(value: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        return Fraction(2), value - 2, value

    best = _best_quotient(_plain(totals), find, totals, quotient, price, largest=True)
    return math.nan if best is None else float(best)


@takes(sample=(Sample, Prepared))
def ds_aurc(sample: Sample | Prepared, *, bins: int = 100, shape: Shape = "half-plane") -> float:
    """Return the mean, over bins of coverage, of the least risk of rules in each.

    Coverage is the share of ID accepted; the risk is 1 - TP / accepted, so that wrong ID rows and
    OOD rows are mistakes alike. Bins without a rule are left out. Losses must be 0 or 1.

    Parameters
    ----------
    bins
        Of the same width: the k-th has the coverages above (k-1)/bins, up to k/bins.
    shape
        As of `ds_f1`.

    Examples
    --------
    >>> sample = Sample([[0, 0], [1, 2], [2, 1]], [0, 0, 1], ood_scores=[[0, 3], [3, 0]])
    >>> round(ds_aurc(sample, bins=3, shape="box"), 4)
    0.1111
    """
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise InvalidInputError(f"bins must be a positive whole number, got {bins!r}")
    rows, find = _searched(sample, shape)
    totals = rows.points.totals

    def quotient(masses: Masses) -> Fraction:
        nI, nO, L = _weights(masses, totals)
        return (L + nO) / (nI + nO)

    def price(value: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        return Fraction(1), -value, 1 - value

    found = []
    for k in range(bins):
        above, most = k * totals.id // bins, (k + 1) * totals.id // bins
        if above == most:
            continue
        bound = LinearBound(((ID, -1),), (), -most)
        program = replace(_plain(totals), min_id=above + 1, linear=(bound,))
        found.append(_best_quotient(program, find, totals, quotient, price, largest=False))
    risks = [float(risk) for risk in found if risk is not None]
    return sum(risks) / len(risks) if risks else math.nan


@takes(sample=Sample)
def risk_tpr_area(sample: Sample, *, beta: Number = 0.5) -> float:
    """Return the area under ``beta FPR + (1 - beta) selective risk`` over the TPR, of one score.

    The joint risk of selective classification with OOD detection (SCOD), averaged over the ID
    rows: each stands for the rule that accepts all rows with its score or a smaller one. NaN
    without OOD rows.

    Examples
    --------
    >>> round(risk_tpr_area(Sample([0.1, 0.2, 0.7], [0, 1, 0], ood_scores=[0.15, 0.9])), 4)
    0.3056
    """
    part = float(check_share("beta", beta))
    groups, rates = groups_of_one_score(sample, "risk_tpr_area")
    if rates.ood == 0:
        return math.nan
    some = np.flatnonzero(groups.id)
    nI, nO, L = groups.id[some], groups.ood[some], groups.loss[some]
    value = part * rates.fpr(nO) + (1 - part) * rates.selective_risk(nI, L)
    return float(np.diff(rates.tpr(nI), prepend=0.0) @ value)


@takes(sample=Sample)
def prr(sample: Sample) -> float:
    """Return the prediction rejection ratio of one score, of the ID rows.

    How far `aurc` gets from that of a random order (0), which is the mean loss, to that of rows
    sorted by their very losses (1). NaN where all losses are alike: then no order is better.

    Examples
    --------
    >>> prr(Sample([0.1, 0.2, 0.3, 0.7], [0, 0, 1, 1])), round(prr(Sample([1, 2, 3], [1, 0, 0])), 4)
    (1.0, -1.25)
    """
    groups, rates = groups_of_one_score(sample, "prr")
    order = np.argsort(sample.id_loss, kind="stable")
    places = np.empty(len(order))
    places[order] = np.arange(len(order))
    oracle = tie_groups(Points.of(Sample(places, sample.id_loss, id_weight=sample.id_weight)))
    mean = float(np.average(sample.id_loss, weights=sample.id_weight))
    best = area_under_risk(oracle, rates)
    if best >= mean:
        return math.nan
    return (area_under_risk(groups, rates) - mean) / (best - mean)


def _searched(sample: Sample | Prepared, shape: Shape) -> tuple[Prepared, Find]:
    """Return the rows, and what finds the best rule of a program."""
    if shape not in ("half-plane", "box"):
        raise InvalidInputError(f'shape must be "half-plane" or "box", got {shape!r}')
    rows = as_prepared(sample, None)
    check_correctness(rows.sample)
    if shape == "box":
        finder = BoxFinder(rows)
        return rows, lambda program: finder.masses(program, _EXACT)

    def find(program: Program) -> Masses | None:
        if rows.sample.n_scores == 1:
            line = search_one_score(rows.points, program)
        else:
            line, _ = search_exact(rows, program, DIRECTION_SETS["nonneg"], _EXACT)
        return None if line is None else (line.id, line.ood, line.loss)

    return rows, find


def _plain(totals: Totals) -> Program:
    """Return a program that asks for some ID mass only."""
    return RejectionModel("selective_risk").program(totals)


def _weights(masses: Masses, totals: Totals) -> tuple[Fraction, Fraction, Fraction]:
    """Return accepted ID, OOD and loss in the units of the weights."""
    exponents = totals.id_exponent, totals.ood_exponent, totals.loss_exponent
    nI, nO, L = (Fraction(m) / Fraction(2) ** e for m, e in zip(masses, exponents, strict=True))
    return nI, nO, L


def _best_quotient(
    program: Program,
    find: Find,
    totals: Totals,
    quotient: Callable[[Masses], Fraction],
    price: Callable[[Fraction], tuple[Fraction, Fraction, Fraction]],
    *,
    largest: bool,
) -> Fraction | None:
    """Return the best quotient of the rules that a program allows, None if it allows none.

    `price` tells what a unit of loss, ID and OOD costs where a quotient is known already.
    """
    units = [
        Fraction(2) ** -e for e in (totals.loss_exponent, totals.id_exponent, totals.ood_exponent)
    ]
    # Any value will do to start from. That of accepting everything asks for a trade already, where
    # 0 or 1 would take all ID rows, which rules of every direction do alike: a slow question.
    value = quotient((totals.id, sum(totals.ood), totals.loss))
    best: Fraction | None = None
    while True:
        costs = (c * unit for c, unit in zip(price(value), units, strict=True))
        (loss, id_, ood), _ = integer_coefficients(*costs)
        masses = find(replace(program, loss=loss, id=id_, ood=ood, per_id=False))
        if masses is None:
            return None
        value = quotient(masses)
        if best is not None and (value <= best if largest else value >= best):
            return best
        best = value
