"""Frontiers of scores that float64 cannot take apart: each cell is what `tune` says of its bounds.

Multiples of 1/7 lie on one line but for rounding. What `tune` leaves unresolved, and nothing else,
is unresolved in the frontier.
"""

import os

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled, exact_walk
from demur._kernels.engines import NAMES, VARIABLE

# DEMUR_CASES=1000 for the campaign: so many cases of each kind, for each engine.
CASES = max(1, int(os.environ.get("DEMUR_CASES", "100")) // 50)


def sevenths(rng, n):
    return np.rint(7 * rng.normal(size=(n, 2))) / 7


def thirds(rng, n):
    return np.rint(3 * rng.normal(size=(n, 2))) / 3


def moved_tenths(rng, n):
    # Not what decimals are, as float64 rounds the sums.
    return np.rint(10 * rng.normal(size=(n, 2))) / 10 + 0.1


def ulps(rng, n):
    scores = rng.choice([0.1, 0.3, 1.0, 1 / 3, 7.0], (n, 2))
    for _ in range(3):
        scores = np.where(rng.random(scores.shape) < 0.4, np.nextafter(scores, 9), scores)
    return scores


def outliers(rng, n):
    scores = rng.integers(0, 6, (n, 2)) / 3
    wild = rng.random(scores.shape) < 0.1
    scores[wild] = 10.0 ** rng.integers(8, 100, wild.sum()) * rng.choice([-1, 1], wild.sum())
    return scores


KINDS = (sevenths, thirds, moved_tenths, ulps, outliers)


def lattice(rng, kind, n):
    n_id = 2 * n // 3
    scores = kind(rng, n)
    scores[n_id:] += scores[rng.integers(n_id)]
    loss = (rng.random(n_id) < 0.3).astype(float)
    if rng.random() < 0.4:
        loss *= rng.exponential(size=n_id).round(1)
    return dm.prepare(dm.Sample(scores[:n_id], loss, scores[n_id:]))


def compare(ready, directions, levels, places):
    """Compare cells at some places with what `tune` says of their bounds."""
    found = dm.frontier(ready, min_tpr=levels, max_fpr=levels, directions=directions)
    for row, column in places:
        cell = found.accepted_id, found.accepted_ood, found.accepted_loss
        seen = tuple(masses[row, column] for masses in cell)
        model = dm.TprFprModel(levels[row], levels[column])
        try:
            tuned = dm.tune(ready, model, directions=directions)
        except dm.InfeasibleError as error:
            assert np.isnan(seen).all()
            assert found.unresolved[row, column] == ("float64" in str(error))
            continue
        point = tuned.point
        assert seen == (point.accepted_id, point.accepted_ood, point.accepted_loss)
        assert found.unresolved[row, column] == (tuned.certificate.unresolved > 0)
        point = dm.evaluate(found.rule(row, column), ready.sample)
        assert seen == (point.accepted_id, point.accepted_ood, point.accepted_loss)
    return found


def engines():
    return [name for name in NAMES if name == "numpy" or compiled.AVAILABLE]


@pytest.mark.parametrize("name", engines())
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_cell_is_what_tune_finds(name, kind, monkeypatch):
    monkeypatch.setenv(VARIABLE, name)
    rng = np.random.default_rng([3, len(kind.__name__)])
    levels = [k / 8 for k in range(9)]
    for _ in range(CASES):
        ready = lattice(rng, kind, int(rng.choice([12, 25, 40, 80])))
        directions = str(rng.choice(["nonneg", "nonneg", "real", "paper", "circle"]))
        compare(ready, directions, levels, np.ndindex(9, 9))


@pytest.mark.parametrize("name", engines())
@pytest.mark.parametrize(
    ("kind", "rows"),
    [(sevenths, 200), (sevenths, 1000), (thirds, 200), (thirds, 1000), (moved_tenths, 400)],
    ids=lambda value: str(getattr(value, "__name__", value)),
)
def test_cells_of_larger_lattices_are_what_tune_finds(name, kind, rows, monkeypatch):
    monkeypatch.setenv(VARIABLE, name)
    rng = np.random.default_rng(rows)
    # One search after the other has no end for 101 x 101 bounds.
    steps = 100 if name == "compiled" else 12
    levels = [k / steps for k in range(steps + 1)]
    places = rng.integers(0, steps + 1, (30, 2))
    compare(lattice(rng, kind, rows), "nonneg", levels, places)


@pytest.mark.parametrize("name", engines())
def test_sets_whose_ood_rows_are_bounded_apart_are_settled_too(name, monkeypatch):
    monkeypatch.setenv(VARIABLE, name)
    rng = np.random.default_rng(5)
    levels = [k / 4 for k in range(5)]
    for _ in range(CASES):
        scores = thirds(rng, 60)
        ood = {"u": scores[40:50], "v": scores[50:]}
        sample = dm.Sample(scores[:40], rng.random(40) < 0.3, ood)
        for how in ("worst", "pooled"):
            ready = dm.prepare(sample, ood=how)
            found = dm.frontier(ready, min_tpr=levels, max_fpr=levels)
            for row, column in np.ndindex(5, 5):
                model = dm.TprFprModel(levels[row], levels[column])
                try:
                    tuned = dm.tune(ready, model)
                except dm.InfeasibleError:
                    assert np.isnan(found.selective_risk[row, column])
                    continue
                assert found.selective_risk[row, column] == tuned.point.selective_risk
                assert found.accepted_id[row, column] == tuned.point.accepted_id
                assert found.unresolved[row, column] or tuned.certificate.unresolved == 0


@pytest.mark.skipif(not compiled.AVAILABLE, reason="no compiled engine")
@pytest.mark.parametrize(("steps", "rule"), [(0, 500), (3000, 500), (10_000, 10**9)])
def test_what_is_given_up_is_unresolved(steps, rule, monkeypatch):
    monkeypatch.setattr(exact_walk, "_STEPS_OF_ALL", steps)
    monkeypatch.setattr(exact_walk, "_STEPS_OF_A_RULE", rule)
    levels = [k / 20 for k in range(21)]
    missed = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        ready = lattice(rng, thirds, 200)
        found = dm.frontier(ready, min_tpr=levels, max_fpr=levels)
        assert found.unresolved.any()
        for row, column in rng.integers(0, 21, (60, 2)):
            try:
                tuned = dm.tune(ready, dm.TprFprModel(levels[row], levels[column]))
            except dm.InfeasibleError:
                assert np.isnan(found.selective_risk[row, column])
                continue
            risk, best = found.selective_risk[row, column], tuned.point.selective_risk
            assert not risk < best
            is_same = found.accepted_id[row, column] == tuned.point.accepted_id and risk == best
            assert is_same or found.unresolved[row, column]
            assert tuned.certificate.unresolved == 0 or found.unresolved[row, column]
            missed += not is_same
    # Without any step something is missed, which is said.
    assert missed or steps


def test_what_is_unresolved_is_said():
    rng = np.random.default_rng(200 + 7)
    scores = np.rint(7 * rng.normal(size=(300, 2))) / 7
    sample = dm.Sample(scores[:200], rng.random(200) < 0.4, scores[200:])
    found = dm.frontier(sample, directions="circle")
    left = int(found.unresolved.sum())
    assert left > 0
    assert repr(found).endswith(f"{left} unresolved)")
    assert found.to_frame("pandas")["unresolved"].sum() == left
    plain = dm.frontier(dm.Sample(scores[:200].round(2), rng.random(200) < 0.4, scores[200:]))
    assert "unresolved" not in repr(dm.frontier(dm.Sample([1, 2], [0, 1], [3])))
    assert plain.unresolved.shape == plain.selective_risk.shape
