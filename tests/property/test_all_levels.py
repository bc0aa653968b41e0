"""What is found for all levels at once, against enumeration and plain loops.

A larger campaign: DEMUR_CASES=5000 pytest tests/property/test_all_levels.py
"""

import os

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled, numpy_engine, reference
from demur._kernels.engines import Gap
from demur.core.points import Points
from demur.metrics.areas import Rates
from demur.metrics.oscr import _best_at_equal_fpr, _searched
from demur.tuning.frontier import Levels, _by_enumeration
from demur.tuning.operating_points import operating_points
from demur.tuning.prepared import prepare
from demur.tuning.staircases import LevelRate, best_at_levels, roc_stairs, staircase

CASES = int(os.environ.get("DEMUR_CASES", "60"))
needs_compiled = pytest.mark.skipif(not compiled.AVAILABLE, reason="no C extension")


def random_sample(rng, rows=None, *, repeated=True):
    """Return pairs of scores in general position, some rows twice."""
    n_id, n_ood = rng.integers(3, rows or 60, 2)
    id_scores, ood_scores = rng.normal(size=(n_id, 2)), rng.normal(0.7, 1, size=(n_ood, 2))
    loss = (rng.random(n_id) < rng.choice([0.1, 0.5])).astype(float)
    if repeated and rng.random() < 0.5:
        id_scores = np.vstack([id_scores, id_scores[: n_id // 3], ood_scores[:2]])
        loss = np.r_[loss, 1 - loss[: n_id // 3], 1, 0]
        ood_scores = np.vstack([ood_scores, ood_scores[: n_ood // 3]])
    return dm.Sample(id_scores, loss, ood_scores)


def heights(segments, rates, total):
    """Return the rate at every OOD mass."""
    found = np.full(total + 1, np.nan)
    ccr = rates.ccr(segments.rules.id, segments.rules.loss, "accepted")
    for start, stop, value in zip(segments.start, segments.stop, ccr, strict=True):
        found[start:stop] = value
    return found


def lattice_sample(rng):
    """Return decimals, of which many lie on one line."""
    (n_id, n_ood), side = rng.integers(3, 60, 2), int(rng.integers(2, 30))
    shift = rng.integers(0, side // 2 + 1)
    id_scores, ood_scores = rng.integers(0, side, (n_id, 2)), rng.integers(0, side, (n_ood, 2))
    return dm.Sample(id_scores / 10, rng.random(n_id) < 0.4, (ood_scores + shift) / 10)


@needs_compiled
@pytest.mark.parametrize("draw", [random_sample, lattice_sample])
@pytest.mark.parametrize("seed", range(CASES))
def test_best_rate_at_every_ood_mass_is_that_of_all_pairs(seed, draw):
    rng = np.random.default_rng(seed)
    sample = draw(rng)
    prepared = prepare(sample)
    rates, total = Rates(prepared.points.totals), sample.n_ood
    plain = _best_at_equal_fpr(prepared.points, lambda nI, L: rates.ccr(nI, L, "accepted"), None)
    expected = heights(plain, rates, total)
    for gap in (0.0, 0.03):
        found = _searched(prepared, gap)
        seen = heights(found, rates, total)
        assert (np.isnan(seen) == np.isnan(expected)).all()
        known = ~np.isnan(seen)
        assert (seen[known] <= expected[known] + 1e-12).all()
        assert (seen[known] >= expected[known] - gap - 1e-12).all()
        # The masses are those of the lines.
        rows = prepared.count(found.rules.lines)
        assert (rows[:, 0] == found.rules.id).all()
        assert (rows[:, 1] == found.rules.loss).all()
        assert (rows[:, 2] == found.rules.ood).all()


@needs_compiled
@pytest.mark.parametrize("seed", range(CASES))
def test_gaps_of_a_frontier_are_honest(seed):
    rng = np.random.default_rng(seed)
    points = prepare(random_sample(rng, 200)).points
    no_loss = np.zeros_like(points.loss)
    tree = compiled.prepare(points.scores, points.id, points.ood, no_loss)
    total_ood, total_id = int(points.ood.sum()), int(points.id.sum())
    levels, gap = np.arange(total_ood + 1), Gap(id=3.0, ood=2)
    best = compiled.frontier(tree, (0,), np.array([1]), levels).id[0]
    near = compiled.frontier(tree, (0,), np.array([1]), levels, gap=gap).id[0]
    further = near[np.minimum(levels + gap.ood, total_ood)]
    assert (near <= best).all() and (best <= further + gap.id).all()
    tree = compiled.prepare(points.scores, points.id, points.ood, points.loss)
    rows, risk = np.arange(1, total_id + 1), 0.02
    best = compiled.frontier(tree, (0,), rows, np.array([total_ood // 2]))
    near = compiled.frontier(tree, (0,), rows, np.array([total_ood // 2]), gap=Gap(risk=risk))
    assert ((best.id > 0) == (near.id > 0)).all()
    some = best.id > 0
    exact, found = (one.loss[some] / one.id[some] for one in (best, near))
    assert (found >= exact - 1e-12).all() and (found <= exact + risk + 1e-12).all()


def graded_sample(rng, rows=60):
    """Return rows with losses of many sizes, a few sizes, or one; some of them lie on a curve."""
    sample = random_sample(rng, rows)
    sizes = [rng.exponential(0.1, 60), rng.choice([0.0, 0.1, 0.3, 2.0], 60), np.full(60, 0.7)]
    loss = sample.id_loss * sizes[rng.integers(3)][rng.integers(0, 60, sample.n_id)]
    id_scores = sample.id_scores.copy()
    if rng.random() < 0.5:
        id_scores[::2, 1] = np.exp(-id_scores[::2, 0])
    return dm.Sample(id_scores, loss + rng.choice([0, 0.01]), sample.ood_scores)


@needs_compiled
@pytest.mark.parametrize(
    ("seed", "rows"), [*((k, 60) for k in range(3 * CASES)), *((k, 200) for k in range(CASES // 2))]
)
def test_cells_of_graded_losses_are_those_of_all_pairs(seed, rows):
    rng = np.random.default_rng(seed)
    points = prepare(graded_sample(rng, rows)).points
    # As many levels as there are masses, or so few that most boxes are far from any.
    id_step, ood_step = rng.integers(1, [max(2, rows // 8)] * 2)
    levels = Levels(
        np.arange(1, points.id.sum() + 1, id_step),
        np.arange(0, points.ood.sum() + 1, ood_step)[None],
    )
    best, cells, _ = _by_enumeration(points, "nonneg", None, levels)
    tree = compiled.prepare(points.scores, points.id, points.ood, points.loss)
    found = compiled.frontier(tree, (0,), levels.min_id, levels.max_ood[0])
    for seen, expected in ((found.id, best.id), (found.ood, best.ood), (found.loss, best.loss)):
        np.testing.assert_array_equal(seen, np.append(expected, 0)[cells])


@needs_compiled
@pytest.mark.parametrize("seed", range(CASES // 2))
def test_coarse_to_fine_ends_with_the_staircase_of_all_pairs(seed):
    rng = np.random.default_rng(seed)
    prepared = prepare(random_sample(rng, 120))
    points = prepared.points
    plain = staircase(points, "nonneg", None, lambda nI, nO, L: nO.astype(float))
    tree = compiled.prepare(points.scores, points.id, points.ood, np.zeros_like(points.loss))
    best = compiled.frontier(tree, (0,), np.array([1]), np.arange(int(points.ood.sum()) + 1)).id[0]
    place = np.searchsorted(plain.ood, np.arange(len(best)), side="right") - 1
    assert (best == np.where(place >= 0, plain.id[place], 0)).all()


@needs_compiled
@pytest.mark.parametrize("seed", range(CASES))
def test_counts_and_settled_lines_are_those_of_plain_loops(seed):
    rng = np.random.default_rng(seed)
    points = Points.of(random_sample(rng, 300))
    arguments = (points.scores, points.id, points.ood, points.loss)
    lines = np.column_stack([rng.random((20, 2)), rng.normal(size=20)])
    # Thresholds on points, and lines that accept nothing or everything.
    lines[:8, 2] = reference.along(lines[:8, :2].T, *points.scores[:8].T[:, : len(lines[:8])])
    lines[8:10, 2] = -50, 50
    masses = np.vstack([points.id, points.loss, points.ood])
    expected = [
        masses[:, reference.along(line, *points.scores.T) <= line[2]].sum(1) for line in lines
    ]
    for engine in (compiled, numpy_engine):
        tree = engine.prepare(*arguments)
        assert (engine.count(tree, lines) == np.array(expected)).all()
        settled, sides = engine.settle(tree, lines)
        plain = np.array([reference.settle(points.scores, line) for line in lines])
        np.testing.assert_array_equal(settled, plain)
        for line, (last, following) in zip(lines, sides, strict=True):
            values = reference.along(line, *points.scores.T)
            assert last == values[values <= line[2]].max(initial=-np.inf)
            assert following == values[values > line[2]].min(initial=np.inf)


@needs_compiled
@pytest.mark.parametrize("seed", range(CASES // 2))
def test_equals_are_all_accepted_sets_with_the_masses(seed):
    rng = np.random.default_rng(seed)
    points = prepare(random_sample(rng, 30, repeated=False)).points
    tree = compiled.prepare(points.scores, points.id, points.ood, points.loss)
    sets: dict[tuple[int, int, int], set[bytes]] = {}
    for batch in operating_points(points, "nonneg", None):
        lines = batch.lines(np.arange(len(batch.id)))
        for p, q, v in lines:
            accepted = reference.along((p, q), *points.scores.T) <= v
            key = (points.id, points.ood[0], points.loss)
            masses = tuple(int(mass[accepted].sum()) for mass in key)
            sets.setdefault(masses, set()).add(accepted.tobytes())
    masses = np.array(sorted(sets))
    which, lines = compiled.equals(tree, (0,), masses)
    found: dict[tuple[int, int, int], set[bytes]] = {}
    for number, (p, q, v) in zip(which, lines, strict=True):
        accepted = reference.along((p, q), *points.scores.T) <= v
        found.setdefault(tuple(masses[number].tolist()), set()).add(accepted.tobytes())
    # The enumeration leaves out sets whose last point is OOD, which others with less OOD beat.
    assert all(sets[key] <= found[key] for key in sets)


@pytest.mark.parametrize("height", list(LevelRate))
@pytest.mark.parametrize("seed", range(8))
def test_brackets_hold_the_area(seed, height):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, 150, repeated=False)
    points = Points.of(sample)
    found = best_at_levels(points, height, 1e-3)
    edges = np.append(found.start, sample.n_ood)
    rules = found.rules
    rate = height.of(rules.id.astype(float), rules.loss.astype(float), float(sample.n_id))
    # Before any ID is accepted there is no rate: nothing counts there on either side.
    area = float(np.diff(edges) @ rate) / sample.n_ood
    if height is LevelRate.accepted_id:
        expected = dm.metrics.auroc(sample, exact=True)
    else:
        per = "all" if height is LevelRate.correct_of_all else "accepted"
        curve = dm.metrics.ccr_fpr_curve(sample, per=per, exact=True)
        stops = np.append(curve.x[1:], 1)
        expected = float((stops - curve.x) @ curve.y)
    assert area - 1e-12 <= expected <= area + found.error + 1e-12


def test_large_samples_state_their_error():
    rng = np.random.default_rng(0)
    n = 4000
    sample = dm.Sample(
        rng.normal(size=(n, 2)), rng.random(n) < 0.1, rng.normal(1.2, 1, size=(n, 2))
    )
    prepared = prepare(sample)
    exact = roc_stairs(prepared, None)
    near = roc_stairs(prepared, None, 2e-3)
    assert exact.error == 0 < near.error <= 2e-3
    areas = [dm.metrics.auroc(prepared, exact=True), dm.metrics.auroc(prepared)]
    assert areas[0].error == 0
    assert areas[1].lower <= areas[0] <= areas[1].upper
    assert areas[1].error <= 1e-4
    for per in ("accepted", "all"):
        exact_area = dm.metrics.oscr(prepared, per=per, exact=True)
        area = dm.metrics.oscr(prepared, per=per)
        assert area.lower - 1e-12 <= exact_area <= area.upper + 1e-12
    curve = dm.metrics.risk_coverage_curve(prepared)
    assert 0 < curve.error <= 1e-4


def test_weights_are_no_counts_but_have_an_error_too():
    rng = np.random.default_rng(1)
    n = 900
    sample = dm.Sample(
        rng.normal(size=(n, 2)),
        rng.random(n) < 0.2,
        rng.normal(1, 1, size=(n, 2)),
        id_weight=rng.random(n),
        ood_weight=rng.random(n),
    )
    exact, area = dm.metrics.auroc(sample, exact=True), dm.metrics.auroc(sample)
    assert area.lower - 1e-12 <= exact <= area.upper + 1e-12
    assert area.error <= 2e-4


def large_sample(rng):
    """Return some thousand rows: scores as they are, rounded or over decades, weights or not."""
    n_id, n_ood = (int(n) for n in rng.integers(500, 3000, 2))
    scores = rng.normal(size=(n_id + n_ood, 2))
    scores[n_id:] += 0.8
    kind = rng.integers(3)
    scores = scores.round(int(rng.integers(1, 4))) if kind == 0 else scores
    scores = np.exp(2 * scores) if kind == 1 else scores
    wrong = rng.random(n_id) < 1 / (1 + np.exp(2 - scores[:n_id].sum(axis=1).clip(-9, 9)))
    loss = wrong * rng.choice([1.0, 0.7]) if rng.random() < 0.5 else rng.exponential(0.05 + wrong)
    weight = rng.integers(1, 4, n_id).astype(float) if rng.random() < 0.3 else None
    return dm.Sample(scores[:n_id], loss, scores[n_id:], id_weight=weight)


@needs_compiled
@pytest.mark.parametrize("seed", range(CASES // 5))
def test_cells_of_large_frontiers_are_what_tune_finds(seed):
    rng = np.random.default_rng(seed)
    prepared = prepare(large_sample(rng))
    directions = str(rng.choice(["nonneg", "real", "paper", "circle"]))
    levels = [k / 100 for k in range(101)]
    found = dm.frontier(prepared, min_tpr=levels, max_fpr=levels, directions=directions)
    for row, column in rng.integers(0, 101, (20, 2)):
        model = dm.TprFprModel(levels[row], levels[column])
        try:
            point = dm.tune(prepared, model, directions=directions).point
        except dm.InfeasibleError:
            assert np.isnan(found.selective_risk[row, column])
            continue
        assert found.accepted_id[row, column] == point.accepted_id
        assert found.accepted_ood[row, column] == point.accepted_ood
        assert found.accepted_loss[row, column] == point.accepted_loss
