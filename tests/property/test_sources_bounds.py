"""Bounds on risk, groups and sets: sources find what is found in memory."""

import os

import engines
import numpy as np
import pyarrow as pa
import pytest
from instances import labelled, random_bounds, random_rows, to_sample
from scored_tables import SETS

import demur as dm
from demur.sources.engines.frames import ArraySource
from demur.sources.open import Roles
from demur.tuning.result import DIRECTION_SETS
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.tune import tune_source

# The campaign of many more cases:
# DEMUR_CASES=5000 pytest -n auto tests/property/test_sources_bounds.py
CASES = int(os.environ.get("DEMUR_CASES", SETS or 5))


@pytest.mark.parametrize("shape", ["half-plane", "box"])
@pytest.mark.parametrize("kind", ["risk", "sets", "groups", "mixed"])
@pytest.mark.parametrize("scores", [2, 1])
def test_tuning_is_that_of_memory(kind, scores, shape):
    rng = np.random.default_rng([5, len(kind), scores])
    for case in range(CASES):
        rows = [row for _ in range(40 if case % 4 == 0 else 1) for row in random_rows(rng, scores)]
        rows = labelled(rng, sorted(rows, key=lambda row: row[1] is None))
        _, model = random_bounds(rng, rows, kind)
        sample = to_sample(rows)
        plan = StreamPlan(
            sample=int(rng.choice([3, 50, 1000])),
            bins=int(rng.choice([2, 4, 16])),
            fetched=10**6,
            boxes=150,
            plenty=int(rng.choice([0, 10**6])),
        )
        source = ArraySource(sample, batch=37)
        how = {"plan": plan, "shape": shape}
        try:
            expected = dm.tune(sample, model, shape=shape)
        except dm.InfeasibleError as error:
            with pytest.raises(dm.InfeasibleError) as caught:
                tune_source(source, model, DIRECTION_SETS["nonneg"], dm.Exact(), **how)
            np.testing.assert_equal(caught.value.attainable, error.attainable)
            continue
        found = tune_source(source, model, DIRECTION_SETS["nonneg"], dm.Exact(), **how)
        np.testing.assert_equal(found.point, expected.point)
        np.testing.assert_equal(dm.evaluate(found.rule, source, model=model), found.point)


BOUNDS = [dm.Bound("tpr", at_least=0.5), dm.Bound("fpr", at_most=0.3)]
MODELS = [
    dm.RiskFprModel(0.15, 0.3),
    dm.RejectionModel("selective_risk", [*BOUNDS, dm.Bound("fpr", at_most=0.2, ood_set="near")]),
    dm.RejectionModel(
        "selective_risk",
        [
            *BOUNDS,
            dm.Bound("tpr", at_least=0.45, group="2"),
            dm.Bound("selective_risk", at_most=0.35, group="2"),
        ],
    ),
]


@pytest.mark.parametrize("name", ["frames", "duckdb", "polars", "pushdown"])
@pytest.mark.parametrize("weight", [None, "weight"])
def test_engines_count_groups_and_sets(name, weight):
    rng = np.random.default_rng(3)
    n = 900
    ood = np.repeat(["id", "far", "near"], n // 3)
    group = rng.integers(1, 4, n).astype(float)
    shift = np.where(ood == "id", 0.0, 1.2) + np.where(group == 2, 0.3, 0.0)
    scores = rng.normal(size=(n, 2)) + shift[:, None]
    table = pa.table(
        {
            "a": scores[:, 0],
            "b": scores[:, 1],
            "loss": (rng.random(n) < 0.3) * (1.0 if weight is None else rng.random(n)),
            "ood": ood,
            "weight": rng.integers(1, 5, n) / 4,
            "who": np.where(ood == "id", group, np.nan),
        }
    )
    roles = {"loss": "loss", "ood": "ood", "weight": weight, "group": "who"}
    sample = dm.Sample.from_frame(table, ["a", "b"], **roles)
    assert sample.groups == ("1", "2", "3")
    with getattr(engines, name)() as source_of:
        source = source_of(table, Roles(("a", "b"), **roles))
        assert source.overview().groups == sample.groups
        for model in MODELS:
            for shape in ("half-plane", "box"):
                expected, found = (dm.tune(rows, model, shape=shape) for rows in (sample, source))
                np.testing.assert_equal(found.point, expected.point)
