"""Bounds on risk, on groups and on single OOD sets: the optimum on random small instances."""

import os

import numpy as np
import pytest
from brute import brute_bounds
from instances import labelled, random_bounds, random_rows, to_sample

import demur as dm
from demur._kernels import compiled
from demur._kernels.engines import NAMES, VARIABLE, engine_name
from demur.core.wording import bounds_met
from demur.tuning import prepared

# The campaign of many more cases, for each engine and kind:
# DEMUR_CASES=5000 pytest -n auto tests/property/test_bounds_brute_force.py
CASES = int(os.environ.get("DEMUR_CASES", "80"))


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


def check(rows, asked, model, directions="nonneg", search=None):
    expected = brute_bounds(rows, *asked, directions)
    sample = to_sample(rows)
    if expected is None:
        with pytest.raises(dm.InfeasibleError) as caught:
            dm.tune(sample, model, directions=directions)
        assert caught.value.attainable or not model.bounds
        return False
    tuned = dm.tune(sample, model, directions=directions)
    _, nI, nO, L = expected
    point = tuned.point
    assert (point.accepted_id, point.accepted_ood, point.accepted_loss) == (nI, nO, L)
    assert tuned.certificate.status == "optimal"
    if engine_name() == "compiled":
        assert tuned.certificate.unresolved == 0
    again = dm.evaluate(dm.Rule.from_json(tuned.rule.to_json()), sample, model=model)
    np.testing.assert_equal(again, point)
    assert all(bounds_met(model, again).values())
    return True


@pytest.mark.parametrize("kind", ["risk", "sets", "groups", "mixed"])
@pytest.mark.parametrize("scores", [2, 1])
def test_the_optimum_is_found(kind, scores):
    rng = np.random.default_rng([11, len(kind), scores])
    found = 0
    for _ in range(CASES):
        rows = labelled(rng, random_rows(rng, scores))
        found += check(rows, *random_bounds(rng, rows, kind))
    assert found > CASES / 20


@pytest.mark.parametrize("directions", ["real", "paper", "circle"])
def test_other_direction_sets_are_optimal(directions):
    rng = np.random.default_rng([12, len(directions)])
    for _ in range(CASES // 4):
        rows = labelled(rng, random_rows(rng, 2))
        check(rows, *random_bounds(rng, rows, "mixed"), directions=directions)
