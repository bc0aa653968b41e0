"""Walking through a box in whole numbers sees the cells that comparing all lines sees."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

from demur._kernels.engines import PLAIN, Doubt
from demur._kernels.exact_walk import AcceptedSet, DoubtfulRows, ExactWalk


def random_doubt(rng, kind):
    n = int(rng.integers(1, 7))
    points = {
        "lattice": lambda: rng.integers(-3, 4, (n, 2)) * 1.0,
        "thirds": lambda: rng.integers(-3, 4, (n, 2)) / 3,
        "decades": lambda: np.column_stack([np.full(n, 0.3), 10.0 ** rng.integers(-30, 30, n)]),
        "mixed": lambda: rng.choice([0.3, 1e-20, 1e15, 0.7, -0.3], (n, 2)),
    }[kind]()
    points = np.unique(points, axis=0)
    t = (0.0, 1.0) if rng.random() < 0.5 else tuple(np.sort(rng.random(2)).tolist())
    low, high = (tuple((sign * rng.random(2) * 3).tolist()) for sign in (-1, 1))
    if rng.random() < 0.2:
        high = (np.inf, np.inf)
    # A mass of its own for every point tells the sets apart.
    masses = np.zeros((len(points), 3), np.int64)
    masses[:, 0] = 2 ** np.arange(1, len(points) + 1)
    still, step = int(rng.integers(2)), float(rng.choice([-1.0, 1.0, 0.25, -4.0]))
    below = np.array([1, 0, 0])
    return Doubt(still, float(rng.choice([-1, 1])), step, t, low, high, points, masses, below, 0.0)


def lines_of(doubt):
    p, q = doubt.points[:, doubt.still].tolist(), doubt.points[:, 1 - doubt.still].tolist()
    unit, step = Fraction(doubt.unit), Fraction(doubt.step)
    return [(unit * Fraction(a), step * Fraction(b)) for a, b in zip(p, q, strict=True)]


def listed(doubt):
    """Return the ID masses of all cells of a box: between any two meetings, and any two lines."""
    first, last = (Fraction(t) for t in doubt.t)
    edges = []
    for ends in (doubt.low, doubt.high):
        a, b = (Fraction(v) if abs(v) < np.inf else Fraction(2) ** 2000 for v in ends)
        slope = (b - a) / (last - first)
        edges.append((a - slope * first, slope))
    lines = lines_of(doubt)
    meetings = {first, last}
    for (a, b), (c, d) in combinations([*lines, *edges], 2):
        if b != d and first < (c - a) / (b - d) < last:
            meetings.add((c - a) / (b - d))
    found = set()
    for start, end in pairwise(sorted(meetings)):
        t = (start + end) / 2
        values = [a + t * b for a, b in lines]
        low, high = (a + t * b for a, b in edges)
        for under, over in pairwise(sorted({low, high, *(v for v in values if low < v < high)})):
            v = (under + over) / 2
            inside = [k for k, value in enumerate(values) if value <= v]
            found.add(1 + sum(int(doubt.masses[k, 0]) for k in inside))
    return found


@pytest.mark.parametrize("kind", ["lattice", "thirds", "decades", "mixed"])
def test_all_cells_are_seen_and_no_others(kind):
    rng = np.random.default_rng(len(kind))
    for _ in range(150):
        doubt = random_doubt(rng, kind)
        walk = ExactWalk(doubt)
        seen = walk.cells(10**6, 0)
        assert {masses[0] for masses, *_ in seen} == listed(doubt)
        for cell in map(walk.placed, seen):
            # The half-plane that stands for a cell accepts what is said of it.
            inside = [k for k, (a, b) in enumerate(lines_of(doubt)) if a + cell.t * b <= cell.v]
            assert cell.masses[0] == 1 + sum(int(doubt.masses[k, 0]) for k in inside)
            rows = DoubtfulRows(doubt.points, doubt.masses.T, PLAIN)
            assert np.flatnonzero(AcceptedSet(cell, rows).inside).tolist() == inside


def test_a_walk_ends_after_so_many_steps():
    rng = np.random.default_rng(1)
    doubt = random_doubt(rng, "lattice")
    walk = ExactWalk(doubt)
    assert walk.cells(walk.steps, 0) is None
    assert walk.cells(10**6, 0) is not None and walk.steps >= len(doubt.points)


def test_a_set_is_accepted_between_its_ends():
    rng = np.random.default_rng(2)
    for _ in range(200):
        doubt = random_doubt(rng, "lattice")
        rows = DoubtfulRows(doubt.points, doubt.masses.T, PLAIN)
        walk = ExactWalk(doubt)
        for cell in map(walk.placed, walk.cells(10**6, 2)):
            accepted = AcceptedSet(cell, rows)
            weights = accepted.rule()
            values = doubt.points @ weights[:2]
            np.testing.assert_array_equal(values <= weights[2], accepted.inside)
