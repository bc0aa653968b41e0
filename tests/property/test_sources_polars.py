"""Polars LazyFrames as sources: the answers, and the tuned rule, are those of memory."""

import numpy as np
import polars as pl
import pytest
from scored_tables import SETS, check_answers, table_of
from streams import DIRECTIONS, check_against_memory, random_model, random_sample

import demur as dm
from demur.sources.polars import PolarsSource


@pytest.mark.parametrize("seed", range(15))
def test_answers(seed):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, scores=1 + seed % 3 // 1 % 2)
    table, roles = table_of(sample, rng)
    check_answers(PolarsSource(pl.from_arrow(table).lazy(), roles), sample, rng)


@pytest.mark.parametrize("seed", range(SETS or 12))
def test_tuning_is_that_of_memory(seed):
    rng = np.random.default_rng(1000 + seed)
    sample = random_sample(rng, scores=1 if seed % 5 == 0 else 2)
    model, directions = random_model(rng, sample), str(rng.choice(DIRECTIONS))
    ood = str(rng.choice(["pooled", "worst"]))
    table, roles = table_of(sample, rng)
    source = PolarsSource(pl.from_arrow(table).lazy(), roles)
    check_against_memory(
        sample,
        lambda: dm.tune(source, model, directions=directions, ood=ood),
        model,
        directions=directions,
        ood=ood,
    )
