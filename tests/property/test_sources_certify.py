"""Promises from counts of a source are those of the same rows in memory."""

import json

import engines
import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import run
from scored_tables import table_of

import demur as dm
from demur.guarantees import certify
from demur.sources.engines.frames import ArraySource

MODELS = [
    None,
    dm.TprFprModel(0.6, 0.5),
    dm.TprFprModel(0.6, 0.5).of_every_set(),
    dm.PrecisionRecallModel(0.5, 0.5, 0.3),
    dm.CostModel(0.2, 1.0, 0.1, 0.3),
    dm.RejectionModel(
        "tpr",
        [
            dm.Bound("tpr", at_least=0.3, group="b"),
            dm.Bound("selective_risk", at_most=0.3, group="a"),
            dm.Bound("fpr", at_most=0.6, ood_set="set 0"),
        ],
    ),
]


def scored(seed, *, sets=2):
    rng = np.random.default_rng(seed)
    return dm.Sample(
        rng.normal(size=(400, 2)),
        (rng.random(400) < 0.2).astype(float),
        {f"set {k}": rng.normal(size=(60 + 30 * k, 2)) + 1 for k in range(sets)},
        id_group=np.where(rng.random(400) < 0.3, "a", "b"),
    )


@pytest.mark.parametrize("sides", ["one", "two"])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_counts_promise_what_rows_do(model, sides):
    for seed in range(4):
        sample = scored(seed, sets=1 + seed % 3)
        rule = dm.Rule((0.6, 0.8), (-0.5, 0.3, 99.0, -99.0)[seed])
        here = certify(rule, sample, model=model, sides=sides)
        there = certify(rule, ArraySource(sample, batch=97), model=model, sides=sides)
        assert repr(there) == repr(here)
        for parts in ("tpr_by_group", "selective_risk_by_group", "fpr_by_set"):
            assert repr(getattr(there, parts)) == repr(getattr(here, parts))


@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.pushdown])
def test_engines_promise_the_same(start):
    sample, rng = scored(7), np.random.default_rng(7)
    rule, model = dm.Rule((0.6, 0.8), 0.3), dm.TprFprModel(0.6, 0.5)
    with start() as source_of:
        source = source_of(*table_of(sample, rng))
        assert repr(certify(rule, source, model=model)) == repr(certify(rule, sample, model=model))


def test_what_counts_cannot_promise_is_refused():
    sample = scored(0)
    graded = dm.Sample(sample.id_scores, sample.id_loss / 2, sample.ood_scores)
    with pytest.raises(dm.InvalidInputError, match="losses of 0 and 1"):
        certify(dm.Rule((0.6, 0.8), 0.3), ArraySource(graded))
    with pytest.raises(dm.InvalidInputError, match="share an id need memory"):
        certify(dm.Rule((0.6, 0.8), 0.3), ArraySource(sample), groups=([0] * 400, [0] * 150))


def test_the_command_counts_folders(tmp_path):
    table, _ = table_of(scored(3), np.random.default_rng(3))
    rule = dm.Rule((0.6, 0.8), 0.3, score_names=("score 0", "score 1"))
    rule.save(tmp_path / "rule.json")
    (tmp_path / "lake").mkdir()
    pq.write_table(table, tmp_path / "all.parquet")
    for part in range(3):
        pq.write_table(table.slice(part * 200, 200), tmp_path / f"lake/{part}.parquet")
    options = ["--loss", "loss", "--ood", "group", "--min-tpr", ".3", "--max-fpr", ".9", "--json"]
    found = [
        json.loads(run(tmp_path, "certify", "rule.json", data, *options).stdout)
        for data in ("all.parquet", "lake")
    ]
    work = found[1].pop("work")
    assert found[0] == found[1]
    assert work == {"engine": "duckdb", "passes": 2, "rows_fetched": 0}
