"""The paper's angles where the rows are: what the same angles find in memory."""

import json
import os
from dataclasses import replace

import engines
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run
from scored_tables import table_of
from streams import check_against_memory, random_model, random_sample

import demur as dm
from demur.sources.engines.frames import ArraySource
from demur.tuning.result import DIRECTION_SETS, grid_directions
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.tune import tune_source

SETS = int(os.environ.get("DEMUR_RANDOM_SETS", "16"))
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def same_as_memory(sample, tune_there, model, directions, angles, ood):
    """Assert that a grid elsewhere finds what it finds in memory, in a direction of the grid."""
    found = []

    def tune_on_the_grid():
        found.append(tune_there())
        return found[0]

    outcome = check_against_memory(
        sample, tune_on_the_grid, model, directions=directions, ood=ood, search=dm.Grid(angles)
    )
    if found and sample.n_scores == 2 and found[0].point.accepted_id:
        allowed = DIRECTION_SETS[directions or "paper"]
        assert found[0].rule.direction in grid_directions(allowed, angles)
    return outcome


def test_arrays_in_few_bins_find_what_memory_finds():
    """Bins are so few that most boxes are looked into by the rows of their cells."""
    found = []
    for seed in range(SETS):
        rng = np.random.default_rng([21, seed])
        sample = random_sample(rng, scores=1 if rng.random() < 0.1 else 2)
        model = random_model(rng, sample)
        directions = [None, "nonneg", "real", "circle"][int(rng.integers(4))]
        angles = int(rng.choice([1, 2, 7, 45, 360]))
        ood = "worst" if rng.random() < 0.2 else "pooled"
        source = ArraySource(sample, batch=97)
        allowed = DIRECTION_SETS[directions or "paper"]
        bins = int(rng.choice([2, 8, 64]))

        def tune_there(
            source=source,
            sample=sample,
            model=model,
            directions=directions,
            angles=angles,
            ood=ood,
            allowed=allowed,
            bins=bins,
        ):
            if len(source.score_names) == 1:
                return dm.tune(
                    source, model, directions=directions, search=dm.Grid(angles), ood=ood
                )
            plan = StreamPlan.of(sample.n_id + sample.n_ood, 2, source.memory)
            plan = replace(plan, bins=bins, sample=50, few=4)
            return tune_source(source, model, allowed, dm.Grid(angles), ood=ood, plan=plan)

        found.append(same_as_memory(sample, tune_there, model, directions, angles, ood))
    assert found.count("optimal") > SETS / 3


@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.frames])
def test_engines_find_what_memory_finds(start):
    with start() as source_of:
        for seed in range(max(4, SETS // 8)):
            rng = np.random.default_rng([22, seed])
            sample = random_sample(rng)
            model = random_model(rng, sample)
            source = source_of(*table_of(sample, rng))
            same_as_memory(
                sample,
                lambda source=source, model=model: dm.tune(source, model, search=dm.Grid(90)),
                model,
                None,
                90,
                "pooled",
            )


def test_few_rows_of_many_are_fetched():
    rng = np.random.default_rng(3)
    n = 200_000
    doubt = rng.normal(size=n)
    wrong = rng.random(n) < 1 / (1 + np.exp(3 - 2 * doubt))
    scores = np.column_stack([doubt, rng.normal(size=n)])
    sample = dm.Sample(scores, wrong, rng.normal([0.5, 2.0], 1.0, size=(n // 2, 2)))
    source, model = ArraySource(sample), dm.TprFprModel(0.8, 0.2)
    there = dm.tune(source, model, search=dm.Grid(360))
    here = dm.tune(sample, model, search=dm.Grid(360))
    assert there.point == here.point and there.rule.direction == here.rule.direction
    assert there.certificate.status == "grid"
    # 3.9 % of 300,000; fewer of more rows, whose bins are finer.
    assert source.work.fetched < 0.05 * 1.5 * n


def test_the_command_takes_a_grid_where_the_rows_are(tmp_path):
    rng = np.random.default_rng(4)
    n = 3000
    table = {"a": rng.normal(size=n), "b": rng.normal(size=n), "ood": rng.random(n) < 0.3}
    pq.write_table(pa.table(table | {"loss": rng.random(n) < 0.2}), tmp_path / "t.parquet")
    given = ["t.parquet", "--scores", "a,b", "--loss", "loss", "--ood", "ood", "--grid", "360"]
    given += ["--min-tpr", ".5", "--max-fpr", ".6", "--json"]
    found = [
        json.loads(run(tmp_path, "tune", *given, "--engine", engine).stdout)
        for engine in ("memory", "duckdb")
    ]
    assert found[0]["tuned"] == found[1]["tuned"]
    assert found[1]["certificate"]["status"] == "grid"
