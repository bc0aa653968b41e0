"""Both engines find the optimum that the plain reference finds, in every model.

``DEMUR_CASES=20000`` asks for more lattices than the few of the normal suite.
"""

import os

import numpy as np
import pytest
from instances import random_model, random_rows, to_sample

from demur._kernels import compiled, numpy_engine, reference
from demur._kernels.exact import Goal
from demur._kernels.numpy_engine import branch_and_bound, ranked_slabs, slabs
from demur.core.points import Points
from demur.tuning.operating_points import quarters
from demur.tuning.prepared import goal_of
from demur.tuning.result import DIRECTION_SETS


class Slabs:
    """The NumPy engine, made to take every input for a hard one and to cut it finely."""

    prepare = staticmethod(numpy_engine.prepare)
    reweight = staticmethod(numpy_engine.reweight)

    @staticmethod
    def search(*arguments, **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(branch_and_bound, "_LARGE", -1)
            patch.setattr(slabs, "_FEW", 24)
            patch.setattr(slabs, "_THIN", 6)
            return numpy_engine.search(*arguments, **options)


class RankedSlabs(Slabs):
    """The same, as if scores spanned decades."""

    @staticmethod
    def search(*arguments, **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(branch_and_bound, "is_even", lambda tree, chart: False)
            patch.setattr(ranked_slabs, "_FEW", 12)
            patch.setattr(ranked_slabs, "_THIN", 2)
            return Slabs.search(*arguments, **options)


ENGINES = [
    pytest.param(numpy_engine, id="numpy"),
    pytest.param(Slabs, id="numpy-slabs"),
    pytest.param(RankedSlabs, id="numpy-ranked"),
    pytest.param(
        compiled,
        id="compiled",
        marks=pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built"),
    ),
]


def by_reference(points, goal, directions):
    """Return objective-tied best masses over all quarter turns."""
    found = []
    for quarter in quarters(DIRECTION_SETS[directions]):
        x, y = quarter.coordinates(points.scores)
        merged = reference.merge(x, y, points.id, points.ood, points.loss)
        cells = reference.search_chart(merged, goal)
        if cells is not None:
            found.append((cells.id, cells.ood, cells.loss))
    if not found:
        return None
    nI, nO, L = np.array(found).T
    row = goal.best(nI, nO, L)[0]
    return found[row][:2]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("directions", ["nonneg", "circle"])
def test_same_optimum_as_the_reference(engine, directions):
    rng = np.random.default_rng(7)
    for _ in range(250):
        rows = random_rows(rng, 2)
        _, model = random_model(rng, rows)
        points = Points.of(to_sample(rows))
        goal = goal_of(model.program(points.totals))
        tree = engine.prepare(points.scores, points.id, points.ood, points.loss)
        outcome = engine.search(tree, DIRECTION_SETS[directions].quarters, goal)
        expected = by_reference(points, goal, directions)
        if expected is None:
            assert len(outcome.v) == 0 and outcome.status == "infeasible"
            continue
        assert (outcome.id, outcome.ood) == expected
        for (p, q), v in zip(outcome.weights, outcome.v, strict=True):
            taken = p * points.scores[:, 0] + q * points.scores[:, 1] <= v
            assert points.id[taken].sum() == outcome.id
            assert points.ood[:, taken].sum() == outcome.ood
            assert points.loss[taken].sum() == outcome.loss


LATTICES = int(os.environ.get("DEMUR_CASES", "1200")) // 20


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("directions", ["nonneg", "circle"])
def test_same_optimum_on_lattices(engine, directions):
    """Hundreds of rows on few lines: whole bundles of lines meet in one point of the dual."""
    rng = np.random.default_rng(11)
    for _ in range(LATTICES):
        n, step = int(rng.integers(60, 260)), 2.0 ** -rng.integers(1, 5)
        scores = np.round(rng.normal(size=(n, 2)) / step) * step
        masses = np.zeros((3, n), np.int64)
        id_rows = rng.random(n) < 0.6
        masses[0, id_rows], masses[1, ~id_rows] = 1, 1
        lossy = id_rows & (rng.random(n) < 0.3)
        masses[2, lossy] = 1 if rng.random() < 0.5 else rng.integers(1, 1000, lossy.sum())
        least = int(masses[0].sum() * rng.uniform(0.1, 0.9))
        most = int(masses[1].sum() * rng.uniform(0.1, 0.9))
        goal = Goal(np.array([1, 0, 0]), True, least, np.array([most]), np.array([[0, 0]]))
        points = Points(scores, masses[0], masses[1:2], masses[2], None)
        tree = engine.prepare(scores, masses[0], masses[1:2], masses[2])
        outcome = engine.search(tree, DIRECTION_SETS[directions].quarters, goal)
        expected = by_reference(points, goal, directions)
        if expected is None:
            assert len(outcome.v) == 0 and outcome.status == "infeasible"
        else:
            assert (outcome.id, outcome.ood) == expected


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("n", [300, 1200])
def test_same_optimum_on_continuous_scores(engine, n):
    rng = np.random.default_rng(n)
    scores = rng.normal(size=(n, 2))
    scores[:, 0] = np.exp(8 * scores[:, 0])
    masses = np.zeros((3, n), np.int64)
    masses[0, ::2], masses[1, 1::2] = 1, 1
    masses[2, ::2] = rng.random(len(masses[2, ::2])) < 0.2
    goal = Goal(np.array([1, 0, 0]), True, n // 4, np.array([n // 3]), np.array([[0, 0]]))
    tree = engine.prepare(scores, masses[0], masses[1:2], masses[2])
    outcome = engine.search(tree, (0,), goal)
    merged = reference.merge(scores[:, 0], scores[:, 1], masses[0], masses[1:2], masses[2])
    expected = reference.search_chart(merged, goal)
    assert (outcome.id, outcome.ood, outcome.loss) == (expected.id, expected.ood, expected.loss)


@pytest.mark.parametrize("engine", ENGINES)
def test_gap_and_budget_are_honest(engine):
    rng = np.random.default_rng(3)
    n = 3000
    scores = rng.normal(size=(n, 2))
    masses = np.zeros((3, n), np.int64)
    masses[0, ::2], masses[1, 1::2] = 1, 1
    masses[2, ::2] = rng.random(n // 2) < 0.5
    goal = Goal(np.array([1, 0, 0]), True, n // 3, np.array([n]), np.array([[0, 0]]))
    tree = engine.prepare(scores, masses[0], masses[1:2], masses[2])
    best = engine.search(tree, (0,), goal)
    assert best.status == "optimal"
    optimum = best.loss / best.id
    assert best.lower_bound == pytest.approx(optimum)
    loose = engine.search(tree, (0,), goal, gap=0.05)
    assert loose.loss / loose.id <= optimum + 0.05
    assert loose.lower_bound <= optimum
    short = engine.search(tree, (0,), goal, budget=3)
    assert short.status == "budget"
    assert short.lower_bound <= optimum
    longer = engine.search(tree, (0,), goal, budget=max(4, best.boxes // 2))
    assert longer.status == "budget"
    assert 0.5 * optimum < longer.lower_bound <= optimum
    again = engine.reweight(tree, 2 * masses[0], masses[1:2], 2 * masses[2])
    doubled = engine.search(again, (0,), goal._replace(min_id=2 * (n // 3)))
    assert (doubled.id, doubled.loss) == (2 * best.id, 2 * best.loss)
