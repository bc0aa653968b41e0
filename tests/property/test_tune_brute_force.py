"""Every model returns the optimum, or proves infeasibility, on random small instances."""

import os

import numpy as np
import pytest
from brute import brute_force
from instances import random_model, random_rows, to_sample

import demur as dm
from demur._kernels import compiled
from demur._kernels.engines import NAMES, VARIABLE, engine_name
from demur.tuning import prepared

# The campaign of many more cases, for each engine:
# DEMUR_CASES=20000 pytest -n auto tests/property/test_tune_brute_force.py
CASES = int(os.environ.get("DEMUR_CASES", "1200"))


@pytest.fixture(autouse=True, params=[*NAMES, "growing"])
def engine(request, monkeypatch):
    name = request.param
    if name == "growing":
        # Trees over few rows grow where a search looks, too.
        monkeypatch.setattr(prepared, "LAZY", 0)
        name = "compiled"
    if name == "compiled" and not compiled.AVAILABLE:
        pytest.skip("the extension is not built")
    monkeypatch.setenv(VARIABLE, name)


def check(rows, model, twin, directions):
    expected = brute_force(rows, model, directions)
    sample = to_sample(rows)
    if expected is None:
        with pytest.raises(dm.InfeasibleError):
            dm.tune(sample, twin, directions=directions)
        return
    tuned = dm.tune(sample, twin, directions=directions)
    objective, nI, nO = expected
    point = tuned.point
    assert (point.accepted_id, point.accepted_ood) == (nI, nO)
    if model[0] == "cost":
        assert point.expected_cost == pytest.approx(float(objective), abs=1e-12)
    else:
        assert point.accepted_loss / point.accepted_id == float(objective)
    assert tuned.certificate.status == "optimal"
    if engine_name() == "compiled":
        # The NumPy engine now and then counts a cell that it could not take apart.
        assert tuned.certificate.unresolved == 0
    # The rule alone, through its JSON, reproduces the reported point.
    again = dm.evaluate(dm.Rule.from_json(tuned.rule.to_json()), sample, model=twin)
    np.testing.assert_equal(again, point)


@pytest.mark.parametrize("block", range(4))
def test_double_score_is_optimal(block):
    rng = np.random.default_rng([1, block])
    for _ in range(CASES // 4):
        rows = random_rows(rng, 2)
        check(rows, *random_model(rng, rows), directions="nonneg")


@pytest.mark.parametrize("directions", ["real", "paper", "circle"])
def test_other_direction_sets_are_optimal(directions):
    rng = np.random.default_rng([2, len(directions)])
    for _ in range(CASES // 6):
        rows = random_rows(rng, 2)
        check(rows, *random_model(rng, rows), directions=directions)


def test_single_score_is_optimal():
    rng = np.random.default_rng(3)
    for _ in range(CASES):
        rows = random_rows(rng, 1)
        check(rows, *random_model(rng, rows), directions="nonneg")


def test_attainable_bounds_are_exact():
    """The bounds an InfeasibleError names are met, and nothing beyond them is."""
    rng = np.random.default_rng(4)
    seen = 0
    while seen < 60:
        rows = random_rows(rng, 2, allow_infinite=False)
        model, twin = random_model(rng, rows)
        if model[0] != "tprfpr" or brute_force(rows, model) is not None:
            continue
        seen += 1
        with pytest.raises(dm.InfeasibleError) as caught:
            dm.tune(to_sample(rows), twin)
        reached = caught.value.attainable
        total_id = sum(w for _, loss, w in rows if loss is not None)
        total_ood = sum(w for _, loss, w in rows if loss is None)
        best_tpr = max(
            (k for k in range(1, total_id + 1) if _feasible(rows, k, total_id, model[2])),
            default=0,
        )
        assert reached["max_tpr"] == best_tpr / total_id
        least_ood = min(
            k
            for k in range(total_ood + 1)
            if brute_force(rows, ("tprfpr", model[1], f"{k}/{total_ood}")) is not None
        )
        assert reached["min_fpr"] == least_ood / total_ood
        assert f"{reached['max_tpr']:.4g}" in str(caught.value)


def _feasible(rows, k, total, max_fpr):
    return brute_force(rows, ("tprfpr", f"{k}/{total}", max_fpr)) is not None
