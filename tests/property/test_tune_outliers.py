"""Scores with outliers of many decades: a rule that is handed out does what is said of it."""

import os

import numpy as np
import pytest
from brute import brute_force

import demur as dm
from demur._kernels import compiled
from demur._kernels.engines import NAMES, VARIABLE

CASES = int(os.environ.get("DEMUR_CASES", "1200"))


@pytest.fixture(autouse=True, params=NAMES)
def engine(request, monkeypatch):
    if request.param == "compiled" and not compiled.AVAILABLE:
        pytest.skip("the extension is not built")
    monkeypatch.setenv(VARIABLE, request.param)


def test_a_line_is_placed_where_the_order_of_the_rows_was_established():
    """A zone cut in t by subtraction used to leave the cell, and the rule broke its bound."""
    id_scores = [[2, 0], [1, 1], [0, 0], [0, 2], [1, 10**8], [1, 2], [2, 1]]
    ood_scores = [[3, 1], [10**8, 3], [3, 3], [2, 3], [10**8, 3]]
    loss = [0, 0, 0, 0, 0, 0, 1]
    sample = dm.Sample(np.array(id_scores, float), loss, np.array(ood_scores, float))
    rows = [(tuple(s), wrong, 1) for s, wrong in zip(id_scores, loss, strict=True)]
    rows += [(tuple(s), None, 1) for s in ood_scores]
    objective, nI, nO = brute_force(rows, ("tprfpr", 0.9, 0.3))
    tuned = dm.tune(sample, dm.TprFprModel(0.9, 0.3))
    point = dm.evaluate(tuned.rule, sample)
    assert (point.accepted_id, point.accepted_ood) == (nI, nO) == (7, 0)
    assert point.selective_risk == float(objective)


@pytest.mark.parametrize("outlier", [1e8, 1e38])
def test_every_rule_is_what_it_is_said_to_be(outlier):
    rng = np.random.default_rng([5, int(np.log10(outlier))])
    handed_out = 0
    for _ in range(CASES // 6):
        sample = dm.Sample(*_rows(rng, outlier))
        bounds = rng.choice([0.3, 0.5, 0.9]), rng.choice([0.1, 0.3, 0.6])
        directions = str(rng.choice(["nonneg", "real", "circle"]))
        try:
            tuned = dm.tune(sample, dm.TprFprModel(*bounds), directions=directions)
        except dm.InfeasibleError:
            continue
        handed_out += 1
        point = dm.evaluate(tuned.rule, sample)
        np.testing.assert_equal(point, tuned.point)
        assert point.tpr >= bounds[0]
        assert point.fpr <= bounds[1]
    assert handed_out > CASES // 24


def _rows(rng, outlier):
    n_id, n_ood = int(rng.integers(2, 10)), int(rng.integers(1, 8))
    scores = rng.integers(0, 4, (n_id + n_ood, 2)).astype(float)
    scores[rng.random(scores.shape) < 0.15] = outlier
    return scores[:n_id], (rng.random(n_id) < 0.3).astype(float), scores[n_id:]
