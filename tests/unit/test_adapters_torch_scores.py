"""The detectors in torch operations give what the NumPy detectors give."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import demur as dm
from demur.adapters.torch import SelectiveModule
from demur.adapters.torch_operations import DetectorInputs, score_of
from demur.detectors import (
    CATALOG,
    Activations,
    Knn,
    Mahalanobis,
    React,
    RelativeMahalanobis,
    Vim,
)

NAMES = ("msp", "mls", "energy", "entropy", "gradnorm")
FITTED = (
    Knn(k=1),
    Knn(k=7),
    Knn(k=60),
    Vim(),
    Vim(dimension=1),
    React(percentile=70),
    Mahalanobis(),
    RelativeMahalanobis(),
)


def activations(seed, n, *, features=9, classes=4, scale=1.0):
    rng = np.random.default_rng(seed)
    head = np.random.default_rng(99)
    h = np.maximum(rng.normal(0.5, scale, (n, features)), 0)
    return Activations(
        features=h.astype(np.float32),
        weight=head.normal(size=(classes, features)).astype(np.float32),
        bias=head.normal(2, 1, size=classes).astype(np.float32),
        labels=rng.integers(0, classes, n),
    )


def in_torch(detector, rows):
    parts = (torch.tensor(part) for part in (rows.logits, rows.features, rows.weight, rows.bias))
    return score_of(detector)(DetectorInputs(*parts)).numpy()


def with_edges(rows):
    """Add a zero row, a repeated row, a huge row and a tiny row."""
    extra = np.array([0.0, 1.0, 1e6, 1e-6])[:, None] * np.abs(rows.features[:1])
    h = np.concatenate([rows.features, extra, rows.features[:1]])
    return Activations(features=h, weight=rows.weight, bias=rows.bias)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_scores_of_logits(name, seed):
    rows = with_edges(activations(seed, 40, scale=10.0**seed))
    expected = CATALOG[name].scorer()(rows)
    np.testing.assert_allclose(in_torch(name, rows), expected, rtol=2e-15, atol=1e-300)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("detector", FITTED, ids=repr)
def test_scores_of_features(detector, seed):
    train = activations(seed, 60)
    fitted = detector.fit(train)
    # Rows of the bank itself included: their distances are zero or come from differences.
    rows = with_edges(activations(seed + 10, 40))
    bank = Activations(features=train.features, weight=train.weight, bias=train.bias)
    for queries in (rows, bank):
        expected = fitted.score(queries)
        np.testing.assert_allclose(
            in_torch(fitted, queries),
            expected,
            rtol=1e-13,
            atol=1e-13 * np.abs(expected).max() + 1e-15,
        )


def test_neighbour_distances_keep_their_digits_where_products_lose_them():
    rng = np.random.default_rng(0)
    centre = rng.normal(size=5)
    bank = Activations(features=centre + 1e-7 * rng.normal(size=(30, 5)))
    queries = Activations(
        features=centre + 1e-7 * rng.normal(size=(20, 5)),
        logits=np.zeros((20, 2)),
    )
    fitted = Knn(k=3).fit(bank)
    evidence = DetectorInputs(torch.zeros(20, 2), torch.tensor(queries.features), None, None)
    got = score_of(fitted)(evidence).numpy()
    # The ranks near the third are compared by exact differences, so nearly all digits are right;
    # half the squared distance, about 1e-14, has but two digits left in float64.
    np.testing.assert_allclose(got, fitted.score(queries), rtol=1e-7)


def test_repeated_rows_of_the_bank():
    rows = np.repeat(np.eye(3), 20, axis=0)
    fitted = Knn(k=21).fit(Activations(features=rows))
    evidence = DetectorInputs(
        torch.zeros(1, 2), torch.tensor([[2.0, 0.0, 0.0]]).double(), None, None
    )
    assert score_of(fitted)(evidence).item() == pytest.approx(np.sqrt(2), rel=1e-15)


def test_what_is_learned_stays_double_and_moves_with_the_module():
    net = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 4))
    knn = Knn(k=3).fit(activations(0, 20))
    module = SelectiveModule(net, {"knn": knn}, dm.Rule((1.0,), 0.5))
    bank = module.scorers[0].bank.clone()
    module.half().float()
    assert net[0].weight.dtype == torch.float32
    assert module.scorers[0].bank.dtype == torch.float64
    assert torch.equal(module.scorers[0].bank, bank)
    assert copy.deepcopy(module).to("meta").scorers[0].bank.device.type == "meta"


def test_detectors_that_have_no_module():
    for detector in ("gen", "odin", "knn", lambda a: a, 3):
        with pytest.raises(dm.InvalidInputError, match="not available as a module"):
            score_of(detector)
    for detector in (Knn(), Vim(), React()):
        with pytest.raises(dm.NotTunedError, match="not fitted"):
            score_of(detector)
