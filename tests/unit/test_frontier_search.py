"""The frontier by searches equals the frontier by enumeration, and `tune`."""

import numpy as np
import pytest

import demur as dm
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
