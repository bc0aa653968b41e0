"""Less than one sort: most rows of a large sample are merged before anything is searched.

A sample of the rows gives a guess. The rows of the cells around it are searched, which gives a
half-plane to beat; then all cells are judged (see `demur._kernels.narrowing`), and what may matter
is searched exactly, all other rows being one point per cell. The answer and its certificate are
those of a search over all rows.

It pays for many rows whose scores tell something. It is left to the tree over all rows where there
are fewer than a million, where scores are decimals (many are equal, and the tree is small), where
more than a quarter of the rows may matter or too many directions do (noise), where the scores span
so many decades that cells of equal steps tell nothing, where no rule meets the bounds, and with
bounds on groups, single sets and risk, a gap or a budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels.engines import Outcome
from demur._kernels.narrowing import RowMass, RowSums, StripCells, open_cells
from demur._kernels.numpy_engine.bounds import Best, Problem
from demur.core.points import Points
from demur.core.program import Program
from demur.tuning.prepared import Prepared, kernel_arguments
from demur.tuning.result import DirectionSet

LEAST_ROWS = 1_000_000
_MOST_OPEN = 0.25
# Rows that give the guess, and the part of all rows that is searched around it.
_GUESSED_FROM = 20_000
_AROUND = 0.03
# What is to be beaten need not be the best next to the guess, but for this part.
_GAP = 1e-3
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The rows that can matter, merged where they cannot, and what was found among them."""

    prepared: Prepared
    outcome: Outcome


def narrowed(prepared: Prepared, program: Program, allowed: DirectionSet) -> Narrowed | None:
    """Return the search among the rows that can matter; None where it does not pay."""
    points = prepared.points
    if len(points.scores) < LEAST_ROWS or program.linear or prepared.is_grown:
        return None
    if prepared.frame.whole:
        return None
    guess = _guess(prepared, program, allowed)
    if guess is None:
        return None
    searched = prepared.frame.points(points.scores)
    cells = StripCells.of(searched)
    sums = RowSums.of(cells, points.id, points.ood, points.loss)
    problem = Problem.of(*kernel_arguments(program))
    found = _to_beat(prepared, cells, sums, guess, program, allowed)
    if found is None:
        return None
    value = float(problem.value(found.id, found.loss, found.ood))
    best = Best(value, found.id, found.ood, found.loss)
    masses = RowMass.of(cells, sums, problem, best, points.id, points.loss)
    matter = open_cells(cells, masses, allowed.quarters, problem, best)
    if matter is None or int(cells.rows[matter].sum()) > _MOST_OPEN * len(points.scores):
        return None
    part = _merged(prepared, cells, sums, matter)
    outcome = part.search(program, allowed, start=found.weights[:1])
    lines = zip(outcome.weights, outcome.v, strict=True)
    stray = any((_crossed(prepared, cells, *line) & ~matter).any() for line in lines)
    return None if stray or len(outcome.v) == 0 else Narrowed(part, outcome)


def _to_beat(
    prepared: Prepared,
    cells: StripCells,
    sums: RowSums,
    guess: FloatArray,
    program: Program,
    allowed: DirectionSet,
) -> Outcome | None:
    """Return a good half-plane next to a guess, None if there is none.

    It must cross no merged cell: then it accepts of all rows what it accepts of the merged ones.
    """
    opened = np.zeros(len(cells.rows), bool)
    line, gap = guess[:3], _GAP * abs(guess[3])
    for _ in range(_ROUNDS):
        opened |= _around(prepared, cells, line)
        part = _merged(prepared, cells, sums, opened)
        outcome = part.search(program, allowed, start=line[None, :2], gap=gap)
        if len(outcome.v) == 0:
            return None
        line = np.array([*outcome.weights[0], outcome.v[0]])
        if not (_crossed(prepared, cells, line[:2], line[2]) & ~opened).any():
            return outcome
    return None


def _guess(prepared: Prepared, program: Program, allowed: DirectionSet) -> FloatArray | None:
    """Return weights, threshold and value of what is best on a sample of the rows."""
    points = prepared.points
    rows = np.unique(np.random.default_rng(0).integers(0, len(points.scores), _GUESSED_FROM))
    some = _part(points, rows)
    share = [float(part.sum()) / max(1, int(all_.sum())) for part, all_ in _pairs(some, points)]
    scaled = replace(
        program,
        min_id=int(program.min_id * share[0]),
        max_ood=tuple(
            -int(-most * part // 1) for most, part in zip(program.max_ood, share[1:], strict=True)
        ),
    )
    outcome = prepared.of_points(some).search(scaled, allowed, gap=0.0)
    if len(outcome.v) == 0:
        return None
    return np.array([*outcome.weights[0], outcome.v[0], outcome.lower_bound])


def _pairs(some: Points, points: Points) -> list[tuple[IntArray, IntArray]]:
    return [(some.id, points.id), *zip(some.ood, points.ood, strict=True)]


def _part(points: Points, rows: IntArray) -> Points:
    masses = points.id[rows], points.ood[:, rows], points.loss[rows]
    return Points(points.scores[rows], *masses, points.totals)


def _corners(
    prepared: Prepared, cells: StripCells, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the least and the largest value of scores in each cell along a direction."""
    frame = prepared.frame
    low, high = (
        (ends + np.array(frame.shift)[:, None]) / np.array(frame.divisor)[:, None]
        for ends in (cells.low, cells.high)
    )
    sides = [(a, b) if w >= 0 else (b, a) for a, b, w in zip(low, high, weights, strict=True)]
    least, most = (weights[0] * sides[0][k] + weights[1] * sides[1][k] for k in (0, 1))
    return least, most


def _around(prepared: Prepared, cells: StripCells, line: FloatArray) -> BoolArray:
    """Return the cells next to a line, with a few per cent of the rows."""
    least, most = _corners(prepared, cells, line[:2])
    away = np.maximum(least - line[2], line[2] - most)
    order = np.argsort(away)
    few = np.searchsorted(np.cumsum(cells.rows[order]), _AROUND * len(cells.cell))
    opened: BoolArray = away <= 0
    opened[order[:few]] = True
    return opened


def _crossed(prepared: Prepared, cells: StripCells, weights: FloatArray, v: float) -> BoolArray:
    """Return the cells that a half-plane may cross."""
    least, most = _corners(prepared, cells, weights)
    return np.asarray((least <= v) & (most > v))


def _merged(prepared: Prepared, cells: StripCells, sums: RowSums, opened: BoolArray) -> Prepared:
    """Return the rows of some cells, every other cell being one point."""
    points = prepared.points
    rows, closed = np.flatnonzero(opened.take(cells.cell)), np.flatnonzero(~opened)
    scores = np.concatenate([points.scores[rows], points.scores[cells.some[closed]]])
    pairs = (
        (points.id, sums.id),
        (points.loss, sums.loss),
        *zip(points.ood, sums.ood, strict=True),
    )
    id_, loss, *ood = (
        np.concatenate([row[rows], total[closed].astype(np.int64)]) for row, total in pairs
    )
    return prepared.of_points(Points(scores, id_, np.stack(ood), loss, points.totals))
