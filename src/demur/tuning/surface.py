"""The best operating point for every pair of bounds, gathered from batches.

Each operating point goes to the highest level of ID mass and the lowest level of OOD mass it
meets; a running minimum over the grid then hands it on to all weaker bounds.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from demur._arrays import BoolArray, IntArray
from demur.core.points import Points
from demur.tuning.envelope import Batch
from demur.tuning.settle import Rules

# Quotients that differ by less, relatively, are compared as fractions.
_DOUBT = 16 * float(np.finfo(np.float64).eps)
_BUFFER = 8192


class Surface:
    """Least L/nI, then largest nI, then least nO, with nI >= min_id[i] and nO <= max_ood[s, j].

    `min_id` has shape (rows,), `max_ood` (sets, columns), both ascending.
    """

    def __init__(self, min_id: IntArray, max_ood: IntArray, points: Points) -> None:
        self._min_id, self._max_ood = min_id, max_ood
        totals = points.totals
        # Two different quotients are then different floats, in the right order.
        self._float_is_exact = float(totals.loss) * float(totals.id) < 2.0**52
        self._best = Rules.none(points.scores.shape[1])
        self._cells = np.full((len(min_id), max_ood.shape[1]), -1)
        self._waiting: list[tuple[Rules, IntArray]] = []
        self._places = np.empty(0, np.int64)

    def add(self, batch: Batch) -> None:
        """Take in operating points."""
        row = np.searchsorted(self._min_id, batch.id, side="right") - 1
        column = np.max(
            [np.searchsorted(m, o) for m, o in zip(self._max_ood, batch.ood, strict=True)], axis=0
        )
        columns = self._cells.shape[1]
        met = np.flatnonzero((row >= 0) & (column < columns))
        place = row[met] * columns + column[met]
        nI, nO, L = batch.id[met], batch.ood[:, met].sum(axis=0), batch.loss[met]
        new = self._may_improve(nI, nO, L, self._cells.ravel()[place])
        if not new.any():
            return
        rules = Rules(nI[new], nO[new], L[new], batch.lines(met[new]))
        found = rules.found()
        self._waiting.append((rules.take(found), place[new][found]))
        if sum(len(places) for _, places in self._waiting) >= _BUFFER:
            self._fold()

    def keep(self, best: Rules, kept: BoolArray) -> None:
        """Start anew from some of the rules last returned by `best`, with their lines settled."""
        self._best, self._places = best.take(kept), self._places[kept]
        self._fold()

    def best(self) -> tuple[Rules, IntArray]:
        """Return the rules that are best somewhere, and where."""
        self._fold()
        return self._best, self._cells

    def _may_improve(self, nI: IntArray, nO: IntArray, L: IntArray, rival: IntArray) -> BoolArray:
        """Return False only where an operating point does not beat its rival, -1 for none."""
        best, value = self._best, L / nI
        rival_value = np.append(best.loss / best.id, np.inf)[rival]
        rival_id, rival_ood = np.append(best.id, 0)[rival], np.append(best.ood, 0)[rival]
        certain = self._float_is_exact | (L == 0)
        doubt = np.where(certain, 0.0, _DOUBT * value)
        tied_better = (nI > rival_id) | ((nI == rival_id) & (nO < rival_ood))
        different = (nI != rival_id) | (np.append(best.loss, 0)[rival] != L)
        tied = np.abs(value - rival_value) <= doubt
        better: BoolArray = tied & (tied_better | (different & ~certain))
        better |= value < rival_value - doubt
        return better

    def _fold(self) -> None:
        """Let the waiting operating points compete for the cells they serve."""
        parts = [(self._best, self._places), *self._waiting]
        self._waiting = []
        joint = Rules.joined(*(rules for rules, _ in parts))
        places = np.concatenate([place for _, place in parts])
        order = self._sorted(joint.id, joint.ood, joint.loss)
        grid = np.full(self._cells.size, len(order))
        np.minimum.at(grid, places[order], np.arange(len(order)))
        grid = np.minimum.accumulate(grid.reshape(self._cells.shape)[::-1], axis=0)[::-1]
        grid = np.minimum.accumulate(grid, axis=1)
        used = np.unique(grid[grid < len(order)])
        self._cells = np.where(grid < len(order), np.searchsorted(used, grid), -1)
        self._best = joint.take(order[used])
        self._places = places[order[used]]

    def _sorted(self, nI: IntArray, nO: IntArray, L: IntArray) -> IntArray:
        """Return the rows from the best to the worst."""
        value = L / nI
        order: IntArray = np.lexsort((nO, -nI, value))
        if self._float_is_exact:
            return order
        ascending = value[order]
        apart = np.flatnonzero(np.diff(ascending) > _DOUBT * ascending[1:]) + 1
        edges = np.concatenate([[0], apart, [len(order)]])
        for i in np.flatnonzero(np.diff(edges) > 1):
            close = slice(edges[i], edges[i + 1])
            if ascending[close][-1] > 0:
                order[close] = sorted(
                    order[close], key=lambda r: (Fraction(int(L[r]), int(nI[r])), -nI[r], nO[r])
                )
        return order
