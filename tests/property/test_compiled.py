"""The compiled engine returns the optimum of the reference, and half-planes that attain it.

A larger campaign: DEMUR_CASES=20000 pytest tests/property/test_compiled.py
"""

import os
from fractions import Fraction

import numpy as np
import pytest

from demur._kernels import compiled, reference
from demur._kernels.exact import Goal

pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="the C extension is not built")

CASES = int(os.environ.get("DEMUR_CASES", "1200"))
QUARTERS = [(0,), (0, 3), (0, 1), (0, 1, 2, 3), (2,)]
AXES = [(1, 0), (0, 1), (-1, 0), (0, -1)]
FREE = 2**60


class Instance:
    """Points with masses."""

    def __init__(self, scores, id, ood, loss):
        self.scores, self.id, self.ood, self.loss = scores, id, ood, loss

    def tree(self):
        return compiled.prepare(self.scores, self.id, self.ood, self.loss)

    def taken(self, weights, v):
        accepted = weights[0] * self.scores[:, 0] + weights[1] * self.scores[:, 1] <= v
        return accepted & ((self.id > 0) | (self.ood > 0).any(axis=0))

    def masses(self, accepted):
        return (
            int(self.id[accepted].sum()),
            int(self.ood[:, accepted].sum()),
            int(self.loss[accepted].sum()),
        )


class Program:
    """What is searched for."""

    def __init__(self, objective, per_id, min_id, max_ood, ratio):
        self.objective, self.per_id, self.min_id = np.array(objective, np.int64), per_id, min_id
        self.max_ood = np.array(max_ood, np.int64)
        self.ratio = np.array(ratio, np.int64).reshape(len(max_ood), 2)

    @property
    def goal(self):
        return Goal(self.objective, self.per_id, self.min_id, self.max_ood, self.ratio)

    def key(self, id, ood, loss):
        a, b, c = (int(k) for k in self.objective)
        value = Fraction(a * loss + b * id + c * ood, id if self.per_id else 1)
        return value, -id, ood, loss


def expected(instance, quarters, program):
    """Return the best key and all accepted sets that attain it, by enumeration."""
    best, sets = None, set()
    for quarter in quarters:
        (a, b), (c, d) = AXES[quarter], AXES[(quarter + 1) % 4]
        x, y = instance.scores @ [a, b], instance.scores @ [c, d]
        held = (instance.id > 0) | (instance.ood > 0).any(axis=0)
        points = reference.merge(
            x[held], y[held], instance.id[held], instance.ood[:, held], instance.loss[held]
        )
        found = reference.search_chart(points, program.goal)
        if found is None:
            continue
        key = program.key(found.id, found.ood, found.loss)
        if best is None or key < best:
            best, sets = key, set()
        if key == best:
            for (p, q), v in zip(found.weights, found.v, strict=True):
                sets.add(((p * x + q * y <= v) & held).tobytes())
    return best, sets


def check(instance, quarters, program, outcome, *, all_sets=True):
    best, sets = expected(instance, quarters, program)
    if best is None:
        assert outcome.status == "infeasible"
        assert len(outcome.v) == 0
        return
    assert outcome.status == "optimal"
    assert outcome.unresolved == 0
    assert program.key(outcome.id, outcome.ood, outcome.loss) == best
    assert outcome.lower_bound == pytest.approx(float(best[0]), rel=1e-15)
    found = set()
    for weights, v in zip(outcome.weights, outcome.v, strict=True):
        assert np.abs(weights).max() == 1
        assert any(np.dot(weights, AXES[q]) >= 0 <= np.dot(weights, AXES[q - 3]) for q in quarters)
        accepted = instance.taken(weights, v)
        masses = instance.masses(accepted)
        assert masses[:2] == (outcome.id, outcome.ood)
        assert program.key(*masses) == best
        found.add(accepted.tobytes())
    assert len(found) == len(outcome.v)
    if all_sets and len(sets) < 256:
        assert found == sets


def random_scores(rng, n):
    high = int(rng.choice([1, 2, 3, 5, 9, 17, 1 << 20]))
    scores = rng.integers(0, high + 1, (n, 2)).astype(np.float64)
    kind = rng.choice(["free", "free", "free", "shift", "line", "falling", "constant", "curve"])
    if kind == "shift":
        scores -= high // 2
    if kind == "line":
        scores[:, 1] = scores[:, 0]
    if kind == "falling":
        scores[:, 1] = high - scores[:, 0]
    if kind == "constant":
        scores[:, int(rng.integers(2))] = 3
    if kind == "curve":
        scores[:, 1] = (scores[:, 0] - high // 2) ** 2
    if rng.random() < 0.3:
        scores[:, int(rng.integers(2))] *= 2.0 ** int(rng.integers(-40, 40))
    return scores + 0.0


def random_masses(rng, n, sets):
    n_id = int(rng.integers(1, n + 1))
    heavy = int(rng.choice([1, 1, 1, 3, 1 << 40]))
    weight = rng.integers(0 if heavy > 1 else 1, heavy + 1, n)
    weight[0] = max(weight[0], 1)
    id = np.where(np.arange(n) < n_id, weight, 0)
    ood = np.zeros((sets, n), np.int64)
    for i in range(n_id, n):
        ood[rng.integers(sets), i] = weight[i]
    losses = {
        "zero_one": lambda: rng.integers(0, 2, n),
        "zero": lambda: np.zeros(n, np.int64),
        "one": lambda: np.ones(n, np.int64),
        "few": lambda: rng.integers(0, 4, n),
        "general": lambda: rng.integers(0, 1 << 9, n),
    }
    chosen = str(rng.choice(["zero_one", "zero_one", "zero", "one", "few", "general"]))
    return id, ood, id * losses[chosen]()


def random_instance(rng):
    n = int(rng.integers(1, 13)) if rng.random() < 0.8 else int(rng.integers(13, 40))
    order = rng.permutation(n)
    id, ood, loss = random_masses(rng, n, int(rng.choice([1, 1, 1, 2, 3])))
    return Instance(random_scores(rng, n), id[order], ood[:, order].copy(), loss[order])


def random_program(rng, instance):
    total = int(instance.id.sum())
    free = [(FREE, (0, 0))] * len(instance.ood)
    kind = str(rng.choice(["risk", "risk", "ratio", "cost", "most_id", "least_ood", "purest"]))
    min_id = int(rng.integers(0, total + 2))
    bounds = [int(rng.integers(0, int(row.sum()) + 1)) for row in instance.ood]
    ratios = [(int(rng.integers(0, 5)), int(rng.integers(1, 5))) for _ in instance.ood]
    none = [pair for _, pair in free]
    if kind == "risk":
        return Program((1, 0, 0), True, min_id, bounds, none)
    if kind == "ratio":
        return Program((1, 0, 0), True, min_id, [b for b, _ in free], ratios)
    if kind == "cost":
        size = int(rng.choice([3, 1 << 61]))
        costs = rng.integers(0, size, 3)
        signed = (int(costs[0]), -int(costs[1]), int(costs[2]))
        return Program(signed, False, 0, [b for b, _ in free], none)
    if kind == "most_id":
        return Program((0, -1, 0), False, 1, bounds, none)
    if kind == "least_ood":
        return Program((0, 0, 1), False, min_id, [b for b, _ in free], none)
    return Program((0, 0, 1), True, min_id, [b for b, _ in free], none)


@pytest.mark.parametrize("block", range(4))
def test_small_instances(block):
    rng = np.random.default_rng([11, block])
    for _ in range(CASES // 4):
        instance = random_instance(rng)
        quarters, program = QUARTERS[rng.integers(len(QUARTERS))], random_program(rng, instance)
        outcome = compiled.search(instance.tree(), quarters, program.goal)
        check(instance, quarters, program, outcome)


def cloud(rng, n, kind):
    id = (np.arange(n) < n // 2).astype(np.int64)
    scores = rng.normal(size=(n, 2)) + np.where(id[:, None] > 0, 0, [0.5, 1.5])
    loss = id * (rng.random(n) < 0.2 / (1 + np.exp(-scores[:, 0])))
    if kind == "exponential":
        loss = id * np.rint(rng.exponential(1e6, n)).astype(np.int64)
    if kind == "rounded":
        scores = np.round(scores, 1) + 0.0
    if kind == "decades":
        scores[:, 0] = 10.0 ** (-8 + 5 * np.minimum(scores[:, 0], 1.6))
    if kind == "tied":
        scores[rng.random(n) < 0.5, 0] = 0.0
    if kind == "offset":
        scores += [1e6, -1e3]
    if kind == "falling":
        scores[:, 1] = np.floor(scores[:, 0] * 2**20) / 2**20
        scores[:, 0] = 4.0 - scores[:, 1]
    return Instance(scores, id, 1 - id[None], loss)


KINDS = ["plain", "exponential", "rounded", "decades", "tied", "offset", "falling"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [150, 400, 900])
def test_clouds(kind, n):
    rng = np.random.default_rng([12, n, KINDS.index(kind)])
    instance = cloud(rng, n, kind)
    tree = instance.tree()
    total, others = int(instance.id.sum()), int(instance.ood.sum())
    for quarters in [(0,), (0, 1, 2, 3)]:
        for min_id, max_ood in [(total * 8 // 10, others // 5), (total // 2, others)]:
            program = Program((1, 0, 0), True, min_id, [max_ood], [(0, 0)])
            outcome = compiled.search(tree, quarters, program.goal)
            check(instance, quarters, program, outcome, all_sets=kind == "plain")
