"""The widest line: the compiled engine against the plain one, and against all directions."""

import numpy as np
import pytest

from demur._kernels import compiled
from demur._kernels.reference import sides, widest
from demur.tuning.result import DIRECTION_SETS

pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built")


def half_planes(seed, count):
    """Yield points, some of them without mass, and a half-plane that has both sides."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(rng.integers(2, 120))
        scores = rng.normal(size=(n, 2)) * [1, 10.0 ** rng.integers(-3, 4)]
        if rng.random() < 0.5:
            scores = np.round(scores * 4) / 4
        mass = (rng.random(n) < 0.8).astype(np.int64)
        weight = np.abs(rng.normal(size=2))
        values = weight[0] * scores[:, 0] + weight[1] * scores[:, 1]
        v = float(rng.choice(values))
        present = mass > 0
        if 0 < (values[present] <= v).sum() < present.sum():
            yield scores, mass, weight, v, values <= v


@pytest.mark.parametrize("directions", ["nonneg", "real", "circle"])
def test_compiled_equals_plain(directions):
    allowed = DIRECTION_SETS[str(directions)]
    scale = np.array([0.7, 3.0])
    for scores, mass, weight, v, accepted in half_planes(1, 300):
        none = np.zeros_like(mass)
        tree = compiled.prepare(scores, mass, none[None], none)
        rows = mass > 0
        *_, plain = widest(scores[rows], accepted[rows], weight, scale, allowed.nonneg)
        *direction, width = compiled.widest(tree, weight, v, scale, allowed.nonneg)
        # Which of two equally wide gaps is found depends on the order of the points.
        assert width == pytest.approx(plain, rel=1e-9)
        along = tuple(direction / np.hypot(*direction))
        assert compiled.sides(tree, weight, v, np.array(along)) == sides(
            scores[rows], accepted[rows], along
        )


def test_no_direction_is_wider():
    scale = np.ones(2)
    angles = np.linspace(0, np.pi / 2, 4001)
    tried = np.column_stack([np.cos(angles), np.sin(angles)])
    for scores, mass, weight, v, accepted in half_planes(2, 60):
        none = np.zeros_like(mass)
        tree = compiled.prepare(scores, mass, none[None], none)
        rows = mass > 0
        values = scores[rows] @ tried.T
        gaps = values[~accepted[rows]].min(axis=0) - values[accepted[rows]].max(axis=0)
        *_, width = compiled.widest(tree, weight, v, scale, (True, True))
        assert width >= gaps.max() - 1e-12 * np.abs(values).max()


def test_one_side_only():
    scores, mass = np.array([[0.0, 1.0], [1.0, 0.0]]), np.ones(2, np.int64)
    tree = compiled.prepare(scores, mass, 0 * mass[None], 0 * mass)
    scale, weight = np.array([2.0, 4.0]), np.array([1.0, 1.0])
    assert compiled.widest(tree, weight, 5.0, scale, (True, True)) == (0.5, 0.25, np.inf)
    assert compiled.sides(tree, weight, 5.0, weight) == (1.0, np.inf)
    assert compiled.sides(tree, weight, -5.0, weight) == (-np.inf, 1.0)
