"""AUROC and both OSCRs together, sorted once for many weightings of the same rows.

The formulas are those of `demur.metrics`, with a grid of directions for two scores.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.program import Totals
from demur.core.sample import Sample
from demur.metrics.areas import area_under_ccr, area_under_roc, area_under_steps
from demur.metrics.rates import Groups, Rates


class Areas(NamedTuple):
    """The three areas of the table."""

    auroc: float
    oscr_accepted: float
    """1 - selective risk over FPR, the paper's OSCR."""
    oscr_all: float
    """Correct and accepted among all ID over FPR."""


class _Order(NamedTuple):
    rows: IntArray
    """All rows, ID first, by rising score."""
    ends: IntArray
    """Where groups of equal scores end."""


class SortedAreas(NamedTuple):
    """Rows of a sample in the order of each direction."""

    orders: tuple[_Order, ...]
    loss: FloatArray
    double: bool

    @classmethod
    def of(cls, sample: Sample, *, angles: int) -> Self:
        """Sort along `angles` equidistant directions with mu >= 0; along the score if single."""
        scores = np.concatenate([sample.id_scores, sample.ood_scores])
        double = sample.n_scores == 2
        turns = np.linspace(0, math.pi / 2, angles) if double else np.zeros(1)
        orders = []
        for turn in turns:
            weights = np.array([math.cos(turn), math.sin(turn)][: sample.n_scores])
            # cos(pi/2) is 6e-17 in floats, which would break the ties of the other score.
            combined = scores @ np.where(weights < 1e-15, 0.0, weights)
            rows = np.argsort(combined, kind="stable")
            ends = np.flatnonzero(np.append(np.diff(combined[rows]) > 0, True))
            orders.append(_Order(rows, ends))
        return cls(tuple(orders), sample.id_loss, double)

    def values(self, id_times: IntArray, ood_times: IntArray) -> Areas:
        """Return the areas with row i counted ``times[i]`` times."""
        no_id, no_ood = np.zeros_like(ood_times), np.zeros_like(id_times)
        wrong = id_times * self.loss.astype(np.int64)
        masses = (
            np.concatenate([id_times, no_id]),
            np.concatenate([no_ood, ood_times]),
            np.concatenate([wrong, no_id]),
        )
        totals = Totals(int(id_times.sum()), (int(ood_times.sum()),), int(wrong.sum()))
        groups = [
            Groups(*(np.append(0, np.cumsum(mass[order.rows])[order.ends]) for mass in masses))
            for order in self.orders
        ]
        return (_best_of if self.double else _of_one)(groups, Rates(totals))


def _of_one(groups: list[Groups], rates: Rates) -> Areas:
    return Areas(
        area_under_roc(groups[0], rates.totals),
        area_under_ccr(groups[0], rates, "accepted"),
        area_under_ccr(groups[0], rates, "all"),
    )


def _best_of(groups: list[Groups], rates: Rates) -> Areas:
    """Return the areas under the largest rates of all directions at each OOD mass."""
    tops = np.full((3, rates.ood), np.nan)
    for each in groups:
        length = np.diff(np.append(each.ood, rates.ood))
        curves = (
            rates.tpr(each.id),
            rates.ccr(each.id, each.loss, "accepted"),
            rates.ccr(each.id, each.loss, "all"),
        )
        for top, curve in zip(tops, curves, strict=True):
            np.fmax(top, np.repeat(curve, length), out=top)
    # Where no ID row is accepted yet, the rate is taken to be the first one there is.
    some = np.flatnonzero(~np.isnan(tops[1]))
    if len(some):
        tops[1][: some[0]] = tops[1][some[0]]
    edges = np.arange(rates.ood + 1)
    return Areas(*(area_under_steps(edges, top, rates.ood) for top in tops))
