"""AUROC and both OSCRs together, sorted once for many weightings of the same rows.

The definitions are those of `demur.metrics`, with a grid of directions for two scores.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Self

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.sample import Sample


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
        steps = [
            tuple(np.append(0, np.cumsum(mass[order.rows])[order.ends]) for mass in masses)
            for order in self.orders
        ]
        return _envelope(steps) if self.double else _trapezoid(*steps[0])


def _trapezoid(n_id: IntArray, n_ood: IntArray, loss: IntArray) -> Areas:
    fpr = n_ood / n_ood[-1]
    first = int(np.flatnonzero(n_id)[0])
    accepted = np.where(n_id > 0, (n_id - loss) / np.maximum(n_id, 1), 0.0)
    accepted[:first] = accepted[first]
    curves = (n_id / n_id[-1], accepted, (n_id - loss) / n_id[-1])
    return Areas(*(float(np.trapezoid(curve, fpr)) for curve in curves))


def _envelope(steps: list[tuple[IntArray, ...]]) -> Areas:
    total_id, total_ood = int(steps[0][0][-1]), int(steps[0][1][-1])
    tops = [np.full(total_ood, -np.inf) for _ in range(3)]
    for n_id, n_ood, loss in steps:
        length = np.diff(np.append(n_ood, total_ood))
        accepted = np.where(n_id > 0, (n_id - loss) / np.maximum(n_id, 1), -np.inf)
        curves = (n_id / total_id, accepted, (n_id - loss) / total_id)
        for top, curve in zip(tops, curves, strict=True):
            np.maximum(top, np.repeat(curve, length), out=top)
    # Where no ID row is accepted yet, the rate is taken to be the first one there is.
    some = np.flatnonzero(tops[1] > -np.inf)
    if len(some):
        tops[1][: some[0]] = tops[1][some[0]]
    return Areas(*(float(top.mean()) for top in tops))
