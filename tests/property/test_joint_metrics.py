"""DS-F1 and DS-AURC against all rules in exact arithmetic; the SCOD area and PRR against loops."""

import os
from fractions import Fraction

import numpy as np
import pytest
from brute import accepted_sets
from instances import random_rows, to_sample

import demur as dm
from demur._kernels import compiled
from demur._kernels.engines import NAMES, VARIABLE

CASES = int(os.environ.get("DEMUR_CASES", "40"))


@pytest.fixture(autouse=True, params=NAMES)
def engine(request, monkeypatch):
    if request.param == "compiled" and not compiled.AVAILABLE:
        pytest.skip("the extension is not built")
    monkeypatch.setenv(VARIABLE, request.param)


def zero_one(rng, scores):
    rows = random_rows(rng, scores)
    return [(s, None if loss is None else min(loss, 1), w) for s, loss, w in rows]


def all_masses(rows, allowed):
    """Return accepted ID, OOD and loss weight of every rule that accepts some ID."""
    for chosen in accepted_sets([s for s, *_ in rows], allowed):
        own = [rows[i] for i in chosen if rows[i][1] is not None]
        ood = sum(rows[i][2] for i in chosen if rows[i][1] is None)
        if sum(w for *_, w in own):
            yield sum(w for *_, w in own), ood, sum(loss * w for _, loss, w in own)


@pytest.mark.parametrize("scores", [2, 1])
@pytest.mark.parametrize("shape", ["half-plane", "box"])
def test_joint_metrics_of_all_rules(shape, scores):
    rng = np.random.default_rng([31, len(shape), scores])
    allowed = "box" if shape == "box" else "nonneg"
    for _ in range(CASES):
        rows = zero_one(rng, scores)
        sample = to_sample(rows)
        total = sum(w for _, loss, w in rows if loss is not None)
        masses = list(all_masses(rows, allowed))
        f1 = max((Fraction(2 * (i - lost), i + o + total) for i, o, lost in masses), default=None)
        found = dm.metrics.ds_f1(sample, shape=shape)
        assert np.isnan(found) if f1 is None else found == float(f1)
        bins = int(rng.integers(1, 7))
        risks = []
        for k in range(bins):
            inside = [m for m in masses if k * total < m[0] * bins <= (k + 1) * total]
            risks += [min(Fraction(o + lost, i + o) for i, o, lost in inside)] if inside else []
        expected = float(sum(risks) / len(risks)) if risks else np.nan
        found = dm.metrics.ds_aurc(sample, bins=bins, shape=shape)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_grid_never_beats_the_exact_ds_f1():
    rng = np.random.default_rng(32)
    n = 600
    wrong = rng.random(n) < 0.2
    own = np.column_stack([rng.beta(2 + 2 * wrong, 5), rng.normal(0, 1, n)])
    foreign = np.column_stack([rng.beta(3, 4, n), rng.normal(1.5, 1, n)])
    sample = dm.Sample(own, wrong, foreign)
    low, high = np.vstack([own, foreign]).min(axis=0), np.vstack([own, foreign]).max(axis=0)
    best = 0.0
    for t in np.linspace(low[0], high[0], 101):
        for u in np.linspace(low[1], high[1], 101):
            inside = (own <= [t, u]).all(axis=1)
            accepted = inside.sum() + (foreign <= [t, u]).all(axis=1).sum()
            best = max(best, 2 * (inside & ~wrong).sum() / (accepted + n))
    assert best <= dm.metrics.ds_f1(sample, shape="box") < best + 0.02


def test_the_scod_area_and_the_rejection_ratio():
    rng = np.random.default_rng(33)
    for _ in range(CASES):
        n, m = int(rng.integers(2, 9)), int(rng.integers(1, 6))
        score, loss = rng.integers(0, 5, n).astype(float), rng.integers(0, 3, n) / 2
        foreign = rng.integers(0, 5, m).astype(float)
        sample = dm.Sample(score, loss, foreign)
        value = [0.3 * (foreign <= s).mean() + 0.7 * loss[score <= s].mean() for s in score]
        area = dm.metrics.risk_tpr_area(sample, beta=0.3)
        assert area == pytest.approx(np.mean(value))
        ordered = np.sort(loss).cumsum() / np.arange(1, n + 1)
        own = np.mean([loss[score <= s].mean() for s in score])
        span = ordered.mean() - loss.mean()
        expected = (own - loss.mean()) / span if span < -1e-12 else np.nan
        assert dm.metrics.prr(sample) == pytest.approx(expected, nan_ok=True)
    assert np.isnan(dm.metrics.risk_tpr_area(dm.Sample([0.1, 0.2], [0, 1])))
    for metric in (dm.metrics.risk_tpr_area, dm.metrics.prr):
        with pytest.raises(dm.InvalidInputError, match="needs one score"):
            metric(dm.Sample([[0, 1], [1, 0]], [0, 1], [[1, 1]]))


def test_what_the_joint_metrics_refuse():
    graded = dm.Sample([[0, 1], [1, 0]], [0.5, 1], [[1, 1]])
    with pytest.raises(dm.InvalidInputError, match="losses of 0"):
        dm.metrics.ds_f1(graded)
    for wrong in ({"bins": 0}, {"bins": 2.5}, {"shape": "disc"}):
        with pytest.raises(dm.InvalidInputError):
            dm.metrics.ds_aurc(dm.Sample([[0, 1], [1, 0]], [0, 1], [[1, 1]]), **wrong)
