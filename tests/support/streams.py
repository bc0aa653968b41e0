"""Random data sets for sources, difficult ones on purpose, and the check against memory."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import demur as dm

DIRECTIONS = ["nonneg", "nonneg", "nonneg", "real", "paper", "circle"]


def random_sample(rng, *, scores=2, most=400):
    """Return a sample: clouds, ties, atoms, heavy tails, many decades, infinite scores, weights."""
    n_id, n_ood = int(rng.integers(1, most)), int(rng.integers(0, most))
    if rng.random() < 0.1:
        n_id, n_ood = int(rng.integers(1, 5)), int(rng.integers(0, 4))
    doubt = rng.normal(size=n_id)
    shift = float(rng.choice([0.0, 1.0, 3.0]))
    columns = [
        _bent(rng, doubt + rng.normal(size=n_id), shift + rng.normal(size=n_ood))
        for _ in range(scores)
    ]
    kind = str(rng.choice(["zero_one", "zero_one", "zero_one", "none", "all", "real", "whole"]))
    wrong = doubt + rng.normal(size=n_id) > 1
    loss = {
        "zero_one": wrong * 1.0,
        "none": np.zeros(n_id),
        "all": np.ones(n_id),
        "real": np.abs(doubt + rng.normal(size=n_id)) * float(rng.choice([1e-9, 1.0, 1e6])),
        "whole": wrong * rng.integers(0, 5, n_id) * 1.0,
    }[kind]
    id_scores = np.column_stack([column[0] for column in columns])
    ood_scores = np.column_stack([column[1] for column in columns])
    if rng.random() < 0.2:
        id_scores[rng.random(id_scores.shape) < 0.03] = np.inf
        ood_scores[rng.random(ood_scores.shape) < 0.03] = np.inf
    id_weight = ood_weight = None
    if rng.random() < 0.3:
        draw = [rng.random, lambda n: rng.integers(0, 4, n) * 1.0][int(rng.integers(2))]
        id_weight, ood_weight = draw(n_id), draw(n_ood)
        id_weight[0] = max(id_weight[0], 1.0)
    if n_ood > 2 and rng.random() < 0.3:
        cut = int(rng.integers(1, n_ood))
        ood_scores = {"far": ood_scores[:cut], "near": ood_scores[cut:]}
        if ood_weight is not None:
            ood_weight = {"far": ood_weight[:cut], "near": ood_weight[cut:]}
    return dm.Sample(id_scores, loss, ood_scores, id_weight=id_weight, ood_weight=ood_weight)


def informative_sample(rng, n):
    """Return errors that the first score tells and OOD rows that the second tells, n of each."""
    doubt = rng.normal(size=n)
    wrong = rng.random(n) < 1 / (1 + np.exp(3 - 2 * doubt))
    id_scores = np.column_stack([doubt, rng.normal(size=n)])
    return dm.Sample(id_scores, wrong, rng.normal([0.5, 2.0], 1.0, size=(n, 2)))


def _bent(rng, first, second):
    """Bend both sides of a score alike."""
    kind = str(rng.choice(["free", "free", "ties", "few", "atom", "decades", "heavy", "constant"]))
    bend = {
        "free": lambda v: v,
        "ties": lambda v: np.round(v, 1),
        "few": lambda v: np.round(v),
        "atom": lambda v: np.maximum(v, 0.3),
        "decades": lambda v: 10.0 ** (-6 + 6 * v),
        "heavy": lambda v: np.sign(v) * np.abs(v) ** 7,
        "constant": lambda v: np.full(len(v), 2.5),
    }[kind]
    return bend(first), bend(second)


def random_model(rng, sample):
    """Return a model; its bounds are sometimes out of reach."""
    kind = str(rng.choice(["tprfpr", "tprfpr", "pr", "cost"]))
    prior = 0.0 if sample.n_ood == 0 else float(rng.choice([0, 0.1, 0.3]))
    if sample.ood_weight is not None and not sample.ood_weight.any():
        prior = 0.0
    if kind == "tprfpr":
        return dm.TprFprModel(
            float(rng.choice([0, 0.3, 0.5, 0.8, 0.95, 1])),
            float(rng.choice([0, 0.02, 0.1, 0.5, 1])),
        )
    if kind == "pr":
        return dm.PrecisionRecallModel(
            float(rng.choice([0, 0.5, 0.8, 0.95])), float(rng.choice([0.3, 0.6, 0.9])), prior
        )
    return dm.CostModel(float(rng.choice([0.0, 0.1, 0.5, 2])), 1.0, 0.1, prior)


def unnamed(totals):
    return replace(totals, groups=(), sets=())


def check_against_memory(sample, tune_there, model, *, directions, ood, search=None):
    """Assert that tuning elsewhere finds what tuning in memory finds, or fails as it does."""
    try:
        here = dm.tune(sample, model, directions=directions, ood=ood, search=search)
    except dm.InfeasibleError as error:
        with pytest.raises(dm.InfeasibleError) as caught:
            tune_there()
        assert caught.value.attainable == pytest.approx(error.attainable, nan_ok=True, rel=1e-12)
        return "infeasible"
    except dm.InvalidInputError:
        with pytest.raises(dm.InvalidInputError):
            tune_there()
        return "invalid"
    there = tune_there()
    # A source counts groups and sets by name only where bounds are about them.
    assert unnamed(there.totals) == unnamed(here.totals)
    for name in ("tpr", "fpr", "accepted_id", "accepted_ood", "selective_risk", "expected_cost"):
        a, b = getattr(there.point, name), getattr(here.point, name)
        assert (a is None and b is None) or a == b or (math.isnan(a) and math.isnan(b)), name
    assert there.point.accepted_loss == here.point.accepted_loss
    assert there.certificate.status == here.certificate.status
    assert there.certificate.lower_bound == pytest.approx(
        here.certificate.lower_bound, nan_ok=True, rel=1e-12
    )
    on_sample = dm.evaluate(there.rule, sample, model=model)
    assert on_sample.accepted_id == there.point.accepted_id
    assert on_sample.fpr_by_set == pytest.approx(there.point.fpr_by_set, nan_ok=True)
    return "optimal"
