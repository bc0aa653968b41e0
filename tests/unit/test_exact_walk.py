"""Walking through a box in whole numbers sees the cells that comparing all lines sees."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

from demur._kernels import exact_walk
from demur._kernels.engines import PLAIN, Doubt, Outcome
from demur._kernels.exact import Goal
from demur._kernels.exact_walk import (
    AcceptedSet,
    DoubtfulRows,
    ExactCell,
    ExactWalk,
    is_certain,
    settled,
    with_all_lines,
)


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
            assert np.flatnonzero(AcceptedSet.of_cell(cell, rows).inside).tolist() == inside


@pytest.mark.parametrize("kind", ["lattice", "thirds", "decades", "mixed"])
def test_lines_that_a_box_lacks_are_found(kind):
    rng = np.random.default_rng(5)
    for _ in range(100):
        doubt = random_doubt(rng, kind)
        rows = DoubtfulRows(doubt.points, doubt.masses.T, PLAIN)
        thinned = doubt._replace(points=doubt.points[1:], masses=doubt.masses[1:])
        full = with_all_lines(thinned, rows)
        assert len(full.points) <= len(doubt.points)
        seen = {masses[0] for masses, *_ in ExactWalk(full).cells(10**6, 0)}
        assert {1 + mass for mass in seen} == listed(doubt)


def box_without_a_line():
    """Return an outcome with a doubt, rows and a goal.

    The box reaches beyond the line of the second row, which it does not know to cross it.
    """
    points, masses = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1, 1], [0, 1], [0, 0]])
    edges = (0.0, 1.0), (0.5, 0.5), (1.01, 3.0)
    nothing = np.empty((0, 2)), np.empty((0, 3), np.int64)
    doubt = Doubt(0, 1.0, 1.0, *edges, *nothing, masses[:, 0], 0.0)
    outcome = Outcome(np.empty((0, 2)), np.empty(0), 0, 0, 0, "infeasible", np.inf, 1, 0, (doubt,))
    none = np.zeros(1, np.int64), np.zeros((1, 2), np.int64)
    goal = Goal(np.array([1, 0, 0]), True, 1, *none)
    return outcome, DoubtfulRows(points, masses, PLAIN), goal


def test_cells_beside_a_box_that_lacks_a_line_are_not_believed():
    outcome, rows, goal = box_without_a_line()
    walk = ExactWalk(outcome.doubts[0])
    (cell,) = map(walk.placed, walk.cells(10, 1))
    assert (cell.masses, AcceptedSet.of_cell(cell, rows).masses) == ((1, 0, 0), (2, 1, 0))
    found = settled(outcome, rows, goal)
    assert (found.id, found.ood, found.loss, found.status) == (1, 0, 0, "optimal")
    assert (rows.scores @ found.weights[0] <= found.v[0]).tolist() == [True, False]


def test_a_box_that_lacks_a_line_is_unresolved_where_steps_do_not_suffice(monkeypatch):
    outcome, rows, goal = box_without_a_line()
    monkeypatch.setattr(exact_walk, "_STEPS", 2)  # both edges
    found = settled(outcome, rows, goal)
    assert (found.status, found.unresolved, found.lower_bound) == ("infeasible", 1, 0.0)


def test_weights_without_all_their_digits_are_exact():
    # 3/2 of the smallest float rounds to twice as much: then the first row has the larger value.
    smallest = Fraction(2) ** -1074
    rows = DoubtfulRows(np.array([[0, 2.0**1000], [1.75 * 2.0**-74, 0]]), np.ones((3, 2)), PLAIN)
    doubt = Doubt(0, 1.0, 1.0, *[(0.0, 1.0)] * 3, rows.scores, rows.masses.T, np.zeros(3), 0.0)
    cell = ExactCell((1, 1, 1), doubt, smallest * 3 / 2, Fraction(13, 8) / 2**74)
    assert AcceptedSet.of_cell(cell, rows).inside.tolist() == [True, False]


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
            accepted = AcceptedSet.of_cell(cell, rows)
            weights = accepted.rule()
            values = doubt.points @ weights[:2]
            np.testing.assert_array_equal(values <= weights[2], accepted.inside)


def is_accepted_somewhere(points, inside):
    """Return whether these come before all others in some direction with weights >= 0."""
    x, y = ([Fraction(v) for v in column] for column in points.T.tolist())
    turns = {Fraction(0), Fraction(1)}
    for i, j in combinations(range(len(points)), 2):
        dx, dy = x[i] - x[j], y[i] - y[j]
        if dx * dy < 0:
            turns.add(abs(dx) / (abs(dx) + abs(dy)))
    for a, b in pairwise(sorted(turns)):
        share = (a + b) / 2
        values = [(1 - share) * p + share * q for p, q in zip(x, y, strict=True)]
        ours = [v for v, own in zip(values, inside, strict=True) if own]
        others = [v for v, own in zip(values, inside, strict=True) if not own]
        if not others or max(ours) < min(others):
            return True
    return False


@pytest.mark.parametrize("kind", ["lattice", "ulps"])
def test_only_sets_of_half_planes_have_rules(kind):
    rng = np.random.default_rng(3)
    found = {True: 0, False: 0}
    for _ in range(300):
        points = rng.integers(-3, 4, (int(rng.integers(2, 7)), 2)) * 1.0
        if kind == "ulps":
            points = rng.choice([0.1, np.nextafter(0.1, 1), 1 / 3, 7.0], points.shape)
        points = np.unique(points, axis=0)
        inside = rng.random(len(points)) < 0.5
        inside[0] = True
        rows = DoubtfulRows(points, np.ones((3, len(points)), np.int64), PLAIN)
        line = AcceptedSet(inside, np.ones(2), rows).rule()
        exists = is_accepted_somewhere(points, inside)
        found[exists] += 1
        assert exists or line is None
        if kind == "lattice":
            assert exists == (line is not None)
        if line is not None:
            values = line[0] * points[:, 0] + line[1] * points[:, 1]
            np.testing.assert_array_equal(values <= line[2], inside)
    assert min(found.values()) > 30


@pytest.mark.parametrize("kind", ["decades", "offset", "outliers", "ulps"])
def test_rules_that_are_certain_are_found_again(kind):
    rng = np.random.default_rng(4)
    draw = {
        "decades": lambda n: 10.0 ** rng.integers(-30, 30, (n, 2)),
        "offset": lambda n: rng.normal((0, 10.0 ** rng.integers(6, 17)), 1, (n, 2)),
        "outliers": lambda n: rng.choice([0.0, 1 / 3, 2.0, -1e100, 1e280, 1e9], (n, 2)),
        "ulps": lambda n: rng.choice([0.1, np.nextafter(0.1, 1), 1 / 3, 7.0], (n, 2)),
    }[kind]
    seen = 0
    for _ in range(400):
        points = np.unique(draw(int(rng.integers(2, 8))), axis=0)
        weights = np.array([1.0, rng.random() * 10.0 ** -float(rng.integers(0, 60))])
        weights = (weights if rng.random() < 0.5 else weights[::-1]) * rng.choice([-1, 1], 2)
        v = float(rng.choice(weights[0] * points[:, 0] + weights[1] * points[:, 1]))
        rows = DoubtfulRows(points, np.ones((3, len(points)), np.int64), PLAIN)
        if is_certain(weights, v, *points.T):
            accepted = AcceptedSet.of_rule(weights, v, rows)
            line = accepted.rule()
            values = line[0] * points[:, 0] + line[1] * points[:, 1]
            np.testing.assert_array_equal(values <= line[2], accepted.inside)
            seen += not accepted.inside.all()
    assert seen > 50
