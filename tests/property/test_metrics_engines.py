"""All scalar metrics by the compiled walk, by counting and by adding up masses are the same."""

from dataclasses import asdict

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled


def samples(rng):
    """Yield samples with ties, infinite scores, one kind of row only, and no OOD."""
    for _ in range(400):
        n_id, n_ood = int(rng.integers(1, 60)), int(rng.integers(0, 40))
        scores = [rng.normal(size=n_id), rng.normal(0.5, size=n_ood)]
        if rng.random() < 0.6:
            scores = [np.round(side * 2) / 2 for side in scores]
        for side in scores:
            side[rng.random(len(side)) < rng.choice([0, 0.1, 1], p=[0.6, 0.35, 0.05])] = np.inf
        errors = rng.choice([0, 0.2, 1])
        yield dm.Sample(scores[0], rng.random(n_id) < errors, scores[1])


@pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built")
@pytest.mark.parametrize("ood_prior", [None, 0, 0.3])
def test_same_metrics(ood_prior, monkeypatch):
    rng = np.random.default_rng(23)
    for sample in samples(rng):
        found = []
        for name in ("compiled", "numpy"):
            monkeypatch.setenv("DEMUR_ENGINE", name)
            found.append(asdict(dm.metrics.summary(sample, ood_prior=ood_prior)))
        assert found[0] == pytest.approx(found[1], rel=1e-12, abs=1e-14, nan_ok=True)


def test_rows_of_weight_one_count_once(monkeypatch):
    monkeypatch.setenv("DEMUR_ENGINE", "numpy")
    for sample in samples(np.random.default_rng(24)):
        ones = {"id_weight": np.ones(sample.n_id), "ood_weight": np.ones(sample.n_ood)}
        weighed = dm.Sample(sample.id_scores, sample.id_loss, sample.ood_scores, **ones)
        found = [asdict(dm.metrics.summary(one)) for one in (sample, weighed)]
        assert found[0] == pytest.approx(found[1], rel=1e-12, abs=1e-14, nan_ok=True)
