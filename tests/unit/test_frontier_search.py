"""The frontier by searches equals the frontier by enumeration, and `tune`."""

import numpy as np
import pytest

import demur as dm
from demur._kernels.engines import VARIABLE
from demur.tuning import frontier as module

LEVELS = [k / 20 for k in range(21)]


def cloud(seed, n=160, sets=1):
    rng = np.random.default_rng(seed)
    loss = (rng.random(n) < 0.3) * (1 if seed % 2 else rng.exponential(size=n))
    ood = {f"set {i}": np.round(rng.normal(0.4 + i, size=(n // 3, 2)) * 8) / 8 for i in range(sets)}
    return dm.Sample(np.round(rng.normal(size=(n, 2)) * 8) / 8, loss, ood)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("options", [{}, {"directions": "circle"}, {"ood": "worst"}], ids=str)
def test_both_ways_give_the_same_cells(seed, options, monkeypatch):
    sample = cloud(seed, sets=2)
    levels = {"min_tpr": LEVELS, "max_fpr": LEVELS}
    with monkeypatch.context() as patch:
        # The compiled engine searches few rows, too.
        patch.setenv(VARIABLE, "numpy")
        enumerated = dm.frontier(sample, **levels, **options)
    monkeypatch.setattr(module, "FEW", 0)
    searched = dm.frontier(sample, **levels, **options)
    np.testing.assert_array_equal(searched.selective_risk, enumerated.selective_risk)
    np.testing.assert_array_equal(searched.accepted_id, enumerated.accepted_id)
    np.testing.assert_array_equal(searched.accepted_ood, enumerated.accepted_ood)
    for i, j in zip(*np.nonzero(~np.isnan(searched.selective_risk)), strict=True):
        if (i + j) % 7 == 0:
            point = dm.evaluate(searched.rule(i, j), sample)
            assert point.accepted_id == searched.accepted_id[i, j]
            assert point.accepted_ood == searched.accepted_ood[i, j]


def hidden(seed, n=4000):
    """Return scores on a curve, and a cloud, with losses of one size and of many."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=n), rng.normal(1.5, size=n // 3)
    id_scores, ood_scores = (np.column_stack([1 / (1 + np.exp(-z)), np.exp(z)]) for z in (x, y))
    loss = (rng.random(n) < id_scores[:, 0] / 2).astype(float)
    if seed % 2:
        id_scores, ood_scores = id_scores + rng.normal(size=(n, 2)), ood_scores + 1
    return dm.Sample(id_scores, loss * rng.exponential(size=n) if seed > 1 else loss, ood_scores)


@pytest.mark.parametrize("seed", range(4))
def test_cells_between_others_equal_tune(seed):
    """What a cell demands is judged beside that of its neighbours, which may be more."""
    ready = dm.prepare(hidden(seed))
    surface = dm.frontier(ready)
    feasible = np.argwhere(~np.isnan(surface.selective_risk))
    for i, j in np.random.default_rng(seed).permutation(feasible)[:60]:
        model = dm.TprFprModel(float(surface.min_tpr[i]), float(surface.max_fpr[j]))
        point = dm.tune(ready, model).point
        assert surface.selective_risk[i, j] == point.selective_risk
        assert surface.accepted_id[i, j] == point.accepted_id
        assert surface.accepted_ood[i, j] == point.accepted_ood


def test_an_atom_beside_many_decades_is_not_cut_without_end():
    """Lines that float64 cannot take apart cross all parts of a box: this took a minute."""
    rng = np.random.default_rng(3)
    n = 1200
    scores = rng.normal(size=(n, 2)), rng.normal(0.5, 1, size=(n // 2, 2))
    for part in scores:
        part[:, 0] = np.exp(30 * part[:, 0])
        part[rng.random(len(part)) < 0.5, 1] = 0
    ready = dm.prepare(dm.Sample(scores[0], rng.random(n) < 0.2, scores[1]))
    surface = dm.frontier(ready, directions="circle")
    for i, j in ((20, 30), (50, 60), (80, 90)):
        model = dm.TprFprModel(float(surface.min_tpr[i]), float(surface.max_fpr[j]))
        point = dm.tune(ready, model, directions="circle").point
        assert surface.selective_risk[i, j] == point.selective_risk


def test_larger_samples_equal_tune():
    rng = np.random.default_rng(9)
    sample = dm.Sample(
        rng.normal(size=(2000, 2)), rng.random(2000) < 0.1, rng.normal(1, size=(500, 2))
    )
    ready = dm.prepare(sample)
    surface = dm.frontier(ready, min_tpr=[0.2, 0.5, 0.8], max_fpr=[0.1, 0.3])
    for i, min_tpr in enumerate((0.2, 0.5, 0.8)):
        for j, max_fpr in enumerate((0.1, 0.3)):
            try:
                point = dm.tune(ready, dm.TprFprModel(min_tpr, max_fpr)).point
            except dm.InfeasibleError:
                assert np.isnan(surface.selective_risk[i, j])
                continue
            assert surface.selective_risk[i, j] == point.selective_risk
            assert surface.accepted_id[i, j] == point.accepted_id
    with pytest.raises(dm.InvalidInputError, match="prepared with"):
        dm.frontier(ready, ood="worst")
