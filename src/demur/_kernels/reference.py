"""The searches in plain NumPy: the definition of correct that faster engines must equal.

Masses are int64. `nI`, `nO`, `L` are accepted ID mass, OOD mass per set and loss mass, as in
`demur.core.program`. Nothing is checked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels import exact

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


class Sweep(NamedTuple):
    """Cumulative masses at every distinct value of one score, ascending."""

    value: _Floats
    id: _Ints
    ood: _Ints
    loss: _Ints


def sweep(values: _Floats, id_mass: _Ints, ood_mass: _Ints, loss_mass: _Ints) -> Sweep:
    """Sort once and accumulate; an operating point exists only after a whole group of ties."""
    # The order within ties does not matter, so the fastest sort will do.
    order = np.argsort(values)
    ordered = values[order]
    last = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)])
    return Sweep(
        ordered[last],
        np.cumsum(id_mass[order])[last],
        np.cumsum(ood_mass[:, order], axis=1)[:, last],
        np.cumsum(loss_mass[order])[last],
    )


class Merged(NamedTuple):
    """Distinct points in a chart, with the masses of their duplicates added up."""

    x: _Floats
    y: _Floats
    id: _Ints
    ood: _Ints
    loss: _Ints


def merge(x: _Floats, y: _Floats, id_mass: _Ints, ood_mass: _Ints, loss_mass: _Ints) -> Merged:
    """Add up the masses of equal points."""
    order = np.lexsort((y, x))
    xs, ys = x[order], y[order]
    first = np.flatnonzero(np.append(True, (xs[1:] != xs[:-1]) | (ys[1:] != ys[:-1]))[: len(xs)])
    if len(first) == 0:
        return Merged(xs, ys, id_mass, ood_mass, loss_mass)
    return Merged(
        xs[first],
        ys[first],
        np.add.reduceat(id_mass[order], first),
        np.add.reduceat(ood_mass[:, order], first, axis=1),
        np.add.reduceat(loss_mass[order], first),
    )


class Cells(NamedTuple):
    """Accepted sets of half-planes ``x + mu*y <= v`` whose boundary passes through a pivot.

    One row each, for any mu strictly between `low` and `high`; the pivot itself is accepted.
    """

    pivot: int
    low: _Floats
    high: _Floats
    id: _Ints
    ood: _Ints
    loss: _Ints


def pivot_cells(points: Merged) -> Iterator[Cells]:
    """Enumerate the accepted sets of all half-planes with non-negative weights.

    The line that bounds a half-plane can be lowered until it touches an accepted point, the
    pivot i. Point j is then accepted when ``x_j + mu*y_j <= x_i + mu*y_i``, which changes at one
    mu at most. Sorting these mu gives every accepted set with pivot i. A set that exists only
    at a mu where several lines cross exists also beside it, with the line lifted a little, so
    open intervals between crossings suffice, and mu = 0 and infinity add nothing. Only points
    with ID mass are pivots: giving up an OOD point at the rim never hurts.
    """
    x, y = points.x, points.y
    for i in np.flatnonzero(points.id > 0):
        dx, dy = x - x[i], y - y[i]
        leaves, enters = (dx <= 0) & (dy > 0), (dx > 0) & (dy <= 0)
        crossing = np.flatnonzero(leaves | enters)
        with np.errstate(divide="ignore", over="ignore"):
            mu = np.abs(dx[crossing]) / np.abs(dy[crossing])
        order = np.argsort(mu)
        mu, crossing = mu[order], crossing[order]
        sign = np.where(enters[crossing], 1, -1)
        edges = np.concatenate([[0.0], mu, [np.inf]])
        # Equal quotients of exact differences are equal floats: ties leave no gap between them.
        keep = np.flatnonzero(edges[:-1] < edges[1:])
        yield Cells(
            int(i),
            edges[keep],
            edges[keep + 1],
            _running(points.id, dx <= 0, crossing, sign)[keep],
            np.stack([_running(ood, dx <= 0, crossing, sign)[keep] for ood in points.ood]),
            _running(points.loss, dx <= 0, crossing, sign)[keep],
        )


def _running(mass: _Ints, at_first: npt.NDArray[np.bool_], crossing: _Ints, sign: _Ints) -> _Ints:
    start = int(mass[at_first].sum())
    return np.concatenate([[start], start + np.cumsum(sign * mass[crossing])])


def weights_between(low: _Floats, high: _Floats) -> _Floats:
    """Return weights (p, q), shape (n, 2), with low < q/p < high, larger weight 1."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        mu = np.sqrt(low) * np.sqrt(high)
    mu = np.where(low == 0, high / 2, mu)
    mu = np.where(np.isinf(high), 2 * low, mu)
    mu = np.where((low == 0) & np.isinf(high), 1.0, mu)
    mu = np.where((low < mu) & (mu < high), mu, low + (high - low) / 2)
    large = mu > 1
    return np.column_stack([np.where(large, 1 / np.where(large, mu, 1), 1), np.minimum(mu, 1)])


class Found(NamedTuple):
    """Half-planes ``p*x + q*y <= v``, (p, q) the rows of `weights`, that are equally good.

    They share the accepted ID, OOD and loss mass.
    """

    weights: _Floats
    v: _Floats
    id: int
    ood: int
    loss: int


def search_chart(
    points: Merged,
    objective: _Ints,
    per_id: bool,
    min_id: int,
    max_ood: _Ints,
    ratio: _Ints,
    thinnest: float = 0.0,
) -> Found | None:
    """Return the optimal half-planes with non-negative weights, or None if none is feasible.

    Accepted sets that exist only within a relative range of mu of `thinnest` are passed over.
    """
    rows: list[tuple[float, float, int, int, int, int]] = []
    for cells in pivot_cells(points):
        met = exact.feasible(cells.id, cells.ood, min_id, max_ood, ratio)
        if thinnest:
            met &= cells.high > cells.low * (1 + thinnest)
        rim = np.flatnonzero(met)
        nO = cells.ood.sum(axis=0)
        for k in rim[exact.best(cells.id[rim], nO[rim], cells.loss[rim], objective, per_id)]:
            rows.append(
                (cells.low[k], cells.high[k], cells.pivot, cells.id[k], nO[k], cells.loss[k])
            )
    if not rows:
        return None
    low, high, pivot, nI, nO, L = (np.array(column) for column in zip(*rows, strict=True))
    kept = exact.best(nI, nO, L, objective, per_id)
    weights = weights_between(low[kept], high[kept])
    v = weights[:, 0] * points.x[pivot[kept]] + weights[:, 1] * points.y[pivot[kept]]
    first = kept[0]
    return Found(weights, v, int(nI[first]), int(nO[first]), int(L[first]))
