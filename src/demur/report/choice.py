"""Which of many rules are best for some bound on precision, or for some costs."""

from __future__ import annotations

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.program import at_least
from demur.report.counts import Counts
from demur.tuning.frontier import PERCENT


def best_at_any_precision(counts: Counts, *, worst: bool) -> IntArray:
    """Return the rules that are best at a percent level of recall and some precision.

    At any prior a bound on precision bounds the quotient of FPR and TPR. By rising quotient,
    the rules wanted are those that no earlier one with enough ID mass beats.
    """
    totals = counts.totals
    if sum(totals.ood) == 0 or len(counts.id) == 0:
        return np.empty(0, np.int64)
    quotient = _fpr(counts, worst=worst) / counts.id
    rank = np.empty(len(quotient), np.int64)
    rank[np.lexsort((quotient, -counts.id, counts.loss / counts.id))] = np.arange(len(rank))
    order = np.lexsort((rank, quotient))
    found = []
    for level in PERCENT:
        least = at_least(level, totals.id, totals.id_rounding)
        rows = order[counts.id[order] >= least]
        best_before = np.minimum.accumulate(np.append(len(rank), rank[rows]))[:-1]
        found.append(rows[rank[rows] < best_before])
    return np.unique(np.concatenate(found))


def best_at_any_cost(counts: Counts, reject_id: FloatArray) -> IntArray:
    """Return the rules that are best for these costs of rejecting ID and any cost of OOD.

    What an ID row costs is a number per rule, what an OOD row costs a factor of its OOD mass:
    the rules wanted are the corners of a convex chain.
    """
    totals, ood = counts.totals, counts.ood
    if len(ood) == 0:
        return np.empty(0, np.int64)
    loss = counts.loss * 2.0**-totals.loss_exponent
    weight = counts.id * 2.0**-totals.id_exponent
    found = []
    for cost in reject_id:
        paid = loss - cost * weight
        order = np.lexsort((-counts.id, paid, ood))
        first = order[np.append(True, np.diff(ood[order]) > 0)]
        found.append(first[_convex_chain(ood[first].astype(float), paid[first])])
    return np.unique(np.concatenate(found))


def _convex_chain(x: FloatArray, y: FloatArray) -> list[int]:
    """Return the corners of the lower hull from the left end down to the lowest point."""
    chain: list[int] = []
    for i in range(int(np.argmin(y)) + 1):
        while len(chain) > 1 and _above(x, y, chain[-2], chain[-1], i):
            chain.pop()
        chain.append(i)
    return chain


def _above(x: FloatArray, y: FloatArray, a: int, b: int, c: int) -> bool:
    return bool((y[b] - y[a]) * (x[c] - x[a]) >= (y[c] - y[a]) * (x[b] - x[a]))


def _fpr(counts: Counts, *, worst: bool) -> FloatArray:
    totals = np.array(counts.totals.ood, float)
    if not worst:
        return np.asarray(counts.ood / totals.sum())
    some = totals > 0
    return np.asarray((counts.ood_sets[some] / totals[some, None]).max(axis=0))
